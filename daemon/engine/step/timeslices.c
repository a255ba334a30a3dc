/*
 * Timeslices by class, user and weight (core/timeslice), and telling programs theirs, and whether
 * their requests are to be announced (gm_ctl.has_rhythm). Owns timeslice_us and part_us of
 * gm_app.policy, and the list of who runs. Called at the end of a round of the loop, when it is
 * known who runs and who is idle; there are rounds all the time while somebody works (idle.c).
 *
 * A program whose gate closes keeps its timeslice: it runs nothing, and is looked at again when it
 * does. If it runs on another GPU, what it had on this one counts no more there.
 */
#include "daemon/engine/step/timeslices.h"

#include "common/features.h"
#include "daemon/core/timeslice.h"
#include "daemon/core/tunables.h"
#include "daemon/engine/act/events.h"
#include "daemon/engine/act/say.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/hints.h"
#include "daemon/engine/step/policy.h"

/* Parts are divided anew so often: setting a timeslice takes the program 0.15 to 0.49 ms, and
 * who has work changes with each pause of 100 ms. */
#define GM_TIMESLICE_AGAIN_NS (1 * GM_S)

/* Of those that it has on the GPUs where it runs; 0: none. A program has one on all. */
static uint64_t shortest(const struct gm_app *app)
{
    uint64_t us = 0;
    for (uint32_t i = 0; i < GM_GPUS_MAX; i++) {
        const struct gm_engine *engine = app->client->engines[i];
        const struct gm_app *at = engine ? &engine->apps[app->client->id] : NULL;
        const uint64_t here = at && at->state == GM_APP_RUNNING ? at->policy.timeslice_us : 0;
        us = here != 0 && (us == 0 || here < us) ? here : us;
    }
    return us;
}

static void tell(struct gm_engine *engine, uint32_t id, uint64_t us)
{
    struct gm_app *app = &engine->apps[id];
    if (atomic_load(&app->stat->features_off) & GM_FEATURE_TIMESLICE)
        us = 0; /* it can have no other */
    app->policy.timeslice_us = us;
    us = shortest(app);
    const struct gm_msg_timeslice message = {.us = us};
    if (us == app->client->timeslice_us)
        return;
    app->client->timeslice_us = us;
    gm_engine_emit(engine,
                   &(struct gm_event){.kind = GM_EVENT_TIMESLICE, .app = id, .timeslice.us = us});
    gm_engine_say(engine, id, GM_MSG_TIMESLICE, &message);
}

/* Members of a group run together, and so does a program on several GPUs. */
static bool can_wait_for_turn(const struct gm_engine *engine, uint32_t id)
{
    return gm_engine_can_hold(engine, id) && !gm_group_is_several(engine, id);
}

static bool is_spread(const struct gm_app *app)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < GM_GPUS_MAX; i++)
        n += app->client->engines[i] != NULL;
    return n > 1;
}

static struct gm_timeslice_app describe(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    const uint32_t off = atomic_load(&app->stat->features_off);
    const bool is_off = engine->config.latency_mode == GM_LATENCY_OFF; /* nobody is critical */
    struct gm_sched_account account = {.level = 1, .policy.weight = GM_SCHED_WEIGHT};
    gm_engine_account(engine, id, &account);
    return (struct gm_timeslice_app){.id = id,
                                     .user = gm_engine_user_of(engine, id),
                                     .class = is_off ? GM_CLASS_BATCH : gm_engine_class(engine, id),
                                     .level = account.level,
                                     .run_ns = account.run_ns,
                                     .idle_ns = account.idle_ns,
                                     .burst_ns = account.burst_ns,
                                     .is_idle = app->idle.is_idle || app->idle.quiet_at != 0,
                                     .rests = app->idle.is_idle || app->is_stopped,
                                     .is_fixed = (off & GM_FEATURE_TIMESLICE) != 0,
                                     .is_joined = (off & GM_FEATURE_ISOLATION) != 0,
                                     .is_spread = is_spread(app),
                                     .weight = account.policy.weight,
                                     .can_be_held = can_wait_for_turn(engine, id),
                                     .part_us = app->policy.part_us};
}

static void share(struct gm_engine *engine, struct gm_timeslice_app *running, uint32_t n)
{
    if (engine->now < engine->parts_at)
        return;
    gm_timeslice_share(running, n);
    for (uint32_t i = 0; i < n; i++)
        engine->apps[running[i].id].policy.part_us = running[i].part_us;
    engine->parts_at = engine->now + GM_TIMESLICE_AGAIN_NS;
}

void gm_engine_tell_timeslices(struct gm_engine *engine)
{
    struct gm_timeslice_app *running = engine->running;
    uint32_t n = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].state == GM_APP_RUNNING)
            running[n++] = describe(engine, id);
    engine->n_running = n;
    share(engine, running, n);
    engine->turns.are_on = gm_timeslice_assign(running, n);
    for (uint32_t i = 0; i < n; i++) {
        if (engine->config.latency_mode == GM_LATENCY_HINT)
            atomic_store(&engine->apps[running[i].id].ctl->has_rhythm,
                         gm_timeslice_is_critical(running[i].class));
        tell(engine, running[i].id, running[i].us);
    }
}
