/* Who is an administrator: processes in namespaces of their own, each at the other end of a socket.
 * Without the right to make namespaces only our own process is looked at. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <linux/capability.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/peer.h"

static int listener;
static struct sockaddr_un address = {.sun_family = AF_UNIX};

static int set_up(void **state)
{
    (void)state;
    socklen_t size = sizeof(sa_family_t); /* the kernel chooses an abstract name */
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4))
        return -1;
    size = sizeof address;
    return getsockname(listener, (struct sockaddr *)&address, &size);
}

static socklen_t length(void)
{
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 6); /* NUL and five digits */
}

static bool write_to(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    const bool is_written = file && fputs(text, file) >= 0;
    return file && fclose(file) == 0 && is_written;
}

/* What writes it must be outside of the new namespace to map more than one user. */
static bool map_users(pid_t pid, bool are_all)
{
    char path[64], map[64];
    snprintf(path, sizeof path, "/proc/%d/uid_map", (int)pid);
    snprintf(map, sizeof map, are_all ? "0 0 4294967295" : "0 %u 1", (unsigned)getuid());
    return write_to(path, map);
}

/* Connects from new namespaces of these kinds, says so to `ready`, and waits for the end of `life`.
 */
static void be_peer(int spaces, int life, int ready)
{
    char word = unshare(spaces) == 0 ? 'u' : 'n';
    if (write(ready, &word, 1) != 1 || word == 'n' || read(life, &word, 1) != 1)
        _exit(1);
    const pid_t child = fork(); /* a new pid namespace is the child's */
    if (child == 0) {
        const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        word = fd >= 0 && connect(fd, (struct sockaddr *)&address, length()) == 0 ? 'y' : 'n';
        if (write(ready, &word, 1) != 1)
            _exit(1);
        while (read(life, &word, 1) > 0)
            continue;
        _exit(0);
    }
    waitpid(child, NULL, 0);
    _exit(0);
}

/* A process in new namespaces of these kinds that has connected, with all our users or with our own
 * only. It lives until *end is closed. 0: it may not have them. */
static pid_t start_peer(int spaces, bool has_all_users, int *end)
{
    int life[2], ready[2];
    char word = 'n';
    assert_int_equal(pipe(life), 0);
    assert_int_equal(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        close(life[1]);
        close(ready[0]);
        be_peer(spaces, life[0], ready[1]);
    }
    close(life[0]);
    close(ready[1]);
    bool is_ready = read(ready[0], &word, 1) == 1 && word == 'u' &&
                    (!(spaces & CLONE_NEWUSER) || map_users(pid, has_all_users)) &&
                    write(life[1], "g", 1) == 1 && read(ready[0], &word, 1) == 1 && word == 'y';
    close(ready[0]);
    *end = life[1];
    if (is_ready)
        return pid;
    close(life[1]);
    waitpid(pid, NULL, 0);
    return 0;
}

static struct gm_peer look(void)
{
    struct gm_peer peer;
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(gm_peer_look(fd, &peer), 0);
    close(fd);
    return peer;
}

/* By whom: a daemon; gpumux-keeper under its unit, which has no capability and so may not read the
 * links of who has; and another user's daemon, which may not read root's. */
enum looker { SELF, BARE, STRANGER, LOOKERS };

static struct gm_peer look_as(enum looker looker)
{
    struct gm_peer peer = {0};
    int answer[2];
    if (looker == SELF)
        return look();
    assert_int_equal(pipe(answer), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct none[2] = {{0}};
        if ((looker == STRANGER && setresuid(65534, 65534, 65534) != 0) ||
            syscall(SYS_capset, &head, none) != 0)
            _exit(1);
        peer = look();
        _exit(write(answer[1], &peer, sizeof peer) != sizeof peer);
    }
    close(answer[1]);
    assert_int_equal(read(answer[0], &peer, sizeof peer), sizeof peer);
    close(answer[0]);
    waitpid(pid, NULL, 0);
    return peer;
}

/* `seems_to`: what STRANGER takes for our users. */
static void expect(int spaces, bool has_all_users, bool has_our_numbers, bool has_our_users,
                   bool seems_to)
{
    for (enum looker looker = SELF; looker < (getuid() == 0 ? LOOKERS : STRANGER); looker++) {
        int end;
        const pid_t pid = start_peer(spaces, has_all_users, &end);
        if (pid == 0) {
            print_message("such namespaces are not allowed here\n");
            return;
        }
        const struct gm_peer peer = look_as(looker);
        assert_int_equal(peer.uid, getuid());
        assert_int_equal(peer.has_our_numbers, has_our_numbers);
        assert_int_equal(peer.has_our_users, looker == STRANGER ? seems_to : has_our_users);
        assert_int_equal(gm_peer_is_admin(&peer), peer.has_our_numbers && peer.has_our_users);
        close(end);
        waitpid(pid, NULL, 0);
    }
}

static void our_own(void **state)
{
    (void)state;
    expect(0, false, true, true, true);
}

/* A unit of systemd has its own mounts. */
static void with_other_mounts(void **state)
{
    (void)state;
    expect(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC, false, true, true, true);
}

/* A container. */
static void with_other_numbers(void **state)
{
    (void)state;
    expect(CLONE_NEWPID, false, false, true, true);
}

/* A rootless container that shares the numbers. */
static void with_other_users(void **state)
{
    (void)state;
    expect(CLONE_NEWUSER, false, true, false, false);
    expect(CLONE_NEWUSER | CLONE_NEWPID, false, false, false, false);
}

/* Only the links tell these from ours. */
static void with_the_same_users_by_another_name(void **state)
{
    (void)state;
    if (getuid() == 0)
        expect(CLONE_NEWUSER, true, true, false, true);
}

/* What its pid says is then another's, or nobody's. */
static void that_has_ended(void **state)
{
    (void)state;
    int end;
    const pid_t pid = start_peer(0, false, &end);
    assert_true(pid > 0);
    close(end);
    waitpid(pid, NULL, 0);
    const struct gm_peer peer = look();
    assert_int_equal(peer.uid, getuid());
    assert_false(peer.has_our_numbers);
    assert_false(peer.has_our_users);
    assert_false(gm_peer_is_admin(&peer));
}

/* In a pid namespace of our own, whose next pid may be chosen. Returns what its process says; 77:
 * it may not be. */
static int run_in_new_numbers(int (*run)(void))
{
    int status = 0;
    const pid_t first = fork();
    if (first == 0) {
        if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0)
            _exit(77);
        const pid_t second = fork();
        if (second == 0)
            _exit(run());
        waitpid(second, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    assert_int_equal(waitpid(first, &status, 0), first);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int use_a_pid_again(void)
{
    struct gm_peer peer;
    char before[16];
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("proc", "/proc", "proc", 0, NULL))
        return 77;
    const pid_t gone = fork();
    if (gone == 0) {
        const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        _exit(fd < 0 || connect(fd, (struct sockaddr *)&address, length()) != 0);
    }
    waitpid(gone, NULL, 0);
    snprintf(before, sizeof before, "%d", (int)gone - 1);
    if (!write_to("/proc/sys/kernel/ns_last_pid", before))
        return 77;
    const pid_t other = fork();
    if (other == 0) {
        pause();
        _exit(0);
    }
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    int option = -1;
    socklen_t size = sizeof option;
    const bool is_named =
        getsockopt(fd, SOL_SOCKET, 77, &option, &size) == 0 || errno != ENOPROTOOPT;
    const int failed = gm_peer_look(fd, &peer);
    kill(other, SIGKILL);
    if (other != gone || !is_named)
        return 77; /* before SO_PEERPIDFD nobody can tell */
    return failed || peer.pid != gone || peer.has_our_numbers || peer.has_our_users;
}

static void whose_pid_is_used_again(void **state)
{
    (void)state;
    const int code = run_in_new_numbers(use_a_pid_again);
    if (code == 77)
        print_message("no pid can be used again here\n");
    assert_true(code == 0 || code == 77);
    fcntl(listener, F_SETFL, O_NONBLOCK);
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0;)
        close(fd);
    fcntl(listener, F_SETFL, 0);
}

static void another_user(void **state)
{
    (void)state;
    const struct gm_peer peer = {
        .pid = 1, .uid = geteuid() + 1, .has_our_numbers = true, .has_our_users = true};
    assert_false(gm_peer_is_admin(&peer));
}

/* It is 1 here, and /proc/1 is init's. */
static int look_at_init(void)
{
    struct gm_peer peer;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) || gm_peer_look(pair[0], &peer))
        return 1;
    return peer.pid != 1 || peer.has_our_numbers || peer.has_our_users;
}

static void where_proc_has_other_numbers(void **state)
{
    (void)state;
    const int code = run_in_new_numbers(look_at_init);
    assert_true(code == 0 || code == 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_own),
        cmocka_unit_test(with_other_mounts),
        cmocka_unit_test(with_other_numbers),
        cmocka_unit_test(with_other_users),
        cmocka_unit_test(with_the_same_users_by_another_name),
        cmocka_unit_test(that_has_ended),
        cmocka_unit_test(whose_pid_is_used_again),
        cmocka_unit_test(another_user),
        cmocka_unit_test(where_proc_has_other_numbers),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
