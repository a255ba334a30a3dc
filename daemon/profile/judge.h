/*
 * Tells how well launches are predicted: the bytes that they touched and nobody predicted, and the
 * bytes that were predicted and not touched. In pages, summed over launches. Pure; calls
 * common/profile.h and the C library.
 */
#ifndef GM_DAEMON_PROFILE_JUDGE_H
#define GM_DAEMON_PROFILE_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/profile.h"
#include "daemon/profile/records.h"

/* By what a launch is predicted. */
enum gm_judge_by {
    GM_JUDGE_PROFILE,   /* templates; arguments without one as by addresses */
    GM_JUDGE_ADDRESSES, /* each address reaches to the next of the launch, or to the end */
    GM_JUDGE_ALLOCS,    /* each address stands for its allocation */
};

struct gm_verdict {
    uint64_t touched, missed, excess; /* bytes */
};

/* Add a launch of `kernel`, which only GM_JUDGE_PROFILE looks at. False: no memory. */
bool gm_judge(const struct gm_launch *launch, const struct gm_profile_kernel *kernel,
              enum gm_judge_by by, struct gm_verdict *verdict);

/* Parts per 10,000 of what was touched, as a profile has it. */
uint16_t gm_judge_parts(uint64_t bytes, const struct gm_verdict *verdict);

/* The next greater address of the launch in the allocation of pointer `p`, or that's end. */
uint64_t gm_judge_next(const struct gm_launch *launch, uint32_t p);

#endif
