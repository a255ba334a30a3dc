/* daemon/memory/meter, before the simulated NVML: what it counts, when, and when it gives up. */
#include "daemon/memory/meter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/clock.h"
#include "tests/simcuda/device_file.h"

static uv_loop_t loop;
static struct gm_meter *meter;
static unsigned n_news;
static char dir[64];
static uint8_t uuid[16];

static void on_news(void *arg)
{
    assert_ptr_equal(arg, &n_news);
    n_news++;
}

static void write_file(const char *name, const void *bytes, size_t n)
{
    char path[96], made[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    snprintf(made, sizeof made, "%s.new", path);
    FILE *file = fopen(made, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
    assert_int_equal(rename(made, path), 0); /* the thread never reads a part */
}

static void plant(const char *text)
{
    write_file("link0", text, strlen(text));
}

static void remove_file(const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}

static void open_meter(const uint8_t of[16])
{
    n_news = 0;
    meter = gm_meter_open(&loop, of, on_news, &n_news);
    assert_non_null(meter);
}

static enum gm_meter_state await_state(const char **why)
{
    enum gm_meter_state state;
    while ((state = gm_meter_state(meter, why)) == GM_METER_STARTS || n_news == 0)
        uv_run(&loop, UV_RUN_ONCE);
    return state;
}

static void await_sample(struct gm_meter_sample *sample)
{
    while (!gm_meter_take(meter, sample))
        uv_run(&loop, UV_RUN_ONCE);
}

static int set_up(void **state)
{
    (void)state;
    return uv_loop_init(&loop);
}

static int tear_down(void **state)
{
    (void)state;
    gm_meter_close(meter);
    meter = NULL;
    uv_run(&loop, UV_RUN_DEFAULT);
    remove_file("link0");
    remove_file("no-counters");
    remove_file("no-bytes");
    remove_file("device0");
    return uv_loop_close(&loop);
}

/* Each direction, as it is when it is asked; samples follow one another. */
static void test_counts(void **state)
{
    struct gm_meter_sample sample;
    const char *why;
    uint64_t last = 0;
    (void)state;
    write_file("no-bytes", "", 0);
    plant("3000000 70");
    open_meter(uuid);
    assert_int_equal(await_state(&why), GM_METER_READY);
    const uint64_t before = gm_now();
    gm_meter_run(meter, true);
    for (int i = 0; i < 3; i++) {
        await_sample(&sample);
        assert_true(sample.begin >= before && sample.begin >= last);
        assert_true(sample.end >= sample.begin + 40 * GM_MS);
        assert_int_equal(sample.cover, 20 * GM_MS);
        assert_int_equal(sample.ns, sample.end - sample.begin);
        assert_int_equal(sample.rate[GM_WAY_IN], 3000000000);
        assert_int_equal(sample.rate[GM_WAY_OUT], 70000);
        last = sample.end;
    }
    plant("0 9");
    const uint64_t changed = gm_now();
    do
        await_sample(&sample);
    while (sample.begin < changed);
    assert_int_equal(sample.rate[GM_WAY_IN], 0);
    assert_int_equal(sample.rate[GM_WAY_OUT], 9000);
}

/* Where bytes are counted, a sample has all of them since the one before: 3 GB a second are more
 * than 32 bits in 2 s. */
static void test_bytes(void **state)
{
    struct gm_meter_sample sample;
    const char *why;
    uint64_t ns = 0, until = 0;
    double in = 0, out = 0;
    (void)state;
    plant("3000000 70");
    open_meter(uuid);
    assert_int_equal(await_state(&why), GM_METER_READY);
    gm_meter_run(meter, true);
    while (ns < 2 * GM_S) {
        await_sample(&sample);
        assert_true(sample.cover == sample.ns && sample.cover <= sample.end - sample.begin);
        assert_true(until == 0 || sample.begin <= until); /* nothing is missed */
        until = sample.end;
        ns += sample.ns;
        in += (double)sample.rate[GM_WAY_IN] * (double)sample.ns / 1e9;
        out += (double)sample.rate[GM_WAY_OUT] * (double)sample.ns / 1e9;
    }
    assert_in_range((uint64_t)(in / (double)ns * 1e9), 1500000000, 3100000000);
    assert_in_range((uint64_t)(out / (double)ns * 1e9), 35000, 80000);
}

/* Until it told of `n` samples or more: each time of at least one. */
static void await_news(unsigned n)
{
    n_news = 0;
    while (n_news < n)
        uv_run(&loop, UV_RUN_ONCE);
}

/* While it does not run there is nothing, and what was begun before is forgotten. */
static void test_rests(void **state)
{
    struct gm_meter_sample sample;
    const char *why;
    (void)state;
    open_meter(uuid);
    await_state(&why);
    for (int i = 0; i < 4; i++) {
        usleep(50000);
        uv_run(&loop, UV_RUN_NOWAIT);
        assert_false(gm_meter_take(meter, &sample));
    }
    gm_meter_run(meter, true);
    await_sample(&sample);
    await_news(2); /* more of them come */
    gm_meter_run(meter, false);
    assert_false(gm_meter_take(meter, &sample));
    usleep(150000);
    uv_run(&loop, UV_RUN_NOWAIT);
    assert_false(gm_meter_take(meter, &sample));
    for (int i = 0; i < 3; i++) {
        const uint64_t again = gm_now();
        gm_meter_run(meter, true);
        await_sample(&sample);
        assert_true(sample.begin >= again);
        usleep(5000); /* into the next sample */
        gm_meter_run(meter, false);
    }
}

/* A loop that is late gets the newest. */
static void test_late(void **state)
{
    struct gm_meter_sample sample;
    const char *why;
    unsigned n = 0;
    (void)state;
    write_file("no-bytes", "", 0);
    open_meter(uuid);
    await_state(&why);
    const uint64_t before = gm_now();
    gm_meter_run(meter, true);
    await_news(20);
    for (; gm_meter_take(meter, &sample); n++)
        if (n == 0) /* each takes at least 40 ms, and four or more are gone */
            assert_true(sample.begin >= before + 4 * 40 * GM_MS);
    assert_in_range(n, 16, 17); /* and one that came meanwhile */
    assert_true(sample.end >= before + 20 * 40 * GM_MS);
}

/* No counter: at once, or later; no such GPU. */
static void test_off(void **state)
{
    struct gm_meter_sample sample;
    const char *why;
    (void)state;
    write_file("no-counters", "", 0);
    open_meter(uuid);
    assert_int_equal(await_state(&why), GM_METER_OFF);
    assert_string_equal(why, "NVML does not count what crosses the link (Not Supported)");
    gm_meter_run(meter, true);
    assert_false(gm_meter_take(meter, &sample));
    gm_meter_close(meter);

    const uint8_t other[16] = {1};
    open_meter(other);
    assert_int_equal(await_state(&why), GM_METER_OFF);
    assert_string_equal(why, "NVML does not know the GPU (Error)");
    gm_meter_close(meter);

    remove_file("no-counters");
    open_meter(uuid);
    assert_int_equal(await_state(&why), GM_METER_READY);
    gm_meter_run(meter, true);
    await_sample(&sample);
    write_file("no-counters", "", 0);
    while (gm_meter_state(meter, &why) != GM_METER_OFF)
        uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(gm_meter_state(NULL, &why), GM_METER_OFF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rests, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_late, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_off, set_up, tear_down),
    };
    snprintf(dir, sizeof dir, "/tmp/gm-meter.XXXXXX");
    if (!mkdtemp(dir) || setenv("SIMCUDA_DIR", dir, 1) != 0)
        return 2;
    sim_device_uuid(0, sim_hash_of(dir, strlen(dir), 0), uuid);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(dir);
    return failed;
}
