/*
 * Stores: where chunks live below the GPU, and the worker threads that copy between them.
 *
 *   pinned   hostpool: slabs that the copy engines reach; grown in the background
 *   paged    plain memory, one range of the cap's size, touched as it is used
 *   disk     one unnamed file (O_TMPFILE, mode 0600) in a folder; direct I/O where it can
 *
 * All three hand out 2 MiB pages in chains (pages.h). Worker threads copy a chunk's chain from one
 * store to another, by pieces, so that several share a chunk: enough of them to saturate the
 * machine's memory (measured: 8 threads 61 GB/s, one 10). The disk has threads of its own, which
 * sleep most of the time, so that no copy in memory waits behind it; they have bounce buffers,
 * since memory that the driver pinned cannot be given to direct I/O.
 *
 * Paged memory that was free for a while goes back to the system, by whole slabs.
 *
 * Loop thread only, but for the workers. A copy never waits for another one's pages: the caller
 * takes the pages of both ends before.
 */
#ifndef GM_DAEMON_STORES_H
#define GM_DAEMON_STORES_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/core/table.h"
#include "daemon/disk.h"
#include "daemon/hostpool.h"

struct gm_stores;

struct gm_stores_config {
    uint64_t paged;       /* bytes; 0: no paged tier */
    const char *disk_dir; /* NULL or "": no disk tier */
    uint64_t disk;        /* bytes */
    unsigned workers;     /* 0: as many as processors, 2 to 8 */
    unsigned keep_ms;     /* free paged memory goes back to the system after this long; 0: 10 s */
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
