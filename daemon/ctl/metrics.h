/* The status as metrics for Prometheus. Called by exporter.c. */
#ifndef GM_DAEMON_CTL_METRICS_H
#define GM_DAEMON_CTL_METRICS_H

#include <stdio.h>

#include "daemon/ctl/ctl.h"

/* In which container and pod a process is, by the text of its /proc/PID/cgroup, and the control
 * groups below `root` ("": the machine's); "": in none. A name that a user chose is "UID:NAME": it
 * may be anybody's. */
struct mux_place {
    char container[80], pod[64];
};
void mux_find_place(const char *root, const char *cgroup, struct mux_place *place);

/* Write all metrics in the text format of Prometheus. `status` NULL: the daemon is down. False: not
 * all could be written. */
bool mux_write_metrics(FILE *file, const cJSON *status);

#endif
