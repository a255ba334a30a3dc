/*
 * Arrays and mipmapped arrays, as far as they take memory: a handle, a descriptor, and bytes of the
 * device. Nothing can be copied to them or read through them.
 */
#include "tests/simcuda/sim.h"

#include <stdlib.h>

#define ARRAY_MAGIC 0x41525259u
#define MIPMAP_MAGIC 0x4d495059u
#define SIDE_MAX (1u << 17)
#define GRANULE 512ull /* an array takes whole ones */

struct sim_array {
    uint32_t magic;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    uint64_t bytes;
    struct sim_ctx *ctx;
    struct sim_array *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_array *arrays; /* live */

static unsigned element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    const unsigned n = d->NumChannels;
    if (n != 1 && n != 2 && n != 4)
        return 0;
    switch ((int)d->Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return n;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2 * n;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4 * n;
    default:
        return 0;
    }
}

static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level)
{
    uint64_t bytes = element_bytes(d);
    const size_t sides[] = {d->Width, d->Height, d->Depth};
    for (int i = 0; i < 3; i++)
        bytes *= sides[i] == 0 ? 1 : sides[i] >> level > 0 ? sides[i] >> level : 1;
    return (bytes + GRANULE - 1) & ~(GRANULE - 1);
}

static CUresult create(struct sim_array **array, uint32_t magic, const CUDA_ARRAY3D_DESCRIPTOR *d,
                       unsigned levels)
{
    struct sim_ctx *ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (array == NULL || d == NULL || levels == 0 || levels > 17 || d->Width == 0 ||
        d->Width > SIDE_MAX || d->Height > SIDE_MAX || d->Depth > SIDE_MAX || d->Flags != 0 ||
        element_bytes(d) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_capture_unsafe();
    uint64_t bytes = 0;
    for (unsigned level = 0; level < levels; level++)
        bytes += level_bytes(d, level);
    if (result == CUDA_SUCCESS)
        result = sim_memory_take(ctx->device, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_array *made = sim_alloc(sizeof *made);
    *made = (struct sim_array){.magic = magic, .descriptor = *d, .bytes = bytes, .ctx = ctx};
    pthread_mutex_lock(&lock);
    made->next = arrays;
    arrays = made;
    pthread_mutex_unlock(&lock);
    *array = made;
    return CUDA_SUCCESS;
}

/* Take one out of the list: `array`, or with NULL any of `ctx`. NULL: there is none. */
static struct sim_array *take(const struct sim_array *array, uint32_t magic,
                              const struct sim_ctx *ctx)
{
    struct sim_array *found = NULL;
    pthread_mutex_lock(&lock);
    for (struct sim_array **place = &arrays; *place != NULL && found == NULL;) {
        struct sim_array *one = *place;
        if (array != NULL ? one == array && one->magic == magic : one->ctx == ctx) {
            *place = one->next;
            found = one;
        } else {
            place = &one->next;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void release(struct sim_array *array)
{
    sim_memory_give(array->ctx->device, array->bytes);
    free(array);
}

static CUresult destroy(const struct sim_array *array, uint32_t magic)
{
    struct sim_array *taken = array != NULL ? take(array, magic, NULL) : NULL;
    if (taken == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_ctx_wait(taken->ctx);
    release(taken);
    return CUDA_SUCCESS;
}

void sim_array_free_context(const struct sim_ctx *ctx)
{
    for (struct sim_array *array; (array = take(NULL, 0, ctx)) != NULL;)
        release(array);
}

SIM_API CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *descriptor, CUarray handle)
{
    SIM_ENTER(cuArrayGetDescriptor);
    if (descriptor == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    for (const struct sim_array *a = arrays; a != NULL; a = a->next) {
        if (a != (const void *)handle || a->magic != ARRAY_MAGIC)
            continue;
        *descriptor = (CUDA_ARRAY_DESCRIPTOR){.Width = a->descriptor.Width,
                                              .Height = a->descriptor.Height,
                                              .Format = a->descriptor.Format,
                                              .NumChannels = a->descriptor.NumChannels};
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}
SIM_ENTRY(cuArrayGetDescriptor_v2);

SIM_API CUresult cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    SIM_ENTER(cuArrayCreate);
    if (descriptor == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const CUDA_ARRAY3D_DESCRIPTOR whole = {.Width = descriptor->Width,
                                           .Height = descriptor->Height,
                                           .Format = descriptor->Format,
                                           .NumChannels = descriptor->NumChannels};
    return create((struct sim_array **)(void *)handle, ARRAY_MAGIC, &whole, 1);
}
SIM_ENTRY(cuArrayCreate_v2);

SIM_API CUresult cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    SIM_ENTER(cuArray3DCreate);
    return create((struct sim_array **)(void *)handle, ARRAY_MAGIC, descriptor, 1);
}
SIM_ENTRY(cuArray3DCreate_v2);

SIM_API CUresult cuArrayDestroy(CUarray handle)
{
    SIM_ENTER_UNSAFE(cuArrayDestroy);
    return destroy((const struct sim_array *)(const void *)handle, ARRAY_MAGIC);
}
SIM_ENTRY(cuArrayDestroy);

SIM_API CUresult cuMipmappedArrayCreate(CUmipmappedArray *handle,
                                        const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                        unsigned int levels)
{
    SIM_ENTER(cuMipmappedArrayCreate);
    return create((struct sim_array **)(void *)handle, MIPMAP_MAGIC, descriptor, levels);
}
SIM_ENTRY(cuMipmappedArrayCreate);

SIM_API CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle)
{
    SIM_ENTER_UNSAFE(cuMipmappedArrayDestroy);
    return destroy((const struct sim_array *)(const void *)handle, MIPMAP_MAGIC);
}
SIM_ENTRY(cuMipmappedArrayDestroy);
