/*
 * A program that goes around the shim on purpose: crosscheck.py must catch it, or it catches
 * nobody.
 *
 *   bypass none|launch|alloc
 *
 * It allocates, launches, copies and frees through the symbols that a program gets; `launch` and
 * `alloc` make one launch, or one allocation and its release, with the driver's own functions: from
 * the C library's dlsym, which the shim does not stand in front of. Its last line is PASS.
 */
#include <cuda.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/dlversions.h"
#include "tests/programs/kernels_ptx.h"

typedef void *gm_look_up(void *library, const char *name);

static void need(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        printf("FAIL %s: error %d\n", call, (int)result);
        exit(3);
    }
}

/* A name as the program finds it: the shim's. */
static void *find(void *library, const char *name)
{
    void *function = NULL;
#ifdef GM_SHIM_INSIDE
    function = dlsym(RTLD_DEFAULT, name);
#endif
    if (function == NULL)
        function = dlsym(library, name);
    if (function == NULL) {
        printf("FAIL no %s\n", name);
        exit(3);
    }
    return function;
}

/* ... and as the C library finds it. */
static void *find_real(void *library, const char *name)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    void *function = libc != NULL ? gm_dl_versioned(libc, "dlsym") : NULL;
    if (function != NULL)
        function = ((gm_look_up *)function)(library, name);
    if (function == NULL) {
        printf("FAIL no real %s\n", name);
        exit(3);
    }
    return function;
}

#define GET(name) __typeof__(&name) p_##name = (__typeof__(&name))find(library, #name)
#define CALL(name, ...) need(p_##name(__VA_ARGS__), #name)

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    if (strcmp(what, "none") != 0 && strcmp(what, "launch") != 0 && strcmp(what, "alloc") != 0) {
        fprintf(stderr, "usage: bypass none|launch|alloc\n");
        return 2;
    }
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        printf("FAIL no libcuda.so.1\n");
        return 3;
    }
    GET(cuInit);
    GET(cuDeviceGet);
    GET(cuDevicePrimaryCtxRetain);
    GET(cuCtxSetCurrent);
    GET(cuCtxSynchronize);
    GET(cuModuleLoadData);
    GET(cuModuleGetFunction);
    GET(cuModuleUnload);
    GET(cuDevicePrimaryCtxRelease_v2);
    GET(cuMemAlloc_v2);
    GET(cuMemFree_v2);
    GET(cuMemsetD32_v2);
    GET(cuLaunchKernel);
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction empty;
    CUdeviceptr at;
    CALL(cuInit, 0);
    CALL(cuDeviceGet, &device, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);
    CALL(cuModuleLoadData, &module, gm_kernels_ptx);
    CALL(cuModuleGetFunction, &empty, module, "gm_empty");
    CALL(cuMemAlloc_v2, &at, 8u << 20);
    CALL(cuMemsetD32_v2, at, 7, 2u << 20);
    for (int i = 0; i < 10; i++)
        CALL(cuLaunchKernel, empty, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    if (strcmp(what, "launch") == 0) {
        *(void **)&p_cuLaunchKernel = find_real(library, "cuLaunchKernel");
        CALL(cuLaunchKernel, empty, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    } else if (strcmp(what, "alloc") == 0) {
        CUdeviceptr past;
        __typeof__(&cuMemAlloc_v2) alloc =
            (__typeof__(&cuMemAlloc_v2))find_real(library, "cuMemAlloc_v2");
        __typeof__(&cuMemFree_v2) release =
            (__typeof__(&cuMemFree_v2))find_real(library, "cuMemFree_v2");
        need(alloc(&past, 4u << 20), "the real cuMemAlloc");
        need(release(past), "the real cuMemFree");
    }
    CALL(cuCtxSynchronize);
    CALL(cuMemFree_v2, at);
    CALL(cuModuleUnload, module);
    CALL(cuDevicePrimaryCtxRelease_v2, device);
    printf("PASS mismatches=0\n");
    return 0;
}
