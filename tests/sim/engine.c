/* The engine of the simulated world: it makes decisions true. See world.h. */
#include "tests/sim/engine.h"

#define NEVER GM_TIME_NEVER
#define check(what) watch_check(&w->watch, what)

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Those off the timeline, the latest first, then those on it but for the first `from`. */
static uint32_t list_victims(struct world *w, uint32_t from)
{
    uint32_t n = 0, *list = w->memory->victims;
    bool is_coming[WORLD_APPS] = {false};
    for (uint32_t i = 0; i < w->decision.n_next; i++)
        is_coming[w->decision.next[i]] = true;
    for (uint32_t app = 0; app < w->config.max_apps; app++) {
        const struct world_app *a = &w->apps[app];
        if (!a->is_known || a->is_open || w->in_set[app] || is_coming[app])
            continue;
        uint32_t at = n++;
        for (; at > 0 && gm_sched_is_later(w->sched, w->now, app, list[at - 1]); at--)
            list[at] = list[at - 1];
        list[at] = app;
    }
    for (uint32_t i = w->decision.n_next; i-- > from;)
        if (!w->apps[w->decision.next[i]].is_open)
            list[n++] = w->decision.next[i];
    return n;
}

static void check_memory(const struct world *w)
{
    const char *fault = memory_check(w->memory);
    if (fault)
        watch_fail(&w->watch, __LINE__, "%s", fault);
}

static bool is_anybody_leaving(const struct world *w)
{
    for (uint32_t app = 0; app < w->config.max_apps; app++)
        if (w->apps[app].is_open && !w->in_set[app])
            return true;
    return false;
}

static void load(struct world *w, uint32_t app)
{
    struct world_app *a = &w->apps[app];
    uint64_t ns = w->fixed_load || w->memory ? w->fixed_load : draw(&w->chance, w->load_max + 1);
    if (w->memory) {
        bool is_complete;
        w->memory->targets[0] = app;
        a->loaded_ns += memory_load(w->memory, 1, list_victims(w, 0), &is_complete);
        check_memory(w);
        /* Whom the scheduler admits, the planner can bring in, when those who go have gone. */
        check(is_complete == memory_is_whole(w->memory, app));
        check(is_complete || is_anybody_leaving(w));
        if (!is_complete)
            return; /* the rest when more is drained */
        ns += a->loaded_ns;
        ns = ns < w->load_max ? ns : w->load_max;
        a->loaded_ns = 0;
    }
    a->is_loading = true;
    a->load_at = w->now + ns;
}

/* Growing apps that run: as far as there is room now. */
static void fill_growth(struct world *w)
{
    uint32_t n = 0;
    bool is_complete;
    for (uint32_t app = 0; app < w->config.max_apps; app++)
        if (w->apps[app].is_open && w->in_set[app] && !memory_is_whole(w->memory, app))
            w->memory->targets[n++] = app;
    if (n == 0)
        return;
    memory_load(w->memory, n, list_victims(w, 0), &is_complete);
    check_memory(w);
    check(is_complete || is_anybody_leaving(w) || !w->watch.is_clean);
}

/* For the first on the timeline that is closed, from those behind it. */
static void prefetch(struct world *w)
{
    uint32_t i = 0;
    while (i < w->decision.n_next && w->apps[w->decision.next[i]].is_open)
        i++;
    if (i == w->decision.n_next)
        return;
    w->memory->targets[0] = w->decision.next[i];
    uint32_t n = list_victims(w, i + 1);
    memory_prefetch(w->memory, 1, n, draw_percent(&w->chance, 50) ? n : 0);
    check_memory(w);
}

static void stop_running(struct world *w, struct world_app *a)
{
    uint64_t ran = w->now - a->run_from;
    if (a->left_ns == WORLD_FOREVER)
        a->work_ns += ran;
    else if (a->left_ns > 0)
        a->left_ns = a->left_ns > ran ? a->left_ns - ran : 1;
    a->run_from = w->now;
}

/* Make the decision true. */
void engine_make_true(struct world *w)
{
    uint64_t used = 0;
    bool is_loading = false;
    for (uint32_t app = 0; app < w->config.max_apps; app++) {
        struct world_app *a = &w->apps[app];
        if (a->is_open && !a->is_draining && !w->in_set[app]) {
            a->is_draining = true;
            a->drain_at =
                w->now + (w->fixed_drain ? w->fixed_drain : draw(&w->chance, w->drain_max + 1));
        } else if (a->is_draining && w->in_set[app] && draw_percent(&w->chance, 50)) {
            a->is_draining = false; /* called off; else it ends and the app is loaded again */
        }
        if (!w->in_set[app])
            a->is_loading = false;
        if (a->is_open || a->is_loading)
            used += a->bytes;
    }
    if (w->memory)
        fill_growth(w);
    for (uint32_t i = 0; i < w->decision.n_set; i++) { /* room is kept for those before */
        struct world_app *a = &w->apps[w->decision.set[i]];
        is_loading |= a->is_loading;
        if (a->is_open || a->is_loading)
            continue;
        if (a->bytes <= less(w->config.budget, used))
            load(w, w->decision.set[i]);
        used = used > UINT64_MAX - a->bytes ? UINT64_MAX : used + a->bytes;
        is_loading = true;
    }
    if (w->memory && w->has_prefetch && !is_loading && draw_percent(&w->chance, 20))
        prefetch(w);
}

/* When it is taken for idle: it was chosen, or closed, since it had wanted, but may have nothing
 * left to do. */
static uint64_t rests_at(const struct world *w, const struct world_app *a)
{
    bool is_done = a->is_wanting && a->left_ns == 0 && !a->habit.is_wild;
    return is_done ? w->now + w->idle_ns : NEVER;
}

void engine_drain_ends(struct world *w, uint32_t app)
{
    struct world_app *a = &w->apps[app];
    a->is_draining = false;
    if (draw_percent(&w->chance, w->busy_percent)) {
        world_send(w, GM_SCHED_BUSY, app, 0);
        return;
    }
    stop_running(w, a);
    a->is_open = false;
    a->rest_at = rests_at(w, a);
    world_send(w, GM_SCHED_CLOSED, app, 0);
}

void engine_load_ends(struct world *w, uint32_t app)
{
    struct world_app *a = &w->apps[app];
    a->is_loading = false;
    a->is_open = true;
    a->run_from = w->now;
    a->rest_at = rests_at(w, a);
    world_send(w, GM_SCHED_OPENED, app, 0);
}
