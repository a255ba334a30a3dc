#include "shim/profiler/kernels.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shim/profiler/cubin.h"

#define PARAMETERS_MOST 4096u
#define BUCKETS 4096u

static struct {
    __typeof__(&cuFuncGetName) cuFuncGetName;
    __typeof__(&cuKernelGetName) cuKernelGetName;
    __typeof__(&cuFuncGetParamInfo) cuFuncGetParamInfo;
    __typeof__(&cuKernelGetParamInfo) cuKernelGetParamInfo;
    __typeof__(&cuFuncGetAttribute) cuFuncGetAttribute;
    __typeof__(&cuKernelGetAttribute) cuKernelGetAttribute;
    __typeof__(&cuCtxGetDevice) cuCtxGetDevice;
} driver;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gm_function *functions[BUCKETS];
static uint32_t generation;

static uint32_t bucket_of(uint64_t key)
{
    return (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 40) % BUCKETS;
}

bool gm_kernels_start(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL)
        library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL)
        return false;
#define GM_FIND(name) driver.name = (__typeof__(driver.name))dlsym(library, #name)
    GM_FIND(cuFuncGetName);
    GM_FIND(cuKernelGetName);
    GM_FIND(cuFuncGetParamInfo);
    GM_FIND(cuKernelGetParamInfo);
    GM_FIND(cuFuncGetAttribute);
    GM_FIND(cuKernelGetAttribute);
    GM_FIND(cuCtxGetDevice);
#undef GM_FIND
    return driver.cuFuncGetName != NULL && driver.cuKernelGetName != NULL &&
           driver.cuFuncGetParamInfo != NULL && driver.cuKernelGetParamInfo != NULL &&
           driver.cuFuncGetAttribute != NULL && driver.cuKernelGetAttribute != NULL &&
           driver.cuCtxGetDevice != NULL;
}

/* ---- functions ---- */

/* A handle may be that of a CUkernel. */
static bool ask_name(CUfunction handle, bool *is_kernel, const char **name)
{
    *is_kernel = false;
    if (driver.cuFuncGetName(name, handle) == CUDA_SUCCESS)
        return true;
    *is_kernel = true;
    return driver.cuKernelGetName(name, (CUkernel)(void *)handle) == CUDA_SUCCESS;
}

static bool ask_parameter(CUfunction handle, bool is_kernel, uint32_t i,
                          struct gm_kernel_parameter *parameter)
{
    size_t offset = 0, bytes = 0;
    const CUresult result =
        is_kernel ? driver.cuKernelGetParamInfo((CUkernel)(void *)handle, i, &offset, &bytes)
                  : driver.cuFuncGetParamInfo(handle, i, &offset, &bytes);
    if (result != CUDA_SUCCESS || offset + bytes > GM_ARGUMENT_BYTES)
        return false;
    *parameter = (struct gm_kernel_parameter){(uint32_t)offset, (uint32_t)bytes};
    return true;
}

static uint32_t ask_version(CUfunction handle, bool is_kernel)
{
    int version = 0;
    CUdevice device;
    if (!is_kernel)
        driver.cuFuncGetAttribute(&version, CU_FUNC_ATTRIBUTE_BINARY_VERSION, handle);
    else if (driver.cuCtxGetDevice(&device) == CUDA_SUCCESS)
        driver.cuKernelGetAttribute(&version, CU_FUNC_ATTRIBUTE_BINARY_VERSION,
                                    (CUkernel)(void *)handle, device);
    return (uint32_t)version;
}

static struct gm_function *ask(CUfunction handle)
{
    static const struct gm_function none;
    const char *name;
    bool is_kernel;
    struct gm_kernel_parameter parameter;
    struct gm_function *function = malloc(sizeof(*function));
    if (function == NULL || !ask_name(handle, &is_kernel, &name)) {
        free(function);
        return NULL;
    }
    *function = none;
    function->handle = handle;
    function->name = strdup(name);
    while (function->n < PARAMETERS_MOST &&
           ask_parameter(handle, is_kernel, function->n, &parameter)) {
        struct gm_kernel_parameter *more =
            reallocarray(function->parameters, function->n + 1, sizeof(*more));
        if (more == NULL)
            break;
        function->parameters = more;
        function->parameters[function->n++] = parameter;
        if (parameter.offset + parameter.bytes > function->bytes)
            function->bytes = parameter.offset + parameter.bytes;
    }
    const struct gm_kernel_facts facts = {.name = name,
                                          .binary_version = ask_version(handle, is_kernel),
                                          .n = function->n,
                                          .parameters = function->parameters};
    function->hash = gm_kernel_hash(&facts);
    return function;
}

struct gm_function *gm_kernels_find(CUfunction handle)
{
    const uint32_t bucket = bucket_of((uintptr_t)handle);
    pthread_mutex_lock(&lock);
    const uint32_t now = generation;
    struct gm_function *function = functions[bucket];
    while (function != NULL && (function->handle != handle || function->generation != now))
        function = function->next;
    pthread_mutex_unlock(&lock);
    if (function != NULL)
        return function;
    function = ask(handle); /* without the lock: the driver may load a module for it */
    if (function == NULL || function->name == NULL)
        return NULL;
    pthread_mutex_lock(&lock);
    function->generation = now;
    function->next = functions[bucket];
    functions[bucket] = function;
    pthread_mutex_unlock(&lock);
    return function;
}

uint32_t gm_kernels_arguments(const struct gm_function *function, void **params, void **extra,
                              unsigned char *to)
{
    memset(to, 0, function->bytes);
    if (params != NULL) {
        for (uint32_t i = 0; i < function->n; i++)
            if (params[i] != NULL)
                memcpy(to + function->parameters[i].offset, params[i],
                       function->parameters[i].bytes);
        return function->bytes;
    }
    const void *buffer = NULL;
    size_t bytes = 0;
    for (size_t i = 0; extra != NULL && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1] != NULL)
            bytes = *(const size_t *)extra[i + 1];
        else
            return 0;
    }
    if (buffer == NULL || bytes > GM_ARGUMENT_BYTES)
        return 0;
    memcpy(to, buffer, bytes);
    return (uint32_t)bytes;
}

/* ---- registers ---- */

struct registers {
    struct registers *next;
    CUmodule module;
    uint64_t name; /* its hash */
    uint32_t n;
};

static struct registers *registers[BUCKETS];

static uint64_t hash_of(const char *name)
{
    const struct gm_kernel_facts facts = {.name = name};
    return gm_kernel_hash(&facts);
}

static void note_registers(void *module, const char *name, uint32_t n)
{
    struct registers *entry = malloc(sizeof(*entry));
    if (entry == NULL)
        return;
    *entry = (struct registers){.module = module, .name = hash_of(name), .n = n};
    const uint32_t bucket = bucket_of(entry->name);
    pthread_mutex_lock(&lock);
    entry->next = registers[bucket];
    registers[bucket] = entry;
    pthread_mutex_unlock(&lock);
}

void gm_kernels_loaded(CUmodule module, const void *code, size_t bytes)
{
    gm_cubin_read(code, bytes, note_registers, module);
}

void gm_kernels_ended(CUmodule module)
{
    pthread_mutex_lock(&lock);
    generation++;
    for (uint32_t i = 0; i < BUCKETS; i++)
        for (struct registers **at = &registers[i], *entry; (entry = *at) != NULL;) {
            if (entry->module == module) {
                *at = entry->next;
                free(entry);
            } else {
                at = &entry->next;
            }
        }
    pthread_mutex_unlock(&lock);
}

uint32_t gm_kernels_registers(CUmodule module, const char *name)
{
    const uint64_t hash = hash_of(name);
    pthread_mutex_lock(&lock);
    const struct registers *entry = registers[bucket_of(hash)];
    while (entry != NULL && (entry->module != module || entry->name != hash))
        entry = entry->next;
    const uint32_t n = entry != NULL ? entry->n : 0;
    pthread_mutex_unlock(&lock);
    return n;
}
