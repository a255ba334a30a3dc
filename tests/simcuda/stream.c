/*
 * Streams: queues of operations, each with a thread that starts at the first operation and sleeps
 * when there is none.
 *
 * Order. Operation n of a stream runs when n-1 has ended and every point that it depends on is
 * passed. Points only ever name operations that were submitted before, so there is no circle. The
 * legacy default stream is made of such points: its operation depends on what every blocking stream
 * of the context has been given so far, and an operation of a blocking stream on what the legacy
 * stream has.
 *
 * Life. A stream is referred to by its handle (dropped by sim_stream_shut), by its thread and by
 * points. Destroying returns at once; the thread ends when the queue is empty, and until then the
 * stream is one of its context, so that synchronizing the context waits for it.
 */
#include "tests/simcuda/sim.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_MAGIC 0x53545253u
#define QUEUE_MAX 1024u /* operations that wait: as on a GPU, who submits more waits for room */
#define SET_PIECE (1u << 18) /* elements between two looks at the channels */
#define WAIT_POLL_NS 20000ull
#define WAIT_POLL_MAX_NS 1000000ull

static _Atomic uint64_t last_id;

/* ---- points ---- */

bool sim_point_passed(struct sim_point point)
{
    return point.stream == NULL ||
           atomic_load_explicit(&point.stream->done, memory_order_acquire) >= point.seq;
}

void sim_point_wait(struct sim_point point)
{
    if (sim_point_passed(point))
        return;
    struct sim_stream *s = point.stream;
    pthread_mutex_lock(&s->lock);
    s->waiters++;
    while (atomic_load_explicit(&s->done, memory_order_relaxed) < point.seq)
        pthread_cond_wait(&s->progress, &s->lock);
    s->waiters--;
    pthread_mutex_unlock(&s->lock);
}

CUresult sim_point_end(struct sim_point point)
{
    sim_point_wait(point);
    const CUresult result = (CUresult)atomic_load(&point.stream->ctx->error);
    sim_stream_unref(point.stream);
    return result;
}

/* ---- operations ---- */

struct sim_op *sim_op_new(enum sim_op_kind kind)
{
    struct sim_op *op = sim_alloc(sizeof *op);
    op->kind = kind;
    return op;
}

void sim_op_after(struct sim_op *op, struct sim_point point)
{
    if (sim_point_passed(point))
        return;
    op->deps = sim_grow(op->deps, (op->n_deps + 1) * sizeof *op->deps);
    op->deps[op->n_deps++] = point;
    sim_stream_ref(point.stream);
}

void sim_op_after_context(struct sim_op *op, struct sim_ctx *ctx)
{
    pthread_mutex_lock(&ctx->lock);
    for (struct sim_stream *s = ctx->streams; s != NULL; s = s->ctx_next)
        sim_op_after(op, (struct sim_point){s, atomic_load(&s->submitted)});
    pthread_mutex_unlock(&ctx->lock);
}

struct sim_op *sim_op_clone(const struct sim_op *op)
{
    struct sim_op *copy = sim_alloc(sizeof *copy);
    *copy = *op;
    copy->next = NULL;
    copy->deps = NULL;
    copy->n_deps = 0;
    if (op->kind == SIM_OP_MARK)
        atomic_fetch_add(&op->u.mark->refs, 1);
    if (op->kind == SIM_OP_GRAPH)
        sim_exec_ref(op->u.exec);
    return copy;
}

void sim_op_free(struct sim_op *op)
{
    for (uint32_t i = 0; i < op->n_deps; i++)
        sim_stream_unref(op->deps[i].stream);
    free(op->deps);
    if (op->kind == SIM_OP_MARK && atomic_fetch_sub(&op->u.mark->refs, 1) == 1)
        free(op->u.mark);
    if (op->kind == SIM_OP_GRAPH)
        sim_exec_unref(op->u.exec);
    if (op->kind == SIM_OP_COPY)
        free(op->u.copy.staged);
    free(op);
}

static bool is_value_reached(const struct sim_op *op)
{
    const void *address = (const void *)(uintptr_t)op->u.value.address;
    const uint64_t want = op->u.value.value;
    const unsigned how = op->u.value.flags & 3u;
    if (op->u.value.is_64) {
        const uint64_t is = __atomic_load_n((const uint64_t *)address, __ATOMIC_ACQUIRE);
        return how == CU_STREAM_WAIT_VALUE_GEQ   ? (int64_t)(is - want) >= 0
               : how == CU_STREAM_WAIT_VALUE_EQ  ? is == want
               : how == CU_STREAM_WAIT_VALUE_AND ? (is & want) != 0
                                                 : ~(is | want) != 0;
    }
    const uint32_t is = __atomic_load_n((const uint32_t *)address, __ATOMIC_ACQUIRE);
    const uint32_t low = (uint32_t)want;
    return how == CU_STREAM_WAIT_VALUE_GEQ   ? (int32_t)(is - low) >= 0
           : how == CU_STREAM_WAIT_VALUE_EQ  ? is == low
           : how == CU_STREAM_WAIT_VALUE_AND ? (is & low) != 0
                                             : ~(is | low) != 0;
}

static void run_wait(const struct sim_op *op)
{
    uint64_t pause = WAIT_POLL_NS;
    while (!is_value_reached(op)) {
        sim_rest_until(sim_now() + pause);
        pause = pause < WAIT_POLL_MAX_NS ? pause * 2 : pause;
    }
}

static void run_write(const struct sim_op *op)
{
    void *address = (void *)(uintptr_t)op->u.value.address;
    if (op->u.value.is_64)
        __atomic_store_n((uint64_t *)address, op->u.value.value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)address, (uint32_t)op->u.value.value, __ATOMIC_RELEASE);
}

static void run_set(const struct sim_op *op)
{
    for (size_t y = 0; y < op->u.set.height; y++) {
        char *row = (char *)(uintptr_t)(op->u.set.dst + y * op->u.set.pitch);
        for (size_t x = 0; x < op->u.set.width; x += SET_PIECE) {
            const size_t left = op->u.set.width - x;
            sim_engine_set(row + x * op->u.set.element, left < SET_PIECE ? left : SET_PIECE,
                           op->u.set.element, op->u.set.value);
            sim_pause_point();
        }
    }
}

/* A kernel that is given memory which its device may not reach ends as on a GPU: its context dies
 * of it. */
static void check_reach(const struct sim_op *op)
{
    const struct sim_kernel *kernel = op->u.launch.kernel;
    for (uint32_t i = 0; i < kernel->n_params; i++) {
        uint64_t value;
        if (kernel->param[i].size != sizeof value)
            continue;
        memcpy(&value, op->u.launch.params + kernel->param[i].offset, sizeof value);
        if (!sim_peer_may_touch(op->u.launch.ctx, value))
            sim_fault();
    }
}

static void run_kernel(const struct sim_op *op, const struct sim_group *group)
{
    check_reach(op);
    const uint64_t start = sim_options.launch_ns > 0 ? sim_now() : 0;
    const uint64_t stopped_ns = atomic_load(&group->stopped_ns);
    sim_kernel_run(op->u.launch.kernel, op->u.launch.params, op->u.launch.ctx->device);
    if (sim_options.launch_ns > 0)
        sim_work_until(start + sim_options.launch_ns, stopped_ns);
}

/* The host's part of an operation: the channel begins it and goes on behind it. */
static void pass(struct sim_group *group)
{
    sim_group_enter(group);
    sim_group_leave();
}

/* Once its context is dead, a function is not called, and a callback is told why. */
static void run_on_host(const struct sim_op *op, struct sim_ctx *ctx, struct sim_group *group)
{
    pass(group);
    const CUresult error = (CUresult)atomic_load(&ctx->error);
    sim_set_callback(true);
    if (op->kind == SIM_OP_CALLBACK)
        op->u.callback.fn(op->u.callback.stream, error, op->u.callback.data);
    else if (error == CUDA_SUCCESS)
        op->u.host.fn(op->u.host.data);
    sim_set_callback(false);
    pass(group);
}

struct work {
    const struct sim_op *op;
    const struct sim_group *group;
};

/* What touches the program's memory. */
static void run_on_memory(const void *argument)
{
    const struct work *work = argument;
    const struct sim_op *op = work->op;
    if (op->kind == SIM_OP_KERNEL)
        run_kernel(op, work->group);
    else if (op->kind == SIM_OP_COPY)
        sim_copy_run(&op->u.copy);
    else if (op->kind == SIM_OP_SET)
        run_set(op);
    else if (op->kind == SIM_OP_WRITE)
        run_write(op);
    else
        run_wait(op);
}

static void run_on_channel(const struct sim_op *op, struct sim_ctx *ctx, struct sim_group *group)
{
    const struct work work = {op, group};
    sim_group_enter(group);
    switch (op->kind) {
    case SIM_OP_KERNEL:
    case SIM_OP_COPY:
    case SIM_OP_SET:
    case SIM_OP_WRITE:
    case SIM_OP_WAIT:
        if (atomic_load(&ctx->error) == CUDA_SUCCESS && sim_fault_ends(run_on_memory, &work))
            atomic_store(&ctx->error, CUDA_ERROR_ILLEGAL_ADDRESS);
        break;
    case SIM_OP_MARK:
        atomic_store(&op->u.mark->time, sim_now());
        break;
    case SIM_OP_FREE:
        sim_pool_run_free(op->u.freed);
        break;
    case SIM_OP_GRAPH_FREE:
        sim_block_unuse(op->u.block);
        break;
    case SIM_OP_EMPTY:
    case SIM_OP_GRAPH_ALLOC: /* its launch did it */
    case SIM_OP_HOST:
    case SIM_OP_CALLBACK:
    case SIM_OP_GRAPH:
        break;
    }
    sim_group_leave();
}

void sim_op_run(const struct sim_op *op, struct sim_ctx *ctx)
{
    if (op->kind == SIM_OP_GRAPH)
        sim_exec_run(op->u.exec, ctx);
    else if (op->kind == SIM_OP_HOST || op->kind == SIM_OP_CALLBACK)
        run_on_host(op, ctx, sim_channels_group(ctx, op));
    else
        run_on_channel(op, ctx, sim_channels_group(ctx, op));
}

/* ---- the thread of a stream ---- */

/* Out of the context's list. Under the context's lock. */
static void unlink_stream(struct sim_stream *s)
{
    if (s->ctx_prev != NULL)
        s->ctx_prev->ctx_next = s->ctx_next;
    else
        s->ctx->streams = s->ctx_next;
    if (s->ctx_next != NULL)
        s->ctx_next->ctx_prev = s->ctx_prev;
}

static void *run_stream(void *argument)
{
    struct sim_stream *s = argument;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->head == NULL && !s->is_destroyed) {
            s->is_idle = true;
            pthread_cond_wait(&s->work, &s->lock);
            s->is_idle = false;
        }
        struct sim_op *op = s->head;
        if (op == NULL)
            break;
        s->head = op->next;
        if (s->head == NULL)
            s->tail = NULL;
        pthread_mutex_unlock(&s->lock);
        for (uint32_t i = 0; i < op->n_deps; i++)
            sim_point_wait(op->deps[i]);
        sim_op_run(op, s->ctx);
        sim_op_free(op);
        pthread_mutex_lock(&s->lock);
        atomic_fetch_add_explicit(&s->done, 1, memory_order_release);
        if (s->waiters > 0)
            pthread_cond_broadcast(&s->progress);
    }
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_lock(&s->ctx->lock);
    unlink_stream(s);
    pthread_mutex_unlock(&s->ctx->lock);
    sim_stream_unref(s);
    return NULL;
}

/* Start it, with the program's signals left to the program. Under the stream's lock. */
static bool start_thread(struct sim_stream *s)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGABRT);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    sim_stream_ref(s);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    s->has_thread = pthread_create(&thread, &attributes, run_stream, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (!s->has_thread)
        atomic_fetch_sub(&s->refs, 1); /* the handle still has one */
    return s->has_thread;
}

/* ---- submitting ---- */

static void add_legacy_order(struct sim_stream *s, struct sim_op *op)
{
    if (!s->is_legacy) {
        if ((s->flags & CU_STREAM_NON_BLOCKING) == 0 && s->ctx->legacy != NULL)
            sim_op_after(
                op, (struct sim_point){s->ctx->legacy, atomic_load(&s->ctx->legacy->submitted)});
        return;
    }
    pthread_mutex_lock(&s->ctx->lock);
    for (struct sim_stream *other = s->ctx->streams; other != NULL; other = other->ctx_next) {
        if (other != s && (other->flags & CU_STREAM_NON_BLOCKING) == 0)
            sim_op_after(op, (struct sim_point){other, atomic_load(&other->submitted)});
    }
    pthread_mutex_unlock(&s->ctx->lock);
}

CUresult sim_submit(struct sim_stream *s, struct sim_op *op, struct sim_point *point)
{
    if (point != NULL)
        *point = (struct sim_point){NULL, 0};
    if (atomic_load(&sim_captures) > 0) {
        bool is_captured;
        const CUresult result = sim_capture_submit(s, op, &is_captured);
        if (result != CUDA_SUCCESS)
            sim_op_free(op);
        if (result != CUDA_SUCCESS || is_captured)
            return result;
    }
    const uint64_t before = atomic_load(&s->submitted);
    if (before >= QUEUE_MAX)
        sim_point_wait((struct sim_point){s, before - QUEUE_MAX + 1});
    add_legacy_order(s, op);
    pthread_mutex_lock(&s->lock);
    if (!s->has_thread && !start_thread(s)) {
        pthread_mutex_unlock(&s->lock);
        sim_op_free(op);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (s->tail != NULL)
        s->tail->next = op;
    else
        s->head = op;
    s->tail = op;
    const uint64_t seq = atomic_fetch_add(&s->submitted, 1) + 1;
    if (point != NULL) {
        sim_stream_ref(s);
        *point = (struct sim_point){s, seq};
    }
    if (s->is_idle)
        pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    return CUDA_SUCCESS;
}

CUresult sim_submit_wait(struct sim_stream *s, struct sim_op *op)
{
    struct sim_point point;
    const CUresult result = sim_submit(s, op, &point);
    return point.stream != NULL ? sim_point_end(point) : result;
}

/* ---- life ---- */

void sim_stream_ref(struct sim_stream *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void sim_stream_unref(struct sim_stream *s)
{
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    s->magic = 0;
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->progress);
    pthread_mutex_destroy(&s->lock);
    free(s->frontier);
    free(s);
}

struct sim_stream *sim_stream_new(struct sim_ctx *ctx, unsigned flags, int priority)
{
    struct sim_stream *s = sim_alloc(sizeof *s);
    s->magic = STREAM_MAGIC;
    atomic_init(&s->refs, 1);
    s->ctx = ctx;
    s->id = atomic_fetch_add(&last_id, 1) + 1;
    s->flags = flags;
    s->priority = priority;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->progress, NULL);
    pthread_mutex_lock(&ctx->lock);
    s->ctx_next = ctx->streams;
    if (ctx->streams != NULL)
        ctx->streams->ctx_prev = s;
    ctx->streams = s;
    pthread_mutex_unlock(&ctx->lock);
    return s;
}

void sim_stream_shut(struct sim_stream *s)
{
    sim_capture_forget(s);
    pthread_mutex_lock(&s->ctx->lock);
    pthread_mutex_lock(&s->lock);
    const bool is_first = !s->is_destroyed;
    s->is_destroyed = true;
    pthread_cond_signal(&s->work);
    if (is_first && !s->has_thread)
        unlink_stream(s);
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&s->ctx->lock);
    if (is_first)
        sim_stream_unref(s);
}

/* ---- the default stream of a thread ---- */

struct thread_stream {
    struct sim_ctx *ctx;
    uint64_t generation;
    struct sim_stream *stream; /* holds a reference */
    struct thread_stream *next;
};
static pthread_key_t thread_key;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;

static void free_thread_streams(void *value)
{
    for (struct thread_stream *t = value, *next; t != NULL; t = next) {
        next = t->next;
        sim_stream_shut(t->stream);
        sim_stream_unref(t->stream);
        free(t);
    }
}

static void make_thread_key(void)
{
    if (pthread_key_create(&thread_key, free_thread_streams) != 0)
        abort();
}

static struct sim_stream *thread_stream(struct sim_ctx *ctx)
{
    pthread_once(&thread_once, make_thread_key);
    struct thread_stream *t = pthread_getspecific(thread_key);
    for (; t != NULL; t = t->next) {
        if (t->ctx == ctx && t->generation == ctx->generation)
            return t->stream;
    }
    t = sim_alloc(sizeof *t);
    t->ctx = ctx;
    t->generation = ctx->generation;
    t->stream = sim_stream_new(ctx, CU_STREAM_DEFAULT, 0);
    t->stream->is_per_thread = true;
    sim_stream_ref(t->stream);
    t->next = pthread_getspecific(thread_key);
    pthread_setspecific(thread_key, t);
    return t->stream;
}

CUresult sim_stream_get(CUstream handle, enum sim_mode mode, struct sim_stream **stream)
{
    const bool is_default =
        handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
    if (is_default) {
        struct sim_ctx *ctx;
        const CUresult result = sim_ctx_current(&ctx);
        if (result != CUDA_SUCCESS)
            return result;
        const bool is_per_thread =
            handle == CU_STREAM_PER_THREAD || (handle == NULL && mode == SIM_PER_THREAD);
        *stream = is_per_thread ? thread_stream(ctx) : ctx->legacy;
        return CUDA_SUCCESS;
    }
    struct sim_stream *s = (struct sim_stream *)(void *)handle;
    if (s->magic != STREAM_MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!atomic_load(&s->ctx->is_alive))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *stream = s;
    return (CUresult)atomic_load(&s->ctx->error);
}

/* ---- public ---- */

static CUresult create_stream(CUstream *handle, unsigned flags, int priority)
{
    struct sim_ctx *ctx;
    const CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (handle == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    *handle = (CUstream)(void *)sim_stream_new(ctx, flags, priority);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    SIM_ENTER(cuStreamCreate);
    return create_stream(stream, flags, 0);
}
SIM_ENTRY(cuStreamCreate);

SIM_API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    SIM_ENTER(cuStreamCreateWithPriority);
    return create_stream(stream, flags, priority);
}
SIM_ENTRY(cuStreamCreateWithPriority);

static CUresult destroy_stream(CUstream handle)
{
    if (handle == NULL) /* even before cuInit */
        return CUDA_ERROR_INVALID_HANDLE;
    SIM_ENTER(cuStreamDestroy);
    struct sim_stream *s;
    const CUresult result = sim_stream_get(handle, SIM_LEGACY, &s);
    if (result != CUDA_SUCCESS)
        return result;
    if (s->is_legacy || s->is_per_thread)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_stream_shut(s);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamDestroy_v2(CUstream stream)
{
    return destroy_stream(stream);
}
SIM_ENTRY(cuStreamDestroy_v2);

SIM_API CUresult cuStreamDestroy(CUstream stream)
{
    return destroy_stream(stream);
}
SIM_ENTRY(cuStreamDestroy);

static CUresult stream_synchronize(CUstream handle, enum sim_mode mode)
{
    SIM_ENTER(cuStreamSynchronize);
    struct sim_stream *s;
    CUresult result = sim_stream_get(handle, mode, &s);
    if (result == CUDA_SUCCESS)
        result = sim_capture_sync_stream(s);
    if (result != CUDA_SUCCESS)
        return result;
    if (s->is_legacy) /* its order covers the blocking streams */
        return sim_submit_wait(s, sim_op_new(SIM_OP_EMPTY));
    sim_stream_ref(s);
    return sim_point_end((struct sim_point){s, atomic_load(&s->submitted)});
}
SIM_TWO(cuStreamSynchronize, cuStreamSynchronize_ptsz, (CUstream stream),
        stream_synchronize(stream, mode));

/* Is everything done that a synchronization would wait for? */
static bool is_stream_idle(struct sim_stream *s)
{
    bool is_idle = sim_point_passed((struct sim_point){s, atomic_load(&s->submitted)});
    if (!s->is_legacy)
        return is_idle;
    pthread_mutex_lock(&s->ctx->lock);
    for (struct sim_stream *o = s->ctx->streams; o != NULL && is_idle; o = o->ctx_next) {
        if ((o->flags & CU_STREAM_NON_BLOCKING) == 0)
            is_idle = sim_point_passed((struct sim_point){o, atomic_load(&o->submitted)});
    }
    pthread_mutex_unlock(&s->ctx->lock);
    return is_idle;
}

static CUresult stream_query(CUstream handle, enum sim_mode mode)
{
    SIM_ENTER(cuStreamQuery);
    struct sim_stream *s;
    CUresult result = sim_stream_get(handle, mode, &s);
    if (result == CUDA_SUCCESS)
        result = sim_capture_sync_stream(s);
    if (result != CUDA_SUCCESS)
        return result;
    return is_stream_idle(s) ? (CUresult)atomic_load(&s->ctx->error) : CUDA_ERROR_NOT_READY;
}
SIM_TWO(cuStreamQuery, cuStreamQuery_ptsz, (CUstream stream), stream_query(stream, mode));

static CUresult stream_get_flags(CUstream handle, unsigned *flags, enum sim_mode mode)
{
    SIM_ENTER(cuStreamGetFlags);
    struct sim_stream *s;
    const CUresult result = sim_stream_get(handle, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = s->flags;
    return CUDA_SUCCESS;
}
SIM_TWO(cuStreamGetFlags, cuStreamGetFlags_ptsz, (CUstream stream, unsigned int *flags),
        stream_get_flags(stream, flags, mode));

static CUresult stream_get_priority(CUstream handle, int *priority, enum sim_mode mode)
{
    SIM_ENTER(cuStreamGetPriority);
    struct sim_stream *s;
    const CUresult result = sim_stream_get(handle, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    if (priority == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *priority = s->priority;
    return CUDA_SUCCESS;
}
SIM_TWO(cuStreamGetPriority, cuStreamGetPriority_ptsz, (CUstream stream, int *priority),
        stream_get_priority(stream, priority, mode));

static CUresult stream_get_id(CUstream handle, unsigned long long *id, enum sim_mode mode)
{
    SIM_ENTER(cuStreamGetId);
    struct sim_stream *s;
    const CUresult result = sim_stream_get(handle, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    if (id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *id = s->id;
    return sim_capture_ask_stream(s);
}
SIM_TWO(cuStreamGetId, cuStreamGetId_ptsz, (CUstream stream, unsigned long long *id),
        stream_get_id(stream, id, mode));

static CUresult stream_get_ctx(CUstream handle, CUcontext *ctx, enum sim_mode mode)
{
    SIM_ENTER(cuStreamGetCtx);
    struct sim_stream *s;
    const CUresult result = sim_stream_get(handle, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    if (ctx == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *ctx = (CUcontext)(void *)s->ctx;
    return CUDA_SUCCESS;
}
SIM_TWO(cuStreamGetCtx, cuStreamGetCtx_ptsz, (CUstream stream, CUcontext *ctx),
        stream_get_ctx(stream, ctx, mode));

/* ---- host functions and values ---- */

static CUresult launch_host(CUstream handle, CUhostFn fn, void *data, enum sim_mode mode)
{
    SIM_ENTER(cuLaunchHostFunc);
    struct sim_stream *s;
    const CUresult result = sim_stream_get(handle, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    if (fn == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op *op = sim_op_new(SIM_OP_HOST);
    op->u.host.fn = fn;
    op->u.host.data = data;
    return sim_submit(s, op, NULL);
}
SIM_TWO(cuLaunchHostFunc, cuLaunchHostFunc_ptsz, (CUstream stream, CUhostFn fn, void *data),
        launch_host(stream, fn, data, mode));

static CUresult add_callback(CUstream handle, CUstreamCallback fn, void *data, unsigned flags,
                             enum sim_mode mode)
{
    SIM_ENTER(cuStreamAddCallback);
    struct sim_stream *s;
    const CUresult result = sim_stream_get(handle, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    if (fn == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op *op = sim_op_new(SIM_OP_CALLBACK);
    op->u.callback.fn = fn;
    op->u.callback.data = data;
    op->u.callback.stream = handle;
    return sim_submit(s, op, NULL);
}
SIM_TWO(cuStreamAddCallback, cuStreamAddCallback_ptsz,
        (CUstream stream, CUstreamCallback fn, void *data, unsigned int flags),
        add_callback(stream, fn, data, flags, mode));

static CUresult submit_value(CUstream handle, enum sim_op_kind kind, CUdeviceptr address,
                             uint64_t value, unsigned flags, bool is_64, enum sim_mode mode)
{
    struct sim_stream *s;
    const CUresult result = sim_stream_get(handle, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    const unsigned known = kind == SIM_OP_WAIT ? 3u : CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
    if (address == 0 || address % (is_64 ? 8 : 4) != 0 || (flags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op *op = sim_op_new(kind);
    op->u.value.address = address;
    op->u.value.value = value;
    op->u.value.flags = flags;
    op->u.value.is_64 = is_64;
    return sim_submit(s, op, NULL);
}

/* The first forms are off unless the kernel module was told otherwise when it was loaded. */
#define VALUE_API(api, bits, kind)                                                                 \
    static CUresult call_##api(CUstream stream, CUdeviceptr address, uint64_t value,               \
                               unsigned flags, enum sim_mode mode)                                 \
    {                                                                                              \
        SIM_ENTER(api);                                                                            \
        return submit_value(stream, kind, address, value, flags, bits == 64, mode);                \
    }                                                                                              \
    static CUresult old_##api(CUstream stream, enum sim_mode mode)                                 \
    {                                                                                              \
        SIM_ENTER(api);                                                                            \
        struct sim_stream *s;                                                                      \
        const CUresult result = sim_stream_get(stream, mode, &s);                                  \
        return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : result;                         \
    }                                                                                              \
    SIM_TWO(api, api##_ptsz,                                                                       \
            (CUstream stream, CUdeviceptr address __attribute__((unused)),                         \
             cuuint##bits##_t value __attribute__((unused)),                                       \
             unsigned int flags __attribute__((unused))),                                          \
            old_##api(stream, mode));                                                              \
    SIM_TWO(api##_v2, api##_v2_ptsz,                                                               \
            (CUstream stream, CUdeviceptr address, cuuint##bits##_t value, unsigned int flags),    \
            call_##api(stream, address, value, flags, mode))

VALUE_API(cuStreamWriteValue32, 32, SIM_OP_WRITE);
VALUE_API(cuStreamWriteValue64, 64, SIM_OP_WRITE);
VALUE_API(cuStreamWaitValue32, 32, SIM_OP_WAIT);
VALUE_API(cuStreamWaitValue64, 64, SIM_OP_WAIT);
