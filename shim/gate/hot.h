/*
 * All variables of the shim that a launch reads, in one cache line.
 *
 * Between two launches a framework fills the caches with its own data, so the lines that a launch
 * fetches again are its cost. A wrapper reads four: this one, that of gm_gate_self, the thread's
 * slot, and the gate's word. They arrive while the driver's own code is fetched (wrap.c).
 *
 * Each member has one owner, which alone writes it. Wrappers and the gate read.
 */
#ifndef GM_SHIM_HOT_H
#define GM_SHIM_HOT_H

#include <stdatomic.h>
#include <stddef.h>

#include "common/shm.h"
#include "shim/driver/real.h"

#define GM_CACHE_LINE 64

struct gm_hot {
    /* gate.c: where the gate's word is. */
    const struct gm_ctl *_Atomic page;

    /* windows.c: the real function of each LAUNCH row of hooks.def, while a launch has only to pass
     * the gate; NULL: take the slow path. */
#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_ONLY_LAUNCH(kind)(GM_PFN_##mode(PFN_##api##_v##since) symbol;)
#include "shim/driver/hooks.def"
#undef GM_HOOK

    char end[]; /* nothing else lies in the line beside it */
} __attribute__((aligned(GM_CACHE_PAIR)));
_Static_assert(offsetof(struct gm_hot, end) == GM_CACHE_LINE, "one line");

extern __attribute__((visibility("hidden"))) struct gm_hot gm_hot;

#endif
