/* sd_notify: see notify.h. */
#include "common/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"

int gm_notify(const char *lines)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *place = getenv("NOTIFY_SOCKET");
    if (!place || !*place)
        return 0;
    size_t length = strlen(place);
    if ((place[0] != '/' && place[0] != '@') || length >= sizeof address.sun_path)
        return -EINVAL;
    memcpy(address.sun_path, place, length);
    if (place[0] == '@')
        address.sun_path[0] = '\0'; /* an abstract name; it has no NUL at its end */

    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    int error = 0;
    if (sendto(fd, lines, strlen(lines), MSG_NOSIGNAL, (const struct sockaddr *)&address, size) < 0)
        error = -errno;
    close(fd);
    return error;
}

/* A number above 0 that fills the whole text; 0: it is none. */
static uint64_t number_of(const char *text)
{
    char *end;
    if (!text || text[0] < '0' || text[0] > '9')
        return 0;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' ? number : 0;
}

uint64_t gm_notify_watchdog(void)
{
    const char *pid = getenv("WATCHDOG_PID"); /* of the process that it was meant for */
    const uint64_t us = number_of(getenv("WATCHDOG_USEC"));
    if ((pid && number_of(pid) != (uint64_t)getpid()) || us > UINT64_MAX / GM_US)
        return 0;
    return us * GM_US;
}
