/*
 * Caps: the most device memory that an app may occupy, and what all apps of a user may; and what
 * of its memory an app lays aside, as it is cold. Owns struct gm_app.cap, and what is beyond the
 * GPU of apps but for what an allocation puts there. What a cap leaves an app says core/room.
 *
 * A cap holds for an app on each of its GPUs. The programs of a group are one app, so it bounds
 * their sum. If they have several caps, the smallest counts. A total for a user bounds what its
 * apps are promised on the GPU together: who comes first has it. Unevictable memory counts, too:
 * what is fixed, and what the driver keeps, as the program tells it (gm_stat). Managed memory does
 * not count, as the driver moves it by itself. The rest of the cap is for frames. What of a
 * program does not fit there is `beyond`: it is mapped on the host when the program runs
 * (moves.c). So a cap does for one app what --oversize does for the budget, whatever that option
 * says.
 *
 * It is kept by three things:
 *
 *   beyond   what the members of an app are promised on the GPU is never above the cap
 *   fill     a chunk gets no frame if the app's frames would be above the cap with it. So an app
 *            whose cap was lowered never grows, and one that exchanges is never above its cap. In a
 *            group, a member may grow up to its own part while another member has more than its own
 *   leaving  an app above its cap gets new places as soon as it is quiet; a paused app is evicted
 *
 * Pinned memory must have room for what is beyond: a cap for which it has none is refused. If the
 * driver comes to keep more, as much goes beyond as pinned memory has room for.
 *
 * A total of pinned memory bounds all evictable memory of a user, as any of it may have to be
 * there.
 *
 * What is cold (core/working) goes beyond as well while the GPU is not large enough for all that
 * programs have committed, as far as pinned memory has room. So what an app is promised there is
 * what it needs, and apps whose needs fit together run together (PILOT's AMFit). It stays where it
 * is for as long as nobody needs the room: by that much the app may bend, without an option. What
 * has left the GPU does not come back by that, so nothing goes back and forth.
 *
 * By option a cap bends: an app may have what nobody else wants now. Others are apps that run or
 * wait for their turn. What they are promised stays theirs: the app needs no more than its cap in
 * order to run, and goes back to that when room is wanted. It bends no further than a total for
 * the user allows. Otherwise two apps that bend would wait for each other's frames for ever.
 */
#include "daemon/engine/step/caps.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/settings.h"
#include "common/size.h"
#include "common/sums.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/room.h"

/* ---- what may be had ---- */

/* What of the group's sum is the app's own. */
static uint64_t part_of(const struct gm_engine *engine, uint32_t id)
{
    return gm_engine_places_room(engine, id) + engine->table->apps[id].fixed;
}

/* Another member that runs has more than its part. It goes below that when it drains, for which its
 * work may have to wait for this one. */
static bool is_other_above(const struct gm_engine *engine, uint32_t id)
{
    for (GM_EACH_MEMBER(engine, id, client))
        if (client->id != id && engine->apps[client->id].state == GM_APP_RUNNING &&
            engine->table->apps[client->id].device > part_of(engine, client->id))
            return true;
    return false;
}

/* Whether a chunk of it may come to the GPU now. */
bool gm_engine_may_occupy(const struct gm_engine *engine, uint32_t id, uint64_t bytes)
{
    if (engine->stopping.is_on || !gm_engine_is_capped(engine, id))
        return true;
    const struct gm_room_input input = gm_engine_room_input(engine, id);
    const bool has_part =
        engine->table->apps[id].device + bytes <= part_of(engine, id) && is_other_above(engine, id);
    return gm_room_may_occupy(&input, bytes, has_part);
}

/* ---- what is beyond ---- */

/* Of the app's memory the GPU is to hold so much more, or less. */
static void set_beyond(struct gm_engine *engine, uint32_t id, uint64_t beyond)
{
    struct gm_app *app = &engine->apps[id];
    const bool is_more = beyond > engine->table->apps[id].beyond;
    if (beyond == engine->table->apps[id].beyond)
        return;
    gm_table_set_beyond(engine->table, id, beyond);
    gm_engine_feed_size(engine, id);
    if (is_more)
        gm_engine_hold_at_once(engine, id); /* what fails is tried again later */
    else
        gm_engine_need_budget(engine, id);
    if (app->state == GM_APP_RUNNING || app->state == GM_APP_LOADING)
        gm_engine_want_places(engine, id);
    else
        gm_engine_need_places(engine, id);
    gm_engine_count_aside_of(engine, id);
    gm_engine_want_memory(engine);
}

/* `bytes` of the members' memory go beyond, of each in proportion. */
static void give_up(struct gm_engine *engine, uint32_t id, uint64_t promised, uint64_t bytes)
{
    const uint64_t all = promised >> GM_CHUNK_SHIFT, share = bytes >> GM_CHUNK_SHIFT;
    uint64_t left = bytes;
    for (GM_EACH_MEMBER(engine, id, client)) {
        const uint64_t own = gm_room_promised(engine->table, client->id);
        if (own >> GM_CHUNK_SHIFT == 0)
            continue; /* so `all` is not 0 */
        uint64_t part = ((own >> GM_CHUNK_SHIFT) * share + all - 1) / all << GM_CHUNK_SHIFT;
        part = gm_least(part, gm_least(left, own));
        left -= part;
        set_beyond(engine, client->id, engine->table->apps[client->id].beyond + part);
    }
}

/* What of the app is to be beyond as it is cold. */
static uint64_t cold_of(const struct gm_engine *engine, uint32_t id)
{
    return engine->is_short_of_room ? engine->table->apps[id].cold : 0;
}

bool gm_engine_has_turn(const struct gm_engine *engine, uint32_t id)
{
    return engine->apps[id].state != GM_APP_PAUSED || engine->apps[id].places.is_held;
}

void gm_engine_lay_aside(struct gm_engine *engine, uint32_t id)
{
    const struct gm_table_app *entry = &engine->table->apps[id];
    const struct gm_room_input input = gm_engine_room_input(engine, id);
    uint64_t more = gm_room_to_lay_aside(&input, cold_of(engine, id), entry->beyond);
    if (more > 0) { /* what is on the host keeps its files, and others need theirs to run */
        const uint64_t files =
            gm_room_within_files(entry->chunks - entry->staying, gm_engine_spare_files(engine, id));
        more = gm_least(more, gm_less(gm_more(entry->on_host, files), entry->beyond));
    }
    if (more > 0)
        set_beyond(engine, id, entry->beyond + more);
}

/* The members may have more of the GPU. */
static void take_up(struct gm_engine *engine, uint32_t id, uint64_t bytes)
{
    for (GM_EACH_MEMBER(engine, id, client)) {
        const uint64_t beyond = engine->table->apps[client->id].beyond;
        const uint64_t cold = cold_of(engine, client->id);
        const uint64_t held = engine->table->apps[client->id].held;
        const uint64_t part = gm_least(gm_less(beyond, cold > held ? cold : held), bytes);
        bytes -= part;
        set_beyond(engine, client->id, beyond - part);
    }
}

void gm_engine_reclaim_host(struct gm_engine *engine, uint32_t id, uint64_t beyond)
{
    const struct gm_room_input input = gm_engine_room_input(engine, id);
    uint64_t lacks = gm_room_to_reclaim(&input, beyond);
    for (uint32_t first = 0; first < engine->config.max_apps && lacks > 0; first++) {
        uint64_t left = gm_least(engine->apps[first].aside, lacks);
        if (left == 0 || gm_group_is_one(engine, first, id))
            continue;
        lacks -= left;
        for (GM_EACH_MEMBER(engine, first, client)) {
            const uint64_t has = engine->table->apps[client->id].beyond;
            const uint64_t part =
                gm_least(gm_less(has, engine->table->apps[client->id].held), left);
            left -= part;
            set_beyond(engine, client->id, has - part);
        }
    }
}

void gm_engine_fit(struct gm_engine *engine, uint32_t id)
{
    const struct gm_table_app *entry = &engine->table->apps[id];
    const uint64_t all = entry->committed - entry->fixed;
    if (entry->beyond > all)
        gm_table_set_beyond(engine->table, id, all);
    if (!engine->apps[id].session || engine->stopping.is_on)
        return;
    if (entry->held > entry->beyond) { /* gm_room_may_hold was asked */
        gm_engine_reclaim_host(engine, id, entry->held - entry->beyond);
        set_beyond(engine, id, entry->held);
    }
    const struct gm_room_input input = gm_engine_room_input(engine, id);
    const uint64_t less = gm_room_to_give_up(&input), more = gm_room_to_take_up(&input);
    if (less > 0) {
        gm_engine_reclaim_host(engine, id, less);
        give_up(engine, id, input.own.promised, less);
    } else if (more > 0) {
        take_up(engine, id, more);
    }
    /* Not in its turn: it would be held for that, once a window if it grows. If others wait for
     * room, the turn ends soon; if nobody does, nobody wants the room. */
    if (cold_of(engine, id) > entry->beyond && !gm_engine_has_turn(engine, id))
        gm_engine_lay_aside(engine, id);
}

/* ---- programs of the daemon before ---- */

/* What is held on the host stays beyond. */
static void take_back(struct gm_engine *engine, uint32_t id, uint64_t bytes)
{
    const struct gm_table_app *entry = &engine->table->apps[id];
    const uint64_t part = gm_least(gm_less(entry->beyond, entry->held), bytes);
    gm_table_set_beyond(engine->table, id, entry->beyond - part);
}

/* What lies on the host was promised there, or was to come to the GPU. As they may not have more of
 * the GPU than before, all of it is beyond at first, and the GPU then takes what it may have. */
void gm_engine_promise_lost(struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    const uint64_t host = gm_engine_host_soon(engine);
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_table_app *entry = &table->apps[id];
        const uint64_t most = entry->on_host > entry->held ? entry->on_host : entry->held;
        if (engine->apps[id].state == GM_APP_LOST)
            gm_table_set_beyond(engine->table, id,
                                gm_least(most, gm_less(entry->committed, entry->fixed)));
    }
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (engine->apps[id].state != GM_APP_LOST)
            continue;
        const struct gm_room_input input = gm_engine_room_input(engine, id);
        take_back(engine, id, gm_room_to_take_up(&input));
    }
    for (uint32_t id = engine->config.max_apps; id-- > 0;) { /* pinned memory may be less now */
        const uint64_t beyond = gm_room_on_host(gm_room_beyond(table), table->beyond_apps);
        if (engine->apps[id].state == GM_APP_LOST)
            take_back(engine, id, gm_less(beyond, host));
    }
}

/* ---- each round ---- */

/* What of the GPU apps may have for now. */
struct left {
    uint64_t unneeded; /* beside what all are promised, */
    uint64_t unwanted; /* ... or those that want a turn or have a cap: others' can leave */
};

static struct left count_left(const struct gm_engine *engine)
{
    uint64_t needed = 0, wanted = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (!engine->apps[id].session || gm_engine_is_absent(engine, id))
            continue;
        const bool is_wanting = engine->in_set[id] || !engine->apps[id].idle.is_idle;
        needed += gm_room_promised(engine->table, id);
        if (is_wanting || gm_engine_is_capped(engine, id))
            wanted += gm_room_promised(engine->table, id);
    }
    return (struct left){.unneeded = gm_less(engine->room, needed),
                         .unwanted = gm_less(engine->room, wanted)};
}

/* What a total for its user leaves of the GPU beside what all its apps need, and what others have
 * for now; UINT64_MAX: there is none. */
static uint64_t unwanted_by_user(const struct gm_engine *engine, uint32_t id)
{
    const uint64_t total = engine->apps[id].cap.user_gpu;
    const uid_t owner = engine->apps[id].client->owner;
    uint64_t bytes = 0;
    for (uint32_t other = 0; total != 0 && other < engine->config.max_apps; other++) {
        bytes += engine->users[other].owner == owner ? engine->users[other].left[0] : 0;
        if (!engine->apps[other].session || engine->apps[other].client->owner != owner)
            continue;
        const struct gm_table_app *entry = &engine->table->apps[other];
        const uint64_t driver = engine->apps[other].driver;
        const uint64_t needed = gm_room_promised(engine->table, other) + entry->fixed + driver;
        const uint64_t bent = needed + engine->apps[other].cap.bend;
        const uint64_t has = entry->device + driver;
        bytes += other == id ? needed : bent > has ? bent : has;
    }
    return total == 0 ? UINT64_MAX : gm_less(total, bytes);
}

/* What its cap leaves it beside what its group is promised, and what other members have for now. */
static uint64_t below_cap(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_room_input input = gm_engine_room_input(engine, id);
    const uint64_t others = input.own.bend - engine->apps[id].cap.bend;
    return gm_less(gm_room_cap_limit(&input), gm_more(input.own.promised, others));
}

/* It did not drain when it was held: until that is tried again nothing of it can leave. */
static bool is_stuck(const struct gm_engine *engine, uint32_t id)
{
    return engine->apps[id].state == GM_APP_RUNNING && !gm_engine_is_capped(engine, id) &&
           engine->now < engine->apps[id].places.hold_failed_until;
}

/* Of what is cold: it may keep what it has on the GPU, as far as there is room. In its turn it is
 * held for what has to leave: so that is not a little at a time. */
static uint64_t may_keep(const struct gm_engine *engine, uint32_t id, uint64_t room)
{
    const struct gm_table_app *entry = &engine->table->apps[id];
    const uint64_t promised = gm_room_promised(engine->table, id);
    uint64_t has = gm_less(entry->resident, promised);
    if (gm_engine_has_turn(engine, id)) /* what comes and goes is where it is to be */
        has = gm_less(gm_engine_bytes_for_gpu(engine, id), promised);
    if (is_stuck(engine, id))
        return gm_least(has, entry->beyond);
    if (gm_engine_has_turn(engine, id))
        has = gm_least(has, engine->apps[id].cap.bend);
    has = gm_least(has, entry->beyond);
    if (gm_engine_is_capped(engine, id))
        room = gm_least(room, below_cap(engine, id));
    if (has <= room)
        return has;
    return gm_engine_has_turn(engine, id) ? gm_least(room, gm_less(has, GM_PLACE_AT_ONCE)) : room;
}

/* The app may have so much more than it is promised. */
static void bend(struct gm_engine *engine, uint32_t id, struct left *left)
{
    struct gm_app *app = &engine->apps[id];
    const uint64_t before = app->cap.bend;
    uint64_t most = 0;
    if (engine->config.has_bending_caps && gm_engine_is_capped(engine, id))
        most = gm_least(left->unwanted, engine->table->apps[id].beyond);
    else if (engine->is_short_of_room)
        most = may_keep(engine, id, left->unneeded);
    if (most > 0)
        most = gm_least(most, unwanted_by_user(engine, id));
    app->cap.bend = gm_chunk_floor(most);
    left->unneeded = gm_less(left->unneeded, app->cap.bend);
    left->unwanted = gm_less(left->unwanted, app->cap.bend);
    const bool is_bounded = gm_engine_is_capped(engine, id) || engine->is_short_of_room;
    if (!is_bounded || gm_engine_bytes_for_gpu(engine, id) <= gm_engine_places_room(engine, id))
        return;
    if (app->cap.bend < before)
        gm_engine_hold_at_once(engine, id);
    if (app->state == GM_APP_RUNNING || app->state == GM_APP_LOADING)
        gm_engine_want_places(engine, id);
    else
        gm_engine_need_places(engine, id);
}

/* Those first who keep what they have: what they should give, others can. */
static void bend_all(struct gm_engine *engine)
{
    struct left left = count_left(engine);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t id = 0; id < engine->config.max_apps; id++)
            if (!engine->apps[id].session)
                engine->apps[id].cap.bend = 0;
            else if (!gm_engine_is_absent(engine, id) && is_stuck(engine, id) == (pass == 0))
                bend(engine, id, &left);
}

static bool is_to_fit(const struct gm_engine *engine, uint32_t id, bool was_short)
{
    return gm_engine_is_capped(engine, id) || engine->is_short_of_room != was_short ||
           (engine->is_short_of_room && cold_of(engine, id) != engine->table->apps[id].beyond);
}

void gm_engine_follow_caps(struct gm_engine *engine)
{
    const bool was_short = engine->is_short_of_room;
    if (engine->stopping.is_on)
        return;
    engine->is_short_of_room = gm_room_is_short(engine->table, was_short);
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].session && is_to_fit(engine, id, was_short))
            gm_engine_fit(engine, id);
    bend_all(engine);
}

/* ---- what is said ---- */

bool gm_engine_set_cap(struct gm_engine *engine, uint32_t id, uint64_t bytes)
{
    const bool is_new = engine->apps[id].cap.bytes != bytes;
    engine->apps[id].cap.bytes = bytes;
    return is_new;
}

void gm_engine_follow_cap(struct gm_engine *engine, uint32_t id)
{
    gm_engine_fit(engine, id);
    const struct gm_room_input input = gm_engine_room_input(engine, id);
    if (input.own.promised > gm_room_cap_limit(&input))
        gm_host_ask(engine); /* the rest follows when it is there */
}

static int say(int error, char *why, size_t size, const char *what, uint64_t cap, uint64_t bytes)
{
    char caps[32], number[32];
    snprintf(why, size, what, gm_settings_format_cap(cap, caps, sizeof caps),
             gm_format_size(bytes, number, sizeof number));
    return error;
}

int gm_engine_check_cap(const struct gm_engine *engine, uint32_t id, uint64_t cap, char *why,
                        size_t size)
{
    const uint64_t budget = gm_engine_offered(engine);
    const struct gm_room_sums sums = gm_engine_sums(engine, id);
    const uint64_t unevictable = sums.fixed + sums.driver;
    if (cap == 0)
        return 0;
    if (engine->pool.is_registered)
        return say(-ENOTSUP, why, size,
                   "cap=%s is not possible: the GPU has no memory handles on the host", cap, 0);
    if (cap > budget)
        return say(-ERANGE, why, size, "cap=%s is above the budget of %s", cap, budget);
    if (cap < unevictable)
        return say(-ERANGE, why, size,
                   "cap=%s is too small: %s of the program cannot leave the GPU", cap, unevictable);
    return 0;
}

struct gm_reason gm_engine_why_capped(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_room_input input = gm_engine_room_input(engine, id);
    struct gm_reason why = {.of = GM_WHY_CAP,
                            .bytes = engine->table->apps[id].beyond,
                            .limit = gm_engine_cap(engine, id)};
    if (!gm_engine_is_capped(engine, id))
        return (struct gm_reason){0};
    if (gm_room_user_limit(&input) < input.cap) { /* the lesser bounds it */
        why.of = GM_WHY_USER_TOTAL;
        why.limit = engine->apps[id].cap.user_gpu;
    }
    if (engine->apps[id].state == GM_APP_LOADING && !gm_engine_may_occupy(engine, id, GM_CHUNK_MIN))
        why.why = GM_WHY_LEAVES_ROOM;
    else if (why.bytes > 0)
        why.why = GM_WHY_BEYOND;
    else
        return (struct gm_reason){0};
    return why;
}

int gm_engine_check_room(const struct gm_engine *engine, const bool *selected, uint64_t cap,
                         char *why, size_t size)
{
    uint64_t beyond = gm_room_beyond(engine->table), aside = engine->aside, more = 0, on_host = 0;
    uint32_t programs = engine->table->beyond_apps;
    for (uint32_t id = 0; cap != 0 && id < engine->config.max_apps; id++) {
        if (!selected[id] ||
            gm_group_next_here(engine, gm_group_clients(engine->apps[id].client->group)) !=
                engine->apps[id].client)
            continue; /* a group is looked at once */
        struct gm_room_input input = gm_engine_room_input(engine, id);
        input.cap = cap;
        input.host = gm_engine_host_soon(engine);
        const uint64_t above =
            gm_less(input.own.promised + input.own.beyond, gm_room_cap_limit(&input));
        more += above;
        aside -= engine->apps[id].aside;
        beyond -= input.own.beyond;
        programs -= engine->table->beyond_apps - input.host_programs;
        programs += above > 0 ? input.own.programs : 0;
        on_host = gm_room_for_capped(&input);
    }
    if (more == 0 || gm_less(gm_room_on_host(beyond + more, programs), aside) <= on_host)
        return 0;
    char room[32];
    gm_format_size(gm_less(on_host, gm_less(gm_room_on_host(beyond, programs), aside)), room,
                   sizeof room);
    char caps[32], number[32];
    snprintf(why, size,
             "cap=%s needs %s of pinned memory for what is above it, and there is room for %s: "
             "raise --pinned",
             gm_settings_format_cap(cap, caps, sizeof caps),
             gm_format_size(more, number, sizeof number), room);
    return -ENOSPC;
}
