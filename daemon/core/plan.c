#include "daemon/core/plan.h"

#include <assert.h>
#include <string.h>

/*
 * How a plan is made, in one pass over what is missing.
 *
 * The layout has the sums: what comes and leaves, and how many bytes go down so that the window is
 * free at the end. Bytes suffice for that: a frame that does not fit is destroyed and becomes room.
 * The moves are made chunk by chunk in the order of filling; beside them the promotions, as far
 * ahead as room allows, and the demotions that make room. `free` is what each tier has free once
 * the moves so far have ended.
 */

/* What the moves for one chunk can take at once: see GM_PLAN_WINDOW_MIN. */
#define GM_PLAN_GROUP (GM_PLAN_WINDOW_MIN - GM_PLAN_RESERVE)

struct planning {
    const struct gm_table *table;
    const struct gm_layout *layout;
    struct gm_plan *plan;

    /* what comes */
    uint64_t bytes[GM_TIERS];      /* still to be filled, by the tier they are in now */
    uint32_t promotions;           /* chunks still to be promoted */
    uint64_t to_promote[GM_TIERS]; /* bytes of those */
    uint64_t ahead, ahead_max;     /* bytes promoted and not yet filled */
    struct gm_layout_walk promote;

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
    uint32_t pinned_victim; /* the cursor for demotions of what was pinned before */
    uint32_t pinned_at;
    uint32_t evicted_at; /* ... and of what this plan evicts: a move */
    uint32_t evicted_victim;

    /* ahead, by size: the least `left` for which no demotion made room to promote a chunk */
    int64_t vain_promote[GM_CHUNK_CLASSES];
};

static const struct gm_table_app *target_of(const struct planning *p, uint32_t target)
{
    return &p->table->apps[p->layout->targets[target].app];
}

static const struct gm_table_app *victim_of(const struct planning *p, uint32_t victim)
{
    return &p->table->apps[p->layout->victims[victim].app];
}

/* The chunk after `chunk` in its list, and before it; GM_NONE at the end. Fetches the next one. */
static uint32_t follow(const struct planning *p, uint32_t chunk)
{
    const uint32_t next = p->table->chunks[chunk].next;
    gm_table_fetch(p->table, next);
    return next;
}

static uint32_t follow_back(const struct planning *p, uint32_t chunk)
{
    const uint32_t prev = p->table->chunks[chunk].prev;
    gm_table_fetch(p->table, prev);
    return prev;
}

/* Frames. */

static void open_pool(struct planning *p, uint32_t pool)
{
    p->pool = pool;
    gm_layout_needs(p->table, p->layout, pool, p->need);
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++) {
        p->free_at[c] = p->table->pools[pool].head[c];
        p->leaving_at[c] = gm_layout_leaving_frame(p->table, p->table->pools[pool].leaving[c]);
    }
}

static uint32_t take_frame(struct planning *p, unsigned class)
{
    uint32_t frame = p->free_at[class];
    if (frame != GM_NONE) {
        p->free_at[class] = p->table->frames[frame].next;
        return frame;
    }
    frame = p->leaving_at[class];
    if (frame != GM_NONE)
        p->leaving_at[class] = gm_layout_leaving_frame(p->table, p->table->frames[frame].next);
    return frame;
}

/* Go to the surplus of the current list: past the frames that the targets take. */
static void open_surplus(struct planning *p)
{
    const struct gm_table *table = p->table;
    const struct gm_pool *pool = &table->pools[p->surplus_pool];
    bool is_leaving = p->surplus_list >= GM_CHUNK_CLASSES;
    unsigned class = p->surplus_list % GM_CHUNK_CLASSES;
    uint32_t *need = &p->surplus_need[class];

    if (p->surplus_list == 0)
        gm_layout_needs(p->table, p->layout, p->surplus_pool, p->surplus_need);
    p->surplus_is_open = true;
    if (!is_leaving && *need >= pool->count[class]) {
        *need -= pool->count[class];
        p->surplus_at = GM_NONE;
        return;
    }
    p->surplus_at =
        is_leaving ? gm_layout_leaving_frame(table, pool->leaving[class]) : pool->head[class];
    for (; *need > 0 && p->surplus_at != GM_NONE; --*need) {
        p->surplus_at = table->frames[p->surplus_at].next;
        if (is_leaving)
            p->surplus_at = gm_layout_leaving_frame(table, p->surplus_at);
    }
}

static uint32_t next_surplus(struct planning *p)
{
    for (; p->surplus_pool < p->table->max_apps; p->surplus_pool++, p->surplus_list = 0) {
        if (p->table->pools[p->surplus_pool].frames == 0)
            continue;
        for (; p->surplus_list < 2 * GM_CHUNK_CLASSES; p->surplus_list++) {
            if (!p->surplus_is_open)
                open_surplus(p);
            uint32_t frame = p->surplus_at;
            if (frame != GM_NONE) {
                p->surplus_at = p->table->frames[frame].next;
                if (p->surplus_list >= GM_CHUNK_CLASSES)
                    p->surplus_at = gm_layout_leaving_frame(p->table, p->surplus_at);
                return frame;
            }
            p->surplus_is_open = false;
        }
    }
    return GM_NONE;
}

/* Victims. */

static void open_victim(struct planning *p, uint32_t victim)
{
    p->victim = victim;
    if (victim >= p->layout->n_victims)
        return;
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++) {
        p->victim_at[c] = victim_of(p, victim)->by_class[c].head;
        p->quota[c] = p->layout->victims[victim].leave[c];
    }
}

static uint32_t take_victim(struct planning *p, unsigned class)
{
    if (p->quota[class] == 0)
        return GM_NONE;
    uint32_t chunk = p->victim_at[class];
    p->quota[class]--;
    p->victim_at[class] = follow(p, chunk);
    return chunk;
}

static uint32_t take_any_victim(struct planning *p, unsigned class)
{
    for (unsigned c = class; c < GM_CHUNK_CLASSES; c++)
        if (p->quota[c] > 0)
            return take_victim(p, c);
    for (unsigned c = class; c-- > 0;)
        if (p->quota[c] > 0)
            return take_victim(p, c);
    return GM_NONE;
}
static int64_t chunk_bytes(const struct planning *p, uint32_t chunk)
{
    return (int64_t)gm_class_bytes(p->table->chunks[chunk].class);
}

static bool add_move(struct planning *p, enum gm_move_kind kind, uint32_t chunk, uint32_t frame)
{
    if (p->plan->n == p->plan->capacity)
        return false;
    p->plan->moves[p->plan->n++] =
        (struct gm_move){.kind = (uint8_t)kind, .chunk = chunk, .frame = frame};
    return true;
}

/* Tiers below the GPU. */

static void open_pinned_victim(struct planning *p, uint32_t victim)
{
    p->pinned_victim = victim;
    p->pinned_at = GM_NONE;
    if (victim < p->layout->n_victims)
        p->pinned_at = victim_of(p, victim)->away[GM_TIER_PINNED].tail;
}

/* The farthest victim's next chunk that was pinned before this plan; GM_NONE: none. */
static uint32_t peek_pinned(struct planning *p)
{
    while (p->pinned_at == GM_NONE && p->pinned_victim < p->layout->n_victims)
        open_pinned_victim(p, p->pinned_victim + 1);
    return p->pinned_at;
}

/* The next chunk that this plan evicts and does not demote; GM_NONE: none yet. */
static uint32_t peek_evicted(struct planning *p)
{
    const struct gm_move *moves = p->plan->moves;
    while (p->evicted_at < p->plan->n && (moves[p->evicted_at].kind != GM_MOVE_EVICT ||
                                          p->table->chunks[moves[p->evicted_at].chunk].is_leaving))
        p->evicted_at++;
    if (p->evicted_at == p->plan->n)
        return GM_NONE;
    uint32_t chunk = moves[p->evicted_at].chunk;
    while (p->layout->victims[p->evicted_victim].app != p->table->chunks[chunk].app)
        p->evicted_victim++;
    return chunk;
}

/* Where to demote `bytes`; GM_TIER_NONE: nowhere now. Only if it is needed may they take room that
 * the sums have set aside for others. */
static enum gm_tier choose_tier(const struct planning *p, int64_t bytes, bool is_needed)
{
    enum gm_tier first = p->to_disk > 0 ? GM_TIER_DISK : GM_TIER_PAGED;
    enum gm_tier other = p->to_disk > 0 ? GM_TIER_PAGED : GM_TIER_DISK;
    if (p->free[first] >= bytes)
        return first;
    if (!is_needed && p->to_promote[first] > 0)
        return GM_TIER_NONE; /* promotions will make room */
    return p->free[other] >= bytes ? other : GM_TIER_NONE;
}

static bool add_demote(struct planning *p, uint32_t chunk, enum gm_tier tier)
{
    int64_t bytes = chunk_bytes(p, chunk);
    if (!add_move(p, GM_MOVE_DEMOTE, chunk, GM_NONE))
        return false;
    p->plan->moves[p->plan->n - 1].to_tier = (uint8_t)tier;
    p->free[GM_TIER_PINNED] += bytes;
    p->free[tier] -= bytes;
    p->to_demote -= bytes;
    if (tier == GM_TIER_DISK)
        p->to_disk -= bytes;
    return true;
}

/* Demote the chunk whose next use is farthest. If that is not needed yet, wait for the chunks of
 * farther apps that will be evicted, and for room to come. False: none can be demoted. */
static bool demote_one(struct planning *p, bool is_needed)
{
    uint32_t pinned = peek_pinned(p), evicted = peek_evicted(p);
    if (pinned != GM_NONE && evicted == GM_NONE && !is_needed && p->to_evict > 0 &&
        p->pinned_victim > p->victim)
        return false;
    bool is_pinned =
        pinned != GM_NONE && (evicted == GM_NONE || p->pinned_victim <= p->evicted_victim);
    for (int attempt = 0; attempt < (is_needed ? 2 : 1); attempt++, is_pinned = !is_pinned) {
        uint32_t chunk = is_pinned ? pinned : evicted;
        if (chunk == GM_NONE)
            continue;
        enum gm_tier tier = choose_tier(p, chunk_bytes(p, chunk), is_needed);
        if (tier == GM_TIER_NONE)
            continue;
        if (is_pinned)
            p->pinned_at = follow_back(p, chunk);
        else
            p->evicted_at++;
        return add_demote(p, chunk, tier);
    }
    return false;
}

/* Make `bytes` of pinned memory free that leave `left`. Demotes a window ahead of what is evicted,
 * so that evictions seldom wait. False: it cannot be done. */
static bool make_pinned(struct planning *p, int64_t bytes, int64_t left)
{
    if (!p->has_tiers)
        return true;
    while (p->free[GM_TIER_PINNED] - bytes < p->window && p->to_demote > 0 && demote_one(p, false))
        ;
    while (p->free[GM_TIER_PINNED] - bytes < left)
        if (!demote_one(p, true)) {
            p->plan->lacks_room = true;
            return false;
        }
    return true;
}

static bool add_promote(struct planning *p, uint32_t chunk)
{
    int64_t bytes = chunk_bytes(p, chunk);
    unsigned tier = p->table->chunks[chunk].listed_tier;
    if (!add_move(p, GM_MOVE_PROMOTE, chunk, GM_NONE))
        return false;
    p->free[GM_TIER_PINNED] -= bytes;
    p->free[tier] += bytes;
    p->to_promote[tier] -= (uint64_t)bytes;
    p->ahead += (uint64_t)bytes;
    p->promotions--;
    return true;
}

/*
 * Bytes of pinned memory that early promotions leave free: half of the window, for evictions; and
 * what evictions for chunks that were never written, and give no pages back, need beyond what is
 * demoted.
 */
static int64_t promote_floor(const struct planning *p)
{
    uint64_t kept = p->bytes[GM_TIER_NONE] < p->to_evict ? p->bytes[GM_TIER_NONE] : p->to_evict;
    int64_t floor = p->window / 2, needed = (int64_t)kept - (p->to_demote > 0 ? p->to_demote : 0);
    if (floor < p->reserve + (int64_t)GM_PLAN_GROUP)
        floor = p->reserve + (int64_t)GM_PLAN_GROUP;
    return needed > 0 ? floor + needed : floor;
}

/* Promote what comes later as early as there is room: worker threads need long for it. */
static bool promote_ahead(struct planning *p)
{
    while (p->promotions > 0) {
        struct gm_layout_walk walk = p->promote;
        uint32_t chunk = gm_layout_next(p->table, p->layout, &walk);
        int64_t bytes = chunk_bytes(p, chunk);
        if (p->ahead + (uint64_t)bytes > p->ahead_max ||
            p->free[GM_TIER_PINNED] - bytes < promote_floor(p))
            return true;
        p->promote = walk;
        if (!add_promote(p, chunk))
            return false;
    }
    return true;
}

/* Moves for one missing chunk. */

static bool evict(struct planning *p, uint32_t chunk)
{
    int64_t bytes = chunk_bytes(p, chunk);
    if (!make_pinned(p, bytes, p->reserve) ||
        !add_move(p, GM_MOVE_EVICT, chunk, p->table->chunks[chunk].frame))
        return false;
    p->free[GM_TIER_PINNED] -= bytes;
    p->to_evict -= (uint64_t)bytes;
    return true;
}

static bool fill(struct planning *p, uint32_t chunk, uint32_t frame, unsigned tier)
{
    int64_t bytes = chunk_bytes(p, chunk);
    bool is_promoted = p->has_tiers && tier > GM_TIER_PINNED;
    if (is_promoted && p->ahead == 0) {
        uint32_t next = gm_layout_next(p->table, p->layout, &p->promote);
        assert(next == chunk);
        if (!make_pinned(p, bytes, 0) || !add_promote(p, next))
            return false;
    }
    if (!add_move(p, GM_MOVE_FILL, chunk, frame))
        return false;
    p->need[p->table->chunks[chunk].class]--;
    p->bytes[tier] -= (uint64_t)bytes;
    if (tier != GM_TIER_NONE)
        p->free[GM_TIER_PINNED] += bytes;
    if (is_promoted)
        p->ahead -= (uint64_t)bytes;
    return true;
}

/* Chunks of the targets that are to be mapped on the host leave the GPU, first of all. Those for
 * which there is no room yet stay: what comes meanwhile may give pinned pages back. */
static void evict_leaving(struct planning *p)
{
    for (uint32_t i = 0; i < p->layout->n_targets; i++) {
        const struct gm_table_app *app = target_of(p, i);
        for (unsigned c = 0; c < GM_CHUNK_CLASSES && app->leaving > 0; c++)
            for (uint32_t at = app->by_class[c].head; at != GM_NONE; at = p->table->chunks[at].next)
                if (p->table->chunks[at].is_leaving && !evict(p, at))
                    p->plan->is_complete = false;
    }
    p->n_leaving = p->plan->n;
}

/* The frame of a chunk that leaves the GPU for good in this plan, of the current pool and of
 * `class` (GM_CHUNK_CLASSES: of any); GM_NONE: none is left. */
static uint32_t take_left_frame(struct planning *p, unsigned class)
{
    for (uint32_t i = 0; i < p->n_leaving; i++) {
        struct gm_move *move = &p->plan->moves[i];
        if (move->kind != GM_MOVE_EVICT || move->is_passed_on)
            continue;
        const struct gm_frame *frame = &p->table->frames[move->frame];
        if (class != GM_CHUNK_CLASSES && (frame->class != class || frame->pool != p->pool))
            continue;
        move->is_passed_on = true;
        return move->frame;
    }
    return GM_NONE;
}

/* Find a place for one missing chunk and add the moves. False: there is none, or the plan is full.
 */
static bool place_chunk(struct planning *p, uint32_t index, unsigned tier)
{
    const struct gm_table *table = p->table;
    unsigned class = table->chunks[index].class;
    uint64_t bytes = gm_class_bytes(class);

    uint32_t frame = take_frame(p, class);
    if (frame == GM_NONE)
        frame = take_left_frame(p, class);
    if (frame != GM_NONE)
        return fill(p, index, frame, tier);
    while (p->room < bytes) {
        frame = next_surplus(p);
        if (frame == GM_NONE)
            frame = take_left_frame(p, GM_CHUNK_CLASSES);
        if (frame == GM_NONE)
            break;
        if (!add_move(p, GM_MOVE_DESTROY, GM_NONE, frame))
            return false;
        p->room += gm_class_bytes(table->frames[frame].class);
    }
    while (p->room < bytes) {
        if (p->victim >= p->layout->n_victims)
            return false;
        if (victim_of(p, p->victim)->pool == p->pool) {
            uint32_t chunk = take_victim(p, class);
            if (chunk != GM_NONE) {
                frame = table->chunks[chunk].frame;
                return evict(p, chunk) && fill(p, index, frame, tier);
            }
        }
        uint32_t chunk = take_any_victim(p, class);
        if (chunk == GM_NONE) {
            open_victim(p, p->victim + 1);
            continue;
        }
        if (!evict(p, chunk) || !add_move(p, GM_MOVE_DESTROY, GM_NONE, table->chunks[chunk].frame))
            return false;
        p->room += gm_class_bytes(table->chunks[chunk].class);
    }
    if (!fill(p, index, GM_NONE, tier))
        return false;
    p->room -= bytes;
    return true;
}

/* Sums. */

/* Nothing can be demoted, and nothing need be kept for that: what is in pinned memory and on the
 * GPU changes places through all that is free. */
static bool is_disk_alone_closed(const struct gm_layout *layout)
{
    return layout->tiers[GM_TIER_DISK].is_closed && layout->tiers[GM_TIER_PAGED].cap == 0;
}

uint64_t gm_plan_reserve(const struct gm_layout *layout)
{
    if (layout->tiers[GM_TIER_PINNED].cap == 0 ||
        layout->tiers[GM_TIER_PAGED].cap + layout->tiers[GM_TIER_DISK].cap == 0 ||
        layout->window <= GM_PLAN_GROUP || is_disk_alone_closed(layout))
        return 0;
    const uint64_t bytes = layout->window - GM_PLAN_GROUP;
    return bytes < GM_PLAN_RESERVE ? bytes : GM_PLAN_RESERVE;
}

static void begin(struct planning *p, const struct gm_table *table, const struct gm_layout *layout,
                  struct gm_plan *plan)
{
    *p = (struct planning){.table = table,
                           .layout = layout,
                           .plan = plan,
                           .pool = GM_NONE,
                           .room = table->budget - table->allocated + table->ending,
                           .promotions = layout->promotions,
                           .to_evict = layout->leaves,
                           .has_tiers = layout->tiers[GM_TIER_PINNED].cap > 0,
                           .window = (int64_t)layout->window,
                           .reserve = (int64_t)gm_plan_reserve(layout),
                           .to_demote = layout->goes_down,
                           .to_disk = layout->goes_disk};
    plan->n = 0;
    plan->is_complete = layout->is_whole;
    plan->lacks_room = false;
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++)
        p->vain_promote[c] = INT64_MAX;
    for (unsigned t = 0; t < GM_TIERS; t++) {
        p->bytes[t] = layout->comes[t];
        p->to_promote[t] = t > GM_TIER_PINNED ? layout->comes[t] : 0;
        p->free[t] = gm_layout_free_in(layout, (enum gm_tier)t);
    }
    open_pinned_victim(p, 0);
    if (!p->has_tiers)
        return;
    const int64_t ahead = p->free[GM_TIER_PINNED] - promote_floor(p);
    p->ahead_max = (uint64_t)(ahead > p->window / 2 ? ahead : p->window / 2);
    gm_layout_open_walk(table, layout, GM_STAGE_PROMOTE_FIRST, GM_STAGE_PROMOTE_LAST, &p->promote);
}

/* Ahead of a target's turn. */

/* Demote the farthest victim's next pinned chunk. False: there is none, or no place for it. */
static bool demote_pinned(struct planning *p)
{
    uint32_t victim = peek_pinned(p);
    if (victim == GM_NONE)
        return false;
    enum gm_tier to = choose_tier(p, chunk_bytes(p, victim), true);
    if (to == GM_TIER_NONE)
        return false;
    p->pinned_at = follow_back(p, victim);
    return add_demote(p, victim, to);
}

/* Promote `chunk` and demote a victim's chunk to its pages. */
static bool exchange(struct planning *p, uint32_t chunk, int64_t left)
{
    const int64_t bytes = chunk_bytes(p, chunk), room = p->free[GM_TIER_PINNED] - bytes;
    const unsigned tier = p->table->chunks[chunk].listed_tier;
    uint32_t victim = peek_pinned(p);
    if (victim == GM_NONE || room < p->window / 2 || room + chunk_bytes(p, victim) < left ||
        p->free[tier] + bytes < chunk_bytes(p, victim) || p->plan->n + 2 > p->plan->capacity)
        return false;
    p->pinned_at = follow_back(p, victim);
    return add_promote(p, chunk) && add_demote(p, victim, (enum gm_tier)tier);
}

/* What demoting changes. It is undone if it was in vain; otherwise the next plan, for another app,
 * would promote the same again, and so on for ever. */
struct demoting {
    uint32_t n, pinned_victim, pinned_at;
    int64_t free[GM_TIERS], to_demote, to_disk;
};

static struct demoting begin_demoting(const struct planning *p)
{
    struct demoting before = {.n = p->plan->n,
                              .pinned_victim = p->pinned_victim,
                              .pinned_at = p->pinned_at,
                              .to_demote = p->to_demote,
                              .to_disk = p->to_disk};
    memcpy(before.free, p->free, sizeof before.free);
    return before;
}

static void take_back(struct planning *p, const struct demoting *before)
{
    p->plan->n = before->n;
    p->pinned_victim = before->pinned_victim;
    p->pinned_at = before->pinned_at;
    p->to_demote = before->to_demote;
    p->to_disk = before->to_disk;
    memcpy(p->free, before->free, sizeof before->free);
}

/*
 * Promote `chunk` and leave `left` bytes of pinned memory free. Victims' data is demoted for it:
 * where there is room, else in exchange, to its pages. False: nothing moves.
 */
static bool promote_or_exchange(struct planning *p, uint32_t chunk, int64_t left)
{
    const unsigned class = p->table->chunks[chunk].class;
    const int64_t wanted = left + chunk_bytes(p, chunk);
    if (p->free[GM_TIER_PINNED] >= wanted)
        return add_promote(p, chunk);
    if (left >= p->vain_promote[class])
        return false;
    const struct demoting before = begin_demoting(p);
    while (p->free[GM_TIER_PINNED] < wanted) {
        if (demote_pinned(p))
            continue;
        if (exchange(p, chunk, left))
            return true;
        take_back(p, &before);
        p->vain_promote[class] = left;
        return false;
    }
    return add_promote(p, chunk);
}

/* What the target has in `tier`, from `chunk` on, comes to pinned memory, as far as that leaves the
 * window free. */
static void promote_from(struct planning *p, uint32_t chunk)
{
    for (; chunk != GM_NONE; chunk = follow(p, chunk))
        if (!promote_or_exchange(p, chunk, p->window))
            p->plan->is_complete = false;
}

/* What of the target has no place on the GPU comes nearer. First from the disk: its turn would wait
 * longest for that. */
static void promote_rest(struct planning *p)
{
    const struct gm_table_app *app = target_of(p, 0);
    const bool is_disk = p->promote.stage == GM_STAGE_PROMOTE_LAST;
    promote_from(p, is_disk ? p->promote.chunk : app->away[GM_TIER_DISK].head);
    promote_from(p, is_disk ? GM_NONE : p->promote.chunk);
}

/* Whether anything of the targets comes nearer by it. */
static bool brings_any(const struct gm_plan *plan)
{
    return gm_plan_count(plan, GM_MOVE_FILL) > 0 || gm_plan_count(plan, GM_MOVE_PROMOTE) > 0;
}

/* Plans. */

/* `chunk` of the current pool comes into a free frame of its size; `is_below`: it is promoted
 * before. */
static void fill_free_frame(struct planning *p, uint32_t chunk, bool is_below)
{
    const unsigned class = p->table->chunks[chunk].class;
    const uint32_t frame = p->free_at[class];
    if (frame == GM_NONE || (is_below && !promote_or_exchange(p, chunk, 0)) ||
        !add_move(p, GM_MOVE_FILL, chunk, frame))
        return;
    p->free_at[class] = p->table->frames[frame].next;
    p->free[GM_TIER_PINNED] += chunk_bytes(p, chunk);
}

/*
 * Nothing can be evicted for the first chunk, as all tiers below the GPU are full. Plans that were
 * dropped halfway can leave it so. Fill the free frames, which gives pages back; the next plan goes
 * on from there.
 */
static void fill_free_frames(struct planning *p)
{
    struct gm_layout_walk walk;
    uint32_t chunk;
    p->pool = GM_NONE;
    gm_layout_open_walk(p->table, p->layout, 0, GM_STAGE_PROMOTE_LAST, &walk);
    while ((chunk = gm_layout_next(p->table, p->layout, &walk)) != GM_NONE) {
        const uint32_t pool = target_of(p, walk.target)->pool;
        if (pool != p->pool)
            open_pool(p, pool);
        fill_free_frame(p, chunk, walk.stage > 0);
    }
}

/*
 * Nothing can be evicted, as pinned memory is full of the targets' own chunks. Plans that were
 * dropped halfway can leave it so. Demote those that would be filled last; the next plan promotes
 * them again.
 */
static void demote_targets(struct planning *p)
{
    int64_t enough = p->reserve + (int64_t)GM_PLAN_GROUP;
    for (uint32_t i = p->layout->n_targets; i-- > 0;) {
        uint32_t chunk = target_of(p, i)->away[GM_TIER_PINNED].tail;
        for (; chunk != GM_NONE; chunk = p->table->chunks[chunk].prev) {
            enum gm_tier tier = choose_tier(p, chunk_bytes(p, chunk), true);
            if (p->free[GM_TIER_PINNED] >= enough)
                return;
            if (tier != GM_TIER_NONE && !add_demote(p, chunk, tier))
                return;
        }
    }
}

/* The victims lose what they are to lose, though no target needs it. */
static bool evict_all(struct planning *p)
{
    open_victim(p, 0);
    while (p->victim < p->layout->n_victims) {
        const uint32_t chunk = take_any_victim(p, GM_CHUNK_CLASSES - 1);
        if (chunk == GM_NONE)
            open_victim(p, p->victim + 1);
        else if (!evict(p, chunk))
            return false;
    }
    return true;
}

/* Whether `left` bytes of pinned memory are free after the moves so far, or after demotions. */
static bool leaves_pinned(struct planning *p, int64_t left)
{
    while (p->free[GM_TIER_PINNED] < left)
        if (!demote_one(p, true))
            return false;
    return true;
}

/* Every chunk that comes finds its place. False: one does not; ahead of a turn also if
 * it would cost the window, for which nobody waits. */
static bool place_chunks(struct planning *p)
{
    const bool is_careful = p->layout->is_ahead && p->has_tiers;
    const int64_t left = p->free[GM_TIER_PINNED] < p->window ? p->free[GM_TIER_PINNED] : p->window;
    struct gm_layout_walk walk;
    uint32_t chunk;
    gm_layout_open_walk(p->table, p->layout, 0, GM_STAGE_LAST, &walk);
    while ((chunk = gm_layout_next(p->table, p->layout, &walk)) != GM_NONE) {
        const uint32_t pool = target_of(p, walk.target)->pool;
        const bool is_first = p->pool == GM_NONE;
        if (pool != p->pool)
            open_pool(p, pool);
        if (is_first)
            open_victim(p, 0);
        const struct demoting before = begin_demoting(p);
        if ((p->has_tiers && !promote_ahead(p)) ||
            !place_chunk(p, chunk, gm_layout_order[walk.stage]) ||
            (is_careful && !leaves_pinned(p, left))) {
            if (is_careful)
                take_back(p, &before);
            return false;
        }
    }
    return true;
}

/* False: not all of the layout comes about by it. */
static bool make_moves(struct planning *p)
{
    const struct gm_layout *layout = p->layout;
    evict_leaving(p);
    if (!(layout->n_targets > 0 ? place_chunks(p) : evict_all(p))) {
        if (p->plan->n == 0 && p->has_tiers && !layout->is_ahead)
            fill_free_frames(p);
        if (p->plan->n == 0 && p->has_tiers && !layout->is_ahead)
            demote_targets(p);
        return false;
    }
    while (p->has_tiers && p->to_demote > 0 && demote_one(p, true))
        ;
    return true;
}

void gm_plan_make(const struct gm_table *table, const struct gm_layout *layout,
                  struct gm_plan *plan)
{
    struct planning p;
    begin(&p, table, layout, plan);
    plan->is_complete = make_moves(&p) && plan->is_complete;
    if (plan->n > 0 && p.has_tiers && is_disk_alone_closed(layout) &&
        p.free[GM_TIER_PINNED] < (int64_t)GM_CHUNK_MAX) { /* nobody could change places any more */
        plan->lacks_room = true;
        plan->is_complete = false;
    }
    if (layout->is_ahead && layout->n_targets > 0 && p.has_tiers)
        promote_rest(&p);
    if (layout->is_ahead && layout->n_targets > 0 && !brings_any(plan))
        plan->n = 0;
}

uint32_t gm_plan_count(const struct gm_plan *plan, enum gm_move_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n; i++)
        n += plan->moves[i].kind == kind;
    return n;
}

/* Switches. */

static bool has_closed_tier(const struct gm_layout *layout)
{
    return layout->tiers[GM_TIER_PAGED].is_closed || layout->tiers[GM_TIER_DISK].is_closed;
}

uint32_t gm_plan_switch(const struct gm_table *table, struct gm_layout *layout,
                        struct gm_plan *plan)
{
    gm_plan_make(table, layout, plan);
    if (!has_closed_tier(layout))
        return layout->n_targets;
    while (plan->lacks_room && layout->n_targets > 1) {
        layout->n_targets--;
        gm_layout_share(table, layout);
        gm_plan_make(table, layout, plan);
    }
    if (!plan->lacks_room)
        return layout->n_targets;
    if (!layout->is_growing && gm_plan_count(plan, GM_MOVE_EVICT) > 0)
        plan->n = 0;
    return 0;
}
