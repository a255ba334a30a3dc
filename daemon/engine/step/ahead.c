/*
 * Memory that a program which grows may need next, and that nobody waits for (shim/memory/ahead.h).
 * It is no reason to pause anybody, nor to move or to destroy anything: everything fits and is
 * there, with this a part of the budget stays free, and its frames are made first. All else is
 * refused, and the program is as it was. What came is a spare (spares.c) until the program
 * allocates it.
 */
#include "daemon/engine/step/ahead.h"

#include "daemon/engine/act/device.h"
#include "daemon/engine/act/frames.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/room.h"

/* Of the device, one part in so many: ... and this, if the device has less left than the
 * budget. */
#define GM_AHEAD_DEVICE_SHARE 4
/* Frames: Made for it at most, in some 8 ms. */
#define GM_AHEAD_FRAMES 16

/* Whether all programs have all their memory, but for what is on its way to them ahead. */
static bool is_whole(const struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        if (engine->table->apps[id].is_used &&
            (engine->table->apps[id].missing > app->allocs.ahead_chunks ||
             app->allocs.pending > app->allocs.ahead || app->state == GM_APP_LOADING ||
             app->state == GM_APP_DRAINING))
            return false;
    }
    return engine->table->budget == gm_engine_offered(engine) &&
           !gm_engine_is_off(engine, GM_RETRY_FRAME) && !engine->create_more && !engine->waiting;
}

/* Whether the device has memory to spare. It may have less than the budget, as programs beside
 * gpumux use it as well: what the budget still allows could not be had then. */
static bool has_device_room(struct gm_engine *engine)
{
    const uint64_t allowed = engine->table->budget - engine->table->allocated;
    uint64_t free_bytes, total;
    return gm_engine_ask_device(engine, &free_bytes, &total) &&
           (free_bytes >= allowed || free_bytes >= total / GM_AHEAD_DEVICE_SHARE);
}

/* Have as many free frames as chunks of `bytes` need, if few have to be made. */
static bool make_frames_ahead(struct gm_engine *engine, uint32_t pool, uint64_t bytes)
{
    uint32_t needed[GM_CHUNK_CLASSES] = {0}, made = 0;
    for (uint64_t left = bytes, one; left > 0; left -= one) {
        one = gm_class_bytes(gm_chunk_next(left));
        needed[gm_chunk_next(left)]++;
    }
    for (unsigned class = 0; class < GM_CHUNK_CLASSES; class ++)
        for (; engine->table->pools[pool].count[class] < needed[class]; made++)
            if (made == GM_AHEAD_FRAMES || (made == 0 && !has_device_room(engine)) ||
                !gm_engine_make_free_frame(engine, pool, class))
                return false;
    return true;
}

bool gm_engine_admit_ahead(struct gm_engine *engine, uint32_t id, const struct gm_msg_alloc *alloc)
{
    const struct gm_table *table = engine->table;
    const uint64_t taken = table->committed + table->orphaned;
    const uint64_t room = engine->room + table->fixed, most = room - room / GM_AHEAD_SHARE;
    const struct gm_room_input input = gm_engine_room_input(engine, id);
    if (engine->stopping.is_on || engine->apps[id].state != GM_APP_RUNNING || taken > most ||
        alloc->bytes > most - taken || alloc->bytes > gm_room_of(&input).gpu || !is_whole(engine) ||
        !make_frames_ahead(engine, table->apps[id].pool, alloc->bytes))
        return false;
    return gm_engine_commit(engine, id, alloc) == GM_WHY_NONE;
}

void gm_engine_call_off_ahead(struct gm_engine *engine, uint32_t id)
{
    const struct gm_table *table = engine->table;
    const struct gm_app *app = &engine->apps[id];
    uint32_t index = table->apps[id].allocations.head, next;
    for (; index != GM_NONE && app->allocs.ahead > 0; index = next) {
        const struct gm_allocation *allocation = &table->allocations[index];
        next = allocation->next;
        if (allocation->is_ahead && allocation->is_pending && !allocation->is_freed)
            gm_engine_answer_alloc(engine, index, CUDA_ERROR_OUT_OF_MEMORY);
    }
}
