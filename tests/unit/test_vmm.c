/*
 * shim/vmm: lives of handles, what is refused as the driver refuses it, what is counted, and a long
 * random life beside a model that is too simple to be wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>

#include "common/chunk.h"
#include "shim/tables/accounts.h"
#include "shim/tables/vmm.h"

#define MIB (1ull << 20)
#define PAGE GM_CHUNK_MIN
#define RANGE (0x7000ull << 32)
#define HOME (0x7800ull << 32)

static int64_t charged; /* bytes of the real driver's handles */

void gm_charge_real(int32_t gpu, uint64_t bytes, bool is_on)
{
    assert_int_equal(gpu, 3);
    charged += is_on ? (int64_t)bytes : -(int64_t)bytes;
}

static struct gm_vmm_counts count(void)
{
    struct gm_vmm_counts counts;
    gm_vmm_count(&counts);
    return counts;
}

static void expect_empty(void)
{
    struct gm_vmm_counts counts = count();
    assert_int_equal(counts.handles, 0);
    assert_int_equal(counts.views, 0);
    assert_int_equal(counts.real_handles, 0);
    assert_int_equal(counts.real_mappings, 0);
    assert_int_equal(counts.reservations, 0);
    assert_int_equal(charged, 0);
}

static struct gm_vmm_handle *make(uint64_t home, uint64_t bytes)
{
    struct gm_vmm_handle made = {.home = home, .bytes = bytes, .device = 1, .gpu = 0};
    made.prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    struct gm_vmm_handle *handle = gm_vmm_create(&made);
    assert_non_null(handle);
    return handle;
}

static CUresult view(uint64_t value, uint64_t va, uint64_t bytes)
{
    struct gm_vmm_view *made;
    return gm_vmm_add_view(value, va, bytes, 0, &made);
}

static void test_life_of_handles(void **state)
{
    struct gm_vmm_handle *handle = make(HOME, 4 * PAGE), *dead, copy;
    struct gm_vmm_taken taken;
    uint64_t value = handle->value, again;
    (void)state;
    assert_true(gm_vmm_is_virtual(value));
    assert_false(gm_vmm_is_virtual(0));
    assert_false(gm_vmm_is_virtual(0x7fff12345678ull));
    assert_true(gm_vmm_look(value, &copy));
    assert_int_equal(copy.bytes, 4 * PAGE);
    assert_ptr_equal(gm_vmm_home(HOME + 4 * PAGE - 1), handle);
    assert_null(gm_vmm_home(HOME + 4 * PAGE));

    /* A reference, and then none: it is dead at once. */
    assert_int_equal(gm_vmm_release(value, &dead), CUDA_SUCCESS);
    assert_ptr_equal(dead, handle);
    assert_int_equal(gm_vmm_release(value, &dead), CUDA_ERROR_INVALID_VALUE);
    assert_null(dead);
    assert_ptr_equal(gm_vmm_home(HOME), handle); /* until it is buried */
    gm_vmm_bury(handle);
    assert_null(gm_vmm_home(HOME));
    assert_false(gm_vmm_look(value, &copy));

    /* The struct is used again, under another value; the old one stays unknown. */
    handle = make(HOME, 2 * PAGE);
    assert_int_not_equal(handle->value, value);
    assert_int_equal(gm_vmm_release(value, &dead), CUDA_ERROR_INVALID_VALUE);
    value = handle->value;

    /* Views keep it, and its value; a retain gives it a reference again. */
    gm_vmm_reserve(RANGE, 16 * PAGE);
    assert_int_equal(view(value, RANGE, 2 * PAGE), CUDA_SUCCESS);
    assert_int_equal(view(value, RANGE + 4 * PAGE, 2 * PAGE), CUDA_SUCCESS);
    assert_int_equal(gm_vmm_release(value, &dead), CUDA_SUCCESS);
    assert_null(dead);
    assert_int_equal(gm_vmm_release(value, &dead), CUDA_ERROR_INVALID_VALUE);
    assert_true(gm_vmm_look(value, &copy));
    assert_int_equal(view(value, RANGE + 8 * PAGE, 2 * PAGE), CUDA_SUCCESS);
    assert_true(gm_vmm_take(RANGE + 8 * PAGE, 2 * PAGE, &taken));
    assert_null(taken.dead);
    assert_true(gm_vmm_take(RANGE, 2 * PAGE, &taken));
    assert_true(taken.is_virtual);
    assert_null(taken.dead);
    assert_true(gm_vmm_retain(RANGE + 5 * PAGE, &again));
    assert_int_equal(again, value);
    assert_false(gm_vmm_retain(RANGE, &again));
    assert_int_equal(view(value, RANGE, 2 * PAGE), CUDA_SUCCESS);
    assert_int_equal(gm_vmm_release(value, &dead), CUDA_SUCCESS);
    assert_null(dead);
    assert_true(gm_vmm_take(RANGE, 16 * PAGE, &taken));
    assert_int_equal(taken.view.va, RANGE);
    assert_null(taken.dead);
    assert_true(gm_vmm_take(RANGE, 16 * PAGE, &taken));
    assert_int_equal(taken.view.va, RANGE + 4 * PAGE);
    assert_ptr_equal(taken.dead, handle);
    assert_false(gm_vmm_take(RANGE, 16 * PAGE, &taken));
    gm_vmm_bury(handle);
    assert_true(gm_vmm_unreserve(RANGE, 16 * PAGE));
    expect_empty();
}

static void test_refusals(void **state)
{
    struct gm_vmm_handle *handle = make(HOME, 2 * PAGE), *dead;
    struct gm_vmm_taken taken;
    struct gm_vmm_view *made;
    uint64_t value = handle->value;
    (void)state;
    assert_int_equal(view(value, RANGE, 2 * PAGE), CUDA_ERROR_INVALID_VALUE); /* not reserved */
    gm_vmm_reserve(RANGE, 3 * PAGE);
    gm_vmm_reserve(RANGE + 3 * PAGE, PAGE); /* beside it */
    assert_int_equal(view(value, RANGE, PAGE), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(view(value, RANGE, 3 * PAGE), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(gm_vmm_add_view(value, RANGE, PAGE, PAGE, &made), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(view(value + 1, RANGE, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(view(GM_VMM_TAG << 48 | 77, RANGE, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(view(12345, RANGE, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(view(value, RANGE + 3 * PAGE, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(view(value, RANGE + 2 * PAGE, 2 * PAGE), CUDA_SUCCESS); /* over both */
    assert_int_equal(view(value, RANGE + PAGE, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);

    assert_true(gm_vmm_is_whole(RANGE, 4 * PAGE, false));
    assert_false(gm_vmm_is_whole(RANGE, 4 * PAGE, true));
    assert_true(gm_vmm_is_whole(RANGE + 2 * PAGE, 2 * PAGE, true));
    assert_false(gm_vmm_is_whole(RANGE + 2 * PAGE, 3 * PAGE, true));
    assert_false(gm_vmm_is_whole(RANGE + 3 * PAGE, PAGE, false));
    assert_false(gm_vmm_is_whole(RANGE, 3 * PAGE, false));
    assert_true(gm_vmm_is_whole(RANGE, PAGE, false));
    assert_false(gm_vmm_is_whole(RANGE, PAGE, true));
    assert_true(gm_vmm_has_views(RANGE, 3 * PAGE));
    assert_false(gm_vmm_has_views(RANGE, 2 * PAGE));
    assert_false(gm_vmm_take(RANGE + 3 * PAGE, PAGE, &taken)); /* it begins before */

    assert_false(gm_vmm_unreserve(RANGE, 2 * PAGE));
    assert_false(gm_vmm_unreserve(RANGE + PAGE, 2 * PAGE));

    assert_true(gm_vmm_take(RANGE, 4 * PAGE, &taken));
    assert_int_equal(gm_vmm_release(value, &dead), CUDA_SUCCESS);
    gm_vmm_bury(dead);
    assert_true(gm_vmm_unreserve(RANGE, 3 * PAGE));
    assert_true(gm_vmm_unreserve(RANGE + 3 * PAGE, PAGE));
    expect_empty();
}

static void test_access_and_places(void **state)
{
    struct gm_vmm_handle *handle = make(HOME, 2 * PAGE), *dead;
    struct gm_vmm_taken taken;
    struct gm_vmm_place place;
    unsigned long long flags = 99;
    (void)state;
    gm_vmm_reserve(RANGE, 8 * PAGE);
    assert_int_equal(view(handle->value, RANGE + 2 * PAGE, 2 * PAGE), CUDA_SUCCESS);
    assert_int_equal(view(handle->value, RANGE + 4 * PAGE, 2 * PAGE), CUDA_SUCCESS);
    assert_true(gm_vmm_get_access(RANGE + 2 * PAGE, 1, &flags));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    gm_vmm_set_access(RANGE + 4 * PAGE, 2 * PAGE, 1, CU_MEM_ACCESS_FLAGS_PROT_READ);
    gm_vmm_set_access(RANGE + 4 * PAGE, 2 * PAGE, GM_VMM_DEVICES, 3); /* nobody's */
    assert_true(gm_vmm_get_access(RANGE + 3 * PAGE, 1, &flags));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    assert_true(gm_vmm_get_access(RANGE + 5 * PAGE, 1, &flags));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
    assert_true(gm_vmm_get_access(RANGE + 5 * PAGE, 0, &flags));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    assert_false(gm_vmm_get_access(RANGE, 1, &flags));

    assert_true(gm_vmm_find(RANGE + 5 * PAGE + 12, &place));
    assert_int_equal(place.va, RANGE + 4 * PAGE);
    assert_int_equal(place.bytes, 2 * PAGE);
    assert_int_equal(place.range, RANGE);
    assert_int_equal(place.range_bytes, 8 * PAGE);
    assert_int_equal(place.home, HOME + PAGE + 12);
    assert_int_equal(place.value, handle->value);
    assert_int_equal(place.device, 1);
    assert_int_equal(place.access, CU_MEM_ACCESS_FLAGS_PROT_READ);
    assert_int_equal(place.handle_types, 1);
    assert_false(gm_vmm_find(RANGE + 6 * PAGE, &place));
    assert_false(gm_vmm_find(HOME, &place)); /* nothing is mapped at a home */

    while (gm_vmm_take(RANGE, 8 * PAGE, &taken))
        continue;
    assert_int_equal(gm_vmm_release(handle->value, &dead), CUDA_SUCCESS);
    gm_vmm_bury(dead);
    assert_true(gm_vmm_unreserve(RANGE, 8 * PAGE));
    expect_empty();
}

/* The driver's own handles are counted while they or a mapping of them live. */
static void test_real_ones(void **state)
{
    struct gm_vmm_handle *handle = make(HOME, PAGE), *dead;
    struct gm_vmm_taken taken;
    (void)state;
    gm_vmm_reserve(RANGE, 8 * PAGE);
    gm_vmm_note_real(1000, 4 * PAGE, 3);
    gm_vmm_note_real(1000, 4 * PAGE, 3); /* twice: it cannot be another */
    gm_vmm_note_real(1001, 2 * PAGE, 3);
    assert_int_equal(charged, 6 * PAGE);
    gm_vmm_release_real(1001);
    gm_vmm_release_real(1001);
    gm_vmm_release_real(55);
    assert_int_equal(charged, 4 * PAGE);
    assert_int_equal(gm_vmm_map_real(1000, RANGE, 4 * PAGE), CUDA_SUCCESS);
    assert_int_equal(gm_vmm_map_real(77, RANGE + 5 * PAGE, PAGE), CUDA_SUCCESS); /* an import */
    assert_int_equal(gm_vmm_map_real(1000, RANGE + 2 * PAGE, 4 * PAGE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(view(handle->value, RANGE + 3 * PAGE, PAGE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(view(handle->value, RANGE + 4 * PAGE, PAGE), CUDA_SUCCESS);
    assert_int_equal(gm_vmm_map_real(77, RANGE + 4 * PAGE, PAGE), CUDA_ERROR_INVALID_VALUE);
    assert_true(gm_vmm_is_whole(RANGE, 6 * PAGE, true));
    assert_false(gm_vmm_has_views(RANGE, 4 * PAGE));
    assert_true(gm_vmm_has_views(RANGE, 5 * PAGE));
    gm_vmm_release_real(1000);
    assert_int_equal(charged, 4 * PAGE); /* the mapping keeps it */
    gm_vmm_release_real(1000);           /* which the driver refuses */
    gm_vmm_retain_real(1000);
    assert_true(gm_vmm_take(RANGE, 4 * PAGE, &taken));
    assert_false(taken.is_virtual);
    assert_int_equal(charged, 4 * PAGE);
    gm_vmm_release_real(1000);
    assert_int_equal(charged, 0);
    while (gm_vmm_take(RANGE, 8 * PAGE, &taken))
        continue;
    assert_int_equal(gm_vmm_release(handle->value, &dead), CUDA_SUCCESS);
    gm_vmm_bury(dead);
    assert_true(gm_vmm_unreserve(RANGE, 8 * PAGE));
    expect_empty();
}

/* ---- a random life ---- */

#define SPACE 256u /* pages of one reservation */
#define MOST 24u

static uint64_t seed = 1;
static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (seed >> 33) % below;
}

static void test_random_life(void **state)
{
    static int owner[SPACE];     /* which model handle is mapped in a page; -1: none */
    static bool is_start[SPACE]; /* of a mapping */
    struct {
        struct gm_vmm_handle *handle; /* NULL: free */
        uint64_t value, pages;
        unsigned refs, views;
    } model[MOST] = {0};
    (void)state;
    for (unsigned i = 0; i < SPACE; i++)
        owner[i] = -1;
    gm_vmm_reserve(RANGE, SPACE * PAGE);
    for (int step = 0; step < 60000; step++) {
        unsigned m = (unsigned)draw(MOST);
        uint64_t at = draw(SPACE), value;
        struct gm_vmm_handle *dead;
        switch (draw(5)) {
        case 0:
            if (model[m].handle != NULL)
                break;
            model[m].pages = 1 + draw(9);
            model[m].handle = make(HOME + m * 64 * PAGE, model[m].pages * PAGE);
            model[m].value = model[m].handle->value;
            model[m].refs = 1;
            model[m].views = 0;
            break;
        case 1: {
            if (model[m].handle == NULL)
                break;
            bool is_good = at + model[m].pages <= SPACE;
            for (uint64_t i = at; i < at + model[m].pages && is_good; i++)
                is_good = owner[i] < 0;
            CUresult result = view(model[m].value, RANGE + at * PAGE, model[m].pages * PAGE);
            assert_int_equal(result, is_good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
            for (uint64_t i = at; i < at + model[m].pages && is_good; i++) {
                owner[i] = (int)m;
                is_start[i] = i == at;
            }
            model[m].views += is_good;
            break;
        }
        case 2: {
            uint64_t n = 1 + draw(SPACE - at);
            bool is_whole = (owner[at] < 0 || is_start[at]) &&
                            (at + n == SPACE || owner[at + n] < 0 || is_start[at + n]);
            bool is_filled = is_whole;
            for (uint64_t i = at; i < at + n; i++)
                is_filled = is_filled && owner[i] >= 0;
            assert_int_equal(gm_vmm_is_whole(RANGE + at * PAGE, n * PAGE, false), is_whole);
            assert_int_equal(gm_vmm_is_whole(RANGE + at * PAGE, n * PAGE, true), is_filled);
            struct gm_vmm_taken taken;
            while (is_whole && gm_vmm_take(RANGE + at * PAGE, n * PAGE, &taken)) {
                uint64_t page = (taken.view.va - RANGE) / PAGE;
                int who = owner[page];
                assert_true(who >= 0 && is_start[page] && page >= at && page < at + n);
                for (uint64_t i = 0; i < model[who].pages; i++)
                    owner[page + i] = -1;
                model[who].views--;
                bool is_dead = model[who].views == 0 && model[who].refs == 0;
                assert_ptr_equal(taken.dead, is_dead ? model[who].handle : NULL);
                if (is_dead) {
                    gm_vmm_bury(model[who].handle);
                    model[who].handle = NULL;
                }
            }
            for (uint64_t i = at; i < at + n && is_whole; i++)
                assert_true(owner[i] < 0);
            break;
        }
        case 3:
            if (model[m].handle == NULL)
                break;
            assert_int_equal(gm_vmm_release(model[m].value, &dead),
                             model[m].refs > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
            if (model[m].refs > 0 && --model[m].refs == 0 && model[m].views == 0) {
                assert_ptr_equal(dead, model[m].handle);
                gm_vmm_bury(dead);
                model[m].handle = NULL;
            } else {
                assert_null(dead);
            }
            break;
        default: {
            bool is_mapped = gm_vmm_retain(RANGE + at * PAGE + 5, &value);
            assert_int_equal(is_mapped, owner[at] >= 0);
            if (is_mapped) {
                assert_int_equal(value, model[owner[at]].value);
                model[owner[at]].refs++;
            }
        }
        }
    }
    /* Everything goes, and nothing is left. */
    for (unsigned m = 0; m < MOST; m++) {
        struct gm_vmm_handle *dead = NULL;
        while (model[m].handle != NULL && model[m].refs > 0) {
            assert_int_equal(gm_vmm_release(model[m].value, &dead), CUDA_SUCCESS);
            model[m].refs--;
        }
        if (dead != NULL)
            gm_vmm_bury(dead);
    }
    struct gm_vmm_taken taken;
    while (gm_vmm_take(RANGE, SPACE * PAGE, &taken))
        if (taken.dead != NULL)
            gm_vmm_bury(taken.dead);
    assert_true(gm_vmm_unreserve(RANGE, SPACE * PAGE));
    expect_empty();
}

/* Threads that make, retain, release and ask, beside one that maps (as the link thread does). */
static _Atomic bool is_over;

static void *churn(void *argument)
{
    uint64_t home = HOME + (uint64_t)(uintptr_t)argument * 64 * PAGE;
    for (unsigned i = 0; !is_over || i < 1000; i++) {
        struct gm_vmm_handle made = {.home = home, .bytes = PAGE, .gpu = 0}, *dead = NULL, copy;
        struct gm_vmm_handle *handle = gm_vmm_create(&made);
        struct gm_vmm_place place;
        unsigned long long flags;
        uint64_t value = handle->value, other;
        gm_vmm_look(value, &copy);
        gm_vmm_home(HOME);
        gm_vmm_find(RANGE, &place);
        gm_vmm_get_access(RANGE, 0, &flags);
        if (gm_vmm_retain(RANGE, &other))
            gm_vmm_release(other, &dead);
        if (dead != NULL || gm_vmm_release(value, &dead) != CUDA_SUCCESS || dead != handle)
            abort();
        gm_vmm_bury(handle);
    }
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t thread[3];
    struct gm_vmm_handle *handle = make(HOME, PAGE), *dead;
    struct gm_vmm_taken taken;
    (void)state;
    gm_vmm_reserve(RANGE, PAGE);
    for (uintptr_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, churn, (void *)(i + 1)), 0);
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(view(handle->value, RANGE, PAGE), CUDA_SUCCESS);
        gm_vmm_set_access(RANGE, PAGE, 0, 3);
        assert_true(gm_vmm_take(RANGE, PAGE, &taken));
        assert_null(taken.dead);
    }
    is_over = true;
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(gm_vmm_release(handle->value, &dead), CUDA_SUCCESS);
    gm_vmm_bury(dead);
    assert_true(gm_vmm_unreserve(RANGE, PAGE));
    expect_empty();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life_of_handles),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_access_and_places), cmocka_unit_test(test_real_ones),
        cmocka_unit_test(test_random_life),       cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("vmm", tests, NULL, NULL);
}
