#include "shim/gate/park.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "shim/gate/gate.h"

static enum gm_park_outcome park_hold(enum gm_park_outcome (*disable)(void));
static void park_unhold(void (*enable)(void));

/* ---- standing still without parking ---- */

/*
 * Holding: for a few milliseconds the program's work stands still where it is on the GPU, for the
 * request of a latency-critical program (HOLD). Nothing else happens: its gate is open, its memory
 * stays mapped, and calls that wait for the GPU wait. The hold ends by itself.
 *
 * A CLOSE may come meanwhile. The program counts as parked for it under the rules of park.h only,
 * and is enabled when both are over.
 *
 * The link thread ends the hold, so it must not wait for the GPU while one is on: it ends the hold
 * first.
 *
 * Owns the hold that is on and the one that is to begin. Link thread only.
 */

/* The daemon's holds are much shorter; whatever it says, the program is not stopped for longer. */
#define GM_HOLD_MOST GM_S
#define GM_HOLD_AGAIN (200 * GM_US) /* until a channel has come or gone */

static uint64_t gm_hold_until;                /* 0: none is on */
static uint64_t gm_hold_try, gm_hold_try_end; /* one is to begin then; end 0: none */

void gm_hold(uint64_t now, uint64_t for_ns)
{
    const uint64_t end = now + (for_ns < GM_HOLD_MOST ? for_ns : GM_HOLD_MOST);
    gm_hold_try = now;
    if (end > gm_hold_try_end)
        gm_hold_try_end = end;
}

static void gm_hold_begin(uint64_t now, enum gm_park_outcome (*disable)(void))
{
    const enum gm_park_outcome outcome = gm_hold_try_end > now ? park_hold(disable) : GM_PARK_NEVER;
    if (outcome == GM_PARK_LATER) {
        gm_hold_try = now + GM_HOLD_AGAIN;
        return;
    }
    if (outcome == GM_PARK_IS_ON && gm_hold_try_end > gm_hold_until)
        gm_hold_until = gm_hold_try_end;
    gm_hold_try_end = 0;
}

uint64_t gm_hold_look(uint64_t now, enum gm_park_outcome (*disable)(void), void (*enable)(void))
{
    if (gm_hold_try_end != 0 && now >= gm_hold_try)
        gm_hold_begin(now, disable);
    if (gm_hold_until != 0 && now >= gm_hold_until) {
        gm_hold_until = 0;
        park_unhold(enable);
    }
    uint64_t at = gm_hold_until != 0 ? gm_hold_until : UINT64_MAX;
    if (gm_hold_try_end != 0 && gm_hold_try < at)
        at = gm_hold_try;
    return at;
}

void gm_hold_forget(void)
{
    gm_hold_try_end = 0;
}

void gm_hold_end(void (*enable)(void))
{
    gm_hold_until = gm_hold_try_end = 0;
    park_unhold(enable);
}

/* More threads inside than this wait for the drain. Frameworks launch from a few. */
#define GM_PARK_THREADS 64u

/* A thread that used so much of a processor since the gate closed is beyond looking up: that takes
 * 5 us for an address on an H100's host, and polling never stops. */
#define GM_PARK_LOOKED_UP_NS (200 * GM_US)

struct gm_park_thread {
    uint32_t tid;
    uint64_t used; /* its processor time when the gate closed */
};

/* The link thread's. */
static struct gm_park_thread gm_park_inside[GM_PARK_THREADS];
static uint32_t gm_park_count;

enum { GM_PARK_FOR_CLOSE = 1, GM_PARK_FOR_HOLD = 2 };
static _Atomic uint32_t gm_park_for; /* 0: it is enabled */

/* The processor time of a thread of this process, in ns; 0: it has ended. */
static uint64_t gm_park_used(uint32_t tid)
{
    /* As pthread_getcpuclockid makes it, which wants a pthread_t. */
    const clockid_t clock = (clockid_t)((~tid << 3) | 6);
    struct timespec time;
    if (clock_gettime(clock, &time) != 0)
        return 0;
    return (uint64_t)time.tv_sec * GM_S + (uint64_t)time.tv_nsec;
}

void gm_park_begin(void)
{
    uint32_t tids[GM_PARK_THREADS];
    gm_gate_fence();
    const uint32_t count = gm_gate_list(tids, GM_PARK_THREADS);
    gm_park_count = 0;
    for (uint32_t i = 0; i < count && count <= GM_PARK_THREADS; i++)
        gm_park_inside[gm_park_count++] =
            (struct gm_park_thread){.tid = tids[i], .used = gm_park_used(tids[i])};
}

/*
 * Whether it sleeps in a call that libcuda waits for the GPU in. A futex is none: it may be a lock,
 * and whoever gets that looks addresses up. Nor is a page fault.
 */
static bool gm_park_sleeps(uint32_t tid)
{
    static const long waits[] = {
#ifdef SYS_poll
        SYS_poll,
#endif
        SYS_ppoll,
        SYS_clock_nanosleep,
        SYS_nanosleep,
    };
    char path[64], text[32] = "";
    char *end;
    snprintf(path, sizeof(path), "/proc/self/task/%u/syscall", tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length <= 0)
        return false;
    const long number = strtol(text, &end, 10);
    if (end == text) /* "running" */
        return false;
    for (size_t i = 0; i < sizeof(waits) / sizeof(*waits); i++)
        if (waits[i] == number)
            return true;
    return false;
}

/* Whether all that this thread does until its call returns is to wait for the GPU. */
static bool gm_park_only_waits(uint32_t tid)
{
    for (uint32_t i = 0; i < gm_park_count; i++)
        if (gm_park_inside[i].tid == tid &&
            gm_park_used(tid) >= gm_park_inside[i].used + GM_PARK_LOOKED_UP_NS)
            return true;
    return gm_park_sleeps(tid);
}

/* `disable` does nothing if the program is stopped already. */
static enum gm_park_outcome gm_park_stop(uint32_t what, enum gm_park_outcome (*disable)(void))
{
    const enum gm_park_outcome result = disable();
    if (result == GM_PARK_IS_ON)
        atomic_fetch_or(&gm_park_for, what);
    return result;
}

/* What the daemon has marked as moving stays stopped until RESUME, whatever it was stopped for. */
static void gm_park_go_on(uint32_t what, void (*enable)(void))
{
    _Atomic uint32_t *moving = &gm_gate_stat()->moving;
    uint32_t was = GM_MOVING_FREE;
    if (atomic_load(&gm_park_for) == what) {
        if (!atomic_compare_exchange_strong(moving, &was, GM_MOVING_GOES)) {
            atomic_store(&gm_park_for, GM_PARK_FOR_CLOSE);
            return;
        }
        enable();
        atomic_store(moving, GM_MOVING_FREE);
    }
    atomic_fetch_and(&gm_park_for, ~what);
}

void gm_park_take_back(void)
{
    atomic_store(&gm_gate_stat()->moving, GM_MOVING_FREE);
}

enum gm_park_outcome gm_park_try(enum gm_park_outcome (*disable)(void))
{
    uint32_t tids[GM_PARK_THREADS];
    gm_gate_fence();
    const uint32_t count = gm_gate_list(tids, GM_PARK_THREADS);
    if (count > GM_PARK_THREADS)
        return GM_PARK_LATER;
    for (uint32_t i = 0; i < count; i++)
        if (!gm_park_only_waits(tids[i]))
            return GM_PARK_LATER;
    return gm_park_stop(GM_PARK_FOR_CLOSE, disable);
}

void gm_park_end(void (*enable)(void))
{
    gm_park_go_on(GM_PARK_FOR_CLOSE, enable);
}

bool gm_park_is_on(void)
{
    return (atomic_load(&gm_park_for) & GM_PARK_FOR_CLOSE) != 0;
}

bool gm_park_is_stopped(void)
{
    return atomic_load(&gm_park_for) != 0;
}

/* Link thread: hold it, whoever is inside. And: it is not held any more; enable again, unless it is
 * parked. */
static enum gm_park_outcome park_hold(enum gm_park_outcome (*disable)(void))
{
    return gm_park_stop(GM_PARK_FOR_HOLD, disable);
}

static void park_unhold(void (*enable)(void))
{
    gm_park_go_on(GM_PARK_FOR_HOLD, enable);
}

void gm_park_after_fork(void)
{
    atomic_store(&gm_park_for, 0);
    gm_park_count = 0;
}
