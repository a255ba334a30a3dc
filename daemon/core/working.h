/*
 * The working set: which chunks of an app its turns touch, and which are cold. Pure; owns the app's
 * memory of windows, and writes what the table knows of touches. Called by the engine, with what a
 * window touched.
 *
 * A window is a stretch of an app's running time (common/windows.h). A chunk is cold if the last
 * windows did not touch it; a new one counts as touched in the window in which it came. How many
 * windows that are is learned: programs that come back to all of their memory again and again, but
 * seldom, such as an optimizer's state once a training step, need as many as they take for a round.
 * So each app begins with GM_WORKING_LEAST, and if it touches much of what was cold, it has from
 * then on one window more than it had left that alone.
 *
 * What is cold is not promised a place on the GPU while that is not large enough for all (caps.c):
 * then it is mapped on the host. So a wrong answer costs time, never a result. MSched predicts the
 * working set of a turn (section 4), PILOT admits programs by it (AMFit).
 */
#ifndef GM_CORE_WORKING_H
#define GM_CORE_WORKING_H

#include "daemon/core/place.h"

/* Of an app. All zero at first. */
struct gm_working {
    uint32_t memory; /* windows after which what was not touched is cold; 0: GM_WORKING_LEAST */
};

/*
 * A window of `app` has ended that touched `uses`, ascending by va. `is_unseen`: it touched more
 * than is known; all that the app has counts as touched then. Linear in the app's chunks and `n`.
 */
void gm_working_end_window(struct gm_table *table, uint32_t app, struct gm_working *working,
                           const struct gm_use *uses, uint32_t n, bool is_unseen);

#endif
