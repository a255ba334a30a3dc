/*
 * Groups over several GPUs: when they stand in line, when they take their turns, and when their
 * gates open (groups.h). Owns gm_group.grant. Called by run.c, and by deadlines.c for the time.
 */
#include "daemon/engine/step/grants.h"

#include "daemon/engine/state/groups.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/gates.h"
#include "daemon/engine/step/idle.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/policy.h"

/* A program on several GPUs that has its turn on all of them and does not run, while no memory
 * comes for it, gives its turns back after this, so that no GPU has nothing to do for a second. */
#define GM_GRANT_NS (700 * GM_MS)

/* It has its turn, or keeps it. */
static bool has_turn(const struct gm_app *app)
{
    return app->state == GM_APP_LOADING || app->state == GM_APP_RUNNING || app->places.is_held;
}

/* It gave its turn back and tries again later. */
static bool is_put_off(const struct gm_engine *engine, const struct gm_app *app)
{
    return (app->state == GM_APP_PAUSED || app->state == GM_APP_LOADING) &&
           app->idle.want_at > engine->now;
}

/* Nothing but the others of its group keeps its gate closed. */
static bool is_whole(const struct gm_engine *engine, const struct gm_app *app)
{
    const uint32_t id = app->client->id;
    return app->state == GM_APP_LOADING && engine->in_set[id] &&
           engine->table->apps[id].missing == 0 && !gm_engine_is_placing(engine, id);
}

/* What a member sees of its group. */
struct view {
    bool is_first;     /* nobody is on a GPU before its own */
    bool is_next;      /* all on GPUs before its own want their turns, or have them */
    bool is_spread;    /* somebody is on another GPU */
    bool is_ready;     /* all could have their turns now, or have them */
    bool has_closed;   /* one of them does not run */
    bool has_missing;  /* ... and lacks its turn or memory */
    uint64_t moved_at; /* when memory last came nearer for one of these */
    bool others_work;  /* another one runs and does not rest */
    bool has_waiting;  /* a thread of one waits at its gate */
    bool is_put_off;   /* one of them cannot be loaded now, ... */
    uint64_t until;    /* ... and none of them can before this */
};

static struct view look(const struct gm_engine *engine, uint32_t id)
{
    struct gm_walk walk = gm_group_walk(engine->apps[id].client->group);
    struct view view = {
        .is_next = true, .is_ready = true, .others_work = !gm_group_rests(engine, id)};
    struct gm_engine *at;
    const struct gm_app *app;
    view.has_waiting = gm_group_is_waiting(engine, id, &view.is_first);
    while ((app = gm_group_step(&walk, &at)) != NULL) {
        const bool is_before = at->config.index < engine->config.index;
        view.is_next =
            view.is_next && (!is_before || has_turn(app) || gm_engine_unit_wants(at, app));
        view.is_spread = view.is_spread || at != engine;
        view.is_ready = view.is_ready && gm_engine_is_ready(at, app->client->id);
        const bool is_closed = !(app->state == GM_APP_RUNNING || app->places.is_held);
        const bool is_missing = is_closed && !is_whole(at, app);
        view.has_closed = view.has_closed || is_closed;
        view.has_missing = view.has_missing || is_missing;
        if (is_missing && app->state == GM_APP_LOADING && app->progress_at > view.moved_at)
            view.moved_at = app->progress_at;
        view.is_put_off = view.is_put_off || is_put_off(engine, app);
        if (is_put_off(engine, app) && app->idle.want_at > view.until)
            view.until = app->idle.want_at;
    }
    return view;
}

static bool is_granted(const struct gm_group *group)
{
    return group->grant.is_on && group->grant.round == group->round;
}

bool gm_group_may_open(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_group *group = gm_group_of(engine, id);
    const struct gm_app *app;
    struct gm_engine *at;
    if (!group || engine->stopping.is_on) /* then they are saved one by one */
        return true;
    struct gm_walk walk = gm_group_walk(group);
    while ((app = gm_group_step(&walk, &at)) != NULL)
        if (app != &engine->apps[id] && app->state != GM_APP_RUNNING && !is_whole(at, app))
            return false;
    return true;
}

void gm_group_dropped(struct gm_engine *engine, uint32_t id)
{
    const struct gm_group *group = gm_group_of(engine, id);
    if (group && is_granted(group) && !engine->apps[id].idle.is_idle)
        gm_group_yield(engine, id);
}

const struct gm_engine *gm_group_awaits(const struct gm_engine *engine, uint32_t id)
{
    struct gm_walk walk = gm_group_walk(engine->apps[id].client->group);
    struct gm_engine *at;
    const struct gm_app *app;
    while ((app = gm_group_step(&walk, &at)) != NULL) {
        const uint32_t other = app->client->id;
        const bool is_here = at->table->apps[other].missing == 0 && has_turn(app);
        if (at != engine && !is_here && (has_turn(app) || !gm_engine_is_ready(at, other)))
            return at;
    }
    return NULL;
}

/* How long they may stand still with their turns, until all of them run. */
static uint64_t stall_ns(const struct gm_engine *engine, const struct gm_group *group)
{
    const bool is_urgent = group->grant.waits_at != 0 &&
                           engine->now >= group->grant.waits_at + engine->config.patience_ns;
    return is_urgent ? GM_DRAIN_NS + GM_LATE_NS + GM_STALL_NS : GM_GRANT_NS;
}

/* They take their turns on all GPUs as soon as all could have them. If one of them lacks memory,
 * and none comes, they give them back. Once all are whole they run, however long that took. */
static void grant(const struct gm_engine *engine, struct gm_group *group, const struct view *view)
{
    const uint64_t since =
        view->moved_at > group->grant.since ? view->moved_at : group->grant.since;
    const bool was_granted = is_granted(group);
    if (!view->has_closed)
        group->grant.waits_at = 0;
    else if (group->grant.waits_at == 0 && view->has_waiting)
        group->grant.waits_at = engine->now;
    if (!is_granted(group) && view->is_ready && !view->is_put_off &&
        engine->now >= group->grant.next) {
        group->grant.is_on = true;
        group->grant.round = group->round;
        group->grant.since = engine->now;
    } else if (is_granted(group) && view->has_missing &&
               (view->is_put_off || engine->now >= since + stall_ns(engine, group))) {
        group->grant.is_on = false;
        group->grant.next = engine->now + GM_WANT_AGAIN_NS;
    }
    if (is_granted(group) != was_granted)
        gm_group_call(group);
}

uint64_t gm_group_due(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_group *group = gm_group_of(engine, id);
    if (!group)
        return GM_TIME_NEVER;
    const struct view view = look(engine, id);
    if (!view.is_spread || !view.has_closed)
        return GM_TIME_NEVER;
    if (view.is_put_off)
        return view.until;
    if (!is_granted(group))
        return group->grant.next > engine->now ? group->grant.next : GM_TIME_NEVER;
    if (!view.has_missing)
        return GM_TIME_NEVER;
    const uint64_t since = view.moved_at > group->grant.since ? view.moved_at : group->grant.since;
    return since + stall_ns(engine, group);
}

/* On other GPUs it may be that they waited for this. */
static void join_line(struct gm_engine *engine, uint32_t id)
{
    gm_engine_stand_in_line(engine, id, true);
    gm_group_call(engine->apps[id].client->group);
}

static void follow(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_group *group = app->client->group;
    const struct view view = look(engine, id);
    if (view.is_spread)
        grant(engine, group, &view);
    gm_engine_tie(engine, id, view.is_spread && !is_granted(group));
    const bool is_called = gm_group_take_call(engine, id);
    if (app->places.is_held || app->is_part_stopped || engine->stopping.is_on)
        return;
    if (app->state == GM_APP_RUNNING && app->group.round != group->round) {
        gm_group_opens(engine, id);
        gm_engine_close_gate(engine, id);
    } else if (app->state == GM_APP_RUNNING && app->idle.is_idle && view.others_work) {
        gm_engine_stand_in_line(engine, id, true);
    } else if (app->state == GM_APP_PAUSED || app->state == GM_APP_LOADING) {
        const bool may_want = view.is_next && !view.is_put_off;
        const bool is_wanted = !view.is_first || is_called || view.others_work || view.has_waiting;
        if (!app->idle.is_idle && !may_want)
            gm_engine_stand_in_line(engine, id, false);
        else if (app->idle.is_idle && may_want && is_wanted)
            join_line(engine, id);
    }
}

void gm_engine_gather_groups(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].session && gm_engine_join_units(engine, id))
            gm_engine_apply_policy(engine, id);
}

void gm_engine_follow_groups(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].session && gm_group_of(engine, id))
            follow(engine, id);
}
