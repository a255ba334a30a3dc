/* The allocation map against a model: an array that is searched from end to end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/chunk.h"
#include "shim/tables/allocs.h"
#include "shim/tables/pages.h"

#define MODEL_MAX 400
#define PAGE GM_CHUNK_MIN

static struct gm_alloc model[MODEL_MAX];
static size_t model_count;
static unsigned seed = 1;

static unsigned dice(unsigned sides)
{
    return (unsigned)rand_r(&seed) % sides;
}

static bool overlaps(const struct gm_alloc *a, const struct gm_alloc *b)
{
    return a->va < b->va + b->span && b->va < a->va + a->span;
}

static void model_remove(size_t i)
{
    model[i] = model[--model_count];
}

static int model_insert(const struct gm_alloc *alloc)
{
    int error = 0;
    for (size_t i = 0; i < model_count; i++)
        if (overlaps(&model[i], alloc) && model[i].kind == GM_ALLOC_CHUNKS)
            error = -EEXIST;
    if (error != 0)
        return error;
    for (size_t i = 0; i < model_count;) {
        if (overlaps(&model[i], alloc))
            model_remove(i);
        else
            i++;
    }
    model[model_count] = *alloc;
    if (alloc->home == 0)
        model[model_count].home = alloc->va;
    model_count++;
    return 0;
}

static enum gm_alloc_find model_find(uint64_t va, size_t *at)
{
    for (size_t i = 0; i < model_count; i++) {
        if (va < model[i].va || va - model[i].va >= model[i].bytes)
            continue;
        *at = i;
        return va == model[i].va ? GM_ALLOC_BASE : GM_ALLOC_INSIDE;
    }
    return GM_ALLOC_UNKNOWN;
}

/* What the pages must say of the place at `va`. */
static uint64_t model_home(uint64_t va)
{
    for (size_t i = 0; i < model_count; i++)
        if (va >= model[i].va && va - model[i].va < model[i].span)
            return model[i].kind != GM_ALLOC_REAL ? model[i].home + (va - model[i].va) : 0;
    return 0;
}

static uint64_t model_used(int gpu)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < model_count; i++)
        if (model[i].gpu == gpu)
            bytes += model[i].span;
    return bytes;
}

static void same(const struct gm_alloc *a, const struct gm_alloc *b)
{
    assert_int_equal(a->va, b->va);
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->span, b->span);
    assert_ptr_equal(a->context, b->context);
    assert_int_equal(a->device, b->device);
    assert_int_equal(a->gpu, b->gpu);
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->is_primary, b->is_primary);
}

static bool has_context_3(const struct gm_alloc *alloc)
{
    return alloc->context != (void *)3;
}

static void test_random_against_model(void **state)
{
    struct gm_alloc alloc, got;
    size_t at = 0;
    (void)state;
    for (int step = 0; step < 200000; step++) {
        uint64_t va = (1 + dice(4000)) * PAGE;
        switch (dice(5)) {
        case 0:
        case 1:
            if (model_count == MODEL_MAX)
                break;
            alloc = (struct gm_alloc){
                .va = va,
                .span = (1 + dice(30)) * PAGE,
                .context = (void *)(uintptr_t)(1 + dice(4)),
                .device = (int32_t)dice(3),
                .gpu = (int32_t)dice(3) - 1,
                .kind = dice(2) ? GM_ALLOC_CHUNKS : GM_ALLOC_REAL,
                .is_primary = dice(2) == 0,
            };
            alloc.bytes = alloc.span - dice(PAGE);
            alloc.home = dice(4) == 0 ? (5000 + dice(3000)) * PAGE : 0;
            assert_int_equal(gm_allocs_insert(&alloc), model_insert(&alloc));
            break;
        case 2:
            va += dice(PAGE);
            assert_int_equal(gm_allocs_find(va, &got), model_find(va, &at));
            if (model_find(va, &at) != GM_ALLOC_UNKNOWN)
                same(&got, &model[at]);
            break;
        case 3:
            if (model_count > 0 && dice(2) == 0)
                va = model[dice((unsigned)model_count)].va;
            enum gm_alloc_find found = model_find(va, &at);
            assert_int_equal(gm_allocs_take(va, &got), found);
            if (found != GM_ALLOC_UNKNOWN)
                same(&got, &model[at]);
            if (found == GM_ALLOC_BASE)
                model_remove(at);
            break;
        default:
            if (dice(200) != 0)
                break;
            /* A context dies, or the primary context of a device. */
            void *context = dice(2) ? (void *)(uintptr_t)(1 + dice(4)) : NULL;
            int32_t device = (int32_t)dice(3);
            size_t taken = 0, expected = 0;
            for (size_t i = 0; i < model_count;) {
                bool is_of = context != NULL ? model[i].context == context
                                             : model[i].is_primary && model[i].device == device;
                expected += is_of;
                if (is_of)
                    model_remove(i);
                else
                    i++;
            }
            while (gm_allocs_take_of(context, device, &got)) {
                assert_true(context != NULL ? got.context == context
                                            : got.is_primary && got.device == device);
                taken++;
            }
            assert_int_equal(taken, expected);
        }
        assert_int_equal(gm_allocs_count(), model_count);
        if (step % 1000 == 0) {
            assert_int_equal(gm_allocs_used(0), model_used(0));
            assert_int_equal(gm_allocs_used(1), model_used(1));
            for (uint64_t i = 0; i < 4040; i++)
                assert_int_equal(gm_pages_home(i * PAGE), model_home(i * PAGE) / PAGE);
            bool are_all = true;
            for (size_t i = 0; i < model_count; i++)
                are_all &= model[i].kind != GM_ALLOC_CHUNKS || model[i].context != (void *)3;
            assert_int_equal(gm_allocs_all(GM_ALLOC_CHUNKS, has_context_3), are_all);
            assert_int_equal(gm_allocs_all_backed(has_context_3), are_all);
        }
    }
    while (model_count > 0) {
        assert_int_equal(gm_allocs_take(model[0].va, &got), GM_ALLOC_BASE);
        model_remove(0);
    }
    assert_int_equal(gm_allocs_count(), 0);
    assert_int_equal(gm_allocs_used(0), 0);
    assert_int_equal(gm_allocs_used(GM_GPUS_MAX), 0);
}

static void test_edges(void **state)
{
    struct gm_alloc got;
    struct gm_alloc alloc = {.va = 0x200000, .bytes = 100, .span = 0x200000, .gpu = 0};
    (void)state;
    assert_int_equal(gm_allocs_insert(&alloc), 0);
    assert_int_equal(gm_allocs_find(0x200000, &got), GM_ALLOC_BASE);
    assert_int_equal(gm_allocs_find(0x200000 + 99, &got), GM_ALLOC_INSIDE);
    assert_int_equal(gm_allocs_find(0x200000 + 100, &got), GM_ALLOC_UNKNOWN);
    assert_int_equal(gm_allocs_find(0x1fffff, &got), GM_ALLOC_UNKNOWN);
    assert_int_equal(gm_allocs_find(0, &got), GM_ALLOC_UNKNOWN);
    assert_int_equal(gm_allocs_find(UINT64_MAX, &got), GM_ALLOC_UNKNOWN);
    assert_int_equal(gm_allocs_take(0x200001, &got), GM_ALLOC_INSIDE);
    assert_int_equal(gm_allocs_take(0x200000, &got), GM_ALLOC_BASE);
    assert_int_equal(gm_allocs_take(0x200000, &got), GM_ALLOC_UNKNOWN); /* twice */

    struct gm_alloc bad = alloc;
    bad.bytes = 0;
    assert_int_equal(gm_allocs_insert(&bad), -EINVAL);
    bad = alloc;
    bad.span = 50;
    assert_int_equal(gm_allocs_insert(&bad), -EINVAL);
    bad = alloc;
    bad.va = UINT64_MAX - 10;
    assert_int_equal(gm_allocs_insert(&bad), -EINVAL);
    bad = alloc;
    bad.gpu = GM_GPUS_MAX;
    assert_int_equal(gm_allocs_insert(&bad), -EINVAL);
    assert_int_equal(gm_allocs_count(), 0);

    alloc.va = 1ull << GM_PAGES_VA_BITS; /* behind the pages */
    assert_int_equal(gm_allocs_insert(&alloc), 0);
    assert_int_equal(gm_allocs_find(alloc.va + 1, &got), GM_ALLOC_INSIDE);
    assert_true(gm_pages_have(alloc.va) == (alloc.kind != GM_ALLOC_REAL));
    assert_int_equal(gm_allocs_take(alloc.va, &got), GM_ALLOC_BASE);
    assert_false(gm_pages_have(alloc.va));
}

/* Addresses in order, as a driver hands them out: the tree must not become a list. */
static void test_many_in_order(void **state)
{
    struct gm_alloc got;
    enum { MANY = 200000 };
    (void)state;
    for (uint64_t i = 1; i <= MANY; i++) {
        struct gm_alloc alloc = {.va = i * PAGE, .bytes = PAGE, .span = PAGE, .gpu = 0};
        assert_int_equal(gm_allocs_insert(&alloc), 0);
    }
    assert_int_equal(gm_allocs_used(0), MANY * PAGE);
    for (uint64_t i = MANY; i >= 1; i--)
        assert_int_equal(gm_allocs_take(i * PAGE, &got), GM_ALLOC_BASE);
    assert_int_equal(gm_allocs_count(), 0);
}

/* Each thread has its own addresses, and all fight for some: one wins each. */
enum { FIGHTS = 2000, FIGHTERS = 4 };
static _Atomic int won;

static void *fight(void *argument)
{
    uint64_t me = (uint64_t)(uintptr_t)argument;
    struct gm_alloc got;
    for (uint64_t i = 0; i < FIGHTS; i++) {
        struct gm_alloc alloc = {
            .va = (1000000 + me * FIGHTS + i) * PAGE, .bytes = PAGE, .span = PAGE, .gpu = 1};
        if (gm_allocs_insert(&alloc) != 0)
            abort();
        if (gm_allocs_take((1 + i) * PAGE, &got) == GM_ALLOC_BASE)
            won++;
        if (gm_allocs_take(alloc.va, &got) != GM_ALLOC_BASE || got.va != alloc.va)
            abort();
    }
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t thread[FIGHTERS];
    (void)state;
    won = 0;
    for (uint64_t i = 0; i < FIGHTS; i++) {
        struct gm_alloc alloc = {.va = (1 + i) * PAGE, .bytes = PAGE, .span = PAGE, .gpu = 0};
        assert_int_equal(gm_allocs_insert(&alloc), 0);
    }
    for (uintptr_t i = 0; i < FIGHTERS; i++)
        pthread_create(&thread[i], NULL, fight, (void *)i);
    for (int i = 0; i < FIGHTERS; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(won, FIGHTS);
    assert_int_equal(gm_allocs_count(), 0);
    assert_int_equal(gm_allocs_used(0), 0);
    assert_int_equal(gm_allocs_used(1), 0);
}

/* An id is an allocation's alone, also when its address comes back, and stays when it is put back.
 */
static void test_ids(void **state)
{
    struct gm_alloc alloc = {.va = PAGE, .bytes = PAGE, .span = PAGE, .gpu = -1}, found, taken;
    (void)state;
    assert_int_equal(gm_allocs_insert(&alloc), 0);
    assert_int_equal(gm_allocs_find(PAGE + 5, &found), GM_ALLOC_INSIDE);
    assert_true(found.id >= GM_ALLOC_ID_MIN);
    assert_true(gm_allocs_set_sync_memops(PAGE + 5, found.id, true));
    assert_false(gm_allocs_set_sync_memops(PAGE + 5, found.id + 1, true));
    assert_false(gm_allocs_set_sync_memops(2 * PAGE, found.id, true));
    assert_int_equal(gm_allocs_take(PAGE, &taken), GM_ALLOC_BASE);
    assert_true(taken.id == found.id && taken.is_sync_memops);
    assert_false(gm_allocs_set_sync_memops(PAGE, found.id, true));
    assert_int_equal(gm_allocs_insert(&taken), 0); /* a free that failed */
    assert_int_equal(gm_allocs_take(PAGE, &taken), GM_ALLOC_BASE);
    assert_true(taken.id == found.id && taken.is_sync_memops);
    assert_int_equal(gm_allocs_insert(&alloc), 0); /* another one at the same address */
    assert_int_equal(gm_allocs_take(PAGE, &taken), GM_ALLOC_BASE);
    assert_true(taken.id > found.id && !taken.is_sync_memops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_random_against_model),
        cmocka_unit_test(test_many_in_order),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("allocs", tests, NULL, NULL);
}
