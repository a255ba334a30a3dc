#include "daemon/service/mps_tool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/service/users.h"

/* ---- processes ---- */

/* Tools of coreutils and util-linux, by which root's daemon starts programs as a user. */
static const char *helpers[] = {"/usr/bin/choom", "/usr/bin/prlimit", "/usr/bin/setpriv",
                                "/usr/bin/nice"};

const char *gm_mps_missing_helper(void)
{
    for (size_t i = 0; i < sizeof helpers / sizeof helpers[0]; i++)
        if (access(helpers[i], X_OK) != 0)
            return helpers[i];
    return NULL;
}

/* No more than `most`, and no more than the daemon may have: not every root may raise a limit. */
static unsigned long long limit(int resource, rlim_t most)
{
    struct rlimit own = {.rlim_max = most};
    getrlimit(resource, &own);
    return own.rlim_max < most ? own.rlim_max : most;
}

/* The daemon's, or 0 if that protects it. */
static int oom_score(void)
{
    char text[16] = "";
    const int fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    return n > 0 && atoi(text) > 0 ? atoi(text) : 0;
}

/* What makes the daemon's niceness an ordinary one, if it is better than that. */
static int more_nice(void)
{
    const int own = getpriority(PRIO_PROCESS, 0);
    return own < 0 ? -own : 0;
}

int gm_mps_spawn(const struct gm_mps_user *user, uv_process_t *process, uv_exit_cb on_exit,
                 const char *const *program, int in, int out)
{
    char path[PATH_MAX], libraries[PATH_MAX], pipe[GM_PIPE_MAX + 32], log[GM_PIPE_MAX + 32];
    char score[16], nicer[16], locked[64], files[64], tasks[64], uid[16], gid[16],
        name[GM_USERS_NAME];
    const char *own_path = getenv("PATH"), *own_libraries = getenv("LD_LIBRARY_PATH");
    snprintf(path, sizeof path, "PATH=%s", own_path ? own_path : "/usr/local/bin:/usr/bin:/bin");
    snprintf(libraries, sizeof libraries, "LD_LIBRARY_PATH=%s", own_libraries ? own_libraries : "");
    snprintf(pipe, sizeof pipe, "CUDA_MPS_PIPE_DIRECTORY=%s", user->pipe);
    snprintf(log, sizeof log, "CUDA_MPS_LOG_DIRECTORY=%s", user->log);
    char *env[] = {path, pipe, log, own_libraries ? libraries : NULL, NULL};
    snprintf(score, sizeof score, "%d", oom_score());
    snprintf(nicer, sizeof nicer, "%d", more_nice());
    const unsigned long long lock = limit(RLIMIT_MEMLOCK, GM_MPS_LOCKED),
                             most = limit(RLIMIT_NOFILE, GM_MPS_FILES_MOST);
    snprintf(locked, sizeof locked, "--memlock=%llu:%llu", lock, lock);
    snprintf(files, sizeof files, "--nofile=%llu:%llu", limit(RLIMIT_NOFILE, GM_MPS_FILES), most);
    const unsigned long long many = limit(RLIMIT_NPROC, GM_MPS_TASKS);
    snprintf(tasks, sizeof tasks, "--nproc=%llu:%llu", many, many);
    snprintf(uid, sizeof uid, "%u", user->uid);
    snprintf(gid, sizeof gid, "%u", user->gid);
    /* A user without a name has no groups. */
    const bool is_named = strcmp(gm_users_name(user->uid, name), uid) != 0;
    const char *args[28] = {helpers[3],
                            "-n",
                            nicer,
                            "--",
                            helpers[0],
                            "-n",
                            score,
                            "--",
                            helpers[1],
                            locked,
                            files,
                            tasks,
                            "--",
                            helpers[2],
                            "--reuid",
                            uid,
                            "--regid",
                            gid,
                            is_named ? "--init-groups" : "--clear-groups",
                            "--inh-caps=-all",
                            "--"};
    const size_t n_helping = 21, n_args = sizeof args / sizeof args[0];
    for (size_t i = 0; program[i] && n_helping + i + 1 < n_args; i++)
        args[n_helping + i] = program[i];
    const char *const *const used = geteuid() == 0 ? args : args + n_helping;
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_IGNORE}, {.flags = UV_IGNORE}, {.flags = UV_IGNORE}};
    if (in >= 0)
        stdio[0] = (uv_stdio_container_t){.flags = UV_INHERIT_FD, .data.fd = in};
    if (out >= 0)
        stdio[1] = (uv_stdio_container_t){.flags = UV_INHERIT_FD, .data.fd = out};
    uv_process_options_t options = {.exit_cb = on_exit,
                                    .file = used[0],
                                    .args = (char **)used,
                                    .env = env,
                                    .cwd = "/",
                                    .flags = UV_PROCESS_DETACHED,
                                    .stdio_count = 3,
                                    .stdio = stdio};
    return uv_spawn(user->loop, process, &options);
}

/* ---- the tool ---- */

static void on_closed(uv_handle_t *handle)
{
    struct gm_mps_tool *tool = handle->data;
    tool->is_there = false;
    tool->closed(tool->arg);
}

void gm_mps_tool_close(struct gm_mps_tool *tool)
{
    if (!tool->is_there || tool->is_over)
        return;
    tool->is_over = true;
    close(tool->out);
    uv_close((uv_handle_t *)&tool->process, on_closed);
}

static void on_exited(uv_process_t *process, int64_t status, int number)
{
    struct gm_mps_tool *tool = process->data;
    char text[GM_MPS_OUTPUT];
    if (!tool->is_over) {
        const ssize_t n = read(tool->out, text, sizeof text - 1);
        text[n > 0 ? n : 0] = '\0';
        tool->said(tool->arg, status == 0 && number == 0, text);
    }
    gm_mps_tool_close(tool);
}

void gm_mps_tool_run(struct gm_mps_tool *tool, const struct gm_mps_user *user,
                     const char *const *program, const char *command, uint64_t ns)
{
    int out[2];
    const int in = memfd_create("gpumux-mps", MFD_CLOEXEC);
    if (in < 0)
        return;
    if (write(in, command, strlen(command)) != (ssize_t)strlen(command) ||
        lseek(in, 0, SEEK_SET) != 0 || pipe2(out, O_CLOEXEC) != 0)
        goto no_pipe;
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    tool->is_there = true;
    tool->is_over = false;
    tool->out = out[0];
    tool->until = gm_now() + ns;
    tool->process.data = tool;
    if (gm_mps_spawn(user, &tool->process, on_exited, program, in, out[1]) != 0)
        gm_mps_tool_close(tool);
    close(out[1]);
no_pipe:
    close(in);
}

void gm_mps_tool_watch(struct gm_mps_tool *tool)
{
    if (tool->is_there && !tool->is_over && gm_now() >= tool->until)
        uv_process_kill(&tool->process, SIGKILL);
}
