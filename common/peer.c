/* Peers: see peer.h. */
#include "common/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

#define MAP_MOST 4096 /* bytes of a uid_map: a longer one counts as another's */

/* The text of /proc/PID/FILE. False: it cannot be read, or is longer. */
static bool read_text(pid_t pid, const char *file, char *text, size_t size)
{
    char path[64];
    size_t length = 0;
    ssize_t got = -1;
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while (length < size && (got = read(fd, text + length, size - length)) > 0)
        length += (size_t)got;
    close(fd);
    if (got != 0 || length == 0 || length == size)
        return false;
    text[length] = '\0';
    return true;
}

/* "user:[4026531837]". */
static bool read_space(pid_t pid, const char *kind, char space[64])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, kind);
    const ssize_t length = readlink(path, space, 63);
    space[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* NSpid lists its numbers from our /proc's namespace down to its own. */
static bool has_one_number(pid_t pid)
{
    char text[8192], line[32];
    snprintf(line, sizeof line, "\nNSpid:\t%d\n", (int)pid);
    return read_text(pid, "status", text, sizeof text) && strstr(text, line) != NULL;
}

static bool has_our_map(pid_t pid)
{
    char its[MAP_MOST], ours[MAP_MOST];
    return read_text(pid, "uid_map", its, sizeof its) &&
           read_text(getpid(), "uid_map", ours, sizeof ours) && strcmp(its, ours) == 0;
}

static bool is_in_our(const char *kind, pid_t pid, bool (*seems_so)(pid_t pid))
{
    char its[64], ours[64];
    if (read_space(pid, kind, its) && read_space(getpid(), kind, ours))
        return strcmp(its, ours) == 0;
    return seems_so(pid);
}

/* Else its numbers are not those that the kernel tells us. */
static bool is_our_proc(void)
{
    char number[16], self[16];
    snprintf(number, sizeof number, "%d", (int)getpid());
    const ssize_t length = readlink("/proc/self", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    return strcmp(number, self) == 0;
}

/* Its pidfd or -errno. Before SO_PEERPIDFD a pid that was used again between its connecting and now
 * is taken for it. */
static int open_process(int fd, pid_t pid)
{
    int process = -1;
    socklen_t size = sizeof process;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &size) == 0)
        return process;
    if (errno == ENOPROTOOPT)
        process = (int)syscall(SYS_pidfd_open, pid, 0);
    return process >= 0 ? process : -errno;
}

int gm_peer_look(int fd, struct gm_peer *peer)
{
    struct ucred who;
    socklen_t size = sizeof who;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size))
        return -errno;
    *peer = (struct gm_peer){.pid = who.pid, .uid = who.uid, .gid = who.gid};
    if (who.pid <= 0 || !is_our_proc())
        return 0;
    struct pollfd end = {.fd = open_process(fd, who.pid), .events = POLLIN};
    if (end.fd < 0)
        return 0;
    const bool has_numbers = is_in_our("pid", who.pid, has_one_number);
    const bool has_users = is_in_our("user", who.pid, has_our_map);
    const bool is_there = poll(&end, 1, 0) == 0; /* so what was read is of that process */
    close(end.fd);
    peer->has_our_numbers = is_there && has_numbers;
    peer->has_our_users = is_there && has_users;
    return 0;
}

bool gm_peer_is_admin(const struct gm_peer *peer)
{
    return (peer->uid == 0 || peer->uid == geteuid()) && peer->has_our_numbers &&
           peer->has_our_users;
}
