/*
 * The folders of MPS (mps.h): BASE/UID/pipe and BASE/UID/log belong to the user, what is above them
 * to the daemon. Whatever the user makes there, the daemon follows no link, enters no other file
 * system and waits for nothing. Owns nothing else. Called by mps.c.
 */
#ifndef GM_DAEMON_SERVICE_MPS_FOLDERS_H
#define GM_DAEMON_SERVICE_MPS_FOLDERS_H

#include <stdbool.h>
#include <sys/types.h>

/* Returns 0 or -errno; -EPERM: somebody changed one of them. */
int gm_mps_folders_make(const char *base, uid_t uid, gid_t gid);

/* If they are empty. */
void gm_mps_folders_remove(const char *base, uid_t uid);

/* Whether a control daemon listens in `folder`, which is below `base`, and whose it is. A socket of
 * another type says "wrong type" if it lives, and "refused" if it does not. */
bool gm_mps_listens(const char *base, const char *folder, uid_t *owner);

#endif
