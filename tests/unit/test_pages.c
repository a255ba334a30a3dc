/* The table from places to their homes: its edges, and readers beside a writer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "shim/tables/pages.h"

#define LEAF_BYTES (GM_PAGES_LEAF * GM_CHUNK_MIN)
#define END (1ull << GM_PAGES_VA_BITS)

static void enter(uint64_t va, uint64_t bytes, uint64_t home)
{
    assert_int_equal(gm_pages_make(va, bytes), 0);
    gm_pages_set(va, bytes, home);
}

static void test_empty(void **state)
{
    static const uint64_t words[] = {0, 1, GM_CHUNK_MIN, LEAF_BYTES, END - 1, END, UINT64_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        assert_int_equal(gm_pages_home(words[i]), 0);
        assert_false(gm_pages_have(words[i]));
    }
}

/* Places of an allocation are its own, to the byte; those of a view are in its home. */
static void test_homes(void **state)
{
    const uint64_t va = 3 * LEAF_BYTES - 2 * GM_CHUNK_MIN, home = 77 * LEAF_BYTES;
    (void)state;
    enter(va, 4 * GM_CHUNK_MIN, va); /* across the end of a leaf */
    assert_int_equal(gm_pages_home(va - 1), 0);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(gm_pages_home(va + i * GM_CHUNK_MIN), (va >> GM_CHUNK_SHIFT) + i);
        assert_int_equal(gm_pages_home(va + (i + 1) * GM_CHUNK_MIN - 1),
                         (va >> GM_CHUNK_SHIFT) + i);
    }
    assert_int_equal(gm_pages_home(va + 4 * GM_CHUNK_MIN), 0);

    gm_pages_clear(va + GM_CHUNK_MIN, 2 * GM_CHUNK_MIN);
    assert_true(gm_pages_have(va) && gm_pages_have(va + 3 * GM_CHUNK_MIN));
    assert_false(gm_pages_have(va + GM_CHUNK_MIN) || gm_pages_have(va + 2 * GM_CHUNK_MIN));
    gm_pages_clear(va, 4 * GM_CHUNK_MIN);
    assert_false(gm_pages_have(va) || gm_pages_have(va + 3 * GM_CHUNK_MIN));

    enter(va, 3 * GM_CHUNK_MIN, home);
    assert_int_equal(gm_pages_home(va + 2 * GM_CHUNK_MIN + 5), (home >> GM_CHUNK_SHIFT) + 2);
    assert_false(gm_pages_have(home)); /* until it is entered itself */
    gm_pages_clear(va, 3 * GM_CHUNK_MIN);
}

/* A place counts whole, also if only a byte of it is entered. */
static void test_bytes(void **state)
{
    (void)state;
    enter(GM_CHUNK_MIN + 5, 1, GM_CHUNK_MIN + 5);
    assert_true(gm_pages_have(GM_CHUNK_MIN) && gm_pages_have(2 * GM_CHUNK_MIN - 1));
    assert_false(gm_pages_have(2 * GM_CHUNK_MIN));
    gm_pages_clear(GM_CHUNK_MIN + 5, 1);
    assert_false(gm_pages_have(GM_CHUNK_MIN));
}

static void test_ends(void **state)
{
    (void)state;
    assert_int_equal(gm_pages_make(GM_CHUNK_MIN, 0), -EINVAL);
    assert_int_equal(gm_pages_make(UINT64_MAX - 5, GM_CHUNK_MIN), -EINVAL);
    enter(END - GM_CHUNK_MIN, GM_CHUNK_MIN, END - GM_CHUNK_MIN);
    assert_int_equal(gm_pages_home(END - 1), (END >> GM_CHUNK_SHIFT) - 1);
    assert_false(gm_pages_have(END));
    gm_pages_clear(END - GM_CHUNK_MIN, GM_CHUNK_MIN);
}

/* Behind the table each address may be gpumux's while one range ends there, whose home nobody
 * knows. What of it is in the table is in its place. */
static void test_beyond(void **state)
{
    const uint64_t far = END << 5;
    (void)state;
    assert_false(gm_pages_have(END) || gm_pages_have(far));
    enter(END - GM_CHUNK_MIN, 2 * GM_CHUNK_MIN, LEAF_BYTES);
    enter(far, GM_CHUNK_MIN, LEAF_BYTES);
    assert_int_equal(gm_pages_home(END - 1), LEAF_BYTES >> GM_CHUNK_SHIFT);
    assert_int_equal(gm_pages_home(END), 0);
    assert_true(gm_pages_have(END) && gm_pages_have(far) && gm_pages_have(UINT64_MAX));
    assert_true(gm_pages_are_beyond(END) && !gm_pages_are_beyond(END - 1));
    assert_false(gm_pages_have(END - GM_CHUNK_MIN - 1));
    gm_pages_clear(END - GM_CHUNK_MIN, 2 * GM_CHUNK_MIN);
    assert_true(gm_pages_have(far) && !gm_pages_have(END - 1));
    gm_pages_clear(far, GM_CHUNK_MIN);
    assert_false(gm_pages_have(END) || gm_pages_have(far));
}

/*
 * Writers enter and clear, each its own places in leaves that all of them make at once; readers see
 * an entry whole or not at all: the home of that place, or nothing.
 */
enum { WRITERS = 3, READERS = 2, ROUNDS = 400, PLACES = 64 };
static _Atomic int running;

static uint64_t place_at(uint64_t writer, uint64_t i, uint64_t round)
{
    return 100 * LEAF_BYTES + (round % 50) * LEAF_BYTES + (writer * PLACES + i) * GM_CHUNK_MIN;
}

static void *write_some(void *argument)
{
    const uint64_t me = (uint64_t)(uintptr_t)argument;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const uint64_t va = place_at(me, 0, round), home = va + 1000 * LEAF_BYTES;
        if (gm_pages_make(va, PLACES * GM_CHUNK_MIN) != 0)
            abort();
        gm_pages_set(va, PLACES * GM_CHUNK_MIN, home);
        for (uint64_t i = 0; i < PLACES; i++)
            if (gm_pages_home(place_at(me, i, round)) != (home >> GM_CHUNK_SHIFT) + i)
                abort();
        gm_pages_clear(va, PLACES * GM_CHUNK_MIN);
        if (gm_pages_have(va))
            abort();
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

static void *read_all(void *seen)
{
    while (atomic_load(&running) > 0)
        for (uint64_t round = 0; round < 50; round++)
            for (uint64_t i = 0; i < WRITERS * PLACES; i++) {
                const uint64_t va = place_at(0, i, round);
                const uint32_t home = gm_pages_home(va);
                if (home != 0 && home != (va + 1000 * LEAF_BYTES) >> GM_CHUNK_SHIFT)
                    abort();
                *(uint64_t *)seen += home != 0;
            }
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t thread[WRITERS + READERS];
    uint64_t seen[READERS] = {0};
    (void)state;
    atomic_store(&running, WRITERS);
    for (uintptr_t i = 0; i < READERS; i++)
        pthread_create(&thread[WRITERS + i], NULL, read_all, &seen[i]);
    for (uintptr_t i = 0; i < WRITERS; i++)
        pthread_create(&thread[i], NULL, write_some, (void *)i);
    for (int i = 0; i < WRITERS + READERS; i++)
        pthread_join(thread[i], NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty), cmocka_unit_test(test_homes),  cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_ends),  cmocka_unit_test(test_beyond), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("pages", tests, NULL, NULL);
}
