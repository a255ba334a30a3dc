/* Sockets: see sock.h. */
#include "common/sock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16; the C library's headers are older */
#endif

/* Room for the fds of a message. */
union gm_sock_control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * GM_WIRE_FDS)];
};

/* A message up to its entries: stacks may be small. */
union gm_sock_head {
    uint64_t align;
#define GM_MSG(type, NAME, name, direction, states, entry, max_entries, max_fds)                   \
    uint8_t name[sizeof(struct gm_wire_header) + sizeof(struct gm_msg_##name)];
#include "common/wire.def"
#undef GM_MSG
};

int gm_sock_path(unsigned n, char *path, size_t size)
{
    /* secure_getenv: the environment of a setuid program is not to be trusted. */
    const char *only = secure_getenv("GPUMUX_SOCKET");
    const char *user = secure_getenv("XDG_RUNTIME_DIR");
    int length;

    if (only != NULL && only[0] != '\0') {
        if (n > 0)
            return -ENOENT;
        length = snprintf(path, size, "%s", only);
    } else if (n == 0) {
        length = snprintf(path, size, "%s", GM_SOCKET_SYSTEM);
    } else if (n == 1 && user != NULL && user[0] == '/') {
        length = snprintf(path, size, "%s/%s", user, GM_SOCKET_USER);
    } else {
        return -ENOENT;
    }
    return length >= 0 && (size_t)length < size ? 0 : -ENAMETOOLONG;
}

int gm_sock_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    int error;

    if (length == 0)
        return -ENOENT; /* an empty name would be the abstract one */
    if (length >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, length + 1);

    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    /* connect waits while the backlog is full: limit that. */
    struct timeval patience = {.tv_sec = GM_SOCK_PATIENCE_S}, for_ever = {0};
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) != 0) {
        error = -errno;
        goto close_fd;
    }
    while (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        if (errno == EINTR)
            continue;
        error = -errno;
        goto close_fd;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &for_ever, sizeof(for_ever)) != 0) {
        error = -errno;
        goto close_fd;
    }
    return fd;

close_fd:
    close(fd);
    return error;
}

int gm_sock_connect_any(char *path, size_t size)
{
    char place[sizeof(((struct sockaddr_un *)0)->sun_path)];
    int result = -ENOENT;

    for (unsigned n = 0;; n++) {
        int error = gm_sock_path(n, place, sizeof(place));
        if (error == -ENOENT)
            return result;
        if (path != NULL && size > 0)
            snprintf(path, size, "%s", place);
        result = error != 0 ? error : gm_sock_connect(place);
        if (result >= 0)
            return result;
    }
}

/* A message in two pieces. */
static int gm_sock_send_pieces(int fd, const struct iovec *pieces, const int *fds, int n_fds)
{
    union gm_sock_control control;
    const size_t length = pieces[0].iov_len + pieces[1].iov_len;
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)pieces, .msg_iovlen = 2};

    /* An empty datagram would look like the end of the connection. */
    if (length == 0 || n_fds < 0 || n_fds > GM_WIRE_FDS)
        return -EINVAL;
    if (n_fds > 0) {
        size_t size = sizeof(int) * (size_t)n_fds;
        memset(&control, 0, sizeof(control));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(size);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(size);
        memcpy(CMSG_DATA(head), fds, size);
    }
    for (;;) {
        ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (sent >= 0)
            return (size_t)sent == length ? 0 : -EIO;
        if (errno != EINTR)
            return -errno;
    }
}

int gm_sock_send(int fd, const void *bytes, size_t length, const int *fds, int n_fds)
{
    const struct iovec pieces[2] = {{(void *)(uintptr_t)bytes, length}};
    return gm_sock_send_pieces(fd, pieces, fds, n_fds);
}

/* Take at most `room` fds of a received message, and close the others. */
static int gm_sock_take_fds(struct msghdr *message, int *fds, int room, int *n_fds)
{
    int lost = 0;
    *n_fds = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head != NULL;
         head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
            if (*n_fds < room) {
                fds[(*n_fds)++] = fd;
            } else {
                close(fd);
                lost = 1;
            }
        }
    }
    return lost;
}

static ssize_t gm_sock_take(int fd, void *buffer, size_t size, int *fds, int *n_fds, bool *has_lost,
                            int flags)
{
    union gm_sock_control control;
    struct iovec piece = {.iov_base = buffer, .iov_len = size};
    struct msghdr message;
    ssize_t length;

    *n_fds = 0;
    *has_lost = false;
    do {
        message = (struct msghdr){.msg_iov = &piece,
                                  .msg_iovlen = 1,
                                  .msg_control = &control,
                                  .msg_controllen = sizeof(control)};
        length = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | flags);
    } while (length < 0 && errno == EINTR);
    if (length < 0)
        return -errno;

    *has_lost = gm_sock_take_fds(&message, fds, GM_WIRE_FDS, n_fds) ||
                (message.msg_flags & MSG_CTRUNC) != 0;
    if ((message.msg_flags & MSG_TRUNC) != 0)
        length = -EMSGSIZE;
    if (length <= 0 || *has_lost) {
        /* An empty datagram, which looks like the end of the connection, may carry fds. */
        while (*n_fds > 0)
            close(fds[--*n_fds]);
    }
    return length;
}

ssize_t gm_sock_receive_part(int fd, void *buffer, size_t size, int *fds, int *n_fds,
                             bool *has_lost)
{
    return gm_sock_take(fd, buffer, size, fds, n_fds, has_lost, 0);
}

ssize_t gm_sock_peek(int fd, void *buffer, size_t size, int *fds, int *n_fds, bool *has_lost)
{
    return gm_sock_take(fd, buffer, size, fds, n_fds, has_lost, MSG_PEEK);
}

void gm_sock_skip(int fd)
{
    char byte;
    while (recv(fd, &byte, sizeof(byte), MSG_DONTWAIT) < 0 && errno == EINTR)
        continue;
}

ssize_t gm_sock_receive(int fd, void *buffer, size_t size, int *fds, int *n_fds)
{
    bool has_lost;
    ssize_t length = gm_sock_receive_part(fd, buffer, size, fds, n_fds, &has_lost);
    return length > 0 && has_lost ? -EMSGSIZE : length;
}

void gm_sock_refuse_fds(int fd)
{
    const int is_on = 0;
    setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &is_on, sizeof(is_on));
}

ssize_t gm_sock_receive_bare(int fd, void *buffer, size_t size)
{
    struct iovec piece = {.iov_base = buffer, .iov_len = size};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    ssize_t length;

    do {
        length = recvmsg(fd, &message, 0);
    } while (length < 0 && errno == EINTR);
    if (length < 0)
        return -errno;
    return (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ? -EMSGSIZE : length;
}

int gm_sock_send_message(int fd, enum gm_msg_type type, const void *body, const void *entries,
                         uint32_t count, const int *fds, int n_fds)
{
    union gm_sock_head head;
    size_t tail;
    const size_t length = gm_wire_encode_head(&head, type, body, entries, count, &tail);
    if (length == 0)
        return -EINVAL;
    const struct iovec pieces[2] = {{&head, length}, {(void *)(uintptr_t)entries, tail}};
    return gm_sock_send_pieces(fd, pieces, fds, n_fds);
}
