#include "daemon/memory/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

int gm_cuda_open(struct gm_cuda *cuda, char *why, size_t why_size)
{
    memset(cuda, 0, sizeof *cuda);
    cuda->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cuda->library) {
        snprintf(why, why_size,
                 "no CUDA driver (libcuda.so.1): install NVIDIA's driver on this machine");
        return -ENODEV;
    }
#define GM_CUDA(symbol)                                                                            \
    *(void **)&cuda->symbol = dlsym(cuda->library, #symbol);                                       \
    if (!cuda->symbol) {                                                                           \
        snprintf(why, why_size,                                                                    \
                 "the CUDA driver is too old: it has no " #symbol                                  \
                 "; install a driver for CUDA 12.2 or newer");                                     \
        gm_cuda_close(cuda);                                                                       \
        return -ENOSYS;                                                                            \
    }
#include "daemon/memory/cuda.def"
#undef GM_CUDA
    return 0;
}

void gm_cuda_close(struct gm_cuda *cuda)
{
    if (cuda->library)
        dlclose(cuda->library);
    memset(cuda, 0, sizeof *cuda);
}

CUresult gm_cuda_enter(const struct gm_cuda *cuda, CUcontext context)
{
    static CUcontext current; /* the loop thread's */
    CUresult result = CUDA_SUCCESS;
    if (context != current)
        result = cuda->cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS)
        current = context;
    return result;
}

const char *gm_cuda_text(const struct gm_cuda *cuda, CUresult result)
{
    const char *text = NULL;
    if (!cuda->cuGetErrorName || cuda->cuGetErrorName(result, &text) != CUDA_SUCCESS || !text)
        return "unknown CUDA error";
    return text;
}
