#include "daemon/memory/stores.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "common/locks.h"
#include "common/log.h"
#include "common/size.h"
#include "daemon/memory/hostpool_adopt.h"
#include "daemon/memory/kept.h"
#include "daemon/memory/pages.h"

/* What a worker takes from the queue: so small that eight share a chunk, so large that a disk
 * reaches its rate and the queue's lock costs nothing. */
#define PIECE_PAGES 2u
#define PIECE_BYTES (PIECE_PAGES * GM_CHUNK_MIN)
#define WORKERS_MAX 64u
#define SMALL_PAGE 4096u /* the smallest that any system has */
#define DISK_WORKERS 4u  /* pieces that the disk has at once */

/* As many workers as processors: of 16 processors, 16 workers copy 56 to 59 GB/s, 8 copy 39, 4 copy
 * 25 (bench/copy, bench/results/copy.txt). More than 16 were not measured, and the link takes no
 * more than 51 GB/s each way. Two on one processor, so that a copy goes on while the other worker
 * is not scheduled. */
#define WORKERS_LEAST 2u
#define WORKERS_MOST 16u

#define KEEP_MS 10000u
#define TRIM_SLABS 8u /* given back at one go */
#define TRIM_EVERY_MS 20u
#define FILL_SLABS 8u   /* populated before the loop thread looks again at what is wanted */
#define FILL_WORKERS 4u /* that populate at once: the others stay free for copies */

/* A copy. Each tier has a table of them by the first page of the destination, which only one copy
 * at a time can have: so a copy needs no allocation. */
struct job {
    struct job *next; /* in the queue, then in the list of those that ended */
    uint32_t chunk;
    uint32_t from_page, to_page;
    uint32_t pages;
    uint8_t from, to; /* enum gm_tier */
    bool is_busy;     /* the loop's: from gm_stores_copy until on_done */
    uint32_t taken;   /* under the crew's lock: pages that workers have taken from it */
    uint32_t copied;  /* ... and have copied */
    int error;        /* ... the first one */
};

/*
 * Paged memory, by slab. Free slabs are taken from the head of their list (pages.h). They are
 * populated from its head too and given back from its end, so populated memory is taken first.
 */
struct paged_slab {
    uint64_t used_at; /* in ms, when pages of it were last taken, freed or populated; 0: it has no
                         memory of the system */
    enum {
        SLAB_COLD,    /* not populated, or only where copies went */
        SLAB_FILLING, /* workers populate it */
        SLAB_WARM,    /* populated */
    } state;
};

/* The pages of `slabs` slabs are populated now; workers take them one by one. */
struct fill {
    bool is_busy; /* the loop's: until it has taken over the outcome */
    uint32_t slab[FILL_SLABS];
    uint32_t slabs;         /* under the crew's lock, as what follows */
    uint32_t taken, filled; /* pages */
    unsigned workers, most_workers;
    int error; /* the first one */
};

/* Threads that take pieces from one queue. */
struct crew {
    struct gm_stores *stores;
    struct gm_lock lock;
    pthread_cond_t more;
    struct job *head, **tail; /* under the lock: jobs with pieces to take */
    struct job *ended, **ended_tail;
    bool is_stopping; /* under the lock */
    unsigned threads;
    pthread_t thread[WORKERS_MAX];
};

enum { CREW_MEMORY, CREW_DISK, CREWS };

struct gm_stores {
    struct gm_hostpool *pinned;
    const struct gm_system *system;
    gm_stores_done *on_done;
    void *arg;

    struct gm_kept *kept;
    uint32_t gpu;
    uint32_t cap[GM_TIERS]; /* pages that PAGED and DISK are to have; they may have more */

    struct gm_pages paged;
    int paged_fd; /* the file that it is; -1: it is anonymous memory */
    char *map;
    uint64_t map_bytes;
    char *memory; /* within the map, aligned for huge pages */
    struct paged_slab *slabs;
    struct fill fill;
    uint32_t wanted; /* pages to have populated */
    bool is_asked;   /* somebody said so: what the daemon before had and nobody took is free */
    uint32_t warm;   /* pages of slabs that are warm or filling */
    int refusal;     /* -errno: the system gave no memory for the last slabs */
    bool is_resting; /* it did not: wait for gm_stores_want */
    uv_timer_t timer;
    bool is_trimming; /* the timer is set */
    uint64_t keep_ms;
    uint64_t trimmed_at; /* in ms: what was not used after it is given back at once */
    /* The most that was wanted in this period of keep_ms, which began at period_at, and in the one
     * before: so much is kept, as it may be wanted again soon. */
    uint32_t most, most_before;
    uint64_t period_at;

    struct gm_pages on_disk;
    struct gm_disk disk;
    char *bounce; /* a piece for each disk worker */

    uv_async_t wake;
    unsigned handles; /* open ones */
    struct crew crews[CREWS];
    struct job *jobs[GM_TIERS];
    uint64_t bytes[GM_TIERS][GM_TIERS];
};

/* ---- workers ---- */

static char *memory_of(const struct gm_stores *stores, unsigned tier, uint32_t page)
{
    if (tier == GM_TIER_PINNED)
        return gm_hostpool_memory(stores->pinned, page);
    return stores->memory + (uint64_t)page * GM_CHUNK_MIN;
}

static const struct gm_pages *pages_of(const struct gm_stores *stores, unsigned tier)
{
    switch (tier) {
    case GM_TIER_PINNED:
        return &stores->pinned->pages;
    case GM_TIER_PAGED:
        return &stores->paged;
    case GM_TIER_DISK:
        return &stores->on_disk;
    default:
        assert(!"a tier without a store");
        return NULL;
    }
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
static int copy_run(struct gm_stores *stores, const struct job *job, uint32_t from, uint32_t to,
                    uint64_t bytes, char *bounce)
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
static int copy_piece(struct gm_stores *stores, const struct job *job, uint32_t at, uint32_t n,
                      char *bounce)
{
    const struct gm_pages *from_pages = pages_of(stores, job->from);
    const struct gm_pages *to_pages = pages_of(stores, job->to);
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
static void copy_some(struct crew *crew, char *bounce)
{
    struct gm_stores *stores = crew->stores;
    struct job *job = crew->head;
    uint32_t at = job->taken, n = job->pages - at < PIECE_PAGES ? job->pages - at : PIECE_PAGES;
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

static void fill_some(struct crew *crew)
{
    struct gm_stores *stores = crew->stores;
    struct fill *fill = &stores->fill;
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

static bool can_fill(const struct crew *crew)
{
    const struct fill *fill = &crew->stores->fill;
    return crew == &crew->stores->crews[CREW_MEMORY] && fill->taken < fill->slabs * GM_SLAB_PAGES &&
           fill->workers < fill->most_workers;
}

/* Copies go first. */
static void *work(void *arg)
{
    struct crew *crew = arg;
    char *bounce = NULL;

    gm_lock(&crew->lock);
    if (crew == &crew->stores->crews[CREW_DISK]) { /* each disk worker has one of its own */
        unsigned self = 0;
        while (!pthread_equal(crew->thread[self], pthread_self()))
            self++;
        bounce = crew->stores->bounce + self * PIECE_BYTES;
    }
    while (!crew->is_stopping) {
        if (crew->head)
            copy_some(crew, bounce);
        else if (can_fill(crew))
            fill_some(crew);
        else
            gm_lock_wait(&crew->more, &crew->lock);
    }
    gm_unlock(&crew->lock);
    return NULL;
}

static void stop_crew(struct crew *crew)
{
    gm_lock(&crew->lock);
    crew->is_stopping = true;
    pthread_cond_broadcast(&crew->more);
    gm_unlock(&crew->lock);
    for (unsigned i = 0; i < crew->threads; i++)
        pthread_join(crew->thread[i], NULL);
    crew->threads = 0;
}

/* The workers block all signals: the loop thread handles them. */
static int start_crew(struct crew *crew, unsigned threads)
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

/* ---- the loop's side ---- */

static uint64_t stores_now(const struct gm_stores *stores)
{
    return uv_now(stores->timer.loop) + 1; /* never 0 */
}

static void end_fill(struct gm_stores *stores);

static void on_wake(uv_async_t *async)
{
    struct gm_stores *stores = async->data;
    end_fill(stores);
    for (int i = 0; i < CREWS; i++) {
        struct crew *crew = &stores->crews[i];
        gm_lock(&crew->lock);
        struct job *job = crew->ended, *next;
        crew->ended = NULL;
        crew->ended_tail = &crew->ended;
        gm_unlock(&crew->lock);
        for (; job; job = next) {
            next = job->next;
            const int error = job->error;
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
    struct crew *crew =
        &stores->crews[from == GM_TIER_DISK || to == GM_TIER_DISK ? CREW_DISK : CREW_MEMORY];
    struct job *job = &stores->jobs[to][to_page];

    assert(crew->threads > 0 && !job->is_busy && bytes > 0 && bytes % GM_CHUNK_MIN == 0);
    assert(from != GM_TIER_DISK || to != GM_TIER_DISK);
    *job = (struct job){.chunk = chunk,
                        .from = (uint8_t)from,
                        .from_page = from_page,
                        .to = (uint8_t)to,
                        .to_page = to_page,
                        .pages = (uint32_t)(bytes >> GM_CHUNK_SHIFT),
                        .is_busy = true};
    gm_lock(&crew->lock);
    *crew->tail = job;
    crew->tail = &job->next;
    if (job->pages > PIECE_PAGES)
        pthread_cond_broadcast(&crew->more);
    else
        pthread_cond_signal(&crew->more);
    gm_unlock(&crew->lock);
}

/* ---- paged memory: populated before use, given back after it ---- */

static uint32_t slab_pages(const struct gm_stores *stores, uint32_t slab)
{
    const uint32_t left = stores->paged.max_pages - slab * GM_SLAB_PAGES;
    return left < GM_SLAB_PAGES ? left : GM_SLAB_PAGES;
}

static void set_warm(struct gm_stores *stores, uint32_t slab)
{
    if (stores->slabs[slab].state == SLAB_COLD)
        stores->warm += slab_pages(stores, slab);
    stores->slabs[slab].state = SLAB_WARM;
}

static void set_cold(struct gm_stores *stores, uint32_t slab)
{
    if (stores->slabs[slab].state != SLAB_COLD)
        stores->warm -= slab_pages(stores, slab);
    stores->slabs[slab].state = SLAB_COLD;
}

static void on_timer(uv_timer_t *timer);

static void start_trimming(struct gm_stores *stores)
{
    if (stores->is_trimming)
        return;
    stores->is_trimming = true;
    uv_timer_start(&stores->timer, on_timer, 1 + stores->keep_ms, 0);
}

/* Hand slabs to the workers until as much is warm as is wanted: partly used slabs first, then free
 * ones, in the order in which they are taken. */
static void start_fill(struct gm_stores *stores)
{
    struct crew *crew = &stores->crews[CREW_MEMORY];
    struct fill *fill = &stores->fill;
    uint32_t slabs = 0;

    if (fill->is_busy || stores->is_resting)
        return;
    for (unsigned list = 0; list < GM_CHUNK_CLASSES; list++) {
        for (uint32_t slab = stores->paged.heads[list];
             slab != GM_NONE && slabs < FILL_SLABS && stores->warm < stores->wanted;
             slab = stores->paged.slabs[slab].next) {
            if (stores->slabs[slab].state != SLAB_COLD)
                continue;
            stores->slabs[slab].state = SLAB_FILLING;
            stores->warm += slab_pages(stores, slab);
            fill->slab[slabs++] = slab;
        }
    }
    if (slabs == 0)
        return;
    fill->is_busy = true;
    gm_lock(&crew->lock);
    fill->slabs = slabs;
    fill->taken = fill->filled = 0;
    fill->error = 0;
    pthread_cond_broadcast(&crew->more);
    gm_unlock(&crew->lock);
}

static void end_fill(struct gm_stores *stores)
{
    struct crew *crew = &stores->crews[CREW_MEMORY];
    struct fill *fill = &stores->fill;

    gm_lock(&crew->lock);
    const bool has_ended = fill->filled == fill->slabs * GM_SLAB_PAGES;
    const int error = fill->error;
    gm_unlock(&crew->lock);
    if (!fill->is_busy || !has_ended)
        return;
    for (uint32_t i = 0; i < fill->slabs; i++) {
        stores->slabs[fill->slab[i]].used_at = stores_now(stores);
        if (error)
            set_cold(stores, fill->slab[i]);
        else
            set_warm(stores, fill->slab[i]);
    }
    fill->is_busy = false;
    if (error && !stores->refusal)
        gm_log(GM_LOG_WARN, "paged memory: the system has no more now (%s)", strerror(-error));
    stores->refusal = error;
    stores->is_resting = error != 0;
    start_fill(stores);
    start_trimming(stores); /* it may not be wanted any more */
}

static void roll_period(struct gm_stores *stores)
{
    const uint64_t now = stores_now(stores), periods = (now - stores->period_at) / stores->keep_ms;
    if (periods == 0)
        return;
    stores->most_before = periods == 1 ? stores->most : stores->wanted;
    stores->most = stores->wanted;
    stores->period_at += periods * stores->keep_ms;
}

void gm_stores_want(struct gm_stores *stores, uint64_t bytes)
{
    const uint64_t pages = bytes / GM_CHUNK_MIN + (bytes % GM_CHUNK_MIN != 0);
    const uint32_t all = stores->paged.pages, wanted = pages < all ? (uint32_t)pages : all;

    roll_period(stores);
    if (wanted < stores->wanted || !stores->is_asked)
        start_trimming(stores);
    stores->is_asked = true;
    if (wanted > stores->most)
        stores->most = wanted;
    stores->wanted = wanted;
    stores->is_resting = false;
    start_fill(stores);
}

uint64_t gm_stores_held(const struct gm_stores *stores)
{
    uint64_t pages = 0;
    for (uint32_t slab = 0; slab * GM_SLAB_PAGES < stores->paged.max_pages; slab++)
        if (stores->slabs[slab].used_at != 0)
            pages += slab_pages(stores, slab);
    return pages * GM_CHUNK_MIN;
}

enum trim { TRIM_NOT, TRIM_LATER, TRIM_NOW };

/* Whether to give back a free slab. */
static enum trim judge_slab(const struct gm_stores *stores, uint32_t slab)
{
    const struct paged_slab *this = &stores->slabs[slab];
    const uint32_t kept = stores->most > stores->most_before ? stores->most : stores->most_before;
    const uint32_t rest = stores->warm - slab_pages(stores, slab); /* if it is warm: without it */

    if (this->used_at == 0 || this->state == SLAB_FILLING)
        return TRIM_NOT;
    if (this->state == SLAB_WARM && rest < stores->wanted)
        return TRIM_NOT;
    if (this->state == SLAB_WARM && rest < kept)
        return TRIM_LATER;
    if (this->used_at <= stores->trimmed_at)
        return TRIM_NOW;
    return stores_now(stores) - this->used_at < stores->keep_ms ? TRIM_LATER : TRIM_NOW;
}

static void give_back(struct gm_stores *stores, uint32_t slab)
{
    madvise(stores->memory + slab * GM_SLAB_BYTES, slab_pages(stores, slab) * GM_CHUNK_MIN,
            stores->paged_fd >= 0 ? MADV_REMOVE : MADV_DONTNEED);
    stores->slabs[slab].used_at = 0;
    set_cold(stores, slab);
}

/* The last free slab of its list; GM_NONE: none is free. */
static uint32_t last_slab(const struct gm_stores *stores)
{
    const struct gm_pages *pages = &stores->paged;
    uint32_t last = pages->heads[GM_CHUNK_CLASSES - 1];
    while (last != GM_NONE && pages->slabs[last].next != GM_NONE)
        last = pages->slabs[last].next;
    return last;
}

/* Give back slabs that are not wanted and have been free long enough. The timer stops when none is
 * left to wait for; the next gm_stores_free or gm_stores_want starts it. */
static void on_timer(uv_timer_t *timer)
{
    struct gm_stores *stores = timer->data;
    const uint32_t odd = stores->paged.max_pages / GM_SLAB_PAGES; /* its number, if there is one */
    uint32_t slab = last_slab(stores);
    uint64_t wait = 0;
    unsigned given = 0;

    roll_period(stores);
    /* A last slab with fewer pages is in another list. */
    bool is_odd = stores->paged.max_pages % GM_SLAB_PAGES && gm_slab_is_free(&stores->paged, odd);
    while (is_odd || slab != GM_NONE) {
        const uint32_t this = is_odd ? odd : slab;
        const enum trim verdict = judge_slab(stores, this);
        if (verdict == TRIM_NOW && given == TRIM_SLABS) {
            wait = TRIM_EVERY_MS;
            break;
        }
        if (verdict == TRIM_NOW) {
            give_back(stores, this);
            given++;
        } else if (verdict == TRIM_LATER) {
            wait = 1 + stores->keep_ms / 4;
        }
        if (!is_odd)
            slab = stores->paged.slabs[slab].prev;
        is_odd = false;
    }
    stores->is_trimming = wait != 0;
    if (wait)
        uv_timer_start(timer, on_timer, wait, 0);
}

uint64_t gm_stores_trim(struct gm_stores *stores)
{
    const uint32_t warm = stores->warm;
    uint64_t bytes = 0;

    roll_period(stores);
    stores->most = stores->most_before = stores->wanted;
    stores->trimmed_at = stores_now(stores);
    for (uint32_t slab = last_slab(stores); slab != GM_NONE; slab = stores->paged.slabs[slab].prev)
        if (judge_slab(stores, slab) == TRIM_NOW) {
            bytes += slab_pages(stores, slab) * GM_CHUNK_MIN;
            stores->warm -= stores->slabs[slab].state == SLAB_WARM ? slab_pages(stores, slab) : 0;
        }
    stores->warm = warm; /* the timer gives them back, batch by batch */
    stores->is_trimming = true;
    uv_timer_start(&stores->timer, on_timer, 0, 0);
    return bytes;
}

bool gm_stores_is_trimming(const struct gm_stores *stores)
{
    uint32_t slab = last_slab(stores);
    while (slab != GM_NONE && judge_slab(stores, slab) != TRIM_NOW)
        slab = stores->paged.slabs[slab].prev;
    return slab != GM_NONE;
}

static void use_slabs(struct gm_stores *stores, uint32_t page)
{
    const uint64_t now = stores_now(stores);
    while (page != GM_NONE) {
        const uint32_t slab = page / GM_SLAB_PAGES;
        stores->slabs[slab].used_at = now;
        if (stores->slabs[slab].state == SLAB_COLD && stores->paged.slabs[slab].free_map == 0)
            set_warm(stores, slab); /* copies will populate all of it */
        gm_pages_run(&stores->paged, &page, GM_SLAB_PAGES);
    }
}

/* ---- pages of all tiers ---- */

void gm_stores_keep(struct gm_stores *stores, enum gm_tier tier, uint32_t *next)
{
    gm_pages_keep(tier == GM_TIER_PAGED ? &stores->paged : &stores->on_disk, next);
}

/* What the daemon before had beyond the cap goes as it becomes free, once and for all. */
static void shrink(struct gm_stores *stores, enum gm_tier tier)
{
    struct gm_pages *pages = tier == GM_TIER_PAGED ? &stores->paged : &stores->on_disk;
    const uint32_t slabs = (pages->max_pages + GM_SLAB_PAGES - 1) / GM_SLAB_PAGES;
    const uint32_t kept = (stores->cap[tier] + GM_SLAB_PAGES - 1) / GM_SLAB_PAGES;
    unsigned given = 0;
    if (pages->pages <= stores->cap[tier])
        return;
    for (uint32_t slab = kept; slab < slabs && given < TRIM_SLABS; slab++) {
        if (!gm_slab_is_free(pages, slab) ||
            (tier == GM_TIER_PAGED && stores->slabs[slab].state == SLAB_FILLING))
            continue;
        gm_pages_remove_slab(pages, slab);
        if (tier == GM_TIER_PAGED && stores->slabs[slab].used_at != 0) {
            give_back(stores, slab);
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
    use_slabs(stores, page);
    return true;
}

uint32_t gm_stores_take(struct gm_stores *stores, enum gm_tier tier, uint64_t bytes)
{
    uint32_t page = GM_NONE;
    if (tier == GM_TIER_PINNED)
        return gm_hostpool_take(stores->pinned, bytes);
    if (tier == GM_TIER_NONE)
        return GM_NONE;
    shrink(stores, tier);
    if (tier == GM_TIER_DISK)
        return gm_pages_take(&stores->on_disk, bytes);
    if (tier == GM_TIER_PAGED) {
        page = gm_pages_take(&stores->paged, bytes);
        use_slabs(stores, page);
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
        shrink(stores, tier);
    } else {
        use_slabs(stores, page);
        gm_pages_free(&stores->paged, page);
        shrink(stores, tier);
        start_trimming(stores);
    }
}

uint64_t gm_stores_cap(const struct gm_stores *stores, enum gm_tier tier)
{
    return tier == GM_TIER_PINNED ? gm_hostpool_cap(stores->pinned)
                                  : pages_of(stores, tier)->pages * GM_CHUNK_MIN;
}

uint64_t gm_stores_used(const struct gm_stores *stores, enum gm_tier tier)
{
    const struct gm_pages *pages = pages_of(stores, tier);
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
    const uint32_t n = pages_of(stores, tier)->max_pages;
    stores->jobs[tier] = n ? calloc(n, sizeof(struct job)) : NULL;
    return n && !stores->jobs[tier] ? -ENOMEM : 0;
}

/* The file of the daemon before, or -1. Its size is that of the tier, if that is more. */
static int claim_file(struct gm_stores *stores, enum gm_kept_kind kind, uint64_t *bytes)
{
    struct stat is;
    uint64_t id;
    const int fd = gm_kept_claim(stores->kept, kind, stores->gpu, 0, &id);
    if (fd >= 0 && fstat(fd, &is) == 0 && (uint64_t)is.st_size > *bytes)
        *bytes = (uint64_t)is.st_size & ~(GM_CHUNK_MIN - 1);
    return fd;
}

static int keep_file(struct gm_stores *stores, enum gm_kept_kind kind, int fd, char *why,
                     size_t why_size)
{
    const int error = gm_kept_put(stores->kept, kind, stores->gpu, 0, 0, fd);
    if (error)
        snprintf(why, why_size, "gpumux-keeper cannot hold another file: %s", strerror(-error));
    return error;
}

/* The slabs of the daemon before that have memory: it is used, or is given back. */
static void find_memory(struct gm_stores *stores)
{
    for (uint32_t slab = 0; slab * GM_SLAB_PAGES < stores->paged.max_pages; slab++) {
        const off_t from = (off_t)(slab * GM_SLAB_BYTES);
        const off_t data = lseek(stores->paged_fd, from, SEEK_DATA);
        if (data < 0)
            break;
        if (data - from < (off_t)GM_SLAB_BYTES)
            stores->slabs[slab].used_at = stores_now(stores);
        else
            slab = (uint32_t)((uint64_t)data / GM_SLAB_BYTES) - 1;
    }
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
    stores->paged_fd = claim_file(stores, GM_KEPT_PAGED, &bytes);
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
        find_memory(stores);
    return stores->kept && !is_taken
               ? keep_file(stores, GM_KEPT_PAGED, stores->paged_fd, why, why_size)
               : 0;
}

static int open_disk(struct gm_stores *stores, const struct gm_stores_config *config, char *why,
                     size_t why_size)
{
    const bool is_wanted = config->disk_dir && *config->disk_dir;
    const char *dir = is_wanted ? config->disk_dir : "(the file of the daemon before)";
    uint64_t bytes = is_wanted ? config->disk & ~(GM_CHUNK_MIN - 1) : 0;
    stores->cap[GM_TIER_DISK] = (uint32_t)(bytes >> GM_CHUNK_SHIFT);
    const int fd = claim_file(stores, GM_KEPT_DISK, &bytes);
    if (!is_wanted && fd < 0)
        return 0;
    if (bytes == 0) {
        snprintf(why, why_size, "--disk %s: at least 2 MiB are needed", dir);
        return -EINVAL;
    }
    int error = bytes <= INT64_MAX ? gm_pages_open(&stores->on_disk, bytes) : -ENOMEM;
    if (error == 0) {
        /* With huge pages a request to the disk is one range of memory, not a thousand pages
         * (measured on one disk: it reads 2.1 GB/s instead of 1.1). */
        stores->bounce = aligned_alloc(GM_CHUNK_MIN, DISK_WORKERS * PIECE_BYTES);
        if (stores->bounce) {
            madvise(stores->bounce, DISK_WORKERS * PIECE_BYTES, MADV_HUGEPAGE);
            madvise(stores->bounce, DISK_WORKERS * PIECE_BYTES, MADV_DONTDUMP);
        } else {
            error = -ENOMEM;
        }
    }
    if (error) {
        snprintf(why, why_size, "--disk %s: out of memory for its tables", dir);
        return error;
    }
    error = fd >= 0 ? gm_disk_adopt(&stores->disk, stores->system, fd, bytes, why, why_size)
                    : gm_disk_open(&stores->disk, stores->system, dir, bytes, why, why_size);
    if (error == 0)
        gm_pages_add(&stores->on_disk, stores->on_disk.max_pages);
    if (error == 0 && fd < 0)
        error = keep_file(stores, GM_KEPT_DISK, stores->disk.fd, why, why_size);
    return error;
}

static unsigned worker_count(unsigned asked)
{
    if (asked == 0) {
        asked = uv_available_parallelism(); /* of this process */
        asked = asked < WORKERS_LEAST ? WORKERS_LEAST : asked;
        asked = asked > WORKERS_MOST ? WORKERS_MOST : asked;
    }
    return asked < WORKERS_MAX ? asked : WORKERS_MAX;
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
    error = start_crew(&stores->crews[CREW_MEMORY], stores->paged.pages ? workers : 2);
    if (error == 0 && stores->on_disk.pages)
        error = start_crew(&stores->crews[CREW_DISK], DISK_WORKERS);
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
    for (int i = 0; i < CREWS; i++) {
        struct crew *crew = &stores->crews[i];
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
    stores->wake.data = stores->timer.data = stores;
    stores->handles = 2;
    stores->period_at = stores_now(stores);
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
    for (int i = 0; i < CREWS; i++) {
        stop_crew(&stores->crews[i]);
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
}
