/*
 * How much of its stack a thread needs for each hooked call: one line "SYMBOL BYTES" for each row
 * of hooks.def, the most of all that were made. The calls are made on a thread with a stack of that
 * size, the first of the program among them: each row with zeros, and the ways that a program goes
 * most with real arguments, in rounds. A fault names the call.
 *
 *   gm_stacks KIB ROUNDS   ends with 0; 1: a call failed that must not, or needed more
 */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/programs/kernels_ptx.h"

#define MIB (1ull << 20)
#define PAINT 0x5au
#define OWN 256u /* bytes of a frame of begin and end, at most */

static struct row {
    const char *symbol;
    void *call;
    size_t most;
} rows[] = {
#define GM_HOOK(api, symbol, since, mode, kind, params, args) {#symbol, NULL, 0},
#include "shim/driver/hooks.def"
#undef GM_HOOK
};
#define ROWS (sizeof rows / sizeof rows[0])

static unsigned char *low; /* the stack's end */
static unsigned rounds;
static struct row *now; /* the call that is being made */

static void on_fault(int signal)
{
    static const char text[] = ": its thread needs more stack\n";
    (void)signal;
    if (write(1, now->symbol, strlen(now->symbol)) < 0 || write(1, text, sizeof text - 1) < 0)
        _exit(2);
    _exit(1);
}

/* Paint the stack below the caller. */
__attribute__((noinline)) static void begin(struct row *row)
{
    volatile unsigned char *end = (unsigned char *)__builtin_frame_address(0) - OWN;
    now = row;
    for (volatile unsigned char *at = low; at < end; at++)
        *at = PAINT;
}

__attribute__((noinline)) static void end(void)
{
    unsigned char *frame = __builtin_frame_address(0), *at = low;
    while (at < frame && *at == PAINT)
        at++;
    if (now->most < (size_t)(frame - at))
        now->most = (size_t)(frame - at);
}

static struct row *row_of(const char *symbol)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(rows[i].symbol, symbol) == 0)
            return &rows[i];
    printf("%s is not hooked\n", symbol);
    exit(2);
}

static void need(const char *call, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("%s: %d\n", call, (int)result);
    exit(2);
}

/* A hooked call that must succeed. */
#define DO(symbol, ...)                                                                            \
    do {                                                                                           \
        begin(row_of(#symbol));                                                                    \
        const CUresult result_ = symbol(__VA_ARGS__);                                              \
        end();                                                                                     \
        need(#symbol, result_);                                                                    \
    } while (0)
#define NEED(call) need(#call, call)

static CUcontext context;
static CUmodule module;
static CUfunction fill;

static void launch(CUdeviceptr at, uint64_t bytes, CUstream stream)
{
    uint64_t n = bytes / 8, seed = 3;
    void *params[] = {&at, &n, &seed};
    DO(cuLaunchKernel, fill, 4, 1, 1, 128, 1, 1, 0, stream, params, NULL);
}

static void first_calls(void)
{
    DO(cuInit, 0);
    DO(cuDevicePrimaryCtxRetain, &context, 0);
    NEED(cuCtxSetCurrent(context));
    NEED(cuModuleLoadData(&module, gm_kernels_ptx));
    NEED(cuModuleGetFunction(&fill, module, "gm_fill"));
}

static void plain_memory(void)
{
    CUdeviceptr va[6], base;
    size_t bytes, total;
    unsigned type;
    static char host[4096];
    for (unsigned i = 0; i < 6; i++)
        DO(cuMemAlloc_v2, &va[i], i == 0 ? 4096 : (1 + i) * MIB);
    for (unsigned i = 1; i < 6; i++)
        launch(va[i], MIB, NULL);
    DO(cuMemcpyHtoD_v2, va[1], host, sizeof host);
    DO(cuMemcpyDtoD_v2, va[2], va[1], MIB);
    DO(cuMemsetD8_v2, va[3], 1, MIB);
    DO(cuMemcpyDtoH_v2, host, va[3], sizeof host);
    DO(cuMemGetInfo_v2, &bytes, &total);
    DO(cuDeviceTotalMem_v2, &total, 0);
    DO(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, va[1]);
    DO(cuMemGetAddressRange_v2, &base, &bytes, va[1]);
    DO(cuCtxSynchronize, );
    for (unsigned i = 0; i < 6; i++)
        DO(cuMemFree_v2, va[i]);
    DO(cuMemAllocPitch_v2, &va[0], &bytes, 4 * MIB, 3, 4);
    DO(cuMemFree_v2, va[0]);
    CUresult refused = CUDA_SUCCESS; /* all that could be given back is */
    begin(row_of("cuMemAlloc_v2"));
    refused = cuMemAlloc_v2(&va[0], 1ull << 46);
    end();
    need("more than there is", refused == CUDA_SUCCESS ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS);
    DO(cuMemAllocManaged, &va[0], 2 * MIB, CU_MEM_ATTACH_GLOBAL);
    DO(cuMemFree_v2, va[0]);
    CUipcMemHandle handle;
    DO(cuMemAlloc_v2, &va[0], 4 * MIB);
    DO(cuIpcGetMemHandle, &handle, va[0]);
    DO(cuMemFree_v2, va[0]);
}

static void pools(void)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUdeviceptr va[2];
    CUmemoryPool pool;
    CUstream stream;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DO(cuMemAllocAsync, &va[0], 4 * MIB, stream);
    launch(va[0], MIB, stream);
    DO(cuMemFreeAsync, va[0], stream);
    DO(cuStreamSynchronize, stream);
    DO(cuMemPoolCreate, &pool, &props);
    DO(cuMemAllocFromPoolAsync, &va[0], 40 * MIB, pool, stream);
    DO(cuMemAllocFromPoolAsync, &va[1], MIB, pool, NULL);
    DO(cuMemFreeAsync, va[0], NULL);
    DO(cuMemFreeAsync, va[1], stream);
    DO(cuStreamSynchronize, stream);
    DO(cuMemPoolTrimTo, pool, 0);
    DO(cuMemPoolDestroy, pool);
    DO(cuMemAlloc_v2, &va[0], 4 * MIB);
    DO(cuMemFreeAsync, va[0], stream);
    DO(cuCtxSynchronize, );
    DO(cuStreamDestroy_v2, stream);
}

static void virtual_memory(void)
{
    CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc access = {props.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (unsigned is_shared = 0; is_shared < 2; is_shared++) {
        CUmemGenericAllocationHandle handle;
        CUdeviceptr va;
        int file = -1;
        NEED(cuMemAddressReserve(&va, 8 * MIB, 0, 0, 0));
        DO(cuMemCreate, &handle, 8 * MIB, &props, 0);
        DO(cuMemMap, va, 8 * MIB, 0, handle, 0);
        DO(cuMemSetAccess, va, 8 * MIB, &access, 1);
        launch(va, 8 * MIB, NULL);
        if (is_shared)
            DO(cuMemExportToShareableHandle, &file, handle,
               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        DO(cuCtxSynchronize, );
        DO(cuMemUnmap, va, 8 * MIB);
        DO(cuMemRelease, handle);
        NEED(cuMemAddressFree(va, 8 * MIB));
        if (file >= 0)
            close(file);
    }
}

static void graphs(void)
{
    CUdeviceptr va;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    DO(cuMemAlloc_v2, &va, 2 * MIB);
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DO(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    DO(cuMemsetD8Async, va, 1, MIB, stream);
    DO(cuStreamEndCapture, stream, &graph);
    DO(cuGraphInstantiateWithFlags, &exec, graph, 0);
    DO(cuGraphLaunch, exec, stream);
    DO(cuStreamSynchronize, stream);
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(graph));
    DO(cuStreamDestroy_v2, stream);
    DO(cuMemFree_v2, va);
}

static void contexts(void)
{
    CUcontext other;
    CUdeviceptr va;
    DO(cuCtxCreate_v2, &other, 0, 0);
    DO(cuMemAlloc_v2, &va, 4 * MIB);
    DO(cuCtxDestroy_v2, other);
    NEED(cuCtxSetCurrent(context));
}

/* Zeros, as many as no call has parameters. */
static void with_zeros(struct row *row)
{
    typedef CUresult zeros(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                           uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
    zeros *call;
    CUgraph graph;
    memcpy(&call, &row->call, sizeof call);
    begin(row);
    call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    end();
    if (strstr(row->symbol, "BeginCapture") != NULL)
        cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph);
    if (strstr(row->symbol, "PrimaryCtx") != NULL) {
        NEED(cuDevicePrimaryCtxRetain(&context, 0));
        NEED(cuCtxSetCurrent(context));
        NEED(cuModuleLoadData(&module, gm_kernels_ptx));
        NEED(cuModuleGetFunction(&fill, module, "gm_fill"));
    }
}

static void *run(void *unused)
{
    static char other[1 << 16]; /* for the handler */
    const stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
    (void)unused;
    sigaltstack(&stack, NULL);
    first_calls();
    for (unsigned i = 0; i < rounds; i++) {
        plain_memory();
        pools();
        virtual_memory();
        graphs();
        contexts();
        for (size_t k = 0; k < ROWS; k++)
            if (rows[k].call != NULL)
                with_zeros(&rows[k]);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const size_t guard = 1 << 16, size = argc > 2 ? strtoull(argv[1], NULL, 10) << 10 : 0;
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK};
    pthread_attr_t how;
    pthread_t thread;
    if (size == 0)
        return 2;
    rounds = (unsigned)strtoul(argv[2], NULL, 10);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < ROWS; i++)
        rows[i].call = dlsym(RTLD_DEFAULT, rows[i].symbol); /* the simulated driver lacks some */
    sigaction(SIGSEGV, &action, NULL);
    unsigned char *at =
        mmap(NULL, size + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at, guard, PROT_NONE) != 0)
        return 2;
    low = at + guard;
    pthread_attr_init(&how);
    if (pthread_attr_setstack(&how, low, size) != 0 ||
        pthread_create(&thread, &how, run, NULL) != 0)
        return 2;
    pthread_join(thread, NULL);
    for (size_t i = 0; i < ROWS; i++)
        printf("%s %zu\n", rows[i].symbol, rows[i].most);
    return 0;
}
