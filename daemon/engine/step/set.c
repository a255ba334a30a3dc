/*
 * mux-ctl set: which programs it is for, who may say so, and what follows. Owns
 * gm_app.policy.is_ahead and ahead_run_ns. Called by machine.c, which asks all GPUs before one is
 * changed, by step.c, and by layout.c; calls settings.c, sizes.c, caps.c and policy.c.
 */
#include "daemon/engine/step/set.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/log.h"
#include "daemon/engine/step/policy.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/settings.h"
#include "daemon/engine/step/sizes.h"

static bool is_match(const struct gm_set_request *request, const struct gm_client *client)
{
    return (!(request->selects & GM_SET_PID) || client->pid == request->pid) &&
           (!(request->selects & GM_SET_UID) || client->uid == request->uid) &&
           (!(request->selects & GM_SET_COMMAND) ||
            gm_command_matches(request->command, client->name));
}

/* Who selects one of a group selects all of it. */
static bool is_selected(const struct gm_engine *engine, uint32_t id,
                        const struct gm_set_request *request)
{
    const struct gm_app *app = &engine->apps[id];
    if (!gm_engine_can_be_set(app))
        return false;
    const struct gm_client *client = gm_group_clients(app->client->group);
    while (client && !(client->session && is_match(request, client)))
        client = client->next;
    return client != NULL;
}

/* A program counts once, on the first of its GPUs. */
static bool counts_here(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_client *client = engine->apps[id].client;
    uint32_t first = 0;
    while (!client->engines[first])
        first++;
    return client->engines[first] == engine;
}

static int refuse(int error, char *why, size_t size, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static int refuse(int error, char *why, size_t size, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(why, size, format, list);
    va_end(list);
    return error;
}

/* What one can say to a selection that holds nothing of the asker's. */
static int refuse_none(const struct gm_set_request *request, bool has_others, char *why,
                       size_t size)
{
    if (has_others)
        return refuse(-EPERM, why, size, "that is another user's program: only root may set it");
    if (request->selects == GM_SET_PID)
        return refuse(-ENOENT, why, size,
                      "pid %d is no program that shares the GPU: mux-ctl ps lists them",
                      (int)request->pid);
    if (request->selects == GM_SET_COMMAND)
        return refuse(-ENOENT, why, size,
                      "no program that shares the GPU has the name \"%s\": mux-ctl ps lists them",
                      request->command);
    return refuse(-ENOENT, why, size, "no such program shares the GPU now");
}

/* Its memory is to come to the GPU as far as nobody else wants the room, until its next turn. */
static void ask_ahead(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_sched_account account;
    app->policy.is_ahead = gm_engine_account(engine, id, &account);
    app->policy.ahead_run_ns = account.run_ns;
    gm_engine_replan(engine);
    gm_engine_again(engine);
}

bool gm_engine_is_asked_ahead(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    struct gm_sched_account account;
    return app->policy.is_ahead && gm_engine_account(engine, id, &account) &&
           account.run_ns == app->policy.ahead_run_ns;
}

static void set_one(struct gm_engine *engine, uint32_t id, const struct gm_set_request *request)
{
    struct gm_app *app = &engine->apps[id];
    const struct gm_settings admin = app->policy.admin, own = app->policy.own;
    if (request->settings.has == GM_SET_AHEAD) {
        ask_ahead(engine, id);
        return;
    }
    if (request->is_admin)
        gm_engine_set_admin(app, &request->settings, request->asker);
    else
        gm_engine_set_own(app, &request->settings);
    if (gm_engine_are_same_settings(&admin, &app->policy.admin) &&
        gm_engine_are_same_settings(&own, &app->policy.own))
        return; /* said before */
    if (request->settings.has & GM_SET_OVERSIZE)
        gm_engine_resize(engine, id);
    if (request->settings.has & GM_SET_CAP)
        gm_engine_recap(engine, id);
    struct gm_sched_policy policy = gm_engine_apply_policy(engine, id);
    gm_engine_note_set(engine, id, request->asker, &request->settings, &policy);
}

int gm_engine_check_set(struct gm_engine *engine, const struct gm_set_request *request, char *why,
                        size_t why_size)
{
    const bool is_free = request->is_admin;
    bool *selected;
    int error = 0;
    if (!(request->settings.has & GM_SET_CAP))
        return 0;
    gm_engine_count_users(engine);
    gm_engine_tell_room(engine);
    selected = calloc(engine->config.max_apps, sizeof *selected);
    if (!selected)
        return refuse(-ENOMEM, why, why_size, "out of memory");
    for (uint32_t id = 0; id < engine->config.max_apps && error == 0; id++) {
        selected[id] =
            is_selected(engine, id, request) && (is_free || engine->apps[id].uid == request->asker);
        if (selected[id])
            error = gm_engine_check_cap(engine, id, request->settings.cap, why, why_size);
    }
    if (error == 0)
        error = gm_engine_check_room(engine, selected, request->settings.cap, why, why_size);
    free(selected);
    return error;
}

/* Who stands still cannot give its turn back, nor its memory. */
static struct gm_reason why_later(const struct gm_engine *engine,
                                  const struct gm_set_request *request)
{
    const bool pauses_it = (request->settings.has & GM_SET_PAUSED) && request->settings.is_paused;
    for (uint32_t id = 0; id < engine->config.max_apps && pauses_it; id++) {
        const struct gm_client *client = engine->apps[id].client;
        if (is_selected(engine, id, request) && engine->apps[id].is_stopped)
            return (struct gm_reason){.why = GM_WHY_LATER, .of = client->stop, .pid = client->pid};
    }
    return (struct gm_reason){0};
}

int gm_engine_apply_set(struct gm_engine *engine, const struct gm_set_request *request,
                        struct gm_set_done *done, char *why, size_t why_size)
{
    bool is_free = request->is_admin, has_others = false;
    uint32_t mine = 0, counted = 0;
    char reason[192];

    why[0] = '\0';
    if (engine->stopping.is_on)
        return refuse(-ESHUTDOWN, why, why_size, "the daemon is stopping");

    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (!is_selected(engine, id, request))
            continue;
        if (!is_free && engine->apps[id].uid != request->asker) {
            has_others = true;
            continue;
        }
        if (!is_free && !gm_engine_may_say(engine, id, &request->settings, reason, sizeof reason))
            return refuse(-EPERM, why, why_size, "app %" PRIu32 " (pid %d, %s): %s", id,
                          (int)engine->apps[id].pid, engine->apps[id].name, reason);
        if ((request->settings.has & GM_SET_OVERSIZE) && request->settings.is_oversize &&
            !gm_engine_has_host_frames(engine))
            return refuse(-ENOTSUP, why, why_size,
                          "oversize=host is not possible: GPU %d has no memory handles on the host",
                          engine->config.gpu);
        mine++;
        counted += counts_here(engine, id);
    }
    if (mine == 0)
        return refuse_none(request, has_others, why, why_size);
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (is_selected(engine, id, request) && (is_free || engine->apps[id].uid == request->asker))
            set_one(engine, id, request);
    *done = (struct gm_set_done){.changed = counted, .later = why_later(engine, request)};
    return 0;
}
