/* common/sock.h over real sockets: one message in, one out, with its fds, and every way it can
 * fail. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/sock.h"

static char dir[64];    /* of this run's sockets */
static int pair[2];     /* a connection */
static int open_before; /* fds, to see that none leaks */

static int count_fds(void)
{
    int count = 0;
    DIR *fds = opendir("/proc/self/fd");
    assert_non_null(fds);
    while (readdir(fds) != NULL)
        count++;
    closedir(fds);
    return count;
}

static int setup(void **state)
{
    (void)state;
    open_before = count_fds();
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

/* Each test closes what it opened, or here it fails. */
static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
    if (count_fds() != open_before) {
        print_error("%d fds were open before, %d are now\n", open_before, count_fds());
        return -1;
    }
    return 0;
}

static void close_end(int i)
{
    close(pair[i]);
    pair[i] = -1;
}

/* A listener at `name` in the test's directory, with a small backlog. */
static int listen_at(const char *name, char *path, size_t size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(path, size, "%s/%s", dir, name);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", dir, name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 2), 0);
    return fd;
}

static void test_path(void **state)
{
    char path[256];
    (void)state;
    unsetenv("GPUMUX_SOCKET");
    setenv("XDG_RUNTIME_DIR", "/run/user/1000", 1);
    assert_int_equal(gm_sock_path(0, path, sizeof(path)), 0);
    assert_string_equal(path, "/run/gpumux/gpumux.sock");
    assert_int_equal(gm_sock_path(1, path, sizeof(path)), 0);
    assert_string_equal(path, "/run/user/1000/gpumux/gpumux.sock");
    assert_int_equal(gm_sock_path(2, path, sizeof(path)), -ENOENT);
    assert_int_equal(gm_sock_path(UINT32_MAX, path, sizeof(path)), -ENOENT);

    /* Without a runtime directory, or with one that is not a place, only the system's is left. */
    static const char *const none[] = {NULL, "", "run/user"};
    for (size_t i = 0; i < 3; i++) {
        unsetenv("XDG_RUNTIME_DIR");
        if (none[i] != NULL)
            setenv("XDG_RUNTIME_DIR", none[i], 1);
        assert_int_equal(gm_sock_path(0, path, sizeof(path)), 0);
        assert_int_equal(gm_sock_path(1, path, sizeof(path)), -ENOENT);
    }

    /* Told where: only there. */
    setenv("XDG_RUNTIME_DIR", "/run/user/1000", 1);
    setenv("GPUMUX_SOCKET", "/x/y.sock", 1);
    assert_int_equal(gm_sock_path(0, path, sizeof(path)), 0);
    assert_string_equal(path, "/x/y.sock");
    assert_int_equal(gm_sock_path(1, path, sizeof(path)), -ENOENT);
    setenv("GPUMUX_SOCKET", "", 1); /* as good as not set */
    assert_int_equal(gm_sock_path(1, path, sizeof(path)), 0);
    unsetenv("GPUMUX_SOCKET");
}

static void test_path_too_long(void **state)
{
    char path[256], longest[300];
    (void)state;
    unsetenv("XDG_RUNTIME_DIR");
    memset(longest, 'a', sizeof(longest) - 1);
    longest[0] = '/';
    longest[sizeof(longest) - 1] = '\0';
    setenv("GPUMUX_SOCKET", longest, 1);
    assert_int_equal(gm_sock_path(0, path, sizeof(path)), -ENAMETOOLONG);
    assert_int_equal(gm_sock_connect_any(NULL, 0), -ENAMETOOLONG);
    assert_int_equal(gm_sock_connect(longest), -ENAMETOOLONG);
    setenv("GPUMUX_SOCKET", "/x/y.sock", 1);
    for (size_t size = 1; size < 12; size++)
        assert_int_equal(gm_sock_path(0, path, size), size > 9 ? 0 : -ENAMETOOLONG);

    /* The longest that a socket address holds, with its NUL, is tried; one more is not. */
    longest[107] = '\0';
    assert_int_equal(gm_sock_connect(longest), -ENOENT);
    longest[107] = 'a';
    longest[108] = '\0';
    assert_int_equal(gm_sock_connect(longest), -ENAMETOOLONG);
    unsetenv("GPUMUX_SOCKET");
}

static void test_connect(void **state)
{
    char path[128];
    (void)state;
    int listener = listen_at("c.sock", path, sizeof(path));
    int fd = gm_sock_connect(path);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    int type = 0;
    socklen_t size = sizeof(type);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size), 0);
    assert_int_equal(type, SOCK_SEQPACKET);
    close(fd);
    close(listener);

    /* The file is still there, nobody listens: a stale socket. */
    assert_int_equal(gm_sock_connect(path), -ECONNREFUSED);
    unlink(path);
    assert_int_equal(gm_sock_connect(path), -ENOENT);
    assert_int_equal(gm_sock_connect(""), -ENOENT);
}

/* A daemon that hangs: its backlog fills, and then connecting fails soon instead of waiting. */
static void test_connect_hung(void **state)
{
    char path[128];
    int fds[16], n = 0;
    (void)state;
    int listener = listen_at("h.sock", path, sizeof(path));
    alarm(20); /* were it to wait, this ends the test */
    while (n < 16 && (fds[n] = gm_sock_connect(path)) >= 0)
        n++;
    alarm(0);
    assert_in_range(n, 1, 15);
    assert_int_equal(fds[n], -EAGAIN);
    while (n > 0)
        close(fds[--n]);
    close(listener);
    unlink(path);
}

static void test_connect_wrong_kind(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)state;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/stream.sock", dir);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(gm_sock_connect(address.sun_path), -EPROTOTYPE);
    close(listener);
    unlink(address.sun_path);
}

static void test_connect_any(void **state)
{
    char listening[128], path[128], place[128];
    (void)state;
    unsetenv("GPUMUX_SOCKET");
    setenv("XDG_RUNTIME_DIR", dir, 1);
    snprintf(path, sizeof(path), "%s/gpumux", dir);
    assert_int_equal(mkdir(path, 0700), 0);

    int fd = gm_sock_connect_any(place, sizeof(place));
    if (fd >= 0) {
        close(fd); /* a daemon of this machine answers first; the order cannot be shown here */
    } else {
        snprintf(path, sizeof(path), "%s/gpumux/gpumux.sock", dir);
        assert_int_equal(fd, -ENOENT); /* of the last place, which is named */
        assert_string_equal(place, path);

        int listener = listen_at("gpumux/gpumux.sock", listening, sizeof(listening));
        fd = gm_sock_connect_any(place, sizeof(place));
        assert_true(fd >= 0);
        assert_string_equal(place, path);
        close(fd);
        fd = gm_sock_connect_any(NULL, 0);
        assert_true(fd >= 0);
        close(fd);
        close(listener);
        assert_int_equal(gm_sock_connect_any(NULL, 0), -ECONNREFUSED);
        unlink(listening);
    }

    int listener = listen_at("told.sock", listening, sizeof(listening));
    setenv("GPUMUX_SOCKET", listening, 1);
    fd = gm_sock_connect_any(place, sizeof(place));
    assert_true(fd >= 0);
    assert_string_equal(place, listening);
    close(fd);
    close(listener);
    unlink(listening);
    assert_int_equal(gm_sock_connect_any(place, sizeof(place)), -ENOENT);
    unsetenv("GPUMUX_SOCKET");
    unsetenv("XDG_RUNTIME_DIR");
    snprintf(path, sizeof(path), "%s/gpumux", dir);
    rmdir(path);
}

static void test_bytes(void **state)
{
    uint8_t out[GM_WIRE_MAX], in[GM_WIRE_MAX];
    int fds[GM_WIRE_FDS], n_fds = -1;
    (void)state;
    for (size_t i = 0; i < sizeof(out); i++)
        out[i] = (uint8_t)(i * 31);
    static const size_t lengths[] = {1, 16, 100, GM_WIRE_MAX};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(gm_sock_send(pair[0], out, lengths[i], NULL, 0), 0);
    for (size_t i = 0; i < 4; i++) { /* each one whole, none joined */
        assert_int_equal(gm_sock_receive(pair[1], in, sizeof(in), fds, &n_fds), lengths[i]);
        assert_int_equal(n_fds, 0);
        assert_memory_equal(in, out, lengths[i]);
    }
}

static int numbered_memfd(int number)
{
    int fd = memfd_create("numbered", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, &number, sizeof(number)), sizeof(number));
    return fd;
}

static void test_fds(void **state)
{
    (void)state;
    for (int n = 1; n <= GM_WIRE_FDS; n += n < 4 ? 1 : 7) {
        int sent[GM_WIRE_FDS], fds[GM_WIRE_FDS], n_fds = -1;
        char byte = 'x';
        for (int i = 0; i < n; i++)
            sent[i] = numbered_memfd(i);
        assert_int_equal(gm_sock_send(pair[0], &byte, 1, sent, n), 0);
        for (int i = 0; i < n; i++)
            close(sent[i]); /* they live on in the message */
        assert_int_equal(gm_sock_receive(pair[1], &byte, 1, fds, &n_fds), 1);
        assert_int_equal(n_fds, n);
        for (int i = 0; i < n; i++) {
            int number = -1;
            assert_int_equal(fcntl(fds[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
            assert_int_equal(pread(fds[i], &number, sizeof(number), 0), sizeof(number));
            assert_int_equal(number, i);
            close(fds[i]);
        }
    }
    /* All 32 exactly. */
    int fds[GM_WIRE_FDS], same[GM_WIRE_FDS], n_fds;
    char byte = 'x';
    for (int i = 0; i < GM_WIRE_FDS; i++)
        same[i] = pair[0];
    assert_int_equal(gm_sock_send(pair[0], &byte, 1, same, GM_WIRE_FDS), 0);
    assert_int_equal(gm_sock_receive(pair[1], &byte, 1, fds, &n_fds), 1);
    assert_int_equal(n_fds, GM_WIRE_FDS);
    while (n_fds > 0)
        close(fds[--n_fds]);
}

static void test_send_refuses(void **state)
{
    char byte = 'x';
    int fds[GM_WIRE_FDS + 1] = {0}, bad = 1000000;
    (void)state;
    assert_int_equal(gm_sock_send(pair[0], &byte, 0, NULL, 0), -EINVAL);
    assert_int_equal(gm_sock_send(pair[0], &byte, 1, fds, GM_WIRE_FDS + 1), -EINVAL);
    assert_int_equal(gm_sock_send(pair[0], &byte, 1, fds, -1), -EINVAL);
    assert_int_equal(gm_sock_send(pair[0], &byte, 1, &bad, 1), -EBADF);
    assert_int_equal(gm_sock_send(-1, &byte, 1, NULL, 0), -EBADF);
}

static void test_end(void **state)
{
    char byte = 'x';
    int fds[GM_WIRE_FDS], n_fds = -1;
    (void)state;
    assert_int_equal(gm_sock_send(pair[0], &byte, 1, NULL, 0), 0);
    close_end(0);
    assert_int_equal(gm_sock_receive(pair[1], &byte, 1, fds, &n_fds), 1); /* was sent before */
    assert_int_equal(gm_sock_receive(pair[1], &byte, 1, fds, &n_fds), 0);
    assert_int_equal(n_fds, 0);
    assert_int_equal(gm_sock_receive(pair[1], &byte, 1, fds, &n_fds), 0);
    assert_int_equal(gm_sock_send(pair[1], &byte, 1, NULL, 0), -EPIPE);
}

/* SIGPIPE, which Linux raises for streams only, would end this test. */
static void test_no_signal(void **state)
{
    char byte = 'x';
    (void)state;
    close_end(0);
    close_end(1);
    signal(SIGPIPE, SIG_DFL);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    close_end(0);
    assert_int_equal(gm_sock_send(pair[1], &byte, 1, NULL, 0), -EPIPE);
}

static void test_reset(void **state)
{
    char byte = 'x';
    int fds[GM_WIRE_FDS], n_fds = -1;
    (void)state;
    assert_int_equal(gm_sock_send(pair[0], &byte, 1, NULL, 0), 0);
    close_end(1); /* with our message unread */
    assert_int_equal(gm_sock_receive(pair[0], &byte, 1, fds, &n_fds), -ECONNRESET);
    assert_int_equal(n_fds, 0);
}

static void test_nonblocking(void **state)
{
    char bytes[1024] = {0};
    int fds[GM_WIRE_FDS], n_fds = -1, sent = 0, result;
    (void)state;
    assert_int_equal(fcntl(pair[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(fcntl(pair[1], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(gm_sock_receive(pair[1], bytes, sizeof(bytes), fds, &n_fds), -EAGAIN);
    while ((result = gm_sock_send(pair[0], bytes, sizeof(bytes), &pair[0], 1)) == 0)
        sent++;
    assert_true(sent > 0);
    /* Linux also bounds the fds in flight; either way nothing of the last one was sent. */
    assert_true(result == -EAGAIN || result == -ETOOMANYREFS);
    while (gm_sock_receive(pair[1], bytes, sizeof(bytes), fds, &n_fds) == sizeof(bytes)) {
        assert_int_equal(n_fds, 1);
        close(fds[0]);
        sent--;
    }
    assert_int_equal(sent, 0);
}

static void test_too_long(void **state)
{
    char bytes[64] = {0}, in[64];
    int fds[GM_WIRE_FDS], n_fds = -1;
    (void)state;
    int before = count_fds();
    assert_int_equal(gm_sock_send(pair[0], bytes, 64, &pair[0], 1), 0);
    assert_int_equal(gm_sock_send(pair[0], bytes, 63, NULL, 0), 0);
    assert_int_equal(gm_sock_receive(pair[1], in, 63, fds, &n_fds), -EMSGSIZE);
    assert_int_equal(n_fds, 0);
    assert_int_equal(count_fds(), before);                               /* its fd was closed */
    assert_int_equal(gm_sock_receive(pair[1], in, 63, fds, &n_fds), 63); /* the next one is whole */
}

/* A peer that does not use gm_sock_send: `n` fds with `length` bytes, in one or two control
 * messages. */
static void send_raw(size_t length, int n)
{
    char byte[8] = {0};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 64)];
    } control = {.bytes = {0}};
    struct iovec piece = {.iov_base = byte, .iov_len = length};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n);
    for (int i = 0; i < n; i++)
        memcpy(CMSG_DATA(head) + (size_t)i * sizeof(int), &pair[0], sizeof(int));
    assert_int_equal(sendmsg(pair[0], &message, 0), length);
}

static void test_too_many_fds(void **state)
{
    char in[64];
    int fds[GM_WIRE_FDS], n_fds = -1;
    (void)state;
    int before = count_fds();
    for (int n = GM_WIRE_FDS + 1; n <= 64; n += 15) {
        send_raw(1, n);
        assert_int_equal(gm_sock_receive(pair[1], in, sizeof(in), fds, &n_fds), -EMSGSIZE);
        assert_int_equal(n_fds, 0);
        assert_int_equal(count_fds(), before);
    }
}

/* Nothing but fds: taken for the end of the connection, and they do not leak. */
static void test_empty_with_fds(void **state)
{
    char in[64];
    int fds[GM_WIRE_FDS], n_fds = -1;
    (void)state;
    int before = count_fds();
    send_raw(0, 5);
    assert_int_equal(gm_sock_receive(pair[1], in, sizeof(in), fds, &n_fds), 0);
    assert_int_equal(n_fds, 0);
    assert_int_equal(count_fds(), before);
}

/* The process runs out of fds while some arrive: the message is refused whole, what came is closed.
 */
static void test_fd_limit(void **state)
{
    char byte = 'x';
    int fds[GM_WIRE_FDS], same[GM_WIRE_FDS], n_fds = -1;
    struct rlimit old, low;
    (void)state;
    for (int i = 0; i < GM_WIRE_FDS; i++)
        same[i] = pair[0];
    assert_int_equal(gm_sock_send(pair[0], &byte, 1, same, GM_WIRE_FDS), 0);
    assert_int_equal(gm_sock_send(pair[0], &byte, 1, same, GM_WIRE_FDS), 0);
    int before = count_fds();
    int next = dup(pair[0]); /* the lowest free number */
    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    for (rlim_t room = 0; room <= 3; room += 3) {
        low = old;
        low.rlim_cur = (rlim_t)next + room;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        ssize_t result = gm_sock_receive(pair[1], &byte, 1, fds, &n_fds);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        assert_int_equal(result, -EMSGSIZE);
        assert_int_equal(n_fds, 0);
        assert_int_equal(count_fds(), before);
    }
}

/* The daemon's way: fds never get a number, and what comes with some is refused. */
static void test_bare(void **state)
{
    char byte = 'x', in[8];
    int same[GM_WIRE_FDS];
    (void)state;
    for (int i = 0; i < GM_WIRE_FDS; i++)
        same[i] = pair[0];
    const int before = count_fds();
    assert_int_equal(gm_sock_send(pair[0], &byte, 1, same, 1), 0);
    assert_int_equal(gm_sock_send(pair[0], &byte, 1, same, GM_WIRE_FDS), 0);
    send_raw(0, 5); /* an empty one is not the end if fds come with it */
    assert_int_equal(gm_sock_send(pair[0], "too long!", 9, NULL, 0), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(gm_sock_receive_bare(pair[1], in, sizeof(in)), -EMSGSIZE);
    assert_int_equal(gm_sock_send(pair[0], &byte, 1, NULL, 0), 0);
    assert_int_equal(gm_sock_receive_bare(pair[1], in, sizeof(in)), 1); /* the next one is whole */
    assert_int_equal(in[0], byte);
    assert_int_equal(gm_sock_receive_bare(-1, in, sizeof(in)), -EBADF);
    assert_int_equal(count_fds(), before);
    close_end(0);
    assert_int_equal(gm_sock_receive_bare(pair[1], in, sizeof(in)), 0);
}

static atomic_int interrupts;

static void on_signal(int number)
{
    (void)number;
    interrupts++;
}

struct blocked {
    int fd;
    bool is_sender;
    atomic_bool is_done;
    long result;
};

static void *block(void *arg)
{
    struct blocked *call = arg;
    static char bytes[GM_WIRE_MAX];
    int fds[GM_WIRE_FDS], n_fds;
    if (call->is_sender)
        call->result = gm_sock_send(call->fd, bytes, sizeof(bytes), NULL, 0);
    else
        call->result = gm_sock_receive(call->fd, bytes, sizeof(bytes), fds, &n_fds);
    call->is_done = true;
    return NULL;
}

/* Signals (without SA_RESTART) at a blocked call: it goes on waiting, and then succeeds. */
static void test_interrupted(void **state)
{
    struct sigaction action = {.sa_handler = on_signal}, old;
    char bytes[GM_WIRE_MAX] = {0};
    int fds[GM_WIRE_FDS], n_fds;
    (void)state;
    sigaction(SIGUSR1, &action, &old);
    for (int sender = 0; sender < 2; sender++) {
        struct blocked call = {.fd = pair[0], .is_sender = sender};
        pthread_t thread;
        int filled = 0;
        if (sender) { /* fill the socket, so that the next one blocks */
            fcntl(pair[0], F_SETFL, O_NONBLOCK);
            while (gm_sock_send(pair[0], bytes, sizeof(bytes), NULL, 0) == 0)
                filled++;
            fcntl(pair[0], F_SETFL, 0);
            assert_true(filled > 0);
        }
        interrupts = 0;
        assert_int_equal(pthread_create(&thread, NULL, block, &call), 0);
        for (int i = 0; i < 20 || (interrupts == 0 && i < 10000); i++) {
            usleep(5000);
            pthread_kill(thread, SIGUSR1);
        }
        usleep(20000);
        assert_true(interrupts > 0);
        assert_false(call.is_done);
        if (sender) {
            for (int i = 0; i <= filled; i++)
                assert_int_equal(gm_sock_receive(pair[1], bytes, sizeof(bytes), fds, &n_fds),
                                 GM_WIRE_MAX);
        } else {
            assert_int_equal(gm_sock_send(pair[1], bytes, 3, NULL, 0), 0);
        }
        pthread_join(thread, NULL);
        assert_int_equal(call.result, sender ? 0 : 3);
    }
    sigaction(SIGUSR1, &old, NULL);
}

#define SENDERS 4
#define MESSAGES 300

static void *send_many(void *arg)
{
    uint64_t id = (uint64_t)(uintptr_t)arg;
    for (uint64_t i = 0; i < MESSAGES; i++) {
        struct gm_msg_free body = {.cookie = id << 32 | i, .va = ~(id << 32 | i)};
        if (gm_sock_send_message(pair[0], GM_MSG_FREE, &body, NULL, 0, NULL, 0) != 0)
            return arg;
    }
    return NULL;
}

/* Several threads send on one socket: every message arrives whole, each thread's in its order. */
static void test_threads(void **state)
{
    pthread_t threads[SENDERS];
    uint64_t next[SENDERS] = {0};
    (void)state;
    for (uintptr_t i = 0; i < SENDERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, send_many, (void *)i), 0);
    for (int i = 0; i < SENDERS * MESSAGES; i++) {
        _Alignas(8) uint8_t in[GM_WIRE_MAX];
        int fds[GM_WIRE_FDS], n_fds;
        struct gm_wire_message message;
        ssize_t length = gm_sock_receive(pair[1], in, sizeof(in), fds, &n_fds);
        assert_true(length > 0);
        assert_int_equal(gm_wire_decode(in, (size_t)length, n_fds, GM_UP, GM_SESSION_APP, &message),
                         GM_WIRE_OK);
        const struct gm_msg_free *body = message.body;
        assert_int_equal(body->va, ~body->cookie);
        assert_in_range(body->cookie >> 32, 0, SENDERS - 1);
        assert_int_equal(body->cookie & UINT32_MAX, next[body->cookie >> 32]++);
    }
    for (int i = 0; i < SENDERS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

static void test_send_message(void **state)
{
    _Alignas(8) uint8_t in[GM_WIRE_MAX];
    int fds[GM_WIRE_FDS], n_fds;
    struct gm_wire_message message;
    (void)state;

    struct gm_msg_map map = {.batch = 7};
    struct gm_map_entry entries[2] = {
        {.va = 1ull << 40, .bytes = 2 << 20, .frame = 3, .flags = GM_MAP_HAS_FD},
        {.va = 2ull << 40, .bytes = 4 << 20, .frame = 4},
    };
    int sent = numbered_memfd(42), number = 0;
    assert_int_equal(gm_sock_send_message(pair[0], GM_MSG_MAP, &map, entries, 2, &sent, 1), 0);
    close(sent);
    ssize_t length = gm_sock_receive(pair[1], in, sizeof(in), fds, &n_fds);
    assert_true(length > 0);
    assert_int_equal(gm_wire_decode(in, (size_t)length, n_fds, GM_DOWN, GM_SESSION_APP, &message),
                     GM_WIRE_OK);
    assert_int_equal(message.type, GM_MSG_MAP);
    assert_int_equal(message.n_fds, 1);
    assert_int_equal(message.count, 2);
    assert_memory_equal(message.body, &map, sizeof(map));
    assert_memory_equal(message.entries, entries, sizeof(entries));
    assert_int_equal(pread(fds[0], &number, sizeof(number), 0), sizeof(number));
    assert_int_equal(number, 42);
    close(fds[0]);

    /* What the row does not allow is not sent. */
    assert_int_equal(gm_sock_send_message(pair[0], GM_MSG_MAP, &map, entries, 33, NULL, 0),
                     -EINVAL);
    assert_int_equal(gm_sock_send_message(pair[0], (enum gm_msg_type)99, &map, NULL, 0, NULL, 0),
                     -EINVAL);
    assert_int_equal(fcntl(pair[1], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(gm_sock_receive(pair[1], in, sizeof(in), fds, &n_fds), -EAGAIN);
}

/* The largest message of every row goes through. */
static void test_largest(void **state)
{
    static const uint8_t body[512], entries[GM_WIRE_MAX];
    (void)state;
#define GM_MSG(type, NAME, name, direction, states, entry, max_entries, max_fds)                   \
    {                                                                                              \
        uint8_t in[GM_WIRE_MAX];                                                                   \
        int fds[GM_WIRE_FDS], n_fds;                                                               \
        size_t length = sizeof(struct gm_wire_header) + sizeof(struct gm_msg_##name) +             \
                        (max_entries) * sizeof(struct entry);                                      \
        assert_int_equal(                                                                          \
            gm_sock_send_message(pair[0], GM_MSG_##NAME, body, entries, max_entries, NULL, 0), 0); \
        assert_int_equal(gm_sock_receive(pair[1], in, sizeof(in), fds, &n_fds), length);           \
    }
#include "common/wire.def"
#undef GM_MSG
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_path),
        TEST(test_path_too_long),
        TEST(test_connect),
        TEST(test_connect_hung),
        TEST(test_connect_wrong_kind),
        TEST(test_connect_any),
        TEST(test_bytes),
        TEST(test_fds),
        TEST(test_send_refuses),
        TEST(test_end),
        TEST(test_no_signal),
        TEST(test_reset),
        TEST(test_nonblocking),
        TEST(test_too_long),
        TEST(test_too_many_fds),
        TEST(test_empty_with_fds),
        TEST(test_fd_limit),
        TEST(test_bare),
        TEST(test_interrupted),
        TEST(test_threads),
        TEST(test_send_message),
        TEST(test_largest),
    };
    const char *parent = getenv("TMPDIR");
    snprintf(dir, sizeof(dir), "%.32s/gm-sock-XXXXXX", parent != NULL ? parent : "/tmp");
    if (mkdtemp(dir) == NULL) {
        perror(dir);
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(dir);
    return failed;
}
