/* Trying a configuration: see trial.h. */
#include "daemon/service/trial.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/text.h"
#include "daemon/engine/machine.h"
#include "daemon/memory/disk.h"
#include "daemon/service/server.h"
#include "daemon/service/seen.h"

#define NVML_MS 5000

struct trial {
    const struct gm_options *options;
    enum gm_trial_by by;
    struct gm_trial_gpus gpus;
    struct gm_seen seen;
    char *warnings;
};

static void warn(const struct trial *trial, enum gm_option option, const char *text)
{
    char place[PATH_MAX + 32];
    gm_text_add(trial->warnings, GM_OPTIONS_WARNINGS, "%s%s\n",
                gm_options_place(trial->options, option, place), text);
}

/* ---- folders ---- */

/* Whether folders can be tested here. */
static bool can_test(const struct trial *trial, enum gm_option option)
{
    char text[128];
    if (trial->seen.kind != GM_SEEN_BY_OTHER)
        return true;
    snprintf(text, sizeof text, "%s is not tested: only root sees what the service may write",
             gm_option_rows[option].name);
    warn(trial, option, text);
    return false;
}

static const char *folder_of(const char *path, char folder[PATH_MAX])
{
    snprintf(folder, PATH_MAX, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash)
        return ".";
    slash[slash == folder] = '\0';
    return folder;
}

/* Whether the file can be made. 0, or -errno with one line in `why`. */
static int try_folder(const struct trial *trial, const char *path, char *why, size_t size)
{
    char folder[PATH_MAX];
    if (faccessat(AT_FDCWD, folder_of(path, folder), W_OK | X_OK, AT_EACCESS) == 0)
        return gm_seen_try(&trial->seen, folder_of(path, folder), why, size);
    const int error = -errno;
    snprintf(why, size, "%s cannot be made: its folder: %s", path, strerror(-error));
    return error;
}

/* ---- the tests ---- */

static int try_socket(const struct trial *trial, char *why, size_t size)
{
    const struct gm_options *options = trial->options;
    const struct gm_server_config place = {.path = options->socket,
                                           .is_user = options->user,
                                           .is_default_dir = !options->is_own_socket};
    char folder[PATH_MAX];
    if (options->is_own_socket && !can_test(trial, GM_OPTION_socket))
        return 0;
    const int error = gm_server_try(&place, why, size);
    if (error || !options->is_own_socket)
        return error;
    return gm_seen_try(&trial->seen, folder_of(options->socket, folder), why, size);
}

static int try_gpus(const struct trial *trial, char *why, size_t size)
{
    const struct gm_gpus *gpus = &trial->options->gpus;
    for (uint32_t i = 0; i < gpus->n && trial->gpus.n > 0; i++) {
        if (gpus->gpu[i] < trial->gpus.n)
            continue;
        snprintf(why, size, "there is no GPU %u: this machine has %u; choose with --gpu",
                 gpus->gpu[i], trial->gpus.n);
        return -ENODEV;
    }
    return 0;
}

static int try_budget(const struct trial *trial, char *why, size_t size)
{
    const uint64_t budget = trial->options->gpu_budget.bytes;
    if (trial->gpus.most == 0 || budget <= trial->gpus.most)
        return 0;
    snprintf(why, size, "the budget of %llu MiB is above the GPU's %llu MiB: lower --gpu-budget",
             (unsigned long long)(budget >> 20), (unsigned long long)(trial->gpus.most >> 20));
    return -EINVAL;
}

static int try_host(const struct trial *trial, char *why, size_t size)
{
    const struct gm_options *options = trial->options;
    const uint32_t n = options->gpus.n ? options->gpus.n : trial->gpus.n ? trial->gpus.n : 1;
    struct gm_engine_config config = {.pinned = options->pinned,
                                      .paged = options->paged,
                                      .disk_dir = options->disk.dir,
                                      .disk = options->disk.bytes};
    struct gm_host host;
    return gm_machine_fit(&host, &config, n, trial->seen.kind == GM_SEEN_AS_SERVICE, why, size);
}

/* Bytes of files without a name that process `pid` has open where `folder` is: the disk tier. */
static uint64_t held_by(pid_t pid, const char *folder)
{
    char path[64];
    struct stat at, is;
    uint64_t bytes = 0;
    snprintf(path, sizeof path, "/proc/%ld/fd", (long)pid);
    DIR *files = stat(folder, &at) == 0 ? opendir(path) : NULL;
    for (const struct dirent *file; files && (file = readdir(files));)
        if (fstatat(dirfd(files), file->d_name, &is, 0) == 0 && S_ISREG(is.st_mode) &&
            is.st_nlink == 0 && is.st_dev == at.st_dev)
            bytes += (uint64_t)is.st_blocks * 512;
    if (files)
        closedir(files);
    return bytes;
}

/* The daemon that serves this socket; 0: none. */
static pid_t daemon_of(const char *socket)
{
    char path[PATH_MAX + 8];
    long pid = 0;
    snprintf(path, sizeof path, "%s.lock", socket);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%ld", &pid) != 1)
        pid = 0;
    if (file)
        fclose(file);
    return (pid_t)pid;
}

static int try_disk(const struct trial *trial, char *why, size_t size)
{
    const struct gm_place *disk = &trial->options->disk;
    char lack[PATH_MAX + 160];
    if (!disk->dir[0] || trial->by == GM_TRIAL_START || !can_test(trial, GM_OPTION_disk))
        return 0;
    const pid_t pid = trial->by == GM_TRIAL_RELOAD ? getpid() : daemon_of(trial->options->socket);
    const int error = gm_disk_try(disk->dir, disk->bytes, pid ? held_by(pid, disk->dir) : 0, lack,
                                  sizeof lack, why, size);
    if (error == 0 && lack[0])
        warn(trial, GM_OPTION_disk, lack);
    return error ? error : gm_seen_try(&trial->seen, disk->dir, why, size);
}

/* Without it what programs need is remembered until the daemon ends. */
static int try_history(const struct trial *trial, char *why, size_t size)
{
    const char *path = trial->options->history;
    struct stat is;
    if (!path[0] || !can_test(trial, GM_OPTION_history))
        return 0;
    const bool is_other = stat(path, &is) == 0 && !S_ISREG(is.st_mode);
    if (is_other)
        snprintf(why, size, "the history %s is not a file", path);
    if (is_other || try_folder(trial, path, why, size) != 0)
        warn(trial, GM_OPTION_history, why);
    return 0;
}

static const struct {
    enum gm_option option;
    int (*try)(const struct trial *trial, char *why, size_t size);
} tests[] = {
    {GM_OPTION_socket, try_socket},     {GM_OPTION_gpus, try_gpus},
    {GM_OPTION_gpu_budget, try_budget}, {GM_OPTION_pinned, try_host},
    {GM_OPTION_disk, try_disk},         {GM_OPTION_history, try_history},
};

int gm_trial(const struct gm_options *options, enum gm_trial_by by,
             const struct gm_trial_gpus *gpus, char warnings[GM_OPTIONS_WARNINGS], char *why,
             size_t size)
{
    struct trial trial = {.options = options, .by = by, .gpus = *gpus, .warnings = warnings};
    char place[PATH_MAX + 32], text[PATH_MAX + 512];
    warnings[0] = '\0';
    if (by == GM_TRIAL_CHECK)
        gm_seen_find(&trial.seen, options);
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        const int error = tests[i].try(&trial, text, sizeof text);
        enum gm_option option = tests[i].option;
        if (error == 0)
            continue;
        if (option == GM_OPTION_pinned && strncmp(text, "--paged", 7) == 0)
            option = GM_OPTION_paged;
        snprintf(why, size, "%s%s", gm_options_place(options, option, place), text);
        return error;
    }
    return 0;
}

/* ---- NVML: the names and numbers are those of nvml.h ---- */

static void ask(struct gm_trial_gpus *gpus)
{
    struct {
        unsigned long long total, free, used;
    } memory;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), *device;
    int (*init)(void) = NULL, (*count)(unsigned *) = NULL, (*at)(unsigned, void **) = NULL,
        (*info)(void *, void *) = NULL, (*mig)(void *, unsigned *, unsigned *) = NULL;
    const struct {
        const char *name;
        void *to;
    } symbols[] = {{"nvmlDeviceGetMigMode", &mig}, /* an old driver may lack it */
                   {"nvmlInit_v2", &init},
                   {"nvmlDeviceGetCount_v2", &count},
                   {"nvmlDeviceGetHandleByIndex_v2", &at},
                   {"nvmlDeviceGetMemoryInfo", &info}};
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0] && library; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        memcpy(symbols[i].to, &symbol, sizeof symbol);
        if (!symbol && i > 0)
            return;
    }
    unsigned n = 0, is_mig = 0, is_next;
    if (!library || init() != 0 || count(&n) != 0)
        return;
    gpus->n = n;
    for (unsigned i = 0; i < n; i++) {
        if (at(i, &device) != 0 || info(device, &memory) != 0 ||
            (mig && mig(device, &is_mig, &is_next) == 0 && is_mig)) {
            *gpus = (struct gm_trial_gpus){0};
            return;
        }
        gpus->most = memory.total > gpus->most ? memory.total : gpus->most;
    }
}

/* In a process of its own: it may hang, and holds nothing that others wait for. */
struct gm_trial_gpus gm_trial_ask_nvml(void)
{
    struct gm_trial_gpus gpus = {0}, answer;
    int ends[2];
    if (getenv("CUDA_VISIBLE_DEVICES") || pipe(ends) != 0)
        return gpus;
    const pid_t child = fork();
    if (child == 0) {
        const int nothing = open("/dev/null", O_RDWR);
        close(ends[0]);
        for (int fd = 0; fd <= 2; fd++)
            if (dup2(nothing, fd) < 0)
                _exit(1);
        ask(&gpus);
        _exit(write(ends[1], &gpus, sizeof gpus) == (ssize_t)sizeof gpus ? 0 : 1);
    }
    close(ends[1]);
    struct pollfd wait = {.fd = ends[0], .events = POLLIN};
    if (child > 0 && poll(&wait, 1, NVML_MS) == 1 &&
        read(ends[0], &answer, sizeof answer) == (ssize_t)sizeof answer)
        gpus = answer;
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, WNOHANG);
    }
    close(ends[0]);
    return gpus;
}
