/*
 * Sessions: read, check and dispatch the messages of a peer; queue output that it does not read.
 * See session.h.
 *
 * All input is hostile. gm_wire_decode checks the form of a message and whether the session's state
 * allows it; the engine checks its values. What a user may ask for is bounded (bounds.h), so a peer
 * can harm its own user only.
 *
 * A round is one pass of the loop: timers (the beat among them), messages, then on_round. Of a user
 * who had its share, sessions that have more to say stand in line, and their sockets are not read.
 * on_round begins the next round with them, in the order in which they came.
 */
#include "daemon/service/session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/sock.h"
#include "common/text.h"
#include "daemon/core/tunables.h"
#include "daemon/memory/files.h"
#include "daemon/service/bounds.h"
#include "daemon/service/placing.h"
#include "daemon/service/users.h"

#define NO_APP UINT32_MAX

/* A queued message; its fds are duplicates. */
struct output {
    struct output *next;
    size_t length;
    int n_fds;
    int fds[GM_WIRE_FDS];
    _Alignas(8) uint8_t bytes[];
};

TAILQ_HEAD(gm_session_list, gm_session);

/* A program that was placed, and is told when MPS has started. */
struct gm_joining {
    struct gm_msg_placed answer;
    struct gm_place_entry entries[GM_DEVICES_VISIBLE];
    uint32_t n;
};

/* Why a session's socket is not read. */
enum gm_stands { GM_STANDS_NOWHERE, GM_STANDS_IN_LINE, GM_STANDS_ASKING };

struct gm_session {
    struct gm_sessions *all;
    TAILQ_ENTRY(gm_session) each;  /* in all->living or all->ending */
    TAILQ_ENTRY(gm_session) stand; /* in all->line or all->asking */
    enum gm_stands stands;
    struct gm_msg_log asked; /* ASKING: for the log since then, ... */
    enum gm_msg_type answer; /* ... or for the status */
    struct gm_bound *user;
    uv_poll_t poll;
    uv_timer_t timer; /* patience while NEW or CONTROL, retry while APP or trimming */
    int fd;
    int open_handles;
    enum gm_session_state state;
    uint32_t app; /* NO_APP unless joined */
    pid_t pid;
    uid_t uid;
    gid_t gid;
    char name[64];
    bool is_ending;
    bool is_starved;            /* the kernel has no room for its output now */
    bool is_starting;           /* it waits until a GPU has room for it */
    bool is_sharing;            /* it is to share by MPS */
    bool has_own_mps;           /* ... and has one that its user runs */
    bool is_told;               /* that its answer takes a while */
    struct gm_joining *joining; /* it waits until MPS has started; NULL: it does not */
    bool is_kept;               /* its process has ended, and others have the connection */
    uint64_t answer_by;         /* of TRIM or CONFIG; 0: neither was asked */
    uint64_t reading;           /* CONFIG: its number; 0: it is TRIM */
    struct gm_msg_trim_is trimmed;

    struct output *head, **tail;
    size_t queue_bytes;
    unsigned queue_messages;
};

struct gm_sessions {
    uv_loop_t *loop;
    struct gm_machine *machine;
    struct gm_control *control;
    uv_idle_t gravedigger; /* runs while `ending` is not empty */
    uv_timer_t beat;       /* runs while there are apps */
    uv_check_t round;
    uv_idle_t spinner;    /* runs while somebody stands in line: the next round begins at once */
    uv_timer_t starts;    /* runs while programs wait for room at their start */
    uv_timer_t alarm;     /* ends the loop's sleep when the next document may be made */
    uint64_t document_at; /* then */
    struct gm_session_list living, ending; /* who came first is first */
    struct gm_session_list line, asking;
    uint32_t n_line;
    struct gm_bounds bounds;
    struct gm_view view;
    uint32_t visitors, max_visitors; /* connections of no app that are not ending */
    uint32_t apps, max_apps;
    uint32_t apps_by_files; /* how many apps the limit of open files allows */
    _Alignas(8) uint8_t in[GM_WIRE_MAX];
    _Alignas(8) uint8_t out[GM_WIRE_MAX];
};

static void on_ready(uv_poll_t *poll, int status, int events);
static void stop_waiting(struct gm_sessions *all, uint32_t which);
static uint32_t find_waiter(const struct gm_sessions *all, const struct gm_session *session);
static void on_timer(uv_timer_t *timer);
static void on_settled(void *arg, uid_t uid);

/* ---- who it is ----------------------------------------------------------------------------- */

static void say(const struct gm_session *session, enum gm_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(const struct gm_session *session, enum gm_log_level level, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (session->app != NO_APP) {
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
    return sizeof(struct output) + length;
}

/* Take the first message out of the queue. */
static void drop_first(struct gm_session *session)
{
    struct output *output = session->head;
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

/* It stands nowhere any more. */
static void step_out(struct gm_session *session)
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

/* It is no visitor any more. */
static void settle(struct gm_session *session)
{
    session->all->visitors--;
    session->user->visitors--;
}

static void on_closed(uv_handle_t *handle)
{
    struct gm_session *session = handle->data;
    if (--session->open_handles > 0)
        return;
    close(session->fd); /* libuv no longer uses the number */
    free(session->joining);
    free(session);
}

/* Its run has ended: keep what it needed. */
static void remember(const struct gm_session *session)
{
    struct gm_bind_usage usage;
    gm_binds_usage(&session->all->machine->binds, session->app, &usage);
    const struct gm_past_run run = {.most = usage.most, .needed = usage.needed, .time = usage.time};
    if (usage.most > 0)
        gm_past_note(session->all->control->past, session->uid, session->name, &run);
}

/* Tell the engine, close the socket and free the session. */
static void bury(struct gm_session *session)
{
    struct gm_sessions *all = session->all;
    const uint64_t begun = gm_now();
    uint8_t byte;

    TAILQ_REMOVE(&all->ending, session, each);
    if (session->app != NO_APP) {
        if (--all->apps == 0)
            uv_timer_stop(&all->beat);
        remember(session);
        gm_machine_leave(all->machine, session->app);
    }
    drop_output(session);
    if (session->is_kept)
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
        bury(TAILQ_FIRST(&all->ending));
    if (TAILQ_EMPTY(&all->ending))
        uv_idle_stop(idle);
}

/* Mark a session as ending: read and send nothing more. bury follows from the loop. */
static void mark(struct gm_session *session)
{
    struct gm_sessions *all = session->all;
    session->is_ending = true;
    if (session->is_starting)
        stop_waiting(all, find_waiter(all, session));
    if (session->state != GM_SESSION_APP)
        settle(session);
    step_out(session);
    uv_poll_stop(&session->poll);
    uv_timer_stop(&session->timer);
    drop_output(session);
    TAILQ_REMOVE(&all->living, session, each);
    TAILQ_INSERT_TAIL(&all->ending, session, each);
    uv_idle_start(&all->gravedigger, on_bury);
}

/* End a session whose peer cannot be told. */
static void lose(struct gm_session *session, enum gm_log_level level, const char *text)
{
    if (session->is_ending)
        return;
    say(session, level, "%s", text);
    mark(session);
}

int gm_session_keep(struct gm_session *session)
{
    struct pollfd look = {.fd = session->fd, .events = POLLRDHUP};
    if (session->is_ending || (poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP))))
        return -1;
    session->is_kept = true;
    lose(session, GM_LOG_WARN,
         "its process has ended: taken for gone, though a child of it has the connection");
    return fcntl(session->fd, F_DUPFD_CLOEXEC, 3);
}

/* End a session to which a message cannot be sent, mostly because the peer just died. */
static void lose_unsent(struct gm_session *session, int error)
{
    char text[128];
    if (error == -EPIPE || error == -ECONNRESET) {
        lose(session, GM_LOG_INFO, "left");
        return;
    }
    snprintf(text, sizeof text, "dropped: a message to it cannot be sent: %s", strerror(-error));
    lose(session, GM_LOG_ERROR, text);
}

static void refuse(int fd, enum gm_refusal reason, const char *text)
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
    say(session, level, "refused: %s", text);
    refuse(session->fd, reason, text);
    mark(session);
}

void gm_session_end(struct gm_session *session, enum gm_refusal reason, const char *text)
{
    end(session, GM_LOG_WARN, reason, text);
}

/* A user is above a bound. The log has one line about that in a while. */
static void tell(const struct gm_session *session, enum gm_bound_kind kind, const char *text)
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

/* End a session as its user is above a bound. Its peer is told each time. */
static void cut(struct gm_session *session, enum gm_bound_kind kind, const char *text)
{
    if (session->is_ending)
        return;
    tell(session, kind, text);
    end(session, GM_LOG_DEBUG, kind == GM_BOUND_OUTPUT ? GM_REFUSE_PROTOCOL : GM_REFUSE_FULL, text);
}

/* ---- limits -------------------------------------------------------------------------------- */

/* The limits per user do not apply to root and the daemon's own user. */
static bool is_privileged(uid_t uid)
{
    return uid == 0 || uid == geteuid();
}

/* The user who has most visitors; a privileged one only if there are no others. */
static struct gm_bound *find_busiest(const struct gm_sessions *all)
{
    const struct gm_session *session;
    struct gm_bound *chosen = NULL;
    TAILQ_FOREACH(session, &all->living, each)
    {
        struct gm_bound *user = session->user;
        if (user->visitors > 0 &&
            (!chosen || (chosen->is_trusted && !user->is_trusted) ||
             (chosen->is_trusted == user->is_trusted && user->visitors > chosen->visitors)))
            chosen = user;
    }
    return chosen;
}

/* End the oldest visitor of the user. Clients speak at once, so it is one that is silent. */
static void crowd_out(struct gm_sessions *all, const struct gm_bound *user)
{
    struct gm_session *session;
    char text[128];
    TAILQ_FOREACH(session, &all->living, each)
    {
        if (session->user != user || session->state == GM_SESSION_APP || session->is_starting)
            continue;
        snprintf(text, sizeof text,
                 "%u connections of its user are open and no program's: the oldest makes room",
                 user->visitors);
        cut(session, GM_BOUND_VISITORS, text);
        return;
    }
}

/* Make room for one more visitor. One user has all but a quarter of the places at most. */
static void make_room(struct gm_sessions *all, const struct gm_bound *user)
{
    const uint32_t users = all->max_visitors - all->max_visitors / GM_SESSION_OTHERS;
    if (!user->is_trusted && user->visitors >= users)
        crowd_out(all, user);
    else if (all->visitors >= all->max_visitors)
        crowd_out(all, find_busiest(all));
}

/* Whether the program of this session can be served beside the reserved places; if not, `text` says
 * why. With `has_place` it has a reserved place itself. */
static bool has_room_for(const struct gm_sessions *all, const struct gm_session *session,
                         bool has_place, char *text, size_t size)
{
    struct gm_places *places = &all->control->places;
    const uint32_t most = all->max_apps;
    const uint32_t users = most - most / GM_SESSION_OTHERS, free = most - most / GM_SESSION_ROOM;
    const uint32_t kept = gm_places_kept(places, gm_now());
    const int joins = gm_machine_places(all->machine); /* apps for which the engine has room */
    const uint32_t gone = joins < 0 ? 0 : most - (uint32_t)joins - all->apps;
    const uint32_t taken = all->apps + gone + kept;
    const bool is_control = session->state == GM_SESSION_CONTROL; /* mux-ctl run asks */
    const char *const full = "raise LimitNOFILE or ulimit -n of gpumuxd";
    char served[128];

    snprintf(served, sizeof served, "%u apps are served already", all->apps);
    if (kept > 0)
        snprintf(served + strlen(served), sizeof served - strlen(served),
                 " and %u places are reserved", kept);
    if (gone > 0)
        snprintf(served + strlen(served), sizeof served - strlen(served),
                 ", %u more are gone and have not ended yet", gone);
    if (joins < 0)
        snprintf(text, size, "the daemon is stopping");
    else if (!has_place && taken >= all->apps_by_files)
        snprintf(text, size, "%s, and %u open files allow no more: %s", served, gm_files_limit(),
                 full);
    else if ((!is_control && gm_files_is_kept(session->fd)) || gm_files_left() < GM_SESSION_FILES)
        snprintf(text, size, "all but the last %u of %u open files are in use: %s", gm_files_kept(),
                 gm_files_limit(), full);
    else if (has_place)
        return true;
    else if ((uint32_t)joins <= kept)
        snprintf(text, size, "%s: raise --max-apps", served);
    else if (is_privileged(session->uid))
        return true;
    else if (gm_machine_places_of(all->machine, session->uid) +
                 gm_places_kept_for(places, session->uid, gm_now()) >=
             users)
        snprintf(text, size,
                 "%u apps of user %u are served already, the most for one user: raise "
                 "--max-apps",
                 users, session->uid);
    else if (taken >= free)
        snprintf(text, size, "%s, and the last %u places are root's: raise --max-apps", served,
                 most - free);
    else
        return true;
    return false;
}

/* ---- output -------------------------------------------------------------------------------- */

/* The kernel lacks memory or room for fds in flight. It is no error of this peer, and the socket
 * counts as writable: retry after GM_SESSION_RETRY_MS. */
static bool is_scarce(int error)
{
    return error == -ETOOMANYREFS || error == -ENOBUFS || error == -ENOMEM;
}

/* Whether the daemon reads what it sends. mux-ctl reads an answer before it asks anew: until it
 * has, nothing more is read, so its answers never pile up. A program is always heard. */
static bool is_heard(const struct gm_session *session)
{
    return session->stands == GM_STANDS_NOWHERE && !session->answer_by &&
           !(session->state == GM_SESSION_CONTROL && session->head);
}

static void watch(struct gm_session *session)
{
    const int events = (is_heard(session) ? UV_READABLE : 0) |
                       (session->head && !session->is_starved ? UV_WRITABLE : 0);
    if (events)
        uv_poll_start(&session->poll, events, on_ready);
    else
        uv_poll_stop(&session->poll);
}

/* Try again soon. */
static void starve(struct gm_session *session)
{
    session->is_starved = true;
    watch(session);
    uv_timer_start(&session->timer, on_timer, GM_SESSION_RETRY_MS, 0);
}

/* Send as much of the queue as the socket takes. May mark the session as ending. */
static void flush(struct gm_session *session)
{
    while (session->head) {
        struct output *output = session->head;
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
    watch(session);
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
        cut(fullest, GM_BOUND_OUTPUT, "does not read its messages");
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
    struct output *output = malloc(bytes_all);
    if (!output) {
        gm_bound_unqueue(session->user, bytes_all, (uint32_t)n_fds);
        return -ENOMEM;
    }
    output->next = NULL;
    output->length = length;
    memcpy(output->bytes, bytes, length);
    for (output->n_fds = 0; output->n_fds < n_fds; output->n_fds++) {
        int fd = fcntl(fds[output->n_fds], F_DUPFD_CLOEXEC, 3);
        bool is_kept = session->state != GM_SESSION_CONTROL && gm_files_is_kept(fd);
        if (fd < 0 || is_kept) {
            int error = is_kept ? -EMFILE : -errno;
            if (is_kept)
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
        cut(session, GM_BOUND_OUTPUT, "does not read its messages");
    if (session->is_ending)
        return error;
    if (error) {
        lose(session, GM_LOG_ERROR, "dropped: no memory or file descriptors left for its messages");
        return error;
    }
    if (is_first && is_scarce(cause))
        starve(session);
    else if (is_first)
        watch(session);
    return 0;
}

/* ---- input --------------------------------------------------------------------------------- */

static void on_beat(uv_timer_t *timer)
{
    gm_machine_beat(((struct gm_sessions *)timer->data)->machine);
}

static void reserve(struct gm_session *session, const struct gm_msg_reserve *body)
{
    struct gm_places *places = &session->all->control->places;
    struct gm_msg_reserved answer = {0};
    uint64_t now = gm_now();

    /* It takes over a place that is reserved for an ancestor. */
    bool has_one = gm_places_take(places, session->pid, session->uid, now);
    answer.is_refused =
        !has_room_for(session->all, session, has_one, answer.text, sizeof answer.text);
    if (!answer.is_refused && !gm_places_keep(places, session->pid, session->uid, now)) {
        answer.is_refused = 1;
        snprintf(answer.text, sizeof answer.text,
                 "%u places are reserved for programs that have not connected yet, or %u of this "
                 "user: try again later",
                 GM_PLACES_MAX, GM_PLACES_USER);
    }
    if (!answer.is_refused)
        say(session, GM_LOG_DEBUG, "a place is reserved for %s", body->name);
    else if (body->is_required) {           /* if not required, the program itself will ask */
        char kind[sizeof answer.text + 32]; /* without the name, which the program chooses */
        snprintf(kind, sizeof kind, "no place of %u: %s", session->uid, answer.text);
        gm_log_like(GM_LOG_WARN, kind, "control connection (pid %d, uid %u): no place for %s: %s",
                    session->pid, session->uid, body->name, answer.text);
        gm_places_refuse(places, session->pid, session->uid, body->name, answer.text, now);
    }
    gm_session_send(session, GM_MSG_RESERVED, &answer, NULL, 0, NULL, 0);
}

static void turn_away(struct gm_session *session, const char *text)
{
    struct gm_sessions *all = session->all;
    bool is_stopping = gm_machine_places(all->machine) < 0;
    gm_places_refuse(&all->control->places, session->pid, session->uid, session->name, text,
                     gm_now());
    gm_session_end(session, is_stopping ? GM_REFUSE_STOPPING : GM_REFUSE_FULL, text);
}

static void hello(struct gm_session *session, const struct gm_msg_hello *body)
{
    struct gm_sessions *all = session->all;
    char text[sizeof((struct gm_msg_refused){0}).text];

    memcpy(session->name, body->name, sizeof session->name);
    gm_text_clean(session->name, sizeof session->name);
    if (body->role == GM_ROLE_CONTROL) {
        const int room = GM_SESSION_ANSWERS;
        setsockopt(session->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        session->state = GM_SESSION_CONTROL;
        uv_timer_start(&session->timer, on_timer, GM_SESSION_PATIENCE_MS, 0);
        return;
    }
    if (body->role != GM_ROLE_APP) {
        snprintf(text, sizeof text, "HELLO with the unknown role %u", body->role);
        gm_session_end(session, GM_REFUSE_PROTOCOL, text);
        return;
    }
    bool has_one = gm_places_take(&all->control->places, session->pid, session->uid, gm_now());
    if (!has_room_for(all, session, has_one, text, sizeof text)) {
        turn_away(session, text);
        return;
    }
    uint32_t app = NO_APP;
    const struct gm_newcomer who = {.session = session,
                                    .pid = session->pid,
                                    .uid = session->uid,
                                    .name = session->name,
                                    .wishes = {.class = body->class,
                                               .oversize = body->oversize,
                                               .cap_is = body->cap_is,
                                               .cap = body->cap}};
    if (gm_machine_join(all->machine, &who, body->group, &app, text, sizeof text) != 0) {
        turn_away(session, text);
        return;
    }
    session->app = app;
    if (!session->is_ending)
        settle(session);
    session->state = GM_SESSION_APP;
    if (all->apps++ == 0)
        uv_timer_start(&all->beat, on_beat, GM_SESSION_BEAT_MS, GM_SESSION_BEAT_MS);
    if (session->is_ending)
        return; /* WELCOME could not be sent; bury tells the engine */
    uv_timer_stop(&session->timer);
}

/* ---- programs that start ---- */

/* Its answer takes up to `ns`. False: it cannot be told. */
static bool ask_to_wait(struct gm_session *session, uint64_t ns, const char *why)
{
    struct gm_msg_placed answer = {.wait_ns = ns};
    snprintf(answer.text, sizeof answer.text, "%s", why);
    session->is_told = true;
    return gm_session_send(session, GM_MSG_PLACED, &answer, NULL, 0, NULL, 0) == 0;
}

/* MPS is starting for it. Meanwhile it stays a visitor. False: it cannot wait. */
static bool joins_later(struct gm_session *session, const struct gm_joining *placed)
{
    if (!session->joining)
        session->joining = malloc(sizeof *session->joining);
    if (!session->joining)
        return false;
    *session->joining = *placed;
    uv_timer_stop(&session->timer); /* mps.h has limits of its own */
    if (!session->is_told)
        ask_to_wait(session, GM_MPS_WAIT_NS, "it waits until MPS has started");
    return true;
}

/* With the answer the session ends, or many that start at the same time would crowd each other
 * out. */
static void answer_placed(struct gm_session *session, struct gm_joining *placed)
{
    struct gm_msg_placed *answer = &placed->answer;
    if (session->is_sharing &&
        gm_mps_join(session->all->control->mps, session->pid, session->uid, session->gid,
                    answer->pipe, answer->sharing, sizeof answer->sharing) == GM_MPS_SOON &&
        joins_later(session, placed))
        return;
    if (session->has_own_mps)
        snprintf(answer->sharing, sizeof answer->sharing, "its user's own MPS is used");
    if (gm_session_send(session, GM_MSG_PLACED, answer, placed->entries, placed->n, NULL, 0) == 0 &&
        !session->head)
        lose(session, GM_LOG_DEBUG, "placed");
}

/* MPS of this user has started, or cannot. */
static void on_settled(void *arg, uid_t uid)
{
    struct gm_sessions *all = arg;
    struct gm_session *session, *next;
    for (session = TAILQ_FIRST(&all->living); session; session = next) {
        next = TAILQ_NEXT(session, each);
        if (!session->joining || session->uid != uid)
            continue;
        struct gm_joining placed = *session->joining;
        free(session->joining);
        session->joining = NULL;
        uv_timer_start(&session->timer, on_timer, GM_SESSION_PATIENCE_MS, 0);
        answer_placed(session, &placed);
    }
}

/*
 * PLACE. Its program connects anew for all else. One that waits until a GPU has room is no visitor
 * meanwhile, and has no time limit but --patience. It has its GPU from now on, also while MPS
 * starts: who comes next finds that much less.
 */
static void place(struct gm_session *session, const char *name,
                  const struct gm_place_request *request)
{
    struct gm_joining placed = {.n = 0};
    placed.n = gm_placing(session->all->control, name, request, &placed.answer, placed.entries);
    answer_placed(session, &placed);
}

/* It waits no more. */
static void stop_waiting(struct gm_sessions *all, uint32_t which)
{
    struct gm_waiters *waiters = &all->control->waiters;
    struct gm_session *session = waiters->who[which].session;
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

static uint32_t find_waiter(const struct gm_sessions *all, const struct gm_session *session)
{
    const struct gm_waiters *waiters = &all->control->waiters;
    uint32_t i = 0;
    while (i < waiters->n && waiters->who[i].session != session)
        i++;
    return i;
}

/* Place those for whom there is room now. */
static void serve_waiters(struct gm_sessions *all)
{
    struct gm_waiters *waiters = &all->control->waiters;
    for (uint32_t left = waiters->n; left > 0; left--) {
        const uint32_t which = gm_binds_next(&all->machine->binds, waiters->waiting, waiters->n,
                                             all->control->options->patience);
        if (which == GM_BIND_NONE)
            return;
        struct gm_session *session = waiters->who[which].session;
        const struct gm_place_request request = waiters->waiting[which].request;
        char name[sizeof waiters->who[0].name];
        memcpy(name, waiters->who[which].name, sizeof name);
        stop_waiting(all, which);
        uv_timer_start(&session->timer, on_timer, GM_SESSION_PATIENCE_MS, 0);
        place(session, name, &request);
    }
}

static void on_starts(uv_timer_t *timer)
{
    serve_waiters(timer->data);
}

/* Whether one more may wait, without taking what others need. */
static bool has_room_to_wait(const struct gm_sessions *all, const struct gm_session *session)
{
    const struct gm_waiters *waiters = &all->control->waiters;
    uint32_t of_user = 0;
    for (uint32_t i = 0; i < waiters->n; i++)
        of_user += waiters->waiting[i].request.uid == session->uid;
    return waiters->n < GM_BIND_WAITERS && of_user < GM_BIND_WAITERS_USER &&
           !gm_files_is_kept(session->fd);
}

static void start(struct gm_session *session, const struct gm_wire_message *message)
{
    struct gm_sessions *all = session->all;
    struct gm_waiters *waiters = &all->control->waiters;
    const struct gm_msg_place *body = message->body;
    const struct gm_placing who = {.pid = session->pid,
                                   .uid = session->uid,
                                   .body = body,
                                   .tokens = message->entries,
                                   .n = message->count};
    struct gm_place_request request;
    session->is_sharing = gm_placing_shares(all->control, &who);
    session->has_own_mps = session->is_sharing && (body->flags & GM_PLACE_HAS_MPS) != 0;
    if (session->has_own_mps) {
        session->is_sharing = false; /* the driver joins that by itself */
        gm_log_like(GM_LOG_INFO, "own mps", "%s (pid %d): its user's own MPS is used", body->name,
                    (int)session->pid);
    }
    if (!gm_placing_read(all->control, &all->view, &who, &request) ||
        !has_room_to_wait(all, session)) {
        place(session, body->name, &request);
        return;
    }
    const uint32_t at = waiters->n++;
    waiters->waiting[at] = (struct gm_waiting){.request = request, .since = gm_now()};
    waiters->who[at].session = session;
    memcpy(waiters->who[at].name, body->name, sizeof waiters->who[at].name);
    session->is_starting = true;
    settle(session);
    if (at == 0)
        uv_timer_start(&all->starts, on_starts, GM_BIND_LOOK_NS / GM_MS, GM_BIND_LOOK_NS / GM_MS);
    serve_waiters(all);
    if (!session->is_starting)
        return; /* there was room */
    uv_timer_stop(&session->timer);
    say(session, GM_LOG_INFO, "%s waits until a GPU has room for it", body->name);
    ask_to_wait(session,
                all->control->options->patience + (session->is_sharing ? GM_MPS_WAIT_NS : 0),
                "no GPU has room for it beside the others: it waits");
}

/* ---- documents ---- */

/*
 * STATUS and LOG. Who asks stands in `asking`, and on_round answers all who ask for the same with
 * one document, made then. What root and the daemon's own user ask for is made in the same round.
 * For others one is made when the last one lies GM_SESSION_DOCUMENTS times as long ago as it took:
 * however many ask, documents take a small part of the loop.
 */
static void ask(struct gm_session *session, enum gm_msg_type answer, uint64_t since)
{
    session->answer = answer;
    session->asked.since = since;
    session->stands = GM_STANDS_ASKING;
    TAILQ_INSERT_TAIL(&session->all->asking, session, stand);
    watch(session);
}

/* Whose document is made next: of the user who had none for longest, the one who asked first. NULL:
 * nobody's now. */
static struct gm_session *next_asking(const struct gm_sessions *all, uint64_t now)
{
    struct gm_session *session, *next = NULL;
    TAILQ_FOREACH(session, &all->asking, stand)
    {
        if (session->user->is_trusted)
            return session;
        if (!next || session->user->document_at < next->user->document_at)
            next = session;
    }
    return now >= all->document_at ? next : NULL;
}

static struct gm_session *find_asking(const struct gm_sessions *all, enum gm_msg_type answer,
                                      uint64_t since)
{
    struct gm_session *session;
    TAILQ_FOREACH(session, &all->asking, stand)
    {
        if (session->answer == answer && session->asked.since == since)
            break;
    }
    return session;
}

/* Make what `first` asks for, and give it to all who ask for that. The body of STATUS_IS and LOG_IS
 * is the document's length. */
static void answer_all(struct gm_sessions *all, const struct gm_session *first)
{
    const enum gm_msg_type answer = first->answer;
    const uint64_t since = first->asked.since;
    struct gm_session *session;
    uint64_t bytes;
    char why[128];

    char *text = answer == GM_MSG_LOG_IS ? gm_control_log(all->control, since)
                                         : gm_control_status(all->control);
    int fd = gm_control_seal(text, &bytes);
    if (fd < 0)
        snprintf(why, sizeof why, "the %s cannot be made: %s",
                 answer == GM_MSG_LOG_IS ? "log" : "status", strerror(-fd));
    /* Sending can end sessions, so look for the next one anew. */
    while ((session = find_asking(all, answer, since)) != NULL) {
        step_out(session);
        if (fd < 0) {
            gm_session_end(session, GM_REFUSE_FULL, why);
            continue;
        }
        uv_timer_start(&session->timer, on_timer, GM_SESSION_PATIENCE_MS, 0);
        if (gm_session_send(session, answer, &bytes, NULL, 0, &fd, 1) == 0)
            watch(session);
    }
    if (fd >= 0)
        close(fd);
}

static void on_alarm(uv_timer_t *alarm)
{
    (void)alarm; /* on_round follows */
}

static void answer_documents(struct gm_sessions *all)
{
    struct gm_session *first;
    uint64_t now = gm_now();
    while ((first = next_asking(all, now)) != NULL) {
        struct gm_bound *user = first->user;
        const uint64_t begun = now;
        answer_all(all, first);
        now = user->document_at = gm_now();
        if (!user->is_trusted) /* however often root asks, others have theirs */
            all->document_at = now + (now - begun) * GM_SESSION_DOCUMENTS;
    }
    if (!TAILQ_EMPTY(&all->asking))
        uv_timer_start(&all->alarm, on_alarm, (all->document_at - now) / GM_MS + 1, 0);
}

/* ---- settings and trims ---- */

static void set(struct gm_session *session, const struct gm_msg_set *body)
{
    struct gm_msg_set_is answer = {.is_refused = 1};
    if (gm_bound_may_set(session->user, gm_now()))
        gm_control_set(session->all->control, session->uid, body, &answer);
    else
        snprintf(answer.text, sizeof answer.text,
                 "%d settings of this user in a second: try again in a second",
                 GM_SETTINGS_A_SECOND);
    gm_session_send(session, GM_MSG_SET_IS, &answer, NULL, 0, NULL, 0);
}

static void forget(struct gm_session *session, const struct gm_msg_forget *body)
{
    struct gm_msg_forgotten answer = {.is_refused = 1};
    if (gm_bound_may_set(session->user, gm_now()))
        gm_control_forget(session->all->control, session->uid, body, &answer);
    else
        snprintf(answer.text, sizeof answer.text,
                 "%d settings of this user in a second: try again in a second",
                 GM_SETTINGS_A_SECOND);
    gm_session_send(session, GM_MSG_FORGOTTEN, &answer, NULL, 0, NULL, 0);
}

/* The answer comes now: the session may ask again. */
static void end_waiting(struct gm_session *session)
{
    session->answer_by = 0;
    if (!session->is_starved) /* else the timer is to flush */
        uv_timer_start(&session->timer, on_timer, GM_SESSION_PATIENCE_MS, 0);
}

static void answer_config(struct gm_session *session, bool is_refused, const char *text)
{
    struct gm_msg_config_is answer = {.is_refused = is_refused};
    snprintf(answer.text, sizeof answer.text, "%.247s", text);
    gm_text_clean(answer.text, sizeof answer.text);
    end_waiting(session);
    session->reading = 0;
    if (gm_session_send(session, GM_MSG_CONFIG_IS, &answer, NULL, 0, NULL, 0) == 0)
        watch(session);
}

void gm_sessions_config_is(void *arg, uint64_t number, bool is_refused, const char *outcome)
{
    struct gm_sessions *all = arg;
    struct gm_session *session;
    TAILQ_FOREACH(session, &all->living, each)
    {
        if (session->reading != number)
            continue;
        answer_config(session, is_refused, outcome); /* it may end the session */
        return;
    }
}

/* Answer TRIM once the memory has reached the system: the driver or a stopped program may keep some
 * for longer. CONFIG is answered once the file is read: it may be on a network. So both have a
 * deadline. */
static void answer_late(struct gm_session *session)
{
    const bool is_awaited = session->reading || gm_machine_is_trimming(session->all->machine);
    if (is_awaited && gm_now() < session->answer_by) {
        uv_timer_start(&session->timer, on_timer, GM_SESSION_RETRY_MS, 0);
    } else if (session->reading) {
        answer_config(session, true, "it takes long to read the configuration: see the log");
    } else {
        end_waiting(session);
        if (gm_session_send(session, GM_MSG_TRIM_IS, &session->trimmed, NULL, 0, NULL, 0) == 0)
            watch(session);
    }
}

static void config(struct gm_session *session, const struct gm_msg_config *body)
{
    struct gm_msg_config_is answer;
    session->reading = gm_control_config(session->all->control, session->uid, body, &answer);
    if (session->reading == 0) {
        gm_session_send(session, GM_MSG_CONFIG_IS, &answer, NULL, 0, NULL, 0);
        return;
    }
    session->answer_by = gm_now() + GM_SESSION_TRIM_MS * GM_MS;
    watch(session);
    answer_late(session);
}

static void trim(struct gm_session *session)
{
    session->trimmed = gm_control_trim(session->all->control, session->uid);
    session->answer_by = gm_now() + GM_SESSION_TRIM_MS * GM_MS;
    watch(session);
    answer_late(session);
}

static void dispatch(struct gm_session *session, const struct gm_wire_message *message)
{
    if (session->is_starting) {
        gm_session_end(session, GM_REFUSE_PROTOCOL, "a message while it waits for room");
        return;
    }
    if (session->state == GM_SESSION_CONTROL && !session->answer_by)
        uv_timer_start(&session->timer, on_timer, GM_SESSION_PATIENCE_MS, 0);
    switch (message->type) {
    case GM_MSG_HELLO:
        hello(session, message->body);
        return;
    case GM_MSG_PLACE:
        start(session, message);
        return;
    case GM_MSG_STATUS:
        ask(session, GM_MSG_STATUS_IS, 0);
        return;
    case GM_MSG_LOG:
        ask(session, GM_MSG_LOG_IS, ((const struct gm_msg_log *)message->body)->since);
        return;
    case GM_MSG_RESERVE:
        reserve(session, message->body);
        return;
    case GM_MSG_TRIM:
        trim(session);
        return;
    case GM_MSG_SET:
        set(session, message->body);
        return;
    case GM_MSG_FORGET:
        forget(session, message->body);
        return;
    case GM_MSG_CONFIG:
        config(session, message->body);
        return;
    case GM_MSG_IMPORTED:
        gm_machine_imported(session->all->machine, session->app,
                            ((const struct gm_msg_imported *)message->body)->exporter);
        return;
    default:
        /* wire.def allows the other messages in state APP only. */
        gm_machine_message(session->all->machine, session->app, message);
        return;
    }
}

/* End the session of a malformed message, and say what is wrong with it. */
static void fault(struct gm_session *session, enum gm_wire_fault fault, size_t length)
{
    const struct gm_wire_header *header = (const void *)session->all->in;
    char text[160];

    if (fault == GM_WIRE_BAD_VERSION && length >= sizeof *header) {
        snprintf(text, sizeof text,
                 "the client speaks protocol version %u, this gpumuxd %u: "
                 "install the same gpumux version of both",
                 header->version, GM_WIRE_VERSION);
        gm_session_end(session, GM_REFUSE_VERSION, text);
        return;
    }
    snprintf(text, sizeof text, "bad message (%s): %s",
             length >= sizeof *header ? gm_wire_name(header->type) : "?",
             gm_wire_fault_text(fault));
    gm_session_end(session, GM_REFUSE_PROTOCOL, text);
}

/* Read and handle one message. Returns false when there is no more to read now. */
static bool receive(struct gm_session *session)
{
    struct gm_sessions *all = session->all;
    struct gm_wire_message message;

    ssize_t got = gm_sock_receive_bare(session->fd, all->in, sizeof all->in);
    if (got == -EAGAIN)
        return false;
    if (got == -EMSGSIZE) {
        gm_session_end(session, GM_REFUSE_PROTOCOL,
                       "bad message: too long, or with file descriptors");
        return false;
    }
    if (got <= 0) {
        lose(session, session->app == NO_APP ? GM_LOG_DEBUG : GM_LOG_INFO, "left");
        return false;
    }
    enum gm_wire_fault wrong =
        gm_wire_decode(all->in, (size_t)got, 0, GM_UP, session->state, &message);
    if (wrong != GM_WIRE_OK) {
        fault(session, wrong, (size_t)got);
        return false;
    }
    dispatch(session, &message);
    return !session->is_ending;
}

/* Read what it says, until its user had its share of this round. */
static void hear(struct gm_session *session)
{
    struct gm_sessions *all = session->all;
    uint64_t begun = gm_now();
    bool is_more = true;
    for (int i = 0; i < GM_SESSION_BURST && is_more && is_heard(session); i++) {
        is_more = receive(session);
        const uint64_t now = gm_now();
        gm_bound_spend(&all->bounds, session->user, now - begun);
        begun = now;
        is_more = is_more && !gm_bound_is_spent(&all->bounds, session->user);
    }
}

/* Read its HELLO. False: there is no more to read now. */
static bool greet(struct gm_session *session)
{
    const uint64_t begun = gm_now();
    const bool is_more = receive(session);
    gm_bound_spend(&session->all->bounds, session->user, gm_now() - begun);
    return is_more && is_heard(session);
}

/* It has more to say than its user's share of this round, and waits for the next one. */
static void stand_in_line(struct gm_session *session)
{
    struct gm_sessions *all = session->all;
    session->stands = GM_STANDS_IN_LINE;
    TAILQ_INSERT_TAIL(&all->line, session, stand);
    all->n_line++;
    session->user->in_line++;
    if (gm_bound_is_slowed(&all->bounds, session->user, gm_now()))
        tell(session, GM_BOUND_TIME,
             "its programs and mux-ctl ask for more than the daemon does for one user at a time: "
             "they wait until others are served");
}

static void serve_line(struct gm_sessions *all)
{
    for (uint32_t left = all->n_line; left > 0 && all->n_line > 0; left--) {
        struct gm_session *session = TAILQ_FIRST(&all->line);
        step_out(session);
        if (gm_bound_is_spent(&all->bounds, session->user)) {
            stand_in_line(session);
            continue;
        }
        hear(session);
        if (!session->is_ending)
            watch(session);
    }
}

/* After the messages of a round. */
static void on_round(uv_check_t *check)
{
    struct gm_sessions *all = check->data;
    answer_documents(all);
    gm_bounds_turn(&all->bounds);
    serve_line(all);
    if (all->n_line == 0)
        uv_idle_stop(&all->spinner);
}

static void on_spin(uv_idle_t *spinner)
{
    (void)spinner; /* while it runs, the loop does not sleep */
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct gm_session *session = poll->data;
    struct gm_sessions *all = session->all;

    if (status < 0) { /* the peer died with unread messages */
        lose(session, session->app == NO_APP ? GM_LOG_DEBUG : GM_LOG_INFO, "left");
        return;
    }
    if (events & UV_WRITABLE)
        flush(session);
    if (!(events & UV_READABLE) || session->is_ending || !is_heard(session))
        return;
    /* Who comes is heard at once, or many programs that start together would crowd each other out:
     * server.c takes a few connections in a round. */
    if (session->state == GM_SESSION_NEW && !greet(session))
        return;
    if (session->user->in_line == 0 && !gm_bound_is_spent(&all->bounds, session->user)) {
        hear(session);
        return;
    }
    stand_in_line(session);
    watch(session);
    uv_idle_start(&all->spinner, on_spin);
}

/* What it sent lies unread: the daemon itself did not run. The loop reads it next. */
static bool has_unread(const struct gm_session *session)
{
    uint8_t byte;
    return recv(session->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void on_timer(uv_timer_t *timer)
{
    struct gm_session *session = timer->data;
    if (session->is_starved) {
        session->is_starved = false;
        flush(session);
        if (!session->is_ending && !session->is_starved && session->state != GM_SESSION_APP)
            uv_timer_start(timer, on_timer, GM_SESSION_PATIENCE_MS, 0);
        return;
    }
    if (session->state != GM_SESSION_APP && !session->answer_by && !session->head &&
        has_unread(session)) {
        uv_timer_start(timer, on_timer, GM_SESSION_PATIENCE_MS, 0);
        return;
    }
    switch (session->state) {
    case GM_SESSION_NEW:
        gm_session_end(session, GM_REFUSE_PROTOCOL, "no HELLO within 5 s");
        return;
    case GM_SESSION_CONTROL:
        if (session->answer_by)
            answer_late(session);
        else if (session->head)
            cut(session, GM_BOUND_OUTPUT, "does not read its answers");
        else if (session->stands == GM_STANDS_NOWHERE)
            lose(session, GM_LOG_DEBUG, "asked nothing more");
        else /* it waits for the daemon */
            uv_timer_start(timer, on_timer, GM_SESSION_PATIENCE_MS, 0);
        return;
    case GM_SESSION_APP:
        return;
    }
}

/* ---- all of them --------------------------------------------------------------------------- */

void gm_session_start(struct gm_sessions *all, int fd)
{
    char text[128];
    struct ucred peer = {0};
    socklen_t size = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)) {
        snprintf(text, sizeof text, "the peer cannot be identified: %s", strerror(errno));
        goto full;
    }
    const uint64_t now = gm_now();
    struct gm_bound *user = gm_bounds_join(&all->bounds, peer.uid, is_privileged(peer.uid), now);
    if (!user) {
        snprintf(text, sizeof text, "the daemon serves %u users already", GM_BOUND_USERS);
        goto full;
    }
    make_room(all, user);
    struct gm_session *session = calloc(1, sizeof *session);
    if (!session) {
        snprintf(text, sizeof text, "the daemon has no memory left for one more connection");
        goto left;
    }
    session->all = all;
    session->user = user;
    session->fd = fd;
    session->app = NO_APP;
    session->state = GM_SESSION_NEW;
    session->tail = &session->head;
    int error = uv_poll_init(all->loop, &session->poll, fd);
    if (error) {
        snprintf(text, sizeof text, "the daemon cannot watch one more connection: %s",
                 uv_strerror(error));
        goto unpolled;
    }
    uv_timer_init(all->loop, &session->timer);
    session->poll.data = session;
    session->timer.data = session;
    session->open_handles = 2;
    session->pid = peer.pid;
    session->uid = peer.uid;
    session->gid = peer.gid;
    all->visitors++;
    user->visitors++;
    TAILQ_INSERT_TAIL(&all->living, session, each);
    watch(session);
    uv_timer_start(&session->timer, on_timer, GM_SESSION_PATIENCE_MS, 0);
    gm_bound_spend(&all->bounds, user, gm_now() - now);
    return;

unpolled:
    free(session);
left:
    gm_bound_leave(user, now);
full:
    gm_log(GM_LOG_WARN, "connection refused: %s", text);
    refuse(fd, GM_REFUSE_FULL, text);
    close(fd);
}

uint32_t gm_sessions_apps(const struct gm_sessions *all)
{
    return all->apps;
}

int gm_sessions_open(struct gm_sessions **sessions, uv_loop_t *loop, struct gm_machine *machine,
                     struct gm_control *control, uint32_t max_apps)
{
    struct gm_sessions *all = calloc(1, sizeof *all);
    if (!all)
        return -ENOMEM;
    all->loop = loop;
    all->machine = machine;
    all->control = control;
    all->max_apps = max_apps;
    all->view = gm_view_own();
    if (control->mps)
        gm_mps_listen(control->mps, on_settled, all);
    all->max_visitors = gm_files_kept() * 2 / 3;
    all->apps_by_files = gm_files_divide() / GM_SESSION_FILES;
    all->bounds.max_files = gm_files_limit() / GM_SESSION_OTHERS;
    TAILQ_INIT(&all->living);
    TAILQ_INIT(&all->ending);
    TAILQ_INIT(&all->line);
    TAILQ_INIT(&all->asking);
    uv_idle_init(loop, &all->gravedigger);
    all->gravedigger.data = all;
    uv_timer_init(loop, &all->beat);
    all->beat.data = all;
    uv_check_init(loop, &all->round);
    all->round.data = all;
    uv_check_start(&all->round, on_round);
    uv_idle_init(loop, &all->spinner);
    uv_timer_init(loop, &all->alarm);
    uv_timer_init(loop, &all->starts);
    all->starts.data = all;
    *sessions = all;
    return 0;
}

void gm_sessions_stop(struct gm_sessions *all)
{
    /* First mark all: an app that leaves can make the engine end or serve another. */
    while (!TAILQ_EMPTY(&all->living))
        mark(TAILQ_FIRST(&all->living));
    while (!TAILQ_EMPTY(&all->ending))
        bury(TAILQ_FIRST(&all->ending));
    uv_close((uv_handle_t *)&all->gravedigger, NULL);
    uv_close((uv_handle_t *)&all->beat, NULL);
    uv_close((uv_handle_t *)&all->round, NULL);
    uv_close((uv_handle_t *)&all->spinner, NULL);
    uv_close((uv_handle_t *)&all->alarm, NULL);
    uv_close((uv_handle_t *)&all->starts, NULL);
}

void gm_sessions_free(struct gm_sessions *all)
{
    free(all);
}
