/* clang-format off */
/*
 * gpumuxd: starts the parts of the daemon in order, and stops them in reverse.
 *
 *   options -> process limits -> loop -> claim the socket's path
 *           -> engines (open the GPUs) -> programs of the daemon before -> sessions -> listen -> "ready"
 *
 * Cheap checks come first and the socket last, so clients never see a daemon that fails to start.
 * Such a daemon prints one line and exits with 1. SIGHUP reads the options again (reload.c). On
 * SIGTERM or SIGINT the daemon ends at once with 0: the keeper holds all for the next one. Where
 * there is no keeper, and by GIVE_BACK, which --drain sends, the engines first bring memory back to
 * as many programs as they can (engine/step/budget.c). A signal ends that.
 */
/* clang-format on */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uv.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/notify.h"
#include "common/standard.h"
#include "common/text.h"
#include "daemon/engine/absents.h"
#include "daemon/engine/machine.h"
#include "daemon/engine/open.h"
#include "daemon/memory/files.h"
#include "daemon/memory/kept.h"
#include "daemon/service/before.h"
#include "daemon/service/control.h"
#include "daemon/service/give_back.h"
#include "daemon/service/keeping.h"
#include "daemon/service/options_load.h"
#include "daemon/service/past.h"
#include "daemon/service/process.h"
#include "daemon/service/reload.h"
#include "daemon/service/server.h"
#include "daemon/service/session.h"
#include "daemon/service/session_output.h"
#include "daemon/service/trial.h"
#include "daemon/service/users.h"
#include "daemon/views/journal.h"

/* An H200 host with 139 GiB of device and 64 GiB of host frames needed 6,500 (measured). */
#define FILES_WANTED 8192u
/* Enough for 256 GiB in frames of 2 MiB. The table takes 1 MiB of kernel memory. */
#define FILES_AT_ONCE 131072u

/* The daemon before has so long to end. Longer, and its driver hangs: its copies may go on. */
#define BEFORE_NS (30 * GM_S)

/* Writes the log lines that log.c holds back. The timer runs only while there are some. */
struct log_clock {
    uv_prepare_t prepare;
    uv_timer_t timer;
};

static void on_log_time(uv_timer_t *timer)
{
    (void)timer;
    gm_log_release(false);
}

static void on_log_prepare(uv_prepare_t *prepare)
{
    struct log_clock *clock = prepare->data;
    if (gm_log_is_holding() && !uv_is_active((uv_handle_t *)&clock->timer))
        uv_timer_start(&clock->timer, on_log_time, 1000, 0);
}

static void start_log_clock(uv_loop_t *loop, struct log_clock *clock)
{
    uv_prepare_init(loop, &clock->prepare);
    uv_timer_init(loop, &clock->timer);
    clock->prepare.data = clock;
    uv_prepare_start(&clock->prepare, on_log_prepare);
}

static void stop_log_clock(struct log_clock *clock)
{
    uv_close((uv_handle_t *)&clock->prepare, NULL);
    uv_close((uv_handle_t *)&clock->timer, NULL);
}

/* Tells the service manager that the loop goes round, where it wants to know: a daemon that hangs
 * is ended, and started anew. */
static void on_watchdog(uv_timer_t *timer)
{
    (void)timer;
    gm_notify("WATCHDOG=1");
}

static void start_watchdog(uv_loop_t *loop, uv_timer_t *watchdog)
{
    const uint64_t within = gm_notify_watchdog();
    uv_timer_init(loop, watchdog);
    if (within > 0)
        uv_timer_start(watchdog, on_watchdog, 0, within / 2 / GM_MS + 1);
}

#define GPU_LOST 1 /* what serve() returns when the daemon's CUDA context is lost */

struct signals {
    uv_signal_t term, interrupt, hangup;
    struct gm_machine *machine; /* while the daemon serves */
    struct gm_kept *kept;
    struct gm_sessions *sessions;
    const struct gm_absents *absents;
    struct gm_reload *reload;
    bool is_stopping, is_saved, is_lost;
};

static void on_lost(void *arg)
{
    struct signals *signals = arg;
    signals->is_lost = true;
    uv_stop(signals->term.loop);
}

static void on_saved(void *arg)
{
    struct signals *signals = arg;
    signals->is_saved = true;
    gm_sessions_given_back(signals->sessions);
    uv_stop(signals->term.loop);
}

/* Bring memory back to the programs, and end then. */
static void give_back(void *arg)
{
    struct signals *signals = arg;
    if (signals->is_stopping || !signals->machine)
        return;
    signals->is_stopping = true;
    gm_notify("STOPPING=1\nSTATUS=Stopping: bringing memory back to programs");
    gm_machine_save(signals->machine, on_saved, signals);
}

static void on_stop(uv_signal_t *handle, int number)
{
    struct signals *signals = handle->data;
    gm_log(GM_LOG_INFO, "stopping%s on %s", signals->is_stopping ? " at once" : "",
           number == SIGTERM ? "SIGTERM" : "SIGINT");
    if (signals->is_stopping || !signals->machine) {
        uv_stop(handle->loop);
        return;
    }
    if (gm_kept_is_connected(signals->kept)) /* the next daemon takes all over */
        uv_stop(handle->loop);
    else
        give_back(signals);
}

static void on_hangup(uv_signal_t *handle, int number)
{
    struct signals *signals = handle->data;
    (void)number;
    if (signals->machine && !signals->is_stopping) /* at the start it has just been read */
        gm_reload_begin(signals->reload);
}

static void start_signals(uv_loop_t *loop, struct signals *signals)
{
    uv_signal_init(loop, &signals->term);
    uv_signal_init(loop, &signals->interrupt);
    uv_signal_init(loop, &signals->hangup);
    signals->term.data = signals->interrupt.data = signals->hangup.data = signals;
    uv_signal_start(&signals->term, on_stop, SIGTERM);
    uv_signal_start(&signals->interrupt, on_stop, SIGINT);
    uv_signal_start(&signals->hangup, on_hangup, SIGHUP);
}

static void stop_signals(struct signals *signals)
{
    uv_close((uv_handle_t *)&signals->term, NULL);
    uv_close((uv_handle_t *)&signals->interrupt, NULL);
    uv_close((uv_handle_t *)&signals->hangup, NULL);
}

/* Raise a soft limit to the hard limit. Returns the new one. */
static rlim_t raise_limit(__rlimit_resource_t resource)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit))
        return 0;
    if (limit.rlim_cur != limit.rlim_max) {
        rlim_t before = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(resource, &limit))
            return before;
    }
    return limit.rlim_cur;
}

/*
 * Let the kernel grow the table of open files now, before there are threads. Growing it in a
 * process with threads waits for a grace period of all processors: 7 to 27 ms (measured).
 */
static void widen_files(rlim_t limit)
{
    const rlim_t most = limit < FILES_AT_ONCE ? limit : FILES_AT_ONCE;
    int last = most > 0 ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, (int)most - 1) : -1;
    if (last >= 0)
        close(last);
}

static rlim_t harden(void)
{
    /* This process holds memory of other users' programs: no core dump, no debugger. (The leak
     * checker is a debugger.) */
#ifndef __SANITIZE_ADDRESS__
    prctl(PR_SET_DUMPABLE, 0);
#endif
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that is too large fails its write instead */
    signal(SIGTTOU, SIG_IGN); /* with `stty tostop` a line to the terminal would stop the daemon */
    raise_limit(RLIMIT_MEMLOCK);
    const rlim_t files = raise_limit(RLIMIT_NOFILE);
    widen_files(files);
    gm_files_init(files);
    return files;
}

/* "GPU 0" or "GPUs 0, 1". */
static void name_gpus(const struct gm_gpus *gpus, char *text, size_t size)
{
    snprintf(text, size, gpus->n == 1 ? "GPU" : "GPUs");
    for (uint32_t i = 0; i < gpus->n; i++)
        gm_text_add(text, size, "%s %u", i > 0 ? "," : "", gpus->gpu[i]);
}

static void log_ready(const struct gm_options *options, const struct gm_gpus *shared, rlim_t files)
{
    char lines[PATH_MAX + 160];
    char gpus[96];
    name_gpus(shared, gpus, sizeof gpus);
    gm_log(GM_LOG_INFO, "gpumuxd %s shares %s on %s", GM_VERSION, gpus, options->socket);
    if (files < FILES_WANTED)
        gm_log(GM_LOG_WARN,
               "at most %llu open files: each 2 to 32 MiB of swapped memory needs one; raise "
               "LimitNOFILE or ulimit -n to %u or more",
               (unsigned long long)files, FILES_WANTED);
    snprintf(lines, sizeof lines, "READY=1\nSTATUS=Sharing %s on %s", gpus, options->socket);
    int error = gm_notify(lines);
    if (error)
        gm_log(GM_LOG_WARN, "the service manager cannot be told: %s", strerror(-error));
}

/* A folder that the service manager made for the daemon. NULL: none. */
static const char *folder_of(const char *variable)
{
    const char *folder = getenv(variable);
    return folder && folder[0] == '/' && !strchr(folder, ':') ? folder : NULL;
}

/* Where what programs needed is kept; "": nowhere. */
static void name_history(const struct gm_options *options, char *path, size_t size)
{
    const char *folder = folder_of("STATE_DIRECTORY");
    if (options->history[0])
        snprintf(path, size, "%s", options->history);
    else if (folder)
        snprintf(path, size, "%s/history", folder);
    else
        path[0] = '\0';
}

/* Where the folders of MPS are. Users may fill them, so not in /run, if there is another place. */
static void name_mps(const struct gm_options *options, char *path, size_t size)
{
    const char *folder = folder_of("CACHE_DIRECTORY");
    if (folder)
        snprintf(path, size, "%.*s/mps", PATH_MAX - 8, folder);
    else
        snprintf(path, size, "%.*s.mps", PATH_MAX - 8, options->socket);
}

/*
 * The lifeline. Programs have its reading end; the daemon and the keeper the other: it hangs up
 * when neither process is there, and with them the memory that programs have from them.
 */

/* That of the daemon before, if programs have it. 0 or -errno. */
static int keep_lifeline(struct gm_kept *kept, int lifeline[2])
{
    uint64_t id;
    const int programs = gm_kept_claim(kept, GM_KEPT_LIFELINE, 0, GM_LIFELINE_PROGRAMS, &id);
    const int own = gm_kept_claim(kept, GM_KEPT_LIFELINE, 0, GM_LIFELINE_OWN, &id);
    if (programs >= 0 && own >= 0) {
        close(lifeline[0]);
        close(lifeline[1]);
        lifeline[0] = programs;
        lifeline[1] = own;
        return 0;
    }
    const int error = gm_kept_put(kept, GM_KEPT_LIFELINE, 0, GM_LIFELINE_PROGRAMS, 0, lifeline[0]);
    if (programs >= 0) /* that daemon ended before it had put the other one */
        close(programs);
    return error ? error : gm_kept_put(kept, GM_KEPT_LIFELINE, 0, GM_LIFELINE_OWN, 0, lifeline[1]);
}

static void end_lifeline(const int lifeline[2])
{
    close(lifeline[0]);
    close(lifeline[1]);
}

/* A GPU that cannot hand on what programs have there keeps all from it: they may use several. */
static bool can_outlive(const struct gm_machine *machine)
{
    for (uint32_t i = 0; i < machine->n; i++)
        if (!gm_engine_can_outlive(machine->engines[i]))
            return false;
    return true;
}

/* Find the keeper, and what it holds of the daemon before. 0 or -errno. */
static int begin_keeping(struct gm_keeping *keeping, struct gm_kept *kept, const char *socket,
                         int lifeline[2], char *why, size_t size)
{
    const int begun = gm_keeping_begin(keeping, kept, socket, why, size);
    int error = begun > 0 ? 0 : begun;
    if (begun == 0)
        error = gm_before_wait(kept, BEFORE_NS, why, size);
    if (error)
        return error;
    if (begun == 0 && (error = keep_lifeline(kept, lifeline)) != 0)
        snprintf(why, size, "what gpumux-keeper holds cannot be taken over: %s", strerror(-error));
    if (begun == 0 && error == 0)
        snprintf(why, size, "gpumux-keeper at %s does not hold what this daemon has",
                 keeping->path);
    if (error == 0 && !gm_kept_is_connected(kept))
        gm_log(GM_LOG_WARN, "%s: if this daemon is lost, so is what it has swapped out", why);
    return error;
}

/* The keeper has all that programs need of this daemon. */
static bool is_handed_on(const struct signals *signals)
{
    return gm_kept_is_connected(signals->kept) && !signals->is_saved &&
           gm_sessions_apps(signals->sessions) + gm_absents_count(signals->absents) > 0;
}

/* End as one that is killed: what is ended in order is taken from the programs, and they wait for
 * the next daemon. The socket's lock ends with the process: until then copies are under way. */
static _Noreturn void hand_on(const struct signals *signals, struct gm_server *server,
                              struct gm_past *past)
{
    gm_log(GM_LOG_INFO, "stopped: %u programs go on, or wait for the next daemon",
           gm_sessions_apps(signals->sessions) + gm_absents_count(signals->absents));
    gm_kept_disconnect(signals->kept);
    gm_server_leave(server);
    gm_past_close(past);
    gm_log_release(true);
    _exit(signals->is_lost ? 1 : 0);
}

/* A start that fails leaves what the daemon before had as it is: an end in order would write into
 * the ledgers, and take it from the programs. */
static void leave(struct gm_kept *kept, const struct gm_keeping *keeping, const char *why)
{
    if (!gm_kept_is_connected(kept) || keeping->child > 0) /* there is nothing of one before */
        return;
    gm_kept_disconnect(kept);
    gm_log(GM_LOG_ERROR, "cannot start: %s", why);
    gm_log_release(true);
    _exit(1);
}

/* What the driver says of all GPUs, for a configuration that is read again. */
static struct gm_trial_gpus all_gpus;

static void note_gpus(const struct gm_machine *machine)
{
    struct gm_trial_gpus gpus = {0};
    int count = 0;
    const struct gm_cuda *cuda = &machine->engines[0]->cuda;
    if (cuda->cuDeviceGetCount(&count) != CUDA_SUCCESS || count <= 0)
        return;
    gpus.n = (uint32_t)count;
    for (CUdevice i = 0; i < count; i++) {
        size_t bytes = 0;
        cuda->cuDeviceTotalMem_v2(&bytes, i);
        gpus.most = bytes > gpus.most ? bytes : gpus.most;
    }
    all_gpus = gpus;
}

static int try_again(const struct gm_options *options, char warnings[GM_OPTIONS_WARNINGS],
                     char *why, size_t size)
{
    return gm_trial(options, GM_TRIAL_RELOAD, &all_gpus, warnings, why, size);
}

/* A mistake that a start would meet ends it with its place; what is without effect is told. */
static int try_options(const struct gm_options *options, enum gm_trial_by by, char *why,
                       size_t size)
{
    static char warnings[GM_OPTIONS_WARNINGS];
    struct gm_trial_gpus gpus = {0};
    if (by == GM_TRIAL_CHECK)
        gpus = gm_trial_ask_nvml();
    const int error = gm_trial(options, by, &gpus, warnings, why, size);
    gm_options_warn(options, warnings);
    return error;
}

static int serve(struct gm_options *options, int argc, char **argv, rlim_t files, char *why,
                 size_t size)
{
    int lifeline[2];
    if (pipe2(lifeline, O_CLOEXEC) != 0) {
        snprintf(why, size, "no pipe can be made: %s", strerror(errno));
        return -errno;
    }
    struct gm_kept *kept = NULL;
    int error = gm_kept_open(&kept);
    if (error) {
        snprintf(why, size, "out of memory");
        end_lifeline(lifeline);
        return error;
    }
    uv_loop_t loop;
    static struct gm_reload reload;
    static struct gm_keeping keeping;
    struct signals signals = {.reload = &reload, .kept = kept};
    struct log_clock log_clock;
    uv_timer_t watchdog;
    struct gm_server *server = NULL;
    struct gm_sessions *sessions = NULL;
    struct gm_past *past = NULL;
    struct gm_mps *mps = NULL;
    char history[PATH_MAX], mps_base[PATH_MAX];
    static struct gm_control control;
    static struct gm_machine machine;
    static struct gm_absents absents;
    const uint64_t began = gm_now();
    struct gm_gpus gpus = options->gpus;
    const struct gm_server_config place = {
        .path = options->socket,
        .is_user = options->user,
        .is_default_dir = !options->is_own_socket,
    };
    static struct gm_journal journal;
    struct gm_engine_config config = {
        .outlet =
            {
                .send = gm_session_send,
                .end = gm_session_end,
                .keep = gm_session_keep,
                .rule = gm_rules_find,
                .totals = gm_rules_totals,
                .is_sure = gm_rules_are_sure,
                .total_rule = gm_rules_find_total,
                .user = gm_users_name,
                .owner = gm_users_owner,
                .stop_of = gm_process_stop,
                .holder = gm_process_holder,
                .started = gm_process_started,
                .event = gm_journal_event,
            },
        .kept = kept,
        .budget = options->gpu_budget.bytes,
        .budget_percent = options->gpu_budget.percent,
        .pinned = options->pinned,
        .paged = options->paged,
        .disk_dir = options->disk.dir,
        .disk = options->disk.bytes,
        .is_oversize = options->oversize == 1,
        .has_bending_caps = options->cap_bends,
        .is_waiting_when_full = options->when_full == 1,
        .is_fair_by_program = options->fair == 1,
        .slice_ns = options->slice,
        .patience_ns = options->patience,
        .rules = &options->rules,
        .journal = &journal,
        .best_class = options->best_class,
        .idle_ns = options->idle,
        .latency_mode = (enum gm_latency_mode)options->latency_mode,
        .max_apps = options->max_apps,
        .on_lost = on_lost,
        .arg = &signals,
    };

    error = uv_loop_init(&loop);
    if (error) {
        snprintf(why, size, "the event loop cannot be made: %s", uv_strerror(error));
        gm_kept_close(kept);
        end_lifeline(lifeline);
        return error;
    }
    start_log_clock(&loop, &log_clock);
    start_watchdog(&loop, &watchdog);
    start_signals(&loop, &signals); /* a SIGTERM during a slow start stops the daemon after it */
    error = gm_server_claim(&server, &place, why, size);
    if (error)
        goto no_claim;
    if (gpus.n == 0)
        error = gm_machine_find_gpus(gpus.gpu, &gpus.n, why, size);
    if (error)
        goto no_gpus;
    journal.is_several = gpus.n > 1;
    error = begin_keeping(&keeping, kept, options->socket, lifeline, why, size);
    if (error)
        goto no_machine;
    config.lifeline = lifeline[0];
    error = gm_machine_open(&machine, &loop, &config, gpus.gpu, gpus.n, why, size);
    if (error)
        goto no_machine;
    gm_control_init(&control, options, &machine);
    error = gm_absents_open(&absents, &machine, began, why, size);
    if (error) {
        leave(kept, &keeping, why);
        goto no_sessions;
    }
    signals.absents = &absents;
    control.takeover = &absents.takeover;
    name_history(options, history, sizeof history);
    control.history = history;
    control.past = past = gm_past_open(&loop, history);
    name_mps(options, mps_base, sizeof mps_base);
    control.mps = mps = gm_mps_open(&loop, mps_base);
    error = past && mps ? 0 : -ENOMEM;
    if (error == 0)
        error = gm_sessions_open(&sessions, &loop, &machine, &control, options->max_apps);
    if (error) {
        snprintf(why, size, "out of memory");
        leave(kept, &keeping, why);
        goto no_sessions;
    }
    gm_kept_settle(kept);
    error = gm_server_listen(server, &loop, sessions, why, size);
    if (error) {
        leave(kept, &keeping, why);
        goto no_listen;
    }

    if (can_outlive(&machine))
        gm_keeping_watch(&keeping, &loop);
    else
        gm_kept_end(kept);
    log_ready(options, &gpus, files);
    note_gpus(&machine);
    gm_reload_init(&reload, &loop, options, &machine, try_again, argc, argv);
    gm_reload_listen(&reload, gm_sessions_config_is, sessions);
    control.reload = &reload;
    control.give_back = give_back;
    control.arg = &signals;
    signals.sessions = sessions;
    signals.machine = &machine;
    uv_run(&loop, UV_RUN_DEFAULT);
    signals.machine = NULL;
    if (is_handed_on(&signals))
        hand_on(&signals, server, past);
    gm_keeping_stop(&keeping);
    gm_reload_stop(&reload);
    gm_machine_halt(&machine); /* it must not go on saving when sessions end */
    error = signals.is_lost ? GPU_LOST : 0;
    if (gm_sessions_apps(sessions) > 0 && !signals.is_saved)
        gm_log(
            GM_LOG_WARN,
            "%u programs go on without the daemon: those whose memory is on the GPU run on, those "
            "whose memory was swapped out have lost it",
            gm_sessions_apps(sessions));

no_listen:
    if (error)
        gm_kept_disconnect(kept); /* what it holds stays for the next start */
    gm_server_stop(server);       /* first, so that the path is free for the next daemon */
    end_lifeline(lifeline);       /* so nobody waits for this one */
    gm_sessions_stop(sessions);
no_sessions:
    if (error)
        gm_kept_disconnect(kept);
    gm_mps_close(mps);
    gm_past_close(past); /* behind the sessions, whose programs it remembers */
    gm_absents_close(&absents);
    gm_machine_close(&machine);
no_machine:
    if (error)
        gm_kept_disconnect(kept);
    gm_kept_end(kept); /* nobody needs what it holds */
    if (error)
        gm_keeping_undo(&keeping);
no_gpus:
    gm_tape_close(&journal.tape);
    gm_server_stop(server);
no_claim:
    stop_signals(&signals);
    uv_close((uv_handle_t *)&watchdog, NULL);
    stop_log_clock(&log_clock);
    uv_run(&loop, UV_RUN_DEFAULT); /* closes the handles that are left */
    if (uv_loop_close(&loop))
        gm_log(GM_LOG_ERROR, "the event loop still had handles at the end");
    /* What has handles goes after the loop, which knows them. */
    if (sessions)
        gm_sessions_free(sessions);
    if (past)
        gm_past_free(past);
    gm_mps_free(mps);
    if (server)
        gm_server_free(server);
    gm_kept_close(kept);
    return error;
}

int main(int argc, char **argv)
{
    static struct gm_options options;
    static char why[PATH_MAX + 512];

    gm_open_standard(1);
    syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC); /* also what it was started with */
    int outcome = gm_options_parse(&options, argc, argv, why, sizeof why);
    if (outcome == GM_OPTIONS_DONE)
        return 0;
    if (outcome < 0) {
        fprintf(stderr, "gpumuxd: %s\n", why);
        return 1;
    }
    gm_log_open(STDERR_FILENO, options.log_level, "gpumuxd");
    if (outcome == GM_OPTIONS_CHECK) {
        if (try_options(&options, GM_TRIAL_CHECK, why, sizeof why) == 0)
            return 0;
        fprintf(stderr, "gpumuxd: %s\n", why);
        return 1;
    }
    if (outcome == GM_OPTIONS_DRAIN)
        return gm_have_given_back(options.socket);
    gm_log_limit();
    gm_log_apart();
    int error = try_options(&options, GM_TRIAL_START, why, sizeof why);
    if (error == 0)
        error = serve(&options, argc, argv, harden(), why, sizeof why);
    if (error && error != GPU_LOST)
        gm_log(GM_LOG_ERROR, "cannot start: %s", why);
    if (error)
        return 1;
    gm_log(GM_LOG_INFO, "stopped");
    return 0;
}
