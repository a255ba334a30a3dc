/*
 * The gate: the word in shared memory that says whether this program may submit GPU work, and the
 * slots that say who is submitting.
 *
 *   SUBMIT   slot = gm_gate_enter(); if (slot == NULL) return gm_gate_refusal();
 *            result = real(...); gm_gate_leave(slot);
 *   SYNC     result = real(...); gm_gate_waited();   never refused
 *
 * A call that waits for the GPU, or asks about it, is no work: it leaves no trace here. Whether the
 * program still has work is for the GPU to say (drain.h, QUERY).
 *
 * The model is Dekker's, with the expensive half on the closer's side:
 *
 *   a caller   inside = TRYING; (compiler barrier) load the gate word; inside = IN; call; calls++;
 *              inside = 0
 *   the closer gate = CLOSED; membarrier; wait until no capture is open and every inside is 0
 *
 * membarrier puts a full fence into every thread of the program. The `inside` of a caller that saw
 * OPEN before it is visible after it; a later caller sees CLOSED. Without membarrier no thread gets
 * a fast slot: all take the slow path, which has its own fences.
 *
 * A thread gets its slot on its first slow path, which boots first (boot.h). So no call passes
 * before the start is over, slots never move, and the closer sees every slot that is in use.
 *
 * Nested calls pass (the driver calls an exported symbol, a callback or a signal handler runs in a
 * call): the outer call's slot is IN. A signal handler that comes while the slot is TRYING checks
 * the gate itself and waits there if it must, because the call that it interrupted may still be
 * turned away. While a capture is open, the closed gate lets callers pass: the closer waits for
 * captures first, and a capture begins only inside the open gate. So an open capture means that the
 * program was not found quiet and nothing of it was taken away.
 *
 * While the daemon wants to know a program's rhythm (rhythm.h), a thread whose synchronizing call
 * returned takes the slow path once, so that the beginning of its next request is noticed. A
 * submission pays nothing for that.
 *
 * A program that handles a signal may have to return from its call to do what the signal asks for,
 * as Python does. So a signal that interrupts the wait hurries: the daemon is told, and gives an
 * early, short turn now and then.
 *
 * When the program's memory died with the daemon, callers are refused, and what a call that is
 * under way says of the work that lost its memory (ILLEGAL_ADDRESS, say) becomes the same error: a
 * program sees one error only.
 *
 * Any thread and any signal handler may enter and leave. A thread that waits at the gate cannot be
 * cancelled. A thread that leaves a call by longjmp stays inside for ever: its program is never
 * paused again, and status says that a call did not return.
 *
 * Owns the slots and the page that callers read. Callers: wrappers and handlers enter and leave,
 * the start attaches, the link says that the daemon is lost, the drainer scans. Calls boot, and the
 * link through gm_gate_calls.
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
#define GM_COLD __attribute__((cold, noinline)) /* lies apart from hot code */

/* gm_slot.inside of a thread's own slot. WHOLE: gm_gate_enter_whole. The daemon and the closer only
 * tell 0 from the rest. */
enum { GM_SLOT_OUT = 0, GM_SLOT_TRYING = 1, GM_SLOT_IN = 2, GM_SLOT_WHOLE = 3 };

/* A thread's own state. Private to gate.h and gate.c. */
struct gm_gate_thread {
    struct gm_slot
        *fast;           /* its slot, if it may take the fast path; else one that is always taken */
    struct gm_slot *own; /* its slot, or the shared one; NULL before its first call */
    uint32_t inside;     /* in the shared slot: as gm_slot.inside in its own; counted unless 0 */
    uint32_t is_waiting; /* at the gate, and counted in gm_stat.waiting */
};

/* initial-exec: a preloaded library has its thread-local words in every thread's static block. */
extern GM_HIDDEN __thread struct gm_gate_thread gm_gate_self
    __attribute__((tls_model("initial-exec")));

/* The slow paths of the inline functions below. Private to them. */
GM_COLD struct gm_slot *gm_gate_enter_slow(void);
GM_COLD CUresult gm_gate_result_slow(CUresult result);
GM_COLD CUresult gm_gate_leave_slow(struct gm_slot *slot, CUresult result);
GM_COLD void gm_gate_waited_slow(void);

/* Enter if the gate is open and this is neither the first nor a nested call of its thread. NULL:
 * nothing was done, call gm_gate_enter. */
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
        __builtin_unreachable(); /* saves the callers' check */
    return slot;
}

/*
 * Enter to submit GPU work; waits while the gate is closed. Returns what gm_gate_leave needs. NULL:
 * this program may never submit again (its memory died with the daemon): return gm_gate_refusal()
 * and do not leave.
 */
static inline struct gm_slot *gm_gate_enter(void)
{
    struct gm_slot *slot = gm_gate_enter_fast();
    return __builtin_expect(slot != NULL, 1) ? slot : gm_gate_enter_slow();
}

/* Count a call in a thread's own slot. Nobody else writes it, so one plain instruction suffices. */
__attribute__((always_inline)) static inline void gm_slot_count(struct gm_slot *slot)
{
#ifdef __x86_64__
    __asm__("addq $1, %0" : "+m"(*(uint64_t *)&slot->calls) : : "cc");
#else
    uint64_t calls = atomic_load_explicit(&slot->calls, memory_order_relaxed);
    atomic_store_explicit(&slot->calls, calls + 1, memory_order_relaxed);
#endif
}

/* What the program is told of the `result` of a real call. */
__attribute__((always_inline)) static inline CUresult gm_gate_result(CUresult result)
{
    return __builtin_expect(result == CUDA_SUCCESS, 1) ? result : gm_gate_result_slow(result);
}

/* The real call returned `result`; returns what the program is told. `slot` is what gm_gate_enter
 * gave. */
__attribute__((always_inline)) static inline CUresult gm_gate_leave_with(struct gm_slot *slot,
                                                                         CUresult result)
{
    if (__builtin_expect(slot != gm_gate_self.fast, 0))
        return gm_gate_leave_slow(slot, result);
    gm_slot_count(slot);
    atomic_store_explicit(&slot->inside, GM_SLOT_OUT, memory_order_release);
    return gm_gate_result(result);
}

/*
 * As gm_gate_enter, for several calls that need all memory in place: the program is not parked
 * (park.h) until gm_gate_leave.
 */
static inline struct gm_slot *gm_gate_enter_whole(void)
{
    struct gm_slot *slot = gm_gate_enter();
    if (slot != NULL && slot == gm_gate_self.fast)
        atomic_store_explicit(&slot->inside, GM_SLOT_WHOLE, memory_order_relaxed);
    return slot;
}

static inline void gm_gate_leave(struct gm_slot *slot)
{
    gm_gate_leave_with(slot, CUDA_SUCCESS);
}

/* The result of a SUBMIT call for which gm_gate_enter gave NULL. */
static inline CUresult gm_gate_refusal(void)
{
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

/* The result of a handler's `call`, made inside the gate, or the refusal. */
#define GM_GATED(call)                                                                             \
    ({                                                                                             \
        struct gm_slot *gm_inside = gm_gate_enter_whole();                                         \
        gm_inside != NULL ? gm_gate_leave_with(gm_inside, call) : gm_gate_refusal();               \
    })

/* A call that waits for the GPU returned. Never boots. */
static inline void gm_gate_waited(void)
{
    const struct gm_ctl *page = atomic_load_explicit(&gm_hot.page, memory_order_acquire);
    if (__builtin_expect(atomic_load_explicit(&page->has_rhythm, memory_order_relaxed) != 0, 0))
        gm_gate_waited_slow();
}

/* Called by a thread that waits at the gate, perhaps in a signal handler. */
struct gm_gate_calls {
    void (*want)(bool is_hurried); /* tell the daemon that a thread waits, and got a signal */
    void (*expect)(uint64_t after_us, uint64_t for_us); /* that a request will come */
};

/*
 * Start only, once, before any other thread returns from gm_boot(): use the daemon's `page` and
 * `stat` (mapped until the process ends) and `calls`; with NULL for all three, a page that is
 * always open. `is_asymmetric`: gm_gate_membarrier_register() succeeded; else every call pays for a
 * fence. Returns 0 or -errno (no thread-specific key left).
 */
int gm_gate_attach(const struct gm_ctl *page, struct gm_stat *stat, bool is_asymmetric,
                   const struct gm_gate_calls *calls);

/* Ask the kernel for private expedited membarriers. False: not available. */
bool gm_gate_membarrier_register(void);

/* Link only: the daemon is gone. `is_whole`: all memory is mapped, so open the gate for good once
 * no thread holds the others. Else refuse all work. */
void gm_gate_lost(bool is_whole);

/* The forked child, which has one thread: forget the parent's slots and leave the gate open. */
void gm_gate_after_fork(void);

/* The words that the daemon samples; without a daemon, the process's own. Never NULL. */
struct gm_stat *gm_gate_stat(void);

/*
 * Keep all other threads outside the gate, to change what is mapped while the program may run. The
 * caller is inside (gm_gate_enter, not nested), so the daemon takes nothing away meanwhile. One
 * thread at a time. True: nobody else is inside and no capture is open, until gm_gate_unhold().
 * False: not within `patience_ns`.
 */
bool gm_gate_hold(uint64_t patience_ns);
void gm_gate_unhold(void);

/* Count open stream captures. Begin: inside the gate, before the real call. End: when the capture
 * is over, or did not begin; returns how many are open. */
void gm_gate_capture_begin(void);
uint32_t gm_gate_capture_end(void);
uint32_t gm_gate_captures(void);

/*
 * Around a synchronizing call of the shim, which would invalidate an open capture. Without a lock:
 * sync_begin counts itself and then checks for captures; capture_begin counts the capture and then
 * waits for those who synchronize. It waits GM_GATE_SYNC_MS at most. The driver checks for captures
 * at the start of the call, which a thread reaches in that time even on a busy machine; the call
 * itself may last as long as the GPU works.
 *
 * False: a capture is open. Do not synchronize and do not call sync_end.
 */
#define GM_GATE_SYNC_MS (200 * GM_SLOW)
bool gm_gate_sync_begin(void);
void gm_gate_sync_end(void);

/* Drainer only: wait until the gate is not closed, at most `most_ns`. True: it is not. */
bool gm_gate_await_open(uint64_t most_ns);

/* The closer, after the gate word was stored: the membarrier of the model above. */
void gm_gate_fence(void);

/*
 * The closer, after gm_gate_fence: the threads that are inside, in one call of the driver each.
 * Returns how many; `room` or fewer are in `tids`. More than `room`: too many to tell, some without
 * a fast slot, or one that needs the memory in place (WHOLE), is about to leave, or has a capture
 * open.
 */
uint32_t gm_gate_list(uint32_t *tids, uint32_t room);

/* Drainer only, with the gate open: note which threads are inside; whether all of these have left
 * the call that they were in. A thread that shares a slot counts as having left when another one
 * there has. */
void gm_gate_note_inside(void);
bool gm_gate_have_left(void);

/* The closer, after gm_gate_fence. GM_DRAIN_NONE: no thread is inside and no capture is open, until
 * the gate opens. Else what is in the way. Does not wait. */
enum gm_drain_reason gm_gate_scan(void);

#endif
