/*
 * The claim on a GPU: at most one daemon hands out a GPU's memory, whatever its socket and its user
 * are. Two daemons would give the same memory away twice.
 *
 * The claim is a listening socket with the abstract name "gpumux-gpu-UUID". It needs no file and no
 * rights, and it ends with the process. Whoever connects learns from the kernel who listens.
 * Abstract names belong to a network namespace: a daemon in another one is not seen. Any user can
 * take the name, so the refusal names the process and the user that hold it.
 *
 * Called by the engine when it opens and closes. Calls nothing of the daemon.
 */
#ifndef GM_DAEMON_MEMORY_CLAIM_H
#define GM_DAEMON_MEMORY_CLAIM_H

#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

struct gm_claim;

/* The name of a user for a person to read. Returns `name`. */
typedef const char *gm_claim_user(uid_t uid, char name[64]);

/*
 * Claim the GPU with this UUID. Returns 0; -EADDRINUSE with a phrase in `why` that says who has it
 * ("gpumuxd, pid 812 of user alice"); or another -errno. Loop thread, as gm_claim_close.
 */
int gm_claim_open(struct gm_claim **claim, uv_loop_t *loop, const unsigned char uuid[16],
                  gm_claim_user *user_name, char *why, size_t size);

/* End the claim. NULL: nothing happens. */
void gm_claim_close(struct gm_claim *claim);

#endif
