/*
 * Sessions: read, check and dispatch the messages of a peer; queue output that it does not read.
 * See session.h.
 *
 * All input is hostile. gm_wire_decode checks the form of a message and whether the session's state
 * allows it; the engine checks its values. Reads are bounded per turn of the loop, output per
 * session, so a peer can harm its own session only.
 */
#include "daemon/service/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
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

#define NO_APP UINT32_MAX

/* A queued message; its fds are duplicates. */
struct output {
    struct output *next;
    size_t length;
    int n_fds;
    int fds[GM_WIRE_FDS];
    _Alignas(8) uint8_t bytes[];
};

struct gm_session {
    struct gm_sessions *all;
    struct gm_session *next, **link; /* in all->living or all->ending */
    uv_poll_t poll;
    uv_timer_t timer; /* patience while NEW or CONTROL, retry while APP or trimming */
    int fd;
    int open_handles;
    enum gm_session_state state;
    uint32_t app; /* NO_APP unless joined */
    pid_t pid;
    uid_t uid;
    char name[64];
    bool is_ending;
    uint64_t trim_until; /* answer TRIM by then; 0: TRIM was not asked */
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
    struct gm_session *living, *ending;
    uint32_t visitors, max_visitors; /* connections of no app that are not ending */
    uint32_t apps, max_apps;
    uint32_t apps_by_files; /* how many apps the limit of open files allows */
    _Alignas(8) uint8_t in[GM_WIRE_MAX];
    _Alignas(8) uint8_t out[GM_WIRE_MAX];
};

static void on_ready(uv_poll_t *poll, int status, int events);
static void on_timer(uv_timer_t *timer);

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

static void put_in(struct gm_session *session, struct gm_session **list)
{
    session->next = *list;
    session->link = list;
    if (session->next)
        session->next->link = &session->next;
    *list = session;
}

static void take_out(struct gm_session *session)
{
    *session->link = session->next;
    if (session->next)
        session->next->link = session->link;
}

/* ---- ending -------------------------------------------------------------------------------- */

static void drop_output(struct gm_session *session)
{
    while (session->head) {
        struct output *output = session->head;
        session->head = output->next;
        for (int i = 0; i < output->n_fds; i++)
            close(output->fds[i]);
        free(output);
    }
    session->tail = &session->head;
    session->queue_bytes = 0;
    session->queue_messages = 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct gm_session *session = handle->data;
    if (--session->open_handles > 0)
        return;
    close(session->fd); /* libuv no longer uses the number */
    free(session);
}

/* Tell the engine, close the socket and free the session. */
static void bury(struct gm_session *session)
{
    struct gm_sessions *all = session->all;
    uint8_t byte;

    take_out(session);
    if (session->app != NO_APP) {
        if (--all->apps == 0)
            uv_timer_stop(&all->beat);
        gm_machine_leave(all->machine, session->app);
    }
    drop_output(session);
    /* If unread messages are left when the socket closes, the peer gets ECONNRESET before it can
     * read why it was refused. So discard them. */
    shutdown(session->fd, SHUT_RD);
    for (int i = 0; i < 4096 && recv(session->fd, &byte, 1, MSG_DONTWAIT) > 0; i++)
        continue;
    shutdown(session->fd, SHUT_WR);
    uv_close((uv_handle_t *)&session->poll, on_closed);
    uv_close((uv_handle_t *)&session->timer, on_closed);
}

static void on_bury(uv_idle_t *idle)
{
    struct gm_sessions *all = idle->data;
    /* gm_machine_leave may end more sessions, which join the list. */
    while (all->ending)
        bury(all->ending);
    uv_idle_stop(idle);
}

/* Mark a session as ending: read and send nothing more. bury follows from the loop. */
static void mark(struct gm_session *session)
{
    struct gm_sessions *all = session->all;
    session->is_ending = true;
    all->visitors -= session->state != GM_SESSION_APP;
    uv_poll_stop(&session->poll);
    uv_timer_stop(&session->timer);
    drop_output(session);
    take_out(session);
    put_in(session, &all->ending);
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

void gm_session_end(struct gm_session *session, enum gm_refusal reason, const char *text)
{
    if (session->is_ending)
        return;
    say(session, GM_LOG_WARN, "refused: %s", text);
    refuse(session->fd, reason, text);
    mark(session);
}

/* ---- limits -------------------------------------------------------------------------------- */

/* The limits per user do not apply to root and the daemon's own user. */
static bool is_privileged(uid_t uid)
{
    return uid == 0 || uid == geteuid();
}

/* How many sessions of the user belong to no app. */
static uint32_t visitors_of(const struct gm_sessions *all, uid_t uid)
{
    uint32_t n = 0;
    for (const struct gm_session *session = all->living; session; session = session->next)
        n += session->uid == uid && session->state != GM_SESSION_APP;
    return n;
}

/*
 * Make room for one more visitor: end the oldest one of the user who has most, and a privileged one
 * only if there are no others. Clients speak at once, so the oldest is one that is silent.
 */
static void crowd_out(struct gm_sessions *all)
{
    struct gm_session *chosen = NULL;
    uint32_t most = 0;
    char text[128];

    if (all->visitors < all->max_visitors)
        return;
    for (struct gm_session *session = all->living; session; session = session->next) {
        uint32_t n = is_privileged(session->uid) ? 0 : visitors_of(all, session->uid);
        if (session->state != GM_SESSION_APP && n >= most) { /* the oldest is last in the list */
            chosen = session;
            most = n;
        }
    }
    if (!chosen)
        return;
    snprintf(text, sizeof text,
             "%u connections of its user are open and no program's: the oldest makes room",
             visitors_of(all, chosen->uid));
    gm_session_end(chosen, GM_REFUSE_FULL, text);
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

static void watch(struct gm_session *session)
{
    int events = UV_READABLE | (session->head ? UV_WRITABLE : 0);
    uv_poll_start(&session->poll, events, on_ready);
}

/* Send as much of the queue as the socket takes. May mark the session as ending. */
static void flush(struct gm_session *session)
{
    while (session->head) {
        struct output *output = session->head;
        int error =
            gm_sock_send(session->fd, output->bytes, output->length, output->fds, output->n_fds);
        if (error == -EAGAIN) {
            watch(session);
            return;
        }
        if (is_scarce(error)) {
            uv_poll_start(&session->poll, UV_READABLE, on_ready);
            uv_timer_start(&session->timer, on_timer, GM_SESSION_RETRY_MS, 0);
            return;
        }
        if (error) {
            lose_unsent(session, error);
            return;
        }
        session->head = output->next;
        if (!session->head)
            session->tail = &session->head;
        session->queue_bytes -= output->length;
        session->queue_messages--;
        for (int i = 0; i < output->n_fds; i++)
            close(output->fds[i]);
        free(output);
    }
    watch(session);
}

/* Queue a message. Returns 0; or -errno, and then nothing is queued. */
static int queue(struct gm_session *session, const void *bytes, size_t length, const int *fds,
                 int n_fds)
{
    if (session->queue_messages >= GM_SESSION_QUEUE_MESSAGES ||
        session->queue_bytes + length > GM_SESSION_QUEUE_BYTES)
        return -ENOBUFS;
    struct output *output = malloc(sizeof *output + length);
    if (!output)
        return -ENOMEM;
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
            free(output);
            return error;
        }
        output->fds[output->n_fds] = fd;
    }
    *session->tail = output;
    session->tail = &output->next;
    session->queue_bytes += length;
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
    if (error == -ENOBUFS) {
        gm_session_end(session, GM_REFUSE_PROTOCOL, "does not read its messages");
        return error;
    }
    if (error) {
        lose(session, GM_LOG_ERROR, "dropped: no memory or file descriptors left for its messages");
        return error;
    }
    if (is_first && is_scarce(cause))
        uv_timer_start(&session->timer, on_timer, GM_SESSION_RETRY_MS, 0);
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
    all->visitors -= !session->is_ending;
    session->state = GM_SESSION_APP;
    if (all->apps++ == 0)
        uv_timer_start(&all->beat, on_beat, GM_SESSION_BEAT_MS, GM_SESSION_BEAT_MS);
    if (session->is_ending)
        return; /* WELCOME could not be sent; bury tells the engine */
    uv_timer_stop(&session->timer);
}

/* Send a document. The body of STATUS_IS and LOG_IS is its length. */
static void answer_document(struct gm_session *session, enum gm_msg_type type, const char *what,
                            char *text)
{
    uint64_t bytes;
    int fd = gm_control_seal(text, &bytes);
    if (fd < 0) {
        char why[128];
        snprintf(why, sizeof why, "the %s cannot be made: %s", what, strerror(-fd));
        gm_session_end(session, GM_REFUSE_FULL, why);
        return;
    }
    gm_session_send(session, type, &bytes, NULL, 0, &fd, 1);
    close(fd);
}

static void set(struct gm_session *session, const struct gm_msg_set *body)
{
    struct gm_msg_set_is answer;
    gm_control_set(session->all->control, session->uid, body, &answer);
    gm_session_send(session, GM_MSG_SET_IS, &answer, NULL, 0, NULL, 0);
}

/* Answer TRIM once the memory has reached the system. The driver or a stopped program may keep some
 * for longer, so the answer has a deadline. */
static void answer_trim(struct gm_session *session)
{
    if (gm_machine_is_trimming(session->all->machine) && gm_now() < session->trim_until) {
        uv_timer_start(&session->timer, on_timer, GM_SESSION_RETRY_MS, 0);
        return;
    }
    session->trim_until = 0;
    uv_timer_start(&session->timer, on_timer, GM_SESSION_PATIENCE_MS, 0);
    gm_session_send(session, GM_MSG_TRIM_IS, &session->trimmed, NULL, 0, NULL, 0);
}

static void trim(struct gm_session *session)
{
    session->trimmed = gm_control_trim(session->all->control);
    session->trim_until = gm_now() + GM_SESSION_TRIM_MS * GM_MS;
    answer_trim(session);
}

static void dispatch(struct gm_session *session, const struct gm_wire_message *message)
{
    struct gm_control *control = session->all->control;
    if (session->state == GM_SESSION_CONTROL && !session->trim_until)
        uv_timer_start(&session->timer, on_timer, GM_SESSION_PATIENCE_MS, 0);
    switch (message->type) {
    case GM_MSG_HELLO:
        hello(session, message->body);
        return;
    case GM_MSG_STATUS:
        answer_document(session, GM_MSG_STATUS_IS, "status", gm_control_status(control));
        return;
    case GM_MSG_LOG:
        answer_document(session, GM_MSG_LOG_IS, "log",
                        gm_control_log(control, ((const struct gm_msg_log *)message->body)->since));
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
    int fds[GM_WIRE_FDS], n_fds = 0;

    ssize_t got = gm_sock_receive(session->fd, all->in, sizeof all->in, fds, &n_fds);
    if (got == -EAGAIN)
        return false;
    if (got == -EMSGSIZE) {
        gm_session_end(session, GM_REFUSE_PROTOCOL, "bad message: too long, or with too many fds");
        return false;
    }
    if (got <= 0) {
        lose(session, session->app == NO_APP ? GM_LOG_DEBUG : GM_LOG_INFO, "left");
        return false;
    }
    for (int i = 0; i < n_fds; i++)
        close(fds[i]); /* messages to the daemon carry none; gm_wire_decode refuses this one */
    enum gm_wire_fault wrong =
        gm_wire_decode(all->in, (size_t)got, n_fds, GM_UP, session->state, &message);
    if (wrong != GM_WIRE_OK) {
        fault(session, wrong, (size_t)got);
        return false;
    }
    dispatch(session, &message);
    return !session->is_ending;
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct gm_session *session = poll->data;

    if (status < 0) { /* the peer died with unread messages */
        lose(session, session->app == NO_APP ? GM_LOG_DEBUG : GM_LOG_INFO, "left");
        return;
    }
    if (events & UV_WRITABLE)
        flush(session);
    if (events & UV_READABLE && !session->is_ending) {
        int left = GM_SESSION_BURST; /* the loop calls again for the rest */
        while (left-- > 0 && receive(session))
            continue;
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct gm_session *session = timer->data;
    switch (session->state) {
    case GM_SESSION_NEW:
        gm_session_end(session, GM_REFUSE_PROTOCOL, "no HELLO within 5 s");
        return;
    case GM_SESSION_CONTROL:
        if (session->trim_until)
            answer_trim(session);
        else
            lose(session, GM_LOG_DEBUG, "asked nothing more");
        return;
    case GM_SESSION_APP:
        flush(session);
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
    crowd_out(all);
    struct gm_session *session = calloc(1, sizeof *session);
    if (!session) {
        snprintf(text, sizeof text, "the daemon has no memory left for one more connection");
        goto full;
    }
    session->all = all;
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
    all->visitors++;
    put_in(session, &all->living);
    watch(session);
    uv_timer_start(&session->timer, on_timer, GM_SESSION_PATIENCE_MS, 0);
    return;

unpolled:
    free(session);
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
    all->max_visitors = gm_files_kept() * 2 / 3;
    all->apps_by_files = gm_files_left() / GM_SESSION_FILES;
    uv_idle_init(loop, &all->gravedigger);
    all->gravedigger.data = all;
    uv_timer_init(loop, &all->beat);
    all->beat.data = all;
    *sessions = all;
    return 0;
}

void gm_sessions_stop(struct gm_sessions *all)
{
    /* First mark all: an app that leaves can make the engine end or serve another. */
    while (all->living)
        mark(all->living);
    while (all->ending)
        bury(all->ending);
    uv_close((uv_handle_t *)&all->gravedigger, NULL);
    uv_close((uv_handle_t *)&all->beat, NULL);
}

void gm_sessions_free(struct gm_sessions *all)
{
    free(all);
}
