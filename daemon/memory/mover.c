#include "daemon/memory/mover.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/chunk.h"
#include "common/locks.h"

/* A batch ends, with an event, when it has so many bytes. */
#define BATCH_BYTES (8ull << 20)

struct copy {
    CUdeviceptr to, from;           /* with a pool: both are the device's end */
    const struct gm_hostpool *pool; /* the host's end is a chain of its pages; NULL: no chain */
    uint32_t page;
    uint64_t bytes;
    uint64_t fence;
    bool is_clear;   /* nothing is copied: `to` becomes zero */
    CUresult result; /* of starting it */
};

/*
 * One direction. seen <= recorded <= started <= submitted: copies whose end the loop saw; that have
 * an event behind them; that are in the stream; that have a number. Only a copy in can be submitted
 * and not started: it waits until the event of its copy out is recorded. A copy that the driver
 * refused is counted like the others, as parts of it may be in the stream.
 */
struct way {
    struct gm_mover *mover;
    CUstream stream;
    CUevent events[GM_WAY_DEPTH]; /* events[n % GM_WAY_DEPTH]: behind copy n, if recorded */
    struct copy copies[GM_WAY_DEPTH];
    uint64_t submitted, started, recorded;
    uint64_t unrecorded; /* bytes started behind the last event */
    uint64_t waited;     /* the stream waits already for copies out up to this one */
    uint64_t seen;
    uint64_t bytes;
    uint64_t under_way; /* bytes */
    uv_thread_t waiter;
    bool has_waiter;
    struct gm_lock lock; /* of what follows */
    pthread_cond_t more;
    uint64_t posted;               /* `recorded`, for the waiter */
    uint64_t behind[GM_WAY_DEPTH]; /* the copy whose event is behind copy n */
    uint64_t ended;                /* set by the waiter */
    bool is_stopping;
};

struct gm_mover {
    const struct gm_cuda *cuda;
    CUcontext context;
    uv_async_t wake;
    uv_prepare_t rest; /* before the loop waits: record the events that are missing */
    unsigned handles;  /* open */
    void (*on_done)(void *arg);
    void *arg;
    atomic_int error; /* CUresult: the first that says that the context is lost */
    struct way ways[GM_WAYS];
    uint64_t *count; /* of copies out that have ended; NULL: nobody wants it */
    CUdeviceptr count_at;
};

static uint64_t link_bytes(const struct copy *copy)
{
    return copy->is_clear ? 0 : copy->bytes;
}

static void note_error(struct gm_mover *mover, CUresult result)
{
    int none = CUDA_SUCCESS;
    if (result != CUDA_SUCCESS && atomic_compare_exchange_strong(&mover->error, &none, (int)result))
        uv_async_send(&mover->wake);
}

/*
 * A call about the stream failed. Wait for all that is in the stream instead. If that succeeds, the
 * copies in it were made. It fails if the context is lost, as every call does then.
 */
static CUresult probe(struct gm_mover *mover, const struct way *way)
{
    const CUresult result = mover->cuda->cuStreamSynchronize(way->stream);
    note_error(mover, result);
    return result;
}

static void wait_copies(void *arg)
{
    struct way *way = arg;
    struct gm_mover *mover = way->mover;
    uint64_t at = 0;

    note_error(mover, mover->cuda->cuCtxSetCurrent(mover->context));
    for (;;) {
        gm_lock(&way->lock);
        while (way->posted == at && !way->is_stopping)
            gm_lock_wait(&way->more, &way->lock);
        bool is_over = way->posted == at;
        if (!is_over)
            at = way->behind[(at + 1) % GM_WAY_DEPTH];
        gm_unlock(&way->lock);
        if (is_over)
            return;
        if (mover->cuda->cuEventSynchronize(way->events[at % GM_WAY_DEPTH]) != CUDA_SUCCESS)
            probe(mover, way);
        /* Set and send under the lock. The loop clears the pending wake-up before it takes the
         * lock. Outside of it, this could find a wake-up still pending and send none, after the
         * loop has read the old end. */
        gm_lock(&way->lock);
        way->ended = at;
        uv_async_send(&mover->wake);
        gm_unlock(&way->lock);
    }
}

static void on_wake(uv_async_t *async)
{
    struct gm_mover *mover = async->data;
    for (int i = 0; i < GM_WAYS; i++) {
        struct way *way = &mover->ways[i];
        gm_lock(&way->lock);
        uint64_t ended = way->ended;
        gm_unlock(&way->lock);
        for (; way->seen < ended; way->seen++) {
            const struct copy *copy = &way->copies[(way->seen + 1) % GM_WAY_DEPTH];
            way->bytes += copy->result == CUDA_SUCCESS ? link_bytes(copy) : 0;
            way->under_way -= link_bytes(copy);
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
    gm_lock_init(&way->lock, GM_LOCK_MOVER);
    pthread_cond_init(&way->more, NULL);
    if (uv_thread_create(&way->waiter, wait_copies, way) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    way->has_waiter = true;
    return CUDA_SUCCESS;
}

static void close_way(struct way *way)
{
    const struct gm_cuda *cuda = way->mover->cuda;
    if (way->has_waiter) {
        gm_lock(&way->lock);
        way->is_stopping = true;
        pthread_cond_signal(&way->more);
        gm_unlock(&way->lock);
        uv_thread_join(&way->waiter);
        gm_lock_destroy(&way->lock);
        pthread_cond_destroy(&way->more);
    }
    for (unsigned i = 0; i < GM_WAY_DEPTH; i++)
        if (way->events[i])
            cuda->cuEventDestroy_v2(way->events[i]);
    if (way->stream) {
        cuda->cuStreamSynchronize(way->stream); /* copies without an event */
        cuda->cuStreamDestroy_v2(way->stream);
    }
}

static void free_mover(uv_handle_t *handle)
{
    struct gm_mover *mover = handle->data;
    if (--mover->handles == 0)
        free(mover);
}

static void on_rest(uv_prepare_t *prepare);

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
    mover->wake.data = mover->rest.data = mover;
    uv_prepare_init(loop, &mover->rest);
    uv_prepare_start(&mover->rest, on_rest);
    uv_unref((uv_handle_t *)&mover->rest);
    mover->handles = 2;
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

uint64_t gm_mover_room(const struct gm_mover *mover, enum gm_way way)
{
    const struct way *w = &mover->ways[way];
    return GM_WAY_DEPTH - 1 - (w->submitted - w->seen);
}

/* An event is reused only after the loop has seen its copy end, so a fence that is not seen yet
 * still has its event. */
static CUresult wait_for_fence(struct gm_mover *mover, struct way *in, uint64_t fence)
{
    const struct way *out = &mover->ways[GM_WAY_OUT];
    if (fence <= out->seen || fence <= in->waited)
        return CUDA_SUCCESS;
    const uint64_t behind = out->behind[fence % GM_WAY_DEPTH];
    if (mover->cuda->cuStreamWaitEvent(in->stream, out->events[behind % GM_WAY_DEPTH], 0) !=
        CUDA_SUCCESS)
        return probe(mover, out); /* all copies out have ended then */
    in->waited = behind;
    return CUDA_SUCCESS;
}

/* Put a copy into the stream, a piece for each run of pages. */
static CUresult copy_now(struct gm_mover *mover, struct way *w, const struct copy *copy)
{
    const bool is_out = w == &mover->ways[GM_WAY_OUT];
    CUdeviceptr to = copy->to, from = copy->from;
    CUresult result = CUDA_SUCCESS;
    if (to == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (copy->is_clear)
        return mover->cuda->cuMemsetD32Async(to, 0, copy->bytes / sizeof(uint32_t), w->stream);
    if (copy->pool == NULL)
        return mover->cuda->cuMemcpyAsync(to, from, copy->bytes, w->stream);
    uint32_t page = copy->page;
    for (uint64_t left = copy->bytes; result == CUDA_SUCCESS && left > 0;) {
        uint64_t piece;
        gm_hostpool_piece(copy->pool, &page, is_out ? &to : &from, &piece);
        result = mover->cuda->cuMemcpyAsync(to, from, piece, w->stream);
        *(is_out ? &from : &to) += piece;
        left -= piece;
    }
    return result;
}

void gm_mover_count(struct gm_mover *mover, uint64_t *word, CUdeviceptr at)
{
    mover->count = word;
    mover->count_at = at;
}

/* Copies out up to number `last` have ended when the GPU comes here. If the driver refuses, what it
 * took before must be behind the GPU: that would be written over GM_MOVER_UNCOUNTED. No copy in
 * that waits for these copies has been started. */
static void count_out(struct gm_mover *mover, const struct way *out, uint64_t last)
{
    if (mover->cuda->cuStreamWriteValue64_v2(out->stream, mover->count_at, last, 0) == CUDA_SUCCESS)
        return;
    probe(mover, out);
    __atomic_store_n(mover->count, GM_MOVER_UNCOUNTED, __ATOMIC_RELEASE);
    mover->count = NULL;
}

/* Record an event behind all copies that were started. If the driver refuses, probe() waits for
 * them, and the waiter finds the event as it was before: done. */
static CUresult record(struct gm_mover *mover, struct way *w)
{
    const uint64_t last = w->started;
    if (last == w->recorded)
        return CUDA_SUCCESS;
    if (mover->count && w == &mover->ways[GM_WAY_OUT])
        count_out(mover, w, last);
    CUresult result = mover->cuda->cuEventRecord(w->events[last % GM_WAY_DEPTH], w->stream);
    if (result != CUDA_SUCCESS)
        result = probe(mover, w);
    if (result != CUDA_SUCCESS)
        return result;
    gm_lock(&w->lock);
    for (uint64_t n = w->recorded + 1; n <= last; n++)
        w->behind[n % GM_WAY_DEPTH] = last;
    w->posted = last;
    pthread_cond_signal(&w->more);
    gm_unlock(&w->lock);
    w->recorded = last;
    w->unrecorded = 0;
    return CUDA_SUCCESS;
}

/* Start submitted copies as far as they can be; none once the context is lost. */
static void start(struct gm_mover *mover, struct way *w)
{
    const struct way *out = &mover->ways[GM_WAY_OUT];
    while (gm_mover_error(mover) == CUDA_SUCCESS && w->started < w->submitted) {
        struct copy *copy = &w->copies[(w->started + 1) % GM_WAY_DEPTH];
        if (w != out &&
            (copy->fence > out->recorded || wait_for_fence(mover, w, copy->fence) != CUDA_SUCCESS))
            return;
        copy->result = copy_now(mover, w, copy);
        w->started++;
        w->unrecorded += copy->bytes;
        if (w->unrecorded >= BATCH_BYTES)
            record(mover, w);
    }
}

/* Start whatever was submitted, with an event behind it. */
static void finish_batches(struct gm_mover *mover)
{
    gm_cuda_enter(mover->cuda, mover->context);
    record(mover, &mover->ways[GM_WAY_OUT]);
    start(mover, &mover->ways[GM_WAY_IN]);
    record(mover, &mover->ways[GM_WAY_IN]);
}

static void on_rest(uv_prepare_t *prepare)
{
    finish_batches(prepare->data);
}

void gm_mover_close(struct gm_mover *mover)
{
    finish_batches(mover);
    for (int i = 0; i < GM_WAYS; i++)
        close_way(&mover->ways[i]);
    uv_close((uv_handle_t *)&mover->rest, free_mover);
    uv_close((uv_handle_t *)&mover->wake, free_mover);
}

/* Returns its number. */
static uint64_t submit(struct gm_mover *mover, enum gm_way way, struct copy copy)
{
    struct way *w = &mover->ways[way];
    w->copies[++w->submitted % GM_WAY_DEPTH] = copy;
    w->under_way += link_bytes(&copy);
    gm_cuda_enter(mover->cuda, mover->context);
    start(mover, w);
    if (way == GM_WAY_OUT) /* copies in may have waited for its event */
        start(mover, &mover->ways[GM_WAY_IN]);
    return w->submitted;
}

uint64_t gm_mover_submit(struct gm_mover *mover, enum gm_way way, CUdeviceptr device,
                         const struct gm_hostpool *pool, uint32_t page, uint64_t bytes,
                         uint64_t fence)
{
    return submit(mover, way,
                  (struct copy){.to = device,
                                .from = device,
                                .pool = pool,
                                .page = page,
                                .bytes = bytes,
                                .fence = fence});
}

uint64_t gm_mover_copy(struct gm_mover *mover, enum gm_way way, CUdeviceptr to, CUdeviceptr from,
                       uint64_t bytes, uint64_t fence)
{
    return submit(mover, way,
                  (struct copy){.to = to, .from = from, .bytes = bytes, .fence = fence});
}

uint64_t gm_mover_clear(struct gm_mover *mover, CUdeviceptr device, uint64_t bytes, uint64_t fence)
{
    return submit(mover, GM_WAY_IN,
                  (struct copy){.to = device, .bytes = bytes, .fence = fence, .is_clear = true});
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

CUresult gm_mover_result(const struct gm_mover *mover, enum gm_way way, uint64_t number)
{
    return mover->ways[way].copies[number % GM_WAY_DEPTH].result;
}

CUresult gm_mover_error(const struct gm_mover *mover)
{
    return (CUresult)atomic_load(&mover->error);
}
