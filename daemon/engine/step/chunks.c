/*
 * What becomes of a chunk when a step of its move has ended, and whether it must be copied at all.
 */
#include "daemon/engine/step/chunks.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/state/say.h"
#include "daemon/engine/step/batches.h"
#include "daemon/engine/step/copies.h"
#include "daemon/engine/step/frames.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/shadows.h"
#include "daemon/engine/step/shares.h"

/* ---- hashes ---- */

/*
 * Chunks on their way out of the GPU: each is hashed before it is copied, as soon as its owner has
 * unmapped it, and the hash stays with the copy, in whatever tier. One that is what its shadow is
 * moves nothing (shadows.c). One that is all zero leaves no copy: it is as one that was never
 * written.
 */

static void count_hash(struct gm_engine *engine, uint32_t index, bool is_more)
{
    const uint64_t bytes = gm_chunk_bytes(&engine->table->chunks[index]);
    engine->hashing.copies += is_more ? 1 : -1u;
    engine->hashing.bytes += is_more ? bytes : -bytes;
}

/* Begin to hash the chunk, which its owner has unmapped. False: it cannot be now. */
static bool hash(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    if (!gm_engine_can_hash(engine) ||
        engine->hashes_submitted - engine->hashes_taken >= GM_HASH_DEPTH - 1)
        return false;
    const uint64_t number = ++engine->hashes_submitted;
    struct gm_action *action = gm_engine_post_surely(engine, GM_ACTION_HASH);
    action->hash.number = number;
    action->hash.frame = chunk->frame;
    action->hash.bytes = gm_chunk_bytes(chunk);
    engine->hash_ring[number % GM_HASH_DEPTH] = index;
    count_hash(engine, index, true);
    gm_table_begin_copy(engine->table, index);
    return true;
}

/* The GPU has refused a hash: chunks are copied without from now on. */
static void give_up_hashing(struct gm_engine *engine, const char *error)
{
    if (!engine->is_hashing_off)
        gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_HASH_OFF,
                                                  .app = GM_NONE,
                                                  .hash_off = {.why = error, .was_on = true}});
    engine->is_hashing_off = true;
}

/* These leave the frame; the first two copy nothing, so the chunk has left. */

static void leave_clean(struct gm_engine *engine, uint32_t index)
{
    engine->sums.clean += gm_chunk_bytes(&engine->table->chunks[index]);
    gm_engine_leave_frame(engine, index, 0);
}

/* Its frame needs no clearing, either, unless it is kept from others as a lost program may have it
 * mapped. Its pages go first: whoever looks finds it there or nowhere. */
static void leave_zero(struct gm_engine *engine, uint32_t index)
{
    const uint32_t frame = engine->table->chunks[index].frame;
    engine->sums.zero += gm_chunk_bytes(&engine->table->chunks[index]);
    gm_engine_free_pages(engine, index);
    gm_engine_leave_frame(engine, index, 0);
    if (engine->table->frames[frame].state == GM_FRAME_FREE)
        gm_table_clean_frame(engine->table, frame, 0);
}

/* `hash`: of what is copied; NULL: not known. */
static void leave_copied(struct gm_engine *engine, uint32_t index, const uint64_t *hash)
{
    gm_table_set_hash(engine->table, index, hash);
    gm_engine_copy_out(engine, index);
}

/* The chunk is being evicted, its owner has unmapped it and it has pages: copy it out, if it has
 * changed. True: it has left, and nothing is copied. */
static bool vacate(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    if (chunk->shadow == GM_SHADOW_CLAIMED && chunk->opens == engine->apps[chunk->app].gate.opens) {
        leave_clean(engine, index);
        return true;
    }
    if (!hash(engine, index))
        leave_copied(engine, index, NULL);
    return false;
}

/* Whether the chunk has left. */
static bool take_hash(struct gm_engine *engine, uint32_t index, CUresult result,
                      const struct gm_hashed *hashed)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    const bool is_known = chunk->has_hash && chunk->shadow == GM_SHADOW_CLAIMED;

    if (chunk->is_freed) { /* nobody needs the data */
        gm_engine_give_up_frame(engine, index);
        return true;
    }
    if (result != CUDA_SUCCESS) {
        leave_copied(engine, index, NULL);
        return false;
    }
    if (hashed->is_zero) {
        leave_zero(engine, index);
        return true;
    }
    if (is_known && memcmp(chunk->hash, hashed->hash, sizeof chunk->hash) == 0) {
        leave_clean(engine, index);
        return true;
    }
    leave_copied(engine, index, hashed->hash);
    return false;
}

/* A hash has ended. Returns its chunk, if that has left; else GM_NONE. */
static uint32_t end_hash(struct gm_engine *engine, const struct gm_ended_hash *ended)
{
    const uint32_t index = engine->hash_ring[++engine->hashes_taken % GM_HASH_DEPTH];
    count_hash(engine, index, false);
    gm_table_end_copy(engine->table, index, false);
    if (ended->result != CUDA_SUCCESS && ended->result != CUDA_ERROR_NOT_MAPPED &&
        !engine->table->chunks[index].is_freed)
        give_up_hashing(engine, ended->error);
    return take_hash(engine, index, ended->result, &ended->hashed) ? index : GM_NONE;
}

/* ---- the steps of a chunk ---- */

/*
 * The steps of a chunk after a copy, a map or an unmap has ended. gm_engine_settle takes the next
 * step that is possible; gm_engine_retire ends freed chunks.
 */

static void say_last_word(struct gm_engine *engine, const struct gm_allocation *allocation)
{
    const struct gm_last_word *last = &allocation->last;
    const struct gm_msg_freed freed = {.cookie = last->cookie};
    const struct gm_msg_taken taken = {.va = allocation->va};
    const struct gm_msg_allocated failed = {.cookie = last->cookie, .result = last->result};
    if (!engine->apps[allocation->app].session)
        return;
    if (last->cookie == 0 && last->kind != GM_LAST_TAKEN)
        return; /* its program did not ask (allocs.c) */
    if (last->kind == GM_LAST_FREED)
        gm_engine_say(engine, allocation->app, GM_MSG_FREED, &freed);
    else if (last->kind == GM_LAST_TAKEN)
        gm_engine_say(engine, allocation->app, GM_MSG_TAKEN, &taken);
    else if (last->kind == GM_LAST_FAILED)
        gm_engine_say(engine, allocation->app, GM_MSG_ALLOCATED, &failed);
}

/* The last that is heard of a freed chunk; with an allocation's last chunk its program is told. */
static void end_chunk(struct gm_engine *engine, uint32_t index)
{
    const uint32_t at = engine->table->chunks[index].allocation;

    gm_engine_free_pages(engine, index);
    if (!gm_table_end_chunk(engine->table, index))
        return;
    say_last_word(engine, &engine->table->allocations[at]);
    gm_table_end_allocation(engine->table, at);
    gm_engine_again(engine);
}

/* The chunk comes when gm_engine_try_failed has tried again. */
static void try_later(struct gm_engine *engine, uint32_t index)
{
    gm_engine_back_off(engine, GM_RETRY_COPY);
    gm_table_begin_copy(engine->table, index);
    engine->failed[engine->n_failed++] = index;
}

void gm_engine_try_failed(struct gm_engine *engine)
{
    if (gm_engine_is_off(engine, GM_RETRY_COPY))
        return;
    for (uint32_t i = engine->n_failed; i-- > 0;) {
        const uint32_t index = engine->failed[i];
        const struct gm_chunk *chunk = &engine->table->chunks[index];
        const bool is_leaving = chunk->state == GM_CHUNK_LEAVING;
        const bool is_copied = !chunk->is_freed && (is_leaving || chunk->tier != GM_TIER_GPU);
        if (is_copied && !gm_engine_has_room(engine, is_leaving ? GM_WAY_OUT : GM_WAY_IN))
            continue;
        engine->failed[i] = engine->failed[--engine->n_failed];
        gm_table_end_copy(engine->table, index, false);
        if (chunk->is_freed) {
            gm_engine_settle(engine, index);
        } else if (!is_copied) {
            gm_table_map_again(engine->table, index);
            gm_engine_map(engine, index);
        } else if (is_leaving) {
            gm_engine_copy_out(engine, index);
        } else {
            gm_engine_copy_in(engine, index);
        }
    }
}

/* The copy out of an eviction is not made: the chunk stays in its frame, and is mapped again. */
static void undo_eviction(struct gm_engine *engine, uint32_t index)
{
    if (engine->table->chunks[index].is_freed) {
        gm_engine_give_up_frame(engine, index);
        gm_engine_settle(engine, index);
        return;
    }
    if (!gm_table_undo(engine->table, index))
        return;
    gm_engine_free_pages(engine, index);
    gm_engine_map(engine, index);
    gm_engine_again(engine);
}

/* The chunk's app does not answer. If the chunk waits to be unmapped and copied out, the pinned
 * pages that were set aside for it are others' now. When it is unmapped after all, it is mapped
 * again. */
static void forgo_its_pages(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    if (chunk->state == GM_CHUNK_LEAVING && chunk->map_pending)
        gm_engine_free_pages(engine, index);
}

/* A free frame was not cleared. If somebody took it meanwhile, it is dirty already. */
static void clear_failed(struct gm_engine *engine, const struct gm_ended *ended)
{
    gm_engine_back_off(engine, GM_RETRY_COPY);
    gm_engine_emit(engine, &(struct gm_event){
                               .kind = GM_EVENT_COPY_FAILED,
                               .app = GM_NONE,
                               .copy_failed = {.error = ended->error,
                                               .wait_ns = engine->retries[GM_RETRY_COPY].wait}});
    for (uint32_t i = 0; i < engine->table->max_frames; i++)
        if (engine->table->frames[i].state == GM_FRAME_FREE &&
            engine->table->frames[i].clear == ended->number)
            gm_table_soil_frame(engine->table, i);
}

/* Nobody can map its frame now: its program, or another one that may have it mapped, has yet to
 * come back, or to end. */
static bool must_leave(const struct gm_engine *engine, const struct gm_chunk *chunk)
{
    return !chunk->is_freed && (engine->table->apps[chunk->app].is_lost ||
                                gm_table_is_awaited(engine->table, chunk->frame) ||
                                gm_engine_is_mapped_by_left(engine, chunk->frame));
}

static void copy_failed(struct gm_engine *engine, const struct gm_ended *ended, uint32_t index)
{
    const enum gm_way way = ended->way;
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    gm_engine_back_off(engine, GM_RETRY_COPY);
    gm_engine_emit(
        engine,
        &(struct gm_event){.kind = GM_EVENT_COPY_FAILED,
                           .app = chunk->app,
                           .copy_failed = {.from = way == GM_WAY_OUT ? GM_TIER_GPU : GM_TIER_PINNED,
                                           .to = way == GM_WAY_OUT ? GM_TIER_PINNED : GM_TIER_GPU,
                                           .error = ended->error,
                                           .wait_ns = engine->retries[GM_RETRY_COPY].wait}});
    if (chunk->state == GM_CHUNK_LEAVING && must_leave(engine, chunk))
        try_later(engine, index);
    else if (chunk->state == GM_CHUNK_LEAVING)
        undo_eviction(engine, index);
    else if (way == GM_WAY_OUT || chunk->is_freed)
        gm_engine_settle(engine, index);
    else
        try_later(engine, index);
}

/* Evicted: copied out, as soon as its owner has unmapped it. False: it has not left yet. */
static bool has_left(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    if (chunk->frame == GM_NONE)
        return true;
    if (chunk->is_freed) /* nobody needs the data */
        gm_engine_give_up_frame(engine, index);
    else if (chunk->page != GM_NONE)
        return vacate(engine, index);
    else
        undo_eviction(engine, index); /* forgo_its_pages */
    return chunk->is_freed;
}

/* It is in its frame now, and its pages are a shadow or free. */
static void keep_or_free(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    /* A host frame's pages go with it. */
    if (chunk->page != GM_NONE && chunk->host_frame == GM_NONE)
        gm_engine_keep_shadow(engine, index);
    if (chunk->shadow == GM_SHADOW_NONE)
        gm_engine_free_pages(engine, index);
}

void gm_engine_settle(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    const enum gm_chunk_state from = (enum gm_chunk_state)chunk->state;
    const bool is_freed = chunk->is_freed, has_failed = chunk->is_given_up;

    gm_engine_again(engine);
    if (gm_chunk_is_still(chunk) || chunk->copy_pending || chunk->map_pending)
        return;
    if (from == GM_CHUNK_LEAVING && !has_left(engine, index))
        return;
    if (from == GM_CHUNK_RETURNING && has_failed && !is_freed) {
        try_later(engine, index); /* the data is in this frame alone */
        return;
    }
    if (from == GM_CHUNK_MOVING && !has_failed)
        gm_engine_free_pages(engine, index);
    gm_table_settle(engine->table, index);
    if (from == GM_CHUNK_ENDING ||
        (has_failed && (from == GM_CHUNK_COMING || from == GM_CHUNK_RETURNING)))
        gm_engine_give_up_frame(engine, index);
    else if (from == GM_CHUNK_COMING || from == GM_CHUNK_RETURNING)
        keep_or_free(engine, index);
    if (from == GM_CHUNK_MAPPING || from == GM_CHUNK_RETURNING)
        gm_engine_fit_places(engine, chunk->app); /* its place could not be chosen meanwhile */
    if (!has_failed)
        gm_engine_progressed(engine, chunk->app);
    if (is_freed)
        gm_engine_retire(engine, index);
}

void gm_engine_retire(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    const bool is_gone = engine->apps[chunk->app].state == GM_APP_GONE;

    assert(chunk->is_freed);
    if (!gm_chunk_is_still(chunk)) {
        if (is_gone) {
            gm_table_end_map(engine->table, index, false);
            gm_engine_settle(engine, index);
        }
        return;
    }
    if (chunk->frame != GM_NONE && !is_gone) {
        if (gm_table_unmap(engine->table, index))
            gm_engine_unmap(engine, index);
        return;
    }
    if (chunk->frame != GM_NONE)
        gm_engine_give_up_frame(engine, index);
    end_chunk(engine, index);
}

void gm_engine_copied_host(struct gm_engine *engine, uint32_t index, int error)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];

    gm_engine_tell_copied(engine, index, error != 0);
    gm_engine_end_below(engine, index);
    gm_table_end_copy(engine->table, index, error != 0);
    /* What cannot be read keeps its app waiting; what cannot be written closes the disk to plans.
     * One that ends well when it may be tried again makes the next failure news. What is copied in
     * memory, where nothing fails, does not, nor what ends well before. */
    const bool is_raise = chunk->to_tier == GM_TIER_PINNED;
    const bool is_of_disk = chunk->tier == GM_TIER_DISK || chunk->to_tier == GM_TIER_DISK;
    assert(error == 0 || is_of_disk);
    struct gm_app *app = &engine->apps[chunk->app];
    int *last = is_raise ? &app->moves.raise_error : &engine->lower_error;
    if (error) {
        /* The chunk keeps its old copy: it ends where it began. */
        if (*last != error)
            gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_COPY_FAILED,
                                                      .app = chunk->app,
                                                      .copy_failed = {.from = chunk->tier,
                                                                      .to = chunk->to_tier,
                                                                      .error = strerror(-error)}});
        gm_stores_free(engine->stores, (enum gm_tier)chunk->to_tier, chunk->to_page);
        *last = error;
        if (is_raise)
            gm_engine_back_off_app(engine, chunk->app);
        else
            gm_engine_back_off(engine, GM_RETRY_BELOW);
    } else {
        *(is_raise ? &engine->sums.raised : &engine->sums.lowered) += gm_chunk_bytes(chunk);
        const bool is_off = is_raise ? gm_engine_is_app_off(engine, chunk->app)
                                     : gm_engine_is_off(engine, GM_RETRY_BELOW);
        if (is_of_disk && !is_off)
            *last = 0;
        if (is_of_disk && is_raise)
            gm_engine_app_went_well(engine, chunk->app);
        else if (is_of_disk)
            gm_engine_went_well(engine, GM_RETRY_BELOW);
    }
    gm_engine_settle(engine, index);
}

/* Those that found no room in the mover come, as far as there is room now. */
static void take_late(struct gm_engine *engine)
{
    uint32_t index;
    while ((index = gm_engine_next_late(engine)) != GM_NONE)
        if (engine->table->chunks[index].is_freed)
            gm_engine_settle(engine, index);
        else
            gm_engine_copy_out(engine, index);
}

void gm_engine_leave_again(struct gm_engine *engine)
{
    for (uint32_t i = 0; i < engine->table->max_chunks; i++)
        if (engine->table->chunks[i].state == GM_CHUNK_LEAVING)
            gm_engine_settle(engine, i);
}

static void take_copy(struct gm_engine *engine, const struct gm_ended *ended)
{
    const uint32_t chunk = gm_engine_end_copy(engine, ended);
    if (chunk == GM_NONE) { /* a free frame was cleared */
        if (ended->result != CUDA_SUCCESS)
            clear_failed(engine, ended);
        return;
    }
    gm_table_end_copy(engine->table, chunk, false);
    gm_engine_tell_copied(engine, chunk, ended->result != CUDA_SUCCESS);
    if (ended->result != CUDA_SUCCESS) {
        copy_failed(engine, ended, chunk);
        return;
    }
    gm_engine_went_well(engine, GM_RETRY_COPY);
    gm_engine_settle(engine, chunk);
}

void gm_engine_take_copies(struct gm_engine *engine, const struct gm_ended *ended, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        take_copy(engine, &ended[i]);
    take_late(engine);
}

void gm_engine_take_hashes(struct gm_engine *engine, const struct gm_ended_hash *ended, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t index = end_hash(engine, &ended[i]);
        if (index != GM_NONE)
            gm_engine_settle(engine, index);
    }
}

/* ---- programs that do not answer ---- */

static void forgo_pages(struct gm_engine *engine, const struct gm_batch *batch)
{
    if (batch && batch->kind == GM_BATCH_UNMAP)
        for (uint32_t i = 0; i < batch->n; i++)
            forgo_its_pages(engine, batch->items[i]);
}

void gm_engine_note_silence(struct gm_engine *engine, uint32_t id, bool is_silent)
{
    const struct gm_app *app = &engine->apps[id];
    if (engine->table->apps[id].is_silent == is_silent)
        return;
    gm_table_set_silent(engine->table, id, is_silent);
    if (!is_silent)
        return;
    forgo_pages(engine, app->batches.building[GM_BATCH_UNMAP]);
    for (const struct gm_batch *batch = app->batches.sent; batch; batch = batch->next)
        forgo_pages(engine, batch);
}

static void void_item(struct gm_engine *engine, uint32_t item)
{
    gm_table_end_map(engine->table, item, false);
    if (engine->table->chunks[item].is_freed)
        gm_engine_settle(engine, item);
}

static void void_batch(struct gm_engine *engine, uint32_t id, struct gm_batch *batch)
{
    const bool is_of_table = batch->kind < GM_BATCH_KINDS;
    for (uint32_t i = 0; is_of_table && i < batch->n; i++) {
        uint32_t item = batch->items[i];
        if (batch->kind == GM_BATCH_DROP)
            gm_table_end_drop(engine->table, item, id, false);
        else
            void_item(engine, item);
    }
    free(batch);
}

void gm_engine_void_batches(struct gm_engine *engine, uint32_t id)
{
    struct gm_batch *batch;
    uint32_t item;
    while ((batch = gm_engine_take_unanswered(engine, id)) != NULL)
        void_batch(engine, id, batch);
    while ((item = gm_engine_take_unsent(engine, id)) != GM_NONE)
        void_item(engine, item);
}
