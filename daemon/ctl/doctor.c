/*
 * mux-ctl doctor: what this machine can do for gpumux and what is wrong with it, a line for each,
 * and below what is wrong the command that mends it. It works without a daemon, a GPU and a driver:
 * then that is what is wrong. Calls driver.c, ask.c, find.c, columns.c and say.c.
 *
 * A check is ok; a note, where something is slower or lacks a feature; or wrong, where programs do
 * not share the GPU as they should.
 */
#include "daemon/ctl/ctl.h"

#include <cuda.h>
#include <errno.h>
#include <limits.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/sock.h"
#include "common/text.h"
#include "daemon/ctl/driver.h"

/* The first schema of --json. */
#define DOCTOR_SCHEMA 1
/* Each piece of 2 to 32 MiB of memory needs an open file of the daemon. This many are enough for a
 * card of 80 GiB in pieces of 8 MiB in the mean, on the GPU and on the host. */
#define FILES_ENOUGH 32768u
#define NAME_WIDTH 14
#define STATE_WIDTH 5

enum state { OK, NOTE, WRONG };
static const char *const states[] = {[OK] = "ok", [NOTE] = "note", [WRONG] = "WRONG"};

struct doctor {
    cJSON *checks; /* an object each */
    unsigned wrong;
};

/* A line of the table. `mend` is a command, or what to do; "": nothing is to be done. */
static void check(struct doctor *doctor, const char *name, int gpu, enum state state,
                  const char *mend, const char *format, ...) __attribute__((format(printf, 6, 7)));
static void check(struct doctor *doctor, const char *name, int gpu, enum state state,
                  const char *mend, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    gm_text_clean(text, sizeof text);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", name);
    if (gpu >= 0)
        cJSON_AddNumberToObject(object, "gpu", gpu);
    cJSON_AddStringToObject(object, "state", state == WRONG ? "wrong" : states[state]);
    cJSON_AddStringToObject(object, "text", text);
    cJSON_AddStringToObject(object, "mend", mend);
    cJSON_AddItemToArray(doctor->checks, object);
    doctor->wrong += state == WRONG;
}

/* ---- the driver and its GPUs ---- */

/* What mends a driver that does not start. */
static const char *mend_driver(int error)
{
    switch (error) {
    case CUDA_ERROR_NO_DEVICE:
        return access("/dev/nvidiactl", F_OK) == 0 && access("/dev/nvidiactl", R_OK | W_OK) != 0
                   ? "ls -l /dev/nvidia*, and join the group that may use them"
               : getenv("CUDA_VISIBLE_DEVICES") ? "unset CUDA_VISIBLE_DEVICES"
                                                : "nvidia-smi, which says more; is there a GPU?";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        return "sudo reboot: the kernel has another version of the driver than the library";
    case CUDA_ERROR_SYSTEM_NOT_READY:
        return "sudo systemctl start nvidia-fabricmanager";
    default:
        return "sudo modprobe nvidia_uvm; nvidia-smi says more";
    }
}

static void check_driver(struct doctor *doctor, const struct mux_driver *driver)
{
    const int version = driver->version;
    if (!driver->is_loaded)
        check(doctor, "driver", -1, WRONG,
              "install NVIDIA's driver: sudo apt install nvidia-driver (Ubuntu: sudo "
              "ubuntu-drivers install)",
              "there is no CUDA driver: %s", driver->why);
    else if (driver->is_silent)
        check(
            doctor, "driver", -1, WRONG,
            "sudo dmesg | grep -i nvrm says what the driver met; most often only sudo reboot helps",
            "the CUDA driver hangs: %s", driver->why);
    else if (driver->why[0])
        check(doctor, "driver", -1, WRONG, mend_driver(driver->error),
              "the CUDA driver does not start: %s", driver->why);
    else
        check(doctor, "driver", -1, version >= 12050 ? OK : NOTE,
              version >= 12050 ? "" : "install a driver of CUDA 12.5 or newer", "CUDA %d.%d%s",
              version / 1000, version % 1000 / 10,
              version >= 12050   ? ""
              : version >= 12040 ? ": waiting for the end of work keeps a core busy"
                                 : ": gpumux does not know which memory is used most, and waiting "
                                   "keeps a core busy");
    if (driver->no_nvml[0] && driver->n > 0)
        check(doctor, "nvml", -1, NOTE,
              strstr(driver->no_nvml, "answer")
                  ? "nvidia-smi: does that hang, too?"
                  : "install libnvidia-ml.so.1 of the driver's version",
              "%s: what crosses the link is not counted", driver->no_nvml);
}

static void check_mode(struct doctor *doctor, int n, const struct mux_gpu *gpu)
{
    char mend[96];
    const bool is_exclusive = gpu->compute_mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
    /* Its numbers are not those of CUDA. */
    snprintf(mend, sizeof mend, "sudo nvidia-smi -i %s -c DEFAULT", gpu->uuid);
    if (gpu->compute_mode == CU_COMPUTEMODE_PROHIBITED || (is_exclusive && !gpu->has_mps))
        check(doctor, "compute mode", n, WRONG, mend, "%s: %s",
              is_exclusive ? "EXCLUSIVE_PROCESS" : "PROHIBITED",
              is_exclusive ? "only one process can use it, so nothing can be shared"
                           : "no program can use it");
    else
        check(doctor, "compute mode", n, OK, "", "%s",
              is_exclusive ? "EXCLUSIVE_PROCESS under MPS" : "DEFAULT");
}

static void check_gpu(struct doctor *doctor, int n, const struct mux_gpu *gpu, bool has_nvml)
{
    if (!gpu->has_vmm || !gpu->has_fds)
        check(doctor, "gpu", n, WRONG, "use another GPU: gpumuxd --gpu N",
              "%s cannot %s: programs run on it as without gpumux", gpu->name,
              gpu->has_vmm ? "share memory handles between processes" : "map memory by handles");
    else
        check(doctor, "gpu", n, OK, "", "%s", gpu->name);
    check_mode(doctor, n, gpu);
    check(doctor, "host frames", n, gpu->has_host_frames ? OK : NOTE,
          gpu->has_host_frames ? "" : "update the driver, if the GPU can have them", "%s",
          gpu->has_host_frames
              ? "memory on the host can be mapped and read over the link"
              : "pinned memory is registered: programs cannot map it, so --oversize host and "
                "caps do not work");
    if (gpu->has_time_limit)
        check(doctor, "time limit", n, NOTE, "drive the display with another GPU",
              "it drives a display: kernels are stopped later than elsewhere");
    if (gpu->uncounted[0])
        check(doctor, "counters", n, NOTE, "nvidia-smi -q says what it counts", "%s",
              gpu->uncounted);
    else if (has_nvml)
        check(doctor, "counters", n, OK, "", "what crosses the link is counted");
}

/* ---- this system ---- */

static void check_library(struct doctor *doctor)
{
    char path[PATH_MAX], why[PATH_MAX + 128];
    if (mux_seek(MUX_SHIM, "../shim/" MUX_SHIM, "GPUMUX_LIB", path, why, sizeof why))
        check(doctor, "library", -1, OK, "", "%s", path);
    else
        check(doctor, "library", -1, WRONG, "sudo apt install libgpumux, or set GPUMUX_LIB", "%s",
              why);
}

static void check_parking(struct doctor *doctor, const cJSON *status)
{
    const double parks = mux_number(cJSON_GetObjectItemCaseSensitive(status, "totals"), "parks");
    const long can = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    if (can < 0 || !(can & MEMBARRIER_CMD_PRIVATE_EXPEDITED))
        check(doctor, "parking", -1, NOTE,
              "in a container: allow the system call membarrier (docker run --security-opt "
              "seccomp=...)",
              "the kernel refuses membarrier%s%s: kernels cannot be stopped in the middle, so a "
              "switch waits for them",
              can < 0 ? ": " : "", can < 0 ? strerror(errno) : "");
    else if (parks > 0)
        check(doctor, "parking", -1, OK, "",
              "kernels are stopped where they are: %.0f times so far", parks);
    else
        check(doctor, "parking", -1, OK, "", "possible here; nobody had to be stopped yet");
}

static void check_mps(struct doctor *doctor, const struct mux_driver *driver, const cJSON *status)
{
    const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
    const cJSON *config = cJSON_GetObjectItemCaseSensitive(status, "config");
    const bool is_asked = strcmp(mux_word(config, "space_sharing"), "mps") == 0;
    char control[PATH_MAX];
    bool has_mps = false;
    for (int i = 0; i < driver->n; i++)
        has_mps = has_mps || driver->gpus[i].has_mps;
    snprintf(control, sizeof control, "%s/control", pipe && *pipe ? pipe : "/tmp/nvidia-mps");
    if (access(control, F_OK) == 0)
        check(doctor, "mps", -1, NOTE, "echo quit | nvidia-cuda-mps-control",
              "an MPS of your own is at %s: programs that join it cannot be stopped in the middle, "
              "and a fault of one ends all",
              control);
    else if (is_asked && system("command -v nvidia-cuda-mps-control > /dev/null 2>&1") != 0)
        check(doctor, "mps", -1, WRONG, "install NVIDIA's MPS: sudo apt install nvidia-cuda-mps",
              "--space-sharing mps is set, and there is no nvidia-cuda-mps-control");
    else
        check(doctor, "mps", -1, OK, "", "%s",
              is_asked ? "programs share the multiprocessors, as --space-sharing says"
                       : "off: programs take turns");
}

static void check_cdi(struct doctor *doctor)
{
    char why[PATH_MAX + 128];
    if (access(MUX_CDI_FILE, F_OK) != 0)
        return;
    if (mux_cdi_is_stale(why, sizeof why))
        check(doctor, "cdi", -1, NOTE, "sudo mux-ctl cdi --install",
              MUX_CDI_FILE " is not what this gpumux needs: containers may find no library");
    else
        check(doctor, "cdi", -1, *why ? NOTE : OK, "", "%s",
              *why ? why : MUX_CDI_FILE " is for this gpumux");
}

/* ---- the daemon ---- */

static void check_daemon(struct doctor *doctor, const cJSON *status, const char *why, bool is_down)
{
    char up[MUX_CELL];
    if (!status && is_down)
        check(doctor, "daemon", -1, WRONG, "sudo systemctl start gpumuxd, or gpumuxd --user", "%s",
              why);
    else if (!status)
        check(doctor, "daemon", -1, WRONG,
              strstr(why, "Permission denied") ? "join the group of the socket: ls -l, then sudo "
                                                 "adduser $USER GROUP"
              : strstr(why, "protocol")        ? "sudo systemctl restart gpumuxd"
                                               : "journalctl -u gpumuxd -n 20",
              "%s", why);
    else if (strcmp(mux_word(status, "version"), GM_VERSION) != 0)
        check(doctor, "daemon", -1, NOTE, "sudo systemctl restart gpumuxd",
              "it is version %s, and this mux-ctl %s", mux_word(status, "version"), GM_VERSION);
    else
        check(doctor, "daemon", -1, OK, "", "gpumuxd %s, pid %.0f, up %s",
              mux_word(status, "version"), mux_number(status, "pid"),
              mux_seconds(mux_number(status, "uptime_s"), up));
}

/* The keeper's unit, where there is one. A keeper that the daemon had to start itself is beside it.
 */
static void check_keeper(struct doctor *doctor, const cJSON *status)
{
    char load[32] = "", active[32] = "";
    FILE *file = popen("timeout 5 systemctl show -p LoadState -p ActiveState gpumux-keeper.service "
                       "2> /dev/null",
                       "re");
    char line[256];
    while (file && fgets(line, sizeof line, file)) {
        sscanf(line, "LoadState=%31s", load);
        sscanf(line, "ActiveState=%31s", active);
    }
    if (file)
        pclose(file);
    if (strcmp(load, "loaded") != 0)
        return;
    const bool is_systems = strcmp(mux_word(status, "socket"), GM_SOCKET_SYSTEM) == 0;
    if (strcmp(active, "failed") == 0)
        check(doctor, "keeper", -1, NOTE,
              "journalctl -u gpumux-keeper -n 20, then sudo systemctl reset-failed gpumux-keeper",
              "gpumux-keeper.service has failed: if its keeper was lost, the end of gpumuxd loses "
              "memory");
    else if (is_systems && strcmp(active, "inactive") == 0)
        check(doctor, "keeper", -1, NOTE,
              "when no program runs: sudo systemctl stop gpumuxd gpumux-keeper, then start gpumuxd",
              "gpumux-keeper.service does not run: gpumuxd has a keeper of its own, which has not "
              "the limits of the unit");
    else if (is_systems)
        check(doctor, "keeper", -1, OK, "", "gpumux-keeper.service is %s", active);
}

/* What `gpumuxd --check` beside this program says of the file that the daemon has read. */
static void check_config(struct doctor *doctor, const cJSON *status)
{
    const cJSON *config = cJSON_GetObjectItemCaseSensitive(status, "config");
    const bool is_user = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(config, "user"));
    const char *file = mux_word(config, "config");
    char daemon[PATH_MAX] = "", command[3 * PATH_MAX], line[1024], last[1024] = "";
    if (readlink("/proc/self/exe", daemon, sizeof daemon - 16) <= 0 || strchr(file, '\''))
        return;
    snprintf(strrchr(daemon, '/'), 16, "/gpumuxd");
    const bool is_default = file[0] != '/';
    snprintf(command, sizeof command, "timeout -k 1 30 '%s' --check%s%s%s%s 2>&1", daemon,
             is_user ? " --user" : "", is_default ? "" : " --config '", is_default ? "" : file,
             is_default ? "" : "'");
    FILE *pipe = strchr(daemon, '\'') || access(daemon, X_OK) != 0 ? NULL : popen(command, "re");
    if (!pipe)
        return;
    while (fgets(line, sizeof line, pipe))
        snprintf(last, sizeof last, "%.*s", (int)strcspn(line, "\n"), line);
    const int code = pclose(pipe);
    const bool is_silent = !WIFEXITED(code) || WEXITSTATUS(code) >= 124; /* timeout ended it */
    const bool is_wrong = code != 0 && !is_silent;
    if (is_silent)
        snprintf(last, sizeof last, "gpumuxd --check does not answer");
    const char *text = strstr(last, "gpumuxd: ");
    check(doctor, "configuration", -1,
          is_wrong  ? WRONG
          : last[0] ? NOTE
                    : OK,
          is_wrong ? "mend that: the next start of gpumuxd refuses it" : "", "%s",
          text      ? text + strlen("gpumuxd: ")
          : last[0] ? last
                    : "the next start takes it");
}

/* The limit of open files of a process; 0: it cannot be read. */
static unsigned long long files_of(double pid)
{
    char path[64], line[256];
    unsigned long long hard = 0;
    snprintf(path, sizeof path, "/proc/%.0f/limits", pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Max open files %*s %llu", &hard) == 1)
            break;
    if (file)
        fclose(file);
    return hard;
}

static void check_limits(struct doctor *doctor, const cJSON *status)
{
    const unsigned long long files = files_of(mux_number(status, "pid"));
    if (files > 0)
        check(doctor, "open files", -1, files >= FILES_ENOUGH ? OK : NOTE,
              files >= FILES_ENOUGH
                  ? ""
                  : "LimitNOFILE=524288 by sudo systemctl edit gpumuxd, or ulimit -H -n 524288",
              "%llu for the daemon%s", files,
              files >= FILES_ENOUGH ? ""
                                    : ": each piece of memory of 2 to 32 MiB needs one, so large "
                                      "programs may be refused memory");
    const cJSON *refused = cJSON_GetObjectItemCaseSensitive(status, "refused");
    if (mux_number(refused, "count") > 0)
        check(doctor, "refused", -1, NOTE, "mux-ctl status says what to raise",
              "%.0f programs since the start run without gpumux, the last one %s (pid %.0f): %s",
              mux_number(refused, "count"), mux_word(refused, "name"), mux_number(refused, "pid"),
              mux_word(refused, "why"));
}

static void check_memory(struct doctor *doctor, const cJSON *gpu)
{
    const cJSON *tiers = cJSON_GetObjectItemCaseSensitive(gpu, "tiers");
    const int n = (int)mux_number(gpu, "index");
    const double budget = mux_number(gpu, "budget_bytes"), usable = mux_number(gpu, "usable_bytes"),
                 pinned = mux_number(tiers, "pinned_cap_bytes"),
                 below = mux_number(tiers, "paged_cap_bytes") + mux_number(tiers, "disk_cap_bytes");
    char a[32], b[32];
    check(doctor, "budget", n, usable < budget ? NOTE : OK,
          usable < budget ? "mux-ctl doctor names what uses the GPU beside gpumux" : "",
          "programs may fill %s%s%s%s", mux_bytes(budget, a), usable < budget ? ", and " : "",
          usable < budget ? mux_bytes(usable, b) : "",
          usable < budget ? " now, as others use the rest" : "");
    check(doctor, "pinned memory", n, pinned + below < budget ? NOTE : OK,
          pinned + below < budget ? "raise --pinned, --paged or --disk in gpumux.conf" : "",
          "%s%s%s%s", mux_bytes(pinned, a), below > 0 ? ", and below it " : "",
          below > 0 ? mux_bytes(below, b) : "",
          pinned + below < budget ? ": two programs that each fill the GPU do not fit" : "");
}

/* Programs that use the GPU and not gpumux. */
static void check_beside(struct doctor *doctor, int n, const struct mux_gpu *gpu,
                         const cJSON *status)
{
    const cJSON *app;
    for (uint32_t i = 0; i < gpu->n_processes; i++) {
        const struct mux_process *process = &gpu->processes[i];
        bool is_ours = mux_number(status, "pid") == process->pid;
        char path[64], name[64] = "?", used[32];
        cJSON_ArrayForEach(app, cJSON_GetObjectItemCaseSensitive(status, "apps"))
        {
            is_ours = is_ours || mux_number(app, "pid") == process->pid;
        }
        if (is_ours)
            continue;
        snprintf(path, sizeof path, "/proc/%d/comm", (int)process->pid);
        FILE *file = fopen(path, "re");
        if (file && fgets(name, sizeof name, file))
            name[strcspn(name, "\n")] = '\0';
        if (file)
            fclose(file);
        check(doctor, "beside gpumux", n, NOTE, "start it by mux-ctl run -- PROGRAM",
              "pid %d (%s) uses the GPU and does not share it: %s", (int)process->pid, name,
              process->used == UINT64_MAX ? "nobody knows how much"
                                          : mux_bytes((double)process->used, used));
    }
}

/* Features that running programs lack. */
static void check_features(struct doctor *doctor, const cJSON *status)
{
    static const struct {
        const char *name, *text;
    } features[] = {
#define GM_FEATURE(bit, NAME, word, explanation) {word, explanation},
#include "common/features.def"
#undef GM_FEATURE
    };
    const cJSON *app, *off;
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        unsigned n = 0;
        double pid = 0;
        cJSON_ArrayForEach(app, cJSON_GetObjectItemCaseSensitive(status, "apps"))
        {
            cJSON_ArrayForEach(off, cJSON_GetObjectItemCaseSensitive(app, "features_off"))
            {
                if (!cJSON_IsString(off) || strcmp(off->valuestring, features[i].name) != 0)
                    continue;
                pid = n++ == 0 ? mux_number(app, "pid") : pid;
            }
        }
        if (n > 0)
            check(doctor, features[i].name, -1, NOTE, "mux-ctl status lists them",
                  "%u program%s lack%s it, the first pid %.0f: %s", n, n == 1 ? "" : "s",
                  n == 1 ? "s" : "", pid, features[i].text);
    }
}

/* ---- the table ---- */

static void print_checks(const struct doctor *doctor)
{
    const cJSON *one;
    printf("%-*s  %-*s  %s\n", NAME_WIDTH, "CHECK", STATE_WIDTH, "STATE", "WHAT");
    cJSON_ArrayForEach(one, doctor->checks)
    {
        char line[2048], name[64];
        const bool has_gpu = cJSON_HasObjectItem(one, "gpu");
        const char *state = mux_word(one, "state"), *mend = mux_word(one, "mend");
        snprintf(name, sizeof name, "%s", mux_word(one, "name"));
        snprintf(line, sizeof line, "%-*s  %-*s  ", NAME_WIDTH, name, STATE_WIDTH,
                 strcmp(state, "wrong") == 0 ? states[WRONG] : state);
        if (has_gpu)
            gm_text_add(line, sizeof line, "GPU %.0f: ", mux_number(one, "gpu"));
        gm_text_add(line, sizeof line, "%s", mux_word(one, "text"));
        mux_wrap(line, 0, NAME_WIDTH + STATE_WIDTH + 4);
        if (strcmp(mend, "-") == 0)
            continue;
        snprintf(line, sizeof line, "-> %s", mend);
        mux_wrap(line, NAME_WIDTH + STATE_WIDTH + 4, 3);
    }
    printf("\n%s\n", doctor->wrong == 0   ? "Nothing is wrong."
                     : doctor->wrong == 1 ? "One thing is wrong."
                                          : "Several things are wrong.");
}

static void check_all(struct doctor *doctor, const struct mux_driver *driver,
                      const struct mux_options *options)
{
    cJSON *status = NULL;
    const cJSON *gpu;
    struct mux_question ask;
    const int code = mux_try_status(options, &ask, &status);
    check_driver(doctor, driver);
    for (int i = 0; i < driver->n; i++)
        check_gpu(doctor, i, &driver->gpus[i], driver->no_nvml[0] == '\0');
    check_library(doctor);
    check_cdi(doctor);
    check_parking(doctor, status);
    check_mps(doctor, driver, status);
    check_daemon(doctor, status, ask.why, code == MUX_DOWN);
    check_keeper(doctor, status);
    check_config(doctor, status);
    if (status) {
        check_limits(doctor, status);
        cJSON_ArrayForEach(gpu, cJSON_GetObjectItemCaseSensitive(status, "gpus"))
        {
            check_memory(doctor, gpu);
        }
        check_features(doctor, status);
    }
    for (int i = 0; i < driver->n; i++)
        check_beside(doctor, i, &driver->gpus[i], status);
    cJSON_Delete(status);
}

int mux_doctor(const struct mux_options *options)
{
    struct doctor doctor = {.checks = cJSON_CreateArray()};
    struct mux_driver *driver = calloc(1, sizeof *driver);
    if (!driver || !doctor.checks) {
        free(driver);
        mux_complain("out of memory");
        return MUX_FAILED;
    }
    mux_ask_driver(driver);
    check_all(&doctor, driver, options);
    free(driver);
    int code;
    if (options->is_json) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddNumberToObject(json, "schema", DOCTOR_SCHEMA);
        cJSON_AddNumberToObject(json, "wrong", doctor.wrong);
        cJSON_AddItemToObject(json, "checks", doctor.checks);
        code = mux_print_json(json, "what was found");
    } else {
        print_checks(&doctor);
        cJSON_Delete(doctor.checks);
        code = mux_written("what was found");
    }
    return code ? code : doctor.wrong > 0 ? MUX_FAILED : MUX_OK;
}
