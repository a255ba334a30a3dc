/*
 * mux-ctl status: ask the daemon for its status document and hand it on.
 *
 * A socket that is not there or that nobody answers at means "down" (exit code 3). One that may not
 * be used, or a daemon that answers nonsense or nothing within 5 s, is a failure (1).
 */
#include "daemon/mux_ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/sock.h"

#define PATIENCE_S 5
#define DOCUMENT_MAX (256u << 20)

static bool is_down(int error)
{
    return error == -ENOENT || error == -ECONNREFUSED || error == -ENOTDIR;
}

/* Connect to `path` or to the first place that answers. Returns an fd, or -1 after one line, with
 * the exit code in *code. */
static int reach(const char *path, int *code)
{
    char tried[1024] = "";
    size_t length = 0;
    int hard = 0; /* an error that is not "down" */

    for (unsigned n = 0;; n++) {
        char place[512];
        int error = 0;
        if (path)
            error = n == 0 ? (snprintf(place, sizeof place, "%s", path), 0) : -ENOENT;
        else
            error = gm_sock_path(n, place, sizeof place);
        if (error == -ENOENT)
            break;
        int fd = error ? error : gm_sock_connect(place);
        if (fd >= 0)
            return fd;
        if (!is_down(fd))
            hard = fd;
        int wrote = snprintf(tried + length, sizeof tried - length, "%s%s: %s", n ? "; " : "",
                             error ? "a socket's path" : place, strerror(-fd));
        if (wrote > 0)
            length += (size_t)wrote < sizeof tried - length ? (size_t)wrote : 0;
    }
    if (hard) {
        mux_complain("gpumuxd cannot be reached (%s)", tried);
        *code = MUX_FAILED;
    } else {
        mux_complain("gpumuxd is not running (%s): start it with `systemctl start gpumuxd`, or "
                     "`gpumuxd --user` for yourself",
                     tried);
        *code = MUX_DOWN;
    }
    return -1;
}

/* Read the whole document from its memfd. Returns its text, the caller's, or NULL after one line.
 */
static char *read_document(int fd, uint64_t bytes)
{
    struct stat found;
    if (fstat(fd, &found) || found.st_size < 0 || (uint64_t)found.st_size != bytes ||
        bytes > DOCUMENT_MAX) {
        mux_complain("gpumuxd sent a document of another size than it says");
        return NULL;
    }
    char *text = malloc(bytes + 1);
    if (!text) {
        mux_complain("out of memory");
        return NULL;
    }
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, text + done, bytes - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            mux_complain("gpumuxd's document cannot be read: %s", n ? strerror(errno) : "cut off");
            free(text);
            return NULL;
        }
        done += (uint64_t)n;
    }
    text[bytes] = '\0';
    return text;
}

/* Receive the answer to STATUS. Returns the document's text, or NULL after one line. */
static char *receive(int fd)
{
    _Alignas(8) uint8_t buffer[GM_WIRE_MAX];
    struct gm_wire_message message;
    int fds[GM_WIRE_FDS], n_fds = 0;
    char *text = NULL;

    ssize_t length = gm_sock_receive(fd, buffer, sizeof buffer, fds, &n_fds);
    if (length == -EAGAIN) {
        mux_complain("gpumuxd did not answer within %d s", PATIENCE_S);
        return NULL;
    }
    if (length <= 0) {
        mux_complain("gpumuxd closed the connection%s%s", length ? ": " : "",
                     length ? strerror((int)-length) : "");
        return NULL;
    }
    enum gm_wire_fault fault =
        gm_wire_decode(buffer, (size_t)length, n_fds, GM_DOWN, GM_SESSION_CONTROL, &message);
    if (fault == GM_WIRE_BAD_VERSION && (size_t)length >= sizeof(struct gm_wire_header)) {
        const struct gm_wire_header *header = (const void *)buffer;
        mux_complain("gpumuxd speaks protocol version %u, this mux-ctl %u: install the same gpumux "
                     "version of both",
                     header->version, GM_WIRE_VERSION);
    } else if (fault) {
        mux_complain("gpumuxd sent a bad message: %s", gm_wire_fault_text(fault));
    } else if (message.type == GM_MSG_REFUSED) {
        const struct gm_msg_refused *body = message.body;
        mux_complain("gpumuxd refused: %s", body->text);
    } else if (message.type != GM_MSG_STATUS_IS || n_fds != 1) {
        mux_complain("gpumuxd sent %s instead of its status", gm_wire_name(message.type));
    } else {
        const struct gm_msg_status_is *body = message.body;
        text = read_document(fds[0], body->bytes);
    }
    for (int i = 0; i < n_fds; i++)
        close(fds[i]);
    return text;
}

/* One question, one answer, on a connection of its own. NULL after one line, with *code. */
static char *ask(const char *path, int *code)
{
    struct gm_msg_hello hello = {.role = GM_ROLE_CONTROL, .name = "mux-ctl"};
    struct gm_msg_status status = {0};
    struct timeval patience = {.tv_sec = PATIENCE_S};
    char *text = NULL;

    int fd = reach(path, code);
    if (fd < 0)
        return NULL;
    *code = MUX_FAILED;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    int error = gm_sock_send_message(fd, GM_MSG_HELLO, &hello, NULL, 0, NULL, 0);
    if (error == 0)
        error = gm_sock_send_message(fd, GM_MSG_STATUS, &status, NULL, 0, NULL, 0);
    /* A daemon that refuses may have closed before it was asked: what it said can still be read. */
    if (error == 0 || error == -EPIPE || error == -ECONNRESET)
        text = receive(fd);
    else
        mux_complain("gpumuxd cannot be asked: %s", strerror(-error));
    close(fd);
    return text;
}

static int show(const char *text, bool is_json)
{
    cJSON *status = cJSON_Parse(text);
    const cJSON *schema = cJSON_GetObjectItemCaseSensitive(status, "schema");
    if (!cJSON_IsNumber(schema)) {
        cJSON_Delete(status);
        mux_complain("gpumuxd's status is not a status document");
        return MUX_FAILED;
    }
    if (is_json) {
        char *printed = cJSON_PrintUnformatted(status); /* one line each, for line readers */
        if (printed)
            puts(printed);
        cJSON_free(printed);
    } else {
        mux_table(status);
    }
    cJSON_Delete(status);
    if (fflush(stdout) || ferror(stdout)) {
        mux_complain("the status cannot be written: %s", strerror(errno));
        return MUX_FAILED;
    }
    return MUX_OK;
}

int mux_status(const struct mux_options *options)
{
    bool is_watched = options->watch_ns > 0;
    bool is_screen = is_watched && !options->is_json && isatty(STDOUT_FILENO);
    struct timespec pause = {.tv_sec = (time_t)(options->watch_ns / GM_S),
                             .tv_nsec = (long)(options->watch_ns % GM_S)};

    for (bool is_first = true;; is_first = false) {
        int code = MUX_FAILED;
        char *text = ask(options->socket, &code);
        if (!text)
            return code;
        if (is_screen)
            fputs("\033[H\033[2J", stdout);
        else if (!is_first && !options->is_json)
            putchar('\n');
        code = show(text, options->is_json);
        free(text);
        if (code || !is_watched)
            return code;
        nanosleep(&pause, NULL);
    }
}
