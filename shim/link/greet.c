#include "shim/link/greet.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/appname.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/sock.h"
#include "common/windows.h"
#include "common/wishes.h"
#include "shim/link/files.h"

#define GM_GREET_PATIENCE (2 * GM_SLOW * GM_S) /* for the first WELCOME */

/* A file, whatever its number. */
struct gm_greet_file {
    dev_t device;
    ino_t number;
};

/* What the first WELCOME said. */
static struct {
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    uid_t daemon;
    uint32_t app;
    uint64_t nonce[2];
    struct gm_ctl *ctl;
    struct gm_stat *stat;
    struct gm_greet_file stat_file, lifeline_file;
    uint64_t epoch; /* of the newest WELCOME's page, before it was mapped */
} gm_greet_first;

static int gm_greet_lifeline_fd = -1;

/* What is left to say of REJOIN. */
static gm_greet_list *gm_greet_lists; /* NULL: it has said all */
static uint32_t gm_greet_cursor;
static size_t gm_greet_length; /* of the message that waits in the buffer */

/* Of boot, then of the link thread. */
static uint64_t gm_greet_buffer[GM_WIRE_MAX / sizeof(uint64_t)];

/* ---- pages ---- */

static bool gm_greet_look(int fd, struct gm_greet_file *file, size_t least)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size < (off_t)least)
        return false;
    *file = (struct gm_greet_file){st.st_dev, st.st_ino};
    return true;
}

static bool gm_greet_is_same(const struct gm_greet_file *one, const struct gm_greet_file *other)
{
    return one->device == other->device && one->number == other->number;
}

/* Map the first `size` bytes of an area that has `whole`. */
static void *gm_greet_map(int fd, size_t size, size_t whole, int protection)
{
    struct gm_greet_file file;
    if (!gm_greet_look(fd, &file, whole))
        return MAP_FAILED;
    return mmap(NULL, size, protection, MAP_SHARED, fd, 0);
}

/* Map the two areas of WELCOME. */
static int gm_greet_take_areas(const int *fds)
{
    struct gm_ctl *ctl = gm_greet_map(fds[0], sizeof(*ctl), sizeof(*ctl), PROT_READ);
    if (ctl == MAP_FAILED)
        return -EPROTO;
    struct gm_stat *stat =
        gm_greet_map(fds[1], sizeof(*stat), GM_STAT_BYTES, PROT_READ | PROT_WRITE);
    if (stat == MAP_FAILED)
        goto unmap_ctl;
    if (ctl->magic != GM_SHM_MAGIC || ctl->version != GM_SHM_VERSION ||
        stat->magic != GM_SHM_MAGIC || stat->version != GM_SHM_VERSION ||
        !gm_greet_look(fds[1], &gm_greet_first.stat_file, 0))
        goto unmap_stat;
    gm_greet_first.ctl = ctl;
    gm_greet_first.stat = stat;
    return 0;

unmap_stat:
    munmap(stat, sizeof(*stat));
unmap_ctl:
    munmap(ctl, sizeof(*ctl));
    return -EPROTO;
}

/*
 * Map another daemon's page where the first one's is: whoever loads a word there next has it from
 * the new one. A thread that sleeps does so on the page before, so that is kept for as long as it
 * takes to wake it. One that is just about to sleep wakes up by itself (GM_GATE_RECHECK_S).
 */
static bool gm_greet_replace(int fd)
{
    struct gm_ctl *page = gm_greet_first.ctl, *next;
    next = gm_greet_map(fd, sizeof(*next), sizeof(*next), PROT_READ);
    if (next == MAP_FAILED)
        return false;
    const bool is_right = next->magic == GM_SHM_MAGIC && next->version == GM_SHM_VERSION &&
                          next->app == gm_greet_first.app;
    gm_greet_first.epoch = atomic_load(&next->epoch);
    munmap(next, sizeof(*next));
    if (!is_right)
        return false;
    struct gm_ctl *before = mremap(page, 0, sizeof(*page), MREMAP_MAYMOVE); /* a second mapping */
    /* Who loads a word there meanwhile waits in the kernel. The thread sanitizer takes mmap for a
     * store to all of it, so this is the system call. */
    if (syscall(SYS_mmap, page, sizeof(*page), PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == -1) {
        if (before != MAP_FAILED)
            munmap(before, sizeof(*before));
        return false;
    }
    if (before != MAP_FAILED) {
        syscall(SYS_futex, &before->gate, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
        munmap(before, sizeof(*before));
    }
    return true;
}

/* ---- the lifeline ---- */

int gm_greet_lifeline(void)
{
    struct gm_greet_file file;
    if (gm_greet_lifeline_fd < 0 || !gm_greet_look(gm_greet_lifeline_fd, &file, 0) ||
        !gm_greet_is_same(&file, &gm_greet_first.lifeline_file))
        return -1;
    return gm_greet_lifeline_fd;
}

static void gm_greet_take_lifeline(int fd)
{
    if (gm_greet_lifeline() >= 0)
        close(gm_greet_lifeline_fd);
    gm_greet_lifeline_fd = -1;
    if (gm_greet_look(fd, &gm_greet_first.lifeline_file, 0))
        gm_greet_lifeline_fd = gm_files_lift(fd);
    else
        close(fd);
}

/* ---- HELLO ---- */

static bool gm_greet_wait(int fd, uint64_t until)
{
    for (;;) {
        uint64_t now = gm_now();
        if (now >= until)
            return false;
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int ready = poll(&wait, 1, (int)((until - now) / GM_MS) + 1);
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return false;
    }
}

/* GPUMUX_GROUP for HELLO. */
static void gm_greet_group(char group[64])
{
    const char *name = secure_getenv("GPUMUX_GROUP");
    if (name == NULL)
        return;
    if (strlen(name) < 64)
        strcpy(group, name);
    else
        gm_log(GM_LOG_WARN, "GPUMUX_GROUP is longer than 63 bytes: going on without it");
}

static void gm_greet_welcome(const struct gm_wire_message *message, struct gm_link_welcome *welcome)
{
    const struct gm_msg_welcome *body = message->body;
    welcome->ctl = gm_greet_first.ctl;
    welcome->stat = gm_greet_first.stat;
    welcome->rejoin_ns = body->rejoin_ns;
    welcome->app = gm_greet_first.app = body->app;
    gm_greet_first.nonce[0] = body->nonce[0];
    gm_greet_first.nonce[1] = body->nonce[1];
    welcome->n_gpus = message->count < GM_GPUS_MAX ? message->count : GM_GPUS_MAX;
    memcpy(welcome->gpu, message->entries, welcome->n_gpus * sizeof(welcome->gpu[0]));
}

static int gm_greet_shake_hands(int fd, struct gm_link_welcome *welcome, char *why, size_t why_size)
{
    struct gm_msg_hello hello = {.role = GM_ROLE_APP};
    struct gm_wire_message message;
    int fds[GM_WIRE_FDS];
    int n_fds = 0;

    gm_appname_own((char *)gm_greet_buffer, sizeof(gm_greet_buffer), hello.name);
    gm_greet_group(hello.group);
    gm_wishes_read(secure_getenv, &hello);
    int error = gm_sock_send_message(fd, GM_MSG_HELLO, &hello, NULL, 0, NULL, 0);
    if (error != 0) {
        snprintf(why, why_size, "cannot send to the daemon: %s", strerror(-error));
        return error;
    }
    if (!gm_greet_wait(fd, gm_now() + GM_GREET_PATIENCE)) {
        snprintf(why, why_size, "the daemon does not answer");
        return -ETIMEDOUT;
    }
    ssize_t length = gm_sock_receive(fd, gm_greet_buffer, sizeof(gm_greet_buffer), fds, &n_fds);
    if (length <= 0) {
        snprintf(why, why_size, "%s",
                 length == -EMSGSIZE ? "this program is at its limit of open files (ulimit -n)"
                                     : "the daemon closed the connection");
        return length < 0 ? (int)length : -ECONNRESET;
    }
    enum gm_wire_fault fault =
        gm_wire_decode(gm_greet_buffer, (size_t)length, n_fds, GM_DOWN, GM_SESSION_NEW, &message);
    error = -EPROTO;
    if (fault != GM_WIRE_OK) {
        snprintf(why, why_size, "cannot read the daemon's answer, is it of another version? %s",
                 gm_wire_fault_text(fault));
    } else if (message.type == GM_MSG_REFUSED) {
        const struct gm_msg_refused *refused = message.body;
        snprintf(why, why_size, "the daemon refused: %.*s", (int)sizeof(refused->text),
                 refused->text);
    } else if (message.type != GM_MSG_WELCOME || n_fds < 2 || message.count == 0 ||
               gm_greet_take_areas(fds) != 0) {
        snprintf(why, why_size, "the daemon's answer is invalid");
    } else {
        gm_greet_welcome(&message, welcome);
        error = 0;
    }
    if (error == 0 && n_fds > 2)
        gm_greet_take_lifeline(fds[--n_fds]);
    for (int i = 0; i < n_fds; i++)
        close(fds[i]);
    return error;
}

/* The user of the process at the other end. */
static bool gm_greet_user(int fd, uid_t *user)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return false;
    *user = peer.uid;
    return true;
}

int gm_greet_open(struct gm_link_welcome *welcome, char *why, size_t why_size)
{
    int fd = gm_sock_connect_any(gm_greet_first.path, sizeof(gm_greet_first.path));
    if (fd < 0) {
        snprintf(why, why_size, "no daemon: %s", strerror(-fd));
        return fd;
    }
    fd = gm_files_lift(fd);
    fcntl(fd, F_SETFL, O_NONBLOCK); /* nobody waits to send */
    int error = gm_greet_shake_hands(fd, welcome, why, why_size);
    if (error != 0) {
        close(fd);
        return error;
    }
    if (!gm_greet_user(fd, &gm_greet_first.daemon)) /* then it comes back for nobody */
        gm_greet_close();
    return fd;
}

/* ---- REJOIN ---- */

/* A connection to the daemon, and not to whoever else listens there. */
static int gm_greet_reach(void)
{
    uid_t user;
    const int fd = gm_sock_connect(gm_greet_first.path);
    if (fd < 0)
        return fd;
    if (!gm_greet_user(fd, &user) || user != gm_greet_first.daemon) {
        close(fd);
        return -EPERM;
    }
    return gm_files_lift(fd);
}

int gm_greet_connect(void)
{
    int fd = gm_greet_reach();
    if (fd == -EMFILE) {
        gm_files_lend();
        fd = gm_greet_reach();
        gm_files_reserve();
    }
    if (fd >= 0)
        fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

void gm_greet_again(int fd, const struct gm_msg_rejoin *rejoin, gm_greet_list *list)
{
    struct gm_msg_rejoin body = *rejoin;
    body.app = gm_greet_first.app;
    body.nonce[0] = gm_greet_first.nonce[0];
    body.nonce[1] = gm_greet_first.nonce[1];
    gm_greet_lists = list;
    gm_greet_cursor = 0;
    gm_greet_length =
        gm_wire_encode(gm_greet_buffer, sizeof(gm_greet_buffer), GM_MSG_REJOIN, &body, NULL, 0);
    gm_greet_more(fd);
}

bool gm_greet_has_more(void)
{
    return gm_greet_length > 0;
}

/* The next HOLDS; nothing: all is said. */
static void gm_greet_next(void)
{
    static struct gm_holds_entry entries[GM_ENTRIES_HOLDS];
    if (gm_greet_lists == NULL)
        return;
    const uint32_t n = gm_greet_lists(&gm_greet_cursor, entries, GM_ENTRIES_HOLDS);
    const struct gm_msg_holds body = {.is_last = n < GM_ENTRIES_HOLDS};
    if (body.is_last)
        gm_greet_lists = NULL;
    gm_greet_length =
        gm_wire_encode(gm_greet_buffer, sizeof(gm_greet_buffer), GM_MSG_HOLDS, &body, entries, n);
}

void gm_greet_more(int fd)
{
    while (gm_greet_length > 0) {
        const int error = gm_sock_send(fd, gm_greet_buffer, gm_greet_length, NULL, 0);
        if (gm_sock_is_full(error))
            return;
        gm_greet_length = 0;
        if (error != 0)
            return; /* why, the daemon may have said */
        gm_greet_next();
    }
}

uint64_t gm_greet_epoch(void)
{
    return gm_greet_first.epoch;
}

/* WELCOME again, with the same words of this program. */
static bool gm_greet_is_welcome(const struct gm_wire_message *message, const int *fds)
{
    const struct gm_msg_welcome *body = message->body;
    struct gm_greet_file stat_file;
    return message->n_fds == 3 && body->app == gm_greet_first.app &&
           gm_greet_look(fds[1], &stat_file, GM_STAT_BYTES) &&
           gm_greet_is_same(&stat_file, &gm_greet_first.stat_file) && gm_greet_replace(fds[0]);
}

static enum gm_link_event gm_greet_judge(const struct gm_wire_message *message, int *fds, char *why,
                                         size_t why_size)
{
    const struct gm_msg_refused *refused = message->body;
    switch (message->type) {
    case GM_MSG_WELCOME:
        if (gm_greet_is_welcome(message, fds)) {
            gm_greet_take_lifeline(fds[2]);
            fds[2] = -1;
            return GM_LINK_EV_WELCOME;
        }
        snprintf(why, why_size, "its WELCOME is not for this program");
        return GM_LINK_EV_REFUSED;
    case GM_MSG_REFUSED:
        snprintf(why, why_size, "%.*s", (int)sizeof(refused->text), refused->text);
        return refused->reason == GM_REFUSE_FULL || refused->reason == GM_REFUSE_STOPPING
                   ? GM_LINK_EV_LATER
                   : GM_LINK_EV_REFUSED;
    default:
        snprintf(why, why_size, "it sent %s", gm_wire_name(message->type));
        return GM_LINK_EV_REFUSED;
    }
}

enum gm_link_event gm_greet_hear(int fd, char *why, size_t why_size)
{
    struct gm_wire_message message;
    int fds[GM_WIRE_FDS];
    int n_fds = 0;
    bool has_lost;
    uint64_t *buffer = gm_greet_buffer; /* what it holds is not sent any more */
    enum gm_link_event event = GM_LINK_EV_REFUSED;

    gm_files_make_room(fd);
    gm_greet_length = 0;
    gm_greet_lists = NULL;
    /* A WELCOME that lost its files is for nobody: the daemon sends no other one. */
    ssize_t length = gm_sock_peek(fd, buffer, sizeof(gm_greet_buffer), fds, &n_fds, &has_lost);
    if (length > 0 && has_lost) {
        gm_files_reserve();
        return GM_LINK_EV_NO_FILES;
    }
    gm_sock_skip(fd);
    if (length > 0) {
        enum gm_wire_fault fault =
            gm_wire_decode(buffer, (size_t)length, n_fds, GM_DOWN, GM_SESSION_NEW, &message);
        if (fault == GM_WIRE_OK)
            event = gm_greet_judge(&message, fds, why, why_size);
        else
            snprintf(why, why_size, "its answer cannot be read: %s", gm_wire_fault_text(fault));
    }
    for (int i = 0; i < n_fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    gm_files_reserve();
    return length > 0 ? event : GM_LINK_EV_HANG_UP;
}

void gm_greet_shut(void)
{
    munmap(gm_greet_first.ctl, sizeof(*gm_greet_first.ctl));
    munmap(gm_greet_first.stat, sizeof(*gm_greet_first.stat));
}

void gm_greet_close(void)
{
    if (gm_greet_lifeline() >= 0)
        close(gm_greet_lifeline_fd);
    gm_greet_lifeline_fd = -1;
}
