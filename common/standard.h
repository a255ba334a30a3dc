/*
 * The three standard descriptors, which some launchers leave closed. Then the next file that is
 * opened gets such a number, and whoever writes an error message writes it there; libuv aborts when
 * it closes one. main calls this before anything else; calls nothing but the C library.
 */
#ifndef GM_COMMON_STANDARD_H
#define GM_COMMON_STANDARD_H

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Open those that are closed on /dev/null: in this process only, a program that it executes finds
 * them as they were. If that cannot be, the process ends with `code`: there is nobody to tell. */
static inline void gm_open_standard(int code)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            continue;
        /* The lowest free number is this one. Some folders have no /dev: then what cannot be
         * written will do. */
        if (open("/dev/null", O_RDWR | O_CLOEXEC) != fd && open("/", O_RDONLY | O_CLOEXEC) != fd)
            _exit(code);
    }
}

#endif
