#include "daemon/service/mps_folders.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* Open what is below `parent`. It follows no link and enters no other file system: the user made
 * what is there, and what it leads to may not answer. */
static int open_below(int parent, const char *name, uint64_t flags)
{
    const struct open_how how = {.flags = flags | O_NOFOLLOW | O_CLOEXEC,
                                 .resolve =
                                     RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV | RESOLVE_BENEATH};
    return (int)syscall(SYS_openat2, parent, name, &how, sizeof how);
}

/* The folder `name` in `parent`, of that user. Returns its descriptor or -errno. */
static int open_folder(int parent, const char *name, uid_t uid, gid_t gid, mode_t mode)
{
    struct stat found;
    const bool is_made = mkdirat(parent, name, 0700) == 0;
    if (!is_made && errno != EEXIST)
        return -errno;
    int fd = parent == AT_FDCWD ? open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                                : open_below(parent, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return -errno;
    int error = fstat(fd, &found) ? -errno : 0;
    if (error == 0 && !is_made && (found.st_uid != uid || (found.st_mode & 022) != 0))
        error = -EPERM;
    if (error == 0 && found.st_uid != uid && fchown(fd, uid, gid) != 0)
        error = -errno;
    if (error == 0 && fchmod(fd, mode) != 0)
        error = -errno;
    if (error) {
        close(fd);
        return error;
    }
    return fd;
}

int gm_mps_folders_make(const char *path, uid_t uid, gid_t gid)
{
    char name[16];
    snprintf(name, sizeof name, "%u", uid);
    int base = open_folder(AT_FDCWD, path, geteuid(), getegid(), 0711);
    if (base < 0)
        return base;
    int own = open_folder(base, name, geteuid(), getegid(), 0711);
    close(base);
    if (own < 0)
        return own;
    int pipe = open_folder(own, "pipe", uid, gid, 0700);
    int log = pipe < 0 ? pipe : open_folder(own, "log", uid, gid, 0700);
    close(own);
    if (pipe >= 0)
        close(pipe);
    if (log >= 0)
        close(log);
    return log < 0 ? log : 0;
}

void gm_mps_folders_remove(const char *path, uid_t uid)
{
    char name[16];
    snprintf(name, sizeof name, "%u", uid);
    const int base = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int own = base < 0 ? -1 : open_below(base, name, O_PATH | O_DIRECTORY);
    if (own >= 0) {
        unlinkat(own, "pipe", AT_REMOVEDIR);
        unlinkat(own, "log", AT_REMOVEDIR);
        close(own);
        unlinkat(base, name, AT_REMOVEDIR);
    }
    if (base >= 0)
        close(base);
}

bool gm_mps_listens(const char *base, const char *folder, uid_t *owner)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct stat found;
    char name[64];
    bool is_there = false;
    snprintf(name, sizeof name, "%s/control", folder);
    const int parent = open(base, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int file = parent < 0 ? -1 : open_below(parent, name, O_PATH);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (file >= 0 && fd >= 0 && fstat(file, &found) == 0) {
        *owner = found.st_uid;
        snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d", file);
        is_there = connect(fd, (const struct sockaddr *)&at, sizeof at) == 0 || errno == EPROTOTYPE;
    }
    if (fd >= 0)
        close(fd);
    if (file >= 0)
        close(file);
    if (parent >= 0)
        close(parent);
    return is_there;
}
