/*
 * Fits an amount (common/templates.h) to what was observed. A page that was touched tells where
 * memory ends within 4 KiB only, so each observation is an interval of numbers. An amount fits if
 * it lies in every interval. The simplest one is chosen: a constant, or the fewest factors with the
 * plainest multiplier. Pure; calls nothing. Owns nothing.
 */
#ifndef GM_DAEMON_PROFILE_FIT_H
#define GM_DAEMON_PROFILE_FIT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/templates.h"

struct gm_interval {
    int64_t low, high; /* both belong to it */
};

/* A factor, and its value in each observation. */
struct gm_column {
    uint16_t factor;
    bool is_constant;
    const uint64_t *values;
};

#define GM_COLUMNS_MAX 32u

/*
 * Find an amount that lies in all `n` intervals. False: there is none, or n is 0.
 *
 * What is the same in all observations can be a constant, or follow factors that were the same as
 * well: the size of a matrix, in a program that has one size. Such a factor is taken only if the
 * intervals are so narrow that chance does not explain it, and the multiplier is a small power
 * of 2.
 */
bool gm_fit(const struct gm_interval *intervals, uint32_t n, const struct gm_column *columns,
            uint32_t n_columns, struct gm_amount *amount);

#endif
