/*
 * Space sharing: NVIDIA's MPS (Multi-Process Service) for the programs of a user whose rule or
 * option says so (service/placing.c). Programs under one MPS server use the multiprocessors at the
 * same moment. That costs: a fatal fault of one ends the work of all that share with it, and their
 * kernels cannot be stopped in the middle, as the channels are the server's.
 *
 * Each user has a control daemon (nvidia-cuda-mps-control) and a server of their own: a fault never
 * crosses users. It runs as that user, with the folders BASE/UID/pipe and .../log, without
 * CUDA_VISIBLE_DEVICES and LD_PRELOAD. It starts when the first program asks, ends
 * GM_MPS_LINGER_NS after the last of them has ended, and with the daemon. With the daemon it is
 * told to end and not forced to: programs that still share run on.
 *
 *   OFF -> [OLD ->] STARTING -> READY <-> FAULT -> ENDING -> OFF;  from each: UNUSABLE
 *
 * OLD: an earlier daemon, which was killed, left a control daemon there. It is told to end first.
 * A server that takes long to start (several GPUs, no nvidia-persistenced) is waited for, but not
 * by programs. Where MPS cannot be used, programs run without it. It is tried again after a time
 * that doubles.
 *
 * Nothing that the control daemon or its tool does is waited for without a limit (mps_tool.h). The
 * user owns the two folders, and nothing above them. The folders go when it has ended: the user's
 * rm empties them, as the user may put anything there.
 *
 * Owns struct gm_mps, those folders (mps_folders.h) and processes. Called by session_starts.c,
 * main, and by control.c for the status. Loop thread only.
 */
#ifndef GM_DAEMON_SERVICE_MPS_H
#define GM_DAEMON_SERVICE_MPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/clock.h"
#include "common/wire.h"

#define GM_MPS_TOOL "nvidia-cuda-mps-control"
#define GM_MPS_USERS 16u
/* A server takes 48 clients at a time on GPUs before Blackwell (NVIDIA's MPS guide). A program that
 * comes when it is full is refused by the driver, so one more runs without. */
#define GM_MPS_MEMBERS 48u
#ifndef GM_MPS_LINGER_NS                     /* tests have shorter ones */
#define GM_MPS_LINGER_NS (5 * GM_S)          /* programs that follow each other keep it */
#define GM_MPS_START_NS (GM_SLOW * 6 * GM_S) /* from the question to READY */
#define GM_MPS_SERVER_NS (3 * GM_S) /* until it lists a server; then clients may start it */
#define GM_MPS_SLOW_NS (60 * GM_S)  /* a server that is initializing; no program waits so long */
#define GM_MPS_TOOL_NS (GM_SLOW * 2 * GM_S)  /* the tool answers */
#define GM_MPS_END_NS (GM_SLOW * 4 * GM_S)   /* it ends by itself */
#define GM_MPS_LEAVE_NS (GM_SLOW * 1 * GM_S) /* to tell one that stays with its programs to end */
#define GM_MPS_LOOK_NS (100 * GM_MS)         /* while it starts or ends */
#define GM_MPS_FAULT_NS (1 * GM_S)           /* looks whether the server has recovered */
#define GM_MPS_RETRY_NS (10 * GM_S)          /* after the first failure; doubles ... */
#define GM_MPS_RETRY_MOST_NS (600 * GM_S)    /* ... to this */
#endif
#define GM_MPS_WAIT_NS                                                                             \
    (2 * GM_MPS_START_NS) /* as GM_MPS_START_NS; one that ends is waited for first */

enum gm_mps_state {
    GM_MPS_OFF,
    GM_MPS_OLD,
    GM_MPS_STARTING,
    GM_MPS_READY,
    GM_MPS_FAULT,
    GM_MPS_ENDING,
    GM_MPS_UNUSABLE,
};

enum gm_mps_answer {
    GM_MPS_ALONE, /* it runs without MPS; `text` says why */
    GM_MPS_SOON,  /* ask again when `settled` is called for its user */
    GM_MPS_JOINED /* `pipe` is its folder */
};

/* MPS of this user is usable, or it is known that it is not. */
typedef void gm_mps_settled(void *arg, uid_t uid);

struct gm_mps;

/* `base`: the folder of those folders, which is made when it is needed. NULL: out of memory. */
struct gm_mps *gm_mps_open(uv_loop_t *loop, const char *base);
void gm_mps_listen(struct gm_mps *mps, gm_mps_settled *settled, void *arg);

/* A program asks to share, and is to have `part` of the multiprocessors, in thousandths; 0: all.
 * JOINED: it counts until its process has ended. `mps` may be NULL: alone. */
enum gm_mps_answer gm_mps_join(struct gm_mps *mps, pid_t pid, uid_t uid, gid_t gid, uint32_t part,
                               char pipe[GM_PIPE_MAX], char *text, size_t size);

/* Whether it was given a part of the multiprocessors. It need not have joined since. */
bool gm_mps_has_part(const struct gm_mps *mps, pid_t pid);

/* For the status. */
struct gm_mps_view {
    uid_t uid;
    enum gm_mps_state state;
    const char *word; /* of the state */
    pid_t session;    /* in which its control daemon and server are; 0: none */
    uint32_t n;       /* programs */
    pid_t pid[GM_MPS_MEMBERS];
    uint32_t part[GM_MPS_MEMBERS]; /* thousandths; 0: all */
    char pipe[GM_PIPE_MAX];
    char why[256]; /* FAULT, UNUSABLE, and what happened last; "": nothing */
};
/* User number `i` of those that have or had one, OFF apart. False: there are no more. */
bool gm_mps_view(const struct gm_mps *mps, uint32_t i, struct gm_mps_view *view);

/* Tell all to end, and close the handles when they have, or GM_MPS_END_NS and two seconds later.
 * The loop must run to its end before gm_mps_free. NULL: nothing. */
void gm_mps_close(struct gm_mps *mps);
void gm_mps_free(struct gm_mps *mps);

#endif
