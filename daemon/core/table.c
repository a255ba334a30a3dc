#include "daemon/core/table.h"

#include <assert.h>
#include <string.h>

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
           round16(sizeof(struct gm_frame) * max_frames);
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
    table->frames = (struct gm_frame *)at;

    table->budget = budget;
    table->max_apps = max_apps;
    table->max_chunks = max_chunks;
    table->max_frames = max_frames;
    for (uint32_t i = max_chunks; i-- > 0;) {
        table->chunks[i].next = i + 1 < max_chunks ? i + 1 : GM_NONE;
        table->allocations[i].next = i + 1 < max_chunks ? i + 1 : GM_NONE;
    }
    for (uint32_t i = max_frames; i-- > 0;)
        table->frames[i].next = i + 1 < max_frames ? i + 1 : GM_NONE;
    table->free_chunk = table->free_allocation = max_chunks ? 0 : GM_NONE;
    table->free_frame = max_frames ? 0 : GM_NONE;
    table->first_condemned = GM_NONE;
    return table;
}

static const struct gm_list empty_list = {GM_NONE, GM_NONE, 0};

/* The pool of `uid`, else an unused one, else GM_NONE. */
static uint32_t find_pool(struct gm_table *table, uint32_t uid)
{
    uint32_t spare = GM_NONE;
    for (uint32_t i = 0; i < table->max_apps; i++) {
        struct gm_pool *pool = &table->pools[i];
        bool is_used = pool->apps > 0 || pool->frames > 0;
        if (is_used && pool->uid == uid)
            return i;
        if (!is_used && spare == GM_NONE)
            spare = i;
    }
    if (spare != GM_NONE) {
        struct gm_pool *pool = &table->pools[spare];
        pool->uid = uid;
        for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++) {
            pool->head[c] = pool->leaving[c] = GM_NONE;
            pool->count[c] = 0;
        }
    }
    return spare;
}

bool gm_table_add_app(struct gm_table *table, uint32_t app, uint32_t uid)
{
    struct gm_table_app *a = &table->apps[app];
    uint32_t pool = find_pool(table, uid);
    assert(app < table->max_apps && !a->is_used);
    if (pool == GM_NONE)
        return false;
    memset(a, 0, sizeof *a);
    a->is_used = true;
    a->pool = pool;
    table->pools[pool].apps++;
    a->allocations = a->shadows = a->to_map = empty_list;
    for (unsigned t = 0; t < GM_TIERS; t++)
        a->away[t] = empty_list;
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++)
        a->by_class[c] = empty_list;
    return true;
}

void gm_table_remove_app(struct gm_table *table, uint32_t app)
{
    struct gm_table_app *a = &table->apps[app];
    assert(a->is_used && a->committed == 0 && a->allocations.count == 0);
    a->is_used = false;
    table->pools[a->pool].apps--;
}

/* Sums of an app, of its user and of all. */

static struct gm_pool *pool_of(struct gm_table *table, uint32_t app)
{
    return &table->pools[table->apps[app].pool];
}

static void count_committed(struct gm_table *table, uint32_t app, uint64_t bytes)
{
    table->apps[app].committed += bytes;
    pool_of(table, app)->committed += bytes;
    table->committed += bytes;
}

static void count_fixed(struct gm_table *table, uint32_t app, uint64_t bytes)
{
    table->apps[app].fixed += bytes;
    pool_of(table, app)->fixed += bytes;
    table->orphaned -= bytes; /* of what `fixed` counts */
}

static void count_fixed_frame(struct gm_table *table, uint64_t bytes)
{
    table->fixed += bytes;
    table->orphaned += bytes; /* but for what apps have of it */
}

static void count_device(struct gm_table *table, uint32_t app, uint64_t bytes)
{
    table->apps[app].device += bytes;
    pool_of(table, app)->device += bytes;
}

static void count_kept(struct gm_table *table, uint32_t app, int chunks)
{
    table->apps[app].kept += (uint32_t)chunks;
    table->kept += (uint32_t)chunks;
}

/* Chunk lists. */

static void list_add_first(struct gm_table *table, struct gm_list *list, uint32_t index)
{
    struct gm_chunk *chunk = &table->chunks[index];
    chunk->prev = GM_NONE;
    chunk->next = list->head;
    if (list->head != GM_NONE)
        table->chunks[list->head].prev = index;
    else
        list->tail = index;
    list->head = index;
    list->count++;
}

static void list_add(struct gm_table *table, struct gm_list *list, uint32_t index)
{
    struct gm_chunk *chunk = &table->chunks[index];
    chunk->next = GM_NONE;
    chunk->prev = list->tail;
    if (list->tail != GM_NONE)
        table->chunks[list->tail].next = index;
    else
        list->head = index;
    list->tail = index;
    list->count++;
}

static void list_remove(struct gm_table *table, struct gm_list *list, uint32_t index)
{
    struct gm_chunk *chunk = &table->chunks[index];
    if (chunk->prev != GM_NONE)
        table->chunks[chunk->prev].next = chunk->next;
    else
        list->head = chunk->next;
    if (chunk->next != GM_NONE)
        table->chunks[chunk->next].prev = chunk->prev;
    else
        list->tail = chunk->prev;
    list->count--;
}

/* Its app can use it: it is on the GPU, or mapped on the host. */
static bool is_settled(const struct gm_chunk *chunk)
{
    return chunk->state == GM_CHUNK_RESIDENT || chunk->state == GM_CHUNK_ON_HOST;
}

/* Take a chunk out of its list and sums, which still count it by its old state. One that is mapped
 * on the host, or fixed, is in the sums only, as it is never evicted. */
static void unlist(struct gm_table *table, uint32_t index)
{
    struct gm_chunk *chunk = &table->chunks[index];
    struct gm_table_app *app = &table->apps[chunk->app];
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
        table->allocations[chunk->allocation].missing++;
    }
    chunk->list = GM_LIST_NONE;
}

/* The tier below the GPU (or none) that a chunk is in or on its way to; GM_TIERS: neither. Planning
 * counts on it there. */
static enum gm_tier away_tier(const struct gm_chunk *chunk)
{
    switch ((enum gm_chunk_state)chunk->state) {
    case GM_CHUNK_AWAY:
        return (enum gm_tier)chunk->tier;
    case GM_CHUNK_LEAVING:
    case GM_CHUNK_UNMAPPING:
        return GM_TIER_PINNED;
    case GM_CHUNK_MOVING:
        return (enum gm_tier)chunk->to_tier;
    default:
        return GM_TIERS;
    }
}

/* Put a chunk, which is in no list, into the list of its state, and update the sums. */
static void list_chunk(struct gm_table *table, uint32_t index)
{
    struct gm_chunk *chunk = &table->chunks[index];
    struct gm_table_app *app = &table->apps[chunk->app];
    const uint64_t size = gm_class_bytes(chunk->class);

    if (chunk->is_freed)
        return;
    if (is_settled(chunk)) {
        chunk->list = GM_LIST_SETTLED;
        if (chunk->state == GM_CHUNK_RESIDENT && !chunk->is_fixed) {
            chunk->list = GM_LIST_RESIDENT;
            if (chunk->shadow == GM_SHADOW_KEPT)
                list_add_first(table, &app->by_class[chunk->class], index);
            else
                list_add(table, &app->by_class[chunk->class], index);
            app->resident += size;
            chunk->is_leaving = chunk->is_on_host;
            app->leaving += chunk->is_leaving ? size : 0;
        }
        app->missing--;
        table->allocations[chunk->allocation].missing--;
        return;
    }
    if (away_tier(chunk) == GM_TIERS)
        return;
    chunk->listed_tier = (uint8_t)away_tier(chunk);
    if (chunk->is_on_host) {
        chunk->list = GM_LIST_TO_MAP;
        list_add(table, &app->to_map, index);
        app->to_map_bytes += chunk->listed_tier != GM_TIER_PINNED ? size : 0;
    } else {
        chunk->list = GM_LIST_AWAY;
        list_add(table, &app->away[chunk->listed_tier], index);
        app->bytes[chunk->listed_tier] += size;
        app->away_count[chunk->class]++;
    }
}

/* ---- states ---- */

/* The state after `event`; GM_TURN_ILLEGAL: that is not legal. on_turn is told of both. */
static uint8_t next_state(const struct gm_table *table, struct gm_turn turn, bool is_possible)
{
    turn.to = is_possible ? gm_model_next((enum gm_model)turn.model, turn.from, turn.event)
                          : GM_TURN_ILLEGAL;
    if (table->on_turn)
        table->on_turn(table->on_turn_arg, &turn);
    return turn.to;
}

static void set_frame(struct gm_table *table, uint32_t frame, enum gm_frame_state state);
static bool turn_frame(struct gm_table *table, uint32_t frame, enum gm_frame_event event);

/* Where the chunk's data and frame are, now that it has left state `from`. */
static void end_move(struct gm_chunk *chunk, enum gm_chunk_state from, bool has_failed)
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
        chunk->tier = chunk->to_tier;
        chunk->page = chunk->to_page;
        chunk->to_page = GM_NONE;
        break;
    case GM_CHUNK_ENDING:
        chunk->tier = GM_TIER_NONE;
        break;
    default:
        break;
    }
}

bool gm_table_turn_chunk(struct gm_table *table, uint32_t index, enum gm_chunk_event event)
{
    struct gm_chunk *chunk = &table->chunks[index];
    const struct gm_turn turn = {.model = GM_MODEL_CHUNK,
                                 .from = chunk->state,
                                 .event = (uint8_t)event,
                                 .id = index,
                                 .app = chunk->app};
    const uint8_t to = next_state(table, turn, true);
    if (to == GM_TURN_ILLEGAL)
        return false;
    unlist(table, index);
    chunk->state = to;
    if (event == GM_CHUNK_EV_DONE || event == GM_CHUNK_EV_FAIL)
        end_move(chunk, (enum gm_chunk_state)turn.from, event == GM_CHUNK_EV_FAIL);
    if (event == GM_CHUNK_EV_UNDO)
        gm_table_take_frame(table, chunk->frame, index);
    if (event == GM_CHUNK_EV_EVICT ||
        (event == GM_CHUNK_EV_FREED && turn.from == GM_CHUNK_RESIDENT && !chunk->is_fixed))
        turn_frame(table, chunk->frame, GM_FRAME_EV_LEAVE);
    list_chunk(table, index);
    return true;
}

/* Shadows. */

/* Whether it can be evicted. */
static bool can_leave(const struct gm_chunk *chunk)
{
    return chunk->state == GM_CHUNK_RESIDENT && !chunk->is_fixed && !chunk->is_freed;
}

/* ... and has pages beside its frame. */
static bool can_have_shadow(const struct gm_chunk *chunk)
{
    return can_leave(chunk) && chunk->page != GM_NONE;
}

static void list_shadow(struct gm_table *table, uint32_t index)
{
    struct gm_chunk *chunk = &table->chunks[index];
    struct gm_table_app *app = &table->apps[chunk->app];
    chunk->prev_shadow = GM_NONE;
    chunk->next_shadow = app->shadows.head;
    if (app->shadows.head != GM_NONE)
        table->chunks[app->shadows.head].prev_shadow = index;
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
    struct gm_table_app *app = &table->apps[chunk->app];
    if (chunk->prev_shadow != GM_NONE)
        table->chunks[chunk->prev_shadow].next_shadow = chunk->next_shadow;
    else
        app->shadows.head = chunk->next_shadow;
    if (chunk->next_shadow != GM_NONE)
        table->chunks[chunk->next_shadow].prev_shadow = chunk->prev_shadow;
    else
        app->shadows.tail = chunk->prev_shadow;
    app->shadows.count--;
    app->shadow_bytes -= gm_class_bytes(chunk->class);
    table->shadows -= gm_class_bytes(chunk->class);
}

bool gm_table_turn_shadow(struct gm_table *table, uint32_t index, enum gm_shadow_event event)
{
    struct gm_chunk *chunk = &table->chunks[index];
    const struct gm_turn turn = {.model = GM_MODEL_SHADOW,
                                 .from = chunk->shadow,
                                 .event = (uint8_t)event,
                                 .id = index,
                                 .app = chunk->app};
    const uint8_t to =
        next_state(table, turn, event != GM_SHADOW_EV_KEEP || can_have_shadow(chunk));
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

void gm_table_put(struct gm_table *table, uint32_t index, bool is_on_host)
{
    struct gm_chunk *chunk = &table->chunks[index];
    const uint64_t size = gm_class_bytes(chunk->class);
    assert(!chunk->is_freed && !chunk->is_fixed);
    if (chunk->is_on_host == is_on_host)
        return;
    unlist(table, index);
    chunk->is_on_host = is_on_host;
    table->apps[chunk->app].on_host += is_on_host ? size : -size;
    table->on_host += is_on_host ? size : -size;
    count_kept(table, chunk->app, is_on_host ? 1 : -1);
    list_chunk(table, index);
}

void gm_table_set_beyond(struct gm_table *table, uint32_t app, uint64_t bytes)
{
    const uint64_t more = bytes - table->apps[app].beyond;
    table->apps[app].beyond += more;
    pool_of(table, app)->beyond += more;
    table->beyond += more;
}

bool gm_table_can_fix(const struct gm_table *table, uint32_t index)
{
    const struct gm_allocation *allocation = &table->allocations[index];
    return !allocation->is_freed && !allocation->is_pending && allocation->missing == 0;
}

void gm_table_fix(struct gm_table *table, uint32_t index, uint32_t share)
{
    const struct gm_allocation *allocation = &table->allocations[index];
    assert(gm_table_can_fix(table, index) && share != 0);
    for (uint32_t c = allocation->first; c != GM_NONE; c = table->chunks[c].sibling) {
        struct gm_chunk *chunk = &table->chunks[c];
        struct gm_frame *frame = &table->frames[chunk->frame];
        assert(is_settled(chunk) && !chunk->is_fixed);
        unlist(table, c);
        chunk->is_fixed = true;
        frame->share = share;
        if (!chunk->is_on_host)
            count_kept(table, chunk->app, 1);
        if (chunk->tier == GM_TIER_GPU) {
            count_fixed(table, chunk->app, gm_class_bytes(chunk->class));
            count_fixed_frame(table, gm_class_bytes(chunk->class));
        }
        list_chunk(table, c);
    }
}

static void unfix(struct gm_table *table, struct gm_frame *frame)
{
    if (frame->share != 0 && !frame->is_host)
        count_fixed_frame(table, -gm_class_bytes(frame->class));
    frame->share = 0;
}

uint32_t gm_table_add_allocation(struct gm_table *table, uint32_t app, uint64_t va, uint64_t bytes)
{
    uint64_t count = gm_chunk_count(bytes);
    uint32_t index = table->free_allocation;
    if (index == GM_NONE || count > table->max_chunks - table->used_chunks)
        return GM_NONE;

    struct gm_allocation *allocation = &table->allocations[index];
    struct gm_table_app *a = &table->apps[app];
    table->free_allocation = allocation->next;
    memset(allocation, 0, sizeof *allocation);
    allocation->va = va;
    allocation->bytes = bytes;
    allocation->app = app;
    allocation->chunks = allocation->missing = (uint32_t)count;
    allocation->next = a->allocations.head;
    allocation->prev = GM_NONE;
    if (a->allocations.head != GM_NONE)
        table->allocations[a->allocations.head].prev = index;
    a->allocations.head = index;
    a->allocations.count++;

    uint32_t *link = &allocation->first;
    for (uint64_t left = bytes, at = va; left > 0;) {
        uint32_t c = table->free_chunk;
        struct gm_chunk *chunk = &table->chunks[c];
        table->free_chunk = chunk->next;
        table->used_chunks++;
        memset(chunk, 0, sizeof *chunk);
        chunk->va = at;
        chunk->app = app;
        chunk->allocation = index;
        chunk->frame = chunk->page = chunk->host_frame = chunk->to_page = GM_NONE;
        chunk->sibling = chunk->next_shadow = chunk->prev_shadow = GM_NONE;
        chunk->class = (uint8_t)gm_chunk_next(left);
        *link = c;
        link = &chunk->sibling;
        a->chunks++;
        a->missing++;
        gm_table_turn_chunk(table, c, GM_CHUNK_EV_ADD);
        at += gm_class_bytes(chunk->class);
        left -= gm_class_bytes(chunk->class);
    }
    count_committed(table, app, bytes);
    return index;
}

uint32_t gm_table_find_allocation(const struct gm_table *table, uint32_t app, uint64_t va)
{
    for (uint32_t i = table->apps[app].allocations.head; i != GM_NONE;
         i = table->allocations[i].next)
        if (table->allocations[i].va == va && !table->allocations[i].is_freed)
            return i;
    return GM_NONE;
}

void gm_table_free_chunk(struct gm_table *table, uint32_t index)
{
    struct gm_chunk *chunk = &table->chunks[index];
    struct gm_table_app *app = &table->apps[chunk->app];
    if (chunk->is_freed)
        return;
    unlist(table, index);
    chunk->is_freed = true;
    app->chunks--;
    app->missing--;
    table->allocations[chunk->allocation].missing--;
    count_committed(table, chunk->app, -gm_class_bytes(chunk->class));
    if (chunk->is_fixed || chunk->is_on_host)
        count_kept(table, chunk->app, -1);
    if (chunk->is_on_host) {
        app->on_host -= gm_class_bytes(chunk->class);
        table->on_host -= gm_class_bytes(chunk->class);
    }
    if (chunk->is_fixed && chunk->tier == GM_TIER_GPU)
        count_fixed(table, chunk->app, -gm_class_bytes(chunk->class));
}

bool gm_table_end_chunk(struct gm_table *table, uint32_t index)
{
    struct gm_chunk *chunk = &table->chunks[index];
    assert(chunk->is_freed && chunk->frame == GM_NONE && chunk->shadow == GM_SHADOW_NONE);
    if (!gm_table_turn_chunk(table, index, GM_CHUNK_EV_END))
        return false;
    bool is_last = --table->allocations[chunk->allocation].chunks == 0;
    chunk->next = table->free_chunk;
    chunk->app = GM_NONE;
    table->free_chunk = index;
    table->used_chunks--;
    return is_last;
}

void gm_table_end_allocation(struct gm_table *table, uint32_t index)
{
    struct gm_allocation *allocation = &table->allocations[index];
    struct gm_table_app *app = &table->apps[allocation->app];
    assert(allocation->chunks == 0);
    if (allocation->prev != GM_NONE)
        table->allocations[allocation->prev].next = allocation->next;
    else
        app->allocations.head = allocation->next;
    if (allocation->next != GM_NONE)
        table->allocations[allocation->next].prev = allocation->prev;
    app->allocations.count--;
    allocation->app = GM_NONE;
    allocation->next = table->free_allocation;
    table->free_allocation = index;
}

/* Frames. */

static uint32_t new_frame(struct gm_table *table, uint32_t pool, unsigned class, bool is_host)
{
    uint32_t index = table->free_frame;
    if (index == GM_NONE)
        return GM_NONE;
    struct gm_frame *frame = &table->frames[index];
    table->free_frame = frame->next;
    memset(frame, 0, sizeof *frame);
    frame->chunk = frame->next = frame->prev = frame->page = frame->exit_of = GM_NONE;
    frame->pool = pool;
    frame->class = (uint8_t) class;
    frame->is_host = is_host;
    table->pools[pool].frames++;
    turn_frame(table, index, GM_FRAME_EV_MAKE);
    return index;
}

uint32_t gm_table_add_frame(struct gm_table *table, uint32_t pool, unsigned class)
{
    uint32_t index = GM_NONE;
    if (gm_class_bytes(class) <= table->budget - table->allocated)
        index = new_frame(table, pool, class, false);
    if (index != GM_NONE)
        table->allocated += gm_class_bytes(class);
    return index;
}

uint32_t gm_table_add_host_frame(struct gm_table *table, uint32_t index)
{
    const struct gm_chunk *chunk = &table->chunks[index];
    const uint32_t frame = new_frame(table, table->apps[chunk->app].pool, chunk->class, true);
    if (frame != GM_NONE)
        table->frames[frame].page = chunk->page;
    return frame;
}

/* The list that a frame is in by its state; NULL: in none. */
static uint32_t *frame_list(struct gm_table *table, const struct gm_frame *frame)
{
    struct gm_pool *pool = &table->pools[frame->pool];
    if (frame->state == GM_FRAME_CONDEMNED)
        return &table->first_condemned;
    if (frame->state == GM_FRAME_FREE)
        return &pool->head[frame->class];
    return frame->state == GM_FRAME_LEAVING ? &pool->leaving[frame->class] : NULL;
}

/* What of it counts as `ending`. */
static uint64_t ending_bytes(const struct gm_frame *frame)
{
    const bool is_ending = !frame->is_host && frame->state == GM_FRAME_CONDEMNED &&
                           frame->exit_of == GM_NONE && frame->silent == 0;
    return is_ending ? gm_class_bytes(frame->class) : 0;
}

/* The sum that counts a frame on the GPU by its state; NULL: none does. */
static uint64_t *sum_of(struct gm_table *table, const struct gm_frame *frame)
{
    if (frame->is_host)
        return NULL;
    if (frame->state == GM_FRAME_FREE)
        return &table->free;
    return frame->state == GM_FRAME_CONDEMNED ? &table->condemned : NULL;
}

/* Keeps the lists, their count and the sums. */
static void set_frame(struct gm_table *table, uint32_t index, enum gm_frame_state state)
{
    struct gm_frame *frame = &table->frames[index];
    uint32_t *list = frame_list(table, frame);
    if (list) {
        if (frame->prev != GM_NONE)
            table->frames[frame->prev].next = frame->next;
        else
            *list = frame->next;
        if (frame->next != GM_NONE)
            table->frames[frame->next].prev = frame->prev;
    }
    if (frame->state == GM_FRAME_FREE) {
        table->pools[frame->pool].count[frame->class]--;
        table->dirty -= frame->is_dirty;
    }
    if (sum_of(table, frame))
        *sum_of(table, frame) -= gm_class_bytes(frame->class);
    table->ending -= ending_bytes(frame);
    frame->state = (uint8_t)state;
    table->ending += ending_bytes(frame);
    if (sum_of(table, frame))
        *sum_of(table, frame) += gm_class_bytes(frame->class);
    if (state == GM_FRAME_FREE) {
        table->pools[frame->pool].count[frame->class]++;
        table->dirty += frame->is_dirty;
    }
    list = frame_list(table, frame);
    if (list) {
        frame->prev = GM_NONE;
        frame->next = *list;
        if (frame->next != GM_NONE)
            table->frames[frame->next].prev = index;
        *list = index;
    }
}

/* The one setter of a frame's state. False: the event is not legal in it. */
static bool turn_frame(struct gm_table *table, uint32_t index, enum gm_frame_event event)
{
    const struct gm_frame *frame = &table->frames[index];
    const struct gm_turn turn = {.model = GM_MODEL_FRAME,
                                 .from = frame->state,
                                 .event = (uint8_t)event,
                                 .id = index,
                                 .app = frame->chunk == GM_NONE ? GM_NONE
                                                                : table->chunks[frame->chunk].app};
    const bool is_possible = (event != GM_FRAME_EV_GIVE || frame->share == 0) &&
                             (event != GM_FRAME_EV_ORPHAN || frame->share != 0);
    const uint8_t to = next_state(table, turn, is_possible);
    if (to == GM_TURN_ILLEGAL)
        return false;
    if (to != turn.from)
        set_frame(table, index, (enum gm_frame_state)to);
    return true;
}

/* Its chunk has it no more. A host frame takes the pages along. */
static void leave_chunk(struct gm_table *table, uint32_t index)
{
    struct gm_frame *frame = &table->frames[index];
    if (frame->chunk == GM_NONE)
        return;
    struct gm_chunk *chunk = &table->chunks[frame->chunk];
    if (!frame->is_host)
        count_device(table, chunk->app, -gm_class_bytes(frame->class));
    if (chunk->frame == index)
        chunk->frame = GM_NONE;
    if (chunk->host_frame == index)
        chunk->host_frame = chunk->page = GM_NONE;
    frame->chunk = GM_NONE;
}

void gm_table_end_frame(struct gm_table *table, uint32_t index)
{
    struct gm_frame *frame = &table->frames[index];
    if (!turn_frame(table, index, GM_FRAME_EV_END))
        return;
    unfix(table, frame);
    if (!frame->is_host)
        table->allocated -= gm_class_bytes(frame->class);
    table->pools[frame->pool].frames--;
    frame->next = table->free_frame;
    table->free_frame = index;
}

bool gm_table_free_frame(struct gm_table *table, uint32_t index)
{
    if (!turn_frame(table, index, GM_FRAME_EV_GIVE))
        return false;
    leave_chunk(table, index);
    return true;
}

void gm_table_clean_frame(struct gm_table *table, uint32_t index, uint64_t clear)
{
    struct gm_frame *frame = &table->frames[index];
    if (!turn_frame(table, index, GM_FRAME_EV_CLEAN))
        return;
    table->dirty -= frame->is_dirty;
    frame->is_dirty = false;
    frame->clear = clear;
}

void gm_table_soil_frame(struct gm_table *table, uint32_t index)
{
    struct gm_frame *frame = &table->frames[index];
    if (!turn_frame(table, index, GM_FRAME_EV_SOIL))
        return;
    table->dirty += !frame->is_dirty;
    frame->is_dirty = true;
}

void gm_table_orphan_frame(struct gm_table *table, uint32_t index)
{
    if (turn_frame(table, index, GM_FRAME_EV_ORPHAN))
        leave_chunk(table, index);
}

bool gm_table_take_frame(struct gm_table *table, uint32_t index, uint32_t chunk)
{
    struct gm_frame *frame = &table->frames[index];
    if (!turn_frame(table, index, GM_FRAME_EV_TAKE))
        return false;
    leave_chunk(table, index);
    frame->chunk = chunk;
    frame->is_dirty = true;
    table->chunks[chunk].frame = index;
    if (frame->is_host) {
        table->chunks[chunk].host_frame = index;
        table->chunks[chunk].page = frame->page;
    } else {
        count_device(table, table->chunks[chunk].app, gm_class_bytes(frame->class));
    }
    return true;
}

bool gm_table_condemn_frame(struct gm_table *table, uint32_t index, uint32_t exit_of)
{
    struct gm_frame *frame = &table->frames[index];
    if (!turn_frame(table, index, GM_FRAME_EV_CONDEMN))
        return false;
    unfix(table, frame);
    leave_chunk(table, index);
    table->ending -= ending_bytes(frame);
    frame->exit_of = exit_of;
    table->ending += ending_bytes(frame);
    return true;
}

void gm_table_release_frames(struct gm_table *table, uint32_t app)
{
    for (uint32_t i = table->first_condemned; i != GM_NONE; i = table->frames[i].next) {
        struct gm_frame *frame = &table->frames[i];
        if (frame->exit_of != app)
            continue;
        frame->exit_of = GM_NONE;
        table->ending += ending_bytes(frame);
    }
}

void gm_table_count_drops(struct gm_table *table, uint32_t index, int drops, int silent)
{
    struct gm_frame *frame = &table->frames[index];
    assert(frame->state == GM_FRAME_CONDEMNED);
    table->ending -= ending_bytes(frame);
    frame->drops += (uint32_t)drops;
    frame->silent += (uint32_t)silent;
    assert(frame->silent <= frame->drops);
    table->ending += ending_bytes(frame);
}

void gm_table_destroy_frame(struct gm_table *table, uint32_t index)
{
    assert(table->frames[index].state == GM_FRAME_CONDEMNED);
    table->frames[index].is_destroyed = true;
}

static bool are_pools_right(const struct gm_table *table)
{
    for (uint32_t i = 0; i < table->max_apps; i++) {
        struct gm_pool left = table->pools[i];
        for (uint32_t a = 0; a < table->max_apps; a++) {
            const struct gm_table_app *app = &table->apps[a];
            if (!app->is_used || app->pool != i)
                continue;
            left.committed -= app->committed;
            left.beyond -= app->beyond;
            left.fixed -= app->fixed;
            left.device -= app->device;
        }
        if ((left.committed | left.beyond | left.fixed | left.device) != 0)
            return false;
    }
    return true;
}

const char *gm_table_check(const struct gm_table *table)
{
    uint64_t allocated = 0, committed = 0, all_fixed = 0, free = 0, condemned = 0, ending = 0,
             shadows = 0, lost = 0, device = 0;
    uint32_t dirty = 0;
    for (uint32_t i = 0; i < table->max_frames; i++) {
        const struct gm_frame *frame = &table->frames[i];
        if (frame->state == GM_FRAME_UNUSED)
            continue;
        if (!frame->is_host)
            allocated += gm_class_bytes(frame->class);
        dirty += frame->state == GM_FRAME_FREE && frame->is_dirty;
        if (!frame->is_host && frame->state == GM_FRAME_FREE)
            free += gm_class_bytes(frame->class);
        if (!frame->is_host && frame->state == GM_FRAME_CONDEMNED)
            condemned += gm_class_bytes(frame->class);
        ending += ending_bytes(frame);
        if (frame->silent > frame->drops ||
            (frame->state != GM_FRAME_CONDEMNED && (frame->drops > 0 || frame->exit_of != GM_NONE)))
            return "a frame waits to end that is not condemned";
        if (frame->share != 0 && frame->state != GM_FRAME_USED)
            return "a fixed frame is not in use";
        if (frame->share != 0 && !frame->is_host)
            all_fixed += gm_class_bytes(frame->class);
        if ((frame->state == GM_FRAME_USED || frame->state == GM_FRAME_LEAVING) &&
            frame->chunk != GM_NONE) {
            const struct gm_chunk *chunk = &table->chunks[frame->chunk];
            device += frame->is_host ? 0 : gm_class_bytes(frame->class);
            if (chunk->frame != i && !frame->is_host)
                return "a used frame's chunk does not hold it";
            if (frame->is_host && (chunk->host_frame != i || chunk->page != frame->page))
                return "the pages of a chunk are not those of its host frame";
            if (chunk->class != frame->class)
                return "a chunk and its frame differ in size";
            if (!chunk->is_freed && table->apps[chunk->app].pool != frame->pool)
                return "a frame serves an app of another user";
        }
    }
    if (allocated != table->allocated)
        return "allocated bytes are not those of the frames";
    if (dirty != table->dirty)
        return "dirty free frames are not counted right";
    if (free != table->free || condemned != table->condemned || ending != table->ending)
        return "free, condemned or ending bytes are not those of the frames";
    if (all_fixed != table->fixed)
        return "fixed bytes are not those of the frames";
    uint64_t orphaned = all_fixed;
    uint32_t all_kept = 0;
    if (allocated > table->budget)
        return "the frames exceed the budget";
    for (uint32_t a = 0; a < table->max_apps; a++) {
        const struct gm_table_app *app = &table->apps[a];
        uint64_t bytes = 0, resident = 0, on_host = 0, leaving = 0, fixed = 0;
        uint32_t missing = 0, kept = 0;
        if (!app->is_used)
            continue;
        for (uint32_t i = app->allocations.head; i != GM_NONE; i = table->allocations[i].next) {
            if (table->allocations[i].is_freed)
                continue;
            for (uint32_t c = table->allocations[i].first; c != GM_NONE;
                 c = table->chunks[c].sibling) {
                const struct gm_chunk *chunk = &table->chunks[c];
                bytes += gm_class_bytes(chunk->class);
                on_host += chunk->is_on_host ? gm_class_bytes(chunk->class) : 0;
                kept += chunk->is_fixed || chunk->is_on_host;
                fixed += chunk->is_fixed && chunk->tier == GM_TIER_GPU
                             ? gm_class_bytes(chunk->class)
                             : 0;
                if (chunk->is_fixed &&
                    (!is_settled(chunk) || table->frames[chunk->frame].share == 0))
                    return "a fixed chunk is not in a fixed frame";
                if (is_settled(chunk)) {
                    const bool is_resident = chunk->state == GM_CHUNK_RESIDENT;
                    if (is_resident && !chunk->is_fixed) {
                        resident += gm_class_bytes(chunk->class);
                        leaving += chunk->is_on_host ? gm_class_bytes(chunk->class) : 0;
                    }
                    if (chunk->frame == GM_NONE || table->frames[chunk->frame].chunk != c)
                        return "a chunk on the GPU has no frame";
                    if (table->frames[chunk->frame].is_host == is_resident)
                        return "a resident chunk is in a host frame, or the other way round";
                } else {
                    missing++;
                }
                if (chunk->shadow == GM_SHADOW_KEPT && !can_have_shadow(chunk))
                    return "a shadow is kept of a chunk that cannot be evicted";
                if (chunk->shadow == GM_SHADOW_LOST && !can_leave(chunk))
                    return "a shadow is lost of a chunk that cannot be evicted";
                lost += chunk->shadow == GM_SHADOW_LOST ? gm_class_bytes(chunk->class) : 0;
                if (chunk->shadow == GM_SHADOW_CLAIMED &&
                    (chunk->state != GM_CHUNK_LEAVING || chunk->page == GM_NONE))
                    return "a shadow is claimed by no eviction";
                if (chunk->tier > GM_TIER_GPU && chunk->page == GM_NONE)
                    return "a chunk below the GPU has no page";
            }
        }
        uint64_t shadow_bytes = 0;
        uint32_t n_shadows = 0, before = GM_NONE;
        for (uint32_t c = app->shadows.head; c != GM_NONE; c = table->chunks[c].next_shadow) {
            if (table->chunks[c].app != a || table->chunks[c].shadow != GM_SHADOW_KEPT ||
                table->chunks[c].prev_shadow != before)
                return "an app's list of shadows is broken";
            shadow_bytes += gm_class_bytes(table->chunks[c].class);
            n_shadows++;
            before = c;
        }
        if (before != app->shadows.tail || n_shadows != app->shadows.count ||
            shadow_bytes != app->shadow_bytes)
            return "an app's shadows are not counted right";
        shadows += shadow_bytes;
        if (bytes != app->committed)
            return "an app's committed bytes are not those of its chunks";
        if (on_host != app->on_host || leaving != app->leaving)
            return "an app's bytes on the host are not those of its chunks";
        orphaned -= fixed;
        all_kept += app->kept;
        if (kept != app->kept)
            return "an app's chunks that keep their frames are not counted right";
        if (fixed != app->fixed)
            return "an app's fixed bytes are not those of its chunks";
        if (resident != app->resident)
            return "an app's resident bytes are not those of its chunks";
        if (missing != app->missing)
            return "an app's missing chunks are not counted right";
        committed += bytes;
        device -= app->device;
    }
    if (orphaned != table->orphaned || all_kept != table->kept)
        return "what keeps its frames is not counted right";
    if (device != 0)
        return "the apps' bytes of frames are not those of the frames";
    if (lost != table->lost)
        return "the bytes of lost shadows are not those of the chunks";
    if (shadows != table->shadows)
        return "the bytes of shadows are not those of the apps";
    if (committed != table->committed)
        return "the committed bytes are not those of the apps";
    return are_pools_right(table) ? NULL : "a user's bytes are not those of its apps";
}
