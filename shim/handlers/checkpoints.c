/*
 * The handlers of checkpoints. The driver suspends a program under gpumux and then cannot bring it
 * back: memory that came from another process is not restored (NOT_SUPPORTED), and the program is
 * lost. So what leads there is refused, for this process and for others. cuda-checkpoint and other
 * programs that do not have the shim are not held back.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/shm.h"
#include "shim/handlers/handlers.h"

#define GM_CHECKPOINT_SIGN "/memfd:" GM_SHM_CTL_NAME

/* Whether a process ever shared a GPU: it maps the daemon's page then. False if it may not be
 * asked; then the driver decides. */
static bool gm_checkpoint_is_shared(int pid)
{
    enum { AT_ONCE = 1024 }; /* stacks may be small */
    const size_t sign = sizeof(GM_CHECKPOINT_SIGN) - 1;
    char path[32], text[sizeof(GM_CHECKPOINT_SIGN) + AT_ONCE];
    size_t kept = 0;
    bool is_shared = false;
    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    for (;;) {
        const ssize_t got = read(fd, text + kept, AT_ONCE);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        const size_t length = kept + (size_t)got;
        is_shared = memmem(text, length, GM_CHECKPOINT_SIGN, sign) != NULL;
        if (is_shared)
            break;
        kept = length < sign ? length : sign; /* half of it may be here */
        memmove(text, text + length - kept, kept);
    }
    close(fd);
    return is_shared;
}

CUresult gm_on_cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    return gm_checkpoint_is_shared(pid) ? CUDA_ERROR_NOT_SUPPORTED
                                        : gm_real.cuCheckpointProcessLock(pid, args);
}

/* Of a process that something else has locked. */
CUresult gm_on_cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    return gm_checkpoint_is_shared(pid) ? CUDA_ERROR_NOT_SUPPORTED
                                        : gm_real.cuCheckpointProcessCheckpoint(pid, args);
}
