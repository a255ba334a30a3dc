/*
 * The start: look for a daemon, connect this program to it, start the threads, and give each lower
 * room its callbacks (gate/boot.h has the states). load.c passes it to gm_boot_by, which runs it at
 * the first call that needs it. It calls all rooms but the handlers. It never prints, exits or
 * aborts.
 */
#ifndef GM_SHIM_START_H
#define GM_SHIM_START_H

#include "shim/gate/boot.h"

/* A gm_boot_start. Needs gm_real filled. */
enum gm_boot_state gm_start(void);

#endif
