/* The listening socket: see server.h. */
#include "daemon/service/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/log.h"
#include "common/sock.h"
#include "daemon/memory/lockfile.h"

/* Connections taken in one turn of the loop. The first message of each is read in the next one: a
 * program that joins takes 0.2 ms. */
#define ACCEPT_BURST 4
#define ACCEPT_PAUSE_MS 100 /* when there are no file descriptors left */
#define BACKLOG 128

enum { MODE_SYSTEM = 0666, MODE_USER = 0600, MODE_DIR_SYSTEM = 0755, MODE_DIR_USER = 0700 };

struct gm_server {
    struct sockaddr_un address;
    char lock_path[sizeof(((struct sockaddr_un *)0)->sun_path) + sizeof ".lock"];
    bool is_user;
    bool is_bound, is_watched;
    int lock_fd, fd;
    dev_t device; /* of the socket file that we made */
    ino_t inode;
    uv_poll_t poll;
    uv_timer_t pause;
    struct gm_sessions *sessions;
};

/* ---- claiming ------------------------------------------------------------------------------ */

static const char *else_where(bool is_user)
{
    return is_user ? "set XDG_RUNTIME_DIR to a directory of yours"
                   : "run as a user who may, or use --user";
}

/* Nothing can be made beside the socket. */
static void explain_folder(const char *path, bool is_user, int error, char *why, size_t size)
{
    if (error == ENOENT)
        snprintf(why, size,
                 "the directory of the socket %s does not exist: make it, or choose another "
                 "--socket",
                 path);
    else
        snprintf(why, size,
                 "the socket %s cannot be made: cannot write in its directory: %s; %s, or choose "
                 "another --socket",
                 path, strerror(error), else_where(is_user));
}

static int take_lock(struct gm_server *server, char *why, size_t size)
{
    const char *path = server->address.sun_path;
    pid_t pid;
    const int fd = gm_lockfile_take(server->lock_path, &pid);
    server->lock_fd = fd < 0 ? -1 : fd;
    if (fd >= 0)
        return 0;
    if (fd == -EWOULDBLOCK && pid)
        snprintf(why, size,
                 "another gpumuxd (pid %ld) serves %s: stop it, or choose another --socket",
                 (long)pid, path);
    else if (fd == -EWOULDBLOCK)
        snprintf(why, size, "another gpumuxd serves %s: stop it, or choose another --socket", path);
    else if (fd == -EBUSY)
        snprintf(why, size, "%s keeps changing: is another gpumuxd starting and stopping there?",
                 server->lock_path);
    else
        explain_folder(path, server->is_user, -fd, why, size);
    return fd;
}

static void drop_lock(struct gm_server *server)
{
    if (server->lock_fd < 0)
        return;
    gm_lockfile_drop(server->lock_path, server->lock_fd);
    server->lock_fd = -1;
}

/* 0: nothing is at the path, or a socket, and *is_there says which. */
static int look_at(const char *path, bool *is_there, char *why, size_t size)
{
    struct stat found;
    *is_there = false;
    if (lstat(path, &found)) {
        if (errno == ENOENT)
            return 0;
        int error = -errno;
        snprintf(why, size, "%s cannot be looked at: %s", path, strerror(-error));
        return error;
    }
    if (!S_ISSOCK(found.st_mode)) {
        snprintf(why, size,
                 "%s is there and is not a socket: remove it, or choose another --socket", path);
        return -EEXIST;
    }
    *is_there = true;
    return 0;
}

/* 0: nothing is at the path, or only the socket of a dead daemon. */
static int check_path(const char *path, char *why, size_t size)
{
    bool is_there;
    const int error = look_at(path, &is_there, why, size);
    if (error || !is_there)
        return error;
    int fd = gm_sock_connect(path);
    if (fd == -ECONNREFUSED)
        return 0;
    if (fd >= 0)
        close(fd);
    snprintf(why, size, "another program listens on %s: stop it, or choose another --socket", path);
    return -EADDRINUSE;
}

/* Make the directory of the path, one level. An existing one stays as it is. */
static int make_dir(const char *path, bool is_user, char *why, size_t size)
{
    const mode_t mode = is_user ? MODE_DIR_USER : MODE_DIR_SYSTEM;
    char dir[sizeof(((struct sockaddr_un *)0)->sun_path)];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (!slash || slash == dir)
        return 0;
    *slash = '\0';
    if (mkdir(dir, mode)) {
        int error = -errno;
        if (error == -EEXIST)
            return 0;
        snprintf(why, size,
                 "the socket's directory %s cannot be made: %s; %s, or choose another --socket",
                 dir, strerror(-error), else_where(is_user));
        return error;
    }
    if (chmod(dir, mode)) { /* the umask may have removed bits */
        int error = -errno;
        snprintf(why, size, "the mode of %s cannot be set: %s", dir, strerror(-error));
        rmdir(dir);
        return error;
    }
    return 0;
}

int gm_server_try(const struct gm_server_config *config, char *why, size_t why_size)
{
    struct sockaddr_un address;
    char folder[sizeof address.sun_path];
    const size_t length = strlen(config->path);
    bool is_there;
    if (length >= sizeof address.sun_path) {
        snprintf(why, why_size,
                 "the socket's path is %zu bytes long, and at most %zu can be used: choose a "
                 "shorter --socket",
                 length, sizeof address.sun_path - 1);
        return -ENAMETOOLONG;
    }
    if (config->path[0] != '/') {
        snprintf(why, why_size,
                 "the socket %s has no absolute path, and programs may be in any folder: choose "
                 "--socket /...",
                 config->path);
        return -EINVAL;
    }
    memcpy(folder, config->path, length + 1);
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = '\0';
    if (!config->is_default_dir && faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) != 0) {
        const int error = errno;
        explain_folder(config->path, config->is_user, error, why, why_size);
        return -error;
    }
    return look_at(config->path, &is_there, why, why_size);
}

int gm_server_claim(struct gm_server **result, const struct gm_server_config *config, char *why,
                    size_t why_size)
{
    size_t length = strlen(config->path);
    struct gm_server *server = calloc(1, sizeof *server);
    int error = 0;

    if (!server) {
        snprintf(why, why_size, "out of memory");
        return -ENOMEM;
    }
    server->lock_fd = -1;
    server->fd = -1;
    server->is_user = config->is_user;
    server->address.sun_family = AF_UNIX;
    error = gm_server_try(config, why, why_size);
    if (error)
        goto free_server;
    memcpy(server->address.sun_path, config->path, length + 1);
    snprintf(server->lock_path, sizeof server->lock_path, "%s.lock", config->path);

    if (config->is_default_dir) {
        error = make_dir(config->path, config->is_user, why, why_size);
        if (error)
            goto free_server;
    }
    error = take_lock(server, why, why_size);
    if (error)
        goto free_server;
    error = check_path(config->path, why, why_size);
    if (error)
        goto drop;
    *result = server;
    return 0;

drop:
    drop_lock(server);
free_server:
    free(server);
    return error;
}

/* ---- accepting ----------------------------------------------------------------------------- */

static void on_connection(uv_poll_t *poll, int status, int events);

static void on_pause_over(uv_timer_t *timer)
{
    struct gm_server *server = timer->data;
    uv_poll_start(&server->poll, UV_READABLE, on_connection);
}

static bool is_full(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct gm_server *server = poll->data;
    (void)status; /* accept4 reports the error */
    (void)events;
    for (int i = 0; i < ACCEPT_BURST; i++) {
        int fd = accept4(server->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            gm_session_start(server->sessions, fd);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno == EAGAIN)
            return;
        gm_log(GM_LOG_ERROR, "cannot accept connections: %s%s", strerror(errno),
               is_full(errno) ? " (raise LimitNOFILE or ulimit -n)" : "");
        /* The socket stays readable: without a pause the loop would spin. */
        uv_poll_stop(poll);
        uv_timer_start(&server->pause, on_pause_over, ACCEPT_PAUSE_MS, 0);
        return;
    }
}

int gm_server_listen(struct gm_server *server, uv_loop_t *loop, struct gm_sessions *sessions,
                     char *why, size_t why_size)
{
    const char *path = server->address.sun_path;
    struct stat made;
    int error = 0;

    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        error = -errno;
        snprintf(why, why_size, "no socket can be made: %s", strerror(-error));
        return error;
    }
    gm_sock_refuse_fds(fd);
    /* Again, because the start took a while. */
    error = check_path(path, why, why_size);
    if (error)
        goto close_fd;
    if (unlink(path) && errno != ENOENT) {
        error = -errno;
        snprintf(why, why_size, "the stale socket %s cannot be removed: %s; remove it", path,
                 strerror(-error));
        goto close_fd;
    }
    if (bind(fd, (const struct sockaddr *)&server->address, sizeof server->address)) {
        error = -errno;
        snprintf(why, why_size, "the socket %s cannot be made: %s; choose another --socket", path,
                 strerror(-error));
        goto close_fd;
    }
    if (chmod(path, server->is_user ? MODE_USER : MODE_SYSTEM) || lstat(path, &made) ||
        listen(fd, BACKLOG)) {
        error = -errno;
        snprintf(why, why_size, "the socket %s cannot be opened: %s", path, strerror(-error));
        goto unlink_path;
    }
    error = uv_poll_init(loop, &server->poll, fd);
    if (error) {
        snprintf(why, why_size, "the socket %s cannot be watched: %s", path, uv_strerror(error));
        goto unlink_path;
    }
    uv_timer_init(loop, &server->pause);
    server->poll.data = server;
    server->pause.data = server;
    server->device = made.st_dev;
    server->inode = made.st_ino;
    server->sessions = sessions;
    server->fd = fd;
    server->is_bound = true;
    server->is_watched = true;
    uv_poll_start(&server->poll, UV_READABLE, on_connection);
    return 0;

unlink_path:
    unlink(path);
close_fd:
    close(fd);
    return error;
}

/* ---- stopping ------------------------------------------------------------------------------ */

static void on_poll_closed(uv_handle_t *handle)
{
    struct gm_server *server = handle->data;
    close(server->fd);
    server->fd = -1;
}

static void refuse_backlog(int listener)
{
    struct gm_msg_refused body = {.reason = GM_REFUSE_STOPPING};
    snprintf(body.text, sizeof body.text, "gpumuxd is stopping");
    for (int i = 0; i < BACKLOG; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        gm_sock_send_message(fd, GM_MSG_REFUSED, &body, NULL, 0, NULL, 0);
        close(fd);
    }
}

void gm_server_leave(struct gm_server *server)
{
    struct stat found;
    if (server->is_bound) {
        const char *path = server->address.sun_path;
        if (lstat(path, &found) == 0 && found.st_dev == server->device &&
            found.st_ino == server->inode)
            unlink(path);
        server->is_bound = false;
    }
    if (server->is_watched) {
        refuse_backlog(server->fd);
        uv_close((uv_handle_t *)&server->poll, on_poll_closed);
        uv_close((uv_handle_t *)&server->pause, NULL);
        server->is_watched = false;
    }
}

void gm_server_stop(struct gm_server *server)
{
    gm_server_leave(server);
    drop_lock(server);
}

void gm_server_free(struct gm_server *server)
{
    free(server);
}
