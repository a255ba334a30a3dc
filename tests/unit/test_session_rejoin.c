/* Sessions of programs of the daemon before: REJOIN (daemon/service/session_rejoin.c). */
#include "tests/unit/session_world.h"

#include "daemon/engine/lost.h"
#include "daemon/service/process.h"

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

static void test_another_version(void **state)
{
    struct gm_msg_rejoin body = expect_program();
    _Alignas(8) uint8_t bytes[512];
    struct gm_msg_rejoin *sent = (void *)(bytes + sizeof(struct gm_wire_header));
    const size_t length = gm_wire_encode(bytes, sizeof bytes, GM_MSG_REJOIN, &body, NULL, 0);
    char text[80];
    (void)state;
    sent->oldest = sent->newest = GM_WIRE_VERSION + 1;
    const int peer = connect_peer();
    assert_int_equal(send(peer, bytes, length, 0), (ssize_t)length);
    turn(2);
    snprintf(text, sizeof text, "version %u, this gpumuxd %u", GM_WIRE_VERSION + 1,
             GM_WIRE_VERSION);
    expect_refused(peer, GM_REFUSE_VERSION, text);
    control.takeover = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SESSION(test_rejoin),        SESSION(test_rejoin_again),
        SESSION(test_hello_of_lost), SESSION(test_rejoin_of_others),
        SESSION(test_rejoin_unseen), SESSION(test_rejoin_not_now),
        SESSION(test_late),          SESSION(test_another_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
