/*
 * Finds dlsym and dlopen of the C library by version: the one from their move into libc, or the
 * first one of x86-64 or aarch64. Add a version for a new architecture. Used by shim/entry.
 */
#ifndef GM_COMMON_DLVERSIONS_H
#define GM_COMMON_DLVERSIONS_H

#include <dlfcn.h>
#include <stddef.h>

/* Look `name` up in `library`. With RTLD_NEXT the search starts behind the calling object, which
 * must export `name` without a version. NULL: not found. */
static inline void *gm_dl_versioned(void *library, const char *name)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    void *found = NULL;
    for (size_t i = 0; !found && i < sizeof versions / sizeof versions[0]; i++)
        found = dlvsym(library, name, versions[i]);
    return found;
}

#endif
