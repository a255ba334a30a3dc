/* What the driver and NVML say: see driver.h. Both are loaded when they are asked, so that mux-ctl
 * runs without them; and in a process of its own (apart.c), as they may hang. */
#include "daemon/ctl/driver.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/text.h"
#include "daemon/ctl/apart.h"

#define CUDA_NS (20 * GM_S) /* it opens all GPUs, and each takes its time if nobody had it open */
#define NVML_NS (2 * GM_S)
#define SILENT_NS (10 * GM_S) /* one that hung is not asked anew */

/* NVML, as far as it is asked: the numbers are those of nvml.h. */
enum { NVML_SUCCESS = 0, NVML_LINK_OUT = 0 };
typedef struct nvml_device *nvml_device;
struct nvml_process {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
};

struct cuda {
    CUresult (*init)(unsigned flags);
    CUresult (*version)(int *version);
    CUresult (*count)(int *count);
    CUresult (*get)(CUdevice *device, int number);
    CUresult (*name)(char *name, int size, CUdevice device);
    CUresult (*uuid)(CUuuid *uuid, CUdevice device);
    CUresult (*attribute)(int *value, CUdevice_attribute attribute, CUdevice device);
    CUresult (*error)(CUresult result, const char **name);
};

struct nvml {
    int (*init)(void);
    const char *(*error)(int result);
    int (*by_uuid)(const char *uuid, nvml_device *device);
    int (*throughput)(nvml_device device, int counter, unsigned int *kb_a_second);
    int (*processes)(nvml_device device, unsigned int *n, struct nvml_process *processes);
};

struct symbol {
    const char *name;
    void **to;
};

/* All of them, or one line in `why`. */
static bool load(const char *library, const struct symbol *symbols, size_t n, char *why,
                 size_t size)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *text = dlerror();
        snprintf(why, size, "%s", text ? text : library);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        *symbols[i].to = dlsym(handle, symbols[i].name);
        if (!*symbols[i].to) {
            snprintf(why, size, "%s has no %s", library, symbols[i].name);
            return false;
        }
    }
    return true;
}

static void format_uuid(const CUuuid *uuid, char text[48])
{
    snprintf(text, 48, "GPU-");
    for (unsigned i = 0; i < sizeof uuid->bytes; i++)
        gm_text_add(text, 48, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                    (unsigned)(unsigned char)uuid->bytes[i]);
}

static bool has(const struct cuda *cuda, CUdevice_attribute attribute, CUdevice device)
{
    int value = 0;
    return cuda->attribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

static void ask_gpu(const struct cuda *cuda, int number, struct mux_gpu *gpu)
{
    CUdevice device = 0;
    CUuuid uuid = {0};
    cuda->get(&device, number);
    cuda->name(gpu->name, sizeof gpu->name, device);
    cuda->uuid(&uuid, device);
    format_uuid(&uuid, gpu->uuid);
    gpu->has_vmm = has(cuda, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
    gpu->has_fds =
        has(cuda, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device);
    gpu->has_host_frames =
        has(cuda, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
    gpu->has_mps = has(cuda, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device);
    gpu->has_time_limit = has(cuda, CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, device);
    cuda->attribute(&gpu->compute_mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device);
}

static void ask_cuda(struct mux_driver *driver)
{
    struct cuda cuda = {0};
    const char *name = NULL;
    const struct symbol symbols[] = {
        {"cuInit", (void **)&cuda.init},
        {"cuDriverGetVersion", (void **)&cuda.version},
        {"cuDeviceGetCount", (void **)&cuda.count},
        {"cuDeviceGet", (void **)&cuda.get},
        {"cuDeviceGetName", (void **)&cuda.name},
        {"cuDeviceGetUuid_v2", (void **)&cuda.uuid},
        {"cuDeviceGetAttribute", (void **)&cuda.attribute},
        {"cuGetErrorName", (void **)&cuda.error},
    };
    driver->is_loaded = load("libcuda.so.1", symbols, sizeof symbols / sizeof symbols[0],
                             driver->why, sizeof driver->why);
    if (!driver->is_loaded)
        return;
    cuda.version(&driver->version);
    CUresult result = cuda.init(0);
    if (result == CUDA_SUCCESS)
        result = cuda.count(&driver->n);
    if (result == CUDA_SUCCESS && driver->n == 0)
        result = CUDA_ERROR_NO_DEVICE;
    if (result != CUDA_SUCCESS) {
        driver->error = (int)result;
        driver->n = 0;
        snprintf(driver->why, sizeof driver->why, "%s",
                 cuda.error(result, &name) == CUDA_SUCCESS && name ? name : "unknown error");
        return;
    }
    if (driver->n > (int)GM_GPUS_MAX)
        driver->n = (int)GM_GPUS_MAX;
    for (int i = 0; i < driver->n; i++)
        ask_gpu(&cuda, i, &driver->gpus[i]);
}

/* Add those that are not there yet. False: NVML does not say. */
static bool list_processes(int (*ask)(nvml_device, unsigned *, struct nvml_process *),
                           nvml_device device, struct mux_gpu *gpu)
{
    struct nvml_process list[MUX_PROCESSES];
    unsigned n = MUX_PROCESSES;
    if (ask(device, &n, list) != NVML_SUCCESS)
        return false;
    for (unsigned i = 0; i < n && i < MUX_PROCESSES; i++) {
        uint32_t at = 0;
        if ((pid_t)list[i].pid == getpid())
            continue; /* that of mux-ctl which asks */
        while (at < gpu->n_processes && gpu->processes[at].pid != (int32_t)list[i].pid)
            at++;
        if (at == gpu->n_processes && at < MUX_PROCESSES)
            gpu->processes[gpu->n_processes++] =
                (struct mux_process){.pid = (int32_t)list[i].pid, .used = (uint64_t)list[i].used};
    }
    return true;
}

static void ask_meter(const struct nvml *nvml, struct mux_gpu *gpu)
{
    unsigned kb;
    nvml_device device;
    int result = nvml->by_uuid(gpu->uuid, &device);
    const bool is_known = result == NVML_SUCCESS;
    if (is_known)
        result = nvml->throughput(device, NVML_LINK_OUT, &kb);
    if (result != NVML_SUCCESS) {
        const char *text = nvml->error(result);
        snprintf(gpu->uncounted, sizeof gpu->uncounted, "NVML does not %s (%.60s)",
                 is_known ? "count what crosses the link" : "know this GPU", text ? text : "?");
    }
    if (is_known)
        list_processes(nvml->processes, device, gpu);
}

static void ask_nvml(struct mux_driver *driver)
{
    struct nvml nvml = {0};
    char why[160];
    const struct symbol symbols[] = {
        {"nvmlInit_v2", (void **)&nvml.init},
        {"nvmlErrorString", (void **)&nvml.error},
        {"nvmlDeviceGetHandleByUUID", (void **)&nvml.by_uuid},
        {"nvmlDeviceGetPcieThroughput", (void **)&nvml.throughput},
        {"nvmlDeviceGetComputeRunningProcesses_v3", (void **)&nvml.processes},
    };
    if (!load("libnvidia-ml.so.1", symbols, sizeof symbols / sizeof symbols[0], why, sizeof why))
        snprintf(driver->no_nvml, sizeof driver->no_nvml, "%.95s", why);
    else if (nvml.init() != NVML_SUCCESS)
        snprintf(driver->no_nvml, sizeof driver->no_nvml, "NVML does not start");
    for (int i = 0; i < driver->n && !driver->no_nvml[0]; i++)
        ask_meter(&nvml, &driver->gpus[i]);
}

static bool ask_processes(const char *uuid, struct mux_gpu *gpu)
{
    static struct nvml nvml;
    static int (*graphics)(nvml_device device, unsigned *n, struct nvml_process *processes);
    static bool is_asked, is_open;
    nvml_device device;
    char why[160];
    const struct symbol symbols[] = {
        {"nvmlInit_v2", (void **)&nvml.init},
        {"nvmlDeviceGetHandleByUUID", (void **)&nvml.by_uuid},
        {"nvmlDeviceGetComputeRunningProcesses_v3", (void **)&nvml.processes},
    };
    const struct symbol more[] = {
        {"nvmlDeviceGetGraphicsRunningProcesses_v3", (void **)&graphics},
    };
    if (!is_asked) {
        is_open = load("libnvidia-ml.so.1", symbols, sizeof symbols / sizeof symbols[0], why,
                       sizeof why) &&
                  nvml.init() == NVML_SUCCESS;
        if (is_open && !load("libnvidia-ml.so.1", more, 1, why, sizeof why))
            graphics = NULL;
    }
    is_asked = true;
    gpu->n_processes = 0;
    if (!is_open || nvml.by_uuid(uuid, &device) != NVML_SUCCESS ||
        !list_processes(nvml.processes, device, gpu))
        return false;
    if (graphics)
        list_processes(graphics, device, gpu);
    return true;
}

/* ---- in a process of its own ---- */

enum { ASK_CUDA, ASK_NVML, ASK_PROCESSES };

struct asked {
    struct mux_driver driver;
    struct mux_gpu gpu; /* of ASK_PROCESSES, with its UUID */
    bool is_said;
};

static void ask(unsigned char what, void *memory)
{
    struct asked *asked = memory;
    if (what == ASK_CUDA)
        ask_cuda(&asked->driver);
    else if (what == ASK_NVML)
        ask_nvml(&asked->driver);
    else
        asked->is_said = ask_processes(asked->gpu.uuid, &asked->gpu);
}

static struct mux_apart apart = {.work = ask, .size = sizeof(struct asked)};

const char *mux_ask_processes(const char *uuid, struct mux_gpu *gpu)
{
    static uint64_t silent_until;
    struct asked *asked = mux_apart_memory(&apart);
    gpu->n_processes = 0;
    if (!asked)
        return "out of memory";
    if (gm_now() < silent_until)
        return "NVML does not answer";
    snprintf(asked->gpu.uuid, sizeof asked->gpu.uuid, "%s", uuid);
    if (!mux_apart_do(&apart, ASK_PROCESSES, NVML_NS)) {
        silent_until = apart.has_ended ? 0 : gm_now() + SILENT_NS;
        return apart.has_ended ? "NVML ends whoever asks it" : "NVML does not answer";
    }
    *gpu = asked->gpu;
    return asked->is_said ? NULL : "NVML does not say";
}

void mux_ask_driver(struct mux_driver *driver)
{
    struct asked *asked = mux_apart_memory(&apart);
    memset(driver, 0, sizeof *driver);
    if (!asked || !mux_apart_do(&apart, ASK_CUDA, CUDA_NS)) {
        driver->is_loaded = true;
        driver->is_silent = !apart.has_ended;
        snprintf(driver->why, sizeof driver->why, "%s",
                 apart.has_ended ? "it ends the program that starts it" : "it does not answer");
        return;
    }
    *driver = asked->driver;
    if (mux_apart_do(&apart, ASK_NVML, NVML_NS))
        *driver = asked->driver;
    else
        snprintf(driver->no_nvml, sizeof driver->no_nvml, "%s",
                 apart.has_ended ? "NVML ends whoever asks it" : "NVML does not answer");
}
