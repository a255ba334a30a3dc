/* Ratios that were measured again and again. */
#ifndef GM_BENCH_RATIOS_H
#define GM_BENCH_RATIOS_H

#include <stddef.h>

/*
 * The median of `count` (at least one) ratios above 0, which are sorted in place; of an even number
 * the geometric mean of the two in the middle, so that of each ratio and its inverse it is 1.
 */
double gm_ratios_median(double *ratios, size_t count);

#endif
