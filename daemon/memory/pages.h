/*
 * Pages: who has which 2 MiB piece of a store. Slabs of 16 pages (32 MiB, the largest chunk) and
 * chains.
 *
 * A copy takes one contiguous, aligned run where there is one, from the slab where it leaves the
 * least behind, and otherwise the largest runs left (the copy engines reach 101 GB/s with 32 MiB
 * pieces and 93 with 2 MiB pieces): if the bytes are free, the copy fits, however fragmented. Slabs
 * are listed by their largest run, so taking and freeing cost the same in a small store and in a
 * large one.
 *
 * A store's pages come either in order (gm_pages_add) or slab by slab, in any order, and may go
 * again that way (gm_pages_add_slab, gm_pages_remove_slab).
 *
 * Pure bookkeeping: the stores (hostpool, stores) know where the bytes are. Loop thread only, but
 * that gm_pages_run may be called by a thread for a chain that the loop thread leaves alone
 * meanwhile.
 */
#ifndef GM_DAEMON_MEMORY_PAGES_H
#define GM_DAEMON_MEMORY_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/chunk.h"

#define GM_SLAB_PAGES 16u
#define GM_SLAB_BYTES GM_CHUNK_MAX

struct gm_slab {
    uint16_t map;      /* a bit a page that exists */
    uint16_t free_map; /* ... and is free */
    uint8_t list;      /* which list it is in: 1 + the class of its largest free run; 0: none */
    uint32_t next, prev;
};

struct gm_pages {
    uint32_t max_pages;
    uint32_t pages; /* that exist */
    uint32_t free_pages;
    uint32_t free_slabs; /* full ones whose pages are all free */
    struct gm_slab *slabs;
    uint32_t *next;                   /* by page: the next page of its chain, GM_NONE at its end */
    uint32_t heads[GM_CHUNK_CLASSES]; /* slabs by the class of their largest free run */
};

/* Room for the tables of `bytes`, rounded down to whole pages; none of them exists yet. 0 or
 * -ENOMEM. */
int gm_pages_open(struct gm_pages *pages, uint64_t bytes);
void gm_pages_close(struct gm_pages *pages);

/* The next `n` pages exist from now on, and are free. At most max_pages in all. */
void gm_pages_add(struct gm_pages *pages, uint32_t n);

/* The pages of a slab of which none exists do from now on, and are free; and those of a slab of
 * which all are free do not any more. */
void gm_pages_add_slab(struct gm_pages *pages, uint32_t slab);
void gm_pages_remove_slab(struct gm_pages *pages, uint32_t slab);

/* Take pages for `bytes` (a multiple of 2 MiB). The first page of the chain, or GM_NONE when fewer
 * are free. */
uint32_t gm_pages_take(struct gm_pages *pages, uint64_t bytes);
/* Give a chain back. GM_NONE: nothing happens. */
void gm_pages_free(struct gm_pages *pages, uint32_t page);

/* Walk a chain: how many pages lie in one run from *page on, at most `most` and within one slab;
 * *page moves behind them, GM_NONE at the end. */
uint32_t gm_pages_run(const struct gm_pages *pages, uint32_t *page, uint32_t most);

/* It has pages, and all of them are free. */
bool gm_slab_is_free(const struct gm_pages *pages, uint32_t slab);

#endif
