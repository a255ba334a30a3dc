/* What the system says of a process, in a tree of the test's own: signals, debuggers, control
 * groups of both kinds, whatever is mounted where. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/service/process.h"

static char root[64];
static struct gm_process_system host;

/* A file, and the folders that it lies in. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
        *at = '\0';
        mkdir(full, 0755);
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int begin(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/gm-process.XXXXXX");
    host = (struct gm_process_system){.root = root};
    return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void expect(enum gm_why stop)
{
    assert_int_equal(gm_process_stop_in(&host, 7), stop);
}

static void signals_and_debuggers(void **state)
{
    (void)state;
    expect(GM_WHY_NONE); /* there is no such process */
    put("/proc/7/stat", "7 (a) T (b) S 1 7 7");
    expect(GM_WHY_NONE); /* the name is no state */
    put("/proc/7/stat", "7 (a) S (b) T 1 7 7");
    expect(GM_WHY_STOPPED);
    put("/proc/7/stat", "7 (a) t 1 7 7");
    expect(GM_WHY_TRACED);
    put("/proc/7/stat", "");
    expect(GM_WHY_NONE);
    put("/proc/7/stat", "7 (a");
    expect(GM_WHY_NONE);
}

/* The first thread of a program may end before the others. */
static void without_its_first_thread(void **state)
{
    (void)state;
    put("/proc/7/stat", "7 (a) Z 1 7 7");
    expect(GM_WHY_NONE);
    put("/proc/7/task/7/stat", "7 (a) Z 1 7 7");
    put("/proc/7/task/8/stat", "8 (a) T 1 7 7");
    expect(GM_WHY_STOPPED);
    put("/proc/7/task/8/stat", "8 (a) S 1 7 7");
    expect(GM_WHY_NONE);
}

static void freezers(void **state)
{
    (void)state;
    put("/proc/self/mountinfo",
        "30 23 0:26 / /sys/fs/cgroup rw,relatime shared:1 - tmpfs tmpfs rw\n"
        "31 23 0:27 / /cg/cpu rw - cgroup cgroup rw,cpu\n"
        "32 23 0:28 / /cg/f rw,relatime shared:9 master:2 - cgroup cgroup rw,memory,freezer\n"
        "33 23 0:29 /box /cg/2 rw - cgroup2 cgroup2 rw\n"
        "34 23 0:30 / /elsewhere rw - cgroup2 cgroup2 rw\n"
        "nonsense\n");
    put("/proc/7/stat", "7 (a) S 1 7 7");
    expect(GM_WHY_NONE); /* its groups are not known */
    put("/proc/7/cgroup", "5:cpu:/x\n4:memory,freezer:/x/y\n1:name=freezers:/z\n0::/box/b:c/d\n");
    expect(GM_WHY_NONE); /* ... nor whether they are frozen */
    put("/cg/f/x/y/freezer.state", "THAWED\n");
    put("/cg/2/b:c/d/cgroup.events", "populated 1\nfrozen 0\n");
    put("/cg/cpu/x/freezer.state", "FROZEN\n");
    put("/cg/f/z/freezer.state", "FROZEN\n");
    put("/elsewhere/box/b:c/d/cgroup.events", "populated 1\nfrozen 1\n");
    expect(GM_WHY_NONE);
    put("/cg/f/x/y/freezer.state", "FREEZING\n");
    expect(GM_WHY_FROZEN);
    put("/cg/f/x/y/freezer.state", "FROZEN\n");
    expect(GM_WHY_FROZEN);
    put("/cg/f/x/y/freezer.state", "");
    expect(GM_WHY_NONE);
    put("/cg/2/b:c/d/cgroup.events", "populated 1\nfrozen 1\n");
    expect(GM_WHY_FROZEN);
    put("/proc/7/cgroup", "0::/boxes\n"); /* beside what is mounted */
    expect(GM_WHY_NONE);
    put("/proc/7/cgroup", "0::/box\n");
    put("/cg/2/cgroup.events", "frozen 1\n");
    expect(GM_WHY_FROZEN);
    host = (struct gm_process_system){.root = root}; /* what the kernel writes in octal */
    put("/proc/self/mountinfo",
        "33 23 0:29 /b\\134x\\011y /c\\040g\\012z rw - cgroup2 cgroup2 rw\n");
    put("/proc/7/cgroup", "0::/b\\x\ty\n");
    put("/c g\nz/cgroup.events", "frozen 1\n");
    expect(GM_WHY_FROZEN);
    put("/proc/7/cgroup", "::::\n0:\n:\n\n0::/../..");
    expect(GM_WHY_NONE);
}

static void without_control_groups(void **state)
{
    (void)state;
    put("/proc/7/stat", "7 (a) S 1 7 7");
    put("/proc/7/cgroup", "4:freezer:/\n0::/\n");
    expect(GM_WHY_NONE);
}

static void link_to(const char *path, const char *target)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    assert_int_equal(symlink(target, full), 0);
}

/* Of the user's processes, started no earlier, the one that has that socket open. */
static void who_has_a_socket(void **state)
{
    (void)state;
    assert_int_equal(gm_process_holder_in(&host, getuid(), 50, 12), 0);
    for (int pid = 6; pid < 9; pid++) {
        char path[32], text[128];
        snprintf(path, sizeof path, "/proc/%d/fd/none", pid);
        put(path, "");
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        snprintf(text, sizeof text, "%d (a) S 1 7 7 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 %d 0", pid,
                 pid * 10);
        put(path, text);
    }
    put("/proc/x/fd/none", "");
    link_to("/proc/x/fd/3", "socket:[12]");
    link_to("/proc/6/fd/3", "socket:[12]");
    link_to("/proc/7/fd/3", "socket:[123]");
    link_to("/proc/7/fd/4", "pipe:[12]");
    assert_int_equal(gm_process_holder_in(&host, getuid(), 61, 12), 0);
    assert_int_equal(gm_process_holder_in(&host, getuid(), 60, 12), 6);
    assert_int_equal(gm_process_holder_in(&host, getuid() + 1, 60, 12), 0);
    link_to("/proc/8/fd/4", "socket:[12]");
    assert_int_equal(gm_process_holder_in(&host, getuid(), 61, 12), 8);
    assert_int_equal(gm_process_holder_in(&host, getuid(), 61, 0), 0);
}

/* The process that has the other end of a socket, in the system itself. */
static void who_has_the_other_end(void **state)
{
    int ends[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(gm_process_holder(getuid(), 0, -1), 0);
    assert_int_equal(gm_process_holder(getuid(), gm_process_started(getpid()), ends[0]), getpid());
    close(ends[1]);
    assert_int_equal(gm_process_holder(getuid(), 0, ends[0]), 0);
    close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(signals_and_debuggers, begin, end),
        cmocka_unit_test_setup_teardown(without_its_first_thread, begin, end),
        cmocka_unit_test_setup_teardown(freezers, begin, end),
        cmocka_unit_test_setup_teardown(without_control_groups, begin, end),
        cmocka_unit_test_setup_teardown(who_has_a_socket, begin, end),
        cmocka_unit_test(who_has_the_other_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
