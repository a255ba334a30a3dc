/*
 * The clocks, in nanoseconds. Time is monotonic, read at the edge once an event, and passed on as a
 * value; the other two are for people and for benches.
 */
#ifndef GM_COMMON_CLOCK_H
#define GM_COMMON_CLOCK_H

#include <stdint.h>
#include <time.h>

#include "common/units.h"

/* How many times as slow as others this build is: what is waited for, of others or of a GPU that is
 * simulated, may take so many times as long. Builds with a sanitizer say more. */
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

/* Since 1970, as people write dates. */
static inline uint64_t gm_wall_time(void)
{
    return gm_clock(CLOCK_REALTIME);
}

/* Processor time of this thread: without what it waits, and what others take of the machine. */
static inline uint64_t gm_thread_time(void)
{
    return gm_clock(CLOCK_THREAD_CPUTIME_ID);
}

/* A time as calls that wait for one take it. */
static inline struct timespec gm_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / GM_S), .tv_nsec = (long)(ns % GM_S)};
}

#endif
