/*
 * The multi-level feedback queue behind core/sched.h. Pure: see the header. Called by the engine
 * (and the simulation) only.
 *
 * Ranks. Every app has a rank, the best first: boosted apps, which waited for too long; class
 * `latency`; who came back from a rest and ran for a sixteenth of S since at most; who ran for
 * longer; then the levels, 1 to K. Within a rank apps take turns, and stand in one of two
 * lists:
 *
 *   TURN     apps whose turn it is, the most senior first. An app that was chosen and is not open
 *            yet (its memory is being moved) keeps its turn.
 *   QUEUE    apps that want the GPU and wait for their turn, the longest wait first. They enter at
 *            the tail: when their turn ends, when they come to this rank, when they want the GPU;
 *            with apps of several users they enter by user, see below.
 *
 * Beside the ranks there are RESTING, apps that want nothing and whose gate is open, the least
 * recently runnable first, and HELD, apps that may not run by their settings. An idle app with a
 * closed gate is in no list.
 *
 * After each event the set is made anew, greedily along the ranks, in each TURN and then QUEUE, and
 * last RESTING (from its tail: the least recently runnable is sent away first). So whatever fits
 * together runs together, the most important first. From QUEUE, an app takes its turn (moves to the
 * tail of TURN) when everybody before it in its rank is in the set. One that does not fit is
 * *blocked*; those behind it in its rank that fit are in the set as *borrowers*: they keep their
 * place in QUEUE, so the blocked app has the room as soon as it could run without them. If
 * everything fits, no app is ever paused.
 *
 * Users. Turns go by user first, by app of that user then, in each rank. An app enters QUEUE behind
 * the last of its user (else at the head), passes one app of each other user, and stops at a second
 * one of any. If the last of its user is in TURN, apps there whose turn began later are passed
 * already. So of two users who always want the GPU, and of whose apps no two fit beside each other,
 * each has every second turn, however many apps he has; where two fit, each has one place. With one
 * user this is the tail.
 * Across levels, apps of a user who had more yield to those of one who had less: sched_users.c.
 *
 * Levels (Nixie section 6). An app of class `auto` begins at level 1. When its run time since it
 * came to level p exceeds T(p) = T * 2^(p-1) it drops to p + 1. It rises from p, while it is idle,
 * when
 *
 *     i - R*q > T(p-1) + t
 *
 * and not before T(p) has passed at p: i, q and t are the times for which it was idle, waited for
 * others and ran since it came to p, and R = 1 / (N + 1), with the N apps at its level, as of now.
 * At level 1, with T(0) = 0, it stays where it is with i, q and t forgotten. So an app that is idle
 * for longer than it runs rises to level 1 and stays there however long it lives, and one that uses
 * all that it gets drops. Idleness is noticed late, and counts from when it began (ago_ns). Class
 * `interactive` is level 1 always, `batch` level K, `latency` before all levels; back in `auto`, an
 * app has the level and the charge that it had.
 *
 * Rests. Levels need seconds to tell who rests from who works, and say nothing of two apps that
 * began together: both load, which is work without a pause, and stand at the same level. So an app
 * of class `auto` or `interactive` that comes back from a rest goes before all levels, at once,
 * while it has time saved up:
 *
 *   - It begins with T(1), which is the most that it can save up, too.
 *   - A rest earns it what each of those who wanted the GPU had of it meanwhile, on average and by
 *     its weight (fair_ns), less an eighth of what the app ran before: so much is a pause in work.
 *     Who rests for less than a switch takes earns nothing, as nobody else has the GPU yet.
 *   - All the time costs that others wait for it: what it runs, and the move of its memory before.
 *   - It goes first if it has saved up an eighth of S, until it rests or that is used up. Those who
 *     go first at the same time take turns of that length. Who ran for more than a sixteenth of S
 *     since it came back goes behind those who did not (rank LED): a program that was loaded and
 *     then works without a pause has come back, too, and is no request. It goes on in its turn, and
 *     has a whole one there: a longer request is not interrupted for one who came back before.
 *   - Where there are several users, a user's apps together go first for no longer than the user's
 *     part of the time, and T(1) once. So more apps, and new ones, gain nothing.
 *
 * So while others wait, an app runs before its turn for no longer than it left the GPU to each of
 * the others, and T(1) once. What it runs so is taken off its slice at its level as well: the
 * account below already gives back what a rest took of a slice, and nobody is paid twice. With one
 * level (round robin) nobody goes first.
 *
 * Slices. A slice is S(p) = S * 2^(p-1) of run time (weights: gm_sched_slice). Each app has one
 * account, used_ns, of what it used of its slice. A turn ends when
 *
 *   - the slice is used up and somebody of its rank waits behind it (not else), unless somebody
 *     before him is being loaded: the link serves one after the other, so he could not begin
 * sooner, and nobody might run meanwhile. Then the turn goes on until that is loaded, but for one
 * slice more at most, and nothing is owed for it;
 *   - the app goes idle; or
 *   - it has to make room for a better rank, or for growth, with less than an eighth of its slice
 *     left, which is not worth a switch. With more left it goes to the *head* of QUEUE, and goes on
 *     when there is room again.
 *
 * At the end of a turn what is left of the slice stays in the account, below 0, and is added to the
 * next slice. What the app runs while it drains is charged as well, and is taken off the next
 * slice; if that leaves less than an eighth of it, the turn is over before it begins, once somebody
 * stands behind. So over time an app that uses its turns has exactly its slices, however long
 * drains take and however often it is idle in between. It stands at the tail in each case: one
 * whose turn idleness ended waits for a turn of each of the others, and loses no run time by that
 * if it runs for a slice or more between its pauses. (If it runs for less, it has a turn a round
 * for what it runs.)
 *
 * An app may submit all the time and hardly use the GPU: an empty kernel every 10 ms. Idleness
 * never ends such a turn. When the engine has found that out (WASTE), the turn is charged as one
 * that was used: to its slice, to its level and to what it goes first for. So the others wait for
 * no more of it, and its level is that of who had as many turns.
 *
 * The account stays within one slice either way: an app saves up one at most, and owes one at most.
 * It begins anew, at 0, after idleness of more than a round, at another level, and when the app may
 * run again that was paused or had used up its share. A new slice begins at once, with 0, if a
 * slice is used up and the app stays in the set.
 *
 * An app that did not drain (BUSY) is in the set for retry_ns whatever its turn, and its bytes
 * count. Then, if somebody who waits before it could run without it, it is taken out of the set,
 * which asks it again; but its bytes count until it is closed, so that the others do not move for
 * an attempt that fails.
 *
 * A tied app is one that needs other GPUs, too. It stands in line, grows old and goes first like
 * any other, but does not take its turn: those behind it are borrowers. While it could have its
 * turn it is ready. It is untied when it is ready on all its GPUs, and then takes all of its turns
 * at once. So nobody holds a GPU while it waits for another one; and it waits no longer than the
 * longest of what an app of its rank waits on each of them, as who goes first stays ready.
 *
 * Where there are several users, and somebody is left out, no other app of a user begins while one
 * of that user's did not drain.
 *
 * Growth: when those whose turn it is do not fit together any more, slices that are used up end
 * first; then the most junior turns that do not fit end early, whoever grew. So growth of one app
 * never takes the turn of a more senior one, and the most senior of a rank is never sent away for
 * one of its own rank, as it fits alone.
 *
 * Shares: an app with a limit may run as long as it has credit, which grows at the rate of its
 * share up to that share of GM_SCHED_SHARE_WINDOW_NS; without credit it is HELD until half of that
 * is there again. So in any time W it runs for at most share * (W + WINDOW), and for what it takes
 * to drain each time. What it runs beyond its credit it owes, up to WINDOW; but what it owes when
 * it did not drain, which may not be its fault, is paid within GM_SCHED_DEBT_WINDOWS * WINDOW
 * whatever its share. This account is apart from that of slices: it limits an app that is alone.
 *
 * What an app can expect. In its own rank it waits for one round: a turn of each of the others,
 * which is a slice, and what was left of the one before. For an app whose turn ends stands behind
 * all who wait. Where u users want the GPU at its rank, and it is one of k of its user, a round is
 * k * u turns: one of each user before each of those of its own. So the apps of other users make it
 * no longer.
 *
 * For apps of better ranks it waits as long as those want the GPU; an app that wants it all the
 * time drops in the end below or beside it, but many that rest now and then, or one that is set to
 * be more important, may not. Therefore aging: an app that has waited for patience_ns longer than a
 * round of its rank is boosted: it gets a slice S before everybody else; boosted apps take turns as
 * in any rank, and no app stands before them. So an app of the lowest priority gets at the very
 * least a slice S in patience_ns + round + what gm_sched_bound says of the rest, and more as soon
 * as the others leave anything. With n apps of u users that are runnable or open at some time
 * during the wait, all of which drain, it waits at most
 *
 *     patience + m * L  +  m * (S + drain + load) + drain + load,    m = u * (n - u + 1)
 *
 * with L the longest slice there can be, and the longest drain and load there are (m is n for one
 * user): it is boosted after a round of at most m slices, and then each of the others that go
 * before has one slice S, opens after others have drained and its memory was moved, and goes. This
 * takes an engine that begins to move memory for an app only if all before it in the set have, or
 * could have, theirs. An app larger than the budget never runs and keeps no app waiting.
 *
 * Signals: a program that handles a signal may have to return from its call first. So an app that
 * waits and tells of one (HURRY) is boosted at once, but for GM_SCHED_HURRY_NS only. Programs can
 * say so whenever they like. Therefore an app gets that once in GM_SCHED_HURRY_AGAIN_NS, all apps
 * of a user together once in GM_SCHED_HURRY_USER_NS, and nobody while an app of class `latency`
 * wants the GPU.
 *
 * Time: nothing is done by tick. Times are charged on the edges, so charged time is run time.
 * wake_at is the next end of a slice that somebody waits for, change of a level that somebody waits
 * behind, boost, end of a share, or the time to ask again an app that did not drain: none while
 * there is room for all and no share is limited. A step costs a few passes over the lists, O(apps
 * in them), and sorts nothing.
 */
#include "daemon/core/sched_step.h"

#include "daemon/core/sched_decide.h"
#include "daemon/core/sched_levels.h"
#include "daemon/core/sched_places.h"
#include "daemon/core/sched_users.h"

#include <assert.h>
#include <string.h>

/* An app gets such a turn so often: who ends needs one, and profilers send signals all the
 * time. */
#define GM_SCHED_HURRY_AGAIN_NS (30 * GM_S)
/* ... and all apps of a user together so often: with the two switches 0.6 s, 6 % of the others'
 * time, however many programs a user starts and signals. */
#define GM_SCHED_HURRY_USER_NS (10 * GM_S)

#define NIL GM_SCHED_NIL
#define APPS_MAX (1u << 20) /* keeps every size below far from overflow */
/* The longest slice doubled per level times a weight stays within 64 bits. */
#define SLICE_MAX (1ull << 42)
#define ALLOTMENT_MAX (1ull << 54)

/* ---- Events ---- */

enum state { ABSENT, SHUT, CHOSEN, OPEN, STATES };

static enum state state_of(const struct gm_sched_app *a)
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
    [GM_SCHED_HURRY] =    { BAD_APP,   0,         0,         0 },
    [GM_SCHED_TIE] =      { BAD_APP,   0,         0,         0 },
    [GM_SCHED_UNTIE] =    { BAD_APP,   0,         0,         0 },
    [GM_SCHED_WASTE] =    { BAD_APP,   0,         0,         0 },
};
/* clang-format on */

/* The place of `user`, for one more app of his. There are no more users than apps. */
static uint32_t enter_user(struct gm_sched *s, uint32_t user)
{
    uint32_t free = NIL, at = 0;
    while (at < s->config.max_apps && (s->users[at].n_apps == 0 || s->users[at].user != user)) {
        if (s->users[at].n_apps == 0 && (free == NIL || s->users[at].user == user))
            free = at;
        at++;
    }
    if (at == s->config.max_apps) {
        at = free;
        const bool was_here = s->users[at].user == user;
        s->users[at] = (struct gm_sched_user){.user = user,
                                              .lead_ns = s->config.allotment_ns,
                                              .lead_at = s->now,
                                              .hurry_from = was_here ? s->users[at].hurry_from : 0,
                                              .used_ns = was_here ? s->users[at].used_ns : 0,
                                              .best = GM_RANKS,
                                              .is_new = !was_here};
        s->n_users++;
    }
    s->users[at].n_apps++;
    return at;
}

/* One that comes back stands where it stood, and has saved up nothing. */
static void stand_again(struct gm_sched *s, struct gm_sched_app *a, uint32_t level,
                        uint64_t charged_ns)
{
    a->level = level < s->config.levels ? level : s->config.levels;
    const uint64_t allotment = gm_sched_allotment(s, a);
    a->level_run = charged_ns < allotment ? charged_ns : allotment;
    a->rested_ns = 0;
}

static void app_joins(struct gm_sched *s, const struct gm_sched_event *event)
{
    struct gm_sched_app *a = &s->apps[event->app];
    memset(a, 0, sizeof *a);
    a->is_known = true;
    a->charged_at = a->changed_at = s->now;
    a->level = 1;
    a->user = enter_user(s, event->user);
    a->n_of_user = 1;
    a->policy.weight = GM_SCHED_WEIGHT;
    a->policy.share = GM_SCHED_SHARE_ALL;
    a->ahead = NIL;
    a->credit_ns = GM_SCHED_SHARE_WINDOW_NS; /* a whole burst, whatever its limit */
    a->unlimited_at = s->now;
    a->rested_ns = s->config.allotment_ns; /* its first requests come before it could rest */
    if (event->level > 0)
        stand_again(s, a, event->level, event->charged_ns);
    a->auto_level = a->level;
    s->at_level[a->level]++;
}

static void app_leaves(struct gm_sched *s, uint32_t id)
{
    s->at_level[s->apps[id].level]--;
    gm_sched_remove(s, id);
    struct gm_sched_user *user = &s->users[s->apps[id].user];
    s->n_users -= --user->n_apps == 0;
    memset(&s->apps[id], 0, sizeof s->apps[id]);
}

/* The lesser of the two in the middle if their number is even. */
static uint64_t median_gap(const struct gm_sched_app *a)
{
    uint64_t sorted[GM_SCHED_GAPS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < GM_SCHED_GAPS && i < a->n_gaps; i++) {
        uint32_t at = n++;
        for (; at > 0 && sorted[at - 1] > a->gaps[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = a->gaps[i];
    }
    return sorted[(n - 1) / 2];
}

/*
 * Half way between the median and the latest gap, if that is no more than twice as long nor less
 * than half: programs in turn whose turns become longer or shorter are in the wrong order by
 * medians, which come after, and programs whose turns vary are by the latest alone. Else the
 * median.
 */
static uint64_t usual_gap(const struct gm_sched_app *a)
{
    const uint64_t latest = a->gaps[(a->n_gaps - 1) % GM_SCHED_GAPS], median = median_gap(a);
    const bool is_usual = latest / 2 <= median && median / 2 <= latest;
    return is_usual ? median / 2 + latest / 2 : median;
}

/* What is known of when it wants. Not the mean: one long gap, as while a program waits for its
 * user, or a short one within a request would count for long, and the order of next use be wrong as
 * long. The first gap is its start, and counts only until there is another. */
static void note_want(const struct gm_sched *s, struct gm_sched_app *a)
{
    if (a->has_wanted) {
        if (a->n_gaps == 1 && !a->is_past_start) {
            a->n_gaps = 0;
            a->is_past_start = true;
        }
        a->gaps[a->n_gaps++ % GM_SCHED_GAPS] = s->now - a->wanted_at;
        if (a->n_gaps == 2 * GM_SCHED_GAPS)
            a->n_gaps = GM_SCHED_GAPS; /* the same place, and still all of them */
        a->period_ns = usual_gap(a);
    }
    a->wanted_at = s->now;
    a->has_wanted = true;
}

static void app_wants(struct gm_sched *s, uint32_t id)
{
    struct gm_sched_app *a = &s->apps[id];
    if (a->is_wanting)
        return;
    gm_sched_come_back(s, a);
    note_want(s, a);
    gm_sched_turn_into(s, id, a->is_open, true);
    gm_sched_stand(s, id);
}

static void app_rests(struct gm_sched *s, uint32_t id, uint64_t ago_ns)
{
    struct gm_sched_app *a = &s->apps[id];
    if (!a->is_wanting)
        return;
    gm_sched_turn_into(s, id, a->is_open, false);
    if (a->is_open) {
        uint64_t ran = s->now - a->running_at;
        gm_sched_take_back(s, a, ago_ns < ran ? ago_ns : ran);
    }
    if (a->has_turn)
        gm_sched_end_turn(s, a);
    a->is_boosted = false; /* it has had what it waited for */
    gm_sched_end_lead(s, a);
    a->rest_fair_ns = s->fair_ns;
    gm_sched_stand(s, id);
}

/* Class latency has nothing before it but who waited for too long. */
static bool has_critical(const struct gm_sched *s)
{
    const struct gm_sched_rank *r = &s->ranks[GM_RANK_LATENCY];
    return r->turn.head != NIL || r->queue.head != NIL;
}

static void app_hurries(struct gm_sched *s, uint32_t id)
{
    struct gm_sched_app *a = &s->apps[id];
    struct gm_sched_user *user = &s->users[a->user];
    if (a->is_boosted || !gm_sched_is_left_out(s, a) || has_critical(s) ||
        s->now < user->hurry_from || s->now < a->hurry_from)
        return;
    user->hurry_from = s->now + GM_SCHED_HURRY_USER_NS;
    a->hurry_from = s->now + GM_SCHED_HURRY_AGAIN_NS;
    a->is_boosted = a->is_hurried = true;
    gm_sched_append(s, id, GM_QUEUE, GM_RANK_BOOSTED);
}

/* A tied app whose gate is closed has no turn: it stands first in line for one. */
static void step_aside(struct gm_sched *s, uint32_t id)
{
    const struct gm_sched_app *a = &s->apps[id];
    if (a->is_tied && !a->is_open && a->place == GM_TURN)
        gm_sched_insert(s, id, GM_QUEUE, a->rank, NIL);
}

static void app_closed(struct gm_sched *s, uint32_t id)
{
    struct gm_sched_app *a = &s->apps[id];
    gm_sched_turn_into(s, id, false, a->is_wanting);
    a->is_stuck = false;
    gm_sched_stand(s, id);
    step_aside(s, id);
}

static void apply(struct gm_sched *s, const struct gm_sched_event *event)
{
    if (event->kind == GM_SCHED_ROOM)
        s->config.budget = event->bytes;
    if (event->kind >= GM_SCHED_TIMER)
        return;
    struct gm_sched_app *a = &s->apps[event->app];
    switch (event->kind) {
    case GM_SCHED_JOIN:
        app_joins(s, event);
        break;
    case GM_SCHED_LEAVE:
        app_leaves(s, event->app);
        break;
    case GM_SCHED_WANT:
        app_wants(s, event->app);
        break;
    case GM_SCHED_IDLE:
        app_rests(s, event->app, event->ago_ns);
        break;
    case GM_SCHED_SIZE:
        a->bytes = event->bytes;
        break;
    case GM_SCHED_OPENED:
        gm_sched_turn_into(s, event->app, true, a->is_wanting);
        gm_sched_stand(s, event->app);
        break;
    case GM_SCHED_CLOSED:
        app_closed(s, event->app);
        break;
    case GM_SCHED_BUSY:
        gm_sched_charge(s, event->app);
        a->is_stuck = true;
        gm_sched_limit_debt(a);
        a->stuck_until = gm_sum_or_never(s->now, s->config.retry_ns);
        break;
    case GM_SCHED_HURRY:
        app_hurries(s, event->app);
        break;
    case GM_SCHED_TIE:
    case GM_SCHED_UNTIE:
        a->is_tied = event->kind == GM_SCHED_TIE;
        step_aside(s, event->app);
        break;
    case GM_SCHED_WASTE:
        gm_sched_waste(s, event->app);
        break;
    case GM_SCHED_TIMER:
    case GM_SCHED_ROOM:
        break;
    }
}

/* ---- The interface ---- */

static size_t aligned(size_t bytes)
{
    return (bytes + 15) & ~(size_t)15;
}

size_t gm_sched_size(const struct gm_sched_config *config)
{
    size_t n = config->max_apps;
    if (n == 0 || n > APPS_MAX || config->budget == 0 || config->retry_ns == 0 ||
        config->levels == 0 || config->levels > GM_SCHED_LEVELS_MAX || config->slice_ns == 0 ||
        config->slice_ns > SLICE_MAX || config->allotment_ns == 0 ||
        config->allotment_ns > ALLOTMENT_MAX || config->patience_ns == 0)
        return 0;
    return aligned(sizeof(struct gm_sched)) + aligned(n * sizeof(struct gm_sched_app)) +
           aligned(n * sizeof(struct gm_sched_user)) + 2 * aligned(n * sizeof(uint32_t));
}

struct gm_sched *gm_sched_init(void *memory, const struct gm_sched_config *config)
{
    static const struct gm_sched_list none = {NIL, NIL};
    size_t n = config->max_apps, size = gm_sched_size(config);
    if (size == 0 || !memory || (uintptr_t)memory % 16 != 0)
        return NULL;
    memset(memory, 0, size);
    struct gm_sched *s = memory;
    s->config = *config;
    s->apps = (struct gm_sched_app *)((char *)memory + aligned(sizeof *s));
    s->users = (struct gm_sched_user *)((char *)s->apps + aligned(n * sizeof *s->apps));
    s->set = (uint32_t *)((char *)s->users + aligned(n * sizeof *s->users));
    s->next = (uint32_t *)((char *)s->set + aligned(n * sizeof(uint32_t)));
    for (uint32_t rank = 0; rank < GM_RANKS; rank++)
        s->ranks[rank].turn = s->ranks[rank].queue = none;
    s->resting = s->held = none;
    s->decision = (struct gm_sched_decision){.set = s->set, .next = s->next};
    gm_sched_decide(s);
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
        gm_sched_pass_users(sched, now);
        gm_sched_pass(sched, now);
        apply(sched, event);
        gm_sched_decide(sched);
    }
    *decision = sched->decision;
    return fault;
}

int gm_sched_set(struct gm_sched *sched, uint64_t now, uint32_t app,
                 const struct gm_sched_policy *policy, struct gm_sched_decision *decision)
{
    int fault = GM_SCHED_OK;
    if (app >= sched->config.max_apps || !sched->apps[app].is_known)
        fault = GM_SCHED_BAD_APP;
    else if (policy->class >= GM_CLASSES || policy->weight < GM_SCHED_WEIGHT_MIN ||
             policy->weight > GM_SCHED_WEIGHT_MAX || policy->share == 0 ||
             policy->share > GM_SCHED_SHARE_ALL)
        fault = GM_SCHED_BAD_POLICY;
    if (fault == GM_SCHED_OK) {
        gm_sched_pass_users(sched, now);
        gm_sched_pass(sched, now);
        gm_sched_apply_policy(sched, app, policy);
        gm_sched_stand(sched, app);
        gm_sched_decide(sched);
    }
    *decision = sched->decision;
    return fault;
}
