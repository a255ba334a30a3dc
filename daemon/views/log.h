/*
 * The log as a document, from the notes that journal.c keeps. Changes nothing. Called by
 * service/control.c and views/status.c, on the loop thread.
 */
#ifndef GM_DAEMON_VIEWS_LOG_H
#define GM_DAEMON_VIEWS_LOG_H

#include <stdint.h>
#include <cjson/cJSON.h>

struct gm_journal;
struct gm_sched_policy;
struct gm_switch;

/* The notes after number `since`: {"newest":..., "kept":..., "entries":[...]}. See
 * mux-ctl(1), "An entry of the log". The caller owns it; NULL: out of memory. */
cJSON *gm_view_log(const struct gm_journal *journal, uint64_t since);

/* Parts that the status shows as well: the newest refusals on a GPU, one switch, one policy. */
void gm_view_refusals(const struct gm_journal *journal, uint32_t gpu, uint64_t now, cJSON *object);
void gm_view_switch(cJSON *object, const struct gm_switch *took);
void gm_view_policy(cJSON *object, const struct gm_sched_policy *policy);

#endif
