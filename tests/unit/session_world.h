/*
 * What surrounds sessions in their tests: an engine that is played, a loop, and peers over real
 * sockets. For test_session.c, test_session_rejoin.c, test_server.c and test_control.c.
 */
#ifndef GM_TESTS_SESSION_WORLD_H
#define GM_TESTS_SESSION_WORLD_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/clock.h"
#include "common/sock.h"
#include "daemon/engine/machine.h"
#include "daemon/service/server.h"
#include "daemon/service/session.h"
#include "daemon/service/session_output.h"
#include "daemon/core/snapshot.h"
#include "daemon/views/journal.h"
#include "daemon/engine/snapshot.h"
#include "daemon/views/log.h"
#include "daemon/views/status.h"
#include "daemon/views/why.h"

#define APPS 4u

/* ---- the engine that the test plays -------------------------------------------------------- */

struct played {
    struct gm_session *session[APPS];
    unsigned joins, leaves, messages[APPS];
    bool has_hung_up; /* the one that left last */
    pid_t unbound;    /* what it was bound with is free */
    bool is_inside;   /* one of our functions is on the stack */
    bool is_fatal;    /* end the session on its next message */
    bool is_chatty;   /* end the app's neighbour when an app leaves */
    uint64_t last[APPS];
    struct gm_wishes wishes;
    struct gm_place_request place;
    struct gm_bind_usage usage;
    uint32_t next; /* of those that wait: who is to begin */
    bool has_family;
    uint64_t since;
    struct gm_set_request set;
    char command[64];
    bool is_trimming;
    uint32_t whole, left; /* programs, while all memory is given back */
    unsigned documents;   /* that were made */
    unsigned snapshots;   /* ... likewise */
    uint64_t cost_ns;     /* what each message takes, if the clock stands still */
};

static struct played engine;
static _Atomic uint64_t still_at; /* the time, for all threads; 0: as it is */
static uid_t asker;               /* of connections from now on; root may choose */
static struct gm_journal its_journal;
static struct gm_machine machine = {.journal = &its_journal}; /* what the others hold of it */
static struct gm_options options;

int gm_machine_join(struct gm_machine *m, const struct gm_newcomer *who, const char *group,
                    uint32_t *app, char *why, size_t why_size)
{
    struct played *e = &engine;
    struct gm_msg_welcome body = {0};
    assert_ptr_equal(m, &machine);
    e->wishes = who->wishes;
    assert_int_equal(who->pid, getpid());
    assert_int_equal(who->uid, asker);
    assert_int_equal(who->is_admin, asker == getuid());
    assert_string_equal(who->name, "tester");
    assert_string_equal(group, "");
    for (uint32_t i = 0; i < APPS; i++) {
        if (e->session[i])
            continue;
        int fds[2] = {memfd_create("ctl", MFD_CLOEXEC), memfd_create("stat", MFD_CLOEXEC)};
        assert_true(fds[0] >= 0 && fds[1] >= 0);
        body.app = i;
        e->is_inside = true;
        gm_session_send(who->session, GM_MSG_WELCOME, &body, NULL, 0, fds, 2);
        e->is_inside = false;
        close(fds[0]);
        close(fds[1]);
        e->session[i] = who->session;
        e->messages[i] = 0;
        e->joins++;
        *app = i;
        return 0;
    }
    snprintf(why, why_size, "no place");
    return -ENOSPC;
}

/* It puts the program's devices into the opposite order. */
void gm_binds_place(struct gm_binds *binds, const struct gm_place_request *request,
                    struct gm_place_answer *answer)
{
    assert_ptr_equal(binds, &machine.binds);
    assert_int_equal(request->pid, getpid());
    assert_int_equal(request->uid, asker);
    engine.place = *request;
    *answer = (struct gm_place_answer){.gpu = 1, .device = 7, .why = GM_WHY_BIND_ROOM};
    for (uint32_t i = 0; i < request->n; i++)
        answer->order[i] = request->n - 1 - i;
    answer->is_changed = request->as_is == GM_WHY_NONE && request->n > 1;
}

void gm_binds_leave(struct gm_binds *binds, pid_t pid)
{
    assert_ptr_equal(binds, &machine.binds);
    engine.unbound = pid;
}

/* Who is to begin now, if anybody: as the test says. */
uint32_t gm_binds_next(struct gm_binds *binds, struct gm_waiting *waiting, uint32_t n,
                       uint64_t patience_ns)
{
    assert_ptr_equal(binds, &machine.binds);
    assert_int_equal(patience_ns, options.patience);
    assert_true(n > 0 && waiting[0].since > 0);
    const uint32_t which = engine.next < n ? engine.next : GM_BIND_NONE;
    engine.next = GM_BIND_NONE;
    return which;
}

bool gm_binds_has_family(const struct gm_binds *binds, const struct gm_place_request *request)
{
    (void)request;
    assert_ptr_equal(binds, &machine.binds);
    return engine.has_family;
}

void gm_binds_usage(const struct gm_binds *binds, uint32_t app, struct gm_bind_usage *usage)
{
    assert_ptr_equal(binds, &machine.binds);
    assert_true(app < APPS);
    *usage = engine.usage;
}

char *gm_view_placed(enum gm_why why, uint64_t need, enum gm_need_from from, char *text,
                     size_t size)
{
    snprintf(text, size, "%s, %llu by %d", gm_why_text(why), (unsigned long long)need, (int)from);
    return text;
}

int gm_machine_places(const struct gm_machine *m)
{
    const struct played *e = &engine;
    (void)m;
    int n = 0;
    for (uint32_t i = 0; i < APPS; i++)
        n += e->session[i] == NULL;
    return n;
}

uint32_t gm_machine_places_of(const struct gm_machine *m, uid_t uid)
{
    return uid == getuid() ? APPS - (uint32_t)gm_machine_places(m) : 0;
}

void gm_machine_message(struct gm_machine *m, uint32_t app, const struct gm_wire_message *message)
{
    struct played *e = &engine;
    (void)m;
    assert_true(app < APPS && e->session[app]);
    assert_int_equal(message->type, GM_MSG_FREE);
    const struct gm_msg_free *body = message->body;
    e->messages[app]++;
    e->last[app] = body->cookie;
    still_at += e->cost_ns;
    if (e->is_fatal) {
        e->is_inside = true;
        gm_session_end(e->session[app], GM_REFUSE_PROTOCOL, "FREE of\nnothing");
        gm_session_end(e->session[app], GM_REFUSE_PROTOCOL, "a second reason");
        struct gm_msg_freed freed = {0};
        assert_int_equal(gm_session_send(e->session[app], GM_MSG_FREED, &freed, NULL, 0, NULL, 0),
                         -ESHUTDOWN);
        e->is_inside = false;
    }
}

static uint32_t n_imported; /* messages, */
static pid_t last_exporter; /* ... and whose memory the last one was about */

void gm_machine_imported(struct gm_machine *m, uint32_t app, pid_t exporter)
{
    (void)m, (void)app;
    n_imported++;
    last_exporter = exporter;
}

void gm_machine_beat(struct gm_machine *m)
{
    (void)m;
}

void gm_machine_leave(struct gm_machine *m, uint32_t app, bool has_hung_up)
{
    struct played *e = &engine;
    (void)m;
    assert_false(e->is_inside);
    assert_true(app < APPS && e->session[app]);
    e->session[app] = NULL;
    e->has_hung_up = has_hung_up;
    e->leaves++;
    e->is_inside = true;
    for (uint32_t i = 0; e->is_chatty && i < APPS; i++)
        if (e->session[i])
            gm_session_end(e->session[i], GM_REFUSE_FULL, "its neighbour left");
    e->is_inside = false;
}

char *gm_view_reason(const struct gm_reason *why, const char *by, const char *app, char *text,
                     size_t size)
{
    (void)by;
    (void)app;
    snprintf(text, size, "%s", why->why == GM_WHY_NONE ? "" : gm_why_text(why->why));
    return text;
}

struct gm_snapshot *gm_machine_snapshot(struct gm_machine *m)
{
    (void)m;
    engine.snapshots++;
    return calloc(1, sizeof(struct gm_snapshot));
}

cJSON *gm_view_status(const struct gm_snapshot *snapshot, const struct gm_journal *journal)
{
    char text[256];
    assert_int_equal(snapshot->n_apps, 0);
    assert_ptr_equal(journal, machine.journal);
    engine.documents++;
    snprintf(text, sizeof text,
             "{\"gpus\":[],\"apps\":[{\"id\":0,\"uid\":%u},{\"id\":1,\"uid\":4294967290}],"
             "\"totals\":{\"switches\":7}}",
             getuid());
    return cJSON_Parse(text);
}

cJSON *gm_view_log(const struct gm_journal *journal, uint64_t since)
{
    assert_ptr_equal(journal, machine.journal);
    engine.since = since;
    engine.documents++;
    return cJSON_Parse(
        "{\"newest\":9,\"kept\":256,\"entries\":[{\"seq\":9,\"by_uid\":4294967290}]}");
}

cJSON *gm_tape_ask(struct gm_tape *tape, const struct gm_snapshot *snapshot, uint64_t since,
                   uint64_t now, uint64_t wall)
{
    assert_int_equal(snapshot->n_apps, 0);
    assert_ptr_equal(tape, &machine.journal->tape);
    assert_true(now < wall);
    engine.since = since;
    engine.documents++;
    return cJSON_Parse("{\"next\":12,\"text\":\"8 timer\\n\"}");
}

void gm_machine_tune(struct gm_machine *m, const struct gm_engine_tuning *tuning)
{
    (void)m, (void)tuning;
}

void gm_machine_trim(struct gm_machine *m, uid_t uid, bool is_admin, struct gm_trimmed *trimmed)
{
    (void)m;
    assert_int_equal(is_admin, asker == getuid());
    assert_int_equal(uid, asker); /* by SO_PEERCRED */
    *trimmed = (struct gm_trimmed){.gpu = 3, .pinned = 2, .paged = 1};
}

bool gm_machine_is_trimming(const struct gm_machine *m)
{
    (void)m;
    return engine.is_trimming;
}

void gm_machine_saved(const struct gm_machine *m, uint32_t *whole, uint32_t *left, uint32_t *lost)
{
    (void)m;
    *whole = engine.whole;
    *left = engine.left;
    *lost = 0;
}

int gm_machine_set(struct gm_machine *m, const struct gm_set_request *request,
                   struct gm_set_done *done, char *text, size_t size)
{
    struct played *e = &engine;
    (void)m;
    e->set = *request;
    snprintf(e->command, sizeof e->command, "%s", request->command);
    if (request->pid == 1) {
        snprintf(text, size, "not that one");
        return -ENOENT;
    }
    done->changed = 3;
    return 0;
}

/* ---- the loop and a peer ------------------------------------------------------------------- */

static uv_loop_t loop;
static struct gm_sessions *sessions;
static struct gm_control control;

static int set_up(void **state)
{
    (void)state;
    memset(&engine, 0, sizeof engine);
    still_at = 0;
    asker = getuid();
    memset(&options, 0, sizeof options);
    snprintf(options.socket, sizeof options.socket, "/the/socket");
    options.log_level = GM_LOG_INFO;
    options.slice = 250000000;
    options.latency_mode = GM_LATENCY_HINT;
    options.best_class = GM_CLASS_INTERACTIVE;
    char no[64];
    options.rules.n = 0;
    if (gm_rules_add(&options.rules, "user=0 class=batch", 1, no, sizeof no))
        return -1;
    options.gpu_budget.percent = 80;
    if (uv_loop_init(&loop))
        return -1;
    gm_control_init(&control, &options, &machine);
    control.past = gm_past_open(&loop, "");
    return gm_sessions_open(&sessions, &loop, &machine, &control, APPS);
}

static int tear_down(void **state)
{
    (void)state;
    gm_sessions_stop(sessions);
    gm_past_close(control.past);
    uv_run(&loop, UV_RUN_DEFAULT);
    gm_sessions_free(sessions);
    gm_past_free(control.past);
    return engine.joins == engine.leaves ? uv_loop_close(&loop) : -1;
}

static void turn(int times)
{
    while (times-- > 0)
        uv_run(&loop, UV_RUN_NOWAIT);
}

/* A connection, not yet greeted. The peer's end does not block. */
static int connect_peer(void)
{
    int pair[2];
    if (asker != getuid())
        assert_int_equal(seteuid(asker), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair),
                     0);
    if (asker != getuid())
        assert_int_equal(seteuid(getuid()), 0);
    gm_session_start(sessions, pair[0]);
    return pair[1];
}

static void say_hello(int peer, enum gm_role role)
{
    struct gm_msg_hello hello = {.role = role, .class = 255, .name = "tester"};
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_HELLO, &hello, NULL, 0, NULL, 0), 0);
}

__attribute__((unused)) static int say_free(int peer, uint64_t cookie)
{
    struct gm_msg_free body = {.cookie = cookie};
    return gm_sock_send_message(peer, GM_MSG_FREE, &body, NULL, 0, NULL, 0);
}

static _Alignas(8) uint8_t buffer[GM_WIRE_MAX];
static int fds[GM_WIRE_FDS], n_fds;

/* Read one message from the daemon; it must be of `type`. Its fds are in `fds`. */
static const void *expect(int peer, enum gm_session_state state, enum gm_msg_type type)
{
    struct gm_wire_message message = {0};
    ssize_t length = gm_sock_receive(peer, buffer, sizeof buffer, fds, &n_fds);
    assert_true(length > 0);
    assert_int_equal(gm_wire_decode(buffer, (size_t)length, n_fds, GM_DOWN, state, &message),
                     GM_WIRE_OK);
    assert_int_equal(message.type, type);
    return message.body;
}

static void close_fds(void)
{
    while (n_fds > 0)
        close(fds[--n_fds]);
}

static void expect_end(int peer)
{
    assert_int_equal(gm_sock_receive(peer, buffer, sizeof buffer, fds, &n_fds), 0);
    close(peer);
}

__attribute__((unused)) static void expect_refused(int peer, enum gm_refusal reason,
                                                   const char *text)
{
    const struct gm_msg_refused *body = expect(peer, GM_SESSION_NEW, GM_MSG_REFUSED);
    assert_int_equal(body->reason, reason);
    if (!strstr(body->text, text))
        fail_msg("\"%s\" does not say \"%s\"", body->text, text);
    expect_end(peer);
}

__attribute__((unused)) static int join(uint32_t *app)
{
    int peer = connect_peer();
    say_hello(peer, GM_ROLE_APP);
    turn(1);
    const struct gm_msg_welcome *body = expect(peer, GM_SESSION_NEW, GM_MSG_WELCOME);
    assert_int_equal(n_fds, 2);
    if (app)
        *app = body->app;
    close_fds();
    return peer;
}

#define SESSION(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

#endif
