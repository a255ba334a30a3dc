/*
 * How much memory a program may have, as its settings say: whether more than the budget, and its
 * cap, which caps.c keeps. Owns gm_client.is_oversize. Called by machine.c for new clients, and by
 * wishes.c, set.c and tuning.c after a change of settings; calls settings.c, caps.c and reclaim.c.
 */
#include "daemon/engine/step/sizes.h"

#include "common/wishes.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/reclaim.h"
#include "daemon/engine/step/settings.h"

bool gm_engine_has_host_frames(const struct gm_engine *engine)
{
    return !engine->pool.is_registered;
}

static bool is_oversize_by(const struct gm_engine *engine, const struct gm_settings *admin,
                           const struct gm_settings *own)
{
    struct gm_settings all = {.is_oversize = engine->config.is_oversize};
    gm_engine_overlay(&all, admin);
    gm_engine_overlay(&all, own);
    return all.is_oversize;
}

bool gm_engine_read_oversize(uint32_t wish, struct gm_settings *said)
{
    *said =
        (struct gm_settings){.has = GM_SET_OVERSIZE, .is_oversize = wish == GM_HELLO_OVERSIZE_HOST};
    return wish == GM_HELLO_OVERSIZE_HOST || wish == GM_HELLO_OVERSIZE_REFUSE;
}

/* For good: what its graphs use must be known when there is memory on the host. */
static void set_oversize(struct gm_client *client, bool is_oversize)
{
    client->is_oversize = is_oversize;
    if (client->ctl)
        atomic_fetch_or(&client->ctl->is_counting, GM_MAY_COUNT);
}

void gm_engine_judge_oversize(const struct gm_engine *engine, struct gm_client *client)
{
    struct gm_settings admin = {0}, own;
    char text[512];
    if (engine->config.rules)
        engine->config.outlet.rule(engine->config.rules, client->uid, client->name,
                                   gm_wishes_class(client->wishes.class), &admin, text,
                                   sizeof text);
    if (!gm_engine_read_oversize(client->wishes.oversize, &own) ||
        (!client->is_admin && gm_engine_forbids_oversize(&admin, &own)))
        own.has = 0;
    set_oversize(client, is_oversize_by(engine, &admin, &own));
}

void gm_engine_resize(struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    set_oversize(app->client, is_oversize_by(engine, &app->policy.admin, &app->policy.own));
}

bool gm_engine_take_said_cap(struct gm_engine *engine, uint32_t id)
{
    struct gm_settings all = {0};
    gm_engine_overlay(&all, &engine->apps[id].policy.admin);
    gm_engine_overlay(&all, &engine->apps[id].policy.own);
    return gm_engine_set_cap(engine, id, all.cap);
}

void gm_engine_recap(struct gm_engine *engine, uint32_t id)
{
    if (!gm_engine_take_said_cap(engine, id))
        return;
    gm_engine_take_spares(engine, id, UINT64_MAX); /* they are in the way, or will be */
    gm_engine_follow_cap(engine, id);
}
