/*
 * Apps from join to end, and what each asks for when it asks for memory. Called by step.c, and by
 * run.c to end what is gone.
 */
#include "daemon/engine/step/apps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/act/batches.h"
#include "daemon/engine/act/client.h"
#include "daemon/engine/act/events.h"
#include "daemon/engine/act/exits.h"
#include "daemon/engine/act/frames.h"
#include "daemon/engine/act/say.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/step/ahead.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/chunks.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/gates.h"
#include "daemon/engine/step/idle.h"
#include "daemon/engine/step/log.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/policy.h"
#include "daemon/engine/step/refusals.h"
#include "daemon/engine/step/release.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/shares.h"
#include "daemon/engine/step/states.h"
#include "daemon/engine/step/waiting.h"
#include "daemon/engine/step/wishes.h"

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

/* The client is this app, which is in the table. */
static void fill_in(struct gm_engine *engine, struct gm_client *client)
{
    struct gm_app *app = &engine->apps[client->id];
    gm_engine_begin_places(app);
    app->client = client;
    app->pid = client->pid;
    app->uid = client->uid;
    memcpy(app->name, client->name, sizeof app->name);
    app->ctl = client->ctl;
    app->stat = client->stat;
    client->engines[engine->config.index] = engine;
    gm_client_hold(client);
}

/* Take the client's place in the tables. 0 or -errno, and then nothing has changed. */
static int take_place(struct gm_engine *engine, struct gm_client *client)
{
    const uint32_t id = client->id;
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
    fill_in(engine, client);
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
    /* A process that comes again has executed another program, and the old one's contexts are gone;
     * or it lies, and may still reach what it had: what others would use waits for its end. */
    for (uint32_t other = 0; other < engine->config.max_apps; other++)
        if (engine->apps[other].pid == client->pid && engine->apps[other].state == GM_APP_GONE &&
            engine->apps[other].exit.is_awaited)
            gm_engine_exit_late(engine, other);
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

void gm_engine_app_left(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];

    if (app->state == GM_APP_RUNNING || app->state == GM_APP_DRAINING)
        gm_engine_note_leaver(engine, id, true);
    gm_engine_note_last_refusal(engine, id);
    gm_group_changed(engine, id);
    app->session = NULL;
    gm_engine_await_exit(engine, id);
    gm_engine_turn(engine, id, GM_APP_EV_LEAVE);
    if (engine->table->apps[id].is_lost)
        gm_engine_end_awaiting(engine, id);
    const uint32_t other = gm_group_other_here(engine, id);
    gm_engine_feed(engine, GM_SCHED_LEAVE, id, 0);
    if (other != GM_NONE && !engine->stopping.is_on)
        gm_engine_apply_policy(engine,
                               other); /* the settings of its group are those of who is left */
    gm_engine_forget_waiting(engine, id);
    gm_engine_void_batches(engine, id);
    gm_engine_free_allocations(engine, id);
    gm_engine_forget_opens(engine, id);
}

/* ---- programs of the daemon before ---- */

/* It is asked to drop what is condemned as soon as it is back. */
static void owe_drops(struct gm_engine *engine, uint32_t id)
{
    struct gm_table *table = engine->table;
    for (uint32_t i = table->first_condemned; i != GM_NONE; i = table->frames[i].next)
        gm_table_drop(table, i, id);
}

int gm_engine_await_app(struct gm_engine *engine, struct gm_client *client,
                        const struct gm_client_record *record)
{
    const uint32_t id = client->id;
    const struct gm_table_app *entry = &engine->table->apps[id];
    struct gm_app *app = &engine->apps[id];
    const bool is_its = engine->table->pools[entry->pool].uid == client->uid;
    /* Who cannot come back waits for the end of its process, whosever the ledgers say it is. */
    if (app->state != GM_APP_UNUSED || !entry->is_used || !entry->is_lost ||
        (!is_its && !client->is_cut))
        return -ENOENT;
    memset(app, 0, sizeof *app);
    gm_engine_open_batches(app);
    fill_in(engine, client);
    gm_engine_keep_policy(engine, id, record);
    app->back.level = record->turns[engine->config.index].level;
    app->back.charged_ns = record->turns[engine->config.index].charged_ns;
    app->back.run_ns = record->turns[engine->config.index].run_ns;
    app->back.wait_ns = record->turns[engine->config.index].wait_ns;
    engine->n_apps++;
    gm_engine_turn(engine, id, GM_APP_EV_AWAIT);
    gm_client_keep_shut(client, engine->config.index);
    gm_engine_note_silence(engine, id, true);
    owe_drops(engine, id);
    return 0;
}

void gm_engine_connect_app(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    gm_engine_watch_exit(engine, id);
    app->session = app->client->session;
    app->ctl = app->client->ctl;
}

void gm_engine_rejoin_app(struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    gm_engine_begin_idle(engine, id);
    gm_group_joined(engine, id);
    gm_engine_feed_return(engine, id, app->back.level, app->back.charged_ns);
    gm_engine_happened(engine, id, GM_EVENT_JOIN);
    gm_engine_policy_again(engine, id);
    gm_engine_follow_cap(engine, id);
    gm_engine_need_places(engine, id);
    gm_engine_tell_room(engine);
    gm_engine_feed(engine, GM_SCHED_SIZE, id, gm_room_promised(engine->table, id));
}

void gm_engine_give_up_app(struct gm_engine *engine, uint32_t id, bool is_over)
{
    struct gm_app *app = &engine->apps[id];
    if (app->state != GM_APP_LOST || app->session)
        return;
    if (!is_over)
        gm_engine_watch_exit(engine, id);
    for (uint32_t i = 0; i < engine->table->max_frames; i++)
        gm_table_end_drop(engine->table, i, id, is_over);
    gm_engine_note_silence(engine, id, false);
    gm_engine_turn(engine, id, GM_APP_EV_LEAVE);
    gm_engine_end_awaiting(engine, id);
    gm_engine_free_allocations(engine, id);
    gm_engine_forget_opens(engine, id);
    if (!is_over)
        gm_engine_exit_late(engine, id);
}

int gm_engine_give_up_rest(struct gm_engine *engine)
{
    const struct gm_client_record record = {.pid = 0};
    struct gm_client *client;
    int error = 0;
    for (uint32_t id = 0; id < engine->config.max_apps && error == 0; id++) {
        const struct gm_table_app *entry = &engine->table->apps[id];
        if (!entry->is_lost || engine->apps[id].state != GM_APP_UNUSED)
            continue;
        error = gm_client_open_ended(&client, id, (uid_t)engine->table->pools[entry->pool].uid);
        if (error)
            break;
        error = gm_engine_await_app(engine, client, &record);
        gm_engine_give_up_app(engine, id, true);
        gm_client_drop(client);
    }
    return error;
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

void gm_engine_asked(struct gm_engine *engine, uint32_t id, const struct gm_msg_alloc *alloc)
{
    const bool is_again = gm_engine_asked_again(engine, id, alloc);
    if (alloc->gpu != engine->config.index || alloc->va == 0 || alloc->va % GM_CHUNK_MIN ||
        alloc->bytes == 0 || alloc->bytes % GM_CHUNK_MIN || alloc->bytes > UINT64_MAX - alloc->va ||
        (alloc->flags & ~GM_ALLOC_AHEAD) != 0 ||
        (gm_table_find_allocation(engine->table, id, alloc->va) != GM_NONE && !is_again) ||
        gm_engine_is_waiting_at(engine, id, alloc->va)) {
        gm_engine_cut_off(engine, id, GM_REFUSE_PROTOCOL, "an allocation that cannot be");
        return;
    }
    if (is_again)
        return; /* it is answered as any that is pending */
    gm_engine_happened(engine, id, GM_EVENT_ALLOC);
    if ((alloc->flags & GM_ALLOC_AHEAD) == 0)
        gm_engine_admit(engine, id, alloc);
    else if (!gm_engine_admit_ahead(engine, id, alloc))
        gm_engine_refuse_alloc(engine, id, alloc->cookie);
}
