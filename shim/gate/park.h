/*
 * When a program may be parked: its kernels stop on the GPU where they stand, and go on when its
 * gate opens. observe/channels.h does it. A CLOSE gives the program a grace to finish by itself.
 * What runs on after that is parked.
 *
 * A thread may be inside the gate: in a launch that waits for room in the queue, or in a copy that
 * waits for the kernels before it. That is no obstacle if all it still does is wait for the GPU.
 * But a copy that has just begun looks its addresses up, and must find them mapped. What a thread
 * does is told by what it did since the gate closed: it used more of a processor than looking up
 * takes (it polls), or it sleeps in a call that waits for the GPU.
 *
 * Mapping and unmapping never wait for a parked program's work: of 50 kinds of driver call that
 * another thread made meanwhile, some waited, and none kept cuMemUnmap, cuMemMap or cuMemSetAccess
 * waiting (H100, driver 580).
 *
 * A hold stops the program in the same way, beside a CLOSE or not. Only when neither wants
 * it any more is it enabled.
 *
 * Owns what it saw of the threads inside, and for what the program is stopped. The link thread
 * alone parks, unmaps, maps and resumes. A program that the daemon has marked as moving (shm.h,
 * gm_stat.moving) is not enabled by anybody, also when the daemon dies: until the shim gives the
 * daemon up. Calls the gate. Callers: drain.c; any thread asks gm_park_is_on and
 * gm_park_is_stopped.
 */
#ifndef GM_SHIM_GATE_PARK_H
#define GM_SHIM_GATE_PARK_H

#include <stdbool.h>
#include <stdint.h>

/* What became of an attempt. */
enum gm_park_outcome {
    GM_PARK_IS_ON, /* nothing of this program runs on any GPU */
    GM_PARK_LATER, /* not at this moment: a channel comes or goes, a thread has to get out */
    GM_PARK_NEVER, /* not this program, or not with this driver: wait for its work */
};

/* Link thread: CLOSE came. Look at who is inside. */
void gm_park_begin(void);

/*
 * Link thread, after gm_park_begin, when the grace is over: park if nobody inside can mind.
 * `disable` stops all channels of the program, or changes nothing.
 */
enum gm_park_outcome gm_park_try(enum gm_park_outcome (*disable)(void));

/* Link thread: it is not parked any more; enable again, unless it is held, or marked as moving:
 * then it stays parked. */
void gm_park_end(void (*enable)(void));

/* Link thread: the daemon is gone for good, and its mark with it. What it did not bring back is
 * lost and not mapped. */
void gm_park_take_back(void);

/* Whether it is parked, for a CLOSE. */
bool gm_park_is_on(void);

/* Whether its channels are off, for a CLOSE or a hold. */
bool gm_park_is_stopped(void);

/* The forked child: its parent's work is none of its own. */
void gm_park_after_fork(void);

/* HOLD came at time `now`, for `for_ns`. One that is on lasts until the later end. */
void gm_hold(uint64_t now, uint64_t for_ns);

/* Begin a hold, or end one whose time has come. Returns when to call it again;
 * UINT64_MAX: after the next HOLD. */
uint64_t gm_hold_look(uint64_t now, enum gm_park_outcome (*disable)(void), void (*enable)(void));

/* The gate has closed: a hold that is to begin makes no sense any more. */
void gm_hold_forget(void);

/* End the hold that is on, and forget the one to begin. */
void gm_hold_end(void (*enable)(void));

#endif
