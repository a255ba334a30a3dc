/*
 * A Compute Sanitizer and a driver for the profiler's library, without a GPU: "device" memory is
 * the host's, and the test calls the callback itself. `f` of a launch is a struct fake_function.
 */
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <sanitizer.h>

#include "tests/profiler/fake.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT struct fake fake = {.fails_at = UINT64_MAX};

/* The n-th call that can fail. */
static bool fails(void)
{
    return fake.calls++ == fake.fails_at;
}

EXPORT SanitizerResult sanitizerSubscribe(Sanitizer_SubscriberHandle *subscriber,
                                          Sanitizer_CallbackFunc callback, void *userdata)
{
    *subscriber = NULL;
    fake.callback = callback;
    fake.userdata = userdata;
    return SANITIZER_SUCCESS;
}

EXPORT SanitizerResult sanitizerEnableDomain(uint32_t enable, Sanitizer_SubscriberHandle subscriber,
                                             Sanitizer_CallbackDomain domain)
{
    (void)subscriber, (void)enable, (void)domain;
    return SANITIZER_SUCCESS;
}

EXPORT SanitizerResult sanitizerEnableCallback(uint32_t enable,
                                               Sanitizer_SubscriberHandle subscriber,
                                               Sanitizer_CallbackDomain domain,
                                               Sanitizer_CallbackId id)
{
    (void)subscriber, (void)enable, (void)domain, (void)id;
    return SANITIZER_SUCCESS;
}

EXPORT SanitizerResult sanitizerGetResultString(SanitizerResult result, const char **text)
{
    (void)result;
    *text = "planted";
    return SANITIZER_SUCCESS;
}

EXPORT SanitizerResult sanitizerAddPatches(const void *image, CUcontext context)
{
    (void)context;
    fake.patches_added++;
    /* A fat binary begins so. */
    return memcmp(image, "\x50\xed\x55\xba", 4) == 0 ? SANITIZER_SUCCESS
                                                     : SANITIZER_ERROR_INVALID_PARAMETER;
}

EXPORT SanitizerResult sanitizerPatchInstructions(const Sanitizer_InstructionId id, CUmodule module,
                                                  const char *name)
{
    (void)module, (void)name;
    /* As on a GPU without tensor maps. */
    return id == SANITIZER_INSTRUCTION_TMA_LOAD ? SANITIZER_ERROR_NOT_SUPPORTED : SANITIZER_SUCCESS;
}

EXPORT SanitizerResult sanitizerPatchModule(CUmodule module)
{
    (void)module;
    fake.modules_patched++;
    return SANITIZER_SUCCESS;
}

EXPORT SanitizerResult sanitizerSetLaunchCallbackData(Sanitizer_LaunchHandle launch,
                                                      CUfunction kernel,
                                                      Sanitizer_StreamHandle stream,
                                                      const void *userdata)
{
    (void)launch, (void)kernel, (void)stream;
    fake.area = (void *)(uintptr_t)userdata;
    return fails() ? SANITIZER_ERROR_UNKNOWN : SANITIZER_SUCCESS;
}

EXPORT SanitizerResult sanitizerAlloc(CUcontext context, void **memory, size_t size)
{
    (void)context;
    *memory = fails() ? NULL : malloc(size);
    if (*memory == NULL)
        return SANITIZER_ERROR_OUT_OF_MEMORY;
    memset(*memory, 0xcc, size);
    return SANITIZER_SUCCESS;
}

EXPORT SanitizerResult sanitizerMemset(void *memory, int value, size_t count,
                                       Sanitizer_StreamHandle stream)
{
    (void)stream;
    if (fails())
        return SANITIZER_ERROR_UNKNOWN;
    memset(memory, value, count);
    return SANITIZER_SUCCESS;
}

EXPORT SanitizerResult sanitizerStreamSynchronize(Sanitizer_StreamHandle stream)
{
    void (*kernel)(void *arg) = fake.kernel;
    (void)stream;
    if (fails())
        return SANITIZER_ERROR_UNKNOWN;
    fake.kernel = NULL;
    if (kernel != NULL)
        kernel(fake.kernel_arg);
    return SANITIZER_SUCCESS;
}

EXPORT SanitizerResult sanitizerMemcpyDeviceToHost(void *to, void *from, size_t count,
                                                   Sanitizer_StreamHandle stream)
{
    (void)stream;
    if (fails())
        return SANITIZER_ERROR_UNKNOWN;
    memcpy(to, from, count);
    return SANITIZER_SUCCESS;
}

/* ---- the driver ---- */

static const struct fake_function *function_of(const void *handle, bool is_kernel)
{
    const struct fake_function *function = handle;
    fake.asked++;
    return function->is_kernel == is_kernel ? function : NULL;
}

#define FAKE_NAME(symbol, type, is_kernel)                                                         \
    EXPORT CUresult symbol(const char **name, type handle)                                         \
    {                                                                                              \
        const struct fake_function *function = function_of(handle, is_kernel);                     \
        if (function == NULL || function->name == NULL)                                            \
            return CUDA_ERROR_INVALID_HANDLE;                                                      \
        *name = function->name;                                                                    \
        return CUDA_SUCCESS;                                                                       \
    }
FAKE_NAME(cuFuncGetName, CUfunction, false)
FAKE_NAME(cuKernelGetName, CUkernel, true)

#define FAKE_PARAMETER(symbol, type, is_kernel)                                                    \
    EXPORT CUresult symbol(type handle, size_t index, size_t *offset, size_t *size)                \
    {                                                                                              \
        const struct fake_function *function = function_of(handle, is_kernel);                     \
        if (function == NULL)                                                                      \
            return CUDA_ERROR_INVALID_HANDLE;                                                      \
        if (index >= function->n)                                                                  \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        *offset = function->offset[index];                                                         \
        *size = function->bytes[index];                                                            \
        return CUDA_SUCCESS;                                                                       \
    }
FAKE_PARAMETER(cuFuncGetParamInfo, CUfunction, false)
FAKE_PARAMETER(cuKernelGetParamInfo, CUkernel, true)

EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
    (void)handle;
    *value = attribute == CU_FUNC_ATTRIBUTE_BINARY_VERSION ? 90 : -1;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel handle,
                                     CUdevice device)
{
    (void)device;
    return cuFuncGetAttribute(value, attribute, (CUfunction)(void *)handle);
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}
