/*
 * Names of users, and the groups that they belong to. The system may ask a network that does not
 * answer, so a thread does the asking. The caller waits for at most GM_USERS_WAIT_MS, and only at
 * the first question for a uid. Without an answer the name is the number.
 *
 * Owns one table of GM_USERS_MAX uids for the process. Any thread may call. Calls the system's user
 * database and common/.
 */
#ifndef GM_DAEMON_SERVICE_USERS_H
#define GM_DAEMON_SERVICE_USERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define GM_USERS_MAX 64
#define GM_USERS_NAME 64 /* bytes of a name, with its NUL; longer ones are cut */
#define GM_USERS_WAIT_MS 20

/* Those of a user, which the caller frees. */
struct gm_users_groups {
    gid_t *gid;
    int n;
};

/* The name of `uid`, or its number as text, clean of control characters. Returns `name`. */
const char *gm_users_name(uid_t uid, char name[GM_USERS_NAME]);

/* Whether `uid` belongs to the group of the system, by the user database. False, too, while that
 * does not answer. */
bool gm_users_is_member(uid_t uid, gid_t gid);

/* Forget what is known: the next questions ask anew. */
void gm_users_forget(void);

/* For tests: ask `lookup` instead of the system, and forget all names. It returns 0 and the name,
 * or non-zero. NULL: ask the system again. */
typedef int gm_users_lookup(uid_t uid, char name[GM_USERS_NAME], struct gm_users_groups *groups);
void gm_users_ask_by(gm_users_lookup *lookup);

#endif
