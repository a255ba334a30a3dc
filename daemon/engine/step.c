/*
 * What comes from outside: messages, timers, the ends of copies, what an administrator asks for.
 * Each enters here, where the time is read once, changes the state, and ends with gm_engine_run.
 * Called by the machine, and by libuv and workers through open.c; nobody in the engine calls it.
 */
#include "daemon/engine/step.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/engine/allocs.h"
#include "daemon/engine/answers.h"
#include "daemon/engine/apps.h"
#include "daemon/engine/budget.h"
#include "daemon/engine/chunks.h"
#include "daemon/engine/client.h"
#include "daemon/engine/events.h"
#include "daemon/engine/exits.h"
#include "daemon/engine/feed.h"
#include "daemon/engine/gates.h"
#include "daemon/engine/hints.h"
#include "daemon/engine/idle.h"
#include "daemon/engine/memory.h"
#include "daemon/engine/places.h"
#include "daemon/engine/policy.h"
#include "daemon/engine/room.h"
#include "daemon/engine/round.h"
#include "daemon/engine/run.h"
#include "daemon/engine/saving.h"
#include "daemon/engine/say.h"
#include "daemon/engine/shares.h"

static void enter(struct gm_engine *engine)
{
    gm_cuda_enter(&engine->cuda, engine->context);
    gm_engine_read_clock(engine);
}

int gm_engine_join(struct gm_engine *engine, struct gm_client *client)
{
    if (engine->stopping.is_on)
        return -ESHUTDOWN;
    enter(engine);
    gm_engine_follow_budget(engine, GM_WHY_NONE);
    const int error = gm_engine_add_app(engine, client);
    if (error == 0)
        gm_engine_run(engine);
    return error;
}

void gm_engine_message(struct gm_engine *engine, uint32_t id, const struct gm_wire_message *message)
{
    const struct gm_msg_done *done = message->body;
    enter(engine);
    switch (message->type) {
    case GM_MSG_ALLOC:
        gm_engine_asked(engine, id, message->body);
        break;
    case GM_MSG_FREE:
        gm_engine_frees(engine, id, message->body);
        break;
    case GM_MSG_WANT:
        gm_engine_wants(engine, id);
        if (((const struct gm_msg_want *)message->body)->is_hurried != 0)
            gm_engine_feed(engine, GM_SCHED_HURRY, id, 0);
        break;
    case GM_MSG_DRAINED:
        gm_engine_drained(engine, id, message->body);
        break;
    case GM_MSG_DONE:
        gm_engine_batch_done(engine, id, done->batch, done->result);
        break;
    case GM_MSG_USES:
        gm_engine_uses(engine, id, message->entries, message->count);
        break;
    case GM_MSG_QUIET:
        gm_engine_quiet(engine, id, message->body);
        break;
    case GM_MSG_EXPECT:
        if (!gm_engine_expect(engine, id, message->body))
            return; /* nothing else has changed */
        break;
    case GM_MSG_SHARE:
        gm_engine_share(engine, id, message->body);
        break;
    case GM_MSG_OPEN:
        gm_engine_open_share(engine, id, message->body);
        break;
    case GM_MSG_SHUT:
        gm_engine_shut(engine, id, message->body);
        break;
    default:
        gm_engine_cut_off(engine, id, GM_REFUSE_PROTOCOL, "a message out of place");
        break;
    }
    gm_engine_run(engine);
}

void gm_engine_leave(struct gm_engine *engine, uint32_t id)
{
    enter(engine);
    gm_engine_app_left(engine, id);
    gm_engine_run(engine);
}

/* Nothing that this context copies can be trusted any more. Running programs keep their memory
 * without the daemon, and the others are told. */
static void lose_gpu(struct gm_engine *engine, CUresult error)
{
    const char *name = gm_cuda_text(&engine->cuda, error);
    char text[128];
    gm_engine_emit(engine,
                   &(struct gm_event){.kind = GM_EVENT_LOST, .app = GM_NONE, .lost.error = name});
    snprintf(text, sizeof text, "the daemon has lost the GPU (%s)", name);
    gm_engine_halt(engine);
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (!engine->apps[id].session)
            continue;
        gm_engine_cut_off(engine, id, GM_REFUSE_STOPPING, text);
        gm_engine_happened(engine, id, GM_EVENT_CUT_OFF);
    }
    engine->config.on_lost(engine->config.arg);
}

void gm_engine_on_copies(void *arg)
{
    struct gm_engine *engine = arg;
    CUresult error = gm_mover_error(engine->mover);
    if (engine->is_closing)
        return;
    enter(engine);
    if (error != CUDA_SUCCESS) {
        lose_gpu(engine, error);
        return;
    }
    gm_engine_take_copies(engine);
    gm_engine_run(engine);
}

void gm_engine_on_host_copied(void *arg, uint32_t chunk, int error)
{
    struct gm_engine *engine = arg;
    enter(engine);
    gm_engine_copied_host(engine, chunk, error);
    gm_engine_run(engine);
}

void gm_engine_on_grown(void *arg)
{
    struct gm_engine *engine = arg;
    enter(engine);
    gm_engine_pinned_grew(engine);
    gm_engine_run(engine);
}

void gm_engine_on_hashes(void *arg)
{
    struct gm_engine *engine = arg;
    if (engine->is_closing)
        return;
    enter(engine);
    gm_engine_take_hashes(engine);
    gm_engine_run(engine);
}

void gm_engine_on_alarm(void *arg)
{
    struct gm_engine *engine = arg;
    enter(engine);
    gm_engine_run(engine);
}

static void on_copies_closed(struct gm_client *client)
{
    for (uint32_t i = 0; i < GM_GPUS_MAX; i++) {
        struct gm_engine *engine = client->engines[i];
        if (!engine)
            continue;
        enter(engine);
        gm_engine_copies_ended(engine, client->id);
        gm_engine_run(engine);
    }
}

void gm_engine_on_exit(uv_poll_t *poll, int status, int events)
{
    struct gm_engine *engine = poll->data;
    (void)status;
    (void)events;
    enter(engine);
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].exit.poll == poll) {
            gm_client_died(engine->apps[id].client, engine->loop, &engine->config.outlet,
                           on_copies_closed);
            gm_engine_exited(engine, id);
        }
    gm_engine_run(engine);
}

/* ---- requests ---- */

void gm_engine_describe(struct gm_engine *engine, struct gm_gpu_entry *gpu)
{
    enter(engine);
    gm_engine_follow_budget(engine,
                            GM_WHY_NONE); /* nobody may have looked since the last one left */
    gpu->budget = gm_engine_offered(engine);
    memcpy(gpu->uuid, engine->uuid.bytes, sizeof gpu->uuid);
}

int gm_engine_set(struct gm_engine *engine, const struct gm_set_request *request,
                  struct gm_set_done *done, char *why, size_t why_size)
{
    enter(engine);
    const int error = gm_engine_apply_set(engine, request, done, why, why_size);
    if (error == 0)
        gm_engine_run(engine);
    return error;
}

void gm_engine_trim(struct gm_engine *engine, uid_t asker, struct gm_trimmed *trimmed)
{
    enter(engine);
    gm_engine_trim_memory(engine, asker, trimmed);
    gm_engine_run(engine);
}

void gm_engine_refresh(struct gm_engine *engine)
{
    enter(engine);
    gm_engine_follow_budget(engine,
                            GM_WHY_NONE); /* nobody may have looked since the last app left */
    gm_engine_run(engine);
}

void gm_engine_save(struct gm_engine *engine, void (*on_saved)(void *arg), void *arg)
{
    if (engine->stopping.is_on)
        return;
    enter(engine);
    gm_engine_begin_saving(engine, on_saved, arg);
    gm_engine_run(engine);
}
