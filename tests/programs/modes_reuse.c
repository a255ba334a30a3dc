/* gm_worker's modes about memory that is freed and allocated again, about more and more of it,
 * about all of it, and about having it late. See worker.h. */
#include "tests/programs/worker.h"

#include <stdlib.h>
#include <time.h>

#include "common/clock.h"

static size_t free_bytes(const struct gm_worker *worker)
{
    size_t free, total;
    GM_CU(worker, cuMemGetInfo, &free, &total);
    return free;
}

/* Allocate, work, free; what is freed is none of the program's at once. */
static void turn(struct gm_worker *worker, uint64_t bytes, const struct gm_counter *counter)
{
    const size_t before = free_bytes(worker);
    struct gm_buffer buffer;
    uint64_t word = 0;
    gm_buffer_make(worker, &buffer, bytes, gm_mix(worker->seed, worker->done), NULL);
    if (before - free_bytes(worker) < bytes)
        gm_fail(worker, "%llu bytes take less", (unsigned long long)bytes);
    gm_buffer_turn(worker, &buffer, counter, NULL);
    gm_buffer_verify(worker, &buffer, counter, NULL);
    worker->mismatches = gm_counter_read(worker, counter, NULL);
    const CUdeviceptr at = buffer.at;
    gm_buffer_free(worker, &buffer);
    if (free_bytes(worker) != before)
        gm_fail(worker, "%llu bytes were freed, and are not free", (unsigned long long)bytes);
    if (worker->cu.cuMemFree(at) != CUDA_ERROR_INVALID_VALUE ||
        worker->cu.cuMemcpyDtoH(&word, at, 8) != CUDA_ERROR_INVALID_VALUE ||
        worker->cu.cuMemcpyHtoD(at + bytes / 2, &word, 8) != CUDA_ERROR_INVALID_VALUE ||
        worker->cu.cuMemsetD32(at, 1, 2) != CUDA_ERROR_INVALID_VALUE)
        gm_fail(worker, "memory that was freed is still there");
}

/*
 * The same size again and again; then rest until --go, with nothing allocated; then all that is
 * free in one piece, beside which nothing can be kept.
 */
void gm_mode_reuse(struct gm_worker *worker)
{
    struct gm_counter counter;
    gm_counter_make(worker, &counter);
    for (; gm_is_more(worker, worker->done) && worker->mismatches == 0; worker->done++)
        turn(worker, worker->bytes, &counter);
    gm_say_ready(worker);
    if (worker->mismatches == 0)
        turn(worker, worker->bytes, &counter);
    if (worker->mismatches == 0)
        turn(worker, free_bytes(worker) - (8ull << 20), &counter);
    gm_counter_free(worker, &counter);
}

/* The program has `bytes` at least, in `allocs` allocations, of what was free before; not looked at
 * if the daemon was lost, as then all of the device counts, with what others do. */
static void check_free(const struct gm_worker *worker, const size_t before[2], uint64_t bytes,
                       uint32_t allocs)
{
    size_t now[2];
    GM_CU(worker, cuMemGetInfo, &now[0], &now[1]);
    const uint64_t used = before[0] - now[0];
    if (now[1] == before[1] && (used < bytes || used > bytes + allocs * (2ull << 20)))
        gm_fail(worker, "%u pieces of %llu bytes in all take %llu", allocs,
                (unsigned long long)bytes, (unsigned long long)used);
}

/* Whether [at, at + bytes) and one of the program's buffers have a byte in common. */
static bool is_own(const struct gm_buffer *buffer, uint32_t n, const struct gm_counter *counter,
                   CUdeviceptr at, uint64_t bytes)
{
    bool is_any = at < counter->at + 8 && counter->at < at + bytes;
    for (uint32_t i = 0; i < n; i++)
        is_any = is_any || (at < buffer[i].at + buffer[i].bytes && buffer[i].at < at + bytes);
    return is_any;
}

/* What is allocated ahead is none of the program's: around what it has, there is nothing. */
static void check_around(const struct gm_worker *worker, const struct gm_buffer *buffer, uint32_t n,
                         const struct gm_counter *counter)
{
    const uint64_t step = 2ull << 20;
    const CUdeviceptr first = buffer[n - 1].at / step * step;
    const uint64_t far = 4 * (buffer[n - 1].bytes / step + 1) * step;
    for (CUdeviceptr at = first - far; at < first + far; at += step) {
        CUmemGenericAllocationHandle handle;
        CUdeviceptr start;
        size_t size;
        CUmemorytype type;
        uint64_t word;
        if (is_own(buffer, n, counter, at, step))
            continue;
        if (worker->cu.cuMemGetAddressRange(&start, &size, at) == CUDA_SUCCESS ||
            worker->cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) ==
                CUDA_SUCCESS ||
            worker->cu.cuMemcpyDtoH(&word, at, 8) == CUDA_SUCCESS ||
            worker->cu.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)at) == CUDA_SUCCESS)
            gm_fail(worker, "there is memory at %llx, which the program never had",
                    (unsigned long long)at);
    }
}

/* Keep a piece of memory for good; have --bytes more for --hold in each iteration, and none of that
 * for a fifth of --hold after it. That is longer than spares are kept, if --hold is a second. */
void gm_mode_cycle(struct gm_worker *worker)
{
    struct gm_counter counter;
    struct gm_buffer kept, taken;
    const uint64_t away_ns = worker->hold_ns / 5;
    const struct timespec hold = {.tv_sec = (time_t)(worker->hold_ns / GM_S),
                                  .tv_nsec = (long)(worker->hold_ns % GM_S)};
    const struct timespec away = {.tv_sec = (time_t)(away_ns / GM_S),
                                  .tv_nsec = (long)(away_ns % GM_S)};
    gm_counter_make(worker, &counter);
    gm_buffer_make(worker, &kept, worker->bytes / worker->allocs / 8 * 8, worker->seed, NULL);
    gm_say_ready(worker);
    for (; gm_is_more(worker, worker->done) && worker->mismatches == 0; worker->done++) {
        gm_buffer_make(worker, &taken, worker->bytes, worker->done, NULL);
        nanosleep(&hold, NULL);
        gm_buffer_verify(worker, &kept, &counter, NULL);
        gm_buffer_verify(worker, &taken, &counter, NULL);
        worker->mismatches = gm_counter_read(worker, &counter, NULL);
        gm_buffer_free(worker, &taken);
        nanosleep(&away, NULL);
    }
    gm_buffer_free(worker, &kept);
    gm_counter_free(worker, &counter);
}

/* One after the other, as a program that loads a model has them; all hold what they should when the
 * last is there. Between them the program works for --hold. */
static void grow(struct gm_worker *worker, const struct gm_counter *counter, const size_t before[2],
                 bool is_filling)
{
    struct gm_buffer *buffer = calloc(worker->allocs + 1, sizeof(*buffer));
    uint32_t n = worker->allocs;
    const uint64_t bytes = worker->bytes / worker->allocs / 8 * 8;
    const struct timespec hold = {.tv_sec = (time_t)(worker->hold_ns / GM_S),
                                  .tv_nsec = (long)(worker->hold_ns % GM_S)};
    if (buffer == NULL)
        gm_fail(worker, "out of host memory");
    for (uint32_t i = 0; i < worker->allocs; i++) {
        gm_buffer_make(worker, &buffer[i], bytes, gm_mix(worker->seed, i), NULL);
        check_free(worker, before, (i + 1) * bytes, i + 1);
        gm_buffer_turn(worker, &buffer[i], counter, NULL);
        nanosleep(&hold, NULL);
    }
    if (!is_filling) {
        check_around(worker, buffer, n, counter);
    } else {
        gm_buffer_make(worker, &buffer[n], free_bytes(worker) >> 21 << 21, worker->seed, NULL);
        n++;
    }
    if (worker->done == 0)
        gm_say_ready(worker);
    for (uint32_t i = 0; i < n; i++)
        gm_buffer_verify(worker, &buffer[i], counter, NULL);
    worker->mismatches = gm_counter_read(worker, counter, NULL);
    for (uint32_t i = 0; i < n; i++)
        gm_buffer_free(worker, &buffer[i]);
    check_free(worker, before, 0, 0);
    free(buffer);
}

/* More and more in each iteration, until all is there: in the first one rest with that until --go;
 * and with --go once more, up to all that is free. */
void gm_mode_grow(struct gm_worker *worker)
{
    struct gm_counter counter;
    size_t before[2];
    gm_counter_make(worker, &counter);
    GM_CU(worker, cuMemGetInfo, &before[0], &before[1]);
    for (; gm_is_more(worker, worker->done) && worker->mismatches == 0; worker->done++)
        grow(worker, &counter, before, false);
    if (worker->go != NULL)
        worker->bytes = free_bytes(worker) - worker->allocs * (2ull << 20);
    if (worker->go != NULL && worker->mismatches == 0)
        grow(worker, &counter, before, false);
    gm_counter_free(worker, &counter);
}

/* Grow, and have all that is free at once, as a program that loads a model and then takes the rest
 * for what it computes. */
void gm_mode_fill(struct gm_worker *worker)
{
    struct gm_counter counter;
    size_t before[2];
    gm_counter_make(worker, &counter);
    GM_CU(worker, cuMemGetInfo, &before[0], &before[1]);
    for (; gm_is_more(worker, worker->done) && worker->mismatches == 0; worker->done++)
        grow(worker, &counter, before, true);
    gm_counter_free(worker, &counter);
}

/* Have no memory before --go; then all of it, at once. */
void gm_mode_late(struct gm_worker *worker)
{
    struct gm_counter counter;
    gm_counter_make(worker, &counter);
    gm_say_ready(worker);
    struct gm_buffer *buffer = gm_buffers_make(worker, NULL);
    for (; gm_is_more(worker, worker->done) && worker->mismatches == 0; worker->done++) {
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_turn(worker, &buffer[i], &counter, NULL);
        worker->mismatches = gm_counter_read(worker, &counter, NULL);
    }
    gm_buffers_free(worker, buffer);
    gm_counter_free(worker, &counter);
}
