#include "daemon/memory/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/log.h"
#include "common/size.h"

static int open_unnamed(const char *dir, int flags)
{
    return open(dir, O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static int populate(void *memory, size_t bytes)
{
    return madvise(memory, bytes, MADV_POPULATE_WRITE);
}

const struct gm_system gm_system_real = {
    .mmap = mmap,
    .populate = populate,
    .open_unnamed = open_unnamed,
    .fallocate = fallocate,
    .fstatvfs = fstatvfs,
    .pread = pread,
    .pwrite = pwrite,
};

/* For filesystems without unnamed files. */
static int open_and_unlink(const char *dir, int flags)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/.gpumux-XXXXXX", dir) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = mkostemp(path, O_CLOEXEC | flags);
    int error = errno;
    /* A filesystem may make the file and then refuse to open it as `flags` want. */
    if (unlink(path) != 0 && fd >= 0) {
        error = errno;
        close(fd);
        fd = -1;
    }
    errno = error;
    return fd;
}

/* A new unnamed file, or -errno. */
static int open_file(const struct gm_system *system, const char *dir, int flags)
{
    int fd = system->open_unnamed(dir, flags);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR))
        fd = open_and_unlink(dir, flags);
    return fd < 0 ? -errno : fd;
}

/* Some filesystems accept O_DIRECT and refuse the reads. */
static bool can_read_direct(const struct gm_system *system, int fd)
{
    void *memory = NULL;
    if (posix_memalign(&memory, GM_DISK_ALIGN, GM_DISK_ALIGN) != 0)
        return false;
    bool is_fine = system->pread(fd, memory, GM_DISK_ALIGN, 0) >= 0 || errno != EINVAL;
    free(memory);
    return is_fine;
}

static int open_either_way(struct gm_disk *disk, const char *dir)
{
    int fd = open_file(disk->system, dir, O_DIRECT);
    disk->is_direct = fd >= 0 && can_read_direct(disk->system, fd);
    if (disk->is_direct || (fd < 0 && fd != -EINVAL))
        return fd;
    if (fd >= 0)
        close(fd);
    return open_file(disk->system, dir, O_DSYNC);
}

static const char *advice(const char *dir, int error)
{
    struct stat is;
    switch (error) {
    case ENOENT:
    case EOPNOTSUPP:
        return stat(dir, &is) != 0 ? "; make the folder first" : "; name a folder on a disk";
    case EACCES:
    case EPERM:
        return "; the daemon's user must be able to write there";
    case EROFS:
    case ENOTDIR:
        return "; name a folder that can be written to";
    default:
        return "";
    }
}

/* Make the file, which nobody else can open. 0, or -errno and `why`. */
static int open_private(struct gm_disk *disk, const char *dir, char *why, size_t why_size)
{
    disk->fd = open_either_way(disk, dir);
    if (disk->fd < 0) {
        const int error = -disk->fd;
        snprintf(why, why_size, "--disk %s: cannot make a file there: %s%s", dir, strerror(error),
                 advice(dir, error));
        return -error;
    }
    const int error = fchmod(disk->fd, 0600) != 0 ? -errno : 0;
    if (error) {
        snprintf(why, why_size, "--disk %s: cannot make the file private: %s", dir,
                 strerror(-error));
        gm_disk_close(disk);
    }
    return error;
}

/* What is reserved for root stays so. */
static uint64_t free_of(const struct statvfs *fs)
{
    return (uint64_t)fs->f_bavail * fs->f_frsize;
}

/* Whether it counts its blocks: a tmpfs without a limit has none. */
static bool is_counted(const struct statvfs *fs)
{
    return fs->f_blocks > 0 && fs->f_frsize > 0;
}

/* Of what is free. The rest is for others, and for the filesystem itself. */
static uint64_t promised_of(uint64_t bytes)
{
    return bytes / 20 * 19;
}

uint64_t gm_disk_room(const struct gm_disk *disk, uint32_t parts)
{
    struct statvfs fs;
    struct stat is;
    if (disk->system->fstatvfs(disk->fd, &fs) != 0 || !is_counted(&fs) || fstat(disk->fd, &is) != 0)
        return UINT64_MAX;
    return (uint64_t)is.st_blocks * 512 + promised_of(free_of(&fs)) / parts;
}

uint64_t gm_disk_size(const char *dir, int fd)
{
    struct statvfs fs;
    const int error = fd >= 0 ? fstatvfs(fd, &fs) : statvfs(dir, &fs);
    return error == 0 && is_counted(&fs) ? (uint64_t)fs.f_blocks * fs.f_frsize : UINT64_MAX;
}

/* Whether `bytes`, of which the tier has `held`, are more than can be promised: a line says so. */
static bool lacks_room(const struct gm_system *system, int fd, const char *dir, uint64_t bytes,
                       uint64_t held, char *text, size_t size)
{
    struct statvfs fs;
    char want[32], has[32];
    if (system->fstatvfs(fd, &fs) != 0 || !is_counted(&fs) ||
        bytes <= held + promised_of(free_of(&fs)))
        return false;
    gm_format_size(bytes, want, sizeof want);
    gm_format_size(held + free_of(&fs), has, sizeof has);
    snprintf(text, size,
             "--disk %s: %s asked for, %s free there now: programs are promised what is free, less "
             "5 %%",
             dir, want, has);
    return true;
}

/* Allocate the blocks, if they fit: a disk filled in vain would hurt others. `is`: the file now. */
static int take_room(struct gm_disk *disk, const struct stat *is, const char *dir, uint64_t asked,
                     uint64_t bytes, char *why, size_t why_size)
{
    char text[PATH_MAX + 160], want[32];
    const uint64_t held = (uint64_t)is->st_blocks * 512;
    int result = -1, error = 0;
    gm_format_size(bytes, want, sizeof want);
    if (lacks_room(disk->system, disk->fd, dir, asked, held, text, sizeof text)) {
        gm_log(GM_LOG_WARN, "%s", text);
    } else {
        do
            result = disk->system->fallocate(disk->fd, 0, 0, (off_t)bytes);
        while (result != 0 && errno == EINTR);
        error = result == 0 ? 0 : errno;
    }
    disk->is_reserved = result == 0;
    /* What it got before there was no more: it goes back. */
    if (error && ftruncate(disk->fd, is->st_size) != 0)
        error = errno;
    if (error == EOPNOTSUPP || error == ENOSYS || error == ENOSPC) {
        gm_log(
            GM_LOG_WARN,
            "disk tier: the filesystem of %s cannot reserve %s (%s): the disk may run full later",
            dir, want, strerror(error));
        error = 0;
    }
    if (error == 0 && !disk->is_reserved && ftruncate(disk->fd, (off_t)bytes) != 0)
        error = errno;
    if (error)
        snprintf(why, why_size, "--disk %s: cannot reserve %s: %s; ask for less", dir, want,
                 strerror(error));
    return -error;
}

int gm_disk_try(const char *dir, uint64_t bytes, uint64_t held, char *lack, size_t lack_size,
                char *why, size_t why_size)
{
    struct gm_disk disk = {.system = &gm_system_real};
    const uint64_t size = gm_disk_size(dir, -1), most = bytes < size ? bytes : size;
    lack[0] = '\0';
    int error = open_private(&disk, dir, why, why_size);
    if (error)
        return error;
    if (most <= INT64_MAX && ftruncate(disk.fd, (off_t)most) != 0) {
        error = -errno;
        snprintf(why, why_size, "--disk %s: cannot have so large a file: %s; ask for less", dir,
                 strerror(-error));
    }
    lacks_room(disk.system, disk.fd, dir, bytes, held, lack, lack_size);
    gm_disk_close(&disk);
    return error;
}

int gm_disk_open(struct gm_disk *disk, const struct gm_system *system, const char *dir,
                 uint64_t asked, uint64_t bytes, char *why, size_t why_size)
{
    *disk = (struct gm_disk){.system = system};
    int error = open_private(disk, dir, why, why_size);
    if (error)
        return error;
    error = take_room(disk, &(struct stat){0}, dir, asked, bytes, why, why_size);
    if (error) {
        gm_disk_close(disk);
        return error;
    }
    char text[32];
    gm_log(GM_LOG_INFO, "disk tier: %s in an unnamed file in %s, %s",
           gm_format_size(bytes, text, sizeof text), dir,
           disk->is_direct ? "direct I/O" : "no direct I/O there: through the page cache");
    return 0;
}

int gm_disk_adopt(struct gm_disk *disk, const struct gm_system *system, int fd, uint64_t bytes,
                  char *why, size_t why_size)
{
    struct stat is;
    const int flags = fcntl(fd, F_GETFL);
    *disk = (struct gm_disk){
        .system = system, .fd = fd, .is_direct = flags >= 0 && (flags & O_DIRECT) != 0};
    int error = flags < 0 || fstat(fd, &is) != 0 ? -errno : 0;
    if (error)
        snprintf(why, why_size, "--disk: the file of the daemon before cannot be used: %s",
                 strerror(-error));
    else if (bytes > (uint64_t)is.st_size)
        error =
            take_room(disk, &is, "(the file of the daemon before)", bytes, bytes, why, why_size);
    else
        disk->is_reserved = (uint64_t)is.st_blocks * 512 >= (uint64_t)is.st_size;
    if (error)
        gm_disk_close(disk);
    return error;
}

void gm_disk_close(struct gm_disk *disk)
{
    if (disk->system && disk->fd >= 0)
        close(disk->fd);
    *disk = (struct gm_disk){.fd = -1};
}

int gm_disk_write(const struct gm_disk *disk, const void *memory, uint64_t bytes, uint64_t offset)
{
    const uint64_t from = offset, end = offset + bytes;
    while (offset < end) {
        ssize_t n = disk->system->pwrite(disk->fd, (const char *)memory + (offset - from),
                                         end - offset, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        /* After a short write go on where direct I/O may start; that write tends to fail with the
         * reason. */
        n -= n % GM_DISK_ALIGN;
        if (n == 0)
            return -EIO;
        offset += (uint64_t)n;
    }
    if (!disk->is_direct) /* drop the page cache's copy */
        posix_fadvise(disk->fd, (off_t)from, (off_t)bytes, POSIX_FADV_DONTNEED);
    return 0;
}

int gm_disk_read(const struct gm_disk *disk, void *memory, uint64_t bytes, uint64_t offset)
{
    const uint64_t from = offset, end = offset + bytes;
    while (offset < end) {
        ssize_t n = disk->system->pread(disk->fd, (char *)memory + (offset - from), end - offset,
                                        (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -EIO;
        n -= n % GM_DISK_ALIGN;
        if (n == 0) /* the end of the file, too: nothing was ever written there */
            return -EIO;
        offset += (uint64_t)n;
    }
    if (!disk->is_direct)
        posix_fadvise(disk->fd, (off_t)from, (off_t)bytes, POSIX_FADV_DONTNEED);
    return 0;
}
