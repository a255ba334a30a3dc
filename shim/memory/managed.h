/*
 * Managed memory (cuMemAllocManaged). The driver owns it and moves its pages on demand, so gpumux
 * never unmaps it. But pages of a paused program take room on the GPU from those that run, and
 * would come back one fault at a time. So around a closed gate:
 *
 *   out   when a program is quiet for a CLOSE: prefetch its managed memory to the host in pieces,
 * in at most half of the drain's remaining time. A piece under way may go on after that: it touches
 * nothing that gpumux maps. A drain never fails because of it. in    when the gate opens: prefetch
 * what went out to its GPU, by address, as far as the budget has room beside the program's other
 * memory.
 *
 * Left alone: devices without concurrent managed access (the driver moves all of it at every
 * launch); memory with a device as its preferred location; read-mostly memory, which a prefetch
 * would only copy; memory that the program itself prefetched to the host last; and __managed__
 * variables, which are not allocations.
 *
 * A prefetch changes the last prefetch that cuMemRangeGetAttribute reports, and nothing else.
 *
 * Owns the list of managed allocations. add, remove, advise: any thread. out, in: the drainer
 * (chores.h), with the context current and in relaxed capture mode. Calls the driver and the
 * budget.
 */
#ifndef GM_SHIM_MANAGED_H
#define GM_SHIM_MANAGED_H

#include "shim/driver/real.h"
#include "shim/tables/allocs.h"

/* Add an allocation (false: no host memory), or remove one by its id (false: unknown). */
bool gm_managed_add(const struct gm_alloc *alloc);
bool gm_managed_remove(uint64_t id);

/* cuMemAdvise succeeded for [va, va + bytes). It counts for whole allocations. */
void gm_managed_advise(uint64_t va, uint64_t bytes, CUmem_advise advice, bool is_device);

/* Whether there is managed memory; whether some of it is out. */
bool gm_managed_exists(void);
bool gm_managed_is_out(void);

/* Prefetch the memory made in `context`; out: until the time `until`. */
void gm_managed_out(CUcontext context, uint64_t until);
void gm_managed_in(CUcontext context);

#endif
