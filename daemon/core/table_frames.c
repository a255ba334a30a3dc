/*
 * Frames and pools: see table.h. Frames are in one list each by their state: free and leaving ones
 * in those of their pool, condemned ones in one for all.
 */
#include "daemon/core/table_frames.h"

#include <assert.h>
#include <string.h>

#include "daemon/core/table_write.h"

/* The pool of `uid`, else an unused one, else GM_NONE. */
uint32_t gm_table_find_pool(struct gm_table *table, uint32_t uid)
{
    uint32_t spare = GM_NONE;
    for (uint32_t i = 0; i < table->max_apps; i++) {
        struct gm_pool *pool = gm_pool_at(table, i);
        bool is_used = pool->apps > 0 || pool->frames > 0;
        if (is_used && pool->uid == uid)
            return i;
        if (!is_used && spare == GM_NONE)
            spare = i;
    }
    if (spare != GM_NONE) {
        struct gm_pool *pool = gm_pool_at(table, spare);
        pool->uid = uid;
        for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++) {
            pool->head[c] = pool->leaving[c] = GM_NONE;
            pool->count[c] = 0;
        }
    }
    return spare;
}

static void count_fixed(struct gm_table *table, const struct gm_frame *frame, uint64_t bytes)
{
    if (frame->share == 0)
        return;
    if (frame->is_host) {
        table->orphaned_on_host += bytes; /* but for what apps have of it */
        return;
    }
    table->fixed += bytes;
    table->orphaned += bytes; /* likewise */
}

void gm_table_commit_frame(const struct gm_table *table, uint32_t index)
{
    const struct gm_frame *frame = &table->frames[index];
    gm_ledger_set_frame(
        &table->ledger, index,
        &(struct gm_ledger_frame){.share = frame->share,
                                  .page = frame->page,
                                  .uid = table->pools[frame->pool].uid,
                                  .mapper = frame->mapper,
                                  .class = frame->class,
                                  .is_host = frame->is_host,
                                  .is_condemned = frame->state == GM_FRAME_CONDEMNED});
}

void gm_table_fix_frame(struct gm_table *table, uint32_t index, uint32_t share)
{
    struct gm_frame *frame = gm_frame_at(table, index);
    frame->share = share;
    count_fixed(table, frame, gm_class_bytes(frame->class));
    gm_table_commit_frame(table, index);
}

static void set_mapper(struct gm_table *table, uint32_t index, uint32_t app)
{
    struct gm_frame *frame = gm_frame_at(table, index);
    if (frame->mapper == app)
        return;
    frame->mapper = app;
    gm_table_commit_frame(table, index);
}

static void unfix(struct gm_table *table, struct gm_frame *frame)
{
    count_fixed(table, frame, -gm_class_bytes(frame->class));
    frame->share = 0;
}

/* The list that a frame is in by its state; NULL: in none. */
static uint32_t *frame_list(struct gm_table *table, const struct gm_frame *frame)
{
    struct gm_pool *pool = gm_pool_at(table, frame->pool);
    if (frame->state == GM_FRAME_CONDEMNED)
        return &table->first_condemned;
    if (frame->state == GM_FRAME_FREE)
        return &pool->head[frame->class];
    return frame->state == GM_FRAME_LEAVING ? &pool->leaving[frame->class] : NULL;
}

/* The sum that counts a frame by its state; NULL: none does. */
static uint64_t *sum_of(struct gm_table *table, const struct gm_frame *frame)
{
    if (frame->state == GM_FRAME_CONDEMNED)
        return frame->is_host ? &table->condemned_on_host : &table->condemned;
    return frame->state == GM_FRAME_FREE && !frame->is_host ? &table->free : NULL;
}

/* Keeps the lists, their count and the sums. */
static void set_frame(struct gm_table *table, uint32_t index, enum gm_frame_state state)
{
    struct gm_frame *frame = gm_frame_at(table, index);
    uint32_t *list = frame_list(table, frame);
    if (list) {
        if (frame->prev != GM_NONE)
            gm_frame_at(table, frame->prev)->next = frame->next;
        else
            *list = frame->next;
        if (frame->next != GM_NONE)
            gm_frame_at(table, frame->next)->prev = frame->prev;
    }
    if (frame->state == GM_FRAME_FREE) {
        gm_pool_at(table, frame->pool)->count[frame->class]--;
        table->dirty -= frame->is_dirty;
    }
    if (sum_of(table, frame))
        *sum_of(table, frame) -= gm_class_bytes(frame->class);
    table->ending -= gm_frame_ending(frame);
    frame->state = (uint8_t)state;
    table->ending += gm_frame_ending(frame);
    if (sum_of(table, frame))
        *sum_of(table, frame) += gm_class_bytes(frame->class);
    if (state == GM_FRAME_FREE) {
        gm_pool_at(table, frame->pool)->count[frame->class]++;
        table->dirty += frame->is_dirty;
    }
    list = frame_list(table, frame);
    if (list) {
        frame->prev = GM_NONE;
        frame->next = *list;
        if (frame->next != GM_NONE)
            gm_frame_at(table, frame->next)->prev = index;
        *list = index;
    }
}

/* The one setter of a frame's state. False: the event is not legal in it. */
bool gm_table_turn_frame(struct gm_table *table, uint32_t index, enum gm_frame_event event)
{
    const struct gm_frame *frame = &table->frames[index];
    const struct gm_turn turn = {.model = GM_MODEL_FRAME,
                                 .from = frame->state,
                                 .event = (uint8_t)event,
                                 .id = index,
                                 .app = frame->chunk == GM_NONE ? GM_NONE
                                                                : table->chunks[frame->chunk].app};
    const bool is_possible =
        (event != GM_FRAME_EV_GIVE || frame->share == 0) &&
        (event != GM_FRAME_EV_ORPHAN || frame->share != 0 || gm_table_is_awaited(table, index));
    const uint8_t to = gm_table_next(table, turn, is_possible);
    if (to == GM_TURN_ILLEGAL)
        return false;
    if (to != turn.from)
        set_frame(table, index, (enum gm_frame_state)to);
    return true;
}

static uint32_t new_frame(struct gm_table *table, uint32_t pool, unsigned class, bool is_host)
{
    uint32_t index = table->free_frame;
    if (index == GM_NONE)
        return GM_NONE;
    struct gm_frame *frame = gm_frame_at(table, index);
    table->free_frame = frame->next;
    memset(frame, 0, sizeof *frame);
    frame->chunk = frame->next = frame->prev = frame->page = frame->exit_of = GM_NONE;
    frame->mapper = GM_NONE;
    frame->pool = pool;
    frame->class = (uint8_t) class;
    frame->is_host = is_host;
    gm_pool_at(table, pool)->frames++;
    gm_table_turn_frame(table, index, GM_FRAME_EV_MAKE);
    return index;
}

uint32_t gm_table_add_frame(struct gm_table *table, uint32_t pool, unsigned class)
{
    uint32_t index = GM_NONE;
    if (gm_class_bytes(class) <= table->budget - table->allocated)
        index = new_frame(table, pool, class, false);
    if (index == GM_NONE)
        return GM_NONE;
    table->allocated += gm_class_bytes(class);
    gm_table_commit_frame(table, index);
    return index;
}

bool gm_table_adopt_frame(struct gm_table *table, uint32_t slot, const struct gm_ledger_frame *is)
{
    const uint32_t pool = gm_table_find_pool(table, is->uid);
    if (pool == GM_NONE)
        return false;
    table->free_frame = slot;
    new_frame(table, pool, is->class, is->is_host);
    gm_frame_at(table, slot)->page = is->page;
    gm_frame_at(table, slot)->is_dirty = true;
    if (is->mapper != GM_NONE && table->apps[is->mapper].is_used)
        gm_frame_at(table, slot)->mapper = is->mapper;
    table->allocated += is->is_host ? 0 : gm_class_bytes(is->class);
    table->budget = table->budget > table->allocated ? table->budget : table->allocated;
    gm_table_commit_frame(table, slot);
    return true;
}

uint32_t gm_table_add_host_frame(struct gm_table *table, uint32_t index)
{
    const struct gm_chunk *chunk = &table->chunks[index];
    const uint32_t frame = new_frame(table, table->apps[chunk->app].pool, chunk->class, true);
    if (frame == GM_NONE)
        return GM_NONE;
    gm_frame_at(table, frame)->page = chunk->page;
    gm_table_commit_frame(table, frame);
    return frame;
}

static void count_device(struct gm_table *table, uint32_t app, uint64_t bytes)
{
    gm_app_at(table, app)->device += bytes;
    gm_pool_at(table, table->apps[app].pool)->device += bytes;
}

/* Its chunk has it no more. A host frame takes the pages along. */
static void leave_chunk(struct gm_table *table, uint32_t index)
{
    struct gm_frame *frame = gm_frame_at(table, index);
    if (frame->chunk == GM_NONE)
        return;
    struct gm_chunk *chunk = gm_chunk_at(table, frame->chunk);
    if (!frame->is_host)
        count_device(table, chunk->app, -gm_class_bytes(frame->class));
    if (chunk->frame == index)
        chunk->frame = GM_NONE;
    if (chunk->host_frame == index)
        chunk->host_frame = chunk->page = GM_NONE;
    frame->chunk = GM_NONE;
}

bool gm_table_take_frame(struct gm_table *table, uint32_t index, uint32_t chunk)
{
    struct gm_frame *frame = gm_frame_at(table, index);
    if (!gm_table_turn_frame(table, index, GM_FRAME_EV_TAKE))
        return false;
    leave_chunk(table, index);
    frame->chunk = chunk;
    frame->is_dirty = true;
    gm_chunk_at(table, chunk)->frame = index;
    if (frame->is_host) {
        gm_chunk_at(table, chunk)->host_frame = index;
        gm_chunk_at(table, chunk)->page = frame->page;
    } else {
        count_device(table, table->chunks[chunk].app, gm_class_bytes(frame->class));
        set_mapper(table, index, table->chunks[chunk].app);
    }
    return true;
}

bool gm_table_free_frame(struct gm_table *table, uint32_t index)
{
    if (gm_table_is_awaited(table, index)) {
        gm_table_orphan_frame(table, index);
        return true;
    }
    if (!gm_table_turn_frame(table, index, GM_FRAME_EV_GIVE))
        return false;
    leave_chunk(table, index);
    set_mapper(table, index, GM_NONE);
    return true;
}

void gm_table_set_lost(struct gm_table *table, uint32_t app, bool is_lost)
{
    gm_app_at(table, app)->is_lost = is_lost;
    for (uint32_t i = 0; i < table->max_frames && !is_lost; i++)
        if (table->frames[i].state == GM_FRAME_USED && table->frames[i].chunk == GM_NONE &&
            table->frames[i].share == 0 && table->frames[i].mapper == app)
            gm_table_free_frame(table, i);
    table->is_plan_stale = true;
}

void gm_table_clean_frame(struct gm_table *table, uint32_t index, uint64_t clear)
{
    struct gm_frame *frame = gm_frame_at(table, index);
    if (!gm_table_turn_frame(table, index, GM_FRAME_EV_CLEAN))
        return;
    table->dirty -= frame->is_dirty;
    frame->is_dirty = false;
    frame->clear = clear;
}

void gm_table_soil_frame(struct gm_table *table, uint32_t index)
{
    struct gm_frame *frame = gm_frame_at(table, index);
    if (!gm_table_turn_frame(table, index, GM_FRAME_EV_SOIL))
        return;
    table->dirty += !frame->is_dirty;
    frame->is_dirty = true;
}

void gm_table_orphan_frame(struct gm_table *table, uint32_t index)
{
    if (gm_table_turn_frame(table, index, GM_FRAME_EV_ORPHAN))
        leave_chunk(table, index);
}

bool gm_table_condemn_frame(struct gm_table *table, uint32_t index, uint32_t exit_of)
{
    struct gm_frame *frame = gm_frame_at(table, index);
    if (!gm_table_turn_frame(table, index, GM_FRAME_EV_CONDEMN))
        return false;
    unfix(table, frame);
    leave_chunk(table, index);
    table->ending -= gm_frame_ending(frame);
    frame->exit_of = exit_of;
    table->ending += gm_frame_ending(frame);
    gm_table_commit_frame(table, index);
    table->is_plan_stale = true; /* it may have counted on a free one */
    return true;
}

void gm_table_keep_frame(struct gm_table *table, uint32_t index, bool is_sure)
{
    struct gm_frame *frame = gm_frame_at(table, index);
    const bool is_mapped = frame->mapper != GM_NONE && table->apps[frame->mapper].is_lost;
    const bool is_stuck = frame->silent > 0 && frame->silent >= frame->drops;
    if (frame->state != GM_FRAME_CONDEMNED || frame->is_host || frame->is_destroyed || is_mapped ||
        frame->exit_of != GM_NONE || ((!is_sure || frame->is_unsure) && !is_stuck) ||
        !gm_table_turn_frame(table, index, GM_FRAME_EV_KEEP))
        return;
    frame->drops = frame->silent = 0;
    frame->is_unsure = false;
    frame->mapper = GM_NONE;
    gm_table_commit_frame(table, index);
    table->is_plan_stale = true;
}

void gm_table_hand_frame(struct gm_table *table, uint32_t index, uint32_t exit_of, bool is_sure)
{
    struct gm_frame *frame = gm_frame_at(table, index);
    assert(frame->state == GM_FRAME_CONDEMNED && frame->exit_of != GM_NONE && exit_of != GM_NONE);
    frame->exit_of = exit_of;
    frame->is_unsure = frame->is_unsure || !is_sure;
}

void gm_table_release_frames(struct gm_table *table, uint32_t app, bool has_ended, bool is_sure)
{
    for (uint32_t i = table->first_condemned, next; i != GM_NONE; i = next) {
        struct gm_frame *frame = gm_frame_at(table, i);
        next = frame->next;
        if (frame->exit_of != app)
            continue;
        frame->exit_of = GM_NONE;
        table->ending += gm_frame_ending(frame);
        table->is_plan_stale = true;
        if (has_ended)
            gm_table_keep_frame(table, i, is_sure);
    }
}

static void set_bit(uint8_t *bits, uint32_t frame, bool is_set)
{
    const uint8_t bit = (uint8_t)(1u << (frame % 8));
    bits[frame / 8] = (uint8_t)(is_set ? bits[frame / 8] | bit : bits[frame / 8] & ~bit);
}

static void set_import(struct gm_table *table, uint32_t frame, uint32_t app, bool is_set)
{
    if (gm_table_has_import(table, app, frame) == is_set)
        return;
    gm_ledger_set_import(&table->ledger, app, frame, is_set);
    set_bit(gm_bits_at(table, table->imports, app), frame, is_set);
}

/* The frame waits for that many more answers, and for so many of apps that are silent. */
static void count_drops(struct gm_table *table, uint32_t index, int drops, int silent)
{
    struct gm_frame *frame = gm_frame_at(table, index);
    assert(frame->state == GM_FRAME_CONDEMNED);
    table->ending -= gm_frame_ending(frame);
    frame->drops += (uint32_t)drops;
    frame->silent += (uint32_t)silent;
    table->ending += gm_frame_ending(frame);
}

bool gm_table_import(struct gm_table *table, uint32_t index, uint32_t app)
{
    const bool is_new =
        !gm_table_has_import(table, app, index) || gm_table_has_drop(table, app, index);
    set_import(table, index, app, true);
    set_bit(gm_bits_at(table, table->drops, app), index, false);
    return is_new;
}

void gm_table_undo_import(struct gm_table *table, uint32_t index, uint32_t app)
{
    set_import(table, index, app, false);
}

bool gm_table_drop(struct gm_table *table, uint32_t index, uint32_t app)
{
    const bool was_asked = gm_table_has_drop(table, app, index);
    if (!gm_table_has_import(table, app, index))
        return false;
    set_bit(gm_bits_at(table, table->drops, app), index, true);
    count_drops(table, index, 1, table->apps[app].is_silent);
    return !was_asked;
}

void gm_table_end_drop(struct gm_table *table, uint32_t index, uint32_t app, bool has_dropped)
{
    if (!gm_table_has_drop(table, app, index))
        return; /* it was kept, and the app has got it anew since */
    if (has_dropped)
        set_import(table, index, app, false);
    set_bit(gm_bits_at(table, table->drops, app), index, false);
    if (table->frames[index].state == GM_FRAME_CONDEMNED)
        count_drops(table, index, -1, -(int)table->apps[app].is_silent);
}

void gm_table_note_silence(struct gm_table *table, uint32_t app)
{
    const uint8_t *drops = gm_bits_at(table, table->drops, app);
    for (uint32_t i = table->first_condemned; i != GM_NONE; i = table->frames[i].next)
        if (drops[i / 8] >> (i % 8) & 1)
            count_drops(table, i, 0, table->apps[app].is_silent ? 1 : -1);
}

void gm_table_destroy_frame(struct gm_table *table, uint32_t index)
{
    assert(table->frames[index].state == GM_FRAME_CONDEMNED);
    gm_ledger_end_frame(&table->ledger, index);
    gm_frame_at(table, index)->is_destroyed = true;
}

void gm_table_end_frame(struct gm_table *table, uint32_t index)
{
    struct gm_frame *frame = gm_frame_at(table, index);
    if (!gm_table_turn_frame(table, index, GM_FRAME_EV_END))
        return;
    gm_ledger_end_frame(&table->ledger, index);
    for (uint32_t app = 0; app < table->max_apps; app++)
        set_import(table, index, app, false);
    unfix(table, frame);
    if (!frame->is_host)
        table->allocated -= gm_class_bytes(frame->class);
    gm_pool_at(table, frame->pool)->frames--;
    frame->next = table->free_frame;
    table->free_frame = index;
    table->is_plan_stale = true;
}
