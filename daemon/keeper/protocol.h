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
 *   BYE    close all, and end.                                                         -> none
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

#define GM_KEEPER_VERSION 1u
#define GM_KEEPER_FDS 253u /* SCM_MAX_FD: the kernel sends no more at once */
#define GM_KEEPER_KINDS 16u
#define GM_KEEPER_GPUS 16u
#define GM_KEEPER_SLOTS (1u << 22) /* 8 TiB in frames of 2 MiB */

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

#endif
