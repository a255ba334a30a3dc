/* gm_worker's mode about several devices and contexts. See worker.h. */
#include "tests/programs/worker.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "common/clock.h"

/* What one thread works with: a context of its own on one of the devices. */
struct gm_place {
    struct gm_worker worker; /* a copy, with this place's context, module and kernels */
    struct gm_buffer buffer;
    struct gm_counter counter;
    pthread_t thread;
    uint64_t rounds;
};

/* A context of its own on device `number`, current in this thread, with the kernels and a buffer.
 */
static void open_place(const struct gm_worker *worker, struct gm_place *place, int number,
                       uint64_t bytes)
{
    place->worker = *worker;
    place->worker.seed = gm_mix(worker->seed, 100 + (uint64_t)number);
    place->worker.mismatches = 0;
    GM_CU(worker, cuDeviceGet, &place->worker.device, number);
    GM_CU(worker, cuCtxCreate, &place->worker.context, NULL, 0, place->worker.device);
    gm_load_kernels(&place->worker);
    gm_counter_make(&place->worker, &place->counter);
    gm_buffer_make(&place->worker, &place->buffer, bytes, place->worker.seed, NULL);
    GM_CU(worker, cuCtxSynchronize);
}

/* The memory is left to the context, which takes it along. */
static void close_place(struct gm_place *place)
{
    GM_CU(&place->worker, cuCtxSetCurrent, place->worker.context);
    GM_CU(&place->worker, cuModuleUnload, place->worker.module);
    GM_CU(&place->worker, cuCtxDestroy, place->worker.context);
}

static void *turn(void *argument)
{
    struct gm_place *place = argument;
    const struct gm_worker *worker = &place->worker;
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    for (uint64_t i = 0; i < place->rounds; i++)
        gm_buffer_turn(worker, &place->buffer, &place->counter, NULL);
    place->worker.mismatches = gm_counter_read(worker, &place->counter, NULL);
    return NULL;
}

/* Look at each other's memory, from one device to the other and back; closed again every other
 * time. */
static void look_across(struct gm_worker *worker, struct gm_place *a, struct gm_place *b)
{
    const struct gm_worker *from = &a->worker;
    GM_CU(worker, cuCtxSetCurrent, from->context);
    GM_CU(worker, cuCtxEnablePeerAccess, b->worker.context, 0);
    for (int i = 0; i < 3; i++)
        gm_buffer_verify(from, &b->buffer, &a->counter, NULL);
    worker->mismatches += gm_counter_read(from, &a->counter, NULL);
    if (worker->done % 2 == 0)
        GM_CU(worker, cuCtxDisablePeerAccess, b->worker.context);
}

/* The memory of a pool, which another device may look at from some time on: also what was taken out
 * of it before. */
static void look_into_pool(struct gm_worker *worker)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    struct gm_place place = {0};
    struct gm_buffer buffer = {.bytes = 4 << 20, .seed = worker->seed + 1};
    CUmemoryPool pool = gm_pool_make(worker);
    GM_CU(worker, cuMemAllocFromPoolAsync, &buffer.at, buffer.bytes, pool, NULL);
    gm_buffer_fill(worker, &buffer, NULL);
    GM_CU(worker, cuCtxSynchronize);
    GM_CU(worker, cuMemPoolSetAccess, pool, &access, 1);
    open_place(worker, &place, 1, 4 << 20);
    gm_buffer_verify(&place.worker, &buffer, &place.counter, NULL);
    worker->mismatches += gm_counter_read(&place.worker, &place.counter, NULL);
    close_place(&place);
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    GM_CU(worker, cuMemFreeAsync, buffer.at, NULL);
    GM_CU(worker, cuMemPoolDestroy, pool);
}

/*
 * A kernel in the primary context of device 1 that ends only when the host says so, after --hold,
 * and behind it kernels there that verify memory of device 0: none of it may move meanwhile.
 */
void gm_mode_peer(struct gm_worker *worker)
{
    struct gm_worker beyond = *worker;
    struct gm_counter counter;
    const struct timespec hold = {(time_t)(worker->hold_ns / GM_S), (long)(worker->hold_ns % GM_S)};
    uint32_t *flag = NULL;
    CUdeviceptr flag_at;
    GM_CU(worker, cuDeviceGet, &beyond.device, 1);
    GM_CU(worker, cuDevicePrimaryCtxRetain, &beyond.context, beyond.device);
    GM_CU(worker, cuCtxSetCurrent, beyond.context);
    gm_load_kernels(&beyond);
    gm_counter_make(&beyond, &counter);
    GM_CU(worker, cuMemHostAlloc, (void **)&flag, sizeof(*flag), CU_MEMHOSTALLOC_DEVICEMAP);
    GM_CU(worker, cuMemHostGetDevicePointer, &flag_at, flag, 0);
    GM_CU(worker, cuCtxEnablePeerAccess, worker->context, 0);
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    GM_CU(worker, cuCtxSynchronize);
    GM_CU(worker, cuCtxSetCurrent, beyond.context);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        __atomic_store_n(flag, 0, __ATOMIC_SEQ_CST);
        void *args[] = {&flag_at};
        gm_launch(&beyond, GM_KERNEL_SPIN_UNTIL, NULL, args);
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_verify(&beyond, &buffers[i], &counter, NULL);
        nanosleep(&hold, NULL);
        __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
        worker->mismatches = gm_counter_read(&beyond, &counter, NULL);
    }
    GM_CU(worker, cuMemFreeHost, flag);
    gm_counter_free(&beyond, &counter);
    gm_close_cuda(&beyond);
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    gm_buffers_free(worker, buffers);
}

/*
 * Three contexts besides the first: two on device 0, one on device 1. Each has a thread that works
 * in it; between their turns the content of each goes on to the next, also from one device to the
 * other, and at the end kernels on each device look at the memory of the other. Contexts come and
 * go with each iteration, with what they hold.
 */
void gm_mode_devices(struct gm_worker *worker)
{
    static const int on[] = {0, 1, 0};
    enum { PLACES = sizeof(on) / sizeof(on[0]) };
    int count = 0;
    GM_CU(worker, cuDeviceGetCount, &count);
    if (count < 2)
        gm_fail(worker, "mode devices needs two devices, here %s",
                count == 1 ? "is one" : "is none");

    struct gm_counter counter;
    look_into_pool(worker);
    gm_counter_make(worker, &counter);
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    uint64_t bytes = worker->bytes / worker->allocs;
    for (; gm_is_more(worker, worker->done); worker->done++) {
        struct gm_place *places = calloc(PLACES, sizeof(*places));
        if (places == NULL)
            gm_fail(worker, "no host memory");
        for (int i = 0; i < PLACES; i++) {
            places[i].rounds = 3;
            open_place(worker, &places[i], on[i], bytes / 2);
        }
        for (int step = 0; step < PLACES; step++) {
            for (int i = 0; i < PLACES; i++)
                if (pthread_create(&places[i].thread, NULL, turn, &places[i]) != 0)
                    gm_fail(worker, "no thread");
            for (int i = 0; i < PLACES; i++) {
                pthread_join(places[i].thread, NULL);
                worker->mismatches += places[i].worker.mismatches;
            }
            /* the content of the first goes to the second, of that to the third */
            for (int i = PLACES - 1; i > 0; i--) {
                GM_CU(worker, cuCtxSetCurrent, places[i].worker.context);
                GM_CU(worker, cuMemcpyPeer, places[i].buffer.at, places[i].worker.context,
                      places[i - 1].buffer.at, places[i - 1].worker.context,
                      places[i].buffer.bytes);
                GM_CU(worker, cuCtxSynchronize);
                places[i].buffer.seed = places[i - 1].buffer.seed;
            }
        }
        look_across(worker, &places[1], &places[0]);
        look_across(worker, &places[0], &places[1]);
        for (int i = 0; i < PLACES; i++)
            close_place(&places[i]);
        free(places);
        GM_CU(worker, cuCtxSetCurrent, worker->context);
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_turn(worker, &buffers[i], &counter, NULL);
        worker->mismatches += gm_counter_read(worker, &counter, NULL);
    }
    gm_buffers_free(worker, buffers);
    gm_counter_free(worker, &counter);
}
