/*
 * The decision: the set, the timeline and wake_at, made anew after each event in one pass along the
 * ranks. The model is at the head of sched_step.c.
 */
#include "daemon/core/sched_decide.h"

#include "daemon/core/sched_levels.h"
#include "daemon/core/sched_places.h"
#include "daemon/core/sched_users.h"

#define NIL GM_SCHED_NIL

/* A pass along one rank. */
struct walk {
    struct gm_sched_rank *rank;
    uint32_t number;   /* of the rank */
    uint64_t room;     /* left of the budget */
    uint64_t before;   /* ... beside the better ranks */
    uint64_t spare;    /* ... and beside those of this rank whose turn it is */
    uint32_t borrower; /* the first borrower that has bytes, or NIL */
    uint64_t ahead_ns; /* the slices of those before it on the timeline */
    bool is_loading;   /* one of it, or of a better one, has its turn and not yet its memory */
    bool is_blocked;   /* somebody of this rank is left out */
    bool is_short;     /* ... for want of room */
    bool is_yielding;  /* the second pass, along those who yield */
};

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void set_add(struct gm_sched *s, uint32_t id)
{
    if (!s->apps[id].is_chosen)
        gm_sched_charge(s, id); /* it waited for others up to here */
    s->apps[id].is_chosen = true;
    s->set[s->decision.n_set++] = id;
    if (s->first == NIL && s->apps[id].bytes > 0)
        s->first = id;
}

static void next_add(struct gm_sched *s, uint32_t id)
{
    s->next[s->decision.n_next++] = id;
}

/* ---- What did not drain has its room, wherever it stands ---- */

static void take_stuck_of(struct gm_sched *s, const struct gm_sched_list *list)
{
    for (uint32_t next, id = list->head; id != NIL; id = next) {
        struct gm_sched_app *a = &s->apps[id];
        next = a->next;
        if (!a->is_stuck)
            continue;
        if (a->place == GM_TURN && !gm_sched_is_held(s, a)) {
            if (gm_sched_is_too_large(s, a))
                gm_sched_append(s, id, GM_QUEUE, a->rank); /* and is met there */
            else
                a->is_stuck = false; /* it is its turn: as if nothing had been */
            continue;
        }
        s->users[a->user].late_in = s->passes;
        s->is_overfull |= a->bytes > s->free;
        s->free = gm_less(s->free, a->bytes);
        if (!gm_sched_is_held(s, a))
            s->lapsed = gm_sum_or_never(s->lapsed, a->bytes);
    }
}

static void take_stuck(struct gm_sched *s)
{
    s->free = s->config.budget;
    s->is_overfull = false;
    s->lapsed = 0;
    for (uint32_t rank = 0; rank < GM_RANKS; rank++)
        take_stuck_of(s, &s->ranks[rank].turn);
    for (uint32_t rank = 0; rank < GM_RANKS; rank++)
        take_stuck_of(s, &s->ranks[rank].queue);
    take_stuck_of(s, &s->resting);
    take_stuck_of(s, &s->held);
}

/* ---- Slices that are over go behind those who wait, and begin anew there if there is room ---- */

/* One whose turn it is has not all of its memory yet. */
static bool is_loading(const struct gm_sched *s, const struct gm_sched_rank *r)
{
    for (uint32_t id = r->turn.head; id != NIL; id = s->apps[id].next)
        if (s->apps[id].is_chosen && !s->apps[id].is_open && s->apps[id].bytes > 0)
            return true;
    return false;
}

/* What it has left of its turn. A boosted one has no more than its slice. */
static uint64_t left_of_turn(const struct gm_sched *s, const struct gm_sched_app *a,
                             bool has_loading)
{
    if (!has_loading || a->rank == GM_RANK_BOOSTED)
        return gm_sched_left(s, a);
    const int64_t left = 2 * (int64_t)gm_sched_slice(s, a) - a->used_ns;
    return left > 0 ? (uint64_t)left : 0;
}

/* Its turn is over: it ends as soon as somebody of its rank waits behind it. */
static bool is_over(const struct gm_sched *s, const struct gm_sched_app *a, bool has_loading)
{
    return a->is_open && !a->is_stuck && left_of_turn(s, a, has_loading) == 0;
}

static void end_slice(struct gm_sched *s, uint32_t id)
{
    struct gm_sched_app *a = &s->apps[id];
    gm_sched_end_turn(s, a);
    a->slice_at = s->now;
    a->is_boosted = false;
    gm_sched_append(s, id, GM_QUEUE, gm_sched_rank_of(s, a));
}

static void end_slices(struct gm_sched *s, struct walk *w)
{
    struct gm_sched_rank *r = w->rank;
    uint32_t last = r->queue.tail; /* who waits: all before have somebody behind */
    while (last != NIL && !gm_sched_is_left_out(s, &s->apps[last]))
        last = s->apps[last].prev;

    bool is_full = false; /* somebody of TURN will have to wait */
    uint64_t room = w->room;
    for (uint32_t id = r->turn.head; id != NIL; id = s->apps[id].next) {
        const struct gm_sched_app *a = &s->apps[id];
        is_full |= !a->is_stuck && a->bytes > room;
        room = a->is_stuck ? room : gm_less(room, a->bytes);
    }

    uint32_t first = r->queue.head;
    if (last != NIL || is_full) {
        for (uint32_t next, id = r->turn.head; id != NIL; id = next) {
            next = s->apps[id].next;
            if (is_over(s, &s->apps[id], w->is_loading && !is_full))
                end_slice(s, id);
        }
    }
    for (uint32_t next, id = last == NIL ? NIL : first; id != last; id = next) {
        next = s->apps[id].next;
        if (s->apps[id].is_chosen && is_over(s, &s->apps[id], w->is_loading))
            end_slice(s, id);
    }
}

/* ---- Greedily along the rank ---- */

static void choose_turn(struct gm_sched *s, struct walk *w)
{
    uint32_t sent = NIL; /* the last whose turn ended early */
    for (uint32_t next, id = w->rank->turn.head; id != NIL; id = next) {
        struct gm_sched_app *a = &s->apps[id];
        next = a->next;
        if (gm_sched_is_yielding(s, a) != w->is_yielding)
            continue;
        if (a->is_stuck || a->bytes <= w->room) {
            w->room -= a->is_stuck ? 0 : a->bytes;
            set_add(s, id);
            if (a->bytes > 0)
                w->ahead_ns = gm_sum_or_never(w->ahead_ns, gm_sched_left(s, a));
            if (w->rank->senior == NIL && a->bytes > 0)
                w->rank->senior = id;
            continue;
        }
        if (gm_sched_has_little(s, a) || gm_sched_is_too_large(s, a)) {
            end_slice(s, id); /* met again in QUEUE */
        } else {
            a->is_chosen = false;
            gm_sched_insert(s, id, GM_QUEUE, w->number, sent);
            sent = id;
        }
    }
    w->spare = w->room;
}

/* It did not drain, and somebody waits or it cannot stay: keep it, or ask again if that helps. */
static void choose_stuck(struct gm_sched *s, uint32_t id)
{
    struct gm_sched_app *a = &s->apps[id];
    if (s->overdue == NIL)
        s->overdue = id;
    if (gm_sched_is_held(s, a)) {
        set_add(s, id);
        return;
    }
    if (!s->is_asking && !s->is_overfull && gm_sched_is_eligible(a)) {
        a->is_stuck = false; /* it borrows like any other */
        s->has_drained = true;
        s->lapsed -= a->bytes;
        set_add(s, id);
        return;
    }
    a->is_chosen = false;
    if (a->is_wanting && !gm_sched_is_too_large(s, a) && gm_sched_is_eligible(a))
        next_add(s, id);
}

static void take_turn(struct gm_sched *s, struct walk *w, uint32_t id)
{
    gm_sched_append(s, id, GM_TURN, w->number);
    s->apps[id].has_turn = true;
    if (w->rank->senior == NIL && s->apps[id].bytes > 0)
        w->rank->senior = id;
    w->spare = w->room;
}

/* It does not fit: say for whom it waits. Of its own rank and better ones only those can be in its
 * way that are in the set already. */
static void leave_out(struct gm_sched *s, struct walk *w, uint32_t id)
{
    struct gm_sched_app *a = &s->apps[id];
    s->is_tight = w->is_blocked = w->is_short = w->rank->has_left = true;
    s->is_asking |= a->bytes > w->room && a->bytes - w->room <= s->lapsed;
    if (a->is_chosen)
        gm_sched_charge(s, id); /* ... and does again */
    a->is_chosen = false;
    next_add(s, id);
    s->needs_boost |= gm_sched_needs_boost(s, a);
    a->slice_in = w->ahead_ns;
    w->ahead_ns = gm_sum_or_never(w->ahead_ns, gm_sched_left(s, a));
    if (w->is_yielding) {
        a->why = GM_WHY_OTHER_USER;
        a->ahead = NIL;
    } else if (a->bytes <= w->spare) {
        a->why = GM_WHY_ROOM;
        a->ahead = w->borrower;
    } else if (a->bytes <= w->before) {
        a->why = GM_WHY_TURN;
        a->ahead = w->rank->senior;
    } else if (a->bytes <= s->free) {
        a->why = GM_WHY_PRIORITY;
        a->ahead = s->first;
    } else {
        a->why = GM_WHY_TURN;
        a->ahead = NIL; /* of one that did not drain: gm_sched_account knows */
    }
}

/* While an app of its user keeps room that it should not have, and somebody waits, it waits as
 * well: else one after the other could begin beside that, grow, and not drain. */
static bool may_begin(struct gm_sched *s, const struct gm_sched_app *a)
{
    const bool is_late =
        s->n_users > 1 && s->is_tight && !a->is_open && s->users[a->user].late_in == s->passes;
    s->has_late |= is_late;
    return !is_late;
}

/* Its gate is closed, and it is tied. If it could have its turn, or room that others leave, it is
 * ready, and keeps its place; who stands behind it borrows the room. */
static void stand_by(struct gm_sched *s, struct walk *w, uint32_t id)
{
    struct gm_sched_app *a = &s->apps[id];
    a->is_ready = a->bytes <= (w->is_short ? w->room : w->spare) && may_begin(s, a);
    if (!a->is_ready) {
        leave_out(s, w, id);
        return;
    }
    if (a->is_chosen)
        gm_sched_charge(s, id);
    w->is_blocked = w->rank->has_left = true;
    a->is_chosen = false;
    next_add(s, id);
    s->needs_boost |= gm_sched_needs_boost(s, a);
    a->slice_in = w->ahead_ns;
    a->why = GM_WHY_TIED;
    a->ahead = NIL;
}

/* It used up its next slice while it drained, or too much of it to be worth a switch, and an app
 * that could run stands behind it. One that still drains is judged when it is closed, or could
 * stay. */
static bool forfeits_turn(const struct gm_sched *s, const struct gm_sched_app *a, uint64_t room)
{
    const bool is_running = a->is_open && (a->is_chosen || a->bytes > room);
    if (is_running || !gm_sched_has_little(s, a))
        return false;
    uint32_t behind = a->next;
    while (behind != NIL && gm_sched_is_too_large(s, &s->apps[behind]))
        behind = s->apps[behind].next;
    return behind != NIL;
}

static void choose_queue(struct gm_sched *s, struct walk *w)
{
    for (uint32_t next, id = w->rank->queue.head; id != NIL; id = next) {
        struct gm_sched_app *a = &s->apps[id];
        next = a->next;
        if (gm_sched_is_yielding(s, a) != w->is_yielding)
            continue;
        if (a->is_stuck && (s->is_tight || s->is_overfull)) {
            s->is_tight = w->is_blocked = true;
            choose_stuck(s, id);
        } else if (a->is_stuck) {
            if (!gm_sched_is_held(s, a)) {
                s->lapsed -= a->bytes;
                a->is_stuck = false;
                s->has_drained = true;
            }
            set_add(s, id);
            take_turn(s, w, id);
        } else if (gm_sched_is_too_large(s, a)) {
            a->is_chosen = a->is_ready = false;
        } else if (forfeits_turn(s, a, w->room)) {
            const uint32_t before = a->prev;
            end_slice(s, id); /* met again, at once where only its own user waits behind */
            next = before == NIL ? w->rank->queue.head : s->apps[before].next;
        } else if (a->is_tied && !a->is_open) {
            stand_by(s, w, id);
        } else if (a->bytes > w->room || !may_begin(s, a)) {
            leave_out(s, w, id);
        } else {
            w->room -= a->bytes;
            if (!a->is_chosen && gm_sched_has_little(s, a))
                a->used_ns = 0; /* no app waits for what it owes */
            set_add(s, id);
            if (!w->is_blocked)
                take_turn(s, w, id);
            else if (a->bytes > 0 && w->borrower == NIL)
                w->borrower = id;
        }
    }
}

static void choose_resting(struct gm_sched *s, uint64_t room)
{
    bool has_waiting = s->is_tight;
    bool is_free = !s->is_asking && !s->is_overfull; /* what may be asked rests like any other */
    room += is_free ? s->lapsed : 0;
    for (uint32_t id = s->resting.tail; id != NIL; id = s->apps[id].prev) {
        struct gm_sched_app *a = &s->apps[id];
        const bool is_stuck = a->is_stuck && !(is_free && !gm_sched_is_held(s, a));
        s->has_drained |= a->is_stuck && !is_stuck;
        a->is_stuck = is_stuck;
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

/* Who may not run is in the set only while it does not drain. */
static void choose_held(struct gm_sched *s)
{
    for (uint32_t id = s->held.head; id != NIL; id = s->apps[id].next) {
        s->apps[id].is_chosen = false;
        if (s->apps[id].is_stuck && gm_sched_is_held(s, &s->apps[id]))
            choose_stuck(s, id);
    }
}

/* ---- When the decision will change by time alone ---- */

/*
 * Somebody waits behind `a`: it has until the end of its slice, and longer while another one is
 * loading. The slice begins anew if it was over and `a` is in the set all the same.
 */
static uint64_t slice_end(const struct gm_sched *s, struct gm_sched_app *a, bool has_loading)
{
    if (!a->is_chosen || !a->is_open || !a->is_wanting)
        return GM_TIME_NEVER;
    if (is_over(s, a, has_loading)) {
        a->used_ns = 0;
        a->slice_at = s->now;
    }
    uint64_t end = gm_sum_or_never(s->now, left_of_turn(s, a, has_loading));
    return a->is_stuck && end < a->stuck_until ? a->stuck_until : end;
}

static uint64_t rank_wake(struct gm_sched *s, uint32_t rank, bool has_loading)
{
    const struct gm_sched_rank *r = &s->ranks[rank];
    bool is_asked = s->is_tight || s->is_overfull; /* what did not drain, in time */
    /* Somebody waits behind. Behind those who go first, whoever waits. */
    bool is_behind = rank == GM_RANK_BOOSTED && s->decision.n_next > 0;
    uint64_t wake = GM_TIME_NEVER;
    for (uint32_t id = r->queue.tail; id != NIL; id = s->apps[id].prev) {
        struct gm_sched_app *a = &s->apps[id];
        if (gm_sched_is_left_out(s, a))
            is_behind = true;
        else if (gm_sched_is_held(s, a) && is_asked)
            wake = sooner(wake, a->stuck_until);
        else if (!a->is_stuck && is_behind)
            wake = sooner(wake, slice_end(s, a, has_loading));
    }
    for (uint32_t id = r->turn.head; id != NIL; id = s->apps[id].next) {
        struct gm_sched_app *a = &s->apps[id];
        if (is_behind)
            wake = sooner(wake, slice_end(s, a, has_loading));
        if (gm_sched_is_held(s, a) && is_asked) /* it may be in the way of better ranks */
            wake = sooner(wake, a->stuck_until);
    }
    return wake;
}

static uint64_t wake_time(struct gm_sched *s)
{
    uint64_t wake = sooner(gm_sched_settle_at(s), gm_sched_users_at(s));
    bool is_asked = s->is_tight || s->is_overfull;
    bool is_any_loading = false;
    for (uint32_t rank = 0; rank < GM_RANKS; rank++) {
        is_any_loading = is_any_loading || is_loading(s, &s->ranks[rank]);
        wake = sooner(wake, rank_wake(s, rank, is_any_loading));
    }
    for (uint32_t id = s->resting.head; id != NIL; id = s->apps[id].next)
        if (gm_sched_is_held(s, &s->apps[id]) && is_asked)
            wake = sooner(wake, s->apps[id].stuck_until);
    for (uint32_t id = s->held.head; id != NIL; id = s->apps[id].next)
        if (gm_sched_is_held(s, &s->apps[id]))
            wake = sooner(wake, s->apps[id].stuck_until);
    return wake;
}

/* Along the ranks once more: those who yield have what is left. */
static void choose_yielding(struct gm_sched *s, struct walk *w)
{
    w->is_yielding = true;
    for (uint32_t rank = GM_RANK_LED + 1; s->has_yielding && rank < GM_RANKS; rank++) {
        w->rank = &s->ranks[rank];
        w->number = rank;
        w->before = w->room;
        w->borrower = NIL;
        w->is_blocked = w->rank->has_left;
        w->is_short = false;
        choose_turn(s, w);
        choose_queue(s, w);
    }
}

static void decide_once(struct gm_sched *s)
{
    s->decision.n_set = 0;
    s->decision.n_next = 0;
    s->first = s->overdue = NIL;
    s->is_tight = s->is_asking = s->needs_boost = s->has_late = s->has_drained = false;
    s->passes++;
    gm_sched_settle(s);
    gm_sched_settle_users(s);
    take_stuck(s);
    struct walk w = {.room = s->free};
    for (uint32_t rank = 0; rank < GM_RANKS; rank++) {
        w.rank = &s->ranks[rank];
        w.number = rank;
        w.before = w.room;
        w.borrower = w.rank->senior = NIL;
        w.is_blocked = w.is_short = w.rank->has_left = false;
        w.is_loading = w.is_loading || is_loading(s, w.rank);
        end_slices(s, &w);
        choose_turn(s, &w);
        choose_queue(s, &w);
    }
    choose_yielding(s, &w);
    choose_resting(s, w.room);
    choose_held(s);
}

void gm_sched_decide(struct gm_sched *s)
{
    /* An app that the decision leaves out may have waited for too long already, as the wait for its
     * memory counts. Each pass boosts one more. */
    do
        decide_once(s);
    while (s->needs_boost || (s->has_late && s->has_drained));
    s->has_waiting = s->decision.n_next > 0;
    s->decision.wake_at = wake_time(s);
}
