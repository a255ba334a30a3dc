/*
 * Names of users. The system may ask a network that does not answer, so a thread does the asking.
 * The caller waits for at most GM_USERS_WAIT_MS, and only at the first question for a uid. Without
 * an answer the name is the number.
 *
 * Owns one table of GM_USERS_MAX uids for the process. Any thread may call. Calls the system's user
 * database and common/.
 */
#ifndef GM_DAEMON_SERVICE_USERS_H
#define GM_DAEMON_SERVICE_USERS_H

#include <stddef.h>
#include <sys/types.h>

#define GM_USERS_MAX 64
#define GM_USERS_NAME 64 /* bytes of a name, with its NUL; longer ones are cut */
#define GM_USERS_WAIT_MS 20

/* The name of `uid`, or its number as text, clean of control characters. Returns `name`. */
const char *gm_users_name(uid_t uid, char name[GM_USERS_NAME]);

/* For tests: ask `lookup` instead of the system, and forget all names. It returns 0 and the name,
 * or non-zero. NULL: ask the system again. */
typedef int gm_users_lookup(uid_t uid, char name[GM_USERS_NAME]);
void gm_users_ask_by(gm_users_lookup *lookup);

#endif
