/*
 * The world of the tests of daemon/memory/mover: a fake driver whose copies end when the test says
 * so, and which counts what was asked of it, and a mover over it.
 */
#ifndef GM_TESTS_MOVER_WORLD_H
#define GM_TESTS_MOVER_WORLD_H

/* A test needs not all of it. */
#pragma GCC diagnostic ignored "-Wunused-function"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/memory/mover.h"

#define MIB (1ull << 20)

/* ---- the driver: a copy is what was recorded behind it, and ends in order, a way ---- */

#define EVENTS 512u /* more than the mover makes */
#define PENDING 56u /* in a stream: with one more, the next call would wait for a copy */

static struct {
    uv_mutex_t mutex; /* over all of it: the waiters and the test look at it */
    uv_cond_t ended;
    uintptr_t n_streams, n_events;
    unsigned streams_alive, events_alive;
    unsigned sets; /* of the copies */
    struct {
        unsigned copies; /* submitted to it */
        unsigned ended;
        unsigned records; /* events behind its copies */
        unsigned fences;  /* events that it was made to wait for */
        CUevent last_fence;
        unsigned waits; /* for so many copies out, whatever comes now */
    } streams[GM_WAYS];
    struct {
        unsigned way, copies; /* done when so many of the way's copies are */
    } events[EVENTS];
    unsigned writes, written; /* of the word that counts copies out: in the stream, done */
    uint64_t values[8];
    CUresult write_result;
    CUresult current_result, copy_result, record_result, wait_result, synchronize_result;
    CUresult stream_result; /* of waiting for a stream: not 0, the context is lost */
    void (*on_copy)(unsigned way, CUdeviceptr to, CUdeviceptr from, size_t bytes);
} driver;

static CUresult fake_current(CUcontext context)
{
    (void)context;
    return driver.current_result;
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
    const unsigned way = (unsigned)((uintptr_t)stream - 1);
    assert_true(driver.streams[way].ended >= driver.streams[way].copies);
    driver.streams_alive--;
    return CUDA_SUCCESS;
}

static uint64_t ended_word;
#define COUNT_AT 0x5000u

/* The stream comes to what is behind copies that have ended. With the lock. */
static void write_counts(void)
{
    while (driver.written < driver.writes &&
           driver.values[driver.written] <= driver.streams[GM_WAY_OUT].ended)
        ended_word = driver.values[driver.written++];
}

static CUresult fake_synchronize_stream(CUstream stream)
{
    const unsigned way = (unsigned)((uintptr_t)stream - 1);
    uv_mutex_lock(&driver.mutex);
    while (driver.streams[way].ended < driver.streams[way].copies)
        uv_cond_wait(&driver.ended, &driver.mutex);
    const CUresult result = driver.stream_result;
    uv_mutex_unlock(&driver.mutex);
    return result;
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
    const unsigned way = (unsigned)((uintptr_t)stream - 1);
    if (driver.copy_result == CUDA_SUCCESS) {
        uv_mutex_lock(&driver.mutex);
        driver.streams[way].copies++;
        uv_mutex_unlock(&driver.mutex);
        if (driver.on_copy)
            driver.on_copy(way, to, from, bytes);
    }
    return driver.copy_result;
}

static CUresult fake_set(CUdeviceptr at, unsigned value, size_t words, CUstream stream)
{
    assert_int_equal(value, 0);
    driver.sets++;
    return fake_copy(at, 0, words * 4, stream);
}

/* Events whose copies have not ended. With the lock. */
static unsigned pending(unsigned way)
{
    unsigned n = 0;
    for (unsigned i = 0; i < EVENTS; i++)
        n += driver.events[i].way == way && driver.events[i].copies > driver.streams[way].ended;
    return n;
}

static CUresult fake_record(CUevent event, CUstream stream)
{
    const unsigned way = (unsigned)((uintptr_t)stream - 1);
    if (driver.record_result != CUDA_SUCCESS)
        return driver.record_result;
    uv_mutex_lock(&driver.mutex);
    driver.events[(uintptr_t)event].way = way;
    driver.events[(uintptr_t)event].copies = driver.streams[way].copies;
    driver.streams[way].records++;
    const unsigned n_pending = pending(way);
    uv_mutex_unlock(&driver.mutex);
    assert_true(n_pending <= PENDING);
    return CUDA_SUCCESS;
}

static CUresult fake_write(CUstream stream, CUdeviceptr at, cuuint64_t value, unsigned flags)
{
    assert_int_equal((uintptr_t)stream - 1, GM_WAY_OUT);
    assert_int_equal(flags, 0);
    assert_int_equal(at, COUNT_AT);
    if (driver.write_result != CUDA_SUCCESS)
        return driver.write_result;
    /* Before the event of those copies, for which copies in wait. */
    assert_int_equal(value, driver.streams[GM_WAY_OUT].copies);
    assert_int_equal(driver.writes, driver.streams[GM_WAY_OUT].records);
    uv_mutex_lock(&driver.mutex);
    driver.values[driver.writes++] = value;
    write_counts();
    uv_mutex_unlock(&driver.mutex);
    return CUDA_SUCCESS;
}

static CUresult fake_wait(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    if (driver.wait_result != CUDA_SUCCESS)
        return driver.wait_result;
    driver.streams[(uintptr_t)stream - 1].fences++;
    driver.streams[(uintptr_t)stream - 1].last_fence = event;
    if (driver.events[(uintptr_t)event].copies > driver.streams[(uintptr_t)stream - 1].waits)
        driver.streams[(uintptr_t)stream - 1].waits = driver.events[(uintptr_t)event].copies;
    return CUDA_SUCCESS;
}

static CUresult fake_synchronize(CUevent event)
{
    uv_mutex_lock(&driver.mutex);
    const unsigned way = driver.events[(uintptr_t)event].way;
    const unsigned copies = driver.events[(uintptr_t)event].copies;
    while (driver.streams[way].ended < copies)
        uv_cond_wait(&driver.ended, &driver.mutex);
    const CUresult result = driver.synchronize_result;
    uv_mutex_unlock(&driver.mutex);
    return result;
}

static const struct gm_cuda fake = {
    .cuCtxSetCurrent = fake_current,
    .cuStreamCreate = fake_stream,
    .cuStreamDestroy_v2 = fake_no_stream,
    .cuStreamSynchronize = fake_synchronize_stream,
    .cuEventCreate = fake_event,
    .cuEventDestroy_v2 = fake_no_event,
    .cuMemcpyAsync = fake_copy,
    .cuMemsetD32Async = fake_set,
    .cuEventRecord = fake_record,
    .cuStreamWaitEvent = fake_wait,
    .cuStreamWriteValue64_v2 = fake_write,
    .cuEventSynchronize = fake_synchronize,
};

/* ---- the world ---- */

struct fixture {
    uv_loop_t loop;
    struct gm_mover *mover;
};

static unsigned dones;

static void on_done(void *arg)
{
    (void)arg;
    dones++;
}

static void open_mover_with(struct fixture *f, CUresult current_result)
{
    char why[128];
    memset(&driver, 0, sizeof driver);
    driver.current_result = current_result;
    uv_mutex_init(&driver.mutex);
    uv_cond_init(&driver.ended);
    uv_loop_init(&f->loop);
    assert_int_equal(
        gm_mover_open(&f->mover, &f->loop, &fake, NULL, on_done, NULL, why, sizeof why), 0);
}

static void open_mover(struct fixture *f)
{
    open_mover_with(f, CUDA_SUCCESS);
}

static uint64_t copy(struct fixture *f, enum gm_way way, uint64_t bytes, uint64_t fence)
{
    return gm_mover_copy(f->mover, way, 1ull << 40, 2ull << 40, bytes, fence);
}

static void end_without_looking(enum gm_way way, unsigned n)
{
    uv_mutex_lock(&driver.mutex);
    driver.streams[way].ended += n;
    write_counts();
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

/* As before the loop waits. */
static void rest(struct fixture *f)
{
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void end_loop(struct fixture *f)
{
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    assert_int_equal(driver.streams_alive, 0);
    assert_int_equal(driver.events_alive, 0);
    uv_cond_destroy(&driver.ended);
    uv_mutex_destroy(&driver.mutex);
}

static void close_mover(struct fixture *f)
{
    gm_mover_close(f->mover);
    end_loop(f);
}

#endif
