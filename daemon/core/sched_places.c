/*
 * Where each app stands: in one list of its rank, in one of the two beside the ranks, or in none.
 * The model is at the head of sched_step.c. Called by the scheduler's other files; calls none.
 */
#include "daemon/core/sched_places.h"

#include <assert.h>

#define NIL GM_SCHED_NIL

uint32_t gm_sched_rank_of(const struct gm_sched *s, const struct gm_sched_app *a)
{
    if (a->is_boosted)
        return GM_RANK_BOOSTED;
    if (a->policy.class == GM_CLASS_LATENCY)
        return GM_RANK_LATENCY;
    if (gm_sched_has_lead(a))
        return gm_sched_fresh(s, a) > 0 ? GM_RANK_RESTED : GM_RANK_LED;
    return a->level + GM_RANK_LED;
}

static struct gm_sched_list *list_of(struct gm_sched *s, enum gm_sched_place place, uint32_t rank)
{
    switch (place) {
    case GM_TURN:
        return &s->ranks[rank].turn;
    case GM_QUEUE:
        return &s->ranks[rank].queue;
    case GM_RESTING:
        return &s->resting;
    case GM_HELD:
        return &s->held;
    case GM_AWAY:
        break;
    }
    return NULL;
}

static void begin_anew(struct gm_sched_app *a)
{
    a->used_ns = 0;
    a->has_turn = false;
}

/* Slices of another rank have another length. What it has of a slice at its level stays while it
 * goes first. */
static void come_to_rank(struct gm_sched_app *a, uint32_t rank)
{
    const bool was_rested = gm_sched_is_rested(a->rank);
    const bool is_back = was_rested && rank == a->level_rank;
    const int64_t used_ns = is_back ? a->level_used_ns : 0;
    if (gm_sched_is_rested(rank) && !was_rested) {
        a->level_rank = a->rank > GM_RANK_LED ? a->rank : GM_RANKS;
        a->level_used_ns = a->used_ns;
    }
    begin_anew(a);
    a->used_ns = used_ns;
    a->rank = (uint8_t)rank;
}

void gm_sched_remove(struct gm_sched *s, uint32_t id)
{
    struct gm_sched_app *a = &s->apps[id];
    struct gm_sched_list *l = list_of(s, (enum gm_sched_place)a->place, a->rank);
    if (!l)
        return;
    *(a->prev == NIL ? &l->head : &s->apps[a->prev].next) = a->next;
    *(a->next == NIL ? &l->tail : &s->apps[a->next].prev) = a->prev;
    a->place = GM_AWAY;
}

void gm_sched_insert(struct gm_sched *s, uint32_t id, enum gm_sched_place place, uint32_t rank,
                     uint32_t after)
{
    struct gm_sched_app *a = &s->apps[id];
    struct gm_sched_list *l = list_of(s, place, rank);
    assert(after != id);
    gm_sched_remove(s, id);
    if (a->rank != rank)
        come_to_rank(a, rank);
    if (!l)
        return;
    a->place = (uint8_t)place;
    a->prev = after;
    a->next = after == NIL ? l->head : s->apps[after].next;
    *(a->prev == NIL ? &l->head : &s->apps[a->prev].next) = id;
    *(a->next == NIL ? &l->tail : &s->apps[a->next].prev) = id;
}

static bool stands_by(const struct gm_sched *s, const struct gm_sched_app *a)
{
    return gm_sched_is_too_large(s, a) || (a->is_tied && !a->is_open);
}

/* Whose turn began first after the last of a's user, itself included; NIL: none, or that user has
 * no turn. */
static uint32_t junior_of(const struct gm_sched *s, const struct gm_sched_app *a, uint32_t rank)
{
    uint32_t junior = NIL, id = s->ranks[rank].turn.tail;
    for (; id != NIL && s->apps[id].user != a->user; id = s->apps[id].prev)
        junior = id;
    return id != NIL ? junior : NIL;
}

/*
 * Behind whom an app enters QUEUE, but not before `least`: from the last of its own user on, or
 * else from there, it passes the first that it meets of each other user, and stops at a second of
 * any. So before each app of a user there is one of each other user since the last, whatever their
 * numbers. If the last one is in TURN, those from `junior` on are met first, which stand there.
 * With one user: the tail. Who is too large or tied has no turn, and counts for nothing.
 */
static uint32_t find_entry(struct gm_sched *s, const struct gm_sched_app *a,
                           const struct gm_sched_list *l, uint32_t least, uint32_t junior)
{
    uint32_t after = l->tail;
    if (s->n_users < 2)
        return after;
    while (after != least && (s->apps[after].user != a->user || stands_by(s, &s->apps[after])))
        after = s->apps[after].prev;
    s->mark++;
    for (uint32_t id = after == least ? junior : NIL; id != NIL; id = s->apps[id].next)
        if (!stands_by(s, &s->apps[id]))
            s->users[s->apps[id].user].seen = s->mark;
    for (uint32_t id = after == NIL ? l->head : s->apps[after].next; id != NIL;
         id = s->apps[id].next) {
        struct gm_sched_user *user = &s->users[s->apps[id].user];
        if (stands_by(s, &s->apps[id]))
            continue;
        if (user->seen == s->mark)
            break;
        user->seen = s->mark;
        after = id;
    }
    return after;
}

void gm_sched_append(struct gm_sched *s, uint32_t id, enum gm_sched_place place, uint32_t rank)
{
    struct gm_sched_list *l = list_of(s, place, rank);
    const struct gm_sched_app *a = &s->apps[id];
    if (l && a->place == place && a->rank == rank && l->tail == id)
        return;
    /* Who goes behind others in it has no place before where it stood. */
    const uint32_t stood = a->place == GM_QUEUE && a->rank == rank ? a->prev : NIL;
    const bool comes = place == GM_QUEUE && a->place != GM_QUEUE && s->n_users > 1;
    const uint32_t junior = comes ? junior_of(s, a, rank) : NIL;
    gm_sched_remove(s, id);
    const uint32_t tail = l ? l->tail : NIL;
    gm_sched_insert(s, id, place, rank,
                    place == GM_QUEUE ? find_entry(s, a, l, stood, junior) : tail);
}

void gm_sched_stand(struct gm_sched *s, uint32_t id)
{
    struct gm_sched_app *a = &s->apps[id];
    enum gm_sched_place place = GM_QUEUE;
    uint32_t rank = gm_sched_rank_of(s, a);

    if (!gm_sched_is_eligible(a) && (a->is_open || a->is_wanting))
        place = GM_HELD;
    else if (!a->is_wanting)
        place = a->is_open ? GM_RESTING : GM_AWAY;
    if (place == GM_QUEUE && (a->place == GM_TURN || a->place == GM_QUEUE) && a->rank == rank)
        return;
    if (place == GM_QUEUE && a->place == GM_HELD) {
        a->queued_at = s->now;
        if (!a->is_open)
            begin_anew(a);
    }
    if (place == GM_HELD || place == GM_AWAY) {
        a->is_chosen = false;
        a->is_boosted = false;
        rank = gm_sched_rank_of(s, a);
    }
    if (place == GM_QUEUE && a->place == GM_TURN && rank == GM_RANK_LED) {
        gm_sched_insert(s, id, GM_TURN, rank,
                        NIL); /* it goes on before those who came back earlier */
        a->has_turn = true;
    } else if (a->place != place || a->rank != rank) {
        gm_sched_append(s, id, place, rank);
    }
}
