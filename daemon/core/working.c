#include "daemon/core/working.h"

#include "common/sums.h"
#include "daemon/core/timeline.h"

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

static void touch(struct gm_table *table, uint32_t chunk, void *arg)
{
    (void)arg;
    gm_table_touch(table, chunk, table->chunks[chunk].order);
}

static void judge(struct gm_table *table, uint32_t chunk, void *memory)
{
    const uint32_t now = table->apps[table->chunks[chunk].app].window;
    const uint32_t age = now - table->chunks[chunk].window;
    gm_table_set_cold(table, chunk, age >= *(const uint32_t *)memory);
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
    const struct gm_warmed warmed = gm_place_warm(table, app, uses, n);
    if (is_unseen)
        walk(table, app, touch, NULL);
    else
        learn(table, app, working, &warmed);
    walk(table, app, judge, &working->memory);
    gm_table_end_window(table, app);
    gm_timeline_sort(table, app);
}
