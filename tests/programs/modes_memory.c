/* gm_worker's modes about memory. See worker.h. */
#include "tests/programs/worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Every iteration reads and writes all of the memory. */
void gm_mode_verify(struct gm_worker *worker)
{
    struct gm_counter counter;
    gm_counter_make(worker, &counter);
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_turn(worker, &buffers[i], &counter, NULL);
        worker->mismatches = gm_counter_read(worker, &counter, NULL);
        if (worker->mismatches != 0)
            return;
    }
    for (uint32_t i = 0; i < worker->allocs; i++)
        gm_buffer_verify(worker, &buffers[i], &counter, NULL);
    worker->mismatches = gm_counter_read(worker, &counter, NULL);
    gm_buffers_free(worker, buffers);
    gm_counter_free(worker, &counter);
}

/* Add one to every word; the host knows the sum. */
void gm_mode_sweep(struct gm_worker *worker)
{
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        for (uint32_t i = 0; i < worker->allocs; i++) {
            uint64_t words = buffers[i].bytes / 8;
            void *args[] = {&buffers[i].at, &words};
            gm_launch(worker, GM_KERNEL_SWEEP, NULL, args);
        }
        GM_CU(worker, cuCtxSynchronize);
    }
    for (uint32_t i = 0; i < worker->allocs; i++)
        worker->mismatches += gm_buffer_check_host(worker, &buffers[i], worker->done);
    gm_buffers_free(worker, buffers);
}

/* Allocate and free at random, never more than --bytes together; content is checked before a free.
 */
void gm_mode_churn(struct gm_worker *worker)
{
    enum { SLOTS = 24, STEPS = 8 };
    struct gm_buffer slots[SLOTS] = {{0, 0, 0}};
    struct gm_counter counter;
    uint64_t live = 0, random = gm_next_seed(worker->seed), steps = 0;

    gm_counter_make(worker, &counter);
    gm_say_ready(worker);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        for (int step = 0; step < STEPS; step++, steps++) {
            random = gm_next_seed(random);
            struct gm_buffer *slot = &slots[random % SLOTS];
            if (slot->at != 0) {
                gm_buffer_verify(worker, slot, &counter, NULL);
                live -= slot->bytes;
                gm_buffer_free(worker, slot);
                continue;
            }
            /* sizes spread evenly over their powers of two: 4 KiB to 64 MiB, and odd */
            uint64_t bytes = 4096ull << (random >> 8) % 14;
            bytes += (random >> 24) % bytes & ~7ull;
            if (live + bytes > worker->bytes)
                continue;
            gm_buffer_make(worker, slot, bytes, random, NULL);
            live += bytes;
        }
        for (int i = 0; i < SLOTS; i++)
            if (slots[i].at != 0)
                gm_buffer_turn(worker, &slots[i], &counter, NULL);
        worker->mismatches = gm_counter_read(worker, &counter, NULL);
        if (worker->mismatches != 0)
            return;
    }
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].at != 0) {
            worker->mismatches += gm_buffer_check_host(worker, &slots[i], 0);
            gm_buffer_free(worker, &slots[i]);
        }
    gm_counter_free(worker, &counter);
    printf("steps=%" PRIu64 "\n", steps);
}

/* All plain copies and sets: pageable and pinned, synchronous and not, inside the device. */
void gm_mode_copies(struct gm_worker *worker)
{
    uint64_t bytes = worker->bytes / 3 & ~4095ull, words = bytes / 8;
    CUdeviceptr a, b, c;
    uint64_t *out = malloc(bytes), *in = malloc(bytes), *pinned = NULL;
    CUstream stream;
    if (out == NULL || in == NULL)
        gm_fail(worker, "no host memory");
    GM_CU(worker, cuMemAlloc, &a, bytes);
    size_t pitch = 0, rows = bytes >> 12;
    GM_CU(worker, cuMemAllocPitch, &b, &pitch, 4000, rows, 16);
    if (pitch < 4000 || pitch > 8192)
        gm_fail(worker, "a pitch of %zu for a width of 4000", pitch);
    GM_CU(worker, cuMemAlloc, &c, bytes);
    GM_CU(worker, cuMemHostAlloc, (void **)&pinned, bytes, 0);
    GM_CU(worker, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    uint64_t usable = pitch * rows < bytes ? pitch * rows & ~7ull : bytes;
    gm_say_ready(worker);

    for (; gm_is_more(worker, worker->done); worker->done++) {
        uint64_t seed = gm_mix(worker->seed, worker->done), wrong = 0;
        for (uint64_t i = 0; i < words; i++)
            out[i] = gm_mix(seed, i);
        /* host -> a -> b -> host, all synchronous and pageable */
        GM_CU(worker, cuMemcpyHtoD, a, out, bytes);
        GM_CU(worker, cuMemcpyDtoD, b, a, usable);
        GM_CU(worker, cuMemcpyDtoH, in, b, usable);
        for (uint64_t i = 0; i < usable / 8; i++)
            wrong += in[i] != gm_mix(seed, i);
        /* a -> c -> pinned on a stream, then pinned -> b and back */
        GM_CU(worker, cuCtxSynchronize);
        GM_CU(worker, cuMemcpyDtoDAsync, c, a, bytes, stream);
        GM_CU(worker, cuMemcpyDtoHAsync, pinned, c, bytes, stream);
        GM_CU(worker, cuMemsetD32Async, a, 0xabcd0123u, bytes / 4, stream);
        GM_CU(worker, cuStreamSynchronize, stream);
        for (uint64_t i = 0; i < words; i++) {
            wrong += pinned[i] != gm_mix(seed, i);
            pinned[i] = ~pinned[i];
        }
        GM_CU(worker, cuMemcpyHtoDAsync, b, pinned, usable, stream);
        GM_CU(worker, cuStreamSynchronize, stream);
        GM_CU(worker, cuMemcpyDtoH, in, b, usable);
        for (uint64_t i = 0; i < usable / 8; i++)
            wrong += in[i] != ~gm_mix(seed, i);
        GM_CU(worker, cuMemcpyDtoH, in, a, bytes);
        for (uint64_t i = 0; i < words; i++)
            wrong += in[i] != 0xabcd0123abcd0123ull;
        GM_CU(worker, cuMemsetD32, c, 7, bytes / 4);
        GM_CU(worker, cuMemcpyDtoH, in, c, bytes);
        for (uint64_t i = 0; i < words; i++)
            wrong += in[i] != 0x0000000700000007ull;
        worker->mismatches += wrong;
    }
    GM_CU(worker, cuStreamDestroy, stream);
    GM_CU(worker, cuMemFreeHost, pinned);
    GM_CU(worker, cuMemFree, c);
    GM_CU(worker, cuMemFree, b);
    GM_CU(worker, cuMemFree, a);
    free(in);
    free(out);
}

/*
 * Allocate pieces of --bytes / --allocs until there is no more, at most 16 times --bytes. That must
 * end in CUDA_ERROR_OUT_OF_MEMORY and nothing else, and the program must go on with what it has.
 */
void gm_mode_oom(struct gm_worker *worker)
{
    uint64_t piece = worker->bytes / worker->allocs & ~7ull;
    uint32_t most = worker->allocs * 16, n = 0;
    struct gm_buffer *buffers = calloc(most, sizeof(*buffers));
    struct gm_counter counter;
    if (buffers == NULL)
        gm_fail(worker, "no host memory");
    gm_counter_make(worker, &counter);
    gm_say_ready(worker);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        CUresult result = CUDA_SUCCESS;
        while (n < most) {
            CUdeviceptr at = 0;
            result = worker->cu.cuMemAlloc(&at, piece);
            if (result != CUDA_SUCCESS)
                break;
            buffers[n] = (struct gm_buffer){at, piece, gm_mix(worker->seed, n)};
            uint64_t words = piece / 8;
            void *args[] = {&buffers[n].at, &words, &buffers[n].seed};
            gm_launch(worker, GM_KERNEL_FILL, NULL, args);
            n++;
        }
        if (result == CUDA_SUCCESS)
            gm_fail(worker, "memory was never out: %" PRIu64 " bytes allocated", n * piece);
        if (result != CUDA_ERROR_OUT_OF_MEMORY)
            GM_CU(worker, cuMemAlloc, &(CUdeviceptr){0}, piece); /* names the error */
        printf("out of memory after %" PRIu64 " bytes\n", n * piece);
        fflush(stdout);
        if (n == 0)
            gm_fail(worker, "no memory at all");
        for (uint32_t i = 0; i < n; i++)
            gm_buffer_turn(worker, &buffers[i], &counter, NULL);
        worker->mismatches = gm_counter_read(worker, &counter, NULL);
        /* give a part back; the next round takes it again */
        uint32_t keep = n / 2;
        while (n > keep)
            gm_buffer_free(worker, &buffers[--n]);
    }
    while (n > 0)
        gm_buffer_free(worker, &buffers[--n]);
    gm_counter_free(worker, &counter);
    free(buffers);
}

/* What the program is told about memory, before and after it takes some. */
void gm_mode_info(struct gm_worker *worker)
{
    size_t free_before, free_during, free_after, total, device_total;
    GM_CU(worker, cuMemGetInfo, &free_before, &total);
    GM_CU(worker, cuDeviceTotalMem, &device_total, worker->device);
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    GM_CU(worker, cuMemGetInfo, &free_during, &total);
    gm_buffers_free(worker, buffers);
    GM_CU(worker, cuMemGetInfo, &free_after, &total);
    printf("total=%zu device_total=%zu free_before=%zu free_during=%zu free_after=%zu\n", total,
           device_total, free_before, free_during, free_after);
    worker->done = 1;
}
