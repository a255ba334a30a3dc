/* The one clock: monotonic nanoseconds. Read at the edge, once an event, and passed on as a value. */
#ifndef GM_COMMON_CLOCK_H
#define GM_COMMON_CLOCK_H

#include <stdint.h>
#include <time.h>

#define GM_MS 1000000ull    /* nanoseconds in a millisecond */
#define GM_S 1000000000ull  /* nanoseconds in a second */

/* How many times as slow as others this build is: what is waited for, of others or of a GPU that is
 * simulated, may take so many times as long. Builds with a sanitizer say more. */
#ifndef GM_SLOW
#define GM_SLOW 1
#endif

static inline uint64_t gm_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * GM_S + (uint64_t)t.tv_nsec;
}

#endif
