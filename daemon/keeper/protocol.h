/* clang-format off */
/*
 * What gpumuxd and gpumux-keeper say to each other, on a SOCK_SEQPACKET socket: one datagram is one
 * message, and each question has one answer, in order. Fixed widths, the machine's byte order.
 *
 *   HELLO  the first: from now on this is the daemon, and a connection before it ends. -> HELLO_IS
 *   PUT    hold these: one descriptor an item. What had the same key is closed.        -> PUT_IS
 *   DROP   close these. What is not held is no mistake.                                -> DROPPED
 *   TAKE   the held items behind this key (no item: from the first), with copies of their
 *          descriptors, as many as a message carries; none: there are no more.         -> GIVE
 *   BYE    close all, and end, or wait for another daemon: then it ends the connection. -> none
 *
 * An item's key is {kind, gpu, slot}. Kinds are numbers, which mean nothing to the keeper, but for
 * LEASE: its descriptor is a pidfd, and the item goes when that process has ended. PUT of what
 * cannot be watched is refused.
 *
 * A message that is none (length, type, version, descriptors other than items) ends its connection.
 */
/* clang-format on */
#ifndef GM_DAEMON_KEEPER_PROTOCOL_H
#define GM_DAEMON_KEEPER_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define GM_KEEPER_VERSION 1u
#define GM_KEEPER_FDS 253u /* SCM_MAX_FD: the kernel sends no more at once */
#define GM_KEEPER_KINDS 16u
#define GM_KEEPER_GPUS 16u
#define GM_KEEPER_SLOTS (1u << 24) /* 32 TiB in frames of 2 MiB; pinned memory has five a page */

enum gm_keeper_type {
    GM_KEEPER_HELLO = 1,
    GM_KEEPER_HELLO_IS,
    GM_KEEPER_PUT,
    GM_KEEPER_PUT_IS,
    GM_KEEPER_DROP,
    GM_KEEPER_DROPPED,
    GM_KEEPER_TAKE,
    GM_KEEPER_GIVE,
    GM_KEEPER_BYE,
};

enum gm_keeper_kind { GM_KEEPER_LEASE = 0 }; /* the others are the daemon's */

struct gm_keeper_item {
    uint8_t kind, gpu;
    uint16_t reserved; /* 0 */
    uint32_t slot;
    uint64_t id; /* the daemon's: what it is */
};
_Static_assert(sizeof(struct gm_keeper_item) == 16, "gm_keeper_item");

struct gm_keeper_message {
    uint16_t version, type;
    uint32_t count; /* items */
    uint32_t error; /* of PUT_IS: an errno, and nothing was kept; 0 */
    uint32_t room;  /* of HELLO_IS, PUT_IS: how many more can be held */
    struct gm_keeper_item items[GM_KEEPER_FDS];
};
#define GM_KEEPER_HEAD offsetof(struct gm_keeper_message, items)

/* A message with its descriptors, as the kernel takes and gives it. */
struct gm_keeper_envelope {
    struct iovec part;
    struct msghdr head;
    union {
        char bytes[CMSG_SPACE(sizeof(int) * GM_KEEPER_FDS)];
        struct cmsghdr align;
    } control;
};

/* For sendmsg; with these descriptors. */
static inline const struct msghdr *gm_keeper_fill(struct gm_keeper_envelope *envelope,
                                                  struct gm_keeper_message *message, const int *fds,
                                                  uint32_t n_fds)
{
    memset(envelope, 0, sizeof *envelope);
    envelope->part.iov_base = message;
    envelope->part.iov_len = GM_KEEPER_HEAD + message->count * sizeof message->items[0];
    envelope->head.msg_iov = &envelope->part;
    envelope->head.msg_iovlen = 1;
    if (n_fds == 0)
        return &envelope->head;
    envelope->head.msg_control = envelope->control.bytes;
    envelope->head.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
    struct cmsghdr *files = CMSG_FIRSTHDR(&envelope->head);
    files->cmsg_level = SOL_SOCKET;
    files->cmsg_type = SCM_RIGHTS;
    files->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
    memcpy(CMSG_DATA(files), fds, sizeof(int) * n_fds);
    return &envelope->head;
}

/* For recvmsg. */
static inline struct msghdr *gm_keeper_empty(struct gm_keeper_envelope *envelope,
                                             struct gm_keeper_message *message)
{
    envelope->part = (struct iovec){message, sizeof *message};
    envelope->head = (struct msghdr){.msg_iov = &envelope->part,
                                     .msg_iovlen = 1,
                                     .msg_control = envelope->control.bytes,
                                     .msg_controllen = sizeof envelope->control.bytes};
    return &envelope->head;
}

/* The descriptors that came, which are the caller's. How many. */
static inline uint32_t gm_keeper_take_fds(struct gm_keeper_envelope *envelope,
                                          int fds[GM_KEEPER_FDS])
{
    struct msghdr *head = &envelope->head;
    uint32_t n = 0;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(head); at; at = CMSG_NXTHDR(head, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t bytes = at->cmsg_len - CMSG_LEN(0);
        memcpy(fds + n, CMSG_DATA(at), bytes);
        n += (uint32_t)(bytes / sizeof(int));
    }
    return n;
}

#endif
