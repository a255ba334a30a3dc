/*
 * Frames: physical memory handles, on the GPU or on the host. Owns the exported fd, kept open so
 * that any program can import it; of a frame on the GPU also the handle and the daemon's own
 * mapping. A host frame is a unit of the pinned tier (hostpool.h), which has its descriptor. All
 * copies use the daemon's mapping, so no copy waits for a program to map or unmap. It is made with
 * the first copy: that is three of the driver's calls less while a program starts, and each waits
 * while another process opens its context. core/table says whose a frame is.
 *
 * A frame on the GPU outlives the daemon by its descriptor (kept.h): it is put there before anybody
 * can have data in it, and dropped before it is released.
 *
 * Called by the engine on the loop thread. Calls cuda, files, hostpool and kept.
 */
#ifndef GM_DAEMON_MEMORY_FRAMES_H
#define GM_DAEMON_MEMORY_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/memory/cuda.h"
#include "daemon/memory/hostpool.h"
#include "daemon/memory/kept.h"

struct gm_frame_handle {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr va; /* the daemon's mapping; 0: none yet */
    uint32_t id;    /* on the wire: unique among all that a program can still have */
    int fd;
    bool is_unit; /* handle, mapping and fd are the pinned tier's */
};

struct gm_frames {
    const struct gm_cuda *cuda;
    CUdevice device;
    struct gm_kept *kept;            /* NULL: they do not outlive the daemon */
    uint32_t gpu;                    /* ... as which GPU's */
    struct gm_frame_handle *handles; /* by the table's frame index */
};

/* 0 or -ENOMEM. */
int gm_frames_open(struct gm_frames *frames, const struct gm_cuda *cuda, CUdevice device,
                   uint32_t max);
/* Have what is made from now on outlive the daemon, as frames of this GPU. Before anything that the
 * keeper holds is claimed, of any GPU: no new frame has a number that is in use there. */
void gm_frames_keep(struct gm_frames *frames, struct gm_kept *kept, uint32_t gpu);
/* Frees the array; every frame must have been destroyed. */
void gm_frames_close(struct gm_frames *frames);

/* Make `bytes` of GPU memory for frame `index`. On failure nothing is left behind. */
CUresult gm_frames_create(struct gm_frames *frames, uint32_t index, uint64_t bytes);

/* Where the daemon sees frame `index`, for copies: mapped there until it is destroyed. 0: the
 * driver does not map it now. */
CUdeviceptr gm_frames_reach(struct gm_frames *frames, uint32_t index, uint64_t bytes);

/* Frame `index` is the `bytes` of GPU memory of this descriptor, which the daemon before had made,
 * and which was claimed; programs know it by `id`. The descriptor is taken in any case; on failure
 * nothing else is left behind, but the keeper holds on. */
CUresult gm_frames_import(struct gm_frames *frames, uint32_t index, uint64_t bytes, int fd,
                          uint32_t id);

/* Frame `index` is the unit of host memory at this page, for programs of `owner`: theirs from now
 * on. On failure nothing is left behind. */
CUresult gm_frames_adopt(struct gm_frames *frames, uint32_t index, struct gm_hostpool *pool,
                         uint32_t page, uint32_t owner);
/* The same, of a unit of the daemon before: programs know it by the id that they had heard. */
CUresult gm_frames_adopt_again(struct gm_frames *frames, uint32_t index, struct gm_hostpool *pool,
                               uint32_t page, uint32_t owner);

/* Release it; no copy uses it any more. The driver keeps the memory until the last import is
 * released too. */
void gm_frames_destroy(struct gm_frames *frames, uint32_t index, uint64_t bytes);

#endif
