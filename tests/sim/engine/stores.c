/*
 * The fake stores: as stores.h says. Which page is free is kept by the real pages.c. Copies take a
 * time that is drawn and may end in any order; the disk fails at times. What paged memory costs the
 * system (gm_stores_want and the like) is not simulated.
 */
#include "tests/sim/engine/machine.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/memory/hostpool.h"
#include "daemon/memory/stores.h"

struct job {
    struct gm_stores *stores;
    struct page *from[HANDLE_PAGES], *to[HANDLE_PAGES];
    uint32_t pages, chunk;
    enum gm_tier from_tier, to_tier;
    int error;
    bool is_void;
    struct job *next;
};

static struct job *jobs;
/* What outlives the daemon: the memory of both tiers. */
static struct {
    struct page *memory;
    uint32_t pages;
} kept[GPUS][GM_TIERS];

struct store {
    struct gm_pages pages;
    struct page *memory;
};

struct gm_stores {
    struct gm_hostpool *pinned;
    gm_stores_done *on_done;
    void *arg;
    struct store tiers[GM_TIERS]; /* PAGED and DISK */
    uint64_t bytes[GM_TIERS][GM_TIERS];
    bool is_closed;
    uint32_t under_way;
};

static void open_store(struct store *store, uint32_t gpu, enum gm_tier tier, uint64_t bytes)
{
    bytes &= ~(GM_CHUNK_MIN - 1);
    require(gm_pages_open(&store->pages, bytes) == 0, "no memory");
    gm_pages_add(&store->pages, store->pages.max_pages);
    store->memory = kept[gpu][tier].memory;
    if (machine.is_coming && store->memory) {
        require(kept[gpu][tier].pages == store->pages.max_pages, "a tier has another size");
        return;
    }
    store->memory = calloc(store->pages.max_pages + 1, sizeof *store->memory);
    require(store->memory, "no memory");
    for (uint32_t i = 0; i < store->pages.max_pages; i++)
        store->memory[i].tag = GARBAGE; /* whatever it was */
    kept[gpu][tier].memory = store->memory;
    kept[gpu][tier].pages = store->pages.max_pages;
}

int gm_stores_open(struct gm_stores **out, uv_loop_t *loop, struct gm_hostpool *pinned,
                   const struct gm_stores_config *config, gm_stores_done *on_done, void *arg,
                   char *why, size_t why_size)
{
    struct gm_stores *stores = calloc(1, sizeof *stores);
    (void)loop;
    (void)why;
    (void)why_size;
    require(stores, "no memory");
    stores->pinned = pinned;
    stores->on_done = on_done;
    stores->arg = arg;
    const uint32_t gpu = gpu_of(pinned->context);
    open_store(&stores->tiers[GM_TIER_PAGED], gpu, GM_TIER_PAGED, config->paged);
    open_store(&stores->tiers[GM_TIER_DISK], gpu, GM_TIER_DISK,
               config->disk_dir && *config->disk_dir ? config->disk : 0);
    *out = stores;
    return 0;
}

void gm_stores_keep(struct gm_stores *stores, enum gm_tier tier, uint32_t *next)
{
    gm_pages_keep(&stores->tiers[tier].pages, next);
}

void gm_stores_close(struct gm_stores *stores)
{
    if (!stores)
        return;
    stores->is_closed = true;
    while (stores->under_way > 0)
        require(machine_step(UINT64_MAX), "a copy between tiers does not end");
    for (int tier = 0; tier < GM_TIERS; tier++) {
        gm_pages_close(&stores->tiers[tier].pages);
        free(stores->tiers[tier].memory);
        kept[gpu_of(stores->pinned->context)][tier].memory = NULL;
    }
    free(stores);
}

uint32_t stored_pages(const struct gm_stores *stores, enum gm_tier tier, uint32_t page,
                      struct page **pages, uint32_t most)
{
    const struct store *store = &stores->tiers[tier];
    uint32_t n = 0;
    if (tier == GM_TIER_PINNED)
        return pinned_pages(stores->pinned, page, pages, most);
    while (page != GM_NONE && n < most) {
        const uint32_t first = page, run = gm_pages_run(&store->pages, &page, most - n);
        for (uint32_t i = 0; i < run; i++)
            pages[n++] = &store->memory[first + i];
    }
    return n;
}

const struct gm_pages *pages_in(const struct gm_stores *stores, enum gm_tier tier)
{
    return tier == GM_TIER_PINNED ? &stores->pinned->pages : &stores->tiers[tier].pages;
}

static void on_copied(void *arg, uint64_t a, uint64_t b)
{
    struct job *job = arg;
    struct gm_stores *stores = job->stores;
    (void)a;
    (void)b;
    if (job->is_void) {
        free(job);
        return;
    }
    struct job **link = &jobs;
    while (*link != job)
        link = &(*link)->next;
    *link = job->next;
    for (uint32_t i = 0; i < job->pages; i++) {
        if (job->error)
            page_end_broken(job->to[i], job->from[i]);
        else
            page_end_copy(job->to[i], job->from[i]);
    }
    stores->under_way--;
    if (job->error == 0)
        stores->bytes[job->from_tier][job->to_tier] += (uint64_t)job->pages << GM_CHUNK_SHIFT;
    const uint32_t chunk = job->chunk;
    const int error = job->error;
    trace("chunk %lu is copied from tier %lu (error %lu)", chunk, job->from_tier, (uint64_t)-error);
    free(job);
    if (!stores->is_closed)
        stores->on_done(stores->arg, chunk, error);
}

void gm_stores_copy(struct gm_stores *stores, uint32_t chunk, enum gm_tier from, uint32_t from_page,
                    enum gm_tier to, uint32_t to_page, uint64_t bytes)
{
    struct job *job = calloc(1, sizeof *job);
    const bool is_of_disk = from == GM_TIER_DISK || to == GM_TIER_DISK;
    require(job, "no memory");
    *job = (struct job){.stores = stores,
                        .pages = (uint32_t)(bytes >> GM_CHUNK_SHIFT),
                        .chunk = chunk,
                        .from_tier = from,
                        .to_tier = to};
    require(stored_pages(stores, from, from_page, job->from, job->pages) == job->pages &&
                stored_pages(stores, to, to_page, job->to, job->pages) == job->pages,
            "a chain of pages is too short");
    if (to == GM_TIER_DISK && machine_fails(FAULT_DISK_WRITE))
        job->error = chance_percent(50) ? -ENOSPC : -EIO;
    if (from == GM_TIER_DISK && machine_fails(FAULT_DISK_READ))
        job->error = -EIO;
    machine.sums.disk_errors += job->error != 0;
    for (uint32_t i = 0; i < job->pages; i++) {
        page_begin_read(job->from[i], "a copy between tiers");
        page_begin_write(job->to[i], "a copy between tiers");
    }
    job->next = jobs;
    jobs = job;
    stores->under_way++;
    machine.sums.lowered++;
    trace("copy chunk %lu from tier %lu to %lu", chunk, from, to);
    machine_at(machine.now + chance_time(job->pages * (is_of_disk ? GM_MS : 100 * GM_US)),
               on_copied, job, 0, 0);
}

void stores_die(void)
{
    while (jobs) {
        struct job *job = jobs;
        jobs = job->next;
        job->is_void = true;
        for (uint32_t i = 0; i < job->pages; i++)
            page_end_broken(job->to[i], job->from[i]);
    }
}

bool gm_stores_adopt(struct gm_stores *stores, enum gm_tier tier, uint32_t page, uint64_t bytes)
{
    return tier == GM_TIER_PINNED ? gm_hostpool_take_again(stores->pinned, page, bytes)
                                  : gm_pages_adopt(&stores->tiers[tier].pages, page, bytes);
}

uint32_t gm_stores_take(struct gm_stores *stores, enum gm_tier tier, uint64_t bytes)
{
    struct page *pages[HANDLE_PAGES];
    if (tier != GM_TIER_PINNED)
        return gm_pages_take(&stores->tiers[tier].pages, bytes);
    const uint32_t page = gm_hostpool_take(stores->pinned, bytes);
    const uint32_t n = stored_pages(stores, tier, page, pages, HANDLE_PAGES);
    for (uint32_t i = 0; i < n; i++)
        pages[i]->takes++;
    return page;
}

void gm_stores_free(struct gm_stores *stores, enum gm_tier tier, uint32_t page)
{
    struct page *pages[HANDLE_PAGES];
    if (page == GM_NONE)
        return;
    const uint32_t n = stored_pages(stores, tier, page, pages, HANDLE_PAGES);
    for (uint32_t i = 0; i < n; i++)
        require(pages[i]->writers + pages[i]->readers == 0,
                "a page of tier %d is given back under a copy", (int)tier);
    if (tier == GM_TIER_PINNED)
        gm_hostpool_free(stores->pinned, page);
    else
        gm_pages_free(&stores->tiers[tier].pages, page);
}

uint64_t gm_stores_cap(const struct gm_stores *stores, enum gm_tier tier)
{
    return tier == GM_TIER_PINNED ? gm_hostpool_cap(stores->pinned)
                                  : stores->tiers[tier].pages.max_pages * GM_CHUNK_MIN;
}

uint64_t gm_stores_used(const struct gm_stores *stores, enum gm_tier tier)
{
    if (tier == GM_TIER_PINNED)
        return gm_hostpool_used(stores->pinned);
    const struct gm_pages *pages = &stores->tiers[tier].pages;
    return (uint64_t)(pages->pages - pages->free_pages) * GM_CHUNK_MIN;
}

uint64_t gm_stores_bytes(const struct gm_stores *stores, enum gm_tier from, enum gm_tier to)
{
    return stores->bytes[from][to];
}

void gm_stores_want(struct gm_stores *stores, uint64_t bytes)
{
    (void)stores;
    (void)bytes;
}

uint64_t gm_stores_trim(struct gm_stores *stores)
{
    (void)stores;
    return 0;
}

bool gm_stores_is_trimming(const struct gm_stores *stores)
{
    (void)stores;
    return false;
}

uint64_t gm_stores_held(const struct gm_stores *stores)
{
    return gm_stores_used(stores, GM_TIER_PAGED);
}
