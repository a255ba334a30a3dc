/*
 * Makes frames, and destroys them. Called by act.c; calls memory/frames.c.
 */
#include "daemon/engine/act/frames.h"

#include "daemon/engine/act/device.h"
#include "daemon/memory/files.h"

static struct gm_made made_of(const struct gm_engine *engine, CUresult result)
{
    return (struct gm_made){.result = result,
                            .error = result ? gm_engine_error_text(engine, result) : NULL};
}

void gm_engine_create_frame(struct gm_engine *engine, struct gm_action *action)
{
    const CUresult result =
        gm_frames_create(&engine->frames, action->create.frame, action->create.bytes);
    action->create.made = made_of(engine, result);
    /* Files may be free again by now: gm_frames_create and the driver both say this for want of
     * one. */
    action->create.made.is_short_of_files =
        result == CUDA_ERROR_OPERATING_SYSTEM ||
        (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY &&
         gm_files_left_for_frames() < GM_FILES_SPARE);
}

void gm_engine_adopt_frame(struct gm_engine *engine, struct gm_action *action)
{
    if (action->adopt.frame != GM_NONE)
        action->adopt.made =
            made_of(engine, gm_frames_adopt(&engine->frames, action->adopt.frame, &engine->pool,
                                            action->adopt.page, action->adopt.owner));
}

static uint64_t free_on_device(const struct gm_engine *engine)
{
    struct gm_device_room room;
    gm_engine_ask_device(engine, &room);
    return room.free_bytes;
}

void gm_engine_destroy_frame(struct gm_engine *engine, struct gm_action *action)
{
    const uint64_t bytes = action->destroy.bytes;
    const uint64_t before = action->destroy.may_be_kept ? free_on_device(engine) : 0;
    gm_frames_destroy(&engine->frames, action->destroy.frame, bytes);
    action->destroy.is_kept =
        action->destroy.may_be_kept && free_on_device(engine) < before + bytes;
}
