/*
 * daemon/engine/adopt: which ledger a new daemon takes, when it takes over and when it leaves all
 * to another start. Ledger and table are real; the keeper and what holds memory are this test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/core/table.h"
#include "daemon/engine/act/ledger.h"
#include "daemon/engine/adopt.h"
#include "daemon/engine/step/shares.h"
#include "daemon/memory/frames.h"
#include "daemon/memory/hostpool.h"
#include "daemon/memory/kept.h"
#include "daemon/memory/stores.h"

enum { APPS = 4, CHUNKS = 16, FRAMES = 16, PAGES = 32 };

#define VA (1ull << 40)

static struct gm_engine *engine;
static struct gm_old old;
static char text[128];
static unsigned n_touched; /* what was claimed, imported or dropped of memory */

/* ---- the keeper: two ledgers of each GPU ---- */

static struct {
    int fd;
    uint64_t generation;
} ledgers[2][2];

int gm_kept_claim(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu, uint32_t slot,
                  uint64_t *id)
{
    (void)kept;
    if (kind != GM_KEPT_LEDGER) {
        n_touched++;
        return -1;
    }
    *id = ledgers[gpu][slot].generation;
    return ledgers[gpu][slot].fd >= 0 ? dup(ledgers[gpu][slot].fd) : -1;
}

uint32_t gm_kept_next(const struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu,
                      uint32_t after)
{
    (void)kept, (void)kind, (void)gpu, (void)after;
    return GM_NONE;
}

void gm_kept_drop(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu, uint32_t slot)
{
    (void)kept, (void)kind, (void)gpu, (void)slot;
    n_touched++;
}

/* ---- memory ---- */

CUresult gm_frames_import(struct gm_frames *frames, uint32_t index, uint64_t bytes, int fd,
                          uint32_t id)
{
    (void)frames, (void)index, (void)bytes, (void)fd, (void)id;
    n_touched++;
    return CUDA_SUCCESS;
}

CUresult gm_frames_adopt_again(struct gm_frames *frames, uint32_t index, struct gm_hostpool *pool,
                               uint32_t page, uint32_t owner)
{
    (void)frames, (void)index, (void)pool, (void)page, (void)owner;
    n_touched++;
    return CUDA_SUCCESS;
}

int gm_hostpool_adopt(struct gm_hostpool *pool, uint32_t page, int fd, uint32_t id, uint32_t owner)
{
    (void)pool, (void)page, (void)fd, (void)id, (void)owner;
    n_touched++;
    return 0;
}

uint32_t gm_hostpool_pages(const struct gm_hostpool *pool)
{
    (void)pool;
    return PAGES;
}

static struct {
    enum gm_tier tier;
    uint32_t page;
    uint64_t bytes;
} adopted[CHUNKS];
static uint32_t n_adopted;

bool gm_stores_adopt(struct gm_stores *stores, enum gm_tier tier, uint32_t page, uint64_t bytes)
{
    (void)stores;
    adopted[n_adopted].tier = tier;
    adopted[n_adopted].page = page;
    adopted[n_adopted++].bytes = bytes;
    return true;
}

int gm_engine_adopt_share(struct gm_engine *e, uint32_t allocation,
                          const struct gm_ledger_allocation *is)
{
    (void)e, (void)allocation, (void)is;
    return 0;
}

int gm_engine_adopt_orphans(struct gm_engine *e)
{
    (void)e;
    return 0;
}

uint64_t gm_engine_gpu_number(const struct gm_engine *e)
{
    return (uint64_t)(uint8_t)e->uuid.bytes[0];
}

/* ---- ledgers ---- */

/* One of those pages below the GPU, in a file of its own; its memory is the caller's. */
static int make(struct gm_ledger *is, size_t *bytes)
{
    *bytes = gm_ledger_size(is);
    const int fd = memfd_create("ledger", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)*bytes), 0);
    void *memory = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    gm_ledger_init(is, memory);
    return fd;
}

/* The daemon before had GPU `gpu` (its name) as number `index`, and there one app, the memory of
 * which is in each tier below. */
static void before(uint32_t index, uint32_t slot, uint64_t gpu, uint64_t generation)
{
    struct gm_ledger is = {
        .max_apps = APPS,
        .max_chunks = CHUNKS,
        .max_frames = FRAMES,
        .gpu = gpu,
        .pages = {[GM_TIER_PINNED] = PAGES, [GM_TIER_PAGED] = PAGES, [GM_TIER_DISK] = PAGES}};
    size_t bytes;
    ledgers[index][slot].fd = make(&is, &bytes);
    ledgers[index][slot].generation = generation;
    gm_ledger_set_app(&is, 1, 1000);
    for (uint32_t tier = GM_TIER_PINNED; tier <= GM_TIER_DISK; tier++) {
        const uint32_t at = tier - GM_TIER_PINNED;
        const struct gm_ledger_place place = {
            .where = GM_LEDGER_AT_PAGE, .tier = (enum gm_tier)tier, .index = 3 + tier};
        gm_ledger_begin_allocation(&is, at, VA + at * 2 * GM_CHUNK_MIN, GM_CHUNK_MIN);
        gm_ledger_add_chunk(&is, at, at, 0);
        gm_ledger_set_place(&is, at, &place);
        gm_ledger_commit_allocation(&is, at, 1, false);
        for (uint32_t i = 0; i < PAGES; i++)
            gm_ledger_chains(&is, (enum gm_tier)tier)[i] = tier * 100 + i;
    }
    *gm_ledger_made(&is) = GM_LEDGER_MAGIC;
    munmap(is.words, bytes);
}

static size_t new_bytes;

/* An engine of GPU `gpu` as number `index`, with room for so much more than the one before. */
static void comes(uint32_t index, uint8_t gpu, const int more[GM_TIERS])
{
    struct gm_ledger is = {
        .max_apps = APPS, .max_chunks = CHUNKS, .max_frames = FRAMES, .gpu = gpu};
    for (unsigned tier = GM_TIER_PINNED; tier <= GM_TIER_DISK; tier++)
        is.pages[tier] = (uint32_t)(PAGES + (more ? more[tier] : 0));
    engine = calloc(1, sizeof *engine);
    engine->config = (struct gm_engine_config){.index = index, .max_apps = APPS};
    engine->uuid.bytes[0] = (char)gpu;
    engine->table_memory = calloc(1, gm_table_size(APPS, CHUNKS, FRAMES));
    engine->table = gm_table_init(engine->table_memory, APPS, CHUNKS, FRAMES, 1 << 30);
    engine->ledger.fd = make(&is, &new_bytes);
    engine->ledger.memory = is.words;
    engine->ledger.is = is;
    n_touched = n_adopted = 0;
}

static const char *find(void)
{
    return gm_old_find(&old, &engine->config);
}

static void ends(void)
{
    gm_old_close(&old);
    munmap(engine->ledger.memory, new_bytes);
    close(engine->ledger.fd);
    free(engine->table_memory);
    free(engine);
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        ledgers[i / 2][i % 2].fd = -1;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        if (ledgers[i / 2][i % 2].fd >= 0)
            close(ledgers[i / 2][i % 2].fd);
    return 0;
}

/* ---- tests ---- */

static void test_nothing(void **state)
{
    (void)state;
    comes(0, 7, NULL);
    assert_null(find());
    assert_null(old.ledger.words);
    ends();
}

/* All is as it was: the app, its memory in each tier, and the chains of that. */
static void test_same(void **state)
{
    (void)state;
    before(0, 0, 7, 4);
    comes(0, 7, NULL);
    assert_null(find());
    assert_null(gm_old_adopt(&old, engine, text, sizeof text));
    assert_true(engine->table->apps[1].is_used && engine->table->apps[1].is_lost);
    assert_int_equal(engine->table->apps[1].committed, 3 * GM_CHUNK_MIN);
    assert_int_equal(n_adopted, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(adopted[i].tier == GM_TIER_PINNED + i &&
                    adopted[i].page == 3 + GM_TIER_PINNED + i && adopted[i].bytes == GM_CHUNK_MIN);
    ends();
}

/* The newer one of two counts: the daemon died after it had put it. */
static void test_newest(void **state)
{
    (void)state;
    before(0, 0, 7, 4);
    before(0, 1, 8, 5);
    comes(0, 8, NULL);
    assert_null(find());
    assert_int_equal(old.ledger.gpu, 8);
    assert_int_equal(old.generation, 5);
    ends();
    ledgers[0][0].generation = 6;
    comes(0, 7, NULL);
    assert_null(find());
    assert_int_equal(old.ledger.gpu, 7);
    ends();
}

/* The GPUs come in another order: nothing is taken over, and nothing lost. */
static void test_order(void **state)
{
    (void)state;
    before(0, 0, 7, 4);
    before(1, 0, 8, 4);
    for (uint32_t index = 0; index < 2; index++) {
        comes(index, index == 0 ? 8 : 7, NULL);
        assert_null(find());
        assert_ptr_equal(gm_old_adopt(&old, engine, text, sizeof text), text);
        assert_string_equal(text, "it was another GPU: choose with --gpu as before");
        assert_true(old.is_sound);
        assert_int_equal(n_touched + n_adopted, 0);
        assert_false(engine->table->apps[1].is_used);
        ends();
    }
    comes(1, 8, NULL); /* as before */
    assert_null(find());
    assert_null(gm_old_adopt(&old, engine, text, sizeof text));
    ends();
}

/* A tier that is smaller than it was by one page has no place for what may be there. One that is
 * larger has the chains as they were, and nothing behind them. */
static void test_sizes(void **state)
{
    (void)state;
    before(0, 0, 7, 4);
    for (unsigned tier = GM_TIER_PINNED; tier <= GM_TIER_DISK; tier++) {
        int more[GM_TIERS] = {0};
        more[tier] = -1;
        comes(0, 7, more);
        assert_null(find());
        assert_ptr_equal(gm_old_adopt(&old, engine, text, sizeof text), text);
        assert_string_equal(text, "a tier is smaller than it was");
        assert_true(old.is_sound);
        assert_int_equal(n_touched + n_adopted, 0);
        ends();

        more[tier] = 5;
        comes(0, 7, more);
        assert_null(find());
        assert_null(gm_old_adopt(&old, engine, text, sizeof text));
        for (unsigned of = GM_TIER_PINNED; of <= GM_TIER_DISK; of++) {
            const uint32_t *chains = gm_ledger_chains(&engine->ledger.is, (enum gm_tier)of);
            for (uint32_t i = 0; i < PAGES; i++)
                assert_int_equal(chains[i], of * 100 + i);
            for (uint32_t i = PAGES; i < engine->ledger.is.pages[of]; i++)
                assert_int_equal(chains[i], 0);
        }
        ends();
    }
}

/* Another start may do better with fewer apps or where the GPU cannot count; with a ledger that is
 * cut off or empty none ever does. */
static void test_refused(void **state)
{
    (void)state;
    before(0, 0, 7, 4);
    comes(0, 7, NULL);
    engine->config.max_apps = APPS - 1;
    assert_string_equal(find(), "--max-apps is lower than it was");
    assert_true(old.is_sound);
    ends();
    comes(0, 7, NULL);
    assert_null(find());
    void *memory = engine->ledger.memory;
    engine->ledger.memory = NULL;
    assert_string_equal(gm_old_adopt(&old, engine, text, sizeof text),
                        "the GPU cannot reach a ledger");
    assert_true(old.is_sound);
    engine->ledger.memory = memory;
    ends();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ftruncate(ledgers[0][0].fd, i == 0 ? 2 * GM_LEDGER_PAGE : 0), 0);
        comes(0, 7, NULL);
        assert_non_null(find());
        assert_false(old.is_sound);
        assert_null(old.copy);
        ends();
    }
}

/* A frame that was condemned waits for whoever has it, before anybody is back or known to be away.
 */
static void test_condemned(void **state)
{
    (void)state;
    before(0, 0, 7, 4);
    const struct gm_ledger_frame frame = {
        .uid = 1000, .page = 20, .mapper = GM_NONE, .is_host = true, .is_condemned = true};
    comes(0, 7, NULL);
    assert_null(find());
    gm_ledger_set_frame(&old.ledger, 2, &frame);
    gm_ledger_set_import(&old.ledger, 1, 2, true);
    assert_null(gm_old_adopt(&old, engine, text, sizeof text));
    assert_int_equal(engine->table->frames[2].state, GM_FRAME_CONDEMNED);
    assert_int_equal(engine->table->frames[2].drops, 1);
    ends();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(nothing), TEST(same),    TEST(newest),    TEST(order),
        TEST(sizes),   TEST(refused), TEST(condemned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
