/*
 * What the system says of another process (/proc, and the freezers of control groups). Owns where
 * the control groups are mounted, read once. Called by places.c, and by the engine through its
 * outlet.
 */
#ifndef GM_DAEMON_SERVICE_PROCESS_H
#define GM_DAEMON_SERVICE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/engine/state/engine.h"

/* Where to look. Zeroed before use. */
struct gm_process_system {
    const char *root; /* before every path; NULL: none. Tests have a tree of their own */
    bool is_read;
    struct gm_cgroup_mount {
        char at[256];   /* where the hierarchy is mounted; "": it is not */
        char from[256]; /* which of its groups lies there; "" is the first of all */
    } freezer, unified;
};

/* The process that started this one. 0: it is gone, or cannot be looked at. */
pid_t gm_process_parent(pid_t pid);

/* When it was started, in ticks since the machine was: with its pid that names it for good. 0: it
 * is gone, or cannot be looked at. */
uint64_t gm_process_started(pid_t pid);

/* A process of the user, started no earlier than `since`, that has the other end of this Unix
 * socket. 0: none is found. So it is where the system does not say which end that is (that of a
 * container with a network of its own), and with more processes and files than a look may take. */
pid_t gm_process_holder(uid_t uid, uint64_t since, int socket);
/* The same, in that system, of the socket with that inode. */
pid_t gm_process_holder_in(const struct gm_process_system *system, uid_t uid, uint64_t since,
                           uint64_t inode);

/* Whether it stands still, and why. GM_WHY_NONE also if it cannot be looked at. A few small files
 * are read, however deep its control group is. */
enum gm_why gm_process_stop(pid_t pid);
/* The same, in that system. */
enum gm_why gm_process_stop_in(struct gm_process_system *system, pid_t pid);

#endif
