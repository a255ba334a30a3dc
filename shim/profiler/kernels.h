/*
 * What the profiler knows of functions: names, parameters, hashes, registers. The driver is asked
 * once for a handle, from within the callback of a launch call: before the driver has begun it.
 * Registers come from the code (cubin.h) when its module is loaded.
 *
 * Owns the table of functions, which only grows, and that of registers, each under a lock. Any
 * thread.
 */
#ifndef GM_PROFILER_KERNELS_H
#define GM_PROFILER_KERNELS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/profile.h"

struct gm_function {
    struct gm_function *next;
    CUfunction handle;
    uint32_t generation; /* handles end with modules */
    uint64_t hash, launches;
    char *name;
    uint32_t n, bytes; /* parameters, and what they take */
    struct gm_kernel_parameter *parameters;
};

/* Find the driver's functions. False: the driver is not loaded, or too old. */
bool gm_kernels_start(void);

/* The function, or NULL: the driver does not say what it is. */
struct gm_function *gm_kernels_find(CUfunction handle);

/* Lay the arguments of a launch out as the kernel sees them, in `to` of GM_ARGUMENT_BYTES. Returns
 * how many bytes these are. */
uint32_t gm_kernels_arguments(const struct gm_function *function, void **params, void **extra,
                              unsigned char *to);

/* A module was loaded, with this code; a module ends. */
void gm_kernels_loaded(CUmodule module, const void *code, size_t bytes);
void gm_kernels_ended(CUmodule module);

/* Registers of a thread; 0: not known. */
uint32_t gm_kernels_registers(CUmodule module, const char *name);

#endif
