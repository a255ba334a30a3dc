/* See groups.h. */
#include "daemon/engine/state/groups.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sums.h"
#include "daemon/engine/state/round.h"

/* ---- clients ---- */

/* NULL: none of them is connected. */
static const struct gm_client *first_living(const struct gm_group *group)
{
    const struct gm_client *client = group->clients;
    while (client && !client->session)
        client = client->next;
    return client;
}

/* Nobody is in it any more who is connected, or who runs without this daemon. */
static bool is_over(const struct gm_group *group)
{
    const struct gm_client *client = group->clients;
    while (client && !client->session && client->lost_at == 0)
        client = client->next;
    return client == NULL;
}

static void leave_kin(struct gm_group *group)
{
    struct gm_group *last = group;
    while (last->kin != group)
        last = last->kin;
    last->kin = group->kin;
    group->kin = group;
}

/* Two rings become one. */
static void join_kin(struct gm_group *group, struct gm_group *other)
{
    for (const struct gm_group *one = group->kin; one != group; one = one->kin)
        if (one == other)
            return;
    struct gm_group *next = group->kin;
    group->kin = other->kin;
    other->kin = next;
}

static struct gm_group *make_group(void)
{
    struct gm_group *group = calloc(1, sizeof *group);
    if (group)
        group->kin = group;
    return group;
}

static void free_group(struct gm_group *group)
{
    leave_kin(group);
    free(group);
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
        free_group(group);
    }
}

int gm_groups_find(struct gm_groups *groups, const char *name, uid_t uid, struct gm_group **out,
                   char *why, size_t why_size)
{
    struct gm_group *group;
    gm_groups_sweep(groups);
    for (group = groups->first; group; group = group->next) {
        if (strcmp(group->name, name) != 0 || is_over(group))
            continue;
        if (group->uid != uid) {
            snprintf(why, why_size,
                     "the group \"%s\" has programs of another user: choose another name", name);
            return -EPERM;
        }
        *out = group;
        return 0;
    }
    group = make_group();
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

static void take_in(struct gm_group *group, struct gm_client *client)
{
    struct gm_client **link = &group->clients;
    while (*link && (*link)->id < client->id)
        link = &(*link)->next;
    client->next = *link;
    *link = client;
    client->group = group;
}

static void let_go(struct gm_client *client)
{
    struct gm_client **link = &client->group->clients;
    while (*link != client)
        link = &(*link)->next;
    *link = client->next;
    client->group = NULL;
}

static void end_if_empty(struct gm_group *group)
{
    if (group->all)
        gm_groups_sweep(group->all);
    else if (!group->clients)
        free_group(group);
}

int gm_group_add(struct gm_group *group, struct gm_client *client)
{
    if (!group)
        group = make_group();
    if (!group)
        return -ENOMEM;
    take_in(group, client);
    return 0;
}

int gm_group_restore(struct gm_groups *groups, struct gm_client *client,
                     const struct gm_client *partner, const char *name, bool is_said)
{
    struct gm_group *group = partner ? partner->group : NULL;
    char why[128];
    if (is_said && gm_groups_find(groups, name, client->uid, &group, why, sizeof why) == -ENOMEM)
        return -ENOMEM;
    const int error = gm_group_add(group, client);
    if (error == 0 && !client->group->all) {
        client->group->is_several = client->group->is_several || partner != NULL;
        snprintf(client->group->name, sizeof client->group->name, "%s", name);
    }
    return error;
}

void gm_group_remove(struct gm_client *client)
{
    struct gm_group *group = client->group;
    if (!group)
        return;
    let_go(client);
    end_if_empty(group);
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

/* ---- unions ---- */

/* It is an app of this engine, or will be when it has come back. */
static bool is_expected(const struct gm_engine *engine, const struct gm_client *client)
{
    const struct gm_app *app = &engine->apps[client->id];
    return app->session || (app->state == GM_APP_LOST && !client->is_cut);
}

uint64_t gm_engine_size_of(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_table_app *entry = &engine->table->apps[id];
    const uint64_t promised = gm_room_promised(engine->table, id);
    const uint64_t all = promised + gm_check_tries(&engine->check, id);
    const uint64_t most = gm_least(engine->room, gm_less(entry->committed, entry->fixed));
    return gm_least(all, gm_most(promised, most)); /* or it would be too large to run */
}

/* What its members need on the GPU of that index. */
static uint64_t needed_on(const struct gm_group *group, uint32_t index)
{
    uint64_t bytes = 0;
    for (const struct gm_client *client = group->clients; client; client = client->next) {
        const struct gm_engine *engine = client->engines[index];
        if (engine && is_expected(engine, client))
            bytes += gm_room_promised(engine->table, client->id);
    }
    return bytes;
}

/* One of the engines of that index that they are apps of: all are the same. */
static const struct gm_engine *engine_on(const struct gm_group *group, uint32_t index)
{
    for (const struct gm_client *client = group->clients; client; client = client->next)
        if (client->engines[index] && is_expected(client->engines[index], client))
            return client->engines[index];
    return NULL;
}

/* How many GPUs both use between them, and whether each has room for what both need there. */
static uint32_t count_gpus(const struct gm_group *a, const struct gm_group *b, bool *has_room)
{
    uint32_t n = 0;
    *has_room = true;
    for (uint32_t i = 0; i < GM_GPUS_MAX; i++) {
        const struct gm_engine *one = engine_on(a, i), *other = engine_on(b, i);
        const struct gm_engine *engine = one ? one : other;
        n += engine != NULL;
        if (one && other)
            *has_room = *has_room && needed_on(a, i) + needed_on(b, i) <=
                                         gm_less(engine->table->budget, engine->table->fixed);
    }
    return n;
}

/* In rounds of the united group: who is to yield in its own group still is. */
static void renumber(const struct gm_group *group, uint64_t round)
{
    struct gm_walk walk = gm_group_walk(group);
    struct gm_engine *engine;
    struct gm_app *app;
    while ((app = gm_group_step(&walk, &engine)) != NULL)
        app->group.round = app->group.round == group->round ? round : round - 1;
}

enum gm_union gm_group_unite(const struct gm_client *client, const struct gm_client *partner)
{
    struct gm_group *group = client->group, *other = partner->group;
    bool has_room;
    if (group == other || client->uid != partner->uid || client->is_cut || partner->is_cut)
        return GM_UNION_NONE;
    if (count_gpus(group, other, &has_room) < 2) {
        join_kin(group, other);
        return GM_UNION_NONE;
    }
    if (group->all && other->all)
        return GM_UNION_NAMED;
    if (!has_room)
        return GM_UNION_LARGE;
    if (other->all) { /* its name is the one that somebody said */
        struct gm_group *named = other;
        other = group;
        group = named;
    }
    /* Later than the grants of both: they are granted their turns anew. */
    const uint64_t round = 1 + (group->round > other->round ? group->round : other->round);
    renumber(group, round);
    renumber(other, round);
    group->round = round;
    while (other->clients) {
        struct gm_client *moved = other->clients;
        let_go(moved);
        take_in(group, moved);
    }
    join_kin(group, other);
    end_if_empty(other);
    group->is_several = true;
    group->united = UINT32_MAX;
    if (!group->all)
        snprintf(group->name, sizeof group->name, "pid %d", (int)group->clients->pid);
    gm_group_call(group);
    return GM_UNION_MADE;
}

const struct gm_client *gm_group_take_kin(const struct gm_client *client)
{
    const struct gm_group *group = client->group;
    bool has_room;
    for (struct gm_group *other = group->kin; other != group; other = other->kin) {
        const struct gm_client *partner = first_living(other);
        if (!partner || count_gpus(group, other, &has_room) < 2)
            continue;
        leave_kin(other);
        return partner;
    }
    return NULL;
}

uint32_t gm_group_kin(const struct gm_group *group)
{
    uint32_t lowest = GM_NONE;
    if (group->kin == group)
        return 0;
    const struct gm_group *one = group;
    do {
        if (one->clients && one->clients->id < lowest)
            lowest = one->clients->id;
        one = one->kin;
    } while (one != group);
    return lowest + 1;
}

void gm_group_restore_kin(const struct gm_client *client, const struct gm_client *partner)
{
    join_kin(client->group, partner->group);
}

/* ---- members ---- */

struct gm_app *gm_group_step(struct gm_walk *walk, struct gm_engine **engine)
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

struct gm_walk gm_group_walk(const struct gm_group *group)
{
    return (struct gm_walk){.group = group, .client = group->clients};
}

struct gm_group *gm_group_of(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return app->client && app->client->group->is_several ? app->client->group : NULL;
}

bool gm_group_take_union(const struct gm_engine *engine, uint32_t id)
{
    struct gm_group *group = gm_group_of(engine, id);
    const uint32_t bit = 1u << engine->config.index;
    if (!group || (group->united & bit) == 0)
        return false;
    group->united &= ~bit;
    return true;
}

bool gm_group_is_several(const struct gm_engine *engine, uint32_t id)
{
    return gm_group_of(engine, id) != NULL;
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
    struct gm_walk walk = gm_group_walk(group);
    uint32_t n = 0;
    while (gm_group_step(&walk, &at))
        n++;
    group->is_several = group->is_several || n > 1;
    group->united |= 1u << engine->config.index;
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
    const struct gm_group *group = gm_group_of(engine, id);
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
            *bytes += gm_engine_size_of(engine, client->id);
        *is_wanting = *is_wanting || (app->is_wanting && !is_stopped);
        *is_open = *is_open && is_running;
        *has_open = *has_open || is_running || app->state == GM_APP_DRAINING;
    }
}

static bool is_at_rest(const struct gm_engine *engine, const struct gm_app *app)
{
    return app->idle.is_idle ||
           (app->idle.quiet_at != 0 && engine->now >= app->idle.active_at + engine->config.idle_ns);
}

static bool has_waiting_work(const struct gm_app *app)
{
    return atomic_load(&app->stat->waiting) > 0 || app->gate.is_parked ||
           app->allocs.pending > app->allocs.ahead;
}

bool gm_group_is_waiting(const struct gm_engine *engine, uint32_t id, bool *is_first)
{
    struct gm_walk walk = gm_group_walk(engine->apps[id].client->group);
    struct gm_engine *at;
    const struct gm_app *app;
    bool is_waiting = false;
    *is_first = true;
    while ((app = gm_group_step(&walk, &at)) != NULL) {
        *is_first = *is_first && at->config.index >= engine->config.index;
        is_waiting = is_waiting || has_waiting_work(app);
    }
    return is_waiting;
}

void gm_group_call(const struct gm_group *group)
{
    struct gm_engine *at;
    struct gm_walk walk = gm_group_walk(group);
    while (gm_group_step(&walk, &at))
        gm_engine_call(at);
}

void gm_group_changed(struct gm_engine *engine, uint32_t id)
{
    const struct gm_group *group = gm_group_of(engine, id);
    if (group)
        gm_group_call(group);
}

void gm_group_yield(struct gm_engine *engine, uint32_t id)
{
    struct gm_group *group = gm_group_of(engine, id);
    if (!group)
        return;
    engine->apps[id].group.round = ++group->round;
}

void gm_group_opens(struct gm_engine *engine, uint32_t id)
{
    const struct gm_group *group = gm_group_of(engine, id);
    if (group)
        engine->apps[id].group.round = group->round;
}

bool gm_group_wants(struct gm_engine *engine, uint32_t id)
{
    const struct gm_group *group = gm_group_of(engine, id);
    struct gm_engine *at;
    if (!group)
        return false;
    struct gm_walk walk = gm_group_walk(group);
    struct gm_app *first = gm_group_step(&walk, &at);
    if (!first || at == engine)
        return false;
    first->group.is_called = true;
    gm_engine_call(at);
    return true;
}

bool gm_group_take_call(struct gm_engine *engine, uint32_t id)
{
    const bool is_called = engine->apps[id].group.is_called;
    engine->apps[id].group.is_called = false;
    return is_called;
}

bool gm_group_rests(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_group *group = gm_group_of(engine, id);
    const struct gm_app *app;
    struct gm_engine *at;
    if (!group)
        return true;
    struct gm_walk walk = gm_group_walk(group);
    while ((app = gm_group_step(&walk, &at)) != NULL)
        if (app != &engine->apps[id] && app->state == GM_APP_RUNNING && !is_at_rest(engine, app))
            return false;
    return true;
}
