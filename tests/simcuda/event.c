/*
 * Events. Recording puts a mark into a stream; the event then is that place in the stream's order.
 * An event recorded in a stream that captures is no place in time but the nodes that came before
 * (graph.c).
 */
#include "tests/simcuda/sim.h"

#include <stdlib.h>

#define EVENT_MAGIC 0x45565453u

static pthread_mutex_t events_lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static struct sim_event *events;

static void link_event(struct sim_event *event)
{
    pthread_mutex_lock(&events_lock);
    event->next = events;
    if (events != NULL)
        events->prev = event;
    events = event;
    pthread_mutex_unlock(&events_lock);
}

static void unlink_event(struct sim_event *event)
{
    pthread_mutex_lock(&events_lock);
    *(event->prev != NULL ? &event->prev->next : &events) = event->next;
    if (event->next != NULL)
        event->next->prev = event->prev;
    pthread_mutex_unlock(&events_lock);
}

static CUresult find_event(CUevent handle, struct sim_event **event)
{
    struct sim_event *e = (struct sim_event *)(void *)handle;
    if (e == NULL || e->magic != EVENT_MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    *event = e;
    return CUDA_SUCCESS;
}

static void drop_mark(struct sim_mark *mark)
{
    if (mark != NULL && atomic_fetch_sub(&mark->refs, 1) == 1)
        free(mark);
}

/* The event's place now, with a reference to its stream. */
static struct sim_point get_point(struct sim_event *event)
{
    pthread_mutex_lock(&event->lock);
    const struct sim_point point = event->point;
    if (point.stream != NULL)
        sim_stream_ref(point.stream);
    pthread_mutex_unlock(&event->lock);
    return point;
}

SIM_API CUresult cuEventCreate(CUevent *handle, unsigned int flags)
{
    SIM_ENTER(cuEventCreate);
    struct sim_ctx *ctx;
    const CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
    if (handle == NULL || (flags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_event *event = sim_alloc(sizeof *event);
    event->magic = EVENT_MAGIC;
    event->flags = flags;
    event->ctx = ctx;
    pthread_mutex_init(&event->lock, NULL);
    link_event(event);
    *handle = (CUevent)(void *)event;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuEventCreate);

static CUresult destroy_event(CUevent handle)
{
    SIM_ENTER(cuEventDestroy);
    struct sim_event *event;
    const CUresult result = find_event(handle, &event);
    if (result != CUDA_SUCCESS)
        return result;
    unlink_event(event);
    if (event->point.stream != NULL)
        sim_stream_unref(event->point.stream);
    drop_mark(event->mark);
    free(event->frontier);
    pthread_mutex_destroy(&event->lock);
    event->magic = 0;
    free(event);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuEventDestroy_v2(CUevent event)
{
    return destroy_event(event);
}
SIM_ENTRY(cuEventDestroy_v2);

SIM_API CUresult cuEventDestroy(CUevent event)
{
    return destroy_event(event);
}
SIM_ENTRY(cuEventDestroy);

/* Put `op`, a mark, into the stream; the event is that place from now on. */
static CUresult place_mark(struct sim_event *event, struct sim_stream *s, struct sim_op *op)
{
    struct sim_mark *mark = sim_alloc(sizeof *mark);
    atomic_init(&mark->refs, 2); /* the event's and the operation's */
    op->u.mark = mark;
    struct sim_point point;
    const CUresult result = sim_submit(s, op, &point);
    if (result != CUDA_SUCCESS) {
        drop_mark(mark);
        return result;
    }
    pthread_mutex_lock(&event->lock);
    struct sim_stream *old = event->point.stream;
    struct sim_mark *old_mark = event->mark;
    event->point = point;
    event->mark = mark;
    event->capture_id = 0;
    pthread_mutex_unlock(&event->lock);
    if (old != NULL)
        sim_stream_unref(old);
    drop_mark(old_mark);
    return CUDA_SUCCESS;
}

static CUresult record(struct sim_event *event, CUstream handle, enum sim_mode mode)
{
    struct sim_stream *s;
    CUresult result = sim_stream_get(handle, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    if (s->ctx != event->ctx)
        return CUDA_ERROR_INVALID_HANDLE;
    bool is_captured = false;
    if (atomic_load(&sim_captures) > 0)
        result = sim_capture_record(event, s, &is_captured);
    if (result != CUDA_SUCCESS || is_captured)
        return result;
    return place_mark(event, s, sim_op_new(SIM_OP_MARK));
}

/* The event is a mark in a stream of its own, behind what every stream has been given so far. */
SIM_API CUresult cuCtxRecordEvent(CUcontext context, CUevent handle)
{
    SIM_ENTER(cuCtxRecordEvent);
    struct sim_ctx *ctx;
    struct sim_event *event;
    CUresult result = sim_ctx_check(context, &ctx);
    if (result == CUDA_SUCCESS)
        result = find_event(handle, &event);
    if (result == CUDA_SUCCESS && event->ctx != ctx)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = sim_capture_sync_context(ctx);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_op *op = sim_op_new(SIM_OP_MARK);
    sim_op_after_context(op, ctx);
    struct sim_stream *own = sim_stream_new(ctx, CU_STREAM_NON_BLOCKING, 0);
    result = place_mark(event, own, op);
    sim_stream_shut(own);
    return result;
}
SIM_ENTRY(cuCtxRecordEvent);

static CUresult event_record(CUevent handle, CUstream stream, enum sim_mode mode)
{
    SIM_ENTER(cuEventRecord);
    struct sim_event *event;
    const CUresult result = find_event(handle, &event);
    return result == CUDA_SUCCESS ? record(event, stream, mode) : result;
}
SIM_TWO(cuEventRecord, cuEventRecord_ptsz, (CUevent event, CUstream stream),
        event_record(event, stream, mode));

static CUresult event_record_with(CUevent handle, CUstream stream, unsigned flags,
                                  enum sim_mode mode)
{
    SIM_ENTER(cuEventRecordWithFlags);
    struct sim_event *event;
    const CUresult result = find_event(handle, &event);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags == CU_EVENT_RECORD_EXTERNAL && atomic_load(&sim_captures) > 0)
        return CUDA_ERROR_NOT_SUPPORTED; /* event nodes */
    if (flags != CU_EVENT_RECORD_DEFAULT && flags != CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    return record(event, stream, mode);
}
SIM_TWO(cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz,
        (CUevent event, CUstream stream, unsigned int flags),
        event_record_with(event, stream, flags, mode));

SIM_API CUresult cuEventQuery(CUevent handle)
{
    SIM_ENTER(cuEventQuery);
    struct sim_event *event;
    CUresult result = find_event(handle, &event);
    if (result == CUDA_SUCCESS)
        result = sim_capture_query_event(event);
    if (result != CUDA_SUCCESS)
        return result;
    const struct sim_point point = get_point(event);
    if (point.stream == NULL)
        return CUDA_SUCCESS;
    if (sim_point_passed(point))
        return sim_point_end(point);
    sim_stream_unref(point.stream);
    return CUDA_ERROR_NOT_READY;
}
SIM_ENTRY(cuEventQuery);

/* It looks for the context of what is given first, and what is no event has none. */
SIM_API CUresult cuEventSynchronize(CUevent handle)
{
    SIM_ENTER(cuEventSynchronize);
    struct sim_event *event;
    CUresult result = find_event(handle, &event);
    if (result != CUDA_SUCCESS && handle != NULL)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        result = sim_capture_query_event(event);
    if (result != CUDA_SUCCESS)
        return result;
    const struct sim_point point = get_point(event);
    return point.stream != NULL ? sim_point_end(point) : CUDA_SUCCESS;
}
SIM_ENTRY(cuEventSynchronize);

/* When the event was passed: 0 if it has not been, or was never recorded (*is_recorded says). */
static uint64_t event_time(struct sim_event *event, bool *is_recorded)
{
    pthread_mutex_lock(&event->lock);
    *is_recorded = event->mark != NULL;
    const uint64_t time =
        event->mark != NULL && sim_point_passed(event->point) ? atomic_load(&event->mark->time) : 0;
    pthread_mutex_unlock(&event->lock);
    return time;
}

static CUresult elapsed_time(float *milliseconds, CUevent first_handle, CUevent last_handle)
{
    SIM_ENTER(cuEventElapsedTime);
    struct sim_event *first, *last;
    CUresult result = find_event(first_handle, &first);
    if (result == CUDA_SUCCESS)
        result = find_event(last_handle, &last);
    if (result != CUDA_SUCCESS)
        return result;
    if (milliseconds == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (((first->flags | last->flags) & CU_EVENT_DISABLE_TIMING) != 0)
        return CUDA_ERROR_INVALID_HANDLE;
    bool has_first, has_last;
    const uint64_t from = event_time(first, &has_first), to = event_time(last, &has_last);
    if (!has_first || !has_last)
        return CUDA_ERROR_INVALID_HANDLE;
    if (from == 0 || to == 0)
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)(int64_t)(to - from) / 1e6);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuEventElapsedTime(float *milliseconds, CUevent first, CUevent last)
{
    return elapsed_time(milliseconds, first, last);
}
SIM_ENTRY(cuEventElapsedTime);

SIM_API CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent first, CUevent last)
{
    return elapsed_time(milliseconds, first, last);
}
SIM_ENTRY(cuEventElapsedTime_v2);

static CUresult stream_wait(CUstream stream, CUevent handle, unsigned flags, enum sim_mode mode)
{
    SIM_ENTER(cuStreamWaitEvent);
    struct sim_event *event;
    struct sim_stream *s;
    CUresult result = find_event(handle, &event);
    if (result == CUDA_SUCCESS)
        result = sim_stream_get(stream, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags != CU_EVENT_WAIT_DEFAULT)
        return flags == CU_EVENT_WAIT_EXTERNAL ? CUDA_ERROR_NOT_SUPPORTED
                                               : CUDA_ERROR_INVALID_VALUE;
    bool is_captured;
    result = sim_capture_wait(s, event, &is_captured);
    if (result != CUDA_SUCCESS || is_captured)
        return result;
    const struct sim_point point = get_point(event);
    if (point.stream == NULL)
        return CUDA_SUCCESS;
    if (!sim_point_passed(point)) {
        struct sim_op *op = sim_op_new(SIM_OP_EMPTY);
        sim_op_after(op, point);
        result = sim_submit(s, op, NULL);
    }
    sim_stream_unref(point.stream);
    return result;
}
SIM_TWO(cuStreamWaitEvent, cuStreamWaitEvent_ptsz,
        (CUstream stream, CUevent event, unsigned int flags),
        stream_wait(stream, event, flags, mode));
