/* gm_worker's modes pools, what memory pools promise, one by one, and beside. See worker.h. */
#include "tests/programs/worker.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB (1ull << 10)
#define MIB (1ull << 20)

CUmemoryPool gm_pool_make(const struct gm_worker *worker)
{
    CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device}};
    CUmemoryPool pool = NULL;
    GM_CU(worker, cuMemPoolCreate, &pool, &props);
    return pool;
}

static void fill(const struct gm_worker *worker, struct gm_buffer *buffer, CUdeviceptr at,
                 uint64_t bytes, uint64_t seed, CUstream stream)
{
    *buffer = (struct gm_buffer){.at = at, .bytes = bytes, .seed = seed};
    gm_buffer_fill(worker, buffer, stream);
}

struct gm_rules {
    struct gm_worker *worker;
    CUmemoryPool pool;
    CUstream a, b;
    uint32_t *flag;
    CUdeviceptr flag_at;
    struct gm_counter counter;
};

static void expect(const struct gm_worker *worker, const char *what, CUresult result,
                   CUresult wanted)
{
    if (result != wanted)
        gm_fail(worker, "%s: %d, not %d", what, (int)result, (int)wanted);
}

static uint64_t number(const struct gm_rules *rules, CUmemPool_attribute attribute)
{
    cuuint64_t value = UINT64_MAX;
    GM_CU(rules->worker, cuMemPoolGetAttribute, rules->pool, attribute, &value);
    return value;
}

static CUdeviceptr take(const struct gm_rules *rules, uint64_t bytes, CUstream stream)
{
    CUdeviceptr at = 0;
    GM_CU(rules->worker, cuMemAllocFromPoolAsync, &at, bytes, rules->pool, stream);
    return at;
}

/* Keep stream `a` busy until release. */
static void block(const struct gm_rules *rules)
{
    void *args[] = {(void *)(uintptr_t)&rules->flag_at};
    __atomic_store_n(rules->flag, 0, __ATOMIC_SEQ_CST);
    gm_launch(rules->worker, GM_KERNEL_SPIN_UNTIL, rules->a, args);
}

static void release(const struct gm_rules *rules)
{
    __atomic_store_n(rules->flag, 1, __ATOMIC_SEQ_CST);
}

static void check_errors(struct gm_rules *rules)
{
    const struct gm_worker *worker = rules->worker;
    const struct gm_driver *cu = &worker->cu;
    CUdeviceptr at = 1, base = 0;
    size_t size = 0;
    expect(worker, "no bytes", cu->cuMemAllocAsync(&at, 0, rules->a), CUDA_SUCCESS);
    if (at != 0)
        gm_fail(worker, "no bytes at an address");
    GM_CU(worker, cuMemFreeAsync, at, rules->a);
    expect(worker, "no pointer", cu->cuMemAllocAsync(NULL, 512, rules->a),
           CUDA_ERROR_INVALID_VALUE);
    expect(worker, "no pool", cu->cuMemAllocFromPoolAsync(&at, 512, NULL, rules->a),
           CUDA_ERROR_INVALID_VALUE);
    expect(worker, "more than there is", cu->cuMemAllocAsync(&at, 1ull << 40, rules->a),
           CUDA_ERROR_OUT_OF_MEMORY);
    at = take(rules, 3 * MIB + 8, rules->a);
    GM_CU(worker, cuMemGetAddressRange, &base, &size, at + 5);
    if (base != at || size != 3 * MIB + 8)
        gm_fail(worker, "a range of %zu bytes", size);
    expect(worker, "free inside", cu->cuMemFreeAsync(at + 512, rules->a), CUDA_ERROR_INVALID_VALUE);
    expect(worker, "free inside, at once", cu->cuMemFree(at + 512), CUDA_ERROR_INVALID_VALUE);
    GM_CU(worker, cuMemFreeAsync, at, rules->a);
    expect(worker, "free twice", cu->cuMemFreeAsync(at, rules->a), CUDA_ERROR_INVALID_VALUE);
    expect(worker, "free again, at once", cu->cuMemFree(at), CUDA_ERROR_INVALID_VALUE);
    GM_CU(worker, cuStreamSynchronize, rules->a);
    at = take(rules, MIB, rules->a);
    GM_CU(worker, cuStreamSynchronize, rules->a);
    GM_CU(worker, cuMemFree, at);
    expect(worker, "free twice, at once", cu->cuMemFree(at), CUDA_ERROR_INVALID_VALUE);
    expect(worker, "a range of nothing", cu->cuMemGetAddressRange(&base, &size, at),
           CUDA_ERROR_NOT_FOUND);
    /* what cuMemAlloc made */
    GM_CU(worker, cuMemAlloc, &at, 5 * MIB);
    expect(worker, "free chunks inside", cu->cuMemFreeAsync(at + 512, rules->a),
           CUDA_ERROR_INVALID_VALUE);
    GM_CU(worker, cuMemFreeAsync, at, rules->a);
    GM_CU(worker, cuStreamSynchronize, rules->a); /* the driver takes a second one until then */
    expect(worker, "free chunks twice", cu->cuMemFreeAsync(at, rules->a), CUDA_ERROR_INVALID_VALUE);
    /* the driver's own; behind work it takes a second free, of which nothing good comes */
    GM_CU(worker, cuMemAlloc, &at, 512);
    GM_CU(worker, cuMemFreeAsync, at, rules->a);
}

/* Memory that is freed behind running work is nobody's but its own stream's. */
static void check_order(struct gm_rules *rules)
{
    const struct gm_worker *worker = rules->worker;
    struct gm_buffer in_a, in_b;
    block(rules);
    CUdeviceptr first = take(rules, MIB, rules->a);
    fill(worker, &in_a, first, MIB, 5, rules->a); /* runs when `a` is released */
    GM_CU(worker, cuMemFreeAsync, first, rules->a);
    CUdeviceptr second = take(rules, MIB, rules->b);
    fill(worker, &in_b, second, MIB, 6, rules->b);
    GM_CU(worker, cuStreamSynchronize, rules->b); /* it does not wait for `a` */
    release(rules);
    GM_CU(worker, cuStreamSynchronize, rules->a);
    gm_buffer_verify(worker, &in_b, &rules->counter, rules->b);
    GM_CU(worker, cuMemFreeAsync, second, rules->b);
    if (gm_counter_read(worker, &rules->counter, rules->b) != 0)
        gm_fail(worker, "memory of one stream was given to another");
    GM_CU(worker, cuMemFreeAsync, take(rules, 64, rules->a), rules->a);
}

/* Freed without a stream after it was reused in one: what ran before is still running. */
static void check_inherited(struct gm_rules *rules)
{
    const struct gm_worker *worker = rules->worker;
    struct gm_buffer in_a, in_b;
    block(rules);
    CUdeviceptr first = take(rules, MIB, rules->a);
    fill(worker, &in_a, first, MIB, 5, rules->a);
    GM_CU(worker, cuMemFreeAsync, first, rules->a);
    CUdeviceptr again = take(rules, MIB, rules->a);
    GM_CU(worker, cuMemFree, again); /* never touched */
    CUdeviceptr second = take(rules, MIB, rules->b);
    fill(worker, &in_b, second, MIB, 7, rules->b);
    GM_CU(worker, cuStreamSynchronize, rules->b);
    release(rules);
    GM_CU(worker, cuStreamSynchronize, rules->a);
    gm_buffer_verify(worker, &in_b, &rules->counter, rules->b);
    GM_CU(worker, cuMemFreeAsync, second, rules->b);
    if (gm_counter_read(worker, &rules->counter, rules->b) != 0)
        gm_fail(worker, "memory that is still written was given away");
}

static void check_quiet(struct gm_rules *rules)
{
    GM_CU(rules->worker, cuCtxSynchronize);
}

static void check_numbers(struct gm_rules *rules)
{
    const struct gm_worker *worker = rules->worker;
    cuuint64_t value = 0, big = UINT64_MAX;
    uint64_t used = number(rules, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    if (used != 0)
        gm_fail(worker, "%" PRIu64 " bytes are used, and all is free", used);
    GM_CU(worker, cuMemPoolSetAttribute, rules->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &big);
    GM_CU(worker, cuMemPoolSetAttribute, rules->pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value);
    GM_CU(worker, cuMemPoolSetAttribute, rules->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &value);
    CUdeviceptr a = take(rules, 2 * MIB, rules->a), b = take(rules, 1000, rules->a);
    if (number(rules, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) != 2 * MIB + 1000 ||
        number(rules, CU_MEMPOOL_ATTR_USED_MEM_HIGH) != 2 * MIB + 1000 ||
        number(rules, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) < 2 * MIB + 1024 ||
        number(rules, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) < 2 * MIB + 1024)
        gm_fail(worker, "%" PRIu64 " bytes are used", number(rules, 7));
    GM_CU(worker, cuMemFreeAsync, a, rules->a);
    if (number(rules, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) != 1000)
        gm_fail(worker, "%" PRIu64 " bytes are used, not 1000", number(rules, 7));
    value = 1;
    expect(worker, "a high mark that is not zero",
           worker->cu.cuMemPoolSetAttribute(rules->pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value),
           CUDA_ERROR_INVALID_VALUE);
    value = 0;
    GM_CU(worker, cuMemPoolSetAttribute, rules->pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value);
    if (number(rules, CU_MEMPOOL_ATTR_USED_MEM_HIGH) != 1000)
        gm_fail(worker, "the high mark was not reset");
    GM_CU(worker, cuMemFreeAsync, b, rules->a);
    GM_CU(worker, cuStreamSynchronize, rules->a);
}

/* Print how much the pool holds: `kept` with a threshold above it, then trimmed, then without. */
static void check_giving_back(struct gm_rules *rules)
{
    const struct gm_worker *worker = rules->worker;
    cuuint64_t threshold = UINT64_MAX;
    GM_CU(worker, cuMemPoolSetAttribute, rules->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
          &threshold);
    CUdeviceptr at = take(rules, 8 * MIB, rules->a);
    GM_CU(worker, cuMemFreeAsync, at, rules->a);
    GM_CU(worker, cuStreamSynchronize, rules->a);
    uint64_t kept = number(rules, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    CUdeviceptr small = take(rules, 8 * MIB, rules->a);
    GM_CU(worker, cuMemPoolTrimTo, rules->pool, 0);
    if (number(rules, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) < 8 * MIB)
        gm_fail(worker, "memory in use was trimmed");
    GM_CU(worker, cuMemFreeAsync, small, rules->a);
    GM_CU(worker, cuStreamSynchronize, rules->a);
    GM_CU(worker, cuMemPoolTrimTo, rules->pool, 0);
    uint64_t trimmed = number(rules, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    threshold = 0;
    GM_CU(worker, cuMemPoolSetAttribute, rules->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
          &threshold);
    at = take(rules, 8 * MIB, rules->a);
    uint64_t during = number(rules, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    GM_CU(worker, cuMemFreeAsync, at, rules->a);
    GM_CU(worker, cuStreamSynchronize, rules->a);
    uint64_t after = number(rules, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    printf("kept=%" PRIu64 " trimmed=%" PRIu64 " during=%" PRIu64 " after=%" PRIu64 "\n", kept,
           trimmed, during, after);
    if (trimmed != 0 || during < 8 * MIB || after != 0)
        gm_fail(worker, "the pool does not give back");
    threshold = 7 * MIB;
    GM_CU(worker, cuMemPoolSetAttribute, rules->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
          &threshold);
    at = take(rules, 6 * MIB, rules->a);
    small = take(rules, 6 * MIB, rules->a);
    printf("two=%" PRIu64 "\n", number(rules, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    GM_CU(worker, cuMemFreeAsync, at, rules->a);
    GM_CU(worker, cuMemFreeAsync, small, rules->a);
    GM_CU(worker, cuStreamSynchronize, rules->a);
    after = number(rules, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    if (after > threshold)
        gm_fail(worker, "the pool keeps %" PRIu64 " bytes, more than its threshold", after);
    threshold = 0;
    GM_CU(worker, cuMemPoolSetAttribute, rules->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
          &threshold);
    GM_CU(worker, cuStreamSynchronize, rules->a);
}

/* A pool that goes before its memory, and one that is current. */
static void check_objects(struct gm_rules *rules)
{
    struct gm_worker *worker = rules->worker;
    CUmemoryPool own = gm_pool_make(worker), current = NULL, standard = NULL;
    struct gm_buffer buffer;
    CUdeviceptr at = 0;
    GM_CU(worker, cuDeviceGetDefaultMemPool, &standard, worker->device);
    expect(worker, "destroy the default pool", worker->cu.cuMemPoolDestroy(standard),
           CUDA_ERROR_INVALID_VALUE);
    GM_CU(worker, cuDeviceSetMemPool, worker->device, own);
    GM_CU(worker, cuMemAllocAsync, &at, MIB, rules->a);
    fill(worker, &buffer, at, MIB, 9, rules->a);
    CUmemoryPool before = rules->pool;
    rules->pool = own;
    if (number(rules, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) != MIB)
        gm_fail(worker, "not from the current pool");
    rules->pool = before;
    GM_CU(worker, cuMemPoolDestroy, own);
    GM_CU(worker, cuDeviceGetMemPool, &current, worker->device);
    if (current != standard)
        gm_fail(worker, "the default pool is not current again");
    unsigned is_capable = 2;
    GM_CU(worker, cuPointerGetAttribute, &is_capable,
          CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at);
    if (is_capable != 0)
        gm_fail(worker, "the memory of a destroyed pool is told to be capable of IPC");
    gm_buffer_verify(worker, &buffer, &rules->counter, rules->a);
    GM_CU(worker, cuMemFreeAsync, at, rules->a);
    if (gm_counter_read(worker, &rules->counter, rules->a) != 0)
        gm_fail(worker, "the memory of a destroyed pool is wrong");
}

/* Memory of pools outlives the context that it was made in. */
static void check_contexts(struct gm_rules *rules)
{
    struct gm_worker *worker = rules->worker;
    CUcontext other = NULL;
    CUstream stream = NULL;
    CUdeviceptr kept = 0, freed = 0;
    struct gm_buffer buffer;
    GM_CU(worker, cuCtxCreate, &other, NULL, 0, worker->device);
    GM_CU(worker, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    kept = take(rules, 2 * MIB, stream);
    freed = take(rules, 2 * MIB, stream);
    GM_CU(worker, cuMemsetD32Async, kept, 0x01020304u, 2 * MIB / 4, stream);
    GM_CU(worker, cuMemFreeAsync, freed, stream);
    GM_CU(worker, cuCtxDestroy, other);
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    uint32_t word = 0;
    GM_CU(worker, cuMemcpyDtoH, &word, kept + MIB, sizeof(word));
    if (word != 0x01020304u)
        gm_fail(worker, "the memory of a destroyed context is wrong");
    CUdeviceptr again = take(rules, 2 * MIB, rules->b);
    fill(worker, &buffer, again, 2 * MIB, 11, rules->b);
    gm_buffer_verify(worker, &buffer, &rules->counter, rules->b);
    GM_CU(worker, cuMemFreeAsync, again, rules->b);
    GM_CU(worker, cuMemFreeAsync, kept, rules->b);
    if (gm_counter_read(worker, &rules->counter, rules->b) != 0)
        gm_fail(worker, "memory is wrong after a context was destroyed");
}

/* A stream of a context that is not current, and one that is gone. */
static void check_foreign(struct gm_rules *rules)
{
    struct gm_worker *worker = rules->worker;
    CUcontext other = NULL;
    CUstream stream = NULL;
    struct gm_buffer buffer;
    GM_CU(worker, cuCtxCreate, &other, NULL, 0, worker->device);
    GM_CU(worker, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    CUdeviceptr at = take(rules, 2 * MIB, stream);
    GM_CU(worker, cuMemsetD32Async, at, 0x0a0b0c0du, 2 * MIB / 4, stream);
    GM_CU(worker, cuMemFreeAsync, at, stream);
    at = take(rules, 2 * MIB, rules->b);
    fill(worker, &buffer, at, 2 * MIB, 13, rules->b);
    GM_CU(worker, cuCtxSetCurrent, other);
    GM_CU(worker, cuCtxSynchronize);
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    gm_buffer_verify(worker, &buffer, &rules->counter, rules->b);
    if (gm_counter_read(worker, &rules->counter, rules->b) != 0)
        gm_fail(worker, "memory that another context still wrote was given away");
    GM_CU(worker, cuCtxDestroy, other);
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    GM_CU(worker, cuMemFreeAsync, at, rules->b);
}

/* A pool with a limit, and one that another device may use, if there is another. */
static void check_kinds(struct gm_rules *rules)
{
    struct gm_worker *worker = rules->worker;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device},
                            .maxSize = 8 * MIB}; /* 32 MiB, in whole regions */
    CUmemoryPool pool = NULL;
    struct gm_buffer buffer;
    CUdeviceptr at = 0, more = 0;
    int count = 0;
    GM_CU(worker, cuMemPoolCreate, &pool, &props);
    GM_CU(worker, cuMemAllocFromPoolAsync, &at, 24 * MIB, pool, rules->a);
    expect(worker, "more than a pool may have",
           worker->cu.cuMemAllocFromPoolAsync(&more, 24 * MIB, pool, rules->a),
           CUDA_ERROR_OUT_OF_MEMORY);
    GM_CU(worker, cuMemFreeAsync, at, rules->a);
    GM_CU(worker, cuMemPoolDestroy, pool);

    for (int kind = 0; kind < 2; kind++) {
        props.maxSize = 0;
        props.handleTypes =
            kind == 0 ? CU_MEM_HANDLE_TYPE_NONE : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        GM_CU(worker, cuMemPoolCreate, &pool, &props);
        GM_CU(worker, cuDeviceGetCount, &count);
        CUmemAccessDesc access = {
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                         .id = count > 1 ? worker->device + 1 : worker->device},
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        GM_CU(worker, cuMemPoolSetAccess, pool, &access, 1);
        GM_CU(worker, cuMemAllocFromPoolAsync, &at, 6 * MIB, pool, rules->a);
        fill(worker, &buffer, at, 6 * MIB, 17, rules->a);
        gm_buffer_verify(worker, &buffer, &rules->counter, rules->a);
        if (gm_counter_read(worker, &rules->counter, rules->a) != 0)
            gm_fail(worker, "memory of a shared pool is wrong");
        GM_CU(worker, cuMemFreeAsync, at, rules->a);
        expect(worker, "free it twice", worker->cu.cuMemFreeAsync(at, rules->a),
               CUDA_ERROR_INVALID_VALUE);
        GM_CU(worker, cuMemPoolDestroy, pool);
    }
}

/* Two threads free the same: one is told so. */
struct gm_race {
    const struct gm_rules *rules;
    pthread_barrier_t *barrier;
    CUdeviceptr *at;
    int rounds, freed;
};

static void *run_race(void *argument)
{
    struct gm_race *race = argument;
    const struct gm_worker *worker = race->rules->worker;
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    for (int i = 0; i < race->rounds; i++) {
        pthread_barrier_wait(race->barrier);
        CUresult result = i % 2 ? worker->cu.cuMemFree(race->at[i])
                                : worker->cu.cuMemFreeAsync(race->at[i], race->rules->a);
        if (result != CUDA_ERROR_INVALID_VALUE)
            gm_check(worker, result, "cuMemFreeAsync");
        race->freed += result == CUDA_SUCCESS;
    }
    return NULL;
}

static void check_races(struct gm_rules *rules)
{
    enum { ROUNDS = 120 };
    const struct gm_worker *worker = rules->worker;
    CUdeviceptr at[ROUNDS];
    pthread_barrier_t barrier;
    pthread_t thread;
    struct gm_race one = {rules, &barrier, at, ROUNDS, 0}, two = one;
    for (int i = 0; i < ROUNDS; i++) { /* of a pool, and of cuMemAlloc; all are there at once */
        if (i % 8 == 0)
            GM_CU(worker, cuMemAlloc, &at[i], MIB);
        else
            at[i] = take(rules, 4 * KIB, rules->a);
    }
    GM_CU(worker, cuStreamSynchronize, rules->a);
    pthread_barrier_init(&barrier, NULL, 2);
    if (pthread_create(&thread, NULL, run_race, &two) != 0)
        gm_fail(worker, "cannot start a thread");
    run_race(&one);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&barrier);
    if (one.freed + two.freed != ROUNDS)
        gm_fail(worker, "%d frees of %d allocations", one.freed + two.freed, ROUNDS);
    GM_CU(worker, cuStreamSynchronize, rules->a);
}

/* Memory for a moment in a stream that is not captured, while another is: the driver calls that
 * unsafe. */
static void use_beside(const struct gm_rules *rules)
{
    const struct gm_worker *worker = rules->worker;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    GM_CU(worker, cuThreadExchangeStreamCaptureMode, &mode);
    GM_CU(worker, cuMemFreeAsync, take(rules, MIB, rules->b), rules->b);
    GM_CU(worker, cuThreadExchangeStreamCaptureMode, &mode);
}

/* What a pool is asked when it is first used must not end the capture beside which that is. */
static void check_first(struct gm_rules *rules)
{
    const struct gm_worker *worker = rules->worker;
    CUgraph graph = NULL;
    GM_CU(worker, cuStreamBeginCapture, rules->a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    use_beside(rules);
    GM_CU(worker, cuStreamEndCapture, rules->a, &graph);
    GM_CU(worker, cuGraphDestroy, graph);
    GM_CU(worker, cuStreamSynchronize, rules->b);
}

/* Memory of a graph, and memory that is not. */
static void check_capture(struct gm_rules *rules)
{
    struct gm_worker *worker = rules->worker;
    CUdeviceptr ours = take(rules, MIB, rules->a), its = 0;
    struct gm_buffer buffer, in_graph;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    GM_CU(worker, cuStreamSynchronize, rules->a);
    GM_CU(worker, cuStreamBeginCapture, rules->a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    GM_CU(worker, cuMemAllocFromPoolAsync, &its, MIB, rules->pool, rules->a);
    fill(worker, &in_graph, its, MIB, 3, rules->a);
    fill(worker, &buffer, ours, MIB, 4, rules->a);
    use_beside(rules);
    GM_CU(worker, cuMemFreeAsync, its, rules->a);
    GM_CU(worker, cuStreamEndCapture, rules->a, &graph);
    GM_CU(worker, cuGraphInstantiateWithFlags, &exec, graph, 0);
    for (int i = 0; i < 3; i++)
        GM_CU(worker, cuGraphLaunch, exec, rules->a);
    gm_buffer_verify(worker, &buffer, &rules->counter, rules->a);
    if (gm_counter_read(worker, &rules->counter, rules->a) != 0)
        gm_fail(worker, "a graph's work is wrong");
    GM_CU(worker, cuGraphExecDestroy, exec);
    GM_CU(worker, cuGraphDestroy, graph);

    /* no graph may free what is not its own: the block stays */
    GM_CU(worker, cuStreamBeginCapture, rules->a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    expect(worker, "free what is no graph's", worker->cu.cuMemFreeAsync(ours, rules->a),
           CUDA_ERROR_INVALID_VALUE);
    if (worker->cu.cuStreamEndCapture(rules->a, &graph) == CUDA_SUCCESS)
        GM_CU(worker, cuGraphDestroy, graph);
    gm_buffer_verify(worker, &buffer, &rules->counter, rules->a);
    if (gm_counter_read(worker, &rules->counter, rules->a) != 0)
        gm_fail(worker, "it did not stay");
    GM_CU(worker, cuMemFreeAsync, ours, rules->a);
    GM_CU(worker, cuStreamSynchronize, rules->a);
}

/* A forked child has no CUDA, and its parent's memory is none of its business. (The driver gives it
 * memory, and where its pool grows for that spoils the parent's graphs.) */
static void check_fork(struct gm_rules *rules)
{
    struct gm_worker *worker = rules->worker;
    CUdeviceptr at = take(rules, MIB, rules->a), own = 0;
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(worker->cu.cuMemAllocAsync(&own, MIB, rules->a) == CUDA_SUCCESS ||
              worker->cu.cuMemFreeAsync(at, rules->a) == CUDA_SUCCESS ||
              worker->cu.cuMemFree(at) == CUDA_SUCCESS);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        gm_fail(worker, "the forked child: status %d", status);
    GM_CU(worker, cuMemFreeAsync, at, rules->a);
}

/* Many blocks at once, of many sizes. */
static void check_many(struct gm_rules *rules)
{
    enum { MANY = 4000 };
    struct gm_worker *worker = rules->worker;
    CUdeviceptr *blocks = calloc(MANY, sizeof(*blocks));
    if (blocks == NULL)
        gm_fail(worker, "no host memory");
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++)
            if (blocks[i] == 0)
                blocks[i] =
                    take(rules, 1 + (uint64_t)(i * 7919 % 4096), i % 2 ? rules->a : rules->b);
        for (int i = 0; i < MANY; i++) {
            if ((i + round) % 3 == 0)
                continue;
            GM_CU(worker, cuMemFreeAsync, blocks[i], i % 2 ? rules->a : rules->b);
            blocks[i] = 0;
        }
    }
    for (int i = 0; i < MANY; i++)
        if (blocks[i] != 0)
            GM_CU(worker, cuMemFreeAsync, blocks[i], rules->a);
    GM_CU(worker, cuCtxSynchronize);
    free(blocks);
}

static void begin(struct gm_rules *rules)
{
    struct gm_worker *worker = rules->worker;
    GM_CU(worker, cuMemHostAlloc, (void **)&rules->flag, sizeof(*rules->flag),
          CU_MEMHOSTALLOC_DEVICEMAP);
    GM_CU(worker, cuMemHostGetDevicePointer, &rules->flag_at, rules->flag, 0);
    GM_CU(worker, cuStreamCreate, &rules->a, CU_STREAM_NON_BLOCKING);
    GM_CU(worker, cuStreamCreate, &rules->b, CU_STREAM_NON_BLOCKING);
    gm_counter_make(worker, &rules->counter);
    gm_say_ready(worker);
}

static void end(struct gm_rules *rules)
{
    struct gm_worker *worker = rules->worker;
    gm_counter_free(worker, &rules->counter);
    GM_CU(worker, cuStreamDestroy, rules->a);
    GM_CU(worker, cuStreamDestroy, rules->b);
    GM_CU(worker, cuMemFreeHost, rules->flag);
}

/* The default pool and one of its own, in turn. */
static void begin_round(struct gm_rules *rules)
{
    struct gm_worker *worker = rules->worker;
    if (worker->done % 2 == 0)
        GM_CU(worker, cuDeviceGetDefaultMemPool, &rules->pool, worker->device);
    else
        rules->pool = gm_pool_make(worker);
}

static void end_round(struct gm_rules *rules)
{
    if (rules->worker->done % 2 != 0)
        GM_CU(rules->worker, cuMemPoolDestroy, rules->pool);
}

static const struct {
    const char *name;
    void (*run)(struct gm_rules *rules);
} gm_pool_checks[] = {
    {"first", check_first},
    {"errors", check_errors},
    {"order", check_order},
    {"inherited", check_inherited},
    {"quiet", check_quiet},
    {"numbers", check_numbers},
    {"giving-back", check_giving_back},
    {"objects", check_objects},
    {"contexts", check_contexts},
    {"foreign", check_foreign},
    {"kinds", check_kinds},
    {"races", check_races},
    {"capture", check_capture},
    {"fork", check_fork},
    {"many", check_many},
};

#define GM_POOL_CHECKS (sizeof(gm_pool_checks) / sizeof(gm_pool_checks[0]))

/* Which checks --only names; all of them without it. */
static void choose_checks(const struct gm_worker *worker, bool *is_chosen)
{
    for (size_t i = 0; i < GM_POOL_CHECKS; i++)
        is_chosen[i] = worker->only == NULL;
    for (const char *at = worker->only; at != NULL;) {
        const size_t length = strcspn(at, ",");
        size_t i = 0;
        while (i < GM_POOL_CHECKS && (strlen(gm_pool_checks[i].name) != length ||
                                      strncmp(gm_pool_checks[i].name, at, length) != 0))
            i++;
        if (i == GM_POOL_CHECKS)
            gm_fail(worker, "--only: there is no check %.*s", (int)length, at);
        is_chosen[i] = true;
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
}

void gm_mode_pools(struct gm_worker *worker)
{
    struct gm_rules rules = {.worker = worker};
    bool is_chosen[GM_POOL_CHECKS];
    choose_checks(worker, is_chosen);
    begin(&rules);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        begin_round(&rules);
        for (size_t i = 0; i < GM_POOL_CHECKS; i++) {
            worker->doing = gm_pool_checks[i].name;
            if (is_chosen[i])
                gm_pool_checks[i].run(&rules);
        }
        worker->doing = NULL;
        end_round(&rules);
    }
    end(&rules);
}

/* For a driver that refuses more beside a capture: gpumux asks nothing that a capture forbids. */
void gm_mode_beside(struct gm_worker *worker)
{
    struct gm_rules rules = {.worker = worker};
    begin(&rules);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        begin_round(&rules);
        check_first(&rules);
        check_capture(&rules);
        end_round(&rules);
    }
    end(&rules);
}
