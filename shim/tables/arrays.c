#include "shim/tables/arrays.h"

#include <stdlib.h>
#include <string.h>

#include "common/locks.h"
#include "shim/tables/accounts.h"

static struct gm_lock gm_arrays_lock = GM_LOCK_INITIALIZER(GM_LOCK_ARRAYS);
static struct gm_alloc *gm_arrays_list; /* by handle, in `va` */
static size_t gm_arrays_count;
static size_t gm_arrays_room;

/* ---- sizes ---- */

/* Bytes of a block of `side` by `side` texels, in all planes. */
struct gm_texel {
    unsigned bytes, side;
};

static struct gm_texel gm_texel_of(const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    const unsigned channels = descriptor->NumChannels > 0 ? descriptor->NumChannels : 1;
    switch ((int)descriptor->Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return (struct gm_texel){channels, 1};
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return (struct gm_texel){2 * channels, 1};
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return (struct gm_texel){4 * channels, 1};
    case CU_AD_FORMAT_NV12: /* one byte a texel, and two for each block of 2 by 2 */
        return (struct gm_texel){6, 2};
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1:
        return (struct gm_texel){1, 1};
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1:
        return (struct gm_texel){2, 1};
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4:
        return (struct gm_texel){8, 1};
    case CU_AD_FORMAT_BC1_UNORM:
    case CU_AD_FORMAT_BC1_UNORM_SRGB:
    case CU_AD_FORMAT_BC4_UNORM:
    case CU_AD_FORMAT_BC4_SNORM:
        return (struct gm_texel){8, 4};
    case CU_AD_FORMAT_BC2_UNORM:
    case CU_AD_FORMAT_BC2_UNORM_SRGB:
    case CU_AD_FORMAT_BC3_UNORM:
    case CU_AD_FORMAT_BC3_UNORM_SRGB:
    case CU_AD_FORMAT_BC5_UNORM:
    case CU_AD_FORMAT_BC5_SNORM:
    case CU_AD_FORMAT_BC6H_UF16:
    case CU_AD_FORMAT_BC6H_SF16:
    case CU_AD_FORMAT_BC7_UNORM:
    case CU_AD_FORMAT_BC7_UNORM_SRGB:
        return (struct gm_texel){16, 4};
    default: /* UNORM_INT8X4 and the like; unknown newer formats */
        return (struct gm_texel){4, 1};
    }
}

static uint64_t gm_product(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX >> 1 : product;
}

uint64_t gm_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels)
{
    const struct gm_texel texel = gm_texel_of(descriptor);
    const bool has_layers =
        (descriptor->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    uint64_t width = descriptor->Width, height = descriptor->Height, depth = descriptor->Depth;
    uint64_t bytes = 0;

    if ((descriptor->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0)
        return 0;
    height = height > 0 ? height : 1; /* 0: no such dimension */
    depth = depth > 0 ? depth : 1;
    for (unsigned level = 0; level < levels && level < 64; level++) {
        uint64_t blocks = gm_product((width + texel.side - 1) / texel.side,
                                     (height + texel.side - 1) / texel.side);
        uint64_t more = gm_product(gm_product(blocks, depth), texel.bytes);
        bytes = bytes + more < bytes ? UINT64_MAX >> 1 : bytes + more;
        if (width <= 1 && height <= 1 && (has_layers || depth <= 1))
            break;
        width = width > 1 ? width / 2 : 1;
        height = height > 1 ? height / 2 : 1;
        depth = has_layers || depth <= 1 ? depth : depth / 2;
    }
    return bytes;
}

/* ---- the list ---- */

static size_t gm_arrays_index(uint64_t handle)
{
    size_t low = 0, high = gm_arrays_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (gm_arrays_list[middle].va < handle)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void gm_arrays_cut(size_t at)
{
    gm_arrays_count--;
    memmove(&gm_arrays_list[at], &gm_arrays_list[at + 1],
            (gm_arrays_count - at) * sizeof(*gm_arrays_list));
}

void gm_arrays_put_back(const struct gm_alloc *array)
{
    struct gm_alloc stale = {0};
    bool is_put = false, is_stale = false;

    gm_lock(&gm_arrays_lock);
    size_t at = gm_arrays_index(array->va);
    if (at < gm_arrays_count && gm_arrays_list[at].va == array->va) {
        stale = gm_arrays_list[at]; /* destroyed in a way that is not hooked */
        is_stale = true;
        gm_arrays_cut(at);
    }
    if (gm_arrays_count == gm_arrays_room) {
        size_t room = gm_arrays_room == 0 ? 64 : 2 * gm_arrays_room;
        struct gm_alloc *list = realloc(gm_arrays_list, room * sizeof(*list));
        if (list == NULL)
            goto unlock;
        gm_arrays_list = list;
        gm_arrays_room = room;
    }
    memmove(&gm_arrays_list[at + 1], &gm_arrays_list[at],
            (gm_arrays_count - at) * sizeof(*gm_arrays_list));
    gm_arrays_list[at] = *array;
    gm_arrays_count++;
    is_put = true;
unlock:
    gm_unlock(&gm_arrays_lock);
    if (is_stale)
        gm_account_sub(GM_ACCOUNT_ARRAYS, stale.gpu, stale.bytes);
    if (is_put)
        gm_account_add(GM_ACCOUNT_ARRAYS, array->gpu, array->bytes);
}

void gm_arrays_add(const void *handle, const struct gm_alloc *where, uint64_t bytes)
{
    struct gm_alloc array = *where;
    array.va = (uint64_t)(uintptr_t)handle;
    array.bytes = bytes;
    gm_arrays_put_back(&array);
}

bool gm_arrays_take(const void *handle, struct gm_alloc *array)
{
    gm_lock(&gm_arrays_lock);
    size_t at = gm_arrays_index((uint64_t)(uintptr_t)handle);
    bool is_known = at < gm_arrays_count && gm_arrays_list[at].va == (uint64_t)(uintptr_t)handle;
    if (is_known) {
        *array = gm_arrays_list[at];
        gm_arrays_cut(at);
    }
    gm_unlock(&gm_arrays_lock);
    if (is_known)
        gm_account_sub(GM_ACCOUNT_ARRAYS, array->gpu, array->bytes);
    return is_known;
}

void gm_arrays_forget(const void *context, int32_t device)
{
    gm_lock(&gm_arrays_lock);
    for (size_t i = 0; i < gm_arrays_count;) {
        const struct gm_alloc array = gm_arrays_list[i];
        if (context != NULL ? array.context == context
                            : array.is_primary && array.device == device) {
            gm_arrays_cut(i);
            gm_account_sub(GM_ACCOUNT_ARRAYS, array.gpu, array.bytes);
        } else {
            i++;
        }
    }
    gm_unlock(&gm_arrays_lock);
}
