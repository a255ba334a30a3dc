/*
 * Chunks and their shadows: see table.h. A chunk is in one list of its app, which follows from its
 * state, its place and its tier.
 */
#include "daemon/core/table_chunks.h"

#include <assert.h>
#include <string.h>

#include "daemon/core/table_frames.h"
#include "daemon/core/table_write.h"

static void list_add_first(struct gm_table *table, struct gm_list *list, uint32_t index)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    chunk->prev = GM_NONE;
    chunk->next = list->head;
    if (list->head != GM_NONE)
        gm_chunk_at(table, list->head)->prev = index;
    else
        list->tail = index;
    list->head = index;
    list->count++;
}

static void list_add(struct gm_table *table, struct gm_list *list, uint32_t index)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    chunk->next = GM_NONE;
    chunk->prev = list->tail;
    if (list->tail != GM_NONE)
        gm_chunk_at(table, list->tail)->next = index;
    else
        list->head = index;
    list->tail = index;
    list->count++;
}

static void list_remove(struct gm_table *table, struct gm_list *list, uint32_t index)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    if (chunk->prev != GM_NONE)
        gm_chunk_at(table, chunk->prev)->next = chunk->next;
    else
        list->head = chunk->next;
    if (chunk->next != GM_NONE)
        gm_chunk_at(table, chunk->next)->prev = chunk->prev;
    else
        list->tail = chunk->prev;
    list->count--;
}

/* Take a chunk out of its list and sums, which still count it by its old state. One that is mapped
 * on the host, or fixed, is in the sums only, as it is never evicted. */
static void unlist(struct gm_table *table, uint32_t index)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    struct gm_table_app *app = gm_app_at(table, chunk->app);
    const uint64_t size = gm_class_bytes(chunk->class);
    switch ((enum gm_chunk_list)chunk->list) {
    case GM_LIST_NONE:
        return;
    case GM_LIST_RESIDENT:
        list_remove(table, &app->by_class[chunk->class], index);
        app->resident -= size;
        app->leaving -= chunk->is_leaving ? size : 0;
        chunk->is_leaving = false;
        break;
    case GM_LIST_SETTLED:
        break;
    case GM_LIST_AWAY:
        list_remove(table, &app->away[chunk->listed_tier], index);
        app->bytes[chunk->listed_tier] -= size;
        app->away_count[chunk->class]--;
        break;
    case GM_LIST_TO_MAP:
        list_remove(table, &app->to_map, index);
        app->to_map_bytes -= chunk->listed_tier != GM_TIER_PINNED ? size : 0;
        break;
    }
    if (chunk->list == GM_LIST_RESIDENT || chunk->list == GM_LIST_SETTLED) {
        app->missing++;
        gm_allocation_at(table, chunk->allocation)->missing++;
    }
    chunk->list = GM_LIST_NONE;
}

/* Put a chunk, which is in no list, into the list of its state, and update the sums. */
static void list_chunk(struct gm_table *table, uint32_t index)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    struct gm_table_app *app = gm_app_at(table, chunk->app);
    const uint64_t size = gm_class_bytes(chunk->class);

    chunk->list = gm_chunk_list_of(chunk);
    if (chunk->list == GM_LIST_AWAY || chunk->list == GM_LIST_TO_MAP)
        chunk->listed_tier = (uint8_t)gm_chunk_away_tier(chunk);
    switch ((enum gm_chunk_list)chunk->list) {
    case GM_LIST_NONE:
        return;
    case GM_LIST_RESIDENT:
        if (chunk->shadow == GM_SHADOW_KEPT)
            list_add_first(table, &app->by_class[chunk->class], index);
        else
            list_add(table, &app->by_class[chunk->class], index);
        app->resident += size;
        chunk->is_leaving = chunk->is_on_host;
        app->leaving += chunk->is_leaving ? size : 0;
        break;
    case GM_LIST_SETTLED:
        break;
    case GM_LIST_AWAY: /* what leaves later is used sooner */
        list_add_first(table, &app->away[chunk->listed_tier], index);
        app->bytes[chunk->listed_tier] += size;
        app->away_count[chunk->class]++;
        return;
    case GM_LIST_TO_MAP:
        list_add(table, &app->to_map, index);
        app->to_map_bytes += chunk->listed_tier != GM_TIER_PINNED ? size : 0;
        return;
    }
    app->missing--;
    gm_allocation_at(table, chunk->allocation)->missing--;
}

/* ---- the order of lists ---- */

struct sorting {
    const struct gm_table *table;
    uint64_t (*next)(const struct gm_table *table, uint32_t chunk);
    bool is_away;
};

/* What is never used leaves first; then what has a shadow, as that costs least; of each the last
 * used. What is away comes in the order of its use. */
static bool comes_before(const struct sorting *s, uint32_t a, uint32_t b)
{
    const uint64_t at_a = s->next(s->table, a), at_b = s->next(s->table, b);
    if (s->is_away)
        return at_a <= at_b;
    if ((at_a == UINT64_MAX) != (at_b == UINT64_MAX))
        return at_a == UINT64_MAX;
    const bool has_a = s->table->chunks[a].shadow == GM_SHADOW_KEPT;
    const bool has_b = s->table->chunks[b].shadow == GM_SHADOW_KEPT;
    return has_a != has_b ? has_a : at_a >= at_b;
}

/* The first chunk behind the run in order that `chunk` begins; the run ends with GM_NONE then. */
static uint32_t cut_run(struct gm_table *table, const struct sorting *s, uint32_t chunk)
{
    while (chunk != GM_NONE) {
        const uint32_t next = table->chunks[chunk].next;
        if (next != GM_NONE && !comes_before(s, chunk, next)) {
            gm_chunk_at(table, chunk)->next = GM_NONE;
            return next;
        }
        chunk = next;
    }
    return GM_NONE;
}

/* Append the two runs to the list, as one. */
static void merge_runs(struct gm_table *table, const struct sorting *s, struct gm_list *list,
                       uint32_t a, uint32_t b)
{
    while (a != GM_NONE || b != GM_NONE) {
        uint32_t *from = b == GM_NONE || (a != GM_NONE && comes_before(s, a, b)) ? &a : &b;
        const uint32_t chunk = *from;
        *from = table->chunks[chunk].next;
        list_add(table, list, chunk);
    }
}

/* Merges neighbouring runs until there is one: what is in order already costs one look. */
static void sort_list(struct gm_table *table, const struct sorting *s, struct gm_list *list)
{
    for (uint32_t runs = 2; runs > 1;) {
        uint32_t rest = list->head;
        *list = (struct gm_list){.head = GM_NONE, .tail = GM_NONE};
        for (runs = 0; rest != GM_NONE; runs++) {
            const uint32_t a = rest, b = cut_run(table, s, a);
            rest = cut_run(table, s, b);
            merge_runs(table, s, list, a, b);
        }
    }
}

void gm_table_sort(struct gm_table *table, uint32_t app,
                   uint64_t (*next)(const struct gm_table *table, uint32_t chunk))
{
    struct sorting s = {.table = table, .next = next};
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++)
        sort_list(table, &s, &gm_app_at(table, app)->by_class[c]);
    s.is_away = true;
    for (unsigned t = 0; t < GM_TIERS; t++)
        sort_list(table, &s, &gm_app_at(table, app)->away[t]);
}

/* The move that the chunk makes, if it makes one, gives so many bytes back when it ends. */
static void count_back(struct gm_table *table, const struct gm_chunk *chunk, uint64_t bytes)
{
    const enum gm_tier tier = gm_chunk_gives_back(chunk);
    if (tier != GM_TIER_NONE)
        table->gives_back[tier] += bytes;
}

/* Where the chunk's data and frame are, now that it has left state `from`. */
static void end_move(const struct gm_table *table, struct gm_chunk *chunk, enum gm_chunk_state from,
                     bool has_failed)
{
    switch (from) {
    case GM_CHUNK_LEAVING:
        chunk->tier = chunk->page == GM_NONE ? GM_TIER_NONE : GM_TIER_PINNED;
        break;
    case GM_CHUNK_COMING:
        chunk->tier = has_failed ? chunk->tier : GM_TIER_GPU;
        break;
    case GM_CHUNK_RETURNING:
        chunk->tier = has_failed ? GM_TIER_NONE : GM_TIER_GPU;
        break;
    case GM_CHUNK_CLEARING:
        chunk->tier = GM_TIER_PINNED;
        break;
    case GM_CHUNK_MAPPING:
        chunk->frame = has_failed ? GM_NONE : chunk->frame;
        break;
    case GM_CHUNK_UNMAPPING:
        chunk->frame = GM_NONE;
        break;
    case GM_CHUNK_MOVING:
        chunk->tier = has_failed ? chunk->tier : chunk->to_tier;
        chunk->page = has_failed ? chunk->page : chunk->to_page;
        chunk->to_page = GM_NONE;
        break;
    case GM_CHUNK_ENDING:
        chunk->tier = GM_TIER_NONE;
        if (chunk->host_frame != GM_NONE && table->frames[chunk->host_frame].share == 0)
            chunk->frame = GM_NONE; /* its pages are the frame until they are given up */
        break;
    default:
        break;
    }
}

bool gm_table_turn_chunk(struct gm_table *table, uint32_t index, enum gm_chunk_event event)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    const struct gm_turn turn = {.model = GM_MODEL_CHUNK,
                                 .from = chunk->state,
                                 .event = (uint8_t)event,
                                 .id = index,
                                 .app = chunk->app};
    const uint8_t to = gm_table_next(table, turn, true);
    if (to == GM_TURN_ILLEGAL)
        return false;
    unlist(table, index);
    count_back(table, chunk, -gm_class_bytes(chunk->class));
    chunk->state = to;
    count_back(table, chunk, gm_class_bytes(chunk->class));
    if (event == GM_CHUNK_EV_DONE || event == GM_CHUNK_EV_FAIL)
        end_move(table, chunk, (enum gm_chunk_state)turn.from, event == GM_CHUNK_EV_FAIL);
    if (event == GM_CHUNK_EV_UNDO)
        gm_table_take_frame(table, chunk->frame, index);
    if (event == GM_CHUNK_EV_EVICT ||
        (event == GM_CHUNK_EV_FREED && turn.from == GM_CHUNK_RESIDENT && !chunk->is_fixed))
        gm_table_turn_frame(table, chunk->frame, GM_FRAME_EV_LEAVE);
    list_chunk(table, index);
    return true;
}

static void list_shadow(struct gm_table *table, uint32_t index)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    struct gm_table_app *app = gm_app_at(table, chunk->app);
    chunk->prev_shadow = GM_NONE;
    chunk->next_shadow = app->shadows.head;
    if (app->shadows.head != GM_NONE)
        gm_chunk_at(table, app->shadows.head)->prev_shadow = index;
    else
        app->shadows.tail = index;
    app->shadows.head = index;
    app->shadows.count++;
    app->shadow_bytes += gm_class_bytes(chunk->class);
    table->shadows += gm_class_bytes(chunk->class);
}

static void unlist_shadow(struct gm_table *table, uint32_t index)
{
    const struct gm_chunk *chunk = &table->chunks[index];
    struct gm_table_app *app = gm_app_at(table, chunk->app);
    if (chunk->prev_shadow != GM_NONE)
        gm_chunk_at(table, chunk->prev_shadow)->next_shadow = chunk->next_shadow;
    else
        app->shadows.head = chunk->next_shadow;
    if (chunk->next_shadow != GM_NONE)
        gm_chunk_at(table, chunk->next_shadow)->prev_shadow = chunk->prev_shadow;
    else
        app->shadows.tail = chunk->prev_shadow;
    app->shadows.count--;
    app->shadow_bytes -= gm_class_bytes(chunk->class);
    table->shadows -= gm_class_bytes(chunk->class);
}

bool gm_table_turn_shadow(struct gm_table *table, uint32_t index, enum gm_shadow_event event)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    const struct gm_turn turn = {.model = GM_MODEL_SHADOW,
                                 .from = chunk->shadow,
                                 .event = (uint8_t)event,
                                 .id = index,
                                 .app = chunk->app};
    const uint8_t to =
        gm_table_next(table, turn, event != GM_SHADOW_EV_KEEP || gm_chunk_can_have_shadow(chunk));
    if (to == GM_TURN_ILLEGAL)
        return false;
    if (turn.from == GM_SHADOW_KEPT)
        unlist_shadow(table, index);
    if (turn.from == GM_SHADOW_LOST)
        table->lost -= gm_class_bytes(chunk->class);
    chunk->shadow = to;
    if (to == GM_SHADOW_LOST)
        table->lost += gm_class_bytes(chunk->class);
    if (to == GM_SHADOW_KEPT) {
        list_shadow(table, index);
        unlist(table, index); /* to the head of its list */
        list_chunk(table, index);
    }
    return true;
}

/* ---- what happens to a chunk ---- */

static void count_committed(struct gm_table *table, uint32_t app, uint64_t bytes)
{
    struct gm_table_app *a = gm_app_at(table, app);
    a->committed += bytes;
    a->most = a->committed > a->most ? a->committed : a->most;
    gm_pool_at(table, table->apps[app].pool)->committed += bytes;
    table->committed += bytes;
}

static void count_fixed(struct gm_table *table, uint32_t app, bool is_on_host, uint64_t bytes)
{
    if (is_on_host) {
        gm_app_at(table, app)->held += bytes;
        table->orphaned_on_host -= bytes;
        return;
    }
    gm_app_at(table, app)->fixed += bytes;
    gm_pool_at(table, table->apps[app].pool)->fixed += bytes;
    table->orphaned -= bytes; /* of what `fixed` counts */
}

static void count_staying(struct gm_table *table, uint32_t app, int chunks)
{
    gm_app_at(table, app)->staying += (uint32_t)chunks;
    table->staying += (uint32_t)chunks;
}

uint32_t gm_table_add_chunk(struct gm_table *table, uint32_t allocation, uint64_t va,
                            unsigned class)
{
    const uint32_t index = table->free_chunk;
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    struct gm_table_app *app = gm_app_at(table, table->allocations[allocation].app);
    table->free_chunk = chunk->next;
    table->used_chunks++;
    *chunk = (struct gm_chunk){.va = va,
                               .app = table->allocations[allocation].app,
                               .allocation = allocation,
                               .class = (uint8_t) class,
                               .frame = GM_NONE,
                               .page = GM_NONE,
                               .host_frame = GM_NONE,
                               .to_page = GM_NONE,
                               .window = app->window,
                               .named = app->window,
                               .sibling = GM_NONE,
                               .next_shadow = GM_NONE,
                               .prev_shadow = GM_NONE};
    app->chunks++;
    app->missing++;
    count_committed(table, chunk->app, gm_class_bytes(class));
    gm_table_turn_chunk(table, index, GM_CHUNK_EV_ADD);
    return index;
}

void gm_table_put(struct gm_table *table, uint32_t index, bool is_on_host)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    const uint64_t size = gm_class_bytes(chunk->class);
    assert(!chunk->is_freed && !chunk->is_fixed);
    if (chunk->is_on_host == is_on_host)
        return;
    unlist(table, index);
    chunk->is_on_host = is_on_host;
    gm_app_at(table, chunk->app)->on_host += is_on_host ? size : -size;
    table->on_host += is_on_host ? size : -size;
    count_staying(table, chunk->app, is_on_host ? 1 : -1);
    list_chunk(table, index);
    gm_ledger_put(&table->ledger, index, is_on_host);
    table->is_plan_stale = true;
}

void gm_table_note_use(struct gm_table *table, uint32_t index, uint32_t heat, bool has_place)
{
    gm_chunk_at(table, index)->heat = heat;
    gm_chunk_at(table, index)->has_place = has_place;
}

/* What the check says goes before what windows say. */
static void set_cold(struct gm_table *table, struct gm_chunk *chunk, bool is_cold)
{
    const uint64_t bytes = gm_class_bytes(chunk->class);
    if (chunk->trust != GM_TRUST_WINDOWS)
        is_cold = chunk->trust == GM_TRUST_TRIED;
    if (chunk->is_cold != is_cold)
        gm_app_at(table, chunk->app)->cold += is_cold ? bytes : -bytes;
    chunk->is_cold = is_cold;
}

void gm_table_touch(struct gm_table *table, uint32_t index, uint32_t order)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    const uint32_t gap = table->apps[chunk->app].window - chunk->window;
    if (gap > 0)
        chunk->gap = gap < UINT8_MAX ? (uint8_t)gap : UINT8_MAX;
    chunk->window = table->apps[chunk->app].window;
    chunk->order = order;
    set_cold(table, chunk, false);
}

void gm_table_set_cold(struct gm_table *table, uint32_t index, bool is_cold)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    assert(!chunk->is_freed && !chunk->is_fixed);
    set_cold(table, chunk, is_cold);
}

void gm_table_name(struct gm_table *table, uint32_t index)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    chunk->named = table->apps[chunk->app].window;
    chunk->is_claimed = false;
    gm_table_trust(table, index, GM_TRUST_WINDOWS);
}

void gm_table_claim(struct gm_table *table, uint32_t index, bool is_claimed)
{
    gm_chunk_at(table, index)->is_claimed = is_claimed;
}

void gm_table_set_level(struct gm_table *table, uint32_t index, uint8_t level)
{
    gm_chunk_at(table, index)->level = level;
}

void gm_table_trust(struct gm_table *table, uint32_t index, enum gm_trust trust)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    assert(!chunk->is_freed && !chunk->is_fixed);
    chunk->trust = (uint8_t)trust;
    set_cold(table, chunk, chunk->is_cold);
}

void gm_table_prove(struct gm_table *table, uint32_t index, bool is_proved)
{
    gm_chunk_at(table, index)->is_proved = is_proved;
}

void gm_table_fix_chunk(struct gm_table *table, uint32_t index, uint32_t share)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    assert(gm_chunk_is_settled(chunk) && !chunk->is_fixed);
    unlist(table, index);
    chunk->trust = GM_TRUST_WINDOWS;
    set_cold(table, chunk, false);
    chunk->is_fixed = true;
    gm_table_fix_frame(table, chunk->frame, share);
    if (!chunk->is_on_host)
        count_staying(table, chunk->app, 1);
    count_fixed(table, chunk->app, chunk->tier != GM_TIER_GPU, gm_class_bytes(chunk->class));
    list_chunk(table, index);
}

void gm_table_commit_place(const struct gm_table *table, uint32_t index)
{
    const struct gm_chunk *chunk = &table->chunks[index];
    const bool is_in_frame = chunk->tier == GM_TIER_GPU;
    const bool is_leaving = chunk->state == GM_CHUNK_LEAVING;
    const struct gm_ledger_place place = {
        .where = is_leaving                    ? GM_LEDGER_OUT
                 : is_in_frame                 ? GM_LEDGER_IN_FRAME
                 : chunk->tier == GM_TIER_NONE ? GM_LEDGER_NOWHERE
                                               : GM_LEDGER_AT_PAGE,
        .tier = is_in_frame ? GM_TIER_NONE : (enum gm_tier)chunk->tier,
        .index = is_in_frame ? chunk->frame : chunk->page,
        .page = chunk->page,
        .number = GM_LEDGER_NEVER,
        .is_on_host = chunk->is_on_host};
    if (!chunk->is_freed)
        gm_ledger_set_place(&table->ledger, index, &place);
}

/* It leaves its frame, which others may write as soon as copy out number `fence` has ended. */
static void commit_leaving(const struct gm_table *table, const struct gm_chunk *chunk,
                           uint32_t index, uint64_t fence)
{
    const bool has_page = chunk->page != GM_NONE;
    const struct gm_ledger_place place = {.where = fence != 0 ? GM_LEDGER_OUT
                                                   : has_page ? GM_LEDGER_AT_PAGE
                                                              : GM_LEDGER_NOWHERE,
                                          .tier = fence == 0 && has_page ? GM_TIER_PINNED
                                                                         : GM_TIER_NONE,
                                          .index = fence != 0 ? chunk->frame : chunk->page,
                                          .page = chunk->page,
                                          .number = fence,
                                          .is_on_host = chunk->is_on_host};
    if (!chunk->is_freed)
        gm_ledger_set_place(&table->ledger, index, &place);
}

static void count_unmaps(struct gm_table *table, uint32_t app, uint32_t chunks, uint64_t bytes)
{
    gm_app_at(table, app)->unmaps += chunks;
    gm_app_at(table, app)->unmap_bytes += bytes;
    if (table->apps[app].is_silent)
        return;
    table->unmaps += chunks;
    table->unmap_bytes += bytes;
}

/* Turn the chunk; what it waits for then is that its owner maps or unmaps it. */
static bool ask(struct gm_table *table, uint32_t index, enum gm_chunk_event event)
{
    if (!gm_table_turn_chunk(table, index, event))
        return false;
    gm_chunk_at(table, index)->map_pending = true;
    return true;
}

bool gm_table_evict(struct gm_table *table, uint32_t index, uint32_t page)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    if (chunk->shadow == GM_SHADOW_KEPT)
        gm_table_turn_shadow(table, index, GM_SHADOW_EV_CLAIM);
    else if (chunk->shadow == GM_SHADOW_LOST)
        gm_table_turn_shadow(table, index, GM_SHADOW_EV_DROP);
    if (!ask(table, index, GM_CHUNK_EV_EVICT))
        return false;
    chunk->page = page;
    count_unmaps(table, chunk->app, 1, gm_class_bytes(chunk->class));
    return true;
}

bool gm_table_undo(struct gm_table *table, uint32_t index)
{
    table->is_plan_stale = true; /* it has counted on the frame */
    if (!ask(table, index, GM_CHUNK_EV_UNDO))
        return false;
    gm_table_commit_place(table,
                          index); /* the ledger had it as leaving, if an adopted copy out failed */
    return true;
}

bool gm_table_fill(struct gm_table *table, uint32_t index, uint32_t frame)
{
    assert(table->frames[frame].class == table->chunks[index].class &&
           table->frames[frame].pool == table->apps[table->chunks[index].app].pool);
    return ask(table, index, GM_CHUNK_EV_FILL) && gm_table_take_frame(table, frame, index);
}

bool gm_table_clear(struct gm_table *table, uint32_t index, uint32_t page)
{
    if (!gm_table_turn_chunk(table, index, GM_CHUNK_EV_CLEAR))
        return false;
    gm_chunk_at(table, index)->page = page;
    gm_chunk_at(table, index)->copy_pending = true;
    return true;
}

bool gm_table_map(struct gm_table *table, uint32_t index, uint32_t frame)
{
    if (!ask(table, index, GM_CHUNK_EV_MAP) || !gm_table_take_frame(table, frame, index))
        return false;
    gm_chunk_at(table, index)->has_hash = false; /* its app writes there */
    return true;
}

bool gm_table_unmap(struct gm_table *table, uint32_t index)
{
    return ask(table, index, table->chunks[index].is_freed ? GM_CHUNK_EV_FREED : GM_CHUNK_EV_UNMAP);
}

bool gm_table_move(struct gm_table *table, uint32_t index, enum gm_tier to, uint32_t page)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    const uint8_t before = chunk->to_tier;
    chunk->to_tier = (uint8_t)to; /* its new list goes by it */
    if (!gm_table_turn_chunk(table, index, GM_CHUNK_EV_MOVE)) {
        chunk->to_tier = before;
        return false;
    }
    chunk->to_page = page;
    chunk->copy_pending = true;
    return true;
}

void gm_table_begin_copy(struct gm_table *table, uint32_t index)
{
    assert(!gm_chunk_is_still(&table->chunks[index]));
    gm_chunk_at(table, index)->copy_pending = true;
}

void gm_table_end_copy(struct gm_table *table, uint32_t index, bool is_given_up)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    chunk->copy_pending = false;
    chunk->is_given_up = chunk->is_given_up || is_given_up;
}

void gm_table_end_map(struct gm_table *table, uint32_t index, bool is_given_up)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    if (gm_chunk_waits_for_unmap(chunk))
        count_unmaps(table, chunk->app, -1u, -gm_class_bytes(chunk->class));
    chunk->map_pending = false;
    chunk->is_given_up = chunk->is_given_up || is_given_up;
}

void gm_table_map_again(struct gm_table *table, uint32_t index)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    chunk->map_pending = true;
    chunk->copy_pending = chunk->is_given_up = false;
}

bool gm_table_settle(struct gm_table *table, uint32_t index)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    const bool has_failed = chunk->is_given_up;
    assert(!chunk->copy_pending && !chunk->map_pending);
    chunk->is_given_up = false;
    table->has_settled = true;
    table->is_plan_stale = table->is_plan_stale || has_failed || chunk->is_freed;
    if (!gm_table_turn_chunk(table, index, has_failed ? GM_CHUNK_EV_FAIL : GM_CHUNK_EV_DONE))
        return false;
    if (!has_failed)
        gm_table_commit_place(table, index);
    return true;
}

/* Returns the frame. */
static uint32_t leave_frame(struct gm_table *table, uint32_t index, uint64_t fence)
{
    const uint32_t frame = table->chunks[index].frame;
    commit_leaving(table, gm_chunk_at(table, index), index, fence);
    if (fence != 0)
        gm_frame_at(table, frame)->fence = fence;
    return frame;
}

static void end_claim(struct gm_table *table, uint32_t index)
{
    if (table->chunks[index].shadow == GM_SHADOW_CLAIMED)
        gm_table_turn_shadow(table, index, GM_SHADOW_EV_END);
}

void gm_table_leave_frame(struct gm_table *table, uint32_t index, uint64_t fence)
{
    gm_table_free_frame(table, leave_frame(table, index, fence));
    end_claim(table, index);
}

bool gm_table_leave_to_end(struct gm_table *table, uint32_t index, uint64_t fence, uint32_t exit_of)
{
    const bool is_legal = gm_table_condemn_frame(table, leave_frame(table, index, fence), exit_of);
    end_claim(table, index);
    return is_legal;
}

uint32_t gm_table_leave_pages(struct gm_table *table, uint32_t index)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    const uint32_t page = chunk->page;
    if (chunk->shadow != GM_SHADOW_NONE)
        gm_table_turn_shadow(table, index,
                             chunk->shadow == GM_SHADOW_CLAIMED ? GM_SHADOW_EV_END
                                                                : GM_SHADOW_EV_DROP);
    chunk->page = chunk->host_frame = GM_NONE;
    if (chunk->state != GM_CHUNK_MOVING)
        chunk->has_hash = false;
    return page;
}

void gm_table_set_hash(struct gm_table *table, uint32_t index, const uint64_t *hash)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    chunk->has_hash = hash != NULL;
    if (hash)
        memcpy(chunk->hash, hash, sizeof chunk->hash);
}

bool gm_table_keep_shadow(struct gm_table *table, uint32_t index, uint32_t opens)
{
    if (!gm_table_turn_shadow(table, index, GM_SHADOW_EV_KEEP))
        return false;
    gm_chunk_at(table, index)->opens = opens;
    return true;
}

uint32_t gm_table_lose_shadow(struct gm_table *table, uint32_t index)
{
    if (!gm_table_turn_shadow(table, index, GM_SHADOW_EV_LOSE))
        return GM_NONE;
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    const uint32_t page = chunk->page;
    chunk->page = GM_NONE;
    chunk->has_hash = false;
    return page;
}

void gm_table_free_chunk(struct gm_table *table, uint32_t index)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    struct gm_table_app *app = gm_app_at(table, chunk->app);
    if (chunk->is_freed)
        return;
    unlist(table, index);
    chunk->trust = GM_TRUST_WINDOWS;
    set_cold(table, chunk, false);
    chunk->is_freed = true;
    app->chunks--;
    app->missing--;
    gm_allocation_at(table, chunk->allocation)->missing--;
    if (chunk->is_fixed || chunk->is_on_host)
        count_staying(table, chunk->app, -1);
    if (chunk->is_on_host) {
        app->on_host -= gm_class_bytes(chunk->class);
        table->on_host -= gm_class_bytes(chunk->class);
    }
    if (chunk->is_fixed)
        count_fixed(table, chunk->app, chunk->tier != GM_TIER_GPU, -gm_class_bytes(chunk->class));
    count_committed(table, chunk->app, -gm_class_bytes(chunk->class));
}

bool gm_table_end_chunk(struct gm_table *table, uint32_t index)
{
    struct gm_chunk *chunk = gm_chunk_at(table, index);
    assert(chunk->is_freed && chunk->frame == GM_NONE && chunk->shadow == GM_SHADOW_NONE);
    if (!gm_table_turn_chunk(table, index, GM_CHUNK_EV_END))
        return false;
    gm_ledger_end_chunk(&table->ledger, index);
    bool is_last = --gm_allocation_at(table, chunk->allocation)->chunks == 0;
    chunk->next = table->free_chunk;
    chunk->app = GM_NONE;
    table->free_chunk = index;
    table->used_chunks--;
    return is_last;
}
