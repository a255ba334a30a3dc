/* clang-format off */
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
 * What is not of the daemon itself comes from the views; uids get their names here (users.h). Loop
 * thread only.
 */
/* clang-format on */
#ifndef GM_DAEMON_SERVICE_CONTROL_H
#define GM_DAEMON_SERVICE_CONTROL_H

#include <stdint.h>

#include "common/wire.h"
#include "daemon/engine/engine.h"
#include "daemon/service/options.h"
#include "daemon/service/places.h"

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

/*
 * Put a document into a memfd that nobody can change, and free it; NULL: it could not be made.
 * Returns the memfd, the caller's, and the document's bytes; or -errno.
 */
int gm_control_seal(char *text, uint64_t *bytes);

/* Do TRIM; returns what it gave back. */
struct gm_msg_trim_is gm_control_trim(struct gm_control *control);

/* Do SET for the user `asker`, and write the answer. */
void gm_control_set(struct gm_control *control, uid_t asker, const struct gm_msg_set *body,
                    struct gm_msg_set_is *answer);

#endif
