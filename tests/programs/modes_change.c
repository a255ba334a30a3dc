/*
 * gm_worker's modes about how little of memory changes: readonly (nothing), byte (one byte of each
 * piece of 2 MiB, each iteration) and zeros (the same in memory that is zero but for those bytes,
 * every other one of which is taken back). The last two know all of their memory by heart, on the
 * host, and compare every byte each time. See worker.h.
 */
#include "tests/programs/worker.h"

#include <stdlib.h>
#include <string.h>

#define PIECE (2ull << 20)
#define BUFFER (8ull << 20) /* compared at once */

void gm_mode_readonly(struct gm_worker *worker)
{
    struct gm_counter counter;
    gm_counter_make(worker, &counter);
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    for (; gm_is_more(worker, worker->done) && worker->mismatches == 0; worker->done++) {
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_verify(worker, &buffers[i], &counter, NULL);
        worker->mismatches = gm_counter_read(worker, &counter, NULL);
    }
    gm_buffers_free(worker, buffers);
    gm_counter_free(worker, &counter);
}

static void *host_memory(const struct gm_worker *worker, uint64_t bytes)
{
    void *p = calloc(1, bytes);
    if (p == NULL)
        gm_fail(worker, "no host memory");
    return p;
}

static void compare(struct gm_worker *worker, CUdeviceptr at, const unsigned char *known,
                    uint64_t bytes, unsigned char *buffer)
{
    for (uint64_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < BUFFER ? bytes - done : BUFFER;
        GM_CU(worker, cuMemcpyDtoH, buffer, at + done, n);
        if (memcmp(buffer, known + done, n) != 0)
            worker->mismatches++;
    }
}

/* A byte of each piece, another one in each iteration. Of zeros, every other iteration takes back
 * what the one before changed. */
static void change(const struct gm_worker *worker, CUdeviceptr at, unsigned char *known,
                   uint64_t bytes, bool is_back, uint64_t iteration)
{
    for (uint64_t piece = 0; piece * PIECE < bytes; piece++) {
        const uint64_t n = bytes - piece * PIECE < PIECE ? bytes - piece * PIECE : PIECE;
        const uint64_t random = gm_mix(worker->seed + piece, iteration - is_back);
        const uint64_t offset = piece * PIECE + random % n;
        const unsigned changed = known[offset] ^ (1u << (random >> 61));
        known[offset] = (unsigned char)(is_back ? 0 : changed & 0xff);
        GM_CU(worker, cuMemcpyHtoD, at + offset, &known[offset], 1);
    }
}

static void change_little(struct gm_worker *worker, bool is_zero)
{
    const uint64_t bytes = worker->bytes / worker->allocs & ~7ull;
    CUdeviceptr *at = host_memory(worker, worker->allocs * sizeof(*at));
    unsigned char **known = host_memory(worker, worker->allocs * sizeof(*known));
    unsigned char *buffer = host_memory(worker, BUFFER);
    for (uint32_t i = 0; i < worker->allocs; i++) {
        uint64_t *words = host_memory(worker, bytes);
        for (uint64_t w = 0; !is_zero && w < bytes / 8; w++)
            words[w] = gm_mix(worker->seed + i, w);
        known[i] = (unsigned char *)words;
        GM_CU(worker, cuMemAlloc, &at[i], bytes);
        GM_CU(worker, cuMemcpyHtoD, at[i], words, bytes);
    }
    gm_say_ready(worker);
    for (; gm_is_more(worker, worker->done) && worker->mismatches == 0; worker->done++)
        for (uint32_t i = 0; i < worker->allocs; i++) {
            change(worker, at[i], known[i], bytes, is_zero && worker->done % 2 == 1, worker->done);
            compare(worker, at[i], known[i], bytes, buffer);
        }
    for (uint32_t i = 0; i < worker->allocs; i++) {
        GM_CU(worker, cuMemFree, at[i]);
        free(known[i]);
    }
    free(buffer);
    free(known);
    free(at);
}

void gm_mode_byte(struct gm_worker *worker)
{
    change_little(worker, false);
}

void gm_mode_zeros(struct gm_worker *worker)
{
    change_little(worker, true);
}
