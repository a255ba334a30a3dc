/*
 * gpumux-keeper, as a process: what a daemon puts there the next one takes, with its contents; who
 * may speak to it; what is none of its messages; floods; too many descriptors; leases; its end.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/clock.h"
#include "daemon/keeper/client.h"

#define PATIENCE_MS 60000 /* for what happens at once, on a busy machine */

static char folder[64], own[72], path[96]; /* path is in own, which the keeper makes in folder */
static pid_t keeper;
static int heirloom[2]; /* a pipe: the keeper is started with its other end */
static struct gm_keeper_message message;
static int fds[GM_KEEPER_FDS];
static uint32_t n_fds;

static int start(const char *patience, rlim_t files)
{
    if (heirloom[0] > 0)
        close(heirloom[0]);
    if (pipe2(heirloom, O_CLOEXEC) != 0)
        return -1;
    keeper = fork();
    if (keeper == 0) {
        const struct rlimit limit = {files, files};
        fcntl(heirloom[1], F_SETFD, 0);
        setrlimit(RLIMIT_NOFILE, &limit);
        execl(GM_KEEPER, "gpumux-keeper", "--socket", path, "--patience", patience, NULL);
        _exit(127);
    }
    close(heirloom[1]);
    return keeper < 0 ? -1 : 0;
}

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/gm-keeper.XXXXXX");
    if (!mkdtemp(folder) || chmod(folder, 0755))
        return -1;
    snprintf(own, sizeof own, "%s/own", folder);
    snprintf(path, sizeof path, "%s/keeper.sock", own);
    return start("2m", 1024);
}

static int tear_down(void **state)
{
    (void)state;
    if (keeper > 0) {
        kill(keeper, SIGKILL);
        waitpid(keeper, NULL, 0);
    }
    char lock[112];
    snprintf(lock, sizeof lock, "%s.lock", path);
    unlink(path);
    unlink(lock);
    rmdir(own);
    return rmdir(folder);
}

static int try_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    const int error = errno;
    close(fd);
    return -error;
}

static int reach(void)
{
    int fd;
    for (int i = 0; (fd = try_connect()) < 0 && i < PATIENCE_MS; i++)
        usleep(1000);
    assert_true(fd >= 0);
    return fd;
}

static bool send_bytes(int fd, size_t length, const int *files, uint32_t n)
{
    char control[CMSG_SPACE(sizeof(int) * GM_KEEPER_FDS)] __attribute__((aligned(16))) = {0};
    struct iovec part = {&message, length};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};
    if (n > 0) {
        head.msg_control = control;
        head.msg_controllen = CMSG_SPACE(sizeof(int) * n);
        struct cmsghdr *at = CMSG_FIRSTHDR(&head);
        *at = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                               .cmsg_type = SCM_RIGHTS,
                               .cmsg_len = CMSG_LEN(sizeof(int) * n)};
        memcpy(CMSG_DATA(at), files, sizeof(int) * n);
    }
    return sendmsg(fd, &head, MSG_NOSIGNAL) == (ssize_t)length;
}

static bool send_message(int fd, enum gm_keeper_type type, uint32_t count, const int *files,
                         uint32_t n)
{
    message.version = GM_KEEPER_VERSION;
    message.type = (uint16_t)type;
    message.count = count;
    return send_bytes(fd, GM_KEEPER_HEAD + count * sizeof message.items[0], files, n);
}

/* The answer; false: the connection has ended. */
static bool receive(int fd)
{
    char control[CMSG_SPACE(sizeof(int) * GM_KEEPER_FDS)] __attribute__((aligned(16)));
    struct iovec part = {&message, sizeof message};
    struct msghdr head = {.msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = control,
                          .msg_controllen = sizeof control};
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, PATIENCE_MS), 1);
    const ssize_t length = recvmsg(fd, &head, MSG_CMSG_CLOEXEC);
    n_fds = 0;
    if (length <= 0)
        return false;
    assert_int_equal(length, GM_KEEPER_HEAD + message.count * sizeof message.items[0]);
    const struct cmsghdr *at = CMSG_FIRSTHDR(&head);
    if (at) {
        n_fds = (uint32_t)((at->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(at), n_fds * sizeof(int));
    }
    return true;
}

static struct gm_keeper daemon_comes(void)
{
    struct gm_keeper is = {.fd = -1};
    for (int i = 0; gm_keeper_open(&is, path) != 0 && i < PATIENCE_MS; i++)
        usleep(1000);
    assert_true(is.fd >= 0);
    return is;
}

/* A memfd that has this number in it. */
static int memory_of(uint64_t number)
{
    const int fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(write(fd, &number, sizeof number), sizeof number);
    return fd;
}

static int put(struct gm_keeper *to, uint8_t kind, uint32_t first, uint32_t n)
{
    struct gm_keeper_item items[GM_KEEPER_FDS];
    int files[GM_KEEPER_FDS];
    for (uint32_t i = 0; i < n; i++) {
        items[i] = (struct gm_keeper_item){
            .kind = kind, .gpu = kind != GM_KEEPER_LEASE, .slot = first + i, .id = 7 * first + i};
        files[i] = memory_of(1000 * kind + first + i);
    }
    const int error = gm_keeper_put(to, items, files, n);
    for (uint32_t i = 0; i < n; i++)
        close(files[i]);
    return error;
}

/* All that is held, with its contents. How many. */
static uint32_t take_all(struct gm_keeper *from)
{
    struct gm_keeper_item items[GM_KEEPER_FDS], last;
    uint32_t all = 0;
    int count;
    while ((count = gm_keeper_take(from, all > 0 ? &last : NULL, items, fds)) > 0) {
        for (int i = 0; i < count; i++) {
            uint64_t number = 0;
            if (items[i].kind != GM_KEEPER_LEASE) {
                assert_int_equal(pread(fds[i], &number, sizeof number, 0), sizeof number);
                assert_int_equal(number, 1000u * items[i].kind + items[i].slot);
            }
            close(fds[i]);
        }
        last = items[count - 1];
        all += (uint32_t)count;
    }
    assert_int_equal(count, 0);
    return all;
}

/* What its daemon had open when it started it is not its own: files of the driver, which would stay
 * as long as it. */
static void test_inherits_nothing(void **state)
{
    struct pollfd look = {.fd = heirloom[0]};
    (void)state;
    close(reach()); /* it has started */
    assert_int_equal(poll(&look, 1, PATIENCE_MS), 1);
    assert_true(look.revents & POLLHUP);
    assert_int_equal(waitpid(keeper, NULL, WNOHANG), 0);
}

static void test_outlives(void **state)
{
    (void)state;
    struct gm_keeper_item items[GM_KEEPER_FDS];
    struct gm_keeper first = daemon_comes();
    assert_int_equal(put(&first, 3, 0, GM_KEEPER_FDS), 0);
    assert_int_equal(put(&first, 3, 5000, 40), 0);
    assert_int_equal(put(&first, 2, 9, 1), 0);
    assert_int_equal(put(&first, 2, 9, 1), 0); /* in its place */
    gm_keeper_close(&first);
    struct gm_keeper next = daemon_comes();
    assert_int_equal(take_all(&next), GM_KEEPER_FDS + 41);
    for (uint32_t i = 0; i < 40; i++)
        items[i] = (struct gm_keeper_item){.kind = 3, .gpu = 1, .slot = 5000 + i};
    assert_int_equal(gm_keeper_drop(&next, items, 40), 0);
    assert_int_equal(gm_keeper_drop(&next, items, 40), 0); /* no mistake */
    assert_int_equal(take_all(&next), GM_KEEPER_FDS + 1);

    /* The newest is the daemon. */
    struct gm_keeper other = daemon_comes();
    assert_int_equal(put(&next, 3, 0, 1), -ENOTCONN);
    assert_int_equal(next.fd, -1);
    assert_int_equal(gm_keeper_drop(&next, items, 1), -ENOTCONN);
    assert_int_equal(gm_keeper_take(&next, NULL, items, fds), -ENOTCONN);
    assert_int_equal(take_all(&other), GM_KEEPER_FDS + 1);

    /* It is asked to end. */
    int status = 0;
    gm_keeper_end(&other);
    assert_int_equal(waitpid(keeper, &status, 0), keeper);
    keeper = -1;
    assert_int_equal(status, 0);
    assert_int_equal(access(own, F_OK), -1);
    assert_int_equal(gm_keeper_open(&other, path), -ENOENT);
}

/* A keeper that says what is no answer, or nothing: whoever asked goes on without it. */
static void test_liar(void **state)
{
    (void)state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct gm_keeper_item items[GM_KEEPER_FDS];
    tear_down(NULL);
    keeper = -1;
    strcpy(folder, "/tmp/gm-keeper.XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/keeper.sock", folder);
    strcpy(address.sun_path, path);
    const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    for (int lie = 0; lie < 8; lie++) {
        struct gm_keeper is = {.fd = -1};
        const pid_t liar = fork();
        if (liar == 0) {
            const int fd = accept(listener, NULL, NULL), file = memory_of(1);
            receive(fd);
            send_message(fd, GM_KEEPER_HELLO_IS, 0, NULL, 0);
            receive(fd);
            message.error = lie == 1 ? EPERM : 0;
            message.items[0].slot = lie == 5 ? 3 : 9; /* where it was asked from */
            message.items[0].reserved = lie == 6;
            if (lie == 0)
                send_bytes(fd, 5, NULL, 0);
            else if (lie == 7)
                pause();
            else
                send_message(fd, lie == 2 ? GM_KEEPER_DROPPED : GM_KEEPER_GIVE, lie > 2, &file,
                             lie == 3 ? 0 : 1);
            _exit(0);
        }
        assert_int_equal(gm_keeper_open(&is, path), 0);
        const struct gm_keeper_item from = {.kind = 1, .gpu = 1, .slot = lie == 5 ? 3 : 2};
        const int count = gm_keeper_take(&is, &from, items, fds);
        if (lie == 4) { /* the truth */
            assert_int_equal(count, 1);
            close(fds[0]);
        } else {
            assert_int_equal(count, -ENOTCONN);
            assert_int_equal(is.fd, -1);
        }
        gm_keeper_close(&is);
        kill(liar, SIGKILL);
        waitpid(liar, NULL, 0);
    }
    close(listener);
}

/* What is none ends its connection, and nothing else. */
static void test_broken(void **state)
{
    (void)state;
    struct gm_keeper is = daemon_comes();
    assert_int_equal(put(&is, 1, 0, 5), 0);
    gm_keeper_close(&is);
    const int file = memory_of(1);
    for (int kind = 0; kind < 13; kind++) {
        const int fd = kind < 11 ? daemon_comes().fd : reach();
        memset(&message, 0, sizeof message);
        message.version = GM_KEEPER_VERSION;
        message.type = GM_KEEPER_PUT;
        message.count = 1;
        size_t length = GM_KEEPER_HEAD + sizeof message.items[0];
        uint32_t files = 1;
        switch (kind) {
        case 0:
            length = 3;
            break;
        case 1:
            length = GM_KEEPER_HEAD + 8;
            break; /* half an item */
        case 2:
            message.count = 2;
            break; /* half of them */
        case 3:
            message.count = UINT32_MAX;
            break;
        case 4:
            message.version = 2;
            break;
        case 5:
            message.type = 77;
            break;
        case 6:
            message.items[0].kind = GM_KEEPER_KINDS;
            break;
        case 7:
            message.items[0].slot = GM_KEEPER_SLOTS;
            break;
        case 8:
            files = 0;
            break; /* an item without a descriptor */
        case 9:
            message.type = GM_KEEPER_DROP;
            break; /* a descriptor without an item */
        case 10:   /* a lease is of the machine */
            message.items[0] = (struct gm_keeper_item){.kind = GM_KEEPER_LEASE, .gpu = 1};
            break;
        case 11:
            break; /* before HELLO */
        default:
            message.type = GM_KEEPER_BYE, message.count = 0, files = 0;
            length = GM_KEEPER_HEAD;
            break; /* of no daemon */
        }
        assert_true(send_bytes(fd, length, &file, files));
        if (receive(fd))
            fail_msg("message %d was taken", kind);
        close(fd);
    }
    close(file);
    is = daemon_comes();
    assert_int_equal(take_all(&is), 5);
    gm_keeper_close(&is);
}

static void test_flood(void **state)
{
    (void)state;
    struct gm_keeper is = daemon_comes();
    assert_int_equal(put(&is, 1, 0, 5), 0);
    for (int i = 0; i < 3000; i++) { /* who says nothing makes room */
        const int guest = try_connect();
        if (guest >= 0 && i % 2)
            close(guest);
    }
    assert_int_equal(take_all(&is), 5);
    /* Who does not read is let go. */
    int asked = 0;
    while (asked < 100000 && send_message(is.fd, GM_KEEPER_TAKE, 0, NULL, 0))
        asked++;
    assert_true(asked < 100000);
    gm_keeper_close(&is);
    is = daemon_comes();
    assert_int_equal(take_all(&is), 5);
    gm_keeper_close(&is);
    for (int i = 3; i < 4000; i++)
        close(i);
}

/* As many as there is room for: what is more is refused, all of it. */
static void test_too_many(void **state)
{
    (void)state;
    uint32_t held = 0;
    int error = 0;
    struct gm_keeper is = daemon_comes();
    const uint32_t room = is.room;
    assert_true(room > 500 && room < 1024);
    while (held < 2000 && (error = put(&is, 4, held, 100)) == 0)
        held += 100;
    assert_int_equal(error, -EMFILE);
    assert_int_equal(held, room / 100 * 100);
    assert_int_equal(is.room, room - held);
    assert_int_equal(take_all(&is), held);
    gm_keeper_close(&is);
}

static void test_users(void **state)
{
    (void)state;
    struct stat is;
    int status = 0;
    close(daemon_comes().fd);
    assert_int_equal(stat(path, &is), 0);
    assert_int_equal(is.st_mode & 0777, 0600);
    if (geteuid() != 0)
        skip();
    assert_int_equal(stat(own, &is), 0);
    assert_int_equal(is.st_mode & 0777, 0700);
    assert_int_equal(chmod(own, 0755), 0); /* it does not rest on these */
    assert_int_equal(chmod(path, 0666), 0);
    for (int as_root = 0; as_root < 2; as_root++) { /* ... of a container, then */
        const pid_t other = fork();
        if (other == 0) {
            if (as_root ? unshare(CLONE_NEWPID) : setgid(65534) || setuid(65534))
                _exit(as_root ? 0 : 2);
            const pid_t inner = fork();
            if (inner == 0) {
                const int fd = reach();
                send_message(fd, GM_KEEPER_HELLO, 0, NULL, 0);
                _exit(receive(fd) ? 1 : 0);
            }
            waitpid(inner, &status, 0);
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
        }
        assert_int_equal(waitpid(other, &status, 0), other);
        assert_int_equal(status, 0);
    }
}

/* It stays for a program that lives, and no longer than its patience without. */
static void test_leases(void **state)
{
    (void)state;
    int status = 0;
    tear_down(NULL);
    set_up(NULL);
    kill(keeper, SIGKILL);
    waitpid(keeper, NULL, 0);
    assert_int_equal(start("300ms", 1024), 0);
    struct gm_keeper is = daemon_comes();
    const pid_t program = fork();
    if (program == 0) {
        pause();
        _exit(0);
    }
    const int pidfd = (int)syscall(SYS_pidfd_open, program, 0);
    assert_true(pidfd >= 0);
    assert_int_equal(put(&is, 1, 0, 5), 0);
    const struct gm_keeper_item lease = {.kind = GM_KEEPER_LEASE, .slot = 12};
    assert_int_equal(gm_keeper_put(&is, &lease, &pidfd, 1), 0);
    gm_keeper_close(&is);
    usleep(900 * 1000);
    assert_int_equal(waitpid(keeper, &status, WNOHANG), 0);
    is = daemon_comes();
    assert_int_equal(take_all(&is), 6);
    kill(program, SIGKILL);
    waitpid(program, NULL, 0);
    for (int i = 0; take_all(&is) != 5 && i < PATIENCE_MS; i++) /* the lease goes with it */
        usleep(1000);
    usleep(600 * 1000); /* there is a daemon: it stays */
    assert_int_equal(waitpid(keeper, &status, WNOHANG), 0);
    close(pidfd);
    gm_keeper_close(&is);
    assert_int_equal(waitpid(keeper, &status, 0), keeper);
    assert_int_equal(status, 0);
    keeper = -1;
}

#define KEEPER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

/* The event of a lease comes in the same round as the question that replaces it. */
static void test_lease_replaced(void **state)
{
    (void)state;
    struct gm_keeper is = daemon_comes();
    const struct gm_keeper_item lease = {.kind = GM_KEEPER_LEASE, .slot = 12};
    pid_t programs[2];
    int pidfds[2];
    for (int i = 0; i < 2; i++) {
        programs[i] = fork();
        if (programs[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            pause();
            _exit(0);
        }
        pidfds[i] = (int)syscall(SYS_pidfd_open, programs[i], 0);
        assert_true(pidfds[i] >= 0);
    }
    assert_int_equal(gm_keeper_put(&is, &lease, &pidfds[0], 1), 0);
    kill(keeper, SIGSTOP);
    assert_int_equal(waitpid(keeper, NULL, WUNTRACED), keeper);
    message.items[0] = lease;
    assert_true(send_message(is.fd, GM_KEEPER_PUT, 1, &pidfds[1], 1));
    kill(programs[0], SIGKILL);
    waitpid(programs[0], NULL, 0);
    kill(keeper, SIGCONT);
    assert_true(receive(is.fd));
    assert_int_equal(message.type, GM_KEEPER_PUT_IS);
    assert_int_equal(message.error, 0);
    assert_int_equal(take_all(&is), 1);
    kill(programs[1], SIGKILL);
    waitpid(programs[1], NULL, 0);
    for (int i = 0; take_all(&is) != 0 && i < PATIENCE_MS; i++)
        usleep(1000);
    assert_int_equal(take_all(&is), 0);
    /* What is no process is no lease, and what came with it is not kept. */
    const struct gm_keeper_item items[] = {{.kind = 1, .slot = 4}, lease};
    int files[] = {memory_of(1), memory_of(2)};
    assert_int_equal(gm_keeper_put(&is, items, files, 2), -EPERM);
    assert_int_equal(take_all(&is), 0);
    for (int i = 0; i < 2; i++) {
        close(files[i]);
        close(pidfds[i]);
    }
    gm_keeper_close(&is);
}

static int status_of(pid_t pid)
{
    int status = -1;
    pid_t ended = 0;
    for (int i = 0; (ended = waitpid(pid, &status, WNOHANG)) == 0 && i < PATIENCE_MS; i++)
        usleep(1000);
    assert_int_equal(ended, pid);
    return status;
}

/* A second one at the same place ends, and what the first one has stays; a first one that has ended
 * leaves the place, in whatever way. With few open files none starts. */
static void test_second(void **state)
{
    (void)state;
    struct gm_keeper is = daemon_comes();
    assert_int_equal(put(&is, 1, 0, 5), 0);
    gm_keeper_close(&is);
    const pid_t first = keeper;
    kill(first, SIGSTOP); /* who hangs has the place, too */
    assert_int_equal(waitpid(first, NULL, WUNTRACED), first);
    assert_int_equal(start("2m", 1024), 0);
    assert_int_equal(status_of(keeper), 0);
    assert_int_equal(unlink(path), 0); /* even if nobody finds it */
    assert_int_equal(start("2m", 1024), 0);
    assert_int_equal(status_of(keeper), 0);
    kill(first, SIGKILL);
    status_of(first);
    assert_int_equal(start("2m", 200), 0);
    assert_int_equal(status_of(keeper), 1 << 8);
    assert_int_equal(start("2m", 318), 0);
    is = daemon_comes();
    assert_int_equal(is.room, 1);
    gm_keeper_close(&is);
}

/* That of a service manager hears that it is ready, also if it is not needed; and a daemon that
 * ends leaves it empty, for the next one. */
static void test_service(void **state)
{
    (void)state;
    char heard[128] = "";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/manager", folder);
    assert_int_equal(bind(manager, (struct sockaddr *)&address, sizeof address), 0);
    gm_keeper_close(&(struct gm_keeper){.fd = daemon_comes().fd});
    const pid_t first = keeper;
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
    assert_int_equal(start("2m", 1024), 0);
    assert_int_equal(status_of(keeper), 0);
    assert_true(recv(manager, heard, sizeof heard - 1, MSG_DONTWAIT) > 0);
    assert_non_null(strstr(heard, "READY=1\n"));
    kill(first, SIGKILL);
    status_of(first);
    assert_int_equal(start("2m", 1024), 0);
    unsetenv("NOTIFY_SOCKET");
    struct gm_keeper is = daemon_comes();
    assert_int_equal(put(&is, 1, 0, 5), 0);
    gm_keeper_end(&is);
    is = daemon_comes();
    assert_int_equal(take_all(&is), 0);
    assert_int_equal(waitpid(keeper, NULL, WNOHANG), 0);
    gm_keeper_close(&is);
    close(manager);
    unlink(address.sun_path);
}

/* It starts in no folder that others may enter or that is not its user's, and touches nothing
 * there.
 */
static void test_folder(void **state)
{
    (void)state;
    const mode_t modes[] = {0755, 0701, 0710, 0777};
    gm_keeper_close(&(struct gm_keeper){.fd = daemon_comes().fd});
    kill(keeper, SIGKILL);
    status_of(keeper);
    unlink(path);
    char lock[112], link[80];
    snprintf(lock, sizeof lock, "%s.lock", path);
    unlink(lock);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        assert_int_equal(chmod(own, modes[i]), 0);
        assert_int_equal(start("2m", 1024), 0);
        assert_int_equal(status_of(keeper), 1 << 8);
        assert_int_equal(access(lock, F_OK), -1);
    }
    assert_int_equal(chmod(own, 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(own, 65534, 65534), 0);
        assert_int_equal(start("2m", 1024), 0);
        assert_int_equal(status_of(keeper), 1 << 8);
        assert_int_equal(chown(own, 0, 0), 0);
    }
    snprintf(link, sizeof link, "%s/link", folder);
    snprintf(path, sizeof path, "%s/keeper.sock", link);
    assert_int_equal(symlink(own, link), 0);
    assert_int_equal(start("2m", 1024), 0);
    assert_int_equal(status_of(keeper), 1 << 8);
    assert_int_equal(unlink(link), 0);
    snprintf(path, sizeof path, "%s/keeper.sock", own);
    assert_int_equal(start("2m", 1024), 0);
    gm_keeper_close(&(struct gm_keeper){.fd = daemon_comes().fd});
}

static void expect_place(const char *socket, const char *want)
{
    char got[GM_KEEPER_PATH];
    assert_true(gm_keeper_place(socket, true, got));
    assert_string_equal(got, want);
}

static void test_place(void **state)
{
    (void)state;
    char got[GM_KEEPER_PATH], longest[GM_KEEPER_PATH];
    expect_place("/run/gpumux/gpumux.sock", "/run/gpumux-keeper/gpumux.sock");
    expect_place("/run/user/1000/gpumux/gpumux.sock", "/run/user/1000/gpumux-keeper/gpumux.sock");
    expect_place("/run/gpumux/second", "/run/gpumux-keeper/second");
    expect_place("/gpumux/a", "/gpumux-keeper/a");
    expect_place("/tmp/gpumux.sock", "/tmp/gpumux.sock-keeper/gpumux.sock");
    expect_place("/tmp/my-gpumux/a", "/tmp/my-gpumux/a-keeper/a");
    expect_place("gpumux/a", "gpumux/a-keeper/a");
    expect_place("a", "a-keeper/a");
    assert_true(gm_keeper_place("/run/gpumux/a", false, got));
    assert_string_equal(got, "/run/gpumux/a-keeper/a");
    memset(longest, 'a', sizeof longest);
    longest[(sizeof longest - sizeof "-keeper/") / 2] = '\0'; /* a second time, and the rest */
    assert_true(gm_keeper_place(longest, true, got));
    assert_true(strlen(got) + 2 >= sizeof got);
    strcat(longest, "a");
    assert_false(gm_keeper_place(longest, true, got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KEEPER(test_outlives), KEEPER(test_broken),          KEEPER(test_flood),
        KEEPER(test_too_many), KEEPER(test_users),           KEEPER(test_leases),
        KEEPER(test_liar),     KEEPER(test_lease_replaced),  KEEPER(test_second),
        KEEPER(test_folder),   cmocka_unit_test(test_place), KEEPER(test_inherits_nothing),
        KEEPER(test_service),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
