/* daemon/memory/alarm: when it calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/clock.h"
#include "daemon/memory/alarm.h"

static uv_loop_t loop;
static struct gm_alarm alarm_of_test;
static unsigned n_calls, n_closed;
static uint64_t called_at;

static void on_alarm(void *arg)
{
    assert_ptr_equal(arg, &n_calls);
    called_at = gm_now();
    n_calls++;
}

static void on_closed(void *arg)
{
    assert_ptr_equal(arg, &n_calls);
    n_closed++;
}

static void on_timer(uv_timer_t *timer)
{
    (void)timer;
}

/* Let the loop run for so long. */
static void run_for(uint64_t ms)
{
    const uint64_t end = gm_now() + ms * GM_MS;
    uv_timer_t timer;
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, on_timer, 1, 1); /* so that the loop never sleeps for longer */
    do
        uv_run(&loop, UV_RUN_ONCE);
    while (gm_now() < end);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
}

static int set_up(void **state)
{
    (void)state;
    n_calls = n_closed = 0;
    return uv_loop_init(&loop) || gm_alarm_open(&alarm_of_test, &loop, on_alarm, &n_calls);
}

static int tear_down(void **state)
{
    (void)state;
    gm_alarm_close(&alarm_of_test, on_closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    return n_closed != 1 || uv_loop_close(&loop) != 0;
}

static void test_never(void **state)
{
    (void)state;
    run_for(2);
    gm_alarm_set(&alarm_of_test, gm_now() + GM_MS);
    gm_alarm_set(&alarm_of_test, UINT64_MAX);
    run_for(3);
    assert_int_equal(n_calls, 0);
}

/* Never too early, and within the millisecond, if the machine lets it: one that counts milliseconds
 * never is. */
static void test_exact(void **state)
{
    (void)state;
    uint64_t late = UINT64_MAX;
    for (unsigned i = 1; i <= 1000 && late >= GM_MS / 2; i++) {
        const uint64_t at = (gm_now() / GM_MS + 2) * GM_MS + GM_MS / 10;
        gm_alarm_set(&alarm_of_test, at);
        while (n_calls < i)
            uv_run(&loop, UV_RUN_ONCE);
        assert_true(called_at >= at);
        late = called_at - at;
    }
    assert_in_range(late, 0, GM_MS / 2);
}

/* A time that has passed: at once, and once. */
static void test_at_once(void **state)
{
    (void)state;
    gm_alarm_set(&alarm_of_test, 0);
    run_for(2);
    assert_int_equal(n_calls, 1);
    gm_alarm_set(&alarm_of_test, gm_now() - GM_S);
    gm_alarm_set(&alarm_of_test, gm_now() - GM_S);
    run_for(2);
    assert_int_equal(n_calls, 2);
}

/* Only the time that was set last counts. */
static void test_set_anew(void **state)
{
    (void)state;
    const uint64_t late = gm_now() + 20 * GM_MS;
    gm_alarm_set(&alarm_of_test, gm_now());
    gm_alarm_set(&alarm_of_test, late);
    run_for(5);
    assert_true(n_calls == 0 || gm_now() >= late);
    run_for(20);
    assert_int_equal(n_calls, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_never, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_exact, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_set_anew, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
