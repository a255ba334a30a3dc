#include "shim/link/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"

#define GM_FILES_LOW 500 /* programs close and reuse numbers below */

static bool gm_files_are_short; /* fds were lost once */
static int gm_files_own = -1;   /* an empty file; the others are its duplicates */
static struct stat gm_files_own_is;
static int gm_files_kept[GM_WIRE_FDS];
static int gm_files_n;

/* A duplicate of `fd` with a high number, as far as the limit allows; -1: none. */
static int gm_files_duplicate(int fd)
{
    for (int least = GM_FILES_LOW; least > 10; least /= 2) {
        int high = fcntl(fd, F_DUPFD_CLOEXEC, least);
        if (high >= 0)
            return high;
    }
    return -1;
}

void gm_files_widen(void)
{
    const int fd = open("/", O_PATH | O_CLOEXEC);
    const int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 2 * GM_FILES_LOW);
    if (high >= 0)
        close(high);
    if (fd >= 0)
        close(fd);
}

int gm_files_lift(int fd)
{
    int high = gm_files_duplicate(fd);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

/* Whether `fd` is still ours: the program may have closed it and reused the number. */
static bool gm_files_is_own(int fd)
{
    struct stat now;
    return fd >= 0 && fstat(fd, &now) == 0 && now.st_dev == gm_files_own_is.st_dev &&
           now.st_ino == gm_files_own_is.st_ino;
}

void gm_files_reserve(void)
{
    if (gm_files_n < GM_WIRE_FDS && !gm_files_is_own(gm_files_own)) {
        int fd = memfd_create("gpumux-room", MFD_CLOEXEC);
        if (fd < 0)
            return;
        gm_files_own = gm_files_lift(fd);
        fstat(gm_files_own, &gm_files_own_is);
        gm_files_n = 0; /* the duplicates are closed too, or not known any more */
    }
    while (gm_files_n < GM_WIRE_FDS) {
        int fd = gm_files_duplicate(gm_files_own);
        if (fd < 0)
            return;
        gm_files_kept[gm_files_n++] = fd;
    }
}

static void gm_files_free_numbers(void)
{
    for (; gm_files_n > 0; gm_files_n--)
        if (gm_files_is_own(gm_files_kept[gm_files_n - 1]))
            close(gm_files_kept[gm_files_n - 1]);
}

void gm_files_lend(void)
{
    gm_files_free_numbers();
}

void gm_files_give_back(void)
{
    gm_files_free_numbers();
    if (gm_files_is_own(gm_files_own))
        close(gm_files_own);
    gm_files_own = -1;
}

void gm_files_make_room(int socket)
{
    char byte;
    struct iovec piece = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    /* No room for fds: they stay in the queue, and the message counts as truncated. */
    if (recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT) > 0 &&
        (message.msg_flags & MSG_CTRUNC) != 0)
        gm_files_free_numbers();
}

bool gm_files_lost(const void *bytes, size_t length, uint64_t *batch)
{
    struct gm_wire_message message;
    enum gm_wire_fault fault = GM_WIRE_BAD_FDS;
    for (int n = 0; n <= GM_WIRE_FDS && fault == GM_WIRE_BAD_FDS; n++) /* as if n had come */
        fault = gm_wire_decode(bytes, length, n, GM_DOWN, GM_SESSION_APP, &message);
    if (fault != GM_WIRE_OK || message.type != GM_MSG_MAP)
        return false;
    if (!gm_files_are_short)
        gm_log(GM_LOG_WARN,
               "this program is at its limit of open files (ulimit -n): the daemon tries again");
    gm_files_are_short = true;
    *batch = ((const struct gm_msg_map *)message.body)->batch;
    return true;
}
