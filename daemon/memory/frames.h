/*
 * Frames: physical handles, of GPU memory or (for hosted chunks) of host memory.
 *
 * The table (core/table) says which frame belongs to whom; this file holds what a frame is: a
 * cuMemCreate handle; its exported fd, kept for the frame's life so that any program can import it;
 * and the daemon's own mapping, from and to which all copies go, so that no copy waits for a
 * program to map or unmap.
 *
 * Called by the engine on the loop thread (host frames: by its worker). Calls cuda.h and files.h.
 */
#ifndef GM_DAEMON_MEMORY_FRAMES_H
#define GM_DAEMON_MEMORY_FRAMES_H

#include "daemon/memory/cuda.h"
#include <stdatomic.h>
#include <stdint.h>

struct gm_frame_handle {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr va; /* the daemon's mapping; 0: none */
    uint32_t id;    /* on the wire: unique for the life of the daemon */
    int fd;
};

struct gm_frames {
    const struct gm_cuda *cuda;
    CUdevice device;
    atomic_uint next_id;
    uint32_t max;
    struct gm_frame_handle *handles; /* by the table's frame index */
};

/* 0 or -ENOMEM. */
int gm_frames_open(struct gm_frames *frames, const struct gm_cuda *cuda, CUdevice device,
                   uint32_t max);
/* Frees the array; every frame must have been destroyed. */
void gm_frames_close(struct gm_frames *frames);

/* Make `bytes` of GPU memory for frame `index`. On failure nothing is left behind. */
CUresult gm_frames_create(struct gm_frames *frames, uint32_t index, uint64_t bytes);

/* Make `bytes` of host memory on NUMA node `node` for frame `index`. Any thread, for a frame that
 * no other thread knows of yet. */
CUresult gm_frames_create_host(struct gm_frames *frames, uint32_t index, uint64_t bytes, int node);

/* Have the CPU reach a frame of host memory at its `va`, too. Any thread, as above. */
CUresult gm_frames_let_cpu(struct gm_frames *frames, uint32_t index, uint64_t bytes, int node);

/* Give it back. The caller knows that no copy uses it; the driver keeps the memory for as long as
 * any process still holds an import. */
void gm_frames_destroy(struct gm_frames *frames, uint32_t index, uint64_t bytes);

#endif
