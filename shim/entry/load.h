/*
 * Finding the real driver, and filling gm_real from it. Nothing here allocates, logs or takes a
 * lock of ours. Callers: this room.
 */
#ifndef GM_SHIM_LOAD_H
#define GM_SHIM_LOAD_H

#include "shim/driver/real.h"

/*
 * Fill gm_real from libcuda.so.1, opening the library if the process has not. True when it is
 * filled, now or before. Idempotent; threads may race in it: the first to find an address stores
 * it.
 */
bool gm_real_load(void);

/* The same, but false if the process has not loaded libcuda.so.1: never loads a library. */
bool gm_real_load_present(void);

/*
 * What a call returns whose real function is missing. The program could link only because the shim
 * exports the name. CUDA_ERROR_NO_DEVICE if there is no driver library at all, which every program
 * must expect; else CUDA_ERROR_NOT_SUPPORTED, as newer drivers answer for what they cannot do.
 */
CUresult gm_real_missing(void);

/* The C library's own dlsym, past the one that the shim exports. RTLD_NEXT is what comes behind the
 * shim. `handle` is not RTLD_DEFAULT. */
void *gm_real_dlsym(void *handle, const char *name);

/* Address of the C library's dlsym; never NULL. */
void *gm_real_dlsym_address(void);

#endif
