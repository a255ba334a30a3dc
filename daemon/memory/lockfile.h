/*
 * Lock files: a file that at most one process holds locked, with the holder's pid inside. The lock
 * ends with its process, however that ends. Whoever can open the file can lock it, so each folder
 * must be one that only its user can write. Called by claim.c and the server. Owns no state.
 */
#ifndef GM_DAEMON_MEMORY_LOCKFILE_H
#define GM_DAEMON_MEMORY_LOCKFILE_H

#include <sys/types.h>

/*
 * Lock `path`, and make it if it is not there. Returns the fd; or -EWOULDBLOCK if another process
 * holds it, with its pid in *holder (0: not known); -EBUSY if it changes all the time; or -errno.
 */
int gm_lockfile_take(const char *path, pid_t *holder);

/* Remove the file and unlock it. */
void gm_lockfile_drop(const char *path, int fd);

#endif
