/*
 * What programs touched in a window of their work, and the search for reads that were hidden.
 *
 * Windows: stretches of a program's running time (common/windows.h). Owns gm_app.windows, and
 * gm_ctl.window of the programs.
 *
 * A program has windows while it is asked to mark what it touches (gm_ctl.is_counting). One ends
 * when the program has run for GM_WINDOW_NS in it, or when a turn ends and it has run for
 * GM_WINDOW_LEAST_NS. Running is the time with the gate open, and until the program has drained. A
 * stretch in which the program submitted no work (gm_stat.works_in) says nothing about what its
 * work touches, and is no window: a kernel that runs for minutes touches in the tenth what it
 * named in the first, and who reads a model from a disk has not begun to use it. Copies to and
 * from the host are no work. So nothing is cold of which a program has not worked for whole
 * windows since.
 *
 * The number goes up first and the words are read then: what is touched meanwhile counts for both
 * windows, and nothing for none. A program on several GPUs has one number. The engine that comes
 * first raises it, and the others see that and only read.
 *
 * A kernel marks what it touches when it is launched, and may run for many windows. So what was
 * touched in or after the first window whose work may not have ended (gm_stat.lasts_from) is no
 * colder now. It is no hotter either: how often it is read nobody knows. Where the driver does not
 * tell which work has ended, what a launch names is touched when it is launched.
 *
 * What was touched is not always known: the program says that it submitted work that it could not
 * read (gm_stat.unseen), work that it submitted before it began to mark may not have ended, or its
 * words cannot be read. Such a window is not whole: it says what was touched, but not what was
 * not.
 */
#include "daemon/engine/step/windows.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/sums.h"
#include "common/windows.h"
#include "daemon/core/timeslice.h"
#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/caps.h"
#include "daemon/engine/step/copies.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/step/gates.h"
#include "daemon/engine/step/places.h"

/* Whether the program is asked to mark, and does. */
static bool is_marking(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    return app->session && (atomic_load(&app->ctl->is_counting) & 1u << engine->config.index) &&
           atomic_load(&app->stat->marks_from) != 0;
}

/* Running since the window began, or since nothing was submitted in it. */
static uint64_t ran(const struct gm_engine *engine, const struct gm_app *app)
{
    return app->windows.ran + (app->windows.since != 0 ? engine->now - app->windows.since : 0);
}

/* `unseen`: of gm_stat, as it was when the window before ended. */
static void begin(struct gm_engine *engine, uint32_t id, uint64_t unseen)
{
    struct gm_app *app = &engine->apps[id];
    app->windows.number = atomic_load(&app->ctl->window);
    app->windows.unseen = unseen;
    app->windows.ran = 0;
    app->windows.since = app->windows.since != 0 ? engine->now : 0;
}

/* Numbers of windows go on from 0 again. */
static bool is_after(uint32_t window, uint32_t other)
{
    return (int32_t)(window - other) > 0;
}

static void end(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    const uint32_t before = app->windows.number;
    const uint64_t unseen = atomic_load(&app->stat->unseen);
    const uint32_t marks_from = atomic_load(&app->stat->marks_from);
    const uint32_t lasts_from = atomic_load(&app->stat->lasts_from);
    /* Of the window in which it began to mark something may be lacking. */
    const bool is_whole = is_after(before, marks_from) &&
                          (lasts_from == 0 || is_after(lasts_from, marks_from)) &&
                          unseen == app->windows.unseen;
    const uint32_t from = lasts_from != 0 && is_after(before, lasts_from) ? lasts_from : before;

    if (atomic_load(&app->ctl->window) == before)
        atomic_store(&app->ctl->window, gm_window_after(before));
    begin(engine, id, unseen);
    struct gm_action *action = gm_engine_post(engine, GM_ACTION_READ_WINDOW);
    if (!action) {
        gm_engine_take_window(engine, id, before, false, NULL, -1);
        return;
    }
    action->window.app = id;
    action->window.from = from - 1;
    action->window.to = app->windows.number;
    action->window.before = before;
    action->window.is_whole = is_whole;
}

void gm_engine_take_window(struct gm_engine *engine, uint32_t id, uint32_t before, bool is_whole,
                           struct gm_use *uses, int64_t n)
{
    struct gm_app *app = &engine->apps[id];
    for (int64_t i = 0; i < n; i++)
        if (is_after(before, uses[i].window))
            uses[i].count = 0;
    app->windows.is_whole = is_whole && n >= 0;
    if (app->session)
        gm_engine_uses(engine, id, uses, n >= 0 ? (uint32_t)n : 0, app->windows.is_whole);
    gm_check_wake(&engine->check, id);
    free(uses);
}

/* It has run for long enough: the window ends, or has yet to begin. */
static void end_if_used(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    if (is_after(app->windows.number, atomic_load(&app->stat->works_in)))
        app->windows.ran = 0;
    else
        end(engine, id);
}

static void follow(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    if (!is_marking(engine, id)) {
        app->windows.is_on = false;
        return;
    }
    const bool is_running = app->state == GM_APP_RUNNING || app->state == GM_APP_DRAINING;
    if (!app->windows.is_on) {
        app->windows.is_on = true;
        app->windows.since = is_running ? engine->now : 0;
        begin(engine, id, atomic_load(&app->stat->unseen));
    }
    const bool has_stopped = !is_running && app->windows.since != 0;
    app->windows.ran = ran(engine, app);
    app->windows.since = is_running ? engine->now : 0;
    if (has_stopped && !app->places.is_held && app->windows.ran >= GM_WINDOW_LEAST_NS)
        end_if_used(engine, id);
    else if (is_running && app->windows.ran >= GM_WINDOW_NS)
        end_if_used(engine, id);
}

void gm_engine_follow_windows(struct gm_engine *engine)
{
    for (uint32_t id = 0; id < engine->config.max_apps; id++)
        if (engine->apps[id].state != GM_APP_UNUSED)
            follow(engine, id);
}

uint64_t gm_engine_window_due(const struct gm_engine *engine, uint32_t id)
{
    const struct gm_app *app = &engine->apps[id];
    if (!app->windows.is_on || app->windows.since == 0)
        return GM_TIME_NEVER;
    const uint64_t passed = ran(engine, app);
    return passed < GM_WINDOW_NS ? engine->now + (GM_WINDOW_NS - passed)
                                 : engine->now + GM_WINDOW_NS;
}

/* ---- hidden reads ---- */

/*
 * The check: what crosses the link while programs run tells whether cold memory is cold. Owns
 * gm_engine.check, its memory, gm_engine.link, and gm_app.check.
 *
 * The meter runs while a program runs that has cold memory on the host, and while what programs
 * need does not fit the GPU: then the check tries whether they need all of it. A sample counts if
 * all that time the same programs ran, with the same memory on the host, and the daemon copied
 * nothing. The programs say themselves how much they copied, and how often they launched kernels
 * on host memory of theirs (gm_stat): hostile numbers, which at most hide what they do themselves,
 * or others that run beside them.
 *
 * What other processes move over the link core/check tells apart by itself.
 */

/* There is no counter: that is told once. */
static void tell_meter(struct gm_engine *engine, const char *why)
{
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

/* Nothing comes ahead for so long, from when a turn begins or a trial: a sample is judged in that.
 */
#define GM_LINK_KEPT_NS (400 * GM_MS)
/* Samples of the link come as often as that. */
#define GM_LINK_HEARD_NS (250 * GM_MS)
/* The counters tell of a copy so late. */
#define GM_LINK_SETTLES_NS (50 * GM_MS)

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
    return gm_engine_has_turn(engine, id) &&
           (is_cold || is_short || gm_check_is_searching(&engine->check, id));
}

/* Whether anything about the app is another than at the last look. */
static bool follow_app(struct gm_engine *engine, uint32_t id)
{
    struct gm_app *app = &engine->apps[id];
    const bool is_running = app->state == GM_APP_RUNNING;
    /* Of one that is paused it may have left the host meanwhile, and comes back there. */
    const uint64_t on_host = is_running ? engine->table->apps[id].on_host : app->check.on_host;
    const bool is_other = app->check.was_running != is_running || app->check.on_host != on_host;
    if (!app->check.is_known && app->stat)
        gm_check_begin(&engine->check, id, atomic_load(&app->stat->link_bytes),
                       atomic_load(&app->stat->link_launches));
    app->check.is_known = app->stat != NULL;
    if (app->check.on_host != on_host)
        gm_check_change(&engine->check, id);
    app->check.has_stopped = app->check.was_running && !is_running && !app->places.is_held;
    app->check.was_running = is_running;
    app->check.on_host = on_host;
    return is_other;
}

/* Samples are wanted from now on, or not. */
static void measure(struct gm_engine *engine, bool is_on)
{
    if (engine->is_metering == is_on)
        return;
    engine->is_metering = is_on;
    gm_engine_post_surely(engine, GM_ACTION_METER)->is_metering = is_on;
}

/* No program that runs may be slowed down for a trial. */
static bool is_critical(const struct gm_engine *engine)
{
    bool is_critical = false;
    for (uint32_t id = 0; id < engine->config.max_apps && !is_critical; id++)
        is_critical = engine->apps[id].state == GM_APP_RUNNING &&
                      gm_timeslice_is_critical(gm_engine_class(engine, id));
    return is_critical;
}

/* Nothing is to come ahead, as who runs is to be tried, or is. */
static bool is_link_wanted(const struct gm_engine *engine)
{
    if (!engine->is_metering || engine->now >= engine->link.kept_from + GM_LINK_KEPT_NS ||
        engine->now >= engine->link.heard_at + GM_LINK_HEARD_NS || is_critical(engine))
        return false;
    bool is_wanted = false;
    for (uint32_t id = 0; id < engine->config.max_apps && !is_wanted; id++)
        is_wanted = engine->apps[id].session && gm_engine_has_turn(engine, id) &&
                    gm_check_wants(&engine->check, id);
    return is_wanted;
}

void gm_engine_keep_link(struct gm_engine *engine)
{
    const bool was_kept = engine->link.is_kept;
    engine->link.is_kept = is_short_of_room(engine) && is_link_wanted(engine);
    if (was_kept && !engine->link.is_kept)
        gm_engine_replan(engine);
}

uint64_t gm_engine_link_due(const struct gm_engine *engine)
{
    const uint64_t heard = engine->link.heard_at + GM_LINK_HEARD_NS;
    const uint64_t kept = engine->link.kept_from + GM_LINK_KEPT_NS;
    return engine->link.is_kept ? gm_least(heard, kept) : GM_TIME_NEVER;
}

/* ---- samples ---- */

/* The program has had no work on the GPU since then: what it left alone says nothing. */
static bool has_rested(const struct gm_app *app, uint64_t since)
{
    const bool rests =
        app->idle.is_idle || (app->idle.quiet_at != 0 && app->idle.quiet_at <= since);
    return rests && !gm_engine_has_called(app);
}

/* Work of a program may be ending, of which nothing is known here. */
static bool is_any_between(const struct gm_engine *engine)
{
    bool is_any = false;
    for (uint32_t id = 0; id < engine->config.max_apps && !is_any; id++)
        is_any = engine->apps[id].state == GM_APP_DRAINING;
    return is_any;
}

/* The programs that have work on the GPU. Returns how many. Nothing is tried of programs that run
 * together: while one is held, the others wait for it. */
static uint32_t gather(struct gm_engine *engine, uint64_t since)
{
    struct gm_check_part *parts = engine->check_parts;
    const bool may_try = !is_critical(engine);
    uint32_t n = 0;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        if (app->state != GM_APP_RUNNING || has_rested(app, since) || !app->check.is_known)
            continue;
        parts[n++] = (struct gm_check_part){
            .app = id,
            .is_explained = !gm_check_is_all_cold(engine->table, id),
            .has_host = engine->table->apps[id].on_host > 0,
            .may_try = may_try && !gm_group_is_several(engine, id),
            .copied = app->stat ? atomic_load(&app->stat->link_bytes) : 0,
            .mapped = app->stat ? atomic_load(&app->stat->link_launches) : 0};
    }
    return n;
}

/* Nothing is tried any more: what was is needed. */
static void end_trials(struct gm_engine *engine)
{
    gm_check_end_trials(&engine->check, engine->table);
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (!engine->apps[id].session)
            continue;
        gm_engine_feed_size(engine, id);
        if (gm_engine_has_turn(engine, id))
            gm_engine_want_places(engine, id);
        else
            gm_engine_need_places(engine, id);
    }
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
                                                  .rate = engine->check.rate,
                                                  .for_ns = engine->check.off_ns}});
    if (step->kind == GM_CHECKED_FOREIGN) {
        end_trials(engine);
        return;
    }
    engine->link.kept_from = engine->now;
    if (step->kind == GM_CHECKED_TRY)
        gm_engine_lay_aside(engine, step->app);
    gm_engine_feed_size(engine, step->app); /* after that, or it counts twice */
    if (!gm_engine_has_turn(engine, step->app)) {
        gm_engine_need_places(engine, step->app);
        return;
    }
    gm_engine_hold_at_once(engine, step->app);
    gm_engine_want_places(engine, step->app);
}

void gm_engine_prepare_trials(struct gm_engine *engine)
{
    const bool is_short = is_short_of_room(engine);
    for (uint32_t id = 0; is_short && id < engine->config.max_apps; id++) {
        if (!engine->apps[id].session || !engine->apps[id].check.has_stopped ||
            gm_group_is_several(engine, id) ||
            gm_timeslice_is_critical(gm_engine_class(engine, id)) ||
            engine->now >= engine->link.heard_at + GM_LINK_HEARD_NS || is_critical(engine))
            continue;
        const struct gm_check_step step =
            gm_check_prepare(&engine->check, engine->table, id, engine->now);
        do_step(engine, &step);
    }
}

void gm_engine_follow_check(struct gm_engine *engine)
{
    const bool is_copying_now = is_copying(engine), is_short = is_short_of_room(engine);
    bool is_on = false;
    if (is_copying_now || engine->link.was_copying)
        engine->link.since = engine->now + GM_LINK_SETTLES_NS;
    if (!is_copying_now || !engine->link.was_copying)
        engine->link.copies_since = is_copying_now ? engine->now : 0;
    engine->link.was_copying = is_copying_now;
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        if (engine->apps[id].state == GM_APP_UNUSED)
            continue;
        if (follow_app(engine, id)) {
            engine->link.kept_from = engine->now;
            engine->link.since = gm_most(engine->link.since, engine->now);
        }
        is_on = is_on || is_to_check(engine, id, is_short);
    }
    measure(engine, is_on && !engine->stopping.is_on && engine->now >= engine->check.off_until);
}

const char *gm_engine_why_unjudged(const struct gm_engine *engine)
{
    const bool is_heard = engine->now < engine->link.heard_at + GM_LINK_HEARD_NS;
    const bool is_drowned = is_heard && gm_check_is_drowned(&engine->check);
    return engine->now < engine->check.off_until || is_drowned ? "others use the link" : NULL;
}

/* A sample says nothing: programs that run with what is tried wait for that in vain. */
static void starve(struct gm_engine *engine, uint32_t n, uint64_t ns)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct gm_check_step step = gm_check_starve(&engine->check, engine->table,
                                                          &engine->check_parts[i], ns, engine->now);
        do_step(engine, &step);
    }
}

static void take_sample(struct gm_engine *engine, const struct gm_meter_sample *sample)
{
    const struct gm_check_sample one = {
        .begin = sample->begin,
        .end = sample->end,
        .rate = gm_more(sample->rate[GM_WAY_IN], sample->rate[GM_WAY_OUT]),
        .cover = sample->cover,
        .ns = sample->ns};
    engine->link.heard_at = engine->now;
    if (engine->link.copies_since != 0 && sample->begin >= engine->link.copies_since)
        gm_check_note_link(&engine->check,
                           gm_most(sample->rate[GM_WAY_IN], sample->rate[GM_WAY_OUT]));
    const bool is_void =
        sample->begin < engine->link.since || is_copying(engine) || is_any_between(engine);
    const uint32_t n = gather(engine, sample->begin);
    if (is_void || !gm_check_judge(&engine->check, &one, engine->check_parts, n)) {
        starve(engine, n, sample->ns);
        return;
    }
    const struct gm_check_step step =
        gm_check_follow(&engine->check, engine->table, engine->check_parts, n,
                        is_short_of_room(engine), engine->now);
    do_step(engine, &step);
    for (uint32_t i = 0; i < n; i++)
        if (engine->check_parts[i].finding == GM_CHECK_QUIET)
            gm_engine_feed_size(engine, engine->check_parts[i].app); /* what is proved is room */
}

void gm_engine_take_sample_in(struct gm_engine *engine, const struct gm_meter_sample *sample,
                              const char *why_none)
{
    if (why_none && !engine->link.is_told) {
        tell_meter(engine, why_none);
        end_trials(engine);
    }
    if (sample)
        take_sample(engine, sample);
}
