/* The handlers of stream-ordered allocation and of memory pools: gpumux's own (pools.h), or the
 * driver's inside the gate, which are counted. */
#include "shim/gate/boot.h"
#include "shim/gate/gate.h"
#include "shim/gate/permits.h"
#include "shim/handlers/handlers.h"
#include "shim/memory/marks.h"
#include "shim/memory/notes.h"
#include "shim/memory/pools.h"
#include "shim/tables/accounts.h"

/* An allocation of the driver, counted at `place`. */
static CUresult gm_alloc_real(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream,
                              const struct gm_alloc *place)
{
    CUresult result =
        GM_GATED(pool == NULL ? gm_real.cuMemAllocAsync(dptr, bytes, stream)
                              : gm_real.cuMemAllocFromPoolAsync(dptr, bytes, pool, stream));
    if (result == CUDA_SUCCESS && place->gpu >= 0)
        gm_note_real(*place, *dptr, bytes);
    return result;
}

static CUresult gm_alloc_async(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    struct gm_alloc place;
    CUresult result;
    if (gm_pools_alloc(dptr, bytes, pool, stream, &place, &result))
        return gm_tell_allocated(result);
    result = gm_alloc_real(dptr, bytes, pool, stream, &place);
    return gm_tell_driver_allocated(result, bytes);
}

/*
 * In a forked child the driver refuses nearly everything, but not these calls. Under gpumux its
 * pools are empty and would have to grow there; after that, graphs of the parent with memory of
 * their own failed with an illegal address. So they are refused.
 */
static CUresult gm_alloc_not_live(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                  CUstream stream)
{
    if (gm_boot_is_forked())
        return CUDA_ERROR_NOT_INITIALIZED;
    return pool == NULL ? gm_real.cuMemAllocAsync(dptr, bytes, stream)
                        : gm_real.cuMemAllocFromPoolAsync(dptr, bytes, pool, stream);
}

CUresult gm_on_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    return gm_is_live() ? gm_alloc_async(dptr, bytesize, NULL, hStream)
                        : gm_alloc_not_live(dptr, bytesize, NULL, hStream);
}

CUresult gm_on_cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    hStream = gm_stream_ptsz(hStream);
    return gm_is_live() ? gm_alloc_async(dptr, bytesize, NULL, hStream)
                        : gm_alloc_not_live(dptr, bytesize, NULL, hStream);
}

static CUresult gm_alloc_from_pool(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                   CUstream stream)
{
    if (pool == NULL) /* the driver refuses it */
        return gm_boot_is_forked() ? CUDA_ERROR_NOT_INITIALIZED
                                   : gm_real.cuMemAllocFromPoolAsync(dptr, bytes, pool, stream);
    return gm_is_live() ? gm_alloc_async(dptr, bytes, pool, stream)
                        : gm_alloc_not_live(dptr, bytes, pool, stream);
}

CUresult gm_on_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                       CUstream hStream)
{
    return gm_alloc_from_pool(dptr, bytesize, pool, hStream);
}

CUresult gm_on_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                            CUstream hStream)
{
    return gm_alloc_from_pool(dptr, bytesize, pool, gm_stream_ptsz(hStream));
}

/* Memory of the driver's pools or of graphs, or an invalid address. */
static CUresult gm_free_real(CUdeviceptr dptr, CUstream stream)
{
    struct gm_alloc alloc;
    bool is_noted = gm_allocs_find(dptr, &alloc) == GM_ALLOC_BASE && alloc.kind == GM_ALLOC_REAL &&
                    gm_allocs_take(dptr, &alloc) == GM_ALLOC_BASE;
    CUresult result = GM_GATED(gm_real.cuMemFreeAsync(dptr, stream));
    if (is_noted && (result == CUDA_SUCCESS || gm_allocs_insert(&alloc) != 0))
        gm_forget_real(&alloc);
    return result;
}

/* In a capture a free is a node of its graph; beside one it is refused. */
static CUresult gm_permits_free(CUstream stream)
{
    struct gm_stream look;
    if (gm_gate_captures() > 0 && gm_stream_look(stream, &look) == CUDA_SUCCESS &&
        look.is_capturing)
        return gm_permits();
    return gm_permits_unsafe();
}

static CUresult gm_free_async(CUdeviceptr dptr, CUstream stream)
{
    struct gm_alloc alloc;
    CUresult result;
    GM_REFUSE(gm_permits_free(stream));
    if (gm_pools_free_async(dptr, stream, &result))
        return result;
    if (gm_allocs_find(dptr, &alloc) != GM_ALLOC_UNKNOWN && alloc.kind != GM_ALLOC_REAL)
        return CUDA_ERROR_INVALID_VALUE; /* a mapping, or another program's */
    return gm_free_real(dptr, stream);
}

static CUresult gm_free_not_live(CUdeviceptr dptr, CUstream stream)
{
    return gm_boot_is_forked() ? CUDA_ERROR_NOT_INITIALIZED : gm_real.cuMemFreeAsync(dptr, stream);
}

CUresult gm_on_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    return gm_is_live() ? gm_free_async(dptr, hStream) : gm_free_not_live(dptr, hStream);
}

CUresult gm_on_cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
    hStream = gm_stream_ptsz(hStream);
    return gm_is_live() ? gm_free_async(dptr, hStream) : gm_free_not_live(dptr, hStream);
}

/* ---- pools ---- */

CUresult gm_on_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    CUresult result = gm_real.cuMemPoolCreate(pool, poolProps);
    if (result == CUDA_SUCCESS && gm_is_live())
        gm_pools_add(*pool, poolProps);
    return result;
}

CUresult gm_on_cuMemPoolDestroy(CUmemoryPool pool)
{
    if (!gm_is_live())
        return gm_real.cuMemPoolDestroy(pool);
    struct gm_pool *ours = gm_pools_forget(pool);
    CUresult result = gm_real.cuMemPoolDestroy(pool);
    gm_pools_end(ours, pool, result == CUDA_SUCCESS);
    return result;
}

CUresult gm_on_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    CUresult result = gm_real.cuMemPoolTrimTo(pool, minBytesToKeep);
    if (result == CUDA_SUCCESS && gm_is_live())
        gm_pools_trim(pool, minBytesToKeep);
    return result;
}

CUresult gm_on_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    CUresult result = gm_real.cuMemPoolGetAttribute(pool, attr, value);
    if (result == CUDA_SUCCESS && gm_is_live())
        gm_pools_get_attribute(pool, attr, value);
    return result;
}

CUresult gm_on_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    CUresult result = gm_real.cuMemPoolSetAttribute(pool, attr, value);
    if (result == CUDA_SUCCESS && gm_is_live())
        gm_pools_set_attribute(pool, attr, value);
    return result;
}

CUresult gm_on_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    CUresult result = gm_real.cuMemPoolSetAccess(pool, map, count);
    if (result == CUDA_SUCCESS && gm_is_live())
        gm_pools_set_access(pool, map, count);
    return result;
}
