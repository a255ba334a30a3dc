/* The listening socket (daemon/service/server.c). */
#include "tests/unit/session_world.h"

static char folder[64], path[96], lock[112], why[512];

static int set_up_folder(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/gm-session-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/gpumux.sock", folder);
    snprintf(lock, sizeof lock, "%s.lock", path);
    return set_up(state);
}

/* Nothing may be left in the folder: neither the socket nor its lock. */
static int tear_down_folder(void **state)
{
    int error = tear_down(state);
    return rmdir(folder) ? -1 : error;
}

static int claim(struct gm_server **server, bool is_default_dir)
{
    struct gm_server_config config = {.path = path, .is_default_dir = is_default_dir};
    why[0] = '\0';
    return gm_server_claim(server, &config, why, sizeof why);
}

static int bind_at(int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

enum { PASSRIGHTS = 83 }; /* SO_PASSRIGHTS */

static void test_listen(void **state)
{
    (void)state;
    struct gm_server *server, *second;
    struct stat found;
    close(bind_at(SOCK_SEQPACKET)); /* a dead daemon's socket */
    assert_int_equal(claim(&server, false), 0);
    assert_int_equal(gm_server_listen(server, &loop, sessions, why, sizeof why), 0);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0666);

    assert_int_equal(claim(&second, false), -EWOULDBLOCK);
    assert_non_null(strstr(why, "another gpumuxd (pid "));

    int peer = gm_sock_connect(path);
    assert_true(peer >= 0);
    /* Nobody sends it descriptors, where the kernel can see to that (Linux 6.16). */
    int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), passes;
    socklen_t size = sizeof passes;
    if (getsockopt(probe, SOL_SOCKET, PASSRIGHTS, &passes, &size) == 0)
        assert_int_equal(gm_sock_send(peer, "x", 1, &probe, 1), -EPERM);
    close(probe);
    say_hello(peer, GM_ROLE_APP);
    turn(2);
    expect(peer, GM_SESSION_NEW, GM_MSG_WELCOME);
    close_fds();

    int late = gm_sock_connect(path); /* still in the backlog when the daemon stops */
    assert_true(late >= 0);
    gm_server_stop(server);
    expect_refused(late, GM_REFUSE_STOPPING, "stopping");
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(lock, F_OK), -1);
    close(peer);
    turn(3);
    gm_server_free(server);
}

static void test_listen_user(void **state)
{
    (void)state;
    struct gm_server *server;
    struct stat found;
    char inner[80];
    snprintf(inner, sizeof inner, "%s/gpumux", folder);
    snprintf(path, sizeof path, "%s/gpumux.sock", inner);
    struct gm_server_config config = {.path = path, .is_user = true, .is_default_dir = true};
    assert_int_equal(gm_server_claim(&server, &config, why, sizeof why), 0);
    assert_int_equal(gm_server_listen(server, &loop, sessions, why, sizeof why), 0);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0600);
    assert_int_equal(stat(inner, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0700);
    gm_server_stop(server);
    turn(2);
    gm_server_free(server);
    assert_int_equal(rmdir(inner), 0);
}

static void test_claim_refuses(void **state)
{
    (void)state;
    struct gm_server *server;
    /* not a socket: it stays */
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(fd);
    assert_int_equal(claim(&server, false), -EEXIST);
    assert_non_null(strstr(why, "is not a socket"));
    assert_int_equal(access(path, F_OK), 0);
    unlink(path);

    /* somebody else's listener: it stays */
    fd = bind_at(SOCK_SEQPACKET);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(claim(&server, false), -EADDRINUSE);
    assert_non_null(strstr(why, "another program listens"));
    assert_int_equal(access(path, F_OK), 0);
    close(fd);
    unlink(path);

    /* also one of another kind */
    fd = bind_at(SOCK_STREAM);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(claim(&server, false), -EADDRINUSE);
    close(fd);
    unlink(path);

    /* no folder */
    snprintf(path, sizeof path, "%s/none/gpumux.sock", folder);
    assert_int_equal(claim(&server, false), -ENOENT);
    assert_non_null(strstr(why, "does not exist: make it"));

    /* too long by one, and the longest */
    struct sockaddr_un address;
    char longest[sizeof address.sun_path + 1];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    struct gm_server_config config = {.path = longest};
    assert_int_equal(gm_server_claim(&server, &config, why, sizeof why), -ENAMETOOLONG);
    assert_non_null(strstr(why, "108 bytes long, and at most 107"));
}

/* The daemon that gives up after its claim leaves nothing. */
static void test_claim_and_stop(void **state)
{
    (void)state;
    struct gm_server *server;
    assert_int_equal(claim(&server, false), 0);
    assert_int_equal(access(lock, F_OK), 0);
    gm_server_stop(server);
    gm_server_free(server);
    assert_int_equal(access(lock, F_OK), -1);
}

#define SERVER(test) cmocka_unit_test_setup_teardown(test, set_up_folder, tear_down_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVER(test_listen),
        SERVER(test_listen_user),
        SERVER(test_claim_refuses),
        SERVER(test_claim_and_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
