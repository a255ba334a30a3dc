/*
 * Exchanges ("trades") of chunks of a program larger than the budget: hosted chunks that are used
 * much change places with chunks on the GPU, if the uses that the app reports say that it pays
 * (core/hosting). Owns the trades of each app. Called by apps.c, engine.c, chunks.c, saving.c and
 * shares.c; calls memory/frames.c, hostpool.c and the mover.
 *
 * The trades of one app go through these stages together:
 *
 *   wanted    the pair is chosen and its pinned bytes are lent
 *   making    the worker makes the host frame for the cold chunk
 *   ready     it is made. Until here both chunks may be freed, evicted or moved, which ends the
 * trade unmapping the app is quiet, both chunks are in flight (TRADE) and being unmapped copying
 * the cold chunk is copied from its GPU frame to the new host frame; behind a fence, the hot one
 * from its old host frame to the GPU frame mapping   each chunk holds its new frame and is being
 * mapped; the old host frame is condemned. A map that fails is retried
 *
 * Each chunk always has one authoritative copy: the old one until its copy has ended, then the new
 * one. A chunk that is freed meanwhile goes at the end of its stage, with its frame of that time.
 *
 * An app that takes turns trades while it is loaded, or while it is paused and nobody waits for
 * room. For an app that runs on, the gate closes when all frames are made; the scheduler is not
 * told, so it keeps its turn (is_held). If it does not drain, the trades are called off and the
 * next ones wait for longer.
 */
#include "daemon/engine/state.h"

#include <assert.h>
#include <stdlib.h>

#include "common/log.h"

static uint64_t trade_bytes(const struct gm_trade *trade)
{
    return gm_class_bytes(trade->class);
}

/* One trade less in its app's go. */
static void leave_go(struct gm_engine *engine, const struct gm_trade *trade)
{
    struct gm_app *app = &engine->apps[trade->app];
    if (--app->trades == 0)
        app->trade_at = engine->now + GM_TRADES_PAUSE_LEAST_NS;
    engine->again = true;
}

static void end_trade(struct gm_engine *engine, struct gm_trade *trade)
{
    trade->stage = GM_TRADE_NONE;
    engine->n_trades--;
}

/* Call a trade off whose chunks do not know of it yet. */
static void call_off(struct gm_engine *engine, struct gm_trade *trade)
{
    if (trade->is_off)
        return;
    leave_go(engine, trade);
    trade->is_off = true;
    if (trade->stage == GM_TRADE_MAKING)
        return; /* the worker has its frame: made() ends it */
    if (trade->stage == GM_TRADE_READY)
        gm_engine_condemn(engine, trade->frame, GM_NONE); /* unlent when it is destroyed */
    else
        gm_hostpool_unlend(&engine->pool, trade_bytes(trade));
    end_trade(engine, trade);
}

void gm_engine_call_off_trades(struct gm_engine *engine, uint32_t app)
{
    for (uint32_t i = 0; engine->n_trades > 0 && i < GM_HOSTING_PAIRS; i++) {
        struct gm_trade *trade = &engine->trades[i];
        if (trade->stage != GM_TRADE_NONE && trade->stage <= GM_TRADE_READY && trade->app == app)
            call_off(engine, trade);
    }
}

/* Host frames. */

static void work_make(uv_work_t *work)
{
    struct gm_engine *engine = work->data;
    struct gm_trade_work *job = &engine->trade_work;
    CUresult result = engine->cuda.cuCtxSetCurrent(engine->context);
    for (uint32_t i = 0; i < job->n; i++) {
        if (result == CUDA_SUCCESS)
            result = gm_frames_create_host(&engine->frames, job->trades[i]->frame,
                                           trade_bytes(job->trades[i]), engine->pool.node);
        job->results[i] = result;
    }
}

static void made(struct gm_engine *engine, struct gm_trade *trade, CUresult result)
{
    if (result == CUDA_SUCCESS && !trade->is_off) {
        trade->stage = GM_TRADE_READY;
        trade->ready_at = engine->now;
        return;
    }
    if (!trade->is_off)
        leave_go(engine, trade);
    if (result == CUDA_SUCCESS) {
        gm_engine_condemn(engine, trade->frame, GM_NONE);
    } else {
        gm_log(GM_LOG_WARN, "no host memory to move less used chunks to (%s)",
               gm_cuda_text(&engine->cuda, result));
        gm_table_end_frame(engine->table, trade->frame);
        gm_hostpool_unlend(&engine->pool, trade_bytes(trade));
    }
    end_trade(engine, trade);
}

static void work_done(uv_work_t *work, int status)
{
    struct gm_engine *engine = work->data;
    struct gm_trade_work *job = &engine->trade_work;
    job->is_busy = false;
    engine->now = gm_now();
    for (uint32_t i = 0; i < job->n; i++)
        made(engine, job->trades[i], status ? CUDA_ERROR_OUT_OF_MEMORY : job->results[i]);
    gm_engine_run(engine);
}

static bool is_frame_wanted(const struct gm_engine *engine)
{
    for (uint32_t i = 0; i < GM_HOSTING_PAIRS; i++)
        if (engine->trades[i].stage == GM_TRADE_WANTED)
            return true;
    return false;
}

/* Give the worker some of the frames that are wanted, as soon as what they borrow is released. */
static void make_frames(struct gm_engine *engine)
{
    struct gm_trade_work *job = &engine->trade_work;
    CUresult result;
    if (job->is_busy || engine->is_closing || !is_frame_wanted(engine))
        return;
    result = gm_hostpool_clear(&engine->pool);
    if (result == CUDA_ERROR_NOT_READY)
        return; /* the pool says when it is */
    job->n = 0;
    for (uint32_t i = 0; i < GM_HOSTING_PAIRS && job->n < GM_HOST_BATCH; i++) {
        struct gm_trade *trade = &engine->trades[i];
        if (trade->stage != GM_TRADE_WANTED)
            continue;
        if (result == CUDA_SUCCESS)
            trade->frame = gm_table_add_host_frame(
                engine->table, engine->table->apps[trade->app].pool, trade->class);
        if (trade->frame == GM_NONE) {
            call_off(engine, trade);
            continue;
        }
        trade->stage = GM_TRADE_MAKING;
        job->trades[job->n++] = trade;
    }
    if (job->n == 0)
        return;
    job->work.data = engine;
    job->is_busy = true;
    if (uv_queue_work(engine->loop, &job->work, work_make, work_done) != 0)
        work_done(&job->work, -1);
}

/* Choosing. */

/* Borrow the bytes of a new host frame from the pinned tier, unless what all apps may commit needs
 * them. The old frame's bytes go back in exchange, a moment later. */
static bool borrow(struct gm_engine *engine, uint64_t bytes)
{
    if (!gm_engine_lend(engine, bytes))
        return false;
    if (engine->table->committed - engine->table->hosted <= gm_engine_capacity(engine))
        return true;
    gm_hostpool_unlend(&engine->pool, bytes);
    return false;
}

static void choose(struct gm_engine *engine, uint32_t id)
{
    struct gm_hosting_pair pairs[GM_HOSTING_PAIRS];
    struct gm_app *app = &engine->apps[id];
    uint32_t n, slot = 0;

    if (engine->stopping.is_on || app->trades > 0 || app->is_late ||
        engine->table->apps[id].is_silent ||
        (app->state != GM_APP_PAUSED && app->state != GM_APP_RUNNING &&
         app->state != GM_APP_DRAINING) ||
        (app->state != GM_APP_PAUSED && engine->now < app->trade_at))
        return;
    n = gm_hosting_choose(engine->table, id, pairs, GM_HOSTING_PAIRS - engine->n_trades);
    for (uint32_t i = 0; i < n; i++) {
        unsigned class = engine->table->chunks[pairs[i].hot].class;
        if (!borrow(engine, gm_class_bytes(class)))
            continue;
        while (engine->trades[slot].stage != GM_TRADE_NONE)
            slot++;
        engine->trades[slot] = (struct gm_trade){.stage = GM_TRADE_WANTED,
                                                 .app = id,
                                                 .hot = pairs[i].hot,
                                                 .cold = pairs[i].cold,
                                                 .class = (uint8_t) class,
                                                 .frame = GM_NONE};
        engine->n_trades++;
        app->trades++;
    }
    if (app->trades > 0)
        gm_log(GM_LOG_DEBUG, "app %u (pid %d, %s): %u hosted chunks are to change places", id,
               (int)app->pid, app->name, app->trades);
}

/* USES: hostile until proven otherwise; a place that is nobody's costs nothing. */
void gm_engine_uses(struct gm_engine *engine, uint32_t id, const struct gm_use_entry *entries,
                    uint32_t n)
{
    struct gm_use uses[512];
    struct gm_app *app = &engine->apps[id];

    _Static_assert(sizeof uses / sizeof *uses >= 512, "as many as wire.def allows");
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && entries[i].va <= entries[i - 1].va) {
            engine->config.outlet.end(app->session, GM_REFUSE_PROTOCOL, "uses that do not ascend");
            return;
        }
        uses[i] = (struct gm_use){.va = entries[i].va, .count = entries[i].count};
    }
    if (engine->table->apps[id].hosted == 0)
        return;
    if (engine->now >= app->cooled_at + GM_TRADES_COOL_NS) {
        gm_hosting_cool(engine->table, id);
        app->cooled_at = engine->now;
    }
    gm_hosting_warm(engine->table, id, uses, n);
    choose(engine, id);
}

/* The exchange. */

static bool is_under_way(const struct gm_trade *trade)
{
    return trade->stage >= GM_TRADE_UNMAPPING;
}

/* Submit a copy that is part of the flight of `chunk`. Returns its number. */
static uint64_t copy(struct gm_engine *engine, enum gm_way way, uint32_t chunk, CUdeviceptr to,
                     CUdeviceptr from, uint64_t fence)
{
    uint64_t bytes = gm_chunk_bytes(&engine->table->chunks[chunk]);
    uint64_t number = gm_mover_copy(engine->mover, way, to, from, bytes, fence);
    engine->ring[way][number % GM_WAY_DEPTH] = chunk;
    engine->table->chunks[chunk].copy_pending = true;
    return number;
}

/* The places of both copies in the mover are set aside, so that the app's answer starts them. */
static void begin(struct gm_engine *engine, struct gm_trade *trade)
{
    gm_engine_drop_shadow(engine, trade->cold);
    gm_table_trade(engine->table, trade->hot, trade->cold);
    trade->stage = GM_TRADE_UNMAPPING;
    gm_engine_expect_copy(engine, GM_WAY_OUT, trade->cold);
    gm_engine_expect_copy(engine, GM_WAY_IN, trade->hot);
    gm_engine_unmap(engine, trade->hot);
    gm_engine_unmap(engine, trade->cold);
    engine->plan_is_stale = true;
}

static void copy_hot(struct gm_engine *engine, const struct gm_trade *trade, uint64_t fence)
{
    const struct gm_table *table = engine->table;
    const struct gm_frame_handle *handles = engine->frames.handles;
    copy(engine, GM_WAY_IN, trade->hot, handles[table->chunks[trade->cold].frame].va,
         handles[table->chunks[trade->hot].frame].va, fence);
}

/* When both are unmapped. A late answer may find no room in the mover. Without the copy out there
 * is none in, which would write over the data. */
static void start_copies(struct gm_engine *engine, struct gm_trade *trade)
{
    const struct gm_table *table = engine->table;
    if (table->chunks[trade->hot].map_pending || table->chunks[trade->cold].map_pending ||
        gm_mover_room(engine->mover, GM_WAY_OUT) == 0 ||
        gm_mover_room(engine->mover, GM_WAY_IN) == 0)
        return;
    const struct gm_frame_handle *handles = engine->frames.handles;
    const uint32_t gpu = table->chunks[trade->cold].frame;

    trade->stage = GM_TRADE_COPYING;
    gm_engine_copy_comes(engine, GM_WAY_OUT, trade->cold);
    gm_engine_copy_comes(engine, GM_WAY_IN, trade->hot);
    const uint64_t out =
        copy(engine, GM_WAY_OUT, trade->cold, handles[trade->frame].va, handles[gpu].va, 0);
    trade->has_failed = gm_mover_result(engine->mover, GM_WAY_OUT, out) != CUDA_SUCCESS;
    if (!trade->has_failed)
        copy_hot(engine, trade, out);
}

/* A chunk's part in its trade is over. */
static void end_part(struct gm_engine *engine, struct gm_trade *trade, uint32_t index)
{
    struct gm_chunk *chunk = &engine->table->chunks[index];
    chunk->flight = GM_FLIGHT_NONE;
    chunk->tier = chunk->frame == GM_NONE ? GM_TIER_NONE
                  : chunk->is_hosted      ? GM_TIER_PINNED
                                          : GM_TIER_GPU;
    if (index == trade->hot) {
        trade->is_hot_over = true;
        engine->apps[trade->app].trade_wait = 0;
        if (!chunk->is_freed && !trade->has_failed)
            engine->apps[trade->app].traded += trade_bytes(trade);
    } else {
        trade->is_cold_over = true;
    }
    if (trade->is_hot_over && trade->is_cold_over) {
        leave_go(engine, trade);
        end_trade(engine, trade);
    }
    engine->plan_is_stale = true;
    if (chunk->is_freed)
        gm_engine_retire(engine, index);
    else
        gm_table_place(engine->table, index);
}

/* The chunk holds its new frame and is mapped nowhere. */
static void map_part(struct gm_engine *engine, struct gm_trade *trade, uint32_t index)
{
    struct gm_chunk *chunk = &engine->table->chunks[index];
    if (chunk->is_freed) {
        gm_engine_give_up_frame(engine, index);
        end_part(engine, trade, index);
    } else if (engine->apps[trade->app].session) {
        gm_engine_map(engine, index);
    } /* else it is freed next: its app is gone */
}

static void flip(struct gm_engine *engine, struct gm_trade *trade)
{
    struct gm_table *table = engine->table;
    const struct gm_app *app = &engine->apps[trade->app];
    uint32_t gpu = table->chunks[trade->cold].frame, old = table->chunks[trade->hot].frame;

    trade->stage = GM_TRADE_MAPPING;
    gm_table_take_frame(table, trade->frame, trade->cold);
    gm_table_take_frame(table, gpu, trade->hot);
    gm_engine_condemn(engine, old,
                      app->state == GM_APP_GONE && app->exit_poll ? trade->app : GM_NONE);
    uint32_t hot = trade->hot, cold = trade->cold;
    map_part(engine, trade, hot);
    map_part(engine, trade, cold);
}

/* The copy out was not made: both chunks are mapped again where they were. */
static void undo(struct gm_engine *engine, struct gm_trade *trade)
{
    const uint32_t hot = trade->hot, cold = trade->cold;
    trade->stage = GM_TRADE_MAPPING;
    gm_table_trade(engine->table, cold, hot);
    gm_engine_condemn(engine, trade->frame, GM_NONE);
    map_part(engine, trade, hot);
    map_part(engine, trade, cold);
}

static struct gm_trade *find_trade(struct gm_engine *engine, uint32_t index)
{
    for (uint32_t i = 0; i < GM_HOSTING_PAIRS; i++) {
        struct gm_trade *trade = &engine->trades[i];
        if (is_under_way(trade) && ((trade->hot == index && !trade->is_hot_over) ||
                                    (trade->cold == index && !trade->is_cold_over)))
            return trade;
    }
    assert(!"a chunk in a trade that nobody knows");
    return NULL;
}

void gm_engine_copy_trade(struct gm_engine *engine, uint32_t index)
{
    copy_hot(engine, find_trade(engine, index), 0);
}

void gm_engine_settle_trade(struct gm_engine *engine, uint32_t index)
{
    struct gm_trade *trade = find_trade(engine, index);
    struct gm_chunk *chunk = &engine->table->chunks[index];
    const struct gm_chunk *hot = &engine->table->chunks[trade->hot];
    const struct gm_chunk *cold = &engine->table->chunks[trade->cold];
    if (trade->stage == GM_TRADE_UNMAPPING) {
        start_copies(engine, trade);
        return;
    }
    if (trade->stage == GM_TRADE_COPYING) {
        if (hot->copy_pending || cold->copy_pending)
            return;
        if (trade->has_failed)
            undo(engine, trade);
        else
            flip(engine, trade);
        return;
    }
    if (chunk->map_pending)
        return;
    if (chunk->map_failed && !chunk->is_freed && engine->apps[trade->app].session)
        return; /* tried again later */
    if (chunk->map_failed) {
        chunk->map_failed = false;
        gm_engine_give_up_frame(engine, index);
    }
    end_part(engine, trade, index);
}

/* A chunk that its app could not map: once more. */
static void map_again(struct gm_engine *engine, const struct gm_trade *trade, uint32_t index,
                      bool is_over)
{
    struct gm_chunk *chunk = &engine->table->chunks[index];
    if (is_over || !chunk->map_failed || chunk->map_pending || !engine->apps[trade->app].session ||
        engine->apps[trade->app].retry_at > engine->now)
        return;
    chunk->map_failed = false;
    gm_engine_map(engine, index);
}

/*
 * Whether an app's chunks may change places now: it is quiet, and only its own opening waits for
 * it. While it is loaded the two chunks are there in any case. While it is paused and others need
 * room, its chunks are theirs to evict.
 */
static bool may_trade(const struct gm_engine *engine, uint32_t id)
{
    if (engine->apps[id].state == GM_APP_LOADING)
        return true;
    if (engine->apps[id].state != GM_APP_PAUSED)
        return false;
    for (uint32_t i = 0; i < engine->decision.n_set; i++)
        if (engine->table->apps[engine->decision.set[i]].missing > 0)
            return false;
    return true;
}

/* Whether the two still are what they were chosen for. Not settled: they may be again. */
static bool has_hope(const struct gm_engine *engine, const struct gm_trade *trade)
{
    const struct gm_chunk *hot = &engine->table->chunks[trade->hot];
    const struct gm_chunk *cold = &engine->table->chunks[trade->cold];
    const struct gm_hosting_pair pair = {.hot = trade->hot, .cold = trade->cold};
    return hot->app == trade->app && cold->app == trade->app && !hot->is_freed && !cold->is_freed &&
           hot->is_hosted && !cold->is_hosted && hot->class == cold->class &&
           gm_hosting_pays(engine->table, &pair) &&
           engine->now < trade->ready_at + GM_TRADES_PATIENCE_NS;
}

static void step(struct gm_engine *engine, struct gm_trade *trade, uint32_t *n_under_way)
{
    const struct gm_app *app = &engine->apps[trade->app];
    const struct gm_hosting_pair pair = {.hot = trade->hot, .cold = trade->cold};
    if (trade->stage == GM_TRADE_UNMAPPING)
        start_copies(engine, trade);
    if (trade->stage == GM_TRADE_MAPPING) {
        map_again(engine, trade, trade->hot, trade->is_hot_over);
        map_again(engine, trade, trade->cold, trade->is_cold_over);
    }
    if (trade->stage != GM_TRADE_READY)
        return;
    bool is_pair = gm_hosting_is_pair(engine->table, trade->app, &pair);
    if (engine->table->apps[trade->app].is_silent || app->is_late || !has_hope(engine, trade) ||
        (app->is_held && !is_pair)) {
        call_off(engine, trade);
        return;
    }
    if (!may_trade(engine, trade->app) || !is_pair || *n_under_way == GM_TRADES_AT_ONCE ||
        !gm_engine_has_room(engine, GM_WAY_OUT) || !gm_engine_has_room(engine, GM_WAY_IN))
        return;
    (*n_under_way)++;
    begin(engine, trade);
}

/* The go of a running app, all of whose frames are made. */
static bool is_ready(const struct gm_engine *engine, uint32_t id)
{
    uint32_t ready = 0;
    for (uint32_t i = 0; i < GM_HOSTING_PAIRS; i++)
        ready += engine->trades[i].app == id && engine->trades[i].stage == GM_TRADE_READY;
    return ready == engine->apps[id].trades;
}

void gm_engine_trade(struct gm_engine *engine)
{
    uint32_t n_under_way = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        struct gm_app *app = &engine->apps[id];
        uint32_t is_counting = engine->table->apps[id].hosted > 0;
        if (app->ctl && app->session && app->is_counting != is_counting) {
            app->is_counting = is_counting;
            if (is_counting)
                atomic_fetch_or(&app->ctl->is_counting, 1u << engine->config.index);
            else
                atomic_fetch_and(&app->ctl->is_counting, ~(1u << engine->config.index));
        }
    }
    if (engine->n_trades == 0)
        return;
    make_frames(engine);
    for (uint32_t i = 0; i < GM_HOSTING_PAIRS; i++)
        n_under_way += is_under_way(&engine->trades[i]);
    for (uint32_t i = 0; i < GM_HOSTING_PAIRS; i++)
        step(engine, &engine->trades[i], &n_under_way);
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].state == GM_APP_RUNNING && engine->apps[id].trades > 0 &&
            is_ready(engine, id))
            gm_engine_hold(engine, id);
}

void gm_engine_hold_failed(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    uint64_t wait =
        app->trade_wait < GM_TRADES_PAUSE_LEAST_NS ? GM_TRADES_PAUSE_LEAST_NS : 2 * app->trade_wait;
    gm_engine_call_off_trades(engine, id);
    app->trade_wait = wait < GM_TRADES_PAUSE_MOST_NS ? wait : GM_TRADES_PAUSE_MOST_NS;
    app->trade_at = engine->now + app->trade_wait;
}
