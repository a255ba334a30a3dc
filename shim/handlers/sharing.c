/*
 * The handlers of sharing between processes. Memory that gpumux backs is shared through the daemon:
 * a name of 64 bytes takes the place of the driver's handle (common/share.h). A program without
 * gpumux that opens such a name gets the driver's error. The driver shares its own memory.
 */
#include <string.h>
#include <time.h>

#include "common/chunk.h"
#include "common/clock.h"
#include "shim/driver/devices.h"
#include "shim/gate/boot.h"
#include "shim/gate/gate.h"
#include "shim/gate/permits.h"
#include "shim/handlers/handlers.h"
#include "shim/link/link.h"
#include "shim/memory/notes.h"
#include "shim/memory/release.h"
#include "shim/memory/sharing.h"
#include "shim/memory/freed.h"
#include "shim/tables/allocs.h"
#include "shim/tables/pages.h"

#define GM_SHARE_AGAIN_NS (2 * GM_MS)    /* it takes 20 ms a gigabyte */
#define GM_SHARE_PATIENCE_NS (10 * GM_S) /* asked after four, the daemon fixes it where it is */

_Static_assert(sizeof(CUipcMemHandle) == sizeof(struct gm_share_name), "a name fills a handle");

/* Share *alloc from inside the gate: there every chunk is mapped and the daemon moves nothing, so
 * it answers at once. Waits for this program's turn like a launch. NOT_READY: it is to come to the
 * GPU first, for which the gate closes. */
static CUresult gm_share_now(const struct gm_alloc *alloc, struct gm_msg_shared *shared)
{
    struct gm_slot *slot = gm_gate_enter_whole();
    if (slot == NULL)
        return gm_gate_refusal();
    /* Not if it was freed while this waited: it may be kept (freed.h). */
    const int result = gm_allocs_set_shared(alloc->va, alloc->id) ? gm_link_share(alloc->va, shared)
                                                                  : CUDA_ERROR_INVALID_VALUE;
    gm_gate_leave(slot);
    /* Negative: the daemon is lost, and nobody could open it. */
    return result >= 0 ? (CUresult)result : CUDA_ERROR_NOT_SUPPORTED;
}

/* Ask until it has come. Only the time between the asks counts: each may wait long at the gate,
 * for other programs. OUT_OF_MEMORY: it did not come, and the daemon did not fix it either. */
static CUresult gm_share(const struct gm_alloc *alloc, struct gm_msg_shared *shared)
{
    const struct timespec pause = {.tv_nsec = (long)GM_SHARE_AGAIN_NS};
    uint64_t waited = 0;
    CUresult result = gm_share_now(alloc, shared);
    while (result == CUDA_ERROR_NOT_READY && waited < GM_SHARE_PATIENCE_NS) {
        const uint64_t from = gm_now();
        nanosleep(&pause, NULL);
        waited += gm_now() - from;
        result = gm_share_now(alloc, shared);
    }
    return result != CUDA_ERROR_NOT_READY ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult gm_on_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    struct gm_alloc alloc, where;
    struct gm_msg_shared shared;
    if (!gm_is_live() || pHandle == NULL || gm_allocs_find(dptr, &alloc) == GM_ALLOC_UNKNOWN ||
        alloc.kind != GM_ALLOC_CHUNKS || !gm_where(&where))
        return gm_real.cuIpcGetMemHandle(pHandle, dptr);
    const CUresult result = gm_share(&alloc, &shared);
    if (result != CUDA_SUCCESS)
        return result;
    struct gm_share_name name = {.share = shared.share,
                                 .app = gm_link_app(),
                                 .va = alloc.va,
                                 .bytes = alloc.span,
                                 .nonce = {shared.nonce[0], shared.nonce[1]},
                                 .gpu = (uint32_t)alloc.gpu,
                                 .slack = (uint32_t)(alloc.span - alloc.bytes)};
    gm_share_seal(&name);
    memcpy(pHandle, &name, sizeof(name));
    return CUDA_SUCCESS;
}

/* For both forms: the first takes the same flags, though undocumented. */
static CUresult gm_open_handle(CUdeviceptr *pdptr, const CUipcMemHandle *handle, unsigned int flags,
                               bool *is_ours)
{
    struct gm_share_name name;
    struct gm_alloc where;
    *is_ours = gm_is_live() && gm_share_read(handle, &name);
    if (!*is_ours)
        return CUDA_SUCCESS;
    GM_REFUSE(gm_permits());
    gm_free_deferred();
    if (pdptr == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
        name.gpu >= gm_gpu_count() || name.bytes == 0 || name.bytes % GM_CHUNK_MIN != 0 ||
        name.slack >= GM_CHUNK_MIN)
        return CUDA_ERROR_INVALID_VALUE;
    if (!gm_where(&where))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (gm_gpu_device(name.gpu) < 0)
        return CUDA_ERROR_INVALID_DEVICE; /* the mapper has no device to give access to */
    where.gpu = (int32_t)name.gpu;
    return gm_sharing_open(&name, where, pdptr);
}

CUresult gm_on_cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    bool is_ours;
    const CUresult result = gm_open_handle(pdptr, &handle, Flags, &is_ours);
    return is_ours ? result : gm_real.cuIpcOpenMemHandle(pdptr, handle, Flags);
}

CUresult gm_on_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    bool is_ours;
    const CUresult result = gm_open_handle(pdptr, &handle, Flags, &is_ours);
    return is_ours ? result : gm_real.cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

CUresult gm_on_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    struct gm_alloc alloc, where;
    if (!gm_is_live() || gm_allocs_find(dptr, &alloc) == GM_ALLOC_UNKNOWN ||
        alloc.kind == GM_ALLOC_REAL)
        return gm_real.cuIpcCloseMemHandle(dptr);
    GM_REFUSE(gm_permits());
    gm_free_deferred();
    if (!gm_where(&where))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (alloc.kind != GM_ALLOC_IMPORT || alloc.va != dptr)
        return CUDA_ERROR_INVALID_VALUE;
    return gm_sharing_close(dptr);
}

/*
 * A dma-buf keeps the memory that is behind an address now, but gpumux moves its memory. So there
 * is none, as on a device that cannot make them. The look-up is by whole chunks, because the rest
 * of an allocation's last chunk moves too.
 */
CUresult gm_on_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                             CUmemRangeHandleType handleType,
                                             unsigned long long flags)
{
    struct gm_alloc alloc;
    if (gm_is_live())
        GM_REFUSE(gm_permits());
    if (gm_is_live() && gm_freed_has(dptr))
        return CUDA_ERROR_INVALID_VALUE;
    if (gm_is_live() && gm_pages_have(dptr) &&
        (gm_allocs_find(dptr, &alloc) != GM_ALLOC_UNKNOWN ||
         gm_allocs_find(dptr & ~(GM_CHUNK_MIN - 1), &alloc) != GM_ALLOC_UNKNOWN) &&
        alloc.kind != GM_ALLOC_REAL)
        return CUDA_ERROR_NOT_SUPPORTED;
    return gm_real.cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags);
}
