/* gm_worker's mode short: memory pools when there is no more memory. See worker.h. */
#include "tests/programs/worker.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

struct gm_short {
    struct gm_worker *worker;
    CUmemoryPool pool;
    CUstream a, b;
    uint32_t *flag;
    CUdeviceptr flag_at;
    uint64_t piece;
    uint32_t n, most;
    CUdeviceptr *at;
};

static CUresult try_from(const struct gm_short *self, CUmemoryPool pool, CUstream stream,
                         CUdeviceptr *at)
{
    return self->worker->cu.cuMemAllocFromPoolAsync(at, self->piece, pool, stream);
}

static void fill(const struct gm_short *self, CUdeviceptr at, uint64_t seed, CUstream stream)
{
    uint64_t words = self->piece / 8;
    void *args[] = {&at, &words, &seed};
    gm_launch(self->worker, GM_KERNEL_FILL, stream, args);
}

static void want_out(const struct gm_short *self, const char *what, CUresult result)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        gm_fail(self->worker, "%s: %d, not out of memory", what, (int)result);
}

/* Take all that there is, in stream `a`. */
static void take_all(struct gm_short *self)
{
    CUresult result = CUDA_SUCCESS;
    self->n = 0;
    while (self->n < self->most) {
        result = try_from(self, self->pool, self->a, &self->at[self->n]);
        if (result != CUDA_SUCCESS)
            break;
        fill(self, self->at[self->n], self->n, self->a);
        self->n++;
    }
    want_out(self, "allocating without end", result);
    if (self->n < 2)
        gm_fail(self->worker, "memory is out after %u pieces", self->n);
}

static void free_all(const struct gm_short *self)
{
    for (uint32_t i = 0; i < self->n; i++)
        GM_CU(self->worker, cuMemFreeAsync, self->at[i], self->a);
}

/* Keep stream `a` busy until let_go. */
static void block(const struct gm_short *self)
{
    void *args[] = {(void *)(uintptr_t)&self->flag_at};
    __atomic_store_n(self->flag, 0, __ATOMIC_SEQ_CST);
    gm_launch(self->worker, GM_KERNEL_SPIN_UNTIL, self->a, args);
}

static void let_go(const struct gm_short *self)
{
    __atomic_store_n(self->flag, 1, __ATOMIC_SEQ_CST);
    GM_CU(self->worker, cuStreamSynchronize, self->a);
}

/* What a pool keeps free is given back for whoever needs memory. */
static void check_given_back(struct gm_short *self)
{
    struct gm_worker *worker = self->worker;
    CUdeviceptr at = 0;
    take_all(self);
    want_out(self, "cuMemAlloc beside it", worker->cu.cuMemAlloc(&at, self->piece));
    free_all(self);
    GM_CU(worker, cuStreamSynchronize, self->a);
    GM_CU(worker, cuMemAlloc, &at, self->piece);
    GM_CU(worker, cuMemFreeAsync, at, self->b);

    take_all(self); /* waits for that free */
    free_all(self);
    GM_CU(worker, cuStreamSynchronize, self->a);
    CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device}};
    CUmemoryPool other = NULL;
    GM_CU(worker, cuMemPoolCreate, &other, &props);
    gm_check(worker, try_from(self, other, self->b, &at), "allocating from another pool");
    GM_CU(worker, cuMemFreeAsync, at, self->b);
    GM_CU(worker, cuMemPoolDestroy, other);
    GM_CU(worker, cuStreamSynchronize, self->b);
}

/* Memory freed in a stream that is busy: another waits for it, if it may. */
static void check_dependencies(struct gm_short *self)
{
    struct gm_worker *worker = self->worker;
    struct gm_counter counter;
    CUdeviceptr at = 0;
    gm_counter_make(worker, &counter);
    take_all(self);
    block(self);
    for (uint32_t i = 0; i < self->n; i++)
        fill(self, self->at[i], i + 100, self->a); /* runs later, and must not be seen */
    free_all(self);
    gm_check(worker, try_from(self, self->pool, self->b, &at), "allocating what was freed");
    fill(self, at, 7, self->b);
    let_go(self);
    struct gm_buffer buffer = {.at = at, .bytes = self->piece, .seed = 7};
    gm_buffer_verify(worker, &buffer, &counter, self->b);
    worker->mismatches += gm_counter_read(worker, &counter, self->b);
    GM_CU(worker, cuMemFreeAsync, at, self->b);
    GM_CU(worker, cuStreamSynchronize, self->b);

    int flag = 0;
    GM_CU(worker, cuMemPoolSetAttribute, self->pool,
          CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &flag);
    take_all(self);
    block(self);
    free_all(self);
    want_out(self, "allocating what is still used", try_from(self, self->pool, self->b, &at));
    let_go(self);
    gm_check(worker, try_from(self, self->pool, self->b, &at), "allocating what is free");
    GM_CU(worker, cuMemFreeAsync, at, self->b);
    flag = 1;
    GM_CU(worker, cuMemPoolSetAttribute, self->pool,
          CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &flag);
    gm_counter_free(worker, &counter);
}

/* One thread frees most of what there is and synchronizes, another takes it: whatever is on its way
 * back to the daemon is there for who needs it. */
struct gm_heir {
    const struct gm_short *self;
    pthread_barrier_t freed, done;
    uint64_t bytes;
    uint32_t rounds;
};

static void *inherit(void *argument)
{
    struct gm_heir *heir = argument;
    const struct gm_short *self = heir->self;
    struct gm_worker *worker = self->worker;
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    for (uint32_t i = 0; i < heir->rounds; i++) {
        CUdeviceptr at = 0;
        pthread_barrier_wait(&heir->freed);
        if (i % 2 == 0)
            GM_CU(worker, cuMemAllocFromPoolAsync, &at, heir->bytes, self->pool, self->b);
        else
            GM_CU(worker, cuMemAlloc, &at, heir->bytes);
        GM_CU(worker, cuMemFreeAsync, at, self->b);
        GM_CU(worker, cuStreamSynchronize, self->b);
        pthread_barrier_wait(&heir->done);
    }
    return NULL;
}

static void check_handed_over(struct gm_short *self)
{
    struct gm_worker *worker = self->worker;
    struct gm_heir heir = {.self = self, .bytes = worker->bytes / 8 * 5, .rounds = 40};
    cuuint64_t keep = 0;
    pthread_t thread;
    GM_CU(worker, cuMemPoolSetAttribute, self->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    pthread_barrier_init(&heir.freed, NULL, 2);
    pthread_barrier_init(&heir.done, NULL, 2);
    if (pthread_create(&thread, NULL, inherit, &heir) != 0)
        gm_fail(worker, "no thread");
    for (uint32_t i = 0; i < heir.rounds; i++) {
        CUdeviceptr at = 0;
        GM_CU(worker, cuMemAllocFromPoolAsync, &at, heir.bytes, self->pool, self->a);
        GM_CU(worker, cuMemFreeAsync, at, self->a);
        CUresult result;
        while ((result = worker->cu.cuStreamQuery(self->a)) == CUDA_ERROR_NOT_READY)
            sched_yield();
        gm_check(worker, result, "cuStreamQuery");
        pthread_barrier_wait(&heir.freed);
        GM_CU(worker, cuStreamSynchronize, self->a);
        pthread_barrier_wait(&heir.done);
    }
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&heir.freed);
    pthread_barrier_destroy(&heir.done);
    keep = UINT64_MAX;
    GM_CU(worker, cuMemPoolSetAttribute, self->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
}

/* --bytes in --allocs pieces is what there is about; more than 16 times as many are not. */
void gm_mode_short(struct gm_worker *worker)
{
    struct gm_short self = {.worker = worker,
                            .piece = worker->bytes / worker->allocs & ~7ull,
                            .most = worker->allocs * 16};
    cuuint64_t keep = UINT64_MAX;
    self.at = calloc(self.most, sizeof(*self.at));
    if (self.at == NULL)
        gm_fail(worker, "no host memory");
    GM_CU(worker, cuMemHostAlloc, (void **)&self.flag, sizeof(*self.flag),
          CU_MEMHOSTALLOC_DEVICEMAP);
    GM_CU(worker, cuMemHostGetDevicePointer, &self.flag_at, self.flag, 0);
    GM_CU(worker, cuStreamCreate, &self.a, CU_STREAM_NON_BLOCKING);
    GM_CU(worker, cuStreamCreate, &self.b, CU_STREAM_NON_BLOCKING);
    GM_CU(worker, cuDeviceGetDefaultMemPool, &self.pool, worker->device);
    GM_CU(worker, cuMemPoolSetAttribute, self.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    gm_say_ready(worker);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        check_given_back(&self);
        check_dependencies(&self);
        check_handed_over(&self);
    }
    GM_CU(worker, cuCtxSynchronize);
    GM_CU(worker, cuStreamDestroy, self.a);
    GM_CU(worker, cuStreamDestroy, self.b);
    GM_CU(worker, cuMemFreeHost, self.flag);
    free(self.at);
}
