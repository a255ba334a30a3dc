/*
 * core/ledger: what is written is read; one bit that changed is found; older, newer, cut and
 * unfinished ones are refused; what was being made or freed does not count; and hostile ones
 * (tests/fuzz/fuzz_ledger.c), as many as a test has time for. tests/sim/engine/ledger.c looks at
 * each order of writes in the engine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "daemon/core/table.h"
#include "daemon/core/table_adopt.h"
#include "tests/fuzz/fuzz_ledger.h"
#include "tests/sim/chance.h"

#define APPS 4u
#define CHUNKS 32u
#define FRAMES 16u
#define PAGES 64u
#define VA (1ull << 45)

static size_t bytes;
static uint64_t *memory, *copy;
static void *table_memory, *made_memory;
static uint32_t *scratch;
#define SIZES                                                                                      \
    {                                                                                              \
        .max_apps = APPS, .max_chunks = CHUNKS, .max_frames = FRAMES, .pages = {                   \
            [GM_TIER_DISK] = 9                                                                     \
        }                                                                                          \
    }
static struct gm_ledger ledger = SIZES;
static const struct gm_ledger most = SIZES;
static struct gm_table *table, *made;
static struct gm_adoption adoption;

static int set_up(void **state)
{
    (void)state;
    ledger = most;
    bytes = gm_ledger_size(&most);
    memory = calloc(1, bytes);
    copy = calloc(1, bytes);
    table_memory = calloc(1, gm_table_size(APPS, CHUNKS, FRAMES));
    made_memory = malloc(gm_table_size(APPS, CHUNKS, FRAMES));
    scratch = malloc(sizeof *scratch * gm_adoption_words(CHUNKS, PAGES));
    if (!memory || !copy || !table_memory || !made_memory || !scratch)
        return -1;
    table = gm_table_init(table_memory, APPS, CHUNKS, FRAMES, 1ull << 40);
    gm_ledger_init(&ledger, memory);
    gm_table_keep_ledger(table, &ledger);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(memory);
    free(copy);
    free(table_memory);
    free(made_memory);
    free(scratch);
    return 0;
}

/* Read the first `size` bytes of it. */
static const char *read_part(size_t size, uint64_t ended)
{
    static struct gm_ledger from;
    memcpy(copy, memory, size);
    memset(made_memory, 0, gm_table_size(APPS, CHUNKS, FRAMES));
    made = gm_table_init(made_memory, APPS, CHUNKS, FRAMES, 0);
    const char *wrong = gm_ledger_open(&from, copy, size, &most);
    adoption =
        (struct gm_adoption){.from = &from, .ended = ended, .pages = PAGES, .scratch = scratch};
    return wrong ? wrong : gm_table_adopt(made, &adoption);
}

static const char *read_it(uint64_t ended)
{
    return read_part(bytes, ended);
}

static uint32_t fill(uint32_t chunk)
{
    const uint32_t frame = gm_table_add_frame(table, table->apps[table->chunks[chunk].app].pool,
                                              table->chunks[chunk].class);
    assert_true(gm_table_fill(table, chunk, frame));
    gm_table_import(table, frame, table->chunks[chunk].app);
    gm_table_end_map(table, chunk, false);
    assert_true(gm_table_settle(table, chunk));
    return frame;
}

static void copied_to(uint32_t chunk, enum gm_tier tier, uint32_t page)
{
    assert_true(gm_table_move(table, chunk, tier, page));
    gm_table_end_copy(table, chunk, false);
    assert_true(gm_table_settle(table, chunk));
}

/* Two programs of two users; chunks 0 to 2 and 3 to 5, of 32, 4 and 2 MiB. */
static void begin(void)
{
    for (uint32_t app = 0; app < 2; app++) {
        assert_true(gm_table_add_app(table, app, 1000 + app));
        assert_int_equal(gm_table_add_allocation(table, app, VA + (uint64_t)app * (1ull << 40),
                                                 GM_CHUNK_MAX + 3 * GM_CHUNK_MIN),
                         app);
    }
}

static void test_places(void **state)
{
    (void)state;
    begin();
    fill(0);
    copied_to(1, GM_TIER_PINNED, 5);
    copied_to(2, GM_TIER_DISK, 77);
    gm_table_put(table, 1, true);
    const uint32_t host = gm_table_add_host_frame(table, 1);
    assert_true(gm_table_map(table, 1, host));
    gm_table_end_map(table, 1, false);
    gm_table_settle(table, 1);
    fill(3);
    assert_null(read_it(0));
    assert_null(gm_table_compare(table, made));
    assert_int_equal(made->chunks[0].state, GM_CHUNK_RESIDENT);
    assert_int_equal(made->chunks[1].host_frame, host);
    assert_true(made->chunks[1].is_on_host);
    assert_int_equal(made->chunks[2].tier, GM_TIER_DISK);
    assert_int_equal(made->chunks[2].page, 77);
    assert_int_equal(made->chunks[4].tier, GM_TIER_NONE);
    assert_int_equal(made->apps[1].committed, GM_CHUNK_MAX + 3 * GM_CHUNK_MIN);
    assert_true(gm_table_has_import(made, 1, table->chunks[3].frame));
    assert_false(gm_table_has_import(made, 0, table->chunks[3].frame));
    /* New ones take slots that are free. */
    const uint32_t next = gm_table_add_allocation(made, 0, VA + (1ull << 43), GM_CHUNK_MIN);
    assert_int_equal(next, 2);
    assert_int_equal(made->allocations[next].first, 6);
}

/* A chunk that is copied out is in its frame, which others have already, or at its page. */
static void test_out(void **state)
{
    (void)state;
    begin();
    const uint32_t frame = fill(0);
    assert_true(gm_table_evict(table, 0, 16));
    gm_table_end_map(table, 0, false);
    gm_table_begin_copy(table, 0);
    assert_null(read_it(0));
    assert_int_equal(made->chunks[0].frame, frame);
    gm_table_leave_frame(table, 0, 9);
    assert_null(read_it(8));
    assert_int_equal(made->chunks[0].frame, frame);
    assert_int_equal(made->frames[frame].chunk, 0);
    assert_null(read_it(9));
    assert_int_equal(made->chunks[0].tier, GM_TIER_PINNED);
    assert_int_equal(made->chunks[0].page, 16);
    assert_int_equal(made->frames[frame].state, GM_FRAME_FREE);
    assert_true(made->frames[frame].is_dirty);
    gm_table_end_copy(table, 0, false);
    assert_true(gm_table_settle(table, 0));
    assert_null(read_it(0));
    assert_int_equal(made->chunks[0].page, 16);
}

/* What is freed is nobody's at once; its frame is when its program has come back, which may have it
 * mapped. */
static void test_freed(void **state)
{
    (void)state;
    begin();
    fill(0);
    gm_table_free_allocation(table, 0, (struct gm_last_word){.kind = GM_LAST_FREED});
    assert_null(read_it(0));
    assert_int_equal(made->apps[0].chunks, 0);
    assert_int_equal(made->frames[0].state, GM_FRAME_USED);
    assert_int_equal(made->frames[0].chunk, GM_NONE);
    gm_table_set_lost(made, 1, false);
    assert_int_equal(made->frames[0].state, GM_FRAME_USED);
    gm_table_set_lost(made, 0, false);
    assert_int_equal(made->frames[0].state, GM_FRAME_FREE);
    assert_true(made->frames[0].is_dirty);
    assert_null(gm_table_check(made));
    assert_int_equal(made->apps[1].chunks, 3);
}

/* A copy out that did not end, and another program has been told to map the frame: the chunk leaves
 * it again, and nobody has it before that program has come back. */
static void test_mapper(void **state)
{
    (void)state;
    assert_true(gm_table_add_app(table, 0, 1000) && gm_table_add_app(table, 1, 1000));
    gm_table_add_allocation(table, 0, VA, GM_CHUNK_MAX);
    gm_table_add_allocation(table, 1, VA, GM_CHUNK_MAX);
    const uint32_t frame = fill(0);
    assert_true(gm_table_evict(table, 0, 16));
    gm_table_end_map(table, 0, false);
    gm_table_begin_copy(table, 0);
    gm_table_leave_frame(table, 0, 9);
    assert_int_equal(table->frames[frame].state, GM_FRAME_FREE);
    assert_true(gm_table_fill(table, 1, frame));
    gm_table_import(table, frame, 1);
    assert_null(read_it(8));
    assert_int_equal(made->chunks[0].state, GM_CHUNK_LEAVING);
    assert_int_equal(made->chunks[0].frame, frame);
    assert_int_equal(made->chunks[0].page, 16);
    assert_int_equal(made->chunks[1].state, GM_CHUNK_AWAY);
    gm_table_leave_frame(made, 0, 1);
    assert_true(gm_table_settle(made, 0));
    assert_int_equal(made->frames[frame].state, GM_FRAME_USED);
    assert_int_equal(made->frames[frame].chunk, GM_NONE);
    gm_table_set_lost(made, 0, false);
    assert_int_equal(made->frames[frame].state, GM_FRAME_USED);
    assert_null(gm_table_check(made));
    gm_table_set_lost(made, 1, false);
    assert_int_equal(made->frames[frame].state, GM_FRAME_FREE);
    assert_null(gm_table_check(made));
    /* It has ended: that program's, or nobody's. */
    assert_null(read_it(9));
    assert_int_equal(made->chunks[0].state, GM_CHUNK_AWAY);
    assert_int_equal(made->frames[frame].state, GM_FRAME_USED);
    assert_int_equal(made->frames[frame].mapper, 1);
    /* Both are back, and the copy out fails: the frame is its chunk's alone again. */
    assert_null(read_it(8));
    gm_table_set_lost(made, 0, false);
    gm_table_set_lost(made, 1, false);
    assert_true(gm_table_undo(made, 0));
    assert_int_equal(made->frames[frame].mapper, 0);
    assert_null(gm_table_check(made));
    /* Data that rests is in no frame of another program's. */
    gm_ledger_set_place(&ledger, 0,
                        &(struct gm_ledger_place){.where = GM_LEDGER_IN_FRAME, .index = frame});
    assert_string_equal(read_it(9), "a chunk is in a frame that it cannot have");
}

/* A copy out that did not end, and its own program has been told to map the frame for another
 * chunk: nobody has it before that program has come back, and says so to the next daemon, too. */
static void test_own_mapper(void **state)
{
    (void)state;
    assert_true(gm_table_add_app(table, 0, 1000));
    gm_table_add_allocation(table, 0, VA, GM_CHUNK_MAX);
    gm_table_add_allocation(table, 0, VA + (1ull << 40), GM_CHUNK_MAX);
    const uint32_t frame = fill(0);
    assert_true(gm_table_evict(table, 0, 16));
    gm_table_end_map(table, 0, false);
    gm_table_begin_copy(table, 0);
    gm_table_leave_frame(table, 0, 9);
    /* It has unmapped it: the frame waits for nobody. */
    assert_null(read_it(8));
    assert_int_equal(made->frames[frame].mapper, GM_NONE);
    gm_table_leave_frame(made, 0, 1);
    assert_int_equal(made->frames[frame].state, GM_FRAME_FREE);
    assert_null(gm_table_check(made));
    /* It has it mapped for another one. */
    assert_true(gm_table_fill(table, 1, frame));
    assert_null(read_it(8));
    assert_int_equal(made->chunks[0].state, GM_CHUNK_LEAVING);
    assert_int_equal(made->chunks[1].state, GM_CHUNK_AWAY);
    assert_true(gm_table_is_awaited(made, frame));
    gm_table_leave_frame(made, 0, 1);
    assert_true(gm_table_settle(made, 0));
    assert_int_equal(made->frames[frame].state, GM_FRAME_USED);
    assert_int_equal(made->frames[frame].chunk, GM_NONE);
    assert_int_equal(made->frames[frame].mapper, 0);
    assert_null(gm_table_check(made));
    gm_table_set_lost(made, 0, false);
    assert_int_equal(made->frames[frame].state, GM_FRAME_FREE);
    assert_null(gm_table_check(made));
}

/* The chunk's program ends while another one, which has yet to come back, may have the frame
 * mapped: it serves nobody before, though that one does not answer. */
static void test_mapper_is_silent(void **state)
{
    (void)state;
    assert_true(gm_table_add_app(table, 0, 1000) && gm_table_add_app(table, 1, 1000));
    gm_table_add_allocation(table, 0, VA, GM_CHUNK_MAX);
    gm_table_add_allocation(table, 1, VA, GM_CHUNK_MAX);
    const uint32_t frame = fill(0);
    assert_true(gm_table_evict(table, 0, 16));
    gm_table_end_map(table, 0, false);
    gm_table_begin_copy(table, 0);
    gm_table_leave_frame(table, 0, 9);
    assert_true(gm_table_fill(table, 1, frame));
    gm_table_import(table, frame, 1);
    for (int is_back = 0; is_back < 2; is_back++) {
        assert_null(read_it(8));
        gm_table_set_silent(made, 1, true);
        if (is_back)
            gm_table_set_lost(made, 1, false);
        assert_true(gm_table_condemn_frame(made, frame, GM_NONE));
        assert_true(gm_table_drop(made, frame, 1));
        gm_table_keep_frame(made, frame, false);
        assert_int_equal(made->frames[frame].state, is_back ? GM_FRAME_FREE : GM_FRAME_CONDEMNED);
        assert_int_equal(made->frames[frame].mapper, is_back ? GM_NONE : 1);
        assert_null(gm_table_check(made));
    }
    /* The program that had it mapped is cut off and goes on, and so the daemon condemns the frame.
     * The next one finds the chunk there, and knows who may have it mapped. */
    assert_true(gm_table_condemn_frame(table, frame, GM_NONE));
    assert_null(read_it(8));
    assert_int_equal(made->frames[frame].chunk, 0);
    assert_int_equal(made->frames[frame].mapper, 1);
    assert_true(gm_table_is_awaited(made, frame));
    assert_null(read_it(9));
    assert_int_equal(made->frames[frame].state, GM_FRAME_CONDEMNED);
}

/* A table that was read, written whole, and read again is the same. */
static void test_again(void **state)
{
    (void)state;
    test_mapper(state);
    gm_ledger_set_place(
        &ledger, 0,
        &(struct gm_ledger_place){.where = GM_LEDGER_OUT, .index = 0, .page = 16, .number = 9});
    gm_table_add_allocation(table, 0, VA + (1ull << 40), GM_CHUNK_MAX + 3 * GM_CHUNK_MIN);
    copied_to(2, GM_TIER_DISK, 77);
    copied_to(3, GM_TIER_PINNED, 5);
    gm_table_put(table, 3, true);
    assert_true(gm_table_map(table, 3, gm_table_add_host_frame(table, 3)));
    gm_table_import(table, table->chunks[3].frame, 0);
    for (uint64_t ended = 8; ended <= 9; ended++) {
        assert_null(read_it(ended));
        void *other = calloc(1, bytes), *again = calloc(1, gm_table_size(APPS, CHUNKS, FRAMES));
        assert_true(other && again);
        struct gm_ledger whole = ledger, from;
        gm_ledger_init(&whole, other);
        gm_table_keep_ledger(made, &whole);
        gm_table_commit_all(made);
        struct gm_table *second = gm_table_init(again, APPS, CHUNKS, FRAMES, 0);
        assert_null(gm_ledger_open(&from, other, bytes, &most));
        struct gm_adoption once_more = {.from = &from, .pages = PAGES, .scratch = scratch};
        assert_null(gm_table_adopt(second, &once_more));
        assert_null(gm_table_compare(made, second));
        for (uint32_t i = 0; i < FRAMES; i++)
            assert_int_equal(made->frames[i].mapper, second->frames[i].mapper);
        for (uint32_t i = 0; i < CHUNKS; i++)
            assert_int_equal(made->chunks[i].state, second->chunks[i].state);
        free(other);
        free(again);
    }
}

/* A table of it says nothing of allocations whose chunks were being made: at each store. */
static unsigned stores, refused;
static void on_store(void *arg, enum gm_ledger_kind kind, uint32_t slot)
{
    (void)arg, (void)kind, (void)slot;
    stores++;
    refused += read_it(0) != NULL;
    assert_true(made->apps[0].chunks == 0 || made->apps[0].chunks == 3);
}

static void test_stores(void **state)
{
    (void)state;
    ledger.on_store = on_store;
    gm_table_keep_ledger(table, &ledger);
    begin();
    fill(0);
    gm_table_free_allocation(table, 0, (struct gm_last_word){.kind = GM_LAST_FREED});
    assert_true(stores > 20);
    assert_int_equal(refused, 0);
}

/* It is shared as a whole, and has its name then. */
static void on_share(void *arg, enum gm_ledger_kind kind, uint32_t slot)
{
    uint32_t fixed = 0;
    (void)arg, (void)kind, (void)slot;
    stores++;
    assert_null(read_it(0));
    for (uint32_t i = 0; i < 3; i++)
        fixed += made->chunks[i].is_fixed;
    assert_int_equal(fixed, 0);
}

static void test_share(void **state)
{
    const uint64_t nonce[2] = {GM_LEDGER_NONCE - 1, 7};
    struct gm_ledger_allocation is;
    (void)state;
    begin();
    for (uint32_t i = 0; i < 3; i++)
        fill(i);
    stores = 0;
    ledger.on_store = on_share;
    gm_table_keep_ledger(table, &ledger);
    gm_table_fix(table, 0, 9, nonce);
    assert_int_equal(stores, 3 * 3 + 3); /* frames, and what shares them */
    ledger.on_store = NULL;
    gm_table_keep_ledger(table, &ledger);
    assert_null(read_it(0));
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(made->chunks[i].is_fixed, i < 3);
    assert_int_equal(gm_ledger_allocation(&ledger, 0, &is), GM_LEDGER_IS);
    assert_true(is.share == 9 && is.nonce[0] == nonce[0] && is.nonce[1] == nonce[1]);
    /* What is shared and not fixed cannot be. */
    gm_ledger_share_allocation(&ledger, 1, 4, nonce);
    assert_string_equal(read_it(0), "a shared chunk is in a frame that is not");
    /* The next one in its place is not shared. */
    gm_ledger_begin_allocation(&ledger, 1, VA, GM_CHUNK_MIN);
    gm_ledger_commit_allocation(&ledger, 1, 1, false);
    assert_int_equal(gm_ledger_allocation(&ledger, 1, &is), GM_LEDGER_IS);
    assert_int_equal(is.share, 0);
}

static void test_head(void **state)
{
    (void)state;
    struct gm_ledger_head *head = (void *)memory, is = *head;
    begin();
    for (size_t part = 0; part < bytes; part += 8)
        assert_non_null(read_part(part, 0));
    head->version++;
    assert_string_equal(read_it(0), "the ledger is of a newer gpumuxd");
    head->version = 0;
    assert_string_equal(read_it(0), "the ledger is of an older gpumuxd");
    *head = is;
    head->made = 0;
    assert_string_equal(
        read_it(0),
        "the ledger was never finished, or the keeper was lost from sight when it was left");
    head->magic++;
    assert_string_equal(read_it(0), "it is no ledger");
    *head = is;
    *gm_ledger_out(&ledger) = GM_LEDGER_UNCOUNTED;
    assert_string_equal(read_it(0), "the driver did not count what was copied out");
    *gm_ledger_out(&ledger) = 0;
    head->max_frames++;
    assert_string_equal(read_it(0), "the ledger is larger than this gpumuxd's tables");
    *head = is;
    head->pages[GM_TIER_DISK]++;
    assert_string_equal(read_it(0), "the ledger is larger than this gpumuxd's tables");
    *head = is;
    head->max_apps = UINT64_MAX;
    assert_string_equal(read_it(0), "the ledger is larger than this gpumuxd's tables");
    *head = is;
    assert_null(read_it(0));
    struct gm_ledger huge = {
        .max_apps = UINT32_MAX, .max_chunks = UINT32_MAX, .max_frames = UINT32_MAX};
    for (unsigned tier = 0; tier < GM_TIERS; tier++)
        huge.pages[tier] = UINT32_MAX;
    assert_int_equal(gm_ledger_size(&huge), 0);
    huge.max_apps = 256;
    assert_int_equal(gm_ledger_size(&huge) % GM_LEDGER_PAGE, 0);
    assert_true(gm_ledger_size(&huge) > GM_TIERS * sizeof(uint32_t) * UINT32_MAX);
}

/* Every bit of every word that says something. (Imports have no check: one that is too many costs a
 * DROP.) */
static void test_flips(void **state)
{
    (void)state;
    unsigned found = 0, words = 0;
    begin();
    fill(0);
    copied_to(1, GM_TIER_PAGED, 3);
    const uint64_t *imports = memory + 2 * GM_LEDGER_PAGE / 8 + APPS + 10 * CHUNKS + 3 * FRAMES;
    for (uint64_t *word = memory + 2 * GM_LEDGER_PAGE / 8; word < imports; word++) {
        if (*word == 0)
            continue;
        words++;
        for (unsigned bit = 0; bit < 64; bit++) {
            *word ^= 1ull << bit;
            const char *wrong = read_it(0);
            found += wrong != NULL;
            if (!wrong) /* a word that does not count now: nothing may have changed */
                assert_null(gm_table_compare(table, made));
            *word ^= 1ull << bit;
        }
    }
    assert_true(words >= 19);
    assert_int_equal(found, words * 64);
    assert_null(read_it(0));
}

/* What one setter after the other costs: a switch writes some ten words a chunk, and moving a chunk
 * of 32 MiB takes 600 us. */
static void test_cost(void **state)
{
    (void)state;
    struct timespec from, to;
    enum { TIMES = 200000 };
    gm_table_keep_ledger(table, &ledger);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (unsigned i = 0; i < TIMES; i++) {
        gm_ledger_set_place(&ledger, i % CHUNKS,
                            &(struct gm_ledger_place){
                                .where = GM_LEDGER_OUT, .index = 1, .page = i, .number = i + 1});
        gm_ledger_set_place(&ledger, i % CHUNKS,
                            &(struct gm_ledger_place){
                                .where = GM_LEDGER_AT_PAGE, .tier = GM_TIER_PINNED, .index = i});
        gm_ledger_set_place(&ledger, i % CHUNKS,
                            &(struct gm_ledger_place){.where = GM_LEDGER_IN_FRAME, .index = 2});
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    const double ns =
        ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / TIMES;
    printf("a chunk that goes and comes: %.0f ns of ledger\n", ns);
    assert_true(ns < 6000 * 10); /* 1 % of 600 us, on a busy machine with a sanitizer */
}

static void test_hostile(void **state)
{
    (void)state;
    struct chance chance = {.state = 33};
    uint8_t input[2 + 12 * 16];
    unsigned taken = 0, all = 30000;
    for (unsigned i = 0; i < all; i++) {
        const size_t size = 2 + 12 * draw(&chance, 17);
        for (size_t at = 0; at < size; at++)
            input[at] = (uint8_t)draw(&chance, 256);
        taken += gm_fuzz_ledger(input, size);
    }
    assert_true(taken > all / 50 && taken < all / 2);
}

#define LEDGER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LEDGER(test_places),
        LEDGER(test_out),
        LEDGER(test_freed),
        LEDGER(test_mapper),
        LEDGER(test_own_mapper),
        LEDGER(test_mapper_is_silent),
        LEDGER(test_again),
        LEDGER(test_stores),
        LEDGER(test_head),
        LEDGER(test_flips),
        LEDGER(test_cost),
        LEDGER(test_share),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
