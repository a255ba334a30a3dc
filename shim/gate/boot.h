/*
 * How far the start of the shim got. entry/start.c does the start; this owns its state.
 *
 *   COLD --first context, allocation or submission--> BOOT --the daemon answered--> LIVE
 *                                                       |
 *                                                       +-- no daemon, disabled,
 *                                                           no GPU to manage ----> PASS
 *   A forked child: COLD and PASS stay, BOOT and LIVE become DEAD. exec starts again.
 *   A lost connection does not change the state (link.h).
 *
 * In COLD the shim has no socket, no thread and no memory, but while the first cuInit asks which
 * GPU comes first (link/place.h). In PASS and DEAD every hook calls the
 * real driver; the hooks of memory pools differ in a forked child (handlers/pools.c).
 *
 * Environment, read once at boot:
 *   GPUMUX_DISABLE=1   do nothing (procaddr.h reads it too)
 *   GPUMUX_SOCKET=path the daemon's socket (common/sock.h)
 *   GPUMUX_SHARING=... how memory is shared with other processes (sharing.h)
 *   GPUMUX_LOG=file    append one line for each event: connected, no daemon, lost, refused
 *
 * Any thread. Calls the start that gm_boot_by was given.
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

/* The start itself. Returns the next state: LIVE, PASS, DEAD, or COLD to try again. */
typedef enum gm_boot_state gm_boot_start(void);

/* Set what gm_boot runs, before any pointer of gm_real is set. */
void gm_boot_by(gm_boot_start *start);

/*
 * Boot, or wait for the thread that does. Returns LIVE, PASS or DEAD. Returns COLD if the program
 * has not initialized the driver yet or if boot itself calls: the caller then calls the real
 * driver. Takes at most about 2 s, with a daemon that does not answer.
 */
enum gm_boot_state gm_boot(void);

/* Boot if necessary. Whether the program is live. */
static inline bool gm_is_live(void)
{
    return gm_boot() == GM_BOOT_LIVE;
}

/* The forked child calls these in this order: was the parent in BOOT or LIVE? Become DEAD. */
bool gm_boot_has_begun(void);
void gm_boot_part(void);

/* Whether this is the forked child of a program that was in BOOT or LIVE. */
bool gm_boot_is_forked(void);

/* Whether the state is LIVE, PASS or DEAD. One load. */
bool gm_boot_is_over(void);

#endif
