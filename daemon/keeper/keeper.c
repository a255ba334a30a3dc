/* clang-format off */
/*
 * gpumux-keeper: holds descriptors for gpumuxd, so that what they are of outlives it: memory of the
 * GPU and of the host, which lives as long as somebody has a descriptor of it (measured), and the
 * ledger that says what is in it. It knows nothing of CUDA, reads nothing of what it holds, and has
 * one thread.
 *
 *   gpumux-keeper --socket PATH [--patience TIME]
 *
 * One daemon at a time speaks to it: root's or one of its own user, and not one of a container. The newest HELLO is the daemon;
 * one that hung finds its connection closed. A connection that says no HELLO within 5 s, or says
 * what is none, is closed, and what is held stays.
 *
 * It ends on BYE; and when there was no daemon for `patience` and no process lives that has a lease.
 * One of the service manager lets go of all on BYE and stays so long: a daemon that is restarted
 * finds it in its unit.
 *
 * One keeper is at a socket: the one that has locked PATH.lock. What is at PATH is its own then.
 * Another one that is started there is not needed, and ends with 0.
 * Their folder is for this user alone: a keeper makes it where there is none, and does not start in
 * another one. All three go with it.
 */
/* clang-format on */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/notify.h"
#include "common/peer.h"
#include "common/size.h"
#include "common/standard.h"
#include "daemon/keeper/held.h"
#include "daemon/keeper/protocol.h"

#define GUESTS 8u /* connections that have yet to say HELLO; one more closes the oldest */
#define GUEST_NS (5 * GM_S)
#define FILES_RESERVED 64u /* of the limit: its own, and those of one message twice */
#define EVENTS 64

/* What an epoll event is of: in its upper half. */
enum { OF_LISTENER = 1, OF_CONNECTION, OF_LEASE };

static struct keeper {
    struct gm_held held;
    int epoll, listener;
    int daemon; /* its connection; -1: none */
    struct guest {
        int fd; /* -1: none */
        uint64_t since;
    } guests[GUESTS];
    uint64_t alone_since; /* when the last daemon went */
    uint64_t patience;
    bool is_service;       /* the service manager has started it */
    bool is_over, is_told; /* ... by a daemon */
} keeper;

/* 0 or an errno. */
static int watch(int fd, uint32_t of, uint32_t number)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)of << 32 | number};
    return epoll_ctl(keeper.epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
}

/* Others may have copies of a pidfd, so closing it does not end the watch. */
static void close_lease(int fd)
{
    epoll_ctl(keeper.epoll, EPOLL_CTL_DEL, fd, NULL);
    close(fd);
}

static void close_guest(struct guest *guest)
{
    if (guest->fd >= 0)
        close(guest->fd);
    guest->fd = -1;
}

static void close_connection(int fd)
{
    for (uint32_t i = 0; i < GUESTS; i++)
        if (keeper.guests[i].fd == fd)
            close_guest(&keeper.guests[i]);
    if (fd != keeper.daemon)
        return;
    if (keeper.held.leases > 0)
        gm_log(GM_LOG_INFO, "gpumuxd is gone: %u descriptors are held, for %u programs",
               keeper.held.n, keeper.held.leases);
    close(keeper.daemon);
    keeper.daemon = -1;
    keeper.alone_since = gm_now();
}

/* ---- answers ---- */

/* False: the connection takes none, which ends it. It asks one thing at a time, so there is room.
 */
static bool answer(int fd, struct gm_keeper_message *message, const int *fds, uint32_t n_fds)
{
    struct gm_keeper_envelope envelope;
    message->version = GM_KEEPER_VERSION;
    message->room = keeper.held.most - keeper.held.n;
    return sendmsg(fd, gm_keeper_fill(&envelope, message, fds, n_fds),
                   MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

static bool answer_plain(int fd, enum gm_keeper_type type, int error)
{
    struct gm_keeper_message message = {.type = (uint16_t)type, .error = (uint32_t)error};
    return answer(fd, &message, NULL, 0);
}

static bool hello(int fd)
{
    if (keeper.daemon >= 0 && keeper.daemon != fd) {
        gm_log(GM_LOG_WARN, "another gpumuxd has come: the one before it is let go");
        close_connection(keeper.daemon);
    }
    for (uint32_t i = 0; i < GUESTS; i++)
        if (keeper.guests[i].fd == fd)
            keeper.guests[i].fd = -1;
    keeper.daemon = fd;
    return answer_plain(fd, GM_KEEPER_HELLO_IS, 0);
}

static void release(const struct gm_keeper_item *item)
{
    const int fd = gm_held_drop(&keeper.held, item);
    if (fd >= 0 && item->kind == GM_KEEPER_LEASE)
        close_lease(fd);
    else if (fd >= 0)
        close(fd);
}

static void release_all(void)
{
    struct gm_keeper_item item;
    const struct gm_keeper_item *behind = NULL;
    for (; gm_held_next(&keeper.held, behind, &item) >= 0; behind = &item)
        release(&item);
}

/* All or none. A lease that cannot be watched is none: it would never end. */
static bool put(int fd, const struct gm_keeper_message *message, int *fds, uint32_t n_fds)
{
    int error = n_fds < message->count ? EMFILE : 0; /* the kernel could not give all */
    uint32_t more = 0;
    for (uint32_t i = 0; i < message->count; i++)
        more += gm_held_fd(&keeper.held, &message->items[i]) < 0;
    if (keeper.held.n + more > keeper.held.most)
        error = EMFILE;
    for (uint32_t i = 0; i < message->count && error == 0; i++)
        if (!gm_held_reserve(&keeper.held, &message->items[i]))
            error = ENOMEM;
    for (uint32_t i = 0; i < message->count && error == 0; i++)
        if (message->items[i].kind == GM_KEEPER_LEASE)
            error = watch(fds[i], OF_LEASE, message->items[i].slot);
    for (uint32_t i = 0; i < n_fds; i++) {
        if (error) {
            close_lease(fds[i]);
            continue;
        }
        release(&message->items[i]);
        gm_held_put(&keeper.held, &message->items[i], fds[i]);
    }
    return answer_plain(fd, GM_KEEPER_PUT_IS, error);
}

static bool drop(int fd, const struct gm_keeper_message *message)
{
    for (uint32_t i = 0; i < message->count; i++)
        release(&message->items[i]);
    return answer_plain(fd, GM_KEEPER_DROPPED, 0);
}

static bool take(int fd, const struct gm_keeper_message *message)
{
    static struct gm_keeper_message give;
    int fds[GM_KEEPER_FDS];
    give = (struct gm_keeper_message){.type = GM_KEEPER_GIVE};
    const struct gm_keeper_item *key = message->count > 0 ? &message->items[0] : NULL;
    while (give.count < GM_KEEPER_FDS) {
        const int held = gm_held_next(&keeper.held, key, &give.items[give.count]);
        if (held < 0)
            break;
        key = &give.items[give.count];
        fds[give.count++] = held;
    }
    return answer(fd, &give, fds, give.count);
}

/* ---- questions ---- */

/* Whether it is a message, and one that this connection may send. */
static bool is_legal(const struct gm_keeper_message *message, size_t length, uint32_t n_fds,
                     bool is_daemon)
{
    if (length < GM_KEEPER_HEAD || message->version != GM_KEEPER_VERSION ||
        message->count > GM_KEEPER_FDS ||
        length != GM_KEEPER_HEAD + message->count * sizeof(struct gm_keeper_item))
        return false;
    for (uint32_t i = 0; i < message->count; i++)
        if (!gm_held_is_key(&message->items[i]))
            return false;
    switch (message->type) {
    case GM_KEEPER_HELLO:
    case GM_KEEPER_BYE:
        return message->count == 0 && n_fds == 0 && (is_daemon || message->type == GM_KEEPER_HELLO);
    case GM_KEEPER_PUT:
        return is_daemon && message->count > 0;
    case GM_KEEPER_DROP:
        return is_daemon && n_fds == 0;
    case GM_KEEPER_TAKE:
        return is_daemon && message->count <= 1 && n_fds == 0;
    default:
        return false;
    }
}

static bool obey(int fd, const struct gm_keeper_message *message, int *fds, uint32_t n_fds)
{
    switch (message->type) {
    case GM_KEEPER_HELLO:
        return hello(fd);
    case GM_KEEPER_PUT:
        return put(fd, message, fds, n_fds);
    case GM_KEEPER_DROP:
        return drop(fd, message);
    case GM_KEEPER_TAKE:
        return take(fd, message);
    default: /* BYE */
        if (keeper.is_service)
            release_all();
        keeper.is_over = keeper.is_told = !keeper.is_service;
        return false;
    }
}

static void on_connection(int fd)
{
    static struct gm_keeper_message message;
    struct gm_keeper_envelope envelope;
    struct msghdr *head = gm_keeper_empty(&envelope, &message);
    int fds[GM_KEEPER_FDS];
    if (fd < 0)
        return; /* it was closed in this round */
    const ssize_t length = recvmsg(fd, head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    const uint32_t n_fds = length > 0 ? gm_keeper_take_fds(&envelope, fds) : 0;
    const bool has_lost = length > 0 && (head->msg_flags & MSG_CTRUNC); /* no files left */
    const bool is_whole = length > 0 && !(head->msg_flags & MSG_TRUNC) &&
                          is_legal(&message, (size_t)length, n_fds, fd == keeper.daemon) &&
                          (message.type != GM_KEEPER_PUT || has_lost || n_fds == message.count);
    if (!is_whole) {
        if (length > 0)
            gm_log(GM_LOG_WARN, "a message that is none: its connection is closed");
        for (uint32_t i = 0; i < n_fds; i++)
            close(fds[i]);
    }
    if (!is_whole || !obey(fd, &message, fds, n_fds)) {
        if (!keeper.is_told) /* else its end closes it, when nothing is left: who told it waits */
            close_connection(fd);
    }
}

/* ---- who comes ---- */

static void on_listener(void)
{
    struct gm_peer who = {0};
    const int fd = accept4(keeper.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (gm_peer_look(fd, &who) != 0 || !gm_peer_is_admin(&who)) {
        gm_log(GM_LOG_WARN, "user %u (pid %d) may not speak to the keeper", (unsigned)who.uid,
               (int)who.pid);
        close(fd);
        return;
    }
    struct guest *guest = &keeper.guests[0];
    for (uint32_t i = 0; i < GUESTS && guest->fd >= 0; i++)
        if (keeper.guests[i].fd < 0 || keeper.guests[i].since < guest->since)
            guest = &keeper.guests[i];
    close_guest(guest);
    *guest = (struct guest){.fd = fd, .since = gm_now()};
    if (watch(fd, OF_CONNECTION, (uint32_t)fd) != 0)
        close_guest(guest);
}

/* The event may be of the one that was there before. */
static void on_lease(uint32_t slot)
{
    const struct gm_keeper_item lease = {.kind = GM_KEEPER_LEASE, .slot = slot};
    struct pollfd process = {.fd = gm_held_fd(&keeper.held, &lease), .events = POLLIN};
    if (poll(&process, 1, 0) > 0)
        release(&lease);
}

static bool is_known(int fd)
{
    for (uint32_t i = 0; i < GUESTS; i++)
        if (keeper.guests[i].fd == fd)
            return true;
    return fd == keeper.daemon;
}

/* ---- time ---- */

/* When there is something to do without an event. */
static uint64_t next_due(void)
{
    uint64_t due = UINT64_MAX;
    for (uint32_t i = 0; i < GUESTS; i++)
        if (keeper.guests[i].fd >= 0 && keeper.guests[i].since + GUEST_NS < due)
            due = keeper.guests[i].since + GUEST_NS;
    const bool is_alone = keeper.daemon < 0 && keeper.held.leases == 0;
    if (is_alone && keeper.alone_since + keeper.patience < due)
        due = keeper.alone_since + keeper.patience;
    return due;
}

static void on_time(uint64_t now)
{
    for (uint32_t i = 0; i < GUESTS; i++)
        if (keeper.guests[i].fd >= 0 && now >= keeper.guests[i].since + GUEST_NS)
            close_guest(&keeper.guests[i]);
    if (keeper.daemon < 0 && keeper.held.leases == 0 && now >= keeper.alone_since + keeper.patience)
        keeper.is_over = true;
}

static void serve(void)
{
    struct epoll_event events[EVENTS];
    while (!keeper.is_over) {
        const uint64_t now = gm_now(), due = next_due();
        const uint64_t ms = due > now ? (due - now) / GM_MS + 1 : 0;
        const int n = epoll_wait(keeper.epoll, events, EVENTS,
                                 due == UINT64_MAX ? -1 : (int)(ms < 60000 ? ms : 60000));
        for (int i = 0; i < n && !keeper.is_over; i++) {
            const uint32_t of = (uint32_t)(events[i].data.u64 >> 32);
            const uint32_t number = (uint32_t)events[i].data.u64;
            if (of == OF_LISTENER)
                on_listener();
            else if (of == OF_LEASE)
                on_lease(number);
            else if (is_known((int)number))
                on_connection((int)number);
        }
        on_time(gm_now());
    }
}

/* ---- start ---- */

/* It is there, and only this user can enter it. */
static bool make_folder(const char *folder)
{
    struct stat is;
    mkdir(folder, 0700);
    return lstat(folder, &is) == 0 && S_ISDIR(is.st_mode) && is.st_uid == geteuid() &&
           (is.st_mode & 077) == 0;
}

/* Lock that file in `folder`. One that ends takes both away: then it is another file, and not the
 * one that is locked here. -1: somebody else has it, or another errno. */
static int lock(const char *path, const char *folder)
{
    struct stat locked, found;
    for (;;) {
        const int file = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (file < 0 && errno == ENOENT && make_folder(folder))
            continue;
        if (file < 0)
            return -1;
        if (flock(file, LOCK_EX | LOCK_NB) != 0) {
            const int error = errno;
            close(file);
            errno = error;
            return -1;
        }
        if (fstat(file, &locked) == 0 && stat(path, &found) == 0 && locked.st_dev == found.st_dev &&
            locked.st_ino == found.st_ino)
            return file;
        close(file);
    }
}

/* A socket at `path` that only this user can reach, in the place of one that was left there. -1:
 * there is none, says `why`, or *is_second: another keeper is there. */
static int listen_at(const char *path, const char *lock_path, const char *folder, bool *is_second,
                     char *why, size_t size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        snprintf(why, size, "the path of the socket is too long");
        return -1;
    }
    umask(077);
    if (!make_folder(folder)) {
        snprintf(why, size, "%s is not there, or not for this user alone (mode 0700)", folder);
        return -1;
    }
    if (lock(lock_path, folder) < 0) { /* it stays open */
        *is_second = errno == EWOULDBLOCK;
        snprintf(why, size, "%s cannot be locked: %s", lock_path, strerror(errno));
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlink(path);
    umask(0177);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 16)) {
        snprintf(why, size, "the socket %s cannot be made: %s", path, strerror(errno));
        return -1;
    }
    return fd;
}

/* False: it may not have enough open files. */
static bool harden(char *why, size_t size)
{
    struct rlimit files = {0};
    prctl(PR_SET_DUMPABLE, 0); /* it holds memory of others */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGTTOU, SIG_IGN); /* with `stty tostop` a line to the terminal would stop it */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
        getrlimit(RLIMIT_NOFILE, &files);
    }
    const rlim_t reserved = FILES_RESERVED + GM_KEEPER_FDS;
    if (files.rlim_cur <= reserved) {
        snprintf(why, size, "it needs more than %u open files: raise LimitNOFILE or ulimit -n",
                 (unsigned)reserved);
        return false;
    }
    const rlim_t most = files.rlim_cur - reserved;
    keeper.held.most = most < INT32_MAX ? (uint32_t)most : INT32_MAX;
    return true;
}

int main(int argc, char **argv)
{
    const char *path = NULL;
    char why[256] = "", lock_path[sizeof((struct sockaddr_un *)0)->sun_path + 8];
    char folder[sizeof lock_path] = ".";
    bool is_second = false;
    keeper.patience = 60 * GM_S;
    gm_open_standard(1);
    syscall(SYS_close_range, 3, ~0u, 0); /* what it was started with may be of a daemon's driver */
    static const char usage[] = "usage: gpumux-keeper --socket PATH [--patience TIME]\n";
    for (int i = 1; i < argc; i++) {
        const bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--socket") == 0 && has_value) {
            path = argv[++i];
        } else if (strcmp(argv[i], "--patience") == 0 && has_value &&
                   gm_parse_duration(argv[i + 1], &keeper.patience) == 0) {
            i++;
        } else if (strcmp(argv[i], "--help") == 0) {
            printf(
                "%sHolds the memory of programs for gpumuxd, which starts it: gpumux-keeper(8).\n",
                usage);
            return fflush(stdout) != 0;
        } else if (strcmp(argv[i], "--version") == 0) {
            printf("gpumux-keeper %s\n", GM_VERSION);
            return fflush(stdout) != 0;
        } else {
            path = NULL;
            break;
        }
    }
    if (!path) {
        fputs(usage, stderr);
        return 1;
    }
    gm_log_open(STDERR_FILENO, GM_LOG_INFO, "gpumux-keeper");
    for (uint32_t i = 0; i < GUESTS; i++)
        keeper.guests[i].fd = -1;
    keeper.daemon = -1;
    keeper.is_service = getenv("NOTIFY_SOCKET") != NULL; /* a daemon does not hand on its own */
    keeper.alone_since = gm_now();
    keeper.epoll = epoll_create1(EPOLL_CLOEXEC);
    snprintf(lock_path, sizeof lock_path, "%s.lock", path);
    const char *slash = strrchr(path, '/');
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", slash > path ? (int)(slash - path) : 1, path);
    keeper.listener = harden(why, sizeof why)
                          ? listen_at(path, lock_path, folder, &is_second, why, sizeof why)
                          : -1;
    if (is_second) {
        gm_log(GM_LOG_INFO, "another gpumux-keeper is at %s: this one is not needed", path);
        gm_notify("READY=1\nSTATUS=Another gpumux-keeper holds memory for gpumuxd");
        return 0;
    }
    if (keeper.listener < 0 || watch(keeper.listener, OF_LISTENER, 0) != 0) {
        gm_log(GM_LOG_ERROR, "cannot start: %s", *why ? why : strerror(errno));
        return 1;
    }
    gm_notify("READY=1\nSTATUS=Holding memory for gpumuxd");
    serve();
    unlink(path);
    unlink(lock_path);
    rmdir(folder); /* a unit's stays */
    if (!keeper.is_told)
        gm_log(GM_LOG_INFO, "ends, and %u descriptors with it", keeper.held.n);
    return 0;
}
