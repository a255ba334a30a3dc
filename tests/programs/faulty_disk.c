/*
 * A preloaded library with three faults of a disk. Each lasts for as long as the file exists that
 * an environment variable names:
 *
 *   GM_FAULTY_DISK  writing fails with "no space left": a disk that fills up in the middle; or,
 * with GM_FAULTY_PERCENT, so many of its writes fail, in an order that is always the same
 *   GM_FAULTY_READ  reading the first GM_FAULTY_BYTES of a file fails: a disk with a bad spot
 *   GM_FAULTY_FREE  the file says how many MiB the filesystem has free: one that others fill
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <unistd.h>

static bool is_faulty(const char *variable)
{
    const char *name = getenv(variable);
    return name && access(name, F_OK) == 0;
}

static bool is_drawn(void)
{
    static _Atomic unsigned drawn;
    const char *percent = getenv("GM_FAULTY_PERCENT");
    /* The upper bits of multiples of the golden ratio: spread evenly, and never in step with what
     * is written. */
    const unsigned at = (atomic_fetch_add(&drawn, 1) + 1) * 2654435769u >> 16;
    return !percent || at * 100 / 65536 < (unsigned)atoi(percent);
}

__attribute__((visibility("default"))) ssize_t pwrite(int fd, const void *bytes, size_t size,
                                                      off_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);

    if (is_faulty("GM_FAULTY_DISK") && is_drawn()) {
        errno = ENOSPC;
        return -1;
    }
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    return real(fd, bytes, size, at);
}

__attribute__((visibility("default"))) ssize_t pread(int fd, void *bytes, size_t size, off_t at)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    const char *spot = getenv("GM_FAULTY_BYTES");

    if (is_faulty("GM_FAULTY_READ") && spot && at < atoll(spot)) {
        errno = EIO;
        return -1;
    }
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pread");
    return real(fd, bytes, size, at);
}

__attribute__((visibility("default"))) int fstatvfs(int fd, struct statvfs *fs)
{
    static int (*real)(int, struct statvfs *);
    unsigned long long mib = 0;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fstatvfs");
    const int result = real(fd, fs);
    FILE *file = is_faulty("GM_FAULTY_FREE") ? fopen(getenv("GM_FAULTY_FREE"), "re") : NULL;
    if (file && fscanf(file, "%llu", &mib) == 1)
        fs->f_bavail = (mib << 20) / fs->f_frsize;
    if (file)
        fclose(file);
    return result;
}
