/*
 * The gate's slow paths: slots, waiting, captures. The model is in gate.h. All of it is lock-free,
 * because a signal handler or a callback of the driver may enter at any point. Threads wait on a
 * shared futex in the daemon's page, which works on a read-only mapping.
 */
#include "shim/gate/gate.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "shim/gate/boot.h"
#include "shim/gate/rhythm.h"

#define GM_SLOT_SHARED (GM_SLOTS - 1u) /* of all threads without a slot of their own */
#define GM_SLOT_WORDS (GM_SLOTS / 64u)
/* A waiting thread checks the gate and asks the daemon again after so long, woken or not. */
#define GM_GATE_RECHECK_S 1
/* From here on results say what became of work, or of the context by it (cuda.h). */
#define GM_GATE_FAILED CUDA_ERROR_ILLEGAL_ADDRESS

/* The fast slot of a thread that has none: always taken. */
static struct gm_slot gm_slot_taken = {.inside = GM_SLOT_IN};

__thread struct gm_gate_thread gm_gate_self
    __attribute__((tls_model("initial-exec"))) = {.fast = &gm_slot_taken};

/* A thread's requests. It rests: its next submission takes the slow path. */
static __thread struct {
    struct gm_rhythm rhythm;
    bool is_resting;
} gm_gate_requests __attribute__((tls_model("initial-exec")));

static const struct gm_ctl gm_page_open = {.gate = GM_GATE_OPEN};
static const struct gm_ctl gm_page_refused = {.gate = GM_GATE_CLOSED};
/* While a thread holds the others. Its word is never OPEN: a late caller with this page must load
 * the page again (COLD), or a drain could miss it. */
static struct gm_ctl gm_page_held = {.gate = GM_GATE_COLD};
static const struct gm_ctl *gm_page_before; /* written by the holder: the page to restore */
/* The page that gm_gate_lost set, or leaves to gm_gate_unhold to set; NULL: nothing is lost. */
static const struct gm_ctl *_Atomic gm_page_lost;

static const struct gm_gate_calls *gm_gate_calls; /* written by attach */
static struct gm_stat gm_stat_own; /* slots of a program that runs without a daemon */
static struct gm_stat *_Atomic gm_stat_area = &gm_stat_own;

static bool gm_gate_is_asymmetric; /* written by attach before any thread has a slot */
static bool gm_gate_has_key;
static pthread_key_t gm_gate_key; /* its destructor gives the slot back */

static _Atomic uint64_t gm_slots_taken[GM_SLOT_WORDS]; /* one bit a slot, the shared one excepted */
static _Atomic uint32_t gm_slots_top;                  /* one more than the highest ever taken */
static _Atomic uint32_t gm_capture_begun;              /* captures begun so far, modulo 2^32 */
static _Atomic uint32_t gm_own_syncs;                  /* own synchronizing calls under way */
static _Atomic uint64_t gm_want_sent;    /* one more than the epoch of the newest WANT */
static _Atomic uint64_t gm_want_hurried; /* when the daemon was last told of a signal */

/* For a nested call: the outer call's slot is IN. */
static struct gm_slot gm_slot_nested;
/* For a signal handler that interrupted a caller in TRYING: it leaves to TRYING. */
static struct gm_slot gm_slot_interrupted;

static bool gm_slot_is_shared(const struct gm_slot *slot)
{
    return slot == &gm_gate_stat()->slot[GM_SLOT_SHARED];
}

struct gm_stat *gm_gate_stat(void)
{
    return atomic_load_explicit(&gm_stat_area, memory_order_acquire);
}

/* ---- slots ---- */

static void gm_gate_thread_exit(void *unused)
{
    struct gm_gate_thread *self = &gm_gate_self;
    struct gm_slot *slot = self->own;
    struct gm_stat *stat = gm_gate_stat();

    (void)unused;
    self->fast = &gm_slot_taken;
    self->own = NULL;
    gm_gate_requests.is_resting = false;
    if (slot == NULL)
        return;
    if (self->is_waiting != 0)
        atomic_fetch_sub(&stat->waiting, 1); /* a longjmp ended the wait */
    self->is_waiting = 0;
    if (gm_slot_is_shared(slot)) {
        atomic_fetch_sub(&slot->inside, self->inside != 0);
        self->inside = 0;
        return;
    }
    /* Also if the thread ended in the middle of a call. */
    atomic_store_explicit(&slot->inside, 0, memory_order_release);
    uint32_t i = (uint32_t)(slot - stat->slot);
    atomic_fetch_and(&gm_slots_taken[i / 64u], ~(1ull << (i % 64u)));
}

static struct gm_slot *gm_slot_take(struct gm_stat *stat)
{
    for (uint32_t word = 0; word < GM_SLOT_WORDS; word++) {
        uint64_t taken = atomic_load_explicit(&gm_slots_taken[word], memory_order_relaxed);
        while (taken != UINT64_MAX) {
            uint32_t bit = (uint32_t)__builtin_ctzll(~taken);
            uint32_t i = word * 64u + bit;
            if (i >= GM_SLOT_SHARED)
                break;
            if (!atomic_compare_exchange_weak(&gm_slots_taken[word], &taken, taken | 1ull << bit))
                continue;
            uint32_t top = atomic_load(&gm_slots_top);
            while (top < i + 1 && !atomic_compare_exchange_weak(&gm_slots_top, &top, i + 1))
                continue;
            return &stat->slot[i];
        }
    }
    return &stat->slot[GM_SLOT_SHARED];
}

/* Give this thread a slot, after boot. */
static void gm_gate_settle(struct gm_gate_thread *self)
{
    if (self->own != NULL)
        return;
    struct gm_slot *slot = gm_slot_take(gm_gate_stat());
    bool is_shared = gm_slot_is_shared(slot);

    if (!is_shared)
        atomic_store_explicit(&slot->tid, (uint32_t)gettid(), memory_order_relaxed);
    self->own = slot;
    self->fast = is_shared || !gm_gate_is_asymmetric ? &gm_slot_taken : slot;
    if (gm_gate_has_key)
        pthread_setspecific(gm_gate_key, self); /* if it fails, the slot is not reused */
}

/* ---- enter and leave ---- */

/* GM_SLOT_OUT, TRYING or IN. */
static uint32_t gm_gate_place(const struct gm_gate_thread *self)
{
    if (self->own == NULL)
        return GM_SLOT_OUT;
    if (gm_slot_is_shared(self->own))
        return self->inside;
    return atomic_load_explicit(&self->own->inside, memory_order_relaxed);
}

/*
 * Sequentially consistent, so the slow path needs no membarrier and cannot race with captures. A
 * handler that comes between the two writes of the shared slot counts itself. If such a handler
 * forked, this does nothing in the child, where nobody drains.
 */
static void gm_gate_step(struct gm_gate_thread *self, uint32_t place)
{
    if (self->own == NULL)
        return;
    if (!gm_slot_is_shared(self->own)) {
        atomic_exchange(&self->own->inside, place);
        return;
    }
    uint32_t old = self->inside;
    if (old == GM_SLOT_OUT && place != GM_SLOT_OUT)
        atomic_fetch_add(&self->own->inside, 1);
    self->inside = place;
    atomic_signal_fence(memory_order_seq_cst);
    if (old != GM_SLOT_OUT && place == GM_SLOT_OUT)
        atomic_fetch_sub(&self->own->inside, 1);
}

/* What a thread that waits remembers; all zero at first. */
struct gm_gate_waiter {
    uint64_t since;  /* when it began to wait or last told the daemon */
    bool has_signal; /* one came meanwhile */
};

/* A signal came. The daemon is told of one a second: programs may get thousands. */
static void gm_gate_hurry(struct gm_gate_waiter *waiter)
{
    const uint64_t now = gm_now();
    uint64_t last = atomic_load(&gm_want_hurried);
    waiter->has_signal = true;
    if ((last == 0 || now - last >= GM_GATE_RECHECK_S * GM_S) &&
        atomic_compare_exchange_strong(&gm_want_hurried, &last, now))
        gm_gate_calls->want(true);
}

/*
 * Wait until the word of `page` changes, at most GM_GATE_RECHECK_S. The first thread that waits at
 * a closed gate tells the daemon, and so does each one that has waited for GM_GATE_RECHECK_S, in
 * case the first message was lost.
 */
static void gm_gate_wait(const struct gm_ctl *page, uint32_t word, bool is_first,
                         struct gm_gate_waiter *waiter)
{
    const uint64_t asked = atomic_load(&page->epoch) + 1, now = gm_now();
    const bool is_late = waiter->since != 0 && now - waiter->since >= GM_GATE_RECHECK_S * GM_S;
    if (atomic_exchange(&gm_want_sent, asked) != asked || is_first || is_late)
        gm_gate_calls->want(waiter->has_signal);
    if (waiter->since == 0 || is_late)
        waiter->since = now;

    struct timespec most = {.tv_sec = GM_GATE_RECHECK_S};
    if (syscall(SYS_futex, &page->gate, FUTEX_WAIT, word, &most, NULL, 0) != 0 && errno == EINTR &&
        page != &gm_page_held)
        gm_gate_hurry(waiter);
}

/* The thread submits: a request may begin. */
static void gm_gate_begin(struct gm_gate_thread *self)
{
    if (!gm_gate_requests.is_resting)
        return;
    gm_gate_requests.is_resting = false;
    self->fast = self->own;
    gm_rhythm_submit(&gm_gate_requests.rhythm, gm_now());
}

/* A synchronizing call of the thread returned: a request may be over. */
static void gm_gate_rest(struct gm_gate_thread *self)
{
    uint64_t after_us, for_us;
    if (!gm_gate_requests.is_resting && self->fast != self->own)
        return; /* it has no fast path */
    self->fast = &gm_slot_taken;
    gm_gate_requests.is_resting = true;
    if (!gm_rhythm_rest(&gm_gate_requests.rhythm, gm_now(), &after_us, &for_us))
        return;
    int saved = errno, cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* as in gm_gate_enter_slow */
    gm_gate_calls->expect(after_us, for_us);
    pthread_setcancelstate(cancel, NULL);
    errno = saved;
}

struct gm_slot *gm_gate_enter_slow(void)
{
    struct gm_gate_thread *self = &gm_gate_self;
    const uint32_t before = gm_gate_place(self);
    if (before >= GM_SLOT_IN)
        return &gm_slot_nested;

    int saved = errno, cancel;
    /* Sending is a cancellation point, and a cancelled start would stay half done. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    if (gm_boot() == GM_BOOT_COLD) {
        pthread_setcancelstate(cancel, NULL);
        errno = saved;
        return &gm_slot_nested; /* before cuInit, or from the start itself */
    }
    gm_gate_settle(self);
    gm_gate_begin(self);

    struct gm_stat *stat = gm_gate_stat();
    struct gm_slot *slot = before == GM_SLOT_TRYING ? &gm_slot_interrupted : self->own;
    bool is_waiting = false;
    struct gm_gate_waiter waiter = {0};
    for (;;) {
        gm_gate_step(self, GM_SLOT_TRYING);
        const struct gm_ctl *page = atomic_load(&gm_hot.page);
        uint32_t word = atomic_load(&page->gate);
        if (word == GM_GATE_OPEN)
            break;
        if (page == &gm_page_held && word == GM_GATE_COLD) {
            gm_gate_step(self, GM_SLOT_OUT);
            continue;
        }
        if (page == &gm_page_refused) {
            slot = NULL;
            break;
        }
        if (atomic_load(&stat->captures) > 0)
            break;
        gm_gate_step(self, GM_SLOT_OUT);
        bool is_first = false;
        if (self->is_waiting == 0) { /* else this is a handler that interrupts the wait */
            is_waiting = true;
            /* In this order: a handler that comes between the two counts itself. */
            is_first = atomic_fetch_add(&stat->waiting, 1) == 0;
            self->is_waiting = 1;
        }
        gm_gate_wait(page, word, is_first, &waiter);
    }
    gm_gate_step(self, slot != NULL ? GM_SLOT_IN : before);
    if (is_waiting && self->is_waiting != 0) { /* else a handler forked and this is the child */
        self->is_waiting = 0;
        atomic_fetch_sub(&stat->waiting, 1);
    }
    pthread_setcancelstate(cancel, NULL);
    errno = saved;
    return slot;
}

CUresult gm_gate_leave_slow(struct gm_slot *slot, CUresult result)
{
    struct gm_gate_thread *self = &gm_gate_self;
    if (slot == &gm_slot_interrupted && self->own != NULL) {
        atomic_fetch_add(&self->own->calls, 1);
        gm_gate_step(self, GM_SLOT_TRYING);
        return gm_gate_result(result);
    }
    if (slot == &gm_slot_nested || slot != self->own)
        return result; /* nested, or a handler forked and this is the child */
    atomic_fetch_add(&slot->calls, 1);
    gm_gate_step(self, GM_SLOT_OUT);
    return gm_gate_result(result);
}

CUresult gm_gate_result_slow(CUresult result)
{
    const bool is_refused = atomic_load(&gm_hot.page) == &gm_page_refused;
    return is_refused && result >= GM_GATE_FAILED ? gm_gate_refusal() : result;
}

void gm_gate_waited_slow(void)
{
    struct gm_gate_thread *self = &gm_gate_self;
    if (self->own != NULL && !gm_slot_is_shared(self->own))
        gm_gate_rest(self);
}

/* ---- captures and the closer ---- */

void gm_gate_capture_begin(void)
{
    atomic_fetch_add(&gm_capture_begun, 1);
    atomic_fetch_add(&gm_gate_stat()->captures, 1);
    for (unsigned ms = 0; atomic_load(&gm_own_syncs) > 0 && ms < GM_GATE_SYNC_MS; ms++) {
        struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
    }
}

bool gm_gate_sync_begin(void)
{
    atomic_fetch_add(&gm_own_syncs, 1);
    if (gm_gate_captures() == 0)
        return true;
    atomic_fetch_sub(&gm_own_syncs, 1);
    return false;
}

void gm_gate_sync_end(void)
{
    atomic_fetch_sub(&gm_own_syncs, 1);
}

uint32_t gm_gate_capture_end(void)
{
    _Atomic uint32_t *captures = &gm_gate_stat()->captures;
    uint32_t open = atomic_load(captures);
    while (open > 0 && !atomic_compare_exchange_weak(captures, &open, open - 1))
        continue;
    return open > 0 ? open - 1 : 0;
}

uint32_t gm_gate_captures(void)
{
    return atomic_load(&gm_gate_stat()->captures);
}

bool gm_gate_membarrier_register(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

bool gm_gate_await_open(uint64_t most_ns)
{
    const struct gm_ctl *page = atomic_load(&gm_hot.page);
    const struct timespec most = gm_timespec(most_ns);
    uint32_t word = atomic_load(&page->gate);
    if (word == GM_GATE_CLOSED && page != &gm_page_refused)
        syscall(SYS_futex, &page->gate, FUTEX_WAIT, word, &most, NULL, 0);
    page = atomic_load(&gm_hot.page);
    return page == &gm_page_refused || atomic_load(&page->gate) != GM_GATE_CLOSED;
}

void gm_gate_fence(void)
{
    if (gm_gate_is_asymmetric)
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

/*
 * Why one scan suffices: suppose no capture is open before the slots are read and none began until
 * after. Then none was open in between. A caller that passed the closed gate because of a capture
 * saw it before the scan, and its slot was TRYING before that, so the scan sees the slot. A caller
 * that begins a capture counts it while inside: the scan sees its slot or the count.
 */
static enum gm_drain_reason gm_gate_scan_but(const struct gm_gate_thread *self)
{
    struct gm_stat *stat = gm_gate_stat();
    uint32_t begun = atomic_load(&gm_capture_begun);
    const struct gm_slot *own = self != NULL ? self->own : NULL;

    if (atomic_load(&stat->captures) > 0)
        return GM_DRAIN_CAPTURE;
    uint32_t top = atomic_load(&gm_slots_top);
    for (uint32_t i = 0; i < top; i++)
        if (&stat->slot[i] != own && atomic_load(&stat->slot[i].inside) != 0)
            return GM_DRAIN_INSIDE;
    uint32_t shared = own == &stat->slot[GM_SLOT_SHARED] ? self->inside : 0;
    if (atomic_load(&stat->slot[GM_SLOT_SHARED].inside) != shared)
        return GM_DRAIN_INSIDE;
    if (atomic_load(&stat->captures) > 0 || atomic_load(&gm_capture_begun) != begun)
        return GM_DRAIN_CAPTURE;
    return GM_DRAIN_NONE;
}

uint32_t gm_gate_list(uint32_t *tids, uint32_t room)
{
    struct gm_stat *stat = gm_gate_stat();
    const uint32_t begun = atomic_load(&gm_capture_begun), top = atomic_load(&gm_slots_top);
    uint32_t count = 0;

    if (!gm_gate_is_asymmetric || atomic_load(&stat->captures) > 0 ||
        atomic_load(&stat->slot[GM_SLOT_SHARED].inside) != 0)
        return room + 1;
    for (uint32_t i = 0; i < top; i++) {
        const uint32_t inside = atomic_load(&stat->slot[i].inside);
        if (inside == GM_SLOT_OUT)
            continue;
        if (inside != GM_SLOT_IN || count == room)
            return room + 1;
        tids[count++] = atomic_load(&stat->slot[i].tid);
    }
    if (atomic_load(&stat->captures) > 0 || atomic_load(&gm_capture_begun) != begun)
        return room + 1;
    return count;
}

/* In which call a thread was: calls + 1; 0: in none. */
static uint64_t gm_gate_noted[GM_SLOTS];

/* Who is not seen inside saw all that was stored before this. */
void gm_gate_note_inside(void)
{
    struct gm_stat *stat = gm_gate_stat();
    gm_gate_fence();
    for (uint32_t i = 0; i < GM_SLOTS; i++)
        gm_gate_noted[i] = 0;
    const uint32_t top = atomic_load(&gm_slots_top);
    for (uint32_t i = 0; i <= top; i++) { /* and the shared one */
        const uint32_t at = i < top ? i : GM_SLOT_SHARED;
        const uint64_t calls = atomic_load(&stat->slot[at].calls);
        gm_gate_noted[at] = atomic_load(&stat->slot[at].inside) != 0 ? calls + 1 : 0;
    }
}

bool gm_gate_have_left(void)
{
    struct gm_stat *stat = gm_gate_stat();
    for (uint32_t i = 0; i < GM_SLOTS; i++) {
        if (gm_gate_noted[i] == 0)
            continue;
        if (atomic_load(&stat->slot[i].inside) != 0 &&
            atomic_load(&stat->slot[i].calls) + 1 == gm_gate_noted[i])
            return false;
        gm_gate_noted[i] = 0;
    }
    return true;
}

enum gm_drain_reason gm_gate_scan(void)
{
    return gm_gate_scan_but(NULL);
}

bool gm_gate_hold(uint64_t patience_ns)
{
    const struct gm_ctl *page = atomic_load(&gm_hot.page);
    uint64_t until = gm_now() + patience_ns;
    long nap = 20000;
    if (page == &gm_page_refused)
        return false;
    gm_page_before = page;
    atomic_store(&gm_page_held.window, atomic_load(&page->window)); /* who asks meanwhile */
    atomic_store(&gm_page_held.gate, GM_GATE_CLOSED);
    if (!atomic_compare_exchange_strong(&gm_hot.page, &page, &gm_page_held)) {
        atomic_store(&gm_page_held.gate, GM_GATE_COLD);
        return false; /* the daemon was just lost */
    }
    gm_gate_fence();
    while (gm_gate_scan_but(&gm_gate_self) != GM_DRAIN_NONE) {
        if (gm_now() >= until) {
            gm_gate_unhold();
            return false;
        }
        struct timespec pause = {.tv_nsec = nap};
        nanosleep(&pause, NULL);
        nap = nap < 1000000 ? 2 * nap : nap;
    }
    return true;
}

static void gm_page_wake(const struct gm_ctl *page)
{
    syscall(SYS_futex, &page->gate, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* gm_gate_lost may run at the same time: either it sees that nobody holds, or this sees
 * gm_page_lost. */
void gm_gate_unhold(void)
{
    const struct gm_ctl *page = &gm_page_held;
    atomic_compare_exchange_strong(&gm_hot.page, &page, gm_page_before); /* else: refused */
    const struct gm_ctl *lost = atomic_load(&gm_page_lost);
    if (lost != NULL)
        atomic_store(&gm_hot.page, lost);
    atomic_store(&gm_page_held.gate, GM_GATE_COLD);
    gm_page_wake(&gm_page_held);
    if (lost != NULL)
        gm_page_wake(gm_page_before); /* threads that waited there before the hold */
}

/* ---- life ---- */

int gm_gate_attach(const struct gm_ctl *page, struct gm_stat *stat, bool is_asymmetric,
                   const struct gm_gate_calls *calls)
{
    int error = pthread_key_create(&gm_gate_key, gm_gate_thread_exit);
    if (error != 0 && page != NULL)
        return -error;
    gm_gate_has_key = error == 0;
    gm_gate_calls = calls;
    gm_gate_is_asymmetric = page == NULL || is_asymmetric;
    atomic_store(&gm_page_lost, NULL);
    atomic_store(&gm_stat_area, page == NULL ? &gm_stat_own : stat);
    atomic_store(&gm_hot.page, page == NULL ? &gm_page_open : page);
    return 0;
}

/* While a thread holds the others nothing may be submitted, so gm_gate_unhold opens the gate then.
 * Refusing need not wait. */
void gm_gate_lost(bool is_whole)
{
    const struct gm_ctl *page = is_whole ? &gm_page_open : &gm_page_refused;
    const struct gm_ctl *old;
    atomic_store(&gm_page_lost, page);
    old = atomic_load(&gm_hot.page);
    do {
        if (is_whole && old == &gm_page_held)
            return;
    } while (!atomic_compare_exchange_weak(&gm_hot.page, &old, page));
    gm_page_wake(old);
}

void gm_gate_after_fork(void)
{
    struct gm_gate_thread *self = &gm_gate_self;
    self->fast = &gm_slot_taken;
    self->own = NULL;
    self->inside = 0;
    self->is_waiting = 0;
    gm_gate_requests.is_resting = false;
    for (uint32_t word = 0; word < GM_SLOT_WORDS; word++)
        atomic_store(&gm_slots_taken[word], 0);
    atomic_store(&gm_slots_top, 0);
    gm_gate_is_asymmetric = true; /* nobody closes this gate */
    atomic_store(&gm_stat_area, &gm_stat_own);
    atomic_store(&gm_hot.page, &gm_page_open);
}
