/*
 * What the files of sessions share: a session, and all of them. session.c owns both; it makes them,
 * reads what peers say and hands it on. session_output.c writes a session's queue and its end,
 * session_starts.c what waits in PLACE, session_rejoin.c what comes from the daemon before,
 * session_documents.c who waits for a document. No function of its own. Loop thread only.
 */
#ifndef GM_DAEMON_SERVICE_SESSION_STATE_H
#define GM_DAEMON_SERVICE_SESSION_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <uv.h>

#include "common/wire.h"
#include "daemon/engine/machine.h"
#include "daemon/service/bounds.h"
#include "daemon/service/control.h"
#include "daemon/service/placing.h"

#define GM_NO_APP UINT32_MAX
#define GM_SESSION_OTHERS 4u         /* one user gets all but a quarter of all places */
#define GM_SESSION_PATIENCE_MS 5000u /* while NEW; mux-ctl: until its next question */
#define GM_SESSION_RETRY_MS 10u /* the kernel lacks room for messages or fds; TRIM is under way */

/* A queued message; its fds are duplicates. */
struct gm_output {
    struct gm_output *next;
    size_t length;
    int n_fds;
    int fds[GM_WIRE_FDS];
    _Alignas(8) uint8_t bytes[];
};

TAILQ_HEAD(gm_session_list, gm_session);

/* A program that was placed, and is told when MPS has started. */
struct gm_joining {
    struct gm_msg_placed answer;
    struct gm_place_entry entries[GM_DEVICES_VISIBLE];
    uint32_t n;
};

/* A program of the daemon before that says what it holds. */
struct gm_rejoining {
    struct gm_msg_rejoin body;
    struct gm_holds_entry *holds;
    uint32_t n;
};

/* Why a session's socket is not read. */
enum gm_stands { GM_STANDS_NOWHERE, GM_STANDS_IN_LINE, GM_STANDS_ASKING };

struct gm_session {
    struct gm_sessions *all;
    TAILQ_ENTRY(gm_session) each;  /* in all->living or all->ending */
    TAILQ_ENTRY(gm_session) stand; /* in all->line or all->asking */
    enum gm_stands stands;
    struct gm_msg_log asked; /* ASKING: for the log, or trace, since then, ... */
    enum gm_msg_type answer; /* ... or for the status: the message that answers */
    struct gm_bound *user;
    uv_poll_t poll;
    uv_timer_t timer; /* patience while NEW or CONTROL, retry while APP or trimming */
    int fd;
    int open_handles;
    enum gm_session_state state;
    uint32_t app; /* GM_NO_APP unless joined */
    pid_t pid;
    uid_t uid;
    gid_t gid;
    bool is_admin;        /* gm_peer_is_admin */
    bool has_our_numbers; /* it knows processes by the daemon's numbers, not by a container's */
    char name[64];
    bool is_ending;
    bool is_starved;                /* the kernel has no room for its output now */
    bool is_starting;               /* it waits until a GPU has room for it */
    bool is_sharing;                /* it is to share by MPS */
    bool has_own_mps;               /* ... and has one that its user runs */
    uint32_t part;                  /* ... of the multiprocessors, in thousandths; 0: all */
    bool is_told;                   /* that its answer takes a while */
    struct gm_joining *joining;     /* it waits until MPS has started; NULL: it does not */
    struct gm_rejoining *rejoining; /* NULL: it is not one */
    bool is_left;                   /* its process has ended, and others have the connection */
    uint64_t answer_by;             /* of TRIM, CONFIG or GIVE_BACK; 0: none was asked */
    bool is_giving_back;            /* it is GIVE_BACK */
    uint64_t reading;               /* CONFIG: its number; 0: it is TRIM */
    struct gm_msg_trim_is trimmed;

    struct gm_output *head, **tail;
    size_t queue_bytes;
    unsigned queue_messages;
};

struct gm_sessions {
    uv_loop_t *loop;
    struct gm_machine *machine;
    struct gm_control *control;
    uv_poll_cb on_ready; /* of a session: session.c */
    uv_timer_cb on_timer, on_starts;
    uv_idle_t gravedigger; /* runs while `ending` is not empty */
    uv_timer_t beat;       /* runs while there are apps */
    uv_check_t round;
    uv_idle_t spinner;    /* runs while somebody stands in line: the next round begins at once */
    uv_timer_t starts;    /* runs while programs wait for room at their start */
    uv_timer_t alarm;     /* ends the loop's sleep when the next document may be made */
    uint64_t document_at; /* then */
    struct gm_session_list living, ending; /* who came first is first */
    struct gm_session_list line, asking;
    uint32_t n_line;
    struct gm_bounds bounds;
    struct gm_view view;
    uint32_t visitors, max_visitors; /* connections of no app that are not ending */
    uint32_t apps, max_apps;
    uint32_t apps_by_files; /* how many apps the limit of open files allows */
    _Alignas(8) uint8_t in[GM_WIRE_MAX];
    _Alignas(8) uint8_t out[GM_WIRE_MAX];
};

#endif
