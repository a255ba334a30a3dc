/*
 * Pages: owns which 2 MiB page of a store is free, and the chain that each copy's pages form. Pages
 * lie in slabs of 16 (32 MiB, the largest chunk).
 *
 * A copy takes one contiguous, aligned run if there is one, from the slab whose largest run is
 * smallest. Otherwise it takes the largest runs that are left: the copy engines reach 101 GB/s with
 * pieces of 32 MiB and 93 with pieces of 2 MiB. So a copy fits whenever enough pages are free.
 * Slabs are listed by their largest run, so the size of the store does not matter.
 *
 * Pages come either in order (gm_pages_add), or slab by slab in any order, and may go that way too
 * (gm_pages_add_slab, gm_pages_remove_slab).
 *
 * Called by hostpool and stores, which know where the bytes are. Calls nothing. Loop thread only;
 * gm_pages_run also by a worker, for a chain that the loop thread leaves alone meanwhile.
 */
#ifndef GM_DAEMON_MEMORY_PAGES_H
#define GM_DAEMON_MEMORY_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/chunk.h"

#define GM_SLAB_PAGES 16u
#define GM_SLAB_BYTES GM_CHUNK_MAX

struct gm_slab {
    uint16_t map;      /* bit set: the page exists */
    uint16_t free_map; /* bit set: it is free */
    uint8_t list;      /* the list that it is in: 1 + the class of its largest free run; 0: none */
    bool was_written;  /* the caller's: the file has blocks there */
    uint32_t next, prev;
};

struct gm_pages {
    uint32_t max_pages;
    uint32_t pages; /* that exist */
    uint32_t free_pages;
    uint32_t free_slabs; /* of 16 pages, all free */
    struct gm_slab *slabs;
    uint32_t *next;                   /* by page: the next page of its chain, GM_NONE at its end */
    bool is_next_kept;                /* ... the caller's */
    uint32_t heads[GM_CHUNK_CLASSES]; /* slabs by the class of their largest free run */
};

/* Allocate the tables for `bytes`, rounded down to whole pages. No page exists yet. 0 or -ENOMEM.
 */
int gm_pages_open(struct gm_pages *pages, uint64_t bytes);
void gm_pages_close(struct gm_pages *pages);
/* From now on the chains lie in `next`, of max_pages words, which is the caller's and outlives the
 * pages. None is taken yet. */
void gm_pages_keep(struct gm_pages *pages, uint32_t *next);

/* Add the next `n` pages, free; at most max_pages in all. */
void gm_pages_add(struct gm_pages *pages, uint32_t n);

/* Add all pages of a slab that has none, free; remove the pages of a slab that are all free. */
void gm_pages_add_slab(struct gm_pages *pages, uint32_t slab);
void gm_pages_remove_slab(struct gm_pages *pages, uint32_t slab);

/* Take pages for `bytes` (a multiple of 2 MiB). Returns the first page of the chain, or GM_NONE if
 * too few are free. */
uint32_t gm_pages_take(struct gm_pages *pages, uint64_t bytes);
/* The same, but from other slabs than this. */
uint32_t gm_pages_take_beside(struct gm_pages *pages, uint64_t bytes, uint32_t slab);
/* Take a chain as it lies there, of pages for `bytes`. False, and nothing is taken: it has more or
 * fewer, or one that does not exist or is taken. So it may be an attack. */
bool gm_pages_adopt(struct gm_pages *pages, uint32_t page, uint64_t bytes);
/* Whether a chain has a page in the slab. */
bool gm_pages_touch(const struct gm_pages *pages, uint32_t page, uint32_t slab);
/* Give a chain back. GM_NONE: nothing happens. */
void gm_pages_free(struct gm_pages *pages, uint32_t page);

/* Walk a chain. Returns how many pages from *page on are contiguous, at most `most` and within one
 * slab. *page becomes the page after them, GM_NONE at the end. */
uint32_t gm_pages_run(const struct gm_pages *pages, uint32_t *page, uint32_t most);

/* It has pages, and all of them are free. */
bool gm_slab_is_free(const struct gm_pages *pages, uint32_t slab);

#endif
