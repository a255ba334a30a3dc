/* clang-format off */
/*
 * The order of moves: the list that brings a layout about (core/layout.h), needed first in, needed
 * last out. It decides on no chunk but where one of the layout's has no way: then what it can do
 * gets as near as it can. Pure; owns no state. Called by the engine. Reads the table.
 *
 * A chunk that comes takes, in this order: a free frame of its user and size; one whose eviction is
 * under way; one that its own app leaves for a place on the host; room in the budget, or to come
 * from condemned frames; room made by destroying free frames that nobody in this plan needs; the
 * frame of a victim, one that fits as it is first.
 *
 * Every eviction goes through pinned memory, the only tier that the copy engines reach. At its end
 * a plan leaves a part of pinned memory free, the streaming window, as far as the tiers below have
 * room. So a full lower tier slows a switch but never blocks it. A plan does not use a closed tier;
 * if the others are too small, it is not complete.
 *
 * How to carry a plan out. Moves may be made in any order in which each is ready:
 *
 *   EVICT    nothing runs on the chunk; there are pinned pages for it beyond gm_plan_reserve
 *   DESTROY  its frame is free
 *   FILL     the chunk is settled in pinned memory or never written; its frame is free, or there is
 *            room in the budget for a new one
 *   DEMOTE   the chunk is settled in pinned memory; there are pages for it in `to_tier`
 *   PROMOTE  the chunk is settled below pinned memory; there are pinned pages for it
 *
 * One rule holds for all, gm_plan_may_take: a move that takes pages of a tier, or room in the
 * budget, leaves free what earlier moves that have not begun will take of the same. Otherwise later
 * evictions could use up what earlier moves need; with every tier full neither would end. With the
 * rule, the first move that is not done is ready as soon as what is under way has ended. So every
 * plan ends. From every state on its way another plan can be made that ends, if the window is at
 * least GM_PLAN_WINDOW_MIN and the tiers can hold the data beside it.
 *
 * Promotions are slow. If they took the pages that later evictions need, the link would stand
 * still. So while evictions are left and something is under way, gm_plan_leaves_room holds too.
 *
 * Plan again when the input changes, or when the plan has ended and chunks are still missing.
 */
/* clang-format on */
#ifndef GM_CORE_PLAN_H
#define GM_CORE_PLAN_H

#include "daemon/core/layout.h"

enum gm_move_kind {
    GM_MOVE_EVICT,   /* copy `chunk` out of `frame` to pinned memory and take the frame from it */
    GM_MOVE_DESTROY, /* end free frame `frame`, to make room */
    GM_MOVE_FILL,    /* put `chunk` into `frame`; GM_NONE: into a new one. It is in pinned memory,
                        was never written, or is promoted by a move before */
    GM_MOVE_DEMOTE,  /* copy `chunk`, in pinned memory by then, to `to_tier` and free its pages */
    GM_MOVE_PROMOTE, /* copy `chunk` from paged memory or disk to pinned memory */
};

struct gm_move {
    uint8_t kind;
    uint8_t to_tier;   /* DEMOTE: enum gm_tier */
    bool is_done;      /* the executor's mark */
    bool is_passed_on; /* the planner's: EVICT of what leaves for good, whose frame another has */
    uint32_t chunk;
    uint32_t frame;
};

/*
 * The reserve: pinned memory that evictions leave free (0 without lower tiers). A full lower tier
 * is emptied through pinned memory. With room for three chunks below the GPU, either one can be
 * promoted, or one can be demoted although that room is split over two lower tiers. Where the only
 * lower tier is closed there is none: a plan that begins leaves room for one chunk at its end.
 *
 * GM_PLAN_WINDOW_MIN is the window with which plans always end. Nothing may be demotable, as each
 * lower tier has room for less than a chunk, and the GPU too: then there is still room for a chunk
 * in pinned memory beside the reserve.
 */
#define GM_PLAN_RESERVE (3 * GM_CHUNK_MAX)
#define GM_PLAN_WINDOW_MIN (GM_PLAN_RESERVE + 4 * GM_CHUNK_MAX)

/* What moves that were passed over, as they are not ready, will take. All zero at first. */
struct gm_plan_hold {
    uint64_t bytes[GM_TIERS]; /* GPU: room in the budget */
    bool has_eviction;
};

/* The tier of which a move takes; GM_TIER_NONE: of none. */
static inline enum gm_tier gm_plan_takes(const struct gm_move *move)
{
    switch ((enum gm_move_kind)move->kind) {
    case GM_MOVE_EVICT:
    case GM_MOVE_PROMOTE:
        return GM_TIER_PINNED;
    case GM_MOVE_DEMOTE:
        return (enum gm_tier)move->to_tier;
    case GM_MOVE_FILL:
        return move->frame == GM_NONE ? GM_TIER_GPU : GM_TIER_NONE;
    case GM_MOVE_DESTROY:
        break;
    }
    return GM_TIER_NONE;
}

/* Whether `move`, of a chunk of `bytes`, may take them now that `free` bytes of the tier are free.
 */
static inline bool gm_plan_may_take(const struct gm_plan_hold *hold, const struct gm_move *move,
                                    uint64_t bytes, uint64_t free, uint64_t reserve)
{
    enum gm_tier tier = gm_plan_takes(move);
    if (tier == GM_TIER_NONE)
        return true;
    if (tier == GM_TIER_PINNED && (move->kind == GM_MOVE_EVICT || hold->has_eviction))
        bytes += reserve;
    return free >= bytes + hold->bytes[tier];
}

/*
 * Whether a promotion of `bytes` leaves pinned memory for later evictions, for which
 * gm_plan_may_take keeps nothing: half of the window; of a small window only what small chunks
 * need. `free` bytes are free in pinned memory, `own_free` in the tier that it leaves. If that is
 * full, demotions wait for its pages, so it goes first.
 */
static inline bool gm_plan_leaves_room(uint64_t bytes, uint64_t own_free, uint64_t free,
                                       uint64_t window, uint64_t reserve)
{
    uint64_t left = window / 2, least = reserve + 2 * bytes;
    if (window < GM_PLAN_SMALL_WINDOW && left > least)
        left = least;
    return own_free < GM_CHUNK_MAX || free >= bytes + left;
}

/* `move` is passed over, for whatever reason. */
static inline void gm_plan_pass_over(struct gm_plan_hold *hold, const struct gm_move *move,
                                     uint64_t bytes)
{
    hold->bytes[gm_plan_takes(move)] += bytes;
    hold->has_eviction = hold->has_eviction || move->kind == GM_MOVE_EVICT;
}

struct gm_plan {
    struct gm_move *moves; /* the caller's memory */
    uint32_t n, capacity;
    bool is_complete; /* every missing chunk has its place, within `capacity` moves */
    bool lacks_room;  /* gm_plan_make: it has not, as the tiers have no room for what would leave */
};

/* The reserve with these tiers and this window. */
uint64_t gm_plan_reserve(const struct gm_layout *layout);

/*
 * Make the plan. Each move is possible once those before it, and what is under way, have ended:
 * after every move the frames fit the budget, and each tier its cap. Chunks in flight to a tier
 * below the GPU count as there. If the plan is not complete, carry out its moves and plan again.
 * Linear in the moves and in what the targets lack.
 *
 * Ahead of a target's turn, what of it has no place on the GPU is promoted to pinned memory, as far
 * as that leaves the window free. A victim's data goes down only if that brings the target's up.
 * If nothing of the target would come nearer, the plan is empty.
 */
void gm_plan_make(const struct gm_table *table, const struct gm_layout *layout,
                  struct gm_plan *plan);
/* How many of its moves are of that kind. */
uint32_t gm_plan_count(const struct gm_plan *plan, enum gm_move_kind kind);

/*
 * The plan of what somebody waits for: that of gm_plan_make, unless a tier is closed and the others
 * have no room for what would leave. Then targets are dropped from the layout, the least urgent
 * first, until the rest have room.
 * If the first alone has none, a plan that would evict is empty instead: a program that is whole
 * can run, two halves cannot. Only a first target that grows takes what it can get.
 *
 * This looks at one plan only. If the tiers are so full that only a second plan could go on, the
 * switch waits (8 of 125,000 did in random worlds).
 *
 * Returns how many targets, the first ones, have room: all while no tier is closed, 0 if not even
 * the first. Each target that is dropped costs the time of one more plan.
 */
uint32_t gm_plan_switch(const struct gm_table *table, struct gm_layout *layout,
                        struct gm_plan *plan);

#endif
