/* clang-format off */
/*
 * Stores: where chunks live below the GPU, and the worker threads that copy between them.
 *
 *   pinned   hostpool: slabs that the copy engines reach; grown in the background
 *   paged    plain memory, one range of the cap's size, which the system fills as it is used, or
 *            ahead of that as far as gm_stores_want says
 *   disk     one unnamed file (O_TMPFILE, mode 0600) in a folder; direct I/O where it can
 *
 * All three hand out 2 MiB pages in chains (pages.h). Worker threads copy a chunk's chain from one
 * store to another, by pieces, so that several share a chunk: enough of them to saturate the
 * machine's memory (measured: 16 threads 56 GB/s, one 7). The disk has threads of its own, which
 * sleep most of the time, so that no copy in memory waits behind it; they have bounce buffers,
 * since memory that the driver pinned cannot be given to direct I/O.
 *
 * The first touch of paged memory costs as much as the copy itself (measured, 16 threads: 29 GB/s
 * instead of 56), so workers that have nothing to copy do it ahead of need. Paged memory that is
 * not wanted and was free for a while goes back to the system, by whole slabs.
 *
 * Loop thread only, but for the workers. A copy never waits for another one's pages: the caller
 * takes the pages of both ends before.
 */
/* clang-format on */
#ifndef GM_DAEMON_MEMORY_STORES_H
#define GM_DAEMON_MEMORY_STORES_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/chunk.h"
#include "daemon/memory/disk.h"
#include "daemon/memory/hostpool.h"

struct gm_stores;

struct gm_stores_config {
    uint64_t paged;       /* bytes; 0: no paged tier */
    const char *disk_dir; /* NULL or "": no disk tier */
    uint64_t disk;        /* bytes */
    unsigned workers;     /* 0: as many as processors, 2 to 16 */
    unsigned keep_ms;     /* free paged memory goes back to the system after this long, or up to
                             twice that if it was wanted until then; 0: 10 s */
    const struct gm_system *system; /* NULL: the real one */
};

/*
 * Called on the loop thread when the copy for `chunk` has ended. `error`: 0, or -errno (-ENOSPC,
 * -EIO): the source is as it was.
 */
typedef void gm_stores_done(void *arg, uint32_t chunk, int error);

/* Open the tiers below `pinned`. 0, or -errno with one line in `why` (no such folder, read-only,
 * ...). */
int gm_stores_open(struct gm_stores **stores, uv_loop_t *loop, struct gm_hostpool *pinned,
                   const struct gm_stores_config *config, gm_stores_done *on_done, void *arg,
                   char *why, size_t why_size);
/* Waits for the pieces under way, drops what is queued; no on_done after it, and not from within
 * one. The loop must run once more afterwards. NULL: nothing happens. */
void gm_stores_close(struct gm_stores *stores);

/* Room: take pages for `bytes` in `tier` (PINNED, PAGED or DISK); GM_NONE: not enough free. */
uint32_t gm_stores_take(struct gm_stores *stores, enum gm_tier tier, uint64_t bytes);
void gm_stores_free(struct gm_stores *stores, enum gm_tier tier, uint32_t page);
uint64_t gm_stores_cap(const struct gm_stores *stores, enum gm_tier tier);
uint64_t gm_stores_used(const struct gm_stores *stores, enum gm_tier tier);

/*
 * Have memory of the system for `bytes` of the paged tier in the end, as far as its cap allows,
 * what is in use included; behind all copies. Replaces what was wanted before: 0 when no more than
 * what is in use is needed. After a refusal it tries again.
 */
void gm_stores_want(struct gm_stores *stores, uint64_t bytes);
/* Begin to give back what is neither used nor wanted, without waiting for it to grow old. Returns
 * how many bytes that is. */
uint64_t gm_stores_trim(struct gm_stores *stores);
/* Whether some of it has not been given back yet. */
bool gm_stores_is_trimming(const struct gm_stores *stores);
/* Bytes for which the paged tier has memory of the system, by whole slabs. */
uint64_t gm_stores_held(const struct gm_stores *stores);

/*
 * Copy `bytes` of `chunk` from the chain at `from_page` of tier `from` to the chain at `to_page` of
 * tier `to` (at most one of them DISK). Both chains stay the caller's, who leaves them alone until
 * on_done: not freed, the source not written. Never blocks and never fails here; queued behind the
 * others. `chunk` is only handed back. on_done may start copies.
 */
void gm_stores_copy(struct gm_stores *stores, uint32_t chunk, enum gm_tier from, uint32_t from_page,
                    enum gm_tier to, uint32_t to_page, uint64_t bytes);

/* Copies queued or under way, and bytes copied since the start, by tier they came from and went to.
 */
uint32_t gm_stores_busy(const struct gm_stores *stores);
uint64_t gm_stores_bytes(const struct gm_stores *stores, enum gm_tier from, enum gm_tier to);

#endif
