/*
 * How much of the GPU the frames may take, while other programs take memory there and give it back.
 * Pure; owns no state. Called by the engine.
 *
 * The device's memory beyond the budget is the slack. Contexts use it, and what programs allocate
 * past gpumux. When it is below a quarter of `reserve`, the budget goes down so that half of it is
 * free. When it is above one and a half, the budget goes up so that the whole is free. So contexts
 * that come and go do not change the budget, and neither do frames.
 */
#ifndef GM_CORE_BUDGET_H
#define GM_CORE_BUDGET_H

#include <stdint.h>

struct gm_budget_input {
    uint64_t now;       /* the budget, in bytes as all of these */
    uint64_t most;      /* its upper limit */
    uint64_t least;     /* its lower limit */
    uint64_t available; /* on the device: existing frames and free memory */
    uint64_t reserve;
};

/* The budget from now on: a multiple of 2 MiB, or `now`, `most` or `least`. */
uint64_t gm_budget_next(const struct gm_budget_input *input);

#endif
