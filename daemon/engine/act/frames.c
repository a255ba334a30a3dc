/*
 * Frames: makes them within the budget, takes them from one app for the next, and destroys them
 * when nobody can reach them any more. Called by most files of the engine; calls memory/frames.c
 * and the table. caps.c clears frames.
 */
#include "daemon/engine/act/frames.h"

#include "common/sums.h"
#include "daemon/engine/act/batches.h"
#include "daemon/engine/act/device.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/act/exits.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/round.h"
#include "daemon/memory/files.h"

/* Destroying one takes 0.1 to 0.6 ms, and up to 100 while other processes open and close
 * contexts: the driver serves one after the other. Programs on all GPUs wait for so many. In
 * frames. */
#define GM_REAP_AT_ONCE 8
/* Making one takes 0.5 ms, and up to 90 then. In frames. */
#define GM_CREATE_AT_ONCE 8

/* It waits for a process. One that was waited for long enough keeps nobody from the budget: a frame
 * on the GPU ends then, as it is used by nobody else. */
static bool awaits_exit(const struct gm_engine *engine, const struct gm_frame *frame)
{
    return frame->exit_of != GM_NONE &&
           (frame->is_host || !engine->apps[frame->exit_of].exit.is_late);
}

/* `frame` is condemned: who has imported it is to drop it. Who has yet to come back is asked then
 * (apps.c). */
static void ask_to_drop(struct gm_engine *engine, uint32_t frame)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if ((engine->apps[id].session || engine->apps[id].state == GM_APP_LOST) &&
            gm_table_drop(engine->table, frame, id) && engine->apps[id].session)
            gm_engine_batch(engine, id, GM_BATCH_DROP, frame);
    /* If it waits for nobody, no event will come either. */
    const struct gm_frame *entry = &engine->table->frames[frame];
    if (entry->drops == 0 && !awaits_exit(engine, entry))
        engine->reap_more = true;
}

/* `frame` is nobody's any more and ends as soon as no copy reads it, no shim holds an import and,
 * if `exit_of` is an app, that app's process is gone with whatever it still ran on the GPU. So it
 * is with each app that is gone and may have it mapped. */
void gm_engine_condemn(struct gm_engine *engine, uint32_t frame, uint32_t exit_of)
{
    if (exit_of == GM_NONE)
        exit_of = gm_engine_leaving_with(engine, frame, GM_NONE);
    if (gm_table_condemn_frame(engine->table, frame, exit_of))
        ask_to_drop(engine, frame);
}

bool gm_engine_is_mapped_by_left(const struct gm_engine *engine, uint32_t frame)
{
    const uint32_t mapper = engine->table->frames[frame].mapper;
    return mapper != GM_NONE && engine->apps[mapper].state == GM_APP_GONE &&
           gm_engine_may_reach(engine, mapper, frame);
}

void gm_engine_leave_frame(struct gm_engine *engine, uint32_t chunk, uint64_t fence)
{
    const uint32_t frame = engine->table->chunks[chunk].frame;
    if (!gm_engine_is_mapped_by_left(engine, frame)) {
        gm_table_leave_frame(engine->table, chunk, fence);
        return;
    }
    const uint32_t exit_of = gm_engine_leaving_with(engine, frame, GM_NONE);
    if (gm_table_leave_to_end(engine->table, chunk, fence, exit_of))
        ask_to_drop(engine, frame);
}

void gm_engine_free_frame(struct gm_engine *engine, uint32_t frame)
{
    if (gm_engine_is_mapped_by_left(engine, frame))
        gm_engine_condemn(engine, frame, GM_NONE);
    else
        gm_table_free_frame(engine->table, frame);
}

void gm_engine_drop_idle_pools(struct gm_engine *engine)
{
    for (uint32_t i = 0; i < engine->table->max_frames; i++) {
        const struct gm_frame *frame = &engine->table->frames[i];
        if (frame->state == GM_FRAME_FREE && engine->table->pools[frame->pool].apps == 0)
            gm_engine_condemn(engine, i, GM_NONE);
    }
    do
        gm_engine_reap(engine);
    while (engine->reap_more);
}

/* Whether free frames may go in this round: first those of users who have no app any more. What an
 * app that does not answer can reach stays: its memory would not come back, and could serve nobody.
 */
static bool may_go(const struct gm_engine *engine, uint32_t frame, bool is_idle_only)
{
    const struct gm_frame *entry = &engine->table->frames[frame];
    return entry->state == GM_FRAME_FREE && !entry->is_host &&
           (!is_idle_only || engine->table->pools[entry->pool].apps == 0) &&
           !gm_table_is_held(engine->table, frame);
}

void gm_engine_give_back_frames(struct gm_engine *engine, uint64_t kept)
{
    const struct gm_table *table = engine->table;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0;
             i < table->max_frames && table->free > 0 && table->allocated - table->condemned > kept;
             i++)
            if (may_go(engine, i, pass == 0))
                gm_engine_condemn(engine, i, GM_NONE);
}

void gm_engine_give_back_frames_of(struct gm_engine *engine, uid_t uid, uint64_t kept)
{
    const struct gm_table *table = engine->table;
    for (uint32_t i = 0;
         i < table->max_frames && table->free > 0 && table->allocated - table->condemned > kept;
         i++)
        if (may_go(engine, i, true) ||
            (may_go(engine, i, false) && table->pools[table->frames[i].pool].uid == uid))
            gm_engine_condemn(engine, i, GM_NONE);
}

/* The memory of a host frame is used again. So it ends only when no process can reach it, also not
 * one that left long ago and has yet to end. */
static bool is_reachable(const struct gm_engine *engine, uint32_t frame)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (gm_engine_may_reach(engine, id, frame))
            return true;
    return false;
}

/* Its app's process has ended, and others have copies of what it had open. */
static bool is_copied(const struct gm_engine *engine, const struct gm_frame *frame)
{
    const struct gm_app *app = frame->exit_of == GM_NONE ? NULL : &engine->apps[frame->exit_of];
    return app && !app->exit.is_awaited && app->client->copies;
}

static uint64_t free_on_device(const struct gm_engine *engine)
{
    struct gm_device_room room;
    gm_engine_ask_device(engine, &room);
    return room.free_bytes;
}

/* Whether the driver has given the memory of the frame back. */
static bool destroy_copied(struct gm_engine *engine, uint32_t frame)
{
    const uint64_t bytes = gm_class_bytes(engine->table->frames[frame].class);
    const uint64_t before = free_on_device(engine);
    gm_frames_destroy(&engine->frames, frame, bytes);
    gm_table_destroy_frame(engine->table, frame);
    return free_on_device(engine) >= before + bytes;
}

void gm_engine_reap(struct gm_engine *engine)
{
    uint64_t read = engine->taken[GM_WAY_OUT];
    uint64_t cleared = engine->taken[GM_WAY_IN];
    uint32_t reaped = 0;
    engine->reap_more = false;
    for (uint32_t frame = engine->table->first_condemned, next; frame != GM_NONE; frame = next) {
        const struct gm_frame *entry = &engine->table->frames[frame];
        const bool may_be_kept =
            !entry->is_host && !entry->is_destroyed && is_copied(engine, entry);
        next = entry->next;
        if (entry->fence > read || entry->clear > cleared || entry->drops > 0 ||
            (awaits_exit(engine, entry) && !may_be_kept) ||
            (entry->is_host && is_reachable(engine, frame)))
            continue;
        if (reaped++ == GM_REAP_AT_ONCE) {
            engine->reap_more = true;
            break;
        }
        if (may_be_kept && !destroy_copied(engine, frame))
            continue;
        if (!entry->is_destroyed)
            gm_frames_destroy(&engine->frames, frame, gm_class_bytes(entry->class));
        if (entry->is_host)
            gm_stores_free(engine->stores, GM_TIER_PINNED, entry->page);
        gm_table_end_frame(engine->table, frame);
        gm_engine_again(engine);
    }
}

static bool is_of_chunks(const struct gm_batch *batch)
{
    return batch->kind == GM_BATCH_MAP || batch->kind == GM_BATCH_UNMAP;
}

/* The frame that item `i` of an unanswered batch of chunks keeps from others; GM_NONE: none. */
static uint32_t withheld_frame(const struct gm_engine *engine, const struct gm_batch *batch,
                               uint32_t i)
{
    const struct gm_chunk *chunk = &engine->table->chunks[batch->items[i]];
    if (chunk->frame == GM_NONE || engine->table->frames[chunk->frame].is_host || chunk->is_fixed)
        return GM_NONE;
    const bool is_leaving = engine->table->frames[chunk->frame].state == GM_FRAME_LEAVING;
    return is_leaving || chunk->state == GM_CHUNK_COMING || chunk->state == GM_CHUNK_RETURNING
               ? chunk->frame
               : GM_NONE;
}

bool gm_engine_is_left_behind(const struct gm_engine *engine, uint32_t frame)
{
    return is_copied(engine, &engine->table->frames[frame]);
}

/* What it has on the GPU, and the frames that it was told to unmap or to map. */
uint64_t gm_engine_withheld(const struct gm_engine *engine, uint32_t id)
{
    uint64_t bytes = engine->table->apps[id].resident;
    for (const struct gm_batch *batch = engine->apps[id].batches.sent; batch; batch = batch->next)
        for (uint32_t i = 0; is_of_chunks(batch) && i < batch->n; i++) {
            uint32_t frame = withheld_frame(engine, batch, i);
            if (frame != GM_NONE)
                bytes += gm_class_bytes(engine->table->frames[frame].class);
        }
    return bytes;
}

uint64_t gm_engine_held(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_table *table = engine->table;
    uint64_t bytes = gm_engine_withheld(engine, id);
    for (uint32_t i = table->first_condemned; i != GM_NONE; i = table->frames[i].next)
        if (!table->frames[i].is_host &&
            (gm_table_has_drop(table, id, i) ||
             (table->frames[i].exit_of == id && is_copied(engine, &table->frames[i]))))
            bytes += gm_class_bytes(table->frames[i].class);
    return bytes;
}

void gm_engine_begin_frames(struct gm_engine *engine)
{
    engine->created = 0;
    if (engine->create_more)
        gm_engine_replan(engine);
    engine->create_more = false;
}

enum gm_why gm_engine_take_refusal(struct gm_engine *engine)
{
    const enum gm_why why = engine->create_refused;
    engine->create_refused = GM_WHY_NONE;
    return why;
}

bool gm_engine_make_free_frame(struct gm_engine *engine, uint32_t pool, unsigned class)
{
    const uint32_t frame = gm_table_add_frame(engine->table, pool, class);
    if (frame == GM_NONE)
        return false;
    if (gm_frames_create(&engine->frames, frame, gm_class_bytes(class)) != CUDA_SUCCESS) {
        gm_table_end_frame(engine->table, frame); /* who needs one will hear why */
        return false;
    }
    gm_table_free_frame(engine->table, frame);
    return true;
}

uint32_t gm_engine_make_frame(struct gm_engine *engine, const struct gm_chunk *chunk)
{
    uint32_t frame;
    if (gm_engine_is_off(engine, GM_RETRY_FRAME))
        return GM_NONE;
    if (engine->created == GM_CREATE_AT_ONCE) {
        engine->create_more = true;
        return GM_NONE;
    }
    frame = gm_table_add_frame(engine->table, engine->table->apps[chunk->app].pool, chunk->class);
    if (frame == GM_NONE)
        return GM_NONE;
    CUresult result = gm_frames_create(&engine->frames, frame, gm_chunk_bytes(chunk));
    engine->created++;
    if (result == CUDA_SUCCESS) {
        engine->create_error = CUDA_SUCCESS;
        gm_engine_went_well(engine, GM_RETRY_FRAME);
        return frame;
    }
    gm_table_end_frame(engine->table, frame);
    /* Files may be free again by now: gm_frames_create and the driver both say this for want of
     * one. */
    const bool is_short_of_files =
        result == CUDA_ERROR_OPERATING_SYSTEM ||
        (result != CUDA_ERROR_OUT_OF_MEMORY && gm_files_left_for_frames() < GM_FILES_SPARE);
    if (engine->create_error != result)
        gm_engine_emit(
            engine, &(struct gm_event){.kind = GM_EVENT_NO_FRAME,
                                       .app = GM_NONE,
                                       .no_frame = {.why = is_short_of_files ? GM_WHY_NO_FILES
                                                                             : GM_WHY_USED_BESIDE,
                                                    .error = gm_engine_error_text(engine, result),
                                                    .files = gm_files_for_frames(),
                                                    .files_limit = gm_files_limit()}});
    engine->create_error = result;
    gm_engine_back_off(engine, GM_RETRY_FRAME);
    /* Without files for more frames, those that there are must do. */
    if (result == CUDA_ERROR_OUT_OF_MEMORY || is_short_of_files)
        engine->create_refused = is_short_of_files ? GM_WHY_NO_FILES : GM_WHY_USED_BESIDE;
    return GM_NONE;
}

uint32_t gm_engine_make_host_frame(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    if (chunk->host_frame != GM_NONE)
        return chunk->host_frame;
    const uint32_t frame = gm_table_add_host_frame(engine->table, index);
    if (frame == GM_NONE)
        return GM_NONE;
    const CUresult result = gm_frames_adopt(&engine->frames, frame, &engine->pool, chunk->page,
                                            (uint32_t)engine->apps[chunk->app].uid);
    if (result != CUDA_SUCCESS) {
        gm_engine_emit(engine,
                       &(struct gm_event){.kind = GM_EVENT_NO_EXPORT,
                                          .app = GM_NONE,
                                          .no_export.error = gm_engine_error_text(engine, result)});
        gm_table_end_frame(engine->table, frame);
        gm_engine_back_off_app(engine, chunk->app);
        return GM_NONE;
    }
    return frame;
}
