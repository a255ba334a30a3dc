/*
 * What the patches mark and the host reads: which pages a launch touches. Device memory, one for
 * each thread that launches and context. The layout is the same for nvcc and the host's compiler.
 *
 * A place (2 MiB) has a slot with a bit for each of its 512 pages. Slots are found by the place's
 * lowest bits, so that neighbours lie side by side and are copied at once. Who claims a slot adds
 * it to the list; the host reads and clears the slots of the list only.
 */
#ifndef GM_PROFILER_AREA_H
#define GM_PROFILER_AREA_H

#include <stdint.h>

#define GM_AREA_SLOTS 65536u /* a power of 2: places of one launch, 128 GiB */
#define GM_AREA_PROBES 64u
#define GM_AREA_PAGE_SHIFT 12
#define GM_AREA_PLACE_PAGES 512u

struct gm_area_slot {
    uint64_t key; /* place + 1; 0: free */
    uint32_t bits[GM_AREA_PLACE_PAGES / 32];
};

struct gm_area {
    uint32_t used;        /* of the list */
    uint32_t lost;        /* not 0: a page found no slot */
    uint32_t has_tensors; /* not 0: memory was read or written through a tensor map */
    uint32_t unused;
    uint32_t list[GM_AREA_SLOTS];
    struct gm_area_slot slots[GM_AREA_SLOTS];
};

#define GM_AREA_HEAD 16u /* bytes before the list */

#endif
