/*
 * Who is at the other end of a Unix socket, and whether it counts as that user here. A container
 * whose programs run as user 0 has the host's uid 0 unless it has a user namespace, so a uid alone
 * makes nobody an administrator. Called by the daemon and gpumux-keeper; calls the system. No
 * state, no allocation.
 */
#ifndef GM_COMMON_PEER_H
#define GM_COMMON_PEER_H

#include <stdbool.h>
#include <sys/types.h>

/* By SO_PEERCRED: as it was when it connected, or listened. */
struct gm_peer {
    pid_t pid; /* 0: it has no number here */
    uid_t uid;
    gid_t gid;
    bool has_our_numbers; /* it is in our pid namespace. False also if that cannot be found out */
    bool has_our_users;   /* ... in our user namespace */
};

/*
 * Look at the peer of a connected socket. Returns 0 or -errno. Its namespaces are those of the
 * process that connected, even if its pid is another's by now: then both are false. A process
 * cannot change its pid namespace, and leaves a user namespace for one of its own only.
 *
 * Reads its /proc/PID/ns, which needs what ptrace needs to look (CAP_SYS_PTRACE for another user's
 * process, or for one with more capabilities). Who lacks that reads what everybody may: a process
 * of our pid namespace has one number, and one of our user namespace has our uid_map. The latter
 * cannot tell ours from one that maps every user to itself.
 */
int gm_peer_look(int fd, struct gm_peer *peer);

/* Whether it may do what administrators may: it is root or our own user, and no container's. */
bool gm_peer_is_admin(const struct gm_peer *peer);

#endif
