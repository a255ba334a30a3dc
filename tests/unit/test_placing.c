/*
 * PLACE over a real socket: what of a program's environment, its list of devices, rules and options
 * reaches the machine, and in which order the program is to have its devices.
 */
#include "tests/unit/session_world.h"

#include "common/nodes.h"
#include "daemon/service/placing.h"

#define DEVICES 4u

static uint64_t said_need;
static uint64_t said_family;
static uint32_t said_class;
static const void *entries;
static uint32_t n_entries;

/* Send PLACE with the tokens of `list`; NULL: without a list. */
static void send_place(int peer, uint32_t flags, uint64_t nodes, const char *list)
{
    struct gm_msg_place body = {.flags = flags,
                                .class = said_class,
                                .nodes = nodes,
                                .family = said_family,
                                .need = said_need,
                                .name = "tester"};
    struct gm_token_entry sent[GM_DEVICES_VISIBLE];
    struct gm_tokens tokens = {.n = 0};
    memset(sent, 0, sizeof sent);
    if (list) {
        body.flags |= GM_PLACE_HAS_LIST;
        gm_tokens_cut(&tokens, list);
    }
    for (uint32_t i = 0; i < tokens.n; i++)
        memcpy(sent[i].text, tokens.token[i].at, tokens.token[i].length);
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_PLACE, &body, sent, tokens.n, NULL, 0), 0);
}

static const struct gm_msg_placed *receive_placed(int peer)
{
    struct gm_wire_message message = {0};
    turn(2);
    ssize_t length = gm_sock_receive(peer, buffer, sizeof buffer, fds, &n_fds);
    assert_true(length > 0);
    assert_int_equal(
        gm_wire_decode(buffer, (size_t)length, n_fds, GM_DOWN, GM_SESSION_NEW, &message),
        GM_WIRE_OK);
    assert_int_equal(message.type, GM_MSG_PLACED);
    entries = message.entries;
    n_entries = message.count;
    return message.body;
}

/* The tokens of the answer, "2 1 0"; "-": the order stays, and `as_is` is why. */
static const char *placed(uint32_t flags, uint64_t nodes, const char *list, enum gm_why as_is)
{
    static char text[256];
    size_t at = 0;
    int peer = connect_peer();
    send_place(peer, flags, nodes, list);
    receive_placed(peer);
    assert_int_equal(engine.place.as_is, as_is);
    snprintf(text, sizeof text, "-");
    for (uint32_t i = 0; i < n_entries; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%u", i > 0 ? " " : "",
                               ((const struct gm_place_entry *)entries)[i].token);
    close(peer);
    turn(2);
    return text;
}

static void set_machine(void)
{
    machine.n = 2;
    machine.binds.devices.n = DEVICES;
    for (uint32_t i = 0; i < DEVICES; i++)
        machine.binds.devices.uuid[i][0] = (uint8_t)(0xa0 + i);
    options.place = 1;
}

static void lists_of_the_program(void **state)
{
    const uint64_t nodes = gm_nodes();
    (void)state;
    set_machine();
    assert_string_equal(placed(0, nodes, NULL, GM_WHY_NONE), "3 2 1 0");
    const struct gm_place_entry *entry = entries;
    assert_int_equal(entry[0].uuid[0], 0xa3);
    assert_int_equal(entry[3].uuid[0], 0xa0);
    assert_string_equal(placed(0, nodes, "1,3", GM_WHY_NONE), "1 0");
    assert_int_equal(engine.place.n, 2);
    assert_int_equal(engine.place.device[0], 1);
    assert_int_equal(engine.place.device[1], 3);
    assert_string_equal(placed(0, nodes, "GPU-a2,GPU-a0", GM_WHY_NONE), "1 0");
    assert_int_equal(engine.place.device[0], 2);
    assert_string_equal(placed(0, nodes, "GPU-a2,0", GM_WHY_NONE), "-"); /* the driver ends there */
    assert_string_equal(placed(0, nodes, "2,0,-1,1", GM_WHY_NONE), "1 0");
    assert_string_equal(placed(0, nodes, "2", GM_WHY_NONE), "-"); /* one device stays */
    /* nothing that is known here */
    assert_string_equal(placed(0, nodes, "", GM_WHY_BIND_LIST), "-");
    assert_string_equal(placed(0, nodes, "-1,0,1", GM_WHY_BIND_LIST), "-");
    assert_string_equal(placed(0, nodes, "0,1,0", GM_WHY_BIND_LIST), "-");
    assert_string_equal(placed(0, nodes, "GPU-ff,0", GM_WHY_BIND_LIST), "-");
    assert_string_equal(placed(0, nodes, "MIG-a0,MIG-a1", GM_WHY_BIND_LIST), "-");
    /* other devices, or other numbers */
    assert_string_equal(placed(0, ~nodes, NULL, GM_WHY_BIND_VIEW), "-");
    assert_string_equal(placed(0, ~nodes, "0,1", GM_WHY_BIND_VIEW), "-");
    assert_string_equal(placed(GM_PLACE_BY_BUS, nodes, "0,1", GM_WHY_BIND_LIST), "-");
    assert_string_equal(placed(GM_PLACE_BY_BUS, nodes, NULL, GM_WHY_BIND_VIEW), "-");
    assert_string_equal(placed(GM_PLACE_BY_BUS, nodes, "GPU-a1,GPU-a0", GM_WHY_NONE), "1 0");
}

static void what_was_said(void **state)
{
    const uint64_t nodes = gm_nodes();
    char why[256];
    (void)state;
    set_machine();
    assert_string_equal(placed(GM_PLACE_SAYS_OFF, nodes, NULL, GM_WHY_BIND_OFF), "-");
    assert_int_equal(engine.place.n, DEVICES); /* it counts on its first all the same */
    assert_string_equal(placed(GM_PLACE_IS_RANKED, nodes, "0,1", GM_WHY_BIND_RANKED), "-");
    assert_string_equal(placed(GM_PLACE_IS_RANKED | GM_PLACE_SAYS_ORDER, nodes, "0,1", GM_WHY_NONE),
                        "1 0");
    options.place = 0;
    assert_string_equal(placed(0, nodes, "0,1", GM_WHY_BIND_OFF), "-");
    assert_string_equal(placed(GM_PLACE_SAYS_ORDER, nodes, "0,1", GM_WHY_NONE), "1 0");
    assert_int_equal(gm_rules_add(&options.rules, "command=test* place=order", 2, why, sizeof why),
                     0);
    assert_string_equal(placed(0, nodes, "0,1", GM_WHY_NONE), "1 0");
    assert_string_equal(placed(GM_PLACE_SAYS_OFF, nodes, "0,1", GM_WHY_BIND_OFF), "-");
    assert_string_equal(placed(GM_PLACE_IS_RANKED, nodes, "0,1", GM_WHY_BIND_RANKED), "-");
    machine.n = 1; /* no effect where one GPU is shared */
    assert_string_equal(placed(0, nodes, "0,1", GM_WHY_BIND_ONLY), "-");
}

/* What it will need: as it says, a rule, its earlier runs, or the mean of its user's. */
static void needs(void **state)
{
    char why[256];
    (void)state;
    set_machine();
    placed(0, gm_nodes(), NULL, GM_WHY_NONE);
    assert_int_equal(engine.place.need_from, GM_NEED_UNKNOWN);
    assert_int_equal(engine.place.program.need, 0);
    assert_int_equal(engine.place.program.time, GM_BIND_WHOLE);
    gm_past_note(control.past, asker, "other",
                 &(struct gm_past_run){.most = 9u << 20, .needed = 8u << 20, .time = 10});
    placed(0, gm_nodes(), NULL, GM_WHY_NONE);
    assert_int_equal(engine.place.need_from, GM_NEED_MEAN);
    assert_int_equal(engine.place.program.need, 8u << 20);
    assert_int_equal(engine.place.program.time, GM_BIND_WHOLE);
    /* a run that ends is remembered */
    engine.usage = (struct gm_bind_usage){.most = 7u << 20, .needed = 6u << 20, .time = 300};
    close(join(NULL));
    turn(3);
    assert_int_equal(engine.leaves, 1);
    placed(0, gm_nodes(), NULL, GM_WHY_NONE);
    assert_int_equal(engine.place.need_from, GM_NEED_REMEMBERED);
    assert_int_equal(engine.place.program.need, 6u << 20);
    assert_int_equal(engine.place.program.time, 300);
    /* one that had no memory is not */
    engine.usage = (struct gm_bind_usage){0};
    close(join(NULL));
    turn(3);
    placed(0, gm_nodes(), NULL, GM_WHY_NONE);
    assert_int_equal(engine.place.program.need, 6u << 20);
    assert_int_equal(gm_rules_add(&options.rules, "command=tester need=4M", 2, why, sizeof why), 0);
    placed(0, gm_nodes(), NULL, GM_WHY_NONE);
    assert_int_equal(engine.place.need_from, GM_NEED_RULE);
    assert_int_equal(engine.place.program.need, 4u << 20);
    said_need = UINT64_MAX; /* whatever it says */
    placed(GM_PLACE_SAYS_OFF, gm_nodes(), NULL, GM_WHY_BIND_OFF);
    said_need = 0;
    assert_int_equal(engine.place.need_from, GM_NEED_DECLARED);
    assert_int_equal(engine.place.program.need, UINT64_MAX);
}

static const struct gm_msg_placed *must_wait(int peer)
{
    send_place(peer, 0, gm_nodes(), NULL);
    const struct gm_msg_placed *answer = receive_placed(peer);
    assert_int_equal(answer->wait_ns, options.patience);
    assert_int_equal(n_entries, 0);
    return answer;
}

/* How long it is to wait, in a connection that it then closes. */
static uint64_t waits(uint32_t flags, const char *list)
{
    int peer = connect_peer();
    send_place(peer, flags, gm_nodes(), list);
    const uint64_t wait_ns = receive_placed(peer)->wait_ns;
    close(peer);
    turn(3);
    return wait_ns;
}

/* With --admit fit a program waits until the machine says that there is room. It may leave, it may
 * say nothing else meanwhile, and is no visitor. */
static void waits_for_room(void **state)
{
    char why[256];
    int peer[4];
    (void)state;
    set_machine();
    engine.next = GM_BIND_NONE;
    options.patience = 7 * GM_S;
    for (int i = 0; i < 4; i++)
        peer[i] = connect_peer();
    assert_int_equal(waits(0, NULL), 0); /* --admit now */
    options.admit = 1;
    engine.next = 0; /* there is room */
    assert_int_equal(waits(0, NULL), 0);
    assert_int_equal(n_entries, DEVICES);
    for (int i = 0; i < 4; i++) {
        must_wait(peer[i]);
        assert_int_equal(control.waiters.n, i + 1);
    }
    assert_string_equal(control.waiters.who[2].name, "tester");
    close(peer[1]); /* it is killed */
    turn(3);
    assert_int_equal(control.waiters.n, 3);
    send_place(peer[3], 0, gm_nodes(), NULL);
    turn(3);
    expect(peer[3], GM_SESSION_NEW, GM_MSG_REFUSED);
    expect_end(peer[3]);
    assert_int_equal(control.waiters.n, 2);
    engine.next = 1;
    usleep(150000);
    assert_int_equal(receive_placed(peer[2])->wait_ns, 0);
    assert_int_equal(n_entries, DEVICES);
    assert_int_equal(control.waiters.n, 1);
    expect_end(peer[2]);
    /* which family it is, it says */
    assert_int_equal(engine.place.family, getpid());
    said_family = 77;
    assert_int_equal(waits(GM_PLACE_IS_RANKED, NULL), 0);
    assert_int_equal(engine.place.family, 77);
    said_family = 0;
    /* ranks, families, programs of which no device is known, and those of a rule do not wait */
    assert_int_equal(waits(GM_PLACE_IS_RANKED, NULL), 0);
    engine.has_family = true;
    assert_int_equal(waits(0, NULL), 0);
    engine.has_family = false;
    assert_int_equal(waits(0, ""), 0);
    assert_int_equal(waits(0, "0,1"), options.patience);
    assert_int_equal(gm_rules_add(&options.rules, "command=test* admit=now", 2, why, sizeof why),
                     0);
    assert_int_equal(waits(0, NULL), 0);
    close(peer[0]);
    turn(3);
    assert_int_equal(control.waiters.n, 0);
}

static void must_rule(const char *text)
{
    char why[256];
    if (gm_rules_add(&options.rules, text, options.rules.n + 1, why, sizeof why))
        fail_msg("%s: %s", text, why);
}

/* Whether a program that says this class shares by MPS, and its part. */
static bool shares(uint32_t class, uint32_t *part)
{
    const struct gm_msg_place body = {.class = class, .nodes = gm_nodes(), .name = "tester"};
    const struct gm_placing who = {.pid = getpid(), .uid = getuid(), .body = &body};
    return gm_placing_shares(&control, &who, part);
}

/* By the class that a program asks for. One of an older version, and one that says no class that
 * there is, ask for none. */
static void class_of_the_program(void **state)
{
    static const uint32_t none[] = {0, 1 + GM_CLASS_AUTO, 1 + GM_CLASSES, GM_HELLO_CLASS_UNKNOWN,
                                    UINT32_MAX};
    uint32_t part;
    (void)state;
    set_machine();
    engine.next = GM_BIND_NONE;
    options.patience = 7 * GM_S;
    options.rules.n = 0;
    must_rule("asks=batch admit=fit mps=on");
    must_rule("asks=batch share=25%");
    must_rule("asks=auto place=off");
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        said_class = none[i];
        assert_int_equal(waits(0, NULL), 0);
        assert_int_equal(engine.place.as_is, GM_WHY_BIND_OFF);
        assert_false(shares(none[i], &part));
        assert_int_equal(part, 0);
    }
    said_class = 1 + GM_CLASS_LATENCY;
    assert_int_equal(waits(0, NULL), 0);
    assert_int_equal(engine.place.as_is, GM_WHY_NONE);
    said_class = 1 + GM_CLASS_BATCH;
    assert_int_equal(waits(0, NULL), options.patience + GM_MPS_WAIT_NS); /* and shares by MPS */
    assert_true(shares(said_class, &part));
    assert_int_equal(part, 250);
    said_class = 0;
}

/* So many wait at most; who comes then begins at once. Visitors are not fewer for them. */
static void few_wait(void **state)
{
    int peer[GM_BIND_WAITERS_USER + 1];
    (void)state;
    set_machine();
    engine.next = GM_BIND_NONE;
    options.patience = 7 * GM_S;
    options.admit = 1;
    for (uint32_t i = 0; i < GM_BIND_WAITERS_USER; i++)
        must_wait(peer[i] = connect_peer());
    peer[GM_BIND_WAITERS_USER] = connect_peer();
    send_place(peer[GM_BIND_WAITERS_USER], 0, gm_nodes(), NULL);
    assert_int_equal(receive_placed(peer[GM_BIND_WAITERS_USER])->wait_ns, 0);
    for (int i = 0; i < 100; i++)
        (void)dup2(connect_peer(), peer[GM_BIND_WAITERS_USER]); /* one after the other */
    turn(3);
    assert_int_equal(control.waiters.n, GM_BIND_WAITERS_USER);
    for (uint32_t i = 0; i <= GM_BIND_WAITERS_USER; i++)
        close(peer[i]);
    turn(5);
    assert_int_equal(control.waiters.n, 0);
}

/* Any number of tokens, flags that are none, tokens without an end; again and again. */
static void hostile(void **state)
{
    struct gm_token_entry sent[GM_DEVICES_VISIBLE];
    struct gm_msg_place body = {.flags = UINT32_MAX & ~4u, .nodes = gm_nodes(), .name = "tester"};
    (void)state;
    set_machine();
    memset(sent, 0x30, sizeof sent);
    int peer = connect_peer();
    for (int i = 0; i < 20; i++)
        assert_int_equal(
            gm_sock_send_message(peer, GM_MSG_PLACE, &body, sent, GM_DEVICES_VISIBLE, NULL, 0), 0);
    receive_placed(peer); /* one answer, and the end */
    assert_int_equal(n_entries, 0);
    expect_end(peer);
    peer = join(NULL);
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_PLACE, &body, NULL, 0, NULL, 0), 0);
    turn(2);
    expect(peer, GM_SESSION_APP, GM_MSG_REFUSED);
    expect_end(peer);
}

/* Who is placed has no connection any more, whether it closes its own or not. */
static void many_start(void **state)
{
    int peer[100];
    (void)state;
    set_machine();
    for (int i = 0; i < 100; i++) {
        send_place(peer[i] = connect_peer(), 0, gm_nodes(), NULL);
        receive_placed(peer[i]);
        assert_int_equal(n_entries, DEVICES);
    }
    for (int i = 0; i < 100; i++)
        expect_end(peer[i]); /* without a word of refusal */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SESSION(lists_of_the_program),
        SESSION(what_was_said),
        SESSION(needs),
        SESSION(waits_for_room),
        SESSION(class_of_the_program),
        SESSION(few_wait),
        SESSION(many_start),
        SESSION(hostile),
    };
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_DEVICE_ORDER");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
