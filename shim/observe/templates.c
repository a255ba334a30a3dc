#include "shim/observe/templates.h"

#include <stdlib.h>
#include <string.h>

#include "common/chunk.h"
#include "shim/tables/pages.h"

#define GM_TEMPLATES_PARAMETERS 1024u
#define GM_TEMPLATES_FEW 256u /* bytes of arguments that are copied to the stack: it may be small  \
                               */
#define GM_TEMPLATES_ROWS 4096u /* of more, what lies between them counts, too */
/* With a profile that says less, the check of the link finds it (daemon/core/check.h). */
#define GM_TEMPLATES_UNNAMED GM_CHUNK_MAX

/* ---- which kernel it is ---- */

struct gm_asked {
    CUfunction f;
    bool is_kernel; /* its handle is that of a CUkernel */
    CUdevice device;
};

static bool gm_templates_name(struct gm_asked *asked, const char **name)
{
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    if (gm_real.cuFuncGetName != NULL)
        result = gm_real.cuFuncGetName(name, asked->f);
    asked->is_kernel = result == CUDA_ERROR_INVALID_HANDLE && gm_real.cuKernelGetName != NULL;
    if (asked->is_kernel)
        result = gm_real.cuKernelGetName(name, (CUkernel)(void *)asked->f);
    return result == CUDA_SUCCESS && *name != NULL;
}

/* 0: the driver does not say. */
static uint32_t gm_templates_attribute(const struct gm_asked *asked, CUfunction_attribute attribute)
{
    int value = 0;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (!asked->is_kernel && gm_real.cuFuncGetAttribute != NULL)
        result = gm_real.cuFuncGetAttribute(&value, attribute, asked->f);
    else if (asked->is_kernel && gm_real.cuKernelGetAttribute != NULL)
        result = gm_real.cuKernelGetAttribute(&value, attribute, (CUkernel)(void *)asked->f,
                                              asked->device);
    return result == CUDA_SUCCESS && value > 0 ? (uint32_t)value : 0;
}

static bool gm_templates_parameter(const struct gm_asked *asked, uint32_t i,
                                   struct gm_kernel_parameter *parameter)
{
    size_t offset = 0, bytes = 0;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (!asked->is_kernel && gm_real.cuFuncGetParamInfo != NULL)
        result = gm_real.cuFuncGetParamInfo(asked->f, i, &offset, &bytes);
    else if (asked->is_kernel && gm_real.cuKernelGetParamInfo != NULL)
        result = gm_real.cuKernelGetParamInfo((CUkernel)(void *)asked->f, i, &offset, &bytes);
    if (result != CUDA_SUCCESS || offset > GM_ARGUMENT_BYTES || bytes > GM_ARGUMENT_BYTES)
        return false;
    *parameter = (struct gm_kernel_parameter){(uint32_t)offset, (uint32_t)bytes};
    return true;
}

struct gm_kernel *gm_templates_kernel(CUfunction f)
{
    struct gm_asked asked = {.f = f};
    struct gm_kernel_facts facts = {0};
    if (!gm_profiles_exist() || !gm_templates_name(&asked, &facts.name) ||
        (asked.is_kernel && gm_real.cuCtxGetDevice(&asked.device) != CUDA_SUCCESS))
        return NULL;
    struct gm_kernel_parameter *parameters = malloc(GM_TEMPLATES_PARAMETERS * sizeof(*parameters));
    while (parameters != NULL && facts.n < GM_TEMPLATES_PARAMETERS &&
           gm_templates_parameter(&asked, facts.n, &parameters[facts.n]))
        facts.n++;
    facts.parameters = parameters;
    facts.binary_version = gm_templates_attribute(&asked, CU_FUNC_ATTRIBUTE_BINARY_VERSION);
    struct gm_kernel *kernel = NULL;
    if (parameters != NULL)
        kernel =
            gm_profiles_find(&facts, gm_templates_attribute(&asked, CU_FUNC_ATTRIBUTE_NUM_REGS));
    free(parameters);
    return kernel;
}

/* ---- what it touches ---- */

/* Whether gpumux backs the row's first byte and its last one. A template may be a little too long.
 */
static bool gm_templates_has(uint64_t from, uint64_t bytes)
{
    return gm_pages_have(from) &&
           (gm_pages_have(from + bytes - 1) || gm_pages_have(from + bytes - 1 - bytes / 32));
}

/* False: they lead out of gpumux's memory. */
static bool gm_templates_touch(const struct gm_rows *rows, gm_touch_found *found, void *arg)
{
    const uint64_t across = (rows->count - 1) * rows->stride + rows->bytes;
    if (rows->count == 1 || rows->stride <= GM_CHUNK_MIN || rows->count > GM_TEMPLATES_ROWS) {
        if (!gm_templates_has(rows->from, across))
            return false;
        found(arg, rows->from, across);
        return true;
    }
    for (uint64_t row = 0; row < rows->count; row++) {
        const uint64_t from = rows->from + row * rows->stride;
        if (!gm_templates_has(from, rows->bytes))
            return false;
        found(arg, from, rows->bytes);
    }
    return true;
}

/* `bytes` has room for the kernel's arguments. */
static bool gm_templates_look_by(unsigned char *bytes, struct gm_kernel *kernel,
                                 const uint32_t *dimension, void **params, gm_touch_found *found,
                                 void *arg)
{
    const struct gm_profile_kernel *profile = kernel->profile;
    struct gm_arguments arguments = {.bytes = kernel->bytes, .at = bytes};
    memcpy(arguments.dimension, dimension, sizeof(arguments.dimension));
    memset(bytes, 0, kernel->bytes);
    for (uint32_t i = 0; i < kernel->n; i++)
        if (params[i] != NULL)
            memcpy(bytes + kernel->parameters[i].offset, params[i], kernel->parameters[i].bytes);
    for (uint32_t offset = 0, next = 0; offset + 8 <= kernel->bytes; offset += 8) {
        uint64_t word;
        struct gm_rows rows;
        memcpy(&word, bytes + offset, sizeof(word));
        if (!gm_pages_have(word))
            continue;
        while (next < profile->n && profile->arguments[next].template.offset < offset)
            next++;
        const struct gm_profile_argument *argument =
            next < profile->n && profile->arguments[next].template.offset == offset
                ? &profile->arguments[next]
                : NULL;
        if (argument != NULL && argument->how == GM_PROFILE_NONE)
            continue;
        if (argument != NULL && argument->how == GM_PROFILE_TOUCH &&
            gm_template_rows(&argument->template, &arguments, &rows)) {
            if (rows.count == 0 || gm_templates_touch(&rows, found, arg))
                continue;
            gm_profiles_refuse(kernel);
        }
        found(arg, word, GM_REACHES);
    }
    return profile->unnamed < GM_TEMPLATES_UNNAMED;
}

bool gm_templates_look(struct gm_kernel *kernel, const uint32_t *dimension, void **params,
                       gm_touch_found *found, void *arg)
{
    unsigned char few[GM_TEMPLATES_FEW];
    if (kernel->bytes <= sizeof(few))
        return gm_templates_look_by(few, kernel, dimension, params, found, arg);
    unsigned char *bytes = malloc(kernel->bytes);
    const bool is_all =
        bytes != NULL && gm_templates_look_by(bytes, kernel, dimension, params, found, arg);
    free(bytes);
    return is_all;
}
