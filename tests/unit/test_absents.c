/* Programs of the daemon before: who is found again, and comes back (daemon/engine/absents.c). */
#include "tests/unit/absents_world.h"

static void test_nobody(void **state)
{
    (void)state;
    die();
    take_over();
    assert_null(find(0));
    assert_null(find(UINT32_MAX));
    assert_int_equal(gm_absents_count(&absents), 0);
}

static void test_taken(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 4; id++)
        program(id);
    before.records[2].is_gone = 1;
    before.records[3].started--; /* the lease tells that it is this process, and no other */
    atomic_store(&before.words[0]->refused, 123);
    die();
    end_process(1);
    take_over();

    const struct gm_lost *lost = find(0);
    assert_non_null(lost);
    assert_null(lost->refusal);
    assert_int_equal(lost->pid, before.records[0].pid);
    assert_int_equal(lost->started, before.records[0].started);
    assert_true(lost->nonce[0] == before.records[0].nonce[0] &&
                lost->nonce[1] == before.records[0].nonce[1]);
    assert_int_equal(lost->uid, 1000);
    assert_int_equal(lost->most_holds, CHUNKS);
    assert_string_equal(lost->name, "tester");
    assert_int_equal(atomic_load(&machine.clients[0]->stat->refused), 123); /* the same memory */
    assert_null(machine.clients[0]->session);
    assert_true(machine.clients[0]->lost_at > 0);
    assert_true(is_kept_as(0, &before.records[0]));

    assert_null(find(1)); /* it has ended */
    assert_null(machine.clients[1]);
    assert_string_equal(find(2)->refusal, "its session had ended before");
    assert_true(is_kept_as(2, &before.records[2]));
    assert_string_equal(find(3)->refusal, "its session had ended before"); /* unknown */
    assert_int_equal(find(3)->pid, before.records[3].pid);
    assert_int_equal(find(3)->uid, 1000);
    assert_int_equal(gm_absents_count(&absents), 1);
    assert_true(told.restart.taken == 1 && told.restart.cut == 2 && told.restart.ended == 1 &&
                told.restart.broken == 1);
    assert_non_null(strstr(told.restart.names, "tester (pid "));
    assert_string_equal(told.restart.wrong, "");

    /* Each ends with its process. */
    for (uint32_t id = 0; id < 4; id += 2) {
        end_process(id);
        before.records[id].pid = 0;
        while (n_left < 1 + id / 2)
            uv_run(&loop, UV_RUN_ONCE);
        assert_int_equal(last_left, id);
        assert_true(was_over);
        assert_null(find(id));
    }
}

/* Its words are lost, or could be cut off below the daemon. */
static void test_words(void **state)
{
    static const char lost[] = "the memory that it shared with the daemon before is lost";
    const int open_end = memfd_create("words", MFD_CLOEXEC);
    (void)state;
    program(0);
    program(1);
    gm_kept_drop(before.kept, GM_KEPT_STAT, 0, 0);
    assert_int_equal(ftruncate(open_end, GM_STAT_BYTES), 0);
    assert_int_equal(gm_kept_put(before.kept, GM_KEPT_STAT, 0, 1, 0, open_end), 0);
    die();
    close(open_end);
    take_over();
    assert_string_equal(find(0)->refusal, lost);
    assert_string_equal(find(1)->refusal, lost);
    assert_non_null(machine.clients[1]->stat);
}

/* The start of a process could not be read, when it said HELLO or now: its lease tells who it is.
 */
static void test_hidden(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 3; id++)
        program(id);
    before.records[0].started = 0;
    before.records[2].started = 0;
    before.records[2].pid++; /* ... that it is another one */
    hidden = (pid_t)before.records[1].pid;
    die();
    take_over();
    hidden = 0;
    before.records[2].pid--;
    for (uint32_t id = 0; id < 2; id++) {
        assert_non_null(find(id));
        assert_null(find(id)->refusal);
    }
    assert_int_equal(told.restart.taken, 2);
    assert_int_equal(told.restart.broken, 1);
    assert_non_null(find(2)->refusal);
}

/* Another process has its number; there is no lease. */
static void test_number_used_again(void **state)
{
    (void)state;
    program(0);
    program(1);
    before.records[0].started--;
    gm_kept_drop(before.kept, GM_KEPT_LEASE, 0, 0);
    gm_kept_drop(before.kept, GM_KEPT_LEASE, 0, 1);
    die();
    take_over();
    assert_null(find(0));
    assert_null(find(1)->refusal);
}

static void test_groups(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 7; id++)
        program(id);
    for (uint32_t id = 0; id < 2; id++) {
        strcpy(before.records[id].group, "g");
        before.records[id].group_of = 0;
        before.records[id].is_group_said = 1;
    }
    for (uint32_t id = 2; id < 5; id++) { /* the first has left, and not all were told */
        strcpy(before.records[id].group, "pid 7");
        before.records[id].group_of = id == 4 ? 3 : 2;
    }
    before.records[6].group_of = 5;
    before.records[6].uid = 1001; /* of another user, whatever its record says */
    die();
    end_process(2);
    before.records[2].pid = 0;
    take_over();
    struct gm_client **is = machine.clients;
    assert_ptr_equal(is[0]->group, is[1]->group);
    assert_non_null(is[0]->group->all);
    assert_string_equal(gm_group_name(is[0]->group), "g");
    assert_ptr_equal(is[3]->group, is[4]->group);
    assert_null(is[3]->group->all);
    assert_string_equal(gm_group_name(is[4]->group), "pid 7");
    assert_ptr_not_equal(is[3]->group, is[0]->group);
    assert_ptr_not_equal(is[6]->group, is[5]->group);
    struct gm_client_record now;
    assert_int_equal(gm_clients_read(&machine.keep.clients, 4, &now), GM_LEDGER_IS);
    assert_int_equal(now.group_of, 3);

    /* Who is of the group by now, as another one opened its memory, is of it for the next daemon.
     */
    gm_group_remove(is[5]);
    assert_int_equal(gm_group_add(is[0]->group, is[5]), 0);
    gm_keep_client(&machine.keep, is[5]);
    assert_int_equal(gm_clients_read(&machine.keep.clients, 5, &now), GM_LEDGER_IS);
    assert_string_equal(now.group, "g");
    assert_true(now.is_group_said == 1 && now.group_of == 0 && now.epoch == 75);

    /* A newcomer of that name joins those who have yet to come. */
    struct gm_group *group = NULL;
    char why[128];
    assert_int_equal(gm_groups_find(&machine.groups, "g", 1000, &group, why, sizeof why), 0);
    assert_ptr_equal(group, is[0]->group);
    assert_int_equal(gm_groups_find(&machine.groups, "g", 1001, &group, why, sizeof why), -EPERM);
}

/* Kin do not run together, but may have to. */
static void test_kin(void **state)
{
    struct gm_client_record now;
    (void)state;
    for (uint32_t id = 0; id < 6; id++)
        program(id);
    /* The first was not told any more. */
    before.records[3].turns[0].kin = before.records[4].turns[0].kin = 2;
    before.records[5].turns[0].kin = 2; /* of another user, whatever its record says */
    before.records[5].uid = 1001;
    die();
    take_over();
    struct gm_client **is = machine.clients;
    for (uint32_t id = 0; id < 6; id++) {
        assert_ptr_equal(is[id]->group->clients, is[id]);
        assert_null(is[id]->next);
        assert_int_equal(gm_group_kin(is[id]->group), id == 1 || id == 3 || id == 4 ? 2 : 0);
        gm_keep_client(&machine.keep, is[id]);
        assert_int_equal(gm_clients_read(&machine.keep.clients, id, &now), GM_LEDGER_IS);
        assert_int_equal(now.turns[0].kin, id == 1 || id == 3 || id == 4 ? 2 : 0);
    }
}

/* One that the ledger of programs does not know ends with what it had on the GPU, and closes
 * nobody's file. */
static void test_ended(void **state)
{
    struct gm_client *client;
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)state;
    die();
    assert_true(file >= 0 && dup2(file, 0) == 0);
    assert_int_equal(gm_client_open_ended(&client, 3, 1000), 0);
    assert_true(client->id == 3 && client->uid == 1000);
    gm_client_drop(client);
    assert_true(fcntl(0, F_GETFD) >= 0);
    close(file);
}

/* No CLOSE of the new daemon has a number that one of the old daemon may have had. */
static void test_epochs(void **state)
{
    char why[128];
    (void)state;
    for (uint32_t id = 0; id < 4; id++)
        program(id);
    die();
    take_over();
    struct gm_msg_rejoin body = {.flags = GM_REJOIN_IS_QUIET, .epoch = 75, .cookie = 9};
    assert_int_equal(rejoin(0, &body, why), 0);
    const struct gm_client *client = machine.clients[0];
    assert_int_equal(client->epoch, 75 + (1ull << 32)); /* it answered more than was written */
    assert_int_equal(welcome_epoch, client->epoch);
    assert_int_equal(client->again, 9);
    assert_non_null(client->session);
    assert_int_equal(client->lost_at, 0);
    assert_false(was_running);
    assert_null(find(0)); /* it comes once */
    assert_int_equal(gm_absents_count(&absents), 3);
    assert_int_equal(n_returned, 1);

    body.epoch = 3;
    assert_int_equal(rejoin(1, &body, why), 0);
    assert_int_equal(machine.clients[1]->epoch, 71 + (1ull << 32));

    body.epoch = UINT64_MAX - (1ull << 32) + 1;
    assert_int_equal(rejoin(2, &body, why), -EPROTO);
    assert_string_equal(why, "it says of itself what cannot be");
    assert_non_null(find(2));
    assert_null(machine.clients[2]->session);
    body.epoch--;
    assert_int_equal(rejoin(3, &body, why), 0);
}

static void test_states(void **state)
{
    static const struct {
        uint32_t flags;
        enum gm_moving moving;
        int error;
        bool is_running, is_parked, is_resumed;
        enum gm_moving then;
    } cases[] = {
        {GM_REJOIN_IS_OPEN, GM_MOVING_FREE, 0, true, false, false, GM_MOVING_FREE},
        {GM_REJOIN_IS_QUIET, GM_MOVING_FREE, 0, false, false, false, GM_MOVING_FREE},
        {0, GM_MOVING_FREE, 0, true, false, false, GM_MOVING_FREE}, /* its CLOSE had no answer */
        {GM_REJOIN_IS_QUIET | GM_REJOIN_IS_PARKED, GM_MOVING_AWAY, 0, false, true, false,
         GM_MOVING_AWAY},
        /* The daemon before did not hear that. */
        {GM_REJOIN_IS_PARKED, GM_MOVING_FREE, 0, false, true, false, GM_MOVING_AWAY},
        /* It did not hear that it goes on. */
        {GM_REJOIN_IS_OPEN | GM_REJOIN_IS_PARKED, GM_MOVING_AWAY, 0, true, false, true,
         GM_MOVING_FREE},
        /* Lies. */
        {GM_REJOIN_IS_QUIET | GM_REJOIN_IS_PARKED, GM_MOVING_GOES, -EPROTO, false, false, false,
         GM_MOVING_GOES},
    };
    char why[128];
    (void)state;
    for (uint32_t id = 0; id < sizeof cases / sizeof cases[0]; id++) {
        program(id);
        atomic_store(&before.words[id]->moving, cases[id].moving);
    }
    die();
    take_over();
    for (uint32_t id = 0; id < sizeof cases / sizeof cases[0]; id++) {
        const struct gm_msg_rejoin body = {.flags = cases[id].flags};
        n_resumed = 0;
        assert_int_equal(rejoin(id, &body, why), cases[id].error);
        assert_int_equal(was_running, cases[id].is_running);
        assert_int_equal(machine.clients[id]->is_parked, cases[id].is_parked);
        assert_int_equal(n_resumed, cases[id].is_resumed);
        assert_int_equal(atomic_load(&before.words[id]->moving), cases[id].then);
        assert_int_equal(find(id) != NULL, cases[id].error != 0);
    }
}

/* Its process says HELLO: it has executed another program, or lies. The lease tells. */
static void test_replaced(void **state)
{
    (void)state;
    program(0);
    program(1);
    die();
    take_over();
    absents.takeover.replace(absents.takeover.arg, getpid());
    assert_int_equal(n_left, 0);
    absents.takeover.replace(absents.takeover.arg, (pid_t)before.records[1].pid);
    assert_int_equal(n_left, 1);
    assert_false(was_over);
    assert_null(find(1));
    assert_non_null(find(0));

    /* Another process has got its number. */
    end_process(0);
    absents.takeover.replace(absents.takeover.arg, (pid_t)before.records[0].pid);
    before.records[0].pid = 0;
    assert_int_equal(n_left, 2);
    assert_true(was_over);
}

/* Once it is back, its GPUs hear of the end of its process. */
static void test_ended_later(void **state)
{
    const struct gm_msg_rejoin body = {.flags = GM_REJOIN_IS_QUIET};
    char why[128];
    (void)state;
    program(0);
    die();
    take_over();
    assert_int_equal(rejoin(0, &body, why), 0);
    end_process(0);
    before.records[0].pid = 0;
    while (n_exited == 0)
        uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(n_exited, 1);
    assert_int_equal(n_left, 0);
}

/* The ledger of this daemon is what the next one finds, with those who have yet to come. */
static void test_twice(void **state)
{
    uint64_t id;
    (void)state;
    program(0);
    die();
    take_over();
    struct gm_kept *next;
    assert_int_equal(gm_kept_open(&next), 0);
    assert_int_equal(keeper_connect(next), 0);
    assert_int_equal(gm_kept_take(next), 0);
    const int fd = gm_kept_claim(next, GM_KEPT_CLIENTS, 0, 0, &id);
    struct stat one, other;
    assert_true(fd >= 0 && fstat(fd, &one) == 0 && fstat(machine.keep.fd, &other) == 0);
    assert_int_equal(one.st_ino, other.st_ino);
    assert_true(is_kept_as(0, &before.records[0]));
    const int words = gm_kept_claim(next, GM_KEPT_STAT, 0, 0, &id);
    assert_true(words >= 0 && gm_kept_claim(next, GM_KEPT_LEASE, 0, 0, &id) >= 0);
    close(fd);
    gm_kept_close(next);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(nobody),   TEST(taken),       TEST(words), TEST(hidden), TEST(number_used_again),
        TEST(groups),   TEST(kin),         TEST(ended), TEST(epochs), TEST(states),
        TEST(replaced), TEST(ended_later), TEST(twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
