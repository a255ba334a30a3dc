/*
 * Frames: physical memory handles, on the GPU or on the host. Owns the exported fd, kept open so
 * that any program can import it; of a frame on the GPU also the handle and the daemon's own
 * mapping. A host frame is a unit of the pinned tier (hostpool.h). All copies use the daemon's
 * mapping, so no copy waits for a program to map or unmap. core/table says whose a frame is.
 *
 * Called by the engine on the loop thread. Calls cuda and files.
 */
#ifndef GM_DAEMON_MEMORY_FRAMES_H
#define GM_DAEMON_MEMORY_FRAMES_H

#include "daemon/memory/cuda.h"
#include <stdbool.h>
#include <stdint.h>

struct gm_frame_handle {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr va; /* the daemon's mapping; 0: none */
    uint32_t id;    /* on the wire: unique for the life of the daemon */
    int fd;
    bool is_unit; /* handle and mapping are the pinned tier's */
};

struct gm_frames {
    const struct gm_cuda *cuda;
    CUdevice device;
    struct gm_frame_handle *handles; /* by the table's frame index */
};

/* 0 or -ENOMEM. */
int gm_frames_open(struct gm_frames *frames, const struct gm_cuda *cuda, CUdevice device,
                   uint32_t max);
/* Frees the array; every frame must have been destroyed. */
void gm_frames_close(struct gm_frames *frames);

/* Make `bytes` of GPU memory for frame `index`. On failure nothing is left behind. */
CUresult gm_frames_create(struct gm_frames *frames, uint32_t index, uint64_t bytes);

/* Frame `index` is the unit of host memory with this handle, which the daemon has mapped at `va`.
 * On failure nothing is left behind. */
CUresult gm_frames_adopt(struct gm_frames *frames, uint32_t index,
                         CUmemGenericAllocationHandle handle, CUdeviceptr va);

/* Release it; no copy uses it any more. The driver keeps the memory until the last import is
 * released too. */
void gm_frames_destroy(struct gm_frames *frames, uint32_t index, uint64_t bytes);

#endif
