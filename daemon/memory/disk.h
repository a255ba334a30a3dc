/*
 * The file of the disk tier; owns its descriptor. The file is unnamed (O_TMPFILE, or made and
 * unlinked at once) and has mode 0600, so nothing is left behind and no other user can open it. Its
 * blocks are allocated at start where the filesystem can do that, so a full disk shows then.
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
#include <sys/types.h>

#define GM_DISK_ALIGN 4096u /* of memory, offset and length, for direct I/O */

struct gm_system {
    void *(*mmap)(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
    /* Populate a range and keep its contents: madvise, MADV_POPULATE_WRITE. */
    int (*populate)(void *memory, size_t bytes);
    /* A descriptor of a new unnamed file in `dir`, or -1 and errno. */
    int (*open_unnamed)(const char *dir, int flags);
    int (*fallocate)(int fd, int mode, off_t offset, off_t bytes);
    ssize_t (*pread)(int fd, void *memory, size_t bytes, off_t offset);
    ssize_t (*pwrite)(int fd, const void *memory, size_t bytes, off_t offset);
};
extern const struct gm_system gm_system_real;

struct gm_disk {
    const struct gm_system *system;
    int fd;
    bool is_direct;
};

/* Make the file for `bytes` in the folder `dir`. 0, or -errno with one line in `why`. */
int gm_disk_open(struct gm_disk *disk, const struct gm_system *system, const char *dir,
                 uint64_t bytes, char *why, size_t why_size);
/* Take over a file of the daemon before, by its descriptor, and make it have `bytes`, or more. 0,
 * or -errno with one line in `why`; the descriptor is taken in any case. */
int gm_disk_adopt(struct gm_disk *disk, const struct gm_system *system, int fd, uint64_t bytes,
                  char *why, size_t why_size);
void gm_disk_close(struct gm_disk *disk);

/*
 * Write or read all of `bytes` at `offset`; both and `memory` are multiples of GM_DISK_ALIGN. 0 or
 * -errno (-ENOSPC, -EIO; reading: -EIO only).
 */
int gm_disk_write(const struct gm_disk *disk, const void *memory, uint64_t bytes, uint64_t offset);
int gm_disk_read(const struct gm_disk *disk, void *memory, uint64_t bytes, uint64_t offset);

#endif
