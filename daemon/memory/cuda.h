/*
 * The daemon's only view of the CUDA driver: a struct of function pointers (cuda.def), filled from
 * libcuda.so.1 at start. So the daemon builds and starts without a driver, and can say why it
 * cannot serve. Called by the engine and by this folder. Calls nothing of the daemon.
 */
#ifndef GM_DAEMON_MEMORY_CUDA_H
#define GM_DAEMON_MEMORY_CUDA_H

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL /* declares every versioned symbol by its exact name */
#endif
#include <cuda.h>
#include <stddef.h>

struct gm_cuda {
    void *library;
#define GM_CUDA(symbol) __typeof__(symbol) *symbol;
#include "daemon/memory/cuda.def"
#undef GM_CUDA
};

/* Load the driver and resolve every entry point. 0, or -errno with one line in `why`. */
int gm_cuda_open(struct gm_cuda *cuda, char *why, size_t why_size);
void gm_cuda_close(struct gm_cuda *cuda);

/* Loop thread: make `context` current, unless it is. The engines of several GPUs take turns there.
 */
CUresult gm_cuda_enter(const struct gm_cuda *cuda, CUcontext context);

/* "CUDA_ERROR_OUT_OF_MEMORY"; never NULL. */
const char *gm_cuda_text(const struct gm_cuda *cuda, CUresult result);

#endif
