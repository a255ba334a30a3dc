/*
 * The timeline within an app: which of its chunks it uses sooner. Pure; owns the order of the
 * table's lists of an app. Called when a window of the app has ended.
 *
 * Of several apps the scheduler says who comes next (sched_account.h), and a gate opens when
 * nothing is missing: so all that an app needs is used when its turn begins, and the layout gives
 * room by app. Within an app, chunks leave the GPU in the reverse order of their next use, and come
 * back in its order (MSched section 5: Belady's rule).
 *
 * The next use follows from windows (common/windows.h). A chunk was touched last in window w, and
 * `gap` windows before that; it is expected in window w + gap, as late in it as in w. If that is
 * over it is overdue, and expected after as long again. A cold chunk (working.h) is not expected.
 * So a program that takes many windows for a round through its memory goes on where its turn ended:
 * what it touched longest ago comes next.
 *
 * Within a window the order is that of first touches from its beginning, wherever the program is in
 * it now. Exact would be the place that the program submitted last when it was parked, as the work
 * behind it begins the next turn; the words of windows do not tell it. A program that takes less
 * than a window for a round touches all of that early in its turn.
 */
#ifndef GM_CORE_TIMELINE_H
#define GM_CORE_TIMELINE_H

#include "daemon/core/table.h"

#define GM_TIMELINE_NEVER UINT64_MAX

/* When a chunk is expected to be used, among those of its app: smaller is sooner. */
uint64_t gm_timeline_next(const struct gm_table *table, uint32_t chunk);

/* Put the lists of `app` in order: what it needs, and when, is known anew. Linear in its chunks as
 * long as little has changed, n log n at most. */
void gm_timeline_sort(struct gm_table *table, uint32_t app);

#endif
