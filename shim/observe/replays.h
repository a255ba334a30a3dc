/*
 * Replays: what launches touch that their arguments do not name. That is above all what executable
 * graphs touch, marked like a launch's (windows.h) each time that one is launched.
 *
 * What a graph touches is read from its nodes when it is instantiated or updated, as the program
 * may destroy the graph right after: kernels by their arguments, copies and sets by what they name,
 * graphs within it likewise. A node that is set anew replaces what that node touched. It is noted
 * for every program that may be asked to mark some day. Only an update is not read until then:
 * programs make one in each step, and reading it takes as long as making it.
 *
 * A launch counts as unseen of a graph that was not noted, or not whole: it has bodies of
 * conditional nodes, graphs that were set anew, kernels that cannot be read, or too much of all.
 * Not known at all: kernels that the GPU itself updates or launches.
 *
 * Textures show memory to kernels that do not name it: once there is one of gpumux's memory,
 * nobody knows what the program touches (windows.h).
 *
 * Owns the list of executable graphs, under a lock that it holds across no driver call. Any thread.
 * Calls the driver's queries of graphs, and windows.h.
 */
#ifndef GM_SHIM_REPLAYS_H
#define GM_SHIM_REPLAYS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/driver/real.h"

/* Private to replays.h and replays.c. */
extern __attribute__((visibility("hidden"))) _Atomic bool gm_replays_is_on;

static inline bool gm_replays_are_noted(void)
{
    return __builtin_expect(atomic_load_explicit(&gm_replays_is_on, memory_order_relaxed), 0);
}

/* The program may be asked to mark. For good: what was not noted would be missing. Profiles are
 * read from now on, for the graphs too: a graph that was made before they are there is noted
 * without. */
void gm_replays_note(bool is_on);

/* `exec` was made of `graph`. */
void gm_replays_made(CUgraphExec exec, CUgraph graph);

/* A kernel node of `exec` was set anew. */
void gm_replays_set(CUgraphExec exec, CUgraphNode node, CUfunction f, CUkernel kernel,
                    const uint32_t *dimension, void **params, void **extra);

/* `exec` is launched: mark what it touches. */
void gm_replays_launched(CUgraphExec exec);

/* `exec` is about to end, or nobody knows what it touches any more. */
void gm_replays_forget(CUgraphExec exec);

/* gm_replays_on_<symbol>() for every REPLAY row of hooks.def: what the call means for the above.
 * Launches: before the driver is called; else after it was, with success. */
#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_ONLY_REPLAY(kind)(void gm_replays_on_##symbol params;)
#include "shim/driver/hooks.def"
#undef GM_HOOK

#endif
