/*
 * simcuda: a libcuda.so.1 for machines without a GPU. It runs programs that use the driver API, the
 * shim and the daemon on any Linux machine. It is a faithful stand-in for the
 * calls that gpumux uses, not a CUDA emulator: what it does not know is absent, so dlsym does not
 * find it and cuGetProcAddress gives NULL. Its answers in corner cases are those of a real driver:
 * facts.txt, which the test simcuda_facts compares.
 *
 * The model
 * - Device memory is memory of the process at the same address. cuMemAlloc is an mmap with a guard
 *   page behind it. A VMM handle is a memfd, which really crosses processes; a reservation is
 *   PROT_NONE; cuMemMap puts the memfd there without access; cuMemSetAccess gives access. Work that
 *   touches an address that is not mapped, or not accessible, ends there, and its context dies of
 *   it (fault.c): work that is behind it is skipped, and calls return CUDA_ERROR_ILLEGAL_ADDRESS.
 * - Every device has a size, which all processes with the same SIMCUDA_DIR share exactly. A process
 *   that dies gives back what it had. A frame counts as long as a process holds its handle, maps
 *   it, or has its exported fd open. The last is found by looking through /proc/PID/fd of the
 *   processes that this user may look at, so an fd that is only in flight in a socket is missed;
 *   importing the frame counts it again.
 * - A stream is a thread with a queue of 1024, started at its first operation. The legacy default
 *   stream waits for, and is waited for by, the blocking streams of its context.
 * - Copies between host and device pass one of two copy engines a device. With SIMCUDA_COPY_RATE, a
 *   copy books time on its engine in pieces of 1 MiB; all processes book in the same place, so they
 *   share the rate in the order in which their pieces come. Copies within a device or the host are
 *   not throttled. Host-NUMA handles are host.
 * - As on a real driver, an asynchronous copy from pageable host memory has read it when it returns
 *   (to pageable memory: written it); cuMemsetD* and device to device copies return at once;
 *   cuMemFree waits for the context.
 * - Linear memory that is shared (cuIpc*) is a file of SIMCUDA_DIR from then on.
 * - Kernels are host functions (kernels.c). PTX text only says which of them a module has: the
 *   names behind `.entry`.
 * - A graph is replayed in the order of its recording, one node after the other.
 * - Work runs on the channels of its context (channels.c), which the kernel driver's own requests
 *   disable and enable (rm.c): it stops in the middle, stands without touching memory, and goes on
 *   (groups.c). Host functions are not stopped.
 * - Calls in a host callback return CUDA_ERROR_NOT_PERMITTED (cuStreamQuery works), calls in a
 *   forked child CUDA_ERROR_NOT_INITIALIZED (but for stream-ordered allocation, which the driver
 *   lets through), calls after exit() began CUDA_ERROR_DEINITIALIZED.
 *
 * Where it differs: a kernel that touches host memory which is not registered works here, and so
 * does a program that touches memory of the device; cuMemMap beyond a reservation is refused.
 *
 * Environment, read by the first cuInit (SIMCUDA_WITHOUT when the library is loaded); a malformed
 * value makes cuInit print a line and fail. SIZE is a number of bytes, or one with K, M or G behind
 * it (powers of 1024).
 *
 *   SIMCUDA_MEMORY=SIZE,...      of each device; the last is that of all further ones (1G)
 *   SIMCUDA_DEVICES=N            1 to 8 (1)
 *   SIMCUDA_COMPUTE_MODE=N       the attribute says that; contexts can be made all the same (0)
 *   CUDA_VISIBLE_DEVICES=N|UUID,...  those of them that this process sees, in this order (all)
 *   SIMCUDA_DIR=PATH             where processes meet that see the same devices
 *                                (/dev/shm/simcuda-UID); the uuid of a device follows from the path
 *                                and the number
 *   SIMCUDA_COPY_RATE=SIZE       a second, of each copy engine; 0 is unthrottled (0)
 *   SIMCUDA_CONTEXT_MEMORY=SIZE  that each context takes (0)
 *   SIMCUDA_LAUNCH_NS=N          least time of a kernel (0)
 *   SIMCUDA_WITHOUT=NAME,...     a driver that lacks these: symbols, or APIs in all forms
 *   SIMCUDA_NO=vmm,fd-handles,host-numa,channels
 *                                devices that cannot do this: their attributes say so, and
 *                                cuMemCreate refuses it with NOT_SUPPORTED. Without channels nobody
 *                                can stop what runs (channels.c)
 *   SIMCUDA_DISABLE_CHANNELS=CODE  the control answers with this status (0x56: not supported), or,
 *   SIMCUDA_SET_TIMESLICE=CODE   with the word ignored, that it is done, and nothing happens
 *   SIMCUDA_FAIL=API:N[+][=CODE],...
 *                                the Nth call (+: and all later) of API in this process returns
 *                                CODE, a CUresult. All forms of an API count together: cuMemAlloc
 *                                and cuMemAlloc_v2 are one. Default code: 2 (OUT_OF_MEMORY) for
 *                                cuMem* other than copies and sets, else 999 (UNKNOWN). The
 *                                code "kill" kills the process there, as SIGKILL does.
 *
 *   SIMCUDA_UNSAFE=API,...       beside a capture these are refused as cuMemAlloc is, and end it:
 *                                for what nobody knows of a real driver
 *
 *   CUDA_MPS_PIPE_DIRECTORY=DIR  the program is a client of the MPS whose control daemon listens
 * there (mps.c, mps_control.c); without one it runs as usual CUDA_INJECTION64_PATH=FILE   a library
 * whose InitializeInjection() the first cuInit calls
 *
 * This file: options, the state of the process, faults, error names.
 */
#include "common/clock.h"
#include "common/visible.h"
#include "tests/simcuda/device_file.h"
#include "tests/simcuda/sim.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct sim_options sim_options;

/* The state of the process: the first thing that every call looks at. */
enum sim_process { SIM_COLD, SIM_LIVE, SIM_FORKED, SIM_EXITING };
static _Atomic int process_state = SIM_COLD;
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static bool has_options;
static CUresult options_result;
static __thread bool is_in_callback;

#define FAULTS_MAX 32
struct sim_fault {
    char api[64];
    uint64_t nth;
    bool is_lasting, is_deadly;
    CUresult code;
    _Atomic uint64_t calls;
};
static struct sim_fault faults[FAULTS_MAX];
static _Atomic int n_faults;

uint64_t sim_now(void)
{
    return gm_now();
}

void sim_sleep_until(uint64_t ns)
{
    const struct timespec t = gm_timespec(ns);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

uint64_t sim_hash(const void *bytes, size_t n, uint64_t seed)
{
    return sim_hash_of(bytes, n, seed);
}

static void *check_memory(void *p)
{
    if (p == NULL) {
        fprintf(stderr, "simcuda: out of host memory\n");
        abort();
    }
    return p;
}

void *sim_alloc(size_t bytes)
{
    return check_memory(calloc(1, bytes));
}

void *sim_grow(void *array, size_t bytes)
{
    return check_memory(realloc(array, bytes));
}

/* ---- options ---- */

static bool parse_number(const char *text, const char **end, uint64_t *value)
{
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    char *stop;
    *value = strtoull(text, &stop, 10);
    *end = stop;
    return errno == 0;
}

static bool parse_size(const char *name, const char *text, uint64_t *value)
{
    const char *end = text;
    unsigned shift = 0;
    if (parse_number(text, &end, value)) {
        if (*end == 'K' || *end == 'M' || *end == 'G') {
            shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
            end++;
        }
        if (*end == '\0' && *value <= (UINT64_MAX >> 1) >> shift) {
            *value <<= shift;
            return true;
        }
    }
    fprintf(stderr, "simcuda: %s=%s: not a size\n", name, text);
    return false;
}

static bool read_size(const char *name, uint64_t *value)
{
    const char *text = getenv(name);
    return text == NULL || parse_size(name, text, value);
}

/* Cut the suffixes that tell the forms of one API apart. */
static void base_name(char *name)
{
    size_t n = strlen(name);
    if (n > 5 && (strcmp(name + n - 5, "_ptds") == 0 || strcmp(name + n - 5, "_ptsz") == 0))
        name[n -= 5] = '\0';
    if (n > 3 && name[n - 3] == '_' && name[n - 2] == 'v' && name[n - 1] >= '1' &&
        name[n - 1] <= '9')
        name[n - 3] = '\0';
}

static bool is_memory_api(const char *api)
{
    return strncmp(api, "cuMem", 5) == 0 && strncmp(api, "cuMemcpy", 8) != 0 &&
           strncmp(api, "cuMemset", 8) != 0;
}

static bool parse_fault(const char *text, size_t length, struct sim_fault *fault)
{
    const char *colon = memchr(text, ':', length);
    if (colon == NULL || colon == text || (size_t)(colon - text) >= sizeof fault->api)
        return false;
    memset(fault, 0, sizeof *fault);
    memcpy(fault->api, text, (size_t)(colon - text));
    base_name(fault->api);
    const char *end;
    if (!parse_number(colon + 1, &end, &fault->nth) || fault->nth == 0)
        return false;
    if (*end == '+') {
        fault->is_lasting = true;
        end++;
    }
    fault->code = is_memory_api(fault->api) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
    if (*end == '=' && strncmp(end, "=kill", 5) == 0) {
        fault->is_deadly = true;
        end += 5;
    } else if (*end == '=') {
        uint64_t code;
        if (!parse_number(end + 1, &end, &code) || code > 999)
            return false;
        fault->code = (CUresult)code;
    }
    return end == text + length && sim_proc_knows(fault->api);
}

static bool read_faults(void)
{
    const char *text = getenv("SIMCUDA_FAIL");
    if (text == NULL)
        return true;
    int n = 0;
    while (*text != '\0') {
        const size_t length = strcspn(text, ",");
        if (n == FAULTS_MAX || !parse_fault(text, length, &faults[n])) {
            fprintf(stderr, "simcuda: SIMCUDA_FAIL: %.*s: not a fault of a call that I know\n",
                    (int)length, text);
            return false;
        }
        n++;
        text += length;
        if (*text == ',')
            text++;
    }
    atomic_store(&n_faults, n);
    return true;
}

/* The APIs of SIMCUDA_UNSAFE, each with a comma before and behind it. */
static char unsafe_apis[1024];

static bool read_unsafe(void)
{
    const char *text = getenv("SIMCUDA_UNSAFE");
    char api[64];
    if (text == NULL)
        return true;
    if ((size_t)snprintf(unsafe_apis, sizeof unsafe_apis, ",%s,", text) >= sizeof unsafe_apis)
        return false;
    for (; *text != '\0'; text += *text == ',') {
        const size_t length = strcspn(text, ",");
        snprintf(api, sizeof api, "%.*s", (int)length, text);
        if (!sim_proc_knows(api)) {
            fprintf(stderr, "simcuda: SIMCUDA_UNSAFE: %s: not a call that I know\n", api);
            return false;
        }
        text += length;
    }
    return true;
}

static CUresult judge_unsafe(const char *api)
{
    char name[70];
    if (unsafe_apis[0] == '\0')
        return CUDA_SUCCESS;
    snprintf(name, sizeof name, ",%s,", api);
    return strstr(unsafe_apis, name) != NULL ? sim_capture_unsafe() : CUDA_SUCCESS;
}

static bool read_dir(void)
{
    const char *dir = getenv("SIMCUDA_DIR");
    char text[sizeof sim_options.dir];
    if (dir == NULL || *dir == '\0') {
        const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        snprintf(text, sizeof text, "%s/simcuda-%u", base, (unsigned)getuid());
        dir = text;
    }
    char real[PATH_MAX];
    if ((mkdir(dir, 0700) != 0 && errno != EEXIST) || realpath(dir, real) == NULL) {
        fprintf(stderr, "simcuda: SIMCUDA_DIR=%s: %s\n", dir, strerror(errno));
        return false;
    }
    if (strlen(real) >= sizeof sim_options.dir) {
        fprintf(stderr, "simcuda: SIMCUDA_DIR=%s: path too long\n", real);
        return false;
    }
    strcpy(sim_options.dir, real);
    sim_options.dir_hash = sim_hash(real, strlen(real), 0);
    return true;
}

static bool read_lacks(void)
{
    static const struct {
        const char *name;
        size_t offset;
    } lacks[] = {{"vmm", offsetof(struct sim_options, has_no_vmm)},
                 {"fd-handles", offsetof(struct sim_options, has_no_fds)},
                 {"host-numa", offsetof(struct sim_options, has_no_host_numa)},
                 {"channels", offsetof(struct sim_options, has_no_channels)}};
    const char *text = getenv("SIMCUDA_NO");
    while (text != NULL && *text != '\0') {
        const size_t length = strcspn(text, ",");
        bool is_known = false;
        for (size_t i = 0; i < sizeof lacks / sizeof lacks[0]; i++) {
            if (strlen(lacks[i].name) != length || strncmp(lacks[i].name, text, length) != 0)
                continue;
            *((bool *)&sim_options + lacks[i].offset) = true;
            is_known = true;
        }
        if (!is_known) {
            fprintf(stderr, "simcuda: SIMCUDA_NO=%s: not vmm, fd-handles, host-numa or channels\n",
                    text);
            return false;
        }
        text += length + (text[length] == ',');
    }
    return true;
}

/* How a control of the kernel driver is answered. */
static bool read_answer(const char *name, uint32_t *status, bool *is_idle)
{
    const char *text = getenv(name);
    char *end;
    if (text == NULL)
        return true;
    if (strcmp(text, "ignored") == 0) {
        *is_idle = true;
        return true;
    }
    errno = 0;
    const unsigned long value = strtoul(text, &end, 0);
    *status = (uint32_t)value;
    if (errno == 0 && end != text && *end == '\0' && value > 0 && value <= UINT32_MAX)
        return true;
    fprintf(stderr, "simcuda: %s=%s: neither a status nor ignored\n", name, text);
    return false;
}

/* SIMCUDA_MEMORY: one size, or one for each device; the last is that of all further ones. */
static bool read_memory(uint64_t memory[SIM_DEVICES_MAX])
{
    const char *text = getenv("SIMCUDA_MEMORY");
    char one[32];
    for (int i = 0; i < SIM_DEVICES_MAX; i++)
        memory[i] = i > 0 ? memory[i - 1] : 1ull << 30;
    for (int i = 0; text != NULL && i < SIM_DEVICES_MAX; i++) {
        const size_t length = strcspn(text, ",");
        if (length >= sizeof one)
            return false;
        memcpy(one, text, length);
        one[length] = '\0';
        if (!parse_size("SIMCUDA_MEMORY", one, &memory[i]))
            return false;
        for (int k = i + 1; k < SIM_DEVICES_MAX; k++)
            memory[k] = memory[i];
        text = text[length] == ',' ? text + length + 1 : NULL;
    }
    return true;
}

/* The device that a token of CUDA_VISIBLE_DEVICES names: a number, with whatever behind it, or the
 * begin of a UUID. -1: none. */
static int read_token(const char *token, int there)
{
    const size_t length = strcspn(token, ",");
    char *end;
    int found = -1;
    if (strncmp(token, "GPU-", 4) != 0) {
        const long number = strtol(token, &end, 10);
        return end > token && number >= 0 && number < there ? (int)number : -1;
    }
    for (int i = 0; i < there; i++) {
        uint8_t uuid[16];
        char text[GM_UUID_TEXT];
        sim_device_uuid(i, sim_options.dir_hash, uuid);
        if (strncmp(gm_uuid_format(uuid, text), token, length) == 0)
            found = found == -1 ? i : -2;
    }
    return found;
}

/* CUDA_VISIBLE_DEVICES: as with CUDA the list ends at the first token that names no device, and one
 * that names a device twice is empty. */
static void read_visible(const uint64_t memory[SIM_DEVICES_MAX])
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    const int there = sim_options.devices;
    bool is_named[SIM_DEVICES_MAX] = {false};
    if (text != NULL)
        sim_options.devices = 0;
    for (int device; text != NULL && (device = read_token(text, there)) >= 0;) {
        if (is_named[device]) {
            sim_options.devices = 0;
            break;
        }
        is_named[device] = true;
        sim_options.number[sim_options.devices++] = device;
        text = strchr(text, ',');
        text = text != NULL ? text + 1 : NULL;
    }
    for (int i = 0; getenv("CUDA_VISIBLE_DEVICES") == NULL && i < there; i++)
        sim_options.number[i] = i;
    for (int i = 0; i < sim_options.devices; i++)
        sim_options.memory[i] = memory[sim_options.number[i]];
}

static bool read_options(void)
{
    uint64_t memory[SIM_DEVICES_MAX];
    uint64_t devices = 1;
    if (!read_memory(memory) || !read_size("SIMCUDA_COPY_RATE", &sim_options.copy_rate) ||
        !read_size("SIMCUDA_CONTEXT_MEMORY", &sim_options.context_memory) ||
        !read_size("SIMCUDA_LAUNCH_NS", &sim_options.launch_ns) ||
        !read_size("SIMCUDA_DEVICES", &devices) ||
        !read_size("SIMCUDA_COMPUTE_MODE", &sim_options.compute_mode) ||
        !read_answer("SIMCUDA_DISABLE_CHANNELS", &sim_options.disable_status,
                     &sim_options.has_idle_disable) ||
        !read_answer("SIMCUDA_SET_TIMESLICE", &sim_options.timeslice_status,
                     &sim_options.has_idle_timeslice))
        return false;
    if (devices < 1 || devices > SIM_DEVICES_MAX) {
        fprintf(stderr, "simcuda: SIMCUDA_DEVICES=%s: not 1 to %d\n", getenv("SIMCUDA_DEVICES"),
                SIM_DEVICES_MAX);
        return false;
    }
    sim_options.devices = (int)devices;
    if (!read_dir()) /* UUIDs follow from it */
        return false;
    read_visible(memory);
    return read_lacks() && read_faults() && read_unsafe();
}

/* ---- the state of the process ---- */

static void on_fork_child(void)
{
    int live = SIM_LIVE;
    atomic_compare_exchange_strong(&process_state, &live, SIM_FORKED);
    sim_rm_forget();
}

static void on_exit_begins(void)
{
    int live = SIM_LIVE;
    atomic_compare_exchange_strong(&process_state, &live, SIM_EXITING);
}

bool sim_is_forked(void)
{
    return atomic_load(&process_state) == SIM_FORKED;
}

void sim_set_callback(bool is_inside)
{
    is_in_callback = is_inside;
}

static CUresult count_fault(const char *api)
{
    const int n = atomic_load_explicit(&n_faults, memory_order_acquire);
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < n; i++) {
        if (strcmp(api, faults[i].api) != 0)
            continue;
        const uint64_t call = atomic_fetch_add(&faults[i].calls, 1) + 1;
        if (call != faults[i].nth && (!faults[i].is_lasting || call < faults[i].nth))
            continue;
        if (faults[i].is_deadly)
            kill(getpid(), SIGKILL);
        result = faults[i].code;
    }
    return result;
}

CUresult sim_enter(const char *api)
{
    const int state = atomic_load_explicit(&process_state, memory_order_acquire);
    if (state == SIM_EXITING)
        return CUDA_ERROR_DEINITIALIZED;
    if (state != SIM_LIVE)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (is_in_callback && strcmp(api, "cuStreamQuery") != 0)
        return CUDA_ERROR_NOT_PERMITTED;
    sim_watch(api);
    const CUresult unsafe = judge_unsafe(api);
    if (unsafe != CUDA_SUCCESS)
        return unsafe;
    if (atomic_load_explicit(&n_faults, memory_order_relaxed) == 0)
        return CUDA_SUCCESS;
    return count_fault(api);
}

SIM_API CUresult cuInit(unsigned int flags)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const int state = atomic_load(&process_state);
    if (state == SIM_FORKED)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (state == SIM_EXITING)
        return CUDA_ERROR_DEINITIALIZED;
    if (is_in_callback)
        return CUDA_ERROR_NOT_PERMITTED;
    pthread_mutex_lock(&init_lock);
    if (!has_options) {
        has_options = true;
        options_result = read_options() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = options_result;
    if (result == CUDA_SUCCESS)
        result = count_fault("cuInit");
    if (result == CUDA_SUCCESS && atomic_load(&process_state) == SIM_COLD) {
        result = sim_mps_join();
        if (result == CUDA_SUCCESS)
            result = sim_state_open();
        if (result == CUDA_SUCCESS) {
            pthread_atfork(NULL, NULL, on_fork_child);
            atexit(on_exit_begins);
            sim_fault_open();
            sim_channels_open();
            atomic_store(&process_state, SIM_LIVE);
        }
    }
    pthread_mutex_unlock(&init_lock);
    if (result == CUDA_SUCCESS)
        sim_inject();
    return result;
}
SIM_ENTRY(cuInit);

SIM_API CUresult cuDriverGetVersion(int *version)
{
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuDriverGetVersion);

/* The 5-argument ABI, of CUDA 12: what there is none of is NULL and no error. */
SIM_API CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *status)
{
    CUdriverProcAddressQueryResult found;
    const CUresult result = sim_proc_find(symbol, pfn, version, flags, &found);
    if (result == CUDA_SUCCESS && status != NULL)
        *status = found;
    return result;
}
SIM_ENTRY(cuGetProcAddress_v2);

/* The 4-argument ABI, of CUDA 11.3: it is an error. */
SIM_API CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult found;
    const CUresult result = sim_proc_find(symbol, pfn, version, flags, &found);
    return result == CUDA_SUCCESS && *pfn == NULL ? CUDA_ERROR_NOT_FOUND : result;
}
SIM_ENTRY(cuGetProcAddress);

/* The private tables of the driver are not imitated. */
SIM_API CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    if (table == NULL || id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
SIM_ENTRY(cuGetExportTable);

/* ---- error names ---- */

struct sim_error {
    CUresult code;
    const char *name, *text;
};

#define ERROR(code, text)                                                                          \
    {                                                                                              \
        code, #code, text                                                                          \
    }
static const struct sim_error errors[] = {
    ERROR(CUDA_SUCCESS, "no error"),
    ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    ERROR(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    ERROR(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed"),
    ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    ERROR(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture"),
    ERROR(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    ERROR(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process"),
    ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
          "part or all of the requested memory range is already mapped"),
    ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
          "pointer does not correspond to a registered memory region"),
    ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          "operation not permitted when stream is capturing"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
          "operation failed due to a previous error during capture"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE,
          "operation would result in a merge of separate capture sequences"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
          "capture was not ended in the same stream as it began"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
          "dependency created on uncaptured work in another stream"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(CUDA_ERROR_CAPTURED_EVENT,
          "operation not permitted on an event last recorded in a capturing stream"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
          "attempt to terminate a thread-local capture sequence from another thread"),
    ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef ERROR

static const struct sim_error *find_error(CUresult code)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].code == code)
            return &errors[i];
    }
    return NULL;
}

SIM_API CUresult cuGetErrorString(CUresult error, const char **text)
{
    const struct sim_error *found = find_error(error);
    if (text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *text = found != NULL ? found->text : NULL;
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SIM_ENTRY(cuGetErrorString);

SIM_API CUresult cuGetErrorName(CUresult error, const char **name)
{
    const struct sim_error *found = find_error(error);
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *name = found != NULL ? found->name : NULL;
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SIM_ENTRY(cuGetErrorName);
