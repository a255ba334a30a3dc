/* How a client hears of the end of its process, and what its answers mean
 * (daemon/engine/act/client.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/engine/act/client.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/round.h"

static int no_pidfd, no_poll; /* the error; 0: there is one */
static uv_loop_t loop;
static pid_t program;
static struct gm_client *client;
static int heard[2]; /* of the end, by who was to hear */

void gm_engine_emit(struct gm_engine *engine, const struct gm_event *event)
{
    (void)engine, (void)event;
}

void gm_engine_call(struct gm_engine *engine)
{
    (void)engine;
}

int gm_kept_put(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu, uint32_t slot,
                uint64_t id, int fd)
{
    (void)kept, (void)kind, (void)gpu, (void)slot, (void)id, (void)fd;
    return 0;
}

void gm_kept_drop(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu, uint32_t slot)
{
    (void)kept, (void)kind, (void)gpu, (void)slot;
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    va_list list;
    assert_int_equal(number, SYS_pidfd_open);
    va_start(list, number);
    const pid_t pid = va_arg(list, pid_t);
    va_end(list);
    errno = no_pidfd;
    return no_pidfd ? -1 : __real_syscall(number, pid, 0);
}

int __real_uv_poll_init(uv_loop_t *of, uv_poll_t *poll, int fd);
int __wrap_uv_poll_init(uv_loop_t *of, uv_poll_t *poll, int fd);
int __wrap_uv_poll_init(uv_loop_t *of, uv_poll_t *poll, int fd)
{
    return no_poll ? -no_poll : __real_uv_poll_init(of, poll, fd);
}

static int set_up(void **state)
{
    (void)state;
    no_pidfd = no_poll = 0;
    memset(heard, 0, sizeof heard);
    client = NULL;
    program = fork();
    while (program == 0)
        pause();
    return uv_loop_init(&loop);
}

static void end_program(void)
{
    if (program == 0)
        return;
    kill(program, SIGKILL);
    waitpid(program, NULL, 0);
    program = 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (client)
        gm_client_drop(client);
    end_program();
    uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

static int open_it(void)
{
    const struct gm_newcomer who = {.pid = program, .uid = 1000, .name = "tester"};
    return gm_client_open(&client, 3, &who, NULL, NULL);
}

static void hear(void *arg, struct gm_client *of)
{
    int *times = arg;
    assert_ptr_equal(of, client);
    assert_null(of->exit);
    ++*times;
}

/* Whose end cannot be seen for want of anything is no client: what it maps would be used again
 * under it. */
static void test_no_pidfd(void **state)
{
    static const int lacks[] = {EMFILE, ENFILE, ENOMEM, ESRCH};
    (void)state;
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++) {
        no_pidfd = lacks[i];
        assert_int_equal(open_it(), -lacks[i]);
    }
}

static void test_no_poll(void **state)
{
    (void)state;
    assert_int_equal(open_it(), 0);
    no_poll = ENOMEM;
    assert_int_equal(gm_client_await(client, &loop, hear, &heard[0]), -ENOMEM);
    assert_null(client->exit);
}

/* Where the system gives none to anybody, the end of the connection must do. */
static void test_none_at_all(void **state)
{
    static const int lacks[] = {ENOSYS, EPERM};
    (void)state;
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++) {
        no_pidfd = lacks[i];
        assert_int_equal(open_it(), 0);
        assert_int_equal(gm_client_await(client, &loop, hear, &heard[0]), 0);
        assert_null(client->exit);
        gm_client_drop(client);
        client = NULL;
    }
}

/* It is heard once, by who asked last. */
static void test_end(void **state)
{
    (void)state;
    assert_int_equal(open_it(), 0);
    assert_int_equal(gm_client_await(client, &loop, hear, &heard[0]), 0);
    assert_int_equal(gm_client_await(client, &loop, hear, &heard[1]), 0);
    uv_run(&loop, UV_RUN_NOWAIT);
    assert_non_null(client->exit);
    assert_int_equal(heard[1], 0);
    end_program();
    uv_run(&loop, UV_RUN_DEFAULT); /* until nothing is left in it */
    assert_int_equal(heard[0], 0);
    assert_int_equal(heard[1], 1);
    assert_int_equal(gm_client_await(client, &loop, hear, &heard[0]), 0);
    assert_null(client->exit);
}

/* Who hears of it may be the last that has the client. */
static void drop(void *arg, struct gm_client *of)
{
    hear(arg, of);
    gm_client_drop(of);
    client = NULL;
}

static void test_end_drops(void **state)
{
    (void)state;
    assert_int_equal(open_it(), 0);
    assert_int_equal(gm_client_await(client, &loop, drop, &heard[0]), 0);
    end_program();
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(heard[0], 1);
    assert_null(client);
}

static void test_dropped_before(void **state)
{
    (void)state;
    assert_int_equal(open_it(), 0);
    assert_int_equal(gm_client_await(client, &loop, hear, &heard[0]), 0);
    gm_client_drop(client);
    client = NULL;
    end_program();
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(heard[0], 0);
}

/* ---- copies of its connection ---- */

static int ends[2], looks;
static pid_t found;

static int keep(struct gm_session *session)
{
    (void)session;
    return dup(ends[0]);
}

static pid_t find(uid_t uid, uint64_t since, int socket)
{
    (void)uid, (void)since, (void)socket;
    looks++;
    return found;
}

static uint64_t started(pid_t pid)
{
    (void)pid;
    return 1;
}

/* However many clients have some, one look is taken at a time; and one that is not found leaves the
 * next to another. */
static void test_copier(void **state)
{
    const struct gm_engine_outlet outlet = {.keep = keep, .holder = find, .started = started};
    const struct gm_newcomer who = {.pid = program, .uid = 1000, .name = "other"};
    struct gm_client *other;
    uint64_t now = GM_S, look_at = 0;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(open_it(), 0);
    assert_int_equal(gm_client_open(&other, 4, &who, NULL, NULL), 0);
    client->session = other->session = (struct gm_session *)&loop;
    gm_client_died(client, &loop, &outlet, NULL);
    gm_client_died(other, &loop, &outlet, NULL);
    looks = 0;
    for (found = 0; found < 2; found++, now += GM_COPIER_LOOK_NS) {
        gm_client_find_copier(client, &outlet, now, &look_at);
        gm_client_find_copier(other, &outlet, now, &look_at);
        assert_int_equal(looks, found + 1);
        assert_int_equal(gm_client_copier(client, &outlet), 0);
        assert_int_equal(gm_client_copier(other, &outlet), found);
    }
    gm_client_drop(other);
    close(ends[0]);
    close(ends[1]);
}

/* ---- its answers ---- */

/* The answer to a daemon before may be on its way while the program comes back to this one. */
static void test_other_epoch(void **state)
{
    struct gm_msg_drained answer = {.epoch = 4, .status = GM_DRAIN_QUIET};
    (void)state;
    assert_int_equal(open_it(), 0);
    client->state = GM_CLIENT_CLOSING;
    client->shut = 1;
    gm_client_set_epoch(client, 5);
    assert_true(gm_client_answer(client, &answer));
    assert_int_equal(client->state, GM_CLIENT_CLOSING);
    answer.epoch = 5;
    assert_true(gm_client_answer(client, &answer));
    assert_int_equal(client->state, GM_CLIENT_QUIET);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(no_pidfd),  TEST(no_poll),        TEST(none_at_all), TEST(end),
        TEST(end_drops), TEST(dropped_before), TEST(copier),      TEST(other_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
