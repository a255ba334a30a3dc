/*
 * The exported dlopen: removes RTLD_DEEPBIND.
 *
 * With that flag a library looks symbols up among its own dependencies first. It would bind to the
 * driver and to dlsym past the shim, and its work could reach memory that is swapped out. Later its
 * bindings could be changed in its tables only, when its constructors have run and threads may be
 * inside. Without the flag the library is bound in the usual order: a symbol that it shares with
 * the program is the program's. GPUMUX_DISABLE=1 keeps the flag for programs that need it.
 *
 * All calls jump to the C library's dlopen, as in dlsym.c: it takes its search paths from its
 * return address. Namespaces of dlmopen have a driver of their own and no memory of gpumux: left
 * alone.
 *
 * Not in the object library that test programs link.
 */
#include "shim/entry/front.h"
#include "shim/entry/procaddr.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/dlversions.h"

/* Read by the assembly: NULL until the first call. */
extern void *_Atomic gm_dlopen_real;
void *_Atomic gm_dlopen_real;

/* Read by the assembly: keep the flag. */
extern bool gm_dlopen_is_off;
bool gm_dlopen_is_off;

/* Called by the assembly below. */
__attribute__((used)) void *gm_dlopen_pick(void);

__attribute__((constructor)) static void gm_dlopen_begin(void)
{
    gm_dlopen_is_off = gm_reach_disabled();
}

static void *open_nothing(const char *file, int mode)
{
    (void)file;
    (void)mode;
    return NULL;
}

/* Where the assembly jumps. */
void *gm_dlopen_pick(void)
{
    void *real = gm_dl_versioned(RTLD_NEXT, "dlopen");
    if (!real)
        real = (void *)open_nothing;
    atomic_store_explicit(&gm_dlopen_real, real, memory_order_relaxed);
    return real;
}

/* dlopen(file, mode): jump to the C library's, without RTLD_DEEPBIND in `mode`. */
_Static_assert(RTLD_DEEPBIND == 8, "the flag");
#if defined(__x86_64__)
GM_FRONT(dlopen,
         "    testl $8, %esi\n"
         "    je 1f\n"
         "    cmpb $0, gm_dlopen_is_off(%rip)\n"
         "    jne 1f\n"
         "    andl $-9, %esi\n",
         "");
#elif defined(__aarch64__)
GM_FRONT(dlopen,
         "    tbz w1, #3, 1f\n"
         "    adrp x16, gm_dlopen_is_off\n"
         "    ldrb w16, [x16, #:lo12:gm_dlopen_is_off]\n"
         "    cbnz w16, 1f\n"
         "    and w1, w1, #0xfffffff7\n",
         "");
#endif
