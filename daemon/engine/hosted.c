/*
 * Hosted chunks, of programs larger than the budget (--oversize host). Called by apps.c, engine.c
 * and saving.c; calls memory/frames.c and hostpool.c.
 *
 * What does not fit on the GPU beside the rest of its program goes to host frames. The program maps
 * them like others, and the GPU reads them over the link (51 GB/s measured; 4.4 TB/s on the
 * device). They take no budget, and nothing of them moves but in an exchange (trades.c). The pinned
 * tier lends their bytes, so its cap holds for both.
 *
 * Making a host frame of 32 MiB takes about 7 ms, so a worker makes them, a few at a time, and only
 * after the pinned tier has released what it lent. A chunk that is queued or with the worker is in
 * flight (in) with copy_pending set, so nobody ends it meanwhile.
 */
#include "daemon/engine/state.h"

#include <string.h>

#include "common/log.h"

/* Copy a chunk's data from pinned memory to its new frame. The CPU does it: one thread copies
 * 10 GB/s, which is no less than it takes to pin what it copies to. */
static CUresult fill_frame(struct gm_engine *engine, uint32_t frame, uint32_t page, uint64_t bytes)
{
    CUresult result = gm_frames_let_cpu(&engine->frames, frame, bytes, engine->pool.node);
    CUdeviceptr to = engine->frames.handles[frame].va, from;
    for (uint64_t left = result == CUDA_SUCCESS ? bytes : 0, piece; left > 0; left -= piece) {
        gm_hostpool_piece(&engine->pool, &page, &from, &piece);
        memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, piece);
        to += piece;
    }
    return result;
}

static void work_make(uv_work_t *work)
{
    struct gm_engine *engine = work->data;
    struct gm_host_work *job = &engine->host_work;
    CUresult result = engine->cuda.cuCtxSetCurrent(engine->context);
    for (uint32_t i = 0; i < job->n; i++) {
        if (result == CUDA_SUCCESS)
            result = gm_frames_create_host(&engine->frames, job->frames[i], job->bytes[i],
                                           engine->pool.node);
        job->results[i] = result;
        if (result != CUDA_SUCCESS || job->pages[i] == GM_NONE)
            continue;
        result = fill_frame(engine, job->frames[i], job->pages[i], job->bytes[i]);
        job->results[i] = result;
        if (result != CUDA_SUCCESS)
            gm_frames_destroy(&engine->frames, job->frames[i], job->bytes[i]);
    }
}

/* The chunk gets no frame: it was freed while it waited, or there is no memory or slot for it. */
static void give_up(struct gm_engine *engine, uint32_t index)
{
    struct gm_chunk *chunk = &engine->table->chunks[index];
    uint32_t allocation = chunk->allocation;

    chunk->copy_pending = false;
    gm_hostpool_unlend(&engine->pool, gm_class_bytes(chunk->class));
    if (!chunk->is_freed && engine->table->allocations[allocation].is_pending) {
        gm_engine_refused(engine, chunk->app, engine->table->allocations[allocation].bytes,
                          GM_REFUSED_HOST);
        gm_engine_answer_alloc(engine, allocation, CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (engine->stopping.is_on)
        engine->apps[chunk->app].retry_at = engine->now + GM_HOSTED_RETRY_NS;
    gm_engine_settle(engine, index);
}

static void take_over(struct gm_engine *engine, uint32_t index, uint32_t frame, CUresult result)
{
    struct gm_chunk *chunk = &engine->table->chunks[index];

    if (result != CUDA_SUCCESS) {
        gm_log(GM_LOG_WARN, "no host memory for a hosted chunk (%s)",
               gm_cuda_text(&engine->cuda, result));
        gm_table_end_frame(engine->table, frame);
        give_up(engine, index);
        return;
    }
    chunk->copy_pending = false;
    gm_table_take_frame(engine->table, frame, index);
    if (!chunk->is_freed) {
        gm_engine_map(engine, index);
    } else {
        chunk->map_failed = true; /* it never was mapped: the frame just goes */
        gm_engine_settle(engine, index);
    }
}

static void work_done(uv_work_t *work, int status)
{
    struct gm_engine *engine = work->data;
    struct gm_host_work *job = &engine->host_work;
    job->is_busy = false;
    engine->now = gm_now();
    for (uint32_t i = 0; i < job->n; i++)
        take_over(engine, job->chunks[i], job->frames[i],
                  status ? CUDA_ERROR_OUT_OF_MEMORY : job->results[i]);
    gm_engine_run(engine);
}

void gm_engine_queue_hosted(struct gm_engine *engine, uint32_t allocation)
{
    uint32_t index = engine->table->allocations[allocation].first;
    for (; index != GM_NONE; index = engine->table->chunks[index].sibling) {
        if (engine->table->chunks[index].is_hosted)
            gm_engine_queue_chunk(engine, index);
    }
}

void gm_engine_queue_chunk(struct gm_engine *engine, uint32_t index)
{
    struct gm_chunk *chunk = &engine->table->chunks[index];
    chunk->flight = GM_FLIGHT_IN;
    chunk->copy_pending = true;
    if (chunk->page != GM_NONE)
        engine->ending[GM_TIER_PINNED] += gm_chunk_bytes(chunk);
    engine->hosted[(engine->hosted_from + engine->n_hosted++) % engine->table->max_chunks] = index;
}

static uint32_t take_first(struct gm_engine *engine)
{
    uint32_t index = engine->hosted[engine->hosted_from];
    engine->hosted_from = (engine->hosted_from + 1) % engine->table->max_chunks;
    engine->n_hosted--;
    return index;
}

void gm_engine_make_hosted(struct gm_engine *engine)
{
    struct gm_host_work *job = &engine->host_work;
    if (job->is_busy || engine->n_hosted == 0 || engine->is_closing)
        return;
    CUresult result = gm_hostpool_clear(&engine->pool);
    if (result == CUDA_ERROR_NOT_READY)
        return; /* on_grown comes here again */
    if (result != CUDA_SUCCESS)
        gm_log(GM_LOG_WARN, "no host memory for hosted chunks: pinned memory is not released (%s)",
               gm_cuda_text(&engine->cuda, result));
    job->n = 0;
    while (engine->n_hosted > 0 && job->n < GM_HOST_BATCH) {
        uint32_t index = take_first(engine);
        struct gm_chunk *chunk = &engine->table->chunks[index];
        uint32_t frame = GM_NONE;
        if (!chunk->is_freed && result == CUDA_SUCCESS)
            frame = gm_table_add_host_frame(engine->table, engine->table->apps[chunk->app].pool,
                                            chunk->class);
        if (frame == GM_NONE) {
            give_up(engine, index);
            continue;
        }
        job->chunks[job->n] = index;
        job->frames[job->n] = frame;
        job->pages[job->n] = chunk->page;
        job->bytes[job->n++] = gm_class_bytes(chunk->class);
    }
    job->work.data = engine;
    job->is_busy = job->n > 0 && uv_queue_work(engine->loop, &job->work, work_make, work_done) == 0;
}
