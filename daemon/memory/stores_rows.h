/* What the files of the stores share: their state. Others have stores.h. */
#ifndef GM_DAEMON_MEMORY_STORES_ROWS_H
#define GM_DAEMON_MEMORY_STORES_ROWS_H

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/chunk.h"
#include "common/locks.h"
#include "daemon/memory/disk.h"
#include "daemon/memory/hostpool.h"

#define GM_STORES_WORKERS_MAX 64u
#define GM_FILL_SLABS 8u /* populated before the loop thread looks again at what is wanted */
#define GM_TRIM_SLABS 8u /* given back at one go */

/* A copy. Each tier has a table of them by the first page of the destination, which only one copy
 * at a time can have: so a copy needs no allocation. */
struct gm_stores_job {
    struct gm_stores_job *next; /* in the queue, then in the list of those that ended */
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
struct gm_paged_slab {
    uint64_t used_at; /* in ms, when pages of it were last taken, freed or populated; 0: it has no
                         memory of the system */
    enum {
        GM_SLAB_COLD,    /* not populated, or only where copies went */
        GM_SLAB_FILLING, /* workers populate it */
        GM_SLAB_WARM,    /* populated */
    } state;
};

/* The pages of `slabs` slabs are populated now; workers take them one by one. */
struct gm_stores_fill {
    bool is_busy; /* the loop's: until it has taken over the outcome */
    uint32_t slab[GM_FILL_SLABS];
    uint32_t slabs;         /* under the crew's lock, as what follows */
    uint32_t taken, filled; /* pages */
    unsigned workers, most_workers;
    int error; /* the first one */
};

/* Threads that take pieces from one queue. */
struct gm_stores_crew {
    struct gm_stores *stores;
    struct gm_lock lock;
    pthread_cond_t more;
    struct gm_stores_job *head, **tail; /* under the lock: jobs with pieces to take */
    struct gm_stores_job *ended, **ended_tail;
    bool is_stopping; /* under the lock */
    unsigned threads;
    pthread_t thread[GM_STORES_WORKERS_MAX];
};

enum { GM_CREW_MEMORY, GM_CREW_DISK, GM_CREWS };

struct gm_stores {
    struct gm_hostpool *pinned;
    const struct gm_system *system;
    void (*on_done)(void *arg, uint32_t chunk, int error); /* gm_stores_done */
    void *arg;

    struct gm_kept *kept;
    uint32_t gpu;
    uint32_t cap[GM_TIERS]; /* pages that PAGED and DISK are to have; they may have more */

    struct gm_pages paged;
    int paged_fd; /* the file that it is; -1: it is anonymous memory */
    char *map;
    uint64_t map_bytes;
    char *memory; /* within the map, aligned for huge pages */
    struct gm_paged_slab *slabs;
    struct gm_stores_fill fill;
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
    uint32_t disk_parts, most_on_disk; /* pages that were asked for */
    uv_timer_t look;                   /* runs if the disk's room may change */
    void (*on_room)(void *arg);
    struct {
        bool is_asked, is_answered; /* under the disk crew's lock, as room */
        uint64_t room;
    } disk_room;
    char *bounce; /* a piece for each disk worker */

    uv_async_t wake;
    unsigned handles; /* open ones */
    struct gm_stores_crew crews[GM_CREWS];
    struct gm_stores_job *jobs[GM_TIERS];
    uint64_t bytes[GM_TIERS][GM_TIERS];
};

static inline uint64_t gm_stores_now(const struct gm_stores *stores)
{
    return uv_now(stores->timer.loop) + 1; /* never 0 */
}

static inline const struct gm_pages *gm_stores_pages_of(const struct gm_stores *stores,
                                                        unsigned tier)
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

#endif
