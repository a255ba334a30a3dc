/*
 * daemon/memory/mover over a fake driver whose copies end when the test says so: numbers and bytes
 * under way, copies in that wait for copies out on the GPU, a full ring, and a driver that refuses.
 */
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

static void test_bytes(void **state)
{
    struct fixture f;
    (void)state;
    open_mover(&f);
    assert_int_equal(copy(&f, GM_WAY_OUT, 16 * MIB, 0), 1);
    assert_int_equal(copy(&f, GM_WAY_OUT, 32 * MIB, 0), 2);
    assert_int_equal(copy(&f, GM_WAY_IN, 8 * MIB, 0), 1);
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_OUT), 48 * MIB);
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_IN), 8 * MIB);
    assert_int_equal(gm_mover_bytes(f.mover, GM_WAY_OUT), 0);

    end(&f, GM_WAY_OUT, 1);
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_OUT), 32 * MIB);
    assert_int_equal(gm_mover_bytes(f.mover, GM_WAY_OUT), 16 * MIB);
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
        while (gm_mover_room(f.mover, GM_WAY_IN) > 0) {
            n++;
            assert_int_equal(copy(&f, GM_WAY_IN, (n + 7) * MIB, 0), n);
        }
        assert_int_equal(n - gm_mover_done(f.mover, GM_WAY_IN), GM_WAY_DEPTH - 1);
        assert_true(gm_mover_room(f.mover, GM_WAY_OUT) > 0); /* a way for itself */
        end(&f, GM_WAY_IN, 40);
    }
    end(&f, GM_WAY_IN, (unsigned)(n - gm_mover_done(f.mover, GM_WAY_IN)));
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_IN), 0);
    assert_int_equal(gm_mover_bytes(f.mover, GM_WAY_IN), (n * (n + 1) / 2 + 7 * n) * MIB);
    close_mover(&f);
}

/* Copies of 8 MiB and more have events of their own; smaller ones share one behind so much, or
 * before the loop waits. They end together then, as far as the loop can see. */
static void test_batches(void **state)
{
    struct fixture f;
    (void)state;
    open_mover(&f);
    copy(&f, GM_WAY_OUT, 32 * MIB, 0);
    copy(&f, GM_WAY_OUT, 8 * MIB, 0);
    assert_int_equal(driver.streams[GM_WAY_OUT].records, 2);
    for (unsigned i = 0; i < 7; i++)
        copy(&f, GM_WAY_OUT, 2 * MIB, 0);
    assert_int_equal(driver.streams[GM_WAY_OUT].records, 3);
    assert_int_equal(driver.streams[GM_WAY_OUT].copies, 9); /* nothing waits for its event */
    rest(&f);
    assert_int_equal(driver.streams[GM_WAY_OUT].records, 4);
    rest(&f);
    assert_int_equal(driver.streams[GM_WAY_OUT].records, 4);

    end(&f, GM_WAY_OUT, 2);
    end_without_looking(GM_WAY_OUT, 3);
    rest(&f);
    assert_int_equal(gm_mover_done(f.mover, GM_WAY_OUT), 2);
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_OUT), 14 * MIB);
    end_without_looking(GM_WAY_OUT, 1);
    while (gm_mover_done(f.mover, GM_WAY_OUT) == 2)
        uv_run(&f.loop, UV_RUN_ONCE);
    assert_int_equal(gm_mover_done(f.mover, GM_WAY_OUT), 6);
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_OUT), 6 * MIB);
    end_without_looking(GM_WAY_OUT, 3);
    while (gm_mover_done(f.mover, GM_WAY_OUT) < 9)
        uv_run(&f.loop, UV_RUN_ONCE);

    /* a large one is behind small ones, and speaks for them */
    copy(&f, GM_WAY_IN, 2 * MIB, 0);
    copy(&f, GM_WAY_IN, 32 * MIB, 0);
    assert_int_equal(driver.streams[GM_WAY_IN].records, 1);
    end(&f, GM_WAY_IN, 2);
    close_mover(&f);
}

/* Memory is cleared in order with the copies in, behind a copy out, and takes nothing of the link.
 */
static void test_clear(void **state)
{
    struct fixture f;
    (void)state;
    open_mover(&f);
    copy(&f, GM_WAY_IN, 8 * MIB, 0);
    const uint64_t out = copy(&f, GM_WAY_OUT, 8 * MIB, 0);
    assert_int_equal(gm_mover_clear(f.mover, 1ull << 40, 32 * MIB, out), 2);
    assert_int_equal(driver.sets, 1);
    assert_int_equal(driver.streams[GM_WAY_IN].fences, 1);
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_IN), 8 * MIB);
    end(&f, GM_WAY_OUT, 1);
    end(&f, GM_WAY_IN, 2);
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_IN), 0);
    assert_int_equal(gm_mover_bytes(f.mover, GM_WAY_IN), 8 * MIB);
    close_mover(&f);
}

static void test_fences(void **state)
{
    struct fixture f;
    (void)state;
    open_mover(&f);
    const uint64_t first = copy(&f, GM_WAY_OUT, 8 * MIB, 0),
                   second = copy(&f, GM_WAY_OUT, 8 * MIB, 0);
    copy(&f, GM_WAY_IN, MIB, 0); /* for nobody's frame */
    assert_int_equal(driver.streams[GM_WAY_IN].fences, 0);
    copy(&f, GM_WAY_IN, MIB, second);
    assert_int_equal(driver.streams[GM_WAY_IN].fences, 1);
    const uintptr_t event = (uintptr_t)driver.streams[GM_WAY_IN].last_fence;
    assert_int_equal(driver.events[event].way, GM_WAY_OUT);
    assert_int_equal(driver.events[event].copies, second);
    copy(&f, GM_WAY_IN, MIB, first); /* it waits for a later one already */
    assert_int_equal(driver.streams[GM_WAY_IN].fences, 1);

    end(&f, GM_WAY_OUT, 2);
    const uint64_t third = copy(&f, GM_WAY_OUT, 8 * MIB, second); /* waits for nothing */
    assert_int_equal(driver.streams[GM_WAY_OUT].fences, 0);
    end(&f, GM_WAY_OUT, 1);
    copy(&f, GM_WAY_IN, MIB, third); /* has ended */
    assert_int_equal(driver.streams[GM_WAY_IN].fences, 1);
    end(&f, GM_WAY_IN, 4);
    close_mover(&f);
}

/* A copy in that waits for one out without an event yet begins with that event, and what was
 * submitted behind it comes behind it. */
static void test_fence_in_a_batch(void **state)
{
    struct fixture f;
    (void)state;
    open_mover(&f);
    copy(&f, GM_WAY_OUT, 2 * MIB, 0);
    const uint64_t second = copy(&f, GM_WAY_OUT, 2 * MIB, 0);
    assert_int_equal(copy(&f, GM_WAY_IN, 32 * MIB, second), 1);
    assert_int_equal(copy(&f, GM_WAY_IN, 32 * MIB, 0), 2);
    assert_int_equal(driver.streams[GM_WAY_IN].copies, 0);
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_IN), 64 * MIB);
    copy(&f, GM_WAY_OUT, 4 * MIB, 0); /* the batch is full */
    assert_int_equal(driver.streams[GM_WAY_IN].copies, 2);
    assert_int_equal(driver.streams[GM_WAY_IN].fences, 1);
    const uintptr_t event = (uintptr_t)driver.streams[GM_WAY_IN].last_fence;
    assert_int_equal(driver.events[event].copies, 3);

    const uint64_t last = copy(&f, GM_WAY_OUT, 2 * MIB, 0);
    copy(&f, GM_WAY_IN, 2 * MIB, last);
    assert_int_equal(driver.streams[GM_WAY_IN].copies, 2);
    rest(&f); /* or before the loop waits */
    assert_int_equal(driver.streams[GM_WAY_IN].copies, 3);
    assert_int_equal(driver.streams[GM_WAY_IN].fences, 2);
    end(&f, GM_WAY_OUT, 4);
    end(&f, GM_WAY_IN, 3);
    close_mover(&f);
}

/* The end of copy `number` is seen, and how it was started is known. */
static void expect_end(struct fixture *f, enum gm_way way, uint64_t number, CUresult result)
{
    while (gm_mover_done(f->mover, way) < number)
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(gm_mover_result(f->mover, way, number), result);
    assert_int_equal(gm_mover_error(f->mover), CUDA_SUCCESS);
}

/* What is refused when it begins later is told of at its end. */
static void test_refused_later(void **state)
{
    struct fixture f;
    (void)state;
    open_mover(&f);
    const uint64_t fence = copy(&f, GM_WAY_OUT, 2 * MIB, 0);
    assert_int_equal(copy(&f, GM_WAY_IN, 2 * MIB, fence), 1);
    assert_int_equal(gm_mover_result(f.mover, GM_WAY_IN, 1), CUDA_SUCCESS);
    driver.copy_result = CUDA_ERROR_UNKNOWN;
    rest(&f);
    driver.copy_result = CUDA_SUCCESS;
    end_without_looking(GM_WAY_OUT, 1);
    expect_end(&f, GM_WAY_IN, 1, CUDA_ERROR_UNKNOWN);
    expect_end(&f, GM_WAY_OUT, fence, CUDA_SUCCESS);
    close_mover(&f);
}

/* A refused copy has its number and ends in its turn, and those around it are made. */
static void test_refused(void **state)
{
    struct fixture f;
    (void)state;
    open_mover(&f);
    assert_int_equal(copy(&f, GM_WAY_OUT, MIB, 0), 1);
    driver.copy_result = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(copy(&f, GM_WAY_OUT, 2 * MIB, 0), 2);
    assert_int_equal(gm_mover_result(f.mover, GM_WAY_OUT, 2), CUDA_ERROR_INVALID_VALUE);
    driver.copy_result = CUDA_SUCCESS;
    assert_int_equal(copy(&f, GM_WAY_OUT, 4 * MIB, 0), 3);
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_OUT), 7 * MIB);
    end_without_looking(GM_WAY_OUT, 2);
    expect_end(&f, GM_WAY_OUT, 3, CUDA_SUCCESS);
    assert_int_equal(gm_mover_result(f.mover, GM_WAY_OUT, 1), CUDA_SUCCESS);
    assert_int_equal(gm_mover_result(f.mover, GM_WAY_OUT, 2), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(gm_mover_under_way(f.mover, GM_WAY_OUT), 0);
    assert_int_equal(gm_mover_bytes(f.mover, GM_WAY_OUT), 5 * MIB);
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

/* The loop is told, and the mover says what the driver said. */
static void expect_error(struct fixture *f, CUresult result)
{
    dones = 0;
    while (dones == 0)
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(gm_mover_error(f->mover), result);
}

/* An event is refused: the mover waits for what is in the stream, and the copies have ended. */
static void test_record_refused(void **state)
{
    struct fixture f;
    (void)state;
    open_mover(&f);
    driver.record_result = CUDA_ERROR_UNKNOWN;
    end_without_looking(GM_WAY_OUT, 1);
    assert_int_equal(copy(&f, GM_WAY_OUT, 8 * MIB, 0), 1);
    expect_end(&f, GM_WAY_OUT, 1, CUDA_SUCCESS);
    copy(&f, GM_WAY_OUT, 2 * MIB, 0); /* and before the loop waits */
    end_without_looking(GM_WAY_OUT, 1);
    expect_end(&f, GM_WAY_OUT, 2, CUDA_SUCCESS);
    driver.record_result = CUDA_SUCCESS;
    copy(&f, GM_WAY_IN, 8 * MIB, 2);
    assert_int_equal(driver.streams[GM_WAY_IN].copies, 1);
    end(&f, GM_WAY_IN, 1);
    close_mover(&f);
}

/* So is that of a context that is lost: nothing is started any more. */
static void test_context_lost(void **state)
{
    struct fixture f;
    (void)state;
    open_mover(&f);
    driver.record_result = driver.stream_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    end_without_looking(GM_WAY_OUT, 1);
    copy(&f, GM_WAY_OUT, 8 * MIB, 0);
    assert_int_equal(gm_mover_error(f.mover), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_error(&f, CUDA_ERROR_ILLEGAL_ADDRESS);
    copy(&f, GM_WAY_OUT, 8 * MIB, 0);
    assert_int_equal(driver.streams[GM_WAY_OUT].copies, 1);
    close_mover(&f);
}

static void end_soon(void *n)
{
    usleep(20000);
    end_without_looking(GM_WAY_OUT, n ? *(const unsigned *)n : 1);
}

/* What is in a stream without an event is waited for as well (fake_no_stream). */
static void test_close_without_an_event(void **state)
{
    struct fixture f;
    uv_thread_t thread;
    (void)state;
    open_mover(&f);
    driver.record_result = CUDA_ERROR_UNKNOWN;
    assert_int_equal(copy(&f, GM_WAY_OUT, 2 * MIB, 0), 1);
    assert_int_equal(uv_thread_create(&thread, end_soon, NULL), 0);
    gm_mover_close(f.mover);
    uv_thread_join(&thread);
    end_loop(&f);
}

/* A waiter that cannot wait says so, whether there is a copy or not. */
static void test_no_context(void **state)
{
    struct fixture f;
    (void)state;
    open_mover_with(&f, CUDA_ERROR_INVALID_CONTEXT);
    expect_error(&f, CUDA_ERROR_INVALID_CONTEXT);
    copy(&f, GM_WAY_OUT, 2 * MIB, 0);
    assert_int_equal(driver.streams[GM_WAY_OUT].copies, 0);
    close_mover(&f);
}

/* A wait is refused: the mover waits for the copies out itself, then the copy in begins. */
static void test_wait_refused(void **state)
{
    struct fixture f;
    (void)state;
    open_mover(&f);
    const uint64_t fence = copy(&f, GM_WAY_OUT, 2 * MIB, 0);
    assert_int_equal(copy(&f, GM_WAY_IN, 2 * MIB, fence), 1);
    driver.wait_result = CUDA_ERROR_UNKNOWN;
    end_without_looking(GM_WAY_OUT, 1);
    rest(&f);
    assert_int_equal(driver.streams[GM_WAY_IN].copies, 1);
    end_without_looking(GM_WAY_IN, 1);
    expect_end(&f, GM_WAY_IN, 1, CUDA_SUCCESS);
    close_mover(&f);

    open_mover(&f); /* unless that is refused as well: it never begins */
    copy(&f, GM_WAY_IN, 2 * MIB, copy(&f, GM_WAY_OUT, 2 * MIB, 0));
    driver.wait_result = driver.stream_result = CUDA_ERROR_ECC_UNCORRECTABLE;
    end_without_looking(GM_WAY_OUT, 1);
    expect_error(&f, CUDA_ERROR_ECC_UNCORRECTABLE);
    assert_int_equal(driver.streams[GM_WAY_IN].copies, 0);
    close_mover(&f);
}

/* The waiter's event fails. The copies were made if the stream says so; else the context is lost.
 */
static void test_copy_fails(void **state)
{
    struct fixture f;
    (void)state;
    open_mover(&f);
    driver.synchronize_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    copy(&f, GM_WAY_IN, 8 * MIB, 0);
    end_without_looking(GM_WAY_IN, 1);
    expect_end(&f, GM_WAY_IN, 1, CUDA_SUCCESS);
    uv_mutex_lock(&driver.mutex);
    driver.stream_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    uv_mutex_unlock(&driver.mutex);
    copy(&f, GM_WAY_IN, 8 * MIB, 0);
    end_without_looking(GM_WAY_IN, 1);
    expect_error(&f, CUDA_ERROR_ILLEGAL_ADDRESS);
    close_mover(&f);
}

/* The host's end in runs of pages: which pieces of 2 MiB were copied where. */
static struct {
    CUdeviceptr to, from;
} pieces[16];
static unsigned n_pieces;

static void note_pieces(unsigned way, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    (void)way;
    for (size_t at = 0; at < bytes && n_pieces < 16; at += 2 * MIB, n_pieces++) {
        pieces[n_pieces].to = to + at;
        pieces[n_pieces].from = from + at;
    }
}

static void test_pieces(void **state)
{
    static const uint32_t chain[] = {3, 4, 9, 5, GM_CHUNK_CLASSES * GM_SLAB_PAGES}; /* two slabs */
    static const uint32_t at[] = {3, 4, 9, 5, GM_SLAB_PAGES};
    struct gm_hostpool pool = {.base = 1ull << 44, .max_slabs = 2};
    struct fixture f;
    (void)state;
    assert_int_equal(gm_pages_open(&pool.pages, gm_hostpool_pages(&pool) * 2 * MIB), 0);
    for (unsigned i = 0; i < 5; i++)
        pool.pages.next[chain[i]] = i < 4 ? chain[i + 1] : GM_NONE;
    for (unsigned way = 0; way < GM_WAYS; way++) {
        open_mover(&f);
        driver.on_copy = note_pieces;
        n_pieces = 0;
        assert_int_equal(
            gm_mover_submit(f.mover, (enum gm_way)way, 1ull << 40, &pool, 3, 10 * MIB, 0), 1);
        assert_int_equal(driver.streams[way].copies, 4);
        assert_int_equal(n_pieces, 5);
        for (unsigned i = 0; i < 5; i++) {
            const CUdeviceptr host = pool.base + at[i] * 2 * MIB;
            const CUdeviceptr device = (1ull << 40) + i * 2 * MIB;
            assert_int_equal(pieces[i].to, way == GM_WAY_OUT ? host : device);
            assert_int_equal(pieces[i].from, way == GM_WAY_OUT ? device : host);
        }
        end_without_looking((enum gm_way)way, 4);
        close_mover(&f);
    }
    gm_pages_close(&pool.pages);
}

/* ---- anything, against a model ---- */

#define MOST 1536u /* copies a way */
#define STEPS 2500u
#define SEEDS 12u

static struct {
    struct gm_mover *mover;
    uint64_t random;
    struct {
        uint64_t submitted, done;
        uint64_t bytes[MOST], fence[MOST];
        unsigned waits[MOST]; /* it can end when so many copies out have */
    } ways[GM_WAYS];
    unsigned wrong; /* copies that came out of order, not as submitted, or too early */
    unsigned pace;  /* how often copies end: 0 until the ways are full */
    unsigned held;  /* copies in that did not begin at once: what this is about did happen */
} model;

static unsigned any(unsigned n)
{
    model.random = model.random * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(model.random >> 33) % n;
}

static CUdeviceptr to_of(unsigned way, uint64_t number)
{
    return ((CUdeviceptr)(way + 1) << 40) + number;
}

static void check_copy(unsigned way, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    const uint64_t n = driver.streams[way].copies;
    const uint64_t fence = model.ways[way].fence[n];
    model.wrong += to != to_of(way, n) || from != ~to || bytes != model.ways[way].bytes[n];
    model.wrong += way == GM_WAY_IN && fence > driver.streams[way].waits &&
                   fence > gm_mover_done(model.mover, GM_WAY_OUT);
    model.ways[way].waits[n] = driver.streams[way].waits;
}

static void submit_any(struct fixture *f, enum gm_way way)
{
    static const uint64_t sizes[] = {2, 2, 2, 4, 4, 6, 8, 32};
    const uint64_t n = ++model.ways[way].submitted, out = model.ways[GM_WAY_OUT].submitted;
    const uint64_t back = any(any(3) ? 4 : 200);
    const uint64_t bytes = sizes[any(8)] * MIB, fence = any(3) && back < out ? out - back : 0;
    model.ways[way].bytes[n] = bytes;
    model.ways[way].fence[n] = fence;
    assert_int_equal(gm_mover_copy(f->mover, way, to_of(way, n), ~to_of(way, n), bytes, fence), n);
    model.held += driver.streams[way].copies < n;
}

/* Some copies end, one after the other; those in not before those out that the stream waits for. */
static void end_any(enum gm_way way, unsigned n)
{
    while (n-- > 0 && driver.streams[way].ended < driver.streams[way].copies &&
           (way == GM_WAY_OUT || model.ways[way].waits[driver.streams[way].ended + 1] <=
                                     driver.streams[GM_WAY_OUT].ended))
        end_without_looking(way, 1);
}

/* The last copy that has ended with an event behind it: what the loop is to see in the end. */
static uint64_t last_known(unsigned way)
{
    uint64_t last = model.ways[way].done;
    for (unsigned i = 0; i < EVENTS; i++)
        if (driver.events[i].way == way && driver.events[i].copies > last &&
            driver.events[i].copies <= driver.streams[way].ended)
            last = driver.events[i].copies;
    return last;
}

static void check_way(enum gm_way way)
{
    const uint64_t done = gm_mover_done(model.mover, way);
    uint64_t before = 0, under_way = 0;
    assert_true(done >= model.ways[way].done && done <= driver.streams[way].ended);
    model.ways[way].done = done;
    for (uint64_t n = 1; n <= model.ways[way].submitted; n++)
        *(n <= done ? &before : &under_way) += model.ways[way].bytes[n];
    assert_int_equal(gm_mover_bytes(model.mover, way), before);
    assert_int_equal(gm_mover_under_way(model.mover, way), under_way);
    assert_int_equal(gm_mover_room(model.mover, way),
                     GM_WAY_DEPTH - 1 - (model.ways[way].submitted - done));
}

static bool has_more_to_see(void)
{
    return model.ways[GM_WAY_OUT].done < last_known(GM_WAY_OUT) ||
           model.ways[GM_WAY_IN].done < last_known(GM_WAY_IN);
}

/* The loop goes round until it has seen what there is to see. All has begun before it waits. */
static void look(struct fixture *f)
{
    rest(f);
    for (;;) {
        for (unsigned way = 0; way < GM_WAYS; way++) {
            assert_int_equal(driver.streams[way].copies, model.ways[way].submitted);
            check_way((enum gm_way)way);
        }
        if (!has_more_to_see())
            break;
        uv_run(&f->loop, UV_RUN_ONCE);
    }
    assert_int_equal(model.wrong, 0);
}

static void step_any(struct fixture *f)
{
    const enum gm_way way = any(2) ? GM_WAY_IN : GM_WAY_OUT;
    const unsigned what = any(16);
    if (any(256) == 0)
        model.pace = any(5);
    if (what == 0)
        look(f);
    else if (what <= model.pace)
        end_any(way, 1 + any(24));
    else if (gm_mover_room(f->mover, way) > 0 && model.ways[way].submitted < MOST - 32)
        submit_any(f, way);
}

/* Copies of any size both ways, fences on any copy out, which end when they like: none begins in
 * another order than that of the numbers, none in before its fence, none is said to have ended
 * before it has, and all of them do. */
static void test_anything(void **state)
{
    struct fixture f;
    unsigned held = 0;
    (void)state;
    alarm(60); /* instead of waiting for what never comes */
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        memset(&model, 0, sizeof model);
        model.random = seed;
        open_mover(&f);
        model.mover = f.mover;
        driver.on_copy = check_copy;
        for (unsigned i = 0; i < STEPS; i++)
            step_any(&f);
        held += model.held;
        look(&f);
        end_any(GM_WAY_OUT, MOST);
        end_any(GM_WAY_IN, MOST);
        look(&f);
        for (unsigned way = 0; way < GM_WAYS; way++)
            assert_int_equal(gm_mover_done(f.mover, way), model.ways[way].submitted);
        /* closed with copies under way, and some that have not begun */
        for (unsigned i = 0; seed % 2 && i < 16; i++)
            submit_any(&f, any(2) ? GM_WAY_IN : GM_WAY_OUT);
        end_without_looking(GM_WAY_OUT, MOST);
        end_without_looking(GM_WAY_IN, MOST);
        close_mover(&f);
        assert_int_equal(model.wrong, 0);
        for (unsigned way = 0; way < GM_WAYS; way++)
            assert_int_equal(driver.streams[way].copies, model.ways[way].submitted);
    }
    alarm(0);
    assert_true(held > SEEDS * 10);
}

/* Before a copy in can begin that waits for copies out, their number is where it outlives the
 * process; or it is known there that nobody counts. */
static void test_count(void **state)
{
    struct fixture f;
    (void)state;
    open_mover(&f);
    ended_word = 0;
    gm_mover_count(f.mover, &ended_word, COUNT_AT);
    copy(&f, GM_WAY_OUT, 32 * MIB, 0);
    copy(&f, GM_WAY_OUT, 2 * MIB, 0);
    copy(&f, GM_WAY_OUT, 2 * MIB, 0);
    assert_int_equal(driver.writes, 1);
    rest(&f);
    copy(&f, GM_WAY_IN, 32 * MIB, 3);
    assert_int_equal(driver.writes, 2);
    assert_int_equal(driver.values[1], 3);
    assert_int_equal(driver.streams[GM_WAY_IN].fences, 1);
    end_without_looking(GM_WAY_OUT, 2);
    assert_true(ended_word == 1);
    end_without_looking(GM_WAY_OUT, 1);
    assert_true(ended_word == 3);
    end(&f, GM_WAY_IN, 1);
    while (gm_mover_done(f.mover, GM_WAY_OUT) < 3)
        uv_run(&f.loop, UV_RUN_ONCE);

    /* It refuses one, and others are in the stream still: what they write is no count. */
    uv_thread_t thread;
    unsigned all = 3;
    copy(&f, GM_WAY_OUT, 32 * MIB, 0);
    copy(&f, GM_WAY_OUT, 32 * MIB, 0);
    assert_int_equal(driver.writes, 4);
    assert_true(ended_word == 3);
    driver.write_result = CUDA_ERROR_NOT_SUPPORTED;
    assert_int_equal(uv_thread_create(&thread, end_soon, &all), 0);
    copy(&f, GM_WAY_OUT, 32 * MIB, 0);
    uv_thread_join(&thread);
    assert_int_equal(driver.written, 4);
    assert_true(ended_word == GM_MOVER_UNCOUNTED);
    driver.write_result = CUDA_SUCCESS;
    copy(&f, GM_WAY_OUT, 32 * MIB, 0);
    assert_int_equal(driver.writes, 4);
    end_without_looking(GM_WAY_OUT, 1);
    while (gm_mover_done(f.mover, GM_WAY_OUT) < 7)
        uv_run(&f.loop, UV_RUN_ONCE);
    assert_true(ended_word == GM_MOVER_UNCOUNTED);
    close_mover(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),        cmocka_unit_test(test_full_ring),
        cmocka_unit_test(test_batches),      cmocka_unit_test(test_clear),
        cmocka_unit_test(test_fences),       cmocka_unit_test(test_fence_in_a_batch),
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_refused_later),
        cmocka_unit_test(test_close),        cmocka_unit_test(test_copy_fails),
        cmocka_unit_test(test_pieces),       cmocka_unit_test(test_close_without_an_event),
        cmocka_unit_test(test_no_context),   cmocka_unit_test(test_record_refused),
        cmocka_unit_test(test_context_lost), cmocka_unit_test(test_wait_refused),
        cmocka_unit_test(test_count),        cmocka_unit_test(test_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
