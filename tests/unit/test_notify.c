/* What this process tells the service manager, and what that wants to be told again and again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/notify.h"
#include "common/units.h"

static void test_lines(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[64], heard[64] = "";
    (void)state;
    snprintf(name, sizeof name, "@gm-notify.%d", (int)getpid());
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    const int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, size), 0);

    unsetenv("NOTIFY_SOCKET");
    assert_int_equal(gm_notify("READY=1"), 0); /* nobody to tell */
    setenv("NOTIFY_SOCKET", name, 1);
    assert_int_equal(gm_notify("WATCHDOG=1"), 0);
    assert_int_equal(recv(fd, heard, sizeof heard - 1, 0), 10);
    assert_string_equal(heard, "WATCHDOG=1");
    setenv("NOTIFY_SOCKET", "relative", 1);
    assert_true(gm_notify("WATCHDOG=1") < 0);
    close(fd);
}

static void test_watchdog(void **state)
{
    static const struct {
        const char *us, *pid; /* NULL: not there; "": this process */
        uint64_t ns;
    } cases[] = {
        {NULL, NULL, 0},
        {"30000000", NULL, 30 * GM_S},
        {"30000000", "", 30 * GM_S},
        {"30000000", "1", 0}, /* meant for the process that started this one */
        {"0", NULL, 0},
        {"-1", NULL, 0},
        {"5s", NULL, 0},
        {"", NULL, 0},
        {"18446744073709551615", NULL, 0},
        {"99999999999999999999999", NULL, 0},
    };
    char own[32];
    (void)state;
    snprintf(own, sizeof own, "%d", (int)getpid());
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsetenv("WATCHDOG_USEC");
        unsetenv("WATCHDOG_PID");
        if (cases[i].us)
            setenv("WATCHDOG_USEC", cases[i].us, 1);
        if (cases[i].pid)
            setenv("WATCHDOG_PID", cases[i].pid[0] ? cases[i].pid : own, 1);
        if (gm_notify_watchdog() != cases[i].ns)
            fail_msg("case %zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_watchdog),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
