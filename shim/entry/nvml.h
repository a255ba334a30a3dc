/*
 * NVML, as far as a program learns from it how much device memory there is: the answer is the one
 * that the same program gets from CUDA (memory/budget.h), since programs compare them. For every
 * other program, and for every other question, NVML is untouched.
 *
 *   which programs  those that initialized CUDA and are connected to the daemon. Like
 *                   cuDeviceTotalMem, the question boots a program that initialized CUDA and made
 *                   no context yet. A program that only reads NVML (nvidia-smi) sees the device as
 *                   it is.
 *   which devices   those that the daemon manages and CUDA shows to this program, found by UUID.
 *
 * The real function always answers first, and its errors stand. The shim never loads NVML, and
 * keeps it open once it was found: its addresses are in the program's hands.
 *
 * The types are NVML's, in their names here; the layout is its ABI, which does not change.
 */
#ifndef GM_SHIM_NVML_H
#define GM_SHIM_NVML_H

#include <stdbool.h>
#include <stdint.h>

typedef struct gm_nvml_handle *gm_nvml_device; /* nvmlDevice_t: opaque */

enum gm_nvml_result { /* nvmlReturn_t, of which these are used */
                      GM_NVML_SUCCESS = 0,
                      GM_NVML_LIBRARY_NOT_FOUND = 12,
                      GM_NVML_FUNCTION_NOT_FOUND = 13,
};

struct gm_nvml_memory { /* nvmlMemory_t: bytes */
    unsigned long long total, free, used;
};
_Static_assert(sizeof(struct gm_nvml_memory) == 24, "nvmlMemory_t");

struct gm_nvml_memory_v2 { /* nvmlMemory_v2_t */
    unsigned int version;  /* judged by the real function */
    unsigned int pad;
    unsigned long long total;
    unsigned long long reserved; /* by the system: total = reserved + used + free */
    unsigned long long free, used;
};
_Static_assert(sizeof(struct gm_nvml_memory_v2) == 40, "nvmlMemory_v2_t");

#define GM_NVML_UUID_MAX 96 /* NVML_DEVICE_UUID_V2_BUFFER_SIZE */

#define GM_NVML(symbol, params) int symbol params;
#include "shim/entry/nvml.def"
#undef GM_NVML

/* The 16 bytes of "GPU-8-4-4-4-12 hexadecimal digits", or of a MIG device's. False: it is none. */
bool gm_nvml_parse_uuid(const char *text, unsigned char uuid[16]);

/*
 * What dlsym.c needs: the wrapper for `found`, which the C library found for `name`, if it is the
 * real function of a row; else NULL. gm_nvml_is_name() says beforehand, without a look at any
 * library, whether a row has that name.
 */
bool gm_nvml_is_name(const char *name);
void *gm_nvml_wrapper(const char *name, const void *found);

/* Find NVML if the process has loaded it. Idempotent; any thread; takes no lock of ours. */
bool gm_nvml_load_present(void);

#endif
