/*
 * The gate: the word in shared memory that says whether this program may submit GPU work, and the
 * slots that say who is submitting.
 *
 *   SUBMIT   slot = gm_gate_enter(); if (slot == NULL) return gm_gate_refusal();
 *            result = real(...); gm_gate_leave(slot);
 *   SYNC     slot = gm_sync_enter(); result = real(...); gm_sync_leave(slot);   never refused
 *
 * The model, which is Dekker's with the dear half on the closer's side:
 *
 *   a caller   inside = TRYING; (compiler barrier) load the gate word; inside = IN; call; calls++;
 *              inside = 0
 *   the closer gate = CLOSED; membarrier; wait until no capture is open and every inside is 0
 *
 * membarrier puts a full fence into every thread of the program. A caller that saw OPEN before it
 * has its inside visible after it; a caller that comes later sees CLOSED. Without membarrier no
 * thread gets a fast slot, and all go the slow way, which has its own fences.
 *
 * A thread has no slot until it came the slow way once, and the slow way starts by booting
 * (boot.h). So no call passes before the start-up is over, slots never change their place, and
 * there is no moment when a caller is inside a slot that a closer does not look at.
 *
 * Nested calls (the driver calling an exported symbol, a callback or a signal handler in the middle
 * of a call) pass: the outer call's slot, which is IN, speaks for them. A signal handler that comes
 * while the slot is TRYING looks at the gate itself, and waits there if it must: the call that it
 * interrupted may yet be turned away. Afterwards that one goes on as if nothing had been. While a
 * capture is open the closed gate lets callers pass: the closer waits for captures first, and a
 * capture begins only inside the open gate, so an open capture means that this program was not
 * found quiet and nothing of it was taken away.
 *
 * Anybody may call enter and leave, from any thread and from any signal handler. No thread is
 * cancelled while it waits at the gate. One that leaves a call by longjmp stays inside for ever:
 * its program is never paused again, and status says that a call did not return. The start
 * attaches; the link says that the daemon is lost; drain scans. Who waits calls upward through
 * gm_gate_calls.
 */
#ifndef GM_SHIM_GATE_H
#define GM_SHIM_GATE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/shm.h"
#include "common/wire.h"
#include "shim/gate/hot.h"

#define GM_HIDDEN __attribute__((visibility("hidden")))
#define GM_COLD __attribute__((cold, noinline)) /* lies apart from what runs all the time */

/* What gm_slot.inside of a thread's own slot says; the daemon and the closer only tell 0 from the
 * rest. */
enum { GM_SLOT_OUT = 0, GM_SLOT_TRYING = 1, GM_SLOT_IN = 2 };

/* What a thread knows of itself. Private to gate.h and gate.c. */
struct gm_gate_thread {
    struct gm_slot *fast; /* its slot, if it may go the fast way; else one that is always taken */
    struct gm_slot *own;  /* its slot, or the shared one; NULL before its first call */
    uint32_t inside;      /* in the shared slot: as gm_slot.inside in its own; counted unless 0 */
    uint32_t blocked;     /* in the shared slot: 1 while it is in a synchronizing call */
    uint32_t is_waiting;  /* at the gate, and counted in gm_stat.waiting */
};

/* initial-exec: a preloaded library has its thread-local words in every thread's static block. */
extern GM_HIDDEN __thread struct gm_gate_thread gm_gate_self
    __attribute__((tls_model("initial-exec")));

/* The rest of the inline functions below. Not for anybody else. */
GM_COLD struct gm_slot *gm_gate_enter_slow(void);
GM_COLD CUresult gm_gate_leave_slow(struct gm_slot *slot, CUresult result);
GM_COLD struct gm_slot *gm_sync_enter_slow(void);
GM_COLD void gm_sync_leave_slow(struct gm_slot *slot);

/*
 * Come in, if the gate is open and this is no first and no nested call of its thread. NULL: it is
 * something else; nothing was done, and gm_gate_enter is what to call.
 */
__attribute__((always_inline)) static inline struct gm_slot *gm_gate_enter_fast(void)
{
    struct gm_slot *slot = gm_gate_self.fast;
    if (__builtin_expect(atomic_load_explicit(&slot->inside, memory_order_relaxed) != 0, 0))
        return NULL;
    atomic_store_explicit(&slot->inside, GM_SLOT_TRYING, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst); /* the closer's membarrier does the rest */
    const struct gm_ctl *page = atomic_load_explicit(&gm_hot.page, memory_order_acquire);
    if (__builtin_expect(atomic_load_explicit(&page->gate, memory_order_acquire) != GM_GATE_OPEN,
                         0)) {
        atomic_store_explicit(&slot->inside, GM_SLOT_OUT, memory_order_release);
        return NULL;
    }
    atomic_store_explicit(&slot->inside, GM_SLOT_IN, memory_order_relaxed);
    if (slot == NULL)
        __builtin_unreachable(); /* so that nobody looks again */
    return slot;
}

/*
 * Come in to submit GPU work; waits while the gate is closed. Returns what gm_gate_leave needs, or
 * NULL when this program may never submit again (its memory died with the daemon): return
 * gm_gate_refusal() then, and do not leave.
 */
static inline struct gm_slot *gm_gate_enter(void)
{
    struct gm_slot *slot = gm_gate_enter_fast();
    return __builtin_expect(slot != NULL, 1) ? slot : gm_gate_enter_slow();
}

/* One call more, of a thread's own slot: nobody else writes it, so one plain instruction will do.
 */
__attribute__((always_inline)) static inline void gm_slot_count(struct gm_slot *slot)
{
#ifdef __x86_64__
    __asm__("addq $1, %0" : "+m"(*(uint64_t *)&slot->calls) : : "cc");
#else
    uint64_t calls = atomic_load_explicit(&slot->calls, memory_order_relaxed);
    atomic_store_explicit(&slot->calls, calls + 1, memory_order_relaxed);
#endif
}

/* The real call returned `result`, which this returns. `slot` is what gm_gate_enter gave. */
__attribute__((always_inline)) static inline CUresult gm_gate_leave_with(struct gm_slot *slot,
                                                                         CUresult result)
{
    if (__builtin_expect(slot != gm_gate_self.fast, 0))
        return gm_gate_leave_slow(slot, result);
    gm_slot_count(slot);
    atomic_store_explicit(&slot->inside, GM_SLOT_OUT, memory_order_release);
    return result;
}

static inline void gm_gate_leave(struct gm_slot *slot)
{
    gm_gate_leave_with(slot, CUDA_SUCCESS);
}

/* What a SUBMIT call returns when gm_gate_enter gave NULL. */
static inline CUresult gm_gate_refusal(void)
{
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

/* Begin a call that waits for the GPU. Never waits for the gate and never boots. NULL is fine. */
static inline struct gm_slot *gm_sync_enter(void)
{
    struct gm_slot *slot = gm_gate_self.fast;
    if (__builtin_expect(atomic_load_explicit(&slot->blocked, memory_order_relaxed) != 0, 0))
        return gm_sync_enter_slow();
    atomic_store_explicit(&slot->blocked, 1, memory_order_relaxed);
    return slot;
}

static inline void gm_sync_leave(struct gm_slot *slot)
{
    if (__builtin_expect(slot == NULL || slot != gm_gate_self.fast, 0)) {
        gm_sync_leave_slow(slot);
        return;
    }
    gm_slot_count(slot);
    atomic_store_explicit(&slot->blocked, 0, memory_order_release);
}

/* What a thread that waits for the daemon remembers between two looks; all zero at first. */
struct gm_gate_ear {
    uint64_t at;      /* when the newest second began; 0: not yet */
    uint32_t beat;    /* what was heard last */
    uint32_t seconds; /* of silence since */
};

/* Whom a thread that waits at the gate calls; it may be a signal handler. */
struct gm_gate_calls {
    void (*want)(void);                      /* tell the daemon that a thread waits */
    void (*listen)(struct gm_gate_ear *ear); /* once a second or more often */
};

/*
 * Start only, once, before any other thread gets past gm_boot(): use the daemon's `page` and `stat`
 * (mapped until the process ends) and `calls`, or, with NULL for all three, a page that is always
 * open.
 * `is_asymmetric` says that gm_gate_membarrier_register() succeeded; false makes every call pay for
 * a fence. Returns 0 or -errno (no thread-specific key left).
 */
int gm_gate_attach(const struct gm_ctl *page, struct gm_stat *stat, bool is_asymmetric,
                   const struct gm_gate_calls *calls);

/* Ask the kernel for private expedited membarriers. False: not available. */
bool gm_gate_membarrier_register(void);

/* Link only: the daemon is gone. `is_whole`: everything is mapped, go on without a gate, as soon as
 * nobody holds the others; else refuse. */
void gm_gate_lost(bool is_whole);

/* The forked child, which has one thread: forget the parent's slots and leave the gate open. */
void gm_gate_after_fork(void);

/* The words that the daemon samples; the process' own when there is no daemon. Never NULL. */
struct gm_stat *gm_gate_stat(void);

/*
 * Hold every other thread of this program for a moment, whatever the daemon says: for who must
 * change what is mapped while the program may run. The caller is inside (gm_gate_enter, not
 * nested), so the daemon takes nothing away meanwhile, and only one at a time holds. True: nobody
 * else is inside and no capture is open, until gm_gate_unhold(). False: not within `patience_ns`.
 */
bool gm_gate_hold(uint64_t patience_ns);
void gm_gate_unhold(void);

/*
 * Count an open stream capture. Begin is called inside the gate, before the real call. End when the
 * capture is over, or did not begin; returns how many are still open.
 */
void gm_gate_capture_begin(void);
uint32_t gm_gate_capture_end(void);
uint32_t gm_gate_captures(void);

/*
 * A synchronizing call of our own must not meet an open capture: it would end it. The two exclude
 * each other without a lock: who synchronizes counts itself and then looks for captures, who begins
 * a capture counts it and then waits for those who synchronize. It waits GM_GATE_SYNC_MS at most,
 * because what matters is the beginning of the synchronizing call, where the driver looks for
 * captures, and to which the caller comes within that time even if others have the processors; the
 * call itself may last as long as the GPU works.
 *
 * False: a capture is open, do not synchronize, and do not call the end.
 */
#define GM_GATE_SYNC_MS (200 * GM_SLOW)
bool gm_gate_sync_begin(void);
void gm_gate_sync_end(void);

/* Drainer only: wait until the gate is not closed, at most `most_ns`. Returns whether it is not. */
bool gm_gate_await_open(uint64_t most_ns);

/* The closer, after the gate word was stored: makes every thread's `inside` visible, or its view
 * new. */
void gm_gate_fence(void);

/*
 * The closer, after gm_gate_fence: one look. GM_DRAIN_NONE: no thread is inside and no capture is
 * open, and that stays so until the gate opens. Else what is in the way. Does not wait.
 */
enum gm_drain_reason gm_gate_scan(void);

#endif
