/*
 * Managed memory (cuMemAllocManaged). The real driver owns it and moves its pages on demand, so it
 * is never unmapped; but pages that a paused program left on the GPU are in the way of those who
 * run, and are fetched back one fault at a time. So around a closed gate:
 *
 *   out   when a program was found quiet for a CLOSE: its managed memory is prefetched to the host,
 *         piece by piece, for at most half of the time that is left to the drain. What did not get
 *         through stays where it is, and a piece that is under way goes on: it touches nothing
 *         that gpumux maps. It never makes a drain fail.
 *   in    when the gate opens again: what went out is prefetched to its GPU, in the order of its
 *         addresses, as far as the budget has room beside the program's other memory.
 *
 * Left alone: devices without concurrent access to managed memory (there the driver moves all of it
 * at every launch by itself); memory whose preferred location the program set to a device, which
 * asks that it stay; memory that it advised to be read-mostly, of which a prefetch to the host
 * would only make another copy; memory that the program itself prefetched to the host last; and
 * __managed__ variables of modules, which are not allocations.
 *
 * A prefetch shows in what cuMemRangeGetAttribute says of the last prefetch, and nowhere else.
 *
 * Owns the list of managed allocations. add, remove and advise: any thread. out and
 * in: the drainer (chores.h), in a thread that has the context current and is in relaxed capture
 * mode. Calls the budget.
 */
#ifndef GM_SHIM_MANAGED_H
#define GM_SHIM_MANAGED_H

#include "shim/driver/real.h"
#include "shim/tables/allocs.h"

/* An allocation was made, or is gone (by its id). False: no memory to note it; it was not noted. */
bool gm_managed_add(const struct gm_alloc *alloc);
bool gm_managed_remove(uint64_t id);

/* cuMemAdvise succeeded for [va, va + bytes). An advice for a part counts for the whole. */
void gm_managed_advise(uint64_t va, uint64_t bytes, CUmem_advise advice, bool is_device);

/* Whether there is managed memory; whether some of it went out and did not come in yet. */
bool gm_managed_exists(void);
bool gm_managed_is_out(void);

/* Prefetch what was made in `context`, out until the time `until`. */
void gm_managed_out(CUcontext context, uint64_t until);
void gm_managed_in(CUcontext context);

#endif
