/*
 * A test double of libcuda.so.1 that has every function of hooks.def and does nothing in them: each
 * returns its own number. What matters is that it can be looked up in every way. The resolver is in
 * resolver.c, which replaces the two weak cuGetProcAddress that the table gives here.
 */
#include <cuda.h>

#include "driver.h"

enum row {
#define GM_HOOK(api, symbol, since, mode, kind, params, args) ROW_##symbol,
#include "shim/driver/hooks.def"
#undef GM_HOOK
};

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    __attribute__((weak)) CUresult symbol params                                                   \
    {                                                                                              \
        return (CUresult)(GM_REACH_FIRST + ROW_##symbol);                                          \
    }
#include "shim/driver/hooks.def"
#undef GM_HOOK

CUresult cuDriverGetVersion(int *version)
{
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *p)
{
    return CUDA_SUCCESS;
}

/* The unhooked neighbour of a hooked name. */
CUresult cuEventRecord(CUevent event, CUstream stream)
{
    return CUDA_SUCCESS;
}
