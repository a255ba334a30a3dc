/*
 * daemon/service/keeping: where the keeper of a socket is, and how it is reached: at its place, at
 * that of an older version, or started anew. The test is the keepers, the clock and what starts
 * programs.
 */
#include <errno.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/clock.h"
#include "daemon/memory/kept.h"
#include "daemon/service/keeping.h"

enum { CHILD = 4711 };

/* ---- keepers ---- */

static struct {
    char path[GM_KEEPER_PATH]; /* where one was looked for first */
    int at_path[4];            /* what comes of each try there, the last one of all others, */
    uint32_t n_path;
    int at_former; /* ... and of SOCKET.keeper */
    uint32_t n_former;
    int at_take; /* what comes of the first try to take what it holds */
} keepers;

int gm_kept_connect(struct gm_kept *kept, const char *path)
{
    assert_ptr_equal(kept, &keepers);
    const size_t length = strlen(path);
    if (length > 7 && strcmp(path + length - 7, ".keeper") == 0) {
        keepers.n_former++;
        return keepers.at_former;
    }
    if (keepers.n_path == 0)
        snprintf(keepers.path, sizeof keepers.path, "%s", path);
    assert_string_equal(path, keepers.path);
    const uint32_t n = keepers.n_path++;
    return keepers.at_path[n < 4 ? n : 3];
}

bool gm_kept_is_connected(const struct gm_kept *kept)
{
    (void)kept;
    return false;
}

int gm_kept_take(struct gm_kept *kept)
{
    (void)kept;
    const int error = keepers.at_take;
    keepers.at_take = 0;
    return error;
}

void gm_kept_settle(struct gm_kept *kept)
{
    (void)kept;
}

void gm_kept_lose(struct gm_kept *kept)
{
    (void)kept;
}

int gm_kept_watch(const struct gm_kept *kept)
{
    (void)kept;
    return -ENOTCONN;
}

/* ---- programs and the system ---- */

static struct {
    int error; /* ... of starting one; an errno */
    bool ends; /* it ends at once */
    uint32_t n;
    char program[4096], arguments[4096];
} started;

static uint64_t now, slept;
static uid_t user;
static int no_pidfds; /* the error, where there are none */

int __wrap_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *files,
                       const posix_spawnattr_t *how, char *const argv[], char *const env[]);
int __wrap_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *files,
                       const posix_spawnattr_t *how, char *const argv[], char *const env[])
{
    short flags;
    bool has_path = false;
    assert_non_null(files);
    assert_int_equal(posix_spawnattr_getflags(how, &flags), 0);
    assert_int_equal(flags, POSIX_SPAWN_SETSID);
    snprintf(started.program, sizeof started.program, "%s", path);
    assert_string_equal(argv[0], "gpumux-keeper");
    assert_string_equal(argv[1], "--socket");
    assert_null(argv[3]);
    snprintf(started.arguments, sizeof started.arguments, "%s", argv[2]);
    for (uint32_t i = 0; env[i]; i++) {
        assert_null(strstr(env[i], "NOTIFY_SOCKET="));
        assert_null(strstr(env[i], "WATCHDOG_"));
        has_path = has_path || strncmp(env[i], "PATH=", 5) == 0;
    }
    assert_true(has_path);
    started.n++;
    *pid = started.error ? -1 : CHILD;
    return started.error;
}

pid_t __wrap_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
    (void)status, (void)options;
    assert_int_equal(pid, CHILD);
    return started.ends ? CHILD : 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)left;
    slept += (uint64_t)time->tv_sec * GM_S + (uint64_t)time->tv_nsec;
    now += (uint64_t)time->tv_sec * GM_S + (uint64_t)time->tv_nsec;
    return 0;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    *time = gm_timespec(now);
    return 0;
}

uid_t __real_geteuid(void);
uid_t __wrap_geteuid(void);
uid_t __wrap_geteuid(void)
{
    return user;
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    assert_int_equal(number, SYS_pidfd_open);
    errno = no_pidfds;
    return no_pidfds ? -1 : __real_syscall(SYS_pidfd_open, getpid(), 0);
}

/* ---- a folder for each test ---- */

static char folder[64];
static struct gm_keeping keeping;
static char why[512];

static int set_up(void **state)
{
    (void)state;
    memset(&keepers, 0, sizeof keepers);
    memset(&started, 0, sizeof started);
    now = GM_S;
    slept = 0;
    user = __real_geteuid();
    no_pidfds = 0;
    why[0] = '\0';
    snprintf(folder, sizeof folder, "/tmp/gm-keeping.XXXXXX");
    setenv("NOTIFY_SOCKET", "/none", 1);
    setenv("WATCHDOG_USEC", "1", 1);
    setenv("PATH", "/bin:/usr/bin", 0);
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) == 0 ? 0 : -1;
}

static void make(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static int begin(const char *socket)
{
    return gm_keeping_begin(&keeping, (struct gm_kept *)&keepers, socket, why, sizeof why);
}

static int begin_below(const char *name)
{
    char socket[256];
    snprintf(socket, sizeof socket, "%s/%s", folder, name);
    return begin(socket);
}

static void check_place(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_string_equal(keeping.path, path);
    assert_string_equal(keepers.path, path);
}

/* ---- where it is ---- */

/* Beside a folder called gpumux, which users may enter and this one nobody. */
static void test_beside(void **state)
{
    char former[128];
    (void)state;
    make("gpumux");
    assert_int_equal(begin_below("gpumux/a.sock"), 0);
    check_place("gpumux-keeper/a.sock");
    snprintf(former, sizeof former, "%s/gpumux/a.sock.keeper", folder);
    assert_string_equal(keeping.former, former);
    assert_false(keeping.is_complaining);
    make("gpumux-keeper");
    keepers.n_path = 0;
    assert_int_equal(begin_below("gpumux/a.sock"), 0);
    check_place("gpumux-keeper/a.sock");
}

/* Another user has made that folder first: nothing is said to whoever listens there. */
static void test_another_users(void **state)
{
    (void)state;
    make("gpumux");
    make("gpumux-keeper");
    user++;
    assert_int_equal(begin_below("gpumux/a.sock"), 0);
    check_place("gpumux/a.sock-keeper/a.sock");
}

/* A link of another user's is that user's, wherever it leads. */
static void test_link(void **state)
{
    char path[128], target[128];
    (void)state;
    make("gpumux");
    make("target");
    snprintf(path, sizeof path, "%s/gpumux-keeper", folder);
    snprintf(target, sizeof target, "%s/target", folder);
    assert_int_equal(symlink(target, path), 0);
    user++;
    if (__real_geteuid() == 0) /* the link is not this user's, and the folder is */
        assert_int_equal(chown(target, user, 0), 0);
    assert_int_equal(begin_below("gpumux/a.sock"), 0);
    check_place("gpumux/a.sock-keeper/a.sock");
}

/* It cannot be made there. */
static void test_no_parent(void **state)
{
    (void)state;
    assert_int_equal(begin_below("none/gpumux/a.sock"), 0);
    check_place("none/gpumux/a.sock-keeper/a.sock");
}

static void test_other_folder(void **state)
{
    (void)state;
    make("other");
    assert_int_equal(begin_below("other/a.sock"), 0);
    check_place("other/a.sock-keeper/a.sock");
    keepers.n_path = 0;
    assert_int_equal(begin_below("a.sock"), 0);
    check_place("a.sock-keeper/a.sock");
}

/* Paths that begin where the daemon does, and at the root. */
static void test_relative(void **state)
{
    (void)state;
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(begin("a.sock"), 0);
    assert_string_equal(keeping.path, "a.sock-keeper/a.sock");
    make("gpumux");
    keepers.n_path = 0;
    assert_int_equal(begin("gpumux/a.sock"), 0); /* not known to be below a folder of its own */
    assert_string_equal(keeping.path, "gpumux/a.sock-keeper/a.sock");
    keepers.n_path = 0;
    begin("/gpumux/a.sock");
    assert_true(strcmp(keeping.path, "/gpumux-keeper/a.sock") == 0 ||
                strcmp(keeping.path, "/gpumux/a.sock-keeper/a.sock") == 0);
    assert_int_equal(chdir("/"), 0);
}

/* No keeper can be at a path that is too long, so none is started or looked for. */
static void test_too_long(void **state)
{
    char name[200] = "gpumux/";
    (void)state;
    memset(name + 7, 'a', 100);
    assert_int_equal(begin_below(name), 1);
    assert_non_null(strstr(why, "too long"));
    assert_int_equal(keeping.path[0], '\0');
    assert_true(keeping.is_complaining);
    assert_int_equal(keepers.n_path + keepers.n_former + started.n, 0);
    gm_keeping_watch(&keeping, NULL); /* there is nothing to watch */
    assert_false(keeping.is_watching);
    gm_keeping_stop(&keeping);
}

/* The place that is another user's would do, and the other one is too long. */
static void test_too_long_for_itself(void **state)
{
    char name[200] = "gpumux/";
    (void)state;
    make("gpumux");
    make("gpumux-keeper");
    memset(name + 7, 'a', 36);
    assert_int_equal(begin_below(name), 0);
    user++;
    keepers.n_path = 0;
    assert_int_equal(begin_below(name), 1);
    assert_non_null(strstr(why, "too long"));
    assert_int_equal(keepers.n_path + keepers.n_former + started.n, 0);
}

/* Without pidfds nobody can say which programs are still there. */
static void test_no_pidfds(void **state)
{
    static const int errors[] = {ENOSYS, EPERM}; /* an old Linux, an old container */
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        no_pidfds = errors[i];
        assert_int_equal(begin_below("a.sock"), 1);
        assert_non_null(strstr(why, "no pidfds"));
        assert_int_equal(keepers.n_path + keepers.n_former + started.n, 0);
        gm_keeping_watch(&keeping, NULL);
        assert_false(keeping.is_watching);
    }
}

/* ---- how it is reached ---- */

static void none_at_path(int error)
{
    for (uint32_t i = 0; i < 4; i++)
        keepers.at_path[i] = error;
}

static void test_is_there(void **state)
{
    (void)state;
    assert_int_equal(begin_below("a.sock"), 0);
    assert_int_equal(keepers.n_path, 1);
    assert_int_equal(keepers.n_former + started.n, 0);
}

/* One of an older version holds what there is: no other one is started beside it. */
static void test_former(void **state)
{
    static const int nobody[] = {-ENOENT, -ENOTDIR, -ECONNREFUSED};
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        keepers.n_path = 0;
        none_at_path(nobody[i]);
        assert_int_equal(begin_below("a.sock"), 0);
        assert_int_equal(keepers.n_former, i + 1);
        assert_int_equal(started.n, 0);
    }
    keepers.n_path = 0;
    keepers.at_former = -EMFILE;
    assert_int_equal(begin_below("a.sock"), -EMFILE);
    assert_non_null(strstr(why, "a.sock.keeper cannot be spoken to"));
    assert_true(keeping.is_complaining);
    assert_int_equal(started.n, 0);
}

/* At the former place others may make files: what is foreign there is nobody's keeper. */
static void test_foreign(void **state)
{
    static const int foreign[] = {-EPERM, -EACCES, -ELOOP, -EPROTOTYPE};
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        none_at_path(0);
        keepers.at_path[0] = -ENOENT;
        keepers.n_path = 0;
        keepers.at_former = foreign[i];
        assert_int_equal(begin_below("a.sock"), 0);
        assert_int_equal(keepers.n_path, 2);
        assert_int_equal(started.n, i + 1);
        assert_int_equal(keeping.child, CHILD);
    }
    /* In its own folder only this user and root make files: that is said, and no other is made. */
    for (uint32_t i = 0; i < 4; i++) {
        keepers.n_path = 0;
        none_at_path(foreign[i]);
        assert_int_equal(begin_below("a.sock"), foreign[i]);
        assert_non_null(strstr(why, "a.sock-keeper/a.sock cannot be spoken to"));
    }
    assert_int_equal(started.n, 4);
}

/* One is started, and listens after a while. */
static void test_started(void **state)
{
    (void)state;
    none_at_path(0);
    keepers.at_path[0] = keepers.at_path[1] = -ENOENT;
    keepers.at_path[2] = -ECONNREFUSED;
    keepers.at_former = -ENOENT;
    assert_int_equal(begin_below("a.sock"), 0);
    assert_int_equal(keepers.n_path, 4);
    assert_int_equal(keepers.n_former, 3);
    assert_int_equal(started.n, 1);
    assert_int_equal(keeping.child, CHILD);
    assert_string_equal(started.arguments, keeping.path);
    const char *name = strrchr(started.program, '/');
    assert_non_null(name);
    assert_string_equal(name, "/gpumux-keeper");
    assert_true(slept > 0 && slept < GM_S);
}

/* It cannot be started; does not listen in time; or ends: then there is none. */
static void test_not_started(void **state)
{
    (void)state;
    none_at_path(-ENOENT);
    keepers.at_former = -ENOENT;
    started.error = ENOEXEC;
    assert_int_equal(begin_below("a.sock"), 1);
    assert_string_equal(why, "gpumux-keeper cannot be started: Exec format error");
    assert_int_equal(keeping.child, 0);
    assert_true(keeping.is_complaining);
    assert_int_equal(slept, 0);

    started.error = 0;
    keepers.n_path = 0;
    assert_int_equal(begin_below("a.sock"), 1);
    assert_string_equal(why, "gpumux-keeper cannot be started");
    assert_int_equal(keeping.child, CHILD);
    assert_true(slept >= 2 * GM_S);

    slept = 0;
    started.ends = true;
    keepers.n_path = 0;
    assert_int_equal(begin_below("a.sock"), 1);
    assert_int_equal(keeping.child, 0);
    assert_true(slept < GM_S);
}

/* One that is killed takes a connection and does not answer, or ends before it has given all: when
 * it is gone another one is started. One that hangs stays the keeper, and is not waited for long.
 */
static void test_ending(void **state)
{
    (void)state;
    none_at_path(0);
    keepers.at_path[0] = keepers.at_path[1] = -ENOTCONN;
    keepers.at_path[2] = -ECONNREFUSED;
    keepers.at_former = -ENOENT;
    assert_int_equal(begin_below("a.sock"), 0);
    assert_int_equal(keepers.n_path, 4);
    assert_int_equal(started.n, 1);
    keepers.n_path = 0;
    none_at_path(0);
    keepers.at_take = -ENOTCONN;
    assert_int_equal(begin_below("a.sock"), 0);
    assert_int_equal(keepers.n_path, 2);
    keepers.n_path = 0;
    none_at_path(-ENOTCONN);
    slept = 0;
    assert_int_equal(begin_below("a.sock"), -ENOTCONN);
    assert_non_null(strstr(why, "a.sock-keeper/a.sock cannot be spoken to"));
    assert_true(slept >= 2 * GM_S && slept < 60 * GM_S);
    assert_int_equal(started.n, 1);
}

/* It listens, and cannot hold so much. */
static void test_too_small(void **state)
{
    (void)state;
    none_at_path(-EMFILE);
    keepers.at_path[0] = -ENOENT;
    keepers.at_former = -ENOENT;
    assert_int_equal(begin_below("a.sock"), -EMFILE);
    assert_non_null(strstr(why, "a.sock-keeper/a.sock cannot be spoken to"));
    assert_int_equal(keepers.n_path, 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(beside),    TEST(another_users), TEST(link),
        TEST(no_parent), TEST(other_folder),  TEST(relative),
        TEST(too_long),  TEST(no_pidfds),     TEST(too_long_for_itself),
        TEST(is_there),  TEST(former),        TEST(foreign),
        TEST(started),   TEST(not_started),   TEST(too_small),
        TEST(ending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
