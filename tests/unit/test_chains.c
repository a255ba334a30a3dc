/*
 * daemon/pages, chains that outlive their pages: whatever was taken and freed, others take the same
 * copies again of the memory in which the chains lie; and no memory, however damaged, gives a page
 * to two copies, or one that is not there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "common/chunk.h"
#include "daemon/memory/pages.h"

enum { PAGES = 101, COPIES = 40, TIMES = 400, HOSTILE = 200 };

static uint64_t state_of_chance = 33;
static uint32_t draw(uint32_t n)
{
    state_of_chance = state_of_chance * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state_of_chance >> 33) % n;
}

struct copies {
    uint32_t page[COPIES]; /* GM_NONE: none */
    uint64_t bytes[COPIES];
};

static void make(struct gm_pages *pages, uint32_t *chains)
{
    assert_int_equal(gm_pages_open(pages, PAGES * GM_CHUNK_MIN), 0);
    gm_pages_keep(pages, chains);
    assert_ptr_equal(pages->next, chains);
    for (uint32_t slab = 0; slab < (PAGES + GM_SLAB_PAGES - 1) / GM_SLAB_PAGES; slab++)
        if (slab != 2) /* there is no such slab now */
            gm_pages_add_slab(pages, slab);
}

static void change(struct gm_pages *pages, struct copies *copies)
{
    const uint32_t i = draw(COPIES);
    if (copies->page[i] != GM_NONE) {
        gm_pages_free(pages, copies->page[i]);
        copies->page[i] = GM_NONE;
    } else {
        copies->bytes[i] = GM_CHUNK_MIN << draw(GM_CHUNK_CLASSES);
        copies->page[i] = gm_pages_take(pages, copies->bytes[i]);
    }
}

/* What is free is free in both. */
static void compare(const struct gm_pages *a, const struct gm_pages *b)
{
    assert_int_equal(a->free_pages, b->free_pages);
    assert_int_equal(a->free_slabs, b->free_slabs);
    for (uint32_t slab = 0; slab * GM_SLAB_PAGES < PAGES; slab++)
        assert_int_equal(a->slabs[slab].free_map, b->slabs[slab].free_map);
}

static void test_again(void **state)
{
    static uint32_t chains[PAGES], copy[PAGES];
    struct gm_pages pages, other;
    struct copies copies;
    (void)state;
    memset(copies.page, 0xff, sizeof copies.page);
    make(&pages, chains);
    for (int time = 0; time < TIMES; time++) {
        for (int i = 0; i < 8; i++)
            change(&pages, &copies);
        memcpy(copy, chains, sizeof copy);
        make(&other, copy);
        for (int i = 0; i < COPIES; i++)
            if (copies.page[i] != GM_NONE)
                assert_true(gm_pages_adopt(&other, copies.page[i], copies.bytes[i]));
        compare(&other, &pages);
        for (int i = 0; i < COPIES; i++)
            gm_pages_free(&other, copies.page[i]);
        assert_int_equal(other.free_pages, other.pages);
        gm_pages_close(&other);
    }
    gm_pages_close(&pages);
}

/* Damage some words, and take what the copies are said to be. */
static void take_hostile(const uint32_t *chains, const struct copies *copies, unsigned *refused)
{
    static uint32_t copy[PAGES];
    struct gm_pages pages, before;
    uint8_t owner[PAGES] = {0};
    memcpy(copy, chains, sizeof copy);
    for (uint32_t n = draw(6); n > 0; n--)
        copy[draw(PAGES)] = draw(4) == 0 ? (uint32_t)rand() : draw(PAGES + 1);
    make(&pages, copy);
    for (int i = 0; i < COPIES; i++) {
        uint32_t page = draw(50) == 0 ? draw(PAGES + 9) : copies->page[i], n = 0;
        const uint64_t bytes = copies->bytes[i];
        if (copies->page[i] == GM_NONE)
            continue;
        before = pages;
        if (!gm_pages_adopt(&pages, page, bytes)) {
            assert_int_equal(pages.free_pages, before.free_pages);
            assert_int_equal(pages.free_slabs, before.free_slabs);
            (*refused)++;
            continue;
        }
        for (; page != GM_NONE; page = copy[page], n++) {
            assert_true(page < PAGES && page / GM_SLAB_PAGES != 2);
            assert_int_equal(owner[page]++, 0);
        }
        assert_int_equal(n, bytes / GM_CHUNK_MIN);
    }
    for (uint32_t page = 0; page < PAGES; page++)
        if (page / GM_SLAB_PAGES != 2)
            assert_int_equal(pages.slabs[page / GM_SLAB_PAGES].free_map >> (page % GM_SLAB_PAGES) &
                                 1,
                             !owner[page]);
    gm_pages_close(&pages);
}

static void test_hostile(void **state)
{
    static uint32_t chains[PAGES];
    struct gm_pages pages;
    struct copies copies;
    unsigned refused = 0;
    (void)state;
    memset(copies.page, 0xff, sizeof copies.page);
    make(&pages, chains);
    for (int time = 0; time < HOSTILE; time++) {
        for (int i = 0; i < 8; i++)
            change(&pages, &copies);
        for (int i = 0; i < 20; i++)
            take_hostile(chains, &copies, &refused);
    }
    assert_true(refused > 1000);
    gm_pages_close(&pages);
}

/* A store without pages has no chains. */
static void test_none(void **state)
{
    struct gm_pages pages;
    uint32_t chain = 7;
    (void)state;
    assert_int_equal(gm_pages_open(&pages, 0), 0);
    gm_pages_keep(&pages, &chain);
    assert_false(gm_pages_adopt(&pages, 0, GM_CHUNK_MIN));
    assert_false(gm_pages_adopt(&pages, GM_NONE, GM_CHUNK_MIN));
    gm_pages_close(&pages);
    assert_int_equal(chain, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_again), cmocka_unit_test(test_hostile),
                                       cmocka_unit_test(test_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
