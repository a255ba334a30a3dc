#include "shim/entry/nvml.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "shim/driver/devices.h"
#include "shim/entry/load.h"
#include "shim/gate/boot.h"
#include "shim/memory/budget.h"
#include "shim/memory/graphs.h"
#include "shim/observe/usage.h"

#define GM_LIBNVML "libnvidia-ml.so.1"

/* As gm_real, for NVML. */
static struct {
#define GM_NVML(symbol, params) int(*symbol) params;
#include "shim/entry/nvml.def"
#undef GM_NVML
    int (*nvmlDeviceGetUUID)(gm_nvml_device device, char *uuid, unsigned int length);
} gm_nvml_real;

static _Atomic bool gm_nvml_is_loaded;

#define GM_NVML_LOAD(symbol) GM_REAL_STORE(gm_nvml_real.symbol, gm_real_dlsym(library, #symbol))

GM_REAL_STORES
bool gm_nvml_load_present(void)
{
    if (atomic_load_explicit(&gm_nvml_is_loaded, memory_order_acquire))
        return true;
    void *library = dlopen(GM_LIBNVML, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == NULL)
        return false;
#define GM_NVML(symbol, params) GM_NVML_LOAD(symbol)
#include "shim/entry/nvml.def"
#undef GM_NVML
    GM_NVML_LOAD(nvmlDeviceGetUUID)
    atomic_store_explicit(&gm_nvml_is_loaded, true, memory_order_release);
    return true;
}

bool gm_nvml_is_name(const char *name)
{
#define GM_NVML(symbol, params)                                                                    \
    if (strcmp(name, #symbol) == 0)                                                                \
        return true;
#include "shim/entry/nvml.def"
#undef GM_NVML
    return false;
}

void *gm_nvml_wrapper(const char *name, const void *found)
{
#define GM_NVML(symbol, params)                                                                    \
    if (strcmp(name, #symbol) == 0)                                                                \
        return found == (const void *)gm_nvml_real.symbol ? (void *)symbol : NULL;
#include "shim/entry/nvml.def"
#undef GM_NVML
    return NULL;
}

/* ---- which device ---- */

static int gm_hex(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

bool gm_nvml_parse_uuid(const char *text, unsigned char uuid[16])
{
    if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0)
        return false;
    text += 4;
    for (int i = 0; i < 16; i++) {
        if ((i == 4 || i == 6 || i == 8 || i == 10) && *text++ != '-')
            return false;
        int high = gm_hex(text[0]);
        int low = high < 0 ? -1 : gm_hex(text[1]);
        if (low < 0)
            return false;
        uuid[i] = (unsigned char)(high << 4 | low);
        text += 2;
    }
    return *text == '\0';
}

/* The gpumux index; -1: not managed, or this program's CUDA does not see it. */
static int gm_nvml_gpu(gm_nvml_device device)
{
    char text[GM_NVML_UUID_MAX] = "";
    unsigned char wanted[16];
    if (gm_nvml_real.nvmlDeviceGetUUID == NULL ||
        gm_nvml_real.nvmlDeviceGetUUID(device, text, sizeof(text)) != GM_NVML_SUCCESS)
        return -1;
    text[sizeof(text) - 1] = '\0';
    if (!gm_nvml_parse_uuid(text, wanted))
        return -1;
    for (uint32_t gpu = 0; gpu < gm_gpu_count(); gpu++) {
        CUdevice at = gm_gpu_device(gpu);
        CUuuid uuid;
        if (at >= 0 && gm_real.cuDeviceGetUuid_v2(&uuid, at) == CUDA_SUCCESS &&
            memcmp(uuid.bytes, wanted, sizeof(wanted)) == 0)
            return (int)gpu;
    }
    return -1;
}

/* This program's own numbers. False: the real ones stand. */
static bool gm_nvml_view(gm_nvml_device device, uint64_t *free_bytes, uint64_t *total)
{
    if (!gm_real_load_present() || !gm_is_live())
        return false;
    if (gm_graphs_exist())
        gm_graphs_sample();
    gm_usage_sample();
    return gm_memory_info(gm_nvml_gpu(device), free_bytes, total);
}

/* ---- the wrappers ---- */

/* As gm_real_missing, for NVML. */
static int gm_nvml_missing(void)
{
    return gm_nvml_load_present() ? GM_NVML_FUNCTION_NOT_FOUND : GM_NVML_LIBRARY_NOT_FOUND;
}

#define GM_ON_NVML(symbol, type, more)                                                             \
    __attribute__((visibility("default"))) int symbol(gm_nvml_device device, type *memory)         \
    {                                                                                              \
        uint64_t has_free, total;                                                                  \
        if (!gm_nvml_load_present() || gm_nvml_real.symbol == NULL)                                \
            return gm_nvml_missing();                                                              \
        int result = gm_nvml_real.symbol(device, memory);                                          \
        if (result != GM_NVML_SUCCESS || !gm_nvml_view(device, &has_free, &total))                 \
            return result;                                                                         \
        memory->total = total;                                                                     \
        memory->free = has_free;                                                                   \
        memory->used = total - has_free;                                                           \
        more;                                                                                      \
        return result;                                                                             \
    }
GM_ON_NVML(nvmlDeviceGetMemoryInfo, struct gm_nvml_memory, (void)0)
/* What the system reserves is not part of a budget. */
GM_ON_NVML(nvmlDeviceGetMemoryInfo_v2, struct gm_nvml_memory_v2, memory->reserved = 0)

/* What of this program's memory NVML counts for the daemon. */
struct gm_nvml_moved {
    uint64_t bytes;
    unsigned int from, to; /* processes */
};

static bool gm_nvml_find_moved(gm_nvml_device device, struct gm_nvml_moved *moved)
{
    pid_t daemon;
    if (!gm_real_load_present() || !gm_is_live() ||
        !gm_memory_held(gm_nvml_gpu(device), &moved->bytes, &daemon))
        return false;
    moved->from = (unsigned int)daemon;
    moved->to = (unsigned int)getpid();
    return true;
}

static void gm_nvml_move(const struct gm_nvml_moved *moved, unsigned int pid,
                         unsigned long long *used)
{
    if (*used == GM_NVML_UNKNOWN)
        return;
    if (pid == moved->to)
        *used += moved->bytes;
    else if (pid == moved->from)
        *used -= moved->bytes < *used ? moved->bytes : *used;
}

#define GM_ON_NVML_LIST(symbol, type)                                                              \
    __attribute__((visibility("default"))) int symbol(gm_nvml_device device, unsigned int *count,  \
                                                      type *infos)                                 \
    {                                                                                              \
        struct gm_nvml_moved moved;                                                                \
        if (!gm_nvml_load_present() || gm_nvml_real.symbol == NULL)                                \
            return gm_nvml_missing();                                                              \
        int result = gm_nvml_real.symbol(device, count, infos);                                    \
        if (result != GM_NVML_SUCCESS || infos == NULL || !gm_nvml_find_moved(device, &moved))     \
            return result;                                                                         \
        for (unsigned int i = 0; i < *count; i++)                                                  \
            gm_nvml_move(&moved, infos[i].pid, &infos[i].used);                                    \
        return result;                                                                             \
    }
GM_ON_NVML_LIST(nvmlDeviceGetComputeRunningProcesses, struct gm_nvml_process_v1)
GM_ON_NVML_LIST(nvmlDeviceGetComputeRunningProcesses_v2, struct gm_nvml_process)
GM_ON_NVML_LIST(nvmlDeviceGetComputeRunningProcesses_v3, struct gm_nvml_process)
GM_ON_NVML_LIST(nvmlDeviceGetMPSComputeRunningProcesses, struct gm_nvml_process_v1)
GM_ON_NVML_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, struct gm_nvml_process)
GM_ON_NVML_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, struct gm_nvml_process)

__attribute__((visibility("default"))) int
nvmlDeviceGetRunningProcessDetailList(gm_nvml_device device, struct gm_nvml_details *list)
{
    struct gm_nvml_moved moved;
    if (!gm_nvml_load_present() || gm_nvml_real.nvmlDeviceGetRunningProcessDetailList == NULL)
        return gm_nvml_missing();
    int result = gm_nvml_real.nvmlDeviceGetRunningProcessDetailList(device, list);
    if (result != GM_NVML_SUCCESS || list->version != GM_NVML_DETAILS_1 || list->details == NULL ||
        !gm_nvml_find_moved(device, &moved))
        return result; /* of another version nothing is known */
    for (unsigned int i = 0; i < list->count; i++)
        gm_nvml_move(&moved, list->details[i].pid, &list->details[i].used);
    return result;
}
