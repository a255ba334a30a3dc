/*
 * How far a tensor reaches from its address: what a tensor map (cuTensorMapEncode*) says. Pure;
 * calls nothing.
 */
#ifndef GM_COMMON_TENSORS_H
#define GM_COMMON_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#define GM_TENSOR_RANK 5u

/* Bytes of an element by CUtensorMapDataType; packed ones of 4 and 6 bits count as a whole byte. */
static inline uint32_t gm_tensor_element(uint32_t type)
{
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4, 1, 1, 1};
    return type < sizeof(bytes) ? bytes[type] : 0;
}

/*
 * The bytes from the tensor's address to the end of its last element. `dimensions` has `rank`
 * entries; `strides`, in bytes, one less: the first dimension is dense. False: the type is not
 * known, or it does not fit into the address space.
 */
static inline bool gm_tensor_bytes(uint32_t type, uint32_t rank, const uint64_t *dimensions,
                                   const uint64_t *strides, uint64_t *bytes)
{
    const uint64_t most = 1ull << 47;
    uint64_t part;
    if (rank == 0 || rank > GM_TENSOR_RANK || gm_tensor_element(type) == 0 || dimensions[0] == 0 ||
        __builtin_mul_overflow(dimensions[0], gm_tensor_element(type), bytes) || *bytes > most)
        return false;
    for (uint32_t i = 1; i < rank; i++) {
        if (dimensions[i] == 0 ||
            __builtin_mul_overflow(dimensions[i] - 1, strides[i - 1], &part) || part > most)
            return false;
        *bytes += part;
    }
    return *bytes <= most;
}

#endif
