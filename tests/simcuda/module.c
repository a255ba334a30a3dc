/*
 * Modules, libraries, functions. A module is what the `.entry` names of a PTX text say: each that
 * has a host version in kernels.c becomes a function; the rest are not found. Each `.global`
 * variable of a module (not of a library) takes memory while it is loaded. Binary images are
 * refused, as a GPU of another kind would.
 *
 * A CUkernel and a CUfunction are the same thing here, and one is taken for the other, as by the
 * driver.
 */
#include "tests/simcuda/sim.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODULE_MAGIC 0x4d4f4453u
#define FUNCTION_MAGIC 0x46554e53u
#define FUNCTIONS_MAX 64
#define GLOBALS_MAX 16
#define NAME_MAX_BYTES 64
#define IMAGE_FILE_MAX (64l << 20)

struct module;

struct function {
    uint32_t magic;
    struct module *module;
    const struct sim_kernel *kernel;
    int max_dynamic_shared;
    int shared_carveout;
};

struct global {
    char name[NAME_MAX_BYTES];
    uint64_t bytes;
    CUdeviceptr at; /* 0: not loaded */
};

struct module {
    uint32_t magic;
    bool is_library;
    struct sim_ctx *ctx; /* NULL: a library */
    unsigned n_functions;
    struct function functions[FUNCTIONS_MAX];
    unsigned n_globals;
    struct global globals[GLOBALS_MAX];
};

/* ---- PTX ---- */

/* Behind white space and comments. */
static const char *skip_blank(const char *p)
{
    for (;;) {
        while (isspace((unsigned char)*p))
            p++;
        if (p[0] == '/' && p[1] == '/') {
            p += strcspn(p, "\n");
        } else if (p[0] == '/' && p[1] == '*') {
            const char *end = strstr(p + 2, "*/");
            if (end == NULL)
                return p + strlen(p);
            p = end + 2;
        } else {
            return p;
        }
    }
}

static size_t word_length(const char *p)
{
    size_t n = 0;
    while (isalnum((unsigned char)p[n]) || p[n] == '_' || p[n] == '$' || p[n] == '.' || p[n] == '%')
        n++;
    return n;
}

static CUresult add_function(struct module *m, const char *name, size_t length)
{
    const struct sim_kernel *kernel = sim_kernel_find(name, length);
    if (kernel == NULL)
        return CUDA_SUCCESS;
    if (m->n_functions == FUNCTIONS_MAX)
        return CUDA_ERROR_INVALID_PTX;
    m->functions[m->n_functions++] = (struct function){
        .magic = FUNCTION_MAGIC, .module = m, .kernel = kernel, .shared_carveout = -1};
    return CUDA_SUCCESS;
}

/* What is behind `.global`: words with a dot, then the name, and how many there are of it. */
static CUresult add_global(struct module *m, const char **text)
{
    const char *p = skip_blank(*text);
    uint64_t bytes = 0;
    while (*p == '.') {
        const size_t length = word_length(p);
        const bool is_align = length == 6 && memcmp(p, ".align", 6) == 0;
        if (length >= 3 && length <= 4 && strchr("busf", p[1]) != NULL)
            bytes = strtoull(p + 2, NULL, 10) / 8;
        p = skip_blank(p + length);
        if (is_align)
            p = skip_blank(p + word_length(p));
    }
    const size_t length = word_length(p);
    *text = p;
    if (length == 0 || bytes == 0)
        return CUDA_SUCCESS; /* of a kind that is not known here */
    if (length >= NAME_MAX_BYTES || m->n_globals == GLOBALS_MAX)
        return CUDA_ERROR_INVALID_PTX;
    struct global *g = &m->globals[m->n_globals++];
    memcpy(g->name, p, length);
    p = skip_blank(p + length);
    g->bytes = bytes * (*p == '[' ? strtoull(p + 1, NULL, 10) : 1);
    return CUDA_SUCCESS;
}

/* A PTX text begins with its version; then only what is behind .entry and .global matters. */
static CUresult parse_ptx(struct module *m, const char *text)
{
    const char *p = skip_blank(text);
    if (strncmp(p, ".version", 8) != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    CUresult result = CUDA_SUCCESS;
    while (*(p = skip_blank(p)) != '\0' && result == CUDA_SUCCESS) {
        const size_t length = word_length(p);
        const bool is_entry = length == 6 && memcmp(p, ".entry", 6) == 0;
        const bool is_global = length == 7 && memcmp(p, ".global", 7) == 0;
        p += length > 0 ? length : 1;
        if (is_global)
            result = add_global(m, &p);
        if (is_entry) {
            p = skip_blank(p);
            const size_t name = word_length(p);
            result = name > 0 ? add_function(m, p, name) : CUDA_ERROR_INVALID_PTX;
            p += name;
        }
    }
    return result;
}

/* Code for a real GPU: a fat binary, or an ELF file for one. Reads no further than the magic goes.
 */
static bool is_binary(const void *image)
{
    static const unsigned char fatbin[] = {0x50, 0xed, 0x55, 0xba};
    static const unsigned char wrapper[] = {0xb1, 0x43, 0x62, 0x46};
    const unsigned char *p = image;
    if (memcmp(p, "\x7f", 1) == 0)
        return strncmp(image,
                       "\x7f"
                       "ELF",
                       4) == 0 &&
               (p[18] | p[19]) != 0; /* e_machine */
    return strncmp(image, (const char *)fatbin, sizeof fatbin) == 0 ||
           strncmp(image, (const char *)wrapper, sizeof wrapper) == 0;
}

static CUresult load_image(struct module **loaded, const void *image, bool is_library)
{
    if (is_binary(image))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    struct module *m = sim_alloc(sizeof *m);
    m->magic = MODULE_MAGIC;
    m->is_library = is_library;
    const CUresult result = parse_ptx(m, image);
    if (result == CUDA_SUCCESS)
        *loaded = m;
    else
        free(m);
    return result;
}

/* The whole file with a NUL behind it, or NULL. */
static char *read_file(const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return NULL;
    char *text = NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        const long size = ftell(file);
        if (size >= 0 && size <= IMAGE_FILE_MAX && fseek(file, 0, SEEK_SET) == 0) {
            text = sim_alloc((size_t)size + 1);
            text[fread(text, 1, (size_t)size, file)] = '\0';
        }
    }
    fclose(file);
    return text;
}

static struct module *module_of(const void *handle, bool is_library)
{
    const struct module *m = handle;
    return m != NULL && m->magic == MODULE_MAGIC && m->is_library == is_library
               ? (struct module *)(uintptr_t)handle
               : NULL;
}

static CUresult unload(struct module *m)
{
    if (m == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    m->magic = 0;
    for (unsigned i = 0; i < m->n_globals; i++)
        sim_global_free(m->globals[i].at);
    for (unsigned i = 0; i < m->n_functions; i++)
        m->functions[i].magic = 0;
    free(m);
    return CUDA_SUCCESS;
}

static struct function *find_function(struct module *m, const char *name)
{
    for (unsigned i = 0; i < m->n_functions; i++) {
        if (strcmp(m->functions[i].kernel->name, name) == 0)
            return &m->functions[i];
    }
    return NULL;
}

/* ---- modules ---- */

static CUresult load_module(CUmodule *module, const void *image)
{
    struct sim_ctx *ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (module == NULL || image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct module *m;
    result = load_image(&m, image, false);
    if (result != CUDA_SUCCESS)
        return result;
    m->ctx = ctx;
    for (unsigned i = 0; i < m->n_globals && result == CUDA_SUCCESS; i++)
        result = sim_global_new(ctx, m->globals[i].bytes, &m->globals[i].at);
    if (result == CUDA_SUCCESS)
        *module = (CUmodule)(void *)m;
    else
        unload(m);
    return result;
}

SIM_API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    SIM_ENTER(cuModuleLoadData);
    return load_module(module, image);
}
SIM_ENTRY(cuModuleLoadData);

SIM_API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int n_options,
                                    CUjit_option *options, void **values)
{
    SIM_ENTER(cuModuleLoadDataEx);
    if (n_options > 0 && (options == NULL || values == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return load_module(module, image);
}
SIM_ENTRY(cuModuleLoadDataEx);

SIM_API CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    SIM_ENTER(cuModuleLoad);
    if (path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    char *text = read_file(path);
    if (text == NULL)
        return CUDA_ERROR_FILE_NOT_FOUND;
    const CUresult result = load_module(module, text);
    free(text);
    return result;
}
SIM_ENTRY(cuModuleLoad);

SIM_API CUresult cuModuleUnload(CUmodule module)
{
    SIM_ENTER(cuModuleUnload);
    struct module *m = module_of(module, false);
    if (m == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    const CUresult result = sim_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (atomic_load(&m->ctx->is_alive))
        sim_ctx_wait(m->ctx);
    return unload(m);
}
SIM_ENTRY(cuModuleUnload);

SIM_API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    SIM_ENTER(cuModuleGetFunction);
    if (function == NULL || name == NULL || *name == '\0')
        return CUDA_ERROR_INVALID_VALUE;
    struct module *m = module_of(module, false);
    if (m == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    struct function *f = find_function(m, name);
    if (f == NULL)
        return CUDA_ERROR_NOT_FOUND;
    *function = (CUfunction)(void *)f;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuModuleGetFunction);

SIM_API CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule module,
                                      const char *name)
{
    SIM_ENTER(cuModuleGetGlobal);
    if (name == NULL || *name == '\0')
        return CUDA_ERROR_INVALID_VALUE;
    const struct module *m = module_of(module, false);
    if (m == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    for (unsigned i = 0; i < m->n_globals; i++) {
        if (strcmp(m->globals[i].name, name) != 0)
            continue;
        if (dptr != NULL)
            *dptr = m->globals[i].at;
        if (bytes != NULL)
            *bytes = m->globals[i].bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}
SIM_ENTRY(cuModuleGetGlobal_v2);

SIM_API CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module)
{
    SIM_ENTER(cuModuleGetFunctionCount);
    const struct module *m = module_of(module, false);
    if (count == NULL || m == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = m->n_functions;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuModuleGetFunctionCount);

SIM_API CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    SIM_ENTER(cuModuleGetLoadingMode);
    if (mode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuModuleGetLoadingMode);

/* ---- libraries ---- */

static CUresult load_library(CUlibrary *library, const void *image)
{
    if (library == NULL || image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct module *m;
    const CUresult result = load_image(&m, image, true);
    if (result == CUDA_SUCCESS)
        *library = (CUlibrary)(void *)m;
    return result;
}

SIM_API CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options,
                                   void **jit_values, unsigned int n_jit, CUlibraryOption *options,
                                   void **values, unsigned int n_options)
{
    SIM_ENTER(cuLibraryLoadData);
    if ((n_jit > 0 && (jit_options == NULL || jit_values == NULL)) ||
        (n_options > 0 && (options == NULL || values == NULL)))
        return CUDA_ERROR_INVALID_VALUE;
    return load_library(library, code);
}
SIM_ENTRY(cuLibraryLoadData);

SIM_API CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path,
                                       CUjit_option *jit_options, void **jit_values,
                                       unsigned int n_jit, CUlibraryOption *options, void **values,
                                       unsigned int n_options)
{
    SIM_ENTER(cuLibraryLoadFromFile);
    if (path == NULL || (n_jit > 0 && (jit_options == NULL || jit_values == NULL)) ||
        (n_options > 0 && (options == NULL || values == NULL)))
        return CUDA_ERROR_INVALID_VALUE;
    char *text = read_file(path);
    if (text == NULL)
        return CUDA_ERROR_FILE_NOT_FOUND;
    const CUresult result = load_library(library, text);
    free(text);
    return result;
}
SIM_ENTRY(cuLibraryLoadFromFile);

SIM_API CUresult cuLibraryUnload(CUlibrary library)
{
    SIM_ENTER(cuLibraryUnload);
    return unload(module_of(library, true));
}
SIM_ENTRY(cuLibraryUnload);

SIM_API CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    SIM_ENTER(cuLibraryGetKernel);
    if (kernel == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct module *m = module_of(library, true);
    if (m == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    struct function *f = find_function(m, name);
    if (f == NULL)
        return CUDA_ERROR_NOT_FOUND;
    *kernel = (CUkernel)(void *)f;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuLibraryGetKernel);

/* ---- functions ---- */

static struct function *function_of(const void *handle)
{
    const struct function *f = handle;
    return f != NULL && f->magic == FUNCTION_MAGIC ? (struct function *)(uintptr_t)handle : NULL;
}

CUresult sim_function_kernel(CUfunction handle, const struct sim_kernel **kernel)
{
    const struct function *f = function_of(handle);
    if (f == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *kernel = f->kernel;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    SIM_ENTER(cuKernelGetFunction);
    struct sim_ctx *ctx;
    const CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (function == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (function_of(kernel) == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *function = (CUfunction)(void *)kernel;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuKernelGetFunction);

static CUresult get_name(const char **name, const void *handle)
{
    const struct function *f = function_of(handle);
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (f == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *name = f->kernel->name;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    SIM_ENTER(cuKernelGetName);
    return get_name(name, kernel);
}
SIM_ENTRY(cuKernelGetName);

SIM_API CUresult cuFuncGetName(const char **name, CUfunction function)
{
    SIM_ENTER(cuFuncGetName);
    return get_name(name, function);
}
SIM_ENTRY(cuFuncGetName);

SIM_API CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    SIM_ENTER(cuFuncGetModule);
    const struct function *f = function_of(function);
    if (module == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (f == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *module = (CUmodule)(void *)f->module;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuFuncGetModule);

static CUresult get_param_info(const void *handle, size_t index, size_t *offset, size_t *size)
{
    const struct function *f = function_of(handle);
    if (offset == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (f == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (index >= f->kernel->n_params)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = f->kernel->param[index].offset;
    if (size != NULL)
        *size = f->kernel->param[index].size;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    SIM_ENTER(cuFuncGetParamInfo);
    return get_param_info(function, index, offset, size);
}
SIM_ENTRY(cuFuncGetParamInfo);

SIM_API CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
    SIM_ENTER(cuKernelGetParamInfo);
    return get_param_info(kernel, index, offset, size);
}
SIM_ENTRY(cuKernelGetParamInfo);

static CUresult get_attribute(int *value, CUfunction_attribute attribute, const void *handle)
{
    const struct function *f = function_of(handle);
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (f == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = 1024;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = 90;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = f->max_dynamic_shared > 0 ? f->max_dynamic_shared : 48 << 10;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = f->shared_carveout;
        return CUDA_SUCCESS;
    default:
        *value = 0;
        return (unsigned)attribute < CU_FUNC_ATTRIBUTE_MAX ? CUDA_SUCCESS
                                                           : CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult set_attribute(const void *handle, CUfunction_attribute attribute, int value)
{
    struct function *f = function_of(handle);
    if (f == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 &&
        value <= 227 << 10)
        f->max_dynamic_shared = value;
    else if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT && value >= -1 &&
             value <= 100)
        f->shared_carveout = value;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    SIM_ENTER(cuFuncGetAttribute);
    return get_attribute(value, attribute, function);
}
SIM_ENTRY(cuFuncGetAttribute);

SIM_API CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    SIM_ENTER(cuFuncSetAttribute);
    return set_attribute(function, attribute, value);
}
SIM_ENTRY(cuFuncSetAttribute);

SIM_API CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                                      CUdevice device)
{
    SIM_ENTER(cuKernelGetAttribute);
    const CUresult result = sim_device_check(device);
    return result == CUDA_SUCCESS ? get_attribute(value, attribute, kernel) : result;
}
SIM_ENTRY(cuKernelGetAttribute);

SIM_API CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                                      CUdevice device)
{
    SIM_ENTER(cuKernelSetAttribute);
    const CUresult result = sim_device_check(device);
    return result == CUDA_SUCCESS ? set_attribute(kernel, attribute, value) : result;
}
SIM_ENTRY(cuKernelSetAttribute);

SIM_API CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    SIM_ENTER(cuFuncSetCacheConfig);
    if (config > CU_FUNC_CACHE_PREFER_EQUAL)
        return CUDA_ERROR_INVALID_VALUE;
    return function_of(function) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
SIM_ENTRY(cuFuncSetCacheConfig);

/* ---- occupancy: 2048 threads and 32 blocks a multiprocessor ---- */

static CUresult max_blocks(int *n, CUfunction function, int block)
{
    if (n == NULL || block <= 0 || block > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    if (function_of(function) == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    const int blocks = 2048 / ((block + 31) / 32 * 32);
    *n = blocks > 32 ? 32 : blocks;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction function, int block,
                                                             size_t shared)
{
    (void)shared;
    SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    return max_blocks(n, function, block);
}
SIM_ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor);

SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, CUfunction function,
                                                                      int block, size_t shared,
                                                                      unsigned int flags)
{
    (void)shared;
    SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
    if ((flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return max_blocks(n, function, block);
}
SIM_ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
