#include "daemon/core/working.h"

#include "common/sums.h"

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
        if (is_place && !chunk->is_freed && !chunk->is_fixed) /* it is more than reached */
            gm_table_name(table, c);
        if (is_touched && !chunk->is_freed && !chunk->is_fixed)
            touch(table, c, order, warmed);
        add_known(known, chunk);
    }
}

struct gm_warmed gm_working_warm(struct gm_table *table, uint32_t app, const struct gm_use *uses,
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

void gm_working_heat(struct gm_table *table, uint32_t allocation)
{
    for (uint32_t c = table->allocations[allocation].first; c != GM_NONE;
         c = table->chunks[c].sibling) {
        const struct gm_chunk *chunk = &table->chunks[c];
        if (chunk->heat < 2 * GM_PLACE_KNOWN)
            gm_table_note_use(table, c, 2 * GM_PLACE_KNOWN, chunk->has_place);
        gm_table_touch(table, c, 0);
    }
}

/* ---- the order of the next use ---- */

uint64_t gm_timeline_next(const struct gm_table *table, uint32_t index)
{
    const struct gm_chunk *chunk = &table->chunks[index];
    const uint32_t since = table->apps[chunk->app].window - chunk->window;
    const uint32_t gap = chunk->gap > 0 ? chunk->gap : 1;
    const uint32_t windows = gap > since ? gap - since : since - gap; /* overdue: as long again */
    return chunk->is_cold ? GM_TIMELINE_NEVER : (uint64_t)windows << 32 | chunk->order;
}

void gm_timeline_sort(struct gm_table *table, uint32_t app)
{
    gm_table_sort(table, app, gm_timeline_next);
}

/* ---- the working set ---- */

/* Whoever touches more of what was cold gets a longer memory: less than that costs little over
 * the link, and everybody now and then touches something old. Of what is needed, one part in so
 * many. */
#define GM_WORKING_RETURN 16

/* Call `visit` for each chunk of the app that can be cold. */
static void walk(struct gm_table *table, uint32_t app,
                 void (*visit)(struct gm_table *table, uint32_t chunk, void *arg), void *arg)
{
    for (uint32_t a = table->apps[app].allocations.head; a != GM_NONE;
         a = table->allocations[a].next)
        for (uint32_t c = table->allocations[a].is_freed ? GM_NONE : table->allocations[a].first;
             c != GM_NONE; c = table->chunks[c].sibling)
            if (!table->chunks[c].is_freed && !table->chunks[c].is_fixed)
                visit(table, c, arg);
}

static void touch_any(struct gm_table *table, uint32_t chunk, void *arg)
{
    (void)arg;
    gm_table_touch(table, chunk, table->chunks[chunk].order);
}

static void judge(struct gm_table *table, uint32_t chunk, void *memory)
{
    const uint32_t now = table->apps[table->chunks[chunk].app].window;
    const uint32_t least = *(const uint32_t *)memory;
    const bool is_cold = now - table->chunks[chunk].window >= least;
    gm_table_set_cold(table, chunk, is_cold);
    gm_table_claim(table, chunk, !is_cold && now - table->chunks[chunk].named >= least);
}

/* It came back to memory that was cold: to so much that it would do better with a longer memory. */
static void learn(const struct gm_table *table, uint32_t app, struct gm_working *working,
                  const struct gm_warmed *warmed)
{
    const struct gm_table_app *entry = &table->apps[app];
    const uint64_t needed = gm_less(entry->committed, gm_more(entry->fixed, entry->cold));
    if (warmed->returned > needed / GM_WORKING_RETURN && warmed->gap >= working->memory)
        working->memory = (uint32_t)gm_least(warmed->gap + 1ull, GM_WORKING_MOST);
}

void gm_working_end_window(struct gm_table *table, uint32_t app, struct gm_working *working,
                           const struct gm_use *uses, uint32_t n, bool is_unseen)
{
    if (working->memory == 0)
        working->memory = GM_WORKING_LEAST;
    const struct gm_warmed warmed = gm_working_warm(table, app, uses, n);
    if (is_unseen)
        walk(table, app, touch_any, NULL);
    else
        learn(table, app, working, &warmed);
    walk(table, app, judge, &working->memory);
    gm_table_end_window(table, app);
    gm_timeline_sort(table, app);
}
