#include "daemon/memory/frames.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/memory/files.h"

/* Programs know the frames of all GPUs by these. */
static atomic_uint next_id = 1;

int gm_frames_open(struct gm_frames *frames, const struct gm_cuda *cuda, CUdevice device,
                   uint32_t max)
{
    *frames = (struct gm_frames){.cuda = cuda, .device = device};
    frames->handles = calloc(max, sizeof *frames->handles);
    return frames->handles ? 0 : -ENOMEM;
}

void gm_frames_close(struct gm_frames *frames)
{
    free(frames->handles);
    frames->handles = NULL;
}

/* A handle and its exported fd. */
static CUresult create_handle(struct gm_frames *frames, struct gm_frame_handle *frame,
                              uint64_t bytes, CUmemLocation location)
{
    const struct gm_cuda *cuda = frames->cuda;
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = location,
    };
    CUresult result = cuda->cuMemCreate(&frame->handle, bytes, &prop, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda->cuMemExportToShareableHandle(&frame->fd, frame->handle,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS) {
        cuda->cuMemRelease(frame->handle);
        return result;
    }
    if (gm_files_is_kept(frame->fd)) {
        close(frame->fd);
        cuda->cuMemRelease(frame->handle);
        return CUDA_ERROR_OPERATING_SYSTEM; /* as the driver says when no file is left */
    }
    fcntl(frame->fd, F_SETFD, FD_CLOEXEC);
    frame->id = atomic_fetch_add(&next_id, 1);
    return CUDA_SUCCESS;
}

/* A handle in `location` and the daemon's mapping of it, for the copy engines. */
static CUresult create_frame(struct gm_frames *frames, uint32_t index, uint64_t bytes,
                             CUmemLocation location)
{
    const struct gm_cuda *cuda = frames->cuda;
    struct gm_frame_handle *frame = &frames->handles[index];
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = frames->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = create_handle(frames, frame, bytes, location);

    if (result != CUDA_SUCCESS)
        return result;
    result = cuda->cuMemAddressReserve(&frame->va, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        goto close_handle;
    result = cuda->cuMemMap(frame->va, bytes, 0, frame->handle, 0);
    if (result != CUDA_SUCCESS)
        goto free_va;
    result = cuda->cuMemSetAccess(frame->va, bytes, &access, 1);
    if (result != CUDA_SUCCESS)
        goto unmap;
    return CUDA_SUCCESS;

unmap:
    cuda->cuMemUnmap(frame->va, bytes);
free_va:
    cuda->cuMemAddressFree(frame->va, bytes);
close_handle:
    close(frame->fd);
    cuda->cuMemRelease(frame->handle);
    return result;
}

CUresult gm_frames_create(struct gm_frames *frames, uint32_t index, uint64_t bytes)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = frames->device};
    return create_frame(frames, index, bytes, location);
}

CUresult gm_frames_create_host(struct gm_frames *frames, uint32_t index, uint64_t bytes, int node)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node};
    return create_frame(frames, index, bytes, location);
}

CUresult gm_frames_let_cpu(struct gm_frames *frames, uint32_t index, uint64_t bytes, int node)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return frames->cuda->cuMemSetAccess(frames->handles[index].va, bytes, &access, 1);
}

void gm_frames_destroy(struct gm_frames *frames, uint32_t index, uint64_t bytes)
{
    const struct gm_cuda *cuda = frames->cuda;
    struct gm_frame_handle *frame = &frames->handles[index];

    if (frame->va) {
        cuda->cuMemUnmap(frame->va, bytes);
        cuda->cuMemAddressFree(frame->va, bytes);
    }
    close(frame->fd);
    cuda->cuMemRelease(frame->handle);
    *frame = (struct gm_frame_handle){.fd = -1};
}
