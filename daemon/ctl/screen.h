/* The screen of `mux-ctl top`. */
#ifndef GM_DAEMON_CTL_SCREEN_H
#define GM_DAEMON_CTL_SCREEN_H

#include "daemon/ctl/samples.h"

/* Show samples until the user leaves. `samples` has the first one. Returns an enum mux_exit. */
int mux_screen(const struct mux_options *options, struct mux_samples *samples);

#endif
