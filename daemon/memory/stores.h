/* clang-format off */
#ifndef GM_DAEMON_MEMORY_STORES_H
#define GM_DAEMON_MEMORY_STORES_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/chunk.h"
#include "daemon/memory/disk.h"
#include "daemon/memory/hostpool.h"
#include "daemon/memory/kept.h"
#include "daemon/memory/stores_paged.h"

struct gm_stores;

/* Take a chain as it lies there, of the daemon before: all of them before anything else is asked of
 * these stores, or what is left is free. False, and nothing is taken: it is none of
 * `bytes`, or not free. So it may be an attack. */
bool gm_stores_adopt(struct gm_stores *stores, enum gm_tier tier, uint32_t page, uint64_t bytes);

/* ---- for stores ---- */

struct gm_stores;

struct gm_stores_config {
    uint64_t paged;       /* bytes; 0: no paged tier */
    const char *disk_dir; /* NULL or "": no disk tier */
    uint64_t disk;        /* bytes; there may be fewer pages, as many as the disk has room for */
    uint32_t parts;       /* so many GPUs have a file in that folder; 0: one */
    unsigned workers;     /* 0: as many as processors, 2 to 16 */
    unsigned keep_ms;     /* free paged memory goes back to the system after so long, or after up
                             to twice that if it was wanted; 0: 10 s */
    struct gm_kept *kept; /* NULL: nothing outlives the daemon */
    uint32_t gpu;         /* ... as which GPU's */
    void (*on_room)(void *arg);     /* the disk tier has more room, or less; NULL: nobody asks */
    const struct gm_system *system; /* NULL: the real one */
};

/*
 * Called on the loop thread when the copy for `chunk` has ended. `error`: 0, or -errno (-ENOSPC,
 * -EIO): the source is as it was.
 */
typedef void gm_stores_done(void *arg, uint32_t chunk, int error);

/* Open the tiers below `pinned`. 0, or -errno with one line in `why` (no such folder, read-only,
 * ...); then what the daemon before had stays with the keeper. */
int gm_stores_open(struct gm_stores **stores, uv_loop_t *loop, struct gm_hostpool *pinned,
                   const struct gm_stores_config *config, gm_stores_done *on_done, void *arg,
                   char *why, size_t why_size);
/* Waits for the pieces under way and drops what is queued. Not called from on_done, which is not
 * called any more. The loop must run once more afterwards. NULL: nothing happens. */
void gm_stores_close(struct gm_stores *stores);

/* The chains of PAGED or DISK lie in `next` from now on: gm_pages_keep. */
void gm_stores_keep(struct gm_stores *stores, enum gm_tier tier, uint32_t *next);

/* Take pages for `bytes` in `tier` (PINNED, PAGED or DISK); GM_NONE: too few are free. */
uint32_t gm_stores_take(struct gm_stores *stores, enum gm_tier tier, uint64_t bytes);
void gm_stores_free(struct gm_stores *stores, enum gm_tier tier, uint32_t page);
uint64_t gm_stores_cap(const struct gm_stores *stores, enum gm_tier tier);
uint64_t gm_stores_used(const struct gm_stores *stores, enum gm_tier tier);

/*
 * Copy `bytes` from the chain at `from_page` of tier `from` to the chain at `to_page` of tier `to`
 * (at most one of them DISK). Until on_done the caller frees neither chain and does not write the
 * source. Queued behind the others; never blocks and never fails here. `chunk` is for on_done,
 * which may start copies.
 */
void gm_stores_copy(struct gm_stores *stores, uint32_t chunk, enum gm_tier from, uint32_t from_page,
                    enum gm_tier to, uint32_t to_page, uint64_t bytes);

/* Bytes copied since the start, by tiers. */
uint64_t gm_stores_bytes(const struct gm_stores *stores, enum gm_tier from, enum gm_tier to);

#endif
