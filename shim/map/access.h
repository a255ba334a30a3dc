/*
 * Opens the memory of a GPU to other devices. Owns which memory is open for good. Callers: handlers
 * and pools, any thread; waits for the link thread. Calls peers (count), the mapper and work.
 */
#ifndef GM_SHIM_ACCESS_H
#define GM_SHIM_ACCESS_H

#include <cuda.h>
#include <stdint.h>

/* A context of `device` (below GM_PEERS_DEVICES) gets access to the memory of `gpu`. A failure
 * changes nothing. */
CUresult gm_access_open(uint32_t gpu, CUdevice device);

/* It gives the access up. */
void gm_access_shut(uint32_t gpu, CUdevice device);

/* Open the memory of `gpu` to a device for good, because a pool was opened to it. */
void gm_access_open_for_good(uint32_t gpu, CUdevice device);

#endif
