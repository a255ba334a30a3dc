/*
 * Names of users, the groups that they belong to, and whom subordinate ids belong to. The system
 * may ask a network that does not answer, so a thread does the asking. The caller waits for at most
 * GM_USERS_WAIT_MS, and only at the first question for a uid. Without an answer the name is the
 * number, and the groups are not known. An answer that comes late is told, and what is known holds
 * until there is a newer one.
 *
 * Owns one table of GM_USERS_MAX uids for the process. Any thread may call. Calls the system's user
 * database and common/.
 */
#ifndef GM_DAEMON_SERVICE_USERS_H
#define GM_DAEMON_SERVICE_USERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/clock.h"

#define GM_USERS_MAX 1024 /* as many as the daemon serves: bounds.h */
#define GM_USERS_NAME 64  /* bytes of a name, with its NUL; longer ones are cut */
#define GM_USERS_WAIT_MS 20
#define GM_USERS_AGAIN_NS GM_S /* a system that could not say is asked again */

/* What the system knows of a uid beside its name. The caller frees the groups; of a subordinate id
 * they are its owner's. */
struct gm_users_groups {
    gid_t *gid;
    int n;
    bool is_subordinate;
    uid_t owner;
};

/* The name of `uid`, or its number as text, clean of control characters. Returns `name`. */
const char *gm_users_name(uid_t uid, char name[GM_USERS_NAME]);

/* Whether `uid` belongs to the group of the system, by the user database. PERHAPS: it has not
 * answered yet. */
enum gm_member { GM_MEMBER_NOT, GM_MEMBER_IS, GM_MEMBER_PERHAPS };
enum gm_member gm_users_is_member(uid_t uid, gid_t gid);

/*
 * Whom the use of `uid` is counted for: the user who has it as a subordinate id (/etc/subuid, as
 * rootless containers use them), else `uid` itself. So a user has one share, by however many ids.
 * It says nothing of rights: memory and permissions stay with `uid`. A uid that the user database
 * knows is nobody's, and no id is root's. `uid` also until the system has answered.
 */
uid_t gm_users_owner(uid_t uid);

/* Whether `uid` is that user, or counts for it. PERHAPS: the system has not answered yet. */
enum gm_member gm_users_is(uid_t uid, uid_t who);

/* Ask the system again for all who are known. */
void gm_users_ask_again(void);

/* Call `listener` when a user's groups have become known or are others, from another thread and
 * under a lock: it may not call here. NULL: nobody listens, also not any more. */
void gm_users_listen(void (*listener)(void *arg), void *arg);

/* For tests: ask `lookup` instead of the system, and forget all names. It returns 0 and the name;
 * GM_USERS_NOBODY; or less than 0 if it could not find out. NULL: ask the system again. */
#define GM_USERS_NOBODY 1
typedef int gm_users_lookup(uid_t uid, char name[GM_USERS_NAME], struct gm_users_groups *groups);
void gm_users_ask_by(gm_users_lookup *lookup);
/* For tests: subordinate ids are in this file; forget all names. NULL: in the system's. */
void gm_users_subordinates_in(const char *path);

#endif
