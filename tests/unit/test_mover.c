/*
 * daemon/memory/mover: numbers and bytes under way, copies in that wait for copies out on the GPU,
 * a full ring, and a driver that refuses.
 */
#include "tests/unit/mover_world.h"

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
    assert_int_equal(gm_mover_clear(f.mover, 0, MIB, 0), 1); /* nowhere */
    assert_int_equal(gm_mover_result(f.mover, GM_WAY_IN, 1), CUDA_ERROR_INVALID_VALUE);
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
        cmocka_unit_test(test_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
