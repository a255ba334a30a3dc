/*
 * service/mps: a control daemon for each user, and what becomes of programs when it is missing,
 * ends, hangs, says too much, or when its folders are not what they should be. It runs the fake
 * nvidia-cuda-mps-control of simcuda, or a script in its place, with short times.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "common/clock.h"

#define GM_MPS_LINGER_NS (200 * GM_MS)
static uint64_t
    start_ns; /* a busy machine gets there, too; shorter where nothing is to get there */
#define GM_MPS_START_NS start_ns
#define GM_MPS_SERVER_NS (300 * GM_MS)
#define GM_MPS_SLOW_NS (GM_SLOW * 10 * GM_S)
#define GM_MPS_TOOL_NS (GM_SLOW * 1000 * GM_MS)
#define GM_MPS_END_NS (GM_SLOW * 300 * GM_MS)
#define GM_MPS_LEAVE_NS (GM_SLOW * 100 * GM_MS)
#define GM_MPS_LOOK_NS (20 * GM_MS)
#define GM_MPS_FAULT_NS (50 * GM_MS)
#define GM_MPS_RETRY_NS (300 * GM_MS)
#define GM_MPS_RETRY_MOST_NS (600 * GM_S)

/* Who starts the programs changes no user: see gm_mps_spawn. */
#include <uv.h>
static bool is_user_changed;
static int spawn_and_look(uv_loop_t *on, uv_process_t *process, const uv_process_options_t *options)
{
    is_user_changed |= (options->flags & (UV_PROCESS_SETUID | UV_PROCESS_SETGID)) != 0;
    return uv_spawn(on, process, options);
}
#define uv_spawn spawn_and_look
#include "daemon/service/mps.c"
#include "daemon/service/mps_tool.c"

static uv_loop_t loop;
static struct gm_mps *mps;
static char dir[64], path[PATH_MAX], answer_pipe[GM_PIPE_MAX], answer_text[160];
static unsigned n_settled;

static void on_settled(void *arg, uid_t uid)
{
    (void)arg, (void)uid;
    n_settled++;
}

static void run_once(uv_timer_t *timer)
{
    (void)timer;
}

/* Run the loop for a moment. */
static void turn(void)
{
    static uv_timer_t beat;
    uv_timer_init(&loop, &beat);
    uv_timer_start(&beat, run_once, 5, 0);
    uv_run(&loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&beat, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
}

/* Run the loop until `is` is true of the user; fails after ten seconds. */
#define RUN_UNTIL(is)                                                                              \
    do {                                                                                           \
        const uint64_t end_ = gm_now() + GM_SLOW * 10 * GM_S;                                      \
        while (!(is) && gm_now() < end_)                                                           \
            turn();                                                                                \
        assert_true(is);                                                                           \
    } while (0)

static void run_for(uint64_t ns)
{
    for (const uint64_t end = gm_now() + ns; gm_now() < end;)
        turn();
}

static struct gm_mps_view seen(void)
{
    struct gm_mps_view view = {.state = GM_MPS_OFF};
    gm_mps_view(mps, 0, &view);
    return view;
}

static enum gm_mps_answer join(pid_t pid)
{
    return gm_mps_join(mps, pid, geteuid(), getegid(), 0, answer_pipe, answer_text,
                       sizeof answer_text);
}

static pid_t start_program(void)
{
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    return child;
}

static void end_program(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* The tool is the fake one, or a script; NULL: there is none. Each start of either is a line of
 * `starts`. */
static void put_tool(const char *script)
{
    char file[128];
    snprintf(file, sizeof file, "%s/bin/" GM_MPS_TOOL, dir);
    unlink(file);
    if (script) {
        FILE *out = fopen(file, "w");
        fprintf(out, "#!/bin/sh\necho \"$1\" >> %s/starts\n%s\n", dir, script);
        fclose(out);
        chmod(file, 0755);
    }
}

static unsigned starts(const char *word)
{
    char file[96], line[64];
    unsigned n = 0;
    snprintf(file, sizeof file, "%s/starts", dir);
    FILE *in = fopen(file, "r");
    while (in && fgets(line, sizeof line, in))
        n += strncmp(line, word, strlen(word)) == 0;
    if (in)
        fclose(in);
    return n;
}

static int set_up(void **state)
{
    char base[96], bin[96];
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/gm-mps.XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(bin, sizeof bin, "%s/bin", dir);
    assert_int_equal(mkdir(bin, 0755), 0);
    snprintf(path, sizeof path, "%s:%s", bin, "/usr/bin:/bin");
    setenv("PATH", path, 1);
    setenv("CUDA_VISIBLE_DEVICES", "0", 1); /* the fake one ends if it has it */
    snprintf(base, sizeof base, "%s/sock.mps", dir);
    uv_loop_init(&loop);
    mps = gm_mps_open(&loop, base);
    gm_mps_listen(mps, on_settled, NULL);
    n_settled = 0;
    start_ns = GM_SLOW * 2500 * GM_MS;
    put_tool("exec " GM_FAKE_MPS " \"$@\"");
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    gm_mps_close(mps);
    uv_run(&loop, UV_RUN_DEFAULT);
    gm_mps_free(mps);
    if (uv_loop_close(&loop) != 0)
        return -1;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) != 0;
}

static void shares_and_ends(void **state)
{
    (void)state;
    const pid_t one = start_program(), two = start_program();
    assert_int_equal(join(one), GM_MPS_SOON);
    RUN_UNTIL(n_settled == 1);
    assert_int_equal(join(one), GM_MPS_JOINED);
    assert_int_equal(join(one), GM_MPS_JOINED); /* once all the same */
    assert_int_equal(join(two), GM_MPS_JOINED);
    assert_true(is_alive(&mps->server[0]));
    assert_non_null(strstr(answer_text, "fatal fault"));
    assert_int_equal(seen().n, 2);
    assert_int_equal(seen().session, getsid(mps->server[0].control.pid));
    assert_int_equal(starts("-f"), 1);
    assert_false(gm_mps_has_part(mps, one));
    assert_int_equal(gm_mps_join(mps, getpid(), geteuid(), getegid(), 500, answer_pipe, answer_text,
                                 sizeof answer_text),
                     GM_MPS_JOINED);
    assert_true(gm_mps_has_part(mps, getpid()));
    assert_int_equal(seen().part[2], 500);
    assert_int_equal(join(getpid()), GM_MPS_JOINED); /* another program in its process */
    assert_false(gm_mps_has_part(mps, getpid()));
    let_go(&mps->server[0].member[2]);
    assert_false(gm_mps_has_part(mps, getpid()));
    end_program(one);
    RUN_UNTIL(seen().n == 1);
    run_for(2 * GM_MPS_LINGER_NS);
    assert_int_equal(seen().state, GM_MPS_READY);
    end_program(two);
    RUN_UNTIL(seen().state == GM_MPS_OFF);
    assert_false(is_alive(&mps->server[0]));
    /* and anew */
    assert_int_equal(join(getpid()), GM_MPS_SOON);
    RUN_UNTIL(n_settled == 2);
    assert_int_equal(join(getpid()), GM_MPS_JOINED);
}

/* One that comes while it ends has the next one. */
static void comes_as_it_ends(void **state)
{
    (void)state;
    put_tool("[ \"$1\" = -f ] || sleep 0.1\nexec " GM_FAKE_MPS " \"$@\"");
    const pid_t one = start_program();
    join(one);
    RUN_UNTIL(n_settled == 1);
    assert_int_equal(join(one), GM_MPS_JOINED);
    end_program(one);
    RUN_UNTIL(seen().state == GM_MPS_ENDING);
    assert_int_equal(join(getpid()), GM_MPS_SOON);
    RUN_UNTIL(n_settled == 2);
    assert_int_equal(join(getpid()), GM_MPS_JOINED);
    assert_int_equal(starts("-f"), 2);
}

/* Without MPS, with a reason; and it is not tried again at once. */
static void expect_unusable(const char *reason)
{
    if (join(getpid()) == GM_MPS_SOON)
        RUN_UNTIL(n_settled == 1);
    assert_int_equal(n_settled, 1);
    assert_int_equal(join(getpid()), GM_MPS_ALONE);
    assert_string_equal(answer_pipe, "");
    if (!strstr(answer_text, reason))
        fail_msg("\"%s\" does not say \"%s\"", answer_text, reason);
    assert_int_equal(seen().state, GM_MPS_UNUSABLE);
    const unsigned before = starts("-f");
    for (int i = 0; i < 10; i++)
        assert_int_equal(join(getpid()), GM_MPS_ALONE);
    assert_int_equal(starts("-f"), before);
}

static void is_missing(void **state)
{
    (void)state;
    put_tool(NULL);
    setenv("PATH", dir, 1);
    expect_unusable("is not installed");
    setenv("PATH", path, 1);
    /* it comes later */
    put_tool("exec " GM_FAKE_MPS " \"$@\"");
    run_for(GM_MPS_RETRY_NS);
    assert_int_equal(join(getpid()), GM_MPS_SOON);
    RUN_UNTIL(n_settled == 2);
    assert_int_equal(join(getpid()), GM_MPS_JOINED);
}

static void ends_at_once(void **state)
{
    (void)state;
    put_tool("exit 7");
    expect_unusable("code 7");
    /* Each time it is tried later. */
    run_for(GM_MPS_RETRY_NS);
    assert_int_equal(join(getpid()), GM_MPS_SOON);
    RUN_UNTIL(n_settled == 2);
    run_for(GM_MPS_RETRY_NS + GM_MPS_RETRY_NS / 4);
    assert_int_equal(join(getpid()), GM_MPS_ALONE);
    assert_int_equal(starts("-f"), 2);
}

static void hangs(void **state)
{
    (void)state;
    start_ns = 400 * GM_MS;
    put_tool("exec sleep 1000");
    const uint64_t begun = gm_now();
    expect_unusable("does not answer");
    assert_true(gm_now() - begun < GM_SLOW * 8 * GM_S); /* a busy machine, too */
    RUN_UNTIL(!mps->server[0].has_control && !mps->server[0].tool.is_there);
}

/* The control daemon writes without end, and so does the tool. */
static void floods(void **state)
{
    (void)state;
    start_ns = 400 * GM_MS;
    put_tool("exec yes 12345678901234567890");
    expect_unusable("does not answer");
    RUN_UNTIL(!mps->server[0].has_control && !mps->server[0].tool.is_there);
}

/* It answers and starts no server: programs may start one themselves. */
static void has_no_server(void **state)
{
    (void)state;
    put_tool("[ \"$1\" = -f ] && exec " GM_FAKE_MPS " -f\ngrep -q start_server || exec " GM_FAKE_MPS
             " < /dev/null");
    join(getpid());
    RUN_UNTIL(n_settled == 1);
    assert_int_equal(join(getpid()), GM_MPS_JOINED);
}

/* A server that takes long to start: programs do not wait for it, and later ones have it. The tool
 * takes long, too, as on a busy machine, which must not pass for a driver that starts none. */
static void is_slow(void **state)
{
    char file[128];
    (void)state;
    put_tool("[ \"$1\" = -f ] && touch $CUDA_MPS_PIPE_DIRECTORY/slow && exec " GM_FAKE_MPS " -f\n"
             "read -r line\n[ \"${line#start}\" = \"$line\" ] || sleep 0.4\n"
             "echo \"$line\" | " GM_FAKE_MPS);
    assert_int_equal(join(getpid()), GM_MPS_SOON);
    RUN_UNTIL(n_settled == 1);
    assert_int_equal(seen().state, GM_MPS_STARTING);
    assert_int_equal(join(getpid()), GM_MPS_ALONE);
    assert_non_null(strstr(answer_text, "still starting"));
    snprintf(file, sizeof file, "%s/slow", seen().pipe);
    unlink(file);
    RUN_UNTIL(n_settled == 2);
    assert_int_equal(join(getpid()), GM_MPS_JOINED);
    assert_int_equal(starts("-f"), 1);
}

static void ends_while_shared(void **state)
{
    (void)state;
    const pid_t one = start_program();
    join(one);
    RUN_UNTIL(n_settled == 1);
    assert_int_equal(join(one), GM_MPS_JOINED);
    kill(mps->server[0].control.pid, SIGKILL);
    RUN_UNTIL(seen().state == GM_MPS_UNUSABLE);
    assert_non_null(strstr(seen().why, "while 1 programs shared"));
    assert_int_equal(join(getpid()), GM_MPS_ALONE);
    run_for(GM_MPS_RETRY_NS);
    assert_int_equal(join(getpid()), GM_MPS_ALONE); /* not beside those that lost it */
    end_program(one);
    RUN_UNTIL(join(getpid()) == GM_MPS_SOON);
    RUN_UNTIL(n_settled == 3);
    assert_int_equal(join(getpid()), GM_MPS_JOINED);
}

static void a_fault(void **state)
{
    char file[GM_PIPE_MAX + 8];
    (void)state;
    const pid_t one = start_program(), two = start_program();
    join(one);
    RUN_UNTIL(n_settled == 1);
    assert_int_equal(join(one), GM_MPS_JOINED);
    assert_int_equal(join(two), GM_MPS_JOINED);
    snprintf(file, sizeof file, "%s/fault", answer_pipe);
    close(open(file, O_CREAT | O_WRONLY, 0600));
    end_program(one);
    RUN_UNTIL(seen().state == GM_MPS_FAULT);
    assert_int_equal(join(getpid()), GM_MPS_ALONE);
    assert_non_null(strstr(answer_text, "one program had a fatal fault"));
    unlink(file);
    RUN_UNTIL(seen().state == GM_MPS_READY);
    assert_int_equal(join(getpid()), GM_MPS_JOINED);
    end_program(two);
}

/* Those that lost it are there when the daemon ends. */
static void closes_without_it(void **state)
{
    (void)state;
    const pid_t one = start_program();
    join(one);
    RUN_UNTIL(n_settled == 1);
    assert_int_equal(join(one), GM_MPS_JOINED);
    kill(mps->server[0].control.pid, SIGKILL);
    RUN_UNTIL(seen().state == GM_MPS_UNUSABLE && !mps->server[0].has_control);
    assert_int_equal(seen().n, 1);
    gm_mps_close(mps);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(uv_is_closing((uv_handle_t *)&mps->server[0].timer));
    end_program(one);
}

/* The words of the file that `key` begins in a line. */
static const char *told(const char *key)
{
    static char line[256];
    char file[96];
    snprintf(file, sizeof file, "%s/told", dir);
    FILE *in = fopen(file, "r");
    bool is_found = false;
    while (in && !is_found && fgets(line, sizeof line, in))
        is_found = strncmp(line, key, strlen(key)) == 0;
    if (in)
        fclose(in);
    return is_found ? line + strlen(key) : "";
}

#define STRANGER 65534u

static int make_folders(void)
{
    return gm_mps_folders_make(mps->base, geteuid(), getegid());
}

/* The user may put anything where the control daemon's socket is. */
static void control_is_no_socket(void **state)
{
    char pipe[96], control[104], real[96];
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)state;
    join(getpid());
    RUN_UNTIL(n_settled == 1);
    RUN_UNTIL(seen().state == GM_MPS_OFF);
    struct server *const server = &mps->server[0];
    assert_int_equal(make_folders(), 0);
    snprintf(pipe, sizeof pipe, "%s/sock.mps/%u/pipe", dir, geteuid());
    snprintf(control, sizeof control, "%s/control", pipe);
    snprintf(real, sizeof real, "%s/real", dir);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", control);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 1), 0);
    assert_true(is_alive(server));
    /* a link to it, in the same file system */
    assert_int_equal(rename(control, real) || symlink("../../../real", control), 0);
    assert_false(is_alive(server));
    assert_int_equal(unlink(control) || mkfifo(control, 0600), 0);
    assert_false(is_alive(server));
    assert_int_equal(unlink(control) || rename(real, control), 0);
    assert_true(is_alive(server));
    /* a link to its folder */
    assert_int_equal(rename(pipe, real) || symlink("../../real", pipe), 0);
    assert_false(is_alive(server));
    assert_int_equal(unlink(pipe) || rename(real, pipe), 0);
    close(fd);
    assert_false(is_alive(server));
}

/* Nothing of what MPS and its user put into the folders stays, and nothing that a link leads to
 * goes. */
static void clears(void **state)
{
    char inner[160], kept[96], base[96];
    struct stat found;
    (void)state;
    const uid_t uid = geteuid() == 0 ? STRANGER : geteuid();
    if (geteuid() == 0) {
        chmod(dir, 0711);
        put_tool(NULL);
        snprintf(inner, sizeof inner, "%s/bin/" GM_MPS_TOOL, dir);
        assert_int_equal(symlink(GM_FAKE_MPS, inner), 0);
    }
    gm_mps_join(mps, getpid(), uid, uid, 0, answer_pipe, answer_text, sizeof answer_text);
    RUN_UNTIL(n_settled == 1);
    assert_int_equal(seen().state, GM_MPS_READY);
    snprintf(kept, sizeof kept, "%s/kept", dir);
    assert_int_equal(mkdir(kept, 0777) || chmod(kept, 0777), 0);
    snprintf(inner, sizeof inner, "%s/file", kept);
    close(open(inner, O_CREAT | O_WRONLY, 0666));
    snprintf(base, sizeof base, "%s/sock.mps/%u", dir, uid);
    snprintf(inner, sizeof inner, "%s/log/link", base);
    assert_int_equal(symlink(kept, inner), 0);
    snprintf(inner, sizeof inner, "%s/log/folder", base);
    assert_int_equal(mkdir(inner, 0700) || chown(inner, uid, uid), 0);
    RUN_UNTIL(seen().state == GM_MPS_OFF);
    assert_int_equal(stat(base, &found), -1);
    assert_int_equal(errno, ENOENT);
    snprintf(inner, sizeof inner, "%s/file", kept);
    assert_int_equal(stat(inner, &found), 0);
}

/* What an earlier daemon left is told to end until it ends. */
static void earlier_one_is_deaf(void **state)
{
    char script[512];
    (void)state;
    join(getpid());
    RUN_UNTIL(n_settled == 1);
    const struct gm_mps_view view = seen();
    RUN_UNTIL(seen().state == GM_MPS_OFF);
    assert_int_equal(make_folders(), 0);
    const pid_t old = fork();
    if (old == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        unsetenv("CUDA_VISIBLE_DEVICES");
        setenv("CUDA_MPS_PIPE_DIRECTORY", view.pipe, 1);
        setenv("CUDA_MPS_LOG_DIRECTORY", view.pipe, 1);
        execl(GM_FAKE_MPS, GM_FAKE_MPS, "-f", NULL);
        _exit(1);
    }
    RUN_UNTIL(is_alive(&mps->server[0]));
    snprintf(script, sizeof script,
             "[ \"$1\" = -f ] || [ -e %s/asked ] || { touch %s/asked; exit 1; }\nexec " GM_FAKE_MPS
             " \"$@\"",
             dir, dir);
    put_tool(script);
    assert_int_equal(join(getpid()), GM_MPS_SOON);
    RUN_UNTIL(n_settled == 2);
    assert_int_equal(join(getpid()), GM_MPS_JOINED);
    assert_int_equal(waitpid(old, NULL, 0), old);
}

/* No process of another user makes root signal a group. */
static void listed_is_of_another(void **state)
{
    struct gm_mps all = {.loop = &loop};
    (void)state;
    const pid_t other = fork();
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setsid();
        for (;;)
            pause();
    }
    RUN_UNTIL(getsid(other) == other);
    struct server server = {.all = &all, .user.uid = geteuid(), .listed = other, .group = other};
    assert_true(has_group(&server));
    server.user.uid++;
    assert_false(has_group(&server));
    end_group(&server, SIGKILL);
    assert_int_equal(waitpid(other, NULL, WNOHANG), 0);
    end_program(other);
}

/* Root's daemon starts it as the user, with what users have and not with what a service has. */
static void as_the_user(void **state)
{
    char file[128], script[512];
    struct rlimit locked, files;
    (void)state;
    if (geteuid() != 0)
        skip();
    chmod(dir, 0711);
    snprintf(file, sizeof file, "%s/starts", dir);
    close(open(file, O_CREAT | O_WRONLY, 0666));
    assert_int_equal(chmod(file, 0666), 0);
    snprintf(script, sizeof script,
             "[ \"$1\" = -f ] && { cat /proc/self/status /proc/self/limits; printf "
             "'Nice:\\t%%s\\n' $(nice); } > "
             "$CUDA_MPS_LOG_DIRECTORY/new "
             "&& mv $CUDA_MPS_LOG_DIRECTORY/new $CUDA_MPS_LOG_DIRECTORY/told\nexec " GM_FAKE_MPS
             " \"$@\"");
    put_tool(script);
    snprintf(file, sizeof file, "%s/told", dir);
    snprintf(script, sizeof script, "%s.mps/%u/log/told", "sock", STRANGER);
    assert_int_equal(symlink(script, file), 0);
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &locked) || getrlimit(RLIMIT_NOFILE, &files), 0);
    is_user_changed = false;
    const int niceness = getpriority(PRIO_PROCESS, 0);
    setpriority(PRIO_PROCESS, 0, -10); /* as the unit has it */
    assert_int_equal(gm_mps_join(mps, getpid(), STRANGER, STRANGER, 0, answer_pipe, answer_text,
                                 sizeof answer_text),
                     GM_MPS_SOON);
    RUN_UNTIL(n_settled == 1);
    setpriority(PRIO_PROCESS, 0, niceness);
    assert_int_equal(seen().state, GM_MPS_READY);
    assert_false(is_user_changed);
    assert_in_range(strtol(told("Nice:"), NULL, 10), 0, 19);
    assert_string_equal(told("Uid:"), "\t65534\t65534\t65534\t65534\n");
    assert_string_equal(told("Gid:"), "\t65534\t65534\t65534\t65534\n");
    assert_string_equal(told("Groups:"), "\t65534 \n"); /* those of the user database */
    assert_int_equal(strtoull(told("CapPrm:"), NULL, 16), 0);
    assert_int_equal(strtoull(told("CapInh:"), NULL, 16), 0);
    assert_in_range(strtoull(told("Max locked memory"), NULL, 10), 0, GM_MPS_LOCKED);
    assert_in_range(strtoull(told("Max open files"), NULL, 10), 1, GM_MPS_FILES);
    assert_true(files.rlim_max > GM_MPS_FILES); /* else that says nothing */
}

static void helper_is_missing(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    const char *const was = helpers[2];
    helpers[2] = "/nonexistent/setpriv";
    expect_unusable("/nonexistent/setpriv is missing");
    helpers[2] = was;
}

/* The folders belong to whom they should, or nothing is started there. */
static void folders(void **state)
{
    char base[96], own[128], pipe[160], other[96];
    struct stat found;
    (void)state;
    snprintf(base, sizeof base, "%s/sock.mps", dir);
    snprintf(own, sizeof own, "%s/%u", base, geteuid());
    snprintf(pipe, sizeof pipe, "%s/pipe", own);
    snprintf(other, sizeof other, "%s/other", dir); /* like one of its own */
    assert_int_equal(mkdir(other, 0700) || symlink(other, base), 0);
    expect_unusable("somebody changed them");
    unlink(base);
    assert_int_equal(mkdir(base, 0711) || mkdir(own, 0711) || symlink(other, pipe), 0);
    run_for(GM_MPS_RETRY_NS);
    assert_int_equal(join(getpid()), GM_MPS_ALONE);
    unlink(pipe);
    assert_int_equal(mkdir(pipe, 0700) || chmod(pipe, 0777), 0);
    run_for(2 * GM_MPS_RETRY_NS);
    assert_int_equal(join(getpid()), GM_MPS_ALONE);
    assert_int_equal(starts("-f"), 0);
    chmod(pipe, 0755);
    run_for(4 * GM_MPS_RETRY_NS);
    assert_int_equal(join(getpid()), GM_MPS_SOON);
    RUN_UNTIL(seen().state == GM_MPS_READY);
    assert_int_equal(stat(pipe, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0700);
    assert_int_equal(stat(base, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0711);
}

/* Of one user no more than a server takes, and of another user nothing of the first one's. */
static void bounds(void **state)
{
    pid_t pid[GM_MPS_MEMBERS + 1];
    (void)state;
    join(getpid());
    RUN_UNTIL(n_settled == 1);
    for (uint32_t i = 0; i <= GM_MPS_MEMBERS; i++) {
        pid[i] = start_program();
        assert_int_equal(join(pid[i]), i < GM_MPS_MEMBERS ? GM_MPS_JOINED : GM_MPS_ALONE);
    }
    assert_non_null(strstr(answer_text, "share already"));
    const enum gm_mps_answer other = gm_mps_join(mps, getpid(), geteuid() + 77, getegid(), 0,
                                                 answer_pipe, answer_text, sizeof answer_text);
    assert_int_not_equal(other, GM_MPS_JOINED);
    assert_true(geteuid() == 0 || strstr(answer_text, "only root's daemon"));
    assert_string_equal(answer_pipe, "");
    for (uint32_t i = 0; i <= GM_MPS_MEMBERS; i++)
        end_program(pid[i]);
    RUN_UNTIL(seen().n == 0);
}

/* A daemon ends: one without programs is ended, one with programs is told to end and goes on. */
static void closes(void **state)
{
    (void)state;
    const pid_t one = start_program();
    join(one);
    RUN_UNTIL(n_settled == 1);
    assert_int_equal(join(one), GM_MPS_JOINED);
    const pid_t control = mps->server[0].control.pid;
    /* a client of the fake one, as the driver is */
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s/control", answer_pipe);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(write(fd, "client\n", 7), 7);
    assert_int_equal(read(fd, answer_text, 3), 3);
    const uint64_t begun = gm_now();
    gm_mps_close(mps);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(gm_now() - begun < GM_MPS_LEAVE_NS + GM_SLOW * GM_S);
    assert_int_equal(waitpid(control, NULL, WNOHANG), 0);
    int status;
    close(fd);
    assert_int_equal(waitpid(control, &status, 0), control);
    assert_int_equal(status, 0); /* by itself */
    end_program(one);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(shares_and_ends),
        TEST(comes_as_it_ends),
        TEST(is_missing),
        TEST(ends_at_once),
        TEST(hangs),
        TEST(floods),
        TEST(has_no_server),
        TEST(a_fault),
        TEST(folders),
        TEST(bounds),
        TEST(ends_while_shared),
        TEST(closes),
        TEST(is_slow),
        TEST(closes_without_it),
        TEST(control_is_no_socket),
        TEST(earlier_one_is_deaf),
        TEST(listed_is_of_another),
        TEST(clears),
        TEST(as_the_user),
        TEST(helper_is_missing),
    };
    signal(SIGPIPE, SIG_IGN);
    gm_log_open(STDERR_FILENO, GM_LOG_ERROR, "test_mps");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
