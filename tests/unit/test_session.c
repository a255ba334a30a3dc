/*
 * Sessions over real sockets, in front of an engine that this test plays: what reaches the engine,
 * what reaches the peer, and that an app leaves exactly once, from the loop.
 */
#include <poll.h>

#include "tests/unit/session_world.h"

#include "daemon/memory/files.h"
#include "daemon/service/bounds.h"
#include "daemon/service/users.h"

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
    assert_true(engine.has_hung_up);
    assert_int_equal(engine.unbound, getpid());
    assert_int_equal(gm_sessions_apps(sessions), 0);
    /* one whose connection others have copies of */
    peer = join(&app);
    const int copy = dup(peer);
    gm_session_end(engine.session[app], GM_REFUSE_PROTOCOL, "as a test has it");
    close(peer);
    turn(2);
    assert_int_equal(engine.leaves, 2);
    assert_false(engine.has_hung_up);
    close(copy);
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

static void test_versions(void **state)
{
    struct gm_msg_hello hello = {.role = GM_ROLE_APP, .name = "tester"};
    _Alignas(8) uint8_t bytes[512];
    struct gm_msg_hello *sent = (void *)(bytes + sizeof(struct gm_wire_header));
    (void)state;
    size_t length = gm_wire_encode(bytes, sizeof bytes, GM_MSG_HELLO, &hello, NULL, 0);
    sent->oldest = GM_WIRE_VERSION + 1;
    sent->newest = GM_WIRE_VERSION + 2;
    const int peer = connect_peer();
    assert_int_equal(send(peer, bytes, length, 0), (ssize_t)length);
    turn(2);
    char text[80];
    snprintf(text, sizeof text, "the client speaks protocol versions %u to %u, this gpumuxd",
             GM_WIRE_VERSION + 1, GM_WIRE_VERSION + 2);
    expect_refused(peer, GM_REFUSE_VERSION, text);
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
    expect_refused(peer, GM_REFUSE_FULL, "4 programs are served already: raise --max-apps");
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

static _Atomic bool is_slow;

/* All ids are the daemon's own user's, as the system says late. */
static int look_up(uid_t uid, char name[GM_USERS_NAME], struct gm_users_groups *groups)
{
    (void)uid, (void)name;
    while (is_slow)
        usleep(1000);
    groups->is_subordinate = true;
    groups->owner = getuid();
    return GM_USERS_NOBODY;
}

static void reserve(int peer)
{
    const struct gm_msg_reserve body = {.name = "tester"};
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_RESERVE, &body, NULL, 0, NULL, 0), 0);
    turn(2);
    const struct gm_msg_reserved *is = expect(peer, GM_SESSION_CONTROL, GM_MSG_RESERVED);
    assert_string_equal(is->text, "");
}

/* Whom a session counts for may become known after it has come. */
static void test_late_owner(void **state)
{
    (void)state;
    int own[3];
    if (getuid() != 0)
        skip();
    is_slow = true;
    gm_users_ask_by(look_up);
    asker = 300000;
    int early = connect_peer(), late = connect_peer(), program = connect_peer();
    say_hello(early, GM_ROLE_CONTROL);
    say_hello(late, GM_ROLE_CONTROL);
    turn(2);
    reserve(early);
    is_slow = false;
    for (int i = 0; i < 60000 && gm_users_owner(asker) != getuid(); i++)
        usleep(1000);
    assert_int_equal(gm_places_reserved_for(&control.places, getuid(), gm_now()), 1);
    reserve(late); /* the same place */
    assert_int_equal(gm_places_reserved(&control.places, gm_now()), 1);
    asker = getuid();
    for (int i = 0; i < 3; i++)
        own[i] = join(NULL); /* the first has that place */
    assert_int_equal(gm_places_reserved(&control.places, gm_now()), 0);
    say_hello(program, GM_ROLE_APP);
    turn(2);
    expect_refused(program, GM_REFUSE_FULL, "3 programs of user 0 are served already, the most");
    for (int i = 0; i < 3; i++)
        close(own[i]);
    close(early);
    close(late);
    gm_users_ask_by(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SESSION(test_join_and_leave),
        SESSION(test_peer_dies_with_unread_messages),
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
        SESSION(test_late_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
