/*
 * Windows: which places of its memory a program touched lately. The program marks them, the daemon
 * reads.
 *
 * A place is GM_CHUNK_MIN bytes of address space. A window is a stretch of a program's running
 * time; the daemon numbers them (gm_ctl.window), from 1. Behind struct gm_stat, in the same memfd,
 * lies a word for each place of the 47-bit address space: 512 MiB, of which the system allocates
 * only what is written, a page for 512 places. So the address alone says which word is whose.
 *
 * A word says in which window its place was last touched, how many other places had been touched in
 * that window before, whether it is known that nothing behind the place was meant, and how often it
 * was. The program loads a word and stores it, without a
 * lock: of two threads that mark one place at once, one may not count.
 *
 * The daemon reads words with pread, never through a mapping: that would allocate what was never
 * written. Words are hostile input.
 */
#ifndef GM_COMMON_WINDOWS_H
#define GM_COMMON_WINDOWS_H

#include <stdint.h>

#include "common/chunk.h"
#include "common/shm.h"

#define GM_WINDOW_VA_BITS 47u /* of addresses that have a word */
#define GM_WINDOW_PLACES (1ull << (GM_WINDOW_VA_BITS - GM_CHUNK_SHIFT))

/* In the memfd of struct gm_stat: where the words begin, and its length. */
#define GM_WINDOW_WORDS_AT sizeof(struct gm_stat)
#define GM_STAT_BYTES (GM_WINDOW_WORDS_AT + GM_WINDOW_PLACES * sizeof(uint64_t))
_Static_assert(GM_WINDOW_WORDS_AT % 4096 == 0, "the words begin with a page");

/* Bits of a word, from the highest: the window's number, order, is_exact, count. */
#define GM_WINDOW_BITS 24u
#define GM_WINDOW_ORDER_BITS 20u
#define GM_WINDOW_COUNT_BITS 19u
#define GM_WINDOW_LOW_BITS (GM_WINDOW_COUNT_BITS + 1u) /* below the order */
#define GM_WINDOW_EXACT (1ull << GM_WINDOW_COUNT_BITS)
#define GM_WINDOW_MASK ((1u << GM_WINDOW_BITS) - 1)
#define GM_WINDOW_ORDER_MAX ((1u << GM_WINDOW_ORDER_BITS) - 1)
#define GM_WINDOW_COUNT_MAX ((1u << GM_WINDOW_COUNT_BITS) - 1)

struct gm_touch {
    uint32_t window; /* low bits of its number; 0: the place was never touched */
    uint32_t order;  /* other places that were touched before in that window; saturates */
    uint32_t count;  /* how often it was touched in that window; saturates */
    /* All touches in that window were of known bytes, which are marked to their end. Else an
     * address was named there, and what lies behind it may be touched, up to the next such place.
     */
    int is_exact;
};

static inline uint64_t gm_touch_pack(struct gm_touch touch)
{
    const uint32_t order =
        touch.order < GM_WINDOW_ORDER_MAX ? touch.order : (uint32_t)GM_WINDOW_ORDER_MAX;
    const uint32_t count =
        touch.count < GM_WINDOW_COUNT_MAX ? touch.count : (uint32_t)GM_WINDOW_COUNT_MAX;
    return (uint64_t)(touch.window & GM_WINDOW_MASK)
               << (GM_WINDOW_ORDER_BITS + GM_WINDOW_LOW_BITS) |
           (uint64_t)order << GM_WINDOW_LOW_BITS | (touch.is_exact ? GM_WINDOW_EXACT : 0) | count;
}

static inline struct gm_touch gm_touch_unpack(uint64_t word)
{
    return (struct gm_touch){
        .window = (uint32_t)(word >> (GM_WINDOW_ORDER_BITS + GM_WINDOW_LOW_BITS)),
        .order = (uint32_t)(word >> GM_WINDOW_LOW_BITS) & GM_WINDOW_ORDER_MAX,
        .count = (uint32_t)word & GM_WINDOW_COUNT_MAX,
        .is_exact = (word & GM_WINDOW_EXACT) != 0,
    };
}

/* Whether the word of a place says that it was touched in `window`. */
static inline int gm_touch_is_in(uint64_t word, uint32_t window)
{
    return word >> (GM_WINDOW_ORDER_BITS + GM_WINDOW_LOW_BITS) == (window & GM_WINDOW_MASK);
}

/* The word of a place that is touched so many times more in the same window. */
static inline uint64_t gm_touch_again(uint64_t word, uint32_t times, int is_exact)
{
    const uint64_t room = GM_WINDOW_COUNT_MAX - (word & GM_WINDOW_COUNT_MAX);
    return (is_exact ? word : word & ~GM_WINDOW_EXACT) + (times < room ? times : room);
}

/* The number of the window after `window`. None has low bits of 0, which stand for never. */
static inline uint32_t gm_window_after(uint32_t window)
{
    return ((window + 1) & GM_WINDOW_MASK) != 0 ? window + 1 : window + 2;
}

/* How long before window `now` that of a word was. A number from the future is long ago, as one is
 * that is 2^24 windows old: three months of running. */
static inline uint32_t gm_window_age(uint32_t now, struct gm_touch touch)
{
    return (now - touch.window) & GM_WINDOW_MASK;
}

static inline int gm_window_has(uint64_t va)
{
    return va >> GM_WINDOW_VA_BITS == 0;
}

/* The place of an address that has a word; its word's index. */
static inline uint64_t gm_window_place(uint64_t va)
{
    return va >> GM_CHUNK_SHIFT;
}

/* Where in the memfd the word of such an address lies. */
static inline uint64_t gm_window_offset(uint64_t va)
{
    return GM_WINDOW_WORDS_AT + gm_window_place(va) * sizeof(uint64_t);
}

#endif
