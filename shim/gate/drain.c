/* The drainer. Whoever takes the open CLOSE or QUERY away under the lock, the drainer or the link
 * thread at the deadline, answers it. */
#include "shim/gate/drain.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "common/clock.h"
#include "common/locks.h"
#include "common/threads.h"
#include "shim/driver/real.h"
#include "shim/gate/captures.h"
#include "shim/gate/contexts.h"
#include "shim/gate/gate.h"
#include "shim/gate/hot.h"

/* ---- windows of work that lasts ---- */

/*
 * Lasting work: which work of the program may not have ended yet. A kernel marks its memory when
 * it is launched (observe/windows.h), and may run for hours. So the daemon takes what was marked
 * in or after the window gm_stat.lasts_from for touched until now.
 *
 * Soon after a window began, no thread is in a submitting call any more that it was in then. Work
 * that contexts have from then on includes all that was marked in earlier windows. When that has
 * ended (contexts.h, follow), so has all that was marked before this window. A thread that waits
 * in the driver to submit puts it off. So does an open capture; and a kernel that never ends does
 * for good: what was touched since its launch is taken for touched.
 *
 * One window is followed at a time, until its work has ended: however long the program's queue is,
 * lasts_from comes after by that length. It costs an event in each context for each window that is
 * followed. With a driver that cannot record one for a context lasts_from is 0: not known.
 *
 * Owns gm_stat.lasts_from. begin: the link thread, when the program begins to mark. All else: the
 * drainer.
 */

#define GM_LASTING_LOOK_NS (100 * GM_MS) /* a fifth of a window */

static _Atomic uint64_t gm_lasting_at = UINT64_MAX; /* when to look */
static uint32_t gm_lasting_followed;                /* the drainer's: a window; 0: none */

static uint32_t lasting_now(void)
{
    const struct gm_ctl *page = atomic_load_explicit(&gm_hot.page, memory_order_acquire);
    return atomic_load_explicit(&page->window, memory_order_relaxed);
}

/* The program marks from this window on; 0: it does no more. */
static void lasting_begin(uint32_t window)
{
    atomic_store(&gm_gate_stat()->lasts_from, window);
    atomic_store(&gm_lasting_at, window != 0 ? 0 : UINT64_MAX);
}

/* When to look; UINT64_MAX: the program marks nothing, or nobody can tell. */
static uint64_t lasting_due(void)
{
    return atomic_load(&gm_lasting_at);
}

/* Look at the followed window, or whether one began to follow. True: nobody is in a call any more
 * that began before it. When the work has ended that the contexts have when this is first so, call
 * lasting_ended(*window). */
static bool lasting_look(uint64_t now, uint32_t *window)
{
    uint64_t at = lasting_due();
    if (at > now || !atomic_compare_exchange_strong(&gm_lasting_at, &at, now + GM_LASTING_LOOK_NS))
        return false; /* not yet, or it was just turned off or on */
    if (at == 0)
        gm_lasting_followed = 0; /* it was on before */
    if (gm_lasting_followed == 0) {
        const uint32_t now_in = lasting_now();
        if (now_in == 0 || now_in == atomic_load(&gm_gate_stat()->lasts_from))
            return false;
        gm_gate_note_inside();
        gm_lasting_followed = now_in;
    }
    *window = gm_lasting_followed;
    return gm_gate_have_left();
}

/* All work has ended that was marked before `window`; or nobody can ever tell: 0. */
static void lasting_ended(uint32_t window)
{
    gm_lasting_followed = 0;
    if (lasting_due() == UINT64_MAX)
        return;
    atomic_store(&gm_gate_stat()->lasts_from, window);
    if (window == 0)
        atomic_store(&gm_lasting_at, UINT64_MAX);
}

#define GM_DRAIN_YIELDS 200       /* polls with sched_yield first; most calls return meanwhile */
#define GM_DRAIN_NAP_MIN 50000u   /* ns; then naps, which double up to ... */
#define GM_DRAIN_NAP_MAX 1000000u /* ... what an answer may be late */
/* Polling so often takes a twentieth of a core, as long as the grace. */
#define GM_DRAIN_LATE_NS (100 * GM_US)
#define GM_QUIET_LATE_NS (20 * GM_MS) /* what the answer to a QUERY may be late */
#define GM_DRAIN_PARK_NS (1 * GM_MS)  /* from one attempt to park to the next */

struct gm_drain_question {
    uint64_t epoch;
    uint64_t at;       /* when CLOSE came */
    uint64_t deadline; /* absolute */
    bool may_park;
};

static const struct gm_drain_calls *gm_drain_calls; /* written before the thread starts */

static struct gm_lock gm_drain_lock = GM_LOCK_INITIALIZER(GM_LOCK_DRAIN);
static pthread_cond_t gm_drain_asked = PTHREAD_COND_INITIALIZER;
static struct gm_drain_question gm_drain_open;
static uint64_t gm_drain_park_at; /* the link thread's: when to try; UINT64_MAX: not again */
static bool gm_drain_is_open;
static uint64_t gm_drain_query_open;
static bool gm_drain_has_query;
static pthread_cond_t gm_drain_synced = PTHREAD_COND_INITIALIZER;
static uint64_t gm_drain_sync_asked, gm_drain_sync_done; /* requests of gm_drain_synchronize */
static CUresult gm_drain_sync_result;
static bool gm_drain_is_to_watch;               /* gm_drain_watch was called */
static uint64_t gm_drain_watch_at = UINT64_MAX; /* the drainer's: when it is time for `watch` */
static uint64_t gm_drain_last;             /* CLOSE that was answered QUIET or PARKED; 0: none */
static _Atomic uint64_t gm_drain_stamp;    /* changes with the above and stops a query */
static _Atomic uint32_t gm_drain_obstacle; /* enum gm_drain_reason: what it waits for */

/* Answer `epoch`. False: it has its answer, or a newer CLOSE came. */
static bool gm_drain_answer(uint64_t epoch, enum gm_drain_status status,
                            enum gm_drain_reason reason, uint64_t now)
{
    gm_lock(&gm_drain_lock);
    bool is_mine = gm_drain_is_open && gm_drain_open.epoch == epoch;
    uint64_t at = gm_drain_open.at;
    if (is_mine)
        gm_drain_is_open = false;
    if (is_mine && status != GM_DRAIN_BUSY)
        gm_drain_last = epoch;
    gm_unlock(&gm_drain_lock);
    if (!is_mine)
        return false;

    struct gm_msg_drained drained = {
        .epoch = epoch,
        .status = status,
        .reason = reason,
        .drain_ns = now > at ? now - at : 0,
    };
    gm_drain_calls->drained(&drained);
    return true;
}

/* Whether `epoch` still waits for its answer. */
static bool gm_drain_is_asked(uint64_t epoch)
{
    gm_lock(&gm_drain_lock);
    bool is_asked = gm_drain_is_open && gm_drain_open.epoch == epoch;
    gm_unlock(&gm_drain_lock);
    return is_asked;
}

/* With the lock. */
static bool gm_drain_is_due(void)
{
    return gm_drain_is_to_watch || gm_drain_watch_at <= gm_now();
}

/* Call `watch` if it is time. False: it is not. */
static bool gm_drain_look(void)
{
    gm_lock(&gm_drain_lock);
    const bool is_due = gm_drain_is_due();
    gm_drain_is_to_watch = false;
    gm_unlock(&gm_drain_lock);
    if (is_due)
        gm_drain_watch_at = gm_drain_calls->watch(gm_now());
    return is_due;
}

/* For gm_drain_synchronize: all requests up to `asked`. */
static void gm_drain_sync(uint64_t asked)
{
    CUresult result = gm_contexts_synchronize();
    gm_lock(&gm_drain_lock);
    gm_drain_sync_done = asked;
    gm_drain_sync_result = result;
    pthread_cond_broadcast(&gm_drain_synced);
    gm_unlock(&gm_drain_lock);
}

/* The same, if somebody asked. */
static void gm_drain_sync_if_asked(void)
{
    gm_lock(&gm_drain_lock);
    uint64_t asked = gm_drain_sync_asked;
    bool is_asked = asked != gm_drain_sync_done;
    gm_unlock(&gm_drain_lock);
    if (is_asked)
        gm_drain_sync(asked);
}

/* Wait until nobody is inside, or the CLOSE has its answer, or for the deadline. Serve
 * gm_drain_synchronize: its caller is inside. */
static enum gm_drain_reason gm_drain_wait_outside(const struct gm_drain_question *question)
{
    long nap = GM_DRAIN_NAP_MIN;
    bool is_settled = false;
    gm_gate_fence();
    for (unsigned looks = 0;; looks++) {
        enum gm_drain_reason reason = gm_gate_scan();
        atomic_store(&gm_drain_obstacle, reason);
        if (reason == GM_DRAIN_NONE || gm_now() >= question->deadline ||
            !gm_drain_is_asked(question->epoch))
            return reason;
        gm_drain_sync_if_asked();
        gm_drain_look();
        if (reason == GM_DRAIN_CAPTURE && !is_settled) {
            is_settled = true;
            gm_captures_settle();
            continue;
        }
        if (looks < GM_DRAIN_YIELDS) {
            sched_yield();
            continue;
        }
        struct timespec pause = {.tv_nsec = nap};
        nanosleep(&pause, NULL);
        nap = nap * 2 < (long)GM_DRAIN_NAP_MAX ? nap * 2 : (long)GM_DRAIN_NAP_MAX;
    }
}

/* With the lock: somebody waits for the drainer, which has dealt with the CLOSE of epoch `done`. */
static bool gm_drain_is_wanted(uint64_t done)
{
    return (gm_drain_is_open && gm_drain_open.epoch != done) || gm_drain_has_query ||
           gm_drain_sync_asked != gm_drain_sync_done;
}

static void gm_drain_after(uint64_t done)
{
    bool is_over = false;
    if (!gm_drain_calls->paused())
        return;
    /* The opening gate wakes this; a new question is seen after a second at most. */
    while (!is_over && !gm_gate_await_open(GM_S)) {
        gm_lock(&gm_drain_lock);
        is_over = gm_drain_is_wanted(done);
        gm_unlock(&gm_drain_lock);
    }
    gm_drain_calls->resumed();
}

/* The program is quiet: use half of the time that is left. */
static void gm_drain_clear(const struct gm_drain_question *question)
{
    const uint64_t now = gm_now();
    if (now < question->deadline)
        gm_drain_calls->clear(now + (question->deadline - now) / 2);
}

/*
 * Wait until no context has work left. If the program may be parked, in a way that ends when it is:
 * synchronizing keeps a core busy, and would do so while the program is parked.
 */
static CUresult gm_drain_finish(const struct gm_drain_question *question)
{
    CUresult result = question->may_park ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    while (result == CUDA_ERROR_NOT_READY) {
        const uint64_t stamp = atomic_load(&gm_drain_stamp);
        gm_drain_look(); /* what is asked for later changes the stamp */
        if (!gm_drain_is_asked(question->epoch))
            return CUDA_ERROR_NOT_READY;
        result = gm_contexts_finish(&gm_drain_stamp, stamp, GM_DRAIN_LATE_NS, gm_drain_watch_at);
    }
    return gm_contexts_synchronize();
}

static void gm_drain_once(const struct gm_drain_question *question)
{
    enum gm_drain_reason reason = gm_drain_wait_outside(question);
    if (reason == GM_DRAIN_NONE && gm_drain_is_asked(question->epoch)) {
        atomic_store(&gm_drain_obstacle, GM_DRAIN_WORK);
        CUresult result = gm_drain_finish(question);
        if (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_CAPTURED_EVENT)
            reason = GM_DRAIN_CAPTURE; /* perhaps an uncounted one */
        else if (result != CUDA_SUCCESS)
            reason = GM_DRAIN_WORK;
        else {
            lasting_ended(lasting_now()); /* nobody is inside */
            gm_drain_clear(question);
        }
    }
    gm_drain_answer(question->epoch, reason == GM_DRAIN_NONE ? GM_DRAIN_QUIET : GM_DRAIN_BUSY,
                    reason, gm_now());
}

/* Answer a query, unless the stamp changes meanwhile. When it is time for `watch`, leave the query
 * open. */
static void gm_drain_ask(uint64_t query, uint64_t stamp)
{
    if (gm_gate_captures() > 0)
        gm_captures_settle();
    atomic_store(&gm_drain_obstacle, GM_DRAIN_WORK); /* for a CLOSE that comes meanwhile */
    CUresult result =
        gm_contexts_finish(&gm_drain_stamp, stamp, GM_QUIET_LATE_NS, gm_drain_watch_at);

    gm_lock(&gm_drain_lock);
    const bool is_mine = gm_drain_has_query && gm_drain_query_open == query;
    const bool is_answer =
        is_mine && (result != CUDA_ERROR_NOT_READY || atomic_load(&gm_drain_stamp) != stamp ||
                    gm_now() < gm_drain_watch_at);
    if (is_answer)
        gm_drain_has_query = false;
    gm_unlock(&gm_drain_lock);
    if (!is_answer)
        return;
    struct gm_msg_quiet quiet = {.query = query,
                                 .is_quiet = result == CUDA_SUCCESS,
                                 .had_none = result == CUDA_SUCCESS && !gm_contexts_had_work()};
    gm_drain_calls->quiet(&quiet);
}

/* Look at the work of a window, if it is time. A program whose channels are off may keep the driver
 * waiting. */
static void gm_drain_look_at_window(void)
{
    uint32_t window;
    if (!lasting_look(gm_now(), &window) || gm_gate_captures() > 0 || gm_park_is_stopped())
        return;
    const CUresult result = gm_contexts_follow(window);
    if (result == CUDA_SUCCESS)
        lasting_ended(window);
    else if (result == CUDA_ERROR_NOT_SUPPORTED)
        lasting_ended(0);
}

/* With the lock: wait for a question, or until it is time to do something. */
static void gm_drain_idle(void)
{
    const uint64_t lasting = lasting_due();
    const uint64_t at = lasting < gm_drain_watch_at ? lasting : gm_drain_watch_at;
    if (at == UINT64_MAX) {
        gm_lock_wait(&gm_drain_asked, &gm_drain_lock);
    } else {
        const struct timespec time = gm_timespec(at);
        gm_lock_wait_until(&gm_drain_asked, &gm_drain_lock, &time);
    }
}

static void *gm_drain_main(void *unused)
{
    (void)unused;
    /* Captures in other threads neither forbid our calls nor end because of them. */
    gm_real_mode(CU_STREAM_CAPTURE_MODE_RELAXED);

    uint64_t done = UINT64_MAX;
    for (;;) {
        gm_lock(&gm_drain_lock);
        while (!gm_drain_is_wanted(done) && !gm_drain_is_due() && lasting_due() > gm_now())
            gm_drain_idle();
        bool is_sync = gm_drain_sync_asked != gm_drain_sync_done;
        bool is_close = gm_drain_is_open && gm_drain_open.epoch != done;
        struct gm_drain_question question = gm_drain_open;
        const bool is_query = gm_drain_has_query;
        uint64_t query = gm_drain_query_open;
        uint64_t stamp = atomic_load(&gm_drain_stamp);
        gm_unlock(&gm_drain_lock);
        if (is_sync) { /* first: a CLOSE waits for the caller */
            gm_drain_sync_if_asked();
            continue;
        }
        if (!is_close) {
            /* Both before a query: the work that it waits for may never end. */
            const bool has_looked = gm_drain_look();
            gm_drain_look_at_window();
            if (!has_looked && is_query)
                gm_drain_ask(query, stamp);
            continue;
        }
        gm_drain_once(&question);
        done = question.epoch;
        if (!gm_park_is_on())
            gm_drain_after(done);
    }
    return NULL;
}

int gm_drain_start(const struct gm_drain_calls *calls)
{
    gm_drain_calls = calls;
    return gm_thread_start(gm_drain_main, "gpumux-drain");
}

/* With the lock: wake the drainer and stop a query. */
static void gm_drain_changed(void)
{
    atomic_fetch_add(&gm_drain_stamp, 1);
    pthread_cond_signal(&gm_drain_asked);
}

/* The CLOSE has its answer: nobody needs to know when the work ends. */
static void gm_drain_stop(void)
{
    gm_lock(&gm_drain_lock);
    gm_drain_changed();
    gm_unlock(&gm_drain_lock);
    gm_contexts_wake();
}

static uint64_t gm_drain_after_now(uint64_t now, uint64_t ns)
{
    return ns < UINT64_MAX - now ? now + ns : UINT64_MAX;
}

void gm_drain_close(uint64_t epoch, uint64_t grace_ns, uint64_t deadline_ns, uint64_t now)
{
    gm_drain_park_at = gm_drain_after_now(now, grace_ns);
    if (gm_drain_park_at != UINT64_MAX)
        gm_park_begin();
    gm_lock(&gm_drain_lock);
    /* gm_drain_obstacle stays: until the drainer comes to this CLOSE, it is stuck in that. */
    gm_drain_open = (struct gm_drain_question){
        .epoch = epoch,
        .at = now,
        .deadline = gm_drain_after_now(now, deadline_ns),
        .may_park = gm_drain_park_at != UINT64_MAX,
    };
    gm_drain_is_open = true;
    gm_drain_has_query = false; /* DRAINED says more */
    gm_drain_changed();
    gm_unlock(&gm_drain_lock);
    gm_contexts_wake();
}

void gm_drain_follow(uint32_t window)
{
    lasting_begin(window);
    if (window == 0) /* also a forked child, where others may have had the lock */
        return;
    gm_lock(&gm_drain_lock);
    pthread_cond_signal(&gm_drain_asked);
    gm_unlock(&gm_drain_lock);
}

void gm_drain_watch(void)
{
    gm_lock(&gm_drain_lock);
    const bool is_asked = gm_drain_has_query || gm_drain_is_open;
    gm_drain_is_to_watch = true;
    if (is_asked) /* it waits for work; to a query the answer is no */
        gm_drain_changed();
    else
        pthread_cond_signal(&gm_drain_asked);
    gm_unlock(&gm_drain_lock);
    if (is_asked)
        gm_contexts_wake();
}

void gm_drain_query(uint64_t query)
{
    gm_lock(&gm_drain_lock);
    gm_drain_query_open = query;
    gm_drain_has_query = true;
    gm_drain_changed();
    gm_unlock(&gm_drain_lock);
    gm_contexts_wake();
}

CUresult gm_drain_synchronize(uint64_t patience_ns)
{
    const struct timespec until = gm_timespec(gm_now() + patience_ns);
    CUresult result = CUDA_ERROR_NOT_READY;
    int error = 0;
    gm_lock(&gm_drain_lock);
    uint64_t mine = ++gm_drain_sync_asked;
    gm_drain_changed();
    gm_unlock(&gm_drain_lock);
    gm_contexts_wake();
    gm_lock(&gm_drain_lock);
    while (gm_drain_sync_done < mine && error != ETIMEDOUT)
        error = gm_lock_wait_until(&gm_drain_synced, &gm_drain_lock, &until);
    if (gm_drain_sync_done >= mine)
        result = gm_drain_sync_result;
    gm_unlock(&gm_drain_lock);
    return result;
}

void gm_drain_resume(void)
{
    gm_park_end(gm_drain_calls->resume);
}

/* The grace of `epoch` is over: park, if that can be done now. */
static void gm_drain_park(uint64_t epoch, uint64_t now)
{
    switch (gm_park_try(gm_drain_calls->park)) {
    case GM_PARK_IS_ON:
        gm_drain_park_at = UINT64_MAX;
        if (!gm_drain_answer(epoch, GM_DRAIN_PARKED, GM_DRAIN_NONE, gm_now()))
            gm_drain_resume(); /* the drainer found it quiet meanwhile */
        gm_drain_stop();
        return;
    case GM_PARK_LATER:
        gm_drain_park_at = now + GM_DRAIN_PARK_NS;
        return;
    case GM_PARK_NEVER:
        gm_drain_park_at = UINT64_MAX;
    }
}

uint64_t gm_drain_expire(uint64_t now)
{
    gm_lock(&gm_drain_lock);
    uint64_t deadline = gm_drain_is_open ? gm_drain_open.deadline : UINT64_MAX;
    uint64_t epoch = gm_drain_open.epoch;
    gm_unlock(&gm_drain_lock);
    if (deadline == UINT64_MAX) /* no CLOSE is open */
        return UINT64_MAX;
    if (gm_drain_park_at <= now) {
        gm_drain_park(epoch, now);
        if (gm_park_is_on())
            return UINT64_MAX;
    }
    if (deadline > now)
        return deadline < gm_drain_park_at ? deadline : gm_drain_park_at;

    enum gm_drain_reason reason = (enum gm_drain_reason)atomic_load(&gm_drain_obstacle);
    gm_drain_answer(epoch, GM_DRAIN_BUSY, reason == GM_DRAIN_NONE ? GM_DRAIN_WORK : reason, now);
    return UINT64_MAX;
}

uint64_t gm_drain_answered(void)
{
    gm_lock(&gm_drain_lock);
    const uint64_t epoch = gm_drain_last;
    gm_unlock(&gm_drain_lock);
    return epoch;
}

void gm_drain_stays(uint64_t epoch)
{
    gm_lock(&gm_drain_lock);
    gm_drain_last = epoch;
    gm_unlock(&gm_drain_lock);
}

void gm_drain_cancel(void)
{
    gm_lock(&gm_drain_lock);
    gm_drain_is_open = false;
    gm_drain_has_query = false;
    gm_drain_changed();
    gm_unlock(&gm_drain_lock);
    gm_contexts_wake();
}
