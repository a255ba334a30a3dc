/* The daemon before: see before.h. */
#include "daemon/service/before.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/memory/kept.h"

/* A pidfd is readable when the last thread has ended, and with it all that the process had open. A
 * number is not enough: it may be another process by now. */
static int wait_for(int pidfd, uint64_t limit_ns)
{
    struct pollfd end = {.fd = pidfd, .events = POLLIN};
    const uint64_t until = gm_now() + limit_ns;
    int n;
    do {
        const uint64_t now = gm_now();
        n = poll(&end, 1, now < until ? (int)((until - now) / GM_MS) + 1 : 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    return n > 0 && (end.revents & POLLIN) ? 0 : -EBUSY;
}

int gm_before_wait(struct gm_kept *kept, uint64_t limit_ns, char *why, size_t why_size)
{
    uint64_t pid = 0;
    const uint64_t began = gm_now();
    const int before = gm_kept_claim(kept, GM_KEPT_LIFELINE, 0, GM_LIFELINE_DAEMON, &pid);
    int error = before >= 0 ? wait_for(before, limit_ns) : 0;
    if (error) {
        close(before);
        snprintf(why, why_size,
                 "the gpumuxd before, process %llu, has not ended within %llu s (%s): end it, and "
                 "start again",
                 (unsigned long long)pid, (unsigned long long)(limit_ns / GM_S), strerror(-error));
        return error;
    }
    if (gm_now() - began > GM_S)
        gm_log(GM_LOG_INFO, "waited %.1f s for the end of the gpumuxd before",
               (double)(gm_now() - began) / GM_S);
    const int own = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (own >= 0)
        error = gm_kept_put(kept, GM_KEPT_LIFELINE, 0, GM_LIFELINE_DAEMON, (uint64_t)getpid(), own);
    else
        error = -errno;
    if (before >= 0)
        close(before);
    if (error)
        snprintf(why, why_size, "gpumux-keeper cannot be told of this process: %s",
                 strerror(-error));
    if (error && own >= 0)
        close(own);
    return error;
}
