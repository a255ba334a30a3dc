/*
 * The analyzer: makes templates of what launches touched. For each kernel:
 *
 *   1. What was touched in an allocation belongs to the address among the arguments that lies last
 *      before it. If none does, it belongs to the first one behind. If there is none at all in that
 *      allocation, no argument names it.
 *   2. What belongs to an argument has a shape in each launch: one row, or rows of one size at one
 *      distance.
 *   3. Its start, size, distance and number are fitted to words of the arguments and dimensions of
 *      the launch (fit.h). What does not fit is `other`.
 *
 * Every second launch is learned from; the rest says how good that is. Where it misses what the
 * addresses alone foresee, it is forgotten. Pure: calls fit.h, judge.h
 * and the C library.
 */
#ifndef GM_DAEMON_PROFILE_LEARN_H
#define GM_DAEMON_PROFILE_LEARN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/profile.h"
#include "daemon/profile/judge.h"
#include "daemon/profile/records.h"

/* How launches that were not learned from are predicted, by each way of gm_judge. */
struct gm_lesson {
    struct gm_verdict verdict[3];
};

/*
 * Learn the kernels of *records and merge them into *profile. What it has of a kernel stays if it
 * is of the same code, and predicts these launches at least as well as what they teach. *lessons:
 * one for each kernel of *records, or NULL. False: no memory, or too many kernels; what was merged
 * up to then is in *profile.
 */
bool gm_learn(const struct gm_records *records, struct gm_profile *profile,
              struct gm_lesson *lessons);

#endif
