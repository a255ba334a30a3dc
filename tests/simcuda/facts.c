/*
 * What a driver answers in the corner cases that gpumux meets: one line each, "question: answer".
 *
 * facts.txt is what a real driver said (its head names it). The test simcuda_facts runs this
 * program on simcuda and compares, so simcuda answers as that driver did; run on another GPU, it
 * shows what changed. Answers are names of CUresult or small numbers; nothing depends on addresses,
 * sizes of the GPU or time.
 *
 * Usage: facts [SECTION...]
 *
 * Without names: all sections. A name stands for all that begin with it and a colon, too.
 */
#include "tests/simcuda/facts.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECTION_SECONDS 60

const char fact_ptx[] = ".version 7.0\n"
                        ".target sm_70\n"
                        ".address_size 64\n"
                        ".visible .entry gm_empty() { ret; }\n"
                        ".visible .entry gm_sweep(.param .u64 p, .param .u64 n) { ret; }\n"
                        ".visible .entry gm_spin_until(.param .u64 flag)\n"
                        "{\n"
                        "  .reg .u64 %a;\n"
                        "  .reg .u32 %v;\n"
                        "  .reg .pred %q;\n"
                        "  ld.param.u64 %a, [flag];\n"
                        "again:\n"
                        "  ld.volatile.u32 %v, [%a];\n"
                        "  setp.eq.u32 %q, %v, 0;\n"
                        "  @%q bra again;\n"
                        "  ret;\n"
                        "}\n";

CUdevice device;
CUcontext context;
CUmodule module;
CUfunction empty, sweep, spin_until;

const char *fact_name(CUresult result)
{
    const char *name = NULL;
    cuGetErrorName(result, &name);
    return name != NULL ? strncmp(name, "CUDA_ERROR_", 11) == 0 ? name + 11 : name + 5 : "?";
}

void fact(const char *question, CUresult result)
{
    printf("%s: %s\n", question, fact_name(result));
    fflush(stdout);
}

void fact_number(const char *question, long long number)
{
    printf("%s: %lld\n", question, number);
    fflush(stdout);
}

CUmemAllocationProp fact_prop(CUmemLocationType type, int id, unsigned handle_types)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = type;
    prop.location.id = id;
    prop.requestedHandleTypes = (CUmemAllocationHandleType)handle_types;
    return prop;
}

/* ---- looking up ---- */

static void ask_lookup(const char *question, const char *symbol, int version, cuuint64_t flags)
{
    void *pfn = &pfn;
    CUdriverProcAddressQueryResult status = 77;
    const CUresult result = cuGetProcAddress(symbol, &pfn, version, flags, &status);
    printf("%s: %s, %s, status %d\n", question, fact_name(result),
           pfn == NULL           ? "NULL"
           : pfn == (void *)&pfn ? "untouched"
                                 : "found",
           (int)status);
    fflush(stdout);
}

void facts_of_lookup(void)
{
    ask_lookup("look up what is there", "cuMemAlloc", 12000, 0);
    ask_lookup("look up with the suffix", "cuMemAlloc_v2", 12000, 0);
    ask_lookup("look up what nobody has", "cuNoSuchCall", 12000, 0);
    ask_lookup("look up too new a call for the version", "cuMemCreate", 9000, 0);
    ask_lookup("look up with a version above the driver's", "cuMemAlloc", 99000, 0);
    ask_lookup("look up with both stream flags", "cuMemAlloc", 12000, 3);
    ask_lookup("look up with an unknown flag", "cuMemAlloc", 12000, 8);
    ask_lookup("look up the empty name at version 0", "", 0, 0);
    ask_lookup("look up cuGetProcAddress 11030", "cuGetProcAddress", 11030, 0);
    void *old = NULL, *new = NULL;
    NEED(cuGetProcAddress("cuGetProcAddress", &old, 11030, 0, NULL));
    NEED(cuGetProcAddress("cuGetProcAddress", &new, 12000, 0, NULL));
    fact_number("cuGetProcAddress differs between 11030 and 12000", old != new);
    void *pfn = &pfn;
    CUresult (*call)(const char *, void **, int, cuuint64_t);
    memcpy(&call, &old, sizeof call);
    fact("4 arguments: what nobody has", call("cuNoSuchCall", &pfn, 12000, 0));
    fact("4 arguments: too new a call", call("cuMemCreate", &pfn, 9000, 0));
    fact("5 arguments without status: what nobody has",
         cuGetProcAddress("cuNoSuchCall", &pfn, 12000, 0, NULL));
}

/* ---- without a context ---- */

void facts_of_no_context(void)
{
    CUdeviceptr p;
    CUstream stream;
    CUdevice d;
    size_t a, b;
    CUcontext c;
    CUevent event;
    void *host;
    fact("no context: cuMemAlloc", cuMemAlloc(&p, 1));
    fact("no context: cuMemFree of NULL", cuMemFree(0));
    fact("no context: cuMemGetInfo", cuMemGetInfo(&a, &b));
    fact("no context: cuStreamCreate", cuStreamCreate(&stream, 0));
    fact("no context: cuEventCreate", cuEventCreate(&event, 0));
    fact("no context: cuCtxGetDevice", cuCtxGetDevice(&d));
    fact("no context: cuCtxSynchronize", cuCtxSynchronize());
    fact("no context: cuStreamSynchronize of NULL", cuStreamSynchronize(NULL));
    fact("no context: cuMemsetD8 of nothing", cuMemsetD8(0, 0, 0));
    fact("no context: cuMemHostAlloc", cuMemHostAlloc(&host, 4096, 0));
    fact("no context: cuMemFreeHost of NULL", cuMemFreeHost(NULL));
    fact("no context: cuCtxPopCurrent", cuCtxPopCurrent(&c));
    fact("no context: cuCtxSetCurrent of NULL", cuCtxSetCurrent(NULL));
    fact("no context: cuDevicePrimaryCtxRelease unretained", cuDevicePrimaryCtxRelease(device));
    fact("no context: cuModuleLoadData", cuModuleLoadData(&module, fact_ptx));
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemGenericAllocationHandle handle;
    CUresult result = cuMemCreate(&handle, 2 * MIB, &prop, 0);
    fact("no context: cuMemCreate", result);
    if (result == CUDA_SUCCESS)
        fact("no context: cuMemRelease", cuMemRelease(handle));
    result = cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0);
    fact("no context: cuMemAddressReserve", result);
    if (result == CUDA_SUCCESS)
        fact("no context: cuMemAddressFree", cuMemAddressFree(p, 2 * MIB));
}

/* ---- contexts, last: they end ---- */

void facts_of_contexts(void)
{
    unsigned flags = 99;
    int is_active = 99;
    CUcontext again, popped;
    CUdeviceptr p;
    fact("destroy the primary context", cuCtxDestroy(context));
    NEED(cuDevicePrimaryCtxRetain(&again, device));
    fact_number("retain gives the same handle", again == context);
    NEED(cuDevicePrimaryCtxRelease(device));
    NEED(cuDevicePrimaryCtxRelease(device));
    NEED(cuDevicePrimaryCtxGetState(device, &flags, &is_active));
    fact_number("active after the last release", is_active);
    fact("use of a released context: cuMemAlloc", cuMemAlloc(&p, 1));
    fact("use of a released context: cuCtxSynchronize", cuCtxSynchronize());
    fact("one release too many", cuDevicePrimaryCtxRelease(device));
    NEED(cuDevicePrimaryCtxRetain(&again, device));
    fact_number("a new life has the same handle", again == context);
    fact("use of the revived context: cuCtxSynchronize", cuCtxSynchronize());
    CUcontext own;
    NEED(cuCtxCreate(&own, NULL, 0, device));
    NEED(cuCtxGetCurrent(&popped));
    fact_number("a created context is current", popped == own);
    fact("destroy it while current", cuCtxDestroy(own));
    NEED(cuCtxGetCurrent(&popped));
    fact_number("then the one below is current", popped == again);
    fact("create a context with unknown flags", cuCtxCreate(&own, NULL, 0x1000, device));
    fact("create a context on device 99", cuCtxCreate(&own, NULL, 0, 99));
    NEED(cuDevicePrimaryCtxRelease(device));
}

/* ---- sections: each in a process of its own, so that one that dies or hangs costs no other ----
 */

static void facts_of_start(void)
{
    CUdeviceptr p;
    CUdevice d;
    int count = 0;
    fact("before cuInit: cuMemAlloc", cuMemAlloc(&p, 1));
    fact("before cuInit: cuDeviceGetCount", cuDeviceGetCount(&count));
    fact("before cuInit: cuDriverGetVersion", cuDriverGetVersion(&count));
    fact("cuInit with flags", cuInit(1));
    NEED(cuInit(0));
    fact("device 99", cuDeviceGet(&d, 99));
    fact("device -1", cuDeviceGet(&d, -1));
}

enum setup { NOTHING, INITIALIZED, CURRENT };
static const struct section {
    const char *name;
    void (*run)(void);
    enum setup setup;
} sections[] = {
    {"start", facts_of_start, NOTHING},
    {"lookup", facts_of_lookup, INITIALIZED},
    {"no context", facts_of_no_context, INITIALIZED},
    {"create", facts_of_create, CURRENT},
    {"reserve", facts_of_reserve, CURRENT},
    {"map", facts_of_map, CURRENT},
    {"sharing", facts_of_sharing, CURRENT},
    {"linear", facts_of_linear, CURRENT},
    {"host", facts_of_host, CURRENT},
    {"pointers", facts_of_pointers, CURRENT},
    {"modules", facts_of_modules, CURRENT},
    {"launches", facts_of_launches, CURRENT},
    {"streams", facts_of_streams, CURRENT},
    {"waiting", facts_of_waiting, CURRENT},
    {"blocking", facts_of_blocking, CURRENT},
    {"graphs", facts_of_graphs, CURRENT},
    {"capture", facts_of_capture, CURRENT},
    {"contexts", facts_of_contexts, CURRENT},
    {"events of a context", facts_of_context_events, CURRENT},
    {"handles", facts_of_handles, CURRENT},
    {"pools", facts_of_pools, CURRENT},
    {"pools and captures", facts_of_pools_captured, CURRENT},
    {"pools and contexts", facts_of_pools_contexts, CURRENT},
    {"pools and linear memory", facts_of_pools_linear, CURRENT},
    {"what stays the driver's", facts_of_unswappable, CURRENT},
    {"ranges of copies", facts_of_ranges, CURRENT},
    {"copies within the last page", facts_of_last_pages, CURRENT},
    {"sets that wrap around", facts_of_wrapping_sets, CURRENT},
    {"captures that are lost", facts_of_lost_captures, CURRENT},
    {"memory of another process", facts_of_ipc, NOTHING},
    {"pools beside a capture", facts_of_pools_captured_locally, CURRENT},
    {"limits of pools, and a child", facts_of_pools_limits, CURRENT},
    {"permits: global", facts_of_global_capture, CURRENT},
    {"permits: global, elsewhere", facts_of_global_capture_elsewhere, CURRENT},
    {"permits: global, elsewhere local", facts_of_global_capture_elsewhere_locally, CURRENT},
    {"permits: local", facts_of_local_capture, CURRENT},
    {"permits: local, elsewhere", facts_of_local_capture_elsewhere, CURRENT},
    {"permits: relaxed", facts_of_relaxed_capture, CURRENT},
    {"permits: relaxed thread", facts_of_relaxed_thread, CURRENT},
    {"permits: host function", facts_of_host_functions, CURRENT},
    {"permits: callback", facts_of_callbacks, CURRENT},
    {"permits: host node", facts_of_host_nodes, CURRENT},
    {"what the driver takes", facts_of_drivers_memory, CURRENT},
};

static void run_section(const struct section *section)
{
    alarm(SECTION_SECONDS);
    if (section->setup >= INITIALIZED) {
        NEED(cuInit(0));
        NEED(cuDeviceGet(&device, 0));
    }
    if (section->setup >= CURRENT) {
        NEED(cuDevicePrimaryCtxRetain(&context, device));
        NEED(cuCtxSetCurrent(context));
        NEED(cuModuleLoadData(&module, fact_ptx));
        NEED(cuModuleGetFunction(&empty, module, "gm_empty"));
        NEED(cuModuleGetFunction(&sweep, module, "gm_sweep"));
        NEED(cuModuleGetFunction(&spin_until, module, "gm_spin_until"));
    }
    section->run();
    fflush(stdout);
}

static bool is_wanted(const struct section *section, int n_names, char **names)
{
    for (int i = 0; i < n_names; i++) {
        const size_t length = strlen(names[i]);
        if (strncmp(section->name, names[i], length) == 0 &&
            (section->name[length] == '\0' || section->name[length] == ':'))
            return true;
    }
    return n_names == 0;
}

int main(int argc, char **argv)
{
    int failures = 0;
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        if (!is_wanted(&sections[i], argc - 1, argv + 1))
            continue;
        printf("== %s\n", sections[i].name);
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            run_section(&sections[i]);
            exit(0);
        }
        int status = -1;
        waitpid(child, &status, 0);
        if (status != 0) {
            printf("== died: status %d\n", status);
            failures++;
        }
    }
    return failures > 0;
}
