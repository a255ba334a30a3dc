/*
 * Apps from join to end: their messages (ALLOC, FREE, WANT, DRAINED, DONE and
 * those that it passes on), and allocations that are granted or refused. Called by step.c, and
 * by most files of the engine for what an app needs and has room for; calls all of them.
 */
#include "daemon/engine/apps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/sums.h"
#include "daemon/engine/ahead.h"
#include "daemon/engine/batches.h"
#include "daemon/engine/caps.h"
#include "daemon/engine/chunks.h"
#include "daemon/engine/client.h"
#include "daemon/engine/events.h"
#include "daemon/engine/exits.h"
#include "daemon/engine/feed.h"
#include "daemon/engine/frames.h"
#include "daemon/engine/gates.h"
#include "daemon/engine/groups.h"
#include "daemon/engine/idle.h"
#include "daemon/engine/log.h"
#include "daemon/engine/memory.h"
#include "daemon/engine/places.h"
#include "daemon/engine/policy.h"
#include "daemon/engine/refusals.h"
#include "daemon/engine/room.h"
#include "daemon/engine/shadows.h"
#include "daemon/engine/shares.h"
#include "daemon/engine/states.h"
#include "daemon/engine/waiting.h"

void gm_engine_free_app(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    gm_engine_close_batches(app);
    gm_engine_stop_watching(app);
    if (app->client) {
        app->client->engines[engine->config.index] = NULL;
        gm_client_drop(app->client);
    }
    memset(app, 0, sizeof *app);
}

/* Take the client's place in the tables. 0 or -errno, and then nothing has changed. */
static int take_place(struct gm_engine *engine, struct gm_client *client)
{
    const uint32_t id = client->id, index = engine->config.index;
    struct gm_app *app = &engine->apps[id];
    if (app->state != GM_APP_UNUSED)
        return -EEXIST;
    memset(app, 0, sizeof *app);
    gm_engine_open_batches(app);
    if (!gm_table_add_app(engine->table, id, (uint32_t)client->uid)) {
        gm_engine_drop_idle_pools(engine);
        if (!gm_table_add_app(engine->table, id, (uint32_t)client->uid)) {
            gm_engine_close_batches(app);
            return -ENOSPC;
        }
    }
    gm_engine_begin_places(app);
    app->client = client;
    app->pid = client->pid;
    app->uid = client->uid;
    memcpy(app->name, client->name, sizeof app->name);
    app->ctl = client->ctl;
    app->stat = client->stat;
    client->engines[index] = engine;
    gm_client_hold(client);
    gm_engine_tell_room(engine);
    return 0;
}

/* The client runs on other GPUs, or its gate is closing and its work has not ended yet: this engine
 * may move nothing of it. So it runs here, too, until it answers. It has no memory here, so it has
 * its turn at once. */
static void run_at_once(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    gm_engine_turn(engine, id, GM_APP_EV_CHOSEN);
    gm_engine_turn(engine, id, GM_APP_EV_LOADED);
    gm_engine_begin_work(engine, id, true);
    gm_engine_feed(engine, GM_SCHED_WANT, id, 0);
    gm_engine_feed(engine, GM_SCHED_OPENED, id, 0);
    if (app->client->shut != 0)
        gm_engine_close_gate(engine, id);
}

/* It is an app of this engine from now on. */
static void begin_app(struct gm_engine *engine, struct gm_client *client)
{
    const uint32_t id = client->id;
    struct gm_app *app = &engine->apps[id];
    const bool is_running = client->state != GM_CLIENT_QUIET;
    /* A process that comes again has executed another program: the old one's contexts are gone. */
    for (uint32_t other = 0; other < engine->config.max_apps; other++)
        if (engine->apps[other].state == GM_APP_GONE && engine->apps[other].pid == client->pid)
            gm_engine_exited(engine, other);
    gm_engine_watch_exit(engine, id);
    app->session = client->session;
    gm_engine_begin_idle(engine, id); /* until a thread of it waits for the gate */
    engine->n_apps++;
    gm_group_joined(engine, id);
    gm_engine_turn(engine, id, GM_APP_EV_JOIN);
    gm_engine_feed(engine, GM_SCHED_JOIN, id, 0);
    gm_engine_happened(engine, id, GM_EVENT_JOIN);
    if (is_running)
        run_at_once(engine, id);
    else
        gm_client_keep_shut(client, engine->config.index);
    gm_engine_first_policy(engine, id, &client->wishes);
}

int gm_engine_add_app(struct gm_engine *engine, struct gm_client *client)
{
    const int error = take_place(engine, client);
    if (error == 0)
        begin_app(engine, client);
    return error;
}

static void free_allocation(struct gm_engine *engine, uint32_t index, struct gm_last_word last)
{
    const struct gm_allocation *allocation = &engine->table->allocations[index];
    uint32_t app = allocation->app, chunk = allocation->first, next;
    gm_engine_unshare(engine, app, allocation->va);
    gm_engine_drop_shadows(engine, index);
    gm_table_free_allocation(engine->table, index, last);
    gm_engine_forget_newest(engine, index);
    gm_engine_fit(engine, app); /* it has less beyond the GPU now */
    gm_engine_fit_places(engine, app);
    if (engine->apps[app].session)
        gm_engine_tell_room(engine); /* before FREED, which the last chunk may send */
    for (chunk = allocation->first; chunk != GM_NONE; chunk = next) {
        next = engine->table->chunks[chunk].sibling;
        gm_engine_retire(engine, chunk);
    }
    gm_engine_want_memory(engine);
    if (engine->apps[app].state != GM_APP_GONE)
        gm_engine_feed(engine, GM_SCHED_SIZE, app, gm_room_needed(engine->table, app));
}

void gm_engine_app_left(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    uint32_t index, next;

    if (app->state == GM_APP_RUNNING || app->state == GM_APP_DRAINING)
        gm_engine_note_leaver(engine, id, true);
    gm_engine_note_last_refusal(engine, id);
    gm_group_changed(engine, id);
    app->session = NULL;
    gm_engine_await_exit(engine, id);
    gm_engine_turn(engine, id, GM_APP_EV_LEAVE);
    const uint32_t other = gm_group_other_here(engine, id);
    gm_engine_feed(engine, GM_SCHED_LEAVE, id, 0);
    if (other != GM_NONE && !engine->stopping.is_on)
        gm_engine_apply_policy(engine,
                               other); /* the settings of its group are those of who is left */
    gm_engine_forget_waiting(engine, id);
    gm_engine_void_batches(engine, id);
    for (index = engine->table->apps[id].allocations.head; index != GM_NONE; index = next) {
        next = engine->table->allocations[index].next;
        if (!engine->table->allocations[index].is_freed)
            free_allocation(engine, index, (struct gm_last_word){.kind = GM_LAST_NONE});
    }
    gm_engine_forget_opens(engine, id);
    app->allocs.pending = app->allocs.ahead = app->allocs.ahead_chunks = 0;
}

void gm_engine_bury(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        if (app->state != GM_APP_GONE || gm_engine_is_left(app) ||
            engine->table->apps[id].allocations.count > 0)
            continue;
        gm_engine_turn(engine, id, GM_APP_EV_END);
        gm_table_remove_app(engine->table, id);
        gm_engine_free_app(engine, id);
        engine->n_apps--;
    }
}

/* Allocations. */

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
    } else if (app->session) {
        engine->config.outlet.send(app->session, GM_MSG_ALLOCATED, &answer, NULL, 0, NULL, 0);
    }
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
    gm_engine_feed(engine, GM_SCHED_SIZE, id, gm_room_needed(engine->table, id));
    return GM_WHY_NONE;
}

void gm_engine_refuse_alloc(struct gm_engine *engine, uint32_t id, uint64_t cookie)
{
    struct gm_msg_allocated answer = {.cookie = cookie, .result = CUDA_ERROR_OUT_OF_MEMORY};
    engine->config.outlet.send(engine->apps[id].session, GM_MSG_ALLOCATED, &answer, NULL, 0, NULL,
                               0);
}

void gm_engine_asked(struct gm_engine *engine, uint32_t id, const struct gm_msg_alloc *alloc)
{
    struct gm_app *app = &engine->apps[id];

    if (alloc->gpu != engine->config.index || alloc->va == 0 || alloc->va % GM_CHUNK_MIN ||
        alloc->bytes == 0 || alloc->bytes % GM_CHUNK_MIN || alloc->bytes > UINT64_MAX - alloc->va ||
        (alloc->flags & ~GM_ALLOC_AHEAD) != 0 ||
        gm_table_find_allocation(engine->table, id, alloc->va) != GM_NONE ||
        gm_engine_is_waiting_at(engine, id, alloc->va)) {
        engine->config.outlet.end(app->session, GM_REFUSE_PROTOCOL, "an allocation that cannot be");
        return;
    }
    gm_engine_happened(engine, id, GM_EVENT_ALLOC);
    if ((alloc->flags & GM_ALLOC_AHEAD) == 0)
        gm_engine_admit(engine, id, alloc);
    else if (!gm_engine_admit_ahead(engine, id, alloc))
        gm_engine_refuse_alloc(engine, id, alloc->cookie);
}

void gm_engine_take_back(struct gm_engine *engine, uint32_t index)
{
    gm_engine_happened(engine, engine->table->allocations[index].app, GM_EVENT_FREE);
    free_allocation(engine, index, (struct gm_last_word){.kind = GM_LAST_TAKEN});
}

void gm_engine_frees(struct gm_engine *engine, uint32_t id, const struct gm_msg_free *free_msg)
{
    struct gm_app *app = &engine->apps[id];
    uint32_t index = gm_table_find_allocation(engine->table, id, free_msg->va);
    struct gm_msg_freed answer = {.cookie = free_msg->cookie, .result = CUDA_ERROR_INVALID_VALUE};

    gm_engine_happened(engine, id, GM_EVENT_FREE);
    if (index == GM_NONE || engine->table->allocations[index].is_pending) {
        engine->config.outlet.send(app->session, GM_MSG_FREED, &answer, NULL, 0, NULL, 0);
        return;
    }
    const struct gm_last_word last = {.kind = GM_LAST_FREED, .cookie = free_msg->cookie};
    free_allocation(engine, index, last);
}
