/* What was measured again and again. All of these have at least one value. */
#ifndef GM_BENCH_SAMPLES_H
#define GM_BENCH_SAMPLES_H

#include <stddef.h>

struct gm_spread {
    double median, low, high; /* low and high: 10th and 90th percentile */
};

/* In place, upwards. */
void gm_samples_sort(double *values, size_t count);

/* The nearest rank: of sorted values the first that so many percent (1 to 100) are at or below. */
double gm_samples_percentile(const double *sorted, size_t count, unsigned percent);

/* Of values, which are sorted in place. The median of an even number is between the two in the
 * middle. */
struct gm_spread gm_samples_spread(double *values, size_t count);

#endif
