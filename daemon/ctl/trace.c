/*
 * mux-ctl trace: records what the daemon tells of its work, as lines of trace/trace.h, and writes
 * such a file as JSON trace events. Calls ask.c, export.c, replace.c and say.c.
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
#include "daemon/ctl/ctl.h"
#include "daemon/trace/trace.h"

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
 * a link, or a file of theirs, may lie. NULL, after one line: it is something else, or cannot be
 * written. */
static FILE *open_file(const char *path)
{
    char begin[sizeof "gpumux-trace" - 1]; /* of any version */
    struct stat found;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file) {
        cannot_write(path, errno);
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    const bool is_file = fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
    const ssize_t n = is_file ? pread(fd, begin, sizeof begin, 0) : -1;
    if (is_file && (found.st_uid != geteuid() || found.st_nlink != 1))
        mux_complain("trace: %s is another user's, or has more names: choose another file", path);
    else if (n == 0 || (n == sizeof begin && memcmp(begin, GM_TRACE_MAGIC, sizeof begin) == 0))
        return file;
    else
        mux_complain("trace: %s is there and no trace: remove it, or choose another file", path);
    fclose(file);
    return NULL;
}

struct recording {
    const struct mux_options *options;
    const char *path;
    FILE *file;
    uint64_t since, bytes;
    double started; /* the daemon that is asked */
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
    const double started = mux_number(answer, "started_s");
    int result = MUX_OK;
    if (!cJSON_IsString(text) || mux_number(answer, "next") < 1) {
        mux_complain("trace: gpumuxd's answer is no trace");
        result = MUX_FAILED;
    } else if (recording->bytes > 0 && started != recording->started) {
        mux_complain("trace: the daemon was restarted, so the trace ends here");
        *is_over = true;
    } else if ((recording->bytes == 0 && ftruncate(fileno(recording->file), 0)) ||
               fputs(text->valuestring, recording->file) < 0 || fflush(recording->file)) {
        cannot_write(recording->path, errno);
        result = MUX_FAILED;
    } else {
        recording->bytes += strlen(text->valuestring);
        recording->since = (uint64_t)mux_number(answer, "next");
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
    bool is_over = false, was_there = access(path, F_OK) == 0;
    recording.file = open_file(path);
    if (!recording.file)
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
    if (fclose(recording.file) && code == MUX_OK) {
        cannot_write(path, errno);
        code = MUX_FAILED;
    }
    struct stat found;
    if (recording.bytes == 0 && !was_there && stat(path, &found) == 0 && S_ISREG(found.st_mode) &&
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

/* All of it, or nothing: the JSON is in memory before a file is touched. */
static int export_to_json(const struct mux_options *options, const char *path)
{
    struct mux_file new;
    char *json = NULL;
    size_t length = 0;
    int code = MUX_FAILED;
    FILE *from = fopen(path, "re"), *memory = open_memstream(&json, &length), *file = stdout;
    if (!from)
        mux_complain("%s: %s", path, strerror(errno));
    bool is_good = from && memory && mux_export(from, path, memory);
    if (memory && fclose(memory) != 0 && is_good) {
        mux_complain("%s: out of memory", path);
        is_good = false;
    }
    if (from)
        fclose(from);
    if (!is_good)
        goto out;
    if (options->output && is_same(path, options->output)) {
        mux_complain("trace: %s is the trace itself: choose another file", options->output);
        goto out;
    }
    if (options->output && !(file = mux_begin_file(&new, options->output, 0600))) {
        cannot_write(options->output, errno);
        goto out;
    }
    fwrite(json, 1, length, file);
    if (options->output ? mux_end_file(&new, true) : fflush(stdout) == 0 && !ferror(stdout))
        code = MUX_OK;
    else
        cannot_write(options->output ? options->output : "the output", errno);
out:
    free(json);
    return code;
}

int mux_trace(const struct mux_options *options)
{
    const char *word = options->words[0] ? options->words[0] : "";
    const bool is_record = strcmp(word, "record") == 0, is_export = strcmp(word, "export") == 0;
    if (strcmp(word, "report") == 0) /* until 0.2: what it was */
        mux_complain("trace: report is gone: say export, and open its JSON in ui.perfetto.dev");
    else if (!is_record && !is_export)
        mux_complain("trace: say record or export, and a file");
    else if (!options->words[1] || options->words[2])
        mux_complain("trace: %s takes one file", word);
    else if (is_record ? options->output != NULL : options->seconds > 0)
        mux_complain("trace: %s has no --%s", word, is_record ? "output" : "seconds");
    else
        return is_record ? record(options, options->words[1])
                         : export_to_json(options, options->words[1]);
    return MUX_FAILED;
}
