#include "shim/entry/start.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/features.h"
#include "common/clock.h"
#include "common/log.h"
#include "shim/driver/devices.h"
#include "shim/driver/real.h"
#include "shim/entry/hints.h"
#include "shim/gate/contexts.h"
#include "shim/gate/drain.h"
#include "shim/gate/gate.h"
#include "shim/handlers/handlers.h"
#include "shim/link/files.h"
#include "shim/link/link.h"
#include "shim/link/place.h"
#include "shim/map/mapper.h"
#include "shim/memory/ahead.h"
#include "shim/memory/freed.h"
#include "shim/memory/chores.h"
#include "shim/memory/graphs.h"
#include "shim/memory/managed.h"
#include "shim/memory/sharing.h"
#include "shim/observe/channels.h"
#include "shim/observe/probe.h"
#include "shim/observe/replays.h"
#include "shim/observe/usage.h"
#include "shim/observe/windows.h"

#define GM_START_PROBE_NS (200 * GM_MS) /* from one attempt to the next ... */
#define GM_START_PROBES 64              /* ... of so many: each keeps a page of pinned memory */
#define GM_START_SAMPLE_NS (64 * GM_S)  /* at most between looks at what the driver takes */
#define GM_START_LOG_FD 500             /* the least fd number of the log, as in link/files.c */

static bool gm_start_has_fork_handler;
static bool gm_start_has_log;

static bool gm_start_is_off(void)
{
    const char *off = getenv("GPUMUX_DISABLE");
    return off != NULL && strcmp(off, "1") == 0;
}

/* What waits for all processors once there are threads, and the driver starts some: 22 and 24 ms of
 * a program's start (H200). Preloaded, the program has none yet. */
__attribute__((constructor)) static void gm_start_early(void)
{
    if (gm_start_is_off())
        return;
    gm_gate_membarrier_register();
    gm_files_widen();
}

static void gm_start_open_log(void)
{
    const char *path = secure_getenv("GPUMUX_LOG");
    if (gm_start_has_log || path == NULL || path[0] == '\0')
        return;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, GM_START_LOG_FD);
    if (high >= 0) {
        close(fd);
        fd = high;
    }
    gm_start_has_log = true;
    gm_log_open(fd, GM_LOG_INFO, "libgpumux");
}

/* Whether the driver has every call that chunks need. */
static bool gm_start_driver_is_complete(void)
{
    return gm_real.cuDeviceGetUuid_v2 != NULL && gm_real.cuDevicePrimaryCtxGetState != NULL &&
           gm_real.cuDevicePrimaryCtxRetain != NULL &&
           gm_real.cuDevicePrimaryCtxRelease_v2 != NULL && gm_real.cuCtxPushCurrent_v2 != NULL &&
           gm_real.cuCtxPopCurrent_v2 != NULL && gm_real.cuCtxGetCurrent != NULL &&
           gm_real.cuCtxGetDevice != NULL && gm_real.cuCtxSynchronize != NULL &&
           gm_real.cuThreadExchangeStreamCaptureMode != NULL &&
           gm_real.cuStreamIsCapturing != NULL && gm_real.cuMemAddressReserve != NULL &&
           gm_real.cuMemAddressFree != NULL && gm_real.cuMemImportFromShareableHandle != NULL &&
           gm_real.cuMemMap != NULL && gm_real.cuMemSetAccess != NULL &&
           gm_real.cuMemUnmap != NULL && gm_real.cuMemRelease != NULL;
}

/* What is missing here (features.def). Users of such a call check themselves. */
static uint32_t gm_start_features_off(bool has_membarrier)
{
    /* Without membarrier nobody knows which threads are inside a call: no program is parked. */
    uint32_t off = has_membarrier ? 0 : GM_FEATURE_FAST_GATE | GM_FEATURE_PARK;
    if (gm_real.cuCtxRecordEvent == NULL || gm_real.cuEventCreate == NULL ||
        gm_real.cuEventDestroy_v2 == NULL || gm_real.cuEventQuery == NULL)
        off |= GM_FEATURE_CONTEXT_EVENTS;
    if (gm_real.cuFuncGetParamInfo == NULL)
        off |= GM_FEATURE_LAUNCH_ARGUMENTS;
    return off;
}

/* Match the daemon's GPUs with this program's devices by UUID. Returns how many match. */
static unsigned gm_start_match(const struct gm_link_welcome *welcome, int n_devices)
{
    CUdevice devices[GM_GPUS_MAX];
    unsigned matched = 0;
    for (uint32_t gpu = 0; gpu < GM_GPUS_MAX; gpu++)
        devices[gpu] = -1;
    for (int i = 0; i < n_devices && i < GM_DEVICES_MOST; i++) {
        CUdevice device;
        CUuuid uuid;
        if (gm_real.cuDeviceGet(&device, i) != CUDA_SUCCESS || device < 0 ||
            device >= GM_DEVICES_MOST)
            continue;
        gm_devices_see(device);
        if (gm_real.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS)
            continue;
        for (uint32_t gpu = 0; gpu < welcome->n_gpus; gpu++) {
            if (devices[gpu] >= 0 ||
                memcmp(uuid.bytes, welcome->gpu[gpu].uuid, sizeof(uuid.bytes)) != 0)
                continue;
            devices[gpu] = device;
            matched++;
            break;
        }
    }
    gm_devices_set(devices, welcome->n_gpus);
    return matched;
}

/* What programs under MPS lack: their channels are the server's, or lie in its channel group, and
 * what is done to that hits all that share. So it is not even tried. */
static uint32_t gm_start_mps_off(unsigned n_gpus)
{
    int is_mps = 0;
    for (uint32_t gpu = 0; gpu < n_gpus && is_mps == 0; gpu++) {
        const CUdevice device = gm_gpu_device(gpu);
        if (device < 0 || gm_real.cuDeviceGetAttribute == NULL ||
            gm_real.cuDeviceGetAttribute(&is_mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device) !=
                CUDA_SUCCESS)
            is_mps = 0;
    }
    return is_mps != 0 ? GM_FEATURE_ISOLATION | GM_FEATURE_PARK | GM_FEATURE_TIMESLICE : 0;
}

/* ---- callbacks of the lower rooms ---- */

static const struct gm_gate_calls gm_start_gate_calls = {
    .want = gm_link_want,
    .expect = gm_hints_announce,
};

/* Whether parking and timeslices work here (probe.h): asked when the first memory is mapped, for
 * then there is a context, or when the program is to stop. Some map none: they have managed memory
 * only, or little. */
static enum { GM_PROBE_NOT_ASKED, GM_PROBE_IS_DUE, GM_PROBE_IS_OVER } _Atomic gm_start_probe;

static void gm_start_probe_in(CUcontext context, uint64_t unused)
{
    static unsigned tries; /* the drainer's */
    uint32_t off;
    (void)context, (void)unused;
    if (atomic_load(&gm_start_probe) != GM_PROBE_IS_DUE)
        return;
    if (!gm_probe(&off)) {
        if (++tries < GM_START_PROBES)
            return;
        off = GM_FEATURE_PARK | GM_FEATURE_TIMESLICE;
    }
    atomic_fetch_or(&gm_gate_stat()->features_off, off);
    atomic_store(&gm_start_probe, GM_PROBE_IS_OVER);
}

static enum gm_usage_result gm_start_look(void)
{
    if (gm_graphs_exist())
        gm_graphs_sample();
    return gm_usage_sample();
}

/* Drainer: look what the driver takes by itself, ever more rarely. Programs load modules at their
 * beginning; later changes are seen when the program asks, and when it is paused. */
static uint64_t gm_start_sample(uint64_t now)
{
    static uint64_t at, gap = GM_S;
    if (at > now)
        return at;
    const enum gm_usage_result result = gm_start_look();
    if (result == GM_USAGE_NONE)
        return UINT64_MAX;
    if (result == GM_USAGE_CHANGED)
        gap = GM_S;
    at = gm_now() + gap;
    gap = gap * 2 < GM_START_SAMPLE_NS ? gap * 2 : GM_START_SAMPLE_NS;
    return at;
}

static bool gm_start_paused(void)
{
    gm_start_look();
    return gm_chores_paused();
}

/* Drainer. A GPU that is busy with others cannot be asked: then later. */
static uint64_t gm_start_watch(uint64_t now)
{
    const uint64_t sample = gm_start_sample(now), chore = gm_chores_watch(now);
    const uint64_t next = sample < chore ? sample : chore;
    if (atomic_load(&gm_start_probe) == GM_PROBE_IS_DUE)
        gm_contexts_visit(gm_start_probe_in, 0);
    /* From its end: an attempt may take longer than that, and a drain goes on in between. */
    const uint64_t again = gm_now() + GM_START_PROBE_NS;
    return atomic_load(&gm_start_probe) == GM_PROBE_IS_DUE && next > again ? again : next;
}

static void gm_start_ask(void)
{
    if (atomic_load(&gm_start_probe) != GM_PROBE_NOT_ASKED)
        return;
    atomic_store(&gm_start_probe, GM_PROBE_IS_DUE);
    gm_drain_watch();
}

static CUresult gm_start_map(const struct gm_map_entry *entry, uint32_t count, const int *fds,
                             int n_fds)
{
    const CUresult result = gm_mapper_map(entry, count, fds, n_fds);
    if (result == CUDA_SUCCESS)
        gm_start_ask();
    return result;
}

static enum gm_park_outcome gm_start_stop(void)
{
    if ((atomic_load(&gm_gate_stat()->features_off) & GM_FEATURE_PARK) != 0)
        return GM_PARK_NEVER;
    gm_start_ask();
    if (atomic_load(&gm_start_probe) != GM_PROBE_IS_OVER)
        return GM_PARK_LATER;
    switch (gm_channels_park()) {
    case GM_PARK_DONE:
        return GM_PARK_IS_ON;
    case GM_PARK_CHANGED:
        return GM_PARK_LATER;
    default:
        return GM_PARK_NEVER;
    }
}

/* A program with managed memory drains: moving that out is work on a stream. */
static enum gm_park_outcome gm_start_park(void)
{
    return gm_managed_exists() ? GM_PARK_NEVER : gm_start_stop();
}

/* What does not take effect, the probe finds out; this is for the other reasons. */
static int gm_start_timeslice(uint64_t us)
{
    const int error = gm_channels_timeslice(us);
    if (error != 0)
        gm_log(GM_LOG_INFO, "the driver does not take a timeslice of %llu us: %s",
               (unsigned long long)us, strerror(-error));
    return error;
}

static const struct gm_drain_calls gm_start_drain_calls = {
    .drained = gm_link_drained,
    .quiet = gm_link_quiet,
    .park = gm_start_park,
    .resume = gm_channels_resume,
    .clear = gm_chores_clear,
    .paused = gm_start_paused,
    .resumed = gm_chores_resumed,
    .watch = gm_start_watch,
};

static const struct gm_link_calls gm_start_link_calls = {
    .map = gm_start_map,
    .unmap = gm_mapper_unmap,
    .drop = gm_mapper_drop,
    .request = {.release = gm_mapper_release, .ahead_came = gm_ahead_come},
    .holds = gm_import_list,
    .is_whole = gm_mapper_has_all,
    .forget = gm_mapper_forget,
    .hold = gm_start_stop,
    .resume = gm_channels_resume,
    .timeslice = gm_start_timeslice,
    .taken = gm_freed_taken,
    .lost = gm_freed_lose,
    .mark = gm_windows_mark,
    .note_graphs = gm_replays_note,
};

/* ---- connecting ---- */

static enum gm_boot_state gm_start_connect(int n_devices)
{
    static struct gm_link_welcome welcome; /* stacks may be small, and one thread starts */
    static char why[256];

    why[0] = '\0'; /* of an earlier start */
    if (gm_link_open(&welcome, why, sizeof(why)) != 0) {
        gm_log(GM_LOG_INFO, "running without gpumux: %s", why);
        return GM_BOOT_PASS;
    }
    if (gm_start_match(&welcome, n_devices) == 0) {
        gm_log(GM_LOG_INFO, "running without gpumux: it manages none of this program's GPUs");
        goto shut;
    }
    if (gm_drain_start(&gm_start_drain_calls) != 0) {
        gm_log(GM_LOG_WARN, "running without gpumux: cannot start a thread");
        goto shut;
    }
    bool has_membarrier = gm_gate_membarrier_register();
    const uint32_t mps_off = gm_start_mps_off(welcome.n_gpus);
    if (mps_off != 0)
        atomic_store(&gm_start_probe, GM_PROBE_IS_OVER);
    atomic_store(&welcome.stat->features_off, gm_start_features_off(has_membarrier) | mps_off);
    if (gm_gate_attach(welcome.ctl, welcome.stat, has_membarrier, &gm_start_gate_calls) != 0) {
        gm_log(GM_LOG_WARN, "running without gpumux: no thread-specific key left");
        goto shut;
    }
    if (gm_link_start(&gm_start_link_calls) != 0) {
        gm_log(GM_LOG_WARN, "running without gpumux: cannot start a thread");
        gm_gate_lost(true);
        gm_link_close();
        return GM_BOOT_DEAD;
    }
    gm_log(GM_LOG_INFO, "connected as app %u", welcome.app);
    gm_sharing_init();
    return GM_BOOT_LIVE;

shut:
    gm_link_shut();
    return GM_BOOT_PASS;
}

static void gm_start_after_fork(void)
{
    gm_channels_after_fork();
    if (!gm_boot_has_begun())
        return;
    gm_gate_after_fork();
    gm_park_after_fork();
    gm_channels_after_fork();
    gm_usage_after_fork();
    gm_link_part();
    gm_link_close();
    gm_boot_part();
}

enum gm_boot_state gm_start(void)
{
    int n_devices;

    gm_windows_mark(false, NULL);
    if (gm_start_is_off()) {
        gm_gate_attach(NULL, NULL, false, NULL);
        return GM_BOOT_PASS;
    }
    if (gm_real.cuDeviceGetCount == NULL ||
        gm_real.cuDeviceGetCount(&n_devices) == CUDA_ERROR_NOT_INITIALIZED)
        return GM_BOOT_COLD;
    if (!gm_start_has_fork_handler && pthread_atfork(NULL, NULL, gm_start_after_fork) == 0)
        gm_start_has_fork_handler = true;
    gm_start_open_log();

    enum gm_boot_state state = GM_BOOT_PASS;
    if (!gm_start_driver_is_complete())
        gm_log(GM_LOG_INFO, "running without gpumux: this CUDA driver is too old");
    else if (!gm_start_has_fork_handler)
        gm_log(GM_LOG_WARN, "running without gpumux: cannot install a fork handler");
    else
        state = gm_start_connect(n_devices);
    if (state == GM_BOOT_PASS)
        gm_gate_attach(NULL, NULL, false, NULL);
    return state;
}

/* ---- before the driver starts ---- */

/* The driver reads the list of GPUs as it starts. If it does not start with the one that was made
 * here, it may with the program's own. */
static void gm_start_place(void)
{
    bool has_mps;
    gm_start_open_log();
    if (!gm_place(&has_mps))
        return;
    const CUresult result = gm_real.cuInit(0);
    if (result != CUDA_SUCCESS)
        gm_log(GM_LOG_WARN, "the driver does not start (%d) %s: as it was", (int)result,
               has_mps ? "with MPS" : "with its GPUs in another order");
    gm_place_undo();
}

/* In any state. A driver that has started says so again. */
CUresult gm_on_cuInit(unsigned int flags)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!gm_start_is_off() && flags == 0) /* there are no others */
        pthread_once(&once, gm_start_place);
    return gm_real.cuInit(flags);
}
