/*
 * What the drainer has done around a closed gate, and from time to time (gm_drain_calls, where each
 * of these is a member): spares, managed memory and the memory of graphs. Drainer only.
 */
#ifndef GM_SHIM_CHORES_H
#define GM_SHIM_CHORES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* CLOSE: what was obtained ahead goes. Nobody watches it meanwhile, and others want the room. */
void gm_chores_before(void);

/* Quiet: managed memory goes out, until the time `until`. */
void gm_chores_clear(uint64_t until);

/* Paused: graphs give back what they do not use. Returns whether managed memory is out. */
bool gm_chores_paused(void);

/* The gate is open again: managed memory comes in. */
void gm_chores_resumed(void);

/* QUERY: the program rests, so all spares go, unless `*stamp` is not `seen` any more. Nobody
 * watches them meanwhile. */
void gm_chores_rest(const _Atomic uint64_t *stamp, uint64_t seen);

/* Release the spares whose time is over, and sample the memory of graphs. Returns when to come
 * again. */
uint64_t gm_chores_watch(uint64_t now);

#endif
