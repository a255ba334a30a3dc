/*
 * Opens and closes an engine: its GPU, the limits of its memory, and the tables. Called by
 * machine.c.
 */
#include "daemon/engine/open.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/sums.h"
#include "daemon/engine/adopt.h"
#include "daemon/engine/step/apps.h"
#include "daemon/engine/act/act.h"
#include "daemon/engine/step/batches.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/step/feed.h"
#include "daemon/engine/act/hashing.h"
#include "daemon/engine/act/ledger.h"
#include "daemon/engine/act/meter.h"
#include "daemon/engine/step/host.h"
#include "daemon/engine/inlet.h"
#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/round.h"
#include "daemon/engine/step/shares.h"
#include "daemon/engine/step/waiting.h"
#include "daemon/memory/files.h"
#include "daemon/memory/kept.h"

/* What the GPU works on may end for so long; then kernels are stopped where they are. */
#define GRACE_NS (2 * GM_MS)
/* ... where the device limits the time of kernels: most kernels end within this. */
#define GRACE_LIMITED_NS (100 * GM_MS)

/* No other daemon hands this GPU's memory out. 0, or -errno and `why`. */
static int claim_gpu(struct gm_engine *engine, char *why, size_t why_size)
{
    char holder[512];
    int error = gm_claim_open(&engine->claim, (const unsigned char *)engine->uuid.bytes,
                              engine->config.outlet.user, holder, sizeof holder);
    if (error == 0 && holder[0])
        gm_log(GM_LOG_WARN, "GPU %d %s", engine->config.gpu, holder);
    if (error == 0)
        return 0;
    if (error != -EADDRINUSE) {
        snprintf(why, why_size, "GPU %d cannot be claimed: %s", engine->config.gpu, holder);
        return error;
    }
    snprintf(why, why_size, "GPU %d is shared by %s already: use or stop that", engine->config.gpu,
             holder);
    return error;
}

/* Nobody has tried yet whether a kernel that is stopped counts against a display's time limit. */
static void check_kernel_limit(struct gm_engine *engine)
{
    int has_limit = 0;
    engine->cuda.cuDeviceGetAttribute(&has_limit, CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT,
                                      engine->device);
    engine->grace_ns = has_limit ? GRACE_LIMITED_NS : GRACE_NS;
    if (has_limit)
        gm_log(GM_LOG_INFO,
               "GPU %d limits the time of kernels (it drives a display): they are stopped after "
               "%llu ms",
               engine->config.gpu, GRACE_LIMITED_NS / GM_MS);
}

/* Who made the first context on an exclusive GPU is the only one: that would be the daemon. Under
 * MPS it is the server, for all its clients. */
static int check_compute_mode(const struct gm_engine *engine, char *why, size_t why_size)
{
    const struct gm_cuda *cuda = &engine->cuda;
    int mode = CU_COMPUTEMODE_DEFAULT, has_mps = 0;
    cuda->cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, engine->device);
    cuda->cuDeviceGetAttribute(&has_mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, engine->device);
    if (mode != CU_COMPUTEMODE_PROHIBITED && (mode != CU_COMPUTEMODE_EXCLUSIVE_PROCESS || has_mps))
        return 0;
    snprintf(why, why_size,
             "GPU %d (%s) is in compute mode %s, so %s: as root, run nvidia-smi -i %d -c DEFAULT",
             engine->config.gpu, engine->gpu_name,
             mode == CU_COMPUTEMODE_PROHIBITED ? "PROHIBITED" : "EXCLUSIVE_PROCESS",
             mode == CU_COMPUTEMODE_PROHIBITED ? "no program can use it"
                                               : "only one process can use it",
             engine->config.gpu);
    return -ENOTSUP;
}

/* -EBADMSG: what the ledger names is given back; -EAGAIN: the start fails, and it stays. */
static int refuse(const struct gm_engine *engine, const struct gm_old *old, const char *wrong,
                  char *why, size_t why_size)
{
    if (!old->is_sound) {
        snprintf(why, why_size, "%s", wrong);
        return -EBADMSG;
    }
    snprintf(why, why_size,
             "what programs have on GPU %d cannot be taken over now: %s; mend that and start "
             "again, or end gpumux-keeper, and what they have is lost",
             engine->config.gpu, wrong);
    return -EAGAIN;
}

/* What the daemon before left is read behind the claim of the GPU, which ends with its process. */
static int find_old(const struct gm_engine *engine, struct gm_old *old, char *why, size_t why_size)
{
    const char *wrong = gm_old_find(old, &engine->config);
    return wrong ? refuse(engine, old, wrong, why, why_size) : 0;
}

static int open_gpu(struct gm_engine *engine, struct gm_old *old, char *why, size_t why_size)
{
    const struct gm_cuda *cuda = &engine->cuda;
    int count = 0, has_vmm = 0, has_fds = 0, has_host = 1;
    size_t free_bytes = 0, total = 0;
    CUresult result = cuda->cuInit(0);

    if (result == CUDA_SUCCESS)
        result = cuda->cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS) {
        snprintf(why, why_size,
                 "the CUDA driver does not start (%s): mux-ctl doctor says what is wrong",
                 gm_cuda_text(cuda, result));
        return -ENODEV;
    }
    if (engine->config.gpu < 0 || engine->config.gpu >= count) {
        snprintf(why, why_size, "there is no GPU %d: this machine has %d; choose with --gpu",
                 engine->config.gpu, count);
        return -ENODEV;
    }
    cuda->cuDeviceGet(&engine->device, engine->config.gpu);
    cuda->cuDeviceGetName(engine->gpu_name, sizeof engine->gpu_name, engine->device);
    cuda->cuDeviceGetUuid_v2(&engine->uuid, engine->device);
    cuda->cuDeviceGetAttribute(&has_vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                               engine->device);
    cuda->cuDeviceGetAttribute(
        &has_fds, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, engine->device);
    if (!has_vmm || !has_fds) {
        snprintf(why, why_size,
                 "GPU %d (%s) cannot %s, which gpumux needs: programs run on it as without gpumux",
                 engine->config.gpu, engine->gpu_name,
                 has_vmm ? "share memory handles between processes" : "map memory by handles");
        return -ENOTSUP;
    }
    cuda->cuDeviceGetAttribute(&has_host,
                               CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                               engine->device);
    if (!has_host) {
        gm_log(GM_LOG_WARN,
               "GPU %d (%s) has no memory handles on the host: pinned memory is registered instead"
               "%s",
               engine->config.gpu, engine->gpu_name,
               engine->config.is_oversize
                   ? ", which programs cannot map, so --oversize host is off: what is beyond the "
                     "budget is out of memory"
                   : "");
        engine->config.is_oversize = false;
    }
    int error = check_compute_mode(engine, why, why_size);
    if (error == 0)
        error = claim_gpu(engine, why, why_size);
    if (error == 0)
        error = find_old(engine, old, why, why_size);
    if (error)
        return error;
    check_kernel_limit(engine);
    result = cuda->cuDevicePrimaryCtxRetain(&engine->context, engine->device);
    if (result == CUDA_SUCCESS)
        result = gm_cuda_enter(cuda, engine->context);
    if (result == CUDA_SUCCESS)
        result = cuda->cuMemGetInfo_v2(&free_bytes, &total);
    if (result != CUDA_SUCCESS) {
        snprintf(why, why_size, "cannot use GPU %d (%s): %s", engine->config.gpu, engine->gpu_name,
                 gm_cuda_text(cuda, result));
        return -EIO;
    }
    engine->device_bytes = total;
    free_bytes += old->on_gpu; /* it is the budget's again */
    uint64_t *budget = &engine->config.budget;
    if (engine->config.budget_percent)
        *budget = total / 100 * engine->config.budget_percent;
    if (*budget > total) {
        snprintf(why, why_size,
                 "the budget of %llu MiB is above GPU %d's %llu MiB: lower --gpu-budget",
                 (unsigned long long)(*budget >> 20), engine->config.gpu,
                 (unsigned long long)(total >> 20));
        return -EINVAL;
    }
    /* Where programs beside gpumux left less than the budget, so much stays free: one frame. */
    engine->device_reserve = GM_CHUNK_MAX;
    engine->is_budget_auto = *budget == 0;
    engine->first_budget = *budget;
    /* Room for the contexts of the apps (526 MiB each on an H200) and what they allocate past
     * gpumux: a sixteenth of the device, 2 GiB at most. */
    const uint64_t reserve = gm_least(total / 16, 2048ull << 20);
    if (*budget > total - reserve)
        gm_log(GM_LOG_WARN,
               "--gpu-budget leaves %llu of GPU %d's %llu MiB for CUDA contexts, some 500 MiB for "
               "each program: one that wants all of the budget may wait for ever",
               (unsigned long long)((total - *budget) >> 20), engine->config.gpu,
               (unsigned long long)(total >> 20));
    if (*budget == 0) {
        engine->device_reserve = reserve;
        engine->first_budget = free_bytes > reserve ? free_bytes - reserve : 0;
        *budget = total - reserve;
    }
    *budget &= ~(GM_CHUNK_MIN - 1);
    engine->first_budget &= ~(GM_CHUNK_MIN - 1);
    engine->first_budget = gm_least(engine->first_budget, *budget);
    if (engine->first_budget == 0) {
        snprintf(why, why_size,
                 "the budget is empty: GPU %d has %llu MiB free; free some or set --gpu-budget",
                 engine->config.gpu, (unsigned long long)(free_bytes >> 20));
        return -EINVAL;
    }
    if (engine->first_budget > free_bytes)
        gm_log(GM_LOG_WARN, "the budget of %llu MiB is more than the %llu MiB free on GPU %d now",
               (unsigned long long)(*budget >> 20), (unsigned long long)(free_bytes >> 20),
               engine->config.gpu);
    return 0;
}

static uint32_t more_of(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static int make_tables(struct gm_engine *engine, const struct gm_old *old)
{
    uint32_t max_apps = engine->config.max_apps;
    /* Host frames are in pinned memory; and in the end all of the device is used. */
    uint32_t max_frames =
        (uint32_t)((engine->device_bytes + engine->config.pinned) >> GM_CHUNK_SHIFT) + 1;
    uint64_t chunks = ((engine->config.budget + engine->config.pinned + engine->config.paged +
                        gm_stores_cap(engine->stores, GM_TIER_DISK)) >>
                       GM_CHUNK_SHIFT) +
                      1;
    if (chunks >= GM_NONE)
        return -ENOMEM;
    const uint32_t max_chunks = more_of((uint32_t)chunks, old->ledger.max_chunks);
    max_frames = more_of(max_frames, old->ledger.max_frames);
    engine->table_memory = calloc(1, gm_table_size(max_apps, max_chunks, max_frames));
    engine->apps = calloc(max_apps, sizeof *engine->apps);
    engine->late = calloc(max_chunks, sizeof *engine->late);
    engine->failed = calloc(max_chunks, sizeof *engine->failed);
    engine->unsent = calloc(max_chunks, sizeof *engine->unsent);
    engine->stands = calloc(max_apps, sizeof *engine->stands);
    engine->layout.targets = calloc(max_apps, sizeof *engine->layout.targets);
    engine->layout.victims = calloc(max_apps, sizeof *engine->layout.victims);
    engine->in_set = calloc(max_apps, sizeof *engine->in_set);
    engine->leaving = calloc(max_apps, sizeof *engine->leaving);
    engine->running = calloc(max_apps, sizeof *engine->running);
    engine->stopping.apps = calloc(max_apps, sizeof *engine->stopping.apps);
    engine->stopping.set = calloc(max_apps, sizeof *engine->stopping.set);
    engine->admit_apps = calloc(max_apps, sizeof *engine->admit_apps);
    engine->users = calloc(max_apps, sizeof *engine->users);
    engine->check_apps = calloc(max_apps, sizeof *engine->check_apps);
    engine->check_parts = calloc(max_apps, sizeof *engine->check_parts);
    /* For every frame: evict and lower what is in it, destroy it, raise and fill what comes; and
     * what else is lowered, a window full at a time. */
    engine->plan.capacity = 8 * max_frames + 64;
    engine->plan.moves = calloc(engine->plan.capacity, sizeof *engine->plan.moves);
    for (int i = 0; i < GM_WAYS; i++)
        engine->ring[i] = calloc(GM_WAY_DEPTH, sizeof *engine->ring[i]);
    if (!engine->table_memory || !engine->apps || !engine->late || !engine->failed ||
        !engine->unsent || !engine->stands || !engine->layout.targets || !engine->layout.victims ||
        !engine->in_set || !engine->leaving || !engine->running || !engine->admit_apps ||
        !engine->users || !engine->check_apps || !engine->check_parts || !engine->stopping.apps ||
        !engine->stopping.set || !engine->plan.moves || !engine->ring[0] || !engine->ring[1])
        return -ENOMEM;
    engine->table =
        gm_table_init(engine->table_memory, max_apps, max_chunks, max_frames, engine->first_budget);
    gm_check_init(&engine->check, engine->check_apps, max_apps);
    int error = gm_actions_open(engine);
    if (error == 0)
        error = gm_engine_open_sched(engine);
    if (error)
        return error;
    return gm_frames_open(&engine->frames, &engine->cuda, engine->device, max_frames);
}

static void free_tables(struct gm_engine *engine)
{
    gm_actions_close(engine);
    gm_frames_close(&engine->frames);
    free(engine->table_memory);
    free(engine->sched_memory);
    free(engine->units);
    free(engine->set);
    free(engine->apps);
    free(engine->late);
    free(engine->failed);
    free(engine->unsent);
    free(engine->stands);
    free(engine->layout.targets);
    free(engine->layout.victims);
    free(engine->in_set);
    free(engine->leaving);
    free(engine->running);
    free(engine->stopping.apps);
    free(engine->stopping.set);
    free(engine->admit_apps);
    free(engine->users);
    free(engine->check_apps);
    free(engine->check_parts);
    free(engine->plan.moves);
    for (int i = 0; i < GM_WAYS; i++)
        free(engine->ring[i]);
}

static void free_engine(void *arg)
{
    struct gm_engine *engine = arg;
    if (engine->context)
        engine->cuda.cuDevicePrimaryCtxRelease_v2(engine->device);
    gm_claim_close(engine->claim);
    gm_cuda_close(&engine->cuda);
    free_tables(engine);
    free(engine);
}

/* Whether memory can leave the GPU. */
static void check_window(const struct gm_engine *engine)
{
    const uint64_t window = engine->host->window;
    if (gm_host_limit(engine) <= window)
        gm_log(
            GM_LOG_WARN,
            "--pinned of %llu MiB is too little to move memory out: all programs together get no "
            "more than the budget of %llu MiB. Copies go through %llu MiB: give it that, plus what "
            "programs need beyond the budget",
            (unsigned long long)(engine->config.pinned >> 20),
            (unsigned long long)(engine->first_budget >> 20), (unsigned long long)(window >> 20));
}

/* A machine that promises no more memory than it has may refuse the pages of a file in memory as
 * they are written, which ends the daemon. */
static bool is_memory_strict(void)
{
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "re");
    const bool is_strict = file && fgetc(file) == '2';
    if (file)
        fclose(file);
    return is_strict;
}

/* Anonymous memory has large pages if it asks for them; files in memory have none by default. */
static void check_large_pages(void)
{
    char text[128] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
    if (file && fgets(text, sizeof text, file) &&
        (strstr(text, "[never]") || strstr(text, "[deny]")))
        gm_log(GM_LOG_INFO, "paged memory has pages of 4 KiB: as root, write \"advise\" into "
                            "/sys/kernel/mm/transparent_hugepage/shmem_enabled, and it is filled "
                            "and given back faster");
    if (file)
        fclose(file);
}

/*
 * Whether what this GPU has can outlive the daemon: there is a keeper, and host memory has handles,
 * each with a file. Else nothing of it is kept: that is no start if a daemon before kept something.
 */
static int check_keeping(struct gm_engine *engine, struct gm_old *old, char *text, size_t size)
{
    const uint64_t slabs = engine->host->pinned / GM_SLAB_BYTES;
    const bool has_keeper = gm_kept_is_connected(engine->config.kept);
    const char *why = NULL;
    if (!has_keeper)
        why = "gpumux-keeper does not answer";
    else if (engine->pool.is_registered)
        why = "it has no memory handles on the host";
    else if (!gm_files_hold_slabs((uint32_t)gm_least(slabs, UINT32_MAX),
                                  gm_kept_room(engine->config.kept)))
        why =
            "pinned memory needs a file for each 32 MiB, and LimitNOFILE or ulimit -n, its own or "
            "gpumux-keeper's, allows too few: raise it, or lower --pinned";
    else if (engine->config.paged > 0 && is_memory_strict())
        why = "with vm.overcommit_memory=2 paged memory cannot; leave out --paged";
    if (!why) {
        if (engine->config.paged > 0 && engine->config.index == 0)
            check_large_pages();
        return 0;
    }
    if (old->ledger.words) {
        old->is_sound = true;
        return refuse(engine, old, why, text, size);
    }
    if (has_keeper)
        gm_log(GM_LOG_WARN, "what programs have on GPU %d does not outlive this daemon: %s",
               engine->config.gpu, why);
    engine->config.kept = NULL;
    return 0;
}

bool gm_engine_can_outlive(const struct gm_engine *engine)
{
    return engine->config.kept != NULL;
}

/* A tier keeps the size that it had: its pages keep their numbers. */
static uint64_t size_of(uint64_t bytes, const struct gm_old *old, enum gm_tier tier)
{
    const uint64_t had = (uint64_t)old->ledger.pages[tier] << GM_CHUNK_SHIFT;
    return bytes > had ? bytes : had;
}

static uint64_t pinned_of(const struct gm_engine *engine, const struct gm_old *old)
{
    const uint32_t slabs = old->ledger.pages[GM_TIER_PINNED] / (GM_CHUNK_CLASSES * GM_SLAB_PAGES);
    const uint64_t had = slabs * GM_SLAB_BYTES, now = engine->config.pinned;
    return now > had ? now : had;
}

/* What an adoption that was refused has left. */
static void destroy_frames(struct gm_engine *engine)
{
    for (uint32_t i = 0; i < engine->table->max_frames; i++)
        if (engine->frames.handles[i].id != 0)
            gm_frames_destroy(&engine->frames, i, gm_class_bytes(engine->table->frames[i].class));
}

static int take_over(struct gm_engine *engine, struct gm_old *old, char *why, size_t why_size)
{
    char text[128];
    const char *wrong = gm_old_adopt(old, engine, text, sizeof text);
    if (wrong)
        return refuse(engine, old, wrong, why, why_size);
    /* What is not there of what the ledger says was free already. */
    const uint64_t has = engine->table->allocated;
    if (engine->is_budget_auto)
        engine->first_budget = gm_less(engine->first_budget, old->on_gpu - has);
    gm_table_set_budget(engine->table, engine->first_budget > has ? engine->first_budget : has);
    return 0;
}

/* A start that fails leaves all with the keeper, but for what cannot be taken over. */
static void leave_kept(const struct gm_engine_config *config, int error)
{
    if (error != -EBADMSG && config->kept)
        gm_kept_disconnect(config->kept);
}

/* What was posted here. */
static void act(struct gm_engine *engine)
{
    gm_engine_act(engine);
    gm_engine_carried(engine);
}

/* -EBADMSG: what the daemon before left cannot be taken over. */
static int open_engine(struct gm_engine **out, uv_loop_t *loop,
                       const struct gm_engine_config *config, struct gm_old *old, char *why,
                       size_t why_size)
{
    struct gm_engine *engine = calloc(1, sizeof *engine);
    int error;

    if (!engine) {
        snprintf(why, why_size, "out of memory");
        return -ENOMEM;
    }
    engine->loop = loop;
    engine->config = *config;
    engine->host = config->host;
    engine->next_batch = GM_ENGINE_BATCHES * config->index;
    gm_engine_set_time(engine, gm_now());
    error = gm_cuda_open(&engine->cuda, why, why_size);
    if (error)
        goto free_memory;
    error = open_gpu(engine, old, why, why_size);
    if (error)
        goto close_cuda;
    error = gm_hostpool_open(&engine->pool, loop, &engine->cuda, engine->context, engine->device,
                             pinned_of(engine, old), gm_engine_on_grown, engine, why, why_size);
    if (error)
        goto close_cuda;
    gm_hostpool_bound(&engine->pool, gm_host_limit_of);
    error = check_keeping(engine, old, why, why_size);
    if (error)
        goto close_pool;
    const struct gm_stores_config stores = {.paged =
                                                size_of(engine->config.paged, old, GM_TIER_PAGED),
                                            .disk_dir = engine->config.disk_dir,
                                            .disk = size_of(engine->config.disk, old, GM_TIER_DISK),
                                            .parts = engine->config.engines,
                                            .kept = engine->config.kept,
                                            .gpu = engine->config.index,
                                            .on_room = gm_engine_on_grown};
    error = gm_stores_open(&engine->stores, loop, &engine->pool, &stores, gm_engine_on_host_copied,
                           engine, why, why_size);
    if (error)
        goto close_pool;
    check_window(engine);
    error = make_tables(engine, old); /* after the stores, which refuse a disk that is not there */
    if (error) {
        snprintf(why, why_size,
                 "no memory for the tables: lower --disk, --paged, --pinned or --max-apps");
        goto close_stores;
    }
    error = gm_mover_open(&engine->mover, loop, &engine->cuda, engine->context, gm_engine_on_copies,
                          engine, why, why_size);
    if (error)
        goto close_stores;
    error = gm_engine_open_ledger(engine, old->generation + 1);
    if (!engine->ledger.memory)
        engine->config.kept = NULL;
    gm_hostpool_keep(&engine->pool, engine->config.kept, engine->config.index);
    gm_frames_keep(&engine->frames, engine->config.kept, engine->config.index);
    if (error == 0 && old->ledger.words)
        error = take_over(engine, old, why, why_size);
    if (error == -EBADMSG || error == -EAGAIN) {
        leave_kept(config, error);
        destroy_frames(engine);
        gm_engine_close_shares(engine);
        goto close_mover;
    }
    gm_engine_watch_table(engine); /* what is adopted has not happened now */
    if (error == 0)
        error = gm_engine_begin_ledger(engine);
    if (error) {
        snprintf(why, why_size, "no memory for the ledger: %s", strerror(-error));
        goto close_mover;
    }
    error = gm_alarm_open(&engine->alarm, loop, gm_engine_on_alarm, engine);
    if (error) {
        snprintf(why, why_size, "no timer can be made: %s", strerror(-error));
        goto close_mover;
    }
    gm_engine_open_hasher(engine, gm_engine_on_hashes);
    gm_engine_open_meter(engine, gm_engine_on_link);
    engine->waiting_tail = &engine->waiting;
    gm_host_add(engine->host, engine);
    act(engine);
    *out = engine;
    gm_log(GM_LOG_INFO,
           "GPU %d (%s): budget %llu MiB of %llu%s, pinned up to %llu MiB, paged %llu, on disk "
           "%llu",
           engine->config.gpu, engine->gpu_name, (unsigned long long)(engine->table->budget >> 20),
           (unsigned long long)(engine->device_bytes >> 20),
           engine->is_budget_auto ? " (it follows what the GPU has free)" : "",
           (unsigned long long)(gm_host_limit_alone(engine) >> 20),
           (unsigned long long)(gm_stores_cap(engine->stores, GM_TIER_PAGED) >> 20),
           (unsigned long long)(gm_stores_cap(engine->stores, GM_TIER_DISK) >> 20));
    return 0;

close_mover:
    leave_kept(config, error);
    gm_mover_close(engine->mover);
close_stores:
    leave_kept(config, error);
    gm_stores_close(engine->stores);
close_pool:
    leave_kept(config, error);
    gm_hostpool_close(&engine->pool);
    gm_engine_close_ledger(engine);
close_cuda:
    if (engine->context)
        engine->cuda.cuDevicePrimaryCtxRelease_v2(engine->device);
    gm_claim_close(engine->claim);
    gm_cuda_close(&engine->cuda);
    free_tables(engine);
free_memory:
    free(engine);
    return error;
}

int gm_engine_open(struct gm_engine **out, uv_loop_t *loop, const struct gm_engine_config *config,
                   char *why, size_t why_size)
{
    struct gm_old old = {.copy = NULL};
    int error = open_engine(out, loop, config, &old, why, why_size);
    if (error == -EBADMSG) {
        gm_log(GM_LOG_ERROR,
               "GPU %d: the memory of programs that the daemon before had is given back, as it "
               "cannot be taken over: %s",
               config->gpu, why);
        gm_old_close(&old);
        gm_old_drop(config);
        error = open_engine(out, loop, config, &old, why, why_size);
    }
    if (error)
        leave_kept(config, error);
    gm_old_close(&old);
    return error;
}

void gm_engine_close(struct gm_engine *engine)
{
    gm_engine_halt(engine);
    gm_host_remove(engine);
    gm_cuda_enter(&engine->cuda, engine->context);
    gm_meter_close(engine->meter);
    gm_hasher_close(engine->hasher);
    gm_mover_close(engine->mover);
    gm_stores_close(engine->stores);
    gm_engine_close_shares(engine);
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        gm_engine_forget_waiting(engine, id);
        if (engine->apps[id].state != GM_APP_UNUSED)
            gm_engine_free_app(engine, id);
    }
    act(engine);
    for (uint32_t i = 0; i < engine->table->max_frames; i++)
        if (engine->table->frames[i].state != GM_FRAME_UNUSED &&
            !engine->table->frames[i].is_destroyed)
            gm_frames_destroy(&engine->frames, i, gm_class_bytes(engine->table->frames[i].class));
    gm_hostpool_close(&engine->pool);
    gm_engine_close_ledger(engine);
    gm_alarm_close(&engine->alarm, free_engine);
}
