#include "daemon/memory/hostpool_pieces.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/memory/files.h"

/* Slabs of a pool with is_registered: `is_held` says that there is memory, `is_mapped` that it is
 * registered. */
static CUresult release_registered(struct gm_hostpool *pool, struct gm_piece *slab, void *at)
{
    CUresult result = CUDA_SUCCESS;
    if (slab->is_mapped)
        result = pool->cuda->cuMemHostUnregister(at);
    if (result != CUDA_SUCCESS)
        return result;
    slab->is_mapped = false;
    if (slab->is_held &&
        mmap(at, GM_SLAB_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
             -1, 0) == MAP_FAILED)
        return CUDA_ERROR_OPERATING_SYSTEM;
    slab->is_held = false;
    return CUDA_SUCCESS;
}

static CUresult make_registered(struct gm_hostpool *pool, struct gm_piece *slab, void *at)
{
    CUresult result = CUDA_SUCCESS;
    if (!slab->is_held && mmap(at, GM_SLAB_BYTES, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    slab->is_held = true;
    if (!slab->is_mapped)
        result = pool->cuda->cuMemHostRegister_v2(at, GM_SLAB_BYTES, CU_MEMHOSTREGISTER_PORTABLE);
    slab->is_mapped = result == CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        release_registered(pool, slab, at);
    return result;
}

static void close_file(struct gm_piece *piece)
{
    if (piece->fd == 0)
        return;
    close(piece->fd);
    piece->fd = 0;
    if (piece->has_frames_file)
        gm_files_drop_frame();
    else
        gm_files_drop_slab();
}

/* Files of slabs are held where each has one. */
static bool has_frames_file(const struct gm_hostpool *pool, uint32_t page)
{
    return !pool->kept || gm_piece_class(page) != GM_WHOLE;
}

CUresult gm_piece_export(struct gm_hostpool *pool, uint32_t page)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    int fd = 0;
    if (piece->fd != 0)
        return CUDA_SUCCESS;
    const CUresult result = pool->cuda->cuMemExportToShareableHandle(
        &fd, piece->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS)
        return result;
    piece->has_frames_file = has_frames_file(pool, page);
    if (gm_files_is_reserved(fd) || (piece->has_frames_file && !gm_files_add_frame())) {
        close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM; /* as the driver says when no file is left */
    }
    if (!piece->has_frames_file)
        gm_files_add_slab();
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    piece->fd = fd;
    return CUDA_SUCCESS;
}

CUresult gm_piece_release(struct gm_hostpool *pool, uint32_t page)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    const uint64_t bytes = gm_class_bytes(gm_piece_class(page));
    const CUdeviceptr at = gm_piece_address(pool, page);
    CUresult result = CUDA_SUCCESS;
    if (pool->is_registered)
        return release_registered(pool, piece, (void *)at);
    if (piece->is_mapped)
        result = pool->cuda->cuMemUnmap(at, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    piece->is_mapped = false;
    if (piece->is_held)
        result = pool->cuda->cuMemRelease(piece->handle);
    if (result != CUDA_SUCCESS)
        return result;
    piece->is_held = false;
    close_file(piece);
    if (piece->at != 0)
        pool->cuda->cuMemAddressFree(piece->at, bytes);
    piece->at = 0;
    return CUDA_SUCCESS;
}

/* Where it lies, with access to it for the GPU and the daemon. */
static CUresult map_piece(struct gm_hostpool *pool, uint32_t page)
{
    const struct gm_cuda *cuda = pool->cuda;
    struct gm_piece *piece = gm_piece_of(pool, page);
    const uint64_t bytes = gm_class_bytes(gm_piece_class(page));
    const CUdeviceptr at = gm_piece_address(pool, page);
    const CUmemAccessDesc access[2] = {
        {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = pool->device},
         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = pool->node},
         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
    };
    CUresult result = CUDA_SUCCESS;
    if (!piece->is_mapped)
        result = cuda->cuMemMap(at, bytes, 0, piece->handle, 0);
    piece->is_mapped = result == CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? cuda->cuMemSetAccess(at, bytes, access, 2) : result;
}

static CUresult reserve_piece(struct gm_hostpool *pool, uint32_t page)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    const uint64_t bytes = gm_class_bytes(gm_piece_class(page));
    if (gm_piece_class(page) == GM_WHOLE || piece->at != 0)
        return CUDA_SUCCESS;
    const CUresult result = pool->cuda->cuMemAddressReserve(&piece->at, bytes, bytes, 0, 0);
    if (result != CUDA_SUCCESS)
        piece->at = 0;
    return result;
}

CUresult gm_piece_make(struct gm_hostpool *pool, uint32_t page)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = pool->node},
    };
    if (pool->is_registered)
        return make_registered(pool, piece, (void *)gm_piece_address(pool, page));
    CUresult result = reserve_piece(pool, page);
    if (result != CUDA_SUCCESS)
        return result;
    if (!piece->is_held)
        result =
            pool->cuda->cuMemCreate(&piece->handle, gm_class_bytes(gm_piece_class(page)), &prop, 0);
    piece->is_held = result == CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = map_piece(pool, page);
    if (result == CUDA_SUCCESS && pool->kept)
        result = gm_piece_export(pool, page);
    if (result != CUDA_SUCCESS)
        gm_piece_release(pool, page);
    return result;
}

bool gm_piece_import(struct gm_hostpool *pool, uint32_t page, int fd)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    piece->fd = fd;
    piece->has_frames_file = has_frames_file(pool, page);
    if (piece->has_frames_file)
        gm_files_adopt_frame();
    else
        gm_files_add_slab();
    CUresult result = reserve_piece(pool, page);
    if (result == CUDA_SUCCESS) {
        result = pool->cuda->cuMemImportFromShareableHandle(
            &piece->handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        piece->is_held = result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS)
        result = map_piece(pool, page);
    if (result != CUDA_SUCCESS)
        gm_piece_release(pool, page);
    return result == CUDA_SUCCESS;
}
