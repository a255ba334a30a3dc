#include "daemon/migrate.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/core/table.h"

/* One direction. `submitted` is the loop's; the waiter sees it through `mutex`. */
struct way {
    struct gm_mover *mover;
    CUstream stream;
    CUevent events[GM_WAY_DEPTH]; /* of copy n: events[n % GM_WAY_DEPTH] */
    uint64_t sizes[GM_WAY_DEPTH];
    uint64_t submitted;
    uint64_t seen; /* by the loop: what gm_mover_done says */
    uint64_t bytes;
    uint64_t under_way;  /* bytes */
    atomic_ullong ended; /* by the waiter */
    uv_thread_t waiter;
    uv_mutex_t mutex;
    uv_cond_t more;
    uint64_t posted;  /* under mutex: copies that the waiter may wait for */
    bool is_stopping; /* under mutex */
    bool has_waiter;
};

struct gm_mover {
    const struct gm_cuda *cuda;
    CUcontext context;
    uv_async_t wake;
    void (*on_done)(void *arg);
    void *arg;
    atomic_int error; /* CUresult, the first one */
    struct way ways[GM_WAYS];
};

static void note_error(struct gm_mover *mover, CUresult result)
{
    int none = CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        atomic_compare_exchange_strong(&mover->error, &none, (int)result);
}

static void wait_copies(void *arg)
{
    struct way *way = arg;
    struct gm_mover *mover = way->mover;
    uint64_t at = 0;

    note_error(mover, mover->cuda->cuCtxSetCurrent(mover->context));
    for (;;) {
        uv_mutex_lock(&way->mutex);
        while (way->posted == at && !way->is_stopping)
            uv_cond_wait(&way->more, &way->mutex);
        bool is_over = way->posted == at;
        uv_mutex_unlock(&way->mutex);
        if (is_over)
            return;
        at++;
        note_error(mover, mover->cuda->cuEventSynchronize(way->events[at % GM_WAY_DEPTH]));
        atomic_store_explicit(&way->ended, at, memory_order_release);
        uv_async_send(&mover->wake);
    }
}

static void on_wake(uv_async_t *async)
{
    struct gm_mover *mover = async->data;
    for (int i = 0; i < GM_WAYS; i++) {
        struct way *way = &mover->ways[i];
        uint64_t ended = atomic_load_explicit(&way->ended, memory_order_acquire);
        for (; way->seen < ended; way->seen++) {
            way->bytes += way->sizes[(way->seen + 1) % GM_WAY_DEPTH];
            way->under_way -= way->sizes[(way->seen + 1) % GM_WAY_DEPTH];
        }
    }
    mover->on_done(mover->arg);
}

static CUresult open_way(struct gm_mover *mover, struct way *way)
{
    const struct gm_cuda *cuda = mover->cuda;
    CUresult result;
    way->mover = mover;
    result = cuda->cuStreamCreate(&way->stream, CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < GM_WAY_DEPTH; i++)
        result =
            cuda->cuEventCreate(&way->events[i], CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return result;
    uv_mutex_init(&way->mutex);
    uv_cond_init(&way->more);
    if (uv_thread_create(&way->waiter, wait_copies, way) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    way->has_waiter = true;
    return CUDA_SUCCESS;
}

static void close_way(struct way *way)
{
    const struct gm_cuda *cuda = way->mover->cuda;
    if (way->has_waiter) {
        uv_mutex_lock(&way->mutex);
        way->is_stopping = true;
        uv_cond_signal(&way->more);
        uv_mutex_unlock(&way->mutex);
        uv_thread_join(&way->waiter);
        uv_mutex_destroy(&way->mutex);
        uv_cond_destroy(&way->more);
    }
    for (unsigned i = 0; i < GM_WAY_DEPTH; i++)
        if (way->events[i])
            cuda->cuEventDestroy_v2(way->events[i]);
    if (way->stream)
        cuda->cuStreamDestroy_v2(way->stream);
}

static void free_mover(uv_handle_t *handle)
{
    free(handle->data);
}

int gm_mover_open(struct gm_mover **out, uv_loop_t *loop, const struct gm_cuda *cuda,
                  CUcontext context, void (*on_done)(void *arg), void *arg, char *why,
                  size_t why_size)
{
    struct gm_mover *mover = calloc(1, sizeof *mover);
    if (!mover) {
        snprintf(why, why_size, "out of memory");
        return -ENOMEM;
    }
    mover->cuda = cuda;
    mover->context = context;
    mover->on_done = on_done;
    mover->arg = arg;
    mover->ways[0].mover = mover->ways[1].mover = mover;
    int error = uv_async_init(loop, &mover->wake, on_wake);
    if (error) {
        snprintf(why, why_size, "cannot make a wake-up handle: %s", uv_strerror(error));
        free(mover);
        return error;
    }
    mover->wake.data = mover;
    for (int i = 0; i < GM_WAYS; i++) {
        CUresult result = open_way(mover, &mover->ways[i]);
        if (result != CUDA_SUCCESS) {
            snprintf(why, why_size, "cannot make the copy streams: %s", gm_cuda_text(cuda, result));
            gm_mover_close(mover);
            return -EIO;
        }
    }
    *out = mover;
    return 0;
}

void gm_mover_close(struct gm_mover *mover)
{
    for (int i = 0; i < GM_WAYS; i++)
        close_way(&mover->ways[i]);
    uv_close((uv_handle_t *)&mover->wake, free_mover);
}

bool gm_mover_has_room(const struct gm_mover *mover, enum gm_way way)
{
    const struct way *w = &mover->ways[way];
    return w->submitted - w->seen < GM_WAY_DEPTH - 1;
}

/* An event slot is used again only after the loop has seen its copy end, so a fence that is not yet
 * seen still has its event. */
static CUresult wait_for_fence(struct gm_mover *mover, enum gm_way way, uint64_t fence)
{
    const struct way *out = &mover->ways[GM_WAY_OUT];
    if (way != GM_WAY_IN || fence <= out->seen)
        return CUDA_SUCCESS;
    return mover->cuda->cuStreamWaitEvent(mover->ways[way].stream,
                                          out->events[fence % GM_WAY_DEPTH], 0);
}

/* The pieces of the next copy are in the stream, or were refused. Returns its number or 0. */
static uint64_t post(struct gm_mover *mover, enum gm_way way, uint64_t bytes, CUresult result)
{
    struct way *w = &mover->ways[way];
    uint64_t number = w->submitted + 1;
    if (result == CUDA_SUCCESS)
        result = mover->cuda->cuEventRecord(w->events[number % GM_WAY_DEPTH], w->stream);
    if (result != CUDA_SUCCESS) {
        note_error(mover, result);
        return 0;
    }
    w->sizes[number % GM_WAY_DEPTH] = bytes;
    w->under_way += bytes;
    w->submitted = number;
    uv_mutex_lock(&w->mutex);
    w->posted = number;
    uv_cond_signal(&w->more);
    uv_mutex_unlock(&w->mutex);
    return number;
}

uint64_t gm_mover_submit(struct gm_mover *mover, enum gm_way way, CUdeviceptr device,
                         const struct gm_hostpool *pool, uint32_t page, uint64_t bytes,
                         uint64_t fence)
{
    CUresult result = wait_for_fence(mover, way, fence);
    for (uint64_t left = bytes; result == CUDA_SUCCESS && left > 0;) {
        CUdeviceptr host;
        uint64_t piece;
        gm_hostpool_piece(pool, &page, &host, &piece);
        result = mover->cuda->cuMemcpyAsync(way == GM_WAY_OUT ? host : device,
                                            way == GM_WAY_OUT ? device : host, piece,
                                            mover->ways[way].stream);
        device += piece;
        left -= piece;
    }
    return post(mover, way, bytes, result);
}

uint64_t gm_mover_copy(struct gm_mover *mover, enum gm_way way, CUdeviceptr to, CUdeviceptr from,
                       uint64_t bytes, uint64_t fence)
{
    CUresult result = wait_for_fence(mover, way, fence);
    if (result == CUDA_SUCCESS)
        result = mover->cuda->cuMemcpyAsync(to, from, bytes, mover->ways[way].stream);
    return post(mover, way, bytes, result);
}

uint64_t gm_mover_done(const struct gm_mover *mover, enum gm_way way)
{
    return mover->ways[way].seen;
}

uint64_t gm_mover_under_way(const struct gm_mover *mover, enum gm_way way)
{
    return mover->ways[way].under_way;
}

uint64_t gm_mover_bytes(const struct gm_mover *mover, enum gm_way way)
{
    return mover->ways[way].bytes;
}

CUresult gm_mover_error(const struct gm_mover *mover)
{
    return (CUresult)atomic_load(&mover->error);
}
