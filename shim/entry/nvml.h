/*
 * NVML's queries of device memory. A program gets the same answer as from CUDA (memory/budget.h),
 * because programs compare them. In the lists of processes the program has all of its memory, which
 * NVML counts for the daemon that made it; the daemon has that much less. Other programs' memory is
 * the daemon's there. All other queries go to NVML, and so does how busy a process keeps the GPU
 * (nvmlDeviceGetProcessUtilization): kernels run in their program's own context, so that is true.
 *
 *   which programs  those that initialized CUDA and are connected to the daemon. Like
 *                   cuDeviceTotalMem, a query boots a program that initialized CUDA. A program that
 *                   only uses NVML (nvidia-smi) sees the real device.
 *   which devices   those that the daemon manages and CUDA shows to this program, by UUID.
 *
 * The real function answers first, and its errors stand. The shim never loads NVML, and keeps it
 * open once it found it, because the program gets its addresses.
 *
 * The types are NVML's under names of ours. Their layout is its ABI, which does not change.
 * Callers: dlsym.c, and the program. Calls load, boot and the budget.
 */
#ifndef GM_SHIM_NVML_H
#define GM_SHIM_NVML_H

#include <stdbool.h>
#include <stdint.h>

typedef struct gm_nvml_handle *gm_nvml_device; /* nvmlDevice_t: opaque */

enum gm_nvml_result { /* some of nvmlReturn_t */
                      GM_NVML_SUCCESS = 0,
                      GM_NVML_LIBRARY_NOT_FOUND = 12,
                      GM_NVML_FUNCTION_NOT_FOUND = 13,
};

struct gm_nvml_memory { /* nvmlMemory_t: bytes */
    unsigned long long total, free, used;
};
_Static_assert(sizeof(struct gm_nvml_memory) == 24, "nvmlMemory_t");

struct gm_nvml_memory_v2 { /* nvmlMemory_v2_t */
    unsigned int version;  /* checked by the real function */
    unsigned int pad;
    unsigned long long total;
    unsigned long long reserved; /* by the system: total = reserved + used + free */
    unsigned long long free, used;
};
_Static_assert(sizeof(struct gm_nvml_memory_v2) == 40, "nvmlMemory_v2_t");

struct gm_nvml_process_v1 { /* nvmlProcessInfo_v1_t */
    unsigned int pid;
    unsigned long long used; /* bytes, or GM_NVML_UNKNOWN */
};
_Static_assert(sizeof(struct gm_nvml_process_v1) == 16, "nvmlProcessInfo_v1_t");

struct gm_nvml_process { /* nvmlProcessInfo_v2_t, and v3's */
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
};
_Static_assert(sizeof(struct gm_nvml_process) == 24, "nvmlProcessInfo_t");

struct gm_nvml_detail { /* nvmlProcessDetail_v1_t */
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
    unsigned long long protected_bytes;
};
_Static_assert(sizeof(struct gm_nvml_detail) == 32, "nvmlProcessDetail_v1_t");

struct gm_nvml_details { /* nvmlProcessDetailList_v1_t */
    unsigned int version;
    unsigned int mode; /* 0 compute, 1 graphics, 2 MPS */
    unsigned int count;
    struct gm_nvml_detail *details;
};
#define GM_NVML_DETAILS_1 (sizeof(struct gm_nvml_details) | 1u << 24)
_Static_assert(GM_NVML_DETAILS_1 == 0x1000018, "nvmlProcessDetailList_v1");

#define GM_NVML_UNKNOWN UINT64_MAX /* NVML_VALUE_NOT_AVAILABLE */

#define GM_NVML_UUID_MAX 96 /* NVML_DEVICE_UUID_V2_BUFFER_SIZE */

#define GM_NVML(symbol, params) int symbol params;
#include "shim/entry/nvml.def"
#undef GM_NVML

/* The 16 bytes of "GPU-" or "MIG-" and 8-4-4-4-12 hexadecimal digits. False: it is not that. */
bool gm_nvml_parse_uuid(const char *text, unsigned char uuid[16]);

/*
 * For dlsym.c: whether nvml.def has a row of that name. And the wrapper for `found`, the C
 * library's answer for `name`, if it is the real function of a row; else NULL.
 */
bool gm_nvml_is_name(const char *name);
void *gm_nvml_wrapper(const char *name, const void *found);

/* Find NVML if the process has loaded it. Idempotent; any thread; no lock. */
bool gm_nvml_load_present(void);

#endif
