#include "daemon/core/layout.h"

#include <assert.h>

#include "common/sums.h"

/* ---- how much ---- */

static uint64_t leaving_bytes(const struct gm_table *table, const struct gm_pool *pool,
                              unsigned class)
{
    uint64_t bytes = 0;
    uint32_t frame = gm_layout_leaving_frame(table, pool->leaving[class]);
    for (; frame != GM_NONE; frame = gm_layout_leaving_frame(table, table->frames[frame].next))
        bytes += gm_class_bytes(class);
    return bytes;
}

/* Bytes that targets can have without a victim. */
static uint64_t free_bytes(const struct gm_table *table)
{
    uint64_t bytes = table->budget - table->allocated + table->ending;
    for (uint32_t i = 0; i < table->max_apps; i++) {
        const struct gm_pool *pool = &table->pools[i];
        for (unsigned c = 0; pool->frames > 0 && c < GM_CHUNK_CLASSES; c++)
            bytes += pool->count[c] * gm_class_bytes(c) + leaving_bytes(table, pool, c);
    }
    return bytes;
}

/* The least sum of an app's chunks that is not below `need`, which is not above the sum of all.
 * Sizes are powers of two, so taking the largest first finds it. */
static uint64_t least_sum(const struct gm_table_app *app, uint64_t need)
{
    uint64_t taken = 0, least = 0;
    for (unsigned c = GM_CHUNK_CLASSES; c-- > 0;) {
        uint64_t size = gm_class_bytes(c), n = (need - taken) / size;
        n = gm_least(n, app->by_class[c].count);
        taken += n * size;
        if (taken == need)
            return need;
        if (n < app->by_class[c].count)
            least = taken + size; /* one more is enough, with less left over than a larger one */
    }
    return least;
}

/* The victims lose `lack` bytes, those before the last all that they may. If the chunks of the last
 * are large and it loses more than needed, farther ones keep as much, the nearest of them first. */
static void take(const struct gm_table *table, struct gm_layout *layout, uint64_t lack)
{
    uint64_t slack = 0;
    for (uint32_t i = 0; i < layout->n_victims; i++) {
        struct gm_layout_victim *victim = &layout->victims[i];
        victim->loses = gm_least(victim->may_lose, lack);
        lack -= victim->loses;
    }
    for (uint32_t i = layout->n_victims; i-- > 0;) {
        struct gm_layout_victim *victim = &layout->victims[i];
        const uint64_t need = gm_less(victim->loses, slack);
        slack = gm_less(slack, victim->loses);
        victim->loses = need > 0 ? least_sum(&table->apps[victim->app], need) : 0;
        slack += victim->loses - need;
    }
}

/* Each loses at least what it may: that is above its room. */
static void take_all(const struct gm_table *table, struct gm_layout *layout)
{
    for (uint32_t i = 0; i < layout->n_victims; i++)
        layout->victims[i].loses =
            least_sum(&table->apps[layout->victims[i].app], layout->victims[i].may_lose);
}

/* ---- which chunks come ---- */

static const struct gm_table_app *target_of(const struct gm_table *table,
                                            const struct gm_layout *layout, uint32_t target)
{
    return &table->apps[layout->targets[target].app];
}

static uint64_t missing_of(const struct gm_table_app *app)
{
    uint64_t bytes = 0;
    for (unsigned tier = 0; tier < GM_TIERS; tier++)
        bytes += app->bytes[tier];
    return bytes;
}

/* The first target of `pool` from number `from` on, or GM_NONE. */
static uint32_t find_target(const struct gm_table *table, const struct gm_layout *layout,
                            uint32_t pool, uint32_t from)
{
    for (uint32_t i = from; i < layout->n_targets; i++)
        if (target_of(table, layout, i)->pool == pool)
            return i;
    return GM_NONE;
}

/* Go to the target's first stage of the walk. What does not fit is the first that does not: behind
 * it nothing comes. */
static void open_target(const struct gm_table *table, const struct gm_layout *layout,
                        struct gm_layout_walk *walk, uint32_t target)
{
    walk->target = target;
    walk->stage = walk->from;
    walk->chunk = GM_NONE;
    if (target == layout->n_targets)
        return;
    const struct gm_table_app *app = target_of(table, layout, target);
    walk->left = layout->targets[target].comes;
    for (unsigned stage = 0; stage < walk->from; stage++) {
        const uint64_t bytes = app->bytes[gm_layout_order[stage]];
        walk->left = bytes > walk->left ? 0 : walk->left - bytes;
    }
    walk->chunk = app->away[gm_layout_order[walk->stage]].head;
}

static void next_target(const struct gm_table *table, const struct gm_layout *layout,
                        struct gm_layout_walk *walk)
{
    const uint32_t pool = target_of(table, layout, walk->target)->pool;
    uint32_t next = find_target(table, layout, pool, walk->target + 1);
    while (next == GM_NONE && ++walk->first < layout->n_targets)
        if (find_target(table, layout, target_of(table, layout, walk->first)->pool, 0) ==
            walk->first)
            next = walk->first;
    open_target(table, layout, walk, next == GM_NONE ? layout->n_targets : next);
}

void gm_layout_open_walk(const struct gm_table *table, const struct gm_layout *layout,
                         unsigned from, unsigned to, struct gm_layout_walk *walk)
{
    *walk = (struct gm_layout_walk){.from = from, .to = to};
    open_target(table, layout, walk, 0);
}

uint32_t gm_layout_next(const struct gm_table *table, const struct gm_layout *layout,
                        struct gm_layout_walk *walk)
{
    while (walk->target < layout->n_targets) {
        const uint32_t index = walk->chunk;
        if (index != GM_NONE && gm_class_bytes(table->chunks[index].class) <= walk->left) {
            walk->left -= gm_class_bytes(table->chunks[index].class);
            walk->chunk = table->chunks[index].next;
            gm_table_fetch(table, walk->chunk);
            return index;
        }
        if (index == GM_NONE && walk->stage < walk->to)
            walk->chunk =
                target_of(table, layout, walk->target)->away[gm_layout_order[++walk->stage]].head;
        else
            next_target(table, layout, walk);
    }
    return GM_NONE;
}

/* The chunks that come of one target. */
static struct gm_layout_walk walk_of(const struct gm_table *table, const struct gm_layout *layout,
                                     uint32_t target)
{
    struct gm_layout_walk walk = {.first = target, .to = GM_STAGE_LAST};
    open_target(table, layout, &walk, target);
    return walk;
}

static bool comes_whole(const struct gm_table *table, const struct gm_layout *layout,
                        uint32_t target)
{
    return layout->targets[target].comes == missing_of(target_of(table, layout, target));
}

void gm_layout_needs(const struct gm_table *table, const struct gm_layout *layout, uint32_t pool,
                     uint32_t needs[GM_CHUNK_CLASSES])
{
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++)
        needs[c] = 0;
    for (uint32_t i = find_target(table, layout, pool, 0); i != GM_NONE;
         i = find_target(table, layout, pool, i + 1)) {
        struct gm_layout_walk walk = walk_of(table, layout, i);
        const bool is_whole = comes_whole(table, layout, i);
        for (unsigned c = 0; is_whole && c < GM_CHUNK_CLASSES; c++)
            needs[c] += target_of(table, layout, i)->away_count[c];
        for (uint32_t chunk; !is_whole &&
                             (chunk = gm_layout_next(table, layout, &walk)) != GM_NONE &&
                             walk.target == i;)
            needs[table->chunks[chunk].class]++;
    }
}

/* ---- which chunks leave ---- */

/*
 * Choose chunks that make `sum`: first the sizes that are wanted, whose frames can be used as they
 * are; for the rest the largest, as each move costs. Every size divides the next, so smaller chunks
 * can make up what is left after a choice between `least` and `most`.
 */
static void compose(const uint32_t have[GM_CHUNK_CLASSES], const uint32_t want[GM_CHUNK_CLASSES],
                    uint64_t sum, uint32_t leave[GM_CHUNK_CLASSES])
{
    uint64_t below = 0, wanted_below = 0;
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++) {
        below += have[c] * gm_class_bytes(c);
        wanted_below += (want[c] < have[c] ? want[c] : have[c]) * gm_class_bytes(c);
    }
    for (unsigned c = GM_CHUNK_CLASSES; c-- > 0;) {
        uint64_t size = gm_class_bytes(c);
        below -= have[c] * size;
        wanted_below -= (want[c] < have[c] ? want[c] : have[c]) * size;
        uint64_t most = sum / size < have[c] ? sum / size : have[c];
        uint64_t least = sum > below ? (sum - below + size - 1) / size : 0;
        uint64_t n = sum > wanted_below ? (sum - wanted_below) / size : 0;
        if (n < want[c])
            n = want[c];
        if (n > most)
            n = most;
        if (n < least)
            n = least;
        leave[c] = (uint32_t)n;
        sum -= n * size;
    }
    assert(sum == 0);
}

/* What the targets of a pool lack of each size, beside the frames that it has. */
struct lack {
    uint32_t pool; /* GM_NONE: not counted yet */
    uint32_t of[GM_CHUNK_CLASSES];
};

static void take_off(uint32_t *lack, uint32_t n)
{
    *lack = *lack > n ? *lack - n : 0;
}

static void count_lack(const struct gm_table *table, const struct gm_layout *layout, uint32_t pool,
                       uint32_t n_before, struct lack *lack)
{
    lack->pool = pool;
    gm_layout_needs(table, layout, pool, lack->of);
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++) {
        take_off(&lack->of[c], table->pools[pool].count[c]);
        take_off(&lack->of[c],
                 (uint32_t)(leaving_bytes(table, &table->pools[pool], c) / gm_class_bytes(c)));
    }
    for (uint32_t i = 0; i < n_before; i++)
        for (unsigned c = 0;
             table->apps[layout->victims[i].app].pool == pool && c < GM_CHUNK_CLASSES; c++)
            take_off(&lack->of[c], layout->victims[i].leave[c]);
}

/* Which chunks the victims lose: their frames serve as they are, as far as sizes and users allow.
 */
static void choose_leaving(const struct gm_table *table, struct gm_layout *layout)
{
    struct lack lack = {.pool = GM_NONE};
    for (uint32_t i = 0; i < layout->n_victims; i++) {
        struct gm_layout_victim *victim = &layout->victims[i];
        const struct gm_table_app *app = &table->apps[victim->app];
        uint32_t have[GM_CHUNK_CLASSES];
        for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++) {
            have[c] = app->by_class[c].count;
            victim->leave[c] = 0;
        }
        if (victim->loses == 0)
            continue;
        if (lack.pool != app->pool)
            count_lack(table, layout, app->pool, i, &lack);
        compose(have, lack.of, victim->loses, victim->leave);
        for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++)
            take_off(&lack.of[c], victim->leave[c]);
    }
}

/* ---- below the GPU ---- */

static void count_coming(const struct gm_table *table, struct gm_layout *layout, uint32_t target)
{
    const struct gm_table_app *app = target_of(table, layout, target);
    struct gm_layout_walk walk = walk_of(table, layout, target);
    const bool is_whole = comes_whole(table, layout, target);
    for (unsigned tier = 0; is_whole && tier < GM_TIERS; tier++) {
        layout->comes[tier] += app->bytes[tier];
        layout->promotions += tier > GM_TIER_PINNED ? app->away[tier].count : 0;
    }
    for (uint32_t chunk; !is_whole && (chunk = gm_layout_next(table, layout, &walk)) != GM_NONE &&
                         walk.target == target;) {
        const unsigned tier = gm_layout_order[walk.stage];
        layout->comes[tier] += gm_class_bytes(table->chunks[chunk].class);
        layout->promotions += tier > GM_TIER_PINNED;
    }
}

int64_t gm_layout_free_in(const struct gm_layout *layout, enum gm_tier tier)
{
    const struct gm_layout_tier *of = &layout->tiers[tier];
    return of->is_closed ? INT64_MIN / 2 : (int64_t)(of->cap + of->ending) - (int64_t)of->used;
}

/* What comes and goes between the GPU and pinned memory is known: so is what must go down. */
static void count_tiers(const struct gm_table *table, struct gm_layout *layout)
{
    uint64_t to_map = 0; /* what targets are to map and that needs pinned pages first */
    layout->promotions = 0;
    for (unsigned tier = 0; tier < GM_TIERS; tier++)
        layout->comes[tier] = 0;
    for (uint32_t i = 0; i < layout->n_targets; i++) {
        to_map += target_of(table, layout, i)->to_map_bytes;
        count_coming(table, layout, i);
    }
    layout->goes_down = layout->goes_disk = 0;
    if (layout->tiers[GM_TIER_PINNED].cap == 0)
        return;
    const int64_t pinned = gm_layout_free_in(layout, GM_TIER_PINNED);
    const int64_t paged =
        gm_layout_free_in(layout, GM_TIER_PAGED) + (int64_t)layout->comes[GM_TIER_PAGED];
    layout->goes_down = (int64_t)(layout->window + layout->leaves + to_map) - pinned -
                        (int64_t)layout->comes[GM_TIER_PINNED];
    if (!layout->tiers[GM_TIER_DISK].is_closed)
        layout->goes_disk = layout->goes_down - (paged > 0 ? paged : 0);
}

/* Of each target at most `most` bytes come. */
static void share(const struct gm_table *table, struct gm_layout *layout, uint64_t most)
{
    uint64_t missing = 0, wanted = 0, room = free_bytes(table);
    layout->leaves = 0;
    for (uint32_t i = 0; i < layout->n_targets; i++) {
        layout->targets[i].comes = gm_least(missing_of(target_of(table, layout, i)), most);
        layout->leaves += target_of(table, layout, i)->leaving;
        missing += missing_of(target_of(table, layout, i));
        wanted += layout->targets[i].comes;
    }
    if (layout->n_targets > 0)
        take(table, layout, gm_less(wanted, room + layout->leaves));
    else
        take_all(table, layout);
    for (uint32_t i = 0; i < layout->n_victims; i++)
        layout->leaves += layout->victims[i].loses;
    room += layout->leaves;
    layout->is_whole = missing == wanted && wanted <= room;
    for (uint32_t i = 0; i < layout->n_targets; i++) {
        layout->targets[i].comes = gm_least(layout->targets[i].comes, room);
        room -= layout->targets[i].comes;
    }
    choose_leaving(table, layout);
    count_tiers(table, layout);
}

void gm_layout_share(const struct gm_table *table, struct gm_layout *layout)
{
    share(table, layout, UINT64_MAX);
}

/* ---- for whom ---- */

static bool may_lose(const struct gm_layout_app *app)
{
    return app->stand == GM_STAND_WAITS || app->stand == GM_STAND_IDLE;
}

static void add_targets(struct gm_layout *layout, const struct gm_layout_app *apps, uint32_t n,
                        enum gm_stand stand)
{
    for (uint32_t i = 0; i < n; i++)
        if (apps[i].stand == stand)
            layout->targets[layout->n_targets++].app = apps[i].app;
}

static void add_victim(struct gm_layout *layout, uint32_t app, uint64_t may_lose)
{
    layout->victims[layout->n_victims++] =
        (struct gm_layout_victim){.app = app, .may_lose = may_lose};
}

static uint64_t above_room(const struct gm_table *table, const struct gm_layout_app *app)
{
    return may_lose(app) ? gm_less(table->apps[app->app].resident, app->may_have) : 0;
}

static void make_now(const struct gm_table *table, const struct gm_layout_app *apps, uint32_t n,
                     struct gm_layout *layout)
{
    add_targets(layout, apps, n, GM_STAND_GROWS);
    layout->is_growing = layout->n_targets > 0;
    add_targets(layout, apps, n, GM_STAND_COMES);
    layout->is_ahead = layout->n_targets == 0;
    bool is_any = !layout->is_ahead;
    for (uint32_t i = 0; i < n; i++)
        is_any = is_any || above_room(table, &apps[i]) > 0;
    for (uint32_t i = n; i-- > 0 && is_any;)
        if (may_lose(&apps[i]))
            add_victim(layout, apps[i].app,
                       layout->is_ahead ? above_room(table, &apps[i])
                                        : table->apps[apps[i].app].resident);
}

/* For apps[at]. */
static void make_ahead(const struct gm_table *table, const struct gm_layout_app *apps, uint32_t n,
                       uint32_t at, struct gm_layout *layout)
{
    const bool is_waiting = apps[at].stand == GM_STAND_WAITS;
    layout->is_ahead = true;
    layout->targets[layout->n_targets++].app = apps[at].app;
    for (uint32_t i = n; i-- > at + 1;) {
        const bool makes_way = is_waiting && apps[i].stand == GM_STAND_WAITS;
        if (may_lose(&apps[i]) && apps[i].turn > apps[at].turn)
            add_victim(layout, apps[i].app, makes_way ? table->apps[apps[i].app].resident : 0);
    }
}

bool gm_layout_make(const struct gm_table *table, const struct gm_layout_app *apps, uint32_t n,
                    uint32_t step, uint64_t most, struct gm_layout *layout)
{
    uint32_t at = 0, passed = GM_LAYOUT_AHEAD;
    layout->n_targets = layout->n_victims = 0;
    layout->is_growing = layout->is_ahead = false;
    if (step == GM_LAYOUT_NOW) {
        make_now(table, apps, n, layout);
    } else {
        while (at < n && (!apps[at].comes_ahead || passed++ < step))
            at++;
        if (at == n)
            return false;
        make_ahead(table, apps, n, at, layout);
    }
    share(table, layout, step == GM_LAYOUT_NOW ? UINT64_MAX : most);
    return true;
}

/* ---- places ---- */

/* A rank is the first four bits below the highest one of the heat, and where that one is: chunks
 * of one rank differ by a sixteenth. Ranks of chunks below 32 MiB begin at SMALL. */
#define SMALL 480u
#define COLD 3u /* ranks of what is cold, below those */
#define RANKS (COLD + 2 * SMALL)

enum where { ON_GPU, ON_HOST, ELSEWHERE };

static enum where where_is(const struct gm_chunk *chunk)
{
    switch ((enum gm_chunk_state)chunk->state) {
    case GM_CHUNK_RESIDENT:
    case GM_CHUNK_COMING:
    case GM_CHUNK_RETURNING:
        return ON_GPU;
    case GM_CHUNK_ON_HOST:
    case GM_CHUNK_MAPPING:
        return ON_HOST;
    default:
        return ELSEWHERE;
    }
}

static unsigned rank_of_heat(uint64_t heat)
{
    if (heat < 16)
        return (unsigned)heat;
    const unsigned top = 63u - (unsigned)__builtin_clzll(heat);
    return (top - 3) * 16 + (unsigned)(heat >> (top - 4) & 15);
}

static unsigned rank_of(const struct gm_chunk *chunk, uint32_t newest)
{
    const bool is_small = chunk->class < GM_CHUNK_CLASSES - 1;
    uint64_t heat = chunk->heat;
    if (chunk->trust == GM_TRUST_TRIED && !chunk->is_proved)
        return 0; /* it goes first */
    if (chunk->is_cold) /* those that are there stay before others come */
        return 1 + (where_is(chunk) == ON_GPU);
    if (chunk->trust != GM_TRUST_WINDOWS && heat < GM_PLACE_KNOWN) /* nobody saw how it is used */
        heat = GM_PLACE_KNOWN;
    if (is_small && heat == 0)
        heat += 2 * GM_PLACE_FLOOR;
    if (chunk->allocation == newest)
        heat += 2 * GM_PLACE_FLOOR;
    if (where_is(chunk) == ON_GPU)
        heat += heat / 4 + GM_PLACE_FLOOR;
    return COLD + rank_of_heat(heat) + (is_small ? SMALL : 0);
}

struct placing {
    struct gm_table *table;
    const struct gm_place_input *input;
    bool is_made;
    uint64_t ranked[RANKS];   /* bytes that compete for the room */
    uint64_t resident[RANKS]; /* ... of those that are on the GPU */
    int line;       /* chunks above this rank are to be resident, those below it not; -1: all */
    uint64_t left;  /* room for chunks of that rank */
    uint64_t taken; /* bytes that are resident if no one leaves */
    uint64_t aside; /* ... and that are cold, and stay on the host */
    struct gm_placed placed;
};

/* Call `visit` for every chunk that has no fixed place, newest allocation first. */
static void walk(struct placing *p, void (*visit)(struct placing *p, uint32_t chunk))
{
    const struct gm_table *table = p->table;
    uint32_t next;
    for (uint32_t a = table->apps[p->input->app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        for (uint32_t c = table->allocations[a].is_freed ? GM_NONE : table->allocations[a].first;
             c != GM_NONE; c = next) {
            next = table->chunks[c].sibling;
            if (!table->chunks[c].is_freed && !table->chunks[c].is_fixed)
                visit(p, c);
        }
}

static void count(struct placing *p, uint32_t index)
{
    const struct gm_chunk *chunk = &p->table->chunks[index];
    const unsigned rank = rank_of(chunk, p->input->newest);
    const uint64_t bytes = gm_class_bytes(chunk->class);
    const enum where where = where_is(chunk);
    if (where == ON_GPU) {
        p->taken += bytes;
        p->resident[rank] += chunk->state == GM_CHUNK_RESIDENT ? bytes : 0;
    }
    if (where == ELSEWHERE || p->input->is_quiet)
        p->ranked[rank] += bytes;
}

static void put(struct placing *p, uint32_t index, bool is_on_host)
{
    if (p->is_made)
        gm_table_put(p->table, index, is_on_host);
}

/* Above the line, or at it with room left there. */
static bool gets_room(struct placing *p, const struct gm_chunk *chunk)
{
    const int rank = (int)rank_of(chunk, p->input->newest);
    const uint64_t bytes = gm_class_bytes(chunk->class);
    if (rank != p->line)
        return rank > p->line;
    if (bytes > p->left)
        return false;
    p->left -= bytes;
    return true;
}

/* Chunks that have no place yet. */
static void place_missing(struct placing *p, uint32_t index)
{
    const struct gm_chunk *chunk = &p->table->chunks[index];
    if (where_is(chunk) != ELSEWHERE)
        return;
    const bool is_to_come = gets_room(p, chunk);
    p->taken += is_to_come ? gm_class_bytes(chunk->class) : 0;
    put(p, index, !is_to_come);
}

/* Chunks on the host that are worth a promotion, or for which there is room. */
static void place_host(struct placing *p, uint32_t index)
{
    const struct gm_chunk *chunk = &p->table->chunks[index];
    const uint64_t bytes = gm_class_bytes(chunk->class);
    if (chunk->state != GM_CHUNK_ON_HOST)
        return;
    if (chunk->is_cold && p->aside + bytes <= p->input->keeps) {
        p->aside += bytes;
        return;
    }
    if (p->placed.come + bytes > p->input->most || !gets_room(p, chunk))
        return;
    p->placed.come += bytes;
    p->taken += bytes;
    put(p, index, false);
}

/* Chunks for which there is room after all, as not all that outrank them may come. */
static void place_rest(struct placing *p, uint32_t index)
{
    const struct gm_chunk *chunk = &p->table->chunks[index];
    const uint64_t bytes = gm_class_bytes(chunk->class);
    if (where_is(chunk) != ELSEWHERE || !chunk->is_on_host || p->taken + bytes > p->input->room)
        return;
    p->taken += bytes;
    put(p, index, false);
}

/* Residents below the line leave, and those at it that came first. */
static void place_resident(struct placing *p, uint32_t index)
{
    const struct gm_chunk *chunk = &p->table->chunks[index];
    if (chunk->state != GM_CHUNK_RESIDENT)
        return;
    const bool stays = gets_room(p, chunk);
    p->placed.leave += stays ? 0 : gm_class_bytes(chunk->class);
    put(p, index, !stays);
}

/* The line above which everything that competes fits into `room`. */
static void draw_line(struct placing *p, uint64_t room)
{
    p->line = -1;
    p->left = room;
    for (int rank = RANKS - 1; rank >= 0; rank--) {
        if (p->ranked[rank] > p->left) {
            p->line = rank;
            break;
        }
        p->left -= p->ranked[rank];
    }
    /* Of those at the line, the resident ones keep their places. */
    if (p->line >= 0 && p->input->is_quiet) {
        const uint64_t there = p->resident[p->line];
        p->left -= there < p->left ? there : p->left;
    }
}

/* The line below which residents leave: the least ranks that make `bytes`. */
static void draw_leaving_line(struct placing *p, uint64_t bytes)
{
    uint64_t sum = 0;
    p->line = -1;
    while (sum < bytes && p->line < (int)RANKS - 1)
        sum += p->resident[++p->line];
    p->left = sum > bytes ? sum - bytes : 0;
}

struct gm_placed gm_layout_place(struct gm_table *table, const struct gm_place_input *input,
                                 bool is_made)
{
    struct placing p = {.table = table, .input = input, .is_made = is_made};
    walk(&p, count);
    if (!input->is_quiet) {
        draw_line(&p, input->room > p.taken ? input->room - p.taken : 0);
        walk(&p, place_missing);
        walk(&p, place_rest);
        return p.placed;
    }
    draw_line(&p, input->room);
    walk(&p, place_missing);
    walk(&p, place_host);
    walk(&p, place_rest);
    draw_leaving_line(&p, p.taken > input->room ? p.taken - input->room : 0);
    walk(&p, place_resident);
    return p.placed;
}

void gm_layout_stay(struct gm_table *table, uint32_t app)
{
    for (unsigned c = 0; c < GM_CHUNK_CLASSES && table->apps[app].leaving > 0; c++)
        for (uint32_t at = table->apps[app].by_class[c].head, next; at != GM_NONE; at = next) {
            next = table->chunks[at].next;
            if (table->chunks[at].is_leaving)
                gm_table_put(table, at, false);
        }
}

void gm_layout_end_places(struct gm_table *table, uint32_t app, bool is_all)
{
    for (uint32_t at = table->apps[app].to_map.head, next; at != GM_NONE; at = next) {
        next = table->chunks[at].next;
        gm_table_put(table, at, false);
    }
    for (uint32_t a = is_all ? table->apps[app].allocations.head : GM_NONE; a != GM_NONE;
         a = table->allocations[a].next)
        for (uint32_t c = table->allocations[a].is_freed ? GM_NONE : table->allocations[a].first;
             c != GM_NONE; c = table->chunks[c].sibling)
            if (table->chunks[c].state == GM_CHUNK_ON_HOST && !table->chunks[c].is_fixed &&
                !table->chunks[c].is_freed)
                gm_table_put(table, c, false);
}
