/*
 * daemon/migrate over a fake driver whose copies end when the test says so: numbers and bytes under
 * way, copies in that wait for copies out on the GPU, a full ring, and a driver that refuses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/migrate.h"

#define MIB (1ull << 20)

/* ---- the driver: a copy is what was recorded behind it, and ends in order, a way ---- */

#define EVENTS 512u /* more than the mover makes */

static struct {
    uv_mutex_t mutex; /* over all of it: the waiters and the test look at it */
    uv_cond_t ended;
    uintptr_t n_streams, n_events;
    unsigned streams_alive, events_alive;
    struct {
        unsigned copies; /* submitted to it */
        unsigned ended;
        unsigned fences; /* events that it was made to wait for */
        CUevent last_fence;
    } streams[GM_WAYS];
    struct {
        unsigned way, copies; /* done when so many of the way's copies are */
    } events[EVENTS];
    CUresult copy_result;
} driver;

static CUresult fake_current(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult fake_stream(CUstream *stream, unsigned flags)
{
    (void)flags;
    *stream = (CUstream)++driver.n_streams;
    driver.streams_alive++;
    return CUDA_SUCCESS;
}

static CUresult fake_no_stream(CUstream stream)
{
    (void)stream;
    driver.streams_alive--;
    return CUDA_SUCCESS;
}

static CUresult fake_event(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = (CUevent)++driver.n_events;
    driver.events_alive++;
    return CUDA_SUCCESS;
}

static CUresult fake_no_event(CUevent event)
{
    (void)event;
    driver.events_alive--;
    return CUDA_SUCCESS;
}

static CUresult fake_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)to, (void)from, (void)bytes;
    if (driver.copy_result == CUDA_SUCCESS) {
        uv_mutex_lock(&driver.mutex);
        driver.streams[(uintptr_t)stream - 1].copies++;
        uv_mutex_unlock(&driver.mutex);
    }
    return driver.copy_result;
}

static CUresult fake_record(CUevent event, CUstream stream)
{
    uv_mutex_lock(&driver.mutex);
    driver.events[(uintptr_t)event].way = (unsigned)((uintptr_t)stream - 1);
    driver.events[(uintptr_t)event].copies = driver.streams[(uintptr_t)stream - 1].copies;
    uv_mutex_unlock(&driver.mutex);
    return CUDA_SUCCESS;
}

static CUresult fake_wait(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    driver.streams[(uintptr_t)stream - 1].fences++;
    driver.streams[(uintptr_t)stream - 1].last_fence = event;
    return CUDA_SUCCESS;
}

static CUresult fake_synchronize(CUevent event)
{
    uv_mutex_lock(&driver.mutex);
    const unsigned way = driver.events[(uintptr_t)event].way;
    const unsigned copies = driver.events[(uintptr_t)event].copies;
    while (driver.streams[way].ended < copies)
        uv_cond_wait(&driver.ended, &driver.mutex);
    uv_mutex_unlock(&driver.mutex);
    return CUDA_SUCCESS;
}

static const struct gm_cuda fake = {
    .cuCtxSetCurrent = fake_current,
    .cuStreamCreate = fake_stream,
    .cuStreamDestroy_v2 = fake_no_stream,
    .cuEventCreate = fake_event,
    .cuEventDestroy_v2 = fake_no_event,
    .cuMemcpyAsync = fake_copy,
    .cuEventRecord = fake_record,
    .cuStreamWaitEvent = fake_wait,
    .cuEventSynchronize = fake_synchronize,
};

/* ---- the world ---- */

struct fixture {
    uv_loop_t loop;
    struct gm_mover *mover;
};

static void on_done(void *arg)
{
    (void)arg;
}

static void open_mover(struct fixture *f)
{
    char why[128];
    memset(&driver, 0, sizeof driver);
    uv_mutex_init(&driver.mutex);
    uv_cond_init(&driver.ended);
    uv_loop_init(&f->loop);
    assert_int_equal(
        gm_mover_open(&f->mover, &f->loop, &fake, NULL, on_done, NULL, why, sizeof why), 0);
}

static uint64_t copy(struct fixture *f, enum gm_way way, uint64_t bytes, uint64_t fence)
{
    return gm_mover_copy(f->mover, way, 1ull << 40, 2ull << 40, bytes, fence);
}

static void end_without_looking(enum gm_way way, unsigned n)
{
    uv_mutex_lock(&driver.mutex);
    driver.streams[way].ended += n;
    uv_cond_broadcast(&driver.ended);
    uv_mutex_unlock(&driver.mutex);
}

/* The next `n` copies of a way end, and the loop sees it. */
static void end(struct fixture *f, enum gm_way way, unsigned n)
{
    const uint64_t wanted = gm_mover_done(f->mover, way) + n;
    end_without_looking(way, n);
    while (gm_mover_done(f->mover, way) < wanted)
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(gm_mover_done(f->mover, way), wanted);
}

static void close_mover(struct fixture *f)
{
    gm_mover_close(f->mover);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    assert_int_equal(driver.streams_alive, 0);
    assert_int_equal(driver.events_alive, 0);
    uv_cond_destroy(&driver.ended);
    uv_mutex_destroy(&driver.mutex);
}

static void test_bytes(void **state)
{
    struct fixture f;
    (void)state;
    open_mover(&f);
    assert_int_equal(copy(&f, GM_WAY_OUT, 2 * MIB, 0), 1);
    assert_int_equal(copy(&f, GM_WAY_OUT, 32 * MIB, 0), 2);
    assert_int_equal(copy(&f, GM_WAY_IN, 8 * MIB, 0), 1);
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_OUT), 34 * MIB);
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_IN), 8 * MIB);
    assert_int_equal(gm_mover_bytes(f.mover, GM_WAY_OUT), 0);

    end(&f, GM_WAY_OUT, 1);
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_OUT), 32 * MIB);
    assert_int_equal(gm_mover_bytes(f.mover, GM_WAY_OUT), 2 * MIB);
    assert_int_equal(gm_mover_bytes(f.mover, GM_WAY_IN), 0);
    end(&f, GM_WAY_OUT, 1);
    end(&f, GM_WAY_IN, 1);
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_OUT), 0);
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_IN), 0);
    assert_int_equal(gm_mover_bytes(f.mover, GM_WAY_IN), 8 * MIB);
    close_mover(&f);
}

static void test_full_ring(void **state)
{
    struct fixture f;
    uint64_t n = 0;
    (void)state;
    open_mover(&f);
    for (unsigned round = 0; round < 3; round++) {
        while (gm_mover_has_room(f.mover, GM_WAY_IN)) {
            n++;
            assert_int_equal(copy(&f, GM_WAY_IN, n * MIB, 0), n);
        }
        assert_int_equal(n - gm_mover_done(f.mover, GM_WAY_IN), GM_WAY_DEPTH - 1);
        assert_true(gm_mover_has_room(f.mover, GM_WAY_OUT)); /* a way for itself */
        end(&f, GM_WAY_IN, 100);
    }
    end(&f, GM_WAY_IN, (unsigned)(n - gm_mover_done(f.mover, GM_WAY_IN)));
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_IN), 0);
    assert_int_equal(gm_mover_bytes(f.mover, GM_WAY_IN), n * (n + 1) / 2 * MIB);
    close_mover(&f);
}

static void test_fences(void **state)
{
    struct fixture f;
    (void)state;
    open_mover(&f);
    const uint64_t first = copy(&f, GM_WAY_OUT, MIB, 0), second = copy(&f, GM_WAY_OUT, MIB, 0);
    copy(&f, GM_WAY_IN, MIB, 0); /* for nobody's frame */
    assert_int_equal(driver.streams[GM_WAY_IN].fences, 0);
    copy(&f, GM_WAY_IN, MIB, second);
    assert_int_equal(driver.streams[GM_WAY_IN].fences, 1);
    const uintptr_t event = (uintptr_t)driver.streams[GM_WAY_IN].last_fence;
    assert_int_equal(driver.events[event].way, GM_WAY_OUT);
    assert_int_equal(driver.events[event].copies, second);

    end(&f, GM_WAY_OUT, 1);
    copy(&f, GM_WAY_IN, MIB, first); /* has ended */
    assert_int_equal(driver.streams[GM_WAY_IN].fences, 1);
    end(&f, GM_WAY_OUT, 1);
    copy(&f, GM_WAY_OUT, MIB, second); /* copies out wait for nothing */
    assert_int_equal(driver.streams[GM_WAY_OUT].fences, 0);
    end(&f, GM_WAY_OUT, 1);
    end(&f, GM_WAY_IN, 3);
    close_mover(&f);
}

static void test_refused(void **state)
{
    struct fixture f;
    (void)state;
    open_mover(&f);
    assert_int_equal(copy(&f, GM_WAY_OUT, MIB, 0), 1);
    driver.copy_result = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(copy(&f, GM_WAY_OUT, 2 * MIB, 0), 0);
    driver.copy_result = CUDA_ERROR_UNKNOWN;
    assert_int_equal(copy(&f, GM_WAY_IN, 2 * MIB, 0), 0);
    assert_int_equal(gm_mover_error(f.mover), CUDA_ERROR_INVALID_VALUE); /* the first */
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_OUT), MIB);
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_IN), 0);
    end(&f, GM_WAY_OUT, 1);
    close_mover(&f);
}

/* Closed with copies under way: it waits for them. */
static void test_close(void **state)
{
    struct fixture f;
    (void)state;
    open_mover(&f);
    for (unsigned i = 0; i < 5; i++)
        copy(&f, i % 2 ? GM_WAY_IN : GM_WAY_OUT, MIB, 0);
    end_without_looking(GM_WAY_OUT, 3);
    end_without_looking(GM_WAY_IN, 2);
    close_mover(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),  cmocka_unit_test(test_full_ring),
        cmocka_unit_test(test_fences), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
