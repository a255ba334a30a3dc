/*
 * What host memory is for, and the copies in it that are shadows.
 */

#include "daemon/engine/step/host.h"

#include <errno.h>
#include <stdio.h>

#include "common/sums.h"
#include "daemon/core/plan.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/shadows.h"

/* The streaming window, an eighth of pinned memory, is this at most: 10 ms of both links, 16
 * chunks each way for the threads that copy. */
#define GM_WINDOW_MAX (1 * GM_GIB)

/*
 * Without lower tiers the window is the largest chunk, and as much again for what the size classes
 * leave over. With them it is an eighth of the pinned memory, at most 1 GiB: 10 ms of both links,
 * 16 chunks each way for the worker threads; at least what the planner needs for its plans to end
 * (224 MiB).
 */
#define WINDOW_ALONE (2 * GM_CHUNK_MAX)

static uint32_t bit_of(const struct gm_engine *engine)
{
    return 1u << engine->config.index;
}

static uint64_t whole_slabs(uint64_t bytes)
{
    return gm_more(bytes, GM_SLAB_BYTES - 1) / GM_SLAB_BYTES * GM_SLAB_BYTES;
}

/* ---- opening ---- */

/* The window and its reserve. */
static int set_window(struct gm_host *host, const struct gm_engine_config *config, char *why,
                      size_t why_size)
{
    const uint64_t least = host->n * GM_PLAN_WINDOW_MIN;
    const uint64_t part = host->pinned / host->n;
    const uint64_t disk = config->disk_dir && *config->disk_dir ? config->disk : 0;
    struct gm_layout below = {.window = WINDOW_ALONE};
    below.tiers[GM_TIER_PINNED].cap = part;
    below.tiers[GM_TIER_PAGED].cap = gm_chunk_floor(config->paged);
    below.tiers[GM_TIER_DISK].cap = gm_chunk_floor(disk);
    host->has_lower = below.tiers[GM_TIER_PAGED].cap + below.tiers[GM_TIER_DISK].cap > 0;
    if (host->has_lower && host->pinned < least) {
        snprintf(why, why_size,
                 "--pinned of %llu MiB is too little for the tiers below it, which are reached "
                 "through it: give it %llu MiB or more",
                 (unsigned long long)(host->pinned >> 20), (unsigned long long)(least >> 20));
        return -EINVAL;
    }
    if (host->has_lower) {
        below.window = gm_chunk_floor(part / 8);
        below.window = below.window < GM_PLAN_WINDOW_MIN ? GM_PLAN_WINDOW_MIN : below.window;
        below.window = gm_least(below.window, GM_WINDOW_MAX);
    }
    host->window = below.window;
    host->reserve = gm_plan_reserve(&below);
    return 0;
}

int gm_host_open(struct gm_host *host, struct gm_engine_config *config, uint32_t n, char *why,
                 size_t why_size)
{
    *host = (struct gm_host){.n = n};
    if (n > 1) {
        config->paged = gm_chunk_floor(config->paged / n);
        config->disk = gm_chunk_floor(config->disk / n);
    }
    config->host = host;
    host->pinned = config->pinned / GM_SLAB_BYTES * GM_SLAB_BYTES;
    const int error = set_window(host, config, why, why_size);
    for (uint32_t i = 0; i < n; i++) {
        host->promised[i] =
            gm_least(host->window, host->pinned / n) / GM_SLAB_BYTES * GM_SLAB_BYTES;
        host->taken[i] = host->promised[i];
    }
    return error;
}

void gm_host_add(struct gm_host *host, struct gm_engine *engine)
{
    host->engines[engine->config.index] = engine;
}

void gm_host_remove(struct gm_engine *engine)
{
    engine->host->engines[engine->config.index] = NULL;
}

/* ---- limits ---- */

/* What GPU `i` takes from others, if its pool has so much. */
static uint64_t taken(const struct gm_host *host, uint32_t i, uint64_t pinned)
{
    return whole_slabs(pinned > host->promised[i] ? pinned : host->promised[i]);
}

static uint64_t taken_now(const struct gm_host *host, uint32_t i)
{
    const struct gm_engine *engine = host->engines[i];
    return taken(host, i, engine ? gm_hostpool_pinned(&engine->pool) : 0);
}

static uint64_t taken_soon(const struct gm_host *host, uint32_t i)
{
    const struct gm_engine *engine = host->engines[i];
    return taken(host, i, engine ? gm_engine_pinned_used(engine) : 0);
}

static uint64_t limit(const struct gm_engine *engine,
                      uint64_t (*taken_by)(const struct gm_host *host, uint32_t i))
{
    const struct gm_host *host = engine->host;
    uint64_t bytes = host->pinned;
    for (uint32_t i = 0; i < host->n; i++)
        if (i != engine->config.index)
            bytes = gm_less(bytes, taken_by(host, i));
    return bytes;
}

uint64_t gm_host_limit(const struct gm_engine *engine)
{
    return limit(engine, taken_now);
}

uint64_t gm_host_limit_soon(const struct gm_engine *engine)
{
    return limit(engine, taken_soon);
}

uint64_t gm_host_limit_alone(const struct gm_engine *engine)
{
    const struct gm_host *host = engine->host;
    return gm_less(host->pinned, (host->n - 1) * whole_slabs(host->window));
}

uint64_t gm_host_limit_of(const void *engine)
{
    return gm_host_limit(engine);
}

/* ---- what is promised ---- */

/* Memory of caps leaves a part unused: gm_room_for_capped. */
static uint64_t promised_by(const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    const uint64_t committed = gm_room_committed(table), beyond = gm_room_beyond(table);
    const uint64_t on_gpu = gm_least(gm_less(committed, beyond), table->budget);
    const uint64_t lower =
        gm_stores_cap(engine->stores, GM_TIER_PAGED) + gm_stores_cap(engine->stores, GM_TIER_DISK);
    const uint64_t swapped = gm_less(committed - on_gpu, lower);
    const uint64_t mapped =
        gm_room_on_host(beyond + (beyond > 0 ? GM_CAP_ROOM_LEFT : 0), table->beyond_apps);
    return whole_slabs(engine->host->window + engine->left_on_host +
                       (swapped > mapped ? swapped : mapped));
}

/* It gives something back, or is to. */
static bool gives(const struct gm_engine *engine)
{
    return gm_host_is_asked(engine) || gm_hostpool_is_leaving(&engine->pool);
}

/* What the GPU takes has changed, or those who wait need not wait for it any more. */
static void tell_others(struct gm_engine *engine)
{
    struct gm_host *host = engine->host;
    const uint32_t index = engine->config.index, bit = bit_of(engine);
    const uint64_t now = taken_now(host, index);
    const bool is_over = host->gives & bit && !gives(engine);
    const bool is_new = now != host->taken[index] || is_over;
    if (now != host->taken[index])
        host->heard[index] = 0;
    host->taken[index] = now;
    host->gives = gives(engine) ? host->gives | bit : host->gives & ~bit;
    for (uint32_t i = 0; i < host->n && is_new; i++)
        if (i != index && host->engines[i])
            gm_engine_call(host->engines[i]);
}

void gm_host_promise(struct gm_engine *engine)
{
    struct gm_host *host = engine->host;
    if (host->n == 1)
        return;
    const uint64_t promised = gm_least(promised_by(engine), gm_host_limit(engine));
    if (promised != host->promised[engine->config.index])
        host->heard[engine->config.index] = 0;
    host->promised[engine->config.index] = promised;
    tell_others(engine);
}

/* ---- what others give back ---- */

void gm_host_ask(struct gm_engine *engine)
{
    struct gm_host *host = engine->host;
    for (uint32_t i = 0; i < host->n; i++) {
        struct gm_engine *other = host->engines[i];
        if (!other || other == engine || taken_soon(host, i) >= taken_now(host, i))
            continue;
        if (host->heard[i] & bit_of(engine))
            continue; /* what it still has cannot leave: asked again, it would answer the same */
        host->waits |= bit_of(engine);
        host->asked |= 1u << i;
        gm_engine_call(other);
    }
}

bool gm_host_is_coming(const struct gm_engine *engine)
{
    const struct gm_host *host = engine->host;
    for (uint32_t i = 0; i < host->n && host->waits & bit_of(engine); i++) {
        const struct gm_engine *other = host->engines[i];
        if (other && other != engine && !other->is_closing && gives(other))
            return true;
    }
    return false;
}

void gm_host_end_wait(struct gm_engine *engine)
{
    struct gm_host *host = engine->host;
    host->waits &= ~bit_of(engine);
    for (uint32_t i = 0; i < host->n; i++)
        host->heard[i] &= ~bit_of(engine);
}

bool gm_host_is_asked(const struct gm_engine *engine)
{
    return engine->host->asked & bit_of(engine);
}

uint64_t gm_host_may_keep(const struct gm_engine *engine)
{
    const struct gm_host *host = engine->host;
    const bool is_wanted = gm_host_is_asked(engine) || (host->waits & ~bit_of(engine)) != 0;
    return is_wanted ? host->promised[engine->config.index] : UINT64_MAX;
}

void gm_host_heard(struct gm_engine *engine)
{
    struct gm_host *host = engine->host;
    host->asked &= ~bit_of(engine);
    host->heard[engine->config.index] = host->waits;
    tell_others(engine);
}
