/* Chance from a seed: the same numbers everywhere. */
#ifndef GM_TESTS_SIM_CHANCE_H
#define GM_TESTS_SIM_CHANCE_H

#include <stdbool.h>
#include <stdint.h>

struct chance {
    uint64_t state;
};

/* One of 0 .. below-1; 0 if `below` is 0. */
static inline uint64_t draw(struct chance *chance, uint64_t below)
{
    uint64_t z = (chance->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return below ? (z ^ (z >> 31)) % below : 0;
}

static inline bool draw_percent(struct chance *chance, unsigned percent)
{
    return draw(chance, 100) < percent;
}

/* From half of `mean` to one and a half. */
static inline uint64_t draw_around(struct chance *chance, uint64_t mean)
{
    return mean / 2 + draw(chance, mean + 1);
}

#endif
