/*
 * daemon/hostpool, units: memory that programs may map. A slab that nobody could map passes between
 * users; a unit that somebody could map serves its owner again and is destroyed before anybody else
 * has it, also when the driver fails. Each goes by itself. The cap holds at every call into the
 * driver.
 */
#include "tests/unit/hostpool_world.h"

#define ALICE 1000u
#define BOB 1001u
#define WHOLE (GM_CHUNK_CLASSES - 1u)

static uint32_t slab_of(uint32_t page)
{
    return page / GM_SLAB_PAGES;
}

/* Where the driver has it. */
static unsigned place_of_page(const struct fixture *f, uint32_t page)
{
    return place_of((CUdeviceptr)(uintptr_t)gm_hostpool_memory(&f->pool, page));
}

/* A unit, which the worker makes if there is none. */
static uint32_t take_unit(struct fixture *f, unsigned class, uint32_t owner)
{
    gm_hostpool_forget_wants(&f->pool);
    const uint32_t page = gm_hostpool_take_unit(&f->pool, class, owner);
    if (page != GM_NONE)
        return page;
    gm_hostpool_make_units(&f->pool);
    run(f);
    return gm_hostpool_take_unit(&f->pool, class, owner);
}

/* A program of `owner` may map it. Returns whose memory it is. */
static unsigned lend(struct fixture *f, uint32_t page, uint32_t owner)
{
    static uint32_t id;
    struct gm_unit_memory unit;
    assert_int_equal(gm_hostpool_lend(&f->pool, page, owner, ++id, &unit), CUDA_SUCCESS);
    assert_true(unit.fd > 2);
    assert_int_equal(unit.at, (uintptr_t)gm_hostpool_memory(&f->pool, page));
    assert_int_equal(gm_hostpool_unit_id(&f->pool, page), id);
    return (unsigned)unit.handle - 1;
}

/* One that a program of `owner` maps. */
static uint32_t take_mapped(struct fixture *f, unsigned class, uint32_t owner)
{
    const uint32_t page = take_unit(f, class, owner);
    assert_int_not_equal(page, GM_NONE);
    assert_true(gm_hostpool_is_unit(&f->pool, page, class));
    assert_int_equal(chain_bytes(f, page), gm_class_bytes(class));
    const unsigned handle = lend(f, page, owner);
    assert_int_equal(driver.handles[handle].mapped_at,
                     (uintptr_t)gm_hostpool_memory(&f->pool, page));
    assert_int_equal(driver.handles[handle].bytes, gm_class_bytes(class));
    return page;
}

/* A whole slab is a unit, also one that was taken as pages; a part of one is none, nor is a chain
 * of parts. */
static void test_what_is_a_unit(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 4 * SLAB);
    grow(&f, 4 * SLAB);
    const uint32_t whole = take(&f, SLAB), half = take(&f, SLAB / 2);
    assert_true(gm_hostpool_is_unit(&f.pool, whole, WHOLE));
    assert_false(gm_hostpool_is_unit(&f.pool, half, WHOLE));
    assert_false(gm_hostpool_is_unit(&f.pool, half, WHOLE - 1));
    assert_false(gm_hostpool_is_unit(&f.pool, GM_NONE, WHOLE));
    const uint32_t other = take(&f, SLAB / 2), third = take(&f, SLAB / 2);
    take(&f, SLAB / 2);
    take(&f, SLAB / 2);
    take(&f, SLAB / 2);
    gm_hostpool_free(&f.pool, half);
    gm_hostpool_free(&f.pool, third);
    const uint32_t parts = take(&f, SLAB);
    assert_false(gm_hostpool_is_unit(&f.pool, parts, WHOLE));
    gm_hostpool_free(&f.pool, other);
    lend(&f, whole, ALICE);
    gm_hostpool_free(&f.pool, whole);
    assert_int_equal(gm_hostpool_take_idle(&f.pool, BOB), GM_NONE);
    assert_int_equal(gm_hostpool_take_idle(&f.pool, ALICE), whole);
    close_pool(&f);
}

/* Its owner has it again at once; others when it was destroyed and made anew. */
static void test_owner(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 2 * SLAB);
    grow(&f, 2 * SLAB);
    const uint32_t page = take_mapped(&f, WHOLE, ALICE);
    const unsigned made = driver.made[slab_of(page)], calls = driver.calls[CREATE];
    assert_int_equal(gm_hostpool_used(&f.pool), SLAB);
    gm_hostpool_free(&f.pool, page);
    assert_int_equal(gm_hostpool_used(&f.pool), 0);
    run(&f);
    assert_int_equal(take_mapped(&f, WHOLE, ALICE), page);
    assert_int_equal(driver.calls[CREATE], calls);
    gm_hostpool_free(&f.pool, page);
    const uint32_t other = take_mapped(&f, WHOLE, BOB);
    assert_int_not_equal(slab_of(other), slab_of(page));
    assert_int_equal(gm_hostpool_take(&f.pool, 2 * MIB), GM_NONE); /* alice's begins to go */
    assert_int_equal(gm_hostpool_take_idle(&f.pool, ALICE), GM_NONE);
    run(&f);
    const uint32_t pages = take(&f, SLAB);
    assert_int_equal(slab_of(pages), slab_of(page));
    assert_int_equal(driver.made[slab_of(page)], made + 1);
    gm_hostpool_free(&f.pool, pages);
    close_pool(&f);
}

/* Without the handle nobody could map it: it passes on as it is. */
static void test_not_mapped(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, SLAB);
    grow(&f, SLAB);
    const uint32_t page = gm_hostpool_take_unit(&f.pool, WHOLE, ALICE);
    assert_int_not_equal(page, GM_NONE);
    assert_int_equal(gm_hostpool_take_unit(&f.pool, WHOLE, ALICE), GM_NONE);
    gm_hostpool_free(&f.pool, page);
    assert_int_equal(take(&f, SLAB), page);
    run(&f);
    assert_int_equal(driver.calls[RELEASE], 0);
    close_pool(&f);
}

/* Of each size; each in a handle of its own, under the cap, and for one owner. */
static void test_small_units(void **state)
{
    (void)state;
    for (unsigned class = 0; class < WHOLE; class ++) {
        struct fixture f;
        const uint64_t bytes = gm_class_bytes(class);
        const unsigned n = (unsigned)(2 * SLAB / bytes);
        uint32_t pages[2 * GM_SLAB_PAGES];
        open_pool(&f, 2 * SLAB);
        for (unsigned i = 0; i < n; i++) {
            pages[i] = take_mapped(&f, class, ALICE);
            assert_int_equal(gm_hostpool_used(&f.pool), (i + 1) * bytes);
            assert_int_equal(gm_hostpool_size(&f.pool), (i + 1) * bytes);
        }
        /* The cap is reached, and nothing is free: nothing happens. */
        grow(&f, 2 * SLAB);
        assert_int_equal(take_unit(&f, class, ALICE), GM_NONE);
        const unsigned place = place_of_page(&f, pages[0]), made = driver.made[place];
        gm_hostpool_free(&f.pool, pages[0]);
        assert_int_equal(take_mapped(&f, class, ALICE), pages[0]);
        assert_int_equal(driver.made[place], made);
        gm_hostpool_free(&f.pool, pages[0]);
        assert_int_equal(take_mapped(&f, class, BOB), pages[0]); /* destroyed, and made anew */
        assert_int_equal(driver.made[place_of_page(&f, pages[0])], made + 1);
        for (unsigned i = 0; i < n; i++)
            gm_hostpool_free(&f.pool, pages[i]);
        grow(&f, 2 * SLAB);
        take_mapped(&f, WHOLE, ALICE); /* what is idle goes, and slabs are made */
        grow(&f, 0);
        assert_int_equal(gm_hostpool_size(&f.pool), SLAB);
        close_pool(&f);
    }
}

/* Units that are used keep nobody from the rest of the cap, wherever they lie. */
static void test_each_goes_alone(void **state)
{
    struct fixture f;
    uint32_t pages[4 * GM_SLAB_PAGES];
    (void)state;
    open_pool(&f, 4 * SLAB);
    grow(&f, 4 * SLAB);
    for (unsigned i = 0; i < 4 * GM_SLAB_PAGES; i++)
        pages[i] = take_mapped(&f, 0, ALICE);
    for (unsigned i = 0; i < 4 * GM_SLAB_PAGES; i++)
        if (i % GM_SLAB_PAGES != 3)
            gm_hostpool_free(&f.pool, pages[i]);
    assert_int_equal(gm_hostpool_take(&f.pool, SLAB), GM_NONE);
    run(&f);
    take(&f, 3 * SLAB);
    take_mapped(&f, 3, BOB);
    take_mapped(&f, 2, BOB);
    assert_int_equal(gm_hostpool_size(&f.pool), 4 * SLAB);
    close_pool(&f);
}

/* Several are made at once; what is not asked for again goes. */
static void test_made_together(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 4 * SLAB);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(gm_hostpool_take_unit(&f.pool, i, ALICE), GM_NONE);
    gm_hostpool_make_units(&f.pool);
    run(&f);
    assert_int_equal(f.grown, 1);
    assert_int_equal(gm_hostpool_size(&f.pool), 14 * MIB);
    gm_hostpool_forget_wants(&f.pool);
    const uint32_t page = gm_hostpool_take_unit(&f.pool, 1, ALICE);
    assert_int_not_equal(page, GM_NONE);
    gm_hostpool_make_units(&f.pool);
    grow(&f, 0);
    assert_int_equal(gm_hostpool_size(&f.pool), 4 * MIB);
    gm_hostpool_free(&f.pool, page);
    run(&f);
    assert_int_equal(gm_hostpool_size(&f.pool), 0);
    close_pool(&f);
}

/* The cap is reached by free slabs: one of them goes for small units. */
static void test_small_at_the_cap(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 3 * SLAB);
    grow(&f, 3 * SLAB);
    take(&f, 40 * MIB);
    take_mapped(&f, 0, ALICE);
    assert_int_equal(gm_hostpool_size(&f.pool), 2 * SLAB + 2 * MIB);
    take_mapped(&f, 3, BOB);
    take_mapped(&f, 2, ALICE);
    assert_int_equal(take_unit(&f, 2, ALICE), GM_NONE); /* all slabs have used pages */
    take(&f, 24 * MIB);
    close_pool(&f);
}

/* What is idle goes back to the system like other free memory. */
static void test_idle_leaves(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 4 * SLAB);
    grow(&f, 4 * SLAB);
    const uint32_t a = take_mapped(&f, WHOLE, ALICE), b = take_mapped(&f, WHOLE, BOB);
    grow(&f, 0);
    assert_int_equal(gm_hostpool_size(&f.pool), 2 * SLAB);
    gm_hostpool_free(&f.pool, a);
    run(&f);
    assert_int_equal(gm_hostpool_size(&f.pool), SLAB);
    gm_hostpool_free(&f.pool, b);
    run(&f);
    assert_int_equal(gm_hostpool_size(&f.pool), 0);
    close_pool(&f);
}

/* ---- faults ---- */

/* The driver does not let go of a slab that somebody mapped: nobody else gets it. */
static void stick(enum call call)
{
    struct fixture f;
    open_pool(&f, 2 * SLAB);
    grow(&f, 2 * SLAB);
    const uint32_t page = take_mapped(&f, WHOLE, ALICE), kept = take(&f, SLAB);
    const unsigned made = driver.made[slab_of(page)];
    gm_hostpool_free(&f.pool, page);
    fail_at(call, 1);
    assert_int_equal(gm_hostpool_take(&f.pool, SLAB), GM_NONE);
    run(&f);
    assert_int_equal(gm_hostpool_size(&f.pool), 2 * SLAB); /* it is pinned and counts */
    assert_int_equal(driver.made[slab_of(page)], made);
    assert_int_equal(gm_hostpool_take(&f.pool, 2 * MIB), GM_NONE);
    grow(&f, 2 * SLAB); /* who asks again has it tried again, and another made in its place */
    assert_int_equal(slab_of(take(&f, SLAB)), slab_of(page));
    assert_int_equal(driver.made[slab_of(page)], made + 1);
    assert_int_equal(chain_bytes(&f, kept), SLAB);
    close_pool(&f);
}

static void test_unmap_fails(void **state)
{
    (void)state;
    stick(UNMAP);
}

static void test_release_fails(void **state)
{
    (void)state;
    stick(RELEASE);
}

/* Making a slab fails, and so does taking it apart again: it is pinned, counts, and is used for the
 * next one. */
static void test_half_made(void **state)
{
    struct fixture f;
    (void)state;
    for (int round = 0; round < 4; round++) {
        open_pool(&f, 4 * SLAB);
        grow(&f, 2 * SLAB);
        fail_at(round % 2 ? MAP : ACCESS, 1);
        fail_at(round < 2 ? RELEASE : UNMAP, 1);
        grow(&f, 3 * SLAB); /* one slab: two workers would make another one meanwhile, or not */
        memset(driver.fail_at, 0, sizeof driver.fail_at); /* without a map there was no UNMAP */
        assert_int_equal(f.pool.refusal, CUDA_ERROR_UNKNOWN);
        bool is_stuck = round != 3;
        assert_int_equal(gm_hostpool_size(&f.pool), (2 + is_stuck) * SLAB);
        take(&f, 2 * SLAB);
        assert_int_equal(gm_hostpool_take(&f.pool, 2 * MIB), GM_NONE);
        grow(&f, 4 * SLAB);
        assert_int_equal(gm_hostpool_size(&f.pool), 4 * SLAB);
        take(&f, 2 * SLAB);
        close_pool(&f);
    }
}

/* The same of a small unit: nothing is left of it, or it goes later; and who asks again has one. */
static void test_half_made_unit(void **state)
{
    static const enum call making[] = {RESERVE, CREATE, MAP, ACCESS};
    static const enum call ending[] = {CALLS, RELEASE, UNMAP};
    (void)state;
    for (unsigned round = 0; round < 12; round++) {
        struct fixture f;
        open_pool(&f, 2 * SLAB);
        fail_at(making[round % 4], 1);
        if (ending[round / 4] != CALLS)
            fail_at(ending[round / 4], 1);
        assert_int_equal(take_unit(&f, 0, ALICE), GM_NONE);
        assert_true(f.pool.refusal != CUDA_SUCCESS);
        memset(driver.fail_at, 0, sizeof driver.fail_at);
        gm_hostpool_want(&f.pool, 0);
        take_mapped(&f, 0, ALICE);
        assert_int_equal(gm_hostpool_size(&f.pool), 2 * MIB);
        close_pool(&f);
    }
}

/* ---- everything at once ---- */

struct random {
    unsigned seed;
};

static unsigned pick(struct random *random, unsigned below)
{
    random->seed = random->seed * 1103515245u + 12345u;
    return (random->seed >> 8) % below;
}

#define CHAINS 40u
#define CAP 12u

/* Whose program could reach a slab or unit, of those memories that were ever there. */
struct history {
    unsigned made;
    uint32_t owner;
};

/* `owner`, GM_NONE: everybody, has memory there now. */
static void check_owner(const struct fixture *f, struct history *history, uint32_t page,
                        uint32_t owner)
{
    struct history *at = &history[place_of_page(f, page)];
    const unsigned made = driver.made[place_of_page(f, page)];
    if (at->made != made)
        *at = (struct history){made, GM_NONE};
    assert_true(at->owner == GM_NONE || at->owner == owner);
}

/* Anything in any order, with faults: whatever the pool says, the cap holds, what is taken stays
 * whole, nobody has what another user's program could map, and in the end all of it can be had. */
static void walk(unsigned seed, bool has_faults)
{
    struct fixture f;
    struct random random = {seed};
    struct history history[PLACES] = {{0}};
    uint32_t chain[CHAINS];
    uint64_t bytes[CHAINS] = {0}, used = 0;

    open_pool(&f, CAP * SLAB);
    for (int step = 0; step < 800; step++) {
        const unsigned c = pick(&random, CHAINS), what = pick(&random, 8);
        const uint32_t owner = ALICE + pick(&random, 2);
        if (what == 0) {
            gm_hostpool_want(&f.pool, pick(&random, CAP + 1) * SLAB);
        } else if (what < 6 && bytes[c]) {
            assert_int_equal(chain_bytes(&f, chain[c]), bytes[c]);
            gm_hostpool_free(&f.pool, chain[c]);
            used -= bytes[c];
            bytes[c] = 0;
        } else if (what < 4) {
            bytes[c] = (1 + pick(&random, pick(&random, 2) ? 4 : 24)) * 2 * MIB;
            chain[c] = gm_hostpool_take(&f.pool, bytes[c]);
            for (uint32_t page = chain[c]; page != GM_NONE;) {
                check_owner(&f, history, page, GM_NONE);
                gm_pages_run(&f.pool.pages, &page, GM_SLAB_PAGES);
            }
        } else if (what < 6) {
            const unsigned class = pick(&random, 3) ? WHOLE : pick(&random, WHOLE);
            bytes[c] = gm_class_bytes(class);
            chain[c] = gm_hostpool_take_unit(&f.pool, class, owner);
            if (pick(&random, 2))
                gm_hostpool_make_units(&f.pool);
            if (pick(&random, 8) == 0)
                gm_hostpool_forget_wants(&f.pool);
            if (chain[c] != GM_NONE) {
                assert_true(gm_hostpool_is_unit(&f.pool, chain[c], class));
                check_owner(&f, history, chain[c], owner);
            }
            struct gm_unit_memory unit;
            if (chain[c] != GM_NONE && pick(&random, 2) &&
                gm_hostpool_lend(&f.pool, chain[c], owner, 1, &unit) == CUDA_SUCCESS) {
                history[place_of_page(&f, chain[c])].owner = owner;
            }
        } else if (what == 6) {
            if (pick(&random, 2))
                uv_run(&f.loop, UV_RUN_NOWAIT);
            else
                run(&f);
        } else if (has_faults && pick(&random, 3) == 0) {
            uv_mutex_lock(&driver.mutex);
            fail_at((enum call)pick(&random, CALLS), 1 + pick(&random, 4));
            uv_mutex_unlock(&driver.mutex);
        }
        if (what > 0 && what < 6 && bytes[c] && chain[c] == GM_NONE)
            bytes[c] = 0;
        used = 0;
        for (unsigned i = 0; i < CHAINS; i++)
            used += bytes[i];
        assert_int_equal(gm_hostpool_used(&f.pool), used);
        check(&f);
    }
    uv_mutex_lock(&driver.mutex);
    memset(driver.fail_at, 0, sizeof driver.fail_at);
    uv_mutex_unlock(&driver.mutex);
    for (unsigned c = 0; c < CHAINS; c++)
        if (bytes[c]) {
            assert_int_equal(chain_bytes(&f, chain[c]), bytes[c]);
            gm_hostpool_free(&f.pool, chain[c]);
        }
    gm_hostpool_forget_wants(&f.pool);
    run(&f);
    gm_hostpool_make_units(&f.pool); /* who had some made does not want them any more */
    for (int i = 0; i < 3; i++)
        grow(&f, 0); /* what is stuck is tried again */
    assert_int_equal(gm_hostpool_size(&f.pool), 0);
    grow(&f, CAP * SLAB);
    assert_int_equal(gm_hostpool_size(&f.pool), CAP * SLAB);
    take(&f, CAP * SLAB);
    close_pool(&f);
}

static void test_walks(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 100; seed++)
        walk(seed, seed % 2 == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_a_unit),
        cmocka_unit_test(test_owner),
        cmocka_unit_test(test_not_mapped),
        cmocka_unit_test(test_small_units),
        cmocka_unit_test(test_each_goes_alone),
        cmocka_unit_test(test_made_together),
        cmocka_unit_test(test_small_at_the_cap),
        cmocka_unit_test(test_idle_leaves),
        cmocka_unit_test(test_unmap_fails),
        cmocka_unit_test(test_release_fails),
        cmocka_unit_test(test_half_made),
        cmocka_unit_test(test_half_made_unit),
        cmocka_unit_test(test_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
