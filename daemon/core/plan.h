/* clang-format off */
/*
 * The planner: the ordered list of moves that makes the next slice possible. Pure.
 *
 * Lazy and exact: nothing is evicted but what the missing chunks need room for.
 * A missing chunk takes, in this order: a free frame of its user and size; one whose eviction is
 * under way; room left in the budget, or to come from condemned frames; room made by destroying
 * free frames that nobody in this plan needs; the frame of a victim. Victims come from the app
 * whose next slice is farthest away (MSched section 5: Belady's rule on the scheduler's timeline),
 * and within it first those whose frame fits as it is.
 *
 * The objective, exactly. First: an app with a nearer next use never loses a chunk while one
 * farther away has chunks that would do; that is, the nearest victim loses as few bytes as it can,
 * then the next nearest as few as it can given that, and so on. Second, given that, no byte more is
 * evicted than the sizes of the chunks force: a minimal sum in every victim. Frames of the wrong
 * size or user count as room, since they can be destroyed and made anew (90 us, against 330 us a
 * way for 16 MiB over the link).
 *
 * Below the GPU (Nixie section 5): evicted data stays in the highest tier that has room once the
 * plan is done, counting what the targets give back there. Every eviction goes through pinned
 * memory, the only tier that the copy engines reach; what finds no lasting place there is lowered
 * further, farthest next use first, the farthest to disk and the rest to paged memory. A part of
 * pinned memory, the streaming window, is free again when the plan is done (as far as lower tiers
 * have room), so that a full lower tier slows a switch but never blocks it. While a tier is closed
 * the others are all there is; a plan for which they are too small is not complete.
 *
 * How to carry a plan out. Moves may be made in any order in which each is ready:
 *
 *   EVICT    nothing runs on the chunk; there are pinned pages for it beyond gm_plan_reserve
 *   DESTROY  its frame is free
 *   FILL     the chunk is settled in pinned memory or never written; its frame is free, or there is
 *            room in the budget for a new one
 *   LOWER    the chunk is settled in pinned memory; there are pages for it in `to_tier`
 *   RAISE    the chunk is settled below pinned memory; there are pinned pages for it
 *
 * with one rule, gm_plan_may_take: a move that takes pages of a tier, or room in the budget, leaves
 * free what the moves before it that have not begun will take of the same. Without it evictions
 * that come later in the plan could use up what the earlier ones need, and with every tier full
 * neither would end. With it the first move that is not done is ready as soon as what is under way
 * has ended: every plan ends; and from every state that it passes through another can be made that
 * ends, for a window of at least GM_PLAN_WINDOW_MIN and data that the tiers can hold beside it.
 *
 * Raises are slow, and the link would stand still while they take what evictions behind them need:
 * so while evictions are left and something is under way, gm_plan_leaves_room holds for them too.
 *
 * A plan stays right while its moves are made: plan again when the input changes, or when the plan
 * has ended and chunks are still missing.
 */
/* clang-format on */
#ifndef GM_CORE_PLAN_H
#define GM_CORE_PLAN_H

#include "daemon/core/table.h"
#include "daemon/core/tunables.h"

enum gm_move_kind {
    GM_MOVE_EVICT,   /* copy `chunk` out of `frame` to pinned memory and take the frame from it */
    GM_MOVE_DESTROY, /* end free frame `frame`, to make room */
    GM_MOVE_FILL,  /* put `chunk` into `frame`; GM_NONE: into a new one. It is in pinned memory, or
                      is  never written, or is raised by a move before */
    GM_MOVE_LOWER, /* copy `chunk`, in pinned memory by then, to `to_tier` and free its pages */
    GM_MOVE_RAISE, /* copy `chunk` from paged memory or disk to pinned memory */
};

struct gm_move {
    uint8_t kind;
    uint8_t to_tier; /* LOWER: enum gm_tier */
    bool is_done;    /* the executor's mark */
    uint32_t chunk;
    uint32_t frame;
};

/* A tier below the GPU. A tier that is not configured has cap 0. */
struct gm_plan_tier {
    uint64_t cap;
    uint64_t used;   /* now, copies under way included, at both their ends */
    uint64_t ending; /* ... of which copies under way give back when they end: room to come */
    bool is_closed;  /* paged memory or disk: it cannot be written now: nothing goes there, and what
                        is there stays or is  raised */
};

struct gm_plan_input {
    const uint32_t *targets; /* apps whose missing chunks are wanted, most urgent first */
    uint32_t n_targets;
    const uint32_t *victims; /* apps that may lose chunks, farthest next use first */
    uint32_t n_victims;
    const uint32_t *givers; /* prefetch: those of the victims whose chunks may leave the GPU for the
                               targets', farthest next use first */
    uint32_t n_givers;
    struct gm_plan_tier tiers[GM_TIERS]; /* PINNED, PAGED and DISK are read */
    uint64_t window; /* bytes of pinned memory to leave free when the plan is done */
    bool is_growing; /* gm_plan_switch: the first target runs, whole but for what it waits for */
};

/*
 * Pinned memory that evictions leave free (0 without lower tiers). A lower tier that is full is
 * emptied through pinned memory, so three chunks of room must remain below the GPU: with less,
 * neither a chunk to raise nor, with that room split over two lower tiers, one to lower is certain.
 *
 * And the window for which plans always end: when nothing can be lowered, because each lower tier
 * has room for less than a chunk, and less than a chunk of room is on the GPU, there must still be
 * a chunk's room in pinned memory beside the reserve.
 */
#define GM_PLAN_RESERVE (3 * GM_CHUNK_MAX)
#define GM_PLAN_WINDOW_MIN (GM_PLAN_RESERVE + 4 * GM_CHUNK_MAX)
uint64_t gm_plan_reserve(const struct gm_plan_input *input);

/* What moves that were passed over, since they are not ready, will take. All zero at a plan's
 * begin. */
struct gm_plan_hold {
    uint64_t bytes[GM_TIERS]; /* GPU: room in the budget */
    bool has_eviction;
};

/* The tier of which a move takes; GM_TIER_NONE: of none. */
static inline enum gm_tier gm_plan_takes(const struct gm_move *move)
{
    switch ((enum gm_move_kind)move->kind) {
    case GM_MOVE_EVICT:
    case GM_MOVE_RAISE:
        return GM_TIER_PINNED;
    case GM_MOVE_LOWER:
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
 * Whether a raise of `bytes` leaves pinned memory for evictions behind it in the plan, which have
 * no claim to it by gm_plan_may_take: half of the window, of a small one no more than small chunks
 * need. `free` bytes are free in pinned memory, `own_free` where it comes from: if that is full,
 * lowers wait for what it gives back, and it goes first.
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
    bool
        lacks_room; /* of gm_plan_make: it is not, as the tiers have no room for what would leave */
};

/*
 * Make the plan. Moves are in an order in which each is possible once those before it, and what is
 * under way, have ended: at every prefix the frames fit the budget, and each tier its cap. Chunks
 * in flight to a tier below the GPU count as there. Changes nothing in the table. When it is not
 * complete, the moves found so far are valid; carry them out and plan again. Linear in the moves
 * and the chunks that the targets miss.
 */
void gm_plan_make(const struct gm_table *table, const struct gm_plan_input *input,
                  struct gm_plan *plan);

/* How many of its moves are of that kind. */
uint32_t gm_plan_count(const struct gm_plan *plan, enum gm_move_kind kind);

/*
 * The plan of a switch: that of gm_plan_make, unless a tier is closed and the others have no room
 * for what would leave. Then the plan is for as many targets as there is room for: they are given
 * up one by one, the least urgent first. If there is no room for the first alone, nobody loses
 * anything for it, since a program that is whole can run and two halves cannot: a plan that would
 * evict is empty instead. Only if the first grows it takes what it can get.
 *
 * What counts is what one plan finds. Where tiers are so full that only a second plan could go on,
 * the switch waits (of 125,000 in random worlds, 8 did); and of targets for which the GPU has no
 * place yet, because of what is under way, only the part that has one is looked at.
 *
 * Returns for how many targets, the first ones, there is room: all while no tier is closed, 0 if
 * not even for the first. Beyond that the plan is as gm_plan_make's. Allocates nothing and cannot
 * fail; each target that is given up takes the time of one more plan.
 */
uint32_t gm_plan_switch(const struct gm_table *table, const struct gm_plan_input *input,
                        struct gm_plan *plan);

/*
 * Prefetch: what can be done for the apps that come next while others run, without taking anything
 * from those. `input->targets` are the coming apps, soonest first; `input->victims` those whose
 * data below the GPU may be lowered for them (farthest next use first, later than the targets).
 * Fills what fits into free frames and free room, and raises what fits into pinned memory beside
 * the window, lowering data of later apps for it where that brings an earlier app's data up.
 *
 * What the first of them has in pinned memory also takes the frames of `input->givers`, one for
 * one, of the same user and size: what a nearer app has on the GPU when its turn begins, its switch
 * does not move. Of apps in turn on a GPU with room for little more than one of them, that room is
 * always the next one's then; by Belady's rule alone, without moves ahead, it is so every other
 * time. Nothing else is evicted, and no frame is destroyed.
 */
void gm_plan_prefetch(const struct gm_table *table, const struct gm_plan_input *input,
                      struct gm_plan *plan);

#endif
