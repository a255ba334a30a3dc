/*
 * The daemon before. A daemon that ends still has copies under way until the last of its process is
 * gone, whoever has its socket's lock: nothing that it left may be read before. So each daemon has
 * the keeper hold a pidfd of itself, and the next one waits for that.
 *
 * Owns nothing. Called by main, before anything else of what the keeper holds is claimed. Calls
 * memory/kept.
 */
#ifndef GM_DAEMON_SERVICE_BEFORE_H
#define GM_DAEMON_SERVICE_BEFORE_H

#include <stddef.h>
#include <stdint.h>

struct gm_kept;

/*
 * Wait until the daemon before, if the keeper knows one, has ended, and have the keeper know this
 * one. Blocks. 0; -EBUSY, it has not within `limit_ns`, and the keeper knows it still; or -errno.
 * `why` says so in one line.
 */
int gm_before_wait(struct gm_kept *kept, uint64_t limit_ns, char *why, size_t why_size);

#endif
