/* See groups.h. */
#include "daemon/engine/groups.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/feed.h"
#include "daemon/engine/gates.h"
#include "daemon/engine/idle.h"
#include "daemon/engine/round.h"

struct gm_group {
    struct gm_group *next; /* of those with a name */
    struct gm_groups *all; /* NULL: it has no name */
    struct gm_client *clients;
    uint64_t round;  /* how often all of them were made to yield */
    bool is_granted; /* they take their turns on all GPUs; else they stand by */
    uint64_t granted_at;
    uint64_t grant_at; /* ... and do not before */
    uint64_t waits_at; /* since when they wait for that; 0: they do not */
    bool is_several;   /* it has, or had, more than one member */
    uid_t uid;
    char name[64];
};

/* ---- clients ---- */

static bool is_living(const struct gm_group *group)
{
    for (const struct gm_client *client = group->clients; client; client = client->next)
        if (client->session)
            return true;
    return false;
}

/* At the latest when the next one is looked for. */
void gm_groups_sweep(struct gm_groups *groups)
{
    for (struct gm_group **link = &groups->first; *link;) {
        struct gm_group *group = *link;
        if (group->clients) {
            link = &group->next;
            continue;
        }
        *link = group->next;
        free(group);
    }
}

int gm_groups_find(struct gm_groups *groups, const char *name, uid_t uid, struct gm_group **out,
                   char *why, size_t why_size)
{
    struct gm_group *group;
    gm_groups_sweep(groups);
    for (group = groups->first; group; group = group->next) {
        if (strcmp(group->name, name) != 0 || !is_living(group))
            continue;
        if (group->uid != uid) {
            snprintf(why, why_size,
                     "the group \"%s\" has programs of another user: choose another name", name);
            return -EPERM;
        }
        *out = group;
        return 0;
    }
    group = calloc(1, sizeof *group);
    if (!group) {
        snprintf(why, why_size, "the daemon has no memory left for one more group");
        return -ENOMEM;
    }
    snprintf(group->name, sizeof group->name, "%s", name);
    group->uid = uid;
    group->all = groups;
    group->next = groups->first;
    groups->first = group;
    *out = group;
    return 0;
}

int gm_group_add(struct gm_group *group, struct gm_client *client)
{
    if (!group)
        group = calloc(1, sizeof *group);
    if (!group)
        return -ENOMEM;
    struct gm_client **link = &group->clients;
    while (*link && (*link)->id < client->id)
        link = &(*link)->next;
    client->next = *link;
    *link = client;
    client->group = group;
    return 0;
}

void gm_group_remove(struct gm_client *client)
{
    struct gm_group *group = client->group;
    if (!group)
        return;
    struct gm_client **link = &group->clients;
    while (*link != client)
        link = &(*link)->next;
    *link = client->next;
    client->group = NULL;
    if (group->all)
        gm_groups_sweep(group->all);
    else if (!group->clients)
        free(group);
}

const struct gm_client *gm_group_clients(const struct gm_group *group)
{
    return group->clients;
}

const char *gm_group_name(const struct gm_group *group)
{
    return group->name;
}

const struct gm_client *gm_group_stopped(const struct gm_group *group)
{
    for (const struct gm_client *client = group->clients; client; client = client->next)
        if (client->session && client->stop != GM_WHY_NONE)
            return client;
    return NULL;
}

/* ---- members ---- */

/* A walk over the members that are connected, in their order. */
struct walk {
    const struct gm_group *group;
    const struct gm_client *client; /* the next one ... */
    uint32_t index;                 /* ... at this engine */
};

static struct gm_app *step(struct walk *walk, struct gm_engine **engine)
{
    for (;; walk->index++, walk->client = walk->group->clients) {
        for (; walk->client; walk->client = walk->client->next) {
            const struct gm_client *client = walk->client;
            *engine = client->engines[walk->index];
            if (!*engine || !(*engine)->apps[client->id].session)
                continue;
            walk->client = client->next;
            return &(*engine)->apps[client->id];
        }
        if (walk->index + 1 == GM_GPUS_MAX)
            return NULL;
    }
}

static struct walk walk_over(const struct gm_group *group)
{
    return (struct walk){.group = group, .client = group->clients};
}

static struct gm_group *group_of(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return app->client && app->client->group->is_several ? app->client->group : NULL;
}

bool gm_group_is_several(const struct gm_engine *engine, uint32_t id)
{
    return group_of(engine, id) != NULL;
}

bool gm_group_is_one(const struct gm_engine *engine, uint32_t a, uint32_t b)
{
    return a == b || (engine->apps[a].client && engine->apps[b].client &&
                      engine->apps[a].client->group == engine->apps[b].client->group);
}

/* The client is connected, and an app of this engine. */
static bool is_here(const struct gm_engine *engine, const struct gm_client *client)
{
    return client->engines[engine->config.index] == engine && engine->apps[client->id].session;
}

const struct gm_client *gm_group_next_here(const struct gm_engine *engine,
                                           const struct gm_client *client)
{
    while (client && !is_here(engine, client))
        client = client->next;
    return client;
}

void gm_group_joined(struct gm_engine *engine, uint32_t id)
{
    struct gm_group *group = engine->apps[id].client->group;
    struct gm_engine *at;
    struct walk walk = walk_over(group);
    uint32_t n = 0;
    while (step(&walk, &at))
        n++;
    group->is_several = group->is_several || n > 1;
    engine->apps[id].group.round = group->round;
}

uint32_t gm_group_other_here(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_client *own = engine->apps[id].client;
    const struct gm_client *client = own && own->group ? own->group->clients : NULL;
    for (; client; client = client->next)
        if (client != own && is_here(engine, client))
            return client->id;
    return GM_NONE;
}

uint32_t gm_group_name_all(const struct gm_engine *engine, uint32_t id, uint32_t *all)
{
    const struct gm_group *group = group_of(engine, id);
    uint32_t n = 0;
    for (const struct gm_client *client = group ? group->clients : NULL; client;
         client = client->next)
        if (is_here(engine, client))
            all[n++] = client->id;
    if (!group)
        all[n++] = id;
    return n;
}

void gm_group_sum(const struct gm_engine *engine, uint32_t id, uint64_t *bytes, bool *is_wanting,
                  bool *is_open, bool *has_open)
{
    const struct gm_client *client = engine->apps[id].client->group->clients;
    const bool is_stopped = gm_group_stopped(engine->apps[id].client->group) != NULL;
    *bytes = 0;
    *is_wanting = *has_open = false;
    *is_open = true;
    for (; client; client = client->next) {
        const struct gm_app *app = &engine->apps[client->id];
        if (!is_here(engine, client))
            continue;
        const bool is_running = app->state == GM_APP_RUNNING || app->places.is_held;
        /* What a stopped one keeps is no room, and what the others have can be evicted as soon as
         * they are quiet. */
        if (!is_stopped || (!app->is_stopped && (is_running || app->state == GM_APP_DRAINING)))
            *bytes += gm_room_needed(engine->table, client->id);
        *is_wanting = *is_wanting || (app->is_wanting && !is_stopped);
        *is_open = *is_open && is_running;
        *has_open = *has_open || is_running || app->state == GM_APP_DRAINING;
    }
}

/* It has its turn, or keeps it. */
static bool has_turn(const struct gm_app *app)
{
    return app->state == GM_APP_LOADING || app->state == GM_APP_RUNNING || app->places.is_held;
}

static bool is_at_rest(const struct gm_engine *engine, const struct gm_app *app)
{
    return app->idle.is_idle ||
           (app->idle.quiet_at != 0 && engine->now >= app->idle.active_at + engine->config.idle_ns);
}

/* It gave its turn back and tries again later. */
static bool is_put_off(const struct gm_engine *engine, const struct gm_app *app)
{
    return (app->state == GM_APP_PAUSED || app->state == GM_APP_LOADING) &&
           app->idle.want_at > engine->now;
}

/* What a member sees of its group. */
struct view {
    bool is_first;     /* nobody is on a GPU before its own */
    bool is_next;      /* all on GPUs before its own want their turns, or have them */
    bool is_spread;    /* somebody is on another GPU */
    bool is_ready;     /* all could have their turns now, or have them */
    bool has_closed;   /* one of them does not run */
    uint64_t moved_at; /* when memory last came nearer for one of them that is not whole */
    bool others_work;  /* another one runs and does not rest */
    bool has_waiting;  /* a thread of one waits at its gate */
    bool is_put_off;   /* one of them cannot be loaded now */
};

static struct view look(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *self = &engine->apps[id];
    struct walk walk = walk_over(self->client->group);
    struct view view = {.is_first = true, .is_next = true, .is_ready = true};
    struct gm_engine *at;
    const struct gm_app *app;
    while ((app = step(&walk, &at)) != NULL) {
        const bool is_before = at->config.index < engine->config.index;
        view.is_first = view.is_first && !is_before;
        view.is_next =
            view.is_next && (!is_before || has_turn(app) || gm_engine_unit_wants(at, app));
        view.is_spread = view.is_spread || at != engine;
        view.is_ready = view.is_ready && gm_engine_is_ready(at, app->client->id);
        view.has_closed = view.has_closed || !(app->state == GM_APP_RUNNING || app->places.is_held);
        if (app->state == GM_APP_LOADING && at->table->apps[app->client->id].missing > 0 &&
            app->progress_at > view.moved_at)
            view.moved_at = app->progress_at;
        view.others_work = view.others_work || (app != self && app->state == GM_APP_RUNNING &&
                                                !is_at_rest(engine, app));
        view.has_waiting = view.has_waiting || atomic_load(&app->stat->waiting) > 0 ||
                           app->gate.is_parked || app->allocs.pending > app->allocs.ahead;
        view.is_put_off = view.is_put_off || is_put_off(engine, app);
    }
    return view;
}

bool gm_group_is_waiting(const struct gm_engine *engine, uint32_t id, bool *is_first)
{
    const struct view view = look(engine, id);
    *is_first = view.is_first;
    return view.has_waiting;
}

void gm_group_changed(struct gm_engine *engine, uint32_t id)
{
    const struct gm_group *group = group_of(engine, id);
    struct gm_engine *at;
    if (!group)
        return;
    struct walk walk = walk_over(group);
    while (step(&walk, &at))
        gm_engine_call(at);
}

void gm_group_yield(struct gm_engine *engine, uint32_t id)
{
    struct gm_group *group = group_of(engine, id);
    if (!group)
        return;
    engine->apps[id].group.round = ++group->round;
    group->is_granted = false;
}

void gm_group_opens(struct gm_engine *engine, uint32_t id)
{
    const struct gm_group *group = group_of(engine, id);
    if (group)
        engine->apps[id].group.round = group->round;
}

bool gm_group_may_open(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_group *group = group_of(engine, id);
    const struct gm_app *app;
    struct gm_engine *at;
    if (!group || engine->stopping.is_on) /* then they are saved one by one */
        return true;
    struct walk walk = walk_over(group);
    while ((app = step(&walk, &at)) != NULL) {
        const uint32_t other = app->client->id;
        const bool is_whole = app->state == GM_APP_LOADING && at->in_set[other] &&
                              at->table->apps[other].missing == 0;
        if (app != &engine->apps[id] && app->state != GM_APP_RUNNING && !is_whole)
            return false;
    }
    return true;
}

bool gm_group_wants(struct gm_engine *engine, uint32_t id)
{
    const struct gm_group *group = group_of(engine, id);
    struct gm_engine *at;
    if (!group)
        return false;
    struct walk walk = walk_over(group);
    struct gm_app *first = step(&walk, &at);
    if (!first || at == engine)
        return false;
    first->group.is_called = true;
    gm_engine_call(at);
    return true;
}

bool gm_group_rests(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_group *group = group_of(engine, id);
    const struct gm_app *app;
    struct gm_engine *at;
    if (!group)
        return true;
    struct walk walk = walk_over(group);
    while ((app = step(&walk, &at)) != NULL)
        if (app != &engine->apps[id] && app->state == GM_APP_RUNNING && !is_at_rest(engine, app))
            return false;
    return true;
}

static void call_all(const struct gm_group *group)
{
    struct gm_engine *at;
    struct walk walk = walk_over(group);
    while (step(&walk, &at))
        gm_engine_call(at);
}

/* How long they may stand still with their turns, until all of them run. */
static uint64_t stall_ns(const struct gm_engine *engine, const struct gm_group *group)
{
    const bool is_urgent =
        group->waits_at != 0 && engine->now >= group->waits_at + engine->config.patience_ns;
    return is_urgent ? engine->config.drain_deadline_ns + GM_LATE_NS + GM_STALL_NS : GM_GRANT_NS;
}

/* They take their turns on all GPUs as soon as all could have them. If not all of them run soon,
 * they give them back. */
static void grant(const struct gm_engine *engine, struct gm_group *group, const struct view *view)
{
    const uint64_t since = view->moved_at > group->granted_at ? view->moved_at : group->granted_at;
    const bool was_granted = group->is_granted;
    if (!view->has_closed)
        group->waits_at = 0;
    else if (group->waits_at == 0 && view->has_waiting)
        group->waits_at = engine->now;
    if (!group->is_granted && view->is_ready && !view->is_put_off &&
        engine->now >= group->grant_at) {
        group->is_granted = true;
        group->granted_at = engine->now;
    } else if (group->is_granted && view->has_closed &&
               (view->is_put_off || engine->now >= since + stall_ns(engine, group))) {
        group->is_granted = false;
        group->grant_at = engine->now + GM_WANT_AGAIN_NS;
    }
    if (group->is_granted != was_granted)
        call_all(group);
}

uint64_t gm_group_due(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_group *group = group_of(engine, id);
    if (!group)
        return GM_TIME_NEVER;
    const struct view view = look(engine, id);
    if (!view.is_spread || !view.has_closed)
        return GM_TIME_NEVER;
    if (!group->is_granted)
        return group->grant_at > engine->now ? group->grant_at : GM_TIME_NEVER;
    const uint64_t since = view.moved_at > group->granted_at ? view.moved_at : group->granted_at;
    return since + stall_ns(engine, group);
}

static void follow(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    struct gm_group *group = app->client->group;
    const struct view view = look(engine, id);
    if (view.is_spread)
        grant(engine, group, &view);
    gm_engine_tie(engine, id, view.is_spread && !group->is_granted);
    const bool is_called = app->group.is_called;
    app->group.is_called = false;
    if (app->places.is_held || app->is_part_stopped || engine->stopping.is_on)
        return;
    if (app->state == GM_APP_RUNNING && app->group.round != group->round) {
        app->group.round = group->round;
        gm_engine_close_gate(engine, id);
    } else if (app->state == GM_APP_RUNNING && app->idle.is_idle && view.others_work) {
        gm_engine_stand_in_line(engine, id, true);
    } else if (app->state == GM_APP_PAUSED || app->state == GM_APP_LOADING) {
        const bool may_want = view.is_next && !view.is_put_off;
        const bool is_wanted = !view.is_first || is_called || view.others_work || view.has_waiting;
        if (!app->idle.is_idle && !may_want)
            gm_engine_stand_in_line(engine, id, false);
        else if (app->idle.is_idle && may_want && is_wanted)
            gm_engine_stand_in_line(engine, id, true);
    }
}

void gm_engine_follow_groups(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].session && group_of(engine, id))
            follow(engine, id);
}
