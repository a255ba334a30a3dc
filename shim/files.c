#include "shim/files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/log.h"

#define GM_FILES_LOW 500     /* programs close and reuse numbers below */
#define GM_FILES_PROBED 4096 /* limits above this are not looked at before fds were lost */
#define GM_FILES_ROOM                                                                              \
    (2 * GM_WIRE_FDS) /* a message's, and what the driver may open to import them */

static bool gm_files_are_short; /* fds were lost once */
static bool gm_files_are_wide;
static struct rlimit gm_files_before, gm_files_now;

/*
 * Whether the numbers right below `limit` are taken: those go last. Low numbers are not tried,
 * since the program may be about to open a file that must get one, nor very high ones, for which
 * the kernel would make a large table. So it may be wrong; then fds are lost, once.
 */
static bool gm_files_look_short(int any_fd, rlim_t limit)
{
    if (limit > GM_FILES_PROBED)
        return false;
    int least = limit > GM_FILES_ROOM ? (int)(limit - GM_FILES_ROOM) : 0;
    int taken = fcntl(any_fd, F_DUPFD_CLOEXEC, least);
    if (taken >= 0)
        close(taken);
    return taken != least;
}

int gm_files_lift(int fd)
{
    for (int least = GM_FILES_LOW; least > 10; least /= 2) {
        int high = fcntl(fd, F_DUPFD_CLOEXEC, least);
        if (high >= 0) {
            close(fd);
            return high;
        }
    }
    return fd;
}

void gm_files_widen(int any_fd)
{
    if (getrlimit(RLIMIT_NOFILE, &gm_files_before) != 0 ||
        gm_files_before.rlim_cur == gm_files_before.rlim_max)
        return;
    if (!gm_files_are_short && !gm_files_look_short(any_fd, gm_files_before.rlim_cur))
        return;
    gm_files_now = gm_files_before;
    gm_files_now.rlim_cur += GM_FILES_ROOM;
    if (gm_files_now.rlim_cur > gm_files_now.rlim_max ||
        gm_files_now.rlim_cur < gm_files_before.rlim_cur)
        gm_files_now.rlim_cur = gm_files_now.rlim_max;
    gm_files_are_wide = setrlimit(RLIMIT_NOFILE, &gm_files_now) == 0;
}

void gm_files_restore(void)
{
    struct rlimit limit;
    if (!gm_files_are_wide)
        return;
    gm_files_are_wide = false;
    /* Unless the program has set one of its own meanwhile. */
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == gm_files_now.rlim_cur &&
        limit.rlim_max == gm_files_now.rlim_max)
        setrlimit(RLIMIT_NOFILE, &gm_files_before);
}

bool gm_files_lost(const void *bytes, size_t length, uint64_t *batch)
{
    struct gm_wire_message message;
    enum gm_wire_fault fault = GM_WIRE_BAD_FDS;
    for (int n = 0; n <= GM_WIRE_FDS && fault == GM_WIRE_BAD_FDS; n++) /* as if so many had come */
        fault = gm_wire_decode(bytes, length, n, GM_DOWN, GM_SESSION_APP, &message);
    if (fault != GM_WIRE_OK || message.type != GM_MSG_MAP)
        return false;
    if (!gm_files_are_short)
        gm_log(GM_LOG_WARN, "this program is at its limit of open files: the daemon tries again");
    gm_files_are_short = true;
    *batch = ((const struct gm_msg_map *)message.body)->batch;
    return true;
}
