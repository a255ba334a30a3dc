/*
 * Open addressing: a map is in one of PROBES slots from its hash on. A slot has a sequence number,
 * odd while somebody writes it; who reads takes what did not change meanwhile.
 */
#include "shim/tables/tensors.h"

#include <string.h>

#define SLOTS 4096u
#define PROBES 8u

struct gm_tensor_slot {
    _Atomic uint32_t sequence;
    _Atomic uint64_t key, va, bytes; /* key 0: free */
};

_Atomic bool gm_tensors_are_noted;
static struct gm_tensor_slot gm_tensors[SLOTS];

static uint64_t gm_tensors_key(const void *map)
{
    uint64_t words[GM_TENSOR_MAP_BYTES / 8], key = 0;
    memcpy(words, map, sizeof(words));
    for (uint32_t i = 0; i < GM_TENSOR_MAP_BYTES / 8; i++) {
        key = (key ^ words[i]) * 0x9e3779b97f4a7c15ull;
        key ^= key >> 29;
    }
    return key != 0 ? key : 1;
}

static struct gm_tensor_slot *gm_tensors_slot(uint64_t key, uint32_t probe)
{
    return &gm_tensors[(key + probe) % SLOTS];
}

/* Its own, a free one, or the first. */
static struct gm_tensor_slot *gm_tensors_place(uint64_t key)
{
    for (uint32_t i = 0; i < PROBES; i++) {
        struct gm_tensor_slot *slot = gm_tensors_slot(key, i);
        const uint64_t there = atomic_load_explicit(&slot->key, memory_order_relaxed);
        if (there == 0 || there == key)
            return slot;
    }
    return gm_tensors_slot(key, 0);
}

void gm_tensors_note(const void *map, uint64_t va, uint64_t bytes)
{
    const uint64_t key = gm_tensors_key(map);
    struct gm_tensor_slot *slot = gm_tensors_place(key);
    uint32_t before = atomic_load_explicit(&slot->sequence, memory_order_relaxed);
    if (before % 2 != 0 ||
        !atomic_compare_exchange_strong_explicit(&slot->sequence, &before, before + 1,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return; /* another thread writes there */
    atomic_store_explicit(&slot->key, key, memory_order_release);
    atomic_store_explicit(&slot->va, va, memory_order_release);
    atomic_store_explicit(&slot->bytes, bytes, memory_order_release);
    atomic_store_explicit(&slot->sequence, before + 2, memory_order_release);
    if (!gm_tensors_exist())
        atomic_store_explicit(&gm_tensors_are_noted, true, memory_order_relaxed);
}

bool gm_tensors_find(const void *map, uint64_t *va, uint64_t *bytes)
{
    const uint64_t key = gm_tensors_key(map);
    for (uint32_t i = 0; i < PROBES; i++) {
        struct gm_tensor_slot *slot = gm_tensors_slot(key, i);
        const uint32_t before = atomic_load_explicit(&slot->sequence, memory_order_acquire);
        if (before % 2 != 0 || atomic_load_explicit(&slot->key, memory_order_acquire) != key)
            continue;
        *va = atomic_load_explicit(&slot->va, memory_order_acquire);
        *bytes = atomic_load_explicit(&slot->bytes, memory_order_acquire);
        if (atomic_load_explicit(&slot->sequence, memory_order_relaxed) == before)
            return true;
    }
    return false;
}
