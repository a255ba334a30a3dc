/*
 * The daemon before, with the real gpumux-keeper: the next one waits until its process has ended,
 * however long it is still there after it has let go of everything else.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/clock.h"
#include "daemon/service/before.h"
#include "tests/unit/keeper_world.h"

#define LINGER_MS 400u

static int set_up(void **state)
{
    (void)state;
    return keeper_begin("before", 0);
}

static int tear_down(void **state)
{
    (void)state;
    return keeper_end();
}

static struct gm_kept *daemon_comes(void)
{
    struct gm_kept *kept = NULL;
    return gm_kept_open(&kept) == 0 && keeper_connect(kept) == 0 && gm_kept_take(kept) == 0 ? kept
                                                                                            : NULL;
}

/* A daemon that lets go of the keeper, says so, and has something to do yet: until `ends` is
 * closed, and a while more. */
static pid_t daemon_lingers(int *ends)
{
    int gone[2], end[2];
    char byte = 0, why[256];
    assert_int_equal(pipe(gone), 0);
    assert_int_equal(pipe(end), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct gm_kept *kept = daemon_comes();
        close(end[1]);
        if (!kept || gm_before_wait(kept, GM_S, why, sizeof why) != 0)
            _exit(1);
        gm_kept_disconnect(kept);
        if (write(gone[1], &byte, 1) != 1)
            _exit(1);
        if (read(end[0], &byte, 1) == 0)
            usleep(LINGER_MS * 1000);
        _exit(0);
    }
    close(gone[1]);
    close(end[0]);
    assert_int_equal(read(gone[0], &byte, 1), 1);
    close(gone[0]);
    *ends = end[1];
    return pid;
}

static void test_waits_for_its_end(void **state)
{
    (void)state;
    char why[256] = "";
    int ends;
    const pid_t before = daemon_lingers(&ends);
    struct gm_kept *kept = daemon_comes();
    assert_non_null(kept);
    assert_int_equal(gm_before_wait(kept, GM_S / 20, why, sizeof why), -EBUSY);
    assert_non_null(strstr(why, "has not ended"));
    gm_kept_close(kept);

    kept = daemon_comes(); /* ... and the keeper knows it still */
    assert_non_null(kept);
    close(ends);
    const uint64_t began = gm_now();
    assert_int_equal(gm_before_wait(kept, PATIENCE_MS * GM_MS, why, sizeof why), 0);
    assert_true(gm_now() - began >= LINGER_MS / 2 * GM_MS);
    assert_int_equal(kill(before, 0), 0); /* a zombie: this process has not waited for it */
    int status = -1;
    assert_int_equal(waitpid(before, &status, WNOHANG), before);
    assert_int_equal(status, 0);

    gm_kept_close(kept); /* this process is the daemon before now */
    kept = daemon_comes();
    assert_non_null(kept);
    assert_int_equal(gm_before_wait(kept, GM_S / 20, why, sizeof why), -EBUSY);
    char number[32];
    snprintf(number, sizeof number, "process %d,", (int)getpid());
    assert_non_null(strstr(why, number));
    gm_kept_close(kept);
}

static void test_the_first_waits_for_nobody(void **state)
{
    (void)state;
    char why[256];
    struct gm_kept *kept = daemon_comes();
    assert_non_null(kept);
    assert_int_equal(gm_before_wait(kept, 0, why, sizeof why), 0);
    gm_kept_close(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_first_waits_for_nobody, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_waits_for_its_end, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
