/*
 * Open addressing: a function is in one of PROBES slots from its hash on. Each slot has a sequence
 * number, odd while it is written. A reader copies and then looks whether the number is the same.
 * Data is stored with release and loaded with acquire, so who sees new data sees the odd number,
 * too.
 */
#include "shim/tables/layouts.h"

#include <stdatomic.h>

#define SLOTS 4096u /* a large framework launches some thousand kernels */
#define PROBES 4u

struct gm_layout_slot {
    _Atomic uint64_t function; /* 0: empty */
    _Atomic uint32_t sequence, generation;
    _Atomic uint32_t n;
    _Atomic(struct gm_kernel *) kernel;
    _Atomic uint32_t part[GM_LAYOUT_PARTS];
};

static struct gm_layout_slot gm_layouts[SLOTS];
static _Atomic uint32_t gm_layouts_now;

static struct gm_layout_slot *gm_layouts_slot(uint64_t function, uint32_t probe)
{
    return &gm_layouts[((function * 0x9e3779b97f4a7c15ull >> 40) + probe) % SLOTS];
}

static bool gm_layouts_is(struct gm_layout_slot *slot, uint64_t function, uint32_t generation)
{
    return atomic_load_explicit(&slot->function, memory_order_acquire) == function &&
           atomic_load_explicit(&slot->generation, memory_order_acquire) == generation;
}

bool gm_layouts_find(const void *function, struct gm_layout *layout)
{
    const uint64_t key = (uint64_t)(uintptr_t)function;
    const uint32_t generation = gm_layouts_generation();
    for (uint32_t i = 0; i < PROBES; i++) {
        struct gm_layout_slot *slot = gm_layouts_slot(key, i);
        const uint32_t before = atomic_load_explicit(&slot->sequence, memory_order_acquire);
        if (before % 2 != 0 || !gm_layouts_is(slot, key, generation))
            continue;
        layout->n = atomic_load_explicit(&slot->n, memory_order_acquire);
        layout->kernel = atomic_load_explicit(&slot->kernel, memory_order_acquire);
        for (uint32_t p = 0; p < layout->n && p < GM_LAYOUT_PARTS; p++)
            layout->part[p] = atomic_load_explicit(&slot->part[p], memory_order_acquire);
        if (atomic_load_explicit(&slot->sequence, memory_order_relaxed) == before)
            return true;
    }
    return false;
}

uint32_t gm_layouts_generation(void)
{
    return atomic_load_explicit(&gm_layouts_now, memory_order_acquire);
}

/* Its own, one that is void, or the first. */
static struct gm_layout_slot *gm_layouts_place(uint64_t key, uint32_t generation)
{
    for (uint32_t i = 0; i < PROBES; i++) {
        struct gm_layout_slot *slot = gm_layouts_slot(key, i);
        const uint64_t there = atomic_load_explicit(&slot->function, memory_order_acquire);
        if (there == 0 || there == key ||
            atomic_load_explicit(&slot->generation, memory_order_acquire) != generation)
            return slot;
    }
    return gm_layouts_slot(key, 0);
}

void gm_layouts_keep(const void *function, uint32_t generation, const struct gm_layout *layout)
{
    const uint64_t key = (uint64_t)(uintptr_t)function;
    struct gm_layout_slot *slot = gm_layouts_place(key, generation);
    uint32_t before = atomic_load_explicit(&slot->sequence, memory_order_relaxed);
    if (before % 2 != 0 ||
        !atomic_compare_exchange_strong_explicit(&slot->sequence, &before, before + 1,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return; /* another thread writes there */
    atomic_store_explicit(&slot->function, key, memory_order_release);
    atomic_store_explicit(&slot->generation, generation, memory_order_release);
    atomic_store_explicit(&slot->n, layout->n, memory_order_release);
    atomic_store_explicit(&slot->kernel, layout->kernel, memory_order_release);
    for (uint32_t p = 0; p < layout->n && p < GM_LAYOUT_PARTS; p++)
        atomic_store_explicit(&slot->part[p], layout->part[p], memory_order_release);
    atomic_store_explicit(&slot->sequence, before + 2, memory_order_release);
}

void gm_layouts_drop(void)
{
    atomic_fetch_add_explicit(&gm_layouts_now, 1, memory_order_acq_rel);
}
