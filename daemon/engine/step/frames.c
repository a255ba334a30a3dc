/*
 * Frames: has them made within the budget, takes them from one app for the next, and has them
 * destroyed when nobody can reach them any more. A new frame counts from when it is asked for; it
 * is there when that comes back, for the chunk that waits for it. Called by most files of the
 * engine; calls the table. copies.c clears frames.
 */
#include "daemon/engine/step/frames.h"

#include "common/sums.h"
#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/batches.h"
#include "daemon/engine/step/exits.h"
#include "daemon/memory/files.h"

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
        if (engine->apps[id].state != GM_APP_GONE && gm_table_drop(engine->table, frame, id) &&
            engine->apps[id].session)
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

bool gm_engine_drop_idle_pools(struct gm_engine *engine)
{
    for (uint32_t i = 0; i < engine->table->max_frames; i++) {
        const struct gm_frame *frame = &engine->table->frames[i];
        if (frame->state == GM_FRAME_FREE && engine->table->pools[frame->pool].apps == 0)
            gm_engine_condemn(engine, i, GM_NONE);
    }
    const uint64_t condemned = engine->table->condemned;
    gm_engine_reap(engine);
    return engine->n_ending > 0 || engine->table->condemned < condemned;
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

/* Its memory is gone. */
static void end_frame(struct gm_engine *engine, uint32_t frame)
{
    const struct gm_frame *entry = &engine->table->frames[frame];
    if (entry->is_host)
        gm_stores_free(engine->stores, GM_TIER_PINNED, entry->page);
    gm_table_end_frame(engine->table, frame);
    gm_engine_again(engine);
}

/* It is being destroyed. */
static bool is_ending(const struct gm_engine *engine, uint32_t frame)
{
    for (uint32_t i = 0; i < engine->n_ending; i++)
        if (engine->ending[i] == frame)
            return true;
    return false;
}

static void destroy(struct gm_engine *engine, uint32_t frame, bool may_be_kept)
{
    struct gm_action *action = gm_engine_post_surely(engine, GM_ACTION_DESTROY);
    action->destroy.frame = frame;
    action->destroy.bytes = gm_class_bytes(engine->table->frames[frame].class);
    action->destroy.may_be_kept = may_be_kept;
    engine->ending[engine->n_ending++] = frame;
}

void gm_engine_destroyed(struct gm_engine *engine, uint32_t frame, bool is_kept)
{
    uint32_t at = 0;
    while (engine->ending[at] != frame)
        at++;
    engine->ending[at] = engine->ending[--engine->n_ending];
    if (is_kept)
        gm_table_destroy_frame(engine->table, frame);
    else
        end_frame(engine, frame);
}

void gm_engine_reap(struct gm_engine *engine)
{
    const uint64_t read = engine->taken[GM_WAY_OUT], cleared = engine->taken[GM_WAY_IN];
    const bool is_awaited = engine->plan_from < engine->plan.n || engine->stopping.is_on;
    const uint32_t most = is_awaited ? GM_REAP_AT_ONCE : 1;
    engine->reap_more = false;
    for (uint32_t frame = engine->table->first_condemned, next; frame != GM_NONE; frame = next) {
        const struct gm_frame *entry = &engine->table->frames[frame];
        const bool may_be_kept =
            !entry->is_host && !entry->is_destroyed && is_copied(engine, entry);
        next = entry->next;
        if (entry->fence > read || entry->clear > cleared || entry->drops > 0 ||
            (awaits_exit(engine, entry) && !may_be_kept) ||
            (entry->is_host && is_reachable(engine, frame)) || is_ending(engine, frame))
            continue;
        if (engine->n_ending == most) {
            engine->reap_more = true;
            break;
        }
        if (entry->is_destroyed)
            end_frame(engine, frame);
        else
            destroy(engine, frame, may_be_kept);
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

/* Have a new frame made, for the chunk, or for nobody yet (GM_NONE). False: there is no room. */
static bool ask(struct gm_engine *engine, uint32_t pool, unsigned class, uint32_t chunk)
{
    const uint32_t frame = gm_table_add_frame(engine->table, pool, class);
    if (frame == GM_NONE)
        return false;
    struct gm_action *action = gm_engine_post_surely(engine, GM_ACTION_CREATE);
    action->create.frame = frame;
    action->create.chunk = chunk;
    action->create.bytes = gm_class_bytes(class);
    return true;
}

bool gm_engine_ask_free_frame(struct gm_engine *engine, uint32_t pool, unsigned class)
{
    return ask(engine, pool, class, GM_NONE);
}

void gm_engine_ask_frame(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    if (gm_engine_is_off(engine, GM_RETRY_FRAME))
        return;
    if (engine->created == GM_CREATE_AT_ONCE)
        engine->create_more = true;
    else if (ask(engine, engine->table->apps[chunk->app].pool, chunk->class, index))
        engine->created++;
}

/* The driver has refused a frame for a chunk. */
static void refused(struct gm_engine *engine, const struct gm_made *made)
{
    if (engine->create_error != made->result)
        gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_NO_FRAME,
                                                  .app = GM_NONE,
                                                  .no_frame = {.why = made->is_short_of_files
                                                                          ? GM_WHY_NO_FILES
                                                                          : GM_WHY_USED_BESIDE,
                                                               .error = made->error,
                                                               .files = gm_files_for_frames(),
                                                               .files_limit = gm_files_limit()}});
    engine->create_error = made->result;
    gm_engine_back_off(engine, GM_RETRY_FRAME);
    /* Without files for more frames, those that there are must do. */
    if (made->result == CUDA_ERROR_OUT_OF_MEMORY || made->is_short_of_files)
        engine->create_refused = made->is_short_of_files ? GM_WHY_NO_FILES : GM_WHY_USED_BESIDE;
}

void gm_engine_created(struct gm_engine *engine, uint32_t frame, uint32_t chunk,
                       const struct gm_made *made)
{
    gm_engine_again(engine);
    if (made->result != CUDA_SUCCESS) {
        gm_table_end_frame(engine->table, frame);
        if (chunk != GM_NONE) /* else who needs one will hear why */
            refused(engine, made);
        return;
    }
    if (chunk == GM_NONE) {
        gm_table_free_frame(engine->table, frame);
        return;
    }
    engine->create_error = CUDA_SUCCESS;
    gm_engine_went_well(engine, GM_RETRY_FRAME);
    engine->made[engine->n_made++] = frame;
}

uint32_t gm_engine_take_made(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    for (uint32_t i = 0; i < engine->n_made; i++) {
        const uint32_t made = engine->made[i];
        const struct gm_frame *frame = &engine->table->frames[made];
        if (frame->class != chunk->class || frame->pool != engine->table->apps[chunk->app].pool)
            continue;
        engine->made[i] = engine->made[--engine->n_made];
        return made;
    }
    return GM_NONE;
}

void gm_engine_leave_made(struct gm_engine *engine)
{
    if (engine->n_made > 0)
        gm_engine_replan(engine);
    while (engine->n_made > 0)
        gm_table_free_frame(engine->table, engine->made[--engine->n_made]);
}

/* ---- on the host ---- */

uint32_t gm_engine_ask_host_frame(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    if (chunk->host_frame != GM_NONE || engine->n_adopting == GM_ADOPT_AT_ONCE)
        return chunk->host_frame;
    const uint32_t frame = gm_table_add_host_frame(engine->table, index);
    if (frame == GM_NONE)
        return GM_NONE;
    struct gm_action *action = gm_engine_post_surely(engine, GM_ACTION_ADOPT);
    action->adopt.frame = frame;
    action->adopt.chunk = index;
    action->adopt.page = chunk->page;
    action->adopt.owner = (uint32_t)engine->apps[chunk->app].uid;
    engine->adopting[engine->n_adopting++] = action;
    return GM_NONE;
}

void gm_engine_forget_host_frame(struct gm_engine *engine, uint32_t chunk)
{
    for (uint32_t i = 0; i < engine->n_adopting; i++)
        if (engine->adopting[i]->adopt.chunk == chunk) {
            gm_table_end_frame(engine->table, engine->adopting[i]->adopt.frame);
            engine->adopting[i]->adopt.frame = GM_NONE;
            engine->adopting[i] = engine->adopting[--engine->n_adopting];
            return;
        }
}

void gm_engine_adopted(struct gm_engine *engine, uint32_t frame, uint32_t index,
                       const struct gm_made *made)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    engine->n_adopting = 0; /* all of them are carried out */
    if (frame == GM_NONE)
        return;
    gm_engine_again(engine);
    if (made->result != CUDA_SUCCESS) {
        gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_NO_EXPORT,
                                                  .app = GM_NONE,
                                                  .no_export.error = made->error});
        gm_table_end_frame(engine->table, frame);
        gm_engine_back_off_app(engine, chunk->app);
    } else if (gm_table_map(engine->table, index, frame)) {
        gm_engine_map(engine, index);
    }
}
