/*
 * The one entry: what each event changes. Called by inlet.c; calls the files that take events, and
 * run.c.
 */
#include "daemon/engine/step/step.h"

#include <errno.h>
#include <stdio.h>

#include "daemon/engine/act/events.h"
#include "daemon/engine/act/exits.h"
#include "daemon/engine/act/say.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/allocs.h"
#include "daemon/engine/step/answers.h"
#include "daemon/engine/step/apps.h"
#include "daemon/engine/step/budget.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/check.h"
#include "daemon/engine/step/chunks.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/gates.h"
#include "daemon/engine/step/grants.h"
#include "daemon/engine/step/hints.h"
#include "daemon/engine/step/idle.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/returns.h"
#include "daemon/engine/step/run.h"
#include "daemon/engine/step/saving.h"
#include "daemon/engine/step/set.h"
#include "daemon/engine/step/shares.h"
#include "daemon/engine/step/tuning.h"
#include "daemon/memory/kept.h"

/* False: nothing has changed that anything else follows from. */
static bool take_message(struct gm_engine *engine, uint32_t id,
                         const struct gm_wire_message *message)
{
    const struct gm_msg_done *done = message->body;
    switch (message->type) {
    case GM_MSG_ALLOC:
        gm_engine_asked(engine, id, message->body);
        break;
    case GM_MSG_FREE:
        gm_engine_frees(engine, id, message->body);
        break;
    case GM_MSG_WANT:
        if (engine->apps[id].state == GM_APP_LOST)
            break; /* its threads are looked at when it may run */
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
    case GM_MSG_QUIET:
        gm_engine_quiet(engine, id, message->body);
        break;
    case GM_MSG_EXPECT:
        return gm_engine_expect(engine, id, message->body);
    case GM_MSG_SHARE:
        gm_engine_share(engine, id, message->body);
        break;
    case GM_MSG_OPEN:
        gm_engine_open_share(engine, id, message->body);
        gm_engine_gather_groups(engine);
        break;
    case GM_MSG_SHUT:
        gm_engine_shut(engine, id, message->body);
        break;
    default:
        gm_engine_cut_off(engine, id, GM_REFUSE_PROTOCOL, "a message out of place");
        break;
    }
    return true;
}

static int join(struct gm_engine *engine, struct gm_client *client)
{
    if (engine->stopping.is_on)
        return -ESHUTDOWN;
    gm_engine_follow_budget(engine, GM_WHY_NONE);
    const int error = gm_engine_add_app(engine, client);
    if (error == 0) {
        gm_engine_unite_kin(engine, client->id);
        gm_engine_gather_groups(engine);
    }
    return error;
}

/* Nothing that the daemon copies from now on can be trusted any more. Without a keeper running
 * programs keep their memory without the daemon, and the others are told. */
static void lose_gpu(struct gm_engine *engine, const char *error)
{
    char text[128];
    gm_engine_emit(engine,
                   &(struct gm_event){.kind = GM_EVENT_LOST, .app = GM_NONE, .lost.error = error});
    snprintf(text, sizeof text, "the daemon has lost the GPU (%s)", error);
    gm_engine_halt(engine);
    if (gm_kept_is_connected(engine->config.kept))
        return; /* nothing is lost: the next daemon takes all over */
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (!engine->apps[id].session)
            continue;
        gm_engine_cut_off(engine, id, GM_REFUSE_STOPPING, text);
        gm_engine_happened(engine, id, GM_EVENT_CUT_OFF);
    }
}

int gm_engine_step(struct gm_engine *engine, uint64_t now, const struct gm_input *input)
{
    const uint64_t budget = engine->table->budget;
    bool is_over = false;
    int error = 0;
    gm_engine_set_time(engine, now);
    gm_engine_gather_groups(engine);
    switch (input->kind) {
    case GM_INPUT_TIME:
        break;
    case GM_INPUT_DEVICE:
    case GM_INPUT_REFRESH: /* nobody may have looked since the last app left */
        gm_engine_follow_budget(engine, GM_WHY_NONE);
        is_over = input->kind == GM_INPUT_DEVICE && engine->table->budget == budget;
        break;
    case GM_INPUT_JOIN:
        error = join(engine, input->client);
        break;
    case GM_INPUT_MESSAGE:
        is_over = !take_message(engine, input->app, input->message);
        break;
    case GM_INPUT_IMPORTED:
        gm_engine_unite(engine, input->app, input->client);
        gm_engine_gather_groups(engine);
        break;
    case GM_INPUT_LEFT:
        gm_engine_app_left(engine, input->app);
        break;
    case GM_INPUT_EXITED:
        gm_engine_exited(engine, input->app);
        break;
    case GM_INPUT_CLOSED:
        gm_engine_copies_ended(engine, input->app);
        break;
    case GM_INPUT_COPIES:
        gm_engine_take_copies(engine);
        break;
    case GM_INPUT_HOST_COPIED:
        gm_engine_copied_host(engine, input->host_copied.chunk, input->host_copied.error);
        break;
    case GM_INPUT_HASHES:
        gm_engine_take_hashes(engine);
        break;
    case GM_INPUT_LINK:
        gm_engine_take_samples(engine);
        break;
    case GM_INPUT_PINNED:
        gm_engine_pinned_grew(engine);
        break;
    case GM_INPUT_LOST:
        lose_gpu(engine, input->error);
        break;
    case GM_INPUT_SET:
        error = gm_engine_apply_set(engine, input->set.request, input->set.done, input->set.why,
                                    input->set.why_size);
        break;
    case GM_INPUT_TUNE:
        gm_engine_take_tuning(engine, input->tuning);
        break;
    case GM_INPUT_TRIM:
        gm_engine_trim_memory(engine, input->trim.asker, input->trim.is_admin, input->trim.trimmed);
        break;
    case GM_INPUT_SAVE:
        gm_engine_begin_saving(engine, input->save.on_saved, input->save.arg);
        break;
    case GM_INPUT_AWAIT:
        error = gm_engine_await_app(engine, input->await.client, input->await.record);
        break;
    case GM_INPUT_AWAITED:
        error = gm_engine_give_up_rest(engine);
        gm_engine_leave_again(engine);
        gm_engine_follow_budget(engine, GM_WHY_NONE); /* from now on: nobody may join */
        gm_engine_promise_lost(engine);
        break;
    case GM_INPUT_RETURN:
        gm_engine_app_returns(engine, input->app, input->back);
        gm_engine_unite_owners(engine, input->app);
        gm_engine_unite_kin(engine, input->app);
        gm_engine_gather_groups(engine);
        break;
    case GM_INPUT_GIVE_UP:
        gm_engine_give_up_app(engine, input->app, input->is_over);
        break;
    }
    if (error == 0 && !is_over)
        gm_engine_run(engine);
    return error;
}
