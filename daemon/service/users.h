/*
 * Names of users, for people to read. Asking the system may mean asking a network that does not
 * answer. So a thread of its own asks, and the caller waits for GM_USERS_PATIENCE_MS at most, only
 * the first time that a uid is asked for. Without an answer a user's name is its number.
 *
 * Owns one table for the process, of the last GM_USERS_MAX uids. Any thread may call. Calls the
 * system's user database and nothing of the daemon.
 */
#ifndef GM_DAEMON_SERVICE_USERS_H
#define GM_DAEMON_SERVICE_USERS_H

#include <stddef.h>
#include <sys/types.h>

#define GM_USERS_MAX 64
#define GM_USERS_NAME 64 /* bytes of a name, with its NUL; longer ones are cut */
#define GM_USERS_PATIENCE_MS 20

/* The name of `uid`, or its number as text, clean of control characters. Returns `name`. */
const char *gm_users_name(uid_t uid, char name[GM_USERS_NAME]);

/* For tests: what is asked instead of getpwuid_r; returns 0 and the name, or non-zero: unknown.
 * Forgets all names. NULL: getpwuid_r again. */
typedef int gm_users_lookup(uid_t uid, char name[GM_USERS_NAME]);
void gm_users_ask_by(gm_users_lookup *lookup);

#endif
