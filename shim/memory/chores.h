/*
 * What the drainer has done around a closed gate, and from time to time (gm_drain_calls, where each
 * of these is a member): managed memory and the memory of graphs. Drainer only.
 */
#ifndef GM_SHIM_CHORES_H
#define GM_SHIM_CHORES_H

#include <stdbool.h>
#include <stdint.h>

/* Quiet: managed memory goes out, until the time `until`. */
void gm_chores_clear(uint64_t until);

/* Paused: graphs give back what they do not use. Returns whether managed memory is out. */
bool gm_chores_paused(void);

/* The gate is open again: managed memory comes in. */
void gm_chores_resumed(void);

/* Sample the memory of graphs. Returns when to come again. */
uint64_t gm_chores_watch(uint64_t now);

#endif
