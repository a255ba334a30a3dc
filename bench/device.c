/* GPU 0 as a program has it. See device.h. */
#include "bench/device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/programs/kernels_ptx.h"

void gm_bench_fail(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("FAIL ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
    fflush(stdout);
    _Exit(code);
}

void gm_bench_fail_call(const struct gm_bench_device *device, CUresult result, const char *call)
{
    const char *name = NULL;
    if (device->cu.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        name = "?";
    gm_bench_fail(3, "%s: error %d %s", call, (int)result, name);
}

const char *gm_bench_open(struct gm_bench_device *device)
{
    const char *why = NULL;
    if (gm_driver_open(&device->cu, false, &why) != 0)
        return why;
    GM_CU(device, cuInit, 0);
    device->initialized = gm_now();
    GM_CU(device, cuDeviceGet, &device->device, 0);
    GM_CU(device, cuDevicePrimaryCtxRetain, &device->context, device->device);
    GM_CU(device, cuCtxSetCurrent, device->context);
    device->has_context = gm_now();
    GM_CU(device, cuModuleLoadData, &device->module, gm_kernels_ptx);
    return NULL;
}

void gm_bench_close(struct gm_bench_device *device)
{
    GM_CU(device, cuModuleUnload, device->module);
    GM_CU(device, cuDevicePrimaryCtxRelease, device->device);
}
