/*
 * Bounds: what one user may ask of the daemon, so that no user can take its loop, its memory or its
 * files from others. Pure: time is a value. Owns struct gm_bound but for what session.c
 * counts and notes there. Called by session.c, loop thread only.
 *
 *   time      A round is one pass of the loop. In each round a user has GM_BOUND_ROUND_NS of the
 *             loop's time, however many connections it has; what it sent beyond waits in its
 *             sockets for the next round. So others wait for no more than that, and when nobody
 *             else asks, the next round begins at once and nobody is slowed.
 *   output    Bytes, messages and files that wait for its programs to read.
 *   visitors  Connections of no program.
 *   settings  GM_SETTINGS_A_SECOND.
 *
 * Administrators (gm_peer_is_admin) are trusted: they have no bounds here. A container's root has,
 * and a record beside root's.
 *
 * The record of a user outlives its connections, as mux-ctl connects for each question anew. One
 * that has no connection, and about which there is nothing to remember any more, is used again.
 */
#ifndef GM_DAEMON_SERVICE_BOUNDS_H
#define GM_DAEMON_SERVICE_BOUNDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/clock.h"

/* A message takes 5 to 100 us, so this is a dozen or more; a round of ten such users takes 5 ms. */
#define GM_BOUND_ROUND_NS (GM_MS / 2)
/* Beyond its share in every round for so long: it is no burst, and the log says so. */
#define GM_BOUND_SLOW_NS (2 * GM_S)
/* Of each kind, the log has one line of a user in this time. */
#define GM_BOUND_TOLD_NS (60 * GM_S)
/* One program that swaps 128 GiB in is sent 4,096 messages of 1 KiB. */
#define GM_BOUND_BYTES (64u << 20)
#define GM_BOUND_MESSAGES 65536u
/* Users at a time. Connections are fewer than that (session.h). */
#define GM_BOUND_USERS 1024u

/* What a user can have too much of: one line of the log each. */
enum gm_bound_kind { GM_BOUND_TIME, GM_BOUND_OUTPUT, GM_BOUND_VISITORS, GM_BOUND_KINDS };

struct gm_bound {
    uid_t uid; /* of gm_users_owner when they came: whom its connections count for */
    bool is_trusted;
    uint32_t sessions;     /* its connections */
    uint32_t visitors;     /* those of no program: session.c counts */
    uint32_t in_line;      /* those with unread messages beyond its share: session.c counts */
    uint64_t round, spent; /* ns of the loop that it had in that round */
    uint64_t over, since;  /* the last round in which it stood in line; in every one since then */
    uint64_t bytes;        /* of output that waits */
    uint32_t messages, files;
    uint64_t document_at;    /* when session.c last made a document for it */
    uint64_t settings_since; /* n_settings since then */
    uint32_t n_settings;
    uint64_t told_at[GM_BOUND_KINDS]; /* 0: never */
    uint64_t untold[GM_BOUND_KINDS];  /* how often it happened since */
    uint64_t left_at;                 /* when its last connection ended */
};

struct gm_bounds {
    uint64_t round;
    uint32_t max_files; /* of output that waits, for one user */
    uint32_t n;         /* records that were ever used */
    struct gm_bound users[GM_BOUND_USERS];
};

/* The record of a user for one more connection, which gm_bound_leave gives up. NULL: there are too
 * many users. */
struct gm_bound *gm_bounds_join(struct gm_bounds *bounds, uid_t uid, bool is_trusted, uint64_t now);
void gm_bound_leave(struct gm_bound *user, uint64_t now);

/* A new round begins. */
void gm_bounds_turn(struct gm_bounds *bounds);

/* The user had `ns` of the loop in this round. */
void gm_bound_spend(const struct gm_bounds *bounds, struct gm_bound *user, uint64_t ns);

/* Whether it has had its share of this round. */
bool gm_bound_is_spent(const struct gm_bounds *bounds, const struct gm_bound *user);

/* It stands in line in this round. True: it does in every round for GM_BOUND_SLOW_NS. */
bool gm_bound_is_slowed(const struct gm_bounds *bounds, struct gm_bound *user, uint64_t now);

/* A message that waits for its program to read, and one that it has read. False: it would be too
 * much, and nothing was counted. */
bool gm_bound_queue(const struct gm_bounds *bounds, struct gm_bound *user, uint64_t bytes,
                    uint32_t files);
void gm_bound_unqueue(struct gm_bound *user, uint64_t bytes, uint32_t files);

/* Whether the user may change one more setting. */
bool gm_bound_may_set(struct gm_bound *user, uint64_t now);

/* It was cut or slowed. True: the log is to say so, and that it happened *more times since the line
 * before. */
bool gm_bound_tell(struct gm_bound *user, enum gm_bound_kind kind, uint64_t now, uint64_t *more);

#endif
