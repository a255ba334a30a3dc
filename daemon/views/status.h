/*
 * The status as a document. Reads the engines and the tiers, and changes nothing. Called by
 * service/control.c, on the loop thread; calls log.c.
 */
#ifndef GM_DAEMON_VIEWS_STATUS_H
#define GM_DAEMON_VIEWS_STATUS_H

#include <cjson/cJSON.h>

struct gm_machine;

/* The machine's part of `mux-ctl status --json`: {"gpus":[...],"apps":[...],"totals":{...}}. See
 * daemon/README.md, "Status". Call gm_machine_refresh before. The caller owns it; NULL: out of
 * memory. */
cJSON *gm_view_status(const struct gm_machine *machine);

#endif
