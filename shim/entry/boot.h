/*
 * The start of the shim, and how far it got.
 *
 *   COLD ---first context, allocation or submission---> BOOT ---daemon answered---> LIVE
 *                                                         |
 *                                                         +----no daemon, off, ----> PASS
 *                                                              nothing to manage
 *   fork: COLD stays COLD in the child, PASS stays PASS, BOOT and LIVE become DEAD.
 *   exec starts afresh. A lost connection is not a boot state: see link.h.
 *
 * COLD does nothing and knows nothing: no socket, no thread, no memory. In PASS and DEAD every hook
 * hands its call to the real driver, but for those of memory pools in a forked child
 * (handlers/pools.c). Nothing here prints, exits or aborts.
 *
 * Environment, read once at boot:
 *   GPUMUX_DISABLE=1   run untouched (procaddr.h asks it too)
 *   GPUMUX_SOCKET=path where the daemon is (common/sock.h)
 *   GPUMUX_SHARING=... how memory is shared with other processes (sharing.h)
 *   GPUMUX_LOG=file    append what happens, one line each: connected, no daemon, lost, refused
 */
#ifndef GM_SHIM_BOOT_H
#define GM_SHIM_BOOT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

enum gm_boot_state {
    GM_BOOT_COLD = 0,
    GM_BOOT_BOOT,
    GM_BOOT_LIVE,
    GM_BOOT_PASS,
    GM_BOOT_DEAD,
};

/*
 * Boot if nobody did; wait if another thread does. Returns LIVE, PASS or DEAD; or COLD when the
 * program did not initialize the driver yet, or the call comes from within boot: then hand the call
 * through. Takes at most about 2 s: an unresponsive daemon. The caller has resolved the real driver
 * (real.h).
 */
enum gm_boot_state gm_boot(void);

/* Boot if that is to be done; whether the program is live now. */
static inline bool gm_is_live(void)
{
    return gm_boot() == GM_BOOT_LIVE;
}

/* Whether this is the forked child of a program that was live, or about to be. */
bool gm_boot_is_forked(void);

/* Whether the state is LIVE, PASS or DEAD. One load. */
bool gm_boot_is_over(void);

#endif
