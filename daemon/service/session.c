/*
 * Sessions: take connections, read, check and dispatch the messages of a peer. See session.h.
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
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/peer.h"
#include "common/sock.h"
#include "common/text.h"
#include "daemon/memory/files.h"
#include "daemon/service/bounds.h"
#include "daemon/service/explain.h"
#include "daemon/service/process.h"
#include "daemon/service/session_documents.h"
#include "daemon/service/session_output.h"
#include "daemon/service/session_rejoin.h"
#include "daemon/service/session_starts.h"
#include "daemon/service/users.h"

static void on_ready(uv_poll_t *poll, int status, int events);
static void on_timer(uv_timer_t *timer);

/* ---- limits -------------------------------------------------------------------------------- */

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
        gm_session_cut(session, GM_BOUND_VISITORS, text);
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

/* Whether the program of this session can be served beside the reserved places; if not, `text`
 * says why, else it is "". With `has_place` it has a reserved place itself. */
static bool has_room_for(const struct gm_sessions *all, const struct gm_session *session,
                         bool has_place, char *text, size_t size)
{
    struct gm_places *places = &all->control->places;
    const bool is_by_files = all->apps_by_files < all->max_apps;
    const uint32_t most = is_by_files ? all->apps_by_files : all->max_apps;
    const uint32_t users = most - most / GM_SESSION_OTHERS;
    const uint32_t roots = most < GM_SESSION_OTHERS ? 0 : (most - 1) / GM_SESSION_ROOM + 1;
    const uint32_t reserved = gm_places_reserved(places, gm_now());
    const int joins = gm_machine_places(all->machine); /* apps for which the engine has room */
    const uint32_t gone = joins < 0 ? 0 : all->max_apps - (uint32_t)joins - all->apps;
    const uint32_t taken = all->apps + gone + reserved;
    const bool is_control = session->state == GM_SESSION_CONTROL; /* mux-ctl run asks */
    const char *const full = "raise LimitNOFILE or ulimit -n of gpumuxd";
    const uid_t owner = gm_users_owner(session->uid); /* which may not have been known before */
    const char *const more = is_by_files ? full : "raise --max-apps";

    if (session->pid == 0) { /* it could not be watched, and would never end here */
        snprintf(text, size,
                 "gpumuxd cannot see this process, as it has process ids of its own: start gpumuxd "
                 "on the machine itself, not in a container");
        return false;
    }
    snprintf(text, size, "%u programs are served already", all->apps);
    if (reserved > 0)
        gm_text_add(text, size, " and %u places are reserved", reserved);
    if (gone > 0)
        gm_text_add(text, size, ", %u more are gone and have not ended yet", gone);
    if (joins < 0)
        snprintf(text, size, "the daemon is stopping");
    else if (!has_place && taken >= all->apps_by_files)
        gm_text_add(text, size, ", and %u open files allow no more: %s", gm_files_limit(), full);
    else if ((!is_control && gm_files_is_reserved(session->fd)) ||
             gm_files_left() < GM_SESSION_FILES)
        snprintf(text, size, "all but the last %u of %u open files are in use: %s",
                 gm_files_reserved(), gm_files_limit(), full);
    else if (has_place)
        text[0] = '\0';
    else if ((uint32_t)joins <= reserved)
        gm_text_add(text, size, ": raise --max-apps");
    else if (session->is_admin)
        text[0] = '\0';
    else if (gm_machine_places_of(all->machine, owner) +
                 gm_places_reserved_for(places, owner, gm_now()) >=
             users)
        snprintf(text, size, "%u programs of user %u are served already, the most for one user: %s",
                 users, owner, more);
    else if (taken + roots >= most)
        gm_text_add(text, size, ", and the last %u places are root's: %s", roots, more);
    else
        text[0] = '\0';
    return text[0] == '\0';
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
    if (!answer.is_refused && !gm_places_reserve(places, session->pid, session->uid, now)) {
        answer.is_refused = 1;
        snprintf(answer.text, sizeof answer.text,
                 "%u places are reserved for programs that have not connected yet, or %u of this "
                 "user: try again later",
                 GM_PLACES_MAX, GM_PLACES_USER);
    }
    if (!answer.is_refused)
        gm_session_say(session, GM_LOG_DEBUG, "a place is reserved for %s", body->name);
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

/* Its program is an app. */
static void become_app(struct gm_session *session)
{
    struct gm_sessions *all = session->all;
    if (!session->is_ending)
        gm_session_settle(session);
    session->state = GM_SESSION_APP;
    if (all->apps++ == 0)
        uv_timer_start(&all->beat, on_beat, GM_SESSION_BEAT_MS, GM_SESSION_BEAT_MS);
    if (session->is_ending)
        return; /* WELCOME could not be sent; bury tells the engine */
    uv_timer_stop(&session->timer);
}

static void hello(struct gm_session *session, const struct gm_msg_hello *body)
{
    struct gm_sessions *all = session->all;
    char text[sizeof((struct gm_msg_refused){0}).text];

    const uint16_t version = gm_wire_common(body->oldest, body->newest);
    if (version == 0) {
        gm_session_end_version(session, body->oldest, body->newest);
        return;
    }
    memcpy(session->name, body->name, sizeof session->name);
    gm_text_clean(session->name, sizeof session->name);
    if (body->role == GM_ROLE_CONTROL) {
        const int room = GM_SESSION_ANSWERS;
        setsockopt(session->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        session->state = GM_SESSION_CONTROL;
        gm_session_await(session, GM_SESSION_PATIENCE_MS);
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
    gm_rejoin_anew(session);
    uint32_t app = GM_NO_APP;
    const struct gm_newcomer who = {
        .session = session,
        .pid = session->pid,
        .started = gm_process_started(session->pid),
        .uid = session->uid,
        .is_admin = session->is_admin,
        .version = version,
        .name = session->name,
        .wishes = {.class = body->class,
                   .weight = body->weight,
                   .oversize = body->oversize,
                   .cap_is = body->cap_is,
                   .cap = body->cap,
                   .has_part = gm_mps_has_part(all->control->mps, session->pid)}};
    if (gm_machine_join(all->machine, &who, body->group, &app, text, sizeof text) != 0) {
        turn_away(session, text);
        return;
    }
    session->app = app;
    become_app(session);
}

/* ---- settings and trims ---- */

/* False: its user sets too much, says `text`. */
static bool may_set(const struct gm_session *session, char *text, size_t size)
{
    if (gm_bound_may_set(session->user, gm_now()))
        return true;
    snprintf(text, size, "%d settings of this user in a second: try again in a second",
             GM_SETTINGS_A_SECOND);
    return false;
}

static void set(struct gm_session *session, const struct gm_msg_set *body)
{
    struct gm_msg_set_is answer = {.is_refused = 1};
    if (may_set(session, answer.text, sizeof answer.text))
        gm_control_set(session->all->control, session->uid, session->is_admin, body, &answer);
    gm_session_send(session, GM_MSG_SET_IS, &answer, NULL, 0, NULL, 0);
}

static void forget(struct gm_session *session, const struct gm_msg_forget *body)
{
    struct gm_msg_forgotten answer = {.is_refused = 1};
    if (may_set(session, answer.text, sizeof answer.text))
        gm_control_forget(session->all->control, session->uid, session->is_admin, body, &answer);
    gm_session_send(session, GM_MSG_FORGOTTEN, &answer, NULL, 0, NULL, 0);
}

static void explain(struct gm_session *session, const struct gm_msg_explain *body)
{
    char why[128];
    uint64_t bytes;
    char *text = may_set(session, why, sizeof why)
                     ? gm_explain(session->all->control, session->uid, session->is_admin, body)
                     : gm_explain_refusal(why);
    int fd = gm_control_seal(text, &bytes);
    if (fd < 0) {
        gm_session_end(session, GM_REFUSE_FULL, "the document cannot be made");
        return;
    }
    gm_session_send(session, GM_MSG_EXPLAIN_IS, &bytes, NULL, 0, &fd, 1);
    close(fd);
}

/* The answer comes now: the session may ask again. */
static void end_waiting(struct gm_session *session)
{
    session->answer_by = 0;
    if (!session->is_starved) /* else the timer is to flush */
        gm_session_await(session, GM_SESSION_PATIENCE_MS);
}

static void answer_config(struct gm_session *session, bool is_refused, const char *text)
{
    struct gm_msg_config_is answer = {.is_refused = is_refused};
    snprintf(answer.text, sizeof answer.text, "%.247s", text);
    gm_text_clean(answer.text, sizeof answer.text);
    end_waiting(session);
    session->reading = 0;
    if (gm_session_send(session, GM_MSG_CONFIG_IS, &answer, NULL, 0, NULL, 0) == 0)
        gm_session_watch(session);
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

/* GIVE_BACK takes as long as it takes, and its asker is told each second how far it is. */
static void tell_given_back(struct gm_session *session, bool is_last)
{
    struct gm_msg_given_back answer = {.is_last = is_last};
    gm_machine_saved(session->all->machine, &answer.whole, &answer.left, &answer.lost);
    if (gm_session_send(session, GM_MSG_GIVEN_BACK, &answer, NULL, 0, NULL, 0) == 0)
        gm_session_await(session, GM_SESSION_BEAT_MS);
}

void gm_sessions_given_back(struct gm_sessions *all)
{
    struct gm_session *session, *next;
    for (session = TAILQ_FIRST(&all->living); session; session = next) {
        next = TAILQ_NEXT(session, each);
        if (session->is_giving_back)
            tell_given_back(session, true);
    }
}

static void give_back(struct gm_session *session)
{
    struct gm_control *control = session->all->control;
    const struct gm_msg_given_back refusal = {.is_last = 1, .is_refused = 1};
    if (!session->is_admin || !control->give_back) {
        gm_session_send(session, GM_MSG_GIVEN_BACK, &refusal, NULL, 0, NULL, 0);
        return;
    }
    gm_session_say(session, GM_LOG_INFO, "asks for all memory to be given back");
    session->is_giving_back = true;
    session->answer_by = UINT64_MAX;
    gm_session_watch(session);
    gm_session_await(session, GM_SESSION_BEAT_MS);
    control->give_back(control->arg);
}

/* Answer TRIM once the memory has reached the system: the driver or a stopped program may keep some
 * for longer. CONFIG is answered once the file is read: it may be on a network. So both have a
 * deadline. */
static void answer_late(struct gm_session *session)
{
    if (session->is_giving_back) {
        tell_given_back(session, false);
        return;
    }
    const bool is_awaited = session->reading || gm_machine_is_trimming(session->all->machine);
    if (is_awaited && gm_now() < session->answer_by) {
        gm_session_await(session, GM_SESSION_RETRY_MS);
    } else if (session->reading) {
        answer_config(session, true, "it takes long to read the configuration: see the log");
    } else {
        end_waiting(session);
        if (gm_session_send(session, GM_MSG_TRIM_IS, &session->trimmed, NULL, 0, NULL, 0) == 0)
            gm_session_watch(session);
    }
}

static void config(struct gm_session *session, const struct gm_msg_config *body)
{
    struct gm_msg_config_is answer;
    session->reading = gm_control_config(session->all->control, session->is_admin, body, &answer);
    if (session->reading == 0) {
        gm_session_send(session, GM_MSG_CONFIG_IS, &answer, NULL, 0, NULL, 0);
        return;
    }
    session->answer_by = gm_now() + GM_SESSION_TRIM_MS * GM_MS;
    gm_session_watch(session);
    answer_late(session);
}

static void trim(struct gm_session *session)
{
    session->trimmed = gm_control_trim(session->all->control, session->uid, session->is_admin);
    session->answer_by = gm_now() + GM_SESSION_TRIM_MS * GM_MS;
    gm_session_watch(session);
    answer_late(session);
}

static void dispatch(struct gm_session *session, const struct gm_wire_message *message)
{
    if (session->is_starting) {
        gm_session_end(session, GM_REFUSE_PROTOCOL, "a message while it waits for room");
        return;
    }
    if (session->state == GM_SESSION_NEW &&
        (session->rejoining != NULL) != (message->type == GM_MSG_HOLDS)) {
        gm_session_end(session, GM_REFUSE_PROTOCOL, "HOLDS follow REJOIN, and nothing else does");
        return;
    }
    if (session->state == GM_SESSION_CONTROL && !session->answer_by)
        gm_session_await(session, GM_SESSION_PATIENCE_MS);
    switch (message->type) {
    case GM_MSG_REJOIN:
        gm_rejoin_begin(session, message->body);
        return;
    case GM_MSG_HOLDS:
        if (gm_rejoin_holds(session, message))
            become_app(session);
        return;
    case GM_MSG_HELLO:
        hello(session, message->body);
        return;
    case GM_MSG_PLACE:
        gm_starts_place(session, message);
        return;
    case GM_MSG_STATUS:
        gm_documents_ask(session, GM_MSG_STATUS_IS, 0);
        return;
    case GM_MSG_LOG:
        gm_documents_ask(session, GM_MSG_LOG_IS, ((const struct gm_msg_log *)message->body)->since);
        return;
    case GM_MSG_TRACE:
        gm_documents_ask(session, GM_MSG_TRACE_IS,
                         ((const struct gm_msg_trace *)message->body)->since);
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
    case GM_MSG_EXPLAIN:
        explain(session, message->body);
        return;
    case GM_MSG_GIVE_BACK:
        give_back(session);
        return;
    case GM_MSG_IMPORTED: /* a number of a container is somebody else's here */
        if (session->has_our_numbers)
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
        gm_session_end_version(session, header->version, header->version);
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
        gm_session_lose(session, session->app == GM_NO_APP ? GM_LOG_DEBUG : GM_LOG_INFO, "left");
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
    for (int i = 0; i < GM_SESSION_BURST && is_more && gm_session_is_heard(session); i++) {
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
    return is_more && gm_session_is_heard(session);
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
        gm_session_tell(
            session, GM_BOUND_TIME,
            "its programs and mux-ctl ask for more than the daemon does for one user at a time: "
            "they wait until others are served");
}

static void serve_line(struct gm_sessions *all)
{
    for (uint32_t left = all->n_line; left > 0 && all->n_line > 0; left--) {
        struct gm_session *session = TAILQ_FIRST(&all->line);
        gm_session_step_out(session);
        if (gm_bound_is_spent(&all->bounds, session->user)) {
            stand_in_line(session);
            continue;
        }
        hear(session);
        if (!session->is_ending)
            gm_session_watch(session);
    }
}

/* After the messages of a round. */
static void on_round(uv_check_t *check)
{
    struct gm_sessions *all = check->data;
    gm_documents_answer(all);
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
        gm_session_lose(session, session->app == GM_NO_APP ? GM_LOG_DEBUG : GM_LOG_INFO, "left");
        return;
    }
    if (events & UV_WRITABLE)
        gm_session_flush(session);
    if (!(events & UV_READABLE) || session->is_ending || !gm_session_is_heard(session))
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
    gm_session_watch(session);
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
        gm_session_flush(session);
        if (!session->is_ending && !session->is_starved && session->state != GM_SESSION_APP)
            gm_session_await(session, GM_SESSION_PATIENCE_MS);
        return;
    }
    if (session->state != GM_SESSION_APP && !session->answer_by && !session->head &&
        has_unread(session)) {
        gm_session_await(session, GM_SESSION_PATIENCE_MS);
        return;
    }
    switch (session->state) {
    case GM_SESSION_NEW:
        /* It may have stood still meanwhile: a program that comes back tries again. */
        gm_session_end(session, GM_REFUSE_FULL,
                       session->rejoining ? "not all HOLDS within 5 s" : "no HELLO within 5 s");
        return;
    case GM_SESSION_CONTROL:
        if (session->answer_by)
            answer_late(session);
        else if (session->head)
            gm_session_cut(session, GM_BOUND_OUTPUT, "does not read its answers");
        else if (session->stands == GM_STANDS_NOWHERE)
            gm_session_lose(session, GM_LOG_DEBUG, "asked nothing more");
        else /* it waits for the daemon */
            gm_session_await(session, GM_SESSION_PATIENCE_MS);
        return;
    case GM_SESSION_APP:
        return;
    }
}

/* ---- all of them --------------------------------------------------------------------------- */

void gm_session_start(struct gm_sessions *all, int fd)
{
    char text[128];
    struct gm_peer peer;
    const int unknown = gm_peer_look(fd, &peer);

    if (unknown) {
        snprintf(text, sizeof text, "the peer cannot be identified: %s", strerror(-unknown));
        goto full;
    }
    const uint64_t now = gm_now();
    const bool is_admin = gm_peer_is_admin(&peer);
    struct gm_bound *user = gm_bounds_join(&all->bounds, gm_users_owner(peer.uid), is_admin, now);
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
    session->app = GM_NO_APP;
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
    session->is_admin = is_admin;
    session->has_our_numbers = peer.has_our_numbers;
    all->visitors++;
    user->visitors++;
    TAILQ_INSERT_TAIL(&all->living, session, each);
    gm_session_watch(session);
    gm_session_await(session, GM_SESSION_PATIENCE_MS);
    gm_bound_spend(&all->bounds, user, gm_now() - now);
    return;

unpolled:
    free(session);
left:
    gm_bound_leave(user, now);
full:
    gm_log(GM_LOG_WARN, "connection refused: %s", text);
    gm_session_refuse(fd, GM_REFUSE_FULL, text);
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
    all->on_ready = on_ready;
    all->on_timer = on_timer;
    all->on_starts = gm_starts_look;
    all->max_apps = max_apps;
    all->view = gm_view_own();
    if (control->mps)
        gm_mps_listen(control->mps, gm_starts_settled, all);
    all->max_visitors = gm_files_reserved() * 2 / 3;
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
        gm_session_mark(TAILQ_FIRST(&all->living));
    while (!TAILQ_EMPTY(&all->ending))
        gm_session_bury(TAILQ_FIRST(&all->ending));
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
