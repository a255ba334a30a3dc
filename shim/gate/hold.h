/*
 * Holding: for a few milliseconds the program's work stands still where it is on the GPU, for the
 * request of a latency-critical program (HOLD). Nothing else happens: its gate is open, its memory
 * stays mapped, and calls that wait for the GPU wait. The hold ends by itself.
 *
 * A CLOSE may come meanwhile. The program counts as parked for it under the rules of park.h only,
 * and is enabled when both are over.
 *
 * The link thread ends the hold, so it must not wait for the GPU while one is on: it ends the hold
 * first. Calls that map memory may wait, for a lock whose owner waits for the GPU.
 *
 * Owns the hold that is on and the one that is to begin. Link thread only. Calls park.
 */
#ifndef GM_SHIM_HOLD_H
#define GM_SHIM_HOLD_H

#include <stdint.h>

#include "shim/gate/park.h"

/* HOLD came at time `now`, for `for_ns`. One that is on lasts until the later end. */
void gm_hold(uint64_t now, uint64_t for_ns);

/* Begin a hold, or end one whose time has come, with gm_park_hold. Returns when to call it again;
 * UINT64_MAX: after the next HOLD. */
uint64_t gm_hold_look(uint64_t now, enum gm_park_outcome (*disable)(void), void (*enable)(void));

/* The gate has closed: a hold that is to begin makes no sense any more. */
void gm_hold_forget(void);

/* End the hold that is on, and forget the one to begin. */
void gm_hold_end(void (*enable)(void));

#endif
