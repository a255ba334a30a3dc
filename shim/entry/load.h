/*
 * Finds the real driver and fills gm_real. Nothing here allocates, logs or locks. Callers: this
 * room.
 */
#ifndef GM_SHIM_LOAD_H
#define GM_SHIM_LOAD_H

#include "shim/driver/real.h"

/* Fill gm_real from libcuda.so.1, and load the library if necessary. True if gm_real is filled.
 * Idempotent; any thread. */
bool gm_real_load(void);

/* The same, but never load the library: false if the process has not loaded it. */
bool gm_real_load_present(void);

/*
 * The result of a call that the driver lacks, which the program could link only because the shim
 * exports it. CUDA_ERROR_NO_DEVICE if there is no driver library, which every program must expect;
 * else CUDA_ERROR_NOT_SUPPORTED.
 */
CUresult gm_real_missing(void);

/* The C library's dlsym. RTLD_NEXT searches behind the shim. Not for RTLD_DEFAULT. */
void *gm_real_dlsym(void *handle, const char *name);

/* Address of the C library's dlsym; never NULL. */
void *gm_real_dlsym_address(void);

#endif
