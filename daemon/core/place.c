#include "daemon/core/place.h"

#include <string.h>

/* ---- heat ---- */

static uint32_t add_heat(uint32_t heat, uint64_t more)
{
    uint64_t sum = heat + more;
    return sum < UINT32_MAX && sum >= more ? (uint32_t)sum : UINT32_MAX;
}

static void cool(struct gm_table *table, uint32_t app)
{
    for (uint32_t a = table->apps[app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next) {
        if (table->allocations[a].is_freed)
            continue;
        for (uint32_t c = table->allocations[a].first; c != GM_NONE; c = table->chunks[c].sibling)
            gm_table_note_use(table, c, table->chunks[c].heat / 2, table->chunks[c].has_place);
    }
}

/* Of the chunks that were used, in units of the smallest. */
struct known {
    uint64_t heat; /* of each at most twice what is asked of the mean */
    uint64_t size;
};

static void add_known(struct known *known, const struct gm_chunk *chunk)
{
    const uint64_t most = 2 * GM_PLACE_KNOWN;
    if (chunk->heat == 0)
        return;
    known->heat += (chunk->heat < most ? chunk->heat : most) << chunk->class;
    known->size += 1ull << chunk->class;
}

/* The first use at or above `va`. */
static uint32_t find_use(const struct gm_use *uses, uint32_t n, uint64_t va)
{
    uint32_t low = 0;
    while (n > 0) {
        uint32_t half = n / 2;
        if (uses[low + half].va < va) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low;
}

/* The chunk is used in the app's window, first after `order` other places. */
static void touch(struct gm_table *table, uint32_t index, uint32_t order, struct gm_warmed *warmed)
{
    const struct gm_chunk *chunk = &table->chunks[index];
    if (chunk->is_cold) {
        const uint32_t gap = table->apps[chunk->app].window - chunk->window;
        warmed->returned += gm_class_bytes(chunk->class);
        warmed->gap = gap > warmed->gap ? gap : warmed->gap;
    }
    gm_table_touch(table, index, order);
}

#define NO_REACH UINT32_MAX /* nothing that was touched reaches here */

static void warm_allocation(struct gm_table *table, const struct gm_allocation *allocation,
                            const struct gm_use *uses, uint32_t n, struct known *known,
                            struct gm_warmed *warmed)
{
    uint32_t at = find_use(uses, n, allocation->va);
    struct gm_use last = {0};  /* the last place, and how often it was used this time */
    uint32_t reach = NO_REACH; /* order of the last one that is not exact */
    for (uint32_t c = allocation->first; c != GM_NONE; c = table->chunks[c].sibling) {
        const struct gm_chunk *chunk = &table->chunks[c];
        uint64_t from = chunk->va, end = chunk->va + gm_class_bytes(chunk->class);
        uint64_t heat = 0; /* uses times chunks of the smallest size */
        bool is_touched = false;
        const bool is_place = at < n && uses[at].va < end;
        if (chunk->has_place && !is_place) /* a place that was not used this time */
            last.count = 0;
        uint32_t order = reach;
        for (; at < n && uses[at].va < end; at++) {
            uint64_t place = uses[at].va & ~(GM_CHUNK_MIN - 1);
            heat += (uint64_t)last.count * ((place - from) >> GM_CHUNK_SHIFT);
            is_touched = is_touched || (reach != NO_REACH && place > from) || uses[at].is_exact;
            from = place;
            last = uses[at];
            order = last.order < order ? last.order : order;
            if (!last.is_exact) {
                reach = last.order;
            } else {
                heat += last.count;
                from = place + GM_CHUNK_MIN;
                last.count = 0;
            }
        }
        heat += (uint64_t)last.count * ((end - from) >> GM_CHUNK_SHIFT);
        is_touched = is_touched || (reach != NO_REACH && end > from);
        gm_table_note_use(table, c, add_heat(chunk->heat, heat * GM_PLACE_USE >> chunk->class),
                          chunk->has_place || is_place);
        if (is_place && chunk->trust == GM_TRUST_TRIED) /* it is more than reached */
            gm_table_trust(table, c, GM_TRUST_WINDOWS);
        if (is_touched && !chunk->is_freed && !chunk->is_fixed)
            touch(table, c, order, warmed);
        add_known(known, chunk);
    }
}

struct gm_warmed gm_place_warm(struct gm_table *table, uint32_t app, const struct gm_use *uses,
                               uint32_t n)
{
    struct known known = {0};
    struct gm_warmed warmed = {0};
    for (uint32_t a = table->apps[app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        if (!table->allocations[a].is_freed)
            warm_allocation(table, &table->allocations[a], uses, n, &known, &warmed);
    if (known.size > 0 && known.heat >= GM_PLACE_KNOWN * known.size)
        cool(table, app);
    return warmed;
}

void gm_place_heat(struct gm_table *table, uint32_t allocation)
{
    for (uint32_t c = table->allocations[allocation].first; c != GM_NONE;
         c = table->chunks[c].sibling) {
        const struct gm_chunk *chunk = &table->chunks[c];
        if (chunk->heat < 2 * GM_PLACE_KNOWN)
            gm_table_note_use(table, c, 2 * GM_PLACE_KNOWN, chunk->has_place);
        gm_table_touch(table, c, 0);
    }
}

/* ---- places ---- */

/* A rank is the first four bits below the highest one of the heat, and where that one is: chunks
 * of one rank differ by a sixteenth. Ranks of chunks below 32 MiB begin at SMALL. */
#define SMALL 480u
#define RANKS (2 * SMALL)

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
    if (chunk->is_cold) /* those that are there stay before others come */
        return where_is(chunk) == ON_GPU;
    if (chunk->trust != GM_TRUST_WINDOWS && heat < GM_PLACE_KNOWN) /* nobody saw how it is used */
        heat = GM_PLACE_KNOWN;
    if (is_small && heat == 0)
        heat += 2 * GM_PLACE_FLOOR;
    if (chunk->allocation == newest)
        heat += 2 * GM_PLACE_FLOOR;
    if (where_is(chunk) == ON_GPU)
        heat += heat / 4 + GM_PLACE_FLOOR;
    return rank_of_heat(heat) + (is_small ? SMALL : 0);
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

struct gm_placed gm_place_app(struct gm_table *table, const struct gm_place_input *input,
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
