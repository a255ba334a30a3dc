/*
 * What the start does: find out whether there is a daemon, and connect this program to it
 * (gate/boot.h has the states). load.c hands it to gm_boot_by, so that it runs at the first call
 * that needs it; it makes the rooms ready and tells each whom to call. Nothing here prints, exits
 * or aborts.
 */
#ifndef GM_SHIM_START_H
#define GM_SHIM_START_H

#include "shim/gate/boot.h"

/* A gm_boot_start. gm_real is filled. */
enum gm_boot_state gm_start(void);

#endif
