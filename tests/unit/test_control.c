/*
 * What mux-ctl asks, over real sockets, in front of an engine that is played: the documents, the
 * settings, and who asks for them.
 */
#include "daemon/service/explain.h"
#include "daemon/service/handover.h"
#include "tests/unit/session_world.h"

#include <poll.h>

static void test_status(void **state)
{
    (void)state;
    struct gm_msg_status ask = {0};
    int peer = connect_peer();
    say_hello(peer, GM_ROLE_CONTROL);
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_STATUS, &ask, NULL, 0, NULL, 0), 0);
    turn(1);
    const struct gm_msg_status_is *body = expect(peer, GM_SESSION_CONTROL, GM_MSG_STATUS_IS);
    assert_int_equal(n_fds, 1);
    size_t bytes = body->bytes;
    char *text = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fds[0], 0);
    assert_ptr_not_equal(text, MAP_FAILED);
    int seals = fcntl(fds[0], F_GET_SEALS);
    assert_int_equal(seals, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    close_fds();

    cJSON *root = cJSON_ParseWithLength(text, bytes);
    assert_non_null(root);
    assert_int_equal(cJSON_GetObjectItem(root, "schema")->valuedouble, 3);
    assert_int_equal(cJSON_GetObjectItem(root, "pid")->valuedouble, getpid());
    assert_string_equal(cJSON_GetObjectItem(root, "version")->valuestring, GM_VERSION);
    char handover[GM_HANDOVER_SIZE];
    assert_string_equal(cJSON_GetObjectItem(root, "handover")->valuestring, gm_handover(handover));
    assert_string_equal(cJSON_GetObjectItem(root, "socket")->valuestring, "/the/socket");
    assert_true(cJSON_GetObjectItem(root, "uptime_s")->valuedouble >= 0);
    const cJSON *config = cJSON_GetObjectItem(root, "config");
    assert_true(cJSON_GetObjectItem(config, "slice_s")->valuedouble == 0.25);
    assert_string_equal(cJSON_GetObjectItem(config, "latency_mode")->valuestring, "hint");
    assert_string_equal(cJSON_GetObjectItem(config, "best_class")->valuestring, "interactive");
    assert_string_equal(cJSON_GetArrayItem(cJSON_GetObjectItem(config, "rules"), 0)->valuestring,
                        "user=0 class=batch");
    assert_int_equal(cJSON_GetObjectItem(config, "gpu_budget_percent")->valuedouble, 80);
    assert_string_equal(cJSON_GetObjectItem(config, "log_level")->valuestring, "info");
    assert_true(cJSON_IsArray(cJSON_GetObjectItem(root, "gpus")));
    const cJSON *totals = cJSON_GetObjectItem(root, "totals");
    assert_int_equal(cJSON_GetObjectItem(totals, "switches")->valuedouble, 7);
    const cJSON *apps = cJSON_GetObjectItem(root, "apps");
    assert_int_equal(cJSON_GetArraySize(apps), 2);
    assert_true(cJSON_IsString(cJSON_GetObjectItem(cJSON_GetArrayItem(apps, 0), "user")));
    /* nobody's uid shows as its number */
    assert_string_equal(cJSON_GetObjectItem(cJSON_GetArrayItem(apps, 1), "user")->valuestring,
                        "4294967290");
    cJSON_Delete(root);
    munmap(text, bytes);

    /* an app's message is nothing that mux-ctl may send */
    assert_int_equal(say_free(peer, 1), 0);
    turn(2);
    expect_refused(peer, GM_REFUSE_PROTOCOL, "bad message (FREE)");
}

/* The document that answers LOG or TRACE: of that schema, by this process. The caller frees it. The
 * body of the answer says how many bytes it has. */
static cJSON *read_document(enum gm_msg_type type, const void *ask, enum gm_msg_type answer,
                            int schema)
{
    int peer = connect_peer();
    say_hello(peer, GM_ROLE_CONTROL);
    assert_int_equal(gm_sock_send_message(peer, type, ask, NULL, 0, NULL, 0), 0);
    turn(1);
    const uint64_t *bytes = expect(peer, GM_SESSION_CONTROL, answer);
    assert_int_equal(n_fds, 1);
    char text[1024] = "";
    assert_int_equal(pread(fds[0], text, sizeof text - 1, 0), *bytes);
    close_fds();
    close(peer);
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    assert_int_equal(cJSON_GetObjectItem(root, "schema")->valuedouble, schema);
    assert_int_equal(cJSON_GetObjectItem(root, "pid")->valuedouble, getpid());
    assert_true(cJSON_IsNumber(cJSON_GetObjectItem(root, "started_s")));
    return root;
}

static void test_log(void **state)
{
    (void)state;
    const struct gm_msg_log ask = {.since = 8};
    cJSON *root = read_document(GM_MSG_LOG, &ask, GM_MSG_LOG_IS, 2);
    assert_int_equal(engine.since, 8);
    const cJSON *entry = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "entries"), 0);
    assert_string_equal(cJSON_GetObjectItem(entry, "by")->valuestring, "4294967290");
    cJSON_Delete(root);
}

static void test_trace(void **state)
{
    (void)state;
    const struct gm_msg_trace ask = {.since = 7};
    cJSON *root = read_document(GM_MSG_TRACE, &ask, GM_MSG_TRACE_IS, 1);
    assert_int_equal(engine.since, 7);
    assert_string_equal(cJSON_GetObjectItem(root, "text")->valuestring, "8 timer\n");
    cJSON_Delete(root);
}

/* All who ask for the same in one round get one document; and who has not read his answer is not
 * heard. */
static void test_one_document(void **state)
{
    (void)state;
    enum { PEERS = 6 };
    struct gm_msg_status ask = {0};
    struct gm_msg_log ask_log = {.since = 3};
    int peers[PEERS];
    struct stat file, first = {0};
    for (int i = 0; i < PEERS; i++) {
        peers[i] = connect_peer();
        say_hello(peers[i], GM_ROLE_CONTROL);
    }
    turn(1);
    for (int round = 1; round <= 2; round++) {
        for (int i = 0; i < PEERS; i++)
            for (int n = 0; n < 20; n++)
                gm_sock_send_message(peers[i], i < 4 ? GM_MSG_STATUS : GM_MSG_LOG,
                                     i < 4 ? (void *)&ask : (void *)&ask_log, NULL, 0, NULL, 0);
        engine.documents = 0;
        turn(1);
        assert_int_equal(engine.documents, 2);
        for (int i = 0; i < PEERS; i++) {
            expect(peers[i], GM_SESSION_CONTROL, i < 4 ? GM_MSG_STATUS_IS : GM_MSG_LOG_IS);
            assert_int_equal(n_fds, 1);
            assert_int_equal(fstat(fds[0], &file), 0);
            if (i == 0 || i == 4)
                first = file;
            assert_int_equal(file.st_ino, first.st_ino);
            close_fds();
        }
    }
    /* nobody reads: a few answers lie in each socket, and no more are made */
    turn(60);
    engine.documents = 0;
    turn(60);
    assert_int_equal(engine.documents, 0);
    unsigned unread = 0;
    while (gm_sock_receive(peers[0], buffer, sizeof buffer, fds, &n_fds) > 0) {
        unread++;
        close_fds();
    }
    assert_in_range(unread, 1, 16);
    for (int i = 0; i < PEERS; i++)
        close(peers[i]);
}

/* The answer to TRIM comes when the memory has reached the system. */
static void test_trim(void **state)
{
    (void)state;
    const struct gm_msg_trim ask = {0};
    int peer = connect_peer();
    struct pollfd answer = {.fd = peer, .events = POLLIN};
    say_hello(peer, GM_ROLE_CONTROL);
    engine.is_trimming = true;
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_TRIM, &ask, NULL, 0, NULL, 0), 0);
    for (int i = 0; i < 3; i++)
        uv_run(&loop, UV_RUN_ONCE); /* the message, then the timer */
    assert_int_equal(poll(&answer, 1, 0), 0);
    engine.is_trimming = false;
    while (poll(&answer, 1, 0) == 0)
        uv_run(&loop, UV_RUN_ONCE);
    const struct gm_msg_trim_is *body = expect(peer, GM_SESSION_CONTROL, GM_MSG_TRIM_IS);
    assert_int_equal(body->gpu, 3);
    assert_int_equal(body->pinned, 2);
    assert_int_equal(body->paged, 1);
    close(peer);
    turn(1);
}

static struct gm_msg_set_is set(int peer, const struct gm_msg_set *ask)
{
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_SET, ask, NULL, 0, NULL, 0), 0);
    turn(1);
    const struct gm_msg_set_is *body = expect(peer, GM_SESSION_CONTROL, GM_MSG_SET_IS);
    assert_int_equal(n_fds, 0);
    return *body;
}

static void test_set(void **state)
{
    (void)state;
    struct gm_msg_set ask = {.selects = GM_SET_PID | GM_SET_COMMAND,
                             .pid = 77,
                             .settings = GM_SET_SETTINGS,
                             .class = GM_CLASS_BATCH,
                             .weight = 500,
                             .share = 250,
                             .paused = GM_PAUSED_EVICTED,
                             .is_oversize = 1,
                             .command = "py*"};
    int peer = connect_peer();
    say_hello(peer, GM_ROLE_CONTROL);
    struct gm_msg_set_is answer = set(peer, &ask);
    assert_int_equal(answer.is_refused, 0);
    assert_int_equal(answer.changed, 3);
    assert_int_equal(engine.set.asker, getuid()); /* by SO_PEERCRED */
    assert_true(engine.set.is_admin);
    assert_int_equal(engine.set.selects, GM_SET_PID | GM_SET_COMMAND);
    assert_int_equal(engine.set.pid, 77);
    assert_string_equal(engine.command, "py*");
    assert_int_equal(engine.set.settings.has, GM_SET_SETTINGS);
    assert_int_equal(engine.set.settings.class, GM_CLASS_BATCH);
    assert_int_equal(engine.set.settings.weight, 500);
    assert_int_equal(engine.set.settings.share, 250);
    assert_int_equal(gm_settings_paused(&engine.set.settings), GM_PAUSED_EVICTED);
    assert_true(engine.set.settings.is_oversize);

    ask.pid = 1;
    answer = set(peer, &ask);
    assert_int_equal(answer.is_refused, 1);
    assert_string_equal(answer.text, "not that one");

    ask.pid = 77;
    ask.settings = GM_SET_AHEAD;
    answer = set(peer, &ask);
    assert_int_equal(answer.is_refused, 0);
    assert_int_equal(engine.set.settings.has, GM_SET_AHEAD);
    ask.settings = GM_SET_SETTINGS;

    /* values out of their bounds never reach the engine; the session goes on */
    struct gm_msg_set wrong[8];
    for (int i = 0; i < 8; i++) {
        wrong[i] = ask;
        wrong[i].pid = 77;
    }
    wrong[0].selects = 0;
    wrong[1].selects = 8;
    wrong[2].settings = 0;
    wrong[3].settings = GM_SET_AHEAD | GM_SET_CLASS; /* it is asked by itself */
    wrong[4].class = GM_CLASSES;
    wrong[5].class = 256 + GM_CLASS_BATCH;
    wrong[6].weight = 0;
    wrong[7].share = 1001;
    memset(&engine.set, 0, sizeof engine.set);
    for (int i = 0; i < 8; i++) {
        answer = set(peer, &wrong[i]);
        assert_int_equal(answer.is_refused, 1);
        assert_string_equal(answer.text, "no setting has such a value");
        assert_int_equal(engine.set.pid, 0);
    }
    close(peer);

    /* a program cannot set anything */
    peer = join(NULL);
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_SET, &ask, NULL, 0, NULL, 0), 0);
    turn(2);
    expect_refused(peer, GM_REFUSE_PROTOCOL, "bad message (SET)");
}

/* Only root and the daemon's own user: what is read may not be theirs to see. Programs cannot ask.
 */
static void test_config(void **state)
{
    (void)state;
    struct gm_msg_config ask = {.what = GM_CONFIG_RELOAD};
    int peer = connect_peer();
    say_hello(peer, GM_ROLE_CONTROL);
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_CONFIG, &ask, NULL, 0, NULL, 0), 0);
    turn(1);
    const struct gm_msg_config_is *answer = expect(peer, GM_SESSION_CONTROL, GM_MSG_CONFIG_IS);
    assert_int_equal(answer->is_refused, 1); /* here is nothing to be read */
    assert_string_equal(answer->text, "the configuration is being read at this moment: try again");
    ask.what = 3;
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_CONFIG, &ask, NULL, 0, NULL, 0), 0);
    turn(1);
    answer = expect(peer, GM_SESSION_CONTROL, GM_MSG_CONFIG_IS);
    assert_string_equal(answer->text, "it is neither to be checked nor reloaded");
    close(peer);

    struct gm_msg_config_is refused;
    ask.what = GM_CONFIG_CHECK;
    assert_int_equal(gm_control_config(&control, false, &ask, &refused), 0);
    assert_string_equal(refused.text, "only root and the daemon's own user may have it read its "
                                      "configuration");
    peer = join(NULL);
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_CONFIG, &ask, NULL, 0, NULL, 0), 0);
    turn(2);
    expect_refused(peer, GM_REFUSE_PROTOCOL, "bad message (CONFIG)");
}

/* EXPLAIN: of whom a user may ask, and what is no question. */
static void test_explain(void **state)
{
    (void)state;
    const uint32_t program = GM_SET_UID | GM_SET_COMMAND;
    const struct {
        struct gm_msg_explain ask;
        bool is_admin;
        const char *answer;
    } cases[] = {
        {{.selects = program, .uid = 7, .command = "x"}, false, "{\"refused\":\"only root may"},
        {{.selects = program, .uid = 8, .command = "x"}, false, "{\"rules\":[{\"rule\":"},
        {{.selects = program, .uid = UINT32_MAX, .command = "x"}, true, "{\"rules\":[{\"rule\":"},
        {{.selects = program, .uid = 7, .class = UINT32_MAX, .command = "x"}, true, "{\"refused\""},
        {{.selects = program, .uid = 7}, true, "{\"refused\":\"no program is called so"},
        {{.selects = GM_SET_PID}, true, "{\"refused\":\"neither the options"},
        {{.selects = UINT32_MAX}, true, "{\"refused\":\"neither the options"},
        {{.selects = 0}, false, "{\"options\":[{\"name\":\"gpu\",\"value\":"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = gm_explain(&control, 8, cases[i].is_admin, &cases[i].ask);
        assert_non_null(text);
        assert_memory_equal(text, cases[i].answer, strlen(cases[i].answer));
        cJSON_free(text);
    }
    assert_int_equal(engine.snapshots, 1); /* for the options alone: it takes long */
}

static void begin_to_give_back(void *arg)
{
    assert_ptr_equal(arg, &engine);
    engine.whole = 1;
    engine.left = 2;
}

/* GIVE_BACK: who may is told each second how far it is, and at the end. */
static void test_give_back(void **state)
{
    (void)state;
    const struct gm_msg_give_back ask = {0};
    const struct gm_msg_given_back *answer;
    int peer = connect_peer();
    say_hello(peer, GM_ROLE_CONTROL);
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_GIVE_BACK, &ask, NULL, 0, NULL, 0), 0);
    turn(1);
    answer = expect(peer, GM_SESSION_CONTROL, GM_MSG_GIVEN_BACK);
    assert_int_equal(answer->is_refused, 1); /* nobody here can begin */
    assert_int_equal(answer->is_last, 1);

    control.give_back = begin_to_give_back;
    control.arg = &engine;
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_GIVE_BACK, &ask, NULL, 0, NULL, 0), 0);
    turn(1);
    assert_int_equal(engine.left, 2);
    for (int i = 0; i < 2; i++) {
        struct pollfd readable = {.fd = peer, .events = POLLIN};
        for (int tries = 0; poll(&readable, 1, 0) == 0 && tries < 6000; tries++) {
            usleep(10000);
            turn(1);
        }
        answer = expect(peer, GM_SESSION_CONTROL, GM_MSG_GIVEN_BACK);
        assert_int_equal(answer->is_refused, 0);
        assert_int_equal(answer->is_last, 0);
        assert_int_equal(answer->whole, 1);
        assert_int_equal(answer->left, 2);
    }
    engine.whole = 3;
    engine.left = 0;
    gm_sessions_given_back(sessions);
    answer = expect(peer, GM_SESSION_CONTROL, GM_MSG_GIVEN_BACK);
    assert_int_equal(answer->is_last, 1);
    assert_int_equal(answer->whole, 3);
    close(peer);
    turn(2);

    if (getuid() != 0)
        return;
    asker = 4000001;
    engine.left = 0;
    peer = connect_peer();
    say_hello(peer, GM_ROLE_CONTROL);
    assert_int_equal(gm_sock_send_message(peer, GM_MSG_GIVE_BACK, &ask, NULL, 0, NULL, 0), 0);
    turn(2);
    answer = expect(peer, GM_SESSION_CONTROL, GM_MSG_GIVEN_BACK);
    assert_int_equal(answer->is_refused, 1); /* a stranger */
    assert_int_equal(engine.left, 0);
    close(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SESSION(test_status),       SESSION(test_log),     SESSION(test_trace),
        SESSION(test_one_document), SESSION(test_trim),    SESSION(test_set),
        SESSION(test_config),       SESSION(test_explain), SESSION(test_give_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
