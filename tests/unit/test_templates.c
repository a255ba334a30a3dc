/*
 * shim/templates, profiles and tensors: a launch marks what its kernel's profile says, to the
 * byte's place and not beyond; what a profile cannot be trusted with is as without it, and the log
 * names the kernel; tensor maps stand for their tensors.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "shim/tables/tensors.h"
#include <dirent.h>
#include <semaphore.h>
#include "tests/unit/windows_world.h"

/* The driver's kernels: the world's, with names. */
static const struct known {
    struct kernel kernel;
    const char *name;
    int registers;
} known[] = {
    {{.n = 3, .param = {{0, 8}, {8, 8}, {16, 4}}}, "add", 32},
    {{.is_library = true, .n = 3, .param = {{0, 8}, {8, 8}, {16, 4}}}, "library", 32},
    {{.n = 3, .param = {{0, 8}, {8, 8}, {16, 4}}}, "recompiled", 33},
    {{.n = 2, .param = {{0, 8}, {8, 8}}}, "reordered", 32},
    {{.n = 1, .param = {{0, 8}}}, "greedy", 32},
    {{.n = 2, .param = {{0, 8}, {8, 4}}}, "rows", 32},
    {{.n = 1, .param = {{0, 8}}}, "chase", 32},
    {{.n = 2, .param = {{0, 8}, {8, 4}}}, "outside", 32},
    {{.n = 1, .param = {{0, 8}}}, "unknown", 32},
    {{.n = 2, .param = {{0, 8}, {64, 128}}}, "tensors", 32},
};
enum { ADD, LIBRARY, RECOMPILED, REORDERED, GREEDY, ROWS, CHASE, OUTSIDE, UNKNOWN, TENSORS };

static CUfunction handle(int which)
{
    return (CUfunction)(void *)(uintptr_t)&known[which].kernel;
}

static CUresult drv_func_name(const char **name, CUfunction f)
{
    const struct known *at = (const void *)f;
    *name = at->name;
    return at->kernel.is_library ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult drv_kernel_name(const char **name, CUkernel f)
{
    *name = ((const struct known *)(const void *)f)->name;
    return CUDA_SUCCESS;
}

static CUresult drv_func_attribute(int *value, CUfunction_attribute attribute, CUfunction f)
{
    *value =
        attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? ((const struct known *)(void *)f)->registers : 90;
    return CUDA_SUCCESS;
}

static CUresult drv_kernel_attribute(int *value, CUfunction_attribute attribute, CUkernel f,
                                     CUdevice device)
{
    assert_int_equal(device, 3);
    return drv_func_attribute(value, attribute, (CUfunction)(void *)f);
}

static CUresult drv_device(CUdevice *device)
{
    *device = 3;
    return CUDA_SUCCESS;
}

/* ---- profiles ---- */

static char folder[] = "/tmp/gm-templates-XXXXXX";
static char log_path[64];

static void write_file(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/gpumux/profiles/%s", folder, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* The line of a kernel; `n` parameters of it count for the hash. */
static size_t kernel_line(char *text, size_t size, int which, uint32_t n, uint64_t unnamed)
{
    struct gm_kernel_parameter parameters[8];
    for (uint32_t i = 0; i < n; i++)
        parameters[i] = (struct gm_kernel_parameter){(uint32_t)known[which].kernel.param[i].offset,
                                                     (uint32_t)known[which].kernel.param[i].bytes};
    const struct gm_kernel_facts facts = {known[which].name, 90, n, parameters};
    return (size_t)snprintf(text, size, "kernel %016llx 32 9 0 0 %llu %s\n",
                            (unsigned long long)gm_kernel_hash(&facts), (unsigned long long)unnamed,
                            known[which].name);
}

/* The folders, the user's and the system's, are read when the test says so. */
static sem_t may_read;

int __real_scandir(const char *path, struct dirent ***list, int (*is_one)(const struct dirent *),
                   int (*compare)(const struct dirent **, const struct dirent **));
int __wrap_scandir(const char *path, struct dirent ***list, int (*is_one)(const struct dirent *),
                   int (*compare)(const struct dirent **, const struct dirent **));
int __wrap_scandir(const char *path, struct dirent ***list, int (*is_one)(const struct dirent *),
                   int (*compare)(const struct dirent **, const struct dirent **))
{
    sem_wait(&may_read);
    return __real_scandir(path, list, is_one, compare);
}

static void run(int which, uint64_t first, uint64_t second, uint32_t n);

static int start(void **state)
{
    char path[128], text[4096];
    size_t at = 0;
    (void)state;
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CONFIG_HOME", folder, 1);
    snprintf(path, sizeof path, "%s/gpumux", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/gpumux/profiles", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    gm_log_open(open(log_path, O_WRONLY | O_CREAT | O_APPEND, 0600), GM_LOG_INFO, "test");
#define LINE(which, unnamed)                                                                       \
    at += kernel_line(text + at, sizeof text - at, which, (uint32_t)known[which].kernel.n, unnamed)
#define TOUCH(...) at += (size_t)snprintf(text + at, sizeof text - at, __VA_ARGS__)
    TOUCH("gpumux-profile 1\n");
    LINE(ADD, 0);
    TOUCH("touch 0 0 0+4/1*w16 0 1\nnone 8\n");
    LINE(LIBRARY, 0);
    TOUCH("touch 0 0 0+4/1*w16 0 1\n");
    LINE(RECOMPILED, 0);
    TOUCH("touch 0 0 4096 0 1\nnone 8\n");
    at += kernel_line(text + at, sizeof text - at, REORDERED, 1, 0);
    TOUCH("none 0\n");
    LINE(GREEDY, 0);
    TOUCH("touch 0 0 0+1/1*w8 0 1\n");
    LINE(ROWS, 0);
    TOUCH("touch 0 2097152 100 8388608 0+1/1*w8\n");
    LINE(CHASE, 64 * MIB);
    TOUCH("touch 0 0 4096 0 1\n");
    LINE(OUTSIDE, 0);
    TOUCH("touch 0 0 0+4/1*w8 0 1\n");
    TOUCH("end 8\n");
    write_file("good.profile", text);
    /* Later in the alphabet: it does not count where another has the kernel. */
    at = 0;
    TOUCH("gpumux-profile 1\n");
    LINE(ADD, 0);
    TOUCH("none 0\nnone 8\nend 1\n");
    write_file("later.profile", text);
    write_file("cut.profile", "gpumux-profile 1\n");
    write_file("newer.profile", "gpumux-profile 2\nend 0\n");
    write_file("note.txt", "not a profile");
    gm_real.cuFuncGetName = drv_func_name;
    gm_real.cuKernelGetName = drv_kernel_name;
    gm_real.cuFuncGetAttribute = drv_func_attribute;
    gm_real.cuKernelGetAttribute = drv_kernel_attribute;
    gm_real.cuCtxGetDevice = drv_device;
    begin();
    for (uint64_t i = 0; i < 4; i++)
        make(BASE + i * 64 * MIB, 48 * MIB, GM_ALLOC_CHUNKS);
    /* A slow folder keeps nobody waiting: what is launched meanwhile has no profile. */
    gm_profiles_load(gm_layouts_drop);
    run(ADD, BASE + MIB, 0, 10 * MIB / 4);
    assert_int_equal(take(), 1);
    run(ADD, BASE + MIB, 0, 10 * MIB / 4); /* its layout is known now */
    take();
    assert_false(gm_profiles_exist());
    sem_post(&may_read);
    sem_post(&may_read);
    for (int i = 0; i < 60000 && !gm_profiles_exist(); i++)
        usleep(1000);
    while (gm_layouts_generation() == 1)
        usleep(1000);
    gm_profiles_load(NULL); /* once */
    return 0;
}

static int stop(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static int setup(void **state)
{
    (void)state;
    begin();
    return 0;
}

static unsigned said(const char *text)
{
    char line[2048];
    unsigned n = 0;
    FILE *file = fopen(log_path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        n += strstr(line, text) != NULL;
    fclose(file);
    return n;
}

static void run(int which, uint64_t first, uint64_t second, uint32_t n)
{
    void *params[] = {&first, &second, &n};
    if (known[which].kernel.param[1].bytes == 4)
        params[1] = &n;
    gm_windows_of_cuLaunchKernel(handle(which), 7, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
}

/* The places from `va` on that hold `bytes`, and nothing else, are touched; all are exact, or none.
 */
static void expect(uint64_t va, uint64_t bytes, bool is_exact)
{
    const uint64_t first = gm_window_place(va), last = gm_window_place(va + bytes - 1);
    const uint32_t n = take();
    assert_int_equal(n, last - first + 1);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(gm_window_place(got[i].va), first + i);
        assert_int_equal(got[i].count, 1);
        const uint64_t word = atomic_load(&words[first + i]);
        assert_int_equal(gm_touch_unpack(word).is_exact, is_exact);
    }
}

static void test_touch(void **state)
{
    (void)state;
    run(ADD, BASE + MIB, BASE + 64 * MIB, 10 * MIB / 4);
    expect(BASE + MIB, 10 * MIB, true);
    run(ADD, BASE, BASE + 64 * MIB, 0);
    assert_int_equal(take(), 0);
    run(ADD, BASE + 64 * MIB, 0, 1);
    expect(BASE + 64 * MIB, 4, true);
    assert_int_equal(unseen(), 0);
    assert_int_equal(said("kernel add: by its profile"), 1);
    /* What the profile does not know of the kernel is as without it. */
    run(LIBRARY, BASE, BASE + 128 * MIB + 5, 1);
    assert_int_equal(take(), 2);
    assert_false(gm_touch_unpack(atomic_load(&words[gm_window_place(BASE + 128 * MIB)])).is_exact);
    assert_true(gm_touch_unpack(atomic_load(&words[gm_window_place(BASE)])).is_exact);
    assert_int_equal(said("kernel library: by its profile"), 1);
    /* An address that somebody names without a profile reaches, whoever else was exact there. */
    run(ADD, BASE, 0, 1);
    run(UNKNOWN, BASE, 0, 0);
    run(ADD, BASE, 0, 1);
    assert_int_equal(take(), 1);
    assert_int_equal(got[0].count, 3);
    assert_false(gm_touch_unpack(atomic_load(&words[gm_window_place(BASE)])).is_exact);
    /* A launch whose arguments come in one buffer. */
    uint64_t buffer[3] = {BASE, BASE + 64 * MIB, 1};
    size_t size = 20;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    gm_windows_of_cuLaunchKernel(handle(ADD), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra);
    assert_int_equal(take(), 2);
    /* Memory of the host counts as without a profile. */
    run(ADD, BASE, PINNED, 1);
    expect(BASE, 1, true);
    expect_crossed(0, 1);
}

static void test_rows(void **state)
{
    (void)state;
    run(ROWS, BASE, 0, 5); /* in places 1, 5, 9, 13, 17 */
    assert_int_equal(take(), 5);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(got[i].va, BASE + (2 + 8 * i) * MIB);
    run(ROWS, BASE, 0, 1000); /* it leads out of the memory: from now on without the profile */
    take();
    assert_int_equal(said("kernel rows: its profile is not used: it leads out"), 1);
    run(ROWS, BASE, 0, 5);
    expect(BASE, 1, false);
    run(ROWS, BASE, 0, 5);
    expect(BASE, 1, false);
    assert_int_equal(said("kernel rows: its profile is not used: it leads out"), 1);
}

/* What has another code, other parameters, fewer arguments, or leads elsewhere. */
static void test_wrong(void **state)
{
    (void)state;
    run(RECOMPILED, BASE, BASE + 64 * MIB, 1);
    assert_int_equal(take(), 2);
    assert_int_equal(said("kernel recompiled: its profile is not used: its code has changed (33"),
                     1);
    run(REORDERED, BASE, BASE + 64 * MIB, 0);
    assert_int_equal(take(), 2);
    assert_int_equal(said("kernel reordered: its profile is not used: it has other parameters"), 1);
    run(GREEDY, BASE, 0, 0);
    expect(BASE, 1, false);
    assert_int_equal(said("kernel greedy: its profile is not used: it needs more arguments"), 1);
    run(OUTSIDE, BASE, 0, 1 << 20);
    expect(BASE, 4 * MIB, true);
    run(OUTSIDE, BASE + 40 * MIB, 0, 3 << 20); /* 12 MiB, and 8 are left */
    expect(BASE + 40 * MIB, 1, false);
    assert_int_equal(said("kernel outside: its profile is not used: it leads out"), 1);
    run(UNKNOWN, BASE, 0, 0);
    expect(BASE, 1, false);
    assert_int_equal(said("unknown"), 0);
    assert_int_equal(unseen(), 0);
    assert_int_equal(said("cut.profile is ignored: it is cut"), 1);
    assert_int_equal(said("newer.profile is ignored: it is a profile of version 2"), 1);
    assert_int_equal(said("good.profile: 8 kernels"), 1);
    assert_int_equal(said("note.txt"), 0);
}

/* It follows pointers in memory: nobody knows all that it touches. */
static void test_unnamed(void **state)
{
    (void)state;
    run(CHASE, BASE, 0, 0);
    expect(BASE, 1, true);
    assert_int_equal(unseen(), 1);
}

static void test_tensors(void **state)
{
    (void)state;
    uint64_t first = BASE + 128 * MIB, va, bytes;
    char map[192], none[192];
    void *params[] = {&first, map}, *others[] = {&first, none};
    memset(map, 0x11, sizeof map);
    memset(none, 0x22, sizeof none);
    gm_windows_of_cuLaunchKernel(handle(TENSORS), 1, 1, 1, 1, 1, 1, 0, NULL, others, NULL);
    take();
    gm_tensors_note(map, BASE + 64 * MIB, 10 * MIB);
    assert_true(gm_tensors_find(map, &va, &bytes));
    assert_int_equal(va, BASE + 64 * MIB);
    assert_int_equal(bytes, 10 * MIB);
    gm_windows_of_cuLaunchKernel(handle(TENSORS), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
    const uint32_t n = take();
    assert_int_equal(n, 6);
    assert_int_equal(got[0].va, BASE + 64 * MIB);
    assert_int_equal(got[4].va, BASE + 72 * MIB);
    assert_int_equal(got[5].va, BASE + 128 * MIB);
    map[127] = 0; /* another map */
    assert_false(gm_tensors_find(map, &va, &bytes));
    /* More maps than there is room for: a map is there with what was noted for it, or not at all.
     */
    unsigned found = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        memcpy(map, &i, sizeof i);
        gm_tensors_note(map, i, i + 1);
        assert_true(gm_tensors_find(map, &va, &bytes));
    }
    for (uint32_t i = 0; i < 20000; i++) {
        memcpy(map, &i, sizeof i);
        if (!gm_tensors_find(map, &va, &bytes))
            continue;
        found++;
        assert_int_equal(va, i);
        assert_int_equal(bytes, i + 1);
    }
    assert_in_range(found, 2000, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_touch, setup),   cmocka_unit_test_setup(test_rows, setup),
        cmocka_unit_test_setup(test_wrong, setup),   cmocka_unit_test_setup(test_unnamed, setup),
        cmocka_unit_test_setup(test_tensors, setup),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
