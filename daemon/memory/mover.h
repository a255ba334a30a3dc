/*
 * The mover: copies between frames and the pinned tier in both directions at once (MSched section
 * 6: both copy engines busy), and clears frames. Owns the streams, the events, and the threads that
 * wait for them.
 *
 * Each direction has one stream and one thread. Copies of a direction end in the order in which
 * they were submitted: copy n has ended when done >= n. A copy in can wait for a copy out on the
 * GPU, by an event; the CPU does nothing for it. The thread waits for events and wakes the loop.
 *
 * Small copies share an event. It is recorded behind some MiB or before the loop waits, whichever
 * comes first. A copy in that waits for such a copy out is started when the event is recorded.
 *
 * Called by the engine on the loop thread. Calls cuda and hostpool.
 */
#ifndef GM_DAEMON_MEMORY_MOVER_H
#define GM_DAEMON_MEMORY_MOVER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/memory/cuda.h"
#include "daemon/memory/hostpool.h"

/* Copies under way in one direction at most. The driver takes 56 copies with an event behind each;
 * the next call blocks until the first has ended (H100, driver 580), and with it the loop. 47 of 32
 * MiB take 28 ms, of 2 MiB 2 ms: enough to keep the copy engine busy when the loop is late, few
 * enough to change plans. */
#define GM_WAY_DEPTH 48u

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

/* The number of copies out that have ended is not known: the driver refused to count. */
#define GM_MOVER_UNCOUNTED UINT64_MAX
/*
 * From now on *word, which the GPU writes at address `at`, is the number of copies out that have
 * ended, and at least that before a copy in begins that waits for them: also if this process ends
 * in the middle. Or it is GM_MOVER_UNCOUNTED, for good. Call it before the first copy; the word
 * outlives the mover. It takes 2.3 us of the 42 of a copy of 2 MiB, and 3 of the 612 of one of 32
 * (H100).
 */
void gm_mover_count(struct gm_mover *mover, uint64_t *word, CUdeviceptr at);

/* How many more copies can be submitted that way. */
uint64_t gm_mover_room(const struct gm_mover *mover, enum gm_way way);

/*
 * Copy `bytes` between `device` (the daemon's mapping of a frame) and the chain of pages that
 * starts at `page`. A copy in starts after copy out number `fence` (0: at once). Returns its
 * number; each direction counts from 1. A copy that the driver refused ends like the others
 * (gm_mover_result), as does one of a frame that the driver did not map, at 0.
 */
uint64_t gm_mover_submit(struct gm_mover *mover, enum gm_way way, CUdeviceptr device,
                         const struct gm_hostpool *pool, uint32_t page, uint64_t bytes,
                         uint64_t fence);

/* The same between the daemon's mappings of a GPU frame and a host frame. */
uint64_t gm_mover_copy(struct gm_mover *mover, enum gm_way way, CUdeviceptr to, CUdeviceptr from,
                       uint64_t bytes, uint64_t fence);

/* Set `bytes` at `device` to zero. It is numbered and ordered as a copy in, but takes nothing of
 * the link. */
uint64_t gm_mover_clear(struct gm_mover *mover, CUdeviceptr device, uint64_t bytes, uint64_t fence);

/* As the loop knows it: the number of the last copy that has ended; bytes of copies that were
 * submitted and have not ended; bytes of copies that have ended since the start. */
uint64_t gm_mover_done(const struct gm_mover *mover, enum gm_way way);
uint64_t gm_mover_under_way(const struct gm_mover *mover, enum gm_way way);
uint64_t gm_mover_bytes(const struct gm_mover *mover, enum gm_way way);

/*
 * What the driver said when copy `number` was started; CUDA_SUCCESS before. After an error nothing
 * or a part was copied. A copy out is started at once. Ask before you submit more copies after its
 * end. If an event or a wait fails, the mover waits for the stream instead: no copy is made twice.
 */
CUresult gm_mover_result(const struct gm_mover *mover, enum gm_way way, uint64_t number);

/* CUDA_SUCCESS, or why the context is lost: then no copy that ended since can be trusted. on_done
 * is called once more for it. */
CUresult gm_mover_error(const struct gm_mover *mover);

#endif
