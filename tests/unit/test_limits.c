/*
 * daemon/limits over made-up /proc and /sys trees: which limit binds, where it is from, what the
 * default of --pinned becomes of it, and what is refused in which words.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/memory/limits.h"

#define GIB (1ull << 30)

static char root[64];

/* ---- the tree ---- */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int make_root(void **state)
{
    (void)state;
    const char *dir = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/gm-limits.XXXXXX", dir && strlen(dir) < 40 ? dir : "/tmp");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Write a file of the tree, and make its folders. */
static void put(const char *path, const char *text)
{
    char whole[512];
    assert_true(snprintf(whole, sizeof whole, "%s%s", root, path) < (int)sizeof whole);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(whole, 0700);
        *at = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A machine with 64 GiB of memory and `swap_gib` of swap. */
static void put_machine(unsigned swap_gib)
{
    char text[256];
    snprintf(text, sizeof text,
             "MemTotal:       67108864 kB\nMemFree:         1234 kB\nSwapCached:  7 kB\n"
             "SwapTotal:      %u kB\n",
             swap_gib << 20);
    put("/proc/meminfo", text);
}

#define MOUNT_V2 "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_V1                                                                                   \
    "22 28 0:21 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n"                                      \
    "32 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"                                  \
    "33 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
#define UNIT "/system.slice/gpumuxd.service"

static struct gm_limits read_now(void)
{
    struct gm_limits limits;
    gm_limits_read(&limits, root);
    return limits;
}

/* ---- reading ---- */

static void test_nothing_to_read(void **state)
{
    struct gm_limits limits = read_now();
    uint64_t pinned = 0;
    char why[512] = "";
    (void)state;
    assert_true(limits.memory == UINT64_MAX && limits.swap == 0 && limits.group == UINT64_MAX);
    assert_int_equal(gm_limits_fit(&limits, &pinned, 1ull << 50, why, sizeof why), 0);
    assert_int_equal(pinned, 0); /* half of what is not known */
    pinned = 1ull << 50;
    assert_int_equal(gm_limits_fit(&limits, &pinned, 1ull << 50, why, sizeof why), 0);
    assert_int_equal(pinned, 1ull << 50);
}

/* The smallest from the process's own group to the top of the mount. */
static void test_unified(void **state)
{
    struct gm_limits limits;
    (void)state;
    put_machine(8);
    put("/proc/self/cgroup", "0::" UNIT "\n");
    put("/proc/self/mountinfo", MOUNT_V2);
    limits = read_now();
    assert_int_equal(limits.memory, 64 * GIB);
    assert_int_equal(limits.swap, 8 * GIB);
    assert_true(limits.group == UINT64_MAX);
    put("/sys/fs/cgroup" UNIT "/memory.max", "max\n");
    assert_true(read_now().group == UINT64_MAX);
    put("/sys/fs/cgroup/system.slice/memory.max", "34359738368\n");
    limits = read_now();
    assert_int_equal(limits.group, 32 * GIB);
    assert_string_equal(limits.group_file, "/sys/fs/cgroup/system.slice/memory.max");
    put("/sys/fs/cgroup" UNIT "/memory.max", "17179869184\n");
    limits = read_now();
    assert_int_equal(limits.group, 16 * GIB);
    assert_string_equal(limits.group_file, "/sys/fs/cgroup" UNIT "/memory.max");
    put("/sys/fs/cgroup/memory.max", "8589934592\n"); /* the top of a container's namespace */
    limits = read_now();
    assert_int_equal(limits.group, 8 * GIB);
    assert_string_equal(limits.group_file, "/sys/fs/cgroup/memory.max");
    /* another group's is not ours, nor is what is above the mount */
    put("/sys/fs/cgroup/other.slice/memory.max", "1048576\n");
    put("/sys/fs/memory.max", "1048576\n");
    put("/memory.max", "1048576\n");
    assert_int_equal(read_now().group, 8 * GIB);
}

/* A limit that the machine cannot reach is none. */
static void test_limit_above_the_machine(void **state)
{
    (void)state;
    put_machine(0);
    put("/proc/self/cgroup", "0::" UNIT "\n");
    put("/proc/self/mountinfo", MOUNT_V2);
    put("/sys/fs/cgroup" UNIT "/memory.max", "68719476736\n"); /* 64 GiB */
    assert_true(read_now().group == UINT64_MAX);
    put("/sys/fs/cgroup" UNIT "/memory.max", "68719476735\n");
    assert_int_equal(read_now().group, 64 * GIB - 1);
}

static void test_version_1(void **state)
{
    struct gm_limits limits;
    (void)state;
    put_machine(0);
    put("/proc/self/cgroup",
        "9:name=systemd:/\n4:cpu,memory:" UNIT "\n3:cpuset:/x\n0::/elsewhere\n");
    put("/proc/self/mountinfo", MOUNT_V1);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* "none" */
    put("/sys/fs/cgroup/memory" UNIT "/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/cpu" UNIT "/memory.limit_in_bytes", "1048576\n");
    assert_true(read_now().group == UINT64_MAX);
    put("/sys/fs/cgroup/memory/system.slice/memory.limit_in_bytes", "2147483648\n");
    limits = read_now();
    assert_int_equal(limits.group, 2 * GIB);
    assert_string_equal(limits.group_file,
                        "/sys/fs/cgroup/memory/system.slice/memory.limit_in_bytes");
}

/* Both versions at once: the memory controller is in one of them, whichever. */
static void test_both_versions(void **state)
{
    (void)state;
    put_machine(0);
    put("/proc/self/cgroup", "4:memory:/a\n0::/b\n");
    put("/proc/self/mountinfo",
        MOUNT_V1 "34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2147483648\n");
    assert_int_equal(read_now().group, 2 * GIB);
    put("/sys/fs/cgroup/unified/b/memory.max", "1073741824\n");
    assert_int_equal(read_now().group, 1 * GIB);
}

/* Only a part of the hierarchy is mounted, at a place with a blank in its name. */
static void test_part_is_mounted(void **state)
{
    struct gm_limits limits;
    (void)state;
    put_machine(0);
    put("/proc/self/mountinfo",
        "30 23 0:26 /docker/12\\0404 /my\\040groups rw - cgroup2 cgroup2 rw\n");
    put("/proc/self/cgroup", "0::/docker/12 4/inner\n");
    put("/my groups/inner/memory.max", "3221225472\n");
    limits = read_now();
    assert_int_equal(limits.group, 3 * GIB);
    assert_string_equal(limits.group_file, "/my groups/inner/memory.max");
    put("/my groups/memory.max", "1073741824\n");
    assert_int_equal(read_now().group, 1 * GIB);
    /* a group that is beside what is mounted, in three ways */
    put("/proc/self/cgroup", "0::/docker/12 45\n");
    assert_true(read_now().group == UINT64_MAX);
    put("/proc/self/cgroup", "0::/docker\n");
    assert_true(read_now().group == UINT64_MAX);
    put("/proc/self/mountinfo", MOUNT_V2);
    put("/proc/self/cgroup", "0::/../other\n");
    put("/sys/fs/cgroup/memory.max", "1073741824\n");
    assert_true(read_now().group == UINT64_MAX);
}

/* Files that are not what they should be are no limit, and no harm. */
static void test_garbage(void **state)
{
    char longest[9000];
    (void)state;
    put("/proc/meminfo", "MemTotal: lots\nSwapTotal:\n\n:");
    put("/proc/self/cgroup", "\n:\n0:\n0::");
    put("/proc/self/mountinfo", " - \n - cgroup2\n1 2 3 - cgroup2 x y\n" MOUNT_V2);
    put("/sys/fs/cgroup/memory.max", "");
    assert_true(read_now().group == UINT64_MAX && read_now().memory == UINT64_MAX);
    put("/sys/fs/cgroup/memory.max", "plenty");
    assert_true(read_now().group == UINT64_MAX);
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    memcpy(longest, "0::/", 4);
    put("/proc/self/cgroup", longest);
    assert_true(read_now().group == UINT64_MAX);
}

/* ---- fitting ---- */

static void test_default(void **state)
{
    static const struct {
        uint64_t group, swap, paged, pinned;
    } cases[] = {
        {UINT64_MAX, 0, 0, 32 * GIB},           {UINT64_MAX, 64 * GIB, 0, 32 * GIB},
        {UINT64_MAX, 0, 16 * GIB, 32 * GIB},    {UINT64_MAX, 0, 40 * GIB, 24 * GIB},
        {UINT64_MAX, 0, 64 * GIB, 0},           {UINT64_MAX, 8 * GIB, 64 * GIB, 8 * GIB},
        {20 * GIB, 8 * GIB, 0, 10 * GIB},       {20 * GIB, 8 * GIB, 4 * GIB, 10 * GIB},
        {20 * GIB, 8 * GIB, 16 * GIB, 4 * GIB},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gm_limits limits = {
            .memory = 64 * GIB, .swap = cases[i].swap, .group = cases[i].group};
        uint64_t pinned = 0;
        char why[512] = "";
        if (gm_limits_fit(&limits, &pinned, cases[i].paged, why, sizeof why) != 0 ||
            pinned != cases[i].pinned)
            fail_msg("case %zu: %llu MiB, \"%s\"", i, (unsigned long long)(pinned >> 20), why);
    }
}

/* What was asked for stays as it is, to the last byte that there is. */
static void test_what_fits(void **state)
{
    static const struct {
        uint64_t group, swap, pinned, paged;
    } cases[] = {
        {UINT64_MAX, 0, 64 * GIB, 0},
        {UINT64_MAX, 0, 1, 64 * GIB - 1},
        {UINT64_MAX, 8 * GIB, 64 * GIB, 8 * GIB},
        {20 * GIB, 8 * GIB, 20 * GIB, 0},
        {20 * GIB, 8 * GIB, 15 * GIB, 5 * GIB},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gm_limits limits = {
            .memory = 64 * GIB, .swap = cases[i].swap, .group = cases[i].group};
        uint64_t pinned = cases[i].pinned;
        char why[512] = "";
        if (gm_limits_fit(&limits, &pinned, cases[i].paged, why, sizeof why) != 0 ||
            pinned != cases[i].pinned)
            fail_msg("case %zu: \"%s\"", i, why);
    }
}

static void test_what_does_not(void **state)
{
#define FILE_OF_LIMIT "/sys/fs/cgroup" UNIT "/memory.max"
#define OF_GROUP                                                                                   \
    "the 20 GiB that this control group may use (" FILE_OF_LIMIT ", MemoryMax= of a unit)"
    static const struct {
        uint64_t group, swap, pinned, paged;
        const char *why;
    } cases[] = {
        {UINT64_MAX, 8 * GIB, 65 * GIB, 0,
         "--pinned 65 GiB is more than the 64 GiB of memory that this machine has: lower --pinned"},
        {UINT64_MAX, 8 * GIB, 65 * GIB, 1 * GIB,
         "--pinned 65 GiB is more than the 64 GiB of memory that this machine has: lower --pinned"},
        {UINT64_MAX, 8 * GIB, 0, 73 * GIB,
         "--paged 73 GiB is more than the 72 GiB of memory and swap that this machine has: lower "
         "--paged"},
        {UINT64_MAX, 8 * GIB, 64 * GIB, 9 * GIB,
         "--pinned 64 GiB and --paged 9 GiB together are more than the 72 GiB of memory and swap "
         "that this machine has: lower them"},
        {20 * GIB, 8 * GIB, 21 * GIB, 0,
         "--pinned 21 GiB is more than " OF_GROUP ": lower --pinned, or raise that limit"},
        {20 * GIB, 8 * GIB, 0, 21 * GIB,
         "--paged 21 GiB is more than " OF_GROUP ": lower --paged, or raise that limit"},
        {20 * GIB, 8 * GIB, 15 * GIB, 6 * GIB,
         "--pinned 15 GiB and --paged 6 GiB together are more than " OF_GROUP
         ": lower them, or raise that limit"},
        {20 * GIB, 8 * GIB, 100 * GIB, 6 * GIB,
         "--pinned 100 GiB is more than " OF_GROUP ": lower --pinned, or raise that limit"},
        {UINT64_MAX, 0, UINT64_MAX, UINT64_MAX,
         "--pinned 16 EiB is more than the 64 GiB of memory that this machine has: lower --pinned"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gm_limits limits = {.memory = 64 * GIB,
                                   .swap = cases[i].swap,
                                   .group = cases[i].group,
                                   .group_file = FILE_OF_LIMIT};
        uint64_t pinned = cases[i].pinned;
        char why[512] = "";
        assert_true(gm_limits_fit(&limits, &pinned, cases[i].paged, why, sizeof why) < 0);
        assert_string_equal(why, cases[i].why);
        char small[20] = ""; /* a line that is cut is one line still */
        assert_true(gm_limits_fit(&limits, &pinned, cases[i].paged, small, sizeof small) < 0);
        assert_memory_equal(small, why, sizeof small - 1);
    }
}

/* This machine has what it has. */
static void test_real(void **state)
{
    struct gm_limits limits;
    uint64_t pinned = 0;
    char why[512] = "";
    (void)state;
    gm_limits_read(&limits, "");
    assert_true(limits.memory > 1ull << 26 && limits.memory < 1ull << 60);
    assert_true(limits.group == UINT64_MAX || limits.group < limits.memory);
    assert_int_equal(gm_limits_fit(&limits, &pinned, 0, why, sizeof why), 0);
    assert_true(pinned > 0 && pinned <= limits.memory / 2);
    pinned = 1ull << 60;
    assert_true(gm_limits_fit(&limits, &pinned, 0, why, sizeof why) < 0);
}

int main(void)
{
#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        WITH_ROOT(test_nothing_to_read),
        WITH_ROOT(test_unified),
        WITH_ROOT(test_limit_above_the_machine),
        WITH_ROOT(test_version_1),
        WITH_ROOT(test_both_versions),
        WITH_ROOT(test_part_is_mounted),
        WITH_ROOT(test_garbage),
        cmocka_unit_test(test_default),
        cmocka_unit_test(test_what_fits),
        cmocka_unit_test(test_what_does_not),
        cmocka_unit_test(test_real),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
