/* Kernel launches, in the three forms that programs use. */
#include "tests/simcuda/sim.h"

#include <string.h>

#define THREADS_MAX 1024u /* in a block */

struct shape {
    unsigned grid[3], block[3];
};

static bool is_shape_valid(const struct shape *s)
{
    const uint64_t threads = (uint64_t)s->block[0] * s->block[1] * s->block[2];
    return s->grid[0] > 0 && s->grid[1] > 0 && s->grid[2] > 0 && s->grid[0] <= INT32_MAX &&
           s->grid[1] <= 65535 && s->grid[2] <= 65535 && threads > 0 && threads <= THREADS_MAX &&
           s->block[0] <= 1024 && s->block[1] <= 1024 && s->block[2] <= 64;
}

/* The parameter block, from an array of pointers. */
static CUresult pack_params(uint8_t *block, const struct sim_kernel *kernel, void **params)
{
    for (uint32_t i = 0; i < kernel->n_params; i++) {
        if (params[i] == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(block + kernel->param[i].offset, params[i], kernel->param[i].size);
    }
    return CUDA_SUCCESS;
}

/* The parameter block, from the buffer that a list of extra options names. A short one is taken. */
static CUresult unpack_extra(uint8_t *block, void **extra)
{
    const void *buffer = NULL;
    size_t size = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1] != NULL)
            memcpy(&size, extra[1], sizeof size);
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (buffer == NULL || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(block, buffer, size < SIM_PARAMS_MAX ? size : SIM_PARAMS_MAX);
    return CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, struct shape shape, CUstream handle, void **params,
                       void **extra, enum sim_mode mode)
{
    const struct sim_kernel *kernel;
    struct sim_stream *stream;
    CUresult result = sim_stream_get(handle, mode, &stream);
    if (result == CUDA_SUCCESS)
        result = sim_function_kernel(function, &kernel);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_shape_valid(&shape) || (params != NULL && extra != NULL) ||
        (params == NULL && extra == NULL && kernel->n_params > 0))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_op *op = sim_op_new(SIM_OP_KERNEL);
    op->u.launch.kernel = kernel;
    op->u.launch.ctx = stream->ctx;
    if (extra != NULL)
        result = unpack_extra(op->u.launch.params, extra);
    else if (params != NULL)
        result = pack_params(op->u.launch.params, kernel, params);
    if (result == CUDA_SUCCESS)
        return sim_submit(stream, op, NULL);
    sim_op_free(op);
    return result;
}

static CUresult launch_kernel(CUfunction function, struct shape shape, CUstream stream,
                              void **params, void **extra, enum sim_mode mode)
{
    SIM_ENTER(cuLaunchKernel);
    return launch(function, shape, stream, params, extra, mode);
}
SIM_TWO(cuLaunchKernel, cuLaunchKernel_ptsz,
        (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
         unsigned int by, unsigned int bz, unsigned int shared __attribute__((unused)),
         CUstream stream, void **params, void **extra),
        launch_kernel(f, (struct shape){{gx, gy, gz}, {bx, by, bz}}, stream, params, extra, mode));

static CUresult launch_cooperative(CUfunction function, struct shape shape, CUstream stream,
                                   void **params, enum sim_mode mode)
{
    SIM_ENTER(cuLaunchCooperativeKernel);
    return launch(function, shape, stream, params, NULL, mode);
}
SIM_TWO(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz,
        (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
         unsigned int by, unsigned int bz, unsigned int shared __attribute__((unused)),
         CUstream stream, void **params),
        launch_cooperative(f, (struct shape){{gx, gy, gz}, {bx, by, bz}}, stream, params, mode));

static CUresult launch_ex(const CUlaunchConfig *c, CUfunction function, void **params, void **extra,
                          enum sim_mode mode)
{
    SIM_ENTER(cuLaunchKernelEx);
    if (c == NULL || (c->numAttrs > 0 && c->attrs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    const struct shape shape = {{c->gridDimX, c->gridDimY, c->gridDimZ},
                                {c->blockDimX, c->blockDimY, c->blockDimZ}};
    return launch(function, shape, c->hStream, params, extra, mode);
}
SIM_TWO(cuLaunchKernelEx, cuLaunchKernelEx_ptsz,
        (const CUlaunchConfig *config, CUfunction f, void **params, void **extra),
        launch_ex(config, f, params, extra, mode));
