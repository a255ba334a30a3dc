/* clang-format off */
/*
 * Answers to mux-ctl. Owns struct gm_control. main makes it, session.c calls it; it calls the
 * machine, the views and users.c. Loop thread only.
 *
 * STATUS: the daemon's state as one JSON document, schema 3 (mux-ctl(1), "JSON").
 *
 *   {"schema":3, "version":..., "pid":..., "uptime_s":..., "socket":..., "config":{...},
 *    "reserved":..., "refused":{...}, "space_sharing":[...], "gpus":[...], "apps":[...], "totals":{...}}
 *
 * LOG: the scheduler's decisions, schema 2 (mux-ctl(1), "An entry of the log").
 *
 *   {"schema":2, "pid":..., "started_s":..., "newest":..., "entries":[...]}
 *
 * TRACE: lines of trace/trace.h, schema 1.
 *
 *   {"schema":1, "pid":..., "started_s":..., "next":..., "text":...}
 *
 * TRIM: give back memory that no program needs: the asker's, root's is all. At worst the next
 * allocation waits until memory is pinned again (220 ms a GiB).
 *
 * CONFIG: read the options again, or say what that would do, for administrators.
 *
 * SET: change the settings of programs. The engine decides whether the user may.
 *
 * Administrators are root and the daemon's own user, but not from within a container
 * (common/peer.h).
 */
/* clang-format on */
#ifndef GM_DAEMON_SERVICE_CONTROL_H
#define GM_DAEMON_SERVICE_CONTROL_H

#include <stdint.h>

#include "common/wire.h"
#include "daemon/engine/machine.h"
#include "daemon/service/mps.h"
#include "daemon/service/options.h"
#include "daemon/service/past.h"
#include "daemon/service/places.h"
#include "daemon/service/reload.h"

#define GM_STATUS_SCHEMA 3
#define GM_LOG_SCHEMA 2
#define GM_TRACE_SCHEMA 1

/* Programs that wait at their start until a GPU has room for them; those that came first are first.
 */
struct gm_waiters {
    uint32_t n;
    struct gm_waiting waiting[GM_BIND_WAITERS];
    struct gm_waiter {
        struct gm_session *session;
        char name[64];
    } who[GM_BIND_WAITERS];
};

struct gm_takeover; /* engine/lost.h */

struct gm_control {
    const struct gm_options *options;
    struct gm_machine *machine;
    uint64_t started; /* gm_now() */
    struct gm_places places;
    struct gm_past *past;               /* main's */
    struct gm_reload *reload;           /* likewise */
    struct gm_mps *mps;                 /* likewise */
    const struct gm_takeover *takeover; /* NULL: this daemon took over nobody */
    const char *history;                /* likewise: the path of the file; "": none */
    void (*give_back)(void *arg);       /* GIVE_BACK: begin with it; likewise */
    void *arg;
    struct gm_waiters waiters; /* session.c's */
};

/* `options` and `machine` must outlive `control`. */
void gm_control_init(struct gm_control *control, const struct gm_options *options,
                     struct gm_machine *machine);

/* The status as text. The caller frees it with cJSON_free. NULL: out of memory. */
char *gm_control_status(struct gm_control *control);

/* The log after entry `since`, in the same way. */
char *gm_control_log(struct gm_control *control, uint64_t since);

/* What a trace has since byte `since`, in the same way. */
char *gm_control_trace(struct gm_control *control, uint64_t since);

/* Put the text of a document into a sealed memfd, and free the text. Returns the memfd, which the
 * caller closes, and its length; or -errno. */
int gm_control_seal(char *text, uint64_t *bytes);

/* TRIM for the user `asker`. Returns what goes back to the system. */
struct gm_msg_trim_is gm_control_trim(struct gm_control *control, uid_t asker, bool is_admin);

/* FORGET for the user `asker`: what runs of its own programs needed, for an administrator those of
 * all. */
void gm_control_forget(struct gm_control *control, uid_t asker, bool is_admin,
                       const struct gm_msg_forget *body, struct gm_msg_forgotten *answer);

/* CONFIG: the number of the reading (gm_reload_ask); 0: *answer says why not. */
uint64_t gm_control_config(struct gm_control *control, bool is_admin,
                           const struct gm_msg_config *body, struct gm_msg_config_is *answer);

/* SET for the user `asker`. */
void gm_control_set(struct gm_control *control, uid_t asker, bool is_admin,
                    const struct gm_msg_set *body, struct gm_msg_set_is *answer);

#endif
