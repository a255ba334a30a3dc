/*
 * Places that are reserved for programs that have not connected yet, and programs that were
 * refused.
 *
 * `mux-ctl run` reserves a place and then executes the program, which has the same pid. The place
 * is free again when that process or a descendant connects, when the process ends, or after
 * GM_PLACE_NS, because a program that never calls CUDA never connects. Places have no timer: every
 * call drops those that are over.
 *
 * Owns struct gm_places. Called by session.c, which decides whether there is room; read by
 * control.c. Calls users.h: ids of one owner are one user here. Loop thread only; reads /proc.
 */
#ifndef GM_DAEMON_SERVICE_PLACES_H
#define GM_DAEMON_SERVICE_PLACES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/clock.h"

/* Programs that start at the same time. Reservations that are never used cannot take all of the
 * default 256 places. */
#define GM_PLACES_MAX 64u
#define GM_PLACES_USER 32u /* of one user: the other half is for others */
/* From the start to the first CUDA call. Loading a framework from a cold disk takes minutes. */
#define GM_PLACE_NS (300 * GM_S)

struct gm_places {
    struct gm_reservation {
        pid_t pid;
        uid_t uid;
        uint64_t until;
    } reserved[GM_PLACES_MAX];
    uint32_t n;
    uint64_t refused; /* programs, since the start */
    struct gm_refused {
        pid_t pid;
        uid_t uid;
        uint64_t at;
        char name[64];
        char why[184];
    } last;
};

/* Reserve a place for the process, or renew it. False: GM_PLACES_MAX are reserved, or
 * GM_PLACES_USER for this user. */
bool gm_places_reserve(struct gm_places *places, pid_t pid, uid_t uid, uint64_t now);

/* The process connects: whether a place is reserved for it or an ancestor. That is free again. */
bool gm_places_take(struct gm_places *places, pid_t pid, uid_t uid, uint64_t now);

/* How many are reserved, in all and for one user. */
uint32_t gm_places_reserved(struct gm_places *places, uint64_t now);
uint32_t gm_places_reserved_for(struct gm_places *places, uid_t uid, uint64_t now);

/* Count a program that is refused. */
void gm_places_refuse(struct gm_places *places, pid_t pid, uid_t uid, const char *name,
                      const char *why, uint64_t now);

#endif
