/*
 * Allocations: committed, answered, refused and freed. Owns gm_app.allocs, but for what waits
 * (waiting.c). Called by the files that decide on them; what follows for places, caps, shares and
 * the scheduler is told from here.
 */
#include "daemon/engine/step/allocs.h"

#include "common/sums.h"
#include "daemon/engine/act/events.h"
#include "daemon/engine/act/say.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/chunks.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/shadows.h"
#include "daemon/engine/step/shares.h"

static void free_allocation(struct gm_engine *engine, uint32_t index, struct gm_last_word last)
{
    const struct gm_allocation *allocation = &engine->table->allocations[index];
    uint32_t app = allocation->app, chunk = allocation->first, next;
    gm_engine_unshare(engine, app, allocation->va);
    gm_engine_drop_shadows(engine, index);
    const struct gm_table_app *entry = &engine->table->apps[app];
    const uint64_t held = entry->held;
    gm_table_free_allocation(engine->table, index, last);
    /* What was shared on the host stays there, as nobody's promise, until nobody has it open. */
    gm_table_set_beyond(engine->table, app, gm_less(entry->beyond, held - entry->held));
    gm_engine_forget_newest(engine, index);
    gm_engine_fit(engine, app); /* it has less beyond the GPU now */
    if (engine->apps[app].session)
        gm_engine_tell_room(engine); /* before FREED, which the last chunk may send */
    else
        gm_engine_count_aside(engine);
    gm_engine_fit_places(engine, app);
    for (chunk = allocation->first; chunk != GM_NONE; chunk = next) {
        next = engine->table->chunks[chunk].sibling;
        gm_engine_retire(engine, chunk);
    }
    gm_engine_want_memory(engine);
    if (engine->apps[app].state != GM_APP_GONE)
        gm_engine_feed(engine, GM_SCHED_SIZE, app, gm_room_promised(engine->table, app));
}

void gm_engine_free_allocations(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    uint32_t index, next;
    for (index = engine->table->apps[id].allocations.head; index != GM_NONE; index = next) {
        next = engine->table->allocations[index].next;
        if (!engine->table->allocations[index].is_freed)
            free_allocation(engine, index, (struct gm_last_word){.kind = GM_LAST_NONE});
    }
    app->allocs.pending = app->allocs.ahead = app->allocs.ahead_chunks = 0;
}

void gm_engine_answer_alloc(struct gm_engine *engine, uint32_t index, CUresult result)
{
    const struct gm_allocation *allocation = &engine->table->allocations[index];
    struct gm_app *app = &engine->apps[allocation->app];
    struct gm_msg_allocated answer = {.cookie = allocation->cookie, .result = (int32_t)result};

    gm_table_answer(engine->table, index);
    app->allocs.pending--;
    if (allocation->is_ahead) {
        app->allocs.ahead--;
        app->allocs.ahead_chunks -= (uint32_t)gm_chunk_count(allocation->bytes);
    }
    if (result != CUDA_SUCCESS) {
        /* Answered at its end, when nothing of it is mapped any more: the shim gives the addresses
         * back then. */
        const struct gm_last_word last = {
            .kind = GM_LAST_FAILED, .result = (int32_t)result, .cookie = allocation->cookie};
        free_allocation(engine, index, last);
    } else if (app->session && allocation->cookie != 0) {
        gm_engine_say(engine, allocation->app, GM_MSG_ALLOCATED, &answer);
    }
}

void gm_engine_expect_again(struct gm_engine *engine, uint32_t id)
{
    const struct gm_table *table = engine->table;
    for (uint32_t at = table->apps[id].allocations.head; at != GM_NONE;
         at = table->allocations[at].next) {
        if (table->allocations[at].is_freed || table->allocations[at].is_pending ||
            table->allocations[at].missing == 0)
            continue;
        gm_table_await_answer(engine->table, at, 0, false);
        engine->apps[id].allocs.pending++;
    }
}

bool gm_engine_asked_again(struct gm_engine *engine, uint32_t id, const struct gm_msg_alloc *alloc)
{
    struct gm_table *table = engine->table;
    const uint32_t at = gm_table_find_allocation(table, id, alloc->va);
    if (at == GM_NONE || alloc->cookie == 0 || alloc->cookie > engine->apps[id].client->again ||
        table->allocations[at].bytes != alloc->bytes ||
        (table->allocations[at].is_pending && table->allocations[at].cookie != 0))
        return false;
    engine->apps[id].allocs.pending += !table->allocations[at].is_pending;
    gm_table_await_answer(table, at, alloc->cookie, false);
    return true;
}

/* An allocation is answered when the app may go on with it: mapped if its gate is open, at once if
 * it is closed and quiet. While it drains the gate may still reopen, so the answer waits; also
 * while the app is held, as its gate opens soon. */
void gm_engine_answer_allocs(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    uint32_t index = engine->table->apps[id].allocations.head, next;
    for (; index != GM_NONE && app->allocs.pending > 0; index = next) {
        const struct gm_allocation *allocation = &engine->table->allocations[index];
        next = allocation->next;
        if (!allocation->is_pending || allocation->is_freed)
            continue;
        const bool is_paused = app->state == GM_APP_PAUSED || app->state == GM_APP_LOADING;
        if ((is_paused && !app->places.is_held) ||
            ((is_paused || app->state == GM_APP_RUNNING) && allocation->missing == 0))
            gm_engine_answer_alloc(engine, index, CUDA_SUCCESS);
    }
}

void gm_engine_answer_refused(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        uint32_t index = engine->table->apps[id].allocations.head, next;
        for (; index != GM_NONE && engine->apps[id].allocs.pending > 0; index = next) {
            const struct gm_allocation *allocation = &engine->table->allocations[index];
            next = allocation->next;
            if (allocation->is_refused && allocation->is_pending)
                gm_engine_answer_alloc(engine, index, CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
}

enum gm_why gm_engine_commit(struct gm_engine *engine, uint32_t id,
                             const struct gm_msg_alloc *alloc)
{
    struct gm_table *table = engine->table;
    struct gm_app *app = &engine->apps[id];
    const struct gm_room_input input = gm_engine_room_input(engine, id);
    const uint64_t beyond = gm_less(alloc->bytes, gm_room_of(&input).gpu);
    enum gm_why why = gm_room_refuses(&input, alloc->bytes);
    uint32_t index = GM_NONE;

    if (why == GM_WHY_NONE)
        index = gm_table_add_allocation(table, id, alloc->va, alloc->bytes);
    if (index == GM_NONE)
        return why == GM_WHY_NONE ? GM_WHY_FULL : why;
    gm_engine_reclaim_host(engine, id, beyond);
    gm_table_set_beyond(table, id, table->apps[id].beyond + beyond);
    gm_table_await_answer(table, index, alloc->cookie, (alloc->flags & GM_ALLOC_AHEAD) != 0);
    app->allocs.pending++;
    if (alloc->flags & GM_ALLOC_AHEAD) {
        app->allocs.ahead++;
        app->allocs.ahead_chunks += (uint32_t)gm_chunk_count(alloc->bytes);
    }
    gm_engine_place_new(engine, index);
    gm_engine_want_memory(engine);
    gm_engine_need_budget(engine, id);
    gm_engine_tell_room(engine); /* before ALLOCATED */
    gm_engine_feed(engine, GM_SCHED_SIZE, id, gm_room_promised(engine->table, id));
    return GM_WHY_NONE;
}

void gm_engine_refuse_alloc(struct gm_engine *engine, uint32_t id, uint64_t cookie)
{
    struct gm_msg_allocated answer = {.cookie = cookie, .result = CUDA_ERROR_OUT_OF_MEMORY};
    gm_engine_say(engine, id, GM_MSG_ALLOCATED, &answer);
}

void gm_engine_take_back(struct gm_engine *engine, uint32_t index)
{
    gm_engine_happened(engine, engine->table->allocations[index].app, GM_EVENT_FREE);
    free_allocation(engine, index, (struct gm_last_word){.kind = GM_LAST_TAKEN});
}

void gm_engine_frees(struct gm_engine *engine, uint32_t id, const struct gm_msg_free *free_msg)
{
    uint32_t index = gm_table_find_allocation(engine->table, id, free_msg->va);
    struct gm_msg_freed answer = {.cookie = free_msg->cookie, .result = CUDA_ERROR_INVALID_VALUE};

    gm_engine_happened(engine, id, GM_EVENT_FREE);
    if (index != GM_NONE && engine->table->allocations[index].is_pending &&
        engine->table->allocations[index].cookie == 0) {
        gm_table_answer(engine->table, index); /* it did not ask for it again */
        engine->apps[id].allocs.pending--;
    }
    if (index == GM_NONE || engine->table->allocations[index].is_pending) {
        if (index == GM_NONE && free_msg->cookie <= engine->apps[id].client->again)
            answer.result = CUDA_SUCCESS; /* the daemon before has freed it */
        gm_engine_say(engine, id, GM_MSG_FREED, &answer);
        return;
    }
    const struct gm_last_word last = {.kind = GM_LAST_FREED, .cookie = free_msg->cookie};
    free_allocation(engine, index, last);
}
