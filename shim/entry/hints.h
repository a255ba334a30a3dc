/* The functions of include/gpumux.h, and the hints that the shim gives by itself. Calls boot and
 * the link. */
#ifndef GM_SHIM_HINTS_H
#define GM_SHIM_HINTS_H

#include <stdint.h>

/* Announce a request as gpumux_expect does, unless the program does so itself: it knows better. Any
 * thread, after the boot. May change errno. */
void gm_hints_announce(uint64_t after_us, uint64_t for_us);

#endif
