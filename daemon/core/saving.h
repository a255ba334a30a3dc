/*
 * Which programs a daemon that stops can save. Pure; owns no state. Called by the engine.
 *
 * A program survives the daemon only if all of its memory is mapped. Programs whose gate is open
 * come first: their memory is mapped, and nothing can be taken from them. The others follow, those
 * that lack least first. That saves the most programs in the least time, and no whole program loses
 * memory for another.
 *
 * A program needs on the GPU what it was promised, and what has no place on the host: nobody
 * chooses places any more, but for one program that does not fit.
 */
#ifndef GM_CORE_SAVING_H
#define GM_CORE_SAVING_H

#include "daemon/core/room.h"

struct gm_saving {
    uint32_t app;
    bool is_open;     /* its gate is, or may still be */
    uint64_t bytes;   /* that it needs on the GPU */
    uint64_t missing; /* ... and that are not there */
};

/* What is known of the app. `is_placed`: places are chosen for it. */
struct gm_saving gm_saving_of(const struct gm_table *table, uint32_t app, bool is_open,
                              bool is_placed);
/* What of it must be beyond the GPU, which has `left` bytes for it. */
uint64_t gm_saving_beyond(const struct gm_table *table, uint32_t app, uint64_t left);

/*
 * Sort `apps`: first those that fit together into `room` bytes of the GPU, then the others, both in
 * the order above. Returns how many fit.
 */
uint32_t gm_saving_choose(struct gm_saving *apps, uint32_t n, uint64_t room);

#endif
