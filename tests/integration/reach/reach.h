/* What the reach programs share: checks that go on, and who owns an address. */
#ifndef GM_REACH_H
#define GM_REACH_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int gm_failed;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            gm_failed++;                                                                           \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #condition);                                 \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)

/* The last part of the file that `address` is in; "" if in none. */
static inline const char *gm_owner(const void *address)
{
    Dl_info info;
    if (!address || !dladdr(address, &info) || !info.dli_fname)
        return "";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

/* Where the wrappers are: in the preloaded library, or linked into the program (sanitizer builds).
 */
#ifndef GM_REACH_SHIM
#define GM_REACH_SHIM "libgpumux.so"
#endif

static inline bool gm_in_shim(const void *address)
{
    return strcmp(gm_owner(address), GM_REACH_SHIM) == 0;
}

static inline bool gm_in_driver(const void *address)
{
    return strncmp(gm_owner(address), "libcuda.so", 10) == 0;
}

/* Is `address` the shim's function of exactly this name? */
static inline bool gm_is_wrapper(const void *address, const char *symbol)
{
    Dl_info info;
    return gm_in_shim(address) && dladdr(address, &info) && info.dli_sname &&
           info.dli_saddr == address && strcmp(info.dli_sname, symbol) == 0;
}

#endif
