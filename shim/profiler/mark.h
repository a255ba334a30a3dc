/*
 * Marks pages in an area (area.h). Any number of the GPU's threads at once: a slot is claimed and a
 * bit set by atomic operations, after a look whether that is still needed. Whoever includes it
 * defines GM_DEVICE, what a function of the GPU begins with; a test runs it on the CPU.
 */
#ifndef GM_PROFILER_MARK_H
#define GM_PROFILER_MARK_H

#include "shim/profiler/area.h"

GM_DEVICE void gm_mark_page(struct gm_area *area, uint64_t page)
{
    const unsigned long long place = page / GM_AREA_PLACE_PAGES;
    const uint32_t within = (uint32_t)(page % GM_AREA_PLACE_PAGES), mask = 1u << (within % 32);
    for (uint32_t probe = 0; probe < GM_AREA_PROBES; probe++) {
        const uint32_t at = ((uint32_t)place + probe) % GM_AREA_SLOTS;
        struct gm_area_slot *slot = &area->slots[at];
        unsigned long long *key = (unsigned long long *)&slot->key;
        unsigned long long there = *(volatile unsigned long long *)key;
        if (there == 0) {
            there = atomicCAS(key, 0ull, place + 1);
            if (there == 0) {
                area->list[atomicAdd(&area->used, 1u)] = at;
                there = place + 1;
            }
        }
        if (there == place + 1) {
            uint32_t *bits = &slot->bits[within / 32];
            if ((*(volatile uint32_t *)bits & mask) == 0)
                atomicOr(bits, mask);
            return;
        }
    }
    area->lost = 1;
}

/* The pages of [from, from + bytes). */
GM_DEVICE void gm_mark(struct gm_area *area, uint64_t from, uint64_t bytes)
{
    if (bytes > 0)
        for (uint64_t page = from >> GM_AREA_PAGE_SHIFT;
             page <= (from + bytes - 1) >> GM_AREA_PAGE_SHIFT; page++)
            gm_mark_page(area, page);
}

#endif
