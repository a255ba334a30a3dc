/* clang-format off */
/*
 * The insides of planning, shared by core/plan*.c only.
 *
 *   plan_moves.c    the moves: for one chunk, below the GPU; plans, switches
 *   plan_frames.c   where chunks can go on the GPU: the order of filling, frames, victims
 */
/* clang-format on */
#ifndef GM_CORE_PLANNING_H
#define GM_CORE_PLANNING_H

#include "daemon/core/plan.h"

/*
 * The order of filling. User by user, as frames are handed out from cursors into that user's lists;
 * then app by app in the order of the targets. Of an app first what is pinned: what is evicted for
 * it takes its pages. Then what must be promoted; last what was never written and has no pages.
 */
static const uint8_t gm_plan_order[] = {GM_TIER_PINNED, GM_TIER_PAGED, GM_TIER_DISK, GM_TIER_NONE};
#define GM_STAGE_PROMOTE_FIRST 1u
#define GM_STAGE_PROMOTE_LAST 2u
#define GM_STAGE_LAST 3u

/* What the moves for one chunk can take at once: see GM_PLAN_WINDOW_MIN. */
#define GM_PLAN_GROUP (GM_PLAN_WINDOW_MIN - GM_PLAN_RESERVE)

/* A walk over the missing chunks in the order of filling; stages `from` to `to` of each app. */
struct gm_plan_walk {
    uint32_t first;  /* the first target of the current user */
    uint32_t target; /* the current one */
    uint32_t chunk;  /* the next */
    unsigned stage, from, to;
};

struct gm_planning {
    const struct gm_table *table;
    const struct gm_plan_input *input;
    struct gm_plan *plan;

    /* what is missing and can be placed */
    uint32_t cut;       /* the first chunk in the order of filling that cannot; GM_NONE: all can */
    uint32_t cut_first; /* ... and the first target of its user */
    uint64_t bytes[GM_TIERS];      /* still to be filled, by the tier they are in now */
    uint32_t promotions;           /* chunks still to be promoted */
    uint64_t to_promote[GM_TIERS]; /* bytes of those */
    uint64_t ahead, ahead_max;     /* bytes promoted and not yet filled */
    struct gm_plan_walk promote;

    /* frames */
    uint64_t room;                         /* bytes of budget in which a frame can be made */
    uint32_t pool;                         /* the current user's */
    uint32_t need[GM_CHUNK_CLASSES];       /* its chunks still to be placed */
    uint32_t free_at[GM_CHUNK_CLASSES];    /* its free frames */
    uint32_t leaving_at[GM_CHUNK_CLASSES]; /* its frames whose evictions are under way */

    uint32_t n_leaving; /* the first moves, among which are the evictions of what leaves for good */

    /* the cursor over surplus frames, which are destroyed */
    uint32_t surplus_pool;
    unsigned surplus_list; /* of the pool: the free ones by class, then the leaving ones by class */
    uint32_t surplus_at;
    uint32_t surplus_need[GM_CHUNK_CLASSES];
    bool surplus_is_open;

    /* victims */
    uint64_t to_evict; /* bytes still to be evicted, of all */
    uint32_t victim;   /* the current one */
    uint32_t victim_at[GM_CHUNK_CLASSES];
    uint32_t quota[GM_CHUNK_CLASSES]; /* chunks that it still loses */

    /* tiers below the GPU */
    bool has_tiers;
    int64_t free[GM_TIERS];
    int64_t window, reserve;
    int64_t to_demote;      /* bytes still to be demoted */
    int64_t to_disk;        /* ... of which the first ones, of the farthest apps, go to disk */
    uint64_t to_map;        /* bytes that targets are to map and that need pinned pages first */
    uint32_t pinned_victim; /* the cursor for demotions of what was pinned before */
    uint32_t pinned_at;
    uint32_t evicted_at; /* ... and of what this plan evicts: a move */
    uint32_t evicted_victim;

    /* ahead, by size: the least `left` for which no demotion made room to promote a chunk */
    int64_t vain_promote[GM_CHUNK_CLASSES];
};

static inline const struct gm_table_app *gm_plan_target(const struct gm_planning *p,
                                                        uint32_t target)
{
    return &p->table->apps[p->input->layout->targets[target]];
}

static inline const struct gm_table_app *gm_plan_victim(const struct gm_planning *p,
                                                        uint32_t victim)
{
    return &p->table->apps[p->input->layout->victims[victim].app];
}

/* Planning follows several lists, whose chunks lie anywhere: fetch a chunk into the cache. */
static inline void gm_plan_fetch(const struct gm_planning *p, uint32_t chunk)
{
    if (chunk != GM_NONE) { /* a chunk can lie in two cache lines */
        __builtin_prefetch(&p->table->chunks[chunk].frame);
        __builtin_prefetch(&p->table->chunks[chunk].state);
    }
}

/* The chunk after `chunk` in its list, and before it; GM_NONE at the end. Fetches the next one. */
static inline uint32_t gm_plan_follow(const struct gm_planning *p, uint32_t chunk)
{
    const uint32_t next = p->table->chunks[chunk].next;
    gm_plan_fetch(p, next);
    return next;
}

static inline uint32_t gm_plan_follow_back(const struct gm_planning *p, uint32_t chunk)
{
    const uint32_t prev = p->table->chunks[chunk].prev;
    gm_plan_fetch(p, prev);
    return prev;
}

#endif
