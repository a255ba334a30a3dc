/*
 * gm_worker's modes about what a program asks: pointers, memory information by CUDA and NVML, and
 * memory that stays the driver's (managed, arrays, of graphs). See worker.h.
 */
#include "tests/programs/worker.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/chunk.h"
#include "common/clock.h"

/* ---- steps that the test takes with the program ---- */

/* Wait for the file --signal.NAME. */
static void await_signal(const struct gm_worker *worker, const char *name)
{
    const struct timespec pause = {.tv_nsec = 10 * (long)GM_MS};
    char path[512];
    if (worker->signal == NULL)
        return;
    snprintf(path, sizeof(path), "%s.%s", worker->signal, name);
    while (access(path, F_OK) != 0)
        nanosleep(&pause, NULL);
}

/* Make the file --signal.NAME. */
static void give_signal(const struct gm_worker *worker, const char *name)
{
    char path[512];
    if (worker->signal == NULL)
        return;
    snprintf(path, sizeof(path), "%s.%s", worker->signal, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        gm_fail(worker, "cannot make %s", path);
    close(fd);
}

#define MUST(worker, condition)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            gm_fail(worker, "line %d: not so: %s", __LINE__, #condition);                          \
    } while (0)

/* ---- a program that has next to no work ---- */

static void ask_once(const struct gm_worker *worker, CUstream stream, CUevent event, CUdeviceptr at)
{
    size_t free_bytes, total;
    unsigned type;
    if (strcmp(worker->mode, "asks-events") == 0) {
        GM_CU(worker, cuEventQuery, event);
        GM_CU(worker, cuStreamQuery, stream);
    } else if (strcmp(worker->mode, "asks-memory") == 0) {
        GM_CU(worker, cuMemGetInfo, &free_bytes, &total);
        GM_CU(worker, cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    } else if (strcmp(worker->mode, "asks-syncs") == 0) {
        GM_CU(worker, cuStreamSynchronize, stream);
        GM_CU(worker, cuCtxSynchronize);
    } else if (strcmp(worker->mode, "asks-records") == 0) {
        GM_CU(worker, cuEventRecord, event, stream);
        GM_CU(worker, cuEventSynchronize, event);
    } else {
        gm_launch(worker, GM_KERNEL_EMPTY, stream, NULL);
    }
}

void gm_mode_asks(struct gm_worker *worker)
{
    struct gm_counter counter;
    CUstream stream;
    CUevent event;
    gm_counter_make(worker, &counter);
    GM_CU(worker, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    GM_CU(worker, cuEventCreate, &event, CU_EVENT_DEFAULT);
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    for (; gm_is_more(worker, worker->done); worker->done++)
        ask_once(worker, stream, event, buffers[0].at);
    for (uint32_t i = 0; i < worker->allocs; i++)
        gm_buffer_verify(worker, &buffers[i], &counter, NULL);
    worker->mismatches = gm_counter_read(worker, &counter, NULL);
    gm_buffers_free(worker, buffers);
    GM_CU(worker, cuEventDestroy, event);
    GM_CU(worker, cuStreamDestroy, stream);
    gm_counter_free(worker, &counter);
}

/* ---- pointers ---- */

#define ATTRIBUTE_MAX CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE

/* A value of any attribute; `result` in the same place. */
struct answer {
    CUresult result;
    unsigned long long value;
};

static struct answer ask(const struct gm_worker *worker, CUpointer_attribute attribute,
                         CUdeviceptr at)
{
    struct answer answer = {0};
    answer.result = worker->cu.cuPointerGetAttribute(&answer.value, attribute, at);
    return answer;
}

static unsigned long long number(const struct gm_worker *worker, CUpointer_attribute attribute,
                                 CUdeviceptr at)
{
    struct answer answer = ask(worker, attribute, at);
    if (answer.result != CUDA_SUCCESS)
        gm_fail(worker, "attribute %d: error %d", (int)attribute, (int)answer.result);
    return answer.value;
}

/* Who may reach linear memory. For the host the answer is that for the device of its number. */
static void check_access(const struct gm_worker *worker, CUdeviceptr at)
{
    const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, worker->device},
                        host = {CU_MEM_LOCATION_TYPE_HOST, worker->device},
                        nobody = {CU_MEM_LOCATION_TYPE_DEVICE, 99};
    unsigned long long allowed = 0, of_host = 0;
    GM_CU(worker, cuMemGetAccess, &allowed, &here, at);
    GM_CU(worker, cuMemGetAccess, &of_host, &host, at);
    MUST(worker, allowed == CU_MEM_ACCESS_FLAGS_PROT_READWRITE && of_host == allowed);
    MUST(worker, worker->cu.cuMemGetAccess(&allowed, &nobody, at) == CUDA_ERROR_INVALID_DEVICE);
    MUST(worker, worker->cu.cuMemGetAccess(NULL, &here, at) == CUDA_ERROR_INVALID_VALUE);
}

/* Everything that is asked about [base, base + bytes), which is linear memory, from `inside`. */
static void check_linear(const struct gm_worker *worker, CUdeviceptr base, size_t bytes,
                         CUdeviceptr inside)
{
    CUdeviceptr start = 0;
    size_t size = 0;
    GM_CU(worker, cuMemGetAddressRange, &start, &size, inside);
    MUST(worker, start == base && size == bytes);
    GM_CU(worker, cuMemGetAddressRange, NULL, NULL, inside);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_CONTEXT, inside) ==
                     (unsigned long long)(uintptr_t)worker->context);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside) == CU_MEMORYTYPE_DEVICE);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside) == inside);
    MUST(worker,
         ask(worker, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside).result == CUDA_ERROR_INVALID_VALUE);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_IS_MANAGED, inside) == 0);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside) ==
                     (unsigned long long)worker->device);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside) == 1);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside) == base);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside) == bytes);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_MAPPED, inside) == 1);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside) == 0);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside) ==
                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside) == 0);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside) == base);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside) == bytes);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_BUFFER_ID, inside) ==
                     number(worker, CU_POINTER_ATTRIBUTE_BUFFER_ID, base));

    if (bytes >= GM_SMALL_MAX)
        check_access(worker, inside);

    /* several at once: what does not apply is 0, and nothing beside the values is written */
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_HOST_POINTER,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,
    };
    struct {
        unsigned type, guard;
        void *host;
        int ordinal;
        unsigned guard_2;
        size_t size;
        unsigned is_managed, guard_3;
    } got = {77, 77, &got, 77, 77, 77, 77, 77};
    void *data[] = {&got.type, &got.host, &got.ordinal, &got.size, &got.is_managed};
    GM_CU(worker, cuPointerGetAttributes, 5, names, data, inside);
    MUST(worker, got.type == CU_MEMORYTYPE_DEVICE && got.host == NULL &&
                     got.ordinal == worker->device && got.size == bytes && got.is_managed == 0);
    MUST(worker, got.guard == 77 && got.guard_2 == 77 && got.guard_3 == 77);
    MUST(worker,
         worker->cu.cuPointerGetAttributes(5, names, NULL, inside) == CUDA_ERROR_INVALID_VALUE);
    MUST(worker,
         worker->cu.cuPointerGetAttributes(0, names, data, inside) == CUDA_ERROR_INVALID_VALUE);
    MUST(worker, worker->cu.cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside) ==
                     CUDA_ERROR_INVALID_VALUE);
}

/* Set and read back. */
static void check_sync_memops(const struct gm_worker *worker, CUdeviceptr at, unsigned value)
{
    GM_CU(worker, cuPointerSetAttribute, &value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at) == value);
    MUST(worker, worker->cu.cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) ==
                     CUDA_ERROR_INVALID_VALUE);
    MUST(worker, worker->cu.cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at) ==
                     CUDA_ERROR_INVALID_VALUE);
}

/* Asks on and on about the buffers while the program works on them. */
struct asker {
    const struct gm_worker *worker;
    const struct gm_buffer *buffers;
    _Atomic bool is_over;
    pthread_t thread;
};

static void *keep_asking(void *argument)
{
    struct asker *asker = argument;
    const struct timespec pause = {.tv_nsec = (long)GM_MS};
    GM_CU(asker->worker, cuCtxSetCurrent, asker->worker->context);
    while (!atomic_load(&asker->is_over)) {
        for (uint32_t i = 0; i < asker->worker->allocs; i++) {
            const struct gm_buffer *buffer = &asker->buffers[i];
            check_linear(asker->worker, buffer->at, buffer->bytes, buffer->at + buffer->bytes / 3);
        }
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/*
 * Ask all there is about device memory: large and small, from its first to its last byte, host
 * memory and nothing at all. Once at the start; once when --signal.ask comes, between which the
 * test pauses the program and has its memory swapped out; then it says --signal.asked, and works
 * on, beside --threads threads that keep asking.
 */
void gm_mode_pointers(struct gm_worker *worker)
{
    struct gm_counter counter;
    void *host;
    CUdeviceptr small, freed;
    gm_counter_make(worker, &counter);
    GM_CU(worker, cuMemAlloc, &freed, 4ull << 20);
    unsigned long long old_id = number(worker, CU_POINTER_ATTRIBUTE_BUFFER_ID, freed);
    GM_CU(worker, cuMemFree, freed);
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    GM_CU(worker, cuMemAlloc, &small, 1000);
    GM_CU(worker, cuMemHostAlloc, &host, 4096, 0);

    for (unsigned round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < worker->allocs; i++) {
            const struct gm_buffer *buffer = &buffers[i];
            check_linear(worker, buffer->at, buffer->bytes, buffer->at);
            check_linear(worker, buffer->at, buffer->bytes, buffer->at + buffer->bytes / 2);
            check_linear(worker, buffer->at, buffer->bytes, buffer->at + buffer->bytes - 1);
            MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_BUFFER_ID, buffer->at) != old_id);
            for (uint32_t j = 0; j < i; j++)
                MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_BUFFER_ID, buffer->at) !=
                                 number(worker, CU_POINTER_ATTRIBUTE_BUFFER_ID, buffers[j].at));
            check_sync_memops(worker, buffer->at + 8, 1 - round);
            check_sync_memops(worker, buffer->at + 8, round);
        }
        check_linear(worker, small, 1000, small + 999);
        check_sync_memops(worker, small, 1);
        CUdeviceptr in_host = (CUdeviceptr)(uintptr_t)host + 8;
        MUST(worker,
             number(worker, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, in_host) == CU_MEMORYTYPE_HOST);
        MUST(worker, ask(worker, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 4096).result ==
                         CUDA_ERROR_INVALID_VALUE);
        if (round == 0) {
            gm_say_ready(worker);
            await_signal(worker, "ask");
        } else {
            give_signal(worker, "asked");
        }
    }
    struct asker *askers = calloc(worker->threads, sizeof(*askers));
    MUST(worker, askers != NULL || worker->threads == 0);
    for (uint32_t i = 0; i < worker->threads; i++) {
        askers[i].worker = worker;
        askers[i].buffers = buffers;
        MUST(worker, pthread_create(&askers[i].thread, NULL, keep_asking, &askers[i]) == 0);
    }
    for (; gm_is_more(worker, worker->done); worker->done++) {
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_turn(worker, &buffers[i], &counter, NULL);
        worker->mismatches = gm_counter_read(worker, &counter, NULL);
        if (worker->mismatches != 0)
            gm_fail(worker, "wrong data");
    }
    for (uint32_t i = 0; i < worker->threads; i++) {
        atomic_store(&askers[i].is_over, true);
        pthread_join(askers[i].thread, NULL);
    }
    free(askers);
    CUdeviceptr gone = buffers[0].at;
    GM_CU(worker, cuMemFreeHost, host);
    GM_CU(worker, cuMemFree, small);
    gm_buffers_free(worker, buffers);
    gm_counter_free(worker, &counter);
    MUST(worker,
         ask(worker, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, gone).result == CUDA_ERROR_INVALID_VALUE);
    MUST(worker, worker->cu.cuMemGetAddressRange(NULL, NULL, gone) == CUDA_ERROR_NOT_FOUND);
}

/* ---- NVML ---- */

struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_memory_v2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};

static void *find(const struct gm_worker *worker, void *library, const char *name)
{
    void *function = gm_driver_find(library, name);
    if (function == NULL)
        gm_fail(worker, "NVML has no %s", name);
    return function;
}

struct nvml_process {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
};

struct nvml {
    void *device;
    int (*list)(void *, unsigned int *, struct nvml_process *);
    int (*info)(void *, struct nvml_memory *);
    int (*info_2)(void *, struct nvml_memory_v2 *);
};

static void print_nvml(const struct gm_worker *worker, const struct nvml *nvml, const char *when)
{
    struct nvml_memory one = {0};
    struct nvml_memory_v2 two = {.version = 40u | 2u << 24}, bad = {.version = 40u | 1u << 24};
    size_t has_free = 0, total = 0, device_total = 0;
    MUST(worker, nvml->info(nvml->device, &one) == 0);
    MUST(worker, nvml->info_2(nvml->device, &two) == 0);
    MUST(worker, nvml->info_2(nvml->device, &bad) == 25 && bad.total == 0);
    MUST(worker, nvml->info(nvml->device, NULL) == 2);
    MUST(worker, nvml->info(NULL, &one) == 2);
    MUST(worker, one.total == one.free + one.used);
    MUST(worker, two.total == two.free + two.used + two.reserved && two.total == one.total);
    MUST(worker, two.free == one.free && two.version == (40u | 2u << 24));
    if (worker->cu.cuMemGetInfo(&has_free, &total) != CUDA_SUCCESS)
        total = 0; /* no context yet */
    if (worker->cu.cuDeviceTotalMem(&device_total, worker->device) != CUDA_SUCCESS)
        device_total = 0;
    struct nvml_process processes[64];
    unsigned int n = 64;
    unsigned long long own = 0, all = 0;
    MUST(worker, nvml->list(nvml->device, &n, processes) == 0);
    for (unsigned int i = 0; i < n; i++) {
        all += processes[i].used;
        own += processes[i].pid == (unsigned int)getpid() ? processes[i].used : 0;
    }
    printf("%s nvml_total=%llu nvml_free=%llu total=%zu free=%zu device_total=%zu process=%llu "
           "processes=%llu\n",
           when, one.total, one.free, total, has_free, device_total, own, all);
}

/* What NVML says before CUDA is initialized, before there is a context, and around an allocation.
 */
void gm_mode_nvml(struct gm_worker *worker)
{
    struct nvml nvml;
    int (*init)(void), (*get)(unsigned, void **), (*shutdown)(void);
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (library == NULL)
        gm_fail(worker, "no libnvidia-ml.so.1");
    *(void **)&init = find(worker, library, "nvmlInit_v2");
    *(void **)&get = find(worker, library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&shutdown = find(worker, library, "nvmlShutdown");
    *(void **)&nvml.info = find(worker, library, "nvmlDeviceGetMemoryInfo");
    *(void **)&nvml.list = find(worker, library, "nvmlDeviceGetComputeRunningProcesses_v3");
    *(void **)&nvml.info_2 = find(worker, library, "nvmlDeviceGetMemoryInfo_v2");
    MUST(worker, nvml.info(NULL, &(struct nvml_memory){0}) == 1); /* not initialized */
    MUST(worker, init() == 0 && get(0, &nvml.device) == 0);
    print_nvml(worker, &nvml, "before:");
    gm_check(worker, worker->cu.cuInit(0), "cuInit");
    print_nvml(worker, &nvml, "initialized:");
    gm_open_cuda(worker);
    print_nvml(worker, &nvml, "context:");
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    print_nvml(worker, &nvml, "allocated:");
    gm_say_ready(worker);
    gm_buffers_free(worker, buffers);
    print_nvml(worker, &nvml, "freed:");
    gm_close_cuda(worker);
    MUST(worker, shutdown() == 0);
    MUST(worker, nvml.info(nvml.device, &(struct nvml_memory){0}) == 1);
    worker->done = 1;
}

/* ---- what the driver takes by itself ---- */

static void print_free(const struct gm_worker *worker, const char *when)
{
    size_t has_free = 0, total = 0;
    GM_CU(worker, cuMemGetInfo, &has_free, &total);
    printf("%s free=%zu\n", when, has_free);
    fflush(stdout);
}

/*
 * A module with a variable of --bytes, then a stack of 2 KiB for each thread. Says ready with both,
 * and gives them back when --signal.end comes.
 */
void gm_mode_taken(struct gm_worker *worker)
{
    char text[256];
    CUmodule module;
    CUcontext second;
    snprintf(text, sizeof(text),
             ".version 7.0\n.target sm_70\n.address_size 64\n"
             ".visible .global .align 16 .b8 gm_array[%llu];\n",
             (unsigned long long)worker->bytes);
    print_free(worker, "before:");
    GM_CU(worker, cuModuleLoadData, &module, text);
    print_free(worker, "module:");
    GM_CU(worker, cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 2048);
    print_free(worker, "stack:");
    GM_CU(worker, cuCtxCreate, &second, NULL, 0, worker->device);
    print_free(worker, "context:");
    GM_CU(worker, cuCtxDestroy, second);
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    gm_say_ready(worker);
    await_signal(worker, "end");
    GM_CU(worker, cuModuleUnload, module);
    GM_CU(worker, cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 1024);
    print_free(worker, "after:");
    worker->done = 1;
}

/* ---- memory that stays the driver's ---- */

static CUarray make_array(const struct gm_worker *worker, size_t width, size_t height)
{
    CUDA_ARRAY_DESCRIPTOR descriptor = {
        .Width = width, .Height = height, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array;
    GM_CU(worker, cuArrayCreate, &array, &descriptor);
    return array;
}

/* A graph that takes `bytes` and gives them back, launched once. */
static CUgraphExec launch_graph(const struct gm_worker *worker, size_t bytes, CUgraph *graph)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device}},
        .bytesize = bytes};
    CUgraphNode taken, freed;
    CUgraphExec exec;
    GM_CU(worker, cuGraphCreate, graph, 0);
    GM_CU(worker, cuGraphAddMemAllocNode, &taken, *graph, NULL, 0, &params);
    GM_CU(worker, cuGraphAddMemFreeNode, &freed, *graph, &taken, 1, params.dptr);
    GM_CU(worker, cuGraphInstantiateWithFlags, &exec, *graph, 0);
    GM_CU(worker, cuGraphLaunch, exec, NULL);
    GM_CU(worker, cuCtxSynchronize);
    return exec;
}

/*
 * Of each kind of unswappable memory one piece of --bytes / 8, and a chunked allocation beside it.
 * Says ready; when --signal.ask comes it launches again and gives everything back, and says
 * --signal.asked; ends when --signal.end comes.
 */
void gm_mode_unswappable(struct gm_worker *worker)
{
    const size_t piece = worker->bytes / 8 & ~((2ull << 20) - 1);
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {
        .Width = 1024, .Height = piece / 2 / 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUdeviceptr managed, chunked;
    CUmipmappedArray mipmap;
    CUgraph graph;
    size_t before, during, after, total;
    const size_t half = piece / 2;

    GM_CU(worker, cuMemGetInfo, &before, &total);
    GM_CU(worker, cuMemAlloc, &chunked, piece);
    GM_CU(worker, cuMemAllocManaged, &managed, piece, CU_MEM_ATTACH_GLOBAL);
    MUST(worker, number(worker, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed) == 1);
    CUarray array = make_array(worker, 1024, half / 4096);
    GM_CU(worker, cuMipmappedArrayCreate, &mipmap, &descriptor, 1);
    GM_CU(worker, cuMemGetInfo, &during, &total);
    /* managed memory takes nothing; the arrays and the chunks do */
    MUST(worker, before - during == 2 * piece);
    CUgraphExec exec = launch_graph(worker, piece, &graph);
    memset((void *)(uintptr_t)managed, 5, piece); /* the host may use it at any time */
    gm_say_ready(worker);

    await_signal(worker, "ask");
    GM_CU(worker, cuGraphLaunch, exec, NULL); /* its memory may have been trimmed meanwhile */
    GM_CU(worker, cuCtxSynchronize);
    GM_CU(worker, cuArrayDestroy, array);
    GM_CU(worker, cuMipmappedArrayDestroy, mipmap);
    GM_CU(worker, cuMemFree, managed);
    MUST(worker, worker->cu.cuMemFree(managed) == CUDA_ERROR_INVALID_VALUE);
    GM_CU(worker, cuGraphExecDestroy, exec);
    GM_CU(worker, cuGraphDestroy, graph);
    GM_CU(worker, cuDeviceGraphMemTrim, worker->device);
    GM_CU(worker, cuMemFree, chunked);
    GM_CU(worker, cuMemGetInfo, &after, &total);
    printf("free: %zu before, %zu during, %zu after\n", before, during, after);
    give_signal(worker, "asked");
    await_signal(worker, "end");
    worker->done = 1;
}

/* Where the driver was told last to put it: -1 the host, 0 and above a device, -2 mixed or never.
 */
static int place_of(const struct gm_worker *worker, CUdeviceptr at, size_t bytes)
{
    int place = 99;
    GM_CU(worker, cuMemRangeGetAttribute, &place, sizeof(place),
          CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at, bytes);
    return place;
}

/*
 * Managed memory beside chunked memory: three pieces of --bytes / 4, one without advice, one that
 * shall stay on the device, one that the program itself put on the host. Each iteration checks and
 * rewrites all of it through kernels. A thread of the program watches where the first and the
 * second piece are, from outside the gate; the last line says what it saw.
 */
void gm_mode_managed(struct gm_worker *worker)
{
    struct gm_counter counter;
    struct gm_buffer buffers[4];
    const uint64_t bytes = worker->bytes / 4 & ~4095ull;
    const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device};
    uint64_t words = bytes / 8;

    gm_counter_make(worker, &counter);
    for (int i = 0; i < 4; i++) {
        buffers[i] = (struct gm_buffer){.bytes = bytes, .seed = gm_mix(worker->seed, (uint64_t)i)};
        if (i < 3)
            GM_CU(worker, cuMemAllocManaged, &buffers[i].at, bytes, CU_MEM_ATTACH_GLOBAL);
        else
            GM_CU(worker, cuMemAlloc, &buffers[i].at, bytes);
        void *args[] = {&buffers[i].at, &words, &buffers[i].seed};
        gm_launch(worker, GM_KERNEL_FILL, NULL, args);
    }
    GM_CU(worker, cuMemAdvise, buffers[1].at, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here);
    GM_CU(worker, cuMemPrefetchAsync, buffers[0].at, bytes, here, 0, NULL);
    GM_CU(worker, cuMemPrefetchAsync, buffers[1].at, bytes, here, 0, NULL);
    GM_CU(worker, cuMemPrefetchAsync, buffers[2].at, bytes, host, 0, NULL);
    GM_CU(worker, cuCtxSynchronize);
    gm_say_ready(worker);

    if (worker->signal != NULL) {
        await_signal(worker, "ask"); /* the program is paused, and asks without waiting */
        int paused = place_of(worker, buffers[0].at, bytes);
        int kept = place_of(worker, buffers[1].at, bytes);
        int own = place_of(worker, buffers[2].at, bytes);
        /* the host may use it meanwhile */
        MUST(worker, ((const uint64_t *)(uintptr_t)buffers[0].at)[7] == gm_mix(buffers[0].seed, 7));
        printf("paused: first=%d kept=%d own=%d\n", paused, kept, own);
        fflush(stdout);
        give_signal(worker, "asked");
    }
    for (; gm_is_more(worker, worker->done); worker->done++) {
        for (int i = 0; i < 4; i++)
            gm_buffer_turn(worker, &buffers[i], &counter, NULL);
        worker->mismatches = gm_counter_read(worker, &counter, NULL);
        if (worker->mismatches != 0)
            return;
    }
    if (worker->signal != NULL) {
        const struct timespec pause = {.tv_nsec = 10 * (long)GM_MS};
        while (place_of(worker, buffers[0].at, bytes) != worker->device)
            nanosleep(&pause, NULL); /* what went out comes in when the gate is open again */
        printf("running: first=%d kept=%d own=%d\n", place_of(worker, buffers[0].at, bytes),
               place_of(worker, buffers[1].at, bytes), place_of(worker, buffers[2].at, bytes));
    }
    for (int i = 0; i < 4; i++) {
        worker->mismatches += gm_buffer_check_host(worker, &buffers[i], 0);
        GM_CU(worker, cuMemFree, buffers[i].at);
    }
    gm_counter_free(worker, &counter);
}
