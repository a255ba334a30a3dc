/*
 * What the scheduler is told of a group: what holds of its members' settings. Owns
 * gm_app.policy.is_limited. Called by whoever changes settings or groups; calls settings.c and
 * feed.c.
 */
#include "daemon/engine/step/policy.h"

#include "daemon/engine/state/groups.h"
#include "daemon/engine/step/feed.h"

static struct gm_sched_policy policy_of(const struct gm_app *app)
{
    const struct gm_settings all = gm_engine_settings_of(app);
    return (struct gm_sched_policy){
        .class = all.class, .is_paused = all.is_paused, .weight = all.weight, .share = all.share};
}

enum gm_sched_class gm_engine_class(const struct gm_engine *engine, uint32_t id)
{
    return policy_of(&engine->apps[id]).class;
}

/* What holds for all members of a group on this GPU: the best class and weight of any, the least
 * share; and it is paused if any is. */
static struct gm_sched_policy common_policy(const struct gm_engine *engine, uint32_t id)
{
    struct gm_sched_policy all = policy_of(&engine->apps[id]);
    const struct gm_client *client = gm_group_clients(engine->apps[id].client->group);
    for (; client; client = client->next) {
        if (client->engines[engine->config.index] != engine || !client->session)
            continue;
        const struct gm_sched_policy one = policy_of(&engine->apps[client->id]);
        all.class = gm_engine_class_rank(one.class) < gm_engine_class_rank(all.class) ? one.class
                                                                                      : all.class;
        all.weight = one.weight > all.weight ? one.weight : all.weight;
        all.share = one.share < all.share ? one.share : all.share;
        all.is_paused = all.is_paused || one.is_paused;
    }
    return all;
}

struct gm_settings gm_engine_common_pause(const struct gm_engine *engine, uint32_t id)
{
    struct gm_settings all = {0};
    const struct gm_client *client = gm_group_clients(engine->apps[id].client->group);
    for (; client; client = client->next) {
        if (client->engines[engine->config.index] != engine || !client->session)
            continue;
        const struct gm_settings one = gm_engine_settings_of(&engine->apps[client->id]);
        if (!one.is_paused)
            continue;
        all.is_until_call = one.is_until_call && (all.is_until_call || !all.is_paused);
        all.is_evicted = all.is_evicted || one.is_evicted;
        all.is_paused = true;
    }
    return all;
}

/* Tell the app, and its group, so that they can say why they wait. */
static void tell_paused(const struct gm_engine *engine, uint32_t id, bool is_paused)
{
    const struct gm_client *client = gm_group_clients(engine->apps[id].client->group);
    if (engine->apps[id].ctl)
        atomic_store(&engine->apps[id].ctl->is_paused, is_paused);
    for (; client; client = client->next)
        if (client->ctl)
            atomic_store(&client->ctl->is_paused, is_paused);
}

struct gm_sched_policy gm_engine_apply_policy(struct gm_engine *engine, uint32_t id)
{
    struct gm_sched_policy policy = common_policy(engine, id);
    const struct gm_settings pause = gm_engine_common_pause(engine, id);
    engine->apps[id].policy.is_limited = policy.share < GM_SCHED_SHARE_ALL;
    tell_paused(engine, id, policy.is_paused && !pause.is_until_call);
    gm_engine_feed_policy(engine, id, &policy, pause.is_evicted);
    return policy;
}
