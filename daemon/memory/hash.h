/*
 * Hashes of chunks, made on the GPU by a kernel (hash.cu says what it computes, and how sure it
 * is). Owns the key, drawn anew at each start, the kernel, a stream of its own, and the thread that
 * waits for it. So hashes and copies do not wait for each other: the kernel takes multiprocessors,
 * copies take copy engines.
 *
 * Hashes end in the order in which they were submitted, and count from 1. Those that are submitted
 * before the loop waits go into one launch.
 *
 * Called by the engine on the loop thread. Calls cuda.
 */
#ifndef GM_DAEMON_MEMORY_HASH_H
#define GM_DAEMON_MEMORY_HASH_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/memory/cuda.h"
#include "daemon/memory/hash_layout.h"

#define GM_HASH_DEPTH 128u /* submitted and not ended, at most */

struct gm_hasher;

struct gm_hashed {
    uint64_t hash[GM_HASH_LANES];
    bool is_zero; /* all bytes are */
};

/*
 * `on_done(arg)` is called on the loop thread after hashes ended. 0, or -errno with a line in
 * `why`: this driver or GPU does not run the kernel, or it computes something else than a hash.
 */
int gm_hasher_open(struct gm_hasher **hasher, uv_loop_t *loop, const struct gm_cuda *cuda,
                   CUcontext context, void (*on_done)(void *arg), void *arg, char *why,
                   size_t why_size);
/* Waits until all have ended. NULL: nothing happens. The loop must run once more afterwards. */
void gm_hasher_close(struct gm_hasher *hasher);

/* How many more can be submitted. */
uint64_t gm_hasher_room(const struct gm_hasher *hasher);

/* Hash a chunk of `bytes` (whole tiles, GM_CHUNK_MAX at most) at `device`, which nobody writes
 * meanwhile. Returns its number. Where nothing is, at 0, it ends with
 * CUDA_ERROR_NOT_MAPPED. */
uint64_t gm_hasher_submit(struct gm_hasher *hasher, CUdeviceptr device, uint64_t bytes);

/* The number of the last that has ended, as the loop knows it. */
uint64_t gm_hasher_done(const struct gm_hasher *hasher);

/* What came of number `number`, which has ended: CUDA_SUCCESS, or why there is no hash. Ask before
 * you submit more. */
CUresult gm_hasher_result(const struct gm_hasher *hasher, uint64_t number,
                          struct gm_hashed *hashed);

/* Since the start: bytes hashed, and how long the kernel ran, in nanoseconds. */
uint64_t gm_hasher_bytes(const struct gm_hasher *hasher);
uint64_t gm_hasher_ns(const struct gm_hasher *hasher);

/* Fill a key with random numbers; `tiles` are those by which the host sums tiles. 0 or -errno. */
int gm_hash_draw(struct gm_hash_key *key, uint64_t tiles[GM_HASH_LANES][GM_HASH_TILES]);

/* The hash of a chunk of `n` tiles. */
void gm_hash_finish(const uint64_t keys[GM_HASH_LANES][GM_HASH_TILES],
                    const struct gm_hash_tile *tiles, uint32_t n, struct gm_hashed *hashed);

#endif
