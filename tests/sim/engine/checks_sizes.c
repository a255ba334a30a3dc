/* Checks of how much memory each program, user and GPU may have, and where (checks.c). */
#include "tests/sim/engine/checks.h"

#include "daemon/engine/step/room.h"

/* For how long a program may be above a cap that was lowered. */
#define ABOVE_MOST (5 * GM_S)

/* What is shared and lies on the host of owners that are gone, by GPU. */
static uint64_t left_on_host[GPUS];

/* What is shared and lies on the host stays there: it was promised to its owner, or counts beside
 * that once the owner is gone. */
void check_shared_on_host(const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    uint64_t of_app[PROGRAMS] = {0}, left = 0;
    for (uint32_t i = 0; i < table->max_frames; i++) {
        const struct gm_frame *frame = &table->frames[i];
        const uint32_t c = frame->chunk;
        if (frame->state == GM_FRAME_UNUSED || !frame->is_host || frame->share == 0)
            continue;
        if (c != GM_NONE && !table->chunks[c].is_freed)
            of_app[table->chunks[c].app] += gm_class_bytes(frame->class);
        else
            left += gm_class_bytes(frame->class);
    }
    for (uint32_t id = 0; id < table->max_apps && !engine->stopping.is_on; id++)
        require(of_app[id] <= table->apps[id].beyond,
                "app %u shares %lu MiB on the host, and was promised %lu beyond the GPU", id,
                of_app[id] >> 20, table->apps[id].beyond >> 20);
    left_on_host[engine->config.index] = left;
}

/* Who may not be larger than the budget is not; each is told what it could have. (What others share
 * is told a step later.) After check_shared_on_host. */
void check_size(struct program *p, const struct gm_engine *engine)
{
    const bool is_mappable = !engine->pool.is_registered;
    const uint64_t window = engine->host->window;
    const uint64_t on_host = is_mappable ? gm_less(gm_hostpool_cap(&engine->pool), window) : 0;
    const uint64_t alone = is_mappable ? gm_less(gm_host_limit_alone(engine), window) : 0;
    const uint64_t rounding = gm_room_on_host(0, gm_engine_sums(engine, p->app).programs);
    const uint32_t id = p->app;
    if (!p->session || !engine->apps[id].session || engine->stopping.is_on)
        return;
    const bool is_oversize = gm_engine_is_oversize(engine, id);
    const uint64_t beyond = engine->table->apps[id].beyond;
    p->was_oversize = p->was_oversize || is_oversize || gm_engine_is_capped(engine, id) ||
                      engine->is_short_of_room;
    require(beyond % GM_CHUNK_MIN == 0 && beyond <= engine->table->apps[id].committed,
            "app %u has %lu bytes beyond the budget, of %lu", id, beyond,
            engine->table->apps[id].committed);
    require(p->was_oversize || beyond == 0, "app %u has %lu MiB beyond the budget, and never might",
            id, beyond >> 20);
    const uint64_t promised = gm_room_on_host(engine->table->beyond, engine->table->beyond_apps) +
                              left_on_host[engine->config.index];
    require(promised <= on_host, "%lu MiB beyond the budget are promised, of %lu", promised >> 20,
            on_host >> 20);
    const uint64_t told = engine->apps[id].ctl->budget[engine->config.index];
    uint64_t total = gm_engine_offered(engine) + (is_oversize ? gm_less(alone, rounding) : 0);
    if (p->wishes.cap_is == GM_HELLO_CAP_FOREIGN && p->wishes.cap >= GM_CHUNK_MIN &&
        p->wishes.cap < total)
        total = p->wishes.cap & ~(GM_CHUNK_MIN - 1);
    total = total > 0 ? total : GM_CHUNK_MIN; /* none has 0 bytes */
    require(told == total || machine.has_sharing || engine->is_closing,
            "app %u is told %lu MiB, not %lu", id, told >> 20, total >> 20);
    struct gm_room_input input = gm_engine_room_input(engine, id);
    input.tiers = engine->config.is_waiting_when_full ? UINT64_MAX : input.tiers;
    const struct gm_room room = gm_room_of(&input);
    const uint64_t told_room = engine->apps[id].ctl->room[engine->config.index];
    /* What it has on another GPU takes files here, too; that is told a step later. */
    require(told_room == room.gpu + room.host || machine.n_gpus > 1 || engine->is_closing,
            "app %u is told room of %lu MiB, not %lu", id, told_room >> 20,
            (room.gpu + room.host) >> 20);
}

/* Of what others have beyond the GPU, what could be on it. Caps and groups say more of that. */
static uint64_t count_aside(const struct gm_engine *engine, uint32_t asker)
{
    const struct gm_table *table = engine->table;
    const uint64_t most = gm_less(gm_engine_offered(engine), table->fixed);
    uint64_t bytes = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const uint64_t promised = gm_room_promised(table, id), beyond = table->apps[id].beyond;
        if (id != asker && engine->apps[id].session && !engine->apps[id].is_stopped &&
            !table->apps[id].is_silent)
            bytes += beyond < gm_less(most, promised) ? beyond : gm_less(most, promised);
    }
    return bytes;
}

/* What is cold of others is no reason to refuse memory for lack of host memory. */
void check_refusals(struct program *p, const struct gm_engine *engine)
{
    const struct gm_app *app = &engine->apps[p->app];
    const struct gm_reason *reason = &app->refusal.newest;
    uint64_t *before = &p->refusals[engine->config.index];
    const bool is_new = app->refusal.n > *before;
    *before = app->refusal.n;
    if (!is_new || reason->why != GM_WHY_PINNED || machine.has_caps || machine.has_groups ||
        machine.n_gpus > 1 || engine->stopping.is_on || engine->pool.is_registered)
        return;
    const uint64_t limit = gm_less(gm_hostpool_cap(&engine->pool), engine->host->window);
    const uint64_t taken = gm_room_on_host(engine->table->beyond, engine->table->beyond_apps + 1) +
                           engine->table->condemned_on_host;
    const uint64_t needed = gm_less(taken, count_aside(engine, p->app));
    /* The budget may have risen in this step, after the answer. */
    const uint64_t offered =
        gm_least(gm_engine_offered(engine), machine.gpus[engine->config.index].offered);
    const uint64_t gpu =
        gm_less(offered, gm_more(engine->table->fixed, gm_room_promised(engine->table, p->app)));
    require(gm_less(reason->bytes, gpu) > gm_less(limit, needed),
            "app %u is refused %lu MiB, and of %lu MiB of host memory only %lu are needed", p->app,
            reason->bytes >> 20, limit >> 20, needed >> 20);
}

/* Once places are chosen, an app has no more on the host than it was promised there, beside what it
 * shares, and what is on its way and had no choice. */
void check_places(const struct program *p, const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    const struct gm_app *app = &engine->apps[p->app];
    const uint64_t beyond = table->apps[p->app].beyond;
    uint64_t on_host = table->apps[p->app].on_host;
    for (uint32_t i = 0; i < table->max_chunks && on_host > 0; i++)
        if (table->chunks[i].state != GM_CHUNK_UNUSED && table->chunks[i].app == p->app &&
            table->chunks[i].is_on_host && !table->chunks[i].is_freed &&
            (table->chunks[i].is_fixed || table->chunks[i].state == GM_CHUNK_MAPPING ||
             table->chunks[i].state == GM_CHUNK_RETURNING))
            on_host -= gm_chunk_bytes(&table->chunks[i]);
    require(app->state != GM_APP_LOADING || app->places.is_wanted || engine->stopping.is_on ||
                on_host <= gm_room_rounded(beyond),
            "app %u is to have %lu MiB on the host, and was promised %lu beyond the GPU", p->app,
            on_host >> 20, beyond >> 20);
}

/* What each app has of each GPU, by the frames themselves. */
static uint64_t device_of[GPUS][PROGRAMS];

void count_device(const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    uint64_t *bytes = device_of[engine->config.index];
    require(table->max_apps <= PROGRAMS, "there are %u apps", table->max_apps);
    memset(bytes, 0, sizeof device_of[0]);
    for (uint32_t i = 0; i < table->max_frames; i++) {
        const struct gm_frame *frame = &table->frames[i];
        if ((frame->state == GM_FRAME_USED || frame->state == GM_FRAME_LEAVING) &&
            !frame->is_host && frame->chunk != GM_NONE)
            bytes[table->chunks[frame->chunk].app] += gm_class_bytes(frame->class);
    }
}

/* Who has a cap is below it, or above and does not grow; a group by all of its programs. One of a
 * group may grow to its part while another one, which runs, has more than its own. */
void check_cap(struct program *p, const struct gm_engine *engine)
{
    const uint32_t gpu = engine->config.index;
    uint64_t device = 0, fixed = 0, bend = 0, members = 0;
    bool is_above = false, is_fair = true; /* one that runs is above its part; who grows is not */
    for (uint32_t i = 1; i <= machine.n_programs && !engine->stopping.is_on; i++) {
        const struct program *other = &machine.programs[i];
        if (!app_of(other, gpu) || (other != p && other->team != p->team))
            continue;
        members |= 1ull << i % 64;
        const struct gm_app *app = &engine->apps[other->app];
        const uint64_t own = device_of[gpu][other->app];
        const uint64_t own_fixed = engine->table->apps[other->app].fixed;
        const uint64_t part =
            gm_room_promised(engine->table, other->app) + own_fixed + app->cap.bend;
        is_above = is_above || (app->state == GM_APP_RUNNING && own > part);
        is_fair = is_fair && (own <= other->own[gpu] || own <= part);
        device += own;
        fixed += own_fixed;
        bend += app->cap.bend;
    }
    const uint64_t needed = gm_engine_sums(engine, p->app).promised + fixed;
    const uint64_t cap = gm_engine_cap(engine, p->app);
    const uint64_t bent = machine.config.has_bending_caps ? needed + bend : fixed;
    const uint64_t most = cap > bent ? cap : bent;   /* what is cold bends no cap */
    const bool is_same = members == p->members[gpu]; /* nobody came or went */
    require(cap == 0 || device <= most || device <= p->device[gpu] ||
                (!has_cap_room(engine, p->app) && device <= needed + bend) || !is_same ||
                (is_above && is_fair),
            "app %u has %lu MiB of the GPU, had %lu, and its cap is %lu", p->app, device >> 20,
            p->device[gpu] >> 20, most >> 20);
    const bool is_over =
        cap != 0 && device > most && (has_cap_room(engine, p->app) || device > needed + bend);
    if (!is_over || !machine.is_calm)
        p->above_at[gpu] = 0;
    else if (p->above_at[gpu] == 0)
        p->above_at[gpu] = machine.now;
    require(p->above_at[gpu] == 0 || machine.now - p->above_at[gpu] <= ABOVE_MOST,
            "app %u has %lu MiB of the GPU, and for %lu ms its cap has been %lu", p->app,
            device >> 20, (uint64_t)((machine.now - p->above_at[gpu]) / GM_MS), most >> 20);
    p->device[gpu] = device;
    p->members[gpu] = members;
}

void note_own(void)
{
    for (uint32_t gpu = 0; gpu < machine.n_gpus; gpu++)
        machine.gpus[gpu].offered = gm_engine_offered(machine.daemon.engines[gpu]);
    for (uint32_t i = 1; i <= machine.n_programs && machine.has_caps; i++)
        for (uint32_t gpu = 0; gpu < machine.n_gpus; gpu++) {
            struct program *p = &machine.programs[i];
            p->own[gpu] = app_of(p, gpu) ? device_of[gpu][p->app] : 0;
        }
}

/* All programs of a user together have no more than a rule gives them. */
void check_user(const struct gm_engine *engine, uint32_t user)
{
    const struct gm_user_totals *totals = &machine.totals[user];
    const struct gm_table *table = engine->table;
    uint64_t device = 0, pinned = 0;
    for (uint32_t i = 1; i <= machine.n_programs && !engine->stopping.is_on; i++) {
        const struct program *p = &machine.programs[i];
        if (!app_of(p, engine->config.index) || p->uid != 1000 + user)
            continue;
        device += table->apps[p->app].device;
        pinned += table->apps[p->app].committed - table->apps[p->app].fixed;
    }
    require(totals->gpu == 0 || device <= totals->gpu,
            "user %u has %lu MiB of GPU %u, and may have %lu", 1000 + user, device >> 20,
            engine->config.index, totals->gpu >> 20);
    require(totals->pinned == 0 || pinned <= totals->pinned / machine.n_gpus,
            "user %u has %lu MiB that may have to be pinned, and may have %lu", 1000 + user,
            pinned >> 20, totals->pinned / machine.n_gpus >> 20);
}
