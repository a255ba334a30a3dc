/*
 * Whom a daemon that stops can save. Pure policy.
 *
 * A program survives the daemon if all of its memory is mapped in it; half of it is worth nothing.
 * So room goes to whole programs. Those whose gate is open come first: their memory is mapped, and
 * nothing can be taken from them. The others follow in the order of what they lack: the one that
 * lacks least costs least time and room, so that the most programs are saved, and no program that
 * is whole loses memory for another.
 */
#ifndef GM_CORE_SAVING_H
#define GM_CORE_SAVING_H

#include <stdbool.h>
#include <stdint.h>

struct gm_saving {
    uint32_t app;
    bool is_open;     /* its gate is, or may still be */
    uint64_t bytes;   /* that it needs on the GPU, ... */
    uint64_t missing; /* ... of which so many are not there */
};

/*
 * Sort `apps`: first those for which there is room together in `room` bytes of the GPU, then the
 * others, both in the order above. Returns how many the former are.
 */
uint32_t gm_saving_choose(struct gm_saving *apps, uint32_t n, uint64_t room);

#endif
