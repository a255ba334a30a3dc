/*
 * Users across levels. Within a rank turns go by user (sched_places.c); but levels go before each
 * other, and each app begins at level 1. So a user with more apps, or with new ones all the time,
 * would have more of the GPU than one whose only app has dropped. Therefore each user has an
 * account, used_ns: the time in which any of its apps of class `auto` or `interactive` ran, divided
 * by the greatest weight of those that did. (Start-time fair queueing: Goyal, Vin and Cheng 1996. A
 * user who comes, or comes back, has no less on it than those who want the GPU, but for one slice S
 * that it may have saved up; who stops has no more than LAG slices of the last level beyond them,
 * however long they could not run.)
 *
 * Time in which those apps have less than an eighth of the budget together is no use of the GPU,
 * unless they are in somebody's way: an app of another user that wants the GPU has no room beside
 * what such users run together. So a small program that always works takes nothing from its user's
 * others. A user all of whose apps that want the GPU run so does not want it, for the accounts: the
 * user saves nothing up meanwhile, and nobody yields to it.
 *
 * A user yields to one whose best app that wants the GPU is at a worse level, when it is ahead of
 * that user by more than a slice of its own best app, until it is not ahead any more: the apps of
 * who yields are chosen after all levels (sched_decide.c). So the two take turns of about a slice,
 * as they do at the same level, and which of its apps has the user's turn is by their levels.
 *
 * An app of class `batch` wants to be behind others: nobody yields to it. One of class `latency`
 * goes before all levels, as an administrator wants it.
 */
#include "daemon/core/sched_users.h"

#include "daemon/core/sched_levels.h"

#define NIL GM_SCHED_NIL
#define LONG_NS ((uint64_t)1 << 43) /* two hours: more is no matter, and no product overflows */
#define RATE 1000u                  /* of an account while an app of weight 1 runs */
#define LAG 16u  /* more than a slice of the last level comes to by the least weight */
#define SMALL 8u /* of whose memory others have seven eighths, is seldom in anybody's way */

static bool is_fair(const struct gm_sched_app *a)
{
    return a->policy.class == GM_CLASS_AUTO || a->policy.class == GM_CLASS_INTERACTIVE;
}

void gm_sched_pass_users(struct gm_sched *s, uint64_t now)
{
    const uint64_t passed = gm_less(now, s->now), ns = passed < LONG_NS ? passed : LONG_NS;
    if (s->n_users < 2)
        return;
    for (uint32_t i = 0; i < s->config.max_apps; i++) {
        struct gm_sched_user *user = &s->users[i];
        const uint64_t more = ns * user->rate + user->rest;
        user->used_ns += more / RATE;
        user->rest = (uint32_t)(more % RATE);
    }
}

static void look_at(struct gm_sched *s, const struct gm_sched_list *list)
{
    for (uint32_t id = list->head; id != NIL; id = s->apps[id].next) {
        const struct gm_sched_app *a = &s->apps[id];
        struct gm_sched_user *user = &s->users[a->user];
        const uint32_t rate = GM_SCHED_WEIGHT * RATE / a->policy.weight;
        if (!is_fair(a))
            continue;
        if (a->is_open && a->is_wanting) {
            user->rate = user->rate == 0 || rate < user->rate ? rate : user->rate;
            user->bytes = gm_sum_or_never(user->bytes, a->bytes);
        }
        if (a->place == GM_HELD || gm_sched_is_too_large(s, a))
            continue;
        user->is_waiting = user->is_waiting || !a->is_open;
        user->largest = a->bytes > user->largest ? a->bytes : user->largest;
        if (a->rank > GM_RANK_LED && a->rank < user->best) {
            user->best = a->rank;
            user->best_app = id;
        }
    }
}

/* Where accounts stand: the least of those who wanted the GPU already, else the most of all. */
static uint64_t level_of(const struct gm_sched *s)
{
    uint64_t least = GM_TIME_NEVER, most = 0;
    for (uint32_t i = 0; i < s->config.max_apps; i++) {
        const struct gm_sched_user *user = &s->users[i];
        most = user->used_ns > most ? user->used_ns : most;
        if (user->is_wanting && user->was_wanting && user->used_ns < least)
            least = user->used_ns;
    }
    return least != GM_TIME_NEVER ? least : most;
}

/* Who comes, or comes back, and who does not run any more. */
static void bound(struct gm_sched *s)
{
    const uint64_t level = level_of(s), lag = LAG * (s->config.slice_ns << (s->config.levels - 1));
    for (uint32_t i = 0; i < s->config.max_apps; i++) {
        struct gm_sched_user *user = &s->users[i];
        const uint64_t saved = user->is_new ? 0 : s->config.slice_ns;
        if (user->is_wanting && !user->was_wanting) {
            if (user->used_ns < gm_less(level, saved))
                user->used_ns = gm_less(level, saved);
            user->is_new = false;
        }
        if (user->was_running && user->rate == 0 && user->used_ns > gm_sum_or_never(level, lag))
            user->used_ns = level + lag;
        user->was_running = user->rate != 0;
    }
}

/* The best app of `user` goes before that of `other`, which has a claim. */
static bool is_before(const struct gm_sched_user *user, const struct gm_sched_user *other)
{
    return user->best < other->best && other->best < GM_RANKS;
}

static uint64_t ahead_ns(const struct gm_sched_user *user, const struct gm_sched_user *other)
{
    return gm_less(user->used_ns, other->used_ns);
}

/* On its account. */
static uint64_t slice_of(const struct gm_sched *s, const struct gm_sched_user *user)
{
    const struct gm_sched_app *a = &s->apps[user->best_app];
    return gm_sched_slice(s, a) * GM_SCHED_WEIGHT / a->policy.weight;
}

/* `least`: by rank, the least on the account of who has the best app there, or at a worse rank. */
static void judge(struct gm_sched *s, struct gm_sched_user *user,
                  const uint64_t least[GM_RANKS + 1])
{
    const bool was_yielding = user->is_yielding;
    user->is_yielding = false;
    if (user->best == GM_RANKS || user->used_ns <= least[user->best + 1])
        return;
    user->is_yielding = was_yielding || user->used_ns - least[user->best + 1] > slice_of(s, user);
    s->has_yielding = s->has_yielding || user->is_yielding;
}

static void judge_all(struct gm_sched *s)
{
    uint64_t least[GM_RANKS + 1];
    for (uint32_t rank = 0; rank <= GM_RANKS; rank++)
        least[rank] = GM_TIME_NEVER;
    for (uint32_t i = 0; i < s->config.max_apps; i++) {
        const struct gm_sched_user *user = &s->users[i];
        if (user->best < GM_RANKS && user->used_ns < least[user->best])
            least[user->best] = user->used_ns;
    }
    for (uint32_t rank = GM_RANKS; rank-- > 0;)
        least[rank] = least[rank] < least[rank + 1] ? least[rank] : least[rank + 1];
    s->has_yielding = false;
    for (uint32_t i = 0; i < s->config.max_apps; i++)
        judge(s, &s->users[i], least);
}

/* What of the user runs, if that is small. */
static uint64_t small_of(const struct gm_sched *s, const struct gm_sched_user *user)
{
    return user->bytes < s->config.budget / SMALL ? user->bytes : 0;
}

/* Who wants the GPU, and who uses it. */
static void judge_small(struct gm_sched *s)
{
    uint64_t small = 0, most = 0, second = 0; /* of `most` is the user `widest` */
    uint32_t widest = NIL;
    for (uint32_t i = 0; i < s->config.max_apps; i++)
        small = gm_sum_or_never(small, small_of(s, &s->users[i]));
    for (uint32_t i = 0; i < s->config.max_apps; i++) {
        const struct gm_sched_user *user = &s->users[i];
        const uint64_t beside = small - small_of(s, user);
        const uint64_t bytes = user->largest == 0 ? 0 : gm_sum_or_never(user->largest, beside);
        if (bytes > most) {
            second = most;
            most = bytes;
            widest = i;
        } else if (bytes > second) {
            second = bytes;
        }
    }
    for (uint32_t i = 0; i < s->config.max_apps; i++) {
        struct gm_sched_user *user = &s->users[i];
        const bool is_small = user->bytes < s->config.budget / SMALL;
        if (is_small && (i == widest ? second : most) <= s->config.budget)
            user->rate = 0;
        user->is_wanting = user->is_waiting || user->rate != 0;
        if (!user->is_wanting)
            user->best = GM_RANKS;
    }
}

void gm_sched_settle_users(struct gm_sched *s)
{
    for (uint32_t i = 0; i < s->config.max_apps; i++) {
        struct gm_sched_user *user = &s->users[i];
        user->was_wanting = user->is_wanting;
        user->is_waiting = false;
        user->rate = 0;
        user->bytes = 0;
        user->largest = 0;
        user->best = GM_RANKS;
    }
    for (uint32_t rank = 0; rank < GM_RANKS; rank++) {
        look_at(s, &s->ranks[rank].turn);
        look_at(s, &s->ranks[rank].queue);
    }
    look_at(s, &s->held);
    judge_small(s);
    bound(s);
    judge_all(s);
}

/* When it begins to yield to `other`, or is not ahead of it any more. */
static uint64_t turns_at(const struct gm_sched *s, const struct gm_sched_user *user,
                         const struct gm_sched_user *other)
{
    const bool is_yielding = user->is_yielding;
    const uint32_t faster = is_yielding ? other->rate : user->rate;
    const uint32_t slower = is_yielding ? user->rate : other->rate;
    const uint64_t ahead = ahead_ns(user, other), behind = ahead_ns(other, user);
    uint64_t left = is_yielding ? ahead : gm_less(slice_of(s, user) + behind, ahead) + 1;
    if (!is_before(user, other) || faster <= slower || left == 0)
        return GM_TIME_NEVER;
    left = left < LONG_NS ? left : LONG_NS;
    return gm_sum_or_never(s->now, (left * RATE + faster - slower - 1) / (faster - slower));
}

/* Only who runs comes to be ahead, or is caught up with by who runs. */
uint64_t gm_sched_users_at(const struct gm_sched *s)
{
    uint64_t at = GM_TIME_NEVER;
    if (s->n_users < 2 || s->decision.n_next == 0)
        return at;
    for (uint32_t i = 0; i < s->config.max_apps; i++) {
        if (s->users[i].rate == 0 || s->users[i].best == GM_RANKS)
            continue;
        for (uint32_t k = 0; k < s->config.max_apps; k++) {
            const struct gm_sched_user *one = &s->users[i], *other = &s->users[k];
            const uint64_t its = one->is_yielding ? GM_TIME_NEVER : turns_at(s, one, other);
            const uint64_t others = other->is_yielding ? turns_at(s, other, one) : GM_TIME_NEVER;
            at = its < at ? its : at;
            at = others < at ? others : at;
        }
    }
    return at;
}
