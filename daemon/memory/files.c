/* Open files: see files.h. */
#include "daemon/memory/files.h"

#include <fcntl.h>
#include <unistd.h>

static uint32_t limit = UINT32_MAX;

void gm_files_init(uint64_t most)
{
    limit = most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}

uint32_t gm_files_limit(void)
{
    return limit;
}

uint32_t gm_files_kept(void)
{
    return limit / 4 < GM_FILES_KEPT ? limit / 4 : GM_FILES_KEPT;
}

bool gm_files_is_kept(int fd)
{
    return fd >= 0 && (uint32_t)fd >= limit - gm_files_kept();
}

uint32_t gm_files_left(void)
{
    int lowest = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    if (lowest < 0)
        return 0;
    close(lowest);
    return gm_files_is_kept(lowest) ? 0 : limit - gm_files_kept() - (uint32_t)lowest;
}
