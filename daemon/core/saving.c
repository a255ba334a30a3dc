#include "daemon/core/saving.h"

#include "common/sums.h"

struct gm_saving gm_saving_of(const struct gm_table *table, uint32_t app, bool is_open,
                              bool is_placed)
{
    const uint64_t promised = gm_room_promised(table, app), placed = gm_room_placed(table, app);
    const uint64_t bytes = promised > placed || is_placed ? promised : placed;
    return (struct gm_saving){.app = app,
                              .is_open = is_open,
                              .bytes = bytes,
                              .missing = gm_less(bytes, table->apps[app].resident)};
}

uint64_t gm_saving_beyond(const struct gm_table *table, uint32_t app, uint64_t left)
{
    const struct gm_table_app *entry = &table->apps[app];
    const uint64_t beyond = gm_less(entry->committed - entry->fixed, left);
    return beyond > entry->beyond ? beyond : entry->beyond;
}

static bool is_before(const struct gm_saving *a, const struct gm_saving *b)
{
    if (a->is_open != b->is_open)
        return a->is_open;
    if (a->missing != b->missing)
        return a->missing < b->missing;
    return a->app < b->app;
}

/* Move apps[from] forward to apps[to]. */
static void move(struct gm_saving *apps, uint32_t from, uint32_t to)
{
    const struct gm_saving app = apps[from];
    for (; from > to; from--)
        apps[from] = apps[from - 1];
    apps[to] = app;
}

uint32_t gm_saving_choose(struct gm_saving *apps, uint32_t n, uint64_t room)
{
    uint32_t chosen = 0;
    for (uint32_t i = 1; i < n; i++) {
        uint32_t at = i;
        while (at > 0 && is_before(&apps[i], &apps[at - 1]))
            at--;
        move(apps, i, at);
    }
    for (uint32_t i = 0; i < n; i++) {
        const bool fits = apps[i].bytes <= room;
        if (!fits && !apps[i].is_open)
            continue;
        room -= fits ? apps[i].bytes : room;
        move(apps, i, chosen++);
    }
    return chosen;
}
