/*
 * shim/contexts and its handlers: every context of a program is on the list that a drain walks
 * over, or does not come to be. The test is the driver, and the host memory.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "shim/driver/devices.h"
#include "shim/driver/real.h"
#include "shim/gate/boot.h"
#include "shim/gate/captures.h"
#include "shim/gate/contexts.h"
#include "shim/gate/drain.h"
#include "shim/gate/gate.h"
#include "shim/handlers/handlers.h"
#include "shim/memory/ahead.h"
#include "shim/memory/marks.h"
#include "shim/memory/release.h"
#include "shim/memory/freed.h"
#include "shim/observe/usage.h"

#define MOST 64u

static bool has_memory = true;
static unsigned grown, made, synchronized;
static CUresult answer; /* of the driver, to create and to destroy */
static CUcontext current;
static struct gm_stat stat;

/* ---- what is around it ---- */

struct gm_real gm_real;

void *__wrap_realloc(void *memory, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size)
{
    grown += has_memory;
    return has_memory ? __real_realloc(memory, size) : NULL;
}

enum gm_boot_state gm_boot(void)
{
    return GM_BOOT_LIVE;
}

struct gm_stat *gm_gate_stat(void)
{
    return &stat;
}

bool gm_gate_sync_begin(void)
{
    return true;
}

void gm_gate_sync_end(void)
{
}

uint32_t gm_gate_captures(void)
{
    return 0;
}

void gm_marks_leave_context(CUcontext context, CUdevice device)
{
    (void)context, (void)device;
}

void gm_marks_left_context(CUcontext context, CUdevice device, bool is_gone)
{
    (void)context, (void)device, (void)is_gone;
}

bool gm_captures_forget(CUcontext context, CUdevice device)
{
    (void)context, (void)device;
    return false;
}

void gm_free_deferred(void)
{
}

void gm_release_all_of(CUcontext context, CUdevice device)
{
    (void)context, (void)device;
}

static unsigned settled; /* before what came ahead is released */

void gm_ahead_settle(void)
{
    settled++;
}

void gm_freed_release(int32_t gpu)
{
    (void)gpu;
    assert_true(settled > 0);
    settled = 0;
}

void gm_link_enter(int gpu)
{
    (void)gpu;
}

bool gm_usage_begin(int gpu)
{
    (void)gpu;
    return false;
}

void gm_drain_watch(void)
{
}

int gm_gpu_of(CUdevice device)
{
    return device;
}

static uint32_t n_devices;

uint32_t gm_device_count(void)
{
    return n_devices;
}

CUdevice gm_device_at(uint32_t i)
{
    return (CUdevice)i;
}

/* ---- the driver ---- */

/* What another thread does meanwhile. */
static void (*meanwhile)(void);

static void go_on(void)
{
    void (*what)(void) = meanwhile;
    meanwhile = NULL;
    if (what != NULL)
        what();
}

static CUresult create(CUcontext *context, unsigned int flags, CUdevice device)
{
    (void)flags, (void)device;
    made++;
    if (answer == CUDA_SUCCESS)
        *context = (CUcontext)(uintptr_t)(0x1000 * made);
    go_on();
    return answer;
}

static CUresult destroy(CUcontext context)
{
    (void)context;
    go_on();
    return answer;
}

static CUresult push(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

static CUresult synchronize(void)
{
    synchronized++;
    return CUDA_SUCCESS;
}

static int set_up(void **state)
{
    (void)state;
    gm_real.cuCtxCreate_v2 = create;
    gm_real.cuCtxDestroy_v2 = destroy;
    gm_real.cuCtxPushCurrent_v2 = push;
    gm_real.cuCtxPopCurrent_v2 = pop;
    gm_real.cuCtxSynchronize = synchronize;
    has_memory = true;
    answer = CUDA_SUCCESS;
    grown = 0;
    return 0;
}

/* How many a drain finds. */
static unsigned drained(void)
{
    synchronized = 0;
    assert_int_equal(gm_contexts_synchronize(), CUDA_SUCCESS);
    return synchronized;
}

/* ---- tests ---- */

static void without_host_memory_none_is_made(void **state)
{
    CUcontext context[MOST], more = NULL;
    unsigned n = 0;
    (void)state;
    assert_int_equal(drained(), 0);
    assert_int_equal(gm_on_cuCtxCreate_v2(&context[n++], 0, 0), CUDA_SUCCESS);
    has_memory = false;
    for (CUresult result = CUDA_SUCCESS; n < MOST; n++) {
        const unsigned before = made;
        result = gm_on_cuCtxCreate_v2(&context[n], 0, 0);
        if (result == CUDA_SUCCESS)
            continue;
        assert_int_equal(result, CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(made, before); /* the driver was not asked */
        break;
    }
    assert_in_range(n, 1, MOST - 1);
    assert_int_equal(drained(), n);
    assert_int_equal(stat.contexts, n);

    /* one that is not destroyed stays, and one that is makes room */
    answer = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(gm_on_cuCtxDestroy_v2(context[0]), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(drained(), n);
    answer = CUDA_SUCCESS;
    assert_int_equal(gm_on_cuCtxDestroy_v2(context[0]), CUDA_SUCCESS);
    assert_int_equal(gm_on_cuCtxCreate_v2(&context[0], 0, 0), CUDA_SUCCESS);
    assert_int_equal(gm_on_cuCtxCreate_v2(&more, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(drained(), n);

    has_memory = true;
    assert_int_equal(gm_on_cuCtxCreate_v2(&more, 0, 0), CUDA_SUCCESS);
    assert_int_equal(drained(), n + 1);
    assert_int_equal(gm_on_cuCtxDestroy_v2(more), CUDA_SUCCESS);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(gm_on_cuCtxDestroy_v2(context[i]), CUDA_SUCCESS);
    assert_int_equal(drained(), 0);
    assert_int_equal(stat.contexts, 0);
}

/* Without an event for a context a QUERY synchronizes, and to follow windows does not. */
static void without_events_nothing_is_followed(void **state)
{
    const _Atomic uint64_t stamp = 0;
    CUcontext context;
    (void)state;
    assert_int_equal(gm_on_cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
    synchronized = 0;
    assert_int_equal(gm_contexts_follow(1), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(synchronized, 0);
    assert_int_equal(gm_contexts_finish(&stamp, 0, GM_MS, UINT64_MAX), CUDA_SUCCESS);
    assert_int_equal(synchronized, 1);
    assert_int_equal(gm_on_cuCtxDestroy_v2(context), CUDA_SUCCESS);
}

/* ---- following windows ---- */

static unsigned n_events, n_records; /* that there are; and how often one was recorded */
static uintptr_t passed;             /* the GPU has passed all that were recorded up to this */
static uintptr_t recorded[MOST];

static CUresult event_create(CUevent *event, unsigned int flags)
{
    static uintptr_t made_events;
    (void)flags;
    n_events++;
    *event = (CUevent)(void *)(++made_events);
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
    (void)event;
    n_events--;
    return CUDA_SUCCESS;
}

static CUresult event_record(CUcontext context, CUevent event)
{
    assert_ptr_equal(context, current);
    recorded[(uintptr_t)event] = ++n_records;
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
    return recorded[(uintptr_t)event] <= passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult primary_state(CUdevice device, unsigned int *flags, int *is_active)
{
    (void)device, (void)flags;
    *is_active = 1;
    return CUDA_SUCCESS;
}

static CUresult primary_retain(CUcontext *context, CUdevice device)
{
    (void)device;
    *context = (CUcontext)(uintptr_t)8;
    return CUDA_SUCCESS;
}

static CUresult primary_release(CUdevice device)
{
    (void)device;
    return CUDA_SUCCESS;
}

static bool not_yet(void)
{
    return gm_contexts_follow(7) == CUDA_ERROR_NOT_READY;
}

/* Every look asks all contexts, and waits for none. An event stays until the GPU has passed it,
 * whatever comes between; only one whose context may be gone is recorded anew. */
static void windows_are_followed(void **state)
{
    CUcontext context[2], late;
    const _Atomic uint64_t stamp = 0;
    (void)state;
    gm_real.cuEventCreate = event_create;
    gm_real.cuEventDestroy_v2 = event_destroy;
    gm_real.cuCtxRecordEvent = event_record;
    gm_real.cuEventQuery = event_query;
    gm_real.cuDevicePrimaryCtxGetState = primary_state;
    gm_real.cuDevicePrimaryCtxRetain = primary_retain;
    gm_real.cuDevicePrimaryCtxRelease = primary_release;
    gm_real.cuDevicePrimaryCtxRelease_v2 = primary_release;
    n_devices = 1;
    for (int i = 0; i < 2; i++)
        assert_int_equal(gm_on_cuCtxCreate_v2(&context[i], 0, 0), CUDA_SUCCESS);
    assert_true(not_yet());
    assert_int_equal(n_records, 3); /* that of the first does not keep it from the others */
    assert_true(not_yet());
    assert_int_equal(n_records, 3);
    assert_int_equal(n_events, 3);

    passed = 2; /* both contexts, and not the primary one */
    assert_int_equal(drained(), 3);
    assert_true(not_yet());
    assert_int_equal(n_records, 3);
    assert_int_equal(n_events, 1);
    passed = 3;
    assert_int_equal(gm_contexts_follow(7), CUDA_SUCCESS);
    assert_int_equal(n_events, 0);
    assert_int_equal(gm_contexts_follow(7), CUDA_SUCCESS);
    assert_int_equal(n_records, 3);

    /* a newer window before this one is over, as after a drain: all anew, with the same events */
    assert_int_equal(gm_contexts_follow(8), CUDA_ERROR_NOT_READY);
    passed = n_records;
    assert_int_equal(gm_contexts_follow(9), CUDA_ERROR_NOT_READY);
    assert_int_equal(n_records, 9);
    assert_int_equal(n_events, 3);

    /* the event of a context goes with it, that of a primary one before it */
    assert_int_equal(gm_on_cuCtxDestroy_v2(context[0]), CUDA_SUCCESS);
    assert_int_equal(gm_on_cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(n_events, 2);
    assert_int_equal(gm_on_cuCtxCreate_v2(&late, 0, 0), CUDA_SUCCESS);
    passed = n_records;
    assert_int_equal(gm_contexts_follow(9), CUDA_ERROR_NOT_READY);
    assert_int_equal(n_records, 11); /* of the late one and the primary one */
    passed = n_records;
    assert_int_equal(gm_contexts_follow(9), CUDA_SUCCESS);
    assert_int_equal(gm_contexts_finish(&stamp, 0, GM_MS, 0), CUDA_ERROR_NOT_READY);

    /* while the driver destroys a context, its work goes on */
    assert_true(gm_contexts_remove(late));
    assert_int_equal(gm_contexts_follow(9), CUDA_ERROR_NOT_READY);
    gm_contexts_removed();
    gm_contexts_release();
    assert_int_equal(gm_contexts_follow(9), CUDA_SUCCESS);
    assert_int_equal(gm_on_cuCtxDestroy_v2(context[1]), CUDA_SUCCESS);
    gm_real.cuCtxRecordEvent = NULL;
    n_devices = 0;
}

/* What was reserved for a context that did not come to be is free again. */
static void nothing_stays_reserved(void **state)
{
    CUcontext context;
    (void)state;
    for (unsigned i = 0; i < 1000; i++) {
        answer = CUDA_ERROR_INVALID_DEVICE;
        assert_int_equal(gm_on_cuCtxCreate_v2(&context, 0, 7), CUDA_ERROR_INVALID_DEVICE);
        answer = CUDA_SUCCESS;
        assert_int_equal(gm_on_cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
        assert_int_equal(gm_on_cuCtxDestroy_v2(context), CUDA_SUCCESS);
    }
    assert_in_range(grown, 0, 1);
}

static CUcontext other;

static void make_other(void)
{
    assert_int_equal(gm_on_cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
}

static void fail_to_make_other(void)
{
    assert_int_equal(gm_on_cuCtxCreate_v2(&other, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

/* One that is being made, or may yet not be destroyed, has its place, whatever others make. */
static void places_are_not_given_twice(void **state)
{
    CUcontext context[4 * MOST];
    unsigned n = 0;
    (void)state;
    for (; n < MOST; n++) { /* at some point the list is full but for one */
        meanwhile = make_other;
        assert_int_equal(gm_on_cuCtxCreate_v2(&context[n], 0, 0), CUDA_SUCCESS);
        assert_int_equal(drained(), n + 2);
        assert_int_equal(gm_on_cuCtxDestroy_v2(other), CUDA_SUCCESS);
    }
    has_memory = false;
    while (gm_on_cuCtxCreate_v2(&context[n], 0, 0) == CUDA_SUCCESS)
        assert_in_range(++n, 1, 4 * MOST - 1);
    meanwhile = fail_to_make_other;
    assert_int_equal(gm_on_cuCtxDestroy_v2(context[0]), CUDA_SUCCESS);
    assert_int_equal(drained(), n - 1);
    for (unsigned i = 1; i < n; i++)
        assert_int_equal(gm_on_cuCtxDestroy_v2(context[i]), CUDA_SUCCESS);
    assert_int_equal(drained(), 0);
}

static pthread_t drainer;
static _Atomic bool is_drained;

static void *drain(void *unused)
{
    gm_contexts_synchronize();
    atomic_store(&is_drained, true);
    return unused;
}

static void drain_meanwhile(void)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    assert_int_equal(pthread_create(&drainer, NULL, drain, NULL), 0);
    nanosleep(&pause, NULL);
    assert_false(atomic_load(&is_drained));
}

/* The driver ends the work of a context that is destroyed, and that takes as long as the work.
 * Until then the work needs its memory, so no drain ends. */
static void a_drain_waits_for_what_is_being_destroyed(void **state)
{
    CUcontext context;
    (void)state;
    for (int i = 0; i < 2; i++) {
        atomic_store(&is_drained, false);
        assert_int_equal(gm_on_cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
        answer = i == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        meanwhile = drain_meanwhile;
        assert_int_equal(gm_on_cuCtxDestroy_v2(context), answer);
        pthread_join(drainer, NULL);
        assert_true(atomic_load(&is_drained));
        answer = CUDA_SUCCESS;
    }
    assert_int_equal(gm_on_cuCtxDestroy_v2(context), CUDA_SUCCESS);
}

#define case_of(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        case_of(without_host_memory_none_is_made),
        case_of(without_events_nothing_is_followed),
        case_of(windows_are_followed),
        case_of(nothing_stays_reserved),
        case_of(places_are_not_given_twice),
        case_of(a_drain_waits_for_what_is_being_destroyed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
