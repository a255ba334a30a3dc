/* Patterned buffers: device memory whose content is known from a seed. See worker.h. */
#include "tests/programs/worker.h"

#include <stdlib.h>

#define GM_PIECE (4ull << 20) /* bytes copied to the host at a time */

uint64_t gm_mix(uint64_t seed, uint64_t i)
{
    const uint64_t z = seed * 0xBF58476D1CE4E5B9ull + (i + 1) * 0x9E3779B97F4A7C15ull;
    return z ^ (z >> 32);
}

uint64_t gm_next_seed(uint64_t seed)
{
    return gm_mix(seed, 0x5eed);
}

void gm_buffer_make(const struct gm_worker *worker, struct gm_buffer *buffer, uint64_t bytes,
                    uint64_t seed, CUstream stream)
{
    buffer->bytes = bytes & ~7ull;
    buffer->seed = seed;
    GM_CU(worker, cuMemAlloc, &buffer->at, buffer->bytes);
    gm_buffer_fill(worker, buffer, stream);
}

void gm_buffer_fill(const struct gm_worker *worker, struct gm_buffer *buffer, CUstream stream)
{
    uint64_t words = buffer->bytes / 8;
    void *args[] = {&buffer->at, &words, &buffer->seed};
    gm_launch(worker, GM_KERNEL_FILL, stream, args);
}

void gm_buffer_free(const struct gm_worker *worker, struct gm_buffer *buffer)
{
    GM_CU(worker, cuMemFree, buffer->at);
    buffer->at = 0;
}

void gm_buffer_verify(const struct gm_worker *worker, const struct gm_buffer *buffer,
                      const struct gm_counter *counter, CUstream stream)
{
    CUdeviceptr at = buffer->at, wrong = counter->at;
    uint64_t words = buffer->bytes / 8, seed = buffer->seed;
    void *args[] = {&at, &words, &seed, &wrong};
    gm_launch(worker, GM_KERNEL_VERIFY, stream, args);
}

void gm_buffer_turn(const struct gm_worker *worker, struct gm_buffer *buffer,
                    const struct gm_counter *counter, CUstream stream)
{
    CUdeviceptr at = buffer->at, wrong = counter->at;
    uint64_t words = buffer->bytes / 8, seed = buffer->seed, next = gm_next_seed(seed);
    void *args[] = {&at, &words, &seed, &next, &wrong};
    gm_launch(worker, GM_KERNEL_VERIFY_REFILL, stream, args);
    buffer->seed = next;
}

uint64_t gm_buffer_check_host(const struct gm_worker *worker, const struct gm_buffer *buffer,
                              uint64_t add)
{
    uint64_t *piece = malloc(GM_PIECE);
    uint64_t wrong = 0;
    if (piece == NULL)
        gm_fail(worker, "no host memory");
    for (uint64_t from = 0; from < buffer->bytes; from += GM_PIECE) {
        uint64_t bytes = buffer->bytes - from < GM_PIECE ? buffer->bytes - from : GM_PIECE;
        GM_CU(worker, cuMemcpyDtoH, piece, buffer->at + from, bytes);
        for (uint64_t i = 0; i < bytes / 8; i++)
            wrong += piece[i] != gm_mix(buffer->seed, from / 8 + i) + add;
    }
    free(piece);
    return wrong;
}

void gm_counter_make(const struct gm_worker *worker, struct gm_counter *counter)
{
    uint64_t zero = 0;
    GM_CU(worker, cuMemAlloc, &counter->at, sizeof(zero));
    GM_CU(worker, cuMemcpyHtoD, counter->at, &zero, sizeof(zero));
    GM_CU(worker, cuStreamSynchronize, NULL); /* a small copy may still be on its way */
}

uint64_t gm_counter_read(const struct gm_worker *worker, const struct gm_counter *counter,
                         CUstream stream)
{
    uint64_t value = 0;
    GM_CU(worker, cuStreamSynchronize, stream);
    GM_CU(worker, cuMemcpyDtoH, &value, counter->at, sizeof(value));
    return value;
}

void gm_counter_free(const struct gm_worker *worker, struct gm_counter *counter)
{
    GM_CU(worker, cuMemFree, counter->at);
}

struct gm_buffer *gm_buffers_make(const struct gm_worker *worker, CUstream stream)
{
    struct gm_buffer *buffers = calloc(worker->allocs, sizeof(*buffers));
    if (buffers == NULL)
        gm_fail(worker, "no host memory");
    for (uint32_t i = 0; i < worker->allocs; i++)
        gm_buffer_make(worker, &buffers[i], worker->bytes / worker->allocs, gm_mix(worker->seed, i),
                       stream);
    GM_CU(worker, cuStreamSynchronize, stream);
    gm_say_ready(worker);
    return buffers;
}

void gm_buffers_free(const struct gm_worker *worker, struct gm_buffer *buffers)
{
    for (uint32_t i = 0; i < worker->allocs; i++)
        gm_buffer_free(worker, &buffers[i]);
    free(buffers);
}
