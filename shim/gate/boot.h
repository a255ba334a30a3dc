/*
 * How far the start of the shim got. entry/start.h says what it does, and hands it down here.
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

/* The start itself: returns the state that follows, LIVE, PASS, DEAD, or COLD for another try. */
typedef enum gm_boot_state gm_boot_start(void);

/* Before any pointer of gm_real is there: what gm_boot shall do. */
void gm_boot_by(gm_boot_start *start);

/*
 * Boot if nobody did; wait if another thread does. Returns LIVE, PASS or DEAD; or COLD when the
 * program did not initialize the driver yet, or the call comes from within boot: then hand the call
 * through. Takes at most about 2 s: an unresponsive daemon. The caller has found its own real
 * function.
 */
enum gm_boot_state gm_boot(void);

/* Boot if that is to be done; whether the program is live now. */
static inline bool gm_is_live(void)
{
    return gm_boot() == GM_BOOT_LIVE;
}

/* The forked child, in this order: whether its parent was in BOOT or LIVE; then it is DEAD. */
bool gm_boot_has_begun(void);
void gm_boot_part(void);

/* Whether this is the forked child of a program that was live, or about to be. */
bool gm_boot_is_forked(void);

/* Whether the state is LIVE, PASS or DEAD. One load. */
bool gm_boot_is_over(void);

#endif
