#include "daemon/core/layout.h"

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
static uint64_t free_bytes(const struct gm_table *table, const struct gm_layout *layout)
{
    const struct gm_table_app *only = layout->is_sparing ? &table->apps[layout->targets[0]] : NULL;
    uint64_t bytes = table->budget - table->allocated + table->ending;
    for (uint32_t i = 0; i < table->max_apps; i++) {
        const struct gm_pool *pool = &table->pools[i];
        if (pool->frames == 0 || (only && only->pool != i))
            continue;
        for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++) {
            const uint64_t all = pool->count[c] * gm_class_bytes(c) + leaving_bytes(table, pool, c);
            bytes += only ? gm_least(all, only->away_count[c] * gm_class_bytes(c)) : all;
        }
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

void gm_layout_share(const struct gm_table *table, struct gm_layout *layout)
{
    uint64_t missing = 0;
    layout->fits = free_bytes(table, layout);
    for (uint32_t i = 0; i < layout->n_targets; i++) {
        const struct gm_table_app *app = &table->apps[layout->targets[i]];
        layout->fits += app->leaving;
        for (unsigned tier = 0; tier < GM_TIERS; tier++)
            missing += app->bytes[tier];
    }
    if (layout->n_targets > 0)
        take(table, layout, gm_less(missing, layout->fits));
    else
        take_all(table, layout);
    for (uint32_t i = 0; i < layout->n_victims; i++)
        layout->fits += layout->victims[i].loses;
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
            layout->targets[layout->n_targets++] = apps[i].app;
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
    layout->is_sparing = !is_waiting;
    layout->targets[layout->n_targets++] = apps[at].app;
    for (uint32_t i = n; i-- > at + 1;) {
        const bool makes_way = is_waiting && apps[i].stand == GM_STAND_WAITS;
        if (may_lose(&apps[i]) && apps[i].turn > apps[at].turn)
            add_victim(layout, apps[i].app, makes_way ? table->apps[apps[i].app].resident : 0);
    }
}

bool gm_layout_make(const struct gm_table *table, const struct gm_layout_app *apps, uint32_t n,
                    uint32_t step, struct gm_layout *layout)
{
    uint32_t at = 0, passed = GM_LAYOUT_AHEAD;
    layout->n_targets = layout->n_victims = 0;
    layout->is_growing = layout->is_ahead = layout->is_sparing = false;
    if (step == GM_LAYOUT_NOW) {
        make_now(table, apps, n, layout);
    } else {
        while (at < n && (!apps[at].comes_ahead || passed++ < step))
            at++;
        if (at == n)
            return false;
        make_ahead(table, apps, n, at, layout);
    }
    gm_layout_share(table, layout);
    return true;
}
