/* gm_worker's modes async and aptds: random stream-ordered allocation. See worker.h. */
#include "tests/programs/worker.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = 12, STREAMS = 3, STEPS = 10 };

struct gm_slot_of {
    struct gm_buffer buffer;
    int stream;
};

struct gm_async {
    struct gm_worker *worker;
    pthread_t thread;
    uint32_t index;
    uint64_t done, skipped, live, random;
    CUstream stream[STREAMS]; /* the first is NULL */
    CUevent event;
    struct gm_counter counter;
    struct gm_slot_of slot[SLOTS];
};

static uint64_t gm_random(struct gm_async *self)
{
    return self->random = gm_next_seed(self->random);
}

static void make(struct gm_async *self, struct gm_slot_of *slot, CUmemoryPool pool)
{
    struct gm_worker *worker = self->worker;
    uint64_t random = gm_random(self), bytes = 256ull << random % 15;
    CUdeviceptr at = 0;
    bytes += ((random >> 8) % bytes) & ~7ull; /* 256 bytes to 8 MiB, and odd */
    slot->stream = (int)((random >> 40) % STREAMS);
    CUstream stream = self->stream[slot->stream];
    if (self->live + bytes > worker->bytes / worker->threads)
        return;
    CUresult result = (random >> 50) % 2
                          ? worker->cu.cuMemAllocAsync(&at, bytes, stream)
                          : worker->cu.cuMemAllocFromPoolAsync(&at, bytes, pool, stream);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        self->skipped++;
        return;
    }
    gm_check(worker, result, "cuMemAllocAsync");
    if (at % 256 != 0)
        gm_fail(worker, "an address that is not aligned");
    slot->buffer = (struct gm_buffer){at, bytes, random};
    gm_buffer_fill(worker, &slot->buffer, stream);
    self->live += slot->buffer.bytes;
}

/* Free in one of the ways that there are, and what is allowed before it. */
static void unmake(struct gm_async *self, struct gm_slot_of *slot)
{
    struct gm_worker *worker = self->worker;
    uint64_t random = gm_random(self) % 8;
    CUstream stream = self->stream[slot->stream], other = self->stream[random % STREAMS];
    gm_buffer_verify(worker, &slot->buffer, &self->counter, stream);
    if (random == 0) {
        GM_CU(worker, cuStreamSynchronize, stream);
        GM_CU(worker, cuMemFree, slot->buffer.at);
    } else if (random < 4) {
        GM_CU(worker, cuEventRecord, self->event, stream);
        GM_CU(worker, cuStreamWaitEvent, other, self->event, 0);
        gm_buffer_turn(worker, &slot->buffer, &self->counter, other);
        GM_CU(worker, cuMemFreeAsync, slot->buffer.at, other);
    } else {
        GM_CU(worker, cuMemFreeAsync, slot->buffer.at, stream);
    }
    self->live -= slot->buffer.bytes;
    slot->buffer.at = 0;
}

static void *run_async(void *argument)
{
    struct gm_async *self = argument;
    struct gm_worker *worker = self->worker;
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    for (int s = 1; s < STREAMS; s++)
        GM_CU(worker, cuStreamCreate, &self->stream[s], s % 2 ? CU_STREAM_NON_BLOCKING : 0);
    GM_CU(worker, cuEventCreate, &self->event, CU_EVENT_DISABLE_TIMING);
    gm_counter_make(worker, &self->counter);
    CUmemoryPool pool = gm_pool_make(worker);
    uint64_t wrong = 0;
    for (; gm_is_more(worker, self->done) && wrong == 0; self->done++) {
        for (int step = 0; step < STEPS; step++) {
            struct gm_slot_of *slot = &self->slot[gm_random(self) % SLOTS];
            if (slot->buffer.at == 0)
                make(self, slot, pool);
            else
                unmake(self, slot);
        }
        for (int i = 0; i < SLOTS; i++)
            if (self->slot[i].buffer.at != 0)
                gm_buffer_turn(worker, &self->slot[i].buffer, &self->counter,
                               self->stream[self->slot[i].stream]);
        for (int s = 0; s < STREAMS; s++)
            wrong = gm_counter_read(worker, &self->counter, self->stream[s]);
        if (gm_random(self) % 4 == 0) {
            GM_CU(worker, cuMemPoolTrimTo, pool, 0);
        } else if (gm_random(self) % 8 == 0) {
            /* its memory outlives it */
            GM_CU(worker, cuMemPoolDestroy, pool);
            pool = gm_pool_make(worker);
        } else if (gm_random(self) % 8 == 0) {
            /* a stream may be gone before what was freed in it */
            int s = 1 + (int)(gm_random(self) % (STREAMS - 1));
            for (int i = 0; i < SLOTS; i++)
                if (self->slot[i].buffer.at != 0 && self->slot[i].stream == s)
                    unmake(self, &self->slot[i]);
            GM_CU(worker, cuStreamDestroy, self->stream[s]);
            GM_CU(worker, cuStreamCreate, &self->stream[s], CU_STREAM_NON_BLOCKING);
        }
    }
    for (int i = 0; i < SLOTS; i++)
        if (self->slot[i].buffer.at != 0)
            unmake(self, &self->slot[i]);
    for (int s = 0; s < STREAMS; s++)
        wrong = gm_counter_read(worker, &self->counter, self->stream[s]);
    worker->mismatches += wrong;
    GM_CU(worker, cuMemPoolDestroy, pool);
    gm_counter_free(worker, &self->counter);
    GM_CU(worker, cuEventDestroy, self->event);
    for (int s = 1; s < STREAMS; s++)
        GM_CU(worker, cuStreamDestroy, self->stream[s]);
    return NULL;
}

/* Threads that allocate and free in streams of their own and in the NULL stream. */
void gm_mode_async(struct gm_worker *worker)
{
    struct gm_async *threads = calloc(worker->threads, sizeof(*threads));
    uint64_t skipped = 0;
    if (threads == NULL)
        gm_fail(worker, "no host memory");
    gm_say_ready(worker);
    for (uint32_t i = 0; i < worker->threads; i++) {
        threads[i].worker = worker;
        threads[i].index = i;
        threads[i].random = gm_mix(worker->seed, 77 + i);
        if (pthread_create(&threads[i].thread, NULL, run_async, &threads[i]) != 0)
            gm_fail(worker, "cannot start a thread");
    }
    for (uint32_t i = 0; i < worker->threads; i++) {
        pthread_join(threads[i].thread, NULL);
        worker->done += threads[i].done;
        skipped += threads[i].skipped;
    }
    printf("skipped=%" PRIu64 "\n", skipped);
    free(threads);
}
