/*
 * What is beyond a cap or the GPU, and the moves that bring about where each chunk is to lie.
 *
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
 * (memory.c). So a cap does for one app what --oversize does for the budget, whatever that option
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
#include "daemon/core/plan_moves.h"
#include "daemon/engine/step/batches.h"
#include "daemon/engine/step/copies.h"
#include "daemon/engine/step/frames.h"
#include "daemon/engine/state/backoff.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/step/memory.h"
#include "daemon/engine/step/room.h"
#include "daemon/engine/step/shadows.h"

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
static bool may_occupy(const struct gm_engine *engine, uint32_t id, uint64_t bytes)
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
    gm_engine_feed(engine, GM_SCHED_SIZE, id, gm_room_promised(engine->table, id));
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

/* It has its turn, or is about to. */
static bool has_turn(const struct gm_engine *engine, uint32_t id)
{
    return engine->apps[id].state != GM_APP_PAUSED || engine->apps[id].places.is_held;
}

/* Not in its turn: it would be held for that, once a window if it grows. If others wait for room,
 * the turn ends soon; if nobody does, nobody wants the room. */
static void lay_aside(struct gm_engine *engine, uint32_t id)
{
    const struct gm_table_app *entry = &engine->table->apps[id];
    if (has_turn(engine, id))
        return;
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
    if (cold_of(engine, id) > entry->beyond)
        lay_aside(engine, id);
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
    if (has_turn(engine, id)) /* what comes and goes is where it is to be */
        has = gm_less(gm_engine_bytes_for_gpu(engine, id), promised);
    if (is_stuck(engine, id))
        return gm_least(has, entry->beyond);
    if (has_turn(engine, id))
        has = gm_least(has, engine->apps[id].cap.bend);
    has = gm_least(has, entry->beyond);
    if (gm_engine_is_capped(engine, id))
        room = gm_least(room, below_cap(engine, id));
    if (has <= room)
        return has;
    return has_turn(engine, id) ? gm_least(room, gm_less(has, GM_PLACE_AT_ONCE)) : room;
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
    if (engine->apps[id].state == GM_APP_LOADING && !may_occupy(engine, id, GM_CHUNK_MIN))
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

/* ---- moves ---- */

/*
 * Carries plans out (core/plan.h), which layout.c makes: has programs unmap what leaves, and
 * begins what comes. Owns how far the plan is.
 */

/* A program that must run at once does not wait long behind what is prefetched: 5 ms of the
 * link each way, and as much between the tiers below, keep them busy. */
#define GM_STAGED_AT_ONCE (256 * GM_MIB)
/* Evictions of a program run ahead of their copies by four batches, so it unmaps the next batch
 * while the answer to the last one is on its way. The link takes 40 us for the smallest chunk. In
 * chunks. */
#define GM_UNMAPS_AT_ONCE 64
/* A program that answered within this time is not stopped: memory may be staged for it. */
#define GM_ANSWERED_LATELY_NS (100 * GM_MS)
/* ... and within this, moved for it. */
#define GM_ANSWERED_JUST_NOW_NS (10 * GM_MS)

bool gm_engine_can_lose(const struct gm_engine *engine, uint32_t id)
{
    enum gm_app_state state = engine->apps[id].state;
    return !engine->in_set[id] && !engine->table->apps[id].is_silent &&
           (state == GM_APP_PAUSED || state == GM_APP_DRAINING);
}

uint64_t gm_engine_used_of(const struct gm_engine *engine, enum gm_tier tier)
{
    return tier == GM_TIER_PINNED ? gm_engine_pinned_used(engine)
                                  : gm_stores_used(engine->stores, tier);
}

void gm_engine_begin_moves(struct gm_engine *engine)
{
    engine->plan_from = 0;
    engine->plan_evicts = gm_plan_count(&engine->plan, GM_MOVE_EVICT);
}

static bool has_room(const struct gm_engine *engine, enum gm_way way)
{
    return gm_engine_has_room(engine, way) &&
           (!engine->layout.is_ahead || gm_engine_under_way(engine, way) < GM_STAGED_AT_ONCE);
}

/* Bytes that are free in a tier now; of the GPU: room in the budget for new frames. */
static uint64_t free_in(const struct gm_engine *engine, enum gm_tier tier)
{
    if (tier == GM_TIER_GPU)
        return engine->table->budget - engine->table->allocated;
    uint64_t cap = gm_stores_cap(engine->stores, tier);
    uint64_t used = gm_engine_used_of(engine, tier);
    return cap > used ? cap - used : 0;
}

/* Whether a move may take what it needs, beside what those before it still need: plan.h's rule. */
static bool may_take(struct gm_engine *engine, const struct gm_plan_hold *hold,
                     const struct gm_move *move)
{
    uint64_t bytes = gm_chunk_bytes(&engine->table->chunks[move->chunk]);
    enum gm_tier tier = gm_plan_takes(move);
    if (tier == GM_TIER_NONE)
        return true;
    return gm_plan_may_take(hold, move, bytes, free_in(engine, tier), engine->reserve);
}

/* plan.h's other rule; with nothing under way nobody would ask again, and the plan's order holds.
 */
static bool leaves_room(const struct gm_engine *engine, const struct gm_chunk *chunk)
{
    const bool is_moving = engine->host_copies > 0 || gm_engine_under_way(engine, GM_WAY_OUT) > 0;
    return engine->plan_evicts == 0 || !is_moving ||
           gm_plan_leaves_room(gm_chunk_bytes(chunk), free_in(engine, (enum gm_tier)chunk->tier),
                               free_in(engine, GM_TIER_PINNED), engine->host->window,
                               engine->reserve);
}

/* Each of these returns true when the move was made, or is void because things changed. */

/* A stopped program would keep the frames that it gives up mapped: it must have answered lately. */
static bool is_there(struct gm_engine *engine, uint32_t id, uint64_t lately_ns)
{
    struct gm_app *app = &engine->apps[id];
    if (app->batches.ping == 0 && engine->now >= app->gate.answered_at + lately_ns)
        gm_engine_ping(engine, id);
    return app->batches.ping == 0;
}

/* And it would keep those that it is given: ahead of its turn, nobody else could have them then. A
 * program that was chosen has been asked (gm_engine_begin_switch). */
static bool may_have(struct gm_engine *engine, uint32_t id)
{
    return !engine->layout.is_ahead || is_there(engine, id, GM_ANSWERED_JUST_NOW_NS);
}

/* It is on its way to where its program can use it. */
static bool is_coming(const struct gm_chunk *chunk)
{
    return chunk->state >= GM_CHUNK_RETURNING && chunk->state <= GM_CHUNK_MAPPING;
}

/* Begin an eviction: the owner unmaps the chunk, and keeps the frame until it has said so
 * (gm_engine_settle). The copy's pages and its place in the mover are set aside now, so that the
 * answer alone starts it. */
static bool evict(struct gm_engine *engine, const struct gm_plan_hold *hold,
                  const struct gm_move *move)
{
    const struct gm_chunk *chunk = &engine->table->chunks[move->chunk];
    const enum gm_app_state state = engine->apps[chunk->app].state;
    const bool is_leaving = chunk->is_leaving && state == GM_APP_LOADING;
    if (chunk->is_freed || chunk->is_fixed || chunk->state != GM_CHUNK_RESIDENT ||
        chunk->frame != move->frame || (!is_leaving && !gm_engine_can_lose(engine, chunk->app)))
        return true;
    if ((!is_leaving && state != GM_APP_PAUSED) || !has_room(engine, GM_WAY_OUT) ||
        gm_engine_is_off(engine, GM_RETRY_COPY) ||
        engine->table->apps[chunk->app].unmaps >= GM_UNMAPS_AT_ONCE ||
        !is_there(engine, chunk->app, GM_ANSWERED_LATELY_NS) ||
        (engine->layout.n_targets > 0 && !may_have(engine, engine->layout.targets[0])))
        return false;
    uint32_t page = GM_NONE;
    if (may_take(engine, hold, move))
        page = chunk->shadow == GM_SHADOW_KEPT ? chunk->page : gm_engine_take_pages(engine, chunk);
    if (page == GM_NONE) {
        engine->is_short_of_pages = !engine->layout.is_ahead;
        return false;
    }
    gm_table_evict(engine->table, move->chunk, page);
    gm_engine_unmap(engine, move->chunk);
    return true;
}

static bool fill(struct gm_engine *engine, const struct gm_plan_hold *hold,
                 const struct gm_move *move)
{
    const struct gm_chunk *chunk = &engine->table->chunks[move->chunk];
    enum gm_app_state state = engine->apps[chunk->app].state;
    uint32_t frame = move->frame;

    if (chunk->is_freed || chunk->is_on_host || chunk->tier == GM_TIER_GPU || is_coming(chunk) ||
        (state != GM_APP_LOADING && state != GM_APP_RUNNING && !engine->layout.is_ahead))
        return true;
    if (chunk->state != GM_CHUNK_AWAY || chunk->tier > GM_TIER_PINNED)
        return false; /* it is being raised, or will be */
    if (frame != GM_NONE && engine->table->frames[frame].state != GM_FRAME_FREE)
        return false;
    if (engine->apps[chunk->app].batches.unanswered_maps >= GM_MAPS_AT_ONCE)
        return false;
    if ((chunk->tier == GM_TIER_PINNED ||
         (frame != GM_NONE && engine->table->frames[frame].is_dirty)) &&
        !has_room(engine, GM_WAY_IN))
        return false;
    if (!may_have(engine, chunk->app) || !may_occupy(engine, chunk->app, gm_chunk_bytes(chunk)))
        return false;
    if (frame == GM_NONE)
        frame = gm_engine_take_made(engine, move->chunk);
    if (frame == GM_NONE && may_take(engine, hold, move))
        gm_engine_ask_frame(engine, move->chunk);
    if (frame == GM_NONE)
        return false;

    const struct gm_frame was = engine->table->frames[frame];
    gm_table_fill(engine->table, move->chunk, frame);
    gm_engine_bring(engine, move->chunk, &was);
    gm_engine_map(engine, move->chunk);
    return true;
}

/* Begin a move's copy between two tiers below the GPU. False: no room there now. */
static bool copy_below(struct gm_engine *engine, const struct gm_plan_hold *hold,
                       const struct gm_move *move)
{
    const struct gm_chunk *chunk = &engine->table->chunks[move->chunk];
    const enum gm_tier to = gm_plan_takes(move);

    if (!may_take(engine, hold, move))
        return false;
    if (gm_engine_copied_below(engine, chunk->tier, to) >=
        (engine->layout.is_ahead ? GM_STAGED_AT_ONCE : GM_BELOW_AT_ONCE))
        return false;
    const uint64_t bytes = gm_chunk_bytes(chunk);
    const uint32_t page = to == GM_TIER_PINNED ? gm_engine_take_pinned(engine, bytes)
                                               : gm_stores_take(engine->stores, to, bytes);
    if (page == GM_NONE)
        return false;
    gm_engine_copy_below(engine, move->chunk, to, page);
    return true;
}

static bool lower_chunk(struct gm_engine *engine, const struct gm_plan_hold *hold,
                        const struct gm_move *move)
{
    const struct gm_chunk *chunk = &engine->table->chunks[move->chunk];
    if (chunk->is_freed || is_coming(chunk) ||
        (gm_chunk_is_still(chunk) && (chunk->tier > GM_TIER_PINNED || chunk->tier == GM_TIER_NONE)))
        return true; /* or it was all zero, and has no copy */
    if (chunk->state != GM_CHUNK_AWAY || chunk->tier != GM_TIER_PINNED)
        return false; /* its eviction has not ended, or not begun */
    return copy_below(engine, hold, move);
}

static bool raise_chunk(struct gm_engine *engine, const struct gm_plan_hold *hold,
                        const struct gm_move *move)
{
    const struct gm_chunk *chunk = &engine->table->chunks[move->chunk];
    if (chunk->is_freed || (chunk->tier <= GM_TIER_PINNED && chunk->state != GM_CHUNK_MOVING))
        return true;
    return gm_chunk_is_still(chunk) && leaves_room(engine, chunk) && copy_below(engine, hold, move);
}

static bool destroy(struct gm_engine *engine, const struct gm_move *move)
{
    const struct gm_frame *frame = &engine->table->frames[move->frame];
    if (frame->state == GM_FRAME_USED || frame->state == GM_FRAME_LEAVING)
        return false; /* its eviction has not ended */
    if (frame->state == GM_FRAME_FREE)
        gm_engine_condemn(engine, move->frame, GM_NONE);
    return true;
}

static bool make_move(struct gm_engine *engine, const struct gm_plan_hold *hold,
                      const struct gm_move *move)
{
    switch ((enum gm_move_kind)move->kind) {
    case GM_MOVE_EVICT:
        return evict(engine, hold, move);
    case GM_MOVE_DESTROY:
        return destroy(engine, move);
    case GM_MOVE_FILL:
        return fill(engine, hold, move);
    case GM_MOVE_DEMOTE:
        return lower_chunk(engine, hold, move);
    case GM_MOVE_PROMOTE:
        return raise_chunk(engine, hold, move);
    }
    return true;
}

/* A switch lacks pinned memory and nothing under way gives any back: more is made than was
 * foreseen. */
static void note_stuck(struct gm_engine *engine)
{
    const bool is_stuck = engine->is_short_of_pages && engine->host_copies == 0 &&
                          gm_engine_under_way(engine, GM_WAY_OUT) == 0 &&
                          gm_engine_under_way(engine, GM_WAY_IN) == 0;
    const bool was_stuck = engine->is_stuck_for_pages;
    engine->is_stuck_for_pages = is_stuck;
    if (is_stuck != was_stuck)
        gm_engine_want_memory(engine);
}

void gm_engine_move(struct gm_engine *engine)
{
    struct gm_plan *plan = &engine->plan;
    struct gm_plan_hold hold = {.has_eviction = false};
    engine->is_short_of_pages = false;
    for (uint32_t i = engine->plan_from; i < plan->n; i++) {
        struct gm_move *move = &plan->moves[i];
        if (!move->is_done) {
            move->is_done = make_move(engine, &hold, move);
            if (move->is_done && move->kind == GM_MOVE_EVICT)
                engine->plan_evicts--;
        }
        if (!move->is_done && move->kind != GM_MOVE_DESTROY)
            gm_plan_pass_over(&hold, move, gm_chunk_bytes(&engine->table->chunks[move->chunk]));
        if (move->is_done && i == engine->plan_from)
            engine->plan_from++;
    }
    engine->is_waiting_below = engine->host_copies > 0 && !engine->layout.is_ahead;
    note_stuck(engine);
}
