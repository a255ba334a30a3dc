#include "daemon/core/planning.h"

#include <assert.h>
#include <string.h>

/*
 * How a plan is made, without memory of its own and in one pass over what is missing.
 *
 * First the sums: which of the missing chunks find a place at all (bytes are enough for that, since
 * a frame that does not fit is destroyed and becomes room), hence how many bytes are to be evicted,
 * how many the targets give back in each tier, and how many must be lowered so that the window is
 * free at the end. Then the victims: how many chunks of each size everyone loses (plan_frames.c).
 *
 * Then the moves, chunk by chunk in the order of filling; beside them, as far ahead as room allows,
 * the raises, and the lowers that make room. `free` is what each tier has free once the moves so
 * far have ended.
 */

static int64_t chunk_bytes(const struct gm_planning *p, uint32_t chunk)
{
    return (int64_t)gm_class_bytes(p->table->chunks[chunk].class);
}

static bool add_move(struct gm_planning *p, enum gm_move_kind kind, uint32_t chunk, uint32_t frame)
{
    if (p->plan->n == p->plan->capacity)
        return false;
    p->plan->moves[p->plan->n++] =
        (struct gm_move){.kind = (uint8_t)kind, .chunk = chunk, .frame = frame};
    return true;
}

/* Tiers below the GPU. */

static void open_pinned_victim(struct gm_planning *p, uint32_t victim)
{
    p->pinned_victim = victim;
    p->pinned_at = GM_NONE;
    if (victim < p->input->n_victims)
        p->pinned_at = gm_plan_victim(p, victim)->away[GM_TIER_PINNED].head;
}

/* The farthest victim's next chunk that was pinned before; GM_NONE: none. */
static uint32_t peek_pinned(struct gm_planning *p)
{
    while (p->pinned_at == GM_NONE && p->pinned_victim < p->input->n_victims)
        open_pinned_victim(p, p->pinned_victim + 1);
    return p->pinned_at;
}

/* The next chunk that this plan evicted and did not lower; GM_NONE: none yet. Victims are evicted
 * from in their order. */
static uint32_t peek_evicted(struct gm_planning *p)
{
    const struct gm_move *moves = p->plan->moves;
    while (p->evicted_at < p->plan->n && moves[p->evicted_at].kind != GM_MOVE_EVICT)
        p->evicted_at++;
    if (p->evicted_at == p->plan->n)
        return GM_NONE;
    uint32_t chunk = moves[p->evicted_at].chunk;
    while (p->input->victims[p->evicted_victim] != p->table->chunks[chunk].app)
        p->evicted_victim++;
    return chunk;
}

/* Where `bytes` go from pinned memory: GM_TIER_NONE if nowhere now. Without need, not where they
 * would take a better place than the plan has for them at its end. */
static enum gm_tier choose_tier(const struct gm_planning *p, int64_t bytes, bool is_needed)
{
    enum gm_tier first = p->to_disk > 0 ? GM_TIER_DISK : GM_TIER_PAGED;
    enum gm_tier other = p->to_disk > 0 ? GM_TIER_PAGED : GM_TIER_DISK;
    if (p->free[first] >= bytes)
        return first;
    if (!is_needed && p->to_raise[first] > 0)
        return GM_TIER_NONE; /* there will be */
    return p->free[other] >= bytes ? other : GM_TIER_NONE;
}

static bool add_lower(struct gm_planning *p, uint32_t chunk, enum gm_tier tier)
{
    int64_t bytes = chunk_bytes(p, chunk);
    if (!add_move(p, GM_MOVE_LOWER, chunk, GM_NONE))
        return false;
    p->plan->moves[p->plan->n - 1].to_tier = (uint8_t)tier;
    p->free[GM_TIER_PINNED] += bytes;
    p->free[tier] -= bytes;
    p->to_lower -= bytes;
    if (tier == GM_TIER_DISK)
        p->to_disk -= bytes;
    return true;
}

/*
 * Lower one chunk, the one whose next use is farthest. Without need, wait for a chunk of a farther
 * app that will be evicted, and for the room that will be. False: there is none that can be.
 */
static bool lower_one(struct gm_planning *p, bool is_needed)
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
            p->pinned_at = gm_plan_follow(p, chunk);
        else
            p->evicted_at++;
        return add_lower(p, chunk, tier);
    }
    return false;
}

/* Make `bytes` of pinned memory free that leave `left`; and lower a window ahead of what is
 * evicted, so that evictions seldom wait for it. False: it cannot be. */
static bool make_pinned(struct gm_planning *p, int64_t bytes, int64_t left)
{
    if (!p->has_tiers)
        return true;
    while (p->free[GM_TIER_PINNED] - bytes < p->window && p->to_lower > 0 && lower_one(p, false))
        ;
    while (p->free[GM_TIER_PINNED] - bytes < left)
        if (!lower_one(p, true)) {
            p->plan->lacks_room = true;
            return false;
        }
    return true;
}

static bool add_raise(struct gm_planning *p, uint32_t chunk)
{
    int64_t bytes = chunk_bytes(p, chunk);
    unsigned tier = p->table->chunks[chunk].listed_tier;
    if (!add_move(p, GM_MOVE_RAISE, chunk, GM_NONE))
        return false;
    p->free[GM_TIER_PINNED] -= bytes;
    p->free[tier] += bytes;
    p->to_raise[tier] -= (uint64_t)bytes;
    p->ahead += (uint64_t)bytes;
    p->raises--;
    return true;
}

/*
 * Bytes of pinned memory that raises ahead of their turn leave free. Half of the window, for
 * evictions; and what evictions for chunks that give nothing back, since they were never written,
 * will need beyond what is lowered.
 */
static int64_t raise_floor(const struct gm_planning *p)
{
    uint64_t kept = p->bytes[GM_TIER_NONE] < p->to_evict ? p->bytes[GM_TIER_NONE] : p->to_evict;
    int64_t floor = p->window / 2, needed = (int64_t)kept - (p->to_lower > 0 ? p->to_lower : 0);
    if (floor < p->reserve + (int64_t)GM_PLAN_GROUP)
        floor = p->reserve + (int64_t)GM_PLAN_GROUP;
    return needed > 0 ? floor + needed : floor;
}

/* Raise what comes later as early as there is room: it is slow, and worker threads do it meanwhile.
 */
static bool raise_ahead(struct gm_planning *p)
{
    while (p->raises > 0) {
        struct gm_plan_walk walk = p->raise;
        uint32_t chunk = gm_plan_next_chunk(p, &walk);
        int64_t bytes = chunk_bytes(p, chunk);
        if (p->ahead + (uint64_t)bytes > p->ahead_max ||
            p->free[GM_TIER_PINNED] - bytes < raise_floor(p))
            return true;
        p->raise = walk;
        if (!add_raise(p, chunk))
            return false;
    }
    return true;
}

/* Moves for one missing chunk. */

static bool evict(struct gm_planning *p, uint32_t chunk)
{
    int64_t bytes = chunk_bytes(p, chunk);
    if (!make_pinned(p, bytes, p->reserve) ||
        !add_move(p, GM_MOVE_EVICT, chunk, p->table->chunks[chunk].frame))
        return false;
    p->free[GM_TIER_PINNED] -= bytes;
    p->to_evict -= (uint64_t)bytes;
    return true;
}

static bool fill(struct gm_planning *p, uint32_t chunk, uint32_t frame, unsigned tier)
{
    int64_t bytes = chunk_bytes(p, chunk);
    bool is_raised = p->has_tiers && tier > GM_TIER_PINNED;
    if (is_raised && p->ahead == 0) {
        uint32_t next = gm_plan_next_chunk(p, &p->raise);
        assert(next == chunk);
        if (!make_pinned(p, bytes, 0) || !add_raise(p, next))
            return false;
    }
    if (!add_move(p, GM_MOVE_FILL, chunk, frame))
        return false;
    p->need[p->table->chunks[chunk].class]--;
    p->bytes[tier] -= (uint64_t)bytes;
    if (tier != GM_TIER_NONE)
        p->free[GM_TIER_PINNED] += bytes;
    if (is_raised)
        p->ahead -= (uint64_t)bytes;
    return true;
}

/* Find a place for one missing chunk and write down the moves. False: there is none, or no space.
 */
static bool place_chunk(struct gm_planning *p, uint32_t index, unsigned tier)
{
    const struct gm_table *table = p->table;
    unsigned class = table->chunks[index].class;
    uint64_t bytes = gm_class_bytes(class);

    uint32_t frame = gm_plan_take_frame(p, class);
    if (frame != GM_NONE)
        return fill(p, index, frame, tier);
    while (p->room < bytes) {
        frame = gm_plan_next_surplus(p);
        if (frame == GM_NONE)
            break;
        if (!add_move(p, GM_MOVE_DESTROY, GM_NONE, frame))
            return false;
        p->room += gm_class_bytes(table->frames[frame].class);
    }
    while (p->room < bytes) {
        if (p->victim >= p->input->n_victims)
            return false;
        if (gm_plan_victim(p, p->victim)->pool == p->pool) {
            uint32_t chunk = gm_plan_take_victim(p, class);
            if (chunk != GM_NONE) {
                frame = table->chunks[chunk].frame;
                return evict(p, chunk) && fill(p, index, frame, tier);
            }
        }
        uint32_t chunk = gm_plan_take_any_victim(p, class);
        if (chunk == GM_NONE) {
            gm_plan_open_victim(p, p->victim + 1);
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

uint64_t gm_plan_reserve(const struct gm_plan_input *input)
{
    if (input->tiers[GM_TIER_PINNED].cap == 0 ||
        input->tiers[GM_TIER_PAGED].cap + input->tiers[GM_TIER_DISK].cap == 0 ||
        input->window <= GM_PLAN_GROUP)
        return 0;
    uint64_t bytes = input->window - GM_PLAN_GROUP;
    return bytes < GM_PLAN_RESERVE ? bytes : GM_PLAN_RESERVE;
}

static void begin(struct gm_planning *p, const struct gm_table *table,
                  const struct gm_plan_input *input, struct gm_plan *plan)
{
    *p = (struct gm_planning){.table = table,
                              .input = input,
                              .plan = plan,
                              .cut = GM_NONE,
                              .pool = GM_NONE,
                              .room = table->budget - table->allocated + table->ending};
    plan->n = 0;
    plan->is_complete = true;
    plan->lacks_room = false;
    p->has_tiers = input->tiers[GM_TIER_PINNED].cap > 0;
    p->window = (int64_t)input->window;
    p->reserve = (int64_t)gm_plan_reserve(input);
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++) {
        p->given_at[c] = GM_NONE;
        p->vain_raise[c] = p->vain_given[c] = INT64_MAX;
    }
    for (unsigned t = GM_TIER_PINNED; t < GM_TIERS; t++)
        p->free[t] = input->tiers[t].is_closed
                         ? INT64_MIN / 2 /* whatever comes up from it */
                         : (int64_t)(input->tiers[t].cap + input->tiers[t].ending) -
                               (int64_t)input->tiers[t].used;
    open_pinned_victim(p, 0);
}

/* Sum what is missing: all of it, from the sums that the table keeps. */
static uint64_t sum_all(struct gm_planning *p)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->input->n_targets; i++) {
        const struct gm_table_app *app = gm_plan_target(p, i);
        for (unsigned stage = 0; stage <= GM_STAGE_LAST; stage++) {
            unsigned tier = gm_plan_order[stage];
            p->bytes[tier] += app->bytes[tier];
            sum += app->bytes[tier];
            if (tier > GM_TIER_PINNED)
                p->raises += app->away[tier].count;
        }
    }
    p->to_raise[GM_TIER_PAGED] = p->bytes[GM_TIER_PAGED];
    p->to_raise[GM_TIER_DISK] = p->bytes[GM_TIER_DISK];
    return sum;
}

/* Or, as not all fits, the first chunks in the order of filling, up to what `supply` bytes hold. */
static uint64_t sum_fitting(struct gm_planning *p, uint64_t supply)
{
    struct gm_plan_walk walk;
    uint64_t sum = 0;
    p->plan->is_complete = false;
    p->raises = 0;
    for (unsigned t = 0; t < GM_TIERS; t++)
        p->bytes[t] = p->to_raise[t] = 0;
    gm_plan_open_walk(p, &walk, 0, 0, GM_STAGE_LAST);
    for (;;) {
        uint32_t chunk = gm_plan_next_chunk(p, &walk);
        uint64_t bytes = gm_class_bytes(p->table->chunks[chunk].class);
        unsigned tier = gm_plan_order[walk.stage];
        if (sum + bytes > supply) {
            p->cut = chunk;
            p->cut_first = walk.first;
            return sum;
        }
        sum += bytes;
        p->bytes[tier] += bytes;
        if (tier > GM_TIER_PINNED) {
            p->to_raise[tier] += bytes;
            p->raises++;
        }
    }
}

/* How much is lowered, and how far ahead may be raised. */
static void sum_tiers(struct gm_planning *p)
{
    int64_t pinned = p->free[GM_TIER_PINNED];
    int64_t paged = p->free[GM_TIER_PAGED] + (int64_t)p->to_raise[GM_TIER_PAGED];
    p->to_lower = p->window - (pinned - (int64_t)p->to_evict + (int64_t)p->bytes[GM_TIER_PINNED]);
    if (!p->input->tiers[GM_TIER_DISK].is_closed)
        p->to_disk = p->to_lower - (paged > 0 ? paged : 0);
    int64_t ahead = pinned - raise_floor(p);
    p->ahead_max = (uint64_t)(ahead > p->window / 2 ? ahead : p->window / 2);
    gm_plan_open_walk(p, &p->raise, 0, GM_STAGE_RAISE_FIRST, GM_STAGE_RAISE_LAST);
}

/* Prefetching. */

/* Set the cursors to the free frames of `pool` that no move of this plan takes. */
static void resume_pool(struct gm_planning *p, uint32_t pool)
{
    p->pool = pool;
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++) {
        p->free_at[c] = p->table->pools[pool].head[c];
        p->leaving_at[c] = GM_NONE; /* somebody else waits for those */
    }
    for (uint32_t i = 0; i < p->plan->n; i++) {
        const struct gm_move *move = &p->plan->moves[i];
        if (move->kind != GM_MOVE_FILL || move->frame == GM_NONE)
            continue;
        const struct gm_frame *frame = &p->table->frames[move->frame];
        if (frame->pool == pool && frame->state == GM_FRAME_FREE)
            p->free_at[frame->class] = frame->next;
    }
}

/* Lower the farthest victim's next pinned chunk. False: there is none, or no place for it. */
static bool lower_pinned(struct gm_planning *p)
{
    uint32_t victim = peek_pinned(p);
    if (victim == GM_NONE)
        return false;
    enum gm_tier to = choose_tier(p, chunk_bytes(p, victim), true);
    if (to == GM_TIER_NONE)
        return false;
    p->pinned_at = gm_plan_follow(p, victim);
    return add_lower(p, victim, to);
}

/* Raise `chunk` and lower a victim's to the pages that it gives back. */
static bool exchange(struct gm_planning *p, uint32_t chunk, int64_t left)
{
    const int64_t bytes = chunk_bytes(p, chunk), room = p->free[GM_TIER_PINNED] - bytes;
    const unsigned tier = p->table->chunks[chunk].listed_tier;
    uint32_t victim = peek_pinned(p);
    if (victim == GM_NONE || room < p->window / 2 || room + chunk_bytes(p, victim) < left ||
        p->free[tier] + bytes < chunk_bytes(p, victim) || p->plan->n + 2 > p->plan->capacity)
        return false;
    p->pinned_at = gm_plan_follow(p, victim);
    return add_raise(p, chunk) && add_lower(p, victim, (enum gm_tier)tier);
}

/* What lowering changes: taken back if it was in vain. Else the next plan, for another app, would
 * bring it up again, and so on for ever. */
struct lowering {
    uint32_t n, pinned_victim, pinned_at;
    int64_t free[GM_TIERS], to_lower, to_disk;
};

static struct lowering begin_lowering(const struct gm_planning *p)
{
    struct lowering before = {.n = p->plan->n,
                              .pinned_victim = p->pinned_victim,
                              .pinned_at = p->pinned_at,
                              .to_lower = p->to_lower,
                              .to_disk = p->to_disk};
    memcpy(before.free, p->free, sizeof before.free);
    return before;
}

static void take_back(struct gm_planning *p, const struct lowering *before)
{
    p->plan->n = before->n;
    p->pinned_victim = before->pinned_victim;
    p->pinned_at = before->pinned_at;
    p->to_lower = before->to_lower;
    p->to_disk = before->to_disk;
    memcpy(p->free, before->free, sizeof before->free);
}

/*
 * Bring `chunk` up to pinned memory, with `left` bytes free there afterwards. Data of victims goes
 * down for it: before it where there is room, else, as an exchange, to the pages that it gives
 * back. False: it stays where it is, and so does everything else.
 */
static bool raise_or_exchange(struct gm_planning *p, uint32_t chunk, int64_t left)
{
    const unsigned class = p->table->chunks[chunk].class;
    const int64_t wanted = left + chunk_bytes(p, chunk);
    if (p->free[GM_TIER_PINNED] >= wanted)
        return add_raise(p, chunk);
    if (left >= p->vain_raise[class])
        return false;
    const struct lowering before = begin_lowering(p);
    while (p->free[GM_TIER_PINNED] < wanted) {
        if (lower_pinned(p))
            continue;
        if (exchange(p, chunk, left))
            return true;
        take_back(p, &before);
        p->vain_raise[class] = left;
        return false;
    }
    return add_raise(p, chunk);
}

/* The next chunk of a giver with a frame of this size, of the pool at hand; GM_NONE: none. */
static uint32_t peek_given(struct gm_planning *p, unsigned class)
{
    while (p->given_at[class] == GM_NONE && p->giver[class] < p->input->n_givers) {
        const struct gm_table_app *giver = &p->table->apps[p->input->givers[p->giver[class]++]];
        if (giver->pool == p->pool && !giver->is_silent)
            p->given_at[class] = giver->by_class[class].head;
    }
    return p->given_at[class];
}

/* Put `chunk`, in pinned memory, in the place of a giver's, which leaves `left` there on the way.
 * False: there is none, or no room for it. */
static bool take_given(struct gm_planning *p, uint32_t chunk, int64_t left)
{
    unsigned class = p->table->chunks[chunk].class;
    int64_t bytes = chunk_bytes(p, chunk);
    uint32_t given = peek_given(p, class);

    if (given == GM_NONE)
        return false;
    if (p->has_tiers && p->free[GM_TIER_PINNED] - bytes < left) {
        const struct lowering before = begin_lowering(p);
        while (p->free[GM_TIER_PINNED] - bytes < left && left < p->vain_given[class])
            if (!lower_pinned(p))
                p->vain_given[class] = left;
        if (p->free[GM_TIER_PINNED] - bytes < left) {
            take_back(p, &before);
            return false;
        }
    }
    if (p->plan->n + 2 > p->plan->capacity)
        return false;
    p->given_at[class] = gm_plan_follow(p, given);
    return add_move(p, GM_MOVE_EVICT, given, p->table->chunks[given].frame) &&
           add_move(p, GM_MOVE_FILL, chunk, p->table->chunks[given].frame);
}

/* What can be done for one missing chunk, leaving `left` in pinned memory on the way if it comes to
 * the GPU. False: it does not. */
static bool fetch_chunk(struct gm_planning *p, uint32_t chunk, unsigned tier, int64_t left)
{
    unsigned class = p->table->chunks[chunk].class;
    uint32_t frame = p->free_at[class];
    bool has_place = frame != GM_NONE || p->room >= gm_class_bytes(class);

    if (!has_place && tier == GM_TIER_PINNED)
        return take_given(p, chunk, left);
    if (p->has_tiers && tier > GM_TIER_PINNED &&
        !raise_or_exchange(p, chunk, has_place ? left : p->window))
        return false;
    if (!has_place || !add_move(p, GM_MOVE_FILL, chunk, frame))
        return false;
    if (frame == GM_NONE)
        p->room -= gm_class_bytes(class);
    else
        p->free_at[class] = p->table->frames[frame].next;
    if (tier != GM_TIER_NONE)
        p->free[GM_TIER_PINNED] += chunk_bytes(p, chunk);
    return true;
}

void gm_plan_prefetch(const struct gm_table *table, const struct gm_plan_input *input,
                      struct gm_plan *plan)
{
    /* from the disk first: that is what would make the app wait longest */
    static const uint8_t order[] = {GM_TIER_PINNED, GM_TIER_DISK, GM_TIER_PAGED, GM_TIER_NONE};
    struct gm_planning p;
    begin(&p, table, input, plan);
    for (uint32_t i = 0; i < input->n_targets; i++) {
        const struct gm_table_app *app = gm_plan_target(&p, i);
        if (app->pool != p.pool)
            resume_pool(&p, app->pool);
        for (unsigned stage = 0; stage < sizeof order; stage++) {
            uint32_t chunk = app->away[order[stage]].head;
            for (; chunk != GM_NONE; chunk = gm_plan_follow(&p, chunk))
                if (!fetch_chunk(&p, chunk, order[stage], p.window / 2))
                    plan->is_complete = false;
        }
        for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++) { /* what they give is the first one's */
            p.giver[c] = input->n_givers;
            p.given_at[c] = GM_NONE;
        }
    }
}

/* Plans. */

/*
 * Nothing can be evicted for the first chunk, as plans that were dropped halfway can leave it:
 * pinned memory and the tiers below it are full. Fill what has a frame waiting, which gives pages
 * back; the next plan goes on from there.
 */
static void fill_free_frames(struct gm_planning *p)
{
    for (uint32_t i = 0; i < p->input->n_targets; i++) {
        if (gm_plan_target(p, i)->pool != p->pool || i == 0)
            resume_pool(p, gm_plan_target(p, i)->pool);
        for (unsigned stage = 0; stage <= GM_STAGE_RAISE_LAST; stage++) {
            uint32_t chunk = gm_plan_target(p, i)->away[gm_plan_order[stage]].head;
            for (; chunk != GM_NONE; chunk = p->table->chunks[chunk].next)
                if (p->free_at[p->table->chunks[chunk].class] != GM_NONE)
                    fetch_chunk(p, chunk, gm_plan_order[stage], 0);
        }
    }
}

/*
 * Pinned memory is full of the targets' own chunks, as plans that were dropped halfway can leave
 * it: nothing can be evicted. Lower those that would be filled last; the next plan raises them
 * again.
 */
static void lower_targets(struct gm_planning *p)
{
    int64_t enough = p->reserve + (int64_t)GM_PLAN_GROUP;
    for (uint32_t i = p->input->n_targets; i-- > 0;) {
        uint32_t chunk = gm_plan_target(p, i)->away[GM_TIER_PINNED].tail;
        for (; chunk != GM_NONE; chunk = p->table->chunks[chunk].prev) {
            enum gm_tier tier = choose_tier(p, chunk_bytes(p, chunk), true);
            if (p->free[GM_TIER_PINNED] >= enough)
                return;
            if (tier != GM_TIER_NONE && !add_lower(p, chunk, tier))
                return;
        }
    }
}

void gm_plan_make(const struct gm_table *table, const struct gm_plan_input *input,
                  struct gm_plan *plan)
{
    struct gm_planning p;
    struct gm_plan_walk walk;
    uint32_t chunk;
    uint64_t supply, missing, victims = 0;

    begin(&p, table, input, plan);
    supply = gm_plan_free_bytes(&p);
    for (uint32_t i = 0; i < input->n_victims; i++)
        victims += gm_plan_victim(&p, i)->resident;
    missing = sum_all(&p);
    if (missing > supply + victims)
        missing = sum_fitting(&p, supply + victims);
    gm_plan_choose_victims(&p, missing > supply ? missing - supply : 0);
    if (p.has_tiers)
        sum_tiers(&p);

    gm_plan_open_walk(&p, &walk, 0, 0, GM_STAGE_LAST);
    while ((chunk = gm_plan_next_chunk(&p, &walk)) != GM_NONE && chunk != p.cut) {
        uint32_t pool = gm_plan_target(&p, walk.target)->pool;
        if (p.pool == GM_NONE) {
            gm_plan_open_pool(&p, pool);
            gm_plan_open_victim(&p, 0);
        } else if (pool != p.pool) {
            gm_plan_open_pool(&p, pool);
        }
        if ((p.has_tiers && !raise_ahead(&p)) ||
            !place_chunk(&p, chunk, gm_plan_order[walk.stage])) {
            plan->is_complete = false;
            if (plan->n == 0 && p.has_tiers)
                fill_free_frames(&p);
            if (plan->n == 0 && p.has_tiers)
                lower_targets(&p);
            return;
        }
    }
    while (p.has_tiers && p.to_lower > 0 && lower_one(&p, true))
        ;
}

uint32_t gm_plan_count(const struct gm_plan *plan, enum gm_move_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n; i++)
        n += plan->moves[i].kind == kind;
    return n;
}

/* Switches. */

static bool has_closed_tier(const struct gm_plan_input *input)
{
    return input->tiers[GM_TIER_PAGED].is_closed || input->tiers[GM_TIER_DISK].is_closed;
}

uint32_t gm_plan_switch(const struct gm_table *table, const struct gm_plan_input *input,
                        struct gm_plan *plan)
{
    struct gm_plan_input fewer = *input;
    gm_plan_make(table, input, plan);
    if (!has_closed_tier(input))
        return input->n_targets;
    while (plan->lacks_room && fewer.n_targets > 1) {
        fewer.n_targets--;
        gm_plan_make(table, &fewer, plan);
    }
    if (!plan->lacks_room)
        return fewer.n_targets;
    if (!input->is_growing && gm_plan_count(plan, GM_MOVE_EVICT) > 0)
        plan->n = 0;
    return 0;
}
