/* `gpumuxd --drain`: see give_back.h. */
#include "daemon/service/give_back.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/sock.h"

#define PATIENCE_S (10 * GM_SLOW) /* for an answer: the daemon says each second how far it is */
#define END_S 120                 /* ... and then to end: it gives host memory back */

static int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int fail(const char *format, ...)
{
    va_list list;
    fputs("gpumuxd: ", stderr);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    return GM_BACK_FAILED;
}

static const char *plural(uint32_t n)
{
    return n == 1 ? "program has" : "programs have";
}

static void tell(const struct gm_msg_given_back *now)
{
    printf("%u %s all of their memory back, %u to go, %u lost some\n", now->whole,
           plural(now->whole), now->left, now->lost);
    fflush(stdout);
}

/* One GIVEN_BACK. False: it said what is wrong. */
static bool hear(int fd, struct gm_msg_given_back *now)
{
    _Alignas(8) uint8_t buffer[GM_WIRE_MAX];
    struct gm_wire_message message;
    const ssize_t length = gm_sock_receive_bare(fd, buffer, sizeof buffer);
    if (length == -EAGAIN) {
        fail("the daemon does not answer (waited %d s)", PATIENCE_S);
        return false;
    }
    if (length <= 0) {
        fail("the daemon ended before it said what came of it: its log says more");
        return false;
    }
    const enum gm_wire_fault fault =
        gm_wire_decode(buffer, (size_t)length, 0, GM_DOWN, GM_SESSION_CONTROL, &message);
    if (fault) {
        fail("the daemon sent a bad message: %s", gm_wire_fault_text(fault));
        return false;
    }
    if (message.type == GM_MSG_REFUSED) {
        fail("the daemon refused: %s", ((const struct gm_msg_refused *)message.body)->text);
        return false;
    }
    if (message.type != GM_MSG_GIVEN_BACK) {
        fail("the daemon sent %s instead of GIVEN_BACK", gm_wire_name(message.type));
        return false;
    }
    *now = *(const struct gm_msg_given_back *)message.body;
    return true;
}

/* The outcome, once it has said that it is over. */
static int follow(int fd)
{
    struct gm_msg_given_back now, before = {.whole = UINT32_MAX};
    for (;;) {
        if (!hear(fd, &now))
            return GM_BACK_FAILED;
        if (now.is_refused)
            return fail("only root and the daemon's own user may have it drained");
        if (now.whole != before.whole || now.left != before.left || now.lost != before.lost)
            tell(&now);
        before = now;
        if (now.is_last)
            break;
    }
    if (now.lost == 0) {
        printf("all programs go on without gpumux\n");
        return GM_BACK_WHOLE;
    }
    printf("%u programs go on without gpumux; %u lost memory: the daemon's log names them\n",
           now.whole, now.lost);
    return GM_BACK_LOST;
}

static bool has_ended(int process)
{
    struct pollfd end = {.fd = process, .events = POLLIN};
    return process < 0 || poll(&end, 1, END_S * 1000) > 0;
}

int gm_have_given_back(const char *socket)
{
    const struct gm_msg_hello hello = {.role = GM_ROLE_CONTROL, .name = "gpumuxd --drain"};
    const struct gm_msg_give_back ask = {0};
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    struct ucred daemon = {0};
    socklen_t size = sizeof daemon;
    const int fd = gm_sock_connect(socket);
    if (fd == -ENOENT || fd == -ECONNREFUSED || fd == -ENOTDIR) {
        fail("no daemon runs at %s", socket);
        return GM_BACK_DOWN;
    }
    if (fd < 0)
        return fail("the daemon at %s cannot be reached: %s", socket, strerror(-fd));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &daemon, &size);
    const int process = (int)syscall(SYS_pidfd_open, daemon.pid, 0);
    int outcome = GM_BACK_FAILED;
    int error = gm_sock_send_message(fd, GM_MSG_HELLO, &hello, NULL, 0, NULL, 0);
    if (error == 0)
        error = gm_sock_send_message(fd, GM_MSG_GIVE_BACK, &ask, NULL, 0, NULL, 0);
    if (error == 0 || error == -EPIPE || error == -ECONNRESET) /* why, can still be read */
        outcome = follow(fd);
    else
        fail("the daemon at %s cannot be asked: %s", socket, strerror(-error));
    if (outcome != GM_BACK_FAILED && !has_ended(process))
        outcome = fail("gpumuxd (pid %ld) has not ended within %d s", (long)daemon.pid, END_S);
    if (process >= 0)
        close(process);
    close(fd);
    return outcome;
}
