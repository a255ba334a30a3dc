/* A daemon's side of its connection to the keeper: see client.h. */
#include "daemon/keeper/client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/peer.h"
#include "daemon/keeper/held.h"

#define PATIENCE_S 2
#define ERRNO_MOST 4095u /* of the kernel */

void gm_keeper_close(struct gm_keeper *keeper)
{
    if (keeper->fd >= 0) {
        shutdown(keeper->fd, SHUT_RDWR); /* whoever watches a copy of it sees that it has ended */
        close(keeper->fd);
    }
    keeper->fd = -1;
}

static int lose(struct gm_keeper *keeper)
{
    gm_keeper_close(keeper);
    return -ENOTCONN;
}

static bool ask(const struct gm_keeper *keeper, struct gm_keeper_message *message,
                enum gm_keeper_type type, const int *fds, uint32_t n_fds)
{
    struct gm_keeper_envelope envelope;
    message->version = GM_KEEPER_VERSION;
    message->type = (uint16_t)type;
    message->error = message->room = 0;
    const struct msghdr *head = gm_keeper_fill(&envelope, message, fds, n_fds);
    return sendmsg(keeper->fd, head, MSG_NOSIGNAL) == (ssize_t)envelope.part.iov_len;
}

/* The answer of this type; false: it is none. *n_fds descriptors of it are the caller's in any
 * case. *has_lost: not all that it had, as this process can have no more. */
static bool hear(struct gm_keeper *keeper, struct gm_keeper_message *message,
                 enum gm_keeper_type type, int fds[GM_KEEPER_FDS], uint32_t *n_fds, bool *has_lost)
{
    struct gm_keeper_envelope envelope;
    struct msghdr *head = gm_keeper_empty(&envelope, message);
    ssize_t length;
    *n_fds = 0;
    do
        length = recvmsg(keeper->fd, head, MSG_CMSG_CLOEXEC);
    while (length < 0 && errno == EINTR);
    if (length < (ssize_t)GM_KEEPER_HEAD)
        return false;
    *n_fds = gm_keeper_take_fds(&envelope, fds);
    *has_lost = (head->msg_flags & MSG_CTRUNC) != 0;
    keeper->room = message->room;
    return !(head->msg_flags & MSG_TRUNC) && message->version == GM_KEEPER_VERSION &&
           message->type == type && message->count <= GM_KEEPER_FDS &&
           (size_t)length == GM_KEEPER_HEAD + message->count * sizeof message->items[0] &&
           (type == GM_KEEPER_GIVE || message->count == 0);
}

static void close_all(const int *fds, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        close(fds[i]);
}

/* A question whose answer has no items. 0, what it says, or -ENOTCONN. */
static int ask_plain(struct gm_keeper *keeper, struct gm_keeper_message *message,
                     enum gm_keeper_type type, const int *fds, uint32_t n_fds)
{
    int got[GM_KEEPER_FDS];
    uint32_t n;
    bool has_lost;
    if (keeper->fd < 0 || !ask(keeper, message, type, fds, n_fds))
        return lose(keeper);
    const bool is_answer = hear(keeper, message, type + 1, got, &n, &has_lost);
    close_all(got, n);
    if (!is_answer || n > 0)
        return lose(keeper);
    if (message->error == 0 || (type == GM_KEEPER_PUT && message->error <= ERRNO_MOST))
        return -(int)message->error;
    return lose(keeper);
}

bool gm_keeper_place(const char *socket, bool is_beside, char path[GM_KEEPER_PATH])
{
    static const char own[] = "/gpumux/";
    const char *slash = strrchr(socket, '/'), *name = slash ? slash + 1 : socket;
    const size_t n = (size_t)(name - socket), n_own = sizeof own - 1;
    const bool is_own = is_beside && n >= n_own && strncmp(name - n_own, own, n_own) == 0;
    const int length = snprintf(path, GM_KEEPER_PATH, "%.*s-keeper/%s",
                                (int)(is_own ? n - 1 : strlen(socket)), socket, name);
    return length >= 0 && (size_t)length < GM_KEEPER_PATH;
}

int gm_keeper_open(struct gm_keeper *keeper, const char *path)
{
    struct gm_keeper_message message = {.count = 0};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    struct gm_peer who;
    int error = 0;
    keeper->fd = -1;
    if (strlen(path) >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, strlen(path) + 1);
    keeper->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (keeper->fd < 0)
        return -errno;
    if (setsockopt(keeper->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) ||
        setsockopt(keeper->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) ||
        connect(keeper->fd, (struct sockaddr *)&address, sizeof address))
        error = -errno;
    else if ((error = gm_peer_look(keeper->fd, &who)) == 0 && !gm_peer_is_admin(&who))
        error = -EPERM;
    if (error == 0)
        return ask_plain(keeper, &message, GM_KEEPER_HELLO, NULL, 0);
    gm_keeper_close(keeper);
    return error;
}

int gm_keeper_put(struct gm_keeper *keeper, const struct gm_keeper_item *items, const int *fds,
                  uint32_t n)
{
    struct gm_keeper_message message = {.count = n};
    memcpy(message.items, items, n * sizeof *items);
    return ask_plain(keeper, &message, GM_KEEPER_PUT, fds, n);
}

int gm_keeper_drop(struct gm_keeper *keeper, const struct gm_keeper_item *items, uint32_t n)
{
    struct gm_keeper_message message = {.count = n};
    memcpy(message.items, items, n * sizeof *items);
    return ask_plain(keeper, &message, GM_KEEPER_DROP, NULL, 0);
}

/* In the order of keys: so whoever goes on comes to an end. */
static bool is_behind(const struct gm_keeper_item *item, const struct gm_keeper_item *before)
{
    const uint64_t a = (uint64_t)item->kind << 40 | (uint64_t)item->gpu << 32 | item->slot;
    return !before ||
           a > ((uint64_t)before->kind << 40 | (uint64_t)before->gpu << 32 | before->slot);
}

int gm_keeper_take(struct gm_keeper *keeper, const struct gm_keeper_item *behind,
                   struct gm_keeper_item items[GM_KEEPER_FDS], int fds[GM_KEEPER_FDS])
{
    struct gm_keeper_message message = {.count = behind ? 1 : 0};
    uint32_t n = 0;
    bool has_lost = false;
    if (behind)
        message.items[0] = *behind;
    if (keeper->fd < 0 || !ask(keeper, &message, GM_KEEPER_TAKE, NULL, 0))
        return lose(keeper);
    bool is_answer = hear(keeper, &message, GM_KEEPER_GIVE, fds, &n, &has_lost);
    for (uint32_t i = 0; is_answer && i < message.count; i++)
        is_answer = gm_held_is_key(&message.items[i]) &&
                    is_behind(&message.items[i], i > 0 ? &message.items[i - 1] : behind);
    if (is_answer && n == message.count && !has_lost) {
        memcpy(items, message.items, n * sizeof *items);
        return (int)n;
    }
    close_all(fds, n);
    return is_answer && has_lost ? -EMFILE : lose(keeper);
}

void gm_keeper_end(struct gm_keeper *keeper)
{
    struct gm_keeper_message message = {.count = 0};
    if (keeper->fd >= 0 && ask(keeper, &message, GM_KEEPER_BYE, NULL, 0))
        recv(keeper->fd, &message, sizeof message, 0); /* nothing: it ends */
    gm_keeper_close(keeper);
}
