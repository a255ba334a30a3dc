/*
 * shim/captures: what is counted as an open capture, and what is not any more. The test is the
 * driver.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "shim/driver/real.h"
#include "shim/gate/boot.h"
#include "shim/gate/captures.h"
#include "shim/gate/contexts.h"
#include "shim/gate/gate.h"
#include "shim/gate/streams.h"
#include "shim/handlers/handlers.h"
#include "shim/memory/release.h"

#define STREAMS 3
#define CONTEXT ((CUcontext)(uintptr_t)0x100)
#define STREAM(i) ((CUstream)(uintptr_t)(0x1000 + (i)))

static bool is_capturing[STREAMS]; /* as the driver says */
static unsigned ends;              /* that the driver was asked for */
static uint32_t counted;

/* ---- what is around it ---- */

struct gm_real gm_real;
__thread struct gm_gate_thread gm_gate_self;
static struct gm_slot slot;

enum gm_boot_state gm_boot(void)
{
    return GM_BOOT_LIVE;
}

struct gm_slot *gm_gate_enter_slow(void)
{
    return &slot;
}

CUresult gm_gate_leave_slow(struct gm_slot *left, CUresult result)
{
    (void)left;
    return result;
}

static const struct gm_ctl page = {.gate = GM_GATE_OPEN};
struct gm_hot gm_hot = {.page = &page};

void gm_gate_capture_begin(void)
{
    counted++;
}

uint32_t gm_gate_capture_end(void)
{
    assert_true(counted > 0);
    return --counted;
}

uint32_t gm_gate_captures(void)
{
    return counted;
}

CUresult gm_stream_look(CUstream handle, struct gm_stream *stream)
{
    *stream = (struct gm_stream){.handle = handle, .context = CONTEXT};
    return CUDA_SUCCESS;
}

void gm_free_deferred(void)
{
}

void gm_contexts_visit(void (*visit)(CUcontext context, uint64_t argument), uint64_t argument)
{
    visit(CONTEXT, argument);
}

/* ---- the driver ---- */

static size_t at(CUstream stream)
{
    return (size_t)((uintptr_t)stream - 0x1000);
}

static CUresult begin(CUstream stream, CUstreamCaptureMode mode)
{
    (void)mode;
    is_capturing[at(stream)] = true;
    return CUDA_SUCCESS;
}

static CUresult end(CUstream stream, CUgraph *graph)
{
    (void)graph;
    ends++;
    is_capturing[at(stream)] = false;
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

static CUresult status_of(CUstream stream, CUstreamCaptureStatus *status)
{
    *status =
        is_capturing[at(stream)] ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUstream stream)
{
    is_capturing[at(stream)] = false;
    return CUDA_SUCCESS;
}

static int set_up(void **state)
{
    (void)state;
    gm_gate_self.fast = &slot;
    gm_real.cuStreamBeginCapture_v2 = begin;
    gm_real.cuStreamEndCapture = end;
    gm_real.cuStreamIsCapturing = status_of;
    gm_real.cuStreamDestroy_v2 = destroy;
    ends = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < STREAMS; i++)
        gm_on_cuStreamDestroy_v2(STREAM(i));
    assert_int_equal(counted, 0);
    return 0;
}

/* One capture in each mode. */
static void *begin_each(void *unused)
{
    (void)unused;
    gm_gate_self.fast = &slot;
    for (unsigned i = 0; i < STREAMS; i++) {
        if (gm_on_cuStreamBeginCapture_v2(STREAM(i), (CUstreamCaptureMode)i) != CUDA_SUCCESS)
            return &counted;
    }
    return NULL;
}

/* ---- tests ---- */

static void a_thread_takes_along_what_only_it_can_end(void **state)
{
    pthread_t thread;
    void *failed;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, begin_each, NULL), 0);
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(counted, 3);
    gm_captures_settle();
    assert_int_equal(counted, 1);
    assert_int_equal(ends, 2);
    assert_false(is_capturing[CU_STREAM_CAPTURE_MODE_GLOBAL]);
    assert_false(is_capturing[CU_STREAM_CAPTURE_MODE_THREAD_LOCAL]);
    assert_true(is_capturing[CU_STREAM_CAPTURE_MODE_RELAXED]);
}

static void what_can_be_ended_stays(void **state)
{
    (void)state;
    assert_null(begin_each(NULL));
    gm_captures_settle();
    assert_int_equal(counted, 3);
    assert_int_equal(ends, 0);
}

static void the_driver_knows_better(void **state)
{
    (void)state;
    assert_null(begin_each(NULL));
    is_capturing[0] = false;
    is_capturing[2] = false;
    gm_captures_settle();
    assert_int_equal(counted, 1);
    assert_int_equal(ends, 0);
}

#define case_of(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        case_of(a_thread_takes_along_what_only_it_can_end),
        case_of(what_can_be_ended_stays),
        case_of(the_driver_knows_better),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
