/*
 * What outlives the daemon, with the real gpumux-keeper: what one daemon puts the next one claims,
 * with its contents; what nobody claims goes; a lost keeper, another one, and one that is full.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/keeper_world.h"

#define MANY 600u /* more than two messages carry */

static uint32_t allocations = UINT32_MAX; /* so many more succeed */

void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size)
{
    return allocations == 0 || allocations-- == 0 ? NULL : __real_realloc(memory, size);
}

static int set_up(void **state)
{
    (void)state;
    const struct rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_NOFILE, &limit);
    return keeper_begin("kept", 2048);
}

static int tear_down(void **state)
{
    (void)state;
    return keeper_end();
}

static struct gm_kept *daemon_comes(void)
{
    struct gm_kept *kept = NULL;
    assert_int_equal(gm_kept_open(&kept), 0);
    assert_false(gm_kept_is_connected(kept));
    assert_int_equal(keeper_connect(kept), 0);
    assert_true(gm_kept_is_connected(kept));
    assert_int_equal(gm_kept_take(kept), 0);
    return kept;
}

static int memory_of(uint64_t number)
{
    const int fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(write(fd, &number, sizeof number), sizeof number);
    return fd;
}

static void put(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t slot, uint64_t number)
{
    assert_int_equal(gm_kept_put(kept, kind, 1, slot, number, memory_of(number)), 0);
}

/* Whether it can be claimed, and is what was put. */
static int is_there(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t slot, uint64_t number)
{
    uint64_t id = 0, is = 0;
    const int fd = gm_kept_claim(kept, kind, 1, slot, &id);
    if (fd < 0)
        return 0;
    assert_int_equal(pread(fd, &is, sizeof is, 0), sizeof is);
    assert_int_equal(id, number);
    assert_int_equal(is, number);
    return 1;
}

static uint32_t count(const struct gm_kept *kept, enum gm_kept_kind kind)
{
    uint32_t n = 0;
    for (uint32_t slot = gm_kept_next(kept, kind, 1, GM_NONE); slot != GM_NONE;
         slot = gm_kept_next(kept, kind, 1, slot))
        n++;
    return n;
}

static uint32_t files(void)
{
    uint32_t n = 0;
    for (int fd = 0; fd < 4096; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* As a daemon that was killed: its descriptors go, too. */
static void daemon_dies(struct gm_kept *kept)
{
    gm_kept_close(kept);
    for (int fd = 3; fd < 4096; fd++)
        close(fd);
}

static void test_next_daemon(void **state)
{
    (void)state;
    uint64_t id;
    struct gm_kept *kept = daemon_comes();
    assert_int_equal(gm_kept_next(kept, GM_KEPT_FRAME, 1, GM_NONE), GM_NONE);
    for (uint32_t i = 0; i < MANY; i++)
        put(kept, GM_KEPT_FRAME, 3 * i, 1000 + i);
    put(kept, GM_KEPT_PIECE, 0, 7);
    put(kept, GM_KEPT_PIECE, 0, 8); /* in its place */
    put(kept, GM_KEPT_LEDGER, 1, 9);
    put(kept, GM_KEPT_LEDGER, 0, 10);
    gm_kept_drop(kept, GM_KEPT_LEDGER, 1, 1);
    gm_kept_drop(kept, GM_KEPT_LEDGER, 1, 1); /* no mistake */
    daemon_dies(kept);

    kept = daemon_comes();
    assert_int_equal(count(kept, GM_KEPT_FRAME), MANY);
    assert_int_equal(gm_kept_next(kept, GM_KEPT_FRAME, 1, 3), 6);
    assert_int_equal(gm_kept_next(kept, GM_KEPT_FRAME, 1, 4), 6);
    assert_int_equal(gm_kept_next(kept, GM_KEPT_FRAME, 1, 3 * (MANY - 1)), GM_NONE);
    assert_int_equal(gm_kept_next(kept, GM_KEPT_FRAME, 0, GM_NONE), GM_NONE); /* other GPU */
    assert_false(is_there(kept, GM_KEPT_LEDGER, 1, 9));
    assert_true(is_there(kept, GM_KEPT_LEDGER, 0, 10));
    assert_true(is_there(kept, GM_KEPT_PIECE, 0, 8));
    assert_false(is_there(kept, GM_KEPT_PIECE, 0, 8)); /* once */
    assert_int_equal(gm_kept_claim(kept, GM_KEPT_FRAME, 0, 0, &id), -1);
    for (uint32_t i = 0; i < MANY; i += 2)
        assert_true(is_there(kept, GM_KEPT_FRAME, 3 * i, 1000 + i));
    assert_int_equal(count(kept, GM_KEPT_FRAME), MANY / 2);
    const uint32_t before = files();
    put(kept, GM_KEPT_FRAME, 3, 5555); /* anew, where nobody claimed: it stays */
    assert_int_equal(files(), before);
    gm_kept_settle(kept);
    assert_int_equal(files(), before - (MANY / 2 - 1));
    assert_int_equal(count(kept, GM_KEPT_FRAME), 0);
    daemon_dies(kept);

    kept = daemon_comes(); /* what was claimed counts as put */
    assert_int_equal(count(kept, GM_KEPT_FRAME), MANY / 2 + 1);
    assert_true(is_there(kept, GM_KEPT_FRAME, 3, 5555));
    assert_true(is_there(kept, GM_KEPT_FRAME, 6, 1002));
    assert_true(is_there(kept, GM_KEPT_LEDGER, 0, 10));
    gm_kept_end(kept);
    assert_false(gm_kept_is_connected(kept));
    assert_int_equal(waitpid(keeper, NULL, 0), keeper);
    keeper = -1;
    daemon_dies(kept);
}

static void assert_hung_up(int fd)
{
    struct pollfd watch = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&watch, 1, PATIENCE_MS), 1);
    assert_true(watch.revents & POLLHUP);
    close(fd);
}

/* A word that is marked says whether what the keeper holds is what was put. */
static void test_marks(void **state)
{
    (void)state;
    struct gm_kept *kept = daemon_comes();
    uint64_t ledger = 0, other = 5;
    gm_kept_mark(kept, &ledger, 7);
    assert_int_equal(ledger, 7);
    put(kept, GM_KEPT_FRAME, 1, 1);
    put(kept, GM_KEPT_FRAME, 2, 2);
    gm_kept_lose(kept); /* it still holds frame 1 */
    assert_int_equal(ledger, 7);
    gm_kept_drop(kept, GM_KEPT_FRAME, 1, 1);
    assert_int_equal(ledger, 0);
    gm_kept_mark(kept, &other, 8);
    assert_int_equal(other, 0);
    put(kept, GM_KEPT_FRAME, 1, 3); /* the key again */
    assert_int_equal(keeper_connect(kept), 0);
    assert_int_equal(ledger, 0); /* it may hold more yet */
    assert_int_equal(gm_kept_take(kept), 0);
    gm_kept_settle(kept);
    assert_int_equal(ledger, 7);
    assert_int_equal(other, 8);
    gm_kept_lose(kept);
    put(kept, GM_KEPT_FRAME, 3, 3);
    assert_int_equal(ledger, 0);
    gm_kept_unmark(kept, &other);
    assert_int_equal(keeper_connect(kept), 0);
    assert_int_equal(gm_kept_take(kept), 0);
    gm_kept_settle(kept);
    assert_int_equal(ledger, 7);
    assert_int_equal(other, 0);
    gm_kept_disconnect(kept); /* on purpose: the next daemon takes what is there */
    gm_kept_drop(kept, GM_KEPT_FRAME, 1, 2);
    assert_int_equal(ledger, 7);
    daemon_dies(kept);
}

/* The keeper is lost: another one gets all, also what was put while there was none. The same one
 * again: what was dropped meanwhile goes. */
static void test_hand_over(void **state)
{
    (void)state;
    struct gm_kept *kept = daemon_comes();
    for (uint32_t i = 0; i < MANY; i++)
        put(kept, GM_KEPT_FRAME, i, i);
    int watch = gm_kept_watch(kept);
    assert_true(watch >= 0);
    keeper_stop();
    assert_hung_up(watch);
    put(kept, GM_KEPT_PIECE, 1, 77); /* it learns of it by this */
    assert_false(gm_kept_is_connected(kept));
    assert_int_equal(gm_kept_watch(kept), -ENOTCONN);
    assert_int_equal(gm_kept_room(kept), UINT32_MAX);
    put(kept, GM_KEPT_PIECE, 2, 78);
    gm_kept_drop(kept, GM_KEPT_FRAME, 1, 0);
    assert_int_equal(keeper_start(2048), 0);
    assert_int_equal(keeper_connect(kept), 0);
    assert_int_equal(gm_kept_take(kept), 0);
    assert_int_equal(count(kept, GM_KEPT_FRAME), 0);

    watch = gm_kept_watch(kept);
    gm_kept_disconnect(kept);
    assert_hung_up(watch);
    gm_kept_drop(kept, GM_KEPT_FRAME, 1, 5);
    put(kept, GM_KEPT_FRAME, 6, 666);
    assert_int_equal(keeper_connect(kept), 0);
    assert_int_equal(gm_kept_take(kept), 0);
    assert_int_equal(count(kept, GM_KEPT_FRAME), 1);
    assert_int_equal(gm_kept_next(kept, GM_KEPT_FRAME, 1, GM_NONE), 5);
    gm_kept_settle(kept);
    daemon_dies(kept);

    kept = daemon_comes();
    assert_int_equal(count(kept, GM_KEPT_FRAME), MANY - 2);
    assert_true(is_there(kept, GM_KEPT_FRAME, 6, 666));
    assert_true(is_there(kept, GM_KEPT_FRAME, 7, 7));
    assert_true(is_there(kept, GM_KEPT_PIECE, 1, 77));
    assert_true(is_there(kept, GM_KEPT_PIECE, 2, 78));
    daemon_dies(kept);
}

/* What it cannot hold is not put, and what was there stays. */
static void test_full(void **state)
{
    (void)state;
    uint64_t id;
    keeper_stop();
    assert_int_equal(keeper_start(320), 0); /* room for three */
    struct gm_kept *kept = daemon_comes();
    assert_int_equal(gm_kept_room(kept), 3);
    gm_kept_settle(kept);
    const int fd = memory_of(1);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(gm_kept_put(kept, GM_KEPT_FRAME, 1, i, i, fd), 0);
    assert_int_equal(gm_kept_room(kept), 3);
    assert_int_equal(gm_kept_put(kept, GM_KEPT_FRAME, 1, 3, 3, fd), -EMFILE);
    assert_int_equal(gm_kept_put(kept, GM_KEPT_FRAME, 1, 2, 9, fd), 0); /* in its place */
    assert_int_equal(gm_kept_put(kept, GM_KEPT_FRAME, GM_KEEPER_GPUS, 0, 0, fd), -ERANGE);
    assert_int_equal(gm_kept_put(kept, GM_KEPT_FRAME, 256, 0, 0, fd), -ERANGE);
    assert_int_equal(gm_kept_put(kept, GM_KEPT_FRAME, 1, GM_KEEPER_SLOTS, 0, fd), -ERANGE);
    gm_kept_drop(kept, GM_KEPT_FRAME, 1, 1);
    const int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    assert_int_equal(gm_kept_put(kept, GM_KEPT_LEASE, 0, 4, 44, pidfd), 0);
    assert_int_equal(gm_kept_put(kept, GM_KEPT_LEASE, 0, 4, 45, fd), -EPERM); /* no process */
    gm_kept_close(kept);
    kept = daemon_comes();
    assert_int_equal(count(kept, GM_KEPT_FRAME), 2);
    assert_int_equal(gm_kept_room(kept), 3);
    assert_true(gm_kept_claim(kept, GM_KEPT_FRAME, 1, 2, &id) >= 0);
    assert_int_equal(id, 9);
    assert_true(gm_kept_claim(kept, GM_KEPT_LEASE, 0, 4, &id) >= 0);
    assert_int_equal(id, 44);

    /* A smaller one than the one before: it cannot take over, and is let go. */
    keeper_stop();
    assert_int_equal(keeper_start(318), 0);
    int error = keeper_connect(kept);
    assert_int_equal(error, -EMFILE);
    assert_false(gm_kept_is_connected(kept));
    daemon_dies(kept);
}

/* At a start after which nobody has anything to lose, one that cannot hold all is done without. One
 * that holds something is not. */
static void test_too_small(void **state)
{
    (void)state;
    keeper_stop();
    assert_int_equal(keeper_start(318), 0); /* room for one */
    struct gm_kept *kept = daemon_comes();
    put(kept, GM_KEPT_FRAME, 0, 1);
    daemon_dies(kept);
    kept = daemon_comes();
    const int fd = memory_of(2);
    assert_int_equal(gm_kept_put(kept, GM_KEPT_FRAME, 1, 1, 2, fd), -EMFILE);
    assert_true(is_there(kept, GM_KEPT_FRAME, 0, 1));
    gm_kept_drop(kept, GM_KEPT_FRAME, 1, 0);
    daemon_dies(kept);
    kept = daemon_comes();
    put(kept, GM_KEPT_FRAME, 0, 1);
    put(kept, GM_KEPT_FRAME, 1, 2);
    assert_false(gm_kept_is_connected(kept));
    assert_int_equal(waitpid(keeper, NULL, 0), keeper);
    assert_int_equal(keeper_start(2048), 0); /* another one has all */
    assert_int_equal(keeper_connect(kept), 0);
    daemon_dies(kept);
    kept = daemon_comes();
    assert_int_equal(count(kept, GM_KEPT_FRAME), 2);
    daemon_dies(kept);
}

/* Without a keeper all is noted, and nothing else. */
static void test_without(void **state)
{
    (void)state;
    uint64_t id;
    struct gm_kept *kept = NULL;
    assert_int_equal(gm_kept_put(NULL, GM_KEPT_FRAME, 0, 0, 0, 0), 0);
    gm_kept_drop(NULL, GM_KEPT_FRAME, 0, 0);
    assert_int_equal(gm_kept_claim(NULL, GM_KEPT_FRAME, 0, 0, &id), -1);
    assert_int_equal(gm_kept_next(NULL, GM_KEPT_FRAME, 0, GM_NONE), GM_NONE);
    gm_kept_settle(NULL);
    assert_int_equal(gm_kept_room(NULL), UINT32_MAX);
    assert_false(gm_kept_is_connected(NULL));
    gm_kept_close(NULL);
    keeper_stop();
    assert_int_equal(gm_kept_open(&kept), 0);
    put(kept, GM_KEPT_FRAME, 4, 44);
    assert_int_equal(gm_kept_claim(kept, GM_KEPT_FRAME, 1, 4, &id), -1); /* its own */
    assert_int_equal(gm_kept_take(kept), -ENOTCONN);
    gm_kept_settle(kept);
    assert_int_equal(keeper_start(2048), 0);
    assert_int_equal(keeper_connect(kept), 0);
    daemon_dies(kept);
    kept = daemon_comes();
    assert_true(is_there(kept, GM_KEPT_FRAME, 4, 44));
    daemon_dies(kept);
}

/* A daemon that may have fewer files than what is held: it takes nothing, and nothing is lost. */
static void test_few_files(void **state)
{
    (void)state;
    struct gm_kept *kept = daemon_comes();
    for (uint32_t i = 0; i < MANY; i++)
        put(kept, GM_KEPT_FRAME, i, i);
    daemon_dies(kept);
    kept = daemon_comes();
    gm_kept_close(kept);
    const uint32_t before = files();
    const struct rlimit few = {before + 300, 4096}, many = {4096, 4096};
    setrlimit(RLIMIT_NOFILE, &few);
    assert_int_equal(gm_kept_open(&kept), 0);
    assert_int_equal(keeper_connect(kept), 0);
    assert_int_equal(gm_kept_take(kept), -EMFILE);
    assert_int_equal(count(kept, GM_KEPT_FRAME), 0);
    assert_int_equal(files(), before + 1);
    setrlimit(RLIMIT_NOFILE, &many);
    assert_int_equal(gm_kept_take(kept), 0);
    assert_int_equal(count(kept, GM_KEPT_FRAME), MANY);
    daemon_dies(kept);
}

/* Without memory for all that the keeper holds nothing is taken; what was taken can be claimed, so
 * that nobody takes for lost what is there. */
static void test_no_memory(void **state)
{
    (void)state;
    struct gm_kept *kept = daemon_comes();
    put(kept, GM_KEPT_FRAME, 1000, 1);
    put(kept, GM_KEPT_STAT, 500, 2);
    daemon_dies(kept);
    assert_int_equal(gm_kept_open(&kept), 0);
    assert_int_equal(keeper_connect(kept), 0);
    uint32_t refused = 0;
    const uint32_t before = files();
    for (int error = -ENOMEM; error; refused += error != 0) {
        allocations = refused;
        error = gm_kept_take(kept);
        allocations = UINT32_MAX;
        assert_true(error == 0 || error == -ENOMEM);
        assert_int_equal(count(kept, GM_KEPT_FRAME), error == 0);
        assert_int_equal(files(), before + (error == 0 ? 2 : 0));
    }
    assert_true(refused >= 3); /* each try keeps the tables that it got */
    allocations = 0;
    const int frame = is_there(kept, GM_KEPT_FRAME, 1000, 1);
    const int words = is_there(kept, GM_KEPT_STAT, 500, 2);
    allocations = UINT32_MAX;
    assert_true(frame && words);
    daemon_dies(kept);
}

#define KEPT(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        KEPT(test_next_daemon), KEPT(test_marks),     KEPT(test_hand_over), KEPT(test_full),
        KEPT(test_without),     KEPT(test_few_files), KEPT(test_no_memory), KEPT(test_too_small)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
