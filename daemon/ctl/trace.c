/*
 * mux-ctl trace: records what the daemon tells of its work, as lines of trace/trace.h, and writes
 * such a file as JSON trace events. Calls ask.c, tracks.c, export.c, replace.c and say.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/nearest.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/tracks.h"

#define LOOK_NS (100 * GM_MS) /* between two questions */

static void cannot_write(const char *path, int error)
{
    mux_complain("trace: %s cannot be written: %s", path, mux_file_error(error));
}

/* ---- record ---- */

static volatile sig_atomic_t is_ended;

static void on_interrupt(int signal)
{
    (void)signal;
    is_ended = 1;
}

/* Open the file, which is new, empty or a trace, and nobody else's: in a folder where others write
 * a link, or a file of theirs, may lie. -1, after one line: it is something else, or cannot be
 * written. */
static int open_file(const char *path)
{
    char begin[sizeof GM_TRACE_MAGIC - 1];
    struct stat found;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0600);
    if (fd < 0) {
        cannot_write(path, errno);
        return -1;
    }
    const bool is_file = fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
    if (is_file && (found.st_uid != geteuid() || found.st_nlink != 1)) {
        mux_complain("trace: %s is another user's, or has more names: choose another file", path);
        close(fd);
        return -1;
    }
    const ssize_t n = is_file ? pread(fd, begin, sizeof begin, 0) : -1;
    if (n == 0 || (n == sizeof begin && memcmp(begin, GM_TRACE_MAGIC, sizeof begin) == 0))
        return fd;
    mux_complain("trace: %s is there and no trace: remove it, or choose another file", path);
    close(fd);
    return -1;
}

static bool write_all(int fd, const char *text, size_t length)
{
    while (length > 0) {
        const ssize_t n = write(fd, text, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        text += n;
        length -= (size_t)n;
    }
    return true;
}

struct recording {
    const struct mux_options *options;
    const char *path;
    int fd;
    uint64_t since, bytes;
    double pid, started; /* of the daemon that is asked; 0: of none yet */
};

/* Ask once, and write what has come. *is_over: the daemon has ended, or is another one. */
static int look(struct recording *recording, bool *is_over)
{
    const struct gm_msg_trace body = {.since = recording->since};
    struct mux_question ask = {
        .question = GM_MSG_TRACE, .body = &body, .answer = GM_MSG_TRACE_IS, .is_document = true};
    const int code = mux_try(recording->options->socket, &ask);
    *is_over = code && ask.is_away && recording->bytes > 0;
    if (code) {
        mux_complain(*is_over ? "trace: the daemon is gone, so the trace ends here: %s" : "%s",
                     ask.why);
        return *is_over ? MUX_OK : code;
    }
    cJSON *answer = cJSON_Parse(ask.text);
    free(ask.text);
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(answer, "text");
    const double pid = mux_number(answer, "pid"), started = mux_number(answer, "started_s");
    int result = MUX_OK;
    if (!cJSON_IsString(text) || mux_number(answer, "next") < 1) {
        mux_complain("trace: gpumuxd's answer is no trace");
        result = MUX_FAILED;
    } else if (recording->bytes > 0 && (pid != recording->pid || started != recording->started)) {
        mux_complain("trace: the daemon was restarted, so the trace ends here");
        *is_over = true;
    } else if ((recording->bytes == 0 && ftruncate(recording->fd, 0)) ||
               !write_all(recording->fd, text->valuestring, strlen(text->valuestring))) {
        cannot_write(recording->path, errno);
        result = MUX_FAILED;
    } else {
        recording->bytes += strlen(text->valuestring);
        recording->since = (uint64_t)mux_number(answer, "next");
        recording->pid = pid;
        recording->started = started;
    }
    cJSON_Delete(answer);
    return result;
}

static int record(const struct mux_options *options, const char *path)
{
    struct sigaction end = {.sa_handler = on_interrupt};
    struct recording recording = {.options = options, .path = path};
    const struct timespec pause = {.tv_nsec = (long)LOOK_NS};
    const uint64_t begun = gm_now(), most = (uint64_t)options->seconds * GM_S;
    char size[32];
    bool is_over = false;
    recording.fd = open_file(path);
    if (recording.fd < 0)
        return MUX_FAILED;
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    int code = look(&recording, &is_over);
    if (code == MUX_OK && most == 0 && isatty(STDERR_FILENO))
        fprintf(stderr, "recording to %s until Ctrl-C\n", path);
    while (code == MUX_OK && !is_ended && !is_over && (most == 0 || gm_now() - begun < most)) {
        nanosleep(&pause, NULL);
        code = look(&recording, &is_over); /* at its end, too */
    }
    if (close(recording.fd) && code == MUX_OK) {
        cannot_write(path, errno);
        code = MUX_FAILED;
    }
    struct stat found;
    if (recording.bytes == 0 && stat(path, &found) == 0 && S_ISREG(found.st_mode) &&
        found.st_size == 0)
        unlink(path); /* nobody answered */
    if (code != MUX_OK)
        return code;
    printf("%s: %.1f s, %s\n", path, (double)(gm_now() - begun) / (double)GM_S,
           mux_bytes((double)recording.bytes, size));
    return mux_written("what was recorded");
}

/* ---- export ---- */

static bool is_same(const char *path, const char *other)
{
    struct stat one, two;
    return stat(path, &one) == 0 && stat(other, &two) == 0 && one.st_dev == two.st_dev &&
           one.st_ino == two.st_ino;
}

static int export_to_json(const struct mux_options *options, const char *path)
{
    struct mux_tracks tracks;
    struct mux_file new;
    FILE *file = stdout;
    int code = MUX_FAILED;
    if (!mux_read_tracks(path, &tracks))
        goto out;
    if (options->output && is_same(path, options->output)) {
        mux_complain("trace: %s is the trace itself: choose another file", options->output);
        goto out;
    }
    if (options->output && !(file = mux_begin_file(&new, options->output, 0600))) {
        cannot_write(options->output, errno);
        goto out;
    }
    const bool is_good = mux_export_tracks(file, &tracks);
    const bool is_whole =
        options->output ? mux_end_file(&new, is_good) : fflush(stdout) == 0 && !ferror(stdout);
    if (!is_good)
        mux_complain("%s: out of memory", path);
    else if (!is_whole)
        cannot_write(options->output ? options->output : "the output", errno);
    else
        code = MUX_OK;
out:
    mux_free_tracks(&tracks);
    return code;
}

int mux_trace(const struct mux_options *options)
{
    static const char *const words[] = {"record", "export"};
    const char *word = options->words[0];
    struct gm_nearest nearest;
    size_t what = 0;
    gm_nearest_begin(&nearest, word ? word : "", word ? strlen(word) : 0);
    for (size_t i = 0; i < 2; i++)
        gm_nearest_look(&nearest, words[i]);
    while (word && what < 2 && strcmp(word, words[what]) != 0)
        what++;
    if (!word || what == 2) {
        if (word && strcmp(word, "report") == 0) /* until 0.2: what it was */
            mux_complain("trace: report is gone: say export, and open its JSON in ui.perfetto.dev");
        else if (word && nearest.best)
            mux_complain("trace: \"%.60s\": did you mean %s?", word, nearest.best);
        else
            mux_complain("trace: say record or export, and a file");
        return MUX_FAILED;
    }
    if (!options->words[1] || options->words[2]) {
        mux_complain("trace: %s takes one file", word);
        return MUX_FAILED;
    }
    if ((what == 0 && options->output) || (what > 0 && options->seconds > 0)) {
        mux_complain("trace: %s has no --%s", word, what == 0 ? "output" : "seconds");
        return MUX_FAILED;
    }
    if (what == 0)
        return record(options, options->words[1]);
    return export_to_json(options, options->words[1]);
}
