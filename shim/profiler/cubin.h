/*
 * Registers of kernels, from the code that the driver loads (a cubin: an ELF file). The driver's
 * own answer may count those of the patches. Pure; the code is checked like any input. Calls the C
 * library only.
 */
#ifndef GM_PROFILER_CUBIN_H
#define GM_PROFILER_CUBIN_H

#include <stddef.h>
#include <stdint.h>

/* Call found(arg, name, registers) for each kernel and function of which the code says it. */
void gm_cubin_read(const void *code, size_t bytes,
                   void (*found)(void *arg, const char *name, uint32_t registers), void *arg);

#endif
