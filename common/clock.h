/* The one clock: monotonic nanoseconds. Read at the edge, once an event, and passed on as a value. */
#ifndef GM_COMMON_CLOCK_H
#define GM_COMMON_CLOCK_H

#include <stdint.h>
#include <time.h>

#define GM_MS 1000000ull    /* nanoseconds in a millisecond */
#define GM_S 1000000000ull  /* nanoseconds in a second */

static inline uint64_t gm_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * GM_S + (uint64_t)t.tv_nsec;
}

#endif
