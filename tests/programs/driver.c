/* The three ways to the driver. See driver.h. */
#include "tests/programs/driver.h"

#include <dlfcn.h>
#include <stddef.h>

#ifndef GM_WAY
#error "GM_WAY is one of GM_WAY_LINKED, GM_WAY_DLSYM, GM_WAY_PROC"
#endif

#define GM_MODE_NONE 0
#define GM_MODE_PTDS 1
#define GM_MODE_PTSZ 2

const char *gm_driver_way(void)
{
    static const char *const names[] = {"linked", "dlsym", "proc"};
    return names[GM_WAY];
}

/*
 * With the shim inside the program (the sanitizer builds), its exported names are in the program
 * itself, and there is no preloaded dlsym that would find them first.
 */
void *gm_driver_find(void *library, const char *symbol)
{
#ifdef GM_SHIM_INSIDE
    void *function = dlsym(RTLD_DEFAULT, symbol);
    if (function != NULL)
        return function;
#endif
    return dlsym(library, symbol);
}

#if GM_WAY == GM_WAY_LINKED

/* cuda.h declares the per-thread forms only to those who compile for them alone. */
#define GM_EXTERN_NONE(symbol)
#define GM_EXTERN_PTDS(symbol) extern __typeof__(symbol) symbol##_ptds;
#define GM_EXTERN_PTSZ(symbol) extern __typeof__(symbol) symbol##_ptsz;
#define GM_CALL(api, symbol, since, stream) GM_EXTERN_##stream(symbol)
#include "tests/programs/driver.def"
#undef GM_CALL

#define GM_OWN_NONE(symbol) symbol
#define GM_OWN_PTDS(symbol) symbol##_ptds
#define GM_OWN_PTSZ(symbol) symbol##_ptsz

int gm_driver_open(struct gm_driver *driver, bool per_thread, const char **why)
{
    *why = NULL;
#define GM_CALL(api, symbol, since, stream)                                                        \
    driver->api = per_thread ? GM_OWN_##stream(symbol) : symbol;
#include "tests/programs/driver.def"
#undef GM_CALL
    return 0;
}

#else

struct gm_row {
    size_t offset;
    const char *api;
    const char *symbol;
    const char *own; /* the symbol whose NULL stream is the thread's own */
    int since;
    int mode;
};

#define GM_NAME_NONE(symbol) #symbol
#define GM_NAME_PTDS(symbol) #symbol "_ptds"
#define GM_NAME_PTSZ(symbol) #symbol "_ptsz"
static const struct gm_row gm_rows[] = {
#define GM_CALL(api, symbol, since, stream)                                                        \
    {offsetof(struct gm_driver, api), #api,  #symbol,                                              \
     GM_NAME_##stream(symbol),        since, GM_MODE_##stream},
#include "tests/programs/driver.def"
#undef GM_CALL
};
#define GM_ROWS (sizeof(gm_rows) / sizeof(gm_rows[0]))

static void store(struct gm_driver *driver, const struct gm_row *row, void *function)
{
    *(void **)((char *)driver + row->offset) = function;
}

#if GM_WAY == GM_WAY_DLSYM

int gm_driver_open(struct gm_driver *driver, bool per_thread, const char **why)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        *why = "libcuda.so.1";
        return -1;
    }
    for (size_t i = 0; i < GM_ROWS; i++) {
        void *function = gm_driver_find(library, per_thread ? gm_rows[i].own : gm_rows[i].symbol);
        if (function == NULL) {
            *why = gm_rows[i].symbol;
            return -1;
        }
        store(driver, &gm_rows[i], function);
    }
    return 0;
}

#else

static const struct {
    const char *name;
    int version;
    unsigned flags;
} gm_lookups[] = {
#define GM_LOOKUP(name, version, flags) {name, version, flags},
#include "tests/programs/cudart_order.def"
#undef GM_LOOKUP
};

typedef CUresult (*gm_get_proc_4)(const char *name, void **function, int version, cuuint64_t flags);
typedef __typeof__(&cuGetProcAddress_v2) gm_get_proc_5;

/*
 * The look-ups of cudart, with answers thrown away but for cuGetProcAddress itself, which it then
 * uses. Names that this driver does not have are not an error there, and are none here.
 */
static gm_get_proc_5 repeat_cudart(gm_get_proc_5 get)
{
    gm_get_proc_5 newest = get;
    for (size_t i = 0; i < sizeof(gm_lookups) / sizeof(gm_lookups[0]); i++) {
        void *function = NULL;
        CUdriverProcAddressQueryResult found;
        CUresult result =
            get(gm_lookups[i].name, &function, gm_lookups[i].version, gm_lookups[i].flags, &found);
        if (result == CUDA_SUCCESS && function != NULL && gm_lookups[i].version == 12000 &&
            __builtin_strcmp(gm_lookups[i].name, "cuGetProcAddress") == 0)
            newest = (gm_get_proc_5)function;
    }
    return newest;
}

int gm_driver_open(struct gm_driver *driver, bool per_thread, const char **why)
{
    *why = "libcuda.so.1";
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL)
        return -1;
    *why = "cuGetProcAddress_v2";
    gm_get_proc_5 get = (gm_get_proc_5)gm_driver_find(library, "cuGetProcAddress_v2");
    if (get == NULL)
        return -1;
    get = repeat_cudart(get);

    /* The 4-argument form must answer as the 5-argument one. */
    void *old = NULL;
    CUdriverProcAddressQueryResult found;
    *why = "cuGetProcAddress, version 11030";
    if (get("cuGetProcAddress", &old, 11030, CU_GET_PROC_ADDRESS_DEFAULT, &found) != CUDA_SUCCESS)
        return -1;
    gm_get_proc_4 get_4 = (gm_get_proc_4)old;

    for (size_t i = 0; i < GM_ROWS; i++) {
        const struct gm_row *row = &gm_rows[i];
        bool own = per_thread && row->mode != GM_MODE_NONE;
        cuuint64_t flags =
            own ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
        int version = own && row->since < 7000 ? 7000 : row->since;
        void *function = NULL, *again = NULL;
        *why = row->api;
        if (get(row->api, &function, version, flags, &found) != CUDA_SUCCESS || function == NULL)
            return -1;
        if (get_4(row->api, &again, version, flags) != CUDA_SUCCESS || again != function)
            return -1;
        store(driver, row, function);
    }
    *why = NULL;
    return 0;
}

#endif
#endif
