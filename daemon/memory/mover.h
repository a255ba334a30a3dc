/*
 * The mover: copies between frames and the pinned tier, out and in at the same time (MSched section
 * 6: both copy engines busy). It clears frames as well, in order with the copies in.
 *
 * One stream a direction. Copies of a direction end in the order in which they were submitted, so
 * one sequence number says it all: copy n has ended when done >= n. A copy in can wait on the GPU
 * for a copy out (an event), with no CPU round trip. A thread a direction waits for the events and
 * wakes the loop.
 *
 * Small copies are batched: they share an event, behind some MiB or before the loop waits,
 * whichever comes first; and a copy in that waits for one of them begins when that event is made.
 *
 * Everything but those threads runs on the loop thread.
 */
#ifndef GM_DAEMON_MEMORY_MOVER_H
#define GM_DAEMON_MEMORY_MOVER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/memory/cuda.h"
#include "daemon/memory/hostpool.h"

enum gm_way { GM_WAY_OUT = 0, GM_WAY_IN = 1, GM_WAYS = 2 };

/* Copies under way in one direction at most. 128 of 32 MiB are 75 ms of work, of 2 MiB 5 ms: enough
 * to keep the engine busy across a late loop, little enough to change one's mind. */
#define GM_WAY_DEPTH 128u

struct gm_mover;

/*
 * `on_done(arg)` is called on the loop thread after copies ended. 0, or -errno with a line in
 * `why`.
 */
int gm_mover_open(struct gm_mover **mover, uv_loop_t *loop, const struct gm_cuda *cuda,
                  CUcontext context, void (*on_done)(void *arg), void *arg, char *why,
                  size_t why_size);
/* Waits until all copies have ended. The loop must run once more afterwards. */
void gm_mover_close(struct gm_mover *mover);

/* How many more copies can be submitted that way. */
uint64_t gm_mover_room(const struct gm_mover *mover, enum gm_way way);

/*
 * Submit the copy between `device` (the daemon's mapping of a frame) and the chain of pages that
 * starts at `page`, `bytes` long. A copy in starts after copy out number `fence` (0: at once).
 * Returns its number, from 1 up by 1 a direction; it ends like the others if the driver refused it
 * (gm_mover_result).
 */
uint64_t gm_mover_submit(struct gm_mover *mover, enum gm_way way, CUdeviceptr device,
                         const struct gm_hostpool *pool, uint32_t page, uint64_t bytes,
                         uint64_t fence);

/* The same between two addresses that the daemon maps, `to` and `from`: of a GPU frame and a host
 * frame. */
uint64_t gm_mover_copy(struct gm_mover *mover, enum gm_way way, CUdeviceptr to, CUdeviceptr from,
                       uint64_t bytes, uint64_t fence);

/* Set `bytes` at `device` to zero: a copy in by its number and order, but no bytes of the link. */
uint64_t gm_mover_clear(struct gm_mover *mover, CUdeviceptr device, uint64_t bytes, uint64_t fence);

/* The number of the last copy that has ended, as taken over by the loop. */
uint64_t gm_mover_done(const struct gm_mover *mover, enum gm_way way);

/* Bytes of the copies that were submitted and have not ended, as taken over by the loop. */
uint64_t gm_mover_under_way(const struct gm_mover *mover, enum gm_way way);

/* Bytes copied since the start, ended copies only. */
uint64_t gm_mover_bytes(const struct gm_mover *mover, enum gm_way way);

/*
 * What the driver said when copy `number` was started; CUDA_SUCCESS before. A copy out is started
 * at once. Anything else: it was not made, or in part. To be asked for before more copies are
 * submitted after its end. What can be asked again, a failed event or wait, the mover does: copies
 * are not made twice.
 */
CUresult gm_mover_result(const struct gm_mover *mover, enum gm_way way, uint64_t number);

/* CUDA_SUCCESS, or why the context is lost: the GPU can be reached no more, and no copy that has
 * ended since can be trusted. on_done is called once more for it. */
CUresult gm_mover_error(const struct gm_mover *mover);

#endif
