/*
 * The working set: which chunks of an app its turns touch, how much and in what order, and which
 * are cold. Pure; owns the app's memory of windows, and writes what the table knows of touches and
 * of heat, and the order of its lists. Called by the engine, with what a window touched. MSched
 * predicts the working set of a turn (section 4), PILOT admits programs by it (AMFit).
 *
 * A window is a stretch of an app's running time (common/windows.h). A chunk is cold if the last
 * windows did not touch it; a new one counts as touched in the window in which it came. How many
 * windows that are is learned: programs that come back to all of their memory again and again, but
 * seldom, such as an optimizer's state once a training step, need as many as they take for a round.
 * So each app begins with GM_WORKING_LEAST, and if it touches much of what was cold, it has from
 * then on one window more than it had left that alone.
 *
 * What is cold is not promised a place on the GPU while that is not large enough for all (caps.c):
 * then it is mapped on the host. So a wrong answer costs time, never a result.
 *
 * Heat says how often a chunk's bytes were used lately, whatever its size: GM_PLACE_USE for every
 * use of all of it, half of that for a use of half of it. What is long ago counts less: all heat is
 * halved when the chunks that were used have GM_PLACE_KNOWN on average (one that is used all the
 * time counts as twice that). So it is uses that age the heat, not time: programs with steps of
 * milliseconds and of many seconds are known equally well. A use names a place, the start of
 * something such as a tensor. It stands for everything from there to the next place that was ever
 * seen in the same allocation: so a pool, or one buffer with all weights, comes apart by itself.
 * One that is exact stands for itself alone.
 *
 * What is touched reaches farther: to the end of the allocation, over all places that were not used
 * this time. An allocator of the program's own gives the same memory to a small tensor first and to
 * a large one later. So where a tensor once began says nothing about where today's ends. Training
 * of Inception-v3 had 40 % of its rate when 76 MiB in the middle of an activation were taken for
 * cold (H100). Heat that is too low costs little, as it only ranks; what is cold leaves the GPU.
 *
 * The next use of a chunk, among those of its app, follows from windows, too. A chunk was touched
 * last in window w, and `gap` windows before that; it is expected in window w + gap, as late in it
 * as in w. If that is over it is overdue, and expected after as long again. A cold chunk is not
 * expected. So a program that takes many windows for a round through its memory goes on where its
 * turn ended: what it touched longest ago comes next. Within a window the order is that of first
 * touches from its beginning, wherever the program is in it now. Chunks leave the GPU in the
 * reverse order of their next use, and come back in its order (MSched section 5: Belady's rule).
 */
#ifndef GM_CORE_WORKING_H
#define GM_CORE_WORKING_H

#include "daemon/core/table.h"
#include "daemon/core/tunables.h"

/* A place, as the app touched it in a window (common/windows.h). */
struct gm_use {
    uint64_t va;
    uint32_t count;  /* how often; 0: it was touched before, and the work may last until now */
    bool is_exact;   /* nothing behind the place is meant: it stands for itself alone */
    uint32_t window; /* the newest in which it was touched */
    uint32_t order;  /* other places that were touched before it in that window */
};

/* What was cold and is used again. */
struct gm_warmed {
    uint64_t returned; /* bytes */
    uint32_t gap;      /* the most windows that a part of it was left alone for */
};

/* Of an app. All zero at first. */
struct gm_working {
    uint32_t memory; /* windows after which what was not touched is cold; 0: GM_WORKING_LEAST */
};

/*
 * A window of `app` has ended that touched `uses`, ascending by va. `is_unseen`: it touched more
 * than is known; all that the app has counts as touched then. Linear in the app's chunks and `n`;
 * the order of its lists is n log n at most, and linear as long as little has changed.
 */
void gm_working_end_window(struct gm_table *table, uint32_t app, struct gm_working *working,
                           const struct gm_use *uses, uint32_t n, bool is_unseen);

/* Its first step: add the uses to the heat of the chunks, which may be halved then; they are
 * touched. Ignores places outside of them. */
struct gm_warmed gm_working_warm(struct gm_table *table, uint32_t app, const struct gm_use *uses,
                                 uint32_t n);

/* All of the allocation will be used, as others than its program can tell: it is touched, and as
 * hot as what is used all the time. */
void gm_working_heat(struct gm_table *table, uint32_t allocation);

#define GM_TIMELINE_NEVER UINT64_MAX

/* When a chunk is expected to be used, among those of its app: smaller is sooner. */
uint64_t gm_timeline_next(const struct gm_table *table, uint32_t chunk);

/* Put the lists of `app` in order: what it needs, and when, is known anew. */
void gm_timeline_sort(struct gm_table *table, uint32_t app);

#endif
