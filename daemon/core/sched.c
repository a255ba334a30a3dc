/*
 * The first policy behind core/sched.h: round robin with a quantum, over sets of apps that fit the
 * budget together. Pure: see the header. Called by the engine (and the simulation) only.
 *
 * The model is one line of apps. An app stands in at most one of three lists:
 *
 *   TURN     apps whose turn it is, the most senior first. A slice starts at OPENED; an app that
 *            was chosen and is not open yet (its memory is being moved) keeps its turn.
 *   QUEUE    apps that want the GPU and wait for their turn, the longest wait first. They enter at
 *            the tail (with one exception below), so the list is sorted by the time at which their
 *            last slice ended or they first wanted, and ties by the order of the events.
 *   RESTING  apps that want nothing and whose gate is open, the least recently runnable first.
 *
 * An idle app with a closed gate is in no list. After each event the set is made anew, greedily
 * along TURN, QUEUE and RESTING (from its tail: the least recently runnable goes first). From
 * QUEUE, an app takes its turn (moves to the tail of TURN) when everybody before it is in the set.
 * One that does not fit is *blocked*; those behind it that fit are in the set as *borrowers*: they
 * keep their place in QUEUE, so the blocked app has the room as soon as it could run without them.
 *
 * A slice is over after the quantum if somebody waits behind it, not else: then the app goes to the
 * tail of QUEUE. If it still fits there, its gate stays open and a new slice begins.
 *
 * An app that did not drain (BUSY) is in the set for retry_ns whatever its turn, and its bytes
 * count. Then, if somebody who waits before it could run without it, it is taken out of the set,
 * which asks it again; but its bytes count until it is closed, so that the others do not move for
 * an attempt that fails.
 *
 * Growth: when those whose turn it is do not fit together any more, slices that are over end first;
 * then the most junior turns that do not fit end early, whoever grew, and go to the *head* of
 * QUEUE, before all who wait behind them already (one that had only the rest of its slice left,
 * because it was idle meanwhile, goes to the tail: it has had its place). So growth of one app
 * never takes the turn of a more senior one, and the most senior is never sent away, as it fits
 * alone: of two apps that grow in turns, each becomes the senior one within a quantum and then has
 * a whole slice.
 *
 * No starvation: take an app that waits, and the apps before it in the line TURN, QUEUE. Nobody
 * gets before it who was not there (a turn that ended early was, and goes back behind its seniors;
 * an idle app whose gate never closed comes back to the rest of the slice that it had). The first
 * of the line always fits unless an app did not drain, opens after the others have drained and its
 * memory was moved, and one quantum after OPENED goes behind the app, unless it went idle or left
 * before. So with n apps that are runnable or open at some time during the wait, it waits at most
 *
 *     (n - 1) * (quantum + drain + load) + drain + load
 *
 * with the longest drain and load there are, plus the time for which apps that do not drain hold
 * the room it needs. This takes an engine that begins to move memory for an app only if all before
 * it in the set have, or could have, theirs. An app larger than the budget never runs and keeps
 * nobody waiting.
 *
 * Time: nothing is done by tick. wake_at is the end of a slice that somebody waits for, or the time
 * to ask again an app that did not drain and whose room is needed: at most one for each slice and
 * each BUSY, none while there is room for all. Time alone changes nothing before it. A step costs a
 * few passes over the lists, O(apps in them), and sorts nothing.
 */
#include "daemon/core/sched.h"

#include <assert.h>
#include <string.h>

#define NIL UINT32_MAX
#define APPS_MAX (1u << 20) /* keeps every size below far from overflow */

enum place { AWAY, TURN, QUEUE, RESTING, PLACES };

struct app {
    uint64_t bytes;
    uint64_t turn_at;     /* when the slice began; valid if open */
    uint64_t stuck_until; /* valid if stuck */
    uint64_t waiting_at;  /* since when it waits; valid if wanting and not open */
    uint64_t charged_at;  /* run_ns and wait_ns are right up to here */
    uint64_t run_ns;
    uint64_t wait_ns;
    uint64_t wanted_at;  /* when it last began to want */
    uint64_t period_ns;  /* from one such time to the next, on average; 0: not known yet */
    uint32_t next, prev; /* in the list of its place */
    uint8_t place;
    bool is_known;
    bool is_wanting;
    bool is_open;
    bool is_chosen; /* in the set */
    bool is_stuck;  /* did not drain: its room is taken whatever its place */
    bool has_rest;  /* RESTING, TURN: it went idle in its slice and has the rest of that only */
    bool has_wanted;
};

struct list {
    uint32_t head, tail;
};

struct gm_sched {
    struct gm_sched_config config;
    uint64_t now;
    struct list lists[PLACES]; /* AWAY is never used */
    struct app *apps;
    uint32_t *set;
    uint32_t *next;
    struct gm_sched_decision decision;

    /* Made by each decision: for its own passes, and for the reasons. */
    uint64_t spare;    /* budget left beside what is stuck and TURN */
    uint64_t lapsed;   /* bytes of what is stuck and may be asked again, TURN excepted */
    uint32_t last;     /* the last of QUEUE that waited before the decision, or NIL */
    uint32_t senior;   /* the first of TURN that has bytes, or NIL */
    uint32_t overdue;  /* the first that is stuck and not in TURN, or NIL */
    uint32_t borrower; /* the first borrower that has bytes, or NIL */
    bool is_tight;     /* somebody whose gate is open or should be is left out */
    bool is_asking;    /* somebody could run if what has lapsed drained: ask it again */
    bool is_overfull;  /* what is stuck exceeds the budget: ask it again in any case */
};

/* ---- Small things ---- */

static uint64_t sum_or_never(uint64_t time, uint64_t more)
{
    return time > GM_TIME_NEVER - more ? GM_TIME_NEVER : time + more;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t less(uint64_t room, uint64_t bytes)
{
    return room > bytes ? room - bytes : 0;
}

static bool is_too_large(const struct gm_sched *s, const struct app *a)
{
    return a->bytes > s->config.budget;
}

/*
 * Waits: wants, could run, and may not. Others' slices end for it. An app that is being closed does
 * not wait yet: else two of them could take turns in calling off each other's drain, and the memory
 * that somebody else is to have would never be free.
 */
static bool is_left_out(const struct gm_sched *s, const struct app *a)
{
    return a->is_wanting && !a->is_chosen && !a->is_open && !is_too_large(s, a);
}

/* Its slice is used up: it ends as soon as somebody waits behind it. */
static bool is_over(const struct gm_sched *s, const struct app *a)
{
    return a->is_open && !a->is_stuck && s->now - a->turn_at >= s->config.quantum_ns;
}

/* Did not drain, and may not be asked again yet. */
static bool is_held(const struct gm_sched *s, const struct app *a)
{
    return a->is_stuck && s->now < a->stuck_until;
}

/* ---- The lists: an app's place changes by list_insert and list_append only ---- */

static void list_remove(struct gm_sched *s, uint32_t id)
{
    struct app *a = &s->apps[id];
    struct list *l = &s->lists[a->place];
    if (a->place == AWAY)
        return;
    *(a->prev == NIL ? &l->head : &s->apps[a->prev].next) = a->next;
    *(a->next == NIL ? &l->tail : &s->apps[a->next].prev) = a->prev;
    a->place = AWAY;
}

/* Put `id` into the list `place` right behind `after`; NIL: at its head. */
static void list_insert(struct gm_sched *s, uint32_t id, enum place place, uint32_t after)
{
    struct app *a = &s->apps[id];
    struct list *l = &s->lists[place];
    assert(after != id);
    list_remove(s, id);
    if (place == AWAY)
        return;
    a->place = (uint8_t)place;
    a->prev = after;
    a->next = after == NIL ? l->head : s->apps[after].next;
    *(a->prev == NIL ? &l->head : &s->apps[a->prev].next) = id;
    *(a->next == NIL ? &l->tail : &s->apps[a->next].prev) = id;
}

static void list_append(struct gm_sched *s, uint32_t id, enum place place)
{
    if (place != AWAY && s->apps[id].place == place && s->lists[place].tail == id)
        return;
    list_remove(s, id);
    list_insert(s, id, place, s->lists[place].tail);
}

/* ---- Accounts: charged on every edge, so that charged time is run time exactly ---- */

static void charge(const struct gm_sched *s, struct app *a)
{
    if (a->is_open)
        a->run_ns += s->now - a->charged_at;
    else if (a->is_wanting)
        a->wait_ns += s->now - a->charged_at;
    a->charged_at = s->now;
}

/* Change what an app does, with its accounts. */
static void turn_into(const struct gm_sched *s, struct app *a, bool is_open, bool is_wanting)
{
    bool was_waiting = a->is_wanting && !a->is_open;
    charge(s, a);
    a->is_open = is_open;
    a->is_wanting = is_wanting;
    if (is_wanting && !is_open && !was_waiting)
        a->waiting_at = s->now;
}

/* ---- Events ---- */

enum state { ABSENT, SHUT, CHOSEN, OPEN, STATES };

static enum state state_of(const struct app *a)
{
    if (!a->is_known)
        return ABSENT;
    if (a->is_open)
        return OPEN;
    return a->is_chosen ? CHOSEN : SHUT;
}

#define BAD_APP GM_SCHED_BAD_APP
#define BAD_EVENT GM_SCHED_BAD_EVENT

/* What is legal: the fault for each event in each state of its app. TIMER and ROOM have no app. */
/* clang-format off */
static const uint8_t faults[GM_SCHED_TIMER][STATES] = {
    /*                      ABSENT     SHUT       CHOSEN     OPEN */
    [GM_SCHED_JOIN] =     { 0,         BAD_EVENT, BAD_EVENT, BAD_EVENT },
    [GM_SCHED_LEAVE] =    { BAD_APP,   0,         0,         0 },
    [GM_SCHED_WANT] =     { BAD_APP,   0,         0,         0 },
    [GM_SCHED_IDLE] =     { BAD_APP,   0,         0,         0 },
    [GM_SCHED_SIZE] =     { BAD_APP,   0,         0,         0 },
    [GM_SCHED_OPENED] =   { BAD_APP,   BAD_EVENT, 0,         BAD_EVENT },
    [GM_SCHED_CLOSED] =   { BAD_APP,   BAD_EVENT, BAD_EVENT, 0 },
    [GM_SCHED_BUSY] =     { BAD_APP,   BAD_EVENT, BAD_EVENT, 0 },
};
/* clang-format on */

static void app_joins(struct gm_sched *s, struct app *a)
{
    memset(a, 0, sizeof *a);
    a->is_known = true;
    a->charged_at = s->now;
}

/* What is known of when it wants: the newest gap counts a quarter. */
static void note_want(const struct gm_sched *s, struct app *a)
{
    uint64_t gap = s->now - a->wanted_at;
    if (a->has_wanted)
        a->period_ns = a->period_ns ? a->period_ns - a->period_ns / 4 + gap / 4 : gap;
    a->wanted_at = s->now;
    a->has_wanted = true;
}

static void app_wants(struct gm_sched *s, uint32_t id)
{
    struct app *a = &s->apps[id];
    if (a->is_wanting)
        return;
    note_want(s, a);
    turn_into(s, a, a->is_open, true);
    /* Back to the rest of its slice, if its gate never closed and there is a rest. */
    bool is_back = a->place == RESTING && a->is_chosen && a->has_rest && !is_over(s, a);
    list_append(s, id, is_back ? TURN : QUEUE);
}

static void app_rests(struct gm_sched *s, uint32_t id)
{
    struct app *a = &s->apps[id];
    if (!a->is_wanting)
        return;
    turn_into(s, a, a->is_open, false);
    a->has_rest = a->place == TURN;
    list_append(s, id, a->is_open ? RESTING : AWAY);
    if (!a->is_open)
        a->is_chosen = false;
}

static void app_closed(struct gm_sched *s, uint32_t id)
{
    struct app *a = &s->apps[id];
    turn_into(s, a, false, a->is_wanting);
    a->is_stuck = false;
    if (a->place == RESTING) {
        list_append(s, id, AWAY);
        a->is_chosen = false;
    }
}

static void apply(struct gm_sched *s, const struct gm_sched_event *event)
{
    if (event->kind == GM_SCHED_ROOM)
        s->config.budget = event->bytes;
    if (event->kind >= GM_SCHED_TIMER)
        return;
    struct app *a = &s->apps[event->app];
    switch (event->kind) {
    case GM_SCHED_JOIN:
        app_joins(s, a);
        break;
    case GM_SCHED_LEAVE:
        list_append(s, event->app, AWAY);
        memset(a, 0, sizeof *a);
        break;
    case GM_SCHED_WANT:
        app_wants(s, event->app);
        break;
    case GM_SCHED_IDLE:
        app_rests(s, event->app);
        break;
    case GM_SCHED_SIZE:
        a->bytes = event->bytes;
        break;
    case GM_SCHED_OPENED:
        turn_into(s, a, true, a->is_wanting);
        a->turn_at = s->now;
        break;
    case GM_SCHED_CLOSED:
        app_closed(s, event->app);
        break;
    case GM_SCHED_BUSY:
        a->is_stuck = true;
        a->stuck_until = sum_or_never(s->now, s->config.retry_ns);
        break;
    case GM_SCHED_TIMER:
    case GM_SCHED_ROOM:
        break;
    }
}

/* ---- The decision, in four passes ---- */

static void set_add(struct gm_sched *s, uint32_t id)
{
    s->apps[id].is_chosen = true;
    s->set[s->decision.n_set++] = id;
}

/* Pass 1: what did not drain has its room, wherever it stands. Returns the room beside it. */
static uint64_t take_stuck(struct gm_sched *s)
{
    uint64_t room = s->config.budget;
    s->is_overfull = false;
    s->lapsed = 0;
    for (enum place p = TURN; p < PLACES; p++) {
        for (uint32_t next, id = s->lists[p].head; id != NIL; id = next) {
            struct app *a = &s->apps[id];
            next = a->next;
            if (!a->is_stuck)
                continue;
            if (p == TURN && !is_held(s, a)) {
                if (is_too_large(s, a))
                    list_append(s, id, QUEUE); /* and is met there */
                else
                    a->is_stuck = false; /* it is its turn: as if nothing had been */
                continue;
            }
            s->is_overfull |= a->bytes > room;
            room = less(room, a->bytes);
            if (!is_held(s, a))
                s->lapsed = sum_or_never(s->lapsed, a->bytes);
        }
    }
    return room;
}

/* Pass 2: slices that are over go behind those who wait, and begin anew there if there is room. */
static void end_slice(struct gm_sched *s, uint32_t id)
{
    s->apps[id].turn_at = s->now;
    list_append(s, id, QUEUE);
}

static void end_slices(struct gm_sched *s, uint64_t room)
{
    uint32_t last = s->lists[QUEUE].tail; /* who waits: all before have somebody behind */
    while (last != NIL && !is_left_out(s, &s->apps[last]))
        last = s->apps[last].prev;

    bool is_full = false; /* somebody of TURN will have to wait */
    for (uint32_t id = s->lists[TURN].head; id != NIL; id = s->apps[id].next) {
        const struct app *a = &s->apps[id];
        is_full |= !a->is_stuck && a->bytes > room;
        room = a->is_stuck ? room : less(room, a->bytes);
    }

    uint32_t first = s->lists[QUEUE].head;
    if (last != NIL || is_full) {
        for (uint32_t next, id = s->lists[TURN].head; id != NIL; id = next) {
            next = s->apps[id].next;
            if (is_over(s, &s->apps[id]))
                end_slice(s, id);
        }
    }
    for (uint32_t next, id = last == NIL ? NIL : first; id != last; id = next) {
        next = s->apps[id].next;
        if (s->apps[id].is_chosen && is_over(s, &s->apps[id]))
            end_slice(s, id);
    }
    s->last = last;
}

/* Pass 3: greedily along the line into `room`. Each list returns the room that is left. */
static uint64_t choose_turn(struct gm_sched *s, uint64_t room)
{
    uint32_t sent = NIL; /* the last whose turn ended early */
    for (uint32_t next, id = s->lists[TURN].head; id != NIL; id = next) {
        struct app *a = &s->apps[id];
        next = a->next;
        if (!a->is_stuck && a->bytes > room && (a->has_rest || is_too_large(s, a))) {
            end_slice(s, id); /* met again in QUEUE */
            continue;
        }
        if (!a->is_stuck && a->bytes > room) {
            a->is_chosen = false;
            list_insert(s, id, QUEUE, sent);
            sent = id;
            continue;
        }
        room -= a->is_stuck ? 0 : a->bytes;
        set_add(s, id);
    }
    return room;
}

/* It did not drain, and somebody waits or it cannot stay: keep it, or ask again if that helps. */
static void choose_stuck(struct gm_sched *s, uint32_t id)
{
    struct app *a = &s->apps[id];
    if (s->overdue == NIL)
        s->overdue = id;
    if (is_held(s, a)) {
        set_add(s, id);
        return;
    }
    if (!s->is_asking && !s->is_overfull) {
        a->is_stuck = false; /* it borrows like any other */
        s->lapsed -= a->bytes;
        set_add(s, id);
        return;
    }
    a->is_chosen = false;
    if (a->is_wanting && !is_too_large(s, a))
        s->next[s->decision.n_next++] = id;
}

static void take_turn(struct gm_sched *s, uint32_t id)
{
    s->apps[id].has_rest = false;
    list_append(s, id, TURN);
}

static uint64_t choose_queue(struct gm_sched *s, uint64_t room)
{
    s->spare = room;
    bool is_behind = s->last != NIL; /* somebody waits behind */
    for (uint32_t next, id = s->lists[QUEUE].head; id != NIL; id = next) {
        struct app *a = &s->apps[id];
        next = a->next;
        if (id == s->last)
            is_behind = false;
        if (a->is_stuck && (s->is_tight || s->is_overfull)) {
            s->is_tight = true;
            choose_stuck(s, id);
        } else if (a->is_stuck) {
            if (!is_held(s, a)) {
                s->lapsed -= a->bytes;
                a->is_stuck = false;
            }
            set_add(s, id);
            take_turn(s, id);
        } else if (is_too_large(s, a)) {
            a->is_chosen = false;
        } else if (a->bytes > room) {
            s->is_tight = true;
            s->is_asking |= a->bytes - room <= s->lapsed;
            a->is_chosen = false;
            s->next[s->decision.n_next++] = id;
        } else if (!a->is_chosen && is_over(s, a) && is_behind) {
            end_slice(s, id); /* it was being closed and could stay, but others wait: met again */
        } else {
            room -= a->bytes;
            set_add(s, id);
            if (!s->is_tight) {
                s->spare = room;
                take_turn(s, id);
            } else if (a->bytes > 0 && s->borrower == NIL) {
                s->borrower = id;
            }
        }
    }
    return room;
}

static void choose_resting(struct gm_sched *s, uint64_t room)
{
    bool has_waiting = s->is_tight;
    bool is_free = !s->is_asking && !s->is_overfull; /* what may be asked rests like any other */
    room += is_free ? s->lapsed : 0;
    for (uint32_t id = s->lists[RESTING].tail; id != NIL; id = s->apps[id].prev) {
        struct app *a = &s->apps[id];
        a->is_stuck = a->is_stuck && !(is_free && !is_held(s, a));
        if (a->is_stuck && (has_waiting || s->is_overfull)) {
            choose_stuck(s, id);
        } else if (a->is_stuck) {
            set_add(s, id);
        } else if (a->bytes > room) {
            a->is_chosen = false;
            s->is_tight = true;
        } else {
            room -= a->bytes;
            set_add(s, id);
        }
    }
}

/*
 * When the decision will change by time alone. Somebody waits behind `a`: it has until the end of
 * its slice, which begins anew if it was over and `a` is in the set all the same.
 */
static uint64_t slice_end(const struct gm_sched *s, struct app *a)
{
    if (!a->is_chosen || !a->is_open)
        return GM_TIME_NEVER;
    if (is_over(s, a))
        a->turn_at = s->now;
    uint64_t end = sum_or_never(a->turn_at, s->config.quantum_ns);
    return a->is_stuck && end < a->stuck_until ? a->stuck_until : end;
}

/* Pass 4: to wake_at. */
static uint64_t wake_time(struct gm_sched *s)
{
    uint64_t wake = GM_TIME_NEVER;
    bool is_behind = false;                        /* somebody waits behind */
    bool is_asked = s->is_tight || s->is_overfull; /* what did not drain, in time */
    for (uint32_t id = s->lists[QUEUE].tail; id != NIL; id = s->apps[id].prev) {
        struct app *a = &s->apps[id];
        if (is_left_out(s, a))
            is_behind = true;
        else if (is_held(s, a) && is_asked)
            wake = sooner(wake, a->stuck_until);
        else if (!a->is_stuck && is_behind)
            wake = sooner(wake, slice_end(s, a));
    }
    for (uint32_t id = s->lists[TURN].head; id != NIL; id = s->apps[id].next) {
        struct app *a = &s->apps[id];
        if (is_behind)
            wake = sooner(wake, slice_end(s, a));
        if (is_held(s, a) && s->is_overfull)
            wake = sooner(wake, a->stuck_until);
    }
    for (uint32_t id = s->lists[RESTING].head; id != NIL; id = s->apps[id].next)
        if (is_held(s, &s->apps[id]) && is_asked)
            wake = sooner(wake, s->apps[id].stuck_until);
    return wake;
}

static void decide(struct gm_sched *s)
{
    s->decision.n_set = 0;
    s->decision.n_next = 0;
    s->senior = s->overdue = s->borrower = NIL;
    s->is_tight = s->is_asking = false;
    uint64_t room = take_stuck(s);
    end_slices(s, room);
    room = choose_turn(s, room);
    room = choose_queue(s, room);
    choose_resting(s, room);
    for (uint32_t id = s->lists[TURN].head; id != NIL && s->senior == NIL; id = s->apps[id].next)
        if (s->apps[id].bytes > 0)
            s->senior = id;
    s->decision.wake_at = wake_time(s);
}

/* ---- The interface ---- */

static size_t aligned(size_t bytes)
{
    return (bytes + 15) & ~(size_t)15;
}

size_t gm_sched_size(const struct gm_sched_config *config)
{
    size_t n = config->max_apps;
    if (n == 0 || n > APPS_MAX || config->budget == 0 || config->quantum_ns == 0 ||
        config->retry_ns == 0)
        return 0;
    return aligned(sizeof(struct gm_sched)) + aligned(n * sizeof(struct app)) +
           2 * aligned(n * sizeof(uint32_t));
}

struct gm_sched *gm_sched_init(void *memory, const struct gm_sched_config *config)
{
    size_t n = config->max_apps, size = gm_sched_size(config);
    if (size == 0 || !memory || (uintptr_t)memory % 16 != 0)
        return NULL;
    memset(memory, 0, size);
    struct gm_sched *s = memory;
    s->config = *config;
    s->apps = (struct app *)((char *)memory + aligned(sizeof *s));
    s->set = (uint32_t *)((char *)s->apps + aligned(n * sizeof(struct app)));
    s->next = (uint32_t *)((char *)s->set + aligned(n * sizeof(uint32_t)));
    for (enum place p = AWAY; p < PLACES; p++)
        s->lists[p] = (struct list){NIL, NIL};
    s->decision = (struct gm_sched_decision){.set = s->set, .next = s->next};
    decide(s);
    return s;
}

int gm_sched_step(struct gm_sched *sched, uint64_t now, const struct gm_sched_event *event,
                  struct gm_sched_decision *decision)
{
    int fault = GM_SCHED_OK;
    if (event->kind > GM_SCHED_ROOM)
        fault = GM_SCHED_BAD_EVENT;
    else if (event->kind < GM_SCHED_TIMER)
        fault = event->app < sched->config.max_apps
                    ? faults[event->kind][state_of(&sched->apps[event->app])]
                    : GM_SCHED_BAD_APP;
    if (fault == GM_SCHED_OK) {
        if (now > sched->now)
            sched->now = now;
        apply(sched, event);
        decide(sched);
    }
    *decision = sched->decision;
    return fault;
}

static enum gm_sched_reason reason_of(const struct gm_sched *s, const struct app *a,
                                      uint32_t *ahead)
{
    if (a->is_chosen) {
        if (is_held(s, a) && (is_too_large(s, a) || (a->place != TURN && s->overdue != NIL)))
            return GM_WHY_NOT_DRAINED;
        return s->is_tight && a->is_wanting ? GM_WHY_SLICE : GM_WHY_FITS;
    }
    if (!a->is_wanting)
        return GM_WHY_IDLE;
    if (is_too_large(s, a))
        return GM_WHY_ROOM;
    if (a->bytes <= s->spare) {
        *ahead = s->borrower;
        return GM_WHY_ROOM;
    }
    if (a->is_stuck) /* asked again for others */
        *ahead = s->decision.n_next > 0 ? s->next[0] : NIL;
    else
        *ahead = s->overdue != NIL ? s->overdue : s->senior;
    return GM_WHY_TURN;
}

bool gm_sched_account(const struct gm_sched *sched, uint64_t now, uint32_t app,
                      struct gm_sched_account *account)
{
    if (app >= sched->config.max_apps || !sched->apps[app].is_known)
        return false;
    const struct app *a = &sched->apps[app];
    uint64_t more = less(now, a->charged_at);
    bool is_waiting = a->is_wanting && !a->is_open;
    *account = (struct gm_sched_account){
        .run_ns = a->run_ns + (a->is_open ? more : 0),
        .wait_ns = a->wait_ns + (is_waiting ? more : 0),
        .slice_at = a->is_open && a->is_chosen ? a->turn_at : 0,
        .waiting_at = is_waiting ? a->waiting_at : 0,
        .bytes = a->bytes,
        .ahead = NIL,
    };
    account->reason = reason_of(sched, a, &account->ahead);
    if (account->ahead == app)
        account->ahead = NIL;
    return true;
}

uint64_t gm_sched_expect(const struct gm_sched *sched, uint64_t now, uint32_t app)
{
    if (app >= sched->config.max_apps || !sched->apps[app].is_known)
        return GM_TIME_NEVER;
    const struct app *a = &sched->apps[app];
    if (a->is_wanting)
        return now;
    if (a->period_ns == 0)
        return GM_TIME_NEVER;
    uint64_t at = sum_or_never(a->wanted_at, a->period_ns);
    return at >= now ? at : sum_or_never(now, now - at);
}

bool gm_sched_is_later(const struct gm_sched *sched, uint64_t now, uint32_t a, uint32_t b)
{
    uint64_t at_a = gm_sched_expect(sched, now, a), at_b = gm_sched_expect(sched, now, b);
    if (at_a != at_b)
        return at_a > at_b;
    at_a = sched->apps[a].wanted_at;
    at_b = sched->apps[b].wanted_at;
    return at_a != at_b ? at_a < at_b : a < b;
}

const char *gm_sched_reason_text(enum gm_sched_reason reason)
{
    switch (reason) {
    case GM_WHY_NONE:
        break;
    case GM_WHY_FITS:
        return "there is room";
    case GM_WHY_SLICE:
        return "its turn";
    case GM_WHY_IDLE:
        return "idle";
    case GM_WHY_TURN:
        return "another app's slice is not over";
    case GM_WHY_ROOM:
        return "does not fit beside the apps before it";
    case GM_WHY_NOT_DRAINED:
        return "did not drain, asked again later";
    }
    return "unknown";
}
