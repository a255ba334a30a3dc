/* Open files: see files.h. */
#include "daemon/memory/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

static uint32_t limit = UINT32_MAX;
static uint32_t for_frames = UINT32_MAX;
static uint32_t of_frame = 1;
static atomic_uint frames, slabs;
static uint32_t for_slabs, by_keeper = UINT32_MAX;

void gm_files_init(uint64_t most)
{
    limit = most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}

uint32_t gm_files_limit(void)
{
    return limit;
}

uint32_t gm_files_reserved(void)
{
    return limit / 4 < GM_FILES_RESERVED ? limit / 4 : GM_FILES_RESERVED;
}

/* ... and are not held for slabs. */
static uint32_t left_now(void)
{
    const uint32_t left = gm_files_left(), made = atomic_load(&slabs);
    const uint32_t held = for_slabs > made ? for_slabs - made : 0;
    return left > held ? left - held : 0;
}

uint32_t gm_files_divide(void)
{
    const uint32_t left = left_now() + atomic_load(&frames) * of_frame, programs = left / 3;
    const uint32_t kept = by_keeper - for_slabs; /* programs have some there, too */
    for_frames = (left - programs) / of_frame;
    if (by_keeper < UINT32_MAX && for_frames > kept - kept / 3)
        for_frames = kept - kept / 3;
    return programs;
}

bool gm_files_hold_slabs(uint32_t n, uint32_t kept)
{
    if (n > kept / 4 || (n != for_slabs && n > gm_files_left() / 4))
        return false;
    for_slabs = n;
    by_keeper = kept;
    return true;
}

void gm_files_add_slab(void)
{
    atomic_fetch_add(&slabs, 1);
}

void gm_files_drop_slab(void)
{
    atomic_fetch_sub(&slabs, 1);
}

uint32_t gm_files_count(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint32_t n = 0;
    while (folder && readdir(folder))
        n++;
    if (folder)
        closedir(folder);
    return n;
}

void gm_files_frame_takes(uint32_t n)
{
    of_frame = n > 0 ? n : 1;
}

uint32_t gm_files_for_frames(void)
{
    return for_frames;
}

bool gm_files_add_frame(void)
{
    if (atomic_fetch_add(&frames, 1) < for_frames)
        return true;
    gm_files_drop_frame();
    return false;
}

void gm_files_adopt_frame(void)
{
    atomic_fetch_add(&frames, 1);
}

void gm_files_drop_frame(void)
{
    atomic_fetch_sub(&frames, 1);
}

uint32_t gm_files_left_for_frames(void)
{
    const uint32_t n = atomic_load(&frames), left = left_now() / of_frame;
    const uint32_t ours = for_frames > n ? for_frames - n : 0;
    return ours < left ? ours : left;
}

bool gm_files_is_reserved(int fd)
{
    return fd >= 0 && (uint32_t)fd >= limit - gm_files_reserved();
}

uint32_t gm_files_left(void)
{
    int lowest = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    if (lowest < 0)
        return 0;
    close(lowest);
    return gm_files_is_reserved(lowest) ? 0 : limit - gm_files_reserved() - (uint32_t)lowest;
}
