/*
 * Clocks, in nanoseconds. Time is monotonic: it is read once per event and passed on as a value.
 * The other two clocks are for logs and benchmarks. Anybody may call these; they call the C library
 * only.
 */
#ifndef GM_COMMON_CLOCK_H
#define GM_COMMON_CLOCK_H

#include <stdint.h>
#include <time.h>

#include "common/units.h"

/* Multiplies time limits in builds that are slow. Builds with a sanitizer define a larger one. */
#ifndef GM_SLOW
#define GM_SLOW 1
#endif

static inline uint64_t gm_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * GM_S + (uint64_t)t.tv_nsec;
}

static inline uint64_t gm_now(void)
{
    return gm_clock(CLOCK_MONOTONIC);
}

/* To tell how long something took: nothing is decided by it. */
static inline uint64_t gm_stopwatch(void)
{
    return gm_clock(CLOCK_MONOTONIC_RAW);
}

/* Since 1970. */
static inline uint64_t gm_wall_time(void)
{
    return gm_clock(CLOCK_REALTIME);
}

/* Processor time of this thread. */
static inline uint64_t gm_thread_time(void)
{
    return gm_clock(CLOCK_THREAD_CPUTIME_ID);
}

static inline struct timespec gm_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / GM_S), .tv_nsec = (long)(ns % GM_S)};
}

#endif
