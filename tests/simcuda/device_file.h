/*
 * What the simulated NVML, a library of its own, must know as the simulated driver knows it: where
 * the state of a device is, what stands at its head, and a device's UUID.
 */
#ifndef GM_SIMCUDA_DEVICE_FILE_H
#define GM_SIMCUDA_DEVICE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SIM_STATE_MAGIC 0x73696d6375646131ull
#define SIM_DEVICE_FILE "%s/device%d" /* SIMCUDA_DIR, number */

/* Two words: bytes that crossed its link since the start, to the device and from it. */
#define SIM_LINK_FILE "%s/crossed%d"

#define SIM_STATE_SLOTS 256u /* processes */

/* A process. */
struct sim_state_slot {
    uint32_t is_used;
    uint32_t pid;
    uint64_t bytes; /* linear memory and contexts */
    uint64_t made;  /* frames that it made, wherever they are mapped */
};

/* The head of that file. */
struct sim_state_head {
    uint64_t magic;
    uint32_t is_dirty;
    uint32_t n_frames;
    uint64_t serial;
    uint64_t used; /* bytes taken on the device, by all processes */
    uint64_t orphans;
    struct sim_state_slot slot[SIM_STATE_SLOTS];
};

static inline uint64_t sim_hash_of(const void *bytes, size_t n, uint64_t seed)
{
    const uint8_t *p = bytes;
    uint64_t h = 0xcbf29ce484222325ull ^ seed;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3ull;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
    return h ^ (h >> 31);
}

/* `dir_hash`: sim_hash_of() the absolute path of SIMCUDA_DIR, seed 0. */
static inline void sim_device_uuid(int device, uint64_t dir_hash, void *uuid)
{
    const uint64_t words[2] = {
        sim_hash_of(&device, sizeof device, dir_hash),
        sim_hash_of(&device, sizeof device, ~dir_hash),
    };
    memcpy(uuid, words, sizeof words);
}

#endif
