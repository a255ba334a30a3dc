/*
 * daemon/stores, its memory and its workers: paged memory is filled ahead and given back, by
 * workers that hold no copy up, and there are as many of them as processors.
 */
#include "tests/unit/stores_world.h"

#include <pthread.h>

static uint64_t resident(void)
{
    static unsigned char present[(256 * MIB) / 4096];
    uint64_t n = 0;
    assert_true(fault.mapped_bytes <= 256 * MIB);
    assert_int_equal(mincore(fault.mapped, fault.mapped_bytes, present), 0);
    for (uint64_t i = 0; i < fault.mapped_bytes / 4096; i++)
        n += present[i] & 1;
    return n * 4096;
}

/* Run the loop until paged memory has `bytes`, or for a minute. */
static void wait_resident(struct world *w, uint64_t bytes)
{
    for (int i = 0; i < 12000 && resident() != bytes; i++) {
        usleep(5000);
        uv_run(&w->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(resident(), bytes);
}

/* Paged memory takes what is used, and gives back what was free for a while, not before. */
static void test_memory_follows_use(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        const bool is_soon = i > 0;
        struct world w;
        char why[256] = "";
        open_pool(&w, 128 * MIB);
        if (i == 2)
            keep_paged();
        fault.keep_ms = is_soon ? 40 : 3600 * 1000;
        assert_int_equal(open_stores(&w, 100 * MIB, NULL, 0, why, sizeof why), 0);
        assert_int_equal(resident(), 0);
        for (uint32_t c = 0; c < 3; c++) {
            assert_true(make_chunk(&w, c, 32 * MIB));
            assert_int_equal(move_now(&w, c, GM_TIER_PAGED), 0);
            assert_int_equal(resident(), (c + 1) * 32 * MIB);
        }
        assert_true(make_chunk(&w, 3, 4 * MIB)); /* the rest of it, which is no whole slab */
        assert_int_equal(move_now(&w, 3, GM_TIER_PAGED), 0);
        assert_int_equal(resident(), 100 * MIB);
        assert_int_equal(move_now(&w, 3, GM_TIER_PINNED), 0);
        assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0);
        assert_int_equal(move_now(&w, 1, GM_TIER_PINNED), 0);
        if (is_soon) {
            wait_resident(&w, 32 * MIB);
            assert_int_equal(move_now(&w, 2, GM_TIER_PINNED), 0); /* with its data */
            wait_resident(&w, 0);
        } else {
            for (int n = 0; n < 20; n++) {
                usleep(5000);
                uv_run(&w.loop, UV_RUN_NOWAIT);
            }
            assert_int_equal(resident(), 100 * MIB);
            assert_int_equal(move_now(&w, 2, GM_TIER_PINNED), 0);
        }
        for (uint32_t c = 0; c < 3; c++) /* and takes it again */
            assert_int_equal(move_now(&w, c, GM_TIER_PAGED), 0);
        for (uint32_t c = 0; c < 3; c++)
            assert_int_equal(move_now(&w, c, GM_TIER_PINNED), 0);
        close_world(&w);
    }
}

/* Run the loop for a while. */
static void run_for(struct world *w, unsigned ms)
{
    const uint64_t end = gm_now() + ms * GM_MS;
    while (gm_now() < end) {
        usleep(1000);
        uv_run(&w->loop, UV_RUN_NOWAIT);
    }
}

/* Run the loop until that many fills have begun, or for a minute. */
static void wait_populates(struct world *w, int n)
{
    for (int i = 0; i < 12000 && fault.populates < n; i++)
        run_for(w, 5);
    assert_int_equal(fault.populates, n);
}

/* What is wanted has memory before it is used, whether the kernel can do it or each small page is
 * touched; what is not wanted any more is given back; none of it sooner or later. */
static void test_memory_follows_want(void **state)
{
    static const int errors[] = {0, EINVAL, 0};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct world w;
        open_pool(&w, 32 * MIB);
        if (i == 2)
            keep_paged();
        fault.keep_ms = 200;
        fault.populate_error = errors[i];
        open_world_as_told(&w, 100 * MIB, 0);
        assert_int_equal(gm_stores_held(w.stores), 0);
        gm_stores_want(w.stores, 64 * MIB);
        wait_resident(&w, 68 * MIB); /* what is left over of whole slabs, and two of them */
        gm_stores_want(w.stores, UINT64_MAX);
        wait_resident(&w, 100 * MIB);
        run_for(&w, 600);
        assert_int_equal(resident(), 100 * MIB);
        assert_int_equal(gm_stores_held(w.stores), 100 * MIB);
        for (unsigned j = 0; j < 10; j++) { /* not wanted for a moment: nothing is given back */
            const int before = fault.populates;
            const uint64_t at = gm_now();
            uv_update_time(&w.loop);
            gm_stores_want(w.stores, 0);
            run_for(&w, 20);
            gm_stores_want(w.stores, 97 * MIB);
            const bool is_moment = gm_now() - at < fault.keep_ms * GM_MS / 2;
            run_for(&w, 5);
            if (is_moment) /* else the machine was busy */
                assert_int_equal(fault.populates, before);
            wait_resident(&w, 100 * MIB);
        }
        gm_stores_want(w.stores, 33 * MIB);
        wait_resident(&w, 64 * MIB);
        assert_true(make_chunk(&w, 1, 32 * MIB));
        assert_int_equal(move_now(&w, 1, GM_TIER_PAGED), 0);
        assert_int_equal(resident(), 64 * MIB); /* what is left is what is taken first */
        assert_int_equal(move_now(&w, 1, GM_TIER_PINNED), 0);
        end_chunk(&w, 1);
        gm_stores_want(w.stores, 0);
        wait_resident(&w, 0);
        assert_int_equal(gm_stores_held(w.stores), 0);
        gm_stores_want(w.stores, 1);
        wait_resident(&w, 4 * MIB);
        assert_true(make_chunk(&w, 0, 32 * MIB)); /* and with data, beyond what is wanted */
        assert_int_equal(move_now(&w, 0, GM_TIER_PAGED), 0);
        gm_stores_want(w.stores, 0);
        wait_resident(&w, 32 * MIB);
        run_for(&w, 600);
        assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0); /* with its data */
        wait_resident(&w, 0);
        close_world(&w);
    }
}

/* Memory that there is already is taken before memory that there is not. */
static void test_filled_is_taken_first(void **state)
{
    static const uint64_t sizes[] = {2 * MIB, 32 * MIB, 8 * MIB, 4 * MIB, 32 * MIB, 16 * MIB};
    struct world w;
    (void)state;
    open_pool(&w, 96 * MIB);
    fault.keep_ms = 3600 * 1000;
    open_world_as_told(&w, 128 * MIB, 0);
    gm_stores_want(w.stores, 96 * MIB);
    wait_resident(&w, 96 * MIB);
    for (unsigned round = 0; round < 3; round++) {
        const int populates = fault.populates;
        for (uint32_t i = 0; i < 6; i++) {
            assert_true(make_chunk(&w, i, sizes[i]));
            assert_int_equal(move_now(&w, i, GM_TIER_PAGED), 0);
            assert_int_equal(resident(), 96 * MIB);
        }
        assert_int_equal(fault.populates, populates);
        for (uint32_t i = 0; i < 6; i++) {
            const uint32_t chunk = (i + round) % 6;
            assert_int_equal(move_now(&w, chunk, GM_TIER_PINNED), 0);
            end_chunk(&w, chunk);
        }
    }
    close_world(&w);

    open_pool(&w, 96 * MIB);
    fault.keep_ms = 3600 * 1000;
    open_world_as_told(&w, 96 * MIB, 0);
    assert_true(make_chunk(&w, 0, 32 * MIB)); /* what copies have filled counts */
    assert_int_equal(move_now(&w, 0, GM_TIER_PAGED), 0);
    gm_stores_want(w.stores, 32 * MIB);
    run_for(&w, 50);
    assert_int_equal(fault.populates, 0);
    assert_int_equal(resident(), 32 * MIB);
    close_world(&w);

    open_pool(&w, 96 * MIB); /* the rest of what is in use comes first */
    fault.keep_ms = 3600 * 1000;
    open_world_as_told(&w, 96 * MIB, 0);
    assert_true(make_chunk(&w, 0, 2 * MIB));
    assert_int_equal(move_now(&w, 0, GM_TIER_PAGED), 0);
    assert_int_equal(resident(), 2 * MIB);
    gm_stores_want(w.stores, 32 * MIB);
    wait_resident(&w, 32 * MIB);
    assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0); /* with its data */
    close_world(&w);
}

/* One more fill may go on every now and then: one that waits, or the next. */
static void *let_fills_go(void *is_over)
{
    while (!*(atomic_bool *)is_over) {
        usleep(100000);
        atomic_fetch_add(&fault.may_populate, 1);
    }
    return NULL;
}

/* Workers that fill hold no copy up: some of them do not fill, and those that do look for copies
 * after each page. Closing waits for no more than a page each. */
static void test_filling_holds_nothing_up(void **state)
{
    struct world w;
    pthread_t thread;
    atomic_bool is_over = false;
    (void)state;
    open_world(&w, 32 * MIB, 96 * MIB, 0);
    assert_true(make_chunk(&w, 0, 32 * MIB));
    fault.may_populate = 0;
    gm_stores_want(w.stores, 96 * MIB);
    wait_populates(&w, 2);
    run_for(&w, 20);
    assert_int_equal(fault.populates, 2); /* of three workers */
    assert_int_equal(move_now(&w, 0, GM_TIER_PAGED), 0);
    assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0);
    fault.may_populate = 5;
    gm_stores_want(w.stores, 0);
    wait_populates(&w, 7);
    assert_int_equal(pthread_create(&thread, NULL, let_fills_go, &is_over), 0);
    close_world(&w); /* the two that wait go on, and no others, if it is told soon */
    is_over = true;
    pthread_join(thread, NULL);
    assert_true(fault.populates <= 20); /* of 48 */

    open_pool(&w, 32 * MIB);
    fault.workers = 1;
    open_world_as_told(&w, 96 * MIB, 0);
    assert_true(make_chunk(&w, 0, 32 * MIB));
    fault.may_populate = 0;
    gm_stores_want(w.stores, 96 * MIB);
    wait_populates(&w, 1);
    assert_true(move_chunk(&w, 0, GM_TIER_PAGED));
    fault.may_populate = 1;
    for (int i = 0; i < 12000 && w.in_flight > 0; i++)
        run_for(&w, 5);
    assert_int_equal(w.in_flight, 0); /* the second page, which would hang, came behind it */
    wait_populates(&w, 2);
    fault.may_populate = -1;
    wait_resident(&w, 96 * MIB);
    close_world(&w);
}

/* Run the loop until memory is held, or none is: a fill that failed counts for keep_ms. */
static void wait_held(struct world *w, bool is_held)
{
    const uint64_t end = gm_now() + 60 * GM_S;
    while ((gm_stores_held(w->stores) > 0) != is_held && gm_now() < end) {
        usleep(1000);
        uv_run(&w->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(gm_stores_held(w->stores) > 0, is_held);
}

/* A system without memory is not asked again and again, but when more is wanted. */
static void test_refused_memory(void **state)
{
    struct world w;
    (void)state;
    open_pool(&w, 32 * MIB);
    fault.keep_ms = 20;
    open_world_as_told(&w, 96 * MIB, 0);
    fault.populate_error = ENOMEM;
    for (int i = 1; i < 4; i++) {
        fault.populates = 0;
        gm_stores_want(w.stores, 64 * MIB);
        wait_held(&w, true);
        wait_held(&w, false);
        assert_in_range(fault.populates, 1, 2); /* each worker once */
        assert_int_equal(resident(), 0);
    }
    fault.populate_error = 0;
    run_for(&w, 50);
    assert_int_equal(resident(), 0);
    gm_stores_want(w.stores, 64 * MIB);
    wait_resident(&w, 64 * MIB);
    close_world(&w);
}

static unsigned copying_threads(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *file = fopen(path, "r");
        n += file && fgets(name, sizeof name, file) && strcmp(name, "gpumux-copy\n") == 0;
        if (file)
            fclose(file);
    }
    closedir(dir);
    return n;
}

/* As many workers as processors that this process may use, but two at least and 16 at most. */
static void test_number_of_workers(void **state)
{
    cpu_set_t all, some;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (int most = 1; most <= CPU_COUNT(&all); most++) {
        struct world w;
        CPU_ZERO(&some);
        for (size_t i = 0; CPU_COUNT(&some) < most; i++)
            if (CPU_ISSET(i, &all))
                CPU_SET(i, &some);
        assert_int_equal(sched_setaffinity(0, sizeof some, &some), 0);
        open_pool(&w, 32 * MIB);
        fault.workers = 0;
        open_world_as_told(&w, 32 * MIB, 0);
        const unsigned processors = uv_available_parallelism();
        assert_true(processors <= (unsigned)most);
        assert_int_equal(copying_threads(), processors < 2 ? 2 : processors > 16 ? 16 : processors);
        close_world(&w);
    }
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_follows_use),
        cmocka_unit_test(test_memory_follows_want),
        cmocka_unit_test(test_filled_is_taken_first),
        cmocka_unit_test(test_filling_holds_nothing_up),
        cmocka_unit_test(test_refused_memory),
        cmocka_unit_test(test_number_of_workers),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
