/*
 * shim/observe/probe: what it finds out over drivers of all kinds, and that it leaves nothing
 * behind. The test is the driver, the GPU, the channels and the clock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "common/clock.h"
#include "common/features.h"
#include "shim/driver/real.h"
#include "shim/observe/channels.h"
#include "shim/observe/probe.h"

struct gm_real gm_real;

/* What this machine is like. */
static unsigned groups;
static int slice_error;
static enum gm_park_result park_answer;
static bool is_ignored; /* parking has no effect */
static bool is_broken;  /* what was parked once never goes on */
static uint64_t delay;  /* ns, that a write takes */
static CUresult submit_answer;

/* What happens. */
static uint64_t now;
static bool is_stopped;
static bool is_between; /* park and resume: no call of the driver is allowed */
static unsigned n_streams, parks;
static void *words;
static _Atomic uint32_t *wait_for, *write_to;
static uint64_t seen_at; /* when the GPU saw the word; 0: not yet */

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    assert_int_equal(clock, CLOCK_MONOTONIC);
    *time = gm_timespec(now);
    return 0;
}

/* Time passes, and the GPU does something. */
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    assert_null(left);
    now += (uint64_t)time->tv_nsec;
    if (write_to == NULL || is_stopped)
        return 0;
    if (seen_at == 0 && *wait_for == 1)
        seen_at = now;
    if (seen_at != 0 && now - seen_at >= delay) {
        *write_to = 1;
        write_to = NULL;
        seen_at = 0;
    }
    return 0;
}

static CUresult drv_stream_create(CUstream *stream, unsigned flags)
{
    assert_false(is_between);
    assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
    *stream = (CUstream)&n_streams;
    n_streams++;
    return CUDA_SUCCESS;
}

static CUresult drv_stream_destroy(CUstream stream)
{
    assert_false(is_between);
    assert_ptr_equal(stream, &n_streams);
    n_streams--;
    return CUDA_SUCCESS;
}

static CUresult drv_host_alloc(void **memory, size_t bytes, unsigned flags)
{
    assert_false(is_between);
    assert_int_equal(flags, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    static _Alignas(64) unsigned char pages[32][4096]; /* none is ever freed */
    static unsigned next;
    assert_true(bytes <= sizeof pages[0]);
    *memory = words = memset(pages[next++ % 32], 0, bytes);
    return CUDA_SUCCESS;
}

/* It waits for all work of the context, which may never end. */
static CUresult drv_free_host(void *memory)
{
    (void)memory;
    fail();
    return CUDA_ERROR_UNKNOWN;
}

static CUresult drv_wait(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    assert_false(is_between);
    assert_ptr_equal(stream, &n_streams);
    assert_int_equal(value, 1);
    assert_int_equal(flags, CU_STREAM_WAIT_VALUE_EQ);
    wait_for = (_Atomic uint32_t *)(uintptr_t)address;
    return submit_answer;
}

static CUresult drv_write(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    assert_false(is_between);
    assert_ptr_equal(stream, &n_streams);
    assert_int_equal(value, 1);
    assert_int_equal(flags, 0);
    write_to = (_Atomic uint32_t *)(uintptr_t)address;
    return CUDA_SUCCESS;
}

enum gm_park_result gm_channels_park(void)
{
    parks++;
    if (park_answer == GM_PARK_DONE) {
        is_between = true;
        is_stopped = !is_ignored;
    }
    return park_answer;
}

void gm_channels_resume(void)
{
    is_between = false;
    is_stopped = is_broken;
}

int gm_channels_try_timeslice(void)
{
    assert_false(is_between);
    return slice_error;
}

unsigned gm_channels_compute_groups(void)
{
    return groups;
}

static int set_up(void **state)
{
    (void)state;
    gm_real = (struct gm_real){
        .cuStreamCreate = drv_stream_create,
        .cuStreamDestroy_v2 = drv_stream_destroy,
        .cuMemHostAlloc = drv_host_alloc,
        .cuMemFreeHost = drv_free_host,
        .cuStreamWaitValue32_v2 = drv_wait,
        .cuStreamWriteValue32_v2 = drv_write,
    };
    groups = 1;
    slice_error = 0;
    park_answer = GM_PARK_DONE;
    is_ignored = is_broken = is_between = false;
    submit_answer = CUDA_SUCCESS;
    n_streams = parks = 0;
    delay = 0;
    is_stopped = false;
    write_to = NULL;
    seen_at = 0;
    now = GM_S;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    words = NULL;
    return 0;
}

static uint32_t find_out(void)
{
    uint32_t off = 0;
    assert_true(gm_probe(&off));
    assert_int_equal(n_streams, 0);
    return off;
}

static void test_works(void **state)
{
    (void)state;
    assert_int_equal(find_out(), 0);
    slice_error = -EIO;
    assert_int_equal(find_out(), GM_FEATURE_TIMESLICE);
}

/* Others use the GPU too: a write takes longer, and so does the trial. */
static void test_shared_gpu(void **state)
{
    (void)state;
    delay = 2 * GM_MS;
    assert_int_equal(find_out(), 0);
    is_ignored = true;
    assert_int_equal(find_out(), GM_FEATURE_PARK);
}

static void test_no_effect(void **state)
{
    (void)state;
    is_ignored = true;
    assert_int_equal(find_out(), GM_FEATURE_PARK);
}

static void test_refused(void **state)
{
    (void)state;
    park_answer = GM_PARK_REFUSED;
    slice_error = -EACCES;
    assert_int_equal(find_out(), GM_FEATURE_PARK | GM_FEATURE_TIMESLICE);
    park_answer = GM_PARK_NONE;
    slice_error = 0;
    assert_int_equal(find_out(), GM_FEATURE_PARK);
}

/* As under MPS. */
static void test_no_channels(void **state)
{
    (void)state;
    groups = 0;
    assert_int_equal(find_out(), GM_FEATURE_PARK | GM_FEATURE_TIMESLICE);
    assert_int_equal(parks, 0);
}

static void test_old_driver(void **state)
{
    (void)state;
    gm_real.cuStreamWaitValue32_v2 = NULL;
    assert_int_equal(find_out(), GM_FEATURE_PARK);
    gm_real.cuStreamWaitValue32_v2 = drv_wait;
    submit_answer = CUDA_ERROR_NOT_SUPPORTED;
    assert_int_equal(find_out(), GM_FEATURE_PARK);
    assert_int_equal(parks, 0);
}

/* It does not know yet, and leaves nothing. */
static void test_changed(void **state)
{
    (void)state;
    uint32_t off;
    park_answer = GM_PARK_CHANGED;
    assert_false(gm_probe(&off));
    assert_int_equal(n_streams, 0);
    park_answer = GM_PARK_DONE;
    assert_int_equal(find_out(), 0);
}

static void test_busy(void **state)
{
    (void)state;
    uint32_t off;
    delay = 10 * GM_MS; /* what is parked briefly may just be late */
    assert_false(gm_probe(&off));
    assert_int_equal(parks, 0);
    is_stopped = true; /* a kernel that never ends */
    assert_false(gm_probe(&off));
    assert_int_equal(parks, 0);
}

static void test_broken(void **state)
{
    (void)state;
    is_broken = true;
    assert_int_equal(find_out(), GM_FEATURE_PARK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_works, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_shared_gpu, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_effect, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_channels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_old_driver, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_changed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_busy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_broken, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
