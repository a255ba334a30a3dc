#include "shim/gate/captures.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/locks.h"
#include "shim/driver/real.h"
#include "shim/gate/boot.h"
#include "shim/gate/contexts.h"
#include "shim/gate/gate.h"
#include "shim/gate/streams.h"

static struct gm_lock gm_capture_lock = GM_LOCK_INITIALIZER(GM_LOCK_CAPTURES);
static struct gm_capture *gm_capture_list;
static size_t gm_capture_count;
static size_t gm_capture_room;
static size_t gm_capture_unlisted; /* captures that no host memory was left to list */

static pthread_key_t gm_capture_key; /* its destructor runs when a thread ends */
static bool gm_capture_has_key;

/* The stream that the drainer asks about. A thread that destroys it waits until that is over. */
static CUstream gm_capture_asked;
static pthread_cond_t gm_capture_was_asked = PTHREAD_COND_INITIALIZER;

static const void *gm_capture_thread(CUstream stream)
{
    return stream == CU_STREAM_PER_THREAD ? &gm_gate_self : NULL;
}

static bool gm_capture_is_on(const struct gm_capture *capture, CUstream stream)
{
    return capture->stream == stream && capture->thread == gm_capture_thread(stream);
}

/* `ended` counted captures ended. Returns how many are still open. */
static uint32_t gm_captures_count_ended(size_t ended)
{
    uint32_t open = gm_gate_captures();
    while (ended-- > 0)
        open = gm_gate_capture_end();
    return open;
}

/* A thread ends, and with it the captures in its default stream. gm_captures_settle ends the others
 * that only this thread could end. */
static void gm_capture_thread_exit(void *unused)
{
    size_t ended = 0;
    (void)unused;
    if (!gm_is_live())
        return; /* a forked child: a thread of the parent may have held the lock */
    gm_lock(&gm_capture_lock);
    for (size_t i = 0; i < gm_capture_count;) {
        if (!gm_capture_is_on(&gm_capture_list[i], CU_STREAM_PER_THREAD)) {
            if (gm_capture_list[i].owner == &gm_gate_self) {
                gm_capture_list[i].owner = NULL;
                gm_capture_list[i].is_left = true;
            }
            i++;
            continue;
        }
        gm_capture_list[i] = gm_capture_list[--gm_capture_count];
        ended++;
    }
    gm_unlock(&gm_capture_lock);
    gm_captures_count_ended(ended);
}

struct gm_capture gm_capture_of(CUstream stream, CUstreamCaptureMode mode)
{
    struct gm_stream look;
    struct gm_capture capture = {
        .stream = stream,
        .thread = gm_capture_thread(stream),
        .owner = mode == CU_STREAM_CAPTURE_MODE_RELAXED ? NULL : &gm_gate_self,
        .device = -1,
    };
    if (gm_stream_look(stream, &look) == CUDA_SUCCESS && !look.is_capturing) {
        capture.context = look.context;
        capture.device = look.device;
        capture.is_primary = look.is_primary;
    }
    return capture;
}

void gm_captures_note(const struct gm_capture *capture)
{
    gm_lock(&gm_capture_lock);
    const bool is_of_thread = capture->thread != NULL || capture->owner != NULL;
    if (is_of_thread && !gm_capture_has_key)
        gm_capture_has_key = pthread_key_create(&gm_capture_key, gm_capture_thread_exit) == 0;
    if (is_of_thread && gm_capture_has_key)
        pthread_setspecific(gm_capture_key, &gm_gate_self);
    if (gm_capture_count == gm_capture_room) {
        size_t room = gm_capture_room == 0 ? 16 : 2 * gm_capture_room;
        struct gm_capture *list = realloc(gm_capture_list, room * sizeof(*list));
        if (list != NULL) {
            gm_capture_list = list;
            gm_capture_room = room;
        }
    }
    if (gm_capture_count < gm_capture_room)
        gm_capture_list[gm_capture_count++] = *capture;
    else
        gm_capture_unlisted++;
    gm_unlock(&gm_capture_lock);
}

bool gm_captures_take(CUstream stream, struct gm_capture *capture)
{
    bool is_known = false;
    gm_lock(&gm_capture_lock);
    while (gm_capture_asked != NULL && gm_capture_asked == stream)
        gm_lock_wait(&gm_capture_was_asked, &gm_capture_lock);
    for (size_t i = 0; i < gm_capture_count && !is_known; i++) {
        if (!gm_capture_is_on(&gm_capture_list[i], stream))
            continue;
        *capture = gm_capture_list[i];
        gm_capture_list[i] = gm_capture_list[--gm_capture_count];
        is_known = true;
    }
    gm_unlock(&gm_capture_lock);
    return is_known;
}

void gm_captures_put_back(const struct gm_capture *capture)
{
    gm_lock(&gm_capture_lock);
    if (gm_capture_count < gm_capture_room)
        gm_capture_list[gm_capture_count++] = *capture;
    else
        gm_capture_unlisted++;
    gm_unlock(&gm_capture_lock);
}

bool gm_captures_ended_in(CUstream stream)
{
    struct gm_capture capture;
    if (gm_captures_take(stream, &capture))
        return true;
    gm_lock(&gm_capture_lock);
    bool is_unlisted = gm_capture_unlisted > 0;
    gm_capture_unlisted -= is_unlisted;
    gm_unlock(&gm_capture_lock);
    return is_unlisted;
}

bool gm_captures_forget(CUcontext context, CUdevice device)
{
    size_t ended = 0;
    gm_lock(&gm_capture_lock);
    for (size_t i = 0; i < gm_capture_count;) {
        const struct gm_capture *capture = &gm_capture_list[i];
        bool is_of = context != NULL ? capture->context == context
                                     : capture->is_primary && capture->device == device;
        if (!is_of) {
            i++;
            continue;
        }
        gm_capture_list[i] = gm_capture_list[--gm_capture_count];
        ended++;
    }
    gm_unlock(&gm_capture_lock);
    return ended > 0 && gm_captures_count_ended(ended) == 0;
}

/* ---- the drainer ---- */

/* The first capture of `context` at index *next or later. */
static bool gm_capture_ask_next(CUcontext context, size_t *next, struct gm_capture *capture)
{
    bool is_found = false;
    gm_lock(&gm_capture_lock);
    while (*next < gm_capture_count && !is_found) {
        *capture = gm_capture_list[(*next)++];
        is_found = capture->context == context && capture->thread == NULL;
    }
    gm_capture_asked = is_found ? capture->stream : NULL;
    gm_unlock(&gm_capture_lock);
    return is_found;
}

/* The drainer has asked about the stream. Remove its capture if it has ended. */
static void gm_capture_answer(const struct gm_capture *capture, bool has_ended, size_t *next)
{
    bool is_listed = false;
    gm_lock(&gm_capture_lock);
    for (size_t i = 0; has_ended && i < gm_capture_count && !is_listed; i++) {
        if (gm_capture_list[i].stream != capture->stream || gm_capture_list[i].thread != NULL)
            continue;
        gm_capture_list[i] = gm_capture_list[--gm_capture_count];
        is_listed = true;
        *next = 0; /* the order changed */
    }
    gm_capture_asked = NULL;
    pthread_cond_broadcast(&gm_capture_was_asked);
    gm_unlock(&gm_capture_lock);
    if (is_listed)
        gm_gate_capture_end();
}

/* From this thread the call fails, but it ends the capture. */
static void gm_capture_end_left(CUstream stream)
{
    CUgraph graph = NULL;
    if (gm_real.cuStreamEndCapture != NULL)
        gm_real.cuStreamEndCapture(stream, &graph);
}

static void gm_captures_look(CUcontext context, uint64_t unused)
{
    struct gm_capture capture;
    (void)unused;
    for (size_t next = 0; gm_capture_ask_next(context, &next, &capture);) {
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        if (capture.is_left)
            gm_capture_end_left(capture.stream);
        const bool has_ended =
            gm_real.cuStreamIsCapturing(capture.stream, &status) == CUDA_SUCCESS &&
            status == CU_STREAM_CAPTURE_STATUS_NONE;
        gm_capture_answer(&capture, has_ended, &next);
    }
}

void gm_captures_settle(void)
{
    gm_contexts_visit(gm_captures_look, 0);
}
