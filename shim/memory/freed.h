/*
 * Freed ranges: one list of what the daemon backs though the program does not have it, each with
 * the reason why it is kept, and so with what ends it.
 *
 *   SPARE    freed, and the GPU is done with it: the next allocation of that size takes it
 *   AHEAD    asked for ahead (ahead.h); once it has arrived it is taken like a spare
 *   CAPTURE  freed while a capture was open: released after the last one
 *   STREAM   freed in a stream: released when the GPU has passed the mark
 *
 * A spare is taken as it is, mapped, instead of chunks that must be imported and mapped first, at
 * 40 us each. The other two wait, because a free must wait for the GPU, as unmapping does not.
 *
 * The daemon may take spares, and what came ahead, at any time (daemon/engine/step/allocs.c).
 * Neither side asks the other: each is a word in memory that both see (gm_stat.spares), and whoever
 * swaps the word has the range. After TAKEN, when the daemon has unmapped it, it goes to the
 * driver.
 *
 * None is in an allocation map: cuMemGetInfo calls it free, and a second free of it is the driver's
 * to refuse. Of ranges with a word the driver still finds memory there, so whoever asks it about
 * addresses asks gm_freed_hold first, and copies and sets (not those that are described by
 * structures or come in batches) are refused as the driver refuses them for memory that was freed.
 *
 * Free regions of pools are not here: they are pieces of an arena (pools.h), which the program's
 * next allocation cuts, and the pool's attributes count them.
 *
 * Owns the list, and gm_stat.spares but for what the daemon takes there. Any thread; its lock is
 * never held across a driver call or a request. Calls the link, chunks and, when the daemon is
 * lost, the mapper. Callers: handlers, obtain, ahead, budget, sharing, release, pools, wrappers,
 * and the link thread through gm_link_calls.
 */
#ifndef GM_SHIM_FREED_H
#define GM_SHIM_FREED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/shm.h"
#include "shim/link/link.h"
#include "shim/tables/allocs.h"

enum gm_freed_why {
    GM_FREED_SPARE, /* these two have a word each */
    GM_FREED_AHEAD,
    GM_FREED_CAPTURE,
    GM_FREED_STREAM,
    GM_FREED_REASONS
};

struct gm_freed {
    struct gm_alloc alloc;
    enum gm_freed_why why;
    uint32_t word;             /* its place in gm_stat.spares, if it has one */
    _Atomic uint32_t *in_vain; /* AHEAD: one more if nobody takes it */
    struct gm_mark *mark;      /* STREAM: with a reference */
    bool is_coming;            /* AHEAD: not there yet */
    bool is_leaving;           /* a thread of this side gives it back, or looks whether it can */
    struct gm_freed *next;     /* which came before */
};

/* Ranges that are asked for ahead, there and on their way. */
#define GM_FREED_AHEAD_MAX GM_LINK_AHEAD

/* How many there are of each kind: one load. */
extern __attribute__((visibility("hidden"))) _Atomic uint32_t gm_freed_n[GM_FREED_REASONS];
static inline bool gm_freed_are(enum gm_freed_why why)
{
    return __builtin_expect(atomic_load_explicit(&gm_freed_n[why], memory_order_relaxed) > 0, 0);
}

/* ---- spares, and what comes ahead ---- */

/* Keep the range of an allocation that was taken out of the map; the GPU is done with it. False: it
 * is not kept, so release it. */
bool gm_freed_put(const struct gm_alloc *alloc);

/* A range of `span` bytes on `gpu`; it is the caller's. False: there is none. */
bool gm_freed_take(int32_t gpu, uint64_t span, uint64_t *va);

/*
 * A range that is asked for ahead: from now on the driver may find memory there. It arrives, or it
 * is missed, before it is unreserved. False: there are enough. If nobody takes it, *in_vain, which
 * has to last, is one more then.
 */
bool gm_freed_expect(const struct gm_alloc *alloc, _Atomic uint32_t *in_vain);
void gm_freed_arrive(uint64_t va);
void gm_freed_miss(uint64_t va);

struct gm_freed_sums {
    uint32_t coming;       /* ranges on their way, of any GPU */
    uint32_t alike;        /* ranges of that size on that GPU, with those to come */
    uint64_t ready_bytes;  /* on that GPU: what the program can take, */
    uint64_t ahead_bytes;  /* ... what was asked for ahead, */
    uint64_t coming_bytes; /* ... and what of that is on its way */
};
struct gm_freed_sums gm_freed_sums(int32_t gpu, uint64_t span);

/* Give those on `gpu` (-1: all) back to the daemon. */
void gm_freed_release(int32_t gpu);

/* Link thread: TAKEN came for `va`. False: that is none which the daemon took. */
bool gm_freed_taken(uint64_t va);

/* Link thread: the daemon is lost. All of them go, and no more are kept. */
void gm_freed_lose(void);

/* Whether there are any with a word. */
static inline bool gm_freed_exist(void)
{
    return gm_freed_are(GM_FREED_SPARE) || gm_freed_are(GM_FREED_AHEAD);
}

/* Whether one of the n words is an address in a range that has a word. Takes no lock. */
bool gm_freed_hold(const uint64_t *words, size_t n);
static inline bool gm_freed_has(uint64_t va)
{
    return gm_freed_hold(&va, 1);
}

/* ---- what waits for the GPU: CAPTURE and STREAM ---- */

/* An allocation that was taken out of the map, or is about to be; the reference to the mark is the
 * list's. False: no host memory. */
bool gm_freed_await(const struct gm_alloc *alloc, enum gm_freed_why why, struct gm_mark *mark);

/* Goes through those that wait for that reason, from the newest on. The first time `last` is NULL;
 * then it is the one before, which is over and ends, or waits on. No other thread gets the one that
 * is returned meanwhile. NULL: that was the last one. */
struct gm_freed *gm_freed_next(enum gm_freed_why why, struct gm_freed *last, bool is_over);

#endif
