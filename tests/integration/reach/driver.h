/*
 * What the reach tests know of their test double of libcuda.so.1 beyond cuda.h. Found with dlsym:
 * the program does not link the library.
 */
#ifndef GM_REACH_DRIVER_H
#define GM_REACH_DRIVER_H

#include <cuda.h>

/* The double's own resolver under a name that nobody hooks: what it answers without the shim. */
CUresult reach_resolve(const char *symbol, void **pfn, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *status);

/* From this version on the double has a cuLaunchKernel of another ABI, which nobody knows. */
#define GM_REACH_FUTURE 99000

/* What its functions return: the number of their row in hooks.def plus this. */
#define GM_REACH_FIRST 5000

#endif
