/*
 * Replays: which memory executable graphs use, counted like a launch's (uses.h) each time that one
 * is launched. Only for programs that may have memory on the host; nothing is noted for others.
 *
 * What a graph uses is read from its nodes when it is instantiated or updated, as the program may
 * destroy the graph right after: kernels by their arguments, copies and sets by what they name,
 * graphs within it likewise. A kernel node that is set anew replaces what that node used. Not seen:
 * bodies of conditional nodes, copies, sets and graphs that are set anew in an executable graph,
 * and kernels that the GPU itself updates.
 *
 * Owns the list of executable graphs, under a lock that it holds across no driver call. Any thread.
 * Calls the driver's queries of graphs, and uses.h.
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

/* The program may have memory on the host. For good: what was not noted would be missing. */
void gm_replays_note(bool is_on);

/* `exec` was made of `graph`, or is about to be updated to it. */
void gm_replays_made(CUgraphExec exec, CUgraph graph);

/* A kernel node of `exec` is about to be set anew. */
void gm_replays_set(CUgraphExec exec, CUgraphNode node, CUfunction f, CUkernel kernel,
                    void **params, void **extra);

/* `exec` is launched: count what it uses. */
void gm_replays_launched(CUgraphExec exec);

/* `exec` is about to end. */
void gm_replays_forget(CUgraphExec exec);

/* gm_replays_on_<symbol>() for every REPLAY row of hooks.def: what the call means for the above. */
#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_ONLY_REPLAY(kind)(void gm_replays_on_##symbol params;)
#include "shim/driver/hooks.def"
#undef GM_HOOK

#endif
