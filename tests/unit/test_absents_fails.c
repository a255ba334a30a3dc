/*
 * Programs of the daemon before: ledgers that are broken, and what fails while they are taken over
 * and come back (daemon/engine/absents.c).
 */
#include "tests/unit/absents_world.h"

/* The record of one is broken: that one alone is lost, and its process is waited for. */
static void test_broken(void **state)
{
    uint64_t word;
    (void)state;
    program(0);
    program(1);
    gm_clients_write(&before.keep.clients, 1, &before.records[1]);
    before.records[1].pid = 0;
    const off_t at = (off_t)(GM_LEDGER_PAGE + sizeof(word) + 2 * sizeof(struct gm_client_record));
    assert_int_equal(pread(before.keep.fd, &word, sizeof word, at), sizeof word);
    word ^= 1;
    assert_int_equal(pwrite(before.keep.fd, &word, sizeof word, at), sizeof word);
    const pid_t pid = before.clients[1]->pid;
    die();
    take_over();
    assert_null(find(0)->refusal);
    assert_string_equal(find(1)->refusal, "its session had ended before");
    assert_int_equal(find(1)->pid, pid);
    assert_true(told.restart.taken == 1 && told.restart.broken == 1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    while (n_left == 0)
        uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(last_left, 1);
}

/* One has no record, and memory all the same: its process is waited for. Without memory it had
 * only begun. */
static void test_no_record(void **state)
{
    (void)state;
    program(0);
    program(1);
    before.records[0].pid = before.records[1].pid = 0;
    gm_table_add_allocation(engine->table, 0, 1ull << 40, GM_CHUNK_MIN);
    const pid_t pid = before.clients[0]->pid, other = before.clients[1]->pid;
    die();
    take_over();
    assert_string_equal(find(0)->refusal, "its session had ended before");
    assert_int_equal(find(0)->pid, pid);
    assert_null(find(1));
    assert_int_equal(told.restart.broken, 1);
    for (int i = 0; i < 2; i++) {
        kill(i == 0 ? pid : other, SIGKILL);
        waitpid(i == 0 ? pid : other, NULL, 0);
    }
    while (n_left == 0)
        uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(last_left, 0);
}

/* A ledger of another version says nothing of anybody. */
static void test_newer(void **state)
{
    const uint64_t version = GM_CLIENTS_VERSION + 1;
    (void)state;
    program(0);
    assert_int_equal(
        pwrite(before.keep.fd, &version, sizeof version, offsetof(struct gm_clients_head, version)),
        sizeof version);
    die();
    take_over();
    assert_non_null(find(0)->refusal);
    assert_int_equal(find(0)->pid, before.records[0].pid);
    assert_string_equal(told.restart.wrong, "the ledger of programs is of a newer gpumuxd");
}

/* What it had on a GPU is lost: its ledger was refused, or there is no such GPU any more. */
static void test_gpu_lost(void **state)
{
    (void)state;
    program(0)->engines = 1 | 1u << 5;
    die();
    take_over();
    assert_non_null(strstr(find(0)->refusal, "what it had on GPU 5 is lost"));
    assert_true(machine.clients[0]->is_cut);
}

/* The ledgers differ in whose it is: it cannot come back, and its memory waits for its end. */
static void test_another_users(void **state)
{
    (void)state;
    program(0);
    program(1)->uid = 1001;
    die();
    take_over();
    assert_null(find(0)->refusal);
    assert_string_equal(find(1)->refusal, "the ledger of GPU 0 says that it is another user's");
    assert_true(machine.clients[1]->is_cut);
    assert_int_equal(n_left, 0);
}

/* A GPU does not have a program as the ledger of programs has it: this daemon does not begin, and
 * the keeper holds on to all for another one. */
static void test_not_awaited(void **state)
{
    char why[256];
    uint64_t id;
    struct gm_kept *next;
    (void)state;
    program(0);
    die();
    put_error = -ENOENT;
    assert_int_equal(begin(why), -ENOENT);
    assert_non_null(strstr(why, "a program of the daemon before cannot be taken over"));
    assert_int_equal(gm_kept_open(&next), 0);
    assert_int_equal(keeper_connect(next), 0);
    assert_int_equal(gm_kept_take(next), 0);
    const int fd = gm_kept_claim(next, GM_KEPT_CLIENTS, 0, 0, &id);
    const int lease = gm_kept_claim(next, GM_KEPT_LEASE, 0, 0, &id);
    assert_true(fd >= 0 && lease >= 0);
    close(fd);
    close(lease);
    gm_kept_close(next);
}

/* Whatever the system lacks, at whatever moment: no daemon begins, and nobody loses anything. The
 * next start takes all over. */
static void try_out(int without)
{
    char why[256];
    uint32_t tries = 0;
    lack = without;
    for (int error = -1; error; tries++) {
        assert_int_equal(gm_kept_open(&machine.kept), 0);
        assert_int_equal(keeper_connect(machine.kept), 0);
        assert_int_equal(gm_kept_take(machine.kept), 0);
        calls = tries;
        error = gm_absents_open(&absents, &machine, gm_now(), why, sizeof why);
        calls = UINT32_MAX;
        if (error == 0)
            break;
        assert_true(error == -without || error == -EAGAIN || error == -ENOMEM);
        assert_null(absents.of);
        gm_kept_disconnect(machine.kept); /* the daemon ends */
        for (uint32_t id = 0; id < APPS; id++)
            if (machine.clients[id])
                gm_client_drop(machine.clients[id]);
        memset(machine.clients, 0, APPS * sizeof(struct gm_client *));
        gm_kept_close(machine.kept);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    gm_kept_settle(machine.kept);
    assert_true(tries > 20);
}

static void test_lacks(int without)
{
    for (uint32_t id = 0; id < 3; id++)
        program(id);
    strcpy(before.records[1].group, "g");
    before.records[1].is_group_said = 1;
    gm_kept_drop(before.kept, GM_KEPT_LEASE, 0, 2); /* it is found by its number */
    die();
    try_out(without);
    for (uint32_t id = 0; id < 3; id++) {
        assert_non_null(find(id));
        assert_null(find(id)->refusal);
        atomic_store(&before.words[id]->refused, 10 + id);
        assert_int_equal(atomic_load(&machine.clients[id]->stat->refused), 10 + id);
        assert_true(is_kept_as(id, &before.records[id]));
    }
    assert_int_equal(told.restart.taken, 3);
    assert_true(told.restart.cut == 0 && told.restart.ended == 0 && told.restart.broken == 0);
}

static void test_no_memory(void **state)
{
    (void)state;
    test_lacks(ENOMEM);
}

static void test_no_files(void **state)
{
    (void)state;
    test_lacks(EMFILE);
}

static void test_rest_stays(void **state)
{
    char why[256];
    (void)state;
    program(0);
    die();
    awaited_error = -ENOMEM;
    assert_int_equal(begin(why), -ENOMEM);
    assert_non_null(strstr(why, "what ended programs had on GPU 0 stays"));
    assert_null(absents.of);
}

/* What it says is checked, and once is enough for what cannot be: it is refused from then on. */
static void test_lies(void **state)
{
    static const uint32_t gpus[] = {3, UINT32_MAX};
    struct gm_msg_rejoin body = {.flags = GM_REJOIN_IS_QUIET};
    char why[128];
    (void)state;
    for (uint32_t id = 0; id < 5; id++)
        program(id);
    die();
    take_over();
    body.flags = 8;
    assert_int_equal(rejoin(0, &body, why), -EPROTO);
    body.flags = GM_REJOIN_IS_QUIET | GM_REJOIN_IS_OPEN;
    assert_int_equal(rejoin(1, &body, why), -EPROTO);
    body.flags = GM_REJOIN_IS_QUIET;
    holds_error = -EPROTO;
    assert_int_equal(rejoin(2, &body, why), -EPROTO);
    assert_string_equal(why, "it holds what it never got");
    holds_error = 0;
    for (uint32_t i = 0; i < 2; i++) {
        struct gm_holds_entry hold = {.gpu = gpus[i]};
        const struct gm_rejoiner who = {
            .session = (void *)&body, .body = &body, .holds = &hold, .n = 1};
        assert_int_equal(
            absents.takeover.rejoin(absents.takeover.arg, find(3 + i), &who, why, sizeof why),
            -EPROTO);
        assert_string_equal(why, "it holds memory of a GPU that it does not use");
    }
    assert_string_equal(find(2)->refusal, "it came back once, and it holds what it never got");
    for (uint32_t id = 0; id < 5; id++) {
        assert_non_null(find(id)->refusal);
        assert_true(machine.clients[id]->is_cut);
        assert_null(machine.clients[id]->session);
    }
    assert_int_equal(n_checked, 1);
    assert_int_equal(gm_absents_count(&absents), 0);
}

/* It may try again when it was not to blame. */
static void test_tries(void **state)
{
    const struct gm_msg_rejoin body = {.flags = GM_REJOIN_IS_QUIET};
    char why[128];
    (void)state;
    program(0);
    die();
    take_over();
    holds_error = -ENOMEM;
    assert_int_equal(rejoin(0, &body, why), -ENOMEM);
    assert_null(find(0)->refusal);
    holds_error = 0;
    welcome_error = -EPIPE;
    assert_int_equal(rejoin(0, &body, why), -EPIPE);
    assert_null(machine.clients[0]->session);
    assert_true(machine.clients[0]->lost_at > 0);
    assert_true(is_kept_as(0, &before.records[0]));
    welcome_error = 0;
    assert_int_equal(n_returned, 0);
    assert_int_equal(rejoin(0, &body, why), 0);
    assert_int_equal(n_returned, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(broken),        TEST(no_record),   TEST(newer),     TEST(gpu_lost),
        TEST(another_users), TEST(not_awaited), TEST(no_memory), TEST(no_files),
        TEST(rest_stays),    TEST(lies),        TEST(tries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
