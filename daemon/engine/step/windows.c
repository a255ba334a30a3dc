/*
 * Windows: stretches of a program's running time (common/windows.h). Owns gm_app.windows, and
 * gm_ctl.window of the programs. Called by run.c and deadlines.c; reads the words by
 * act/windows.h, and hands what was touched on to places.c.
 *
 * A program has windows while it is asked to mark what it touches (gm_ctl.is_counting). One ends
 * when the program has run for GM_WINDOW_NS in it, or when a turn ends and it has run for
 * GM_WINDOW_LEAST_NS. Running is the time with the gate open, and until the program has drained.
 * A stretch in which the program submitted no work (gm_stat.works_in) says nothing about what its
 * work touches, and is no window: a kernel that runs for minutes touches in the tenth what it named
 * in the first, and who reads a model from a disk has not begun to use it. Copies to and from the
 * host are no work. So nothing is cold of which a program has not worked for whole windows since.
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
 * words cannot be read.
 * Such a window is not whole: it says what was touched, but not what was not.
 */
#include "daemon/engine/step/windows.h"

#include <stdlib.h>

#include "common/windows.h"
#include "daemon/engine/act/windows.h"
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
    const uint32_t room = gm_engine_places_of(engine, id);
    struct gm_use *uses = malloc((room + 1) * sizeof *uses);

    if (atomic_load(&app->ctl->window) == before)
        atomic_store(&app->ctl->window, gm_window_after(before));
    begin(engine, id, unseen);
    const int64_t n =
        uses ? gm_engine_read_window(engine, id, from - 1, app->windows.number, uses, room) : -1;
    for (int64_t i = 0; i < n; i++)
        if (is_after(before, uses[i].window))
            uses[i].count = 0;
    app->windows.is_whole = is_whole && n >= 0;
    gm_engine_uses(engine, id, uses, n >= 0 ? (uint32_t)n : 0, app->windows.is_whole);
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
