/*
 * How a test program reaches the CUDA driver. One source, built three ways, chosen by GM_WAY at
 * compile time:
 *
 *   LINKED  linked with -lcuda: the dynamic linker resolves the exported names
 *   DLSYM   dlopen("libcuda.so.1") and dlsym of each exported name
 *   PROC    as a statically linked cudart does: dlopen, dlsym("cuGetProcAddress_v2"), then hundreds
 * of look-ups by name, version and stream mode before cuInit (cudart_order.def)
 *
 * Everything else in tests/programs calls through struct gm_driver and does not know which way it
 * was.
 */
#ifndef GM_TESTS_DRIVER_H
#define GM_TESTS_DRIVER_H

#include <stdbool.h>
#include <cuda.h>

#define GM_WAY_LINKED 0
#define GM_WAY_DLSYM 1
#define GM_WAY_PROC 2

struct gm_driver {
#define GM_CALL(api, symbol, since, stream) __typeof__(&symbol) api;
#include "tests/programs/driver.def"
#undef GM_CALL
};

/*
 * Fill `driver`. With `per_thread` the calls that take a NULL stream mean the thread's own default
 * stream. Returns 0, or -1 with the missing name in *why (a static text).
 */
int gm_driver_open(struct gm_driver *driver, bool per_thread, const char **why);

/* A symbol of a library of the driver, or of the shim that comes before it. NULL: there is none. */
void *gm_driver_find(void *library, const char *symbol);

/* "linked", "dlsym" or "proc". */
const char *gm_driver_way(void);

#endif
