/*
 * Places: which programs are to be served before they connect, and which were not served.
 *
 * `mux-ctl run` reserves a place and then executes the program, which keeps the pid. The place is
 * kept until that process, or one that it started, connects; until it ends; or for GM_PLACE_NS, as
 * a program that never calls CUDA never connects. Places that are over are dropped when somebody
 * counts: a place has no file and no timer.
 *
 * Owns the list of places, the last refusal and the number of refusals. Called by session.c, which
 * decides whether there is room, and read by control.c. Loop thread only; reads /proc.
 */
#ifndef GM_DAEMON_SERVICE_PLACES_H
#define GM_DAEMON_SERVICE_PLACES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/clock.h"

/* Programs that start at the same time. Few, so that who reserves and never connects cannot take
 * all of the default 256 places. */
#define GM_PLACES_MAX 64u
#define GM_PLACES_USER 32u /* of one user: the other half is for others */
/* From the start of a program to its first CUDA call; loading a framework from a cold disk takes
 * minutes. */
#define GM_PLACE_NS (300 * GM_S)

struct gm_places {
    struct gm_reservation {
        pid_t pid;
        uid_t uid;
        uint64_t until;
    } kept[GM_PLACES_MAX];
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

/* Keep a place for the process; one that has a place keeps it anew. False: GM_PLACES_MAX are kept,
 * or GM_PLACES_USER for this user. */
bool gm_places_keep(struct gm_places *places, pid_t pid, uid_t uid, uint64_t now);

/* Whether a place is kept for the process or for one that it descends from. */
bool gm_places_has(struct gm_places *places, pid_t pid, uid_t uid, uint64_t now);

/* The process connects: whether a place was kept for it or for a process that it descends from. The
 * place is over then. */
bool gm_places_take(struct gm_places *places, pid_t pid, uid_t uid, uint64_t now);

/* How many are kept, and how many of them for processes of this user. */
uint32_t gm_places_kept(struct gm_places *places, uint64_t now);
uint32_t gm_places_kept_for(struct gm_places *places, uid_t uid, uint64_t now);

/* A program is not served. */
void gm_places_refuse(struct gm_places *places, pid_t pid, uid_t uid, const char *name,
                      const char *why, uint64_t now);

#endif
