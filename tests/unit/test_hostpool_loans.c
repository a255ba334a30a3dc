/*
 * daemon/hostpool, lending: the cap holds at every call into the driver, over slabs and what the
 * borrower pins; what no used page needs can be lent, while the pool grows, too, and comes back;
 * chains go around slabs that are gone; a driver that does not let go costs the loan and nothing
 * else.
 */
#include "tests/unit/hostpool_world.h"

static void test_lend_after_growth(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 8 * SLAB);
    grow(&f, 8 * SLAB);
    assert_true(gm_hostpool_lend(&f.pool, 80 * MIB)); /* whole slabs: three */
    check(&f);
    assert_int_equal(gm_hostpool_cap(&f.pool), 5 * SLAB);
    assert_int_equal(gm_hostpool_size(&f.pool), 8 * SLAB); /* until they are released */
    uint32_t page = take(&f, 5 * SLAB);                    /* but their pages are nobody's */
    assert_int_equal(gm_hostpool_take(&f.pool, 2 * MIB), GM_NONE);
    assert_int_equal(driver.calls[UNMAP], 0);

    assert_int_equal(gm_hostpool_clear(&f.pool), CUDA_ERROR_NOT_READY);
    assert_int_equal(clear(&f), CUDA_SUCCESS);
    assert_int_equal(gm_hostpool_size(&f.pool), 5 * SLAB);
    borrow(&f, 80 * MIB);
    assert_true(gm_hostpool_lend(&f.pool, 16 * MIB)); /* within the third slab */
    assert_false(gm_hostpool_lend(&f.pool, 2 * MIB)); /* every other one is used */
    borrow(&f, 16 * MIB);
    grow(&f, 8 * SLAB); /* not above the cap */
    assert_int_equal(gm_hostpool_size(&f.pool), 5 * SLAB);

    gm_hostpool_free(&f.pool, page);
    give_back(&f, 96 * MIB);
    run(&f); /* it was asked for eight slabs once, and makes them again */
    assert_int_equal(gm_hostpool_cap(&f.pool), 8 * SLAB);
    assert_int_equal(gm_hostpool_size(&f.pool), 8 * SLAB);
    take(&f, 8 * SLAB);
    close_pool(&f);
}

static void test_bounds(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 8 * SLAB + 30 * MIB); /* what is no whole slab is nobody's */
    assert_false(gm_hostpool_lend(&f.pool, 8 * SLAB + 2 * MIB));
    assert_false(gm_hostpool_lend(&f.pool, UINT64_MAX & ~(2 * MIB - 1)));
    assert_true(gm_hostpool_lend(&f.pool, 8 * SLAB));
    assert_false(gm_hostpool_lend(&f.pool, 2 * MIB));
    assert_int_equal(gm_hostpool_clear(&f.pool), CUDA_SUCCESS); /* there was nothing to release */
    grow(&f, 8 * SLAB);
    assert_int_equal(gm_hostpool_size(&f.pool), 0);
    gm_hostpool_unlend(&f.pool, 7 * SLAB);
    run(&f);
    assert_int_equal(gm_hostpool_size(&f.pool), 7 * SLAB);
    close_pool(&f);

    open_pool(&f, 30 * MIB); /* no slab at all */
    assert_false(gm_hostpool_lend(&f.pool, 2 * MIB));
    assert_true(gm_hostpool_lend(&f.pool, 0));
    gm_hostpool_unlend(&f.pool, 0);
    grow(&f, 32 * MIB);
    assert_int_equal(gm_hostpool_clear(&f.pool), CUDA_SUCCESS);
    assert_int_equal(gm_hostpool_take(&f.pool, 2 * MIB), GM_NONE);
    close_pool(&f);
}

/* A loan that is given back at once costs no call into the driver. */
static void test_undo(void **state)
{
    struct fixture f;
    unsigned calls = 0;
    (void)state;
    open_pool(&f, 8 * SLAB);
    grow(&f, 8 * SLAB);
    uint32_t page = take(&f, 40 * MIB);
    for (int i = 0; i < CALLS; i++)
        calls += driver.calls[i];
    for (int i = 0; i < 3; i++) {
        assert_true(gm_hostpool_lend(&f.pool, 6 * SLAB));
        assert_false(gm_hostpool_lend(&f.pool, 2 * MIB));
        gm_hostpool_unlend(&f.pool, 6 * SLAB);
        assert_int_equal(gm_hostpool_clear(&f.pool), CUDA_SUCCESS);
        run(&f);
    }
    for (int i = 0; i < CALLS; i++)
        calls -= driver.calls[i];
    assert_int_equal(calls, 0);
    take(&f, 8 * SLAB - 40 * MIB);
    gm_hostpool_free(&f.pool, page);
    close_pool(&f);
}

/* Used pages that lie scattered keep their slabs. */
static void test_fragments_are_not_lent(void **state)
{
    struct fixture f;
    uint32_t pages[8 * GM_SLAB_PAGES], kept[8];
    (void)state;
    open_pool(&f, 8 * SLAB);
    grow(&f, 8 * SLAB);
    for (unsigned i = 0; i < 8 * GM_SLAB_PAGES; i++)
        pages[i] = take(&f, 2 * MIB);
    for (unsigned i = 0; i < 8 * GM_SLAB_PAGES; i++) {
        if (pages[i] % GM_SLAB_PAGES == 5)
            kept[pages[i] / GM_SLAB_PAGES] = pages[i];
        else
            gm_hostpool_free(&f.pool, pages[i]);
    }
    assert_int_equal(gm_hostpool_used(&f.pool), 8 * 2 * MIB);
    assert_false(gm_hostpool_lend(&f.pool, 2 * MIB));
    assert_int_equal(gm_hostpool_cap(&f.pool), 8 * SLAB);
    gm_hostpool_free(&f.pool, kept[2]);
    assert_false(gm_hostpool_lend(&f.pool, SLAB + 2 * MIB));
    assert_true(gm_hostpool_lend(&f.pool, SLAB));
    assert_int_equal(clear(&f), CUDA_SUCCESS);
    assert_false(is_there(2));
    borrow(&f, SLAB);
    for (unsigned i = 0; i < 8; i++)
        if (i != 2)
            assert_int_equal(chain_bytes(&f, kept[i]), 2 * MIB);
    take(&f, 7 * SLAB - 7 * 2 * MIB); /* all that is free, around the hole */
    assert_int_equal(gm_hostpool_take(&f.pool, 2 * MIB), GM_NONE);
    close_pool(&f);
}

/* Slabs are gone in the middle; chains cross; they come again from the start. */
static void test_holes(void **state)
{
    struct fixture f;
    uint32_t halves[16], in[8][2];
    (void)state;
    open_pool(&f, 8 * SLAB);
    grow(&f, 8 * SLAB);
    for (int i = 0; i < 16; i++) {
        halves[i] = take(&f, SLAB / 2);
        in[halves[i] / GM_SLAB_PAGES][halves[i] % GM_SLAB_PAGES / 8] = halves[i];
    }
    for (unsigned slab = 3; slab < 6; slab++)
        for (int half = 0; half < 2; half++)
            gm_hostpool_free(&f.pool, in[slab][half]);
    assert_true(gm_hostpool_lend(&f.pool, 2 * SLAB));
    assert_int_equal(clear(&f), CUDA_SUCCESS);
    assert_true(is_there(3)); /* they leave from the end */
    assert_false(is_there(4) || is_there(5));
    borrow(&f, 2 * SLAB);
    gm_hostpool_free(&f.pool, in[2][1]);
    gm_hostpool_free(&f.pool, in[6][0]);
    uint32_t whole = take(&f, SLAB), crossing = take(&f, SLAB);
    assert_int_equal(whole / GM_SLAB_PAGES, 3);
    assert_int_equal(gm_hostpool_take(&f.pool, 2 * MIB), GM_NONE);

    give_back(&f, SLAB);
    run(&f);
    assert_true(is_there(4));
    assert_false(is_there(5));
    uint32_t again = take(&f, SLAB);
    assert_int_equal(again / GM_SLAB_PAGES, 4);
    give_back(&f, SLAB);
    run(&f);
    assert_true(is_there(5));
    assert_int_equal(chain_bytes(&f, crossing), SLAB);
    gm_hostpool_free(&f.pool, crossing);
    take(&f, 2 * SLAB);
    assert_int_equal(gm_hostpool_used(&f.pool), 8 * SLAB);
    close_pool(&f);
}

static void test_lend_while_growing(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 12 * SLAB);
    grow(&f, 3 * SLAB);
    uint32_t page = take(&f, 2 * SLAB);
    hold(CREATE, 3);
    gm_hostpool_want(&f.pool, 12 * SLAB);
    uv_sem_wait(&driver.held); /* eight more are with the worker, two of them are made */
    assert_int_equal(gm_hostpool_size(&f.pool), 3 * SLAB);
    assert_false(gm_hostpool_lend(&f.pool, 10 * SLAB + 2 * MIB));
    assert_true(gm_hostpool_lend(&f.pool, 9 * SLAB));
    assert_int_equal(gm_hostpool_cap(&f.pool), 3 * SLAB);
    assert_int_equal(gm_hostpool_clear(&f.pool), CUDA_ERROR_NOT_READY);
    uint32_t third = take(&f, SLAB); /* what was there stays */
    assert_int_equal(gm_hostpool_take(&f.pool, 2 * MIB), GM_NONE);
    assert_false(gm_hostpool_lend(&f.pool, 2 * MIB));
    uv_sem_post(&driver.go);
    assert_int_equal(clear(&f), CUDA_SUCCESS);
    assert_int_equal(gm_hostpool_size(&f.pool), 3 * SLAB);
    borrow(&f, 9 * SLAB);
    gm_hostpool_free(&f.pool, third);

    /* Again, but what the worker makes has room in part. */
    give_back(&f, 5 * SLAB);
    run(&f);
    assert_int_equal(gm_hostpool_size(&f.pool), 8 * SLAB);
    hold(CREATE, 2);
    give_back(&f, 4 * SLAB);
    uv_sem_wait(&driver.held);
    assert_true(gm_hostpool_lend(&f.pool, 2 * SLAB));
    uv_sem_post(&driver.go);
    assert_int_equal(clear(&f), CUDA_SUCCESS);
    assert_int_equal(gm_hostpool_size(&f.pool), 10 * SLAB);
    assert_int_equal(chain_bytes(&f, page), 2 * SLAB);
    take(&f, 8 * SLAB);
    close_pool(&f);
}

/* The loop's side goes on while the worker releases. */
static void test_changes_while_releasing(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 12 * SLAB);
    grow(&f, 12 * SLAB);
    hold(UNMAP, 2);
    assert_true(gm_hostpool_lend(&f.pool, 10 * SLAB));
    assert_int_equal(gm_hostpool_clear(&f.pool), CUDA_ERROR_NOT_READY);
    uv_sem_wait(&driver.held); /* eight are with it */
    assert_int_equal(gm_hostpool_size(&f.pool), 12 * SLAB);
    gm_hostpool_unlend(&f.pool, 9 * SLAB); /* two come back at once */
    assert_int_equal(gm_hostpool_cap(&f.pool), 11 * SLAB);
    take(&f, 4 * SLAB);
    assert_int_equal(gm_hostpool_take(&f.pool, 2 * MIB), GM_NONE);
    assert_true(gm_hostpool_lend(&f.pool, 3 * SLAB));
    uv_sem_post(&driver.go);
    assert_int_equal(clear(&f), CUDA_SUCCESS);
    borrow(&f, 4 * SLAB);
    run(&f);
    assert_int_equal(gm_hostpool_size(&f.pool), 8 * SLAB); /* grown again to what is left */
    take(&f, 4 * SLAB);

    give_back(&f, 4 * SLAB);
    run(&f);
    hold(UNMAP, 2);
    assert_true(gm_hostpool_lend(&f.pool, 4 * SLAB));
    assert_int_equal(gm_hostpool_clear(&f.pool), CUDA_ERROR_NOT_READY);
    uv_sem_wait(&driver.held);
    uv_sem_post(&driver.go);
    close_pool(&f); /* waits for the worker */
}

/* ---- faults ---- */

/* The driver does not let go, in `call`: loans that wait go back, nothing is lost, and the next one
 * tries again. */
static void stick(enum call call)
{
    struct fixture f;
    open_pool(&f, 8 * SLAB);
    grow(&f, 8 * SLAB);
    uint32_t page = take(&f, SLAB);
    assert_true(gm_hostpool_lend(&f.pool, 2 * SLAB));
    assert_int_equal(clear(&f), CUDA_SUCCESS);
    borrow(&f, 2 * SLAB);

    fail_at(call, 2);
    assert_true(gm_hostpool_lend(&f.pool, 4 * SLAB));
    assert_true(gm_hostpool_clear(&f.pool) == CUDA_ERROR_NOT_READY);
    CUresult result = clear(&f);
    assert_true(result != CUDA_SUCCESS);
    assert_int_equal(gm_hostpool_clear(&f.pool), result); /* it does not try by itself */
    assert_false(f.pool.is_working);
    assert_int_equal(gm_hostpool_size(&f.pool), 5 * SLAB); /* one went */
    gm_hostpool_unlend(&f.pool, 3 * SLAB);
    run(&f);
    assert_int_equal(gm_hostpool_size(&f.pool), 5 * SLAB); /* what was stuck, and nothing else */
    gm_hostpool_unlend(&f.pool, SLAB);
    run(&f);
    assert_int_equal(gm_hostpool_clear(&f.pool), CUDA_SUCCESS); /* the old loan is none of it */
    assert_int_equal(gm_hostpool_size(&f.pool), 6 * SLAB);
    uint32_t rest = take(&f, 5 * SLAB); /* those that were stuck serve again */
    assert_int_equal(gm_hostpool_take(&f.pool, 2 * MIB), GM_NONE);
    gm_hostpool_free(&f.pool, rest);

    fail_at(call, 2);
    assert_true(gm_hostpool_lend(&f.pool, 3 * SLAB));
    assert_true(clear(&f) != CUDA_SUCCESS);
    assert_true(gm_hostpool_lend(&f.pool, SLAB));
    assert_int_equal(clear(&f), CUDA_SUCCESS);
    assert_int_equal(gm_hostpool_size(&f.pool), 2 * SLAB);
    borrow(&f, 4 * SLAB);
    assert_int_equal(chain_bytes(&f, page), SLAB);

    fail_at(call, 1); /* the last */
    gm_hostpool_free(&f.pool, page);
    assert_true(gm_hostpool_lend(&f.pool, 2 * SLAB));
    assert_true(clear(&f) != CUDA_SUCCESS);
    assert_int_equal(gm_hostpool_used(&f.pool), 0);
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
        grow(&f, SLAB);
        fail_at(round % 2 ? MAP : ACCESS, 2);
        fail_at(round < 2 ? RELEASE : UNMAP, 1);
        grow(&f, 4 * SLAB);
        memset(driver.fail_at, 0, sizeof driver.fail_at); /* without a map there was no UNMAP */
        assert_int_equal(f.pool.refusal, CUDA_ERROR_UNKNOWN);
        bool is_stuck = round != 3;
        assert_int_equal(gm_hostpool_size(&f.pool), (2 + is_stuck) * SLAB);
        take(&f, 2 * SLAB);
        assert_int_equal(gm_hostpool_take(&f.pool, 2 * MIB), GM_NONE);
        assert_true(gm_hostpool_lend(&f.pool, SLAB)); /* beside it */
        assert_int_equal(gm_hostpool_clear(&f.pool), CUDA_SUCCESS);
        borrow(&f, SLAB);
        assert_true(gm_hostpool_lend(&f.pool, SLAB)); /* it has to go */
        assert_int_equal(gm_hostpool_clear(&f.pool),
                         is_stuck ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
        if (round % 2)
            assert_int_equal(clear(&f), CUDA_SUCCESS);
        gm_hostpool_unlend(&f.pool, SLAB);
        grow(&f, 4 * SLAB);
        assert_int_equal(gm_hostpool_size(&f.pool), 3 * SLAB);
        take(&f, SLAB);
        close_pool(&f);
    }
}

/* A borrower whose own pinning fails gives back what it did not get. */
static void test_borrower_fails(void **state)
{
    struct fixture f;
    (void)state;
    open_pool(&f, 8 * SLAB);
    grow(&f, 8 * SLAB);
    assert_true(gm_hostpool_lend(&f.pool, 5 * SLAB));
    assert_int_equal(clear(&f), CUDA_SUCCESS);
    borrow(&f, 2 * SLAB);
    gm_hostpool_unlend(&f.pool, 3 * SLAB);
    run(&f);
    assert_int_equal(gm_hostpool_size(&f.pool), 6 * SLAB);
    driver.fail_from[CREATE] = 1;
    give_back(&f, 2 * SLAB);
    run(&f);
    assert_int_equal(gm_hostpool_size(&f.pool), 6 * SLAB);
    assert_int_equal(f.pool.refusal, CUDA_ERROR_OUT_OF_MEMORY);
    unsigned creates = driver.calls[CREATE];
    assert_true(gm_hostpool_lend(&f.pool, 4 * SLAB)); /* lending needs nothing made */
    assert_int_equal(clear(&f), CUDA_SUCCESS);
    gm_hostpool_unlend(&f.pool, 4 * SLAB);
    run(&f);
    assert_int_equal(driver.calls[CREATE], creates); /* refused: the owner says when to try again */
    driver.fail_from[CREATE] = 0;
    grow(&f, 8 * SLAB);
    assert_int_equal(gm_hostpool_size(&f.pool), 8 * SLAB);
    close_pool(&f);
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
#define LOANS 6u

/* Slabs with a used page. */
static unsigned used_slabs(struct fixture *f, const uint32_t *chain, const uint64_t *bytes)
{
    unsigned map = 0;
    for (unsigned c = 0; c < CHAINS; c++)
        for (uint32_t page = bytes[c] ? chain[c] : GM_NONE; page != GM_NONE;) {
            CUdeviceptr at;
            uint64_t n;
            gm_hostpool_piece(&f->pool, &page, &at, &n);
            map |= 1u << ((at - BASE) / SLAB);
        }
    return (unsigned)__builtin_popcount(map);
}

/* Anything in any order, with faults: whatever the pool says, the cap holds, what is taken stays
 * whole, and in the end all of it can be had again. */
static void walk(unsigned seed, bool has_faults)
{
    struct fixture f;
    struct random random = {seed};
    uint32_t chain[CHAINS];
    uint64_t bytes[CHAINS] = {0}, lent[LOANS] = {0}, pinned[LOANS] = {0}, used = 0, sum = 0;
    uint64_t asked = 0;

    open_pool(&f, 12 * SLAB);
    for (int step = 0; step < 600; step++) {
        unsigned c = pick(&random, CHAINS), l = pick(&random, LOANS);
        switch (pick(&random, 8)) {
        case 0: {
            asked = pick(&random, 13) * SLAB;
            gm_hostpool_want(&f.pool, asked);
            break;
        }
        case 1:
        case 2:
        case 3:
            if (bytes[c]) {
                assert_int_equal(chain_bytes(&f, chain[c]), bytes[c]);
                gm_hostpool_free(&f.pool, chain[c]);
                used -= bytes[c];
                bytes[c] = 0;
                break;
            }
            bytes[c] = (1 + pick(&random, pick(&random, 2) ? 4 : 24)) * 2 * MIB;
            chain[c] = gm_hostpool_take(&f.pool, bytes[c]);
            if (chain[c] == GM_NONE)
                bytes[c] = 0;
            used += bytes[c];
            break;
        case 4: {
            if (lent[l]) {
                uv_mutex_lock(&driver.mutex);
                driver.borrowed -= pinned[l];
                uv_mutex_unlock(&driver.mutex);
                gm_hostpool_unlend(&f.pool, lent[l]);
                sum -= lent[l];
                lent[l] = pinned[l] = 0;
                break;
            }
            lent[l] = (1 + pick(&random, 50)) * 2 * MIB;
            uint64_t with = (sum + lent[l] + SLAB - 1) / SLAB;
            bool has_room = with + used_slabs(&f, chain, bytes) <= 12;
            assert_int_equal(gm_hostpool_lend(&f.pool, lent[l]), has_room);
            if (!has_room)
                lent[l] = 0;
            sum += lent[l];
            break;
        }
        case 5:
            if (lent[l] > pinned[l] && gm_hostpool_clear(&f.pool) == CUDA_SUCCESS) {
                borrow(&f, lent[l] - pinned[l]);
                pinned[l] = lent[l];
            }
            break;
        case 6:
            if (pick(&random, 2)) {
                uv_run(&f.loop, UV_RUN_NOWAIT);
                break;
            }
            run(&f);
            if (!has_faults && clear(&f) == CUDA_SUCCESS) {
                uint64_t cap = gm_hostpool_cap(&f.pool);
                uint64_t in_use = used_slabs(&f, chain, bytes) * SLAB;
                uint64_t wanted = asked < cap ? asked : cap;
                run(&f);
                assert_int_equal(gm_hostpool_size(&f.pool), in_use > wanted ? in_use : wanted);
            }
            break;
        case 7:
            if (has_faults && pick(&random, 3) == 0) {
                uv_mutex_lock(&driver.mutex);
                fail_at((enum call)pick(&random, CALLS), 1 + pick(&random, 4));
                uv_mutex_unlock(&driver.mutex);
            }
            break;
        }
        assert_int_equal(gm_hostpool_used(&f.pool), used);
        assert_int_equal(f.pool.lent, sum);
        check(&f);
    }
    uv_mutex_lock(&driver.mutex);
    memset(driver.fail_at, 0, sizeof driver.fail_at);
    uv_mutex_unlock(&driver.mutex);
    for (unsigned l = 0; l < LOANS; l++)
        if (lent[l]) {
            uv_mutex_lock(&driver.mutex);
            driver.borrowed -= pinned[l];
            uv_mutex_unlock(&driver.mutex);
            gm_hostpool_unlend(&f.pool, lent[l]);
        }
    for (unsigned c = 0; c < CHAINS; c++)
        if (bytes[c]) {
            assert_int_equal(chain_bytes(&f, chain[c]), bytes[c]);
            gm_hostpool_free(&f.pool, chain[c]);
        }
    run(&f);
    grow(&f, 12 * SLAB);
    assert_int_equal(gm_hostpool_size(&f.pool), 12 * SLAB);
    take(&f, 12 * SLAB);
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
        cmocka_unit_test(test_lend_after_growth),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_undo),
        cmocka_unit_test(test_fragments_are_not_lent),
        cmocka_unit_test(test_holes),
        cmocka_unit_test(test_lend_while_growing),
        cmocka_unit_test(test_changes_while_releasing),
        cmocka_unit_test(test_unmap_fails),
        cmocka_unit_test(test_release_fails),
        cmocka_unit_test(test_half_made),
        cmocka_unit_test(test_borrower_fails),
        cmocka_unit_test(test_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
