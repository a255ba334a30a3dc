/*
 * Contexts. A context is never freed, so that a handle to one that was destroyed can be told from a
 * live one; a primary context keeps its handle over all its lives. Each thread has a stack of them.
 *
 * list_lock guards the list of contexts and the retain counts; it is outside every other lock.
 */
#include "tests/simcuda/sim.h"

#include <string.h>

#define CTX_MAGIC 0x43545853u
#define STACK_MAX 256

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_ctx *contexts;
static struct sim_ctx *primary[SIM_DEVICES_MAX];
static unsigned primary_flags[SIM_DEVICES_MAX];
static uint64_t last_id;

static __thread struct sim_ctx *stack[STACK_MAX];
static __thread int depth;

CUresult sim_device_check(CUdevice device)
{
    return device >= 0 && device < sim_options.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult sim_ctx_current(struct sim_ctx **ctx)
{
    struct sim_ctx *top = depth > 0 ? stack[depth - 1] : NULL;
    if (top == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!atomic_load(&top->is_alive))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *ctx = top;
    return (CUresult)atomic_load(&top->error);
}

CUresult sim_ctx_check(CUcontext handle, struct sim_ctx **ctx)
{
    struct sim_ctx *c = (struct sim_ctx *)(void *)handle;
    if (c == NULL || c->magic != CTX_MAGIC)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!atomic_load(&c->is_alive))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *ctx = c;
    return CUDA_SUCCESS;
}

static CUcontext handle_of(struct sim_ctx *ctx)
{
    return (CUcontext)(void *)ctx;
}

/* Begin a life of a context: its memory and its streams. Under the list lock. */
static CUresult start_context(struct sim_ctx *ctx, unsigned flags, unsigned api_version)
{
    const CUresult result = sim_memory_take(ctx->device, sim_options.context_memory);
    if (result != CUDA_SUCCESS)
        return result;
    ctx->flags = flags;
    ctx->api_version = api_version;
    ctx->generation++;
    memset(ctx->limit, 0, sizeof ctx->limit);
    ctx->limit[CU_LIMIT_STACK_SIZE] = 1024;
    ctx->limit[CU_LIMIT_PRINTF_FIFO_SIZE] = 8u << 20;
    ctx->limit[CU_LIMIT_MALLOC_HEAP_SIZE] = 8u << 20;
    ctx->limit[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    ctx->limit[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    atomic_store(&ctx->error, CUDA_SUCCESS);
    atomic_store(&ctx->is_alive, true);
    ctx->legacy = sim_stream_new(ctx, CU_STREAM_DEFAULT, 0);
    ctx->legacy->is_legacy = true;
    sim_channels_make(ctx);
    return CUDA_SUCCESS;
}

/* End it: wait for its work, then its streams and memory go. Under the list lock. */
static void stop_context(struct sim_ctx *ctx)
{
    sim_ctx_wait(ctx);
    atomic_store(&ctx->is_alive, false);
    for (;;) {
        pthread_mutex_lock(&ctx->lock);
        struct sim_stream *stream = ctx->streams;
        while (stream != NULL && stream->is_destroyed) /* ends by itself */
            stream = stream->ctx_next;
        if (stream != NULL)
            sim_stream_ref(stream);
        pthread_mutex_unlock(&ctx->lock);
        if (stream == NULL)
            break;
        sim_stream_shut(stream);
        sim_stream_unref(stream);
    }
    ctx->legacy = NULL;
    sim_channels_free(ctx);
    sim_memory_free_context(ctx);
    sim_memory_give(ctx->device, sim_options.context_memory + ctx->stacks);
    ctx->stacks = 0;
}

static struct sim_ctx *new_context(int device, bool is_primary)
{
    struct sim_ctx *ctx = sim_alloc(sizeof *ctx);
    ctx->magic = CTX_MAGIC;
    ctx->id = ++last_id;
    ctx->device = device;
    ctx->is_primary = is_primary;
    pthread_mutex_init(&ctx->lock, NULL);
    ctx->next = contexts;
    contexts = ctx;
    return ctx;
}

static bool are_flags_valid(unsigned flags)
{
    const unsigned schedule = flags & CU_CTX_SCHED_MASK;
    return (flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0 &&
           (schedule == CU_CTX_SCHED_AUTO || schedule == CU_CTX_SCHED_SPIN ||
            schedule == CU_CTX_SCHED_YIELD || schedule == CU_CTX_SCHED_BLOCKING_SYNC);
}

static CUresult push(struct sim_ctx *ctx)
{
    if (depth == STACK_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = ctx;
    return CUDA_SUCCESS;
}

static CUresult create_context(CUcontext *handle, unsigned flags, CUdevice device, unsigned version)
{
    if (handle == NULL || !are_flags_valid(flags))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&list_lock);
    struct sim_ctx *ctx = new_context(device, false);
    result = start_context(ctx, flags, version);
    pthread_mutex_unlock(&list_lock);
    if (result == CUDA_SUCCESS)
        result = push(ctx);
    if (result == CUDA_SUCCESS)
        *handle = handle_of(ctx);
    return result;
}

SIM_API CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice device)
{
    SIM_ENTER(cuCtxCreate);
    return create_context(ctx, flags, device, 3020);
}
SIM_ENTRY(cuCtxCreate_v2);

SIM_API CUresult cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *params, int n_params,
                                unsigned int flags, CUdevice device)
{
    SIM_ENTER(cuCtxCreate);
    if (n_params != 0 || params != NULL)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return create_context(ctx, flags, device, 11040);
}
SIM_ENTRY(cuCtxCreate_v3);

SIM_API CUresult cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *params, unsigned int flags,
                                CUdevice device)
{
    SIM_ENTER(cuCtxCreate);
    if (params != NULL && (params->numExecAffinityParams != 0 || params->cigParams != NULL))
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return create_context(ctx, flags, device, 12050);
}
SIM_ENTRY(cuCtxCreate_v4);

/* What is no context counts as one that was destroyed. */
SIM_API CUresult cuCtxDestroy_v2(CUcontext handle)
{
    SIM_ENTER(cuCtxDestroy);
    struct sim_ctx *ctx;
    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_ctx_check(handle, &ctx);
    if (result == CUDA_ERROR_INVALID_CONTEXT)
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (result == CUDA_SUCCESS && ctx->is_primary)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&list_lock);
    if (atomic_load(&ctx->is_alive))
        stop_context(ctx);
    else
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    pthread_mutex_unlock(&list_lock);
    if (depth > 0 && stack[depth - 1] == ctx)
        depth--;
    return result;
}
SIM_ENTRY(cuCtxDestroy_v2);

/* ---- the stack of a thread ---- */

SIM_API CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
    SIM_ENTER(cuCtxPushCurrent);
    struct sim_ctx *ctx;
    const CUresult result = sim_ctx_check(handle, &ctx);
    return result == CUDA_SUCCESS ? push(ctx) : result;
}
SIM_ENTRY(cuCtxPushCurrent_v2);

SIM_API CUresult cuCtxPopCurrent_v2(CUcontext *handle)
{
    SIM_ENTER(cuCtxPopCurrent);
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (handle != NULL)
        *handle = handle_of(stack[depth]);
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuCtxPopCurrent_v2);

SIM_API CUresult cuCtxSetCurrent(CUcontext handle)
{
    SIM_ENTER(cuCtxSetCurrent);
    if (handle == NULL) {
        depth -= depth > 0;
        return CUDA_SUCCESS;
    }
    struct sim_ctx *ctx;
    const CUresult result = sim_ctx_check(handle, &ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (depth == 0)
        return push(ctx);
    stack[depth - 1] = ctx;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuCtxSetCurrent);

SIM_API CUresult cuCtxGetCurrent(CUcontext *handle)
{
    SIM_ENTER(cuCtxGetCurrent);
    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = depth > 0 ? handle_of(stack[depth - 1]) : NULL;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuCtxGetCurrent);

/* ---- primary contexts ---- */

SIM_API CUresult cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice device)
{
    SIM_ENTER(cuDevicePrimaryCtxRetain);
    CUresult result = sim_device_check(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&list_lock);
    if (primary[device] == NULL)
        primary[device] = new_context(device, true);
    struct sim_ctx *ctx = primary[device];
    if (!atomic_load(&ctx->is_alive))
        result = start_context(ctx, primary_flags[device], CUDA_VERSION);
    if (result == CUDA_SUCCESS) {
        ctx->retains++;
        *handle = handle_of(ctx);
    }
    pthread_mutex_unlock(&list_lock);
    return result;
}
SIM_ENTRY(cuDevicePrimaryCtxRetain);

static CUresult release_primary(CUdevice device)
{
    CUresult result = sim_device_check(device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&list_lock);
    struct sim_ctx *ctx = primary[device];
    if (ctx == NULL || ctx->retains == 0) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else if (--ctx->retains == 0) {
        stop_context(ctx);
    }
    pthread_mutex_unlock(&list_lock);
    return result;
}

SIM_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    SIM_ENTER(cuDevicePrimaryCtxRelease);
    return release_primary(device);
}
SIM_ENTRY(cuDevicePrimaryCtxRelease_v2);

SIM_API CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    SIM_ENTER(cuDevicePrimaryCtxRelease);
    return release_primary(device);
}
SIM_ENTRY(cuDevicePrimaryCtxRelease);

/* The context goes, its retains stay; it lives again with the next retain. */
static CUresult reset_primary(CUdevice device)
{
    const CUresult result = sim_device_check(device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&list_lock);
    struct sim_ctx *ctx = primary[device];
    if (ctx != NULL && atomic_load(&ctx->is_alive))
        stop_context(ctx);
    pthread_mutex_unlock(&list_lock);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    SIM_ENTER(cuDevicePrimaryCtxReset);
    return reset_primary(device);
}
SIM_ENTRY(cuDevicePrimaryCtxReset_v2);

SIM_API CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    SIM_ENTER(cuDevicePrimaryCtxReset);
    return reset_primary(device);
}
SIM_ENTRY(cuDevicePrimaryCtxReset);

SIM_API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *is_active)
{
    SIM_ENTER(cuDevicePrimaryCtxGetState);
    const CUresult result = sim_device_check(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags == NULL || is_active == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&list_lock);
    const struct sim_ctx *ctx = primary[device];
    *flags = primary_flags[device];
    *is_active = ctx != NULL && atomic_load(&ctx->is_alive);
    pthread_mutex_unlock(&list_lock);
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuDevicePrimaryCtxGetState);

static CUresult set_primary_flags(CUdevice device, unsigned flags)
{
    const CUresult result = sim_device_check(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!are_flags_valid(flags))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&list_lock);
    primary_flags[device] = flags;
    if (primary[device] != NULL)
        primary[device]->flags = flags;
    pthread_mutex_unlock(&list_lock);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    SIM_ENTER(cuDevicePrimaryCtxSetFlags);
    return set_primary_flags(device, flags);
}
SIM_ENTRY(cuDevicePrimaryCtxSetFlags_v2);

SIM_API CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
    SIM_ENTER(cuDevicePrimaryCtxSetFlags);
    return set_primary_flags(device, flags);
}
SIM_ENTRY(cuDevicePrimaryCtxSetFlags);

/* ---- about the current context ---- */

void sim_ctx_wait(struct sim_ctx *ctx)
{
    size_t n = 0, room = 0;
    struct sim_point *points = NULL;
    pthread_mutex_lock(&ctx->lock);
    for (struct sim_stream *s = ctx->streams; s != NULL; s = s->ctx_next) {
        const struct sim_point point = {s, atomic_load(&s->submitted)};
        if (sim_point_passed(point))
            continue;
        if (n == room) {
            room = room == 0 ? 16 : room * 2;
            points = sim_grow(points, room * sizeof *points);
        }
        sim_stream_ref(s);
        points[n++] = point;
    }
    pthread_mutex_unlock(&ctx->lock);
    for (size_t i = 0; i < n; i++) {
        sim_point_wait(points[i]);
        sim_stream_unref(points[i].stream);
    }
    free(points);
}

static CUresult synchronize(struct sim_ctx *ctx)
{
    const CUresult result = sim_capture_sync_context(ctx);
    if (result != CUDA_SUCCESS)
        return result;
    sim_ctx_wait(ctx);
    return (CUresult)atomic_load(&ctx->error);
}

SIM_API CUresult cuCtxSynchronize(void)
{
    SIM_ENTER(cuCtxSynchronize);
    struct sim_ctx *ctx;
    const CUresult result = sim_ctx_current(&ctx);
    return result == CUDA_SUCCESS ? synchronize(ctx) : result;
}
SIM_ENTRY(cuCtxSynchronize);

SIM_API CUresult cuCtxSynchronize_v2(CUcontext handle)
{
    SIM_ENTER(cuCtxSynchronize);
    struct sim_ctx *ctx;
    const CUresult result = handle == NULL ? sim_ctx_current(&ctx) : sim_ctx_check(handle, &ctx);
    return result == CUDA_SUCCESS ? synchronize(ctx) : result;
}
SIM_ENTRY(cuCtxSynchronize_v2);

/* A primary context that was released to nothing is still on its device. */
SIM_API CUresult cuCtxGetDevice(CUdevice *device)
{
    SIM_ENTER(cuCtxGetDevice);
    struct sim_ctx *ctx;
    const CUresult result = sim_ctx_current(&ctx);
    if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED && stack[depth - 1]->is_primary)
        ctx = stack[depth - 1];
    else if (result != CUDA_SUCCESS)
        return result;
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *device = ctx->device;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuCtxGetDevice);

SIM_API CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
    SIM_ENTER(cuCtxGetDevice);
    struct sim_ctx *ctx;
    const CUresult result = handle == NULL ? sim_ctx_current(&ctx) : sim_ctx_check(handle, &ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *device = ctx->device;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuCtxGetDevice_v2);

SIM_API CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
    SIM_ENTER(cuCtxGetApiVersion);
    struct sim_ctx *ctx;
    const CUresult result = handle == NULL ? sim_ctx_current(&ctx) : sim_ctx_check(handle, &ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = ctx->api_version;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuCtxGetApiVersion);

SIM_API CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
    SIM_ENTER(cuCtxGetId);
    struct sim_ctx *ctx;
    const CUresult result = handle == NULL ? sim_ctx_current(&ctx) : sim_ctx_check(handle, &ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *id = ctx->id << 32 | ctx->generation;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuCtxGetId);

SIM_API CUresult cuCtxGetFlags(unsigned int *flags)
{
    SIM_ENTER(cuCtxGetFlags);
    struct sim_ctx *ctx;
    const CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = ctx->flags;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuCtxGetFlags);

SIM_API CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    SIM_ENTER(cuCtxGetLimit);
    struct sim_ctx *ctx;
    const CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = ctx->limit[limit];
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuCtxGetLimit);

static CUresult set_limit(struct sim_ctx *ctx, CUlimit limit, size_t value)
{
    ctx->limit[limit] = value;
    return CUDA_SUCCESS;
}

/* A stack is for all threads that the GPU can hold. The first 1024 bytes are the context's. */
static CUresult set_stack(struct sim_ctx *ctx, size_t value)
{
    const uint64_t threads = 16ull * 2048, given = 1024; /* the attributes say so */
    const uint64_t bytes = value > given ? (value - given) * threads : 0;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&ctx->lock);
    if (bytes > ctx->stacks)
        result = sim_memory_take(ctx->device, bytes - ctx->stacks);
    else
        sim_memory_give(ctx->device, ctx->stacks - bytes);
    if (result == CUDA_SUCCESS) {
        ctx->stacks = bytes;
        ctx->limit[CU_LIMIT_STACK_SIZE] = value;
    }
    pthread_mutex_unlock(&ctx->lock);
    return result;
}

SIM_API CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    SIM_ENTER_UNSAFE(cuCtxSetLimit);
    struct sim_ctx *ctx;
    const CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    return limit == CU_LIMIT_STACK_SIZE ? set_stack(ctx, value) : set_limit(ctx, limit, value);
}
SIM_ENTRY(cuCtxSetLimit);

SIM_API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    SIM_ENTER(cuCtxGetStreamPriorityRange);
    struct sim_ctx *ctx;
    const CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (least != NULL)
        *least = 0;
    if (greatest != NULL)
        *greatest = -5;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuCtxGetStreamPriorityRange);
