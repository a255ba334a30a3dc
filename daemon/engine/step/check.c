/*
 * The check: what crosses the link while programs run tells whether cold memory is cold. Owns
 * gm_engine.check, its memory, gm_engine.link, and gm_app.check. Called by step.c and run.c; calls
 * meter.c and places.c. core/check judges.
 *
 * The meter runs while a program runs that has cold memory on the host, and while what programs
 * need does not fit the GPU: then the check tries whether they need all of it. A sample counts if
 * all that time the same programs ran, with the same memory on the host, and the daemon copied
 * nothing. The programs say themselves how much they copied, and how often they launched kernels on
 * host memory of theirs (gm_stat): hostile numbers, which at most hide what they do themselves, or
 * others that run beside them.
 *
 * If another process has a context on the GPU, its traffic cannot be told apart. Then nothing is
 * judged. Where NVML does not say who is there, core/check finds it out by itself.
 */
#include "daemon/engine/step/check.h"

#include "common/sums.h"
#include "daemon/engine/act/copies.h"
#include "daemon/engine/act/events.h"
#include "daemon/engine/act/meter.h"
#include "daemon/engine/step/places.h"
#include "daemon/engine/step/room.h"

/* While another process has a context on the GPU, it is asked this often whether it still has.
 * A look takes some 50 ms of a thread of its own. */
#define GM_CHECK_STRANGER_NS (5 * GM_S)

/* Once: there is no counter. */
static void tell_meter(struct gm_engine *engine)
{
    const char *why = gm_engine_why_no_meter(engine);
    if (!why || engine->link.is_told)
        return;
    engine->link.is_told = true;
    gm_engine_emit(
        engine,
        &(struct gm_event){.kind = GM_EVENT_UNCHECKED, .app = GM_NONE, .unchecked = {.why = why}});
}

/* ---- what holds for the samples that begin from now on ---- */

static bool is_copying(const struct gm_engine *engine)
{
    return gm_engine_is_copying(engine, GM_WAY_IN) || gm_engine_is_copying(engine, GM_WAY_OUT);
}

/* What the apps need does not fit the GPU: less of it would serve them all. */
static bool is_short_of_room(const struct gm_engine *engine)
{
    uint64_t needed = engine->table->fixed;
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].session)
            needed += gm_room_promised(engine->table, id);
    return engine->is_short_of_room && needed > engine->table->budget;
}

/* It runs with cold memory on the host; or what was brought back may not have ended the traffic; or
 * (`is_short`) some of its memory may be tried there. */
static bool is_to_check(const struct gm_engine *engine, uint32_t id, bool is_short)
{
    const struct gm_table_app *entry = &engine->table->apps[id];
    const bool is_cold = entry->on_host > 0 && entry->cold > 0;
    return engine->apps[id].state == GM_APP_RUNNING &&
           (is_cold || is_short || gm_check_is_searching(&engine->check, id));
}

/* Whether anything about the app is another than at the last look. */
static bool follow_app(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    const bool is_running = app->state == GM_APP_RUNNING;
    const uint64_t on_host = engine->table->apps[id].on_host;
    const bool is_other = app->check.was_running != is_running || app->check.on_host != on_host;
    if (!app->check.is_known && app->stat)
        gm_check_begin(&engine->check, id, atomic_load(&app->stat->link_bytes),
                       atomic_load(&app->stat->link_launches));
    app->check.is_known = app->stat != NULL;
    if (app->check.on_host != on_host)
        gm_check_change(&engine->check, id);
    app->check.was_running = is_running;
    app->check.on_host = on_host;
    return is_other;
}

void gm_engine_follow_check(struct gm_engine *engine)
{
    const bool is_copying_now = is_copying(engine), is_short = is_short_of_room(engine);
    bool is_on = false;
    if (is_copying_now || engine->link.was_copying)
        engine->link.since = engine->now;
    engine->link.was_copying = is_copying_now;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (engine->apps[id].state == GM_APP_UNUSED)
            continue;
        if (follow_app(engine, id))
            engine->link.since = engine->now;
        is_on = is_on || is_to_check(engine, id, is_short);
    }
    gm_engine_measure(engine,
                      is_on && !engine->stopping.is_on && engine->now >= engine->check.off_until);
}

/* ---- samples ---- */

/* The programs that work: of one that rests, what it left alone says nothing. Returns how many. */
static uint32_t gather(struct gm_engine *engine)
{
    struct gm_check_part *parts = engine->check_parts;
    uint32_t n = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        if (app->state != GM_APP_RUNNING || app->idle.is_idle || !app->check.is_known)
            continue;
        parts[n++] = (struct gm_check_part){
            .app = id,
            .is_explained = !gm_check_is_all_cold(engine->table, id),
            .copied = app->stat ? atomic_load(&app->stat->link_bytes) : 0,
            .mapped = app->stat ? atomic_load(&app->stat->link_launches) : 0};
    }
    return n;
}

static void do_step(struct gm_engine *engine, const struct gm_check_step *step)
{
    if (step->kind == GM_CHECKED_NONE)
        return;
    gm_engine_emit(engine,
                   &(struct gm_event){.kind = GM_EVENT_CHECKED,
                                      .app = step->kind == GM_CHECKED_FOREIGN ? GM_NONE : step->app,
                                      .checked = {.step = (uint8_t)step->kind,
                                                  .bytes = step->bytes,
                                                  .for_ns = engine->check.off_ns}});
    if (step->kind == GM_CHECKED_FOREIGN) {
        engine->link.stranger = 0;
        return;
    }
    if (step->kind == GM_CHECKED_TRY)
        return; /* it goes when its turn is over */
    gm_engine_hold_at_once(engine, step->app);
    gm_engine_want_places(engine, step->app);
}

/* Another process is there: nothing is judged for a while. */
static void rest(struct gm_engine *engine, pid_t stranger)
{
    char why[64];
    engine->check.off_until = engine->now + GM_CHECK_STRANGER_NS;
    if (engine->link.stranger == stranger)
        return;
    engine->link.stranger = stranger;
    gm_engine_emit(
        engine,
        &(struct gm_event){.kind = GM_EVENT_UNCHECKED,
                           .app = GM_NONE,
                           .unchecked = {.why = gm_engine_why_unchecked(engine, why, sizeof why)}});
}

static void take_sample(struct gm_engine *engine, const struct gm_meter_sample *sample)
{
    const struct gm_check_sample one = {
        .begin = sample->begin,
        .end = sample->end,
        .rate = gm_more(sample->rate[GM_WAY_IN], sample->rate[GM_WAY_OUT])};
    const pid_t stranger = gm_engine_stranger(engine, sample);
    if (stranger != 0) {
        rest(engine, stranger);
        return;
    }
    if (sample->begin < engine->link.since || is_copying(engine))
        return;
    const uint32_t n = gather(engine);
    gm_check_judge(&engine->check, &one, engine->check_parts, n);
    const struct gm_check_step step =
        gm_check_follow(&engine->check, engine->table, engine->check_parts, n,
                        is_short_of_room(engine), engine->now);
    do_step(engine, &step);
}

void gm_engine_take_samples(struct gm_engine *engine)
{
    struct gm_meter_sample sample;
    tell_meter(engine);
    while (gm_engine_take_sample(engine, &sample))
        take_sample(engine, &sample);
}
