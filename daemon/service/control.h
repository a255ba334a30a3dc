/*
 * What mux-ctl asks.
 *
 * STATUS: the daemon's state as one JSON document, schema 2 (daemon/README.md, "Status").
 *
 *   {"schema":2, "version":..., "pid":..., "uptime_s":..., "socket":..., "config":{...},
 *    "reserved":..., "refused":{...}, "gpus":[...], "apps":[...], "totals":{...}}
 *
 * LOG: what the scheduler decided, schema 1 (daemon/README.md, "The log").
 *
 *   {"schema":1, "pid":..., "started_s":..., "newest":..., "entries":[...]}
 *
 * TRIM: give back memory that no program needs. Anybody may: it takes nothing from a program, at
 * worst the next allocation waits for memory to be made (220 ms a GiB pinned). Who wants the GPU
 * for a program beside gpumux is often not the one who runs the daemon.
 *
 * SET: change what is said of programs; the engine judges whether the asker may.
 *
 * What is not of the daemon comes from the engine; uids get their names here (users.h). Loop thread
 * only.
 */
#ifndef GM_DAEMON_SERVICE_CONTROL_H
#define GM_DAEMON_SERVICE_CONTROL_H

#include <stdint.h>

#include "daemon/engine/engine.h"
#include "daemon/service/options.h"
#include "daemon/service/places.h"
#include "daemon/service/session.h"

#define GM_STATUS_SCHEMA 2
#define GM_LOG_SCHEMA 1

struct gm_control {
    const struct gm_options *options;
    struct gm_engine *engine;
    uint64_t started; /* gm_now() */
    struct gm_places places;
};

/* Both stay the caller's and must outlive `control`. */
void gm_control_init(struct gm_control *control, const struct gm_options *options,
                     struct gm_engine *engine);

/* The status, NUL-terminated; the caller's, to be freed with cJSON_free. NULL without memory. */
char *gm_control_status(struct gm_control *control);

/* The log after entry `since`, as gm_control_status is. */
char *gm_control_log(struct gm_control *control, uint64_t since);

/* Answer STATUS: the document in a sealed memfd, with STATUS_IS. On failure the session ends. */
void gm_control_answer(struct gm_control *control, struct gm_session *session);

/* Answer LOG in the same way, with LOG_IS. */
void gm_control_answer_log(struct gm_control *control, struct gm_session *session, uint64_t since);

/* Do and answer TRIM. */
void gm_control_trim(struct gm_control *control, struct gm_session *session);

/* Do and answer SET, for the user `asker`. */
void gm_control_set(struct gm_control *control, struct gm_session *session, uid_t asker,
                    const struct gm_msg_set *body);

#endif
