/*
 * Frees that are put off. A real free waits for the GPU, and so must we, because unmapping does
 * not. What cannot be waited for now, because a capture is open (gm_gate_sync_begin), is put on the
 * list here; gm_free_deferred (release.h) takes it off when the last capture has ended.
 *
 * Owns that list. Any thread; no lock.
 */
#ifndef GM_SHIM_DEFERRED_H
#define GM_SHIM_DEFERRED_H

#include "shim/driver/real.h"
#include "shim/tables/allocs.h"

/* Wait for the work of `context`. False: not now, a capture is open. *result: what the context
 * says. */
bool gm_synchronize(CUcontext context, CUresult *result);

/* Give *alloc back later. False: no memory to put it off. */
bool gm_defer(const struct gm_alloc *alloc);

struct gm_deferred {
    struct gm_alloc alloc;
    struct gm_deferred *next;
};

/* All that was put off, which is the caller's now: to free, or to put off again. NULL: nothing. */
struct gm_deferred *gm_deferred_take(void);
void gm_deferred_push(struct gm_deferred *deferred);

#endif
