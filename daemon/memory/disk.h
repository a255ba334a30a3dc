/*
 * The file of the disk tier; owns its descriptor. The file is unnamed (O_TMPFILE, or made and
 * unlinked at once) and has mode 0600, so nothing is left behind and no other user can open it. Its
 * blocks are allocated at start where they fit and the filesystem can do that. Else the file gets
 * them as it is written, and others may fill the disk before: gm_disk_room says what there is now.
 *
 * Direct I/O keeps a second copy out of the page cache. Filesystems without it get synchronous
 * writes (O_DSYNC), so that an error shows before the source is freed.
 *
 * With its descriptor the file outlives the daemon (kept.h): the next one takes it over.
 *
 * Called by stores; any thread may read and write. The system calls are pointers so that tests can
 * make them fail.
 */
#ifndef GM_DAEMON_MEMORY_DISK_H
#define GM_DAEMON_MEMORY_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#define GM_DISK_ALIGN 4096u /* of memory, offset and length, for direct I/O */

struct gm_system {
    void *(*mmap)(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
    /* Populate a range and keep its contents: madvise, MADV_POPULATE_WRITE. */
    int (*populate)(void *memory, size_t bytes);
    /* A descriptor of a new unnamed file in `dir`, or -1 and errno. */
    int (*open_unnamed)(const char *dir, int flags);
    int (*fallocate)(int fd, int mode, off_t offset, off_t bytes);
    int (*fstatvfs)(int fd, struct statvfs *fs);
    ssize_t (*pread)(int fd, void *memory, size_t bytes, off_t offset);
    ssize_t (*pwrite)(int fd, const void *memory, size_t bytes, off_t offset);
};
extern const struct gm_system gm_system_real;

struct gm_disk {
    const struct gm_system *system;
    int fd;
    bool is_direct;
    bool is_reserved; /* it has all its blocks */
};

/* Whether a file can be made in `dir`, as gm_disk_open does; it is gone again. 0, or -errno with
 * one line in `why`. `held` bytes of the filesystem are the tier's already. If `bytes` are more
 * than can be promised, `lack` is a line that says so, else "". */
int gm_disk_try(const char *dir, uint64_t bytes, uint64_t held, char *lack, size_t lack_size,
                char *why, size_t why_size);

/* Make the file for `bytes` in the folder `dir`. `asked` is what the options say, which may be more
 * than the filesystem has. 0, or -errno with one line in `why`. */
int gm_disk_open(struct gm_disk *disk, const struct gm_system *system, const char *dir,
                 uint64_t asked, uint64_t bytes, char *why, size_t why_size);
/* Take over a file of the daemon before, by its descriptor, and make it have `bytes`, or more. 0,
 * or -errno with one line in `why`; the descriptor is taken in any case. */
int gm_disk_adopt(struct gm_disk *disk, const struct gm_system *system, int fd, uint64_t bytes,
                  char *why, size_t why_size);
void gm_disk_close(struct gm_disk *disk);

/* Bytes that the file can have: those that it has, and of what is free, less 5 %, a part: `parts`
 * files are on this filesystem. UINT64_MAX: nobody can tell. May wait for the disk. */
uint64_t gm_disk_room(const struct gm_disk *disk, uint32_t parts);
/* Bytes that the filesystem of `dir`, or of `fd` unless that is -1, has in all. Likewise. */
uint64_t gm_disk_size(const char *dir, int fd);

/*
 * Write or read all of `bytes` at `offset`; both and `memory` are multiples of GM_DISK_ALIGN. 0 or
 * -errno (-ENOSPC, -EIO; reading: -EIO only).
 */
int gm_disk_write(const struct gm_disk *disk, const void *memory, uint64_t bytes, uint64_t offset);
int gm_disk_read(const struct gm_disk *disk, void *memory, uint64_t bytes, uint64_t offset);

#endif
