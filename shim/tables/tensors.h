/*
 * Tensor maps: how far the tensor of a map reaches (cuTensorMapEncode*). Kernels get maps among
 * their arguments, where the address does not tell it. The key is the map's 128 bytes.
 *
 * Owns a fixed table without a lock; a map that finds no place takes another's. A map that is not
 * found is read like all arguments. Any thread. Calls nobody.
 */
#ifndef GM_SHIM_TENSORS_H
#define GM_SHIM_TENSORS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define GM_TENSOR_MAP_BYTES 128u
#define GM_TENSOR_MAP_ALIGN 64u

/* Private to tensors.h and tensors.c. */
extern __attribute__((visibility("hidden"))) _Atomic bool gm_tensors_are_noted;

static inline bool gm_tensors_exist(void)
{
    return __builtin_expect(atomic_load_explicit(&gm_tensors_are_noted, memory_order_relaxed), 0);
}

/* The map stands for `bytes` from `va`. */
void gm_tensors_note(const void *map, uint64_t va, uint64_t bytes);

/* False: the map is not known. */
bool gm_tensors_find(const void *map, uint64_t *va, uint64_t *bytes);

#endif
