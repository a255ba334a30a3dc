/* Places: see places.h. */
#include "daemon/service/places.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "daemon/service/process.h"
#include "daemon/service/users.h"

#define ANCESTORS_MAX 32u /* that are searched */

static bool is_over(const struct gm_reservation *place, uint64_t now)
{
    return now >= place->until || (kill(place->pid, 0) != 0 && errno == ESRCH);
}

static void let_go(struct gm_places *places, uint32_t i)
{
    places->reserved[i] = places->reserved[--places->n];
}

static void look(struct gm_places *places, uint64_t now)
{
    for (uint32_t i = places->n; i-- > 0;)
        if (is_over(&places->reserved[i], now))
            let_go(places, i);
}

/* Whether it is a place of that owner's. Asked anew each time: it may be known by now. */
static bool is_of(const struct gm_reservation *place, uid_t owner)
{
    return gm_users_owner(place->uid) == owner;
}

/* The index of the place, or places->n. */
static uint32_t find(const struct gm_places *places, pid_t pid, uid_t owner)
{
    uint32_t i = 0;
    while (i < places->n && (places->reserved[i].pid != pid || !is_of(&places->reserved[i], owner)))
        i++;
    return i;
}

bool gm_places_reserve(struct gm_places *places, pid_t pid, uid_t uid, uint64_t now)
{
    look(places, now);
    uint32_t i = find(places, pid, gm_users_owner(uid));
    if (i == places->n) {
        if (i == GM_PLACES_MAX || gm_places_reserved_for(places, uid, now) >= GM_PLACES_USER)
            return false;
        places->n++;
    }
    places->reserved[i] =
        (struct gm_reservation){.pid = pid, .uid = uid, .until = now + GM_PLACE_NS};
    return true;
}

/* The index of the place of the process or of an ancestor, or places->n. */
static uint32_t find_family(const struct gm_places *places, pid_t pid, uid_t owner)
{
    uint32_t i = find(places, pid, owner);
    for (uint32_t n = 0; n < ANCESTORS_MAX && places->n > 0 && i == places->n && pid > 1; n++) {
        pid = gm_process_parent(pid);
        i = find(places, pid, owner);
    }
    return i;
}

bool gm_places_take(struct gm_places *places, pid_t pid, uid_t uid, uint64_t now)
{
    look(places, now);
    uint32_t i = find_family(places, pid, gm_users_owner(uid));
    if (i == places->n)
        return false;
    let_go(places, i);
    return true;
}

uint32_t gm_places_reserved(struct gm_places *places, uint64_t now)
{
    look(places, now);
    return places->n;
}

uint32_t gm_places_reserved_for(struct gm_places *places, uid_t uid, uint64_t now)
{
    const uid_t owner = gm_users_owner(uid);
    uint32_t n = 0;
    look(places, now);
    for (uint32_t i = 0; i < places->n; i++)
        n += is_of(&places->reserved[i], owner);
    return n;
}

void gm_places_refuse(struct gm_places *places, pid_t pid, uid_t uid, const char *name,
                      const char *why, uint64_t now)
{
    places->refused++;
    places->last = (struct gm_refused){.pid = pid, .uid = uid, .at = now};
    snprintf(places->last.name, sizeof places->last.name, "%s", name);
    snprintf(places->last.why, sizeof places->last.why, "%s", why);
}
