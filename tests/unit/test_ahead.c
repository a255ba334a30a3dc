/* Memory ahead. The test is the driver that reserves ranges, the link, and the spares. */
#include "shim/memory/ahead.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "common/clock.h"
#include "shim/driver/real.h"
#include "shim/gate/drain.h"
#include "shim/link/link.h"
#include "shim/map/mapper.h"
#include "shim/memory/freed.h"

#define MIB (1ull << 20)
#define BUDGET (2048 * MIB) /* one range of 32 MiB at most, 128 MiB in all */
#define ASKED_MOST 64u

struct gm_real gm_real;

static uint64_t now; /* of the program's allocations */
static struct asked {
    uint64_t va, bytes;
    uint32_t gpu;
} asked[ASKED_MOST];
static uint32_t n_asked, n_reserved, n_unmapped;
static _Atomic uint32_t *last_in_vain;
static bool is_lost, is_full;

/* Spares: those that are to come, and those that are there. */
static struct spare {
    uint64_t va, span;
    int32_t gpu;
    bool is_here;
} spares[ASKED_MOST];
static _Atomic uint32_t n_spares;
static _Atomic uint32_t n_came;
static pthread_mutex_t spares_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult reserve(CUdeviceptr *va, size_t bytes, size_t alignment, CUdeviceptr where,
                        unsigned long long flags)
{
    static CUdeviceptr next = 0x10000000000;
    (void)alignment, (void)where, (void)flags;
    if (is_full)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *va = next;
    next += bytes;
    n_reserved++;
    return CUDA_SUCCESS;
}

static CUresult give_range_back(CUdeviceptr va, size_t bytes)
{
    assert_true(va != 0 && bytes != 0);
    n_reserved--;
    return CUDA_SUCCESS;
}

uint64_t gm_link_budget(uint32_t gpu)
{
    return gpu == 0 ? BUDGET : 0;
}

int gm_link_alloc_ahead(uint64_t va, uint64_t bytes, uint32_t gpu)
{
    if (is_lost)
        return -ENOTCONN;
    assert_true(n_asked < ASKED_MOST);
    asked[n_asked++] = (struct asked){va, bytes, gpu};
    return 0;
}

CUresult gm_mapper_release(uint64_t va, uint64_t bytes)
{
    (void)va, (void)bytes;
    n_unmapped++;
    return CUDA_SUCCESS;
}

bool gm_freed_expect(const struct gm_alloc *alloc, _Atomic uint32_t *in_vain)
{
    last_in_vain = in_vain;
    assert_int_equal(alloc->kind, GM_ALLOC_CHUNKS);
    assert_int_equal(alloc->span, alloc->bytes);
    if (n_spares == GM_FREED_AHEAD_MAX)
        return false;
    spares[n_spares] = (struct spare){.va = alloc->va, .span = alloc->span, .gpu = alloc->gpu};
    n_spares++;
    return true;
}

static struct spare *find(uint64_t va)
{
    for (uint32_t i = 0; i < n_spares; i++)
        if (spares[i].va == va && !spares[i].is_here)
            return &spares[i];
    fail_msg("nobody expects it");
    return NULL;
}

void gm_freed_arrive(uint64_t va)
{
    pthread_mutex_lock(&spares_lock);
    find(va)->is_here = true;
    pthread_mutex_unlock(&spares_lock);
    n_came++;
}

void gm_freed_miss(uint64_t va)
{
    *find(va) = spares[n_spares - 1];
    n_spares--;
}

struct gm_freed_sums gm_freed_sums(int32_t gpu, uint64_t span)
{
    struct gm_freed_sums sums = {0};
    pthread_mutex_lock(&spares_lock);
    for (uint32_t i = 0; i < n_spares; i++) {
        sums.coming += !spares[i].is_here;
        sums.alike += spares[i].gpu == gpu && spares[i].span == span;
        sums.ahead_bytes += spares[i].gpu == gpu ? spares[i].span : 0;
    }
    pthread_mutex_unlock(&spares_lock);
    return sums;
}

/* The program takes all spares that are there. */
static void take(void)
{
    for (uint32_t i = n_spares; i-- > 0;) {
        if (!spares[i].is_here)
            continue;
        spares[i] = spares[n_spares - 1];
        n_spares--;
    }
}

/* The daemon answers the question `i`. */
static void answer(uint32_t i, int result)
{
    gm_ahead_come(asked[i].va, asked[i].bytes, result);
}

static void grow(uint64_t bytes)
{
    now += GM_MS;
    gm_ahead_note(0, bytes, false, now);
}

static int begin(void **state)
{
    (void)state;
    gm_real.cuMemAddressReserve = reserve;
    gm_real.cuMemAddressFree = give_range_back;
    for (uint64_t size = 2; size <= 34; size += 2)
        gm_ahead_note_free(0, size * MIB); /* none of them comes again */
    now += 1000 * GM_S + gm_now();
    n_asked = n_reserved = n_unmapped = n_came = n_spares = 0;
    is_lost = is_full = false;
    return 0;
}

/* What comes again is asked for, and is a spare when it comes. */
static void test_again(void **state)
{
    (void)state;
    grow(8 * MIB);
    assert_int_equal(n_asked, 0);
    grow(8 * MIB);
    assert_int_equal(n_asked, 1);
    assert_int_equal(asked[0].bytes, 8 * MIB);
    assert_int_equal(n_reserved, 1);
    assert_int_equal(n_spares, 1);
    assert_int_equal(spares[0].va, asked[0].va);
    answer(0, 0);
    assert_true(spares[0].is_here);
    assert_int_equal(n_reserved, 1);
    /* Not for a size that came long ago, nor for one of which something was freed since. */
    take();
    now += 100 * GM_MS;
    grow(8 * MIB);
    assert_int_equal(n_asked, 1);
    gm_ahead_note_free(0, 8 * MIB);
    grow(8 * MIB);
    assert_int_equal(n_asked, 1);
    gm_ahead_note_free(0, 4 * MIB);
    gm_ahead_note_free(1, 8 * MIB);
    grow(8 * MIB);
    assert_int_equal(n_asked, 2);
    answer(1, 0);
}

/* Sizes in turn, as in a model's layers; each of them is known by itself. */
static void test_sizes(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 2; round++)
        for (uint64_t size = 1; size <= 8; size++)
            grow(2 * size * MIB);
    assert_int_equal(n_asked, 8);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(asked[i].bytes, 2 * (i + 1) * MIB);
    for (uint32_t i = 0; i < 8; i++)
        answer(i, 0);
    take();
    /* Another is remembered instead of the oldest. */
    grow(30 * MIB);
    assert_int_equal(n_asked, 8);
    grow(30 * MIB);
    assert_int_equal(n_asked, 9);
    grow(2 * MIB);
    assert_int_equal(n_asked, 9);
    grow(16 * MIB);
    assert_int_equal(n_asked, 10);
    answer(8, 0);
    answer(9, 0);
}

/* Of one size, and in all. */
static void test_limits(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++)
        grow(8 * MIB);
    assert_int_equal(n_asked, GM_AHEAD_EACH);
    answer(0, 0);
    grow(8 * MIB);
    assert_int_equal(n_asked, GM_AHEAD_EACH);
    take();
    grow(8 * MIB);
    assert_int_equal(n_asked, GM_AHEAD_EACH + 1);
    answer(1, 0);
    answer(2, 0);
    take();

    /* None that is large for the budget, and not more than a part of it together. */
    grow(34 * MIB);
    grow(34 * MIB);
    assert_int_equal(n_asked, 3);
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t k = 0; k < 4; k++)
            grow((28 + 2 * i) * MIB);
    assert_int_equal(n_asked, 3 + 4); /* 28, 28, 30, 30: 12 MiB are left */
    for (uint32_t i = 3; i < n_asked; i++)
        answer(i, 0);
    grow(8 * MIB);
    assert_int_equal(n_asked, 7 + 1); /* what is there counts as well */
    grow(8 * MIB);
    assert_int_equal(n_asked, 7 + 1);
    assert_int_equal(n_reserved, 8);
    answer(7, 0);

    /* On a GPU without a budget there is nothing to have. */
    gm_ahead_note(1, 2 * MIB, false, ++now);
    gm_ahead_note(1, 2 * MIB, false, ++now);
    assert_int_equal(n_asked, 8);
}

/* There is no room for more ranges: nothing is left behind. */
static void test_number(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4; k++)
        for (uint64_t size = 1; size <= 5; size++)
            grow(2 * size * MIB);
    assert_int_equal(n_asked, GM_FREED_AHEAD_MAX);
    assert_int_equal(n_reserved, GM_FREED_AHEAD_MAX);
    for (uint32_t i = 0; i < GM_FREED_AHEAD_MAX; i++)
        answer(i, 0);
}

/* Refused: the range goes back, and for a while nothing is asked. */
static void test_refused(void **state)
{
    (void)state;
    now = gm_now(); /* the rest begins when the answer comes */
    grow(4 * MIB);
    grow(4 * MIB);
    assert_int_equal(n_asked, 1);
    answer(0, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(n_reserved, 0);
    assert_int_equal(n_spares, 0);
    now = gm_now();
    grow(4 * MIB);
    assert_int_equal(n_asked, 1);
    now += 500 * GM_MS;
    grow(4 * MIB);
    grow(4 * MIB);
    assert_int_equal(n_asked, 2);
    answer(1, 0);
}

/* No range, no daemon, and one that is lost with what is mapped: nothing is left behind. */
static void test_lost(void **state)
{
    (void)state;
    is_full = true;
    grow(4 * MIB);
    grow(4 * MIB);
    is_full = false;
    assert_int_equal(n_asked, 0);
    assert_int_equal(n_reserved, 0);
    now += 500 * GM_MS;
    is_lost = true;
    grow(4 * MIB);
    assert_int_equal(n_reserved, 0);
    is_lost = false;
    now += 500 * GM_MS;
    grow(4 * MIB);
    grow(4 * MIB);
    assert_int_equal(n_asked, 1);
    answer(0, -ENOTCONN);
    assert_int_equal(n_unmapped, 1);
    assert_int_equal(n_reserved, 0);
    gm_ahead_settle(); /* nothing is on its way */
}

/* None where it would wait for so long that the daemon takes it back. */
static void test_pace(void **state)
{
    (void)state;
    grow(4 * MIB);
    now += 39 * GM_MS;
    grow(4 * MIB);
    assert_int_equal(n_asked, 1);
    answer(0, 0);
    take();
    now += 59 * GM_MS;
    grow(4 * MIB);
    assert_int_equal(n_asked, 1);
    grow(4 * MIB);
    assert_int_equal(n_asked, 2);
    answer(1, 0);
}

/* What nobody took: each time in a row more are let pass, until one is taken. */
static void test_in_vain(void **state)
{
    uint32_t n = 0;
    (void)state;
    grow(6 * MIB);
    for (uint32_t passed = 0; passed < 100; n++) {
        while (n_asked == n) {
            grow(6 * MIB);
            passed++;
        }
        answer(n, 0);
        take();
        (*last_in_vain)++;
    }
    assert_true(n >= 7 && n <= 8); /* after 1, 3, 7, 15 and then 31 */
    now += GM_MS;
    gm_ahead_note(0, 6 * MIB, true, now);
    assert_int_equal(n_asked, n + 1);
    answer(n, 0);
}

static void *answer_later(void *unused)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    (void)unused;
    nanosleep(&pause, NULL);
    answer(0, 0);
    return NULL;
}

/* Out of memory: what is on its way is waited for, and no more is asked for. */
static void test_settle(void **state)
{
    pthread_t thread;
    (void)state;
    const uint64_t before = gm_now(); /* the rest, which begins later, lasts beyond that */
    now = gm_now() + 200 * GM_MS;     /* the rest of a test before is over */
    grow(4 * MIB);
    grow(4 * MIB);
    assert_int_equal(n_asked, 1);
    assert_int_equal(pthread_create(&thread, NULL, answer_later, NULL), 0);
    gm_ahead_settle();
    assert_int_equal(n_came, 1);
    pthread_join(thread, NULL);
    take();
    now = before;
    grow(4 * MIB);
    grow(4 * MIB);
    assert_int_equal(n_asked, 1);
    now = gm_now() + 200 * GM_MS;
    grow(4 * MIB);
    grow(4 * MIB);
    assert_int_equal(n_asked, 2);
    answer(1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_again, begin),   cmocka_unit_test_setup(test_sizes, begin),
        cmocka_unit_test_setup(test_limits, begin),  cmocka_unit_test_setup(test_refused, begin),
        cmocka_unit_test_setup(test_lost, begin),    cmocka_unit_test_setup(test_settle, begin),
        cmocka_unit_test_setup(test_pace, begin),    cmocka_unit_test_setup(test_number, begin),
        cmocka_unit_test_setup(test_in_vain, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
