/*
 * What the daemon before had of the pinned tier: its pieces come first, by their descriptors, then
 * the chains that lie in them. Called by the engine's adoption and by stores_adopt. Calls
 * hostpool and its files, kept and pages.
 */
#ifndef GM_DAEMON_MEMORY_HOSTPOOL_ADOPT_H
#define GM_DAEMON_MEMORY_HOSTPOOL_ADOPT_H

#include "daemon/memory/hostpool_rows.h"

/*
 * The piece whose first page this is: memory of the daemon before, by its descriptor, which is
 * taken in any case, and the id that was put with it. `owner`: the user whose chunk lies there from
 * that page on; GM_NONE: there is none. What a program may know and is nobody's is let go, which is
 * no error. 0; -EINVAL: there is no such piece, and the keeper lets it go; -EIO: the memory cannot
 * be had, now or ever, and the keeper holds on.
 */
int gm_hostpool_adopt(struct gm_hostpool *pool, uint32_t page, int fd, uint32_t id, uint32_t owner);
/* Take a chain as it lies there, of the daemon before: pages that are free, or an idle unit. False:
 * it is none of that size, and nothing is taken. So it may be an attack. */
bool gm_hostpool_take_again(struct gm_hostpool *pool, uint32_t page, uint64_t bytes);

#endif
