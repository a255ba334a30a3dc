/*
 * Sessions and the listening socket over real sockets, in front of an engine that this test plays:
 * what reaches the engine, what reaches the peer, and that an app leaves exactly once, from the
 * loop.
 */
#include <poll.h>

#include "tests/unit/session_world.h"

#include "daemon/engine/lost.h"
#include "daemon/memory/files.h"
#include "daemon/service/bounds.h"
#include "daemon/service/process.h"

/* ---- sessions ------------------------------------------------------------------------------ */

static void test_join_and_leave(void **state)
{
    (void)state;
    uint32_t app;
    int peer = join(&app);
    assert_int_equal(gm_sessions_apps(sessions), 1);
    assert_int_equal(engine.wishes.class, 255); /* as it came: the engine judges it */
    assert_int_equal(say_free(peer, 11), 0);
    turn(1);
    assert_int_equal(engine.last[app], 11);
    close(peer);
    turn(2);
    assert_int_equal(engine.leaves, 1);
    assert_int_equal(gm_sessions_apps(sessions), 0);
}

static void test_peer_dies_with_unread_messages(void **state)
{
    (void)state;
    int peer = connect_peer();
    say_hello(peer, GM_ROLE_APP);
    turn(1);
    close(peer); /* over WELCOME: the daemon's end reports an error, not an end */
    turn(3);
    assert_int_equal(engine.joins, 1);
    assert_int_equal(engine.leaves, 1);
}

/* ---- programs of the daemon before ---- */

static struct gm_lost lost;     /* the one that has not come yet; */
static bool is_lost;            /* ... there is one */
static int unwelcome;           /* ... and what it holds is wrong, or cannot be looked at: -errno */
static struct gm_rejoiner came; /* what it said */
static struct gm_holds_entry came_with[600];

static const struct gm_lost *find_lost(void *arg, uint32_t app)
{
    assert_ptr_equal(arg, &lost);
    return is_lost && lost.app == app ? &lost : NULL;
}

static int take_lost(void *arg, const struct gm_lost *who, const struct gm_rejoiner *rejoiner,
                     char *why, size_t why_size)
{
    struct gm_msg_welcome body = {.app = who->app};
    assert_ptr_equal(arg, &lost);
    if (unwelcome) {
        snprintf(why, why_size, "it holds what it never got");
        return unwelcome;
    }
    came = *rejoiner;
    assert_true(came.n <= 600);
    for (uint32_t i = 0; i < came.n; i++)
        came_with[i] = came.holds[i];
    is_lost = false;
    engine.session[who->app] = came.session;
    engine.joins++;
    gm_session_send(came.session, GM_MSG_WELCOME, &body, NULL, 0, NULL, 0);
    return 0;
}

/* A process that says HELLO. */
static pid_t replaced;
static void replace(void *arg, pid_t pid)
{
    assert_ptr_equal(arg, &lost);
    replaced = pid;
}

static const struct gm_takeover takeover = {
    .arg = &lost, .find = find_lost, .rejoin = take_lost, .replace = replace};

static struct gm_msg_rejoin expect_program(void)
{
    control.takeover = &takeover;
    is_lost = true;
    unwelcome = 0;
    lost = (struct gm_lost){.app = 2,
                            .pid = getpid(),
                            .started = gm_process_started(getpid()),
                            .uid = getuid(),
                            .nonce = {7, 8},
                            .name = "tester",
                            .most_holds = 600};
    assert_true(lost.started > 0);
    return (struct gm_msg_rejoin){.app = 2, .nonce = {7, 8}, .epoch = 9, .cookie = 10};
}

static int say_rejoin(struct gm_msg_rejoin *body)
{
    const int peer = connect_peer();
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_REJOIN, body, NULL, 0, NULL, 0), 0);
    turn(2);
    return peer;
}

static void say_holds(int peer, uint32_t from, uint32_t n, bool is_last)
{
    struct gm_holds_entry entries[GM_ENTRIES_HOLDS];
    const struct gm_msg_holds body = {.is_last = is_last};
    for (uint32_t i = 0; i < n; i++)
        entries[i] = (struct gm_holds_entry){.va = (from + i) << 21, .frame = from + i};
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_HOLDS, &body, entries, n, NULL, 0), 0);
    turn(2);
}

static void test_rejoin(void **state)
{
    struct gm_msg_rejoin body = expect_program();
    (void)state;
    int peer = say_rejoin(&body);
    say_holds(peer, 0, 255, false);
    say_holds(peer, 255, 255, false);
    assert_int_equal(engine.joins, 0);
    say_holds(peer, 510, 90, true);
    expect(peer, GM_SESSION_NEW, GM_MSG_WELCOME);
    assert_int_equal(gm_sessions_apps(sessions), 1);
    assert_int_equal(came.n, 600);
    for (uint32_t i = 0; i < 600; i++)
        assert_true(came_with[i].frame == i && came_with[i].va == (uint64_t)i << 21);
    assert_int_equal(say_free(peer, 11), 0); /* it is an app like any other */
    turn(1);
    assert_int_equal(engine.last[2], 11);

    peer = say_rejoin(&body); /* a second one of the same name */
    expect_refused(peer, GM_REFUSE_UNKNOWN, "taken over no program");
    close(peer);
}

/* It hangs up in the middle, and comes again; two at once, of which one is first. */
static void test_rejoin_again(void **state)
{
    struct gm_msg_rejoin body = expect_program();
    (void)state;
    int peer = say_rejoin(&body);
    say_holds(peer, 0, 255, false);
    close(peer);
    turn(3);
    assert_true(is_lost);
    assert_int_equal(engine.leaves, 0);
    peer = say_rejoin(&body);
    int other = say_rejoin(&body);
    say_holds(peer, 0, 255, false);
    say_holds(other, 7, 3, true);
    expect(other, GM_SESSION_NEW, GM_MSG_WELCOME);
    assert_int_equal(came.n, 3);
    assert_int_equal(came_with[0].frame, 7);
    say_holds(peer, 255, 9, true);
    expect_refused(peer, GM_REFUSE_UNKNOWN, "taken over no program");
    assert_int_equal(gm_sessions_apps(sessions), 1);
    close(other);
    turn(3);
    assert_int_equal(engine.leaves, 1);
}

/* A process that says HELLO is not what it was. */
static void test_hello_of_lost(void **state)
{
    expect_program();
    replaced = 0;
    (void)state;
    const int peer = connect_peer();
    say_hello(peer, GM_ROLE_CONTROL);
    turn(2);
    assert_int_equal(replaced, 0);
    const int app = connect_peer();
    say_hello(app, GM_ROLE_APP);
    turn(2);
    assert_int_equal(replaced, getpid());
    control.takeover = NULL;
    close(peer);
    close(app);
    turn(3);
}

/* Who is not that program is told what is wrong, and gets nothing. */
static void test_rejoin_of_others(void **state)
{
    const struct gm_msg_rejoin right = expect_program();
    struct gm_msg_rejoin body = right;
    (void)state;
    body.app = 3;
    expect_refused(say_rejoin(&body), GM_REFUSE_UNKNOWN, "taken over no program");
    for (unsigned i = 0; i < 2; i++) {
        body = right;
        body.nonce[i] ^= 1ull << 63;
        expect_refused(say_rejoin(&body), GM_REFUSE_UNKNOWN, "nonce");
    }
    body = right;
    lost.uid++;
    expect_refused(say_rejoin(&body), GM_REFUSE_UNKNOWN, "another user's");
    lost.uid--;
    lost.pid = getppid();
    expect_refused(say_rejoin(&body), GM_REFUSE_UNKNOWN, "another process");
    lost.pid = getpid();
    lost.started++; /* the pid was used again */
    expect_refused(say_rejoin(&body), GM_REFUSE_UNKNOWN, "another process");
    lost.started--;

    int peer = say_rejoin(&body);
    say_holds(peer, 0, 255, false);
    say_holds(peer, 0, 255, false);
    say_holds(peer, 0, 91, true);
    expect_refused(peer, GM_REFUSE_UNKNOWN, "more than there is");
    peer = say_rejoin(&body);
    unwelcome = -EPROTO;
    say_holds(peer, 0, 1, true);
    expect_refused(peer, GM_REFUSE_UNKNOWN, "it holds what it never got");
    lost.refusal = "its session had ended before";
    expect_refused(say_rejoin(&body), GM_REFUSE_UNKNOWN, "its session had ended before");
    lost.refusal = NULL;
    peer = say_rejoin(&body);
    say_hello(peer, GM_ROLE_APP);
    turn(2);
    expect_refused(peer, GM_REFUSE_PROTOCOL, "HOLDS follow REJOIN");
    peer = connect_peer();
    say_holds(peer, 0, 1, true);
    expect_refused(peer, GM_REFUSE_PROTOCOL, "HOLDS follow REJOIN");
    control.takeover = NULL; /* a daemon that took over nobody */
    expect_refused(say_rejoin(&body), GM_REFUSE_UNKNOWN, "taken over no program");
    assert_int_equal(engine.joins, 0);
    assert_int_equal(gm_sessions_apps(sessions), 0);
}

static bool is_blind;

/* A start that could not be read, when the program came or now, is nothing against it. */
static void test_rejoin_unseen(void **state)
{
    struct gm_msg_rejoin body = expect_program();
    (void)state;
    for (int i = 0; i < 2; i++) {
        is_blind = i == 0;
        lost.started = i == 0 ? lost.started : 0;
        is_lost = true;
        const int peer = say_rejoin(&body);
        say_holds(peer, 0, 1, true);
        expect(peer, GM_SESSION_NEW, GM_MSG_WELCOME);
        close(peer);
        turn(3);
    }
    lost.pid = getppid(); /* a number that is another's is */
    is_lost = true;
    expect_refused(say_rejoin(&body), GM_REFUSE_UNKNOWN, "another process");
    is_blind = false;
}

/* What the daemon lacks now is nothing that the program takes for good: it may try again. */
static bool is_without_memory;

uint64_t __real_gm_process_started(pid_t pid);
uint64_t __wrap_gm_process_started(pid_t pid);
uint64_t __wrap_gm_process_started(pid_t pid)
{
    return is_blind ? 0 : __real_gm_process_started(pid);
}

void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size)
{
    return is_without_memory ? NULL : __real_realloc(memory, size);
}

static void test_rejoin_not_now(void **state)
{
    static const int lacks[] = {-ENOMEM, -EPIPE, -EMFILE};
    struct gm_msg_rejoin body = expect_program();
    (void)state;
    int peer = say_rejoin(&body);
    is_without_memory = true;
    say_holds(peer, 0, 1, true);
    turn(2);
    is_without_memory = false;
    expect_refused(peer, GM_REFUSE_FULL, "no memory for what it says");
    for (unsigned i = 0; i < 3; i++) {
        unwelcome = lacks[i];
        peer = say_rejoin(&body);
        say_holds(peer, 0, 1, true);
        expect_refused(peer, GM_REFUSE_FULL, "it holds what it never got");
    }
    unwelcome = 0;
    peer = say_rejoin(&body);
    say_holds(peer, 0, 1, true);
    turn(2);
    expect(peer, GM_SESSION_NEW, GM_MSG_WELCOME);
    close(peer);
    turn(2);
}

/* Who began last has had all the time that there is. */
static void expire(void)
{
    struct gm_session *last = TAILQ_LAST(&sessions->living, gm_session_list);
    sessions->on_timer(&last->timer);
    turn(2);
}

static void test_late(void **state)
{
    struct gm_msg_rejoin body = expect_program();
    (void)state;
    int peer = connect_peer();
    expire();
    expect_refused(peer, GM_REFUSE_FULL, "no HELLO within 5 s");
    peer = say_rejoin(&body);
    say_holds(peer, 0, 1, false);
    expire();
    expect_refused(peer, GM_REFUSE_FULL, "not all HOLDS within 5 s"); /* it may try again */
    assert_int_equal(engine.joins, 0);
}

static void test_versions(void **state)
{
    struct gm_msg_hello hello = {.role = GM_ROLE_APP, .name = "tester"};
    _Alignas(8) uint8_t bytes[512];
    struct gm_msg_hello *sent = (void *)(bytes + sizeof(struct gm_wire_header));
    (void)state;
    size_t length = gm_wire_encode(bytes, sizeof bytes, GM_MSG_HELLO, &hello, NULL, 0);
    sent->oldest = GM_WIRE_VERSION + 1;
    sent->newest = GM_WIRE_VERSION + 2;
    int peer = connect_peer();
    assert_int_equal(send(peer, bytes, length, 0), (ssize_t)length);
    turn(2);
    char text[80];
    snprintf(text, sizeof text, "the client speaks protocol versions %u to %u, this gpumuxd",
             GM_WIRE_VERSION + 1, GM_WIRE_VERSION + 2);
    expect_refused(peer, GM_REFUSE_VERSION, text);

    struct gm_msg_rejoin body = expect_program(), *again = (void *)sent;
    length = gm_wire_encode(bytes, sizeof bytes, GM_MSG_REJOIN, &body, NULL, 0);
    again->oldest = again->newest = GM_WIRE_VERSION + 1;
    peer = connect_peer();
    assert_int_equal(send(peer, bytes, length, 0), (ssize_t)length);
    turn(2);
    snprintf(text, sizeof text, "version %u, this gpumuxd %u", GM_WIRE_VERSION + 1,
             GM_WIRE_VERSION);
    expect_refused(peer, GM_REFUSE_VERSION, text);
    control.takeover = NULL;
}

static void test_bad_messages(void **state)
{
    (void)state;
    const uint16_t other_version = GM_WIRE_VERSION + 1;
    struct gm_wire_header header = {
        .length = sizeof header, .version = other_version, .type = GM_MSG_HELLO};
    int other = join(NULL);
    int peer = connect_peer();
    assert_int_equal(send(peer, &header, sizeof header, 0), sizeof header);
    turn(2);
    char text[80];
    snprintf(text, sizeof text, "version %u, this gpumuxd %u", other_version, GM_WIRE_VERSION);
    expect_refused(peer, GM_REFUSE_VERSION, text);

    peer = connect_peer();
    assert_int_equal(say_free(peer, 1), 0);
    turn(2);
    expect_refused(peer, GM_REFUSE_PROTOCOL, "bad message (FREE)");

    peer = connect_peer();
    say_hello(peer, (enum gm_role)77);
    turn(2);
    expect_refused(peer, GM_REFUSE_PROTOCOL, "role 77");

    peer = connect_peer();
    static char large[GM_WIRE_MAX + 1];
    assert_int_equal(send(peer, large, sizeof large, 0), sizeof large);
    turn(2);
    expect_refused(peer, GM_REFUSE_PROTOCOL, "too long");

    /* fds are not expected; they must be closed, too */
    peer = connect_peer();
    struct gm_msg_hello hello = {.role = GM_ROLE_APP, .name = "tester"};
    int before = dup(0), carried[1] = {0};
    close(before);
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_HELLO, &hello, NULL, 0, carried, 1), 0);
    turn(2);
    expect_refused(peer, GM_REFUSE_PROTOCOL, "with file descriptors");
    int after = dup(0);
    close(after);
    assert_true(after <= before);

    /* an app that breaks the rules leaves; its neighbour never notices */
    peer = join(NULL);
    say_hello(peer, GM_ROLE_APP);
    turn(2);
    expect_refused(peer, GM_REFUSE_PROTOCOL, "bad message (HELLO)");
    assert_int_equal(engine.leaves, 1);
    assert_int_equal(say_free(other, 5), 0);
    turn(1);
    assert_int_equal(engine.last[0], 5);
    close(other);
}

/* IMPORTED says whose memory it is; the number is the program's word, as it came. */
static void test_imported(void **state)
{
    (void)state;
    static const pid_t said[] = {0, 1, -1, INT32_MAX, INT32_MIN};
    int peer = join(NULL);
    n_imported = 0;
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        const struct gm_msg_imported imported = {.exporter = said[i]};
        assert_int_equal(gm_sock_send_message(peer, GM_MSG_IMPORTED, &imported, NULL, 0, NULL, 0),
                         0);
        turn(1);
        assert_int_equal(n_imported, i + 1);
        assert_int_equal(last_exporter, said[i]);
    }
    close(peer);
}

/* Pipes' ends that were closed by code linked here; sessions have none. */
static unsigned n_pipes_closed;
int __real_close(int fd);
int __wrap_close(int fd);

int __wrap_close(int fd)
{
    struct stat file;
    n_pipes_closed += fstat(fd, &file) == 0 && S_ISFIFO(file.st_mode);
    return __real_close(fd);
}

/* Nobody has the other end any more. */
static bool is_hung_up(int reader)
{
    struct pollfd poll_fd = {.fd = reader, .events = POLLIN};
    assert_true(poll(&poll_fd, 1, 0) >= 0);
    return (poll_fd.revents & POLLHUP) != 0;
}

/* A descriptor never gets a number in the daemon, whatever message it comes with: its closer might
 * wait for the one that sent it. */
static void test_no_descriptors(void **state)
{
    (void)state;
    const struct gm_msg_imported imported = {.exporter = 1};
    const struct gm_msg_free body = {0};
    const struct gm_msg_hello hello = {.role = GM_ROLE_APP, .name = "tester"};
    const struct {
        enum gm_msg_type type;
        const void *body;
        int n;
    } sent[] = {{GM_MSG_HELLO, &hello, 1},
                {GM_MSG_IMPORTED, &imported, 1},
                {GM_MSG_FREE, &body, 1},
                {GM_MSG_FREE, &body, GM_WIRE_FDS}};
    for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++) {
        int peer = sent[i].type == GM_MSG_HELLO ? connect_peer() : join(NULL);
        int ends[2], same[GM_WIRE_FDS];
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        for (int n = 0; n < GM_WIRE_FDS; n++)
            same[n] = ends[1];
        n_imported = 0;
        assert_int_equal(
            gm_sock_send_message(peer, sent[i].type, sent[i].body, NULL, 0, same, sent[i].n), 0);
        close(ends[1]);
        assert_false(is_hung_up(ends[0])); /* it lies in the socket */
        n_pipes_closed = 0;
        turn(2);
        assert_int_equal(n_pipes_closed, 0);
        assert_true(is_hung_up(ends[0])); /* nobody keeps it */
        assert_int_equal(n_imported, 0);
        expect_refused(peer, GM_REFUSE_PROTOCOL, "with file descriptors");
        close(ends[0]);
    }
}

/* What follows a bad message must not hide the reason from the peer. */
static void test_refused_over_unread(void **state)
{
    (void)state;
    int peer = connect_peer();
    for (int i = 0; i < 20; i++)
        assert_int_equal(say_free(peer, 1), 0);
    turn(2);
    expect_refused(peer, GM_REFUSE_PROTOCOL, "bad message (FREE)");
}

static void test_engine_ends_session(void **state)
{
    (void)state;
    int peer = join(NULL);
    engine.is_fatal = true;
    assert_int_equal(say_free(peer, 1), 0);
    assert_int_equal(say_free(peer, 2), 0);
    turn(2);
    assert_int_equal(engine.leaves, 1);
    assert_int_equal(engine.messages[0], 1); /* nothing is read after the end */
    expect_refused(peer, GM_REFUSE_PROTOCOL, "FREE of?nothing");
}

static void test_leave_ends_others(void **state)
{
    (void)state;
    int a = join(NULL), b = join(NULL), c = join(NULL);
    engine.is_chatty = true;
    close(a);
    turn(3);
    assert_int_equal(engine.leaves, 3);
    expect_refused(b, GM_REFUSE_FULL, "neighbour");
    expect_refused(c, GM_REFUSE_FULL, "neighbour");
}

static void test_full(void **state)
{
    (void)state;
    int peers[APPS];
    for (unsigned i = 0; i < APPS; i++)
        peers[i] = join(NULL);
    int peer = connect_peer();
    say_hello(peer, GM_ROLE_APP);
    turn(2);
    expect_refused(peer, GM_REFUSE_FULL, "4 apps are served already: raise --max-apps");
    assert_int_equal(engine.joins, APPS);

    /* Who says nothing makes room for who comes, the oldest first; the apps stay. */
    enum { VISITORS = GM_FILES_RESERVED * 2 / 3 };
    int silent[VISITORS];
    for (unsigned i = 0; i < VISITORS; i++)
        silent[i] = connect_peer();
    turn(2);
    assert_int_equal(gm_sock_receive(silent[0], buffer, sizeof buffer, fds, &n_fds), -EAGAIN);
    peer = connect_peer();
    say_hello(peer, GM_ROLE_CONTROL);
    turn(2);
    expect_refused(silent[0], GM_REFUSE_FULL, "64 connections of its user are open");
    assert_int_equal(gm_sock_receive(peer, buffer, sizeof buffer, fds, &n_fds), -EAGAIN);
    assert_int_equal(gm_sock_receive(silent[1], buffer, sizeof buffer, fds, &n_fds), -EAGAIN);
    close(peer);
    for (unsigned i = 1; i < VISITORS; i++)
        close(silent[i]);
    turn(2);
    assert_int_equal(gm_sessions_apps(sessions), APPS);
    for (unsigned i = 0; i < APPS; i++)
        close(peers[i]);
}

/* Where open files are short, no program gets those that are kept for control, and control does. */
static void test_files(void **state)
{
    (void)state;
    int lowest = dup(0);
    close(lowest);
    int old = join(NULL);
    gm_files_init(((uint64_t)lowest + 5) * 4 / 3); /* two connections take four of these five */
    int peer = connect_peer();
    say_hello(peer, GM_ROLE_APP);
    turn(2);
    expect_refused(peer, GM_REFUSE_FULL, "open files are in use: raise LimitNOFILE");
    assert_int_equal(engine.joins, 1);
    peer = connect_peer();
    say_hello(peer, GM_ROLE_CONTROL);
    struct gm_msg_status question = {0};
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_STATUS, &question, NULL, 0, NULL, 0), 0);
    turn(2);
    expect(peer, GM_SESSION_CONTROL, GM_MSG_STATUS_IS);
    close_fds();
    close(peer);
    gm_files_init(UINT64_MAX);
    peer = join(NULL);
    close(peer);
    close(old);
}

/* A peer that reads late gets everything, in order, with the right fds, though the sender closed
 * its. */
static void test_queue(void **state)
{
    (void)state;
    enum { MESSAGES = 600 };
    uint32_t app;
    int peer = join(&app);
    struct stat sent[2], got;
    int files[2] = {memfd_create("even", MFD_CLOEXEC), memfd_create("odd", MFD_CLOEXEC)};
    assert_int_equal(fstat(files[0], &sent[0]) | fstat(files[1], &sent[1]), 0);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        struct gm_msg_map body = {.batch = i};
        struct gm_map_entry entry = {.flags = GM_MAP_HAS_FD};
        assert_int_equal(
            gm_session_send(engine.session[app], GM_MSG_MAP, &body, &entry, 1, &files[i % 2], 1),
            0);
    }
    close(files[0]);
    close(files[1]);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        struct gm_wire_message message;
        ssize_t length = gm_sock_receive(peer, buffer, sizeof buffer, fds, &n_fds);
        for (int tries = 0; length == -EAGAIN && tries < 10; tries++) {
            turn(1);
            length = gm_sock_receive(peer, buffer, sizeof buffer, fds, &n_fds);
        }
        assert_true(length > 0);
        assert_int_equal(
            gm_wire_decode(buffer, (size_t)length, n_fds, GM_DOWN, GM_SESSION_APP, &message),
            GM_WIRE_OK);
        assert_int_equal(((const struct gm_msg_map *)message.body)->batch, i);
        assert_int_equal(n_fds, 1);
        assert_int_equal(fstat(fds[0], &got), 0);
        assert_int_equal(got.st_ino, sent[i % 2].st_ino);
        close_fds();
    }
    assert_int_equal(gm_sock_receive(peer, buffer, sizeof buffer, fds, &n_fds), -EAGAIN);
    close(peer);
}

static void test_queue_bound(void **state)
{
    (void)state;
    uint32_t app;
    int peer = join(&app);
    struct gm_msg_freed body = {0};
    int error = 0;
    unsigned sent = 0;
    engine.is_inside = true; /* a leave from in here would be wrong */
    while (error == 0 && sent < 3 * GM_SESSION_QUEUE_MESSAGES) {
        error = gm_session_send(engine.session[app], GM_MSG_FREED, &body, NULL, 0, NULL, 0);
        sent++;
    }
    engine.is_inside = false;
    assert_int_equal(error, -ENOBUFS);
    assert_in_range(sent, GM_SESSION_QUEUE_MESSAGES, GM_SESSION_QUEUE_MESSAGES + 2000);
    assert_int_equal(engine.leaves, 0);
    turn(1);
    assert_int_equal(engine.leaves, 1);
    close(peer);
}

static void test_unencodable(void **state)
{
    (void)state;
    uint32_t app;
    int peer = join(&app);
    struct gm_msg_freed body = {0};
    assert_int_equal(gm_session_send(engine.session[app], GM_MSG_FREED, &body, &body, 1, NULL, 0),
                     -EINVAL);
    turn(1);
    expect_refused(peer, GM_REFUSE_PROTOCOL, "could not encode");
}

/* One app's flood does not delay another's message by more than a burst. */
static void test_fairness(void **state)
{
    (void)state;
    uint32_t loud, quiet;
    int a = join(&loud), b = join(&quiet);
    unsigned sent = 0;
    while (sent < 3 * GM_SESSION_BURST && say_free(a, 1) == 0)
        sent++;
    assert_true(sent > 2 * GM_SESSION_BURST);
    assert_int_equal(say_free(b, 2), 0);
    turn(1);
    assert_int_equal(engine.messages[loud], GM_SESSION_BURST);
    assert_int_equal(engine.messages[quiet], 1);
    turn(5);
    assert_int_equal(engine.messages[loud], sent);
    close(a);
    close(b);
}

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    if (still_at == 0)
        return __real_clock_gettime(clock, time);
    *time = gm_timespec(still_at);
    return 0;
}

/* All connections of one user have together what one has, in turn; those of root and of the
 * daemon's own user do not wait for them. */
static void test_one_user(void **state)
{
    (void)state;
    enum { EACH = 40 };
    uint32_t apps[3], root;
    int peers[3];
    if (getuid() != 0)
        skip();
    asker = 65534;
    for (int i = 0; i < 3; i++)
        peers[i] = join(&apps[i]);
    asker = getuid();
    int own = join(&root);
    turn(1);
    still_at = gm_now(); /* only messages take time, however busy the machine is */
    engine.cost_ns = GM_BOUND_ROUND_NS / 2; /* so two messages are a share */
    for (int n = 0; n < EACH; n++) {
        for (int i = 0; i < 3; i++)
            assert_int_equal(say_free(peers[i], 1), 0);
        assert_int_equal(say_free(own, 2), 0);
    }
    unsigned before = 0, rounds = 0;
    while (before < 3 * EACH) {
        turn(1);
        unsigned now = 0, least = EACH, most = 0;
        for (int i = 0; i < 3; i++) {
            const unsigned n = engine.messages[apps[i]];
            now += n;
            least = n < least ? n : least;
            most = n > most ? n : most;
        }
        assert_in_range(now - before, 2, 4); /* the share of one round, and of the next */
        assert_in_range(most - least, 0, 4);
        before = now;
        rounds++;
        assert_true(engine.messages[root] == EACH);
    }
    assert_in_range(rounds, 3 * EACH / 4, 3 * EACH / 2);
    for (int i = 0; i < 3; i++)
        close(peers[i]);
    close(own);
}

/* ---- the listening socket ------------------------------------------------------------------ */

static char folder[64], path[96], lock[112], why[512];

static int set_up_folder(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/gm-session-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/gpumux.sock", folder);
    snprintf(lock, sizeof lock, "%s.lock", path);
    return set_up(state);
}

/* Nothing may be left in the folder: neither the socket nor its lock. */
static int tear_down_folder(void **state)
{
    int error = tear_down(state);
    return rmdir(folder) ? -1 : error;
}

static int claim(struct gm_server **server, bool is_default_dir)
{
    struct gm_server_config config = {.path = path, .is_default_dir = is_default_dir};
    why[0] = '\0';
    return gm_server_claim(server, &config, why, sizeof why);
}

static int bind_at(int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

enum { PASSRIGHTS = 83 }; /* SO_PASSRIGHTS */

static void test_listen(void **state)
{
    (void)state;
    struct gm_server *server, *second;
    struct stat found;
    close(bind_at(SOCK_SEQPACKET)); /* a dead daemon's socket */
    assert_int_equal(claim(&server, false), 0);
    assert_int_equal(gm_server_listen(server, &loop, sessions, why, sizeof why), 0);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0666);

    assert_int_equal(claim(&second, false), -EWOULDBLOCK);
    assert_non_null(strstr(why, "another gpumuxd (pid "));

    int peer = gm_sock_connect(path);
    assert_true(peer >= 0);
    /* Nobody sends it descriptors, where the kernel can see to that (Linux 6.16). */
    int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), passes;
    socklen_t size = sizeof passes;
    if (getsockopt(probe, SOL_SOCKET, PASSRIGHTS, &passes, &size) == 0)
        assert_int_equal(gm_sock_send(peer, "x", 1, &probe, 1), -EPERM);
    close(probe);
    say_hello(peer, GM_ROLE_APP);
    turn(2);
    expect(peer, GM_SESSION_NEW, GM_MSG_WELCOME);
    close_fds();

    int late = gm_sock_connect(path); /* still in the backlog when the daemon stops */
    assert_true(late >= 0);
    gm_server_stop(server);
    expect_refused(late, GM_REFUSE_STOPPING, "stopping");
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(lock, F_OK), -1);
    close(peer);
    turn(3);
    gm_server_free(server);
}

static void test_listen_user(void **state)
{
    (void)state;
    struct gm_server *server;
    struct stat found;
    char inner[80];
    snprintf(inner, sizeof inner, "%s/gpumux", folder);
    snprintf(path, sizeof path, "%s/gpumux.sock", inner);
    struct gm_server_config config = {.path = path, .is_user = true, .is_default_dir = true};
    assert_int_equal(gm_server_claim(&server, &config, why, sizeof why), 0);
    assert_int_equal(gm_server_listen(server, &loop, sessions, why, sizeof why), 0);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0600);
    assert_int_equal(stat(inner, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0700);
    gm_server_stop(server);
    turn(2);
    gm_server_free(server);
    assert_int_equal(rmdir(inner), 0);
}

static void test_claim_refuses(void **state)
{
    (void)state;
    struct gm_server *server;
    /* not a socket: it stays */
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(fd);
    assert_int_equal(claim(&server, false), -EEXIST);
    assert_non_null(strstr(why, "is not a socket"));
    assert_int_equal(access(path, F_OK), 0);
    unlink(path);

    /* somebody else's listener: it stays */
    fd = bind_at(SOCK_SEQPACKET);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(claim(&server, false), -EADDRINUSE);
    assert_non_null(strstr(why, "another program listens"));
    assert_int_equal(access(path, F_OK), 0);
    close(fd);
    unlink(path);

    /* also one of another kind */
    fd = bind_at(SOCK_STREAM);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(claim(&server, false), -EADDRINUSE);
    close(fd);
    unlink(path);

    /* no folder */
    snprintf(path, sizeof path, "%s/none/gpumux.sock", folder);
    assert_int_equal(claim(&server, false), -ENOENT);
    assert_non_null(strstr(why, "does not exist: make it"));

    /* too long by one, and the longest */
    struct sockaddr_un address;
    char longest[sizeof address.sun_path + 1];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    struct gm_server_config config = {.path = longest};
    assert_int_equal(gm_server_claim(&server, &config, why, sizeof why), -ENAMETOOLONG);
    assert_non_null(strstr(why, "108 bytes long, and at most 107"));
}

/* The daemon that gives up after its claim leaves nothing. */
static void test_claim_and_stop(void **state)
{
    (void)state;
    struct gm_server *server;
    assert_int_equal(claim(&server, false), 0);
    assert_int_equal(access(lock, F_OK), 0);
    gm_server_stop(server);
    gm_server_free(server);
    assert_int_equal(access(lock, F_OK), -1);
}

#define SERVER(test) cmocka_unit_test_setup_teardown(test, set_up_folder, tear_down_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SESSION(test_join_and_leave),
        SESSION(test_peer_dies_with_unread_messages),
        SESSION(test_rejoin),
        SESSION(test_rejoin_of_others),
        SESSION(test_rejoin_again),
        SESSION(test_rejoin_unseen),
        SESSION(test_rejoin_not_now),
        SESSION(test_hello_of_lost),
        SESSION(test_late),
        SESSION(test_versions),
        SESSION(test_bad_messages),
        SESSION(test_imported),
        SESSION(test_no_descriptors),
        SESSION(test_refused_over_unread),
        SESSION(test_engine_ends_session),
        SESSION(test_leave_ends_others),
        SESSION(test_full),
        SESSION(test_files),
        SESSION(test_queue),
        SESSION(test_queue_bound),
        SESSION(test_unencodable),
        SESSION(test_fairness),
        SESSION(test_one_user),
        SERVER(test_listen),
        SERVER(test_listen_user),
        SERVER(test_claim_refuses),
        SERVER(test_claim_and_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
