/*
 * Asking the daemon: one question and one answer on a connection of their own. Called by the
 * commands; calls common/.
 *
 * A socket that does not exist or refuses connections means that the daemon is down (exit code 3).
 * Everything else is a failure (1): no access, no answer within 5 s, an answer that makes no sense.
 */
#include "daemon/ctl/ctl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/sock.h"
#include "common/text.h"

#define PATIENCE_S (5 * GM_SLOW) /* to be connected, and then to be answered */
#define NO_ANSWER                                                                                  \
    "gpumuxd does not answer (waited %d s): it is stopped or hangs; let it go on, or restart it"
#define DOCUMENT_MAX (256u << 20)

static bool is_down(int error)
{
    return error == -ENOENT || error == -ECONNREFUSED || error == -ENOTDIR;
}

static void explain(struct mux_question *ask, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void explain(struct mux_question *ask, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(ask->why, sizeof ask->why, format, list);
    va_end(list);
}

/* Connect. A daemon that is stopped leaves the queue of connections full: wait for it. */
static int connect_to(const char *place)
{
    const uint64_t until = gm_now() + PATIENCE_S * GM_S;
    int fd;
    do
        fd = gm_sock_connect(place);
    while (fd == -EAGAIN && gm_now() < until); /* each try waits for GM_SOCK_PATIENCE_S */
    return fd;
}

/* How to start a daemon that is found here. */
static const char *advice(const char *path)
{
    const char *chosen = getenv("GPUMUX_SOCKET"), *session = getenv("XDG_RUNTIME_DIR");
    if (path || (chosen && *chosen))
        return "start one there, with `gpumuxd --socket PATH`";
    if (session && session[0] == '/')
        return "start it with `systemctl start gpumuxd`, or `gpumuxd --user` for yourself";
    return "start it with `systemctl start gpumuxd`, or for yourself with `gpumuxd --user`, "
           "which says what to set";
}

/* Connect to `path` or to the first place that answers. Returns an fd; or -1, the reason in `why`,
 * and MUX_DOWN in *code if no daemon runs. */
static int reach(const char *path, struct mux_question *ask, int *code)
{
    char tried[1024] = "";
    bool is_stuck = false, is_failure = false, is_long = false; /* is_failure: not just "down" */

    for (unsigned n = 0;; n++) {
        char place[512];
        int error = 0;
        if (path)
            error = n == 0 ? (snprintf(place, sizeof place, "%s", path), 0) : -ENOENT;
        else
            error = gm_sock_path(n, place, sizeof place);
        if (error == -ENOENT)
            break;
        int fd = error ? error : connect_to(place);
        if (fd >= 0)
            return fd;
        is_stuck = is_stuck || fd == -EAGAIN;
        is_failure = is_failure || !is_down(fd);
        is_long = is_long || fd == -ENAMETOOLONG;
        gm_text_add(tried, sizeof tried, "%s%s: %s", n ? "; " : "",
                    error ? "a socket's path" : place, strerror(-fd));
    }
    if (is_stuck) {
        explain(ask, NO_ANSWER, PATIENCE_S);
        ask->is_away = true;
    } else if (is_long) {
        explain(ask, "gpumuxd cannot be reached (%s): name a shorter path", tried);
    } else if (is_failure) {
        explain(ask,
                "gpumuxd cannot be reached (%s): ask its owner, or start one with gpumuxd --user",
                tried);
    } else {
        explain(ask, "gpumuxd is not running (%s): %s", tried, advice(path));
        *code = MUX_DOWN;
        ask->is_away = true;
    }
    return -1;
}

/* The text of a document, which the caller frees; or NULL. */
static char *read_document(int fd, uint64_t bytes, struct mux_question *ask)
{
    struct stat found;
    if (fstat(fd, &found) || found.st_size < 0 || (uint64_t)found.st_size != bytes ||
        bytes > DOCUMENT_MAX) {
        explain(ask, "gpumuxd sent a document of another size than it says");
        return NULL;
    }
    char *text = malloc(bytes + 1);
    if (!text) {
        explain(ask, "out of memory");
        return NULL;
    }
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, text + done, bytes - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            explain(ask, "gpumuxd's document cannot be read: %s", n ? strerror(errno) : "cut off");
            free(text);
            return NULL;
        }
        done += (uint64_t)n;
    }
    text[bytes] = '\0';
    return text;
}

/* Take the answer out of a message. */
static bool take(const struct gm_wire_message *message, const int *fds, struct mux_question *ask)
{
    if (message->type == GM_MSG_REFUSED) {
        const struct gm_msg_refused *body = message->body;
        explain(ask, "gpumuxd refused: %s", body->text);
        ask->is_away = body->reason == GM_REFUSE_STOPPING;
        return false;
    }
    if (message->type != ask->answer || message->n_fds != (ask->is_document ? 1 : 0)) {
        explain(ask, "gpumuxd sent %s instead of %s", gm_wire_name(message->type),
                gm_wire_name(ask->answer));
        return false;
    }
    if (!ask->is_document) {
        memcpy(ask->result, message->body, ask->result_size);
        return true;
    }
    const uint64_t *bytes = message->body; /* STATUS_IS and LOG_IS are this one word */
    ask->text = read_document(fds[0], *bytes, ask);
    return ask->text != NULL;
}

static bool receive(int fd, struct mux_question *ask)
{
    _Alignas(8) uint8_t buffer[GM_WIRE_MAX];
    struct gm_wire_message message;
    int fds[GM_WIRE_FDS], n_fds = 0;
    bool is_taken = false;

    ssize_t length = gm_sock_receive(fd, buffer, sizeof buffer, fds, &n_fds);
    if (length == -EAGAIN) {
        explain(ask, NO_ANSWER, PATIENCE_S);
        ask->is_away = true; /* a daemon that hangs is ended, and the next one comes */
        return false;
    }
    if (length <= 0) {
        explain(ask, "gpumuxd closed the connection%s%s", length ? ": " : "",
                length ? strerror((int)-length) : "");
        ask->is_away = true;
        return false;
    }
    enum gm_wire_fault fault =
        gm_wire_decode(buffer, (size_t)length, n_fds, GM_DOWN, GM_SESSION_CONTROL, &message);
    if (fault == GM_WIRE_BAD_VERSION && (size_t)length >= sizeof(struct gm_wire_header)) {
        const struct gm_wire_header *header = (const void *)buffer;
        explain(ask,
                "gpumuxd speaks protocol version %u, this mux-ctl %u: install the same gpumux "
                "version of both",
                header->version, GM_WIRE_VERSION);
    } else if (fault) {
        explain(ask, "gpumuxd sent a bad message: %s", gm_wire_fault_text(fault));
    } else {
        is_taken = take(&message, fds, ask);
    }
    for (int i = 0; i < n_fds; i++)
        close(fds[i]);
    return is_taken;
}

int mux_try(const char *path, struct mux_question *ask)
{
    struct gm_msg_hello hello = {.role = GM_ROLE_CONTROL, .name = "mux-ctl"};
    struct timeval patience = {.tv_sec = PATIENCE_S};
    int code = MUX_FAILED;

    int fd = reach(path, ask, &code);
    if (fd < 0)
        return code;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    int error = gm_sock_send_message(fd, GM_MSG_HELLO, &hello, NULL, 0, NULL, 0);
    if (error == 0)
        error = gm_sock_send_message(fd, ask->question, ask->body, NULL, 0, NULL, 0);
    /* A daemon that refuses may close before it gets the question; its answer can still be read. */
    bool is_answered = false;
    if (error == 0 || error == -EPIPE || error == -ECONNRESET)
        is_answered = receive(fd, ask);
    else
        explain(ask, "gpumuxd cannot be asked: %s", strerror(-error));
    close(fd);
    return is_answered ? MUX_OK : MUX_FAILED;
}

bool mux_is_awaited(const struct mux_question *ask, int code, bool *is_told)
{
    const bool is_away = code != MUX_OK && ask->is_away;
    if (is_away && !*is_told)
        mux_complain("gpumuxd has ended: waiting for the next one");
    if (code == MUX_OK && *is_told)
        mux_complain("gpumuxd is back");
    *is_told = is_away;
    return is_away;
}

int mux_ask(const char *path, struct mux_question *ask)
{
    int code = mux_try(path, ask);
    if (code)
        mux_complain("%s", ask->why);
    return code;
}

int mux_exchange(const struct mux_options *options, enum gm_msg_type question, const void *body,
                 enum gm_msg_type answer, void *result, size_t result_size)
{
    struct mux_question ask = {.question = question,
                               .body = body,
                               .answer = answer,
                               .result = result,
                               .result_size = result_size};
    return mux_ask(options->socket, &ask);
}

/* These begin alike. */
#define SAYS(type)                                                                                 \
    (offsetof(struct type, is_refused) == offsetof(struct gm_msg_set_is, is_refused) &&            \
     offsetof(struct type, text) == offsetof(struct gm_msg_set_is, text))
_Static_assert(SAYS(gm_msg_forgotten) && SAYS(gm_msg_config_is) && SAYS(gm_msg_reserved),
               "a refusal is read in one way");

int mux_demand(const struct mux_options *options, enum gm_msg_type question, const void *body,
               enum gm_msg_type answer, void *result, size_t result_size)
{
    const struct gm_msg_set_is *said = result;
    const int code = mux_exchange(options, question, body, answer, result, result_size);
    if (code || !said->is_refused)
        return code;
    mux_complain("%s: %s", options->name, said->text);
    return MUX_FAILED;
}

int mux_try_status(const struct mux_options *options, struct mux_question *ask, cJSON **status)
{
    const struct gm_msg_status body = {0};
    *ask = (struct mux_question){
        .question = GM_MSG_STATUS, .body = &body, .answer = GM_MSG_STATUS_IS, .is_document = true};
    const int code = mux_try(options->socket, ask);
    *status = NULL;
    if (code)
        return code;
    *status = cJSON_Parse(ask->text);
    free(ask->text);
    if (cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(*status, "schema")))
        return MUX_OK;
    cJSON_Delete(*status);
    *status = NULL;
    explain(ask, "gpumuxd's status is not a status document");
    return MUX_FAILED;
}

int mux_get_status(const struct mux_options *options, cJSON **status)
{
    struct mux_question ask;
    const int code = mux_try_status(options, &ask, status);
    if (code)
        mux_complain("%s", ask.why);
    return code;
}

int mux_print_json(cJSON *json, const char *what)
{
    char *printed = cJSON_PrintUnformatted(json);
    if (printed)
        puts(printed);
    else
        mux_complain("out of memory");
    cJSON_free(printed);
    cJSON_Delete(json);
    return printed ? mux_written(what) : MUX_FAILED;
}
