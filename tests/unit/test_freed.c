/* Freed ranges. The test plays what releases ranges, the link, and the daemon that takes some. */
#include "shim/memory/freed.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "common/chunk.h"
#include "shim/gate/gate.h"
#include "shim/map/mapper.h"
#include "shim/memory/chunks.h"

#define MIB (1ull << 20)
#define ROUNDS 20000

static _Atomic bool is_up;
static uint64_t releases_put; /* so many releases come with another put, of another thread */
static _Atomic uint64_t n_released, released_bytes, n_unmapped, n_ranges;
static _Atomic uint64_t last_released;
static _Atomic bool is_early; /* a range was given back while it was a spare */
static _Atomic uint32_t n_in_vain;

static struct gm_stat stat_area;

struct gm_stat *gm_gate_stat(void)
{
    return &stat_area;
}

bool gm_link_has_daemon(void)
{
    return is_up;
}

static bool put(int gpu, uint64_t va, uint64_t bytes)
{
    const struct gm_alloc alloc = {
        .va = va, .bytes = bytes - 100, .span = bytes, .gpu = gpu, .kind = GM_ALLOC_CHUNKS};
    return gm_freed_put(&alloc);
}

static _Atomic uint64_t *word_of(uint64_t va)
{
    for (uint32_t i = 0; i < GM_SPARES_MAX; i++)
        if ((stat_area.spares[i] & ~(GM_CHUNK_MIN - 1)) == va)
            return &stat_area.spares[i];
    return NULL;
}

/* The word says that the program keeps the daemon from taking it, and not that the daemon took it.
 */
static bool is_own(uint64_t va)
{
    const _Atomic uint64_t *word = word_of(va);
    const uint64_t both = GM_SPARE_BUSY | GM_SPARE_OWN;
    return word != NULL && (*word & both) == both;
}

void gm_release_range(const struct gm_alloc *alloc, CUresult result)
{
    if (gm_freed_has(alloc->va) || result != CUDA_SUCCESS)
        is_early = true;
    n_ranges++;
}

CUresult gm_release_chunks(const struct gm_alloc *alloc)
{
    if (!gm_freed_has(alloc->va))
        is_early = true; /* the driver finds it still */
    if (!is_own(alloc->va))
        is_early = true; /* another daemon would take it, beside the FREE that comes again */
    n_released++;
    released_bytes += alloc->span;
    last_released = alloc->va;
    if (releases_put > 0)
        put(1, 0x100000000 + (--releases_put << 24), 2 * MIB);
    return CUDA_SUCCESS;
}

CUresult gm_mapper_release(uint64_t va, uint64_t bytes)
{
    (void)bytes;
    if (!gm_freed_has(va))
        is_early = true;
    n_unmapped++;
    return CUDA_SUCCESS;
}

/* The daemon takes it, if it may. */
static bool take_away(uint64_t va)
{
    _Atomic uint64_t *word = word_of(va);
    uint64_t was = word != NULL ? *word : GM_SPARE_BUSY;
    return (was & GM_SPARE_BUSY) == 0 && (was & ~(GM_CHUNK_MIN - 1)) == va &&
           atomic_compare_exchange_strong(word, &was, was | GM_SPARE_BUSY);
}

static int begin(void **state)
{
    (void)state;
    is_up = true;
    releases_put = 0;
    gm_freed_lose();
    assert_false(gm_freed_exist());
    n_released = released_bytes = last_released = n_unmapped = n_ranges = n_in_vain = 0;
    is_early = false;
    return 0;
}

static int end(void **state)
{
    (void)state;
    assert_false(is_early);
    return 0;
}

static void test_same_size_and_gpu(void **state)
{
    uint64_t va = 0, other = 0;
    (void)state;
    assert_false(gm_freed_take(0, 4 * MIB, &va));
    assert_true(put(0, 0x1000000, 4 * MIB));
    put(0, 0x2000000, 8 * MIB);
    put(0, 0x3000000, 4 * MIB);
    put(1, 0x4000000, 4 * MIB);
    assert_true(gm_freed_exist());
    assert_int_equal(gm_freed_sums(0, 0).ready_bytes, 16 * MIB);
    assert_int_equal(gm_freed_sums(1, 0).ready_bytes, 4 * MIB);
    assert_false(gm_freed_take(0, 6 * MIB, &va));
    assert_false(gm_freed_take(1, 8 * MIB, &va));
    assert_true(gm_freed_take(0, 4 * MIB, &va));
    assert_true(gm_freed_take(0, 4 * MIB, &other));
    assert_int_equal(va + other, 0x1000000 + 0x3000000);
    assert_false(gm_freed_take(0, 4 * MIB, &va));
    gm_freed_release(1);
    assert_int_equal(last_released, 0x4000000);
    gm_freed_release(1);
    assert_int_equal(n_released, 1);
    assert_int_equal(gm_freed_sums(0, 0).ready_bytes, 8 * MIB);
    gm_freed_release(-1);
    assert_int_equal(n_released, 2);
    assert_int_equal(n_ranges, 2);
}

static void test_number(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2 * GM_SPARES_MAX; i++)
        assert_int_equal(put(0, (uint64_t)(i + 1) << 24, MIB / 2), i < GM_SPARES_MAX);
    assert_int_equal(gm_freed_n[GM_FREED_SPARE], GM_SPARES_MAX);
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
        assert_false(gm_freed_put(&alloc));
    }
    is_up = false;
    assert_false(put(0, 0x2000000, 4 * MIB));
}

/* What the daemon takes is gone at once, and its range when nothing is mapped there any more. */
static void test_daemon_takes(void **state)
{
    uint64_t va;
    (void)state;
    put(0, 0x1000000, 4 * MIB);
    put(0, 0x2000000, 4 * MIB);
    assert_true(take_away(0x1000000));
    assert_false(take_away(0x1000000));
    assert_false(is_own(0x1000000));
    assert_int_equal(gm_freed_sums(0, 0).ready_bytes, 4 * MIB);
    assert_true(gm_freed_has(0x1000000 + MIB)); /* the driver finds it still */
    assert_true(gm_freed_take(0, 4 * MIB, &va));
    assert_int_equal(va, 0x2000000);
    assert_false(gm_freed_take(0, 4 * MIB, &va));
    gm_freed_release(-1);
    assert_int_equal(n_released, 0);
    assert_true(gm_freed_taken(0x1000000));
    assert_int_equal(n_ranges, 1);
    assert_false(gm_freed_exist());

    /* What it cannot have taken. */
    assert_false(gm_freed_taken(0x1000000));
    assert_false(gm_freed_taken(0));
    put(0, 0x2000000, 4 * MIB);
    assert_false(gm_freed_taken(0x2000000));
    assert_int_equal(n_ranges, 1);
}

/* A spare that was taken and put again does not look as it did. */
static void test_words_differ(void **state)
{
    uint64_t va, seen[100];
    (void)state;
    for (unsigned i = 0; i < 100; i++) {
        put(0, 0x1000000, 4 * MIB);
        seen[i] = *word_of(0x1000000);
        for (unsigned k = 0; k < i; k++)
            assert_int_not_equal(seen[k], seen[i]);
        assert_true(gm_freed_take(0, 4 * MIB, &va));
        assert_null(word_of(0x1000000));
    }
}

static void test_lost(void **state)
{
    uint64_t va;
    const struct gm_alloc alloc = {.va = 0x3000000, .span = 4 * MIB, .kind = GM_ALLOC_CHUNKS};
    (void)state;
    put(0, 0x1000000, 4 * MIB);
    put(1, 0x2000000, 4 * MIB);
    assert_true(gm_freed_expect(&alloc, &n_in_vain));
    assert_true(take_away(0x2000000)); /* TAKEN does not come any more */
    is_up = false;
    assert_false(gm_freed_take(0, 4 * MIB, &va));
    gm_freed_lose();
    assert_int_equal(n_unmapped, 2);
    assert_int_equal(n_ranges, 2);
    assert_int_equal(n_released, 0);
    gm_freed_miss(0x3000000); /* who asked for it hears of it */
    assert_false(gm_freed_exist());
}

static void test_addresses(void **state)
{
    const uint64_t words[] = {5, 0x1000000 + 4 * MIB - 1, 7};
    const uint64_t others[] = {0, 0x1000000 - 1, 0x1000000 + 4 * MIB, UINT64_MAX};
    (void)state;
    assert_false(gm_freed_hold(words, 3));
    put(0, 0x1000000, 4 * MIB);
    assert_true(gm_freed_hold(words, 3));
    assert_true(gm_freed_hold(words + 1, 1));
    assert_false(gm_freed_hold(words, 1));
    assert_false(gm_freed_hold(others, 4));
    assert_false(gm_freed_hold(words, 0));
}

/* Who releases all is done, however fast another thread frees. */
static void test_release_beside_puts(void **state)
{
    (void)state;
    put(1, 0x1000000, 4 * MIB);
    put(1, 0x2000000, 4 * MIB);
    releases_put = 1000;
    gm_freed_release(1);
    assert_true(n_released < 1000);
    assert_true(gm_freed_exist());
}

static struct gm_alloc range_ahead(unsigned i)
{
    return (struct gm_alloc){.va = 0x100000000 + ((uint64_t)i << 28),
                             .bytes = 64 * MIB,
                             .span = 64 * MIB,
                             .gpu = (int32_t)(i % 2),
                             .kind = GM_ALLOC_CHUNKS};
}

/* What is to come is none of anybody's, and yet nobody may look there. What came is a spare. */
static void test_ahead(void **state)
{
    uint64_t va;
    (void)state;
    put(0, 0x1000000, 2 * MIB);
    for (unsigned i = 0; i <= GM_FREED_AHEAD_MAX; i++) {
        const struct gm_alloc alloc = range_ahead(i);
        assert_int_equal(gm_freed_expect(&alloc, &n_in_vain), i < GM_FREED_AHEAD_MAX);
    }
    struct gm_freed_sums sums = gm_freed_sums(0, 64 * MIB);
    assert_true(sums.coming == GM_FREED_AHEAD_MAX && sums.alike == GM_FREED_AHEAD_MAX / 2);
    assert_true(sums.ahead_bytes == GM_FREED_AHEAD_MAX / 2 * 64 * MIB &&
                sums.coming_bytes == sums.ahead_bytes);
    assert_int_equal(gm_freed_sums(0, 2 * MIB).alike, 1);
    assert_true(gm_freed_has(range_ahead(0).va + 64 * MIB - 1));
    assert_false(gm_freed_take(0, 64 * MIB, &va));
    assert_false(take_away(range_ahead(0).va));
    assert_true(is_own(range_ahead(0).va));
    assert_false(gm_freed_taken(range_ahead(0).va));
    gm_freed_release(-1);
    assert_int_equal(n_released, 1);
    assert_int_equal(gm_freed_sums(1, 0).ready_bytes, 0);

    for (unsigned i = 1; i < GM_FREED_AHEAD_MAX; i++)
        gm_freed_arrive(range_ahead(i).va);
    gm_freed_miss(range_ahead(0).va);
    assert_false(gm_freed_has(range_ahead(0).va));
    sums = gm_freed_sums(1, 64 * MIB);
    assert_true(sums.coming == 0 && sums.ahead_bytes == GM_FREED_AHEAD_MAX / 2 * 64 * MIB);
    assert_int_equal(gm_freed_sums(1, 0).ready_bytes, sums.ahead_bytes);
    assert_true(gm_freed_take(1, 64 * MIB, &va));
    assert_int_equal(n_in_vain, 0);
    for (unsigned i = 1; i < GM_FREED_AHEAD_MAX; i++)
        if (range_ahead(i).va != va) {
            assert_true(take_away(range_ahead(i).va));
            assert_true(gm_freed_taken(range_ahead(i).va));
        }
    assert_int_equal(n_in_vain, GM_FREED_AHEAD_MAX - 2);
    assert_int_equal(gm_freed_sums(0, 64 * MIB).ahead_bytes, 0);
}

/* Who looks while others change them never finds what is not there, and what stays always. */
static _Atomic bool is_looking, is_wrong;

static void *look(void *unused)
{
    const uint64_t nowhere[] = {0x9000000, 0x1000000 - 1};
    (void)unused;
    while (is_looking)
        if (gm_freed_hold(nowhere, 2) || !gm_freed_has(0x1000000 + MIB))
            is_wrong = true;
    return NULL;
}

static void test_look_without_a_lock(void **state)
{
    pthread_t thread;
    uint64_t va;
    (void)state;
    put(0, 0x4000000, 4 * MIB); /* what changes has the places before it */
    put(0, 0x2000000, 6 * MIB);
    put(0, 0x1000000, 2 * MIB);
    assert_true(gm_freed_take(0, 4 * MIB, &va));
    assert_true(gm_freed_take(0, 6 * MIB, &va));
    is_looking = true;
    is_wrong = false;
    assert_int_equal(pthread_create(&thread, NULL, look, NULL), 0);
    for (int i = 0; i < ROUNDS; i++) {
        put(0, 0x4000000, 4 * MIB);
        put(0, 0x2000000, 6 * MIB);
        assert_true(gm_freed_take(0, 4 * MIB, &va));
        assert_true(gm_freed_take(0, 6 * MIB, &va));
        /* In one place, and with the size of the second the first would reach there. */
        put(0, 0x8000000, 4 * MIB);
        assert_true(gm_freed_take(0, 4 * MIB, &va));
        put(0, 0xa000000, 32 * MIB);
        assert_true(gm_freed_take(0, 32 * MIB, &va));
    }
    is_looking = false;
    pthread_join(thread, NULL);
    assert_false(is_wrong);
}

/* Many put and take, and the daemon takes as well: no range is given to two, and every one is taken
 * by the program or by the daemon, or released. */
#define THREADS 4
static _Atomic uint64_t n_put, n_taken, n_gone;
static _Atomic bool is_taking;

static void *turn(void *argument)
{
    const uint64_t mine = (uint64_t)(uintptr_t)argument;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t va;
        if (put(0, (mine * ROUNDS + i + 1) << 24, 2 * MIB))
            n_put++;
        if (i % 3 != 0 && gm_freed_take(0, 2 * MIB, &va))
            n_taken++;
    }
    return NULL;
}

static void *take_some(void *unused)
{
    (void)unused;
    for (uint32_t i = 0; is_taking; i = (i + 1) % GM_SPARES_MAX) {
        const uint64_t va = stat_area.spares[i] & ~(GM_CHUNK_MIN - 1);
        if (va != 0 && take_away(va)) {
            if (!gm_freed_taken(va))
                is_wrong = true;
            n_gone++;
        }
    }
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t threads[THREADS], daemon;
    (void)state;
    n_put = n_taken = n_gone = 0;
    is_taking = true;
    is_wrong = false;
    assert_int_equal(pthread_create(&daemon, NULL, take_some, NULL), 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, turn, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    if (put(0, 0x7000000000000, 2 * MIB)) /* one at least is there for the daemon */
        n_put++;
    while (n_gone == 0)
        sched_yield();
    is_taking = false;
    pthread_join(daemon, NULL);
    gm_freed_release(-1);
    assert_true(n_put > 0 && n_taken > 0 && n_gone > 0);
    assert_int_equal(n_put, n_taken + n_gone + n_released);
    assert_int_equal(released_bytes, n_released * 2 * MIB);
    assert_int_equal(n_ranges, n_gone + n_released);
    assert_int_equal(gm_freed_sums(0, 0).ready_bytes, 0);
    assert_false(is_wrong || gm_freed_exist());
}

#define case_of(test) cmocka_unit_test_setup_teardown(test, begin, end)

/* What waits for the GPU is nobody's to take, and no words are needed for it. */
static void test_waiting(void **state)
{
    static char marks[100]; /* the list does not look at them */
    uint64_t va;
    (void)state;
    for (uint64_t i = 0; i < 100; i++) {
        const struct gm_alloc alloc = {
            .va = 0x10000000 + i * 4 * MIB, .span = 4 * MIB, .kind = GM_ALLOC_CHUNKS};
        assert_true(gm_freed_await(&alloc, i % 2 == 0 ? GM_FREED_CAPTURE : GM_FREED_STREAM,
                                   (struct gm_mark *)(void *)&marks[i]));
    }
    assert_int_equal(gm_freed_n[GM_FREED_CAPTURE], 50);
    assert_true(gm_freed_are(GM_FREED_STREAM) && !gm_freed_exist());
    assert_false(gm_freed_has(0x10000000));
    assert_false(gm_freed_taken(0x10000000));
    assert_false(gm_freed_take(0, 4 * MIB, &va));
    assert_int_equal(gm_freed_sums(0, 0).ready_bytes, 0);
    assert_int_equal(gm_freed_sums(0, 4 * MIB).alike, 0);
    put(0, 0x1000000, 4 * MIB);
    gm_freed_release(-1);
    assert_int_equal(n_released, 1);

    /* Each is looked at once in a pass, by one thread at a time; some stay. */
    struct gm_freed *one = NULL, *other;
    bool is_over = false;
    unsigned n = 0;
    while ((one = gm_freed_next(GM_FREED_STREAM, one, is_over)) != NULL) {
        assert_true(one->why == GM_FREED_STREAM && one->alloc.span == 4 * MIB);
        assert_ptr_equal(one->mark, &marks[(one->alloc.va - 0x10000000) / (4 * MIB)]);
        is_over = n % 2 == 0;
        n++;
    }
    assert_int_equal(n, 50);
    assert_int_equal(gm_freed_n[GM_FREED_STREAM], 25);
    other = gm_freed_next(GM_FREED_STREAM, NULL, false);
    n = 0;
    while ((one = gm_freed_next(GM_FREED_STREAM, one, n > 0)) != NULL)
        n++;
    assert_int_equal(n, 24); /* all but the one that is still looked at */
    assert_null(gm_freed_next(GM_FREED_STREAM, other, true));
    is_over = false;
    while ((one = gm_freed_next(GM_FREED_CAPTURE, one, is_over)) != NULL)
        is_over = true;
    assert_false(gm_freed_are(GM_FREED_STREAM) || gm_freed_are(GM_FREED_CAPTURE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        case_of(test_same_size_and_gpu),
        case_of(test_number),
        case_of(test_what_is_not_kept),
        case_of(test_daemon_takes),
        case_of(test_words_differ),
        case_of(test_lost),
        case_of(test_addresses),
        case_of(test_release_beside_puts),
        case_of(test_ahead),
        case_of(test_look_without_a_lock),
        case_of(test_threads),
        case_of(test_waiting),
    };
    return cmocka_run_group_tests_name("freed", tests, NULL, NULL);
}
