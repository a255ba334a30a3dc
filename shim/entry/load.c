/* This may run inside the program's first CUDA call, its dlsym, or a library's constructor: so no
 * malloc, no stdio and no lock, and every thread that stores a word stores the same value. */
#include "shim/entry/load.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

#include "common/dlversions.h"
#include "shim/entry/start.h"

#define GM_LIBCUDA "libcuda.so.1"

static _Atomic bool is_loaded;

/* Read by the assembly of dlsym.c: NULL until the first look-up. */
extern void *_Atomic gm_dlsym_real;
void *_Atomic gm_dlsym_real;

/* Replaces a dlsym that cannot be found: every look-up fails. */
static void *find_nothing(void *handle, const char *name)
{
    (void)handle;
    (void)name;
    return NULL;
}

void *gm_real_dlsym_address(void)
{
    void *real = atomic_load_explicit(&gm_dlsym_real, memory_order_relaxed);

    /* With a version: so it cannot find the shim's own dlsym, which has none. */
    if (!real)
        real = gm_dl_versioned(RTLD_NEXT, "dlsym");
    if (!real)
        real = (void *)find_nothing;
    atomic_store_explicit(&gm_dlsym_real, real, memory_order_relaxed);
    return real;
}

void *gm_real_dlsym(void *handle, const char *name)
{
    void *(*real)(void *, const char *) = (void *(*)(void *, const char *))gm_real_dlsym_address();
    return real(handle, name);
}

static enum gm_boot_state start(void)
{
    gm_real_load(); /* the caller has its own function; another thread may still be loading */
    return gm_start();
}

GM_REAL_STORES
static void load_from(void *library)
{
    gm_boot_by(start); /* first: a thread that finds its own function may boot */
#define GM_LOAD(symbol) GM_REAL_STORE(gm_real.symbol, gm_real_dlsym(library, #symbol))
#define GM_HOOK(api, symbol, since, mode, kind, params, args) GM_LOAD(symbol)
#include "shim/driver/hooks.def"
#undef GM_HOOK
#define GM_OWN(api, symbol, since) GM_LOAD(symbol)
#include "shim/driver/own.def"
#undef GM_OWN
    atomic_store_explicit(&is_loaded, true, memory_order_release);
}

/* The library stays open: the program gets its addresses. */
static bool load(int mode)
{
    if (atomic_load_explicit(&is_loaded, memory_order_acquire))
        return true;
    void *library = dlopen(GM_LIBCUDA, RTLD_LAZY | RTLD_LOCAL | mode);
    if (!library)
        return false;
    load_from(library);
    return true;
}

bool gm_real_load_present(void)
{
    return load(RTLD_NOLOAD);
}

bool gm_real_load(void)
{
    return load(RTLD_NOLOAD) || load(0);
}

CUresult gm_real_missing(void)
{
    return gm_real_load() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NO_DEVICE;
}
