#include "daemon/service/session_output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/sock.h"
#include "common/text.h"
#include "daemon/memory/files.h"
#include "daemon/service/users.h"

/* ---- who it is ----------------------------------------------------------------------------- */

void gm_session_say(const struct gm_session *session, enum gm_log_level level, const char *format,
                    ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (session->app != GM_NO_APP) {
        gm_log(level, "app %u (%s, pid %d, uid %u): %s", session->app, session->name, session->pid,
               session->uid, text);
        return;
    }
    /* One kind per user: many processes do not fill the log faster than one. */
    char kind[sizeof text + 32];
    snprintf(kind, sizeof kind, "connection of %u: %s", session->uid, text);
    gm_log_like(level, kind, "%s (pid %d, uid %u): %s",
                session->state == GM_SESSION_CONTROL ? "control connection" : "connection",
                session->pid, session->uid, text);
}

/* ---- ending -------------------------------------------------------------------------------- */

/* What a message that waits takes of the daemon's memory. */
static size_t output_bytes(size_t length)
{
    return sizeof(struct gm_output) + length;
}

/* Take the first message out of the queue. */
static void drop_first(struct gm_session *session)
{
    struct gm_output *output = session->head;
    session->head = output->next;
    if (!session->head)
        session->tail = &session->head;
    session->queue_bytes -= output_bytes(output->length);
    session->queue_messages--;
    gm_bound_unqueue(session->user, output_bytes(output->length), (uint32_t)output->n_fds);
    for (int i = 0; i < output->n_fds; i++)
        close(output->fds[i]);
    free(output);
}

static void drop_output(struct gm_session *session)
{
    while (session->head)
        drop_first(session);
}

void gm_session_step_out(struct gm_session *session)
{
    struct gm_sessions *all = session->all;
    if (session->stands == GM_STANDS_IN_LINE) {
        TAILQ_REMOVE(&all->line, session, stand);
        all->n_line--;
        session->user->in_line--;
    } else if (session->stands == GM_STANDS_ASKING) {
        TAILQ_REMOVE(&all->asking, session, stand);
    }
    session->stands = GM_STANDS_NOWHERE;
}

void gm_session_settle(struct gm_session *session)
{
    session->all->visitors--;
    session->user->visitors--;
}

void gm_session_wait_ends(struct gm_session *session)
{
    struct gm_sessions *all = session->all;
    struct gm_waiters *waiters = &all->control->waiters;
    uint32_t which = 0;
    while (waiters->who[which].session != session)
        which++;
    const size_t behind = --waiters->n - which;
    memmove(&waiters->who[which], &waiters->who[which + 1], behind * sizeof waiters->who[0]);
    memmove(&waiters->waiting[which], &waiters->waiting[which + 1],
            behind * sizeof waiters->waiting[0]);
    session->is_starting = false;
    all->visitors++;
    session->user->visitors++;
    if (waiters->n == 0)
        uv_timer_stop(&all->starts);
}

void gm_session_await(struct gm_session *session, uint64_t ms)
{
    uv_timer_start(&session->timer, session->all->on_timer, ms, 0);
}

static void on_closed(uv_handle_t *handle)
{
    struct gm_session *session = handle->data;
    if (--session->open_handles > 0)
        return;
    close(session->fd); /* libuv no longer uses the number */
    free(session->joining);
    if (session->rejoining)
        free(session->rejoining->holds);
    free(session->rejoining);
    free(session);
}

/* Its run has ended: keep what it needed. */
static void remember(const struct gm_session *session)
{
    struct gm_bind_usage usage;
    gm_binds_usage(&session->all->machine->binds, session->app, &usage);
    const struct gm_past_run run = {.most = usage.most,
                                    .needed = usage.needed,
                                    .time = usage.time,
                                    .took_ms = usage.took_ns / GM_MS};
    if (usage.most > 0)
        gm_past_note(session->all->control->past, session->uid, session->name, &run);
}

/* All who had the connection have closed it. */
static bool has_hung_up(const struct gm_session *session)
{
    struct pollfd look = {.fd = session->fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP)) != 0;
}

void gm_session_bury(struct gm_session *session)
{
    struct gm_sessions *all = session->all;
    const uint64_t begun = gm_now();
    uint8_t byte;

    TAILQ_REMOVE(&all->ending, session, each);
    if (session->app != GM_NO_APP) {
        if (--all->apps == 0)
            uv_timer_stop(&all->beat);
        remember(session);
        gm_machine_leave(all->machine, session->app, has_hung_up(session));
        gm_binds_leave(&all->machine->binds, session->pid);
        if (all->control->waiters.n > 0) /* there may be room for one now */
            uv_timer_start(&all->starts, all->on_starts, 0, GM_BIND_LOOK_NS / GM_MS);
    }
    drop_output(session);
    if (session->is_left)
        goto close; /* nobody reads, and it is to hang up with its last copy */
    /* If unread messages are left when the socket closes, the peer gets ECONNRESET before it can
     * read why it was refused. So discard them. */
    shutdown(session->fd, SHUT_RD);
    for (int i = 0; i < 4096 && recv(session->fd, &byte, 1, MSG_DONTWAIT) > 0; i++)
        continue;
    shutdown(session->fd, SHUT_WR);
close:
    uv_close((uv_handle_t *)&session->poll, on_closed);
    uv_close((uv_handle_t *)&session->timer, on_closed);
    const uint64_t now = gm_now();
    gm_bound_spend(&all->bounds, session->user, now - begun);
    gm_bound_leave(session->user, now);
}

static void on_bury(uv_idle_t *idle)
{
    struct gm_sessions *all = idle->data;
    const uint64_t begun = gm_now();
    /* gm_machine_leave may end more sessions, which join the list. However many end at once, a
     * round stays short. */
    while (!TAILQ_EMPTY(&all->ending) && gm_now() - begun < GM_BOUND_ROUND_NS)
        gm_session_bury(TAILQ_FIRST(&all->ending));
    if (TAILQ_EMPTY(&all->ending))
        uv_idle_stop(idle);
}

void gm_session_mark(struct gm_session *session)
{
    struct gm_sessions *all = session->all;
    session->is_ending = true;
    if (session->is_starting)
        gm_session_wait_ends(session);
    if (session->state != GM_SESSION_APP)
        gm_session_settle(session);
    gm_session_step_out(session);
    uv_poll_stop(&session->poll);
    uv_timer_stop(&session->timer);
    drop_output(session);
    TAILQ_REMOVE(&all->living, session, each);
    TAILQ_INSERT_TAIL(&all->ending, session, each);
    uv_idle_start(&all->gravedigger, on_bury);
}

void gm_session_lose(struct gm_session *session, enum gm_log_level level, const char *text)
{
    if (session->is_ending)
        return;
    gm_session_say(session, level, "%s", text);
    gm_session_mark(session);
}

int gm_session_keep(struct gm_session *session)
{
    if (session->is_ending || has_hung_up(session))
        return -1;
    session->is_left = true;
    gm_session_lose(
        session, GM_LOG_WARN,
        "its process has ended: taken for gone, though a child of it has the connection");
    return fcntl(session->fd, F_DUPFD_CLOEXEC, 3);
}

/* End a session to which a message cannot be sent, mostly because the peer just died. */
static void lose_unsent(struct gm_session *session, int error)
{
    char text[128];
    if (error == -EPIPE || error == -ECONNRESET) {
        gm_session_lose(session, GM_LOG_INFO, "left");
        return;
    }
    snprintf(text, sizeof text, "dropped: a message to it cannot be sent: %s", strerror(-error));
    gm_session_lose(session, GM_LOG_ERROR, text);
}

void gm_session_refuse(int fd, enum gm_refusal reason, const char *text)
{
    struct gm_msg_refused body = {.reason = reason};
    snprintf(body.text, sizeof body.text, "%s", text);
    gm_text_clean(body.text, sizeof body.text);
    gm_sock_send_message(fd, GM_MSG_REFUSED, &body, NULL, 0, NULL, 0);
}

static void end(struct gm_session *session, enum gm_log_level level, enum gm_refusal reason,
                const char *text)
{
    if (session->is_ending)
        return;
    gm_session_say(session, level, "refused: %s", text);
    gm_session_refuse(session->fd, reason, text);
    gm_session_mark(session);
}

void gm_session_end(struct gm_session *session, enum gm_refusal reason, const char *text)
{
    end(session, GM_LOG_WARN, reason, text);
}

/* "17", "17 to 18". */
static const char *format_versions(uint16_t oldest, uint16_t newest, char text[24])
{
    if (oldest == newest)
        snprintf(text, 24, "%u", newest);
    else
        snprintf(text, 24, "%u to %u", oldest, newest);
    return text;
}

void gm_session_end_version(struct gm_session *session, uint16_t oldest, uint16_t newest)
{
    char text[sizeof((struct gm_msg_refused){0}).text], theirs[24], ours[24];
    snprintf(text, sizeof text,
             "the client speaks protocol version%s %s, this gpumuxd %s: install the same gpumux "
             "version of both",
             oldest == newest ? "" : "s", format_versions(oldest, newest, theirs),
             format_versions(GM_WIRE_OLDEST, GM_WIRE_VERSION, ours));
    gm_session_end(session, GM_REFUSE_VERSION, text);
}

void gm_session_tell(const struct gm_session *session, enum gm_bound_kind kind, const char *text)
{
    struct gm_bound *user = session->user;
    char name[GM_USERS_NAME], before[64] = "";
    uint64_t more;
    if (!gm_bound_tell(user, kind, gm_now(), &more))
        return;
    if (more > 0)
        snprintf(before, sizeof before, " (%llu times more since the line before)",
                 (unsigned long long)more);
    gm_log(GM_LOG_WARN, "user %s (uid %u, pid %d): %s%s", gm_users_name(user->uid, name), user->uid,
           session->pid, text, before);
}

void gm_session_cut(struct gm_session *session, enum gm_bound_kind kind, const char *text)
{
    if (session->is_ending)
        return;
    gm_session_tell(session, kind, text);
    end(session, GM_LOG_DEBUG, kind == GM_BOUND_OUTPUT ? GM_REFUSE_PROTOCOL : GM_REFUSE_FULL, text);
}

/* ---- output -------------------------------------------------------------------------------- */

/* The kernel lacks memory or room for fds in flight. It is no error of this peer, and the socket
 * counts as writable: retry after GM_SESSION_RETRY_MS. */
static bool is_scarce(int error)
{
    return error == -ETOOMANYREFS || error == -ENOBUFS || error == -ENOMEM;
}

bool gm_session_is_heard(const struct gm_session *session)
{
    return session->stands == GM_STANDS_NOWHERE && !session->answer_by &&
           !(session->state == GM_SESSION_CONTROL && session->head);
}

void gm_session_watch(struct gm_session *session)
{
    const int events = (gm_session_is_heard(session) ? UV_READABLE : 0) |
                       (session->head && !session->is_starved ? UV_WRITABLE : 0);
    if (events)
        uv_poll_start(&session->poll, events, session->all->on_ready);
    else
        uv_poll_stop(&session->poll);
}

/* Try again soon. */
static void starve(struct gm_session *session)
{
    session->is_starved = true;
    gm_session_watch(session);
    gm_session_await(session, GM_SESSION_RETRY_MS);
}

void gm_session_flush(struct gm_session *session)
{
    while (session->head) {
        struct gm_output *output = session->head;
        int error =
            gm_sock_send(session->fd, output->bytes, output->length, output->fds, output->n_fds);
        if (error == -EAGAIN)
            break;
        if (is_scarce(error)) {
            starve(session);
            return;
        }
        if (error) {
            lose_unsent(session, error);
            return;
        }
        drop_first(session);
    }
    gm_session_watch(session);
}

/* The user's messages may take no more room: end the session that has most of them. */
static void cut_fullest(struct gm_sessions *all, const struct gm_bound *user)
{
    struct gm_session *session, *fullest = NULL;
    TAILQ_FOREACH(session, &all->living, each)
    {
        if (session->user == user && (!fullest || session->queue_bytes > fullest->queue_bytes))
            fullest = session;
    }
    if (fullest)
        gm_session_cut(fullest, GM_BOUND_OUTPUT, "does not read its messages");
}

/* Queue a message. Returns 0; or -errno, and then nothing is queued. */
static int queue(struct gm_session *session, const void *bytes, size_t length, const int *fds,
                 int n_fds)
{
    const struct gm_bounds *bounds = &session->all->bounds;
    const size_t bytes_all = output_bytes(length);
    if (session->queue_messages >= GM_SESSION_QUEUE_MESSAGES ||
        session->queue_bytes + bytes_all > GM_SESSION_QUEUE_BYTES)
        return -ENOBUFS;
    while (!gm_bound_queue(bounds, session->user, bytes_all, (uint32_t)n_fds)) {
        cut_fullest(session->all, session->user);
        if (session->is_ending)
            return -ESHUTDOWN;
    }
    struct gm_output *output = malloc(bytes_all);
    if (!output) {
        gm_bound_unqueue(session->user, bytes_all, (uint32_t)n_fds);
        return -ENOMEM;
    }
    output->next = NULL;
    output->length = length;
    memcpy(output->bytes, bytes, length);
    for (output->n_fds = 0; output->n_fds < n_fds; output->n_fds++) {
        int fd = fcntl(fds[output->n_fds], F_DUPFD_CLOEXEC, 3);
        bool is_reserved = session->state != GM_SESSION_CONTROL && gm_files_is_reserved(fd);
        if (fd < 0 || is_reserved) {
            int error = is_reserved ? -EMFILE : -errno;
            if (is_reserved)
                close(fd);
            while (output->n_fds > 0)
                close(output->fds[--output->n_fds]);
            gm_bound_unqueue(session->user, bytes_all, (uint32_t)n_fds);
            free(output);
            return error;
        }
        output->fds[output->n_fds] = fd;
    }
    *session->tail = output;
    session->tail = &output->next;
    session->queue_bytes += bytes_all;
    session->queue_messages++;
    return 0;
}

int gm_session_send(struct gm_session *session, enum gm_msg_type type, const void *body,
                    const void *entries, uint32_t count, const int *fds, int n_fds)
{
    uint8_t *out = session->all->out;
    int error = 0;

    if (session->is_ending)
        return -ESHUTDOWN;
    size_t length = gm_wire_encode(out, GM_WIRE_MAX, type, body, entries, count);
    if (length == 0 || n_fds < 0 || n_fds > GM_WIRE_FDS) {
        /* A mistake of the daemon. Only this session ends. */
        gm_log(GM_LOG_ERROR, "a %s message with %u entries and %d fds cannot be encoded",
               gm_wire_name(type), count, n_fds);
        gm_session_end(session, GM_REFUSE_PROTOCOL, "the daemon could not encode its answer");
        return -EINVAL;
    }
    if (!session->head) {
        error = gm_sock_send(session->fd, out, length, fds, n_fds);
        if (error == 0)
            return 0;
        if (error != -EAGAIN && !is_scarce(error)) {
            lose_unsent(session, error);
            return error;
        }
    }
    bool is_first = !session->head;
    int cause = error;
    error = queue(session, out, length, fds, n_fds);
    if (error == -ENOBUFS)
        gm_session_cut(session, GM_BOUND_OUTPUT, "does not read its messages");
    if (session->is_ending)
        return error;
    if (error) {
        gm_session_lose(session, GM_LOG_ERROR,
                        "dropped: no memory or file descriptors left for its messages");
        return error;
    }
    if (is_first && is_scarce(cause))
        starve(session);
    else if (is_first)
        gm_session_watch(session);
    return 0;
}
