/*
 * What room there is, and the spare frames that programs keep of it.
 *
 * Gathers what core/room answers from. Tells each program what the GPU has and what it can still
 * allocate, which the shim takes from the program's ctl page (shim/memory/budget.c), and the
 * scheduler what there is for all. Owns gm_ctl.budget, gm_ctl.room, gm_app.driver, gm_app.aside,
 * and of the engine `users`, `room` and `aside`.
 */
#include "daemon/engine/step/room.h"

#include <string.h>

#include "common/sums.h"
#include "daemon/engine/state/client.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/step/exits.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/frames.h"
#include "daemon/engine/step/host.h"
#include "daemon/memory/files.h"

/* ---- spare frames ---- */

/*
 * Spares: what programs freed and keep mapped for their next allocation of that size
 * (shim/memory/spares.h). A program lists its spares in shared memory (gm_stat.spares), so that a
 * free and the allocation after it cost no message. A word is believed only if it names an
 * allocation of that program. allocs.c takes them back.
 */

/* The allocation that a word says is a spare. GM_NONE: it says none. */
uint32_t gm_engine_spare_of(const struct gm_engine *engine, uint32_t id, uint64_t word)
{
    if (word == 0 || (word & GM_SPARE_BUSY) != 0)
        return GM_NONE;
    const uint32_t index = gm_table_find_allocation(engine->table, id, word & ~(GM_CHUNK_MIN - 1));
    return index != GM_NONE && !engine->table->allocations[index].is_pending ? index : GM_NONE;
}

bool gm_engine_has_spares(const struct gm_engine *engine, uint32_t id)
{
    return engine->apps[id].session && engine->apps[id].stat;
}

uint64_t gm_engine_spare_bytes(const struct gm_engine *engine, uint32_t id)
{
    const uint64_t committed = engine->table->apps[id].committed;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < GM_SPARES_MAX && gm_engine_has_spares(engine, id); i++) {
        const uint32_t index =
            gm_engine_spare_of(engine, id, atomic_load(&engine->apps[id].stat->spares[i]));
        bytes += index != GM_NONE ? engine->table->allocations[index].bytes : 0;
    }
    return bytes < committed ? bytes : committed; /* it may name one of them twice */
}

/* Freed or not: of one that is, the program hears when nothing of it is left. */
bool gm_engine_is_of_another(const struct gm_engine *engine, uint32_t id, uint64_t va)
{
    const struct gm_client *client = engine->apps[id].client;
    for (uint32_t i = 0; i < GM_GPUS_MAX; i++)
        if (client->engines[i] && client->engines[i] != engine &&
            (i > engine->config.index || gm_table_has_any(client->engines[i]->table, id, va)))
            return true;
    return false;
}

/* ---- what is read once a round ---- */

/* What the driver keeps for the app and nobody can move, in whole chunks. Hostile input: it says no
 * more than the device has. */
static uint64_t driver_bytes(const struct gm_engine *engine, const struct gm_stat *stat)
{
    const uint64_t kinds[] = {atomic_load(&stat->small_bytes), atomic_load(&stat->real_bytes),
                              atomic_load(&stat->array_bytes), atomic_load(&stat->graph_bytes),
                              atomic_load(&stat->driver_bytes)};
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        sum += gm_least(kinds[i], engine->device_bytes);
    return gm_chunk_round(sum);
}

/* ---- what bounds an app ---- */

/* A member of its group has memory here; who has yet to come back, too: they will run together. */
static bool has_memory(const struct gm_engine *engine, const struct gm_client *client)
{
    return client->engines[engine->config.index] == engine &&
           (engine->apps[client->id].session || engine->apps[client->id].state == GM_APP_LOST);
}

uint64_t gm_engine_cap(const struct gm_engine *engine, uint32_t id)
{
    uint64_t cap = engine->apps[id].cap.bytes;
    const struct gm_client *client = gm_group_clients(engine->apps[id].client->group);
    for (; client; client = client->next) {
        const uint64_t one = has_memory(engine, client) ? engine->apps[client->id].cap.bytes : 0;
        cap = cap == 0 || (one != 0 && one < cap) ? one : cap;
    }
    return cap;
}

bool gm_engine_is_capped(const struct gm_engine *engine, uint32_t id)
{
    return gm_engine_cap(engine, id) != 0 || engine->apps[id].cap.user_gpu != 0;
}

uint64_t gm_engine_bytes_for_gpu(const struct gm_engine *engine, uint32_t id)
{
    return gm_room_placed(engine->table, id);
}

uint64_t gm_engine_places_room(const struct gm_engine *engine, uint32_t id)
{
    return gm_room_promised(engine->table, id) + engine->apps[id].cap.bend;
}

uint64_t gm_engine_above_cap(const struct gm_engine *engine, uint32_t id)
{
    const bool is_bounded = gm_engine_is_capped(engine, id) || engine->is_short_of_room;
    if (!engine->apps[id].session || engine->stopping.is_on || !is_bounded)
        return 0;
    return gm_less(engine->table->apps[id].resident, gm_engine_places_room(engine, id));
}

bool gm_engine_is_oversize(const struct gm_engine *engine, uint32_t id)
{
    return engine->apps[id].client->is_oversize && !engine->pool.is_registered;
}

/* ---- the input ---- */

/* What of that much pinned memory can be mapped. */
static uint64_t mappable(const struct gm_engine *engine, uint64_t pinned)
{
    return engine->pool.is_registered ? 0 : gm_less(pinned, engine->host->window);
}

/* What all tiers together hold, less the window. The tiers below are reached through that: without
 * it there are none. */
static uint64_t tiers(const struct gm_engine *engine, uint64_t pinned)
{
    const uint64_t window = engine->host->window;
    if (pinned < window)
        return engine->table->budget;
    return engine->table->budget + pinned - window + gm_stores_cap(engine->stores, GM_TIER_PAGED) +
           gm_stores_cap(engine->stores, GM_TIER_DISK);
}

/* What of the tiers is taken: by programs, and by ended ones whose processes still map it. */
static uint64_t taken(const struct gm_engine *engine)
{
    return gm_room_committed(engine->table) + engine->left_on_host;
}

uint64_t gm_engine_owed(const struct gm_engine *engine)
{
    const uint64_t below = tiers(engine, gm_host_limit(engine)) - engine->table->budget;
    return gm_less(taken(engine), below);
}

/* What is taken, whoever asks. `pinned`: what of that the GPU may have. */
static struct gm_room_input for_all(const struct gm_engine *engine, uint64_t pinned)
{
    const struct gm_table *table = engine->table;
    const uint32_t files = gm_files_for_frames();
    return (struct gm_room_input){
        .budget = gm_engine_offered(engine),
        .fixed = table->fixed,
        .host = mappable(engine, pinned),
        .host_alone = mappable(engine, gm_host_limit_alone(engine)),
        .host_taken = gm_room_beyond(table) + engine->left_on_host,
        .host_programs = table->beyond_apps,
        .host_aside = engine->aside,
        .tiers = tiers(engine, pinned),
        .tiers_taken = taken(engine),
        .files = files == UINT32_MAX ? UINT64_MAX : files,
        .files_taken =
            table->staying + ((table->orphaned + table->orphaned_on_host) >> GM_CHUNK_SHIFT),
        .is_host_mappable = !engine->pool.is_registered,
        .cap = UINT64_MAX,
        .told = UINT64_MAX,
        .user_gpu = UINT64_MAX,
        .user_pinned = UINT64_MAX,
    };
}

/* What programs are told: shadows on other GPUs are no obstacle, as they make way. */
static struct gm_room_input for_all_soon(const struct gm_engine *engine)
{
    return for_all(engine, gm_host_limit_soon(engine));
}

struct gm_room_sums gm_engine_sums(const struct gm_engine *engine, uint32_t id)
{
    struct gm_room_sums sums = {0};
    const struct gm_client *client = gm_group_clients(engine->apps[id].client->group);
    for (; client; client = client->next) {
        if (!has_memory(engine, client))
            continue;
        const struct gm_table_app *entry = &engine->table->apps[client->id];
        sums.promised += gm_room_promised(engine->table, client->id);
        sums.programs++;
        sums.beyond += entry->beyond;
        sums.fixed += entry->fixed;
        sums.held += entry->held;
        sums.driver += engine->apps[client->id].driver;
        sums.device += entry->device;
        sums.bend += engine->apps[client->id].cap.bend;
    }
    return sums;
}

static uint32_t beyond_programs(const struct gm_engine *engine, uint32_t id)
{
    uint32_t n = 0;
    const struct gm_client *client = gm_group_clients(engine->apps[id].client->group);
    for (; client; client = client->next)
        n += has_memory(engine, client) && engine->table->apps[client->id].beyond > 0;
    return n;
}

static uint64_t own_aside(const struct gm_engine *engine, uint32_t id)
{
    uint64_t bytes = 0;
    for (GM_EACH_MEMBER(engine, id, client))
        bytes += engine->apps[client->id].aside;
    return bytes;
}

/* Those who run together with it need files at once, on all their GPUs. */
static void add_files(const struct gm_engine *engine, uint32_t id, struct gm_room_input *input)
{
    const struct gm_client *client = gm_group_clients(engine->apps[id].client->group);
    for (; client; client = client->next)
        for (uint32_t i = 0; i < GM_GPUS_MAX; i++) {
            const struct gm_engine *other = client->engines[i];
            const struct gm_table_app *entry = other ? &other->table->apps[client->id] : NULL;
            input->files_own += other ? entry->chunks : 0;
            input->files_taken -= other == engine ? entry->staying : 0;
        }
}

uint64_t gm_engine_spare_files(const struct gm_engine *engine, uint32_t id)
{
    struct gm_room_input all = for_all(engine, gm_host_limit(engine));
    uint64_t files = UINT64_MAX;
    for (uint32_t other = 0; other < engine->config.max_apps; other++)
        all.files_to_keep += other == id ? 0 : gm_room_files_to_keep(engine->table, other);
    for (uint32_t other = 0; other < engine->config.max_apps; other++) {
        struct gm_room_input input = all;
        if (!engine->apps[other].session || gm_group_is_one(engine, other, id))
            continue;
        add_files(engine, other, &input);
        for (GM_EACH_MEMBER(engine, other, client)) /* when it runs it has files for all */
            input.files_to_keep -= gm_room_files_to_keep(engine->table, client->id);
        files = gm_least(files, gm_room_spare_files(&input));
    }
    return files;
}

static uint64_t limit(uint64_t bytes)
{
    return bytes == 0 ? UINT64_MAX : bytes;
}

/* What the programs of a uid have. */
static void add_user(const struct gm_engine *engine, uint32_t pool, struct gm_room_input *input)
{
    const struct gm_pool *user = &engine->table->pools[pool];
    input->user.promised += user->committed - user->beyond - user->fixed;
    input->user.beyond += user->beyond;
    input->user.fixed += user->fixed;
    input->user.driver += engine->users[pool].driver;
    input->user.device += user->device;
    input->left_gpu += engine->users[pool].left[0];
    input->left_host += engine->users[pool].left[1];
}

/* The app itself, which `all` counts among the others. */
static struct gm_room_input for_app(const struct gm_engine *engine, uint32_t id,
                                    const struct gm_room_input *all)
{
    const struct gm_app *app = &engine->apps[id];
    const uint32_t pool = engine->table->apps[id].pool;
    const bool has_total = app->cap.user_gpu != 0 || app->cap.user_pinned != 0;
    struct gm_room_input input = *all;
    input.own = gm_engine_sums(engine, id);
    input.host_taken -= input.own.beyond;
    input.host_programs -= beyond_programs(engine, id);
    input.host_aside -= own_aside(engine, id);
    add_files(engine, id, &input);
    input.cap = limit(gm_engine_cap(engine, id));
    input.is_oversize = gm_engine_is_oversize(engine, id);
    input.told = gm_client_told(app->client, UINT64_MAX);
    input.told_taken = engine->table->apps[id].committed;
    input.user_gpu = limit(app->cap.user_gpu);
    input.user_pinned = limit(app->cap.user_pinned);
    add_user(engine, pool, &input);
    for (uint32_t i = 0; has_total && i < engine->config.max_apps; i++)
        if (i != pool && engine->users[i].owner == app->client->owner)
            add_user(engine, i, &input);
    return input;
}

struct gm_room_input gm_engine_room_input(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_room_input all = for_all(engine, gm_host_limit(engine));
    return for_app(engine, id, &all);
}

/* Whether what is beyond of the app, which is the first of its group, can come back. What stands
 * still keeps what it has. What one app of a user with a total has, others of the user lack. */
static bool can_come_back(const struct gm_engine *engine, uint32_t id)
{
    if (!engine->apps[id].session || engine->stopping.is_on || engine->apps[id].cap.user_gpu != 0)
        return false;
    for (GM_EACH_MEMBER(engine, id, client))
        if (engine->apps[client->id].is_stopped || engine->table->apps[client->id].is_silent)
            return false;
    return gm_group_next_here(engine, gm_group_clients(engine->apps[id].client->group)) ==
           engine->apps[id].client;
}

static void set_aside(struct gm_engine *engine, uint32_t id, uint64_t bytes)
{
    engine->aside += bytes - engine->apps[id].aside;
    engine->apps[id].aside = bytes;
}

void gm_engine_count_aside_of(struct gm_engine *engine, uint32_t id)
{
    for (GM_EACH_MEMBER(engine, id, client)) {
        const bool can_come = can_come_back(engine, client->id);
        const struct gm_room_input input = gm_engine_room_input(engine, client->id);
        set_aside(engine, client->id, can_come ? gm_room_to_take_up(&input) : 0);
    }
}

void gm_engine_count_aside(struct gm_engine *engine)
{
    if (engine->table->beyond == 0 && engine->aside == 0)
        return; /* nothing can come back, and none of it is counted */
    const struct gm_room_input all = for_all(engine, gm_host_limit(engine));
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        uint64_t bytes = 0;
        if (engine->table->beyond > 0 && can_come_back(engine, id)) {
            const struct gm_room_input input = for_app(engine, id, &all);
            bytes = gm_room_to_take_up(&input);
        }
        set_aside(engine, id, bytes);
    }
}

void gm_engine_count_users(struct gm_engine *engine)
{
    memset(engine->users, 0, engine->config.max_apps * sizeof *engine->users);
    engine->left_on_host = 0;
    uint32_t n_leaving = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        const bool is_there = app->session || app->state == GM_APP_LOST;
        app->driver = is_there && app->stat ? driver_bytes(engine, app->stat) : 0;
        struct gm_user *user = &engine->users[engine->table->apps[id].pool];
        user->driver += app->driver;
        user->owner = app->client ? app->client->owner : user->owner;
        if (app->state == GM_APP_GONE && gm_engine_is_left(app))
            engine->leaving[n_leaving++] = id;
    }
    const struct gm_frame *frame;
    for (uint32_t i = engine->table->first_condemned; i != GM_NONE; i = frame->next) {
        frame = &engine->table->frames[i];
        bool is_left = false, is_for_good = false;
        for (uint32_t k = 0; frame->is_host && !is_for_good && k < n_leaving; k++) {
            const bool may_reach = gm_engine_may_reach(engine, engine->leaving[k], i);
            is_left = is_left || may_reach;
            is_for_good =
                may_reach && gm_engine_is_left_for_good(&engine->apps[engine->leaving[k]]);
        }
        engine->left_on_host += is_left ? gm_class_bytes(frame->class) : 0;
        if (is_for_good || gm_engine_is_left_behind(engine, i))
            engine->users[frame->pool].left[frame->is_host] += gm_class_bytes(frame->class);
    }
    gm_engine_count_aside(
        engine); /* a cap leaves more or less, and who stands still gives nothing */
}

uint64_t gm_engine_host_soon(const struct gm_engine *engine)
{
    return mappable(engine, gm_host_limit_soon(engine));
}

/* ---- who asks ---- */

/* Of others that run the scheduler knows. */
bool gm_engine_is_absent(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return app->is_stopped || app->state == GM_APP_LOST ||
           (app->state == GM_APP_PAUSED && engine->table->apps[id].is_silent);
}

void gm_engine_update_room(struct gm_engine *engine)
{
    uint64_t room = gm_less(engine->table->budget, engine->table->fixed);
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (gm_engine_is_absent(engine, id))
            room = gm_less(room, gm_engine_withheld(engine, id));
    const struct gm_frame *entry;
    for (uint32_t i = engine->table->first_condemned; i != GM_NONE; i = entry->next) {
        entry = &engine->table->frames[i];
        if (entry->is_host || (entry->silent == 0 && !gm_engine_is_left_behind(engine, i)))
            continue;
        /* It ends when the one that does not answer lets go of it, or the last copy is closed. */
        room = gm_less(room, gm_class_bytes(entry->class));
    }
    if (room == engine->room)
        return;
    engine->room = room;
    gm_engine_feed(engine, GM_SCHED_ROOM, 0, room);
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].session && gm_check_tries(&engine->check, id) > 0)
            gm_engine_feed_size(engine, id); /* it must not be too large for that */
}

uint64_t gm_engine_left(const struct gm_engine *engine)
{
    return gm_less(tiers(engine, gm_host_limit(engine)), taken(engine));
}

/* By option a program waits for memory, so the tiers do not bound it. */
static uint64_t told(const struct gm_engine *engine, struct gm_room_input *input)
{
    if (engine->config.is_waiting_when_full)
        input->tiers = UINT64_MAX;
    const struct gm_room room = gm_room_of(input);
    return room.gpu + room.host;
}

/* A program that starts now: spares are no obstacle, as they are taken back. */
static struct gm_room_input for_newcomer(const struct gm_engine *engine, bool is_oversize)
{
    struct gm_room_input input = for_all_soon(engine);
    input.is_oversize = is_oversize;
    input.own.programs = 1;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        input.tiers_taken -= gm_engine_spare_bytes(engine, id);
    return input;
}

uint64_t gm_engine_newcomer_room(const struct gm_engine *engine, bool is_oversize)
{
    struct gm_room_input input = for_newcomer(engine, is_oversize);
    return told(engine, &input);
}

static void tell(const struct gm_engine *engine, struct gm_ctl *ctl, struct gm_room_input *input)
{
    const uint32_t index = engine->config.index;
    __atomic_store_n(&ctl->budget[index], gm_room_total(input), __ATOMIC_RELAXED);
    __atomic_store_n(&ctl->room[index], told(engine, input), __ATOMIC_RELAXED);
}

void gm_engine_tell_newcomer(const struct gm_engine *engine, struct gm_client *client)
{
    struct gm_room_input input = for_newcomer(engine, client->is_oversize);
    input.told = gm_client_told(client, UINT64_MAX);
    tell(engine, client->ctl, &input);
}

void gm_engine_tell_room(struct gm_engine *engine)
{
    gm_host_promise(engine);
    gm_engine_count_aside(engine);
    const struct gm_room_input all = for_all_soon(engine);
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (!engine->apps[id].ctl)
            continue;
        struct gm_room_input input = for_app(engine, id, &all);
        tell(engine, engine->apps[id].ctl, &input);
    }
}
