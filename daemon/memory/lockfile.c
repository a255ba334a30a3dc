/* Lock files: see lockfile.h. */
#include "daemon/memory/lockfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The pid that the holder of the lock wrote, or 0. */
static pid_t read_holder(int fd)
{
    char text[24];
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    long pid = strtol(text, NULL, 10);
    return pid > 0 ? (pid_t)pid : 0;
}

/* Its last holder removes the file: if ours is no longer at the path, try again. */
int gm_lockfile_take(const char *path, pid_t *holder)
{
    *holder = 0;
    for (int attempt = 0; attempt < 100; attempt++) {
        struct stat ours, theirs;
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (fd < 0)
            return -errno;
        if (flock(fd, LOCK_EX | LOCK_NB)) {
            int error = -errno;
            *holder = read_holder(fd);
            close(fd);
            return error;
        }
        if (fstat(fd, &ours) == 0 && lstat(path, &theirs) == 0 && ours.st_ino == theirs.st_ino &&
            ours.st_dev == theirs.st_dev) {
            if (ftruncate(fd, 0) == 0)
                dprintf(fd, "%ld\n", (long)getpid());
            return fd;
        }
        close(fd);
    }
    return -EBUSY;
}

void gm_lockfile_drop(const char *path, int fd)
{
    unlink(path); /* while we hold it: see gm_lockfile_take */
    close(fd);
}
