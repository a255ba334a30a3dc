/* The daemon's keeper: see keeping.h. */
#include "daemon/service/keeping.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/memory/kept.h"

#define START_NS (2 * GM_SLOW * GM_S) /* for a keeper to listen: it takes 2 ms (measured) */
#define LOOK_NS (2 * GM_MS)
#define ENDING_NS (10 * GM_S) /* for one that ends, at the daemon's start: it frees memory */
#define ENDING_BESIDE_NS (100 * GM_MS) /* ... while the daemon serves: the loop stands still */
#define AGAIN_MS 1000u   /* to look whether it is still there, where that cannot be watched */
#define FAILED_MS 10000u /* ... and for another try, where none could be started */

/* Beside this program. */
static int find_program(char *path, size_t size)
{
    const ssize_t length = readlink("/proc/self/exe", path, size - 1);
    if (length < 0)
        return -errno;
    path[length] = '\0';
    char *name = strrchr(path, '/');
    if (!name || (size_t)(name + 1 - path) + sizeof "gpumux-keeper" > size)
        return -ENAMETOOLONG;
    memcpy(name + 1, "gpumux-keeper", sizeof "gpumux-keeper");
    return 0;
}

static void reap(struct gm_keeping *keeping)
{
    if (keeping->child > 0 && waitpid(keeping->child, NULL, WNOHANG) != 0)
        keeping->child = 0;
}

/* What the service manager says to the daemon is not for others. The caller frees it; NULL: no
 * memory. */
static char **make_environment(void)
{
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **made = calloc(n + 1, sizeof *made);
    for (size_t i = 0; made && i < n; i++)
        if (strncmp(environ[i], "NOTIFY_SOCKET=", 14) != 0 &&
            strncmp(environ[i], "WATCHDOG_", 9) != 0)
            made[kept++] = environ[i];
    return made;
}

/* It has the daemon's standard error, where it logs, and none of its files. */
static int start(struct gm_keeping *keeping)
{
    char program[PATH_MAX], name[] = "gpumux-keeper", option[] = "--socket";
    char *arguments[] = {name, option, keeping->path, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    int error = find_program(program, sizeof program);
    if (error)
        return error;
    char **environment = make_environment();
    if (!environment)
        return -ENOMEM;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&how);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSID);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    /* A file of the driver would keep the daemon's context, with its copies, beyond its end. */
    posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    error = -posix_spawn(&keeping->child, program, &files, &how, arguments, environment);
    if (error)
        keeping->child = 0;
    free(environment);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

static bool is_nobody(int error)
{
    return error == -ENOENT || error == -ENOTDIR || error == -ECONNREFUSED;
}

/* It is no keeper of this daemon's user: where others may make files, anything may lie there. */
static bool is_foreign(int error)
{
    return error == -EPERM || error == -EACCES || error == -ELOOP || error == -EPROTOTYPE;
}

/* Whether the folder of `path` is this user's, or could be made. */
static bool can_be_there(const char *path)
{
    char folder[GM_KEEPER_PATH];
    struct stat is;
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    if (lstat(folder, &is) == 0)
        return is.st_uid == geteuid();
    char *slash = strrchr(folder, '/');
    if (!slash)
        return access(".", W_OK | X_OK) == 0;
    slash[slash == folder] = '\0'; /* the root stays */
    return access(folder, W_OK | X_OK) == 0;
}

/* It may be ending: one that was killed takes connections, and does not answer, until all that it
 * held is closed. One that hangs, or speaks another version, looks the same. */
static bool may_be_ending(int error)
{
    return error == -ENOTCONN || error == -EAGAIN || error == -EPERM;
}

/* Connect, and take what it holds. *at: where it is. */
static int look(struct gm_keeping *keeping, const char **at)
{
    *at = keeping->path;
    int error = gm_kept_connect(keeping->kept, keeping->path);
    if (is_nobody(error)) {
        const int at_former = gm_kept_connect(keeping->kept, keeping->former);
        if (!is_nobody(at_former) &&
            !is_foreign(at_former)) { /* it holds what there is, until it ends */
            error = at_former;
            *at = keeping->former;
        }
    }
    return error ? error : gm_kept_take(keeping->kept);
}

/* As gm_keeping_begin. Who may be ending has so long. */
static int reach(struct gm_keeping *keeping, uint64_t ending_ns, char *why, size_t size)
{
    const struct timespec pause = gm_timespec(LOOK_NS);
    uint64_t until = gm_now() + ending_ns;
    bool is_started = false;
    const char *at;
    int error, none = 0;
    while (is_nobody(error = look(keeping, &at)) || may_be_ending(error)) {
        if (is_nobody(error) && !is_started) {
            is_started = true;
            until = gm_now() + START_NS;
            none = start(keeping);
        }
        if (gm_now() >= until || (is_nobody(error) && keeping->child <= 0))
            break;
        nanosleep(&pause, NULL);
        reap(keeping);
    }
    if (is_nobody(error)) {
        snprintf(why, size, "gpumux-keeper cannot be started%s%s", none ? ": " : "",
                 none ? strerror(-none) : "");
        return 1;
    }
    if (error && gm_kept_is_connected(keeping->kept))
        snprintf(why, size, "what gpumux-keeper at %s holds cannot be taken over: %s", at,
                 strerror(-error));
    else if (error)
        snprintf(why, size, "gpumux-keeper at %s cannot be spoken to: %s", at, strerror(-error));
    return error;
}

/* Linux before 5.3 has none, and old containers refuse the call. Then the next daemon could not
 * tell who has ended. */
static bool has_pidfds(void)
{
    const int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (fd >= 0)
        close(fd);
    return fd >= 0 || (errno != ENOSYS && errno != EPERM);
}

int gm_keeping_begin(struct gm_keeping *keeping, struct gm_kept *kept, const char *socket,
                     char *why, size_t size)
{
    *keeping = (struct gm_keeping){.kept = kept, .watched = -1};
    if (!has_pidfds()) {
        snprintf(why, size,
                 "the system gives no pidfds, which gpumux-keeper needs (Linux 5.3 has them, "
                 "and a container may refuse them)");
        keeping->is_complaining = true;
        return 1;
    }
    if (!gm_keeper_place(socket, true, keeping->path) ||
        (!can_be_there(keeping->path) && !gm_keeper_place(socket, false, keeping->path))) {
        snprintf(why, size, "the path of the socket is too long for that of a gpumux-keeper");
        keeping->path[0] = '\0';
        keeping->is_complaining = true;
        return 1;
    }
    snprintf(keeping->former, sizeof keeping->former, "%.*s.keeper",
             (int)sizeof keeping->former - 8, socket);
    const int error = reach(keeping, ENDING_NS, why, size);
    keeping->is_complaining = error != 0;
    return error;
}

void gm_keeping_undo(struct gm_keeping *keeping)
{
    struct gm_keeper keeper;
    if (keeping->child > 0 && gm_keeper_open(&keeper, keeping->path) == 0)
        gm_keeper_end(&keeper);
}

/* ---- while the daemon serves ---- */

static void on_closed(uv_handle_t *poll)
{
    struct gm_keeping *keeping = poll->data;
    close(keeping->watched);
    keeping->watched = -1;
}

static void unwatch(struct gm_keeping *keeping)
{
    if (keeping->watched >= 0 && !uv_is_closing((uv_handle_t *)&keeping->poll))
        uv_close((uv_handle_t *)&keeping->poll, on_closed);
}

/* The timer finds the rest: another keeper has to be reached, and the poll has to be closed first.
 */
static void on_hangup(uv_poll_t *poll, int status, int events)
{
    struct gm_keeping *keeping = poll->data;
    (void)status;
    (void)events;
    gm_kept_lose(keeping->kept);
    unwatch(keeping);
    uv_timer_start(&keeping->timer, keeping->timer.timer_cb, 0, AGAIN_MS);
}

static void watch(struct gm_keeping *keeping)
{
    const int fd = gm_kept_watch(keeping->kept);
    if (fd < 0)
        return; /* the timer looks */
    if (uv_poll_init(keeping->timer.loop, &keeping->poll, fd) != 0) {
        close(fd);
        return;
    }
    fcntl(fd, F_SETFL,
          fcntl(fd, F_GETFL) & ~O_NONBLOCK); /* libuv set it, for the connection, too */
    keeping->watched = fd;
    keeping->poll.data = keeping;
    uv_poll_start(&keeping->poll, UV_DISCONNECT, on_hangup);
}

/* What it dropped while there was no keeper, one that was only lost from sight still has. */
static void replace(struct gm_keeping *keeping)
{
    char why[256];
    const int error = reach(keeping, ENDING_BESIDE_NS, why, sizeof why);
    if (error == 0)
        gm_kept_settle(keeping->kept);
    if (error == 0)
        gm_log(GM_LOG_INFO, "another gpumux-keeper holds all that must outlive the daemon");
    else if (!keeping->is_complaining)
        gm_log(GM_LOG_ERROR, "%s: if this daemon ends now, programs lose what is swapped out", why);
    keeping->is_complaining = error != 0;
    uv_timer_set_repeat(&keeping->timer, error ? FAILED_MS : AGAIN_MS);
}

static void on_timer(uv_timer_t *timer)
{
    struct gm_keeping *keeping = timer->data;
    reap(keeping);
    if (!gm_kept_is_connected(keeping->kept)) {
        unwatch(keeping);
        if (!keeping->is_complaining)
            gm_log(GM_LOG_WARN, "gpumux-keeper is gone: another one takes its place");
        replace(keeping);
    }
    if (keeping->watched < 0)
        watch(keeping);
}

void gm_keeping_watch(struct gm_keeping *keeping, uv_loop_t *loop)
{
    if (!keeping->path[0])
        return; /* there can be none */
    uv_timer_init(loop, &keeping->timer);
    keeping->timer.data = keeping;
    keeping->is_watching = true;
    uv_timer_start(&keeping->timer, on_timer, keeping->is_complaining ? FAILED_MS : 0, AGAIN_MS);
}

void gm_keeping_stop(struct gm_keeping *keeping)
{
    if (!keeping->is_watching)
        return;
    keeping->is_watching = false;
    uv_close((uv_handle_t *)&keeping->timer, NULL);
    unwatch(keeping);
}
