/*
 * Spares: what the program freed lately and the daemon still backs. The next allocation of the same
 * size takes it as it is, mapped, instead of chunks that must be imported and mapped first, at 40
 * us each.
 *
 *   free      the GPU is done with the range: put it here
 *   allocate  take one of exactly that size
 *   TAKEN     the daemon wanted the memory, and has unmapped it: give the range to the driver
 *
 * The daemon may take any of them at any time (daemon/engine/step/spares.c). Neither side asks the
 * other: each spare is a word in memory that both see (gm_stat.spares), and whoever swaps the word
 * has the spare.
 *
 * Some were not freed, but obtained ahead for a program that grows (ahead.h).
 *
 * A spare is in no allocation map: the program does not have it, cuMemGetInfo calls it free, and a
 * second free of it is the driver's to refuse. The driver still finds memory there, so whoever asks
 * it about addresses asks gm_spares_hold first, and copies and sets (not those that are described
 * by structures or come in batches) are refused as the driver refuses them for memory that was
 * freed.
 *
 * Owns the list of spares, and gm_stat.spares but for what the daemon takes there. Any thread; its
 * lock is never held across a driver call or a request. Calls the link, chunks and, when the daemon
 * is lost, the mapper. Callers: handlers, obtain, ahead, budget, wrappers, and the link thread
 * through gm_link_calls.
 */
#ifndef GM_SHIM_SPARES_H
#define GM_SHIM_SPARES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/shm.h"
#include "shim/link/link.h"
#include "shim/tables/allocs.h"

/* Ranges that were asked for ahead, there and on their way. */
#define GM_SPARES_AHEAD GM_LINK_AHEAD

/* Keep the range of an allocation that was taken out of the map; the GPU is done with it. False: it
 * is not kept, so release it. */
bool gm_spares_put(const struct gm_alloc *alloc);

/*
 * A range that is asked for ahead: from now on the driver may find memory there. It arrives, or it
 * is missed, before it is unreserved. False: there are enough. If nobody takes it, *in_vain, which
 * has to last, is one more then.
 */
bool gm_spares_expect(const struct gm_alloc *alloc, _Atomic uint32_t *in_vain);
void gm_spares_arrive(uint64_t va);
void gm_spares_miss(uint64_t va);

/* What was asked for ahead, and is there or to come. */
struct gm_spares_ahead {
    uint32_t coming;       /* ranges on their way, of any GPU */
    uint32_t alike;        /* spares of that size on that GPU, with those to come, and freed ones */
    uint64_t bytes;        /* on that GPU, */
    uint64_t bytes_coming; /* ... of which are on their way */
};
struct gm_spares_ahead gm_spares_ahead(int32_t gpu, uint64_t span);

/* A range of `span` bytes on `gpu`; it is the caller's. False: there is none. */
bool gm_spares_take(int32_t gpu, uint64_t span, uint64_t *va);

/* Give those on `gpu` (-1: all) back to the daemon. */
void gm_spares_release(int32_t gpu);

/* Link thread: TAKEN came for `va`. False: that is no spare which the daemon took. */
bool gm_spares_taken(uint64_t va);

/* Link thread: the daemon is lost. All spares go, and no more are kept. */
void gm_spares_lose(void);

/* Bytes on `gpu` that the program can take. */
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

#endif
