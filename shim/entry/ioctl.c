/*
 * The exported ioctl: libcuda.so.1 asks the kernel driver through it, and observe/channels learns
 * from what it asks. Everything is passed on untouched to the ioctl that comes behind the shim: the
 * C library's, or that of another preloaded library.
 *
 * What is not the driver's is passed on after one comparison: 1 ns a call. The driver's own
 * requests cost 15 to 20 ns more (bench/gate); the kernel takes microseconds for them.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/driver/rm.h"
#include "shim/entry/load.h"
#include "shim/entry/procaddr.h"
#include "shim/observe/channels.h"

/* Stands in for an ioctl that cannot be found. */
static int gm_ioctl_plain(int fd, unsigned long request, ...)
{
    va_list args;
    va_start(args, request);
    void *arg = va_arg(args, void *);
    va_end(args);
    return (int)syscall(SYS_ioctl, fd, request, arg);
}

static gm_channels_ioctl_call *_Atomic gm_ioctl_real;

/* What comes behind the shim. Threads may race in it: they find the same. */
static gm_channels_ioctl_call *gm_ioctl_find(void)
{
    gm_channels_ioctl_call *found = (gm_channels_ioctl_call *)gm_real_dlsym(RTLD_NEXT, "ioctl");
    if (found == NULL)
        found = gm_ioctl_plain;
    gm_channels_use(found);
    atomic_store_explicit(&gm_ioctl_real, found, memory_order_release);
    return found;
}

/* Early, so that a signal handler need not. */
__attribute__((constructor)) static void gm_ioctl_begin(void)
{
    gm_ioctl_find();
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    va_start(args, request);
    void *arg = va_arg(args, void *);
    va_end(args);
    gm_channels_ioctl_call *next = atomic_load_explicit(&gm_ioctl_real, memory_order_acquire);
    if (__builtin_expect(next == NULL, 0))
        next = gm_ioctl_find();
    if (!GM_RM_IS_OURS(request) || gm_reach_disabled())
        return next(fd, request, arg);
    return gm_channels_ioctl(fd, request, arg);
}
