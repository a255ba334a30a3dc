#include "daemon/core/hosting.h"

#include <string.h>

static uint32_t add_heat(uint32_t heat, uint64_t more)
{
    uint64_t sum = heat + more;
    return sum < UINT32_MAX && sum >= more ? (uint32_t)sum : UINT32_MAX;
}

void gm_hosting_cool(struct gm_table *table, uint32_t app)
{
    for (uint32_t a = table->apps[app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next) {
        if (table->allocations[a].is_freed)
            continue;
        for (uint32_t c = table->allocations[a].first; c != GM_NONE; c = table->chunks[c].sibling) {
            table->chunks[c].heat /= 2;
            if (table->chunks[c].place_age > 0)
                table->chunks[c].place_age--;
        }
    }
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

static void warm_allocation(struct gm_table *table, const struct gm_allocation *allocation,
                            const struct gm_use *uses, uint32_t n)
{
    uint32_t at = find_use(uses, n, allocation->va);
    uint64_t reach = 0; /* uses of the last place */
    for (uint32_t c = allocation->first; c != GM_NONE; c = table->chunks[c].sibling) {
        struct gm_chunk *chunk = &table->chunks[c];
        uint64_t from = chunk->va, end = chunk->va + gm_class_bytes(chunk->class);
        uint64_t heat = 0; /* uses times chunks of the smallest size */
        bool is_place = at < n && uses[at].va < end;
        if (chunk->place_age > 0 && !is_place)
            reach = 0; /* a place that was not used this time */
        for (; at < n && uses[at].va < end; at++) {
            uint64_t place = uses[at].va & ~(GM_CHUNK_MIN - 1);
            heat += reach * ((place - from) >> GM_CHUNK_SHIFT);
            from = place;
            reach = uses[at].count;
        }
        heat += reach * ((end - from) >> GM_CHUNK_SHIFT);
        if (is_place)
            chunk->place_age = GM_HOSTING_MEMORY;
        chunk->heat = add_heat(chunk->heat, heat * GM_HOSTING_USE >> chunk->class);
    }
}

void gm_hosting_warm(struct gm_table *table, uint32_t app, const struct gm_use *uses, uint32_t n)
{
    for (uint32_t a = table->apps[app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        if (!table->allocations[a].is_freed)
            warm_allocation(table, &table->allocations[a], uses, n);
}

static bool is_hotter(uint32_t hot, uint32_t cold)
{
    return hot >= 2ull * cold + GM_HOSTING_FLOOR;
}

bool gm_hosting_pays(const struct gm_table *table, const struct gm_hosting_pair *pair)
{
    return is_hotter(table->chunks[pair->hot].heat, table->chunks[pair->cold].heat);
}

static bool can_come(const struct gm_chunk *chunk)
{
    return chunk->is_hosted && !chunk->is_fixed && !chunk->is_freed &&
           chunk->flight == GM_FLIGHT_NONE && chunk->frame != GM_NONE;
}

static bool can_go(const struct gm_chunk *chunk)
{
    return !chunk->is_hosted && !chunk->is_fixed && !chunk->is_freed &&
           chunk->flight == GM_FLIGHT_NONE && chunk->tier == GM_TIER_GPU;
}

bool gm_hosting_is_pair(const struct gm_table *table, uint32_t app,
                        const struct gm_hosting_pair *pair)
{
    const struct gm_chunk *hot = &table->chunks[pair->hot], *cold = &table->chunks[pair->cold];
    return hot->app == app && cold->app == app && hot->class == cold->class && can_come(hot) &&
           can_go(cold);
}

/* The hottest (`is_hot`) or coldest chunks of one size, best first. Ties: the lower index. */
struct best {
    uint32_t n, room;
    bool is_hot;
    uint32_t chunks[GM_HOSTING_PAIRS];
};

static bool is_better(const struct gm_table *table, const struct best *best, uint32_t a, uint32_t b)
{
    uint32_t x = table->chunks[a].heat, y = table->chunks[b].heat;
    if (x != y)
        return best->is_hot ? x > y : x < y;
    return a < b;
}

static void offer(const struct gm_table *table, struct best *best, uint32_t chunk)
{
    if (best->n == best->room && !is_better(table, best, chunk, best->chunks[best->n - 1]))
        return;
    uint32_t low = 0, high = best->n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (is_better(table, best, chunk, best->chunks[middle]))
            high = middle;
        else
            low = middle + 1;
    }
    if (best->n < best->room)
        best->n++;
    memmove(&best->chunks[low + 1], &best->chunks[low], (best->n - 1 - low) * sizeof *best->chunks);
    best->chunks[low] = chunk;
}

static void offer_hosted(const struct gm_table *table, uint32_t app, unsigned class,
                         struct best *best)
{
    for (uint32_t a = table->apps[app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next) {
        if (table->allocations[a].is_freed)
            continue;
        for (uint32_t c = table->allocations[a].first; c != GM_NONE; c = table->chunks[c].sibling)
            if (table->chunks[c].class == class && can_come(&table->chunks[c]) &&
                table->chunks[c].heat >= GM_HOSTING_FLOOR)
                offer(table, best, c);
    }
}

static uint32_t gain(const struct gm_table *table, const struct gm_hosting_pair *pair)
{
    return table->chunks[pair->hot].heat - table->chunks[pair->cold].heat;
}

/* Insert a pair of this size among those of the sizes before: most gain first. */
static uint32_t insert(const struct gm_table *table, struct gm_hosting_pair *pairs, uint32_t n,
                       uint32_t room, const struct gm_hosting_pair *pair)
{
    uint32_t at = n;
    while (at > 0 && gain(table, &pairs[at - 1]) < gain(table, pair))
        at--;
    if (at == room)
        return n;
    if (n < room)
        n++;
    memmove(&pairs[at + 1], &pairs[at], (n - 1 - at) * sizeof *pairs);
    pairs[at] = *pair;
    return n;
}

uint32_t gm_hosting_choose(const struct gm_table *table, uint32_t app,
                           struct gm_hosting_pair *pairs, uint32_t room)
{
    struct best hot, cold;
    uint32_t n = 0, taken = 0;
    uint64_t bytes = 0;
    if (room > GM_HOSTING_PAIRS)
        room = GM_HOSTING_PAIRS;
    if (table->apps[app].hosted == 0 || room == 0)
        return 0;
    for (unsigned class = 0; class < GM_CHUNK_CLASSES; class ++) {
        const struct gm_list *list = &table->apps[app].by_class[class];
        hot.n = cold.n = 0;
        hot.room = cold.room = (uint32_t)(GM_HOSTING_AT_ONCE / gm_class_bytes(class));
        hot.is_hot = true;
        cold.is_hot = false;
        offer_hosted(table, app, class, &hot);
        for (uint32_t c = hot.n > 0 ? list->head : GM_NONE; c != GM_NONE; c = table->chunks[c].next)
            if (can_go(&table->chunks[c]))
                offer(table, &cold, c);
        for (uint32_t i = 0; i < hot.n && i < cold.n; i++) {
            struct gm_hosting_pair pair = {.hot = hot.chunks[i], .cold = cold.chunks[i]};
            if (!gm_hosting_pays(table, &pair))
                break;
            n = insert(table, pairs, n, room, &pair);
        }
    }
    while (taken < n &&
           bytes + gm_class_bytes(table->chunks[pairs[taken].hot].class) <= GM_HOSTING_AT_ONCE)
        bytes += gm_class_bytes(table->chunks[pairs[taken++].hot].class);
    return taken;
}
