/*
 * shim/nvml: who sees the program's own numbers, and who sees the device's. What is in front of the
 * real calls (dlsym) is tested in tests/integration/reach, all of it in tests/integration/nvml.sh.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#ifdef GM_HAS_NVML_HEADER
#include "tests/unit/nvml_layout.h"
#endif

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/driver/devices.h"
#include "shim/driver/real.h"
#include "shim/entry/load.h"
#include "shim/entry/nvml.h"
#include "shim/gate/boot.h"
#include "shim/memory/budget.h"
#include "shim/memory/graphs.h"
#include "shim/observe/usage.h"
#include "tests/simcuda/device_file.h"

#define MIB (1ull << 20)

/* ---- what surrounds it ---- */

struct gm_real gm_real;
static bool has_driver, has_link;
static enum gm_boot_state boot_state;
static unsigned boots;
static CUdevice boot_devices[2] = {-1, 0}; /* gpumux has two GPUs; the program sees the second */
static char dir[64] = "/tmp/test-nvml-XXXXXX";

void *gm_real_dlsym(void *handle, const char *name)
{
    return dlsym(handle, name);
}

bool gm_real_load_present(void)
{
    return has_driver;
}

enum gm_boot_state gm_boot(void)
{
    boots++;
    return boot_state;
}

uint32_t gm_gpu_count(void)
{
    return 2;
}

CUdevice gm_gpu_device(uint32_t gpu)
{
    return boot_devices[gpu];
}

bool gm_memory_info(int gpu, uint64_t *free_bytes, uint64_t *total)
{
    if (gpu < 0 || !has_link)
        return false;
    assert_int_equal(gpu, 1);
    *free_bytes = 60 * MIB;
    *total = 100 * MIB;
    return true;
}

enum gm_usage_result gm_usage_sample(void)
{
    return GM_USAGE_NONE;
}

bool gm_graphs_exist(void)
{
    return false;
}

bool gm_graphs_sample(void)
{
    return false;
}

bool gm_memory_held(int gpu, uint64_t *bytes, pid_t *holder)
{
    if (gpu < 0 || !has_link)
        return false;
    *bytes = 40 * MIB;
    *holder = getppid();
    return true;
}

/* The CUDA device n is the n-th of the simulated NVML. */
static CUresult drv_uuid(CUuuid *uuid, CUdevice device)
{
    assert_true(device >= 0);
    sim_device_uuid(device, sim_hash_of(dir, strlen(dir), 0), uuid->bytes);
    return CUDA_SUCCESS;
}

/* ---- tests ---- */

static void test_uuid(void **state)
{
    static const char *const bad[] = {
        "",
        "GPU-",
        "GPU",
        "00112233-4455-6677-8899-aabbccddeeff",
        "GPU-00112233-4455-6677-8899-aabbccddeef",
        "GPU-00112233-4455-6677-8899-aabbccddeeff0",
        "GPU-00112233-4455-6677-8899-aabbccddeeff ",
        "GPU-0011223344556677-8899-aabbccddeeff",
        "GPU-00112233_4455-6677-8899-aabbccddeeff",
        "GPU-00112233-4455-6677-8899-aabbccddeefg",
        "GPU-0011223--4455-6677-8899-aabbccddeeff",
        "MIG-GPU-00112233-4455-6677-8899-aabbccddeeff/1/0",
    };
    static const unsigned char expected[16] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                                               0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};
    unsigned char uuid[16];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(gm_nvml_parse_uuid(bad[i], uuid));
    assert_true(gm_nvml_parse_uuid("GPU-00112233-4455-6677-8899-aabbccddeeff", uuid));
    assert_memory_equal(uuid, expected, 16);
    memset(uuid, 1, sizeof uuid);
    assert_true(gm_nvml_parse_uuid("MIG-00112233-4455-6677-8899-AABBCCDDEEFF", uuid));
    assert_memory_equal(uuid, expected, 16);
}

/* Nobody loaded it: the shim does not either. */
static void test_not_loaded(void **state)
{
    struct gm_nvml_memory memory = {1, 2, 3};
    (void)state;
    assert_false(gm_nvml_load_present());
    assert_int_equal(nvmlDeviceGetMemoryInfo(NULL, &memory), GM_NVML_LIBRARY_NOT_FOUND);
    assert_int_equal(memory.total, 1);
    assert_null(dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD));
}

static gm_nvml_device devices[2];

static int load(void **state)
{
    int (*init)(void), (*get)(unsigned, gm_nvml_device *);
    void *library = dlopen(GM_NVML_LIBRARY, RTLD_NOW);
    (void)state;
    if (library == NULL)
        return -1;
    *(void **)&init = dlsym(library, "nvmlInit_v2");
    *(void **)&get = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    gm_real.cuDeviceGetUuid_v2 = drv_uuid;
    struct gm_nvml_memory memory;
    assert_int_equal(nvmlDeviceGetMemoryInfo(NULL, &memory),
                     1); /* not initialized: its own words */
    return init() == 0 && get(0, &devices[0]) == 0 && get(1, &devices[1]) == 0 ? 0 : -1;
}

/* Whether the program's own numbers are seen for a device, in both forms alike. */
static bool is_own(gm_nvml_device device)
{
    struct gm_nvml_memory one;
    struct gm_nvml_memory_v2 two = {.version = sizeof two | 2u << 24};
    assert_int_equal(nvmlDeviceGetMemoryInfo(device, &one), 0);
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(device, &two), 0);
    assert_int_equal(one.total, two.total);
    assert_int_equal(one.free, two.free);
    assert_int_equal(one.total, one.free + one.used);
    assert_int_equal(two.total, two.free + two.used + two.reserved);
    if (one.total == 100 * MIB) {
        assert_int_equal(one.free, 60 * MIB);
        assert_int_equal(two.reserved, 0);
        return true;
    }
    assert_int_equal(one.total, 1024 * MIB + two.reserved);
    assert_true(two.reserved > 0);
    return false;
}

static void test_who_sees_what(void **state)
{
    (void)state;
    has_link = true;
    has_driver = false; /* a program without CUDA: not even a boot is tried */
    boot_state = GM_BOOT_LIVE;
    assert_false(is_own(devices[0]));
    assert_int_equal(boots, 0);
    has_driver = true;
    for (boot_state = GM_BOOT_COLD; boot_state <= GM_BOOT_DEAD; boot_state++)
        assert_int_equal(is_own(devices[0]), boot_state == GM_BOOT_LIVE);
    boot_state = GM_BOOT_LIVE;
    assert_false(is_own(devices[1])); /* not the daemon's */
    has_link = false;
    assert_false(is_own(devices[0]));
    has_link = true;
    assert_true(is_own(devices[0]));
    boot_devices[1] = -1; /* not visible to this program's CUDA */
    assert_false(is_own(devices[0]));
    boot_devices[1] = 0;
}

/* This process has `own` and its parent `others` MiB, in all forms alike. */
static void expect_list(unsigned own, unsigned others)
{
    struct gm_nvml_process_v1 first[4];
    struct gm_nvml_process second[4], third[4];
    unsigned n[3] = {4, 4, 4};
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses(devices[0], &n[0], first), 0);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v2(devices[0], &n[1], second), 0);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(devices[0], &n[2], third), 0);
    assert_true(n[0] == 2 && n[1] == 2 && n[2] == 2);
    assert_true(first[0].pid == (unsigned)getppid() && first[1].pid == (unsigned)getpid());
    assert_int_equal(first[0].used, others * MIB);
    assert_int_equal(first[1].used, own * MIB);
    assert_int_equal(second[0].used, others * MIB);
    assert_int_equal(second[1].used, own * MIB);
    for (unsigned i = 0; i < 2; i++) /* not as bytes: there is padding */
        assert_true(second[i].pid == third[i].pid && second[i].used == third[i].used);
    struct gm_nvml_detail fourth[4];
    struct gm_nvml_details details = {.version = GM_NVML_DETAILS_1, .count = 4, .details = fourth};
    assert_int_equal(nvmlDeviceGetRunningProcessDetailList(devices[0], &details), 0);
    assert_int_equal(details.count, 2);
    for (unsigned i = 0; i < 2; i++)
        assert_true(fourth[i].pid == third[i].pid && fourth[i].used == third[i].used);
}

/* What a device file says of two processes. */
static void write_device(unsigned parents, unsigned own)
{
    char path[96];
    struct sim_state_head head = {.magic = SIM_STATE_MAGIC};
    head.slot[3] = (struct sim_state_slot){1, (uint32_t)getppid(), 5 * MIB, parents * MIB};
    head.slot[7] = (struct sim_state_slot){1, (uint32_t)getpid(), own * MIB, 0};
    snprintf(path, sizeof path, SIM_DEVICE_FILE, dir, 0);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(&head, sizeof head, 1, file), 1);
    fclose(file);
}

/* What the daemon, here the parent, made for this program is this program's. */
static void test_processes(void **state)
{
    char path[96];
    unsigned n = 0;
    (void)state;
    boot_state = GM_BOOT_LIVE;
    has_driver = has_link = true;
    write_device(100, 9);
    expect_list(49, 65);
    write_device(10, 9); /* never less than nothing */
    expect_list(49, 0);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(devices[0], &n, NULL), 7);
    assert_int_equal(n, 2);
    struct gm_nvml_details none = {.version = GM_NVML_DETAILS_1};
    assert_int_equal(nvmlDeviceGetRunningProcessDetailList(devices[0], &none), 7);
    assert_int_equal(none.count, 2);
    none.version++;
    assert_int_equal(nvmlDeviceGetRunningProcessDetailList(devices[0], &none), 25);
    n = 4;
    assert_int_equal(nvmlDeviceGetMPSComputeRunningProcesses_v3(devices[0], &n, NULL), 0);
    assert_int_equal(n, 0); /* nobody shares by MPS */
    has_link = false;
    expect_list(9, 15);
    has_link = true;
    snprintf(path, sizeof path, SIM_DEVICE_FILE, dir, 0);
    unlink(path);
}

/* The real function's errors stand, and nothing is written. */
static void test_errors(void **state)
{
    struct gm_nvml_memory one = {7, 7, 7};
    struct gm_nvml_memory_v2 two = {.version = sizeof two | 1u << 24, .total = 7};
    (void)state;
    assert_int_equal(nvmlDeviceGetMemoryInfo(NULL, &one), 2);
    assert_int_equal(nvmlDeviceGetMemoryInfo(devices[0], NULL), 2);
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(devices[0], NULL), 2);
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(devices[0], &two), 25);
    assert_true(one.total == 7 && two.total == 7);
}

static void test_names(void **state)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD);
    (void)state;
    assert_non_null(library);
    assert_true(gm_nvml_load_present());
    assert_true(gm_nvml_is_name("nvmlDeviceGetMemoryInfo"));
    assert_true(gm_nvml_is_name("nvmlDeviceGetMemoryInfo_v2"));
    assert_false(gm_nvml_is_name("nvmlDeviceGetMemoryInf"));
    assert_false(gm_nvml_is_name("nvmlInit_v2"));
    assert_false(gm_nvml_is_name(""));
    void *found = dlsym(library, "nvmlDeviceGetMemoryInfo");
    assert_ptr_equal(gm_nvml_wrapper("nvmlDeviceGetMemoryInfo", found),
                     (void *)nvmlDeviceGetMemoryInfo);
    assert_null(gm_nvml_wrapper("nvmlDeviceGetMemoryInfo_v2", found)); /* another function */
    assert_null(gm_nvml_wrapper("nvmlInit_v2", dlsym(library, "nvmlInit_v2")));
}

int main(void)
{
    if (mkdtemp(dir) == NULL)
        return 1;
    setenv("SIMCUDA_DIR", dir, 1);
    setenv("SIMCUDA_MEMORY", "1G", 1);
    setenv("SIMCUDA_DEVICES", "2", 1);
    const struct CMUnitTest before[] = {
        cmocka_unit_test(test_uuid),
        cmocka_unit_test(test_not_loaded),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_sees_what),
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_names),
    };
    int failed = cmocka_run_group_tests_name("nvml, not loaded", before, NULL, NULL) +
                 cmocka_run_group_tests_name("nvml", tests, load, NULL);
    rmdir(dir);
    return failed;
}
