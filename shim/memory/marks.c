#include "shim/memory/marks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/locks.h"
#include "shim/driver/real.h"
#include "shim/gate/contexts.h"
#include "shim/gate/gate.h"

#define GM_MARKS_ASKED 128 /* streams that gm_marks_reap asks about at once */
#define GM_MARKS_DEVICES 64
#define GM_MARKS_ROUNDS                                                                            \
    32 /* marks that it asks about, of a stream whose last one is not passed                       \
        */

struct gm_event {
    struct gm_mark mark;
    CUevent event;
    CUcontext context;
    CUdevice device;
    bool is_primary;
    bool is_leaving;              /* its context is about to end */
    bool is_gone;                 /* its context ended */
    bool is_buried;               /* and gm_marks_bury is telling the heap */
    struct gm_event *prev, *next; /* in gm_marks_used, or (next) in gm_marks_kept */
};

static void gm_mark_drop(struct gm_mark *mark);
struct gm_heap gm_heap = {.drop = gm_mark_drop};
struct gm_lock gm_heap_lock = GM_LOCK_INITIALIZER(GM_LOCK_HEAP);
static pthread_cond_t gm_marks_quiet = PTHREAD_COND_INITIALIZER; /* gm_marks_asking is 0 */
static unsigned gm_marks_asking; /* threads in driver calls with events */
static struct gm_event *gm_marks_used, *gm_marks_kept;
static unsigned gm_marks_leavers[GM_MARKS_DEVICES]; /* threads that release primary contexts */

static struct gm_event *gm_event_of(struct gm_mark *mark)
{
    return mark->owner;
}

/* ---- events ---- */

/* With the lock: the last reference is gone. */
static void gm_mark_drop(struct gm_mark *mark)
{
    struct gm_event *event = gm_event_of(mark);
    *(event->prev != NULL ? &event->prev->next : &gm_marks_used) = event->next;
    if (event->next != NULL)
        event->next->prev = event->prev;
    if (event->is_gone) {
        free(event);
        return;
    }
    event->next = gm_marks_kept;
    gm_marks_kept = event;
}

static CUresult gm_event_make(const struct gm_stream *stream, CUevent *event)
{
    CUcontext current = NULL;
    CUresult result = gm_real.cuCtxGetCurrent(&current);
    if (result == CUDA_SUCCESS && current == stream->context)
        return gm_real.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    result = gm_real.cuCtxPushCurrent_v2(stream->context);
    if (result != CUDA_SUCCESS)
        return result;
    result = gm_real.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    gm_real.cuCtxPopCurrent_v2(&current);
    return result;
}

/* An event of the stream's context, reused or new, on no list. */
static CUresult gm_event_take(const struct gm_stream *stream, struct gm_event **taken)
{
    gm_lock(&gm_heap_lock);
    struct gm_event **place = &gm_marks_kept;
    while (*place != NULL && ((*place)->context != stream->context || (*place)->is_leaving))
        place = &(*place)->next;
    struct gm_event *event = *place;
    if (event != NULL)
        *place = event->next;
    gm_unlock(&gm_heap_lock);
    if (event == NULL) {
        event = calloc(1, sizeof(*event));
        if (event == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        CUresult result = gm_event_make(stream, &event->event);
        if (result != CUDA_SUCCESS) {
            free(event);
            return result;
        }
    }
    event->mark = (struct gm_mark){.owner = event};
    event->context = stream->context;
    event->device = stream->device;
    event->is_primary = stream->is_primary;
    event->is_leaving = event->is_gone = false;
    *taken = event;
    return CUDA_SUCCESS;
}

CUresult gm_mark_record(const struct gm_stream *stream, struct gm_mark **mark)
{
    struct gm_event *event;
    CUresult result = gm_event_take(stream, &event);
    if (result != CUDA_SUCCESS)
        return result;
    gm_lock(&gm_heap_lock);
    gm_mark_begin(&gm_heap, &event->mark, stream->number);
    event->prev = NULL;
    event->next = gm_marks_used;
    if (gm_marks_used != NULL)
        gm_marks_used->prev = event;
    gm_marks_used = event;
    gm_unlock(&gm_heap_lock);

    result = GM_GATED(gm_real.cuEventRecord(event->event, stream->handle));
    gm_lock(&gm_heap_lock);
    if (result == CUDA_SUCCESS)
        gm_mark_end(&gm_heap, &event->mark);
    else
        gm_mark_unref(&gm_heap, &event->mark);
    gm_unlock(&gm_heap_lock);
    *mark = &event->mark;
    return result;
}

/* ---- asking ---- */

/* With the lock: whether its event may be used now. If so, gm_mark_end_asking must follow. */
static bool gm_mark_begin_asking(struct gm_mark *mark)
{
    if (mark->is_passed || gm_event_of(mark)->is_leaving)
        return false;
    gm_mark_ref(mark);
    gm_marks_asking++;
    return true;
}

static void gm_mark_end_asking(struct gm_mark *mark, bool is_passed)
{
    if (is_passed)
        gm_heap_pass(&gm_heap, mark);
    gm_mark_unref(&gm_heap, mark);
    if (--gm_marks_asking == 0)
        pthread_cond_broadcast(&gm_marks_quiet);
}

CUresult gm_mark_await(const struct gm_stream *stream, struct gm_mark *mark)
{
    struct gm_slot *slot = gm_gate_enter_whole();
    if (slot == NULL)
        return gm_gate_refusal();
    gm_lock(&gm_heap_lock);
    bool is_asked = gm_mark_begin_asking(mark);
    CUresult result = mark->is_passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    gm_unlock(&gm_heap_lock);
    if (is_asked) {
        result = gm_real.cuStreamWaitEvent(stream->handle, gm_event_of(mark)->event, 0);
        gm_lock(&gm_heap_lock);
        gm_mark_end_asking(mark, false);
        gm_unlock(&gm_heap_lock);
    }
    gm_gate_leave(slot);
    return result;
}

static bool gm_event_has_passed(struct gm_mark *mark)
{
    CUresult result = gm_real.cuEventQuery(gm_event_of(mark)->event);
    return result == CUDA_SUCCESS || gm_contexts_is_over(result);
}

void gm_mark_release(struct gm_mark *mark)
{
    if (mark == NULL)
        return;
    gm_lock(&gm_heap_lock);
    gm_mark_unref(&gm_heap, mark);
    gm_unlock(&gm_heap_lock);
}

bool gm_mark_ask(struct gm_mark *mark)
{
    gm_lock(&gm_heap_lock);
    bool is_asked = gm_mark_begin_asking(mark);
    bool is_passed = mark->is_passed;
    gm_unlock(&gm_heap_lock);
    if (!is_asked)
        return is_passed;
    CUstreamCaptureMode mode = gm_real_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    is_passed = gm_event_has_passed(mark);
    gm_real_mode(mode);
    gm_lock(&gm_heap_lock);
    gm_mark_end_asking(mark, is_passed);
    gm_unlock(&gm_heap_lock);
    return is_passed;
}

/* Ask about the last, or the first, pending mark of every stream. Returns how many were passed. */
static int gm_marks_ask_all(bool is_last)
{
    struct gm_mark *marks[GM_MARKS_ASKED];
    bool is_passed[GM_MARKS_ASKED];
    int n = 0, passed = 0;
    gm_lock(&gm_heap_lock);
    for (struct gm_queue *queue = gm_heap.queues; queue != NULL && n < GM_MARKS_ASKED;
         queue = queue->next) {
        struct gm_mark *mark = is_last ? queue->tail : queue->head;
        if (gm_mark_begin_asking(mark))
            marks[n++] = mark;
    }
    gm_unlock(&gm_heap_lock);
    if (n == 0)
        return 0;
    CUstreamCaptureMode mode = gm_real_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    for (int i = 0; i < n; i++)
        passed += is_passed[i] = gm_event_has_passed(marks[i]);
    gm_real_mode(mode);
    gm_lock(&gm_heap_lock);
    for (int i = 0; i < n; i++)
        gm_mark_end_asking(marks[i], is_passed[i]);
    gm_unlock(&gm_heap_lock);
    return passed;
}

bool gm_marks_reap(void)
{
    bool is_any = gm_marks_ask_all(true) > 0;
    for (int round = 0; round < GM_MARKS_ROUNDS && gm_marks_ask_all(false) > 0; round++)
        is_any = true;
    return is_any;
}

bool gm_marks_are_pending(void)
{
    gm_lock(&gm_heap_lock);
    bool are_pending = gm_heap.queues != NULL;
    gm_unlock(&gm_heap_lock);
    return are_pending;
}

/* ---- contexts end ---- */

static bool gm_event_is_of(const struct gm_event *event, CUcontext context, CUdevice device)
{
    return context != NULL ? event->context == context
                           : event->is_primary && event->device == device;
}

static void gm_marks_set_leaving(CUcontext context, CUdevice device, bool is_leaving)
{
    for (struct gm_event *event = gm_marks_used; event != NULL; event = event->next)
        if (gm_event_is_of(event, context, device))
            event->is_leaving = is_leaving;
    for (struct gm_event *event = gm_marks_kept; event != NULL; event = event->next)
        if (gm_event_is_of(event, context, device))
            event->is_leaving = is_leaving;
}

/* The count of threads that release a device's primary context. NULL: it is no primary context, and
 * only one thread can destroy it. */
static unsigned *gm_marks_leavers_of(CUcontext context, CUdevice device)
{
    return context == NULL && device >= 0 && device < GM_MARKS_DEVICES ? &gm_marks_leavers[device]
                                                                       : NULL;
}

void gm_marks_leave_context(CUcontext context, CUdevice device)
{
    unsigned *leavers = gm_marks_leavers_of(context, device);
    gm_lock(&gm_heap_lock);
    if (leavers != NULL)
        ++*leavers;
    gm_marks_set_leaving(context, device, true);
    while (gm_marks_asking > 0)
        gm_lock_wait(&gm_marks_quiet, &gm_heap_lock);
    gm_unlock(&gm_heap_lock);
}

/* With the lock: the context's events are gone and all their marks are passed. Passing one may drop
 * others of its stream, so take references to all first. */
static void gm_marks_bury(CUcontext context, CUdevice device)
{
    struct gm_event *event, *next;
    for (event = gm_marks_used; event != NULL; event = event->next) {
        if (event->is_gone || !gm_event_is_of(event, context, device))
            continue;
        gm_mark_ref(&event->mark);
        event->is_gone = event->is_buried = true;
    }
    for (event = gm_marks_used; event != NULL; event = event->next)
        if (event->is_buried)
            gm_heap_pass(&gm_heap, &event->mark);
    for (event = gm_marks_used; event != NULL; event = next) {
        next = event->next;
        if (!event->is_buried)
            continue;
        event->is_buried = false;
        gm_mark_unref(&gm_heap, &event->mark);
    }
    for (struct gm_event **place = &gm_marks_kept; *place != NULL;) {
        event = *place;
        if (!gm_event_is_of(event, context, device)) {
            place = &event->next;
            continue;
        }
        *place = event->next;
        free(event);
    }
}

void gm_marks_left_context(CUcontext context, CUdevice device, bool is_gone)
{
    unsigned *leavers = gm_marks_leavers_of(context, device);
    gm_lock(&gm_heap_lock);
    bool is_last = leavers == NULL || --*leavers == 0; /* the others may still end it */
    if (is_gone)
        gm_marks_bury(context, device);
    else if (is_last)
        gm_marks_set_leaving(context, device, false);
    gm_unlock(&gm_heap_lock);
}
