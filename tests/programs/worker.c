/* gm_worker's options, table of modes, start and end. See worker.h. */
#include "tests/programs/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/size.h"
#include "tests/programs/kernels_ptx.h"

enum { GM_EXIT_WRONG = 1, GM_EXIT_USAGE = 2, GM_EXIT_CUDA = 3 };

static const struct {
    const char *name;
    void (*run)(struct gm_worker *worker);
    bool opens_itself; /* the mode initializes CUDA, not main */
    bool per_thread;   /* the NULL stream is the thread's own */
    const char *help;
} gm_modes[] = {
    {"verify", gm_mode_verify, false, false, "verify and rewrite all memory each iteration"},
    {"sweep", gm_mode_sweep, false, false, "add one to every word each iteration"},
    {"churn", gm_mode_churn, false, false, "allocate and free 4 KiB to 64 MiB at random"},
    {"reuse", gm_mode_reuse, false, false, "allocate and free the same size, then all"},
    {"cycle", gm_mode_cycle, false, false, "keep a piece; take --bytes for --hold, and again"},
    {"grow", gm_mode_grow, false, false, "allocate piece by piece with --hold between, then all"},
    {"fill", gm_mode_fill, false, false, "the same, and all that is free at once"},
    {"fresh", gm_mode_fresh, false, false, "check that new memory is zero, then fill it"},
    {"handles", gm_mode_handles, false, false, "the same with handles on the device and the host"},
    {"readonly", gm_mode_readonly, false, false, "verify all memory each iteration"},
    {"byte", gm_mode_byte, false, false, "change a byte of each 2 MiB each iteration"},
    {"zeros", gm_mode_zeros, false, false, "the same in memory that is zero, and take it back"},
    {"late", gm_mode_late, false, false, "mode verify that allocates only after --go"},
    {"copies", gm_mode_copies, false, false, "synchronous and asynchronous copies and sets"},
    {"oom", gm_mode_oom, false, false, "allocate until memory is out, then go on"},
    {"info", gm_mode_info, false, false, "print total and free memory before and after"},
    {"vector", gm_mode_vector, false, false, "vector addition"},
    {"matmul", gm_mode_matmul, false, false, "matrix multiplication"},
    {"graph", gm_mode_graph, false, false, "capture once, replay each iteration"},
    {"capture", gm_mode_capture, false, false, "keep a capture open for --hold each iteration"},
    {"streams", gm_mode_streams, false, false, "streams that wait for each other by events"},
    {"threads", gm_mode_threads, false, false, "several threads, a stream each"},
    {"ptds", gm_mode_threads, false, true, "several threads, each on its own default stream"},
    {"spin", gm_mode_spin, false, false, "a kernel that waits for the host for --hold"},
    {"ahead", gm_mode_ahead, false, false, "submit work and call nothing until --signal.end"},
    {"count", gm_mode_count, false, false, "a kernel that counts for --hold; see --signal"},
    {"endless", gm_mode_count, false, false, "the same; it counts until --until is there"},
    {"queue", gm_mode_queue, false, false, "kernels of --hold each, 16 submitted at once"},
    {"expect", gm_mode_expect, false, false, "hints of --hold each, with --pause between"},
    {"steady", gm_mode_steady, false, false, "requests at a steady rate, with --pause between"},
    {"nonsense", gm_mode_nonsense, false, false, "hints that are none, and too many"},
    {"hot", gm_mode_hot, false, false, "many launches on the first buffer, few on the others"},
    {"turns", gm_mode_hot, false, false, "the same; each buffer is the hot one for --hold"},
    {"part", gm_mode_part, false, false, "the first of the buffers, and not the others"},
    {"lasts", gm_mode_part, false, false,
     "as part; from --signal on beside a kernel that does not end"},
    {"moves", gm_mode_part, false, false, "each of them for --hold"},
    {"grows", gm_mode_part, false, false, "a buffer each --hold, then all of them"},
    {"guests", gm_mode_hot, false, false, "turns, beside memory that comes and goes"},
    {"devices", gm_mode_devices, false, false, "contexts on two devices, and copies between them"},
    {"peer", gm_mode_peer, false, false, "a kernel on device 1 that reads device 0 after --hold"},
    {"vmm", gm_mode_vmm, false, false, "ranges of the program's own handles, moved about"},
    {"mappers", gm_mode_mappers, false, false,
     "threads that map such handles, and one that only maps"},
    {"sharers", gm_mode_mappers, false, false, "mappers that export handles, too"},
    {"exports", gm_mode_exports, false, false, "export handles at bad moments"},
    {"vmminfo", gm_mode_vmminfo, false, false, "print free memory as such handles come and go"},
    {"vmmoom", gm_mode_vmmoom, false, false, "create such handles until memory is out, then go on"},
    {"async", gm_mode_async, false, false, "threads that allocate and free in streams"},
    {"aptds", gm_mode_async, false, true, "the same; the NULL stream is the thread's own"},
    {"pools", gm_mode_pools, false, false, "what memory pools promise, one by one"},
    {"beside", gm_mode_beside, false, false, "memory pools beside a capture that forbids much"},
    {"short", gm_mode_short, false, false, "memory pools when there is no more memory"},
    {"taken", gm_mode_taken, false, false, "what the driver takes by itself"},
    {"asks-events", gm_mode_asks, false, false, "no work: query an event and a stream"},
    {"asks-memory", gm_mode_asks, false, false, "the same: free memory, and what a pointer is"},
    {"asks-syncs", gm_mode_asks, false, false, "the same: synchronize a stream and the context"},
    {"asks-records", gm_mode_asks, false, false, "the same: record an event and wait for it"},
    {"empty", gm_mode_asks, false, false, "an empty kernel each iteration, then verify"},
    {"pointers", gm_mode_pointers, false, false, "ask all about pointers, then verify"},
    {"nvml", gm_mode_nvml, true, false, "print what NVML and CUDA say of memory"},
    {"unswappable", gm_mode_unswappable, false, false, "memory that stays the driver's"},
    {"managed", gm_mode_managed, false, false, "verify, with managed memory"},
    {"tied", gm_mode_tied, false, false,
     "rounds that wait on the GPU for those of another, met in --signal"},
    {"ranks", gm_mode_tied, false, false, "the same, by memory that each has open of the other"},
    {"imports", gm_mode_tied, false, false, "... or has imported of it"},
    {"share", gm_mode_share, false, false, "share with --threads openers, met in --signal"},
    {"share-only", gm_mode_share, false, false, "the same, without turns"},
    {"share-free", gm_mode_share, false, false, "the same, freed while it is open"},
    {"share-stay", gm_mode_share, false, false, "the same, and stay; --go is made then"},
    {"open", gm_mode_open, false, false, "open what is shared; close it when --go is there"},
    {"open-fork", gm_mode_open, false, false, "the same, beside a forked child"},
    {"open-capture", gm_mode_open, false, false, "the same, closed and opened in a capture"},
    {"open-race", gm_mode_open_race, false, false, "--threads threads open and close it"},
    {"misuse", gm_mode_misuse, false, false, "what sharing must refuse"},
    {"fork", gm_mode_fork, true, false, "fork before and after cuInit"},
    {"clone", gm_mode_clone, true, false,
     "verify, beside a child of clone() that ends with --until"},
    {"exec", gm_mode_exec, true, false, "exec with and without CUDA initialized"},
    {"values", gm_mode_waits, false, false, "a stream waits for a value from another thread"},
    {"hostfuncs", gm_mode_waits, false, false, "a host function waits for another thread"},
    {"abandon", gm_mode_abandon, false, false, "captures that nobody ends; see --signal"},
    {"left", gm_mode_left, false, false, "a capture of a thread that is no more; see --signal"},
    {"files", gm_mode_files, false, false, "with every number of an open file taken"},
    {"nofiles", gm_mode_files, false, false, "the same, also those that were kept"},
    {"pool", gm_mode_pool, false, false, "threads that come and go"},
    {"signals", gm_mode_signals, false, false, "a signal handler that calls CUDA"},
    {"cancel", gm_mode_cancel, false, false, "threads that are cancelled"},
    {"cancel-pools", gm_mode_cancel_pools, false, false, "the same while pools give memory back"},
    {"children", gm_mode_children, false, false,
     "children of every kind while threads are in calls"},
    {"deepbind", gm_mode_deepbind, false, false, "through library --signal, RTLD_DEEPBIND"},
    {"lazybind", gm_mode_lazybind, false, false, "the same with RTLD_LAZY"},
    {"namespace", gm_mode_namespace, true, false, "through library --signal, by dlmopen"},
    {"exits", gm_mode_exits, true, false, "calls after main() has returned"},
};
#define GM_MODES (sizeof(gm_modes) / sizeof(gm_modes[0]))

static void finish(const struct gm_worker *worker, const char *verdict, const char *text)
{
    double seconds = (double)(gm_now() - worker->started_ns) / (double)GM_S;
    bool is_in = text[0] && worker->doing != NULL;
    printf("%s mode=%s mismatches=%" PRIu64 " iterations=%" PRIu64 " bytes=%" PRIu64
           " seconds=%.2f way=%s%s%s%s%s\n",
           verdict, worker->mode, worker->mismatches, worker->done, worker->bytes, seconds,
           gm_driver_way(), is_in ? " in " : "", is_in ? worker->doing : "", text[0] ? " " : "",
           text);
    fflush(stdout);
}

/* The first thread that fails ends the program; what others see after that is only the end. */
static void claim_failure(void)
{
    static atomic_flag is_claimed = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&is_claimed))
        pause();
}

void gm_check(const struct gm_worker *worker, CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    claim_failure();
    const char *name = NULL;
    if (worker->cu.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        name = "?";
    char text[256];
    snprintf(text, sizeof(text), "%s: error %d %s", call, (int)result, name);
    finish(worker, "FAIL", text);
    exit(GM_EXIT_CUDA);
}

void gm_check_at(const struct gm_worker *worker, CUresult result, const char *call,
                 const char *file, int line)
{
    if (result == CUDA_SUCCESS)
        return;
    const char *base = strrchr(file, '/');
    char text[160];
    snprintf(text, sizeof(text), "%s:%d %s", base != NULL ? base + 1 : file, line, call);
    gm_check(worker, result, text);
}

void gm_fail(const struct gm_worker *worker, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    claim_failure();
    finish(worker, "FAIL", text);
    exit(GM_EXIT_WRONG);
}

void gm_launch(const struct gm_worker *worker, enum gm_kernel kernel, CUstream stream, void **args)
{
    bool one = kernel == GM_KERNEL_SPIN || kernel == GM_KERNEL_SPIN_UNTIL;
    GM_CU(worker, cuLaunchKernel, worker->kernel[kernel], one ? 1 : 1024, 1, 1, one ? 1 : 256, 1, 1,
          0, stream, args, NULL);
}

void gm_load_kernels(struct gm_worker *worker)
{
    static const char *const names[GM_KERNELS] = {
        "gm_fill", "gm_verify",     "gm_verify_refill", "gm_vector_add", "gm_matmul",
        "gm_spin", "gm_spin_until", "gm_sweep",         "gm_count",      "gm_empty",
    };
    GM_CU(worker, cuModuleLoadData, &worker->module, gm_kernels_ptx);
    for (int i = 0; i < GM_KERNELS; i++)
        GM_CU(worker, cuModuleGetFunction, &worker->kernel[i], worker->module, names[i]);
}

void gm_open_cuda(struct gm_worker *worker)
{
    GM_CU(worker, cuInit, 0);
    GM_CU(worker, cuDeviceGet, &worker->device, 0);
    if (worker->own_context)
        GM_CU(worker, cuCtxCreate, &worker->context, NULL, 0, worker->device);
    else
        GM_CU(worker, cuDevicePrimaryCtxRetain, &worker->context, worker->device);
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    gm_load_kernels(worker);
}

void gm_close_cuda(struct gm_worker *worker)
{
    GM_CU(worker, cuModuleUnload, worker->module);
    if (worker->own_context)
        GM_CU(worker, cuCtxDestroy, worker->context);
    else
        GM_CU(worker, cuDevicePrimaryCtxRelease, worker->device);
}

bool gm_is_more(const struct gm_worker *worker, uint64_t done)
{
    if (done >= worker->iterations && gm_now() - worker->started_ns >= worker->run_ns &&
        (worker->until == NULL || access(worker->until, F_OK) == 0))
        return false;
    if (done > 0 && worker->pause_ns > 0) {
        struct timespec pause = {(time_t)(worker->pause_ns / GM_S),
                                 (long)(worker->pause_ns % GM_S)};
        nanosleep(&pause, NULL);
    }
    return true;
}

void gm_say_ready(const struct gm_worker *worker)
{
    const struct timespec pause = {.tv_nsec = 20 * (long)GM_MS};
    if (worker->ready != NULL) {
        int fd = open(worker->ready, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0)
            gm_fail(worker, "%s: %s", worker->ready, strerror(errno));
        close(fd);
    }
    while (worker->go != NULL && access(worker->go, F_OK) != 0)
        nanosleep(&pause, NULL);
}

static void __attribute__((noreturn)) usage(const char *text)
{
    if (text != NULL)
        fprintf(stderr, "gm_worker: %s\n", text);
    fprintf(stderr, "usage: gm_worker [--mode MODE] [--bytes SIZE] [--allocs N] [--iterations N] "
                    "[--seconds S] [--pause MS]\n"
                    "                 [--hold MS] [--seed N] [--threads N] [--own-context] "
                    "[--ready FILE] [--go FILE] [--until FILE]\n"
                    "                 [--signal FILE] [--only CHECK,...]\nmodes:\n");
    for (size_t i = 0; i < GM_MODES; i++)
        fprintf(stderr, "  %-8s %s\n", gm_modes[i].name, gm_modes[i].help);
    exit(GM_EXIT_USAGE);
}

static uint64_t number(const char *option, const char *text)
{
    char *end = NULL;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0') {
        fprintf(stderr, "gm_worker: %s: %s is not a number\n", option, text);
        exit(GM_EXIT_USAGE);
    }
    return value;
}

static size_t parse(struct gm_worker *worker, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i];
        if (strcmp(option, "--own-context") == 0) {
            worker->own_context = true;
            continue;
        }
        if (i + 1 == argc)
            usage("an option without a value, or an unknown one");
        const char *value = argv[++i];
        if (strcmp(option, "--mode") == 0)
            worker->mode = value;
        else if (strcmp(option, "--ready") == 0)
            worker->ready = value;
        else if (strcmp(option, "--go") == 0)
            worker->go = value;
        else if (strcmp(option, "--until") == 0)
            worker->until = value;
        else if (strcmp(option, "--signal") == 0)
            worker->signal = value;
        else if (strcmp(option, "--only") == 0)
            worker->only = value;
        else if (strcmp(option, "--bytes") == 0) {
            if (gm_parse_size(value, &worker->bytes) != 0)
                usage("--bytes takes a size such as 96M");
        } else if (strcmp(option, "--allocs") == 0)
            worker->allocs = (uint32_t)number(option, value);
        else if (strcmp(option, "--threads") == 0)
            worker->threads = (uint32_t)number(option, value);
        else if (strcmp(option, "--iterations") == 0)
            worker->iterations = number(option, value);
        else if (strcmp(option, "--seconds") == 0)
            worker->run_ns = number(option, value) * GM_S;
        else if (strcmp(option, "--pause") == 0)
            worker->pause_ns = number(option, value) * GM_MS;
        else if (strcmp(option, "--hold") == 0)
            worker->hold_ns = number(option, value) * GM_MS;
        else if (strcmp(option, "--seed") == 0)
            worker->seed = number(option, value);
        else
            usage("unknown option");
    }
    if (worker->allocs == 0 || worker->threads == 0 || worker->threads > 2000)
        usage("--allocs is 1 or more, --threads 1 to 2000");
    if (strcmp(worker->mode, "ahead") == 0 && worker->signal == NULL)
        usage("mode ahead needs --signal FILE");
    if (worker->iterations == 0 && worker->run_ns == 0)
        worker->iterations = 1;
    for (size_t i = 0; i < GM_MODES; i++)
        if (strcmp(gm_modes[i].name, worker->mode) == 0)
            return i;
    usage("unknown mode");
}

int main(int argc, char **argv)
{
    struct gm_worker worker = {
        .mode = "verify",
        .bytes = 96ull << 20,
        .allocs = 3,
        .hold_ns = 200 * GM_MS,
        .seed = 1,
        .threads = 4,
        .argv = argv,
        .started_ns = gm_now(),
    };
    size_t mode = parse(&worker, argc, argv);

    const char *why = NULL;
    if (gm_driver_open(&worker.cu, gm_modes[mode].per_thread, &why) != 0) {
        printf("FAIL no CUDA driver: %s not found\n", why);
        return GM_EXIT_CUDA;
    }
    if (!gm_modes[mode].opens_itself)
        gm_open_cuda(&worker);
    worker.started_ns = gm_now();
    gm_modes[mode].run(&worker);
    if (worker.mismatches != 0)
        gm_fail(&worker, "wrong data");
    if (!gm_modes[mode].opens_itself)
        gm_close_cuda(&worker);
    finish(&worker, "PASS", "");
    return 0;
}
