/*
 * Parking over the simulated driver, from the shim's ioctl to what the probe finds out: each test
 * is a child with a driver of its own kind, for a process has one driver.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/features.h"
#include "shim/driver/real.h"
#include "shim/entry/load.h"
#include "shim/entry/procaddr.h"
#include "shim/observe/channels.h"
#include "shim/observe/probe.h"

struct gm_real gm_real;

void *gm_real_dlsym(void *handle, const char *name)
{
    return dlsym(handle, name);
}

bool gm_reach_disabled(void)
{
    return getenv("GPUMUX_DISABLE") != NULL;
}

/* In a child: 0 if all is as it should be, else the line. */
#define CHECK(is_right)                                                                            \
    do {                                                                                           \
        if (!(is_right))                                                                           \
            return __LINE__ % 256;                                                                 \
    } while (0)

static CUcontext create(void)
{
    CUcontext context = NULL;
    return cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS ? context : NULL;
}

/* What the probe finds out; asked again while the machine is too busy to tell. */
static uint32_t find_out(void)
{
    uint32_t off;
    for (unsigned i = 0; i < 1000; i++)
        if (gm_probe(&off))
            return off;
    return UINT32_MAX;
}

static uint32_t expected; /* enum gm_feature */

static int probes(void)
{
    CHECK(create() != NULL);
    CHECK(find_out() == expected);
    if ((expected & GM_FEATURE_PARK) == 0)
        CHECK(gm_channels_park() == GM_PARK_DONE);
    gm_channels_resume();
    CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
    return 0;
}

/* Contexts that come and go, also while parked. */
static int contexts(void)
{
    CUcontext one = create(), two = create(), three;
    CHECK(one != NULL && two != NULL);
    CHECK(gm_channels_compute_groups() == 2);
    CHECK(gm_channels_park() == GM_PARK_DONE);
    three = create();
    CHECK(three != NULL);
    CHECK(gm_channels_compute_groups() == 3);
    gm_channels_resume();
    CHECK(find_out() == 0);
    CHECK(cuCtxDestroy_v2(one) == CUDA_SUCCESS && cuCtxDestroy_v2(three) == CUDA_SUCCESS);
    CHECK(gm_channels_compute_groups() == 1);
    CHECK(gm_channels_park() == GM_PARK_DONE);
    gm_channels_resume();
    CHECK(cuCtxDestroy_v2(two) == CUDA_SUCCESS);
    CHECK(gm_channels_park() == GM_PARK_NONE);
    return 0;
}

static int disabled(void)
{
    CHECK(create() != NULL);
    CHECK(gm_channels_compute_groups() == 0);
    CHECK(gm_channels_park() == GM_PARK_NONE);
    return 0;
}

static void run(const char *name, const char *value, int (*work)(void), uint32_t off)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        expected = off;
        if (name != NULL)
            setenv(name, value, 1);
        _exit(cuInit(0) == CUDA_SUCCESS ? work() : 255);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0)
        fail_msg("%s=%s: the child ended with %#x", name != NULL ? name : "", value, status);
}

static void test_probe(void **state)
{
    (void)state;
    run(NULL, "", probes, 0);
    run("SIMCUDA_NO", "channels", probes, GM_FEATURE_PARK | GM_FEATURE_TIMESLICE);
    run("SIMCUDA_DISABLE_CHANNELS", "0x1b", probes, GM_FEATURE_PARK);
    run("SIMCUDA_DISABLE_CHANNELS", "0x56", probes, GM_FEATURE_PARK);
    run("SIMCUDA_DISABLE_CHANNELS", "ignored", probes, GM_FEATURE_PARK);
    run("SIMCUDA_SET_TIMESLICE", "0x1b", probes, GM_FEATURE_TIMESLICE);
    run("SIMCUDA_SET_TIMESLICE", "ignored", probes, GM_FEATURE_TIMESLICE);
}

static void test_contexts(void **state)
{
    (void)state;
    run(NULL, "", contexts, 0);
}

static void test_disabled(void **state)
{
    (void)state;
    run("GPUMUX_DISABLE", "1", disabled, 0);
}

int main(void)
{
    gm_real.cuStreamCreate = cuStreamCreate;
    gm_real.cuStreamDestroy_v2 = cuStreamDestroy_v2;
    gm_real.cuMemHostAlloc = cuMemHostAlloc;
    gm_real.cuMemFreeHost = cuMemFreeHost;
    gm_real.cuStreamWaitValue32_v2 = cuStreamWaitValue32_v2;
    gm_real.cuStreamWriteValue32_v2 = cuStreamWriteValue32_v2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_contexts),
        cmocka_unit_test(test_disabled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
