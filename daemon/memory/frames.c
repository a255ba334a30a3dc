#include "daemon/memory/frames.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/chunk.h"
#include "daemon/memory/files.h"

/*
 * Programs know the frames of all GPUs by these. Whoever gets a new one has no other of that
 * number:
 *
 *   what the keeper holds    is some program's, perhaps: new ones are above (gm_frames_keep)
 *   what has ended           may be given again after a restart. It is nobody's: a frame ends when
 *                            each program that had imported it has said that it dropped it, or has
 *                            ended, and HOLDS of a program that comes back lists what it has then.
 *                            So the ledger need not know the highest that there ever was.
 */
static atomic_uint next_id = 1;

/* Make one frame and see how many files it takes: the driver may open some of its own. If there is
 * no memory for it now, it counts as one. */
static void measure(struct gm_frames *frames)
{
    const uint32_t before = gm_files_count();
    if (gm_frames_create(frames, 0, GM_CHUNK_MIN) != CUDA_SUCCESS)
        return;
    const uint32_t after = gm_files_count();
    gm_files_frame_takes(after > before ? after - before : 1);
    gm_frames_destroy(frames, 0, GM_CHUNK_MIN);
}

int gm_frames_open(struct gm_frames *frames, const struct gm_cuda *cuda, CUdevice device,
                   uint32_t max)
{
    *frames = (struct gm_frames){.cuda = cuda, .device = device};
    frames->handles = calloc(max, sizeof *frames->handles);
    if (!frames->handles)
        return -ENOMEM;
    measure(frames);
    return 0;
}

void gm_frames_keep(struct gm_frames *frames, struct gm_kept *kept, uint32_t gpu)
{
    const uint32_t on_gpu = gm_kept_highest(kept, GM_KEPT_FRAME);
    const uint32_t on_host = gm_kept_highest(kept, GM_KEPT_PIECE);
    const uint32_t above = (on_gpu > on_host ? on_gpu : on_host) + 1;
    if (atomic_load(&next_id) < above)
        atomic_store(&next_id, above);
    frames->kept = kept;
    frames->gpu = gpu;
}

void gm_frames_close(struct gm_frames *frames)
{
    free(frames->handles);
    frames->handles = NULL;
}

/* Export the frame's handle. */
static CUresult export_handle(struct gm_frames *frames, struct gm_frame_handle *frame)
{
    CUresult result = frames->cuda->cuMemExportToShareableHandle(
        &frame->fd, frame->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS)
        return result;
    if (gm_files_is_reserved(frame->fd) || !gm_files_add_frame()) {
        close(frame->fd);
        return CUDA_ERROR_OPERATING_SYSTEM; /* as the driver says when no file is left */
    }
    fcntl(frame->fd, F_SETFD, FD_CLOEXEC);
    frame->id = atomic_fetch_add(&next_id, 1);
    return CUDA_SUCCESS;
}

/* Map it for the daemon. On failure nothing is mapped. */
static CUresult map_frame(struct gm_frames *frames, struct gm_frame_handle *frame, uint64_t bytes)
{
    const struct gm_cuda *cuda = frames->cuda;
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = frames->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    CUresult result = cuda->cuMemAddressReserve(&frame->va, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda->cuMemMap(frame->va, bytes, 0, frame->handle, 0);
    if (result != CUDA_SUCCESS)
        goto free_va;
    result = cuda->cuMemSetAccess(frame->va, bytes, &access, 1);
    if (result == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    cuda->cuMemUnmap(frame->va, bytes);
free_va:
    cuda->cuMemAddressFree(frame->va, bytes);
    frame->va = 0;
    return result;
}

CUdeviceptr gm_frames_reach(struct gm_frames *frames, uint32_t index, uint64_t bytes)
{
    struct gm_frame_handle *frame = &frames->handles[index];
    if (frame->va == 0)
        map_frame(frames, frame, bytes);
    return frame->va;
}

/* Its file is counted. */
static void close_file(struct gm_frame_handle *frame)
{
    close(frame->fd);
    gm_files_drop_frame();
}

CUresult gm_frames_create(struct gm_frames *frames, uint32_t index, uint64_t bytes)
{
    const struct gm_cuda *cuda = frames->cuda;
    struct gm_frame_handle *frame = &frames->handles[index];
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = frames->device},
    };
    *frame = (struct gm_frame_handle){.fd = -1};
    CUresult result = cuda->cuMemCreate(&frame->handle, bytes, &prop, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = export_handle(frames, frame);
    if (result != CUDA_SUCCESS)
        goto release;
    if (gm_kept_put(frames->kept, GM_KEPT_FRAME, frames->gpu, index, frame->id, frame->fd) == 0)
        return CUDA_SUCCESS;
    result = CUDA_ERROR_OPERATING_SYSTEM; /* another process has no file left */
    close_file(frame);
release:
    cuda->cuMemRelease(frame->handle);
    *frame = (struct gm_frame_handle){.fd = -1};
    return result;
}

CUresult gm_frames_import(struct gm_frames *frames, uint32_t index, uint64_t bytes, int fd,
                          uint32_t id)
{
    const struct gm_cuda *cuda = frames->cuda;
    struct gm_frame_handle *frame = &frames->handles[index];
    *frame = (struct gm_frame_handle){.fd = fd, .id = id};
    gm_files_adopt_frame();
    CUresult result = cuda->cuMemImportFromShareableHandle(
        &frame->handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS)
        goto close_fd;
    result = map_frame(frames, frame, bytes);
    if (result == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    cuda->cuMemRelease(frame->handle);
close_fd:
    close_file(frame); /* the keeper holds on: another try may do better */
    *frame = (struct gm_frame_handle){.fd = -1};
    return result;
}

static CUresult adopt(struct gm_frames *frames, uint32_t index, struct gm_hostpool *pool,
                      uint32_t page, uint32_t owner, uint32_t id)
{
    struct gm_frame_handle *frame = &frames->handles[index];
    struct gm_unit_memory unit;
    const CUresult result = gm_hostpool_lend(pool, page, owner, id, &unit);
    *frame = (struct gm_frame_handle){.fd = -1};
    if (result == CUDA_SUCCESS)
        *frame = (struct gm_frame_handle){
            .handle = unit.handle, .va = unit.at, .fd = unit.fd, .id = id, .is_unit = true};
    return result;
}

CUresult gm_frames_adopt(struct gm_frames *frames, uint32_t index, struct gm_hostpool *pool,
                         uint32_t page, uint32_t owner)
{
    return adopt(frames, index, pool, page, owner, atomic_fetch_add(&next_id, 1));
}

CUresult gm_frames_adopt_again(struct gm_frames *frames, uint32_t index, struct gm_hostpool *pool,
                               uint32_t page, uint32_t owner)
{
    const uint32_t id = gm_hostpool_unit_id(pool, page);
    if (id == 0) /* no program has heard of it */
        return gm_frames_adopt(frames, index, pool, page, owner);
    return adopt(frames, index, pool, page, owner, id);
}

void gm_frames_destroy(struct gm_frames *frames, uint32_t index, uint64_t bytes)
{
    const struct gm_cuda *cuda = frames->cuda;
    struct gm_frame_handle *frame = &frames->handles[index];

    if (!frame->is_unit) {
        gm_kept_drop(frames->kept, GM_KEPT_FRAME, frames->gpu, index);
        close_file(frame);
        if (frame->va != 0) {
            cuda->cuMemUnmap(frame->va, bytes);
            cuda->cuMemAddressFree(frame->va, bytes);
        }
        cuda->cuMemRelease(frame->handle);
    }
    *frame = (struct gm_frame_handle){.fd = -1};
}
