/*
 * The claim on a GPU: a daemon of root hands out a GPU's memory for the system, and no other daemon
 * does so beside it. Two would give the same memory away twice.
 *
 * Root's claim is the lock file /run/gpumux-UUID.lock, which nobody else can open: a lock that
 * others could take would keep the system's daemon from starting. Beside it a link,
 * gpumux-UUID.holder, names the pid of the holder and when that started, for those who cannot ask
 * for the lock. A user's claim is such a file in a folder of theirs, and keeps out that user's next
 * daemon only.
 *
 * A user's daemon is refused beside the system's. The system's starts beside users' daemons,
 * whatever they hold, and says which one it found; so do daemons of different users. Neither can
 * then have more than what the GPU has free (core/room.h).
 *
 * $GPUMUX_RUN_DIR stands for /run, for tests. Called by the engine when it opens and closes. Calls
 * lockfile.c.
 */
#ifndef GM_DAEMON_MEMORY_CLAIM_H
#define GM_DAEMON_MEMORY_CLAIM_H

#include <stddef.h>
#include <sys/types.h>

struct gm_claim;

/* The name of a user for a person to read. Returns `name`. */
typedef const char *gm_claim_user(uid_t uid, char name[64]);

/*
 * Claim the GPU with this UUID. Returns 0; then `text` is "" or a remark for the log that follows
 * "GPU 0 ". Or -EADDRINUSE with a phrase in `text` that says who has it ("gpumuxd, pid 812 of user
 * root"); or another -errno with the reason. *claim is NULL if nothing is held. Loop thread, as
 * gm_claim_close.
 */
int gm_claim_open(struct gm_claim **claim, const unsigned char uuid[16], gm_claim_user *user_name,
                  char *text, size_t size);

/* End the claim. NULL: nothing happens. */
void gm_claim_close(struct gm_claim *claim);

#endif
