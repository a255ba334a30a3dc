#include "daemon/memory/stores.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/size.h"
#include "common/sums.h"
#include "daemon/memory/hostpool.h"
#include "daemon/memory/stores_paged.h"
#include "daemon/memory/stores_rows.h"
#include "daemon/memory/stores_workers.h"

/* ---- what the daemon before had ---- */

/*
 * What the daemon before had below the GPU: its files come first, as stores open, then the chains
 * that lie in them and in pinned memory. Paged memory and disk are as large as they were; pages
 * beyond the cap go as they become free.
 */

/* The file of that kind, the caller's now; -1: there is none. *bytes becomes its size if that is
 * more. */
static int stores_claim(struct gm_stores *stores, enum gm_kept_kind kind, uint64_t *bytes)
{
    struct stat is;
    uint64_t id;
    const int fd = gm_kept_claim(stores->kept, kind, stores->gpu, 0, &id);
    if (fd >= 0 && fstat(fd, &is) == 0 && (uint64_t)is.st_size > *bytes)
        *bytes = (uint64_t)is.st_size & ~(GM_CHUNK_MIN - 1);
    return fd;
}

static uint32_t slabs_of(const struct gm_pages *pages)
{
    return (pages->max_pages + GM_SLAB_PAGES - 1) / GM_SLAB_PAGES;
}

/* The first slab from this one on that has data in the file; GM_NONE: none has. */
static uint32_t next_with_data(int fd, uint32_t slab)
{
    const off_t data = lseek(fd, (off_t)(slab * GM_SLAB_BYTES), SEEK_DATA);
    return data < 0 ? GM_NONE : (uint32_t)((uint64_t)data / GM_SLAB_BYTES);
}

/* Find the slabs of the paged file that have memory: it is used, or is given back. */
static void stores_find_memory(struct gm_stores *stores)
{
    const uint32_t slabs = slabs_of(&stores->paged);
    for (uint32_t slab = 0; (slab = next_with_data(stores->paged_fd, slab)) < slabs; slab++)
        stores->slabs[slab].used_at = gm_stores_now(stores);
}

/* Find the slabs of the file on disk that have blocks. */
static void stores_find_blocks(struct gm_stores *stores)
{
    const uint32_t slabs = slabs_of(&stores->on_disk);
    for (uint32_t slab = 0; (slab = next_with_data(stores->disk.fd, slab)) < slabs; slab++)
        stores->on_disk.slabs[slab].was_written = true;
}

/* Pages go from the end, those that were never written first, and come back the other way round:
 * blocks that the file has count as room, so pages that have them must be there. */
static void stores_fit_disk(struct gm_stores *stores)
{
    struct gm_pages *pages = &stores->on_disk;
    const uint32_t slabs = slabs_of(pages);
    const uint32_t cap = stores->cap[GM_TIER_DISK];
    for (uint32_t at = 2 * slabs; at-- > 0 && pages->pages > cap;) {
        const uint32_t slab = at % slabs;
        if (pages->slabs[slab].was_written == (at < slabs) && gm_slab_is_free(pages, slab))
            gm_pages_remove_slab(pages, slab);
    }
    for (uint32_t at = 0; at < 2 * slabs && pages->pages < cap; at++) {
        const uint32_t slab = at % slabs, tail = pages->max_pages - slab * GM_SLAB_PAGES;
        const uint32_t n = tail < GM_SLAB_PAGES ? tail : GM_SLAB_PAGES;
        if (pages->slabs[slab].was_written == (at < slabs) && pages->slabs[slab].map == 0 &&
            n <= cap - pages->pages)
            gm_pages_add_slab(pages, slab);
    }
}

/* Pages beyond the cap that are free go. */
static void stores_shrink(struct gm_stores *stores, enum gm_tier tier)
{
    if (tier == GM_TIER_DISK) {
        /* A walk only if a slab can go: the last one may be no whole one. */
        const struct gm_pages *disk = &stores->on_disk;
        if (disk->pages > stores->cap[tier] &&
            (disk->free_slabs > 0 || gm_slab_is_free(disk, (disk->max_pages - 1) / GM_SLAB_PAGES)))
            stores_fit_disk(stores);
        return;
    }
    struct gm_pages *pages = &stores->paged;
    const uint32_t slabs = slabs_of(pages);
    const uint32_t kept = (stores->cap[tier] + GM_SLAB_PAGES - 1) / GM_SLAB_PAGES;
    unsigned given = 0;
    if (pages->pages <= stores->cap[tier])
        return;
    for (uint32_t slab = kept; slab < slabs && given < GM_TRIM_SLABS; slab++) {
        if (!gm_slab_is_free(pages, slab) || stores->slabs[slab].state == GM_SLAB_FILLING)
            continue;
        gm_pages_remove_slab(pages, slab);
        if (stores->slabs[slab].used_at != 0) {
            gm_paged_give_back(stores, slab);
            given++;
        }
    }
}

bool gm_stores_adopt(struct gm_stores *stores, enum gm_tier tier, uint32_t page, uint64_t bytes)
{
    if (tier == GM_TIER_PINNED)
        return gm_hostpool_take_again(stores->pinned, page, bytes);
    if (tier == GM_TIER_DISK)
        return gm_pages_adopt(&stores->on_disk, page, bytes);
    if (tier != GM_TIER_PAGED || !gm_pages_adopt(&stores->paged, page, bytes))
        return false;
    gm_paged_use(stores, page);
    return true;
}

#define DISK_WORKERS 4u /* pieces that the disk has at once */
#define FILL_WORKERS 4u /* that populate at once: the others stay free for copies */

/* As many workers as processors: of 16 processors, 16 workers copy 56 to 59 GB/s, 8 copy 39, 4 copy
 * 25 (bench/copy, bench/results/copy.txt). More than 16 were not measured, and the link takes no
 * more than 51 GB/s each way. Two on one processor, so that a copy goes on while the other worker
 * is not scheduled. */
#define WORKERS_LEAST 2u
#define WORKERS_MOST 16u

#define KEEP_MS 10000u
#define LOOK_MS 1000u /* how often somebody looks what the disk has free */

/* ---- the queues ---- */

static uint32_t pages_within(uint64_t bytes, uint32_t most)
{
    return bytes >> GM_CHUNK_SHIFT < most ? (uint32_t)(bytes >> GM_CHUNK_SHIFT) : most;
}

/* There are as many pages on the disk as it has room for. */
static void take_disk_room(struct gm_stores *stores)
{
    struct gm_stores_crew *crew = &stores->crews[GM_CREW_DISK];
    gm_lock(&crew->lock);
    const bool is_new = stores->disk_room.is_answered;
    const uint64_t room = stores->disk_room.room;
    stores->disk_room.is_answered = false;
    gm_unlock(&crew->lock);
    if (!is_new)
        return;
    stores->cap[GM_TIER_DISK] = pages_within(room, stores->most_on_disk);
    const uint32_t before = stores->on_disk.pages;
    stores_fit_disk(stores);
    if (stores->on_disk.pages != before && stores->on_room)
        stores->on_room(stores->arg);
}

/* The first time it is before any program comes, with what was free at the start. */
static void on_look(uv_timer_t *look)
{
    struct gm_stores *stores = look->data;
    struct gm_stores_crew *crew = &stores->crews[GM_CREW_DISK];
    take_disk_room(stores);
    gm_lock(&crew->lock);
    stores->disk_room.is_asked = true;
    pthread_cond_signal(&crew->more);
    gm_unlock(&crew->lock);
}

static void note_written(struct gm_stores *stores, uint32_t page)
{
    while (page != GM_NONE) {
        stores->on_disk.slabs[page / GM_SLAB_PAGES].was_written = true;
        gm_pages_run(&stores->on_disk, &page, GM_SLAB_PAGES);
    }
}

static void on_wake(uv_async_t *async)
{
    struct gm_stores *stores = async->data;
    gm_paged_end_fill(stores);
    if (uv_is_active((uv_handle_t *)&stores->look))
        take_disk_room(stores);
    for (int i = 0; i < GM_CREWS; i++) {
        struct gm_stores_crew *crew = &stores->crews[i];
        gm_lock(&crew->lock);
        struct gm_stores_job *job = crew->ended, *next;
        crew->ended = NULL;
        crew->ended_tail = &crew->ended;
        gm_unlock(&crew->lock);
        for (; job; job = next) {
            next = job->next;
            const int error = job->error;
            if (error == 0 && job->to == GM_TIER_DISK)
                note_written(stores, job->to_page);
            if (error == 0)
                stores->bytes[job->from][job->to] += job->pages * GM_CHUNK_MIN;
            job->is_busy = false; /* on_done may start another one in its place */
            stores->on_done(stores->arg, job->chunk, error);
        }
    }
}

void gm_stores_copy(struct gm_stores *stores, uint32_t chunk, enum gm_tier from, uint32_t from_page,
                    enum gm_tier to, uint32_t to_page, uint64_t bytes)
{
    struct gm_stores_crew *crew =
        &stores->crews[from == GM_TIER_DISK || to == GM_TIER_DISK ? GM_CREW_DISK : GM_CREW_MEMORY];
    struct gm_stores_job *job = &stores->jobs[to][to_page];

    assert(crew->threads > 0 && !job->is_busy && bytes > 0 && bytes % GM_CHUNK_MIN == 0);
    assert(from != GM_TIER_DISK || to != GM_TIER_DISK);
    *job = (struct gm_stores_job){.chunk = chunk,
                                  .from = (uint8_t)from,
                                  .from_page = from_page,
                                  .to = (uint8_t)to,
                                  .to_page = to_page,
                                  .pages = (uint32_t)(bytes >> GM_CHUNK_SHIFT),
                                  .is_busy = true};
    gm_lock(&crew->lock);
    *crew->tail = job;
    crew->tail = &job->next;
    if (job->pages > GM_STORES_PIECE_PAGES)
        pthread_cond_broadcast(&crew->more);
    else
        pthread_cond_signal(&crew->more);
    gm_unlock(&crew->lock);
}

/* ---- pages of all tiers ---- */

void gm_stores_keep(struct gm_stores *stores, enum gm_tier tier, uint32_t *next)
{
    gm_pages_keep(tier == GM_TIER_PAGED ? &stores->paged : &stores->on_disk, next);
}

uint32_t gm_stores_take(struct gm_stores *stores, enum gm_tier tier, uint64_t bytes)
{
    uint32_t page = GM_NONE;
    if (tier == GM_TIER_PINNED)
        return gm_hostpool_take(stores->pinned, bytes);
    if (tier == GM_TIER_NONE)
        return GM_NONE;
    stores_shrink(stores, tier);
    if (tier == GM_TIER_DISK)
        return gm_pages_take(&stores->on_disk, bytes);
    if (tier == GM_TIER_PAGED) {
        page = gm_pages_take(&stores->paged, bytes);
        gm_paged_use(stores, page);
    }
    return page;
}

void gm_stores_free(struct gm_stores *stores, enum gm_tier tier, uint32_t page)
{
    if (page == GM_NONE)
        return;
    assert(!stores->jobs[tier][page].is_busy);
    if (tier == GM_TIER_PINNED) {
        gm_hostpool_free(stores->pinned, page);
    } else if (tier == GM_TIER_DISK) {
        gm_pages_free(&stores->on_disk, page);
        stores_shrink(stores, tier);
    } else {
        gm_paged_use(stores, page);
        gm_pages_free(&stores->paged, page);
        stores_shrink(stores, tier);
        gm_paged_start_trimming(stores);
    }
}

uint64_t gm_stores_cap(const struct gm_stores *stores, enum gm_tier tier)
{
    return tier == GM_TIER_PINNED ? gm_hostpool_cap(stores->pinned)
                                  : gm_stores_pages_of(stores, tier)->pages * GM_CHUNK_MIN;
}

uint64_t gm_stores_used(const struct gm_stores *stores, enum gm_tier tier)
{
    const struct gm_pages *pages = gm_stores_pages_of(stores, tier);
    if (tier == GM_TIER_PINNED)
        return gm_hostpool_used(stores->pinned);
    return (uint64_t)(pages->pages - pages->free_pages) * GM_CHUNK_MIN;
}

uint64_t gm_stores_bytes(const struct gm_stores *stores, enum gm_tier from, enum gm_tier to)
{
    return stores->bytes[from][to];
}

/* ---- opening and closing ---- */

static void free_stores(uv_handle_t *handle)
{
    struct gm_stores *stores = handle->data;
    if (--stores->handles == 0)
        free(stores);
}

static int make_jobs(struct gm_stores *stores, enum gm_tier tier)
{
    const uint32_t n = gm_stores_pages_of(stores, tier)->max_pages;
    stores->jobs[tier] = n ? calloc(n, sizeof(struct gm_stores_job)) : NULL;
    return n && !stores->jobs[tier] ? -ENOMEM : 0;
}

static int keep_file(struct gm_stores *stores, enum gm_kept_kind kind, int fd, char *why,
                     size_t why_size)
{
    const int error = gm_kept_put(stores->kept, kind, stores->gpu, 0, 0, fd);
    if (error)
        snprintf(why, why_size, "gpumux-keeper cannot hold another file: %s", strerror(-error));
    return error;
}

/* The paged tier's range: of a file in memory if it is to outlive the daemon. -errno. */
static int map_paged(struct gm_stores *stores, uint64_t bytes)
{
    const bool is_file = stores->paged_fd >= 0;
    const int kind = is_file ? MAP_SHARED | MAP_FIXED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    stores->map_bytes = bytes + GM_CHUNK_MIN;
    stores->map = stores->system->mmap(NULL, stores->map_bytes, PROT_NONE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stores->map == MAP_FAILED) {
        stores->map = NULL;
        return -errno;
    }
    stores->memory = stores->map + (-(uintptr_t)stores->map & (GM_CHUNK_MIN - 1));
    if ((is_file && ftruncate(stores->paged_fd, (off_t)bytes) != 0) ||
        stores->system->mmap(stores->memory, bytes, PROT_READ | PROT_WRITE, kind | MAP_NORESERVE,
                             stores->paged_fd, 0) == MAP_FAILED)
        return -errno;
    return 0;
}

static int open_paged(struct gm_stores *stores, uint64_t bytes, char *why, size_t why_size)
{
    char want[32];
    stores->cap[GM_TIER_PAGED] = (uint32_t)(bytes >> GM_CHUNK_SHIFT);
    stores->paged_fd = stores_claim(stores, GM_KEPT_PAGED, &bytes);
    const bool is_taken = stores->paged_fd >= 0;
    int error = gm_pages_open(&stores->paged, bytes);

    gm_format_size(bytes, want, sizeof want);
    const uint32_t pages = stores->paged.max_pages;
    if (error == 0 && pages > 0) {
        stores->slabs = calloc((pages + GM_SLAB_PAGES - 1) / GM_SLAB_PAGES, sizeof *stores->slabs);
        if (!stores->slabs)
            error = -ENOMEM;
    }
    if (error) {
        snprintf(why, why_size, "--paged %s: out of memory for its tables", want);
        return error;
    }
    if (pages == 0)
        return 0;
    if (stores->kept && !is_taken) {
        stores->paged_fd = memfd_create("gpumux-paged", MFD_CLOEXEC);
        error = stores->paged_fd < 0 ? -errno : 0;
    }
    if (error == 0)
        error = map_paged(stores, pages * GM_CHUNK_MIN);
    if (error) {
        snprintf(why, why_size,
                 "--paged %s: the kernel refuses that much memory (%s); ask for less", want,
                 strerror(-error));
        return error;
    }
    /* May fail: without the first copies are slower, without the second core dumps are larger. */
    madvise(stores->memory, pages * GM_CHUNK_MIN, MADV_HUGEPAGE);
    madvise(stores->map, stores->map_bytes, MADV_DONTDUMP);
    gm_pages_add(&stores->paged, pages);
    if (is_taken)
        stores_find_memory(stores);
    return stores->kept && !is_taken
               ? keep_file(stores, GM_KEPT_PAGED, stores->paged_fd, why, why_size)
               : 0;
}

static int open_disk(struct gm_stores *stores, const struct gm_stores_config *config, char *why,
                     size_t why_size)
{
    const bool is_wanted = config->disk_dir && *config->disk_dir;
    const char *dir = is_wanted ? config->disk_dir : "(the file of the daemon before)";
    uint64_t had = 0;
    const int fd = stores_claim(stores, GM_KEPT_DISK, &had);
    int error;
    if (!is_wanted && fd < 0)
        return 0;
    /* The tables are for what there can be. */
    const uint64_t asked = is_wanted ? gm_least(config->disk, gm_disk_size(dir, fd)) : 0;
    const uint64_t bytes = (asked > had ? asked : had) & ~(GM_CHUNK_MIN - 1);
    stores->disk_parts = config->parts ? config->parts : 1;
    stores->on_room = config->on_room;
    stores->most_on_disk = (uint32_t)gm_least(asked >> GM_CHUNK_SHIFT, GM_NONE);
    if (bytes == 0) {
        snprintf(why, why_size, "--disk %s: at least 2 MiB are needed", dir);
        error = -EINVAL;
        goto close_fd;
    }
    error = bytes <= INT64_MAX ? gm_pages_open(&stores->on_disk, bytes) : -ENOMEM;
    if (error == 0) {
        /* With huge pages a request to the disk is one range of memory, not a thousand pages
         * (measured on one disk: it reads 2.1 GB/s instead of 1.1). */
        stores->bounce = aligned_alloc(GM_CHUNK_MIN, DISK_WORKERS * GM_STORES_PIECE_BYTES);
        if (stores->bounce) {
            madvise(stores->bounce, DISK_WORKERS * GM_STORES_PIECE_BYTES, MADV_HUGEPAGE);
            madvise(stores->bounce, DISK_WORKERS * GM_STORES_PIECE_BYTES, MADV_DONTDUMP);
        } else {
            error = -ENOMEM;
        }
    }
    if (error) {
        snprintf(why, why_size, "--disk %s: out of memory for its tables", dir);
        goto close_fd;
    }
    error = fd >= 0 ? gm_disk_adopt(&stores->disk, stores->system, fd, bytes, why, why_size)
                    : gm_disk_open(&stores->disk, stores->system, dir, config->disk, bytes, why,
                                   why_size);
    if (error == 0) {
        gm_pages_add(&stores->on_disk, stores->on_disk.max_pages);
        if (fd >= 0)
            stores_find_blocks(stores);
        stores->cap[GM_TIER_DISK] = stores->most_on_disk;
        stores->disk_room.is_answered = !stores->disk.is_reserved;
        stores->disk_room.room = gm_disk_room(&stores->disk, stores->disk_parts);
    }
    if (error == 0 && fd < 0)
        error = keep_file(stores, GM_KEPT_DISK, stores->disk.fd, why, why_size);
    return error;

close_fd:
    if (fd >= 0)
        close(fd);
    return error;
}

static unsigned worker_count(unsigned asked)
{
    if (asked == 0) {
        asked = uv_available_parallelism(); /* of this process */
        asked = asked < WORKERS_LEAST ? WORKERS_LEAST : asked;
        asked = asked > WORKERS_MOST ? WORKERS_MOST : asked;
    }
    return asked < GM_STORES_WORKERS_MAX ? asked : GM_STORES_WORKERS_MAX;
}

static int open_all(struct gm_stores *stores, const struct gm_stores_config *config, char *why,
                    size_t why_size)
{
    int error = open_paged(stores, config->paged, why, why_size);
    if (error == 0)
        error = open_disk(stores, config, why, why_size);
    if (error)
        return error;
    for (unsigned tier = GM_TIER_PINNED; tier <= GM_TIER_DISK && error == 0; tier++)
        error = make_jobs(stores, tier);
    if (error) {
        snprintf(why, why_size, "out of memory for the tables of the tiers");
        return error;
    }
    const unsigned workers = worker_count(config->workers), half = (workers + 1) / 2;
    stores->fill.most_workers = half < FILL_WORKERS ? half : FILL_WORKERS;
    /* Without paged memory they only move what a program is to map to where it can. */
    error = gm_crew_start(&stores->crews[GM_CREW_MEMORY], stores->paged.pages ? workers : 2);
    if (error == 0 && stores->on_disk.pages)
        error = gm_crew_start(&stores->crews[GM_CREW_DISK], DISK_WORKERS);
    if (error == 0 && stores->on_disk.pages && !stores->disk.is_reserved)
        uv_timer_start(&stores->look, on_look, 0, LOOK_MS);
    if (error)
        snprintf(why, why_size, "cannot start the threads that copy between tiers: %s",
                 strerror(-error));
    return error;
}

int gm_stores_open(struct gm_stores **out, uv_loop_t *loop, struct gm_hostpool *pinned,
                   const struct gm_stores_config *config, gm_stores_done *on_done, void *arg,
                   char *why, size_t why_size)
{
    struct gm_stores *stores = calloc(1, sizeof *stores);
    if (!stores) {
        snprintf(why, why_size, "out of memory");
        return -ENOMEM;
    }
    stores->pinned = pinned;
    stores->system = config->system ? config->system : &gm_system_real;
    stores->keep_ms = config->keep_ms ? config->keep_ms : KEEP_MS;
    stores->on_done = on_done;
    stores->arg = arg;
    stores->disk.fd = stores->paged_fd = -1;
    stores->kept = config->kept;
    stores->gpu = config->gpu;
    for (int i = 0; i < GM_CREWS; i++) {
        struct gm_stores_crew *crew = &stores->crews[i];
        crew->stores = stores;
        crew->tail = &crew->head;
        crew->ended_tail = &crew->ended;
        gm_lock_init(&crew->lock, GM_LOCK_STORES);
        pthread_cond_init(&crew->more, NULL);
    }
    int error = uv_async_init(loop, &stores->wake, on_wake);
    if (error) {
        snprintf(why, why_size, "cannot make a wake-up handle: %s", uv_strerror(error));
        free(stores);
        return error;
    }
    uv_timer_init(loop, &stores->timer);
    uv_unref((uv_handle_t *)&stores->timer);
    uv_timer_init(loop, &stores->look);
    uv_unref((uv_handle_t *)&stores->look);
    stores->wake.data = stores->timer.data = stores->look.data = stores;
    stores->handles = 3;
    stores->period_at = gm_stores_now(stores);
    error = open_all(stores, config, why, why_size);
    if (error) {
        stores->kept = NULL; /* what the daemon before had is for the next one */
        gm_stores_close(stores);
        return error;
    }
    *out = stores;
    return 0;
}

void gm_stores_close(struct gm_stores *stores)
{
    if (!stores)
        return;
    for (int i = 0; i < GM_CREWS; i++) {
        gm_crew_stop(&stores->crews[i]);
        gm_lock_destroy(&stores->crews[i].lock);
        pthread_cond_destroy(&stores->crews[i].more);
    }
    for (unsigned tier = 0; tier < GM_TIERS; tier++)
        free(stores->jobs[tier]);
    gm_kept_drop(stores->kept, GM_KEPT_DISK, stores->gpu, 0);
    gm_disk_close(&stores->disk);
    gm_pages_close(&stores->on_disk);
    free(stores->bounce);
    if (stores->map)
        munmap(stores->map, stores->map_bytes);
    gm_kept_drop(stores->kept, GM_KEPT_PAGED, stores->gpu, 0);
    if (stores->paged_fd >= 0)
        close(stores->paged_fd);
    gm_pages_close(&stores->paged);
    free(stores->slabs);
    uv_close((uv_handle_t *)&stores->wake, free_stores);
    uv_close((uv_handle_t *)&stores->timer, free_stores);
    uv_close((uv_handle_t *)&stores->look, free_stores);
}
