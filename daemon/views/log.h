/*
 * The log as a document: what the scheduler decided and what was said to it (engine/log.c keeps the
 * notes). Reads the engine's state and changes nothing. Called by service/control.c and
 * views/status.c, on the loop thread.
 */
#ifndef GM_DAEMON_VIEWS_LOG_H
#define GM_DAEMON_VIEWS_LOG_H

#include <stdint.h>
#include <cjson/cJSON.h>

struct gm_engine;
struct gm_sched_policy;
struct gm_switch;

/*
 * The notes after number `since`, a new object owned by the caller; NULL without memory:
 * {"newest":..., "kept":..., "entries":[...]}, see daemon/README.md, "The log".
 */
cJSON *gm_view_log(const struct gm_engine *engine, uint64_t since);

/* Add to `object` what the status shows as well: the newest refusals, one switch, one policy. */
void gm_view_refusals(const struct gm_engine *engine, cJSON *object);
void gm_view_switch(cJSON *object, const struct gm_switch *took);
void gm_view_policy(cJSON *object, const struct gm_sched_policy *policy);

#endif
