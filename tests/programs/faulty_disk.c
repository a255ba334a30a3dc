/*
 * A preloaded library that makes writing files fail with "no space left" for as long as the file that
 * GM_FAULTY_DISK names exists: a disk that fills up in the middle, and is emptied later.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

__attribute__((visibility("default"))) ssize_t pwrite(int fd, const void *bytes, size_t size,
                                                      off_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    const char *name = getenv("GM_FAULTY_DISK");

    if (name && access(name, F_OK) == 0) {
        errno = ENOSPC;
        return -1;
    }
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    return real(fd, bytes, size, at);
}
