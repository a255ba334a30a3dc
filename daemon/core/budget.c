#include "daemon/core/budget.h"

#include "common/chunk.h"

/* The budget that leaves `kept` bytes of the device free, in whole pages. */
static uint64_t beside(const struct gm_budget_input *input, uint64_t kept)
{
    return input->available > kept ? (input->available - kept) & ~(GM_CHUNK_MIN - 1) : 0;
}

uint64_t gm_budget_next(const struct gm_budget_input *input)
{
    const uint64_t reserve = input->reserve;
    uint64_t next = input->now;
    if (input->available < input->now + reserve / 4)
        next = beside(input, reserve / 2);
    else if (input->available > input->now + reserve + reserve / 2 ||
             beside(input, reserve) >= input->most)
        next = beside(input, reserve);
    next = next < input->most ? next : input->most;
    return next > input->least ? next : input->least;
}
