/* What mux-ctl trace writes of the tracks of a recorded trace. Called by trace.c. */
#ifndef GM_DAEMON_CTL_TRACE_H
#define GM_DAEMON_CTL_TRACE_H

#include <stdbool.h>
#include <stdio.h>

#include "daemon/ctl/tracks.h"

/* As JSON trace events; as a page. False: out of memory. What of it cannot be written, `file`
 * knows. */
bool mux_export_tracks(FILE *file, const struct mux_tracks *tracks);
bool mux_report_tracks(FILE *file, const struct mux_tracks *tracks);

#endif
