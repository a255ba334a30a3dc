/* Spares. The test plays what releases ranges, and the link. */
#include "shim/memory/spares.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "common/clock.h"
#include "shim/gate/gate.h"
#include "shim/link/link.h"
#include "shim/memory/chunks.h"

#define MIB (1ull << 20)
#define BUDGET (256 * MIB)
#define KEEP GM_SPARES_KEEP_NS
#define ROUNDS 20000

static bool is_up;
static _Atomic bool is_held;  /* what is released does not come to its end */
static uint64_t releases_put; /* so many releases come with another put, of another thread */
static _Atomic uint64_t n_released, released_bytes;
static _Atomic uint64_t last_released;
static _Atomic bool is_begun; /* a release is */
static _Atomic bool is_early; /* a range was given back while it was a spare */

static struct gm_stat stat_area;

struct gm_stat *gm_gate_stat(void)
{
    return &stat_area;
}

bool gm_link_is_up(void)
{
    return is_up;
}

uint64_t gm_link_budget(uint32_t gpu)
{
    return gpu == 0 ? BUDGET : BUDGET / 2;
}

static enum gm_spares_put put(int gpu, uint64_t va, uint64_t bytes, uint64_t now)
{
    const struct gm_alloc alloc = {
        .va = va, .bytes = bytes - 100, .span = bytes, .gpu = gpu, .kind = GM_ALLOC_CHUNKS};
    return gm_spares_put(&alloc, now);
}

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    nanosleep(&pause, NULL);
}

static _Atomic uint32_t n_in_vain;

void gm_release_range(const struct gm_alloc *alloc, CUresult result)
{
    if (gm_spares_has(alloc->va) || result != CUDA_SUCCESS)
        is_early = true;
}

CUresult gm_release_chunks(const struct gm_alloc *alloc)
{
    is_begun = true;
    while (is_held)
        nap();
    n_released++;
    released_bytes += alloc->span;
    last_released = alloc->va;
    if (releases_put > 0)
        put(0, 0x100000000 + (--releases_put << 24), 2 * MIB, UINT64_MAX);
    return CUDA_SUCCESS;
}

static int begin(void **state)
{
    (void)state;
    is_up = true;
    gm_spares_release(-1);
    gm_spares_watch(UINT64_MAX); /* nobody watches from here on */
    n_released = released_bytes = last_released = n_in_vain = 0;
    is_begun = is_early = false;
    return 0;
}

static void test_same_size_and_gpu(void **state)
{
    uint64_t va = 0;
    (void)state;
    assert_false(gm_spares_take(0, 4 * MIB, &va));
    assert_int_equal(put(0, 0x1000000, 4 * MIB, 1), GM_SPARES_KEPT_FIRST);
    put(0, 0x2000000, 8 * MIB, 2);
    put(0, 0x3000000, 4 * MIB, 3);
    put(1, 0x4000000, 4 * MIB, 4);
    assert_true(gm_spares_exist());
    assert_int_equal(gm_spares_bytes(0), 16 * MIB);
    assert_int_equal(stat_area.spare_bytes, 20 * MIB);
    assert_int_equal(gm_spares_bytes(1), 4 * MIB);
    assert_false(gm_spares_take(0, 6 * MIB, &va));
    assert_false(gm_spares_take(1, 8 * MIB, &va));
    assert_true(gm_spares_take(0, 4 * MIB, &va));
    assert_int_equal(va, 0x3000000); /* the latest */
    assert_true(gm_spares_take(0, 4 * MIB, &va));
    assert_int_equal(va, 0x1000000);
    assert_false(gm_spares_take(0, 4 * MIB, &va));
    assert_int_equal(n_released, 0);
    assert_true(gm_spares_release(1));
    assert_int_equal(last_released, 0x4000000);
    assert_false(gm_spares_release(1));
    assert_int_equal(gm_spares_bytes(0), 8 * MIB);
    assert_int_equal(stat_area.spare_bytes, 8 * MIB);
}

static void test_share_of_the_budget(void **state)
{
    (void)state;
    assert_int_equal(put(0, 0x10000000, BUDGET / 4 + 2 * MIB, 1), GM_SPARES_REFUSED);
    assert_int_equal(put(0, 0x10000000, BUDGET / 8, 1), GM_SPARES_KEPT_FIRST);
    assert_int_equal(put(0, 0x20000000, BUDGET / 8 + 2 * MIB, 1), GM_SPARES_REFUSED);
    assert_int_not_equal(put(0, 0x20000000, BUDGET / 8, 1), GM_SPARES_REFUSED);
    assert_int_equal(put(0, 0x30000000, 2 * MIB, 1), GM_SPARES_REFUSED);
    assert_int_not_equal(put(1, 0x30000000, BUDGET / 8, 1), GM_SPARES_REFUSED);
    assert_int_equal(put(1, 0x40000000, 2 * MIB, 1), GM_SPARES_REFUSED);
}

static void test_number(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2 * GM_SPARES_MAX; i++)
        if (put(0, (i + 1) << 24, MIB / 2, i) == GM_SPARES_REFUSED)
            assert_true(i >= GM_SPARES_MAX);
    assert_int_equal(gm_spares_n, GM_SPARES_MAX);
}

static struct gm_alloc range_ahead(unsigned i)
{
    return (struct gm_alloc){.va = 0x100000000 + ((uint64_t)i << 28),
                             .bytes = BUDGET,
                             .span = BUDGET,
                             .gpu = (int32_t)(i % 2),
                             .kind = GM_ALLOC_CHUNKS};
}

/* What came ahead has room beside those, and is no part of the share. */
static void test_ahead(void **state)
{
    uint64_t va;
    (void)state;
    for (unsigned i = 0; i < GM_SPARES_MAX; i++)
        assert_int_not_equal(put(0, (i + 1) << 24, MIB / 2, i), GM_SPARES_REFUSED);
    gm_spares_watch(GM_SPARES_MAX); /* somebody does from here on */
    const uint64_t freed = stat_area.spare_bytes;
    for (unsigned i = 0; i <= GM_SPARES_AHEAD; i++) {
        const struct gm_alloc alloc = range_ahead(i);
        assert_int_equal(gm_spares_expect(&alloc, KEEP, &n_in_vain), i < GM_SPARES_AHEAD);
    }
    assert_int_equal(gm_spares_n, GM_SPARES_MAX + GM_SPARES_AHEAD);
    struct gm_spares_ahead ahead = gm_spares_ahead(0, BUDGET);
    assert_true(ahead.coming == GM_SPARES_AHEAD && ahead.alike == GM_SPARES_AHEAD / 2);
    assert_true(ahead.bytes == GM_SPARES_AHEAD / 2 * BUDGET && ahead.bytes_here == 0);
    assert_int_equal(gm_spares_ahead(0, MIB / 2).alike, GM_SPARES_MAX);

    /* What is to come is none of anybody's, and yet nobody may look there. */
    assert_true(gm_spares_has(0x100000000 + BUDGET - 1));
    assert_false(gm_spares_take(0, BUDGET, &va));
    assert_int_equal(stat_area.spare_bytes, freed);
    assert_int_equal(gm_spares_bytes(1), 0);
    for (unsigned i = 1; i < GM_SPARES_AHEAD; i++)
        assert_int_equal(gm_spares_arrive(range_ahead(i).va, 100), GM_SPARES_KEPT);
    const uint64_t gone = gm_spares_gone(false);
    gm_spares_miss(range_ahead(0).va);
    assert_int_equal(gm_spares_gone(false), gone + 1);
    assert_false(gm_spares_has(0x100000000 + BUDGET - 1));
    ahead = gm_spares_ahead(1, BUDGET);
    assert_true(ahead.coming == 0 && ahead.bytes_here == GM_SPARES_AHEAD / 2 * BUDGET);
    assert_int_equal(stat_area.spare_bytes, freed + (GM_SPARES_AHEAD - 1) * BUDGET);
    assert_int_equal(gm_spares_bytes(1), GM_SPARES_AHEAD / 2 * BUDGET);

    assert_true(gm_spares_take(1, BUDGET, &va));
    assert_int_equal(va, range_ahead(GM_SPARES_AHEAD - 1).va);
    ahead = gm_spares_ahead(1, BUDGET);
    assert_true(ahead.alike == GM_SPARES_AHEAD / 2 - 1 && ahead.bytes == ahead.alike * BUDGET);
    assert_int_equal(put(0, 1 << 20, MIB / 2, 200), GM_SPARES_REFUSED);

    /* It goes when its time is over, like the others; or before them. */
    gm_spares_release_ahead();
    assert_int_equal(n_released, GM_SPARES_AHEAD - 2);
    assert_int_equal(n_in_vain, GM_SPARES_AHEAD - 2);
    assert_int_equal(gm_spares_n, GM_SPARES_MAX);
    while (gm_spares_exist())
        gm_spares_watch(200 + KEEP);
    assert_int_equal(gm_spares_ahead(0, BUDGET).bytes, 0);
    assert_int_equal(stat_area.spare_bytes, 0);
}

/* Each one stays as long as it was said. */
static void test_ahead_goes(void **state)
{
    const struct gm_alloc brief = range_ahead(0), longer = range_ahead(1);
    (void)state;
    assert_int_equal(put(0, 0x1000000, 2 * MIB, 0), GM_SPARES_KEPT_FIRST);
    assert_true(gm_spares_expect(&longer, 30, &n_in_vain));
    assert_true(gm_spares_expect(&brief, 10, &n_in_vain));
    assert_int_equal(gm_spares_watch(1), KEEP);
    assert_int_equal(gm_spares_arrive(longer.va, 5), GM_SPARES_KEPT);
    assert_int_equal(gm_spares_arrive(brief.va, 5), GM_SPARES_KEPT);
    assert_int_equal(gm_spares_watch(14), 15);
    assert_int_equal(n_released, 0);
    assert_int_equal(gm_spares_watch(15), 35);
    assert_int_equal(last_released, brief.va);
    assert_int_equal(gm_spares_watch(35), KEEP);
    assert_int_equal(last_released, longer.va);
    assert_int_equal(n_released, 2);

    /* Nobody comes for a while: who puts one has to say so. */
    assert_int_equal(put(0, 0x2000000, 2 * MIB, 36), GM_SPARES_KEPT);
    gm_spares_leave_alone();
    assert_int_equal(put(0, 0x3000000, 2 * MIB, 37), GM_SPARES_KEPT_FIRST);
}

static void test_what_is_not_kept(void **state)
{
    (void)state;
    for (int kind = 0; kind < GM_ALLOC_KINDS; kind++) {
        const struct gm_alloc alloc = {.va = 0x1000000,
                                       .bytes = 4 * MIB,
                                       .span = 4 * MIB,
                                       .kind = (enum gm_alloc_kind)kind,
                                       .is_shared = kind == GM_ALLOC_CHUNKS};
        assert_int_equal(gm_spares_put(&alloc, 1), GM_SPARES_REFUSED);
    }
}

static void test_lost(void **state)
{
    uint64_t va;
    (void)state;
    put(0, 0x1000000, 4 * MIB, 1);
    is_up = false;
    assert_false(gm_spares_take(0, 4 * MIB, &va));
    assert_int_equal(put(0, 0x2000000, 4 * MIB, 2), GM_SPARES_REFUSED);
    gm_spares_watch(1 + KEEP);
    assert_int_equal(n_released, 1);
}

static void test_addresses(void **state)
{
    const uint64_t words[] = {5, 0x1000000 + 4 * MIB - 1, 7};
    const uint64_t others[] = {0, 0x1000000 - 1, 0x1000000 + 4 * MIB, UINT64_MAX};
    (void)state;
    assert_false(gm_spares_hold(words, 3));
    put(0, 0x1000000, 4 * MIB, 1);
    assert_true(gm_spares_hold(words, 3));
    assert_true(gm_spares_hold(words + 1, 1));
    assert_false(gm_spares_hold(words, 1));
    assert_false(gm_spares_hold(others, 4));
    assert_false(gm_spares_hold(words, 0));
}

/* Each is released in its time, and the watcher stays for a while when there is none. */
static void test_watch(void **state)
{
    uint64_t va;
    (void)state;
    assert_int_equal(gm_spares_watch(GM_S), UINT64_MAX);
    assert_int_equal(put(0, 0x1000000, 4 * MIB, GM_S), GM_SPARES_KEPT_FIRST);
    assert_int_equal(put(0, 0x2000000, 4 * MIB, GM_S + 5), GM_SPARES_KEPT_FIRST);
    assert_int_equal(gm_spares_watch(GM_S + 6), GM_S + KEEP);
    assert_int_equal(put(0, 0x3000000, 8 * MIB, GM_S + 7), GM_SPARES_KEPT);
    assert_int_equal(gm_spares_watch(GM_S + KEEP), GM_S + 5 + KEEP);
    assert_int_equal(last_released, 0x1000000);
    assert_true(gm_spares_take(0, 4 * MIB, &va));
    assert_true(gm_spares_take(0, 8 * MIB, &va));
    /* None is there, and the watcher comes again before it goes. */
    assert_int_equal(gm_spares_watch(GM_S + 5 + KEEP), GM_S + 7 + KEEP);
    assert_int_equal(put(0, 0x3000000, 8 * MIB, GM_S + 6 + KEEP), GM_SPARES_KEPT);
    assert_true(gm_spares_take(0, 8 * MIB, &va));
    assert_int_equal(gm_spares_watch(GM_S + 7 + KEEP), GM_S + 6 + 2 * KEEP);
    assert_int_equal(gm_spares_watch(GM_S + 6 + 2 * KEEP), UINT64_MAX);
    assert_int_equal(put(0, 0x3000000, 8 * MIB, 3 * GM_S), GM_SPARES_KEPT_FIRST);
    assert_int_equal(n_released, 1);
}

/* What one thread releases, another that needs the room can wait for; and it still counts. */
static void *shrink(void *unused)
{
    (void)unused;
    assert_true(gm_spares_shrink(0));
    return NULL;
}

static void *let_go(void *unused)
{
    (void)unused;
    nap(); /* somebody waits by now, most likely */
    is_held = false;
    return NULL;
}

static void test_wait_for_another(void **state)
{
    pthread_t thread, other;
    uint64_t va;
    (void)state;
    put(0, 0x1000000, 4 * MIB, 1);
    put(0, 0x2000000, 4 * MIB, 1);
    const uint64_t gone = gm_spares_gone(true);
    is_held = true;
    assert_int_equal(pthread_create(&thread, NULL, shrink, NULL), 0);
    while (!is_begun)
        sched_yield();
    assert_int_equal(gm_spares_bytes(0), 8 * MIB);
    assert_true(gm_spares_has(0x1000000)); /* the driver finds it still */
    assert_true(gm_spares_take(0, 4 * MIB, &va));
    assert_int_equal(va, 0x2000000);
    assert_false(gm_spares_take(0, 4 * MIB, &va)); /* the other one is nobody's */
    assert_false(gm_spares_shrink(0));
    assert_int_equal(gm_spares_watch(2), 1 + KEEP);
    put(0, va, 4 * MIB, 2);
    assert_int_equal(gm_spares_watch(2), 2 + KEEP);
    assert_int_equal(gm_spares_gone(false), gone);
    assert_int_equal(pthread_create(&other, NULL, let_go, NULL), 0);
    assert_int_equal(gm_spares_gone(true), gone + 1);
    assert_int_equal(n_released, 1);
    assert_int_equal(gm_spares_bytes(0), 4 * MIB);
    assert_false(gm_spares_has(0x1000000));
    pthread_join(thread, NULL);
    pthread_join(other, NULL);
}

/* Who releases all is done, however fast another thread frees. */
static void test_release_beside_puts(void **state)
{
    (void)state;
    put(0, 0x1000000, 4 * MIB, 1);
    put(0, 0x2000000, 4 * MIB, 1);
    releases_put = 1000;
    assert_true(gm_spares_release(0));
    assert_true(n_released < 1000);
    assert_int_not_equal(gm_spares_n, 0);
    releases_put = 0;
}

/* What the program had lately, and no longer than that. */
static void test_most(void **state)
{
    (void)state;
    assert_int_equal(gm_spares_most(3, 50, 100 * GM_S), 50);
    assert_int_equal(gm_spares_most(3, 10, 100 * GM_S + 1), 50);
    assert_int_equal(gm_spares_most(3, 20, 101 * GM_S), 50);
    assert_int_equal(gm_spares_most(3, 10, 102 * GM_S), 20);
    assert_int_equal(gm_spares_most(3, 60, 102 * GM_S), 60);
    assert_int_equal(gm_spares_most(3, 1, 105 * GM_S), 1);
}

/* Who looks while others change them never finds what is not there; it may miss what is, while
 * the one who changes them is held up. */
static _Atomic bool is_looking, is_wrong;

static void *look(void *unused)
{
    const uint64_t nowhere[] = {0x9000000, 0x1000000 - 1};
    (void)unused;
    while (is_looking)
        if (gm_spares_hold(nowhere, 2))
            is_wrong = true;
    return NULL;
}

static void test_look_without_a_lock(void **state)
{
    pthread_t thread;
    uint64_t va;
    (void)state;
    put(0, 0x1000000, 2 * MIB, 1);
    is_looking = true;
    assert_int_equal(pthread_create(&thread, NULL, look, NULL), 0);
    for (int i = 0; i < ROUNDS; i++) {
        put(0, 0x4000000, 4 * MIB, 1);
        put(0, 0x2000000, 6 * MIB, 1);
        assert_true(gm_spares_take(0, 4 * MIB, &va));
        assert_true(gm_spares_take(0, 6 * MIB, &va));
    }
    is_looking = false;
    pthread_join(thread, NULL);
    assert_false(is_wrong);
    const uint64_t there = 0x1000000 + MIB;
    assert_true(gm_spares_hold(&there, 1));
}

/* Many put and take: no range is given to two, and every one is taken or released. */
#define THREADS 4
static _Atomic uint64_t n_put, n_taken;

static void *turn(void *argument)
{
    const uint64_t mine = (uint64_t)(uintptr_t)argument;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t va;
        if (put(0, (mine * ROUNDS + i + 1) << 24, 2 * MIB, i) != GM_SPARES_REFUSED)
            n_put++;
        if (i % 3 != 0 && gm_spares_take(0, 2 * MIB, &va))
            n_taken++;
        if (i % 64 == 0)
            gm_spares_watch(i + KEEP - 32);
    }
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t threads[THREADS];
    (void)state;
    n_put = n_taken = 0;
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, turn, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    gm_spares_release(-1);
    assert_true(n_put > 0 && n_taken > 0);
    assert_int_equal(n_put, n_taken + n_released);
    assert_int_equal(released_bytes, n_released * 2 * MIB);
    assert_int_equal(gm_spares_bytes(0), 0);
    assert_int_equal(stat_area.spare_bytes, 0);
    assert_false(is_early);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_same_size_and_gpu, begin),
        cmocka_unit_test_setup(test_share_of_the_budget, begin),
        cmocka_unit_test_setup(test_number, begin),
        cmocka_unit_test_setup(test_ahead, begin),
        cmocka_unit_test_setup(test_ahead_goes, begin),
        cmocka_unit_test_setup(test_what_is_not_kept, begin),
        cmocka_unit_test_setup(test_lost, begin),
        cmocka_unit_test_setup(test_addresses, begin),
        cmocka_unit_test_setup(test_watch, begin),
        cmocka_unit_test_setup(test_wait_for_another, begin),
        cmocka_unit_test_setup(test_release_beside_puts, begin),
        cmocka_unit_test_setup(test_most, begin),
        cmocka_unit_test_setup(test_look_without_a_lock, begin),
        cmocka_unit_test_setup(test_threads, begin),
    };
    return cmocka_run_group_tests_name("spares", tests, NULL, NULL);
}
