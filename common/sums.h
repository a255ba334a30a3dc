/* Sums of bytes and times that stay within 64 bits, whatever was told. Pure; calls nothing. */
#ifndef GM_COMMON_SUMS_H
#define GM_COMMON_SUMS_H

#include <stdint.h>

/* What is left of `room`; 0 if that is too little. */
static inline uint64_t gm_less(uint64_t room, uint64_t taken)
{
    return room > taken ? room - taken : 0;
}

/* The sum, or the largest number. */
static inline uint64_t gm_more(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static inline uint64_t gm_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t gm_most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
