/*
 * Where the C library has dlsym and dlopen: under the version that they got when they moved into
 * libc, or their first one on x86-64 or on aarch64. Add a line here for a new architecture.
 */
#ifndef GM_COMMON_DLVERSIONS_H
#define GM_COMMON_DLVERSIONS_H

#include <dlfcn.h>
#include <stddef.h>

/*
 * `name` of the C library, looked up in `library`; with RTLD_NEXT behind the object that this is
 * compiled into, which must export it without a version. NULL: it is not there.
 */
static inline void *gm_dl_versioned(void *library, const char *name)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    void *found = NULL;
    for (size_t i = 0; !found && i < sizeof versions / sizeof versions[0]; i++)
        found = dlvsym(library, name, versions[i]);
    return found;
}

#endif
