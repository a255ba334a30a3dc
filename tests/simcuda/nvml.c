/*
 * A libnvidia-ml.so.1 for machines without one: the few calls by which a program learns how much
 * memory its GPUs have, who uses them, and what crosses their links. It tells the truth about
 * simcuda's devices, with what all processes have taken, and knows nothing of gpumux. It needs no
 * libcuda. Devices are those of SIMCUDA_DIR, SIMCUDA_MEMORY and SIMCUDA_DEVICES, as simcuda.c says.
 *
 * What crosses the link: copies between host and device, and what kernels touch of host memory. A
 * simulated link is slow: SIMCUDA_LINK_FACTOR=N says how many times as fast the counters are (1). A
 * test adds to them with the file link0 (link1, ...) of SIMCUDA_DIR: kilobytes a second, in and
 * out. SIMCUDA_NO_COUNTERS=1: there are none, or none any more once the file no-counters is there.
 * While the file nvml-hangs is there its start and its list of processes do not return.
 *
 * Written for its users: what the real one does beyond that (units of other structures,
 * permissions) is not imitated. Results are NVML's numbers.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/size.h"
#include "tests/simcuda/device_file.h"

#define NVML_API __attribute__((visibility("default")))
#define DEVICES_MAX 8
#define RESERVED                                                                                   \
    (16ull << 20) /* what the system keeps for itself: part of `used` in the old form */
#define VERSION_2 (40u | 2u << 24)

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    TOO_SMALL = 7,
    UNKNOWN = 999,
    VERSION_MISMATCH = 25
};

struct device {
    int ordinal;
};
static struct device devices[DEVICES_MAX];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned inits;
static unsigned n_devices;
static uint64_t memory[DEVICES_MAX];
static uint64_t dir_hash;
static char dir[PATH_MAX];

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};

struct process_v1 {
    unsigned int pid;
    unsigned long long used;
};

struct process {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
};
#define NO_INSTANCE 0xffffffffu

struct detail {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
    unsigned long long protected_bytes;
};

struct details {
    unsigned int version, mode, count;
    struct detail *details;
};
#define DETAILS_1 (24u | 1u << 24)
#define MOST_PROCESSES 256

int nvmlInit_v2(void);
int nvmlInitWithFlags(unsigned int flags);
int nvmlDeviceGetRunningProcessDetailList(struct device *device, struct details *details);
int nvmlDeviceGetMPSComputeRunningProcesses(struct device *device, unsigned int *count,
                                            struct process_v1 *infos);
int nvmlDeviceGetMPSComputeRunningProcesses_v2(struct device *device, unsigned int *count,
                                               struct process *infos);
int nvmlDeviceGetMPSComputeRunningProcesses_v3(struct device *device, unsigned int *count,
                                               struct process *infos);
int nvmlDeviceGetComputeRunningProcesses(struct device *device, unsigned int *count,
                                         struct process_v1 *infos);
int nvmlDeviceGetComputeRunningProcesses_v2(struct device *device, unsigned int *count,
                                            struct process *infos);
int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned int *count,
                                            struct process *infos);
int nvmlShutdown(void);
const char *nvmlErrorString(int result);
int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **device);
int nvmlDeviceGetPcieThroughput(struct device *device, int counter, unsigned int *value);
struct field {
    unsigned int id, scope;
    long long at, latency;
    int type, result;
    union {
        unsigned int of_uint;
        unsigned long long of_any;
    } value;
};
int nvmlDeviceGetFieldValues(struct device *device, int n, struct field *fields);
int nvmlDeviceGetCount_v2(unsigned int *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct device **device);
int nvmlDeviceGetUUID(struct device *device, char *uuid, unsigned int length);
int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *info);
int nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *info);

/* SIMCUDA_MEMORY, as simcuda.c reads it. */
static bool read_memory(const char *text)
{
    char one[32];
    for (int i = 0; i < DEVICES_MAX; i++) {
        memory[i] = i > 0 ? memory[i - 1] : 1ull << 30;
        if (text == NULL)
            continue;
        const size_t length = strcspn(text, ",");
        snprintf(one, sizeof one, "%.*s", (int)length, text);
        if (gm_parse_size(one, &memory[i]) != 0)
            return false;
        text = text[length] == ',' ? text + length + 1 : NULL;
    }
    return true;
}

static bool read_options(void)
{
    const char *where = getenv("SIMCUDA_DIR");
    const char *size = getenv("SIMCUDA_MEMORY"), *count = getenv("SIMCUDA_DEVICES");
    char own[64];
    snprintf(own, sizeof own, "%s/simcuda-%u", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
             (unsigned)getuid());
    n_devices = count != NULL ? (unsigned)strtoul(count, NULL, 10) : 1;
    if (!read_memory(size) || n_devices < 1 || n_devices > DEVICES_MAX ||
        realpath(where != NULL && *where ? where : own, dir) == NULL)
        return false;
    dir_hash = sim_hash_of(dir, strlen(dir), 0);
    for (int i = 0; i < DEVICES_MAX; i++)
        devices[i].ordinal = i;
    return true;
}

static void hang(void)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/nvml-hangs", dir);
    while (access(path, F_OK) == 0)
        usleep(100000);
}

NVML_API int nvmlInit_v2(void)
{
    pthread_mutex_lock(&lock);
    const bool is_on = inits > 0 || read_options();
    inits += is_on;
    pthread_mutex_unlock(&lock);
    hang();
    return is_on ? SUCCESS : UNKNOWN;
}

NVML_API int nvmlInitWithFlags(unsigned int flags)
{
    (void)flags; /* GPUs that are not there are none here, and all attach */
    return nvmlInit_v2();
}

NVML_API int nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    const bool was_on = inits > 0;
    inits -= was_on;
    pthread_mutex_unlock(&lock);
    return was_on ? SUCCESS : UNINITIALIZED;
}

static bool is_on(void)
{
    pthread_mutex_lock(&lock);
    const bool is = inits > 0;
    pthread_mutex_unlock(&lock);
    return is;
}

static int check(const struct device *device, const void *out)
{
    if (!is_on())
        return UNINITIALIZED;
    return out != NULL && device >= devices && device < devices + n_devices ? SUCCESS
                                                                            : INVALID_ARGUMENT;
}

NVML_API int nvmlDeviceGetCount_v2(unsigned int *count)
{
    if (!is_on())
        return UNINITIALIZED;
    if (count == NULL)
        return INVALID_ARGUMENT;
    *count = n_devices;
    return SUCCESS;
}

NVML_API int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct device **device)
{
    if (!is_on())
        return UNINITIALIZED;
    if (device == NULL || index >= n_devices)
        return INVALID_ARGUMENT;
    *device = &devices[index];
    return SUCCESS;
}

NVML_API int nvmlDeviceGetUUID(struct device *device, char *text, unsigned int length)
{
    unsigned char uuid[16];
    const int result = check(device, text);
    if (result != SUCCESS)
        return result;
    if (length < 41)
        return TOO_SMALL;
    sim_device_uuid(device->ordinal, dir_hash, uuid);
    text += sprintf(text, "GPU");
    for (int i = 0; i < 16; i++)
        text += sprintf(text, "%s%02x", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        uuid[i]);
    return SUCCESS;
}

NVML_API const char *nvmlErrorString(int result)
{
    return result == NOT_SUPPORTED ? "Not Supported" : result == SUCCESS ? "Success" : "Error";
}

NVML_API int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **device)
{
    char text[48];
    if (!is_on())
        return UNINITIALIZED;
    if (uuid == NULL || device == NULL)
        return INVALID_ARGUMENT;
    for (unsigned i = 0; i < n_devices; i++) {
        *device = &devices[i];
        if (nvmlDeviceGetUUID(*device, text, sizeof text) == SUCCESS && strcmp(uuid, text) == 0)
            return SUCCESS;
    }
    return NOT_FOUND;
}

/* All zero while nobody used the device yet. The file stays open: simcuda has locks on it in this
 * process, and a close would drop them. */
static struct sim_state_head read_head(const struct device *device)
{
    static int files[DEVICES_MAX]; /* 0: not open */
    char path[PATH_MAX + 32];
    struct sim_state_head head;
    snprintf(path, sizeof path, SIM_DEVICE_FILE, dir, device->ordinal);
    pthread_mutex_lock(&lock);
    int *file = &files[device->ordinal];
    if (*file <= 0)
        *file = open(path, O_RDONLY | O_CLOEXEC);
    const int fd = *file;
    pthread_mutex_unlock(&lock);
    const bool is_read = fd > 0 && pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head;
    if (!is_read || head.magic != SIM_STATE_MAGIC)
        memset(&head, 0, sizeof head);
    return head;
}

/* What all processes have taken. */
static uint64_t taken(const struct device *device)
{
    return read_head(device).used;
}

NVML_API int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *info)
{
    const int result = check(device, info);
    if (result != SUCCESS)
        return result;
    const uint64_t used = taken(device);
    info->total = memory[device->ordinal] + RESERVED;
    info->used = used + RESERVED;
    info->free = memory[device->ordinal] - used;
    return SUCCESS;
}

NVML_API int nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *info)
{
    const int result = check(device, info);
    if (result != SUCCESS)
        return result;
    if (info->version != VERSION_2)
        return VERSION_MISMATCH;
    const uint64_t used = taken(device);
    info->total = memory[device->ordinal] + RESERVED;
    info->reserved = RESERVED;
    info->used = used;
    info->free = memory[device->ordinal] - used;
    return SUCCESS;
}

/* Memory counts for who made it, wherever it is mapped, as on a GPU. */
static int list(const struct device *device, unsigned int *count, struct process *infos,
                struct process_v1 *old)
{
    const int result = check(device, count);
    if (result != SUCCESS)
        return result;
    hang();
    const struct sim_state_head head = read_head(device);
    const unsigned room = infos != NULL || old != NULL ? *count : 0;
    unsigned n = 0;
    for (unsigned i = 0; i < SIM_STATE_SLOTS; i++) {
        const struct sim_state_slot *slot = &head.slot[i];
        if (slot->is_used == 0 || (kill((pid_t)slot->pid, 0) != 0 && errno == ESRCH))
            continue;
        const uint64_t used = slot->bytes + slot->made;
        if (n < room && infos != NULL)
            infos[n] = (struct process){slot->pid, used, NO_INSTANCE, NO_INSTANCE};
        else if (n < room)
            old[n] = (struct process_v1){slot->pid, used};
        n++;
    }
    *count = n;
    return n <= room ? SUCCESS : TOO_SMALL;
}

NVML_API int nvmlDeviceGetComputeRunningProcesses(struct device *device, unsigned int *count,
                                                  struct process_v1 *infos)
{
    return list(device, count, NULL, infos);
}

NVML_API int nvmlDeviceGetComputeRunningProcesses_v2(struct device *device, unsigned int *count,
                                                     struct process *infos)
{
    return list(device, count, infos, NULL);
}

NVML_API int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned int *count,
                                                     struct process *infos)
{
    return list(device, count, infos, NULL);
}

/* Nobody draws, and who shares by MPS is not told. */
NVML_API int nvmlDeviceGetRunningProcessDetailList(struct device *device, struct details *details)
{
    struct process infos[MOST_PROCESSES];
    unsigned n = MOST_PROCESSES;
    if (details == NULL)
        return INVALID_ARGUMENT;
    if (details->version != DETAILS_1)
        return VERSION_MISMATCH;
    const int result = list(device, &n, infos, NULL);
    if (result != SUCCESS)
        return result;
    n = details->mode == 0 ? n : 0;
    const unsigned room = details->details != NULL ? details->count : 0;
    for (unsigned i = 0; i < n && i < room; i++)
        details->details[i] =
            (struct detail){infos[i].pid, infos[i].used, NO_INSTANCE, NO_INSTANCE, 0};
    details->count = n;
    return n <= room ? SUCCESS : TOO_SMALL;
}

static int nobody(const struct device *device, unsigned int *count)
{
    const int result = check(device, count);
    if (result == SUCCESS)
        *count = 0;
    return result;
}

NVML_API int nvmlDeviceGetMPSComputeRunningProcesses(struct device *device, unsigned int *count,
                                                     struct process_v1 *infos)
{
    (void)infos;
    return nobody(device, count);
}

NVML_API int nvmlDeviceGetMPSComputeRunningProcesses_v2(struct device *device, unsigned int *count,
                                                        struct process *infos)
{
    (void)infos;
    return nobody(device, count);
}

NVML_API int nvmlDeviceGetMPSComputeRunningProcesses_v3(struct device *device, unsigned int *count,
                                                        struct process *infos)
{
    (void)infos;
    return nobody(device, count);
}

/* ---- what crosses the link ---- */

/* What a test says, in kilobytes a second. */
static uint64_t planted(const struct device *device, int counter)
{
    char path[PATH_MAX + 32];
    unsigned long long in = 0, out = 0;
    snprintf(path, sizeof path, "%s/link%d", dir, device->ordinal);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    const bool is_read = fscanf(file, "%llu %llu", &in, &out) == 2;
    fclose(file);
    return !is_read ? 0 : counter == 1 ? in : out;
}

/* By copies and kernels, since the start. */
static uint64_t crossed(const struct device *device, int counter)
{
    char path[PATH_MAX + 32];
    uint64_t bytes[2] = {0};
    snprintf(path, sizeof path, SIM_LINK_FILE, dir, device->ordinal);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && pread(fd, bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        bytes[0] = bytes[1] = 0;
    if (fd >= 0)
        close(fd);
    return bytes[1 - counter];
}

static bool has_counters(void)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/no-counters", dir);
    return getenv("SIMCUDA_NO_COUNTERS") == NULL && access(path, F_OK) != 0;
}

/* As the real one: a look at a counter, and another 20 ms later. 0: what the GPU sends, 1: what it
 * receives. */
NVML_API int nvmlDeviceGetPcieThroughput(struct device *device, int counter, unsigned int *value)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    const char *text = getenv("SIMCUDA_LINK_FACTOR");
    const uint64_t factor = text != NULL ? strtoul(text, NULL, 10) : 1;
    const int result = check(device, value);
    if (result != SUCCESS || counter < 0 || counter > 1)
        return result != SUCCESS ? result : INVALID_ARGUMENT;
    if (!has_counters())
        return NOT_SUPPORTED;
    const uint64_t before = crossed(device, counter);
    nanosleep(&pause, NULL);
    const uint64_t bytes = crossed(device, counter) - before;
    *value = (unsigned int)(bytes * factor / 20 + planted(device, counter));
    return SUCCESS;
}

/* All bytes since the start, in 32 bits, as the real one has them: of copies and kernels, and of
 * what a test says since it was first asked. */
static unsigned int counted(const struct device *device, int counter)
{
    static struct {
        uint64_t at, bytes;
    } said[DEVICES_MAX][2];
    const char *text = getenv("SIMCUDA_LINK_FACTOR");
    const uint64_t factor = text != NULL ? strtoul(text, NULL, 10) : 1;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const uint64_t now = (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
    const uint64_t from = said[device->ordinal][counter].at;
    said[device->ordinal][counter].bytes +=
        from == 0 ? 0 : planted(device, counter) * (now - from) / 1000;
    said[device->ordinal][counter].at = now;
    return (unsigned int)(crossed(device, counter) * factor + said[device->ordinal][counter].bytes);
}

static bool has_bytes(void)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/no-bytes", dir);
    return getenv("SIMCUDA_NO_BYTES") == NULL && access(path, F_OK) != 0 && has_counters();
}

/* 197: what the GPU sends, 198: what it receives. It knows no others. */
NVML_API int nvmlDeviceGetFieldValues(struct device *device, int n, struct field *fields)
{
    const int result = check(device, fields);
    for (int i = 0; i < n && result == SUCCESS; i++) {
        const bool is_known = (fields[i].id == 197 || fields[i].id == 198) && has_bytes();
        fields[i].result = is_known ? SUCCESS : NOT_SUPPORTED;
        fields[i].type = 1;
        fields[i].value.of_any = 0;
        if (is_known)
            fields[i].value.of_uint = counted(device, (int)fields[i].id - 197);
    }
    return result;
}
