/*
 * Spares: what the program freed lately and the daemon still backs. The next allocation of the same
 * size takes it as it is, mapped, instead of chunks that must be imported and mapped first, at 40
 * us each.
 *
 *   free      the GPU is done with the range: put it here, if a share of the budget allows
 *   allocate  take one of exactly that size
 *   release   after GM_SPARES_KEEP_NS, or earlier when this program needs the memory
 *
 * Some were not freed, but obtained ahead for a program that grows (ahead.h).
 *
 * A spare is in no allocation map: the program does not have it, cuMemGetInfo calls it free, and a
 * second free of it is the driver's to refuse. The driver still finds memory there, so whoever asks
 * it about addresses asks gm_spares_hold first, and copies and sets (not those that are described
 * by structures or come in batches) are refused as the driver refuses them for memory that was
 * freed. To the daemon a spare is an allocation like any other, which moves when the program is
 * paused.
 *
 * Owns the list of spares. Any thread; one lock, a leaf, never held across a driver call or a
 * request. Calls the link and chunks. Callers: handlers, obtain, ahead, budget, chores, wrappers.
 */
#ifndef GM_SHIM_SPARES_H
#define GM_SHIM_SPARES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/link/link.h"
#include "shim/tables/allocs.h"

#define GM_SPARES_KEEP_NS 100000000ull
#define GM_SPARES_MAX 64u /* ranges that were freed */
#define GM_SPARES_AHEAD                                                                            \
    GM_LINK_AHEAD /* ranges that were asked for ahead, there and on their way                      \
                   */
#define GM_SPARES_ROOM (GM_SPARES_MAX + GM_SPARES_AHEAD)
#define GM_SPARES_SHARE 4u /* they take this part of what the program may take, at most */

enum gm_spares_put {
    GM_SPARES_REFUSED, /* release it */
    GM_SPARES_KEPT,
    GM_SPARES_KEPT_FIRST, /* and nobody watches: call gm_drain_watch (gate/drain.h) */
};

/* Keep the range of an allocation that was taken out of the map; the GPU is done with it. */
enum gm_spares_put gm_spares_put(const struct gm_alloc *alloc, uint64_t now);

/*
 * A range that is asked for ahead: from now on the driver may find memory there. It arrives, and is
 * kept for `keep_ns` then, or it is missed, before it is unreserved. False: there are enough. If
 * nobody takes it, *in_vain, which has to last, is one more then.
 */
bool gm_spares_expect(const struct gm_alloc *alloc, uint64_t keep_ns, _Atomic uint32_t *in_vain);
enum gm_spares_put gm_spares_arrive(uint64_t va, uint64_t now);
void gm_spares_miss(uint64_t va);

/* What was asked for ahead, and is there or to come. */
struct gm_spares_ahead {
    uint32_t coming;     /* ranges on their way, of any GPU */
    uint32_t alike;      /* spares of that size on that GPU, with those to come, and freed ones */
    uint64_t bytes;      /* on that GPU, */
    uint64_t bytes_here; /* ... of which are there */
};
struct gm_spares_ahead gm_spares_ahead(int32_t gpu, uint64_t span);

/* A range of `span` bytes on `gpu`, the latest one; it is the caller's. False: there is none, but
 * for those that are being released, which nobody gets any more. */
bool gm_spares_take(int32_t gpu, uint64_t span, uint64_t *va);

/* Release those on `gpu` (-1: all). Returns whether there were some. */
bool gm_spares_release(int32_t gpu);

/* Release all that came ahead: the program is about to be paused. */
void gm_spares_release_ahead(void);

/* Release the oldest one on `gpu` (-1: of all). False: there is none. */
bool gm_spares_shrink(int32_t gpu);

/*
 * The program is about to have `use` bytes on `gpu`. Returns what it had at most in the last one or
 * two seconds: beyond that nothing is kept that was freed, so that programs which fit together run
 * together.
 */
uint64_t gm_spares_most(int32_t gpu, uint64_t use, uint64_t now);

/* How many were released so far, or did not come; first, if told so, wait for those that others
 * release right now. */
uint64_t gm_spares_gone(bool is_waiting);

/* Bytes on `gpu`, with those that are being released. */
uint64_t gm_spares_bytes(int32_t gpu);

/* Whether there are any: one load. */
extern __attribute__((visibility("hidden"))) _Atomic uint32_t gm_spares_n;
static inline bool gm_spares_exist(void)
{
    return __builtin_expect(atomic_load_explicit(&gm_spares_n, memory_order_relaxed) > 0, 0);
}

/* Whether one of the n words is an address in a spare. Takes no lock. */
bool gm_spares_hold(const uint64_t *words, size_t n);
static inline bool gm_spares_has(uint64_t va)
{
    return gm_spares_hold(&va, 1);
}

/*
 * For the one thread that watches: releases one of those that have been kept for long enough at
 * time `now`, and returns when to come again, which may be at once; UINT64_MAX: when a put says so.
 */
uint64_t gm_spares_watch(uint64_t now);

/* It does not come for a while: the next put says so at once. */
void gm_spares_leave_alone(void);

#endif
