/* The world around a scheduler: see world.h. */
#include "tests/sim/world.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/trace/trace.h"
#include "daemon/core/sched_account.h"
#include "daemon/core/sched_step.h"

#define NEVER GM_TIME_NEVER
#define check(what) watch_check(&w->watch, what)

/* ---- What the scheduler is told ---- */

static void print_decision(const struct world *w)
{
    printf("%10s set", "");
    for (uint32_t i = 0; i < w->decision.n_set; i++) {
        uint32_t app = w->decision.set[i];
        struct gm_sched_account account = {.level = 0};
        gm_sched_account(w->sched, w->now, app, &account);
        printf(" %" PRIu32 ":%" PRIu64 "/%" PRIu32 "%s(%s)", app, w->apps[app].bytes, account.level,
               w->apps[app].is_open ? "" : "-", gm_why_name(account.reason));
    }
    printf("  next");
    for (uint32_t i = 0; i < w->decision.n_next; i++) {
        uint32_t app = w->decision.next[i];
        struct gm_sched_account account = {.level = 0};
        gm_sched_account(w->sched, w->now, app, &account);
        printf(" %" PRIu32 ":%" PRIu64 "/%" PRIu32, app, w->apps[app].bytes, account.level);
    }
    if (w->decision.wake_at != NEVER)
        printf("  wake %.6f", (double)w->decision.wake_at / 1e9);
    printf("\n");
}

/* The scheduler decided: show what it was told and what came of it, and write it down. */
static void show(struct world *w, struct gm_trace_line *line)
{
    char text[GM_TRACE_LINE_MAX];
    line->now = w->now;
    gm_trace_write(text, sizeof text, line);
    if (w->trace)
        fputs(text, w->trace);
    if (w->is_verbose) {
        printf("%.6f%s", (double)w->now / 1e9, strchr(text, ' '));
        print_decision(w);
    }
}

static void read_set(struct world *w)
{
    memset(w->in_set, 0, sizeof w->in_set);
    for (uint32_t i = 0; i < w->decision.n_set; i++)
        w->in_set[w->decision.set[i]] = true;
}

static void send_event(struct world *w, const struct gm_sched_event *event)
{
    struct gm_trace_line line;
    watch_before(&w->watch);
    check(gm_sched_step(w->sched, w->now, event, &w->decision) == 0);
    if (w->trace || w->is_verbose) {
        gm_trace_put_event(&line, event);
        show(w, &line);
    }
    watch_event(&w->watch, w->now, event);
    read_set(w);
}

static void send_kind(struct world *w, enum gm_sched_event_kind kind, uint32_t app, uint64_t bytes)
{
    struct gm_sched_event event = {.kind = kind, .app = app, .bytes = bytes};
    send_event(w, &event);
}

void world_set(struct world *w, uint32_t app, const struct gm_sched_policy *policy)
{
    struct gm_trace_line line;
    watch_before(&w->watch);
    check(gm_sched_set(w->sched, w->now, app, policy, &w->decision) == 0);
    if (w->trace || w->is_verbose) {
        gm_trace_put_policy(&line, app, policy);
        show(w, &line);
    }
    watch_policy(&w->watch, w->now, app, policy);
    read_set(w);
}

/* What is not legal now: a fault, and nothing changes. */
static void send_illegal(struct world *w)
{
    uint32_t app = (uint32_t)draw(&w->chance, w->config.max_apps + 2);
    const struct world_app *a = app < w->config.max_apps ? &w->apps[app] : NULL;
    enum gm_sched_event_kind kind = GM_SCHED_JOIN;
    struct gm_sched_policy policy = {GM_CLASS_AUTO, false, GM_SCHED_WEIGHT, GM_SCHED_SHARE_ALL};
    struct gm_sched_decision again;
    switch (draw(&w->chance, 6)) {
    case 0:
        policy.class = (uint8_t)(GM_CLASSES + draw(&w->chance, 200));
        break;
    case 1:
        policy.weight = draw_percent(&w->chance, 50) ? GM_SCHED_WEIGHT_MIN - 1 : UINT32_MAX;
        break;
    case 2:
        policy.share = draw_percent(&w->chance, 50) ? 0 : GM_SCHED_SHARE_ALL + 1;
        break;
    default:
        policy.weight = GM_SCHED_WEIGHT_MAX + 1;
        if (!a || !a->is_known)
            policy.weight = GM_SCHED_WEIGHT; /* nothing is wrong but the app */
        break;
    }
    check(gm_sched_set(w->sched, w->now, app, &policy, &again) > 0);
    check(memcmp(&again, &w->decision, sizeof again) == 0);
    if (!a || !a->is_known)
        kind = a || draw_percent(&w->chance, 50)
                   ? GM_SCHED_LEAVE + (enum gm_sched_event_kind)draw(&w->chance, 7)
                   : kind;
    else if (a->is_open || !w->in_set[app])
        kind = draw_percent(&w->chance, 50) ? GM_SCHED_OPENED : kind;
    else
        kind = draw_percent(&w->chance, 50) ? GM_SCHED_CLOSED : GM_SCHED_BUSY;
    struct gm_sched_event event = {.kind = kind, .app = app, .bytes = 5};
    check(gm_sched_step(w->sched, w->now, &event, &again) > 0);
    check(memcmp(&again, &w->decision, sizeof again) == 0);
    watch_accounts(&w->watch, w->now);
}

/* The timeline without those that are being closed: what they run meanwhile may move them. */
static uint32_t copy_timeline(const struct world *w, uint32_t *next)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->decision.n_next; i++)
        if (!w->apps[w->decision.next[i]].is_open)
            next[n++] = w->decision.next[i];
    return n;
}

/*
 * Time alone changes nothing before wake_at; but while nobody waits, levels change, and with them
 * the order of the set. Shares are counted in whole nanoseconds of credit with each step.
 */
static void check_wake(struct world *w)
{
    uint32_t set[WORLD_APPS], next[WORLD_APPS], next_now[WORLD_APPS];
    bool in_set[WORLD_APPS];
    struct gm_sched_decision before = w->decision;
    uint32_t n_next = copy_timeline(w, next);
    memcpy(set, before.set, before.n_set * sizeof *set);
    memcpy(in_set, w->in_set, sizeof in_set);
    send_kind(w, GM_SCHED_TIMER, 0, 0);
    w->watch.timers--; /* asked for by nobody */
    check(before.n_set == w->decision.n_set && before.n_next == w->decision.n_next);
    check(memcmp(in_set, w->in_set, sizeof in_set) == 0);
    check(before.n_next == 0 || memcmp(set, w->decision.set, before.n_set * sizeof *set) == 0);
    check(copy_timeline(w, next_now) == n_next);
    check(memcmp(next, next_now, n_next * sizeof *next) == 0);
    for (uint32_t app = 0; app < w->config.max_apps; app++) {
        struct gm_sched_account account;
        if (w->apps[app].is_open && !w->in_set[app] &&
            gm_sched_account(w->sched, w->now, app, &account) &&
            (account.reason == GM_WHY_SHARE || w->decision.n_next > n_next))
            return; /* what it runs while it drains was not counted on */
    }
    check(before.wake_at - w->decision.wake_at + 4000 <= 8000);
}

/* ---- The programs ---- */

uint64_t world_draw_bytes(struct world *w)
{
    uint64_t bytes, budget = w->budget_max;
    switch (draw(&w->chance, 10)) {
    case 0:
        bytes = draw_percent(&w->chance, 50) ? 0 : budget + draw(&w->chance, 3) - 1;
        break;
    case 1:
    case 2:
    case 3:
        bytes = draw(&w->chance, budget / 8 + 1);
        break;
    default:
        bytes = draw(&w->chance, budget + 1);
        break;
    }
    return bytes;
}

static void resize(struct world *w, uint32_t app)
{
    struct world_app *a = &w->apps[app];
    uint64_t bytes = draw_percent(&w->chance, 50)
                         ? a->bytes + draw(&w->chance, w->budget_max / 16 + 1)
                         : world_draw_bytes(w);
    a->bytes = bytes;
    send_kind(w, GM_SCHED_SIZE, app, bytes);
}

static uint64_t draw_think(struct world_app *a)
{
    if (a->habit.is_exact)
        return a->habit.think_ns;
    uint64_t ns = draw_around(&a->chance, a->habit.think_ns);
    return 1 + (draw_percent(&a->chance, a->habit.pause_percent) ? ns * 10 : ns);
}

/* It has work for the GPU. */
static void ask(struct world *w, uint32_t app)
{
    struct world_app *a = &w->apps[app];
    const struct habit *h = &a->habit;
    a->ask_at = a->rest_at = NEVER;
    a->asked_at = a->run_from = w->now;
    a->left_ns = h->work_ns == WORLD_FOREVER || h->is_exact
                     ? h->work_ns
                     : 1 + draw_around(&a->chance, h->work_ns);
    bool wanted = a->is_wanting;
    a->is_wanting = true;
    if (!wanted)
        send_kind(w, GM_SCHED_WANT, app, 0);
}

static void request_ends(struct world *w, uint32_t app)
{
    struct world_app *a = &w->apps[app];
    uint64_t ns = w->now - a->asked_at;
    a->left_ns = 0;
    a->run_from = w->now;
    a->rest_at = w->now + w->idle_ns;
    if (a->requests < sizeof a->responses / sizeof *a->responses)
        a->responses[a->requests] = ns;
    a->requests++;
    a->response_ns += ns;
    if (ns > a->response_max_ns)
        a->response_max_ns = ns;
    uint64_t think = draw_think(a);
    if (a->habit.then == WORLD_NOBODY)
        a->ask_at = w->now + think;
    else
        w->apps[a->habit.then].ask_at = w->now + think;
}

static void rest(struct world *w, uint32_t app)
{
    const uint64_t ago_ns = w->apps[app].is_open ? w->idle_ns : 0;
    struct gm_sched_event event = {.kind = GM_SCHED_IDLE, .app = app, .ago_ns = ago_ns};
    w->apps[app].rest_at = NEVER;
    w->apps[app].is_wanting = false;
    send_event(w, &event);
}

/* A wild one does anything. */
static void act(struct world *w, uint32_t app)
{
    struct world_app *a = &w->apps[app];
    a->ask_at = w->now + draw_think(a);
    if (draw_percent(&w->chance, a->habit.grow_percent)) {
        resize(w, app);
    } else if (!a->is_wanting || draw_percent(&w->chance, 5)) {
        a->is_wanting = true;
        send_kind(w, GM_SCHED_WANT, app, 0); /* perhaps again */
    } else if (a->is_open || draw_percent(&w->chance, 10)) {
        struct gm_sched_event event = {.kind = GM_SCHED_IDLE, .app = app};
        event.ago_ns = draw_percent(&w->chance, 50) ? draw(&w->chance, 2 * a->habit.think_ns) : 0;
        a->is_wanting = false;
        send_event(w, &event);
    }
}

static void begin_request(struct world *w, uint32_t app)
{
    if (w->apps[app].habit.is_wild) {
        act(w, app);
        return;
    }
    if (draw_percent(&w->chance, w->apps[app].habit.grow_percent))
        resize(w, app);
    ask(w, app);
}

uint32_t world_join(struct world *w, uint64_t bytes, const struct habit *habit, uint64_t ask_at)
{
    uint32_t app = 0, known = 0;
    for (uint32_t i = 0; i < w->config.max_apps; i++)
        known += w->apps[i].is_known;
    while (app < w->config.max_apps && w->apps[app].is_known)
        app++;
    if (app == w->config.max_apps || known >= w->n_max)
        return WORLD_NOBODY;
    struct world_app *a = &w->apps[app];
    *a = (struct world_app){.is_known = true, .habit = *habit, .ask_at = ask_at};
    a->chance.state = w->seed * 1000003 + w->joins++;
    a->rest_at = NEVER;
    a->die_at = habit->life_ns ? w->now + 1 + draw_around(&w->chance, habit->life_ns) : NEVER;
    const uint32_t user = w->n_users > 1 ? (uint32_t)draw(&w->users, w->n_users) : 0;
    send_event(w, &(struct gm_sched_event){.kind = GM_SCHED_JOIN, .app = app, .user = user});
    a->bytes = bytes;
    if (bytes > 0)
        send_kind(w, GM_SCHED_SIZE, app, bytes);
    return app;
}

void world_leave(struct world *w, uint32_t app)
{
    w->apps[app] = (struct world_app){.is_known = false};
    send_kind(w, GM_SCHED_LEAVE, app, 0);
}

/* ---- The gates ---- */

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Of those that are closed and stay so, the one that is expected last and has bytes on the GPU. */
static uint32_t find_victim(const struct world *w)
{
    uint32_t last = WORLD_NOBODY;
    for (uint32_t app = 0; app < w->config.max_apps; app++)
        if (w->apps[app].is_known && !w->apps[app].is_open && !w->in_set[app] &&
            w->apps[app].resident > 0 &&
            (last == WORLD_NOBODY || gm_sched_is_later(w->sched, w->now, app, last)))
            last = app;
    return last;
}

/* How long it takes to bring `app` to the GPU, in the place of others; both ways at once. */
static uint64_t move_bytes(struct world *w, uint32_t app)
{
    uint64_t resident = 0, out = 0;
    for (uint32_t i = 0; i < w->config.max_apps; i++) {
        struct world_app *a = &w->apps[i];
        if (!a->is_known)
            continue;
        if (a->is_open || a->resident > a->bytes) /* it grew or shrank */
            a->resident = a->bytes;
        resident += a->resident;
    }
    const uint64_t in = w->apps[app].bytes - w->apps[app].resident;
    uint64_t lacks = less(in, less(w->config.budget, resident));
    for (uint32_t victim; lacks > 0 && (victim = find_victim(w)) != WORLD_NOBODY;) {
        struct world_app *a = &w->apps[victim];
        const uint64_t bytes = a->resident < lacks ? a->resident : lacks;
        a->resident -= bytes;
        lacks -= bytes;
        out += bytes;
    }
    w->apps[app].resident = w->apps[app].bytes;
    return (uint64_t)((unsigned __int128)(in > out ? in : out) * 1000000000 / w->link_rate);
}

static void load(struct world *w, uint32_t app)
{
    struct world_app *a = &w->apps[app];
    uint64_t ns = w->fixed_load || w->link_rate ? w->fixed_load : draw(&w->chance, w->load_max + 1);
    if (w->link_rate)
        ns += move_bytes(w, app);
    a->is_loading = true;
    a->load_at = w->now + (ns < w->load_max ? ns : w->load_max);
}

/* What a decision calls for begins. */
static void make_true(struct world *w)
{
    uint64_t used = 0;
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
    for (uint32_t i = 0; i < w->decision.n_set; i++) { /* room is kept for those before */
        const uint32_t app = w->decision.set[i];
        const struct world_app *a = &w->apps[app];
        if (a->is_open || a->is_loading)
            continue;
        if (a->bytes <= less(w->config.budget, used))
            load(w, app);
        used = used > UINT64_MAX - a->bytes ? UINT64_MAX : used + a->bytes;
    }
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

/* When it is taken for idle: it was chosen, or closed, since it had wanted, but may have nothing
 * left to do. */
static uint64_t rests_at(const struct world *w, const struct world_app *a)
{
    bool is_done = a->is_wanting && a->left_ns == 0 && !a->habit.is_wild;
    return is_done ? w->now + w->idle_ns : NEVER;
}

static void drain_ends(struct world *w, uint32_t app)
{
    struct world_app *a = &w->apps[app];
    a->is_draining = false;
    if (draw_percent(&w->chance, w->busy_percent)) {
        send_kind(w, GM_SCHED_BUSY, app, 0);
        return;
    }
    stop_running(w, a);
    a->is_open = false;
    a->rest_at = rests_at(w, a);
    send_kind(w, GM_SCHED_CLOSED, app, 0);
}

static void load_ends(struct world *w, uint32_t app)
{
    struct world_app *a = &w->apps[app];
    a->is_loading = false;
    a->is_open = true;
    a->run_from = w->now;
    a->rest_at = rests_at(w, a);
    send_kind(w, GM_SCHED_OPENED, app, 0);
}

/* ---- Settings ---- */

static uint32_t draw_known(struct world *w)
{
    uint32_t from = (uint32_t)draw(&w->chance, w->config.max_apps);
    for (uint32_t i = 0; i < w->config.max_apps; i++)
        if (w->apps[(from + i) % w->config.max_apps].is_known)
            return (from + i) % w->config.max_apps;
    return WORLD_NOBODY;
}

static void change_policy(struct world *w)
{
    uint32_t app = draw_known(w);
    if (app == WORLD_NOBODY)
        return;
    struct gm_sched_policy policy;
    struct gm_sched_account account;
    check(gm_sched_account(w->sched, w->now, app, &account));
    policy = account.policy;
    switch (draw(&w->chance, policy.is_paused ? 1 : 6)) {
    case 0:
        policy.is_paused = !policy.is_paused;
        break;
    case 1:
    case 2:
        policy.class = (uint8_t)draw(&w->chance, GM_CLASSES);
        break;
    case 3:
        policy.weight = GM_SCHED_WEIGHT_MIN +
                        (uint32_t)draw(&w->chance, draw_percent(&w->chance, 50)
                                                       ? 4 * GM_SCHED_WEIGHT
                                                       : GM_SCHED_WEIGHT_MAX - GM_SCHED_WEIGHT_MIN);
        break;
    case 4:
        policy.share = 1 + (uint32_t)draw(&w->chance, GM_SCHED_SHARE_ALL);
        break;
    case 5:
        policy =
            (struct gm_sched_policy){GM_CLASS_AUTO, false, GM_SCHED_WEIGHT, GM_SCHED_SHARE_ALL};
        break;
    }
    world_set(w, app, &policy);
}

static void change_room(struct world *w)
{
    w->config.budget =
        draw_percent(&w->chance, 30) ? w->budget_max : 1 + draw(&w->chance, w->budget_max);
    send_kind(w, GM_SCHED_ROOM, UINT32_MAX, w->config.budget);
}

/* ---- The loop ---- */

enum what { NOTHING, TIMER, DRAIN, LOAD, DONE, ASK, REST, DIE, JOIN, POLICY, ROOM };

struct soonest {
    uint64_t at;
    enum what what;
    uint32_t app;
};

static void sooner(struct soonest *s, uint64_t at, enum what what, uint32_t app)
{
    if (at < s->at)
        *s = (struct soonest){at, what, app};
}

static struct soonest find_next(struct world *w)
{
    struct soonest s = {NEVER, NOTHING, 0};
    uint32_t first = (uint32_t)draw(&w->chance, w->config.max_apps);
    if (draw_percent(&w->chance, 50)) /* of two at the same time, either */
        sooner(&s, w->decision.wake_at, TIMER, 0);
    for (uint32_t i = 0; i < w->config.max_apps; i++) {
        uint32_t app = first + i < w->config.max_apps ? first + i : first + i - w->config.max_apps;
        const struct world_app *a = &w->apps[app];
        if (!a->is_known)
            continue;
        if (a->is_draining)
            sooner(&s, a->drain_at, DRAIN, app);
        if (a->is_loading)
            sooner(&s, a->load_at, LOAD, app);
        if (a->is_open && a->left_ns > 0 && a->left_ns != WORLD_FOREVER)
            sooner(&s, a->run_from + a->left_ns, DONE, app);
        if (a->is_open || !w->in_set[app])
            sooner(&s, a->rest_at, REST, app);
        sooner(&s, a->ask_at, ASK, app);
        sooner(&s, a->die_at, DIE, app);
    }
    sooner(&s, w->join_gap ? w->join_at : NEVER, JOIN, 0);
    sooner(&s, w->policy_gap ? w->policy_at : NEVER, POLICY, 0);
    sooner(&s, w->room_gap ? w->room_at : NEVER, ROOM, 0);
    sooner(&s, w->decision.wake_at, TIMER, 0);
    return s;
}

bool world_step(struct world *w, uint64_t end)
{
    struct soonest s = find_next(w);
    if (s.at >= end || s.what == NOTHING) {
        w->now = end != NEVER && w->now < end ? end : w->now;
        watch_accounts(&w->watch, w->now);
        return false;
    }
    /* What was due while its app could not do it happens now. */
    w->now = s.at > w->now ? s.at : w->now;
    if (w->now < w->decision.wake_at && draw_percent(&w->chance, 5))
        check_wake(w);
    if (draw_percent(&w->chance, 1))
        send_illegal(w);
    switch (s.what) {
    case NOTHING:
        break;
    case TIMER:
        send_kind(w, GM_SCHED_TIMER, (uint32_t)draw(&w->chance, 1000), 0);
        break;
    case DRAIN:
        drain_ends(w, s.app);
        break;
    case LOAD:
        load_ends(w, s.app);
        break;
    case DONE:
        request_ends(w, s.app);
        break;
    case ASK:
        begin_request(w, s.app);
        break;
    case REST:
        rest(w, s.app);
        break;
    case DIE:
        world_leave(w, s.app);
        break;
    case JOIN:
        w->join_at = w->now + 1 + draw_around(&w->chance, w->join_gap);
        w->arrive(w);
        break;
    case POLICY:
        w->policy_at = w->now + 1 + draw_around(&w->chance, w->policy_gap);
        change_policy(w);
        break;
    case ROOM:
        w->room_at = w->now + 1 + draw_around(&w->chance, w->room_gap);
        change_room(w);
        break;
    }
    const bool is_wasted = w->busy_percent > 0 && draw_percent(&w->chance, 1);
    const uint32_t waster = is_wasted ? draw_known(w) : WORLD_NOBODY;
    if (waster != WORLD_NOBODY)
        send_kind(w, GM_SCHED_WASTE, waster, 0);
    make_true(w);
    return true;
}

uint64_t world_run_ns(const struct world *w, uint32_t app)
{
    return w->watch.apps[app].run_ns;
}

void world_begin(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->seed = w->chance.state = seed;
    w->now = 1;
    w->watch.place = "sim_sched: seed ";
    w->watch.number = seed;
}

void world_start(struct world *w)
{
    size_t size = gm_sched_size(&w->config);
    void *memory = size ? aligned_alloc(16, (size + 15) & ~(size_t)15) : NULL;
    w->sched = memory ? gm_sched_init(memory, &w->config) : NULL;
    if (!w->sched) {
        fprintf(stderr, "sim_sched: seed %" PRIu64 ": no scheduler\n", w->seed);
        exit(1);
    }
    if (w->n_max == 0)
        w->n_max = w->config.max_apps;
    if (w->budget_max == 0)
        w->budget_max = w->config.budget;
    w->watch.drain_max = w->drain_max;
    w->watch.load_max = w->load_max;
    w->watch.is_clean = w->busy_percent == 0 && w->room_gap == 0;
    watch_begin(&w->watch, w->sched, &w->config, &w->decision);
    if (w->trace) {
        struct gm_trace_line line;
        fputs(GM_TRACE_MAGIC "\n", w->trace);
        gm_trace_put_config(&line, &w->config);
        show(w, &line);
    }
    w->join_at = w->now + 1 + draw_around(&w->chance, w->join_gap);
    w->policy_at = w->now + 1 + draw_around(&w->chance, w->policy_gap);
    w->room_at = w->now + 1 + draw_around(&w->chance, w->room_gap);
    send_kind(w, GM_SCHED_TIMER, 0, 0);
    w->watch.timers = 0; /* that was nobody's wake */
}

void world_end(struct world *w)
{
    watch_end(&w->watch);
    free(w->sched);
}
