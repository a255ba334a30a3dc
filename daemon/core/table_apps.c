/* The table itself, its apps and their allocations: see table.h. */
#include "daemon/core/table_apps.h"

#include <assert.h>
#include <string.h>

#include "daemon/core/table_chunks.h"
#include "daemon/core/table_frames.h"
#include "daemon/core/table_write.h"

static size_t round16(size_t bytes)
{
    return (bytes + 15) & ~(size_t)15;
}

size_t gm_table_size(uint32_t max_apps, uint32_t max_chunks, uint32_t max_frames)
{
    return round16(sizeof(struct gm_table)) + round16(sizeof(struct gm_table_app) * max_apps) +
           round16(sizeof(struct gm_pool) * max_apps) +
           round16(sizeof(struct gm_chunk) * max_chunks) +
           round16(sizeof(struct gm_allocation) * max_chunks) +
           round16(sizeof(uint32_t) * max_chunks) + round16(sizeof(struct gm_frame) * max_frames) +
           2 * gm_table_row(max_frames) * max_apps;
}

/* Unused slots are handed out from the free list first, then from the never-used end of the array.
 */
struct gm_table *gm_table_init(void *memory, uint32_t max_apps, uint32_t max_chunks,
                               uint32_t max_frames, uint64_t budget)
{
    unsigned char *at = memory;
    struct gm_table *table = memory;

    at += round16(sizeof *table);
    table->apps = (struct gm_table_app *)at;
    at += round16(sizeof *table->apps * max_apps);
    table->pools = (struct gm_pool *)at;
    at += round16(sizeof *table->pools * max_apps);
    table->chunks = (struct gm_chunk *)at;
    at += round16(sizeof *table->chunks * max_chunks);
    table->allocations = (struct gm_allocation *)at;
    at += round16(sizeof *table->allocations * max_chunks);
    uint32_t *by_va = (uint32_t *)at;
    table->by_va = by_va;
    at += round16(sizeof *by_va * max_chunks);
    table->frames = (struct gm_frame *)at;
    at += round16(sizeof *table->frames * max_frames);
    table->imports = at;
    table->drops = at + gm_table_row(max_frames) * max_apps;

    table->budget = budget;
    table->max_apps = max_apps;
    table->max_chunks = max_chunks;
    table->max_frames = max_frames;
    for (uint32_t i = max_chunks; i-- > 0;) {
        gm_chunk_at(table, i)->next = i + 1 < max_chunks ? i + 1 : GM_NONE;
        gm_allocation_at(table, i)->next = i + 1 < max_chunks ? i + 1 : GM_NONE;
        by_va[i] = GM_NONE;
    }
    for (uint32_t i = max_frames; i-- > 0;)
        gm_frame_at(table, i)->next = i + 1 < max_frames ? i + 1 : GM_NONE;
    table->free_chunk = table->free_allocation = max_chunks ? 0 : GM_NONE;
    table->free_frame = max_frames ? 0 : GM_NONE;
    table->first_condemned = GM_NONE;
    return table;
}

static const struct gm_list empty_list = {GM_NONE, GM_NONE, 0};

bool gm_table_add_app(struct gm_table *table, uint32_t app, uint32_t uid)
{
    struct gm_table_app *a = gm_app_at(table, app);
    const uint32_t pool = gm_table_find_pool(table, uid);
    assert(app < table->max_apps && !a->is_used);
    if (pool == GM_NONE)
        return false;
    memset(a, 0, sizeof *a);
    a->is_used = true;
    a->pool = pool;
    gm_pool_at(table, pool)->apps++;
    a->allocations = a->shadows = a->to_map = empty_list;
    for (unsigned t = 0; t < GM_TIERS; t++)
        a->away[t] = empty_list;
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++)
        a->by_class[c] = empty_list;
    gm_ledger_set_app(&table->ledger, app, uid);
    return true;
}

void gm_table_set_silent(struct gm_table *table, uint32_t app, bool is_silent)
{
    struct gm_table_app *a = gm_app_at(table, app);
    if (a->is_silent == is_silent)
        return;
    a->is_silent = is_silent;
    table->silent += is_silent ? 1 : -1u;
    table->unmaps += is_silent ? -a->unmaps : a->unmaps;
    table->unmap_bytes += is_silent ? -a->unmap_bytes : a->unmap_bytes;
    gm_table_note_silence(table, app);
    table->is_plan_stale = true;
}

void gm_table_remove_app(struct gm_table *table, uint32_t app)
{
    struct gm_table_app *a = gm_app_at(table, app);
    assert(a->is_used && a->committed == 0 && a->allocations.count == 0);
    gm_table_set_silent(table, app, false);
    a->is_used = false;
    gm_ledger_end_app(&table->ledger, app);
    gm_pool_at(table, a->pool)->apps--;
    memset(gm_bits_at(table, table->imports, app), 0, gm_table_row(table->max_frames));
}

void gm_table_watch(struct gm_table *table, void (*on_turn)(void *arg, const struct gm_turn *turn),
                    void *arg)
{
    table->on_turn = on_turn;
    table->on_turn_arg = arg;
}

void gm_table_keep_ledger(struct gm_table *table, const struct gm_ledger *ledger)
{
    table->ledger = *ledger;
}

void gm_table_set_budget(struct gm_table *table, uint64_t bytes)
{
    table->budget = bytes;
    table->is_plan_stale = true;
}

void gm_table_end_window(struct gm_table *table, uint32_t app)
{
    gm_app_at(table, app)->window++;
}

void gm_table_set_beyond(struct gm_table *table, uint32_t app, uint64_t bytes)
{
    const uint64_t was = table->apps[app].beyond, more = bytes - was;
    gm_app_at(table, app)->beyond += more;
    gm_pool_at(table, table->apps[app].pool)->beyond += more;
    table->beyond += more;
    table->beyond_apps += (uint32_t)(bytes > 0) - (uint32_t)(was > 0);
    table->is_plan_stale = true;
}

bool gm_table_is_plan_stale(const struct gm_table *table, bool is_over)
{
    return table->is_plan_stale || (is_over && table->has_settled);
}

void gm_table_note_plan(struct gm_table *table)
{
    table->is_plan_stale = table->has_settled = false;
}

/* The place of what an app has at an address. */
static uint32_t *place_of(const struct gm_table *table, uint32_t app, uint64_t va)
{
    const uint64_t mixed = ((va >> GM_CHUNK_SHIFT) + ((uint64_t)app << 40)) * 0x9e3779b97f4a7c15ull;
    return (uint32_t *)(uintptr_t)&table->by_va[(mixed >> 32) % table->max_chunks];
}

uint32_t gm_table_add_allocation(struct gm_table *table, uint32_t app, uint64_t va, uint64_t bytes)
{
    const uint64_t count = gm_chunk_count(bytes);
    const uint32_t index = table->free_allocation;
    if (index == GM_NONE || count > table->max_chunks - table->used_chunks)
        return GM_NONE;

    struct gm_allocation *allocation = gm_allocation_at(table, index);
    struct gm_table_app *a = gm_app_at(table, app);
    uint32_t *place = place_of(table, app, va);
    table->free_allocation = allocation->next;
    *allocation = (struct gm_allocation){.va = va,
                                         .bytes = bytes,
                                         .app = app,
                                         .chunks = (uint32_t)count,
                                         .missing = (uint32_t)count,
                                         .next = a->allocations.head,
                                         .prev = GM_NONE,
                                         .same = *place};
    *place = index;
    if (a->allocations.head != GM_NONE)
        gm_allocation_at(table, a->allocations.head)->prev = index;
    a->allocations.head = index;
    a->allocations.count++;
    gm_ledger_begin_allocation(&table->ledger, index, va, bytes);
    uint32_t ordinal = 0;
    uint32_t *link = &allocation->first;
    for (uint64_t left = bytes; left > 0; left -= gm_class_bytes(gm_chunk_next(left))) {
        const uint32_t chunk =
            gm_table_add_chunk(table, index, va + bytes - left, gm_chunk_next(left));
        gm_ledger_add_chunk(&table->ledger, chunk, index, ordinal++);
        *link = chunk;
        link = &gm_chunk_at(table, chunk)->sibling;
    }
    gm_ledger_commit_allocation(&table->ledger, index, app, false);
    table->is_plan_stale = true;
    return index;
}

void gm_table_await_answer(struct gm_table *table, uint32_t index, uint64_t cookie, bool is_ahead)
{
    struct gm_allocation *allocation = gm_allocation_at(table, index);
    allocation->is_pending = true;
    allocation->is_ahead = is_ahead;
    allocation->cookie = cookie;
}

void gm_table_refuse(struct gm_table *table, uint32_t index)
{
    gm_allocation_at(table, index)->is_refused = true;
}

void gm_table_answer(struct gm_table *table, uint32_t index)
{
    gm_allocation_at(table, index)->is_pending = false;
}

void gm_table_free_allocation(struct gm_table *table, uint32_t index, struct gm_last_word last)
{
    struct gm_allocation *allocation = gm_allocation_at(table, index);
    assert(!allocation->is_freed);
    gm_ledger_commit_allocation(&table->ledger, index, allocation->app, true);
    allocation->is_freed = true;
    allocation->is_pending = false;
    allocation->last = last;
    for (uint32_t c = allocation->first; c != GM_NONE; c = table->chunks[c].sibling)
        gm_table_free_chunk(table, c);
    table->is_plan_stale = true;
}

static uint32_t find(const struct gm_table *table, uint32_t app, uint64_t va, bool or_freed)
{
    uint32_t i = *place_of(table, app, va);
    while (i != GM_NONE && (table->allocations[i].va != va || table->allocations[i].app != app ||
                            (table->allocations[i].is_freed && !or_freed)))
        i = table->allocations[i].same;
    return i;
}

uint32_t gm_table_find_allocation(const struct gm_table *table, uint32_t app, uint64_t va)
{
    return find(table, app, va, false);
}

bool gm_table_has_any(const struct gm_table *table, uint32_t app, uint64_t va)
{
    return find(table, app, va, true) != GM_NONE;
}

bool gm_table_can_fix(const struct gm_table *table, uint32_t index)
{
    const struct gm_allocation *allocation = &table->allocations[index];
    return !allocation->is_freed && !allocation->is_pending && allocation->missing == 0;
}

void gm_table_set_comes_until(struct gm_table *table, uint32_t index, uint64_t until)
{
    gm_allocation_at(table, index)->comes_until = until;
}

void gm_table_fix(struct gm_table *table, uint32_t index, uint32_t share, const uint64_t nonce[2])
{
    assert(gm_table_can_fix(table, index) && share != 0);
    for (uint32_t c = table->allocations[index].first; c != GM_NONE; c = table->chunks[c].sibling)
        gm_table_fix_chunk(table, c, share);
    gm_ledger_share_allocation(&table->ledger, index, share, nonce);
    table->is_plan_stale = true;
}

void gm_table_end_allocation(struct gm_table *table, uint32_t index)
{
    struct gm_allocation *allocation = gm_allocation_at(table, index);
    struct gm_table_app *app = gm_app_at(table, allocation->app);
    uint32_t *link = place_of(table, allocation->app, allocation->va);
    assert(allocation->chunks == 0);
    while (*link != index)
        link = &gm_allocation_at(table, *link)->same;
    *link = allocation->same;
    if (allocation->prev != GM_NONE)
        gm_allocation_at(table, allocation->prev)->next = allocation->next;
    else
        app->allocations.head = allocation->next;
    if (allocation->next != GM_NONE)
        gm_allocation_at(table, allocation->next)->prev = allocation->prev;
    app->allocations.count--;
    gm_ledger_end_allocation(&table->ledger, index);
    allocation->app = GM_NONE;
    allocation->next = table->free_allocation;
    table->free_allocation = index;
}
