/*
 * Writes a file beside its place and then renames it: who reads it has a whole one, a disk that is
 * full leaves what was there, and no link is followed. Called by profile.c and trace.c.
 */
#include "daemon/ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *mux_file_error(int error)
{
    return error == EEXIST || error == ELOOP ? "there is a link, or no file: choose another"
                                             : strerror(error);
}

FILE *mux_begin_file(struct mux_file *file, const char *path, mode_t mode)
{
    struct stat found;
    *file = (struct mux_file){.path = path};
    const int length = snprintf(file->new, sizeof file->new, "%s.%d", path, (int)getpid());
    if (length < 0 || (size_t)length >= sizeof file->new) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    if (lstat(path, &found) == 0 && !S_ISREG(found.st_mode)) {
        errno = S_ISDIR(found.st_mode) ? EISDIR : EEXIST;
        return NULL;
    }
    unlink(file->new); /* of one that did not end well */
    const int fd = open(file->new, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0)
        return NULL;
    if (fchmod(fd, mode) == 0 && (file->file = fdopen(fd, "w")) != NULL)
        return file->file;
    const int error = errno;
    close(fd);
    unlink(file->new);
    errno = error;
    return NULL;
}

bool mux_end_file(struct mux_file *file, bool is_good)
{
    const bool is_whole = fflush(file->file) == 0 && !ferror(file->file);
    int error = errno;
    if (fclose(file->file) == 0 && is_whole && is_good) {
        if (rename(file->new, file->path) == 0)
            return true;
        error = errno;
    } else if (is_whole) {
        error = errno;
    }
    unlink(file->new);
    errno = error;
    return false;
}
