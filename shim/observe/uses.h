/*
 * Uses: which memory the program's launches work on, for a daemon that must choose what of it stays
 * on the GPU (programs larger than the budget). Counted only while the daemon asks for it: else
 * hot.h has the real functions, and a launch that finds its own there does not come by here.
 *
 * The model: a launch uses what its arguments point to. Every 8-byte word of its arguments that may
 * be an address in chunks counts as one use of the 2 MiB page it lies in. A tensor's base pointer
 * so stands for the tensor; how far that reaches is the daemon's guess (daemon/core/hosting). Words
 * that only look like addresses, and places that were freed since, are left out when a report is
 * made.
 *
 * Not seen: kernels inside graphs (the launches that a capture records pass the wrapper, so each is
 * counted once, when it is recorded), pointers that a kernel reads from memory, and launches of the
 * old forms whose parameters are set beforehand.
 *
 * The counters are a fixed table without a lock: a page that finds no slot is not counted. Any
 * thread counts; the link thread and the drainer report.
 */
#ifndef GM_SHIM_USES_H
#define GM_SHIM_USES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/wire.h"
#include "shim/driver/real.h"

#define GM_USES_MAX ((uint32_t)GM_ENTRIES_USES) /* pages counted at once, and entries of a report  \
                                                 */

/* Private to uses.h and uses.c. */
extern __attribute__((visibility("hidden"))) _Atomic bool gm_uses_is_on;

static inline bool gm_uses_are_counted(void)
{
    return __builtin_expect(atomic_load_explicit(&gm_uses_is_on, memory_order_relaxed), 0);
}

/*
 * Begin or end to count. What was counted before is kept. Boot calls it when gm_real is loaded,
 * each time that it tries; from its success on link does, and a forked child.
 */
void gm_uses_count(bool is_on);

/* Take out what was counted, ascending by va: at most GM_USES_MAX entries. */
uint32_t gm_uses_take(struct gm_use_entry *entries);

/* gm_uses_of_<symbol>() for every LAUNCH row of hooks.def: count what the launch uses. */
#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_ONLY_LAUNCH(kind)(void gm_uses_of_##symbol params;)
#include "shim/driver/hooks.def"
#undef GM_HOOK

#endif
