/*
 * The status as a document. Reads the engine's state and changes nothing. Called by
 * service/control.c, on the loop thread.
 */
#ifndef GM_DAEMON_VIEWS_STATUS_H
#define GM_DAEMON_VIEWS_STATUS_H

#include <cjson/cJSON.h>

struct gm_engine;

/*
 * The engine's part of `mux-ctl status --json`, as of gm_engine_refresh; a new object owned by the
 * caller, NULL without memory: {"gpus":[...],"apps":[...],"totals":{...}}, see daemon/README.md,
 * "Status".
 */
cJSON *gm_view_status(const struct gm_engine *engine);

#endif
