/*
 * What test_mapper.c and test_views.c share of the driver that each of them plays: calls that fail
 * on order, contexts that are counted, and the one list of what is played. What a mapping is, each
 * says for itself, in fake_import and the four after it.
 */
#ifndef GM_TESTS_MAPPER_WORLD_H
#define GM_TESTS_MAPPER_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/chunk.h"
#include "shim/driver/devices.h"
#include "shim/driver/real.h"
#include "shim/map/mapper.h"
#include "shim/map/peers.h"
#include "shim/tables/accounts.h"

#define DEVICE 5 /* the CUDA device that the daemon's first GPU is */

struct gm_real gm_real;

/* ---- calls that fail ---- */

static int calls;        /* that may fail */
static int fail_at = -1; /* the call that does */
static CUresult failure; /* and with what */
static bool wants_context;
static int pushed, contexts; /* contexts: retained */

/* What a call returns that may fail. */
static CUresult judge(void)
{
    if (calls++ == fail_at)
        return failure;
    return wants_context && pushed == 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

/* ---- contexts ---- */

static CUresult fake_retain(CUcontext *context, CUdevice device)
{
    assert_int_equal(device, DEVICE);
    *context = (CUcontext)0x5;
    contexts++;
    return CUDA_SUCCESS;
}

static CUresult fake_primary_release(CUdevice device)
{
    assert_int_equal(device, DEVICE);
    contexts--;
    return CUDA_SUCCESS;
}

static CUresult fake_push(CUcontext context)
{
    assert_ptr_equal(context, (CUcontext)0x5);
    pushed++;
    return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *context)
{
    *context = (CUcontext)0x5;
    pushed--;
    return CUDA_SUCCESS;
}

/* ---- all of it ---- */

static CUresult fake_import(CUmemGenericAllocationHandle *handle, void *os,
                            CUmemAllocationHandleType type);
static CUresult fake_release(CUmemGenericAllocationHandle handle);
static CUresult fake_map(CUdeviceptr va, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags);
static CUresult fake_set_access(CUdeviceptr va, size_t bytes, const CUmemAccessDesc *desc,
                                size_t count);
static CUresult fake_unmap(CUdeviceptr va, size_t bytes);

/* Before each test: nothing fails, and the daemon's first `n` GPUs are `devices`. */
static void make_driver(const CUdevice *devices, uint32_t n)
{
    gm_real.cuMemImportFromShareableHandle = fake_import;
    gm_real.cuMemRelease = fake_release;
    gm_real.cuMemMap = fake_map;
    gm_real.cuMemSetAccess = fake_set_access;
    gm_real.cuMemUnmap = fake_unmap;
    gm_real.cuDevicePrimaryCtxRetain = fake_retain;
    gm_real.cuDevicePrimaryCtxRelease_v2 = fake_primary_release;
    gm_real.cuCtxPushCurrent_v2 = fake_push;
    gm_real.cuCtxPopCurrent_v2 = fake_pop;
    calls = 0;
    fail_at = -1;
    failure = CUDA_ERROR_UNKNOWN;
    wants_context = false;
    gm_devices_set(devices, n);
}

#endif
