/*
 * How much of the GPU the frames may take, as other programs take memory there and give it back.
 * Pure.
 *
 * What is on the device beyond the budget is the slack. It is meant to be `reserve`: room for the
 * contexts of programs and for what they allocate past gpumux. They use it, so it may shrink to a
 * quarter before the budget goes down, which brings it to a half. The budget goes up, and the slack
 * to the whole reserve, only when there is half a reserve more. So contexts that come and go change
 * nothing, and neither do frames that are made and destroyed.
 */
#ifndef GM_CORE_BUDGET_H
#define GM_CORE_BUDGET_H

#include <stdint.h>

struct gm_budget_input {
    uint64_t now;       /* the budget, in bytes as all of these */
    uint64_t most;      /* it may never be more, */
    uint64_t least;     /* nor less */
    uint64_t available; /* on the device: frames that exist and what is free */
    uint64_t reserve;
};

/* The budget from now on: a multiple of 2 MiB, or `now`, `most` or `least`. */
uint64_t gm_budget_next(const struct gm_budget_input *input);

#endif
