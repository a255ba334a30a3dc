/*
 * What a chunk lets go of: its frame and its pages. Some of it is used again at once; a frame that
 * somebody else may reach ends when that is over (frames.c), or with the memory that it is shared
 * as (shares.c). Called by chunks.c and hashes.c.
 */
#include "daemon/engine/step/release.h"

#include "daemon/engine/act/exits.h"
#include "daemon/engine/act/frames.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/shares.h"

/* Whom a frame of the chunk waits for that is nobody's any more. */
static uint32_t exit_of(const struct gm_engine *engine, const struct gm_chunk *chunk)
{
    const struct gm_app *app = &engine->apps[chunk->app];
    const bool is_awaited = gm_engine_is_left(app) && !app->exit.is_late;
    return app->state == GM_APP_GONE && is_awaited ? chunk->app : GM_NONE;
}

/* The pages of a chunk are in its tier's store; on its way between GPU and pinned memory, in the
 * latter. Those of a host frame go with it, when no program can reach it any more. */
void gm_engine_free_pages(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    const enum gm_tier tier =
        chunk->tier > GM_TIER_PINNED ? (enum gm_tier)chunk->tier : GM_TIER_PINNED;
    if (chunk->host_frame != GM_NONE)
        gm_engine_condemn(engine, chunk->host_frame, exit_of(engine, chunk));
    const uint32_t page = gm_table_leave_pages(engine->table, index);
    if (page != GM_NONE)
        gm_stores_free(engine->stores, tier, page);
}

/* Its program is gone. */
static void end_frame(struct gm_engine *engine, const struct gm_chunk *chunk, uint32_t frame)
{
    gm_engine_condemn(engine, frame, exit_of(engine, chunk));
    if (!engine->apps[chunk->app].exit.is_late)
        gm_table_keep_frame(engine->table, frame);
}

void gm_engine_give_up_frame(struct gm_engine *engine, uint32_t index)
{
    const struct gm_chunk *chunk = &engine->table->chunks[index];
    const uint32_t frame = chunk->frame;
    gm_engine_again(engine);
    if (frame == GM_NONE)
        return;
    if (engine->table->frames[frame].share != 0)
        gm_engine_leave_share(engine, frame);
    else if (engine->table->frames[frame].is_host)
        ; /* it stays as long as the data in its pages: gm_engine_free_pages */
    else if (engine->apps[chunk->app].state != GM_APP_GONE)
        gm_engine_free_frame(engine, frame);
    else
        end_frame(engine, chunk, frame);
}

void gm_engine_end_awaiting(struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    const uint32_t exit = gm_engine_is_left(app) ? id : GM_NONE;
    for (uint32_t i = 0; i < engine->table->max_frames; i++) {
        const struct gm_frame *frame = &engine->table->frames[i];
        if (frame->state == GM_FRAME_USED && frame->chunk == GM_NONE && frame->share == 0 &&
            frame->mapper == id)
            gm_engine_condemn(engine, i, exit);
    }
    gm_table_set_lost(engine->table, id, false);
}
