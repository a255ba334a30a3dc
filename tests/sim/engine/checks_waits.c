/* Checks that nobody waits for long while it could be served (checks.c). */
#include "tests/sim/engine/checks.h"

#include "daemon/engine/step/room.h"

/* For how long nothing may move while one loads: what failed is tried again after 100 ms. */
#define STILL_MOST (150 * GM_MS)

/* How late a deadline may be noticed. */
#define NOTICED_MOST (50 * GM_MS)

/* ... and for how long a request may wait that could be served. */
#define UNSERVED_MOST (100 * GM_MS)

/* Its process is an app by another name. */
static bool has_another(const struct gm_engine *engine, uint32_t id)
{
    for (uint32_t other = 0; other < engine->config.max_apps; other++)
        if (other != id && engine->apps[other].session &&
            engine->apps[other].pid == engine->apps[id].pid)
            return true;
    return false;
}

/* Who does not answer in time is known to be silent, busy or late to end, and nobody waits. */
void check_deadlines(const struct gm_engine *engine)
{
    const uint64_t now = machine.now - NOTICED_MOST;
    for (uint32_t id = 0; id < engine->config.max_apps && !engine->is_closing; id++) {
        const struct gm_app *app = &engine->apps[id];
        const struct gm_batch *batch = app->batches.sent;
        const uint64_t answered_at = app->gate.answered_at;
        if (app->state == GM_APP_UNUSED)
            continue;
        require(!batch || engine->table->apps[id].is_silent || now < batch->sent_at + GM_LATE_NS ||
                    now < answered_at + GM_LATE_NS,
                "app %u answers nothing, and nobody knows", id);
        require(app->state != GM_APP_DRAINING || app->is_stopped ||
                    now < app->gate.closed_at + GM_DRAIN_NS + GM_LATE_NS,
                "app %u drains for longer than it may", id);
        require(app->state != GM_APP_GONE || !app->exit.is_awaited || app->exit.is_late ||
                    now < app->exit.left_at + GM_EXIT_NS,
                "app %u is waited for, and does not end", id);
        /* Of a cut one it was said before: it is waited for until the process ends. */
        require(app->state != GM_APP_LOST || app->session || app->client->is_cut ||
                    !has_another(engine, id),
                "app %u is awaited, and its process has said HELLO", id);
        require(app->state != GM_APP_LOADING || engine->stopping.is_on ||
                    now < app->progress_at + GM_STALL_NS,
                "app %u loads, and comes no nearer", id);
    }
}

/* The first that waits for memory could have it, or somebody who has some and may pass the first,
 * or somebody never can. NULL: none of them. */
static const struct gm_admit_request *find_unserved(const struct gm_engine *engine)
{
    const struct gm_admit_request *first = engine->waiting;
    const bool is_on = !engine->stopping.is_on && !engine->is_closing;
    for (const struct gm_admit_request *at = first; is_on && at; at = at->next) {
        const struct gm_room_input input = gm_engine_room_input(engine, at->app);
        const struct gm_room_input alone = gm_room_alone(&input);
        const bool is_next =
            at == first || (engine->table->apps[at->app].committed > 0 &&
                            machine.now < first->since + engine->config.patience_ns);
        if ((is_next && gm_room_refuses(&input, at->bytes) == GM_WHY_NONE) ||
            gm_room_refuses(&alone, at->bytes) != GM_WHY_NONE)
            return at;
    }
    return NULL;
}

/* While the daemon ends: who is to be mapped on the host is loaded, or it would wait for nothing.
 */
void check_saved(const struct gm_engine *engine)
{
    const uint32_t host = engine->stopping.host;
    if (!engine->stopping.is_on || engine->stopping.is_over || host == GM_NONE)
        return;
    require(engine->apps[host].state == GM_APP_LOADING ||
                engine->apps[host].state == GM_APP_RUNNING,
            "app %u is to be mapped on the host, and is in state %d", host,
            (int)engine->apps[host].state);
}

void check_waiting(uint32_t index)
{
    const struct gm_admit_request *at = find_unserved(machine.daemon.engines[index]);
    uint64_t *since = &machine.gpus[index].unserved_at;
    *since = !at ? 0 : *since == 0 ? machine.now : *since;
    /* What the driver keeps for a program the engine hears when it goes round. */
    const bool is_heard = machine.daemon.engines[index]->now >= *since;
    require(!at || !is_heard || machine.now - *since <= UNSERVED_MOST,
            "app %u waits for %lu MiB, which it could have or never can", at->app, at->bytes >> 20);
}

/* Host memory is for all GPUs: what each has pinned, or was promised if that is more, is not too
 * much together. So each can have what it was promised. */
void check_pinned(void)
{
    const struct gm_host *host = &machine.daemon.host;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < machine.n_gpus; i++) {
        const struct gm_engine *engine = machine.daemon.engines[i];
        const uint64_t pinned = gm_hostpool_pinned(&engine->pool), promised = host->promised[i];
        const uint64_t cap = gm_hostpool_cap(&engine->pool);
        sum += pinned > promised ? pinned : promised;
        require(pinned <= cap, "GPU %u has %lu MiB pinned, and may have %lu", i, pinned >> 20,
                cap >> 20);
        require(promised <= cap, "GPU %u was promised %lu MiB of pinned memory, and may have %lu",
                i, promised >> 20, cap >> 20);
    }
    require(sum <= machine.config.pinned,
            "the GPUs have %lu MiB of pinned memory or were promised it, and --pinned is %lu",
            sum >> 20, machine.config.pinned >> 20);
}

/* It has its turn and all of its memory here, and waits for others, of its own or of its group. */
static bool holds_gpu(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return app->session && app->state == GM_APP_LOADING && engine->table->apps[id].missing == 0 &&
           gm_room_promised(engine->table, id) > 0 && gm_group_is_several(engine, id) &&
           !app->places.is_held;
}

/* Somebody waits for his turn who needs this GPU only. */
static bool is_wanted(const struct gm_engine *engine)
{
    for (uint32_t i = 0; i < engine->decision.n_next; i++)
        if (!gm_group_is_several(engine, engine->decision.next[i]))
            return true;
    return false;
}

/* For how long it may hold a turn: once it has waited for --patience, as long as others may take to
 * make room. */
static uint64_t most_held(const struct gm_engine *engine, uint32_t id)
{
    const uint64_t since = engine->apps[id].gate.closed_at;
    const bool is_urgent = machine.now >= since + engine->config.patience_ns;
    return GM_S + (is_urgent ? GM_DRAIN_NS + GM_LATE_NS + GM_STALL_NS : 0);
}

/* In a calm machine no GPU is kept from others for more than a second by who cannot run there,
 * since it waits for another GPU; or for longer if it waited for too long. */
void check_held(uint32_t index)
{
    const struct gm_engine *engine = machine.daemon.engines[index];
    const bool is_to_be = machine.is_calm && !engine->stopping.is_on && is_wanted(engine);
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        uint64_t *since = &machine.gpus[index].kept_at[id];
        *since = !is_to_be || !holds_gpu(engine, id) ? 0 : *since == 0 ? machine.now : *since;
        require(*since == 0 || machine.now - *since <= most_held(engine, id),
                "GPU %u is kept from others for %lu ms by app %u, which waits for another GPU",
                index, (uint64_t)((machine.now - *since) / GM_MS), id);
    }
}

/* It lacks memory, and waits for nobody to stop or to end. */
static bool is_loading(const struct gm_engine *engine)
{
    bool is_awaited = engine->stopping.is_on, is_some = false;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const enum gm_app_state state = engine->apps[id].state;
        is_awaited = is_awaited || state == GM_APP_DRAINING || state == GM_APP_GONE;
        is_some = is_some || (state == GM_APP_LOADING && engine->table->apps[id].missing > 0);
    }
    return is_some && !is_awaited;
}

/* In a calm machine something is always under way for who loads: a copy, a hash, an answer. */
void check_still(void)
{
    bool is_some = false;
    for (uint32_t i = 0; i < machine.n_gpus; i++)
        is_some = is_some || is_loading(machine.daemon.engines[i]);
    if (!is_some || !machine.is_calm)
        machine.moved_at = machine.now;
    require(machine.now - machine.moved_at <= STILL_MOST,
            "an app loads, and nothing has moved for %lu ms",
            (uint64_t)((machine.now - machine.moved_at) / GM_MS));
}

/* Memory that nobody waits for is no reason to move or to pause anything: it is granted while all
 * programs have theirs, and a part of the GPU stays free. */
void check_ahead(uint32_t index)
{
    const struct gm_engine *engine = machine.daemon.engines[index];
    const struct gm_table *table = engine->table;
    const uint64_t room = engine->room + table->fixed;
    const uint32_t before = machine.gpus[index].ahead;
    uint32_t n = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        n += engine->apps[id].allocs.ahead;
    machine.gpus[index].ahead = n;
    for (uint32_t id = 0; n > before && id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        require(table->apps[id].missing <= app->allocs.ahead_chunks,
                "memory ahead is granted, and app %u lacks %u chunks", id, table->apps[id].missing);
    }
    require(n <= before || table->committed + table->orphaned <= room - room / GM_AHEAD_SHARE,
            "memory ahead is granted, and of %lu MiB %lu are used", room >> 20,
            (table->committed + table->orphaned) >> 20);
}
