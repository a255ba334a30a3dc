/*
 * Opening the memory of a GPU to other devices: peers.h counts who asked, and the mapper changes
 * what is mapped already. Any thread; waits for the link thread.
 */
#ifndef GM_SHIM_ACCESS_H
#define GM_SHIM_ACCESS_H

#include <cuda.h>
#include <stdint.h>

/* A context of `device` (0 to GM_PEERS_DEVICES - 1) asks for the memory of `gpu`. After a failure
 * nothing was counted. */
CUresult gm_access_open(uint32_t gpu, CUdevice device);

/* It asks no more. */
void gm_access_shut(uint32_t gpu, CUdevice device);

/* Open the memory of `gpu` to a device, for good: a pool with memory there was opened to it. */
void gm_access_open_for_good(uint32_t gpu, CUdevice device);

#endif
