/* What the driver and NVML say of this machine's GPUs. Called by doctor.c and unshared.c. Nothing
 * is changed, and no context is made. */
#ifndef GM_DAEMON_CTL_DRIVER_H
#define GM_DAEMON_CTL_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/shm.h"

#define MUX_PROCESSES 256u

struct mux_process {
    int32_t pid;
    uint64_t used; /* bytes; UINT64_MAX: NVML does not say */
};

struct mux_gpu {
    char name[96], uuid[48];
    bool has_vmm, has_fds, has_host_frames, has_mps, has_time_limit;
    int compute_mode;     /* a CUcomputemode */
    char uncounted[128];  /* why NVML does not count what crosses its link; "": it does */
    uint32_t n_processes; /* that use it, as NVML says */
    struct mux_process processes[MUX_PROCESSES];
};

struct mux_driver {
    bool is_loaded;   /* there is a libcuda.so.1 */
    bool is_silent;   /* ... which hangs */
    int error;        /* CUresult of its start */
    char why[160];    /* ... or why it cannot be loaded; "": it works */
    int version;      /* 13000 is CUDA 13.0 */
    char no_nvml[96]; /* "": there is an NVML */
    int n;
    struct mux_gpu gpus[GM_GPUS_MAX];
};

/* Ask them, each for a limited time: 22 s if both hang. */
void mux_ask_driver(struct mux_driver *driver);

/* Ask NVML alone for the processes that use the GPU of this UUID, for computing or for graphics:
 * `processes` of `gpu`. NULL, or why nobody knows: it is not there, or refuses, or gave no answer
 * in 2 s; then it is not asked again for 10 s. */
const char *mux_ask_processes(const char *uuid, struct mux_gpu *gpu);

#endif
