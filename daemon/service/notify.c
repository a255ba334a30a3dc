/* sd_notify: see notify.h. */
#include "daemon/service/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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
