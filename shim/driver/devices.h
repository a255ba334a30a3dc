/*
 * The CUDA devices of this program, and which of the daemon's GPUs each of them is.
 *
 * Owns both tables. entry/start.c fills them before the program is live; then any thread reads
 * them. They are empty before that, and if the daemon manages nothing.
 */
#ifndef GM_SHIM_DEVICES_H
#define GM_SHIM_DEVICES_H

#include <cuda.h>
#include <stdint.h>

/* CUDA devices with a higher number are not managed. */
#define GM_DEVICES_MOST 64

/* Boot only: `devices[gpu]` is the CUDA device of that GPU, or -1 if the program does not see it.
 * Of `count` GPUs the first GM_GPUS_MAX count. */
void gm_devices_set(const CUdevice *devices, uint32_t count);

/* Boot only: the program sees `device`, managed or not. The first GM_DEVICES_MOST count. */
void gm_devices_see(CUdevice device);

/* The CUDA devices that the program sees. */
uint32_t gm_device_count(void);
CUdevice gm_device_at(uint32_t i);

/* How many GPUs the daemon manages. */
uint32_t gm_gpu_count(void);

/* The gpumux index of a CUDA device; -1: the daemon does not manage it. */
int gm_gpu_of(CUdevice device);

/* The CUDA device of a gpumux index; -1: none that this program sees. */
CUdevice gm_gpu_device(uint32_t gpu);

#endif
