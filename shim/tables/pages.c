#include "shim/tables/pages.h"

#include <errno.h>
#include <stdlib.h>

#define GM_PAGES_END (1ull << GM_PAGES_VA_BITS)

_Atomic uint32_t *_Atomic gm_pages_top[GM_PAGES_TOP];
_Atomic uint32_t gm_pages_beyond; /* ranges that end beyond the table */

/* Behind the last place of [va, va + bytes) that the table has. */
static uint64_t gm_pages_end(uint64_t va, uint64_t bytes)
{
    const uint64_t last = va + bytes - 1;
    return ((last < GM_PAGES_END ? last : GM_PAGES_END - 1) >> GM_CHUNK_SHIFT) + 1;
}

static bool gm_pages_end_beyond(uint64_t va, uint64_t bytes)
{
    return va + bytes - 1 >= GM_PAGES_END;
}

int gm_pages_make(uint64_t va, uint64_t bytes)
{
    if (bytes == 0 || va + bytes - 1 < va)
        return -EINVAL;
    const uint64_t last = (gm_pages_end(va, bytes) - 1) >> GM_PAGES_LEAF_BITS;
    for (uint64_t at = va >> (GM_CHUNK_SHIFT + GM_PAGES_LEAF_BITS); at <= last; at++) {
        _Atomic uint32_t *there = NULL;
        if (atomic_load_explicit(&gm_pages_top[at], memory_order_acquire) != NULL)
            continue;
        _Atomic uint32_t *leaf = calloc(GM_PAGES_LEAF, sizeof(*leaf));
        if (leaf == NULL)
            return -ENOMEM;
        if (!atomic_compare_exchange_strong_explicit(&gm_pages_top[at], &there, leaf,
                                                     memory_order_release, memory_order_acquire))
            free(leaf); /* another thread was first */
    }
    return 0;
}

static _Atomic uint32_t *gm_pages_at(uint64_t place)
{
    _Atomic uint32_t *leaf =
        atomic_load_explicit(&gm_pages_top[place >> GM_PAGES_LEAF_BITS], memory_order_acquire);
    return &leaf[place % GM_PAGES_LEAF];
}

void gm_pages_set(uint64_t va, uint64_t bytes, uint64_t home)
{
    const uint64_t first = va >> GM_CHUNK_SHIFT, end = gm_pages_end(va, bytes);
    if (gm_pages_end_beyond(va, bytes))
        atomic_fetch_add_explicit(&gm_pages_beyond, 1, memory_order_relaxed);
    for (uint64_t place = first; place < end; place++)
        atomic_store_explicit(gm_pages_at(place),
                              (uint32_t)((home >> GM_CHUNK_SHIFT) + place - first),
                              memory_order_relaxed);
}

void gm_pages_clear(uint64_t va, uint64_t bytes)
{
    const uint64_t end = gm_pages_end(va, bytes);
    if (gm_pages_end_beyond(va, bytes))
        atomic_fetch_sub_explicit(&gm_pages_beyond, 1, memory_order_relaxed);
    for (uint64_t place = va >> GM_CHUNK_SHIFT; place < end; place++)
        atomic_store_explicit(gm_pages_at(place), 0, memory_order_relaxed);
}
