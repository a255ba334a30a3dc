/*
 * Uses: which memory the program's launches, copies and sets touch. The daemon asks for it when a
 * program is larger than its budget, to choose what stays on the GPU. Otherwise hot.h has the real
 * functions and launches do not come here.
 *
 * The model: a launch uses the memory that its arguments point to, a copy or set what it names. A
 * copy to or from the host uses nothing: its bytes cross the link wherever the memory is.
 * Every 8-byte word of its arguments that may be an address in chunks counts as one use of its 2
 * MiB page. A tensor's base pointer stands for the tensor; the daemon guesses its extent
 * (daemon/core/place.h). A report leaves out words that only look like addresses, and freed memory.
 *
 * A launch that a capture records counts once; those of its replays: replays.h. Not seen: pointers
 * that a kernel reads from memory, launches of the old forms, whose parameters are set before, and
 * the lists of batches of copies.
 *
 * Owns a fixed table of counters without a lock; a page that finds no slot is not counted. Any
 * thread counts; the link thread and the drainer report. Looks allocations and views up.
 */
#ifndef GM_SHIM_USES_H
#define GM_SHIM_USES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/wire.h"
#include "shim/driver/real.h"

#define GM_USES_MAX                                                                                \
    ((uint32_t)GM_ENTRIES_USES) /* pages counted at once, and entries of a report                  \
                                 */

/* Private to uses.h and uses.c. */
extern __attribute__((visibility("hidden"))) _Atomic bool gm_uses_is_on;

static inline bool gm_uses_are_counted(void)
{
    return __builtin_expect(atomic_load_explicit(&gm_uses_is_on, memory_order_relaxed), 0);
}

/* Start or stop counting; counts are kept. Callers: each try to boot, when gm_real is filled; then
 * the link, and a forked child. */
void gm_uses_count(bool is_on);

/* Take the counts, ascending by va: at most GM_USES_MAX entries. */
uint32_t gm_uses_take(struct gm_use_entry *entries);

/* Whether an address that a copy names is host memory, or another's: nothing of that copy counts.
 */
bool gm_uses_is_away(uint64_t va);
/* Count what an argument of a copy or set names: nothing, an address, or a struct that is what the
 * name says. */
void gm_uses_of_none(const void *size);
void gm_uses_of_address(const void *address);
void gm_uses_of_copy_2d(const void *copy);
void gm_uses_of_copy_3d(const void *copy);
void gm_uses_of_copy_peer(const void *copy);

/* Call found(arg, va) for every word of a kernel's arguments that may be an address in chunks. */
typedef void gm_use_found(void *arg, uint64_t va);
void gm_uses_look(CUfunction f, void **params, void **extra, gm_use_found *found, void *arg);
/* The same for what a copy counts. */
void gm_uses_look_in_copy(const CUDA_MEMCPY3D *copy, gm_use_found *found, void *arg);
/* Count one use of such an address. */
void gm_uses_count_at(uint64_t va);

/* gm_uses_of_<symbol>() for every LAUNCH row of hooks.def: count what the launch uses. */
#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_ONLY_LAUNCH(kind)(void gm_uses_of_##symbol params;)
#include "shim/driver/hooks.def"
#undef GM_HOOK

#endif
