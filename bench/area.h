/*
 * Areas of frames as the daemon has them: runs of 32 MiB handles on the GPU or in pinned host
 * memory (host-NUMA handles, which the processor and the copy engines both reach), mapped side by
 * side. For the benches that measure what such memory can do. Every failure ends the program with
 * code 3 and a line.
 */
#ifndef GM_BENCH_AREA_H
#define GM_BENCH_AREA_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/memory/cuda.h"

struct gm_device {
    struct gm_cuda cuda;
    CUdevice device;
    CUcontext context;
    char name[128];
    int version; /* of CUDA, as the driver says: 13000 */
    int node;    /* NUMA node next to the GPU */
};

struct gm_area {
    CUdeviceptr at; /* of host memory: valid for the processor too */
    uint64_t bytes; /* a multiple of 32 MiB */
    CUmemGenericAllocationHandle *handles;
};

/* Load the driver, and make GPU 0's primary context current. Code 3 and a line if there is no GPU.
 */
void gm_device_open(struct gm_device *device);
void gm_device_close(struct gm_device *device);

/* End the program unless `result` is success. */
void gm_device_check(const struct gm_device *device, CUresult result, const char *call);
#define GM_NEED(device, call, ...) gm_device_check(device, (device)->cuda.call(__VA_ARGS__), #call)

/* `bytes` are rounded up to 32 MiB. */
void gm_area_make(const struct gm_device *device, struct gm_area *area, uint64_t bytes,
                  bool is_host);
void gm_area_free(const struct gm_device *device, struct gm_area *area);

#endif
