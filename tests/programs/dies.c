/*
 * A preloaded library that kills its process at a message: the points of the hand-shake, of an
 * allocation, a switch, a park and an adoption, as the wire has them.
 *
 *   GM_DIES=PROGRAM/NAME:N     the process called PROGRAM dies before it sends the Nth message of
 *                              this name, or once it has received it
 *   GM_DIES=PROGRAM/NAME:N+    ... right behind sending it
 *   GM_DIES_ONCE=FILE          only one process does, which makes this file
 *
 * NAME is that of common/wire.def; or KEEPER_ and that of daemon/keeper/protocol.h.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/wire.h"
#include "daemon/keeper/protocol.h"

static const char *const keeper_names[] = {
    [GM_KEEPER_HELLO] = "KEEPER_HELLO", [GM_KEEPER_HELLO_IS] = "KEEPER_HELLO_IS",
    [GM_KEEPER_PUT] = "KEEPER_PUT",     [GM_KEEPER_PUT_IS] = "KEEPER_PUT_IS",
    [GM_KEEPER_DROP] = "KEEPER_DROP",   [GM_KEEPER_DROPPED] = "KEEPER_DROPPED",
    [GM_KEEPER_TAKE] = "KEEPER_TAKE",   [GM_KEEPER_GIVE] = "KEEPER_GIVE",
    [GM_KEEPER_BYE] = "KEEPER_BYE",
};

/* The name of a message of this length; "": it is none. */
static const char *name_of(const struct msghdr *message, size_t length)
{
    union {
        struct gm_wire_header wire;
        struct {
            uint16_t version, type;
            uint32_t count;
        } keeper;
    } head;
    if (message->msg_iovlen == 0 || message->msg_iov[0].iov_len < sizeof head ||
        length < sizeof head)
        return "";
    memcpy(&head, message->msg_iov[0].iov_base, sizeof head);
    if (head.wire.length == length && head.wire.version == GM_WIRE_VERSION)
        return gm_wire_name(head.wire.type);
    if (head.keeper.version == GM_KEEPER_VERSION && head.keeper.type > 0 &&
        head.keeper.type < sizeof keeper_names / sizeof keeper_names[0] &&
        length == GM_KEEPER_HEAD + head.keeper.count * sizeof(struct gm_keeper_item))
        return keeper_names[head.keeper.type];
    return "";
}

/* Whether this is the message at which this process dies. */
static bool is_the_one(const struct msghdr *message, size_t length, bool *is_after)
{
    static atomic_uint seen;
    const char *text = getenv("GM_DIES");
    char program[64], name[64], plus = '\0';
    unsigned nth;
    if (!text || sscanf(text, "%63[^/]/%63[^:]:%u%c", program, name, &nth, &plus) < 3 ||
        strcmp(program, program_invocation_short_name) != 0 ||
        strcmp(name_of(message, length), name) != 0)
        return false;
    *is_after = plus == '+';
    return atomic_fetch_add(&seen, 1) + 1 == nth;
}

static bool is_the_first(void)
{
    const char *file = getenv("GM_DIES_ONCE");
    return !file || open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0;
}

static void die(void)
{
    if (!is_the_first())
        return;
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static size_t length_of(const struct msghdr *message)
{
    size_t length = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++)
        length += message->msg_iov[i].iov_len;
    return length;
}

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *message,
                                                       int flags)
{
    static ssize_t (*real)(int, const struct msghdr *, int);
    bool is_after = false;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "sendmsg");
    const bool is_the_end = is_the_one(message, length_of(message), &is_after);
    if (is_the_end && !is_after)
        die();
    const ssize_t sent = real(fd, message, flags);
    if (is_the_end)
        die();
    return sent;
}

__attribute__((visibility("default"))) ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    static ssize_t (*real)(int, struct msghdr *, int);
    bool is_after;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "recvmsg");
    const ssize_t length = real(fd, message, flags);
    if (length > 0 && is_the_one(message, (size_t)length, &is_after))
        die();
    return length;
}
