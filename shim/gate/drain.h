/*
 * Draining: after a CLOSE, find out whether this program is quiet,
 * and answer DRAINED before the deadline, once for each CLOSE. And after a QUERY, with the gate
 * open, answer QUIET when the work that was submitted so far has ended, however long that takes.
 *
 * A thread of its own does it ("gpumux-drain"), because synchronizing a context returns when the
 * GPU's work ends, which may be never: a kernel can wait for the host. The link thread keeps the
 * deadline: when it passes, the answer is BUSY, the drainer stays where it is, and what it finds
 * later is not sent. The next CLOSE waits for it again.
 *
 * A query is left off for a CLOSE at once, and for a newer query: neither of them waits longer for
 * it. Only with a driver that cannot record an event for a context (contexts.h) the drainer first
 * comes out of the synchronizing call that it is in, which waits for nothing that the CLOSE would
 * not wait for, and the deadline is kept all the same.
 *
 * Owns the open CLOSE and QUERY. Calls the gate, contexts and captures by name, and everybody else
 * through gm_drain_calls.
 */
#ifndef GM_SHIM_DRAIN_H
#define GM_SHIM_DRAIN_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/wire.h"

/* Whom the drainer calls. All but the answers: its own thread only, without a lock. */
struct gm_drain_calls {
    /* The answers to CLOSE and to QUERY. The drainer, or the link thread. */
    void (*drained)(const struct gm_msg_drained *drained);
    void (*quiet)(const struct gm_msg_quiet *quiet);

    /* CLOSE came: others want room. */
    void (*before)(void);
    /* The program is quiet: get out of the way of others what can be moved until the time `until`.
     */
    void (*clear)(uint64_t until);
    /* After the answer. Returns whether `resumed` is to be called as soon as the gate opens. */
    bool (*paused)(void);
    void (*resumed)(void);

    /* QUERY came: the program rests. Stop when `*stamp` is not `seen` any more. */
    void (*rest)(const _Atomic uint64_t *stamp, uint64_t seen);

    /* When nothing else is to be done, at the time that it returned last, and after gm_drain_watch.
     * Returns when to call it again; UINT64_MAX: only after gm_drain_watch. */
    uint64_t (*watch)(uint64_t now);
};

/* Start only: start the thread. 0 or -errno. */
int gm_drain_start(const struct gm_drain_calls *calls);

/* Link thread: CLOSE came at time `now`. A CLOSE that is not answered yet is forgotten. */
void gm_drain_close(uint64_t epoch, uint64_t deadline_ns, uint64_t now);

/*
 * Link thread: answer BUSY if the deadline passed at time `now`. Returns the time of the deadline
 * that is still to come, or UINT64_MAX.
 */
uint64_t gm_drain_expire(uint64_t now);

/* Link thread: QUERY came. One that is not answered yet is forgotten. */
void gm_drain_query(uint64_t query);

/* Link thread: the daemon is lost; nobody waits for an answer. */
void gm_drain_cancel(void);

/* Any thread: there is something to watch, which is a sign that the program does not rest. */
void gm_drain_watch(void);

/*
 * A thread that holds the others (gm_gate_hold): wait until all work of the program has ended.
 * CUDA_ERROR_NOT_READY: not within `patience_ns`. The drainer does it also while it is at a CLOSE,
 * which cannot end before this thread leaves.
 */
CUresult gm_drain_synchronize(uint64_t patience_ns);

#endif
