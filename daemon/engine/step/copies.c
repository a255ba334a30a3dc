/*
 * Copies of chunks: begun here, between the GPU and pinned memory by the mover, and below it by the
 * stores' workers; and which of them have ended, for chunks.c. Frames and pages are cleared as a
 * copy in. Copies of each way have numbers, in the order in which they are posted. Owns these, the
 * rings of chunks by them, and the sums of what is under way. Called by the files that move chunks;
 * calls the table.
 */
#include "daemon/engine/step/copies.h"

#include <assert.h>

#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/frames.h"

/* ---- between the GPU and pinned memory ---- */

/* How many more the mover takes. */
static uint64_t room(const struct gm_engine *engine, enum gm_way way)
{
    return GM_WAY_DEPTH - 1 - (engine->submitted[way] - engine->taken[way]);
}

bool gm_engine_has_room(const struct gm_engine *engine, enum gm_way way)
{
    const uint32_t coming = way == GM_WAY_OUT ? engine->table->unmaps + engine->hashing.copies : 0;
    return room(engine, way) > coming;
}

bool gm_engine_is_copying(const struct gm_engine *engine, enum gm_way way)
{
    return engine->copying[way] > 0;
}

/* Bytes whose copies are under way or begin when their owners have unmapped them and they are
 * hashed. */
uint64_t gm_engine_under_way(const struct gm_engine *engine, enum gm_way way)
{
    const uint64_t coming =
        way == GM_WAY_OUT ? engine->table->unmap_bytes + engine->hashing.bytes : 0;
    return engine->copying[way] + coming;
}

/* The next copy that way, for the chunk, or for nobody yet (GM_NONE). `bytes`: that cross the link.
 */
static struct gm_action *post(struct gm_engine *engine, enum gm_action_kind kind, enum gm_way way,
                              uint32_t chunk, uint64_t bytes)
{
    const uint64_t number = ++engine->submitted[way];
    struct gm_action *action = gm_engine_post_surely(engine, kind);
    action->copy.way = way;
    action->copy.number = number;
    action->copy.chunk = chunk;
    action->copy.frame = action->copy.page = GM_NONE;
    engine->ring[way][number % GM_WAY_DEPTH] = (struct gm_copying){.chunk = chunk, .bytes = bytes};
    engine->copying[way] += bytes;
    return action;
}

static void submit(struct gm_engine *engine, enum gm_way way, uint32_t index, uint64_t fence)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    const uint64_t bytes = gm_chunk_bytes(chunk);
    struct gm_action *action = post(engine, GM_ACTION_COPY, way, index, bytes);
    action->copy.frame = chunk->frame;
    action->copy.page = chunk->page;
    action->copy.bytes = bytes;
    action->copy.fence = fence;
    engine->sums.bytes[way] += bytes;
    gm_table_begin_copy(engine->table, index);
    gm_engine_tell_copy(engine, index);
}

/* Clear a frame, for `chunk` or for nobody yet (GM_NONE). Returns its number, of copies in. */
static uint64_t clear(struct gm_engine *engine, uint32_t frame, uint32_t chunk)
{
    const struct gm_frame *entry = &engine->table->frames[frame];
    struct gm_action *action = post(engine, GM_ACTION_CLEAR, GM_WAY_IN, chunk, 0);
    action->copy.frame = frame;
    action->copy.bytes = gm_class_bytes(entry->class);
    action->copy.fence = entry->fence;
    if (chunk != GM_NONE)
        gm_engine_tell_copy(engine, chunk);
    return action->copy.number;
}

void gm_engine_copy_out(struct gm_engine *engine, uint32_t index)
{
    if (room(engine, GM_WAY_OUT) == 0) {
        gm_table_begin_copy(engine->table, index);
        engine->late[engine->n_late++] = index;
        return;
    }
    submit(engine, GM_WAY_OUT, index, 0);
}

/* The frame is free from here on: who writes it waits for this copy (the fence). If the driver
 * refuses the copy, the frame keeps the data: gm_engine_take_copies undoes the eviction when what
 * was begun of it has ended. */
void gm_engine_copying_out(struct gm_engine *engine, uint32_t index, uint64_t number)
{
    gm_engine_leave_frame(engine, index, number);
    gm_engine_again(engine);
}

void gm_engine_clear_pages(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    struct gm_action *action = post(engine, GM_ACTION_CLEAR, GM_WAY_IN, index, 0);
    action->copy.page = chunk->page;
    action->copy.bytes = gm_chunk_bytes(chunk);
    gm_table_begin_copy(engine->table, index);
    gm_engine_tell_copy(engine, index);
}

void gm_engine_copy_in(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    if (chunk->frame == GM_NONE) {
        gm_engine_clear_pages(engine, index);
        return;
    }
    if (chunk->tier != GM_TIER_NONE) {
        submit(engine, GM_WAY_IN, index, 0);
        return;
    }
    gm_table_begin_copy(engine->table, index);
    clear(engine, chunk->frame, index);
}

/* What was never written reads as zero. The chunk waits until its frame, as it was before the chunk
 * took it, is clear: one that was cleared long ago, or is new, is there at once. */
static void await_clear(struct gm_engine *engine, uint32_t index, const struct gm_frame *was)
{
    if (was->is_dirty) {
        clear(engine, engine->table->chunks[index].frame, index);
    } else if (was->clear > engine->taken[GM_WAY_IN]) {
        engine->ring[GM_WAY_IN][was->clear % GM_WAY_DEPTH].chunk = index;
        gm_engine_tell_copy(engine, index);
    } else {
        return;
    }
    gm_table_begin_copy(engine->table, index);
}

void gm_engine_bring(struct gm_engine *engine, uint32_t index, const struct gm_frame *was)
{
    if (engine->table->chunks[index].tier == GM_TIER_PINNED)
        submit(engine, GM_WAY_IN, index, was->fence);
    else
        await_clear(engine, index, was);
}

/* ---- below the GPU ---- */

static uint64_t *below(struct gm_engine *engine, unsigned from, unsigned to)
{
    return from == GM_TIER_DISK || to == GM_TIER_DISK ? &engine->disk_bytes : &engine->host_bytes;
}

uint64_t gm_engine_copied_below(const struct gm_engine *engine, unsigned from, unsigned to)
{
    return from == GM_TIER_DISK || to == GM_TIER_DISK ? engine->disk_bytes : engine->host_bytes;
}

void gm_engine_end_below(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    *below(engine, chunk->tier, chunk->to_tier) -= gm_chunk_bytes(chunk);
    engine->host_copies--;
    assert((engine->host_copies == 0) == (engine->host_bytes + engine->disk_bytes == 0));
}

void gm_engine_copy_below(struct gm_engine *engine, uint32_t index, enum gm_tier to,
                          uint32_t to_page)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    const uint64_t bytes = gm_chunk_bytes(chunk);
    if (!gm_table_move(engine->table, index, to, to_page)) {
        gm_stores_free(engine->stores, to, to_page);
        return;
    }
    *below(engine, chunk->tier, to) += bytes;
    engine->host_copies++;
    gm_engine_tell_copy(engine, index);
    struct gm_action *action = gm_engine_post_surely(engine, GM_ACTION_COPY_BELOW);
    action->below.chunk = index;
    action->below.from = (enum gm_tier)chunk->tier;
    action->below.page = chunk->page;
    action->below.to = to;
    action->below.to_page = to_page;
    action->below.bytes = bytes;
}

void gm_engine_clear_frames(struct gm_engine *engine)
{
    struct gm_table *table = engine->table;
    if (gm_engine_is_off(engine, GM_RETRY_COPY))
        return;
    /* From where the last round ended: each clears a few, and there may be 70,000. */
    for (uint32_t left = table->max_frames; table->dirty > 0 && left > 0; left--) {
        const uint32_t at = engine->clear_at;
        const struct gm_frame *frame = &table->frames[at];
        const bool is_due = frame->state == GM_FRAME_FREE && frame->is_dirty &&
                            frame->fence <= engine->taken[GM_WAY_OUT];
        if (is_due && !gm_engine_has_room(engine, GM_WAY_IN))
            return; /* when what is under way has ended */
        if (is_due)
            gm_table_clean_frame(table, at, clear(engine, at, GM_NONE));
        engine->clear_at = at + 1 < table->max_frames ? at + 1 : 0;
    }
}

uint32_t gm_engine_end_copy(struct gm_engine *engine, const struct gm_ended *ended)
{
    const uint64_t number = ++engine->taken[ended->way];
    const struct gm_copying *copy = &engine->ring[ended->way][number % GM_WAY_DEPTH];
    assert(number == ended->number);
    engine->copying[ended->way] -= copy->bytes;
    return copy->chunk;
}

uint32_t gm_engine_next_late(struct gm_engine *engine)
{
    if (engine->n_late == 0 || room(engine, GM_WAY_OUT) == 0)
        return GM_NONE;
    const uint32_t index = engine->late[--engine->n_late];
    gm_table_end_copy(engine->table, index, false);
    return index;
}
