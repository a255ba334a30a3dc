/*
 * Processes of a user that serve MPS (mps.h): the control daemon, and the tool that talks to it.
 * The tool is nvidia-cuda-mps-control, too; or rm, which empties the user's folders.
 *
 * Nothing is waited for without a limit, and what a tool writes is read to GM_MPS_OUTPUT bytes.
 * Owns the tool's process. Called by mps.c, which gets what it said. Loop thread only.
 */
#ifndef GM_DAEMON_SERVICE_MPS_TOOL_H
#define GM_DAEMON_SERVICE_MPS_TOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/clock.h"
#include "common/wire.h"

#define GM_MPS_OUTPUT 4096u
/* Limits of what root's daemon starts as a user: what Linux and systemd give users. */
#define GM_MPS_LOCKED (8u << 20)     /* bytes of locked memory */
#define GM_MPS_FILES 1024u           /* open files */
#define GM_MPS_FILES_MOST (1u << 19) /* that it may ask for */
/* Processes and threads of its user. They count for the tasks of the service, too, which has room
 * for as many of GM_MPS_USERS users (TasksMax= of the unit). */
#define GM_MPS_TASKS 8192u

/* Whose they are. */
struct gm_mps_user {
    uv_loop_t *loop;
    uid_t uid;
    gid_t gid;
    char pipe[GM_PIPE_MAX], log[GM_PIPE_MAX]; /* folders */
};

/* What root's daemon needs to start them and is not there. NULL: nothing. */
const char *gm_mps_missing_helper(void);

/* As the user, in a session of its own, with nothing of the daemon's environment but where programs
 * and libraries are.
 *
 * Root's daemon does not have uv_spawn change the user. uv_spawn waits until its child has executed
 * a file, and the user may stop a process of theirs before it does. So the child is root's until
 * then, and the helpers change the user. They also take back what the service has and users have
 * not: its limits and its protection from lack of memory. Returns 0 or -errno. */
int gm_mps_spawn(const struct gm_mps_user *user, uv_process_t *process, uv_exit_cb on_exit,
                 const char *const *program, int in, int out);

/* Zero but for the callbacks, before it is used. */
struct gm_mps_tool {
    uv_process_t process;
    bool is_there, is_over;
    int out;
    uint64_t until;
    void *arg;
    void (*said)(void *arg, bool is_ok, const char *text); /* it has ended by itself */
    void (*closed)(void *arg);                             /* the next one can run */
};

/* Run it, for `ns` at most; none is there now. `command` is what it reads. What it says goes into a
 * pipe, which is read when it has ended: one that says too much waits there for its end. */
void gm_mps_tool_run(struct gm_mps_tool *tool, const struct gm_mps_user *user,
                     const char *const *program, const char *command, uint64_t ns);

/* Kill it if it is there for too long. */
void gm_mps_tool_watch(struct gm_mps_tool *tool);

/* Let it be. */
void gm_mps_tool_close(struct gm_mps_tool *tool);

#endif
