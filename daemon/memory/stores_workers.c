#include "daemon/memory/stores_workers.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define SMALL_PAGE 4096u /* the smallest that any system has */

static char *memory_of(const struct gm_stores *stores, unsigned tier, uint32_t page)
{
    if (tier == GM_TIER_PINNED)
        return gm_hostpool_memory(stores->pinned, page);
    return stores->memory + (uint64_t)page * GM_CHUNK_MIN;
}

/* Writes past the caches, as no processor reads the data soon: 15 GB/s where memcpy has 8 (measured
 * with one thread). */
static void copy_memory(char *to, const char *from, uint64_t bytes)
{
#if defined(__SSE2__)
    __m128i *t = (__m128i *)(void *)to;
    const __m128i *f = (const __m128i *)(const void *)from;
    for (uint64_t i = 0; i < bytes / sizeof *t; i += 4) {
        __m128i a = _mm_load_si128(f + i), b = _mm_load_si128(f + i + 1);
        __m128i c = _mm_load_si128(f + i + 2), d = _mm_load_si128(f + i + 3);
        _mm_stream_si128(t + i, a);
        _mm_stream_si128(t + i + 1, b);
        _mm_stream_si128(t + i + 2, c);
        _mm_stream_si128(t + i + 3, d);
    }
    _mm_sfence();
#else
    memcpy(to, from, bytes);
#endif
}

/* Copy `bytes` that are contiguous at both ends. */
static int copy_run(struct gm_stores *stores, const struct gm_stores_job *job, uint32_t from,
                    uint32_t to, uint64_t bytes, char *bounce)
{
    const struct gm_disk *disk = &stores->disk;
    const uint64_t from_offset = (uint64_t)from * GM_CHUNK_MIN;
    const uint64_t to_offset = (uint64_t)to * GM_CHUNK_MIN;

    if (job->to == GM_TIER_DISK) {
        char *memory = memory_of(stores, job->from, from);
        if (job->from == GM_TIER_PINNED && disk->is_direct)
            memory = memcpy(bounce, memory, bytes);
        return gm_disk_write(disk, memory, bytes, to_offset);
    }
    char *memory = memory_of(stores, job->to, to);
    if (job->from != GM_TIER_DISK) {
        copy_memory(memory, memory_of(stores, job->from, from), bytes);
        return 0;
    }
    bool needs_bounce = job->to == GM_TIER_PINNED && disk->is_direct;
    int error = gm_disk_read(disk, needs_bounce ? bounce : memory, bytes, from_offset);
    if (error == 0 && needs_bounce)
        copy_memory(memory, bounce, bytes);
    return error;
}

/* Copy `n` pages of the job, from its page number `at`. */
static int copy_piece(struct gm_stores *stores, const struct gm_stores_job *job, uint32_t at,
                      uint32_t n, char *bounce)
{
    const struct gm_pages *from_pages = gm_stores_pages_of(stores, job->from);
    const struct gm_pages *to_pages = gm_stores_pages_of(stores, job->to);
    uint32_t from = job->from_page, to = job->to_page;
    int error = 0;

    for (uint32_t i = 0; i < at; i++) {
        gm_pages_run(from_pages, &from, 1);
        gm_pages_run(to_pages, &to, 1);
    }
    while (n > 0 && error == 0) {
        uint32_t from_start = from, to_start = to, from_end = from, to_end = to;
        uint32_t run = gm_pages_run(from_pages, &from_end, n);
        run = gm_pages_run(to_pages, &to_end, run);
        gm_pages_run(from_pages, &from, run);
        to = to_end;
        error = copy_run(stores, job, from_start, to_start, run * GM_CHUNK_MIN, bounce);
        n -= run;
    }
    return error;
}

/*
 * Populate a page and keep its contents: a copy may write it at the same time. Before Linux 5.14
 * the kernel cannot do that. Then touch each small page: exchange a zero for a zero; if there is no
 * zero, the page is populated already.
 */
__attribute__((no_sanitize_thread)) static int fill_page(const struct gm_stores *stores,
                                                         uint32_t page)
{
    char *memory = stores->memory + (uint64_t)page * GM_CHUNK_MIN;
    if (page >= stores->paged.max_pages)
        return 0; /* the last slab may have fewer */
    if (stores->system->populate(memory, GM_CHUNK_MIN) == 0)
        return 0;
    if (errno != EINVAL)
        return -errno;
    for (uint64_t at = 0; at < GM_CHUNK_MIN; at += SMALL_PAGE) {
        uint32_t zero = 0;
        __atomic_compare_exchange_n((uint32_t *)(void *)(memory + at), &zero, 0, false,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
    return 0;
}

/* Called with the crew's lock held, as fill_some; both release it while they work. */
static void copy_some(struct gm_stores_crew *crew, char *bounce)
{
    struct gm_stores *stores = crew->stores;
    struct gm_stores_job *job = crew->head;
    uint32_t at = job->taken,
             n = job->pages - at < GM_STORES_PIECE_PAGES ? job->pages - at : GM_STORES_PIECE_PAGES;
    int error = job->error;

    job->taken += n;
    if (job->taken == job->pages) {
        crew->head = job->next;
        if (!crew->head)
            crew->tail = &crew->head;
    }
    gm_unlock(&crew->lock);
    if (error == 0)
        error = copy_piece(stores, job, at, n, bounce);
    gm_lock(&crew->lock);
    if (job->error == 0)
        job->error = error;
    job->copied += n;
    if (job->copied == job->pages) {
        job->next = NULL;
        *crew->ended_tail = job;
        crew->ended_tail = &job->next;
        uv_async_send(&stores->wake);
    }
}

static void fill_some(struct gm_stores_crew *crew)
{
    struct gm_stores *stores = crew->stores;
    struct gm_stores_fill *fill = &stores->fill;
    const uint32_t at = fill->taken++;
    const uint32_t page = fill->slab[at / GM_SLAB_PAGES] * GM_SLAB_PAGES + at % GM_SLAB_PAGES;
    int error = fill->error;

    fill->workers++;
    gm_unlock(&crew->lock);
    if (error == 0)
        error = fill_page(stores, page);
    gm_lock(&crew->lock);
    fill->workers--;
    if (fill->error == 0)
        fill->error = error;
    if (++fill->filled == fill->slabs * GM_SLAB_PAGES)
        uv_async_send(&stores->wake);
}

static bool can_fill(const struct gm_stores_crew *crew)
{
    const struct gm_stores_fill *fill = &crew->stores->fill;
    return crew == &crew->stores->crews[GM_CREW_MEMORY] &&
           fill->taken < fill->slabs * GM_SLAB_PAGES && fill->workers < fill->most_workers;
}

/* Before copies: with the disk always busy nobody would look. */
static void look_at_disk(struct gm_stores_crew *crew)
{
    struct gm_stores *stores = crew->stores;
    stores->disk_room.is_asked = false;
    gm_unlock(&crew->lock);
    const uint64_t room = gm_disk_room(&stores->disk, stores->disk_parts);
    gm_lock(&crew->lock);
    stores->disk_room.room = room;
    stores->disk_room.is_answered = true;
    uv_async_send(&stores->wake);
}

/* Copies go before what is populated. */
static void *work(void *arg)
{
    struct gm_stores_crew *crew = arg;
    char *bounce = NULL;

    gm_lock(&crew->lock);
    if (crew == &crew->stores->crews[GM_CREW_DISK]) { /* each disk worker has one of its own */
        unsigned self = 0;
        while (!pthread_equal(crew->thread[self], pthread_self()))
            self++;
        bounce = crew->stores->bounce + self * GM_STORES_PIECE_BYTES;
    }
    while (!crew->is_stopping) {
        if (crew == &crew->stores->crews[GM_CREW_DISK] && crew->stores->disk_room.is_asked)
            look_at_disk(crew);
        else if (crew->head)
            copy_some(crew, bounce);
        else if (can_fill(crew))
            fill_some(crew);
        else
            gm_lock_wait(&crew->more, &crew->lock);
    }
    gm_unlock(&crew->lock);
    return NULL;
}

void gm_crew_stop(struct gm_stores_crew *crew)
{
    gm_lock(&crew->lock);
    crew->is_stopping = true;
    pthread_cond_broadcast(&crew->more);
    gm_unlock(&crew->lock);
    for (unsigned i = 0; i < crew->threads; i++)
        pthread_join(crew->thread[i], NULL);
    crew->threads = 0;
}

int gm_crew_start(struct gm_stores_crew *crew, unsigned threads)
{
    sigset_t all, old;
    int error = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    gm_lock(&crew->lock); /* disk workers look for themselves in crew->thread */
    while (crew->threads < threads && error == 0) {
        error = pthread_create(&crew->thread[crew->threads], NULL, work, crew);
        if (error == 0) {
            pthread_setname_np(crew->thread[crew->threads], "gpumux-copy");
            crew->threads++;
        }
    }
    gm_unlock(&crew->lock);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -error;
}
