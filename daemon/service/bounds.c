/* Bounds of users: see bounds.h. */
#include "daemon/service/bounds.h"

#include "daemon/core/tunables.h"

static struct gm_bound *find(struct gm_bounds *bounds, uid_t uid, bool is_trusted)
{
    for (uint32_t i = 0; i < bounds->n; i++)
        if (bounds->users[i].uid == uid && bounds->users[i].is_trusted == is_trusted)
            return &bounds->users[i];
    return NULL;
}

/* The record without connections whose last one left first, or NULL. */
static struct gm_bound *find_oldest(struct gm_bounds *bounds)
{
    struct gm_bound *oldest = NULL;
    for (uint32_t i = 0; i < bounds->n; i++) {
        struct gm_bound *user = &bounds->users[i];
        if (user->sessions == 0 && (!oldest || user->left_at < oldest->left_at))
            oldest = user;
    }
    return oldest;
}

struct gm_bound *gm_bounds_join(struct gm_bounds *bounds, uid_t uid, bool is_trusted, uint64_t now)
{
    struct gm_bound *user = find(bounds, uid, is_trusted);
    if (!user) {
        user = find_oldest(bounds);
        const bool is_over = user && now - user->left_at >= GM_BOUND_TOLD_NS;
        if (!is_over && bounds->n < GM_BOUND_USERS)
            user = &bounds->users[bounds->n++];
        if (!user)
            return NULL;
        *user = (struct gm_bound){.uid = uid, .is_trusted = is_trusted};
    }
    user->sessions++;
    return user;
}

void gm_bound_leave(struct gm_bound *user, uint64_t now)
{
    user->sessions--;
    user->left_at = now;
}

/* ---- time ---- */

void gm_bounds_turn(struct gm_bounds *bounds)
{
    bounds->round++;
}

void gm_bound_spend(const struct gm_bounds *bounds, struct gm_bound *user, uint64_t ns)
{
    if (user->round != bounds->round)
        user->spent = 0;
    user->round = bounds->round;
    user->spent += ns;
}

bool gm_bound_is_spent(const struct gm_bounds *bounds, const struct gm_bound *user)
{
    return !user->is_trusted && user->round == bounds->round && user->spent >= GM_BOUND_ROUND_NS;
}

bool gm_bound_is_slowed(const struct gm_bounds *bounds, struct gm_bound *user, uint64_t now)
{
    if (bounds->round > user->over + 1 || user->since == 0)
        user->since = now;
    user->over = bounds->round;
    return now - user->since >= GM_BOUND_SLOW_NS;
}

/* ---- output ---- */

bool gm_bound_queue(const struct gm_bounds *bounds, struct gm_bound *user, uint64_t bytes,
                    uint32_t files)
{
    if (!user->is_trusted &&
        (user->messages >= GM_BOUND_MESSAGES || user->bytes + bytes > GM_BOUND_BYTES ||
         user->files + files > bounds->max_files))
        return false;
    user->bytes += bytes;
    user->files += files;
    user->messages++;
    return true;
}

void gm_bound_unqueue(struct gm_bound *user, uint64_t bytes, uint32_t files)
{
    user->bytes -= bytes;
    user->files -= files;
    user->messages--;
}

/* ---- settings, and what is said ---- */

bool gm_bound_may_set(struct gm_bound *user, uint64_t now)
{
    if (user->is_trusted)
        return true;
    if (now - user->settings_since >= GM_S) {
        user->settings_since = now;
        user->n_settings = 0;
    }
    if (user->n_settings >= GM_SETTINGS_A_SECOND)
        return false;
    user->n_settings++;
    return true;
}

bool gm_bound_tell(struct gm_bound *user, enum gm_bound_kind kind, uint64_t now, uint64_t *more)
{
    if (user->told_at[kind] != 0 && now - user->told_at[kind] < GM_BOUND_TOLD_NS) {
        user->untold[kind]++;
        return false;
    }
    *more = user->untold[kind];
    user->untold[kind] = 0;
    user->told_at[kind] = now;
    return true;
}
