/*
 * daemon/pages against a model that has one owner a page: what is free can be taken, however
 * fragmented; what is taken overlaps nothing; a run that is free is found; the cap is exact to the
 * page; slabs come and go in any order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "daemon/memory/pages.h"

#define ROOM 200u /* pages: twelve slabs and a half */
#define CHAINS 100u

#define SLABS ((ROOM + GM_SLAB_PAGES - 1) / GM_SLAB_PAGES)
#define NOWHERE UINT32_MAX

struct model {
    struct gm_pages pages;
    uint32_t owner[ROOM]; /* 0: free; NOWHERE: does not exist */
    uint32_t exist;
    uint32_t first[CHAINS], length[CHAINS];
    unsigned seed;
};

static uint32_t pick(struct model *m, uint32_t below)
{
    m->seed = m->seed * 1103515245u + 12345u;
    return (m->seed >> 8) % below;
}

static uint32_t free_pages(const struct model *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ROOM; i++)
        n += m->owner[i] == 0;
    return n;
}

/* Whether an aligned run of `n` pages (a power of two up to a slab) is free. */
static bool has_run(const struct model *m, uint32_t n)
{
    for (uint32_t at = 0; at + n <= ROOM; at += n) {
        uint32_t i = 0;
        while (i < n && m->owner[at + i] == 0)
            i++;
        if (i == n)
            return true;
    }
    return false;
}

/* How many pages of `slab` are free, and how many exist. */
static void count(const struct model *m, uint32_t slab, uint32_t *free, uint32_t *all)
{
    *free = *all = 0;
    for (uint32_t i = slab * GM_SLAB_PAGES; i < ROOM && i / GM_SLAB_PAGES == slab; i++) {
        *free += m->owner[i] == 0;
        *all += m->owner[i] != NOWHERE;
    }
}

static void check(const struct model *m)
{
    uint32_t free_slabs = 0;
    assert_int_equal(m->pages.pages, m->exist);
    assert_int_equal(m->pages.free_pages, free_pages(m));
    for (uint32_t i = 0; i < ROOM; i++) {
        uint32_t bit = m->pages.slabs[i / GM_SLAB_PAGES].free_map >> (i % GM_SLAB_PAGES) & 1;
        assert_int_equal(bit, m->owner[i] == 0);
    }
    for (uint32_t slab = 0; slab < SLABS; slab++) {
        uint32_t free, all;
        count(m, slab, &free, &all);
        assert_int_equal(gm_slab_is_free(&m->pages, slab), all > 0 && free == all);
        free_slabs += free == GM_SLAB_PAGES;
    }
    assert_int_equal(m->pages.free_slabs, free_slabs);
}

static void take(struct model *m, uint32_t chain)
{
    static const uint32_t odd[] = {3, 5, 7, 11, 17, 24, 33, 48};
    uint32_t n = pick(m, 4) ? 1u << pick(m, 5) : odd[pick(m, 8)], runs = 0, sum = 0;
    const bool is_class = n <= GM_SLAB_PAGES && (n & (n - 1)) == 0;
    const bool fits_in_one = is_class && has_run(m, n), fits = n <= free_pages(m);
    uint32_t page = gm_pages_take(&m->pages, n * GM_CHUNK_MIN);

    assert_int_equal(page != GM_NONE, fits);
    if (!fits)
        return;
    m->first[chain] = page;
    m->length[chain] = n;
    while (page != GM_NONE) {
        uint32_t from = page, run = gm_pages_run(&m->pages, &page, GM_SLAB_PAGES);
        assert_int_equal(from / GM_SLAB_PAGES, (from + run - 1) / GM_SLAB_PAGES);
        for (uint32_t i = from; i < from + run; i++) {
            assert_true(i < ROOM);
            assert_int_equal(m->owner[i], 0);
            m->owner[i] = chain + 1;
        }
        sum += run;
        runs++;
    }
    assert_int_equal(sum, n);
    if (fits_in_one)
        assert_int_equal(runs, 1);
}

static void give(struct model *m, uint32_t chain)
{
    gm_pages_free(&m->pages, m->first[chain]);
    m->length[chain] = 0;
    for (uint32_t i = 0; i < ROOM; i++)
        if (m->owner[i] == chain + 1)
            m->owner[i] = 0;
}

static void take_or_give(struct model *m)
{
    uint32_t chain = pick(m, CHAINS);
    if (m->length[chain])
        give(m, chain);
    else
        take(m, chain);
}

static void add(struct model *m, uint32_t n)
{
    gm_pages_add(&m->pages, n);
    for (uint32_t i = 0; i < n; i++)
        m->owner[m->exist++] = 0;
}

/* A slab comes if it is not there, and goes if nothing in it is used. */
static void turn_slab(struct model *m, uint32_t slab)
{
    uint32_t free, all, owner = 0;
    count(m, slab, &free, &all);
    if (all == 0) {
        gm_pages_add_slab(&m->pages, slab);
    } else if (free == all) {
        gm_pages_remove_slab(&m->pages, slab);
        owner = NOWHERE;
    } else {
        return;
    }
    for (uint32_t i = slab * GM_SLAB_PAGES; i < ROOM && i / GM_SLAB_PAGES == slab; i++) {
        m->owner[i] = owner;
        m->exist += owner == 0 ? 1 : UINT32_MAX;
    }
}

static void open_model(struct model *m, unsigned seed)
{
    *m = (struct model){.seed = seed};
    for (uint32_t i = 0; i < ROOM; i++)
        m->owner[i] = NOWHERE;
    assert_int_equal(gm_pages_open(&m->pages, ROOM * GM_CHUNK_MIN + 4096), 0);
    assert_int_equal(m->pages.max_pages, ROOM);
    check(m);
}

static void give_all(struct model *m)
{
    for (uint32_t chain = 0; chain < CHAINS; chain++)
        if (m->length[chain])
            give(m, chain);
}

/* All pages exist and are free, and can be taken as one. */
static void close_model(struct model *m)
{
    check(m);
    uint32_t all = gm_pages_take(&m->pages, ROOM * GM_CHUNK_MIN);
    assert_int_not_equal(all, GM_NONE);
    assert_int_equal(gm_pages_take(&m->pages, GM_CHUNK_MIN), GM_NONE);
    gm_pages_free(&m->pages, all);
    assert_int_equal(m->pages.free_pages, ROOM);
    gm_pages_close(&m->pages);
}

static void test_model(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 20; seed++) {
        struct model m;
        open_model(&m, seed);
        add(&m, 1 + pick(&m, 60));
        for (int step = 0; step < 3000; step++) {
            take_or_give(&m);
            if (step % 500 == 499)
                add(&m, pick(&m, (ROOM - m.exist) / 2 + 1));
            check(&m);
        }
        give_all(&m);
        add(&m, ROOM - m.exist);
        close_model(&m);
    }
}

static void test_slabs_come_and_go(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 20; seed++) {
        struct model m;
        uint32_t gone = 0;
        open_model(&m, seed);
        for (int step = 0; step < 4000; step++) {
            uint32_t exist = m.exist;
            if (step % 200 == 0) /* else slabs without a used page are rare */
                give_all(&m);
            else if (pick(&m, 4) == 0)
                turn_slab(&m, pick(&m, SLABS));
            else
                take_or_give(&m);
            gone += m.exist < exist;
            check(&m);
        }
        assert_true(gone > 20); /* there were holes */
        give_all(&m);
        for (uint32_t slab = 0; slab < SLABS; slab++)
            if (!gm_slab_is_free(&m.pages, slab))
                turn_slab(&m, slab);
        close_model(&m);
    }
}

/* A chunk takes the hole that fits it best and leaves the large ones to large chunks. */
static void test_best_fit(void **state)
{
    struct gm_pages pages;
    uint32_t four[24], at;
    (void)state;
    assert_int_equal(gm_pages_open(&pages, 6 * GM_SLAB_BYTES), 0);
    gm_pages_add(&pages, pages.max_pages);
    for (int i = 0; i < 24; i++)
        four[i] = gm_pages_take(&pages, 4 * GM_CHUNK_MIN);
    for (int i = 0; i < 24; i++) /* one hole of four pages, and a slab without anything in it */
        if (i == 6 || i >= 20)
            gm_pages_free(&pages, four[i]);
    at = gm_pages_take(&pages, 2 * GM_CHUNK_MIN);
    assert_int_equal(at / 4, four[6] / 4);
    at = gm_pages_take(&pages, 2 * GM_CHUNK_MIN);
    assert_int_equal(at / 4, four[6] / 4);
    at = gm_pages_take(&pages, GM_SLAB_BYTES);
    assert_int_equal(gm_pages_run(&pages, &at, GM_SLAB_PAGES), GM_SLAB_PAGES);
    assert_int_equal(at, GM_NONE);
    gm_pages_close(&pages);
}

/* Whoever leaves a slab goes to others, as far as those have room, and then all of it is free. */
static void test_beside(void **state)
{
    struct gm_pages pages;
    uint32_t four[12];
    (void)state;
    assert_int_equal(gm_pages_open(&pages, 3 * GM_SLAB_BYTES), 0);
    gm_pages_add(&pages, pages.max_pages);
    for (int i = 0; i < 12; i++)
        four[i] = gm_pages_take(&pages, 4 * GM_CHUNK_MIN);
    for (int i = 0; i < 12; i++) /* of the first slab three chunks are left, of the others two */
        if (i == 0 || i == 4 || i == 5 || i == 8 || i == 9)
            gm_pages_free(&pages, four[i]);
    const uint32_t slab = four[6] / GM_SLAB_PAGES, free_pages = pages.free_pages;
    assert_true(gm_pages_touch(&pages, four[7], slab));
    assert_false(gm_pages_touch(&pages, four[1], slab));
    assert_int_equal(gm_pages_take_beside(&pages, 13 * GM_CHUNK_MIN, slab), GM_NONE);
    assert_int_equal(pages.free_pages, free_pages);
    for (int i = 6; i < 8; i++) {
        const uint32_t page = gm_pages_take_beside(&pages, 4 * GM_CHUNK_MIN, slab);
        assert_int_not_equal(page, GM_NONE);
        assert_false(gm_pages_touch(&pages, page, slab));
        gm_pages_free(&pages, four[i]);
    }
    assert_true(gm_slab_is_free(&pages, slab));
    assert_int_equal(pages.free_slabs, 1);
    gm_pages_close(&pages);
}

static void test_bounds(void **state)
{
    struct gm_pages pages;
    (void)state;
    assert_int_equal(gm_pages_open(&pages, GM_CHUNK_MIN - 1), 0);
    assert_int_equal(gm_pages_take(&pages, GM_CHUNK_MIN), GM_NONE);
    gm_pages_close(&pages);
    assert_int_not_equal(gm_pages_open(&pages, UINT64_MAX), 0);
    assert_int_equal(gm_pages_open(&pages, GM_CHUNK_MIN), 0);
    gm_pages_add(&pages, 1);
    assert_int_equal(gm_pages_take(&pages, 0), GM_NONE);
    assert_int_equal(gm_pages_take(&pages, UINT64_MAX & ~(GM_CHUNK_MIN - 1)), GM_NONE);
    assert_int_equal(gm_pages_take(&pages, GM_CHUNK_MIN), 0);
    gm_pages_free(&pages, GM_NONE);
    gm_pages_free(&pages, 0);
    gm_pages_close(&pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),    cmocka_unit_test(test_slabs_come_and_go),
        cmocka_unit_test(test_best_fit), cmocka_unit_test(test_beside),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
