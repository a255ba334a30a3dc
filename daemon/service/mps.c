/* Space sharing: see mps.h. */
#include "daemon/service/mps.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/service/mps_folders.h"
#include "daemon/service/mps_tool.h"
#include "daemon/service/users.h"

#define GM_MPS_LOOKS 2u /* at the server, after one of its programs has ended */

/* Where the driver looks without the variable. */
#define GM_MPS_DEFAULT_BASE "/tmp"
#define GM_MPS_DEFAULT "nvidia-mps"

#define COST                                                                                       \
    "a fatal fault of one program ends the work of all of this user that share with it, and "      \
    "their "                                                                                       \
    "kernels cannot be stopped in the middle"

#define NOT_INSTALLED GM_MPS_TOOL " is not installed, or not in the daemon's PATH"
#define NO_FILE 127 /* the code of helpers and shells for that */

struct server;

struct member {
    struct server *server;
    uv_poll_t poll; /* readable when the process has ended */
    pid_t pid;
    uint32_t part;
    int fd;
    bool is_used; /* until the handle is closed */
    bool is_there;
};

/* What the tool is asked. CLEAR: not the tool, rm empties the folders. */
enum errand { ERRAND_NONE, ERRAND_LIST, ERRAND_START, ERRAND_STATUS, ERRAND_QUIT, ERRAND_CLEAR };

struct server {
    struct gm_mps *all;
    enum gm_mps_state state;
    struct gm_mps_user user;
    bool is_wanted;       /* ENDING: to start again after it */
    bool is_started;      /* a server was asked for */
    bool is_initializing; /* it has a server, which takes no clients yet */
    bool is_slow;         /* that takes longer than programs wait */
    uint32_t looks;       /* READY: how often the server is to be asked how it is */
    bool is_left;         /* the daemon ends, and programs share */
    pid_t listed;         /* the server that the tool listed; as the user says. 0: none */
    pid_t group;          /* of the last control daemon */
    uint64_t until;       /* STARTING, OLD, ENDING, and the end of UNUSABLE */
    uint64_t answered;    /* STARTING: when the control daemon answered first. 0: it did not */
    uint64_t retry_ns;
    char why[256];

    uv_timer_t timer;
    uv_process_t control;
    bool has_control;
    struct gm_mps_tool tool;
    enum errand errand;

    uint32_t n;
    struct member member[GM_MPS_MEMBERS];
};

struct gm_mps {
    uv_loop_t *loop;
    char base[PATH_MAX];
    bool is_closing;
    gm_mps_settled *settled;
    void *arg;
    struct server server[GM_MPS_USERS];
};

static void tick(uv_timer_t *timer);
static void begin(struct server *server);
static void run_tool(struct server *server, enum errand errand);

/* ---- words ---- */

static const char *const words[] = {"off",   "waiting", "starting", "ready",
                                    "fault", "ending",  "unusable"};

static void say(struct server *server, enum gm_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct server *server, enum gm_log_level level, const char *format, ...)
{
    char text[384], kind[48], user[GM_USERS_NAME];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    snprintf(kind, sizeof kind, "mps of %u: %.12s", server->user.uid, text);
    gm_log_like(level, kind, "MPS of %s: %s", gm_users_name(server->user.uid, user), text);
}

static void look_in(struct server *server, uint64_t ns)
{
    uv_timer_start(&server->timer, tick, ns / GM_MS, 0);
}

static void settle(struct server *server)
{
    if (server->all->settled && !server->all->is_closing)
        server->all->settled(server->all->arg, server->user.uid);
}

/* Whether a process is of that user and in that session. */
static bool is_in_session(pid_t pid, uid_t uid, pid_t session)
{
    char name[32];
    struct stat found;
    snprintf(name, sizeof name, "/proc/%d", (int)pid);
    return pid > 1 && getsid(pid) == session && stat(name, &found) == 0 && found.st_uid == uid;
}

/* A process of the group that the control daemon led is still there, so nobody else has its number.
 * The user says which, so it must be theirs. */
static bool has_group(const struct server *server)
{
    return server->group > 1 &&
           (server->has_control || is_in_session(server->listed, server->user.uid, server->group));
}

static void end_group(const struct server *server, int number)
{
    if (has_group(server))
        kill(-server->group, number);
}

/* It cannot be used, for a while. */
static void give_up(struct server *server, const char *why)
{
    server->retry_ns = server->retry_ns == 0 ? GM_MPS_RETRY_NS : server->retry_ns * 2;
    if (server->retry_ns > GM_MPS_RETRY_MOST_NS)
        server->retry_ns = GM_MPS_RETRY_MOST_NS;
    server->state = GM_MPS_UNUSABLE;
    server->until = gm_now() + server->retry_ns;
    snprintf(server->why, sizeof server->why, "%s", why);
    say(server, GM_LOG_WARN, "cannot be used, programs run without it for %llu s: %s",
        (unsigned long long)(server->retry_ns / GM_S), why);
    end_group(server, SIGTERM);
    look_in(server, GM_S);
    settle(server);
}

/* Whether one of this user listens there. */
static bool is_alive(const struct server *server)
{
    char folder[32];
    uid_t owner;
    snprintf(folder, sizeof folder, "%u/pipe", server->user.uid);
    return gm_mps_listens(server->all->base, folder, &owner);
}

/* ---- the tool ---- */

/* The first line that is a number. 0: none. */
static pid_t first_number(const char *text)
{
    while (*text) {
        const size_t digits = strspn(text, "0123456789"), length = strcspn(text, "\n");
        if (digits > 0 && digits == length && digits < 9)
            return (pid_t)strtol(text, NULL, 10);
        text += length + (text[length] == '\n');
    }
    return 0;
}

/* How long it waits for a next program. */
static uint64_t linger(const struct server *server)
{
    return server->is_slow ? GM_MPS_SLOW_NS : GM_MPS_LINGER_NS;
}

/* What somebody else runs for the machine is not joined: a server of one user is none of another's.
 */
static void name_others(struct server *server)
{
    char user[GM_USERS_NAME];
    uid_t owner;
    if (gm_mps_listens(GM_MPS_DEFAULT_BASE, GM_MPS_DEFAULT, &owner) && owner != server->user.uid)
        say(server, GM_LOG_INFO,
            "that of %s in " GM_MPS_DEFAULT_BASE "/" GM_MPS_DEFAULT " is left alone",
            gm_users_name(owner, user));
}

static void become_ready(struct server *server)
{
    server->state = GM_MPS_READY;
    server->retry_ns = 0;
    server->why[0] = '\0';
    say(server, GM_LOG_INFO, "ready in %s: " COST, server->user.pipe);
    name_others(server);
    settle(server);
    look_in(server, linger(server));
}

/* While it starts: whether it answers, has a server, and whether that takes clients: until then the
 * driver refuses them (CUDA_ERROR_MPS_SERVER_NOT_READY). */
static void started(struct server *server, bool is_ok, const char *text)
{
    const bool is_status = server->errand == ERRAND_STATUS;
    if (!is_status && (!is_ok || strstr(text, "annot"))) /* "Cannot find MPS control daemon" */
        return;
    if (server->answered == 0)
        server->answered = gm_now();
    if (server->errand == ERRAND_LIST)
        server->listed = first_number(text);
    server->is_initializing = is_status && strstr(text, "INITIALIZING");
    const bool is_active = is_status && is_ok && strstr(text, "ACTIVE");
    /* A driver that does not start one on request starts it for the first client, and older tools
     * know no status. A busy machine is late, too: so what is listed is asked for its status first.
     */
    const bool is_late = gm_now() - server->answered > GM_MPS_SERVER_NS;
    const bool has_none =
        server->errand == ERRAND_LIST && server->is_started && server->listed == 0;
    if (is_active || (is_late && (has_none || (is_status && !server->is_initializing))))
        become_ready(server);
}

static void looked(struct server *server, bool is_ok, const char *text)
{
    const bool is_fault = is_ok && strstr(text, "FAULT");
    if (is_fault && server->state == GM_MPS_READY) {
        server->state = GM_MPS_FAULT;
        snprintf(server->why, sizeof server->why,
                 "one program had a fatal fault, which ended the work of all that share with it; "
                 "new programs run without MPS until they have ended");
        say(server, GM_LOG_ERROR, "%s (%u are left)", server->why, server->n);
    } else if (is_ok && !is_fault && server->state == GM_MPS_FAULT) {
        server->state = GM_MPS_READY;
        say(server, GM_LOG_INFO, "the server takes programs again");
    }
}

static void on_said(void *arg, bool is_ok, const char *text)
{
    struct server *server = arg;
    if (server->state == GM_MPS_STARTING && server->errand != ERRAND_QUIT)
        started(server, is_ok, text);
    else if (server->errand == ERRAND_LIST && is_ok)
        server->listed = first_number(text);
    else if (server->errand == ERRAND_STATUS)
        looked(server, is_ok, text);
}

static void on_tool_closed(void *arg)
{
    struct server *server = arg;
    if (server->errand == ERRAND_LIST && server->state == GM_MPS_READY && server->listed != 0)
        run_tool(server, ERRAND_STATUS);
}

static void run_tool(struct server *server, enum errand errand)
{
    char command[64];
    const char *const tool[] = {GM_MPS_TOOL, NULL};
    const char *const clear[] = {"rm", "-rf", "--", server->user.pipe, server->user.log, NULL};
    if (server->tool.is_there)
        return;
    server->errand = errand;
    switch (errand) {
    case ERRAND_START:
        snprintf(command, sizeof command, "start_server -uid %u\n", server->user.uid);
        break;
    case ERRAND_STATUS:
        snprintf(command, sizeof command, "get_server_status %d\n", (int)server->listed);
        break;
    case ERRAND_QUIT:
        /* Programs of one that is left, or of an earlier daemon, run on. */
        snprintf(command, sizeof command,
                 server->is_left || server->state == GM_MPS_OLD ? "quit\n" : "quit -t 1\n");
        break;
    default:
        snprintf(command, sizeof command, "get_server_list\n");
    }
    gm_mps_tool_run(&server->tool, &server->user, errand == ERRAND_CLEAR ? clear : tool, command,
                    GM_MPS_TOOL_NS);
}

/* ---- the control daemon ---- */

static void become_off(struct server *server)
{
    const bool is_wanted = server->is_wanted && !server->all->is_closing;
    server->state = GM_MPS_OFF;
    server->is_wanted = false;
    server->listed = 0;
    if (!server->is_left)
        gm_mps_folders_remove(server->all->base, server->user.uid);
    if (is_wanted)
        begin(server);
    else
        look_in(server, 0);
}

static void on_control_closed(uv_handle_t *handle)
{
    struct server *server = handle->data;
    server->has_control = false;
    if (!server->is_left)
        end_group(server, SIGTERM); /* a server that stays behind */
    if (server->state == GM_MPS_ENDING)
        look_in(server, 0);
    else if (server->state == GM_MPS_UNUSABLE)
        look_in(server, GM_S);
}

static void on_control_exit(uv_process_t *process, int64_t status, int number)
{
    struct server *server = process->data;
    char why[sizeof server->why];
    const bool was_ready = server->state == GM_MPS_READY || server->state == GM_MPS_FAULT;
    snprintf(why, sizeof why,
             was_ready ? GM_MPS_TOOL " ended (code %d, signal %d) while %u programs shared"
                       : GM_MPS_TOOL
                 " ended as it started (code %d, signal %d); %u programs. See %s",
             (int)status, number, server->n, server->user.log);
    if (!was_ready && status == NO_FILE)
        snprintf(why, sizeof why, NOT_INSTALLED);
    uv_close((uv_handle_t *)process, on_control_closed);
    if (was_ready || server->state == GM_MPS_STARTING)
        give_up(server, why);
}

static void spawn_control(struct server *server)
{
    const char *const control[] = {GM_MPS_TOOL, "-f", NULL};
    char why[sizeof server->why];
    server->state = GM_MPS_STARTING;
    server->until = gm_now() + GM_MPS_START_NS;
    server->answered = 0;
    server->is_started = server->is_initializing = server->is_slow = false;
    server->listed = 0;
    server->control.data = server;
    server->has_control = true;
    const int error =
        gm_mps_spawn(&server->user, &server->control, on_control_exit, control, -1, -1);
    if (error == 0) {
        server->group = server->control.pid;
        look_in(server, GM_MPS_LOOK_NS);
        return;
    }
    server->group = 0;
    if (error == UV_ENOENT)
        snprintf(why, sizeof why, NOT_INSTALLED);
    else
        snprintf(why, sizeof why, GM_MPS_TOOL " cannot be started: %s", uv_strerror(error));
    uv_close((uv_handle_t *)&server->control, on_control_closed);
    give_up(server, why);
}

/* Bring it up. `settled` is called, now or later. */
static void begin(struct server *server)
{
    struct gm_mps *all = server->all;
    char why[sizeof server->why];
    const int n = snprintf(server->user.pipe, sizeof server->user.pipe, "%s/%u/pipe", all->base,
                           server->user.uid);
    snprintf(server->user.log, sizeof server->user.log, "%.*s/%u/log", GM_PIPE_MAX - 20, all->base,
             server->user.uid);
    if (n >= (int)sizeof server->user.pipe) {
        give_up(server, "the path of the daemon's socket is too long for it");
        return;
    }
    if (server->user.uid != geteuid() && geteuid() != 0) {
        give_up(server, "only root's daemon can start it for other users");
        return;
    }
    if (geteuid() == 0 && gm_mps_missing_helper()) {
        snprintf(why, sizeof why, "%s is missing: it cannot be started as its user",
                 gm_mps_missing_helper());
        give_up(server, why);
        return;
    }
    const int error = gm_mps_folders_make(all->base, server->user.uid, server->user.gid);
    if (error) {
        snprintf(why, sizeof why,
                 "its folders below %.120s cannot be made, or somebody changed them: %s", all->base,
                 strerror(-error));
        give_up(server, why);
        return;
    }
    if (!is_alive(server)) {
        spawn_control(server);
        return;
    }
    server->state = GM_MPS_OLD;
    server->until = gm_now() + GM_MPS_START_NS;
    look_in(server, GM_MPS_LOOK_NS);
}

static void end(struct server *server)
{
    server->state = GM_MPS_ENDING;
    server->until = gm_now() + (server->is_left ? GM_MPS_LEAVE_NS : GM_MPS_END_NS);
    server->errand = ERRAND_NONE;
    run_tool(server, ERRAND_QUIT);
    look_in(server, GM_MPS_LOOK_NS);
}

/* ---- time ---- */

static void tick_starting(struct server *server)
{
    char why[sizeof server->why];
    if (gm_now() >= server->until && server->is_initializing && !server->is_slow) {
        server->is_slow = true;
        server->until = gm_now() + GM_MPS_SLOW_NS;
        say(server, GM_LOG_WARN,
            "its server takes long to start: programs run without it until then "
            "(nvidia-persistenced makes that faster)");
        settle(server);
    } else if (gm_now() >= server->until) {
        snprintf(why, sizeof why, "%s within %llu s. See %s",
                 server->answered ? "its server does not start" : GM_MPS_TOOL " does not answer",
                 (unsigned long long)((server->is_slow ? GM_MPS_SLOW_NS : GM_MPS_START_NS) / GM_S),
                 server->user.log);
        give_up(server, why);
        return;
    }
    if (!server->tool.is_there) {
        const bool is_due = server->answered != 0 && !server->is_started;
        server->is_started = server->is_started || is_due;
        run_tool(server, is_due ? ERRAND_START : server->listed != 0 ? ERRAND_STATUS : ERRAND_LIST);
    }
    look_in(server, GM_MPS_LOOK_NS);
}

static void tick_old(struct server *server)
{
    if (!is_alive(server)) {
        spawn_control(server);
    } else if (gm_now() >= server->until) {
        give_up(server, "that of an earlier daemon still serves programs");
    } else {
        run_tool(server, ERRAND_QUIT); /* again, if the last one did not help */
        look_in(server, GM_MPS_LOOK_NS);
    }
}

/* READY and FAULT. */
static void tick_ready(struct server *server)
{
    if (server->n == 0) {
        end(server);
        return;
    }
    if (server->looks > 0 || server->state == GM_MPS_FAULT)
        run_tool(server, server->listed == 0 ? ERRAND_LIST : ERRAND_STATUS);
    server->looks -= server->looks > 0;
    if (server->looks > 0 || server->state == GM_MPS_FAULT || server->tool.is_there)
        look_in(server, GM_MPS_FAULT_NS);
}

static void tick_ending(struct server *server)
{
    const uint64_t now = gm_now();
    if (!server->has_control) {
        const bool is_cleared = server->is_left || server->errand == ERRAND_CLEAR;
        if (is_cleared && !server->tool.is_there) {
            become_off(server);
            return;
        }
        if (server->is_left && now >= server->until)
            gm_mps_tool_close(&server->tool);
        run_tool(server, ERRAND_CLEAR);
        look_in(server, GM_MPS_LOOK_NS);
        return;
    }
    if (server->errand != ERRAND_QUIT)
        run_tool(server, ERRAND_QUIT);
    if (server->is_left && now >= server->until) {
        /* It ends when its programs have, and so does the tool. */
        if (server->tool.is_there)
            gm_mps_tool_close(&server->tool);
        if (!uv_is_closing((uv_handle_t *)&server->control))
            uv_close((uv_handle_t *)&server->control, on_control_closed);
        return;
    }
    if (now >= server->until)
        end_group(server, now >= server->until + GM_S ? SIGKILL : SIGTERM);
    look_in(server, GM_MPS_LOOK_NS);
}

/* The daemon ends, and it is OFF. Called when a handle of it may have been the last. */
static void close_server(struct server *server)
{
    for (uint32_t i = 0; i < GM_MPS_MEMBERS; i++)
        if (server->member[i].is_used)
            return;
    if (!server->has_control && !server->tool.is_there &&
        !uv_is_closing((const uv_handle_t *)&server->timer))
        uv_close((uv_handle_t *)&server->timer, NULL);
    else
        look_in(server, GM_MPS_LOOK_NS);
}

static void tick(uv_timer_t *timer)
{
    struct server *server = timer->data;
    if (!server->is_left)
        gm_mps_tool_watch(&server->tool);
    switch (server->state) {
    case GM_MPS_STARTING:
        tick_starting(server);
        break;
    case GM_MPS_OLD:
        tick_old(server);
        break;
    case GM_MPS_READY:
    case GM_MPS_FAULT:
        tick_ready(server);
        break;
    case GM_MPS_ENDING:
        tick_ending(server);
        break;
    case GM_MPS_UNUSABLE:
        end_group(server, SIGKILL);
        if (server->has_control || server->tool.is_there)
            look_in(server, GM_S);
        break;
    case GM_MPS_OFF:
        break;
    }
    if (server->all->is_closing && server->state == GM_MPS_OFF)
        close_server(server);
}

/* ---- programs ---- */

static void on_member_closed(uv_handle_t *handle)
{
    struct member *member = handle->data;
    struct server *server = member->server;
    close(member->fd);
    member->is_used = false;
    if (server->all->is_closing && server->state == GM_MPS_OFF)
        close_server(server);
}

static void let_go(struct member *member)
{
    if (!member->is_there)
        return;
    member->is_there = false;
    member->server->n--;
    uv_close((uv_handle_t *)&member->poll, on_member_closed);
}

/* Its process has ended. It may have been by a fault that ends others. */
static void on_member_ends(uv_poll_t *poll, int status, int events)
{
    struct member *member = poll->data;
    struct server *server = member->server;
    (void)status, (void)events;
    let_go(member);
    if (server->state != GM_MPS_READY && server->state != GM_MPS_FAULT)
        return;
    server->looks = GM_MPS_LOOKS;
    look_in(server, server->n > 0 ? GM_MPS_LOOK_NS : linger(server));
}

static bool add_member(struct server *server, pid_t pid, uint32_t part)
{
    struct member *member = NULL;
    for (uint32_t i = 0; i < GM_MPS_MEMBERS; i++) {
        if (server->member[i].is_there && server->member[i].pid == pid) {
            server->member[i].part =
                part; /* it asked before, or another program did in its place */
            return true;
        }
        if (!member && !server->member[i].is_used)
            member = &server->member[i];
    }
    if (!member)
        return false;
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return false;
    if (uv_poll_init(server->all->loop, &member->poll, fd) != 0) {
        close(fd);
        return false;
    }
    *member = (struct member){.server = server,
                              .poll = member->poll,
                              .pid = pid,
                              .part = part,
                              .fd = fd,
                              .is_used = true,
                              .is_there = true};
    member->poll.data = member;
    uv_poll_start(&member->poll, UV_READABLE, on_member_ends);
    server->n++;
    return true;
}

/* The user's, or a free one. NULL: there is none. */
static struct server *find(struct gm_mps *mps, uid_t uid)
{
    struct server *found = NULL;
    const uint64_t now = gm_now();
    for (uint32_t i = 0; i < GM_MPS_USERS; i++) {
        struct server *server = &mps->server[i];
        if (server->user.uid == uid && server->group != -1)
            return server;
        const bool is_over = server->state == GM_MPS_OFF ||
                             (server->state == GM_MPS_UNUSABLE && now >= server->until);
        if (!found && is_over && server->n == 0 && !server->has_control && !server->tool.is_there)
            found = server;
    }
    if (found) {
        found->state = GM_MPS_OFF;
        found->user.uid = uid;
        found->group = 0;
        found->retry_ns = 0;
        found->why[0] = '\0';
    }
    return found;
}

enum gm_mps_answer gm_mps_join(struct gm_mps *mps, pid_t pid, uid_t uid, gid_t gid, uint32_t part,
                               char pipe[GM_PIPE_MAX], char *text, size_t size)
{
    pipe[0] = '\0';
    if (!mps || mps->is_closing)
        return GM_MPS_ALONE;
    struct server *server = find(mps, uid);
    if (!server) {
        snprintf(text, size, "without MPS: it serves %u users already", GM_MPS_USERS);
        return GM_MPS_ALONE;
    }
    server->user.gid = gid;
    if (server->state == GM_MPS_OFF ||
        (server->state == GM_MPS_UNUSABLE && gm_now() >= server->until && !server->has_control &&
         !server->tool.is_there && server->n == 0))
        begin(server);
    switch (server->state) {
    case GM_MPS_READY:
        if (!add_member(server, pid, part)) {
            snprintf(text, size,
                     "without MPS: %u programs of this user share already, or no file "
                     "is left",
                     server->n);
            return GM_MPS_ALONE;
        }
        snprintf(pipe, GM_PIPE_MAX, "%s", server->user.pipe);
        snprintf(text, size, "it shares the multiprocessors by MPS: " COST);
        return GM_MPS_JOINED;
    case GM_MPS_ENDING:
        server->is_wanted = true;
        return GM_MPS_SOON;
    case GM_MPS_OLD:
        return GM_MPS_SOON;
    case GM_MPS_STARTING:
        if (!server->is_slow)
            return GM_MPS_SOON;
        snprintf(text, size, "without MPS: its server is still starting");
        return GM_MPS_ALONE;
    default:
        snprintf(text, size, "without MPS: %.*s", size > 13 ? (int)size - 13 : 0, server->why);
        return GM_MPS_ALONE;
    }
}

bool gm_mps_has_part(const struct gm_mps *mps, pid_t pid)
{
    for (uint32_t i = 0; mps && i < GM_MPS_USERS; i++)
        for (uint32_t k = 0; k < GM_MPS_MEMBERS; k++) {
            const struct member *member = &mps->server[i].member[k];
            if (member->is_there && member->pid == pid)
                return member->part != 0;
        }
    return false;
}

bool gm_mps_view(const struct gm_mps *mps, uint32_t i, struct gm_mps_view *view)
{
    for (uint32_t at = 0; mps && at < GM_MPS_USERS; at++) {
        const struct server *server = &mps->server[at];
        if (server->state == GM_MPS_OFF || i-- > 0)
            continue;
        *view = (struct gm_mps_view){.uid = server->user.uid,
                                     .state = server->state,
                                     .word = words[server->state],
                                     .session = server->group > 1 ? server->group : 0};
        for (uint32_t k = 0; k < GM_MPS_MEMBERS; k++)
            if (server->member[k].is_there) {
                view->part[view->n] = server->member[k].part;
                view->pid[view->n++] = server->member[k].pid;
            }
        snprintf(view->pipe, sizeof view->pipe, "%s", server->user.pipe);
        snprintf(view->why, sizeof view->why, "%s", server->why);
        return true;
    }
    return false;
}

/* ---- all of them ---- */

struct gm_mps *gm_mps_open(uv_loop_t *loop, const char *base)
{
    struct gm_mps *mps = calloc(1, sizeof *mps);
    if (!mps)
        return NULL;
    mps->loop = loop;
    snprintf(mps->base, sizeof mps->base, "%s", base);
    for (uint32_t i = 0; i < GM_MPS_USERS; i++) {
        struct server *server = &mps->server[i];
        server->all = mps;
        server->group = -1; /* nobody's */
        uv_timer_init(loop, &server->timer);
        server->timer.data = server;
        server->user.loop = loop;
        server->tool.arg = server;
        server->tool.said = on_said;
        server->tool.closed = on_tool_closed;
    }
    return mps;
}

void gm_mps_listen(struct gm_mps *mps, gm_mps_settled *settled, void *arg)
{
    mps->settled = settled;
    mps->arg = arg;
}

void gm_mps_close(struct gm_mps *mps)
{
    if (!mps || mps->is_closing)
        return;
    mps->is_closing = true;
    for (uint32_t i = 0; i < GM_MPS_USERS; i++) {
        struct server *server = &mps->server[i];
        server->is_left = server->n > 0;
        for (uint32_t k = 0; k < GM_MPS_MEMBERS; k++)
            let_go(&server->member[k]);
        if (server->state == GM_MPS_UNUSABLE || server->state == GM_MPS_OLD)
            server->state = server->has_control ? GM_MPS_ENDING : GM_MPS_OFF;
        if (server->state != GM_MPS_OFF)
            end(server);
        else
            look_in(server, 0);
    }
}

void gm_mps_free(struct gm_mps *mps)
{
    free(mps);
}
