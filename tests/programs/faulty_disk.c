/*
 * A preloaded library with two faults of a disk. Each lasts for as long as the file exists that an
 * environment variable names:
 *
 *   GM_FAULTY_DISK  writing fails with "no space left": a disk that fills up in the middle
 *   GM_FAULTY_READ  reading the first GM_FAULTY_BYTES of a file fails: a disk with a bad spot
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static bool is_faulty(const char *variable)
{
    const char *name = getenv(variable);
    return name && access(name, F_OK) == 0;
}

__attribute__((visibility("default"))) ssize_t pwrite(int fd, const void *bytes, size_t size,
                                                      off_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);

    if (is_faulty("GM_FAULTY_DISK")) {
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
