/*
 * The profiler's library: records what each launch of a program touches, with the public interface
 * of NVIDIA's Compute Sanitizer. The driver loads it when it starts (CUDA_INJECTION64_PATH), or it
 * is preloaded. Everything happens in the Sanitizer's callbacks:
 *
 *   a module was loaded    patch its accesses to global memory (patch.cu)
 *   a launch call begins   lay its arguments out; ask the driver what the function is
 *   the launch begins      give the patches the thread's area
 *   a graph's node begins  tell the patches that there is no area
 *   the launch was made    read the area, behind the kernel; write a record; clear the area
 *   memory comes or goes   write it down; a range that the program reserves counts as one piece
 *   a tensor map is made   note how far its tensor reaches
 *
 * So the program's launches run one after the other. An area belongs to one thread and context.
 * After RECORDED launches of a kernel only every SAMPLED-th one is recorded.
 *
 * A failure of ours is one line on standard error, and the program goes on. No lock is held across
 * a call of the driver or the Sanitizer but `patching`, which those calls need.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <sanitizer.h>

#include "common/tensors.h"
#include "shim/profiler/area.h"
#include "shim/profiler/kernels.h"
#include "shim/profiler/patch_image.h"
#include "shim/profiler/say.h"
#include "shim/profiler/writer.h"

#define RECORDED 1000u /* launches of a kernel that are all recorded; then ... */
#define SAMPLED 16u    /* ... every so manieth */
#define GAP 32u        /* free slots that are copied along rather than asked for apart */
#define CONTEXTS 8u    /* of a thread, with an area each */
#define MAPS_MOST 65536u

static struct {
#define GM_SANITIZER(name) __typeof__(&name) name;
#include "shim/profiler/sanitizer.def"
#undef GM_SANITIZER
} api;

static bool works(SanitizerResult result, const char *what)
{
    static atomic_uint said;
    if (result == SANITIZER_SUCCESS)
        return true;
    const char *why = NULL;
    if (api.sanitizerGetResultString == NULL ||
        api.sanitizerGetResultString(result, &why) != SANITIZER_SUCCESS || why == NULL)
        why = "unknown";
    if (atomic_fetch_add(&said, 1) < 20)
        gm_say("%s: %s (%d)", what, why, (int)result);
    return false;
}

/* ---- what a thread does ---- */

/* The layout of what a callback gets for each launch call: its parameters, in their order. */
struct launch_kernel {
    CUfunction f;
    unsigned int grid[3], block[3], shared;
    CUstream stream;
    void **params, **extra; /* a cooperative launch has no `extra` */
};
struct launch_kernel_ex {
    const CUlaunchConfig *config;
    CUfunction f;
    void **params, **extra;
};

struct thread {
    struct gm_function *function; /* of the launch call; NULL: none, or not known */
    uint32_t bytes;               /* of its arguments */
    unsigned char *arguments;     /* GM_ARGUMENT_BYTES */
    struct gm_area *area;         /* of the launch, on the GPU; NULL: it is not recorded */
    uint32_t dimension[6];
    struct {
        CUcontext context;
        uint32_t generation;
        struct gm_area *area;
    } areas[CONTEXTS];
    uint32_t *list;             /* GM_AREA_SLOTS */
    struct gm_area_slot *slots; /* room_slots */
    struct gm_pages *pages;     /* room_pages */
    uint32_t room_slots, room_pages, n_pages;
};

static _Thread_local struct thread self;
static atomic_uint contexts_ended;
static atomic_ullong unknown; /* launches whose arguments are not known */

/* ---- modules ---- */

static pthread_mutex_t patching = PTHREAD_MUTEX_INITIALIZER;
static CUcontext patched[256]; /* contexts that have the patches */
static uint32_t n_patched;

static void module_loaded(const Sanitizer_ResourceModuleData *data)
{
    static const struct {
        Sanitizer_InstructionId id;
        const char *patch;
        bool is_needed;
    } patches[] = {
        {SANITIZER_INSTRUCTION_GLOBAL_MEMORY_ACCESS, "gm_patch_access", true},
        {SANITIZER_INSTRUCTION_MEMCPY_ASYNC, "gm_patch_copy", true},
        {SANITIZER_INSTRUCTION_BULK_COPY_GLOBAL_TO_SHARED, "gm_patch_bulk_in", false},
        {SANITIZER_INSTRUCTION_BULK_COPY_SHARED_TO_GLOBAL, "gm_patch_bulk_out", false},
        {SANITIZER_INSTRUCTION_BULK_REDUCTION_SHARED_TO_GLOBAL, "gm_patch_bulk_reduce", false},
        {SANITIZER_INSTRUCTION_TMA_LOAD, "gm_patch_tensor", false},
        {SANITIZER_INSTRUCTION_TMA_STORE, "gm_patch_tensor", false},
    };
    gm_kernels_loaded(data->module, data->pCubin, data->cubinSize);
    pthread_mutex_lock(&patching);
    uint32_t at = 0;
    while (at < n_patched && patched[at] != data->context)
        at++;
    bool is_good = true;
    if (at == n_patched) {
        is_good = works(api.sanitizerAddPatches(gm_patch_image, data->context), "adding patches");
        if (is_good && n_patched < sizeof(patched) / sizeof(patched[0]))
            patched[n_patched++] = data->context;
    }
    for (size_t i = 0; is_good && i < sizeof(patches) / sizeof(patches[0]); i++) {
        const SanitizerResult result =
            api.sanitizerPatchInstructions(patches[i].id, data->module, patches[i].patch);
        /* What a GPU does not have cannot be patched there. */
        if (patches[i].is_needed)
            is_good = works(result, patches[i].patch);
    }
    if (is_good)
        works(api.sanitizerPatchModule(data->module), "patching a module");
    pthread_mutex_unlock(&patching);
}

static void context_ends(CUcontext context)
{
    pthread_mutex_lock(&patching);
    for (uint32_t i = 0; i < n_patched; i++)
        if (patched[i] == context)
            patched[i] = patched[--n_patched];
    pthread_mutex_unlock(&patching);
    atomic_fetch_add(&contexts_ended, 1);
}

/* ---- memory ---- */

static pthread_mutex_t reserving = PTHREAD_MUTEX_INITIALIZER;
static struct gm_pages *reserved; /* addresses, not pages: ranges that the program reserved */
static uint32_t n_reserved;

static bool is_reserved(uint64_t va)
{
    bool is_found = false;
    pthread_mutex_lock(&reserving);
    for (uint32_t i = 0; i < n_reserved && !is_found; i++)
        is_found = va >= reserved[i].from && va < reserved[i].to;
    pthread_mutex_unlock(&reserving);
    return is_found;
}

static void range_reserved(uint64_t va, uint64_t bytes)
{
    pthread_mutex_lock(&reserving);
    struct gm_pages *more = reallocarray(reserved, n_reserved + 1, sizeof(*more));
    if (more != NULL) {
        reserved = more;
        reserved[n_reserved++] = (struct gm_pages){va, va + bytes};
    }
    pthread_mutex_unlock(&reserving);
    gm_writer_alloc(va, bytes);
}

static void range_freed(uint64_t va)
{
    pthread_mutex_lock(&reserving);
    for (uint32_t i = 0; i < n_reserved; i++)
        if (reserved[i].from == va) {
            reserved[i] = reserved[--n_reserved];
            break;
        }
    pthread_mutex_unlock(&reserving);
    gm_writer_free(va);
}

static void memory_came(const Sanitizer_ResourceMemoryData *data)
{
    const uint32_t not_moved = SANITIZER_MEMORY_FLAG_MODULE | SANITIZER_MEMORY_FLAG_HOST_MAPPED |
                               SANITIZER_MEMORY_FLAG_HOST_PINNED | SANITIZER_MEMORY_FLAG_PEER |
                               SANITIZER_MEMORY_FLAG_CG_RUNTIME | SANITIZER_MEMORY_FLAG_CNP;
    if ((data->flags & not_moved) == 0 && !is_reserved(data->address))
        gm_writer_alloc(data->address, data->size);
}

static void memory_went(const Sanitizer_ResourceMemoryData *data)
{
    if (!is_reserved(data->address))
        gm_writer_free(data->address);
}

/* ---- tensor maps ---- */

/* The first parameters of cuTensorMapEncodeTiled, Im2col and Im2colWide. */
struct encode {
    CUtensorMap *map;
    CUtensorMapDataType type;
    cuuint32_t rank;
    void *address;
    const cuuint64_t *dimensions, *strides;
};
struct replace {
    CUtensorMap *map;
    void *address;
};

static struct tensor {
    CUtensorMap map;
    uint64_t from, bytes;
} * tensors;
static uint32_t n_tensors;
static pthread_mutex_t mapping = PTHREAD_MUTEX_INITIALIZER;

/* In the lock. */
static struct tensor *tensor_of(const void *map)
{
    for (uint32_t i = n_tensors; i > 0; i--)
        if (memcmp(&tensors[i - 1].map, map, sizeof(CUtensorMap)) == 0)
            return &tensors[i - 1];
    return NULL;
}

static void tensor_made(const CUtensorMap *map, uint64_t from, uint64_t bytes)
{
    pthread_mutex_lock(&mapping);
    struct tensor *tensor = tensor_of(map);
    if (tensor == NULL && n_tensors < MAPS_MOST) {
        struct tensor *more = reallocarray(tensors, n_tensors + 1, sizeof(*more));
        if (more != NULL) {
            tensors = more;
            tensor = &tensors[n_tensors++];
            tensor->map = *map;
        }
    }
    if (tensor != NULL) {
        tensor->from = from;
        tensor->bytes = bytes;
    }
    pthread_mutex_unlock(&mapping);
}

static void tensor_encoded(const struct encode *call)
{
    uint64_t bytes, dimensions[GM_TENSOR_RANK], strides[GM_TENSOR_RANK];
    for (uint32_t i = 0; i < call->rank && call->rank <= GM_TENSOR_RANK; i++) {
        dimensions[i] = call->dimensions[i];
        if (i + 1 < call->rank)
            strides[i] = call->strides[i];
    }
    if (gm_tensor_bytes(call->type, call->rank, dimensions, strides, &bytes))
        tensor_made(call->map, (uintptr_t)call->address, bytes);
}

/* Before the call the map says how large the tensor is; after it, it is another map. */
static void tensor_replaced(const struct replace *call, bool is_over)
{
    static _Thread_local uint64_t bytes;
    if (is_over) {
        if (bytes > 0)
            tensor_made(call->map, (uintptr_t)call->address, bytes);
        return;
    }
    pthread_mutex_lock(&mapping);
    const struct tensor *tensor = tensor_of(call->map);
    bytes = tensor != NULL ? tensor->bytes : 0;
    pthread_mutex_unlock(&mapping);
}

/* ---- launches ---- */

static void launch_called(CUfunction f, void **params, void **extra)
{
    if (self.arguments == NULL)
        self.arguments = malloc(GM_ARGUMENT_BYTES);
    self.function = self.arguments != NULL ? gm_kernels_find(f) : NULL;
    if (self.function != NULL)
        self.bytes = gm_kernels_arguments(self.function, params, extra, self.arguments);
}

/* Something failed: what they hold is not known. The next launch gets a new one. */
static void drop_areas(void)
{
    memset(self.areas, 0, sizeof(self.areas));
    self.area = NULL;
}

/* The thread's area in the context; a new one is cleared by the launch's stream. */
static struct gm_area *area_in(CUcontext context, Sanitizer_StreamHandle stream)
{
    const uint32_t now = atomic_load(&contexts_ended);
    uint32_t at = 0;
    while (at < CONTEXTS && self.areas[at].area != NULL &&
           (self.areas[at].context != context || self.areas[at].generation != now))
        at++;
    if (at == CONTEXTS) /* some are of contexts that ended */
        drop_areas();
    at %= CONTEXTS;
    if (self.areas[at].area == NULL) {
        void *area = NULL;
        if (!works(api.sanitizerAlloc(context, &area, sizeof(struct gm_area)), "memory") ||
            !works(api.sanitizerMemset(area, 0, sizeof(struct gm_area), stream), "clearing"))
            return NULL;
        self.areas[at].context = context;
        self.areas[at].generation = now;
        self.areas[at].area = area;
    }
    return self.areas[at].area;
}

static void launch_begins(const Sanitizer_LaunchData *data)
{
    struct gm_function *function = self.function;
    self.area = NULL;
    if (function == NULL) {
        atomic_fetch_add(&unknown, 1);
    } else {
        const uint64_t nth = __atomic_fetch_add(&function->launches, 1, __ATOMIC_RELAXED);
        if (nth < RECORDED || nth % SAMPLED == 0)
            self.area = area_in(data->context, data->hStream);
    }
    const uint32_t dimension[6] = {data->gridDim_x,  data->gridDim_y,  data->gridDim_z,
                                   data->blockDim_x, data->blockDim_y, data->blockDim_z};
    memcpy(self.dimension, dimension, sizeof(dimension));
    if (!works(api.sanitizerSetLaunchCallbackData(data->hLaunch, data->function, data->hStream,
                                                  self.area),
               "a launch"))
        drop_areas();
}

/* Nobody records a kernel of a graph: its patches must know, as they get no area by themselves. */
static void node_begins(const Sanitizer_GraphNodeLaunchData *data)
{
    const Sanitizer_LaunchData *launch = &data->launchData;
    if (data->nodeType == CU_GRAPH_NODE_TYPE_KERNEL)
        works(api.sanitizerSetLaunchCallbackData(launch->hLaunch, launch->function, launch->hStream,
                                                 NULL),
              "a launch of a graph");
}

static void add_pages(uint64_t from, uint64_t to)
{
    if (self.n_pages == self.room_pages) {
        const uint32_t room = self.room_pages > 0 ? 2 * self.room_pages : 1024;
        struct gm_pages *more = reallocarray(self.pages, room, sizeof(*more));
        if (more == NULL)
            return;
        self.pages = more;
        self.room_pages = room;
    }
    self.pages[self.n_pages++] = (struct gm_pages){from, to};
}

static void add_slot(const struct gm_area_slot *slot)
{
    const uint64_t first = (slot->key - 1) * GM_AREA_PLACE_PAGES;
    for (uint32_t i = 0; slot->key != 0 && i < GM_AREA_PLACE_PAGES; i++) {
        if ((slot->bits[i / 32] >> i % 32 & 1) == 0)
            continue;
        uint32_t to = i + 1;
        while (to < GM_AREA_PLACE_PAGES && (slot->bits[to / 32] >> to % 32 & 1) != 0)
            to++;
        add_pages(first + i, first + to);
        i = to;
    }
}

/* The tensors of the maps among the arguments: maps lie at multiples of 64. */
static void add_tensors(void)
{
    pthread_mutex_lock(&mapping);
    for (uint32_t at = 0; at + sizeof(CUtensorMap) <= self.bytes; at += 64) {
        const struct tensor *tensor = tensor_of(self.arguments + at);
        if (tensor != NULL && tensor->bytes > 0)
            add_pages(tensor->from >> GM_AREA_PAGE_SHIFT,
                      ((tensor->from + tensor->bytes - 1) >> GM_AREA_PAGE_SHIFT) + 1);
    }
    pthread_mutex_unlock(&mapping);
}

static int compare(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

static bool read_area(void *to, const void *from, size_t bytes, Sanitizer_StreamHandle stream)
{
    return works(api.sanitizerMemcpyDeviceToHost(to, (void *)(uintptr_t)from, bytes, stream),
                 "reading what a launch touched");
}

/* Read the slots of the list, and clear them. False: that failed; the area is of no use any more.
 */
static bool read_slots(struct gm_area *area, uint32_t used, Sanitizer_StreamHandle stream)
{
    qsort(self.list, used, sizeof(*self.list), compare);
    for (uint32_t i = 0; i < used;) {
        uint32_t n = i + 1;
        while (n < used && self.list[n] - self.list[n - 1] <= GAP)
            n++;
        const uint32_t first = self.list[i], count = self.list[n - 1] - first + 1;
        if (count > self.room_slots) {
            struct gm_area_slot *more = reallocarray(self.slots, count, sizeof(*more));
            if (more == NULL)
                return false;
            self.slots = more;
            self.room_slots = count;
        }
        if (!read_area(self.slots, &area->slots[first], count * sizeof(*self.slots), stream) ||
            !works(api.sanitizerMemset(&area->slots[first], 0, count * sizeof(*self.slots), stream),
                   "clearing"))
            return false;
        for (uint32_t s = 0; s < count; s++)
            add_slot(&self.slots[s]);
        i = n;
    }
    return true;
}

/* False: it failed. */
static bool harvest(const Sanitizer_LaunchData *data)
{
    uint32_t head[4]; /* as struct gm_area begins */
    struct gm_area *area = self.area;
    self.n_pages = 0;
    if (self.list == NULL)
        self.list = malloc(GM_AREA_SLOTS * sizeof(*self.list));
    /* A copy by the Sanitizer does not wait for the kernel. */
    if (!works(api.sanitizerStreamSynchronize(data->hStream), "waiting for a launch"))
        return false;
    if (self.list == NULL || !read_area(head, area, sizeof(head), data->hStream))
        return false;
    const uint32_t used = head[0] < GM_AREA_SLOTS ? head[0] : GM_AREA_SLOTS;
    if (used > 0 && (!read_area(self.list, area->list, used * sizeof(*self.list), data->hStream) ||
                     !read_slots(area, used, data->hStream)))
        return false;
    if (!works(api.sanitizerMemset(area, 0, sizeof(head), data->hStream), "clearing"))
        return false;
    if (head[1] != 0) {
        gm_say("%s touches more than fits: a launch is left out", self.function->name);
        return true;
    }
    if (head[2] != 0)
        add_tensors();
    const struct gm_written_launch launch = {
        .hash = self.function->hash,
        .registers = gm_kernels_registers(data->module, self.function->name),
        .name = self.function->name,
        .dimension = {self.dimension[0], self.dimension[1], self.dimension[2], self.dimension[3],
                      self.dimension[4], self.dimension[5]},
        .bytes = self.bytes,
        .arguments = self.arguments,
        .n = gm_writer_join(self.pages, self.n_pages),
        .pages = self.pages};
    gm_writer_launch(&launch);
    return true;
}

static void launch_ended(const Sanitizer_LaunchData *data)
{
    if (self.area != NULL && !harvest(data))
        drop_areas();
    self.area = NULL;
}

/* ---- callbacks ---- */

static void on_resource(Sanitizer_CallbackId id, const void *data)
{
    switch (id) {
    case SANITIZER_CBID_RESOURCE_MODULE_LOADED:
        module_loaded(data);
        break;
    case SANITIZER_CBID_RESOURCE_MODULE_UNLOAD_STARTING:
        gm_kernels_ended(((const Sanitizer_ResourceModuleData *)data)->module);
        break;
    case SANITIZER_CBID_RESOURCE_CONTEXT_DESTROY_STARTING:
        context_ends(((const Sanitizer_ResourceContextData *)data)->context);
        break;
    case SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_ALLOC:
    case SANITIZER_CBID_RESOURCE_MEMORY_ALLOC_ASYNC:
        memory_came(data);
        break;
    case SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_FREE:
    case SANITIZER_CBID_RESOURCE_MEMORY_FREE_ASYNC:
        memory_went(data);
        break;
    default:
        break;
    }
}

static void on_call(Sanitizer_CallbackId id, const Sanitizer_CallbackData *data)
{
    const bool is_over = data->callbackSite == SANITIZER_API_EXIT;
    const void *params = data->functionParams;
    const bool has_worked = is_over && data->functionReturnValue != NULL &&
                            *(const CUresult *)data->functionReturnValue == CUDA_SUCCESS;
    switch (id) {
    case SANITIZER_CBID_DRIVER_API_cuLaunchKernel:
    case SANITIZER_CBID_DRIVER_API_cuLaunchKernel_ptsz: {
        const struct launch_kernel *call = params;
        if (!is_over)
            launch_called(call->f, call->params, call->extra);
        break;
    }
    case SANITIZER_CBID_DRIVER_API_cuLaunchCooperativeKernel:
    case SANITIZER_CBID_DRIVER_API_cuLaunchCooperativeKernel_ptsz: {
        const struct launch_kernel *call = params;
        if (!is_over)
            launch_called(call->f, call->params, NULL);
        break;
    }
    case SANITIZER_CBID_DRIVER_API_cuLaunchKernelEx:
    case SANITIZER_CBID_DRIVER_API_cuLaunchKernelEx_ptsz: {
        const struct launch_kernel_ex *call = params;
        if (!is_over)
            launch_called(call->f, call->params, call->extra);
        break;
    }
    case SANITIZER_CBID_DRIVER_API_cuMemAddressReserve: {
        const struct {
            CUdeviceptr *va;
            size_t bytes;
        } *call = params;
        if (has_worked)
            range_reserved(*call->va, call->bytes);
        return;
    }
    case SANITIZER_CBID_DRIVER_API_cuMemAddressFree:
        if (!is_over)
            range_freed(*(const CUdeviceptr *)params);
        return;
    case SANITIZER_CBID_DRIVER_API_cuTensorMapReplaceAddress:
        if (!is_over || has_worked)
            tensor_replaced(params, is_over);
        return;
    default: /* the three that encode */
        if (has_worked)
            tensor_encoded(params);
        return;
    }
    if (is_over)
        self.function = NULL;
}

static void SANITIZERAPI on_callback(void *unused, Sanitizer_CallbackDomain domain,
                                     Sanitizer_CallbackId id, const void *data)
{
    (void)unused;
    if (domain == SANITIZER_CB_DOMAIN_RESOURCE)
        on_resource(id, data);
    else if (domain == SANITIZER_CB_DOMAIN_DRIVER_API)
        on_call(id, data);
    else if (domain == SANITIZER_CB_DOMAIN_LAUNCH && id == SANITIZER_CBID_LAUNCH_BEGIN)
        launch_begins(data);
    else if (domain == SANITIZER_CB_DOMAIN_LAUNCH && id == SANITIZER_CBID_LAUNCH_END)
        launch_ended(data);
    else if (domain == SANITIZER_CB_DOMAIN_GRAPHS)
        node_begins(data);
}

/* ---- start ---- */

static void *open_sanitizer(void)
{
    Dl_info own;
    char beside[4096] = "";
    if (dladdr((void *)(uintptr_t)open_sanitizer, &own) != 0 && own.dli_fname != NULL &&
        strrchr(own.dli_fname, '/') != NULL)
        snprintf(beside, sizeof(beside), "%.*s/libsanitizer-public.so",
                 (int)(strrchr(own.dli_fname, '/') - own.dli_fname), own.dli_fname);
    const char *const places[] = {getenv("GPUMUX_SANITIZER"), beside, GM_SANITIZER_LIBRARY,
                                  "libsanitizer-public.so",
                                  "/usr/local/cuda/compute-sanitizer/libsanitizer-public.so"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        void *library = places[i] != NULL && places[i][0] != '\0'
                            ? dlopen(places[i], RTLD_NOW | RTLD_LOCAL)
                            : NULL;
        if (library != NULL)
            return library;
    }
    gm_say("there is no libsanitizer-public.so: install NVIDIA's Compute Sanitizer (from PyPI: "
           "nvidia-cuda-sanitizer-api), or name it in GPUMUX_SANITIZER");
    return NULL;
}

static void tell(void)
{
    if (atomic_load(&unknown) > 0)
        gm_say("%llu launches are left out: their arguments are not known", atomic_load(&unknown));
}

static bool start(void)
{
    static const Sanitizer_CallbackId calls[] = {
        SANITIZER_CBID_DRIVER_API_cuLaunchKernel,
        SANITIZER_CBID_DRIVER_API_cuLaunchKernel_ptsz,
        SANITIZER_CBID_DRIVER_API_cuLaunchKernelEx,
        SANITIZER_CBID_DRIVER_API_cuLaunchKernelEx_ptsz,
        SANITIZER_CBID_DRIVER_API_cuLaunchCooperativeKernel,
        SANITIZER_CBID_DRIVER_API_cuLaunchCooperativeKernel_ptsz,
        SANITIZER_CBID_DRIVER_API_cuMemAddressReserve,
        SANITIZER_CBID_DRIVER_API_cuMemAddressFree,
        SANITIZER_CBID_DRIVER_API_cuTensorMapEncodeTiled,
        SANITIZER_CBID_DRIVER_API_cuTensorMapEncodeIm2col,
        SANITIZER_CBID_DRIVER_API_cuTensorMapEncodeIm2colWide,
        SANITIZER_CBID_DRIVER_API_cuTensorMapReplaceAddress,
    };
    Sanitizer_SubscriberHandle subscriber;
    void *library = open_sanitizer();
    if (library == NULL)
        return false;
#define GM_SANITIZER(name)                                                                         \
    api.name = (__typeof__(api.name))dlsym(library, #name);                                        \
    if (api.name == NULL) {                                                                        \
        gm_say("libsanitizer-public.so lacks " #name);                                             \
        return false;                                                                              \
    }
#include "shim/profiler/sanitizer.def"
#undef GM_SANITIZER
    if (!gm_kernels_start()) {
        gm_say("there is no CUDA driver of version 12.4 or newer");
        return false;
    }
    if (!works(api.sanitizerSubscribe(&subscriber, on_callback, NULL), "starting") ||
        !works(api.sanitizerEnableDomain(1, subscriber, SANITIZER_CB_DOMAIN_RESOURCE),
               "resources") ||
        !works(api.sanitizerEnableDomain(1, subscriber, SANITIZER_CB_DOMAIN_LAUNCH), "launches") ||
        !works(api.sanitizerEnableCallback(1, subscriber, SANITIZER_CB_DOMAIN_GRAPHS,
                                           SANITIZER_CBID_GRAPHS_NODE_LAUNCH_BEGIN),
               "launches of graphs"))
        return false;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        works(api.sanitizerEnableCallback(1, subscriber, SANITIZER_CB_DOMAIN_DRIVER_API, calls[i]),
              "a call");
    atexit(tell);
    return true;
}

static void start_once(void)
{
    start();
}

/* The driver calls it when CUDA_INJECTION64_PATH names this library. */
int InitializeInjection(void);

__attribute__((visibility("default"), constructor)) int InitializeInjection(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_once);
    return 1;
}
