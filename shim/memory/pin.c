#include "shim/memory/pin.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "common/chunk.h"
#include "common/clock.h"
#include "common/log.h"
#include "shim/driver/real.h"
#include "shim/gate/drain.h"
#include "shim/gate/gate.h"
#include "shim/link/link.h"
#include "shim/link/work.h"
#include "shim/map/borrow.h"
#include "shim/map/mapper.h"
#include "shim/memory/release.h"
#include "shim/tables/accounts.h"
#include "shim/tables/allocs.h"
#include "shim/tables/vmm.h"

/* For other threads, and for the GPU, each. A driver of its own waits for neither, so kernels of
 * some seconds, or a machine with much else to do, are no reason to fail. */
#define GM_PIN_PATIENCE (10 * GM_SLOW * GM_S)

struct gm_pin_job {
    struct gm_vmm_handle *handle;
    CUmemGenericAllocationHandle real;
    CUdeviceptr at; /* a range of its size, for the copy */
};

static CUmemAccessDesc gm_pin_access(const struct gm_vmm_handle *handle)
{
    return (CUmemAccessDesc){
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = handle->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
}

/* Map the frames at the home and the new memory at `at`; copy; unmap both. */
static CUresult gm_pin_copy(const struct gm_pin_job *job)
{
    const struct gm_vmm_handle *handle = job->handle;
    CUmemAccessDesc access = gm_pin_access(handle);
    CUresult result = gm_real.cuMemMap(job->at, handle->bytes, 0, job->real, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = gm_real.cuMemSetAccess(job->at, handle->bytes, &access, 1);
    for (uint64_t done = 0, chunk; done < handle->bytes && result == CUDA_SUCCESS; done += chunk) {
        CUmemGenericAllocationHandle frame;
        chunk = gm_class_bytes(gm_chunk_next(handle->bytes - done));
        result = CUDA_ERROR_NOT_READY; /* without a frame; inside the gate all have one */
        if (gm_import_frame_at(handle->home + done, &frame))
            result = gm_real.cuMemMap(handle->home + done, chunk, 0, frame, 0);
    }
    if (result == CUDA_SUCCESS)
        result = gm_real.cuMemSetAccess(handle->home, handle->bytes, &access, 1);
    /* Chunk by chunk: some may be in host memory, and one copy cannot have both. */
    for (uint64_t done = 0, chunk; done < handle->bytes && result == CUDA_SUCCESS; done += chunk) {
        chunk = gm_class_bytes(gm_chunk_next(handle->bytes - done));
        result = gm_real.cuMemcpyDtoD_v2(job->at + done, handle->home + done, chunk);
    }
    if (result == CUDA_SUCCESS)
        result = gm_real.cuCtxSynchronize();
    gm_real.cuMemUnmap(handle->home, handle->bytes);
    gm_real.cuMemUnmap(job->at, handle->bytes);
    return result;
}

/* Map the new memory at one view. */
static CUresult gm_pin_view(const struct gm_vmm_view *view, CUmemGenericAllocationHandle real)
{
    CUmemAccessDesc desc[GM_VMM_DEVICES];
    size_t n = gm_views_access(view, desc);
    CUresult result = gm_real.cuMemUnmap(view->va, view->bytes);
    if (result == CUDA_SUCCESS)
        result = gm_real.cuMemMap(view->va, view->bytes, 0, real, 0);
    if (result == CUDA_SUCCESS && n > 0)
        result = gm_real.cuMemSetAccess(view->va, view->bytes, desc, n);
    return result;
}

/* Link thread, with a context of the device current, while the program is held and its GPU idle. */
static CUresult gm_pin_move(struct gm_pin_job *job)
{
    const struct gm_vmm_handle *handle = job->handle;
    struct gm_borrowed borrowed = {.is_on = false};
    CUresult result = gm_pin_copy(job);
    if (result != CUDA_SUCCESS)
        return result;
    const struct gm_vmm_view *view = handle->views;
    for (; view != NULL && result == CUDA_SUCCESS; view = view->next) {
        result = gm_pin_view(view, job->real);
        if (result != CUDA_SUCCESS)
            break;
    }
    if (result == CUDA_SUCCESS) {
        gm_vmm_pin(job->handle, job->real);
        return CUDA_SUCCESS;
    }
    /* Undo: map the frames again. Their data did not change. */
    for (const struct gm_vmm_view *old = handle->views; old != NULL; old = old->next) {
        gm_real.cuMemUnmap(old->va, old->bytes);
        if (gm_views_fill(old) != CUDA_SUCCESS)
            gm_log(GM_LOG_WARN, "cannot export memory, and cannot map it again");
        if (old == view)
            break;
    }
    for (uint64_t done = 0, chunk; done < handle->bytes; done += chunk) {
        chunk = gm_class_bytes(gm_chunk_next(handle->bytes - done));
        gm_views_allow(handle, handle->home + done, chunk, &borrowed);
    }
    return result;
}

static CUresult gm_pin_work(void *argument)
{
    struct gm_pin_job *job = argument;
    struct gm_borrowed borrowed = {.is_on = false};
    if (!gm_borrow(&borrowed, (uint32_t)job->handle->gpu))
        return CUDA_ERROR_UNKNOWN;
    CUresult result = gm_pin_move(job);
    gm_give_back(&borrowed);
    return result;
}

/* Link thread, which makes all views. Memory that was never mapped was never used: there is nothing
 * to copy or to wait for. NOT_READY: it was mapped. */
static CUresult gm_pin_unused(void *argument)
{
    const struct gm_pin_job *job = argument;
    if (job->handle->was_mapped)
        return CUDA_ERROR_NOT_READY;
    gm_vmm_pin(job->handle, job->real);
    return CUDA_SUCCESS;
}

/* Inside the gate, with the driver's handle and a range for the copy. */
static CUresult gm_pin_held(struct gm_pin_job *job)
{
    if (gm_gate_captures() > 0)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!gm_gate_hold(GM_PIN_PATIENCE))
        return CUDA_ERROR_NOT_READY;
    CUresult result = gm_drain_synchronize(GM_PIN_PATIENCE);
    if (result == CUDA_SUCCESS)
        result = gm_work_run(gm_pin_work, job);
    gm_gate_unhold();
    return result;
}

static CUresult gm_pin_used(struct gm_pin_job *job)
{
    const uint64_t bytes = job->handle->bytes;
    CUresult result = gm_real.cuMemAddressReserve(&job->at, bytes, GM_CHUNK_MIN, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = GM_GATED(gm_pin_held(job));
    gm_real.cuMemAddressFree(job->at, bytes);
    return result;
}

static CUresult gm_pin_now(struct gm_vmm_handle *handle, CUmemGenericAllocationHandle *real)
{
    struct gm_pin_job job = {.handle = handle};
    struct gm_alloc alloc;
    CUresult result = gm_real.cuMemCreate(&job.real, handle->bytes, &handle->prop, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = gm_work_run(gm_pin_unused, &job);
    if (result == CUDA_ERROR_NOT_READY)
        result = gm_pin_used(&job);
    if (result != CUDA_SUCCESS) {
        gm_real.cuMemRelease(job.real);
        return result;
    }
    gm_allocs_take(handle->home, &alloc);
    gm_charge_real(handle->gpu, handle->bytes, true);
    int freed = gm_link_free(handle->home, handle->bytes);
    if (freed != 0 && freed != GM_LINK_LATER)
        gm_log(GM_LOG_WARN, "cannot give back the chunks of exported memory: CUresult %d", freed);
    *real = job.real;
    return CUDA_SUCCESS;
}

CUresult gm_pin(uint64_t value, CUmemGenericAllocationHandle *real)
{
    static atomic_flag is_taken = ATOMIC_FLAG_INIT;
    const struct timespec nap = {.tv_nsec = 200000};
    struct gm_vmm_handle copy, *dead = NULL;
    /* A reference: other threads may release the handle meanwhile. */
    struct gm_vmm_handle *handle = gm_vmm_hold(value);
    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    while (
        atomic_flag_test_and_set(&is_taken)) /* outside the gate: the holder does not wait for us */
        nanosleep(&nap, NULL);
    CUresult result = CUDA_SUCCESS;
    if (gm_vmm_look(value, &copy) && copy.real != 0)
        *real = copy.real;
    else
        result = gm_pin_now(handle, real);
    atomic_flag_clear(&is_taken);
    gm_vmm_release(value, &dead);
    gm_release_handles(dead);
    return result;
}
