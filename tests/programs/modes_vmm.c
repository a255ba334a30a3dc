/*
 * gm_worker's modes about the program's own virtual memory management: vmm, mappers, sharers,
 * exports, vmmoom. See worker.h. They do what PyTorch's expandable segments, memory pools that put
 * vLLM to sleep, and kvcached do: grow a range by one handle after the other, map one handle at
 * many addresses, take everything out of one range and put it into another, release handles that
 * stay mapped. Data must stay with its handle, and wrong calls must be answered as the driver
 * answers them.
 */
#include "tests/programs/worker.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

#define GM_PAGE (2ull << 20) /* granularity */
#define GM_HANDLES_MAX 128u
#define GM_ALIASES 6u

/* A range that grows by handles, which hold one pattern together. */
struct gm_segment {
    CUdeviceptr base;
    uint64_t room;
    uint32_t n;
    CUmemGenericAllocationHandle handle[GM_HANDLES_MAX];
    uint64_t bytes[GM_HANDLES_MAX];
    bool is_released; /* all of them: the mappings keep them */
    bool is_shared;   /* they may be exported, and the first one is, now and then */
    struct gm_buffer buffer;
    struct gm_counter counter;
    CUstream stream;
    uint64_t random;
};

static CUmemAllocationProp properties(const struct gm_worker *worker)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = worker->device;
    return prop;
}

static void expect(const struct gm_worker *worker, CUresult got, CUresult expected,
                   const char *what)
{
    if (got != expected)
        gm_fail(worker, "%s: %d, expected %d", what, (int)got, (int)expected);
}

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random = gm_mix(*random, 1);
    return (*random >> 20) % below;
}

static void allow(const struct gm_worker *worker, CUdeviceptr at, uint64_t bytes,
                  CUmemAccess_flags flags)
{
    CUmemAccessDesc desc = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker->device},
        .flags = flags,
    };
    GM_CU(worker, cuMemSetAccess, at, bytes, &desc, 1);
}

/* Create and map one more handle, at the end. */
static void grow(const struct gm_worker *worker, struct gm_segment *segment, uint64_t bytes)
{
    CUmemAllocationProp prop = properties(worker);
    uint32_t i = segment->n++;
    if (segment->is_shared) { /* as PyTorch's expandable segments ask for it */
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        prop.allocFlags.gpuDirectRDMACapable = 1;
    }
    CUdeviceptr at = segment->base + segment->buffer.bytes;
    segment->bytes[i] = bytes;
    GM_CU(worker, cuMemCreate, &segment->handle[i], bytes, &prop, 0);
    GM_CU(worker, cuMemMap, at, bytes, 0, segment->handle[i], 0);
    allow(worker, at, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    segment->buffer.bytes += bytes;
}

static void fill(const struct gm_worker *worker, struct gm_segment *segment)
{
    CUdeviceptr at = segment->base;
    uint64_t words = segment->buffer.bytes / 8, seed = segment->buffer.seed;
    void *args[] = {&at, &words, &seed};
    gm_launch(worker, GM_KERNEL_FILL, segment->stream, args);
}

static void segment_make(const struct gm_worker *worker, struct gm_segment *segment, uint64_t bytes,
                         uint64_t seed)
{
    *segment = (struct gm_segment){.room = 2 * (bytes / GM_PAGE) * GM_PAGE,
                                   .random = seed,
                                   .is_shared = strcmp(worker->mode, "sharers") == 0 ||
                                                strcmp(worker->mode, "exports") == 0};
    GM_CU(worker, cuStreamCreate, &segment->stream, 0);
    gm_counter_make(worker, &segment->counter);
    GM_CU(worker, cuMemAddressReserve, &segment->base, segment->room, 0, 0, 0);
    segment->buffer = (struct gm_buffer){.at = segment->base, .seed = seed};
    while (segment->buffer.bytes + GM_PAGE <= bytes && segment->n < GM_HANDLES_MAX) {
        uint64_t left = (bytes - segment->buffer.bytes) / GM_PAGE;
        uint64_t pages = 1 + draw(&segment->random, 19);
        grow(worker, segment, (pages < left ? pages : left) * GM_PAGE);
    }
    fill(worker, segment);
}

static void segment_turn(const struct gm_worker *worker, struct gm_segment *segment)
{
    segment->buffer.at = segment->base;
    gm_buffer_turn(worker, &segment->buffer, &segment->counter, segment->stream);
}

/* A reference to every handle again: from its mapping, if they were released. */
static void hold(const struct gm_worker *worker, struct gm_segment *segment)
{
    CUdeviceptr at = segment->base;
    for (uint32_t i = 0; segment->is_released && i < segment->n; at += segment->bytes[i++])
        GM_CU(worker, cuMemRetainAllocationHandle, &segment->handle[i],
              (void *)(uintptr_t)(at + segment->bytes[i] / 2));
    segment->is_released = false;
}

static void let_go(const struct gm_worker *worker, struct gm_segment *segment)
{
    for (uint32_t i = 0; !segment->is_released && i < segment->n; i++)
        GM_CU(worker, cuMemRelease, segment->handle[i]);
    segment->is_released = true;
}

/* All mappings go, and come back in another range: the data stays with the handles. */
static void segment_move(const struct gm_worker *worker, struct gm_segment *segment)
{
    CUdeviceptr to, at;
    hold(worker, segment);
    GM_CU(worker, cuStreamSynchronize, segment->stream);
    GM_CU(worker, cuMemAddressReserve, &to, segment->room, 0, 0, 0);
    GM_CU(worker, cuMemUnmap, segment->base, segment->buffer.bytes);
    GM_CU(worker, cuMemAddressFree, segment->base, segment->room);
    at = to;
    for (uint32_t i = 0; i < segment->n; at += segment->bytes[i++])
        GM_CU(worker, cuMemMap, at, segment->bytes[i], 0, segment->handle[i], 0);
    allow(worker, to, segment->buffer.bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    segment->base = to;
}

/* The first handle at other addresses beside its own, seen from each. */
static void segment_alias(const struct gm_worker *worker, struct gm_segment *segment)
{
    const uint64_t bytes = segment->bytes[0];
    CUdeviceptr range;
    hold(worker, segment);
    GM_CU(worker, cuMemAddressReserve, &range, GM_ALIASES * bytes, 0, 0, 0);
    for (uint32_t i = 0; i < GM_ALIASES; i++)
        GM_CU(worker, cuMemMap, range + i * bytes, bytes, 0, segment->handle[0], 0);
    allow(worker, range, GM_ALIASES * bytes, CU_MEM_ACCESS_FLAGS_PROT_READ);
    for (uint32_t i = 0; i < GM_ALIASES; i++) {
        struct gm_buffer part = segment->buffer;
        part.at = range + i * bytes;
        part.bytes = bytes;
        gm_buffer_verify(worker, &part, &segment->counter, segment->stream);
    }
    /* Written at one address, read at the others. */
    allow(worker, range, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    struct gm_buffer first = segment->buffer, last;
    first.at = range;
    first.bytes = bytes;
    gm_buffer_turn(worker, &first, &segment->counter, segment->stream);
    last = first;
    last.at = range + (GM_ALIASES - 1) * bytes;
    gm_buffer_verify(worker, &last, &segment->counter, segment->stream);
    /* Back to the pattern of the whole. */
    uint64_t words = bytes / 8;
    void *args[] = {&segment->base, &words, &segment->buffer.seed};
    gm_launch(worker, GM_KERNEL_FILL, segment->stream, args);
    GM_CU(worker, cuStreamSynchronize, segment->stream);
    GM_CU(worker, cuMemUnmap, range, GM_ALIASES * bytes);
    GM_CU(worker, cuMemAddressFree, range, GM_ALIASES * bytes);
}

/* The last handle goes, and a new one comes in its place. */
static void segment_renew(const struct gm_worker *worker, struct gm_segment *segment)
{
    uint32_t i = segment->n - 1;
    uint64_t bytes = segment->bytes[i];
    hold(worker, segment);
    GM_CU(worker, cuStreamSynchronize, segment->stream);
    CUdeviceptr at = segment->base + segment->buffer.bytes - bytes;
    if (draw(&segment->random, 2) == 0) {
        GM_CU(worker, cuMemRelease, segment->handle[i]);
        GM_CU(worker, cuMemUnmap, at, bytes);
    } else {
        GM_CU(worker, cuMemUnmap, at, bytes);
        GM_CU(worker, cuMemRelease, segment->handle[i]);
    }
    segment->n--;
    segment->buffer.bytes -= bytes;
    grow(worker, segment, bytes);
    fill(worker, segment);
}

/* Wrong calls, and questions. None of them changes anything. */
static void segment_ask(const struct gm_worker *worker, struct gm_segment *segment)
{
    const CUresult bad = CUDA_ERROR_INVALID_VALUE;
    const struct gm_driver *cu = &worker->cu;
    const CUdeviceptr base = segment->base;
    const uint64_t bytes = segment->bytes[0], all = segment->buffer.bytes;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, worker->device};
    CUmemAccessDesc desc = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle, stale;
    CUmemAllocationProp prop;
    unsigned long long flags = 99;
    CUdeviceptr from = 0;
    size_t size = 0;
    int fd = -1;

    hold(worker, segment);
    handle = segment->handle[0];
    GM_CU(worker, cuMemGetAddressRange, &from, &size, base + bytes - 1);
    if (from != base || size != bytes)
        gm_fail(worker, "the address range of a mapping is wrong");
    GM_CU(worker, cuMemGetAccess, &flags, &here, base + bytes / 2);
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        gm_fail(worker, "access is %llu", flags);
    GM_CU(worker, cuMemGetAllocationPropertiesFromHandle, &prop, handle);
    if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop.location.id != worker->device ||
        prop.requestedHandleTypes != (segment->is_shared ? 1u : 0u))
        gm_fail(worker, "the properties of a handle are wrong");
    GM_CU(worker, cuMemRetainAllocationHandle, &stale, (void *)(uintptr_t)base);
    GM_CU(worker, cuMemRelease, stale);

    expect(worker, cu->cuMemFree(base), bad, "cuMemFree of a mapping");
    expect(worker, cu->cuMemAddressFree(base, segment->room), bad, "freeing a range in use");
    expect(worker, cu->cuMemMap(base, bytes, 0, handle, 0), bad, "mapping over a mapping");
    expect(worker, cu->cuMemMap(base + all, bytes + GM_PAGE, 0, handle, 0),
           CUDA_ERROR_NOT_SUPPORTED, "mapping more than a handle");
    expect(worker, cu->cuMemMap((CUdeviceptr)1 << 45, bytes, 0, handle, 0), bad,
           "mapping where nothing is reserved");
    expect(worker, cu->cuMemMap(base + all + 4096, bytes, 0, handle, 0), bad, "misaligned map");
    expect(worker, cu->cuMemUnmap(base, bytes - GM_PAGE / 2), bad, "misaligned unmap");
    expect(worker, cu->cuMemSetAccess(base, all + GM_PAGE, &desc, 1), bad, "access over a hole");
    expect(worker, cu->cuMemSetAccess(base, all, &desc, 0), bad, "access for nobody");
    if (bytes > GM_PAGE) {
        expect(worker, cu->cuMemUnmap(base, GM_PAGE), bad, "unmapping a part");
        expect(worker, cu->cuMemSetAccess(base, GM_PAGE, &desc, 1), bad, "access to a part");
    }
    expect(worker, cu->cuMemUnmap(base + all, segment->room - all), CUDA_SUCCESS,
           "unmapping nothing");
    if (!segment->is_shared)
        expect(worker,
               cu->cuMemExportToShareableHandle(&fd, handle,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
               bad, "export without having asked");
    expect(worker, cu->cuMemRetainAllocationHandle(&stale, (void *)(uintptr_t)(base + all)), bad,
           "the handle of nothing");

    /* A handle that is gone stays gone. */
    prop = properties(worker);
    GM_CU(worker, cuMemCreate, &stale, GM_PAGE, &prop, 0);
    GM_CU(worker, cuMemRelease, stale);
    expect(worker, cu->cuMemRelease(stale), bad, "releasing twice");
    expect(worker, cu->cuMemMap(base + all, GM_PAGE, 0, stale, 0), bad, "mapping what is gone");
    expect(worker, cu->cuMemGetAllocationPropertiesFromHandle(&prop, stale), bad,
           "properties of what is gone");
}

/* The first handle leaves the program, while kernels work on it, and comes back as an import: the
 * same memory, whoever writes to it. */
static void segment_share(const struct gm_worker *worker, struct gm_segment *segment)
{
    const uint64_t bytes = segment->bytes[0];
    CUmemGenericAllocationHandle import;
    struct gm_buffer theirs;
    CUdeviceptr at;
    int fd = -1;
    hold(worker, segment);
    segment_turn(worker, segment);
    GM_CU(worker, cuMemExportToShareableHandle, &fd, segment->handle[0],
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    GM_CU(worker, cuMemImportFromShareableHandle, &import, (void *)(intptr_t)fd,
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    GM_CU(worker, cuMemAddressReserve, &at, bytes, 0, 0, 0);
    GM_CU(worker, cuMemMap, at, bytes, 0, import, 0);
    GM_CU(worker, cuMemRelease, import);
    allow(worker, at, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    theirs = segment->buffer;
    theirs.at = at;
    theirs.bytes = bytes;
    gm_buffer_turn(worker, &theirs, &segment->counter, segment->stream);
    theirs.at = segment->base;
    gm_buffer_turn(worker, &theirs, &segment->counter, segment->stream);
    theirs.at = at;
    gm_buffer_verify(worker, &theirs, &segment->counter, segment->stream);
    uint64_t words = bytes / 8;
    void *args[] = {&at, &words, &segment->buffer.seed};
    gm_launch(worker, GM_KERNEL_FILL, segment->stream, args);
    GM_CU(worker, cuStreamSynchronize, segment->stream);
    GM_CU(worker, cuMemUnmap, at, bytes);
    GM_CU(worker, cuMemAddressFree, at, bytes);
}

/* One of the things above. */
static void segment_shake(const struct gm_worker *worker, struct gm_segment *segment)
{
    if (segment->is_shared && draw(&segment->random, 3) == 0) {
        segment_share(worker, segment);
        return;
    }
    switch (draw(&segment->random, 5)) {
    case 0:
        segment_move(worker, segment);
        break;
    case 1:
        segment_alias(worker, segment);
        break;
    case 2:
        segment_renew(worker, segment);
        break;
    case 3:
        segment_ask(worker, segment);
        break;
    default:
        let_go(worker, segment);
    }
}

static uint64_t segment_end(const struct gm_worker *worker, struct gm_segment *segment)
{
    segment->buffer.at = segment->base;
    uint64_t wrong = gm_counter_read(worker, &segment->counter, segment->stream) +
                     gm_buffer_check_host(worker, &segment->buffer, 0);
    if (draw(&segment->random, 2) == 0)
        let_go(worker, segment);
    GM_CU(worker, cuMemUnmap, segment->base, segment->buffer.bytes);
    let_go(worker, segment);
    GM_CU(worker, cuMemAddressFree, segment->base, segment->room);
    gm_counter_free(worker, &segment->counter);
    GM_CU(worker, cuStreamDestroy, segment->stream);
    return wrong;
}

/* A handle of the driver's own (it may be exported) among others in one range: wrong and right
 * calls over both. */
static void mix(const struct gm_worker *worker)
{
    CUmemAllocationProp plain = properties(worker), shared = plain;
    CUmemGenericAllocationHandle own, theirs;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, worker->device};
    unsigned long long flags = 0;
    uint32_t word = 0;
    CUdeviceptr at;
    shared.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    GM_CU(worker, cuMemAddressReserve, &at, 5 * GM_PAGE, 0, 0, 0);
    GM_CU(worker, cuMemCreate, &own, GM_PAGE, &plain, 0);
    GM_CU(worker, cuMemCreate, &theirs, GM_PAGE, &shared, 0);
    GM_CU(worker, cuMemMap, at, GM_PAGE, 0, own, 0);
    GM_CU(worker, cuMemMap, at + GM_PAGE, GM_PAGE, 0, theirs, 0);
    GM_CU(worker, cuMemMap, at + 2 * GM_PAGE, GM_PAGE, 0, own, 0);
    GM_CU(worker, cuMemMap, at + 4 * GM_PAGE, GM_PAGE, 0, theirs, 0);
    expect(worker, worker->cu.cuMemMap(at, GM_PAGE, 0, theirs, 0), CUDA_ERROR_INVALID_VALUE,
           "the driver's over a virtual one");
    expect(worker, worker->cu.cuMemMap(at + GM_PAGE, GM_PAGE, 0, own, 0), CUDA_ERROR_INVALID_VALUE,
           "a virtual one over the driver's");
    CUmemAccessDesc desc = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    expect(worker, worker->cu.cuMemSetAccess(at, 5 * GM_PAGE, &desc, 1), CUDA_ERROR_INVALID_VALUE,
           "access to both and a hole");
    allow(worker, at, 3 * GM_PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    allow(worker, at + 4 * GM_PAGE, GM_PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    GM_CU(worker, cuMemGetAccess, &flags, &here, at + GM_PAGE);
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        gm_fail(worker, "access of the driver's own is %llu", flags);
    GM_CU(worker, cuMemsetD32, at, 7, 3 * GM_PAGE / 4);
    GM_CU(worker, cuMemcpyDtoH, &word, at + 5 * GM_PAGE - 4, 4);
    if (word != 7)
        gm_fail(worker, "one handle at two addresses differs");
    GM_CU(worker, cuStreamSynchronize, NULL);
    GM_CU(worker, cuMemRelease, own);
    GM_CU(worker, cuMemUnmap, at, 5 * GM_PAGE);
    GM_CU(worker, cuMemRelease, theirs);
    GM_CU(worker, cuMemAddressFree, at, 5 * GM_PAGE);
}

/* A child has no CUDA: it is told so, whatever it does with its parent's handles. */
static void in_child(const struct gm_worker *worker, const struct gm_segment *segment)
{
    const CUresult none = CUDA_ERROR_NOT_INITIALIZED;
    const struct gm_driver *cu = &worker->cu;
    pid_t child = fork();
    if (child == 0) {
        CUmemAllocationProp prop = properties(worker);
        CUmemGenericAllocationHandle handle;
        CUdeviceptr at = segment->base;
        bool is_told = cu->cuMemCreate(&handle, GM_PAGE, &prop, 0) == none &&
                       cu->cuMemMap(at, GM_PAGE, 0, segment->handle[0], 0) == none &&
                       cu->cuMemUnmap(at, segment->bytes[0]) == none &&
                       cu->cuMemRelease(segment->handle[0]) == none &&
                       cu->cuMemAddressFree(at, segment->room) == none;
        _exit(is_told ? 0 : 1);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        gm_fail(worker, "a forked child ended with status %d", status);
}

void gm_mode_vmm(struct gm_worker *worker)
{
    struct gm_segment *segments = calloc(worker->allocs, sizeof(*segments));
    if (segments == NULL)
        gm_fail(worker, "no host memory");
    for (uint32_t i = 0; i < worker->allocs; i++)
        segment_make(worker, &segments[i], worker->bytes / worker->allocs, gm_mix(worker->seed, i));
    GM_CU(worker, cuCtxSynchronize, );
    gm_say_ready(worker);
    mix(worker);
    in_child(worker, &segments[0]);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        for (uint32_t i = 0; i < worker->allocs; i++) {
            segment_turn(worker, &segments[i]);
            segment_shake(worker, &segments[i]);
        }
    }
    for (uint32_t i = 0; i < worker->allocs; i++)
        worker->mismatches += segment_end(worker, &segments[i]);
    free(segments);
}

/* Mode mappers: threads of their own segments, and one that maps and never launches, so that it
 * goes on while the program is swapped out. */
struct gm_mapper_thread {
    struct gm_worker *worker;
    pthread_t thread;
    uint32_t index;
    _Atomic bool is_over;
    uint64_t wrong;
};

static void *run_segment(void *argument)
{
    struct gm_mapper_thread *self = argument;
    struct gm_worker *worker = self->worker;
    struct gm_segment *segment = calloc(1, sizeof(*segment));
    if (segment == NULL)
        gm_fail(worker, "no host memory");
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    segment_make(worker, segment, worker->bytes / worker->threads,
                 gm_mix(worker->seed, self->index));
    for (uint64_t done = 0; gm_is_more(worker, done); done++) {
        segment_turn(worker, segment);
        segment_shake(worker, segment);
    }
    self->wrong = segment_end(worker, segment);
    free(segment);
    return NULL;
}

/* How far it is, in the file of --signal, for a test that looks. */
static void tell(const struct gm_worker *worker, uint64_t rounds)
{
    char name[4096];
    if (worker->signal == NULL)
        return;
    snprintf(name, sizeof(name), "%s.new", worker->signal);
    FILE *file = fopen(name, "w");
    if (file == NULL)
        gm_fail(worker, "cannot write %s", name);
    fprintf(file, "%llu\n", (unsigned long long)rounds);
    fclose(file);
    rename(name, worker->signal);
}

static void *run_mapper(void *argument)
{
    struct gm_mapper_thread *self = argument;
    const struct gm_worker *worker = self->worker;
    CUmemAllocationProp prop = properties(worker);
    uint64_t random = worker->seed;
    while (!self->is_over) {
        /* No context is current: these calls need none. */
        CUmemGenericAllocationHandle handle, other;
        unsigned long long flags = 99;
        CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, worker->device};
        uint64_t bytes = (1 + draw(&random, 2)) * GM_PAGE;
        CUdeviceptr at;
        GM_CU(worker, cuMemCreate, &handle, bytes, &prop, 0);
        GM_CU(worker, cuMemAddressReserve, &at, GM_ALIASES * bytes, 0, 0, 0);
        for (uint32_t i = 0; i < GM_ALIASES; i++)
            GM_CU(worker, cuMemMap, at + i * bytes, bytes, 0, handle, 0);
        allow(worker, at + bytes, 2 * bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        GM_CU(worker, cuMemGetAccess, &flags, &here, at);
        if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            gm_fail(worker, "access that was never set is %llu", flags);
        GM_CU(worker, cuMemUnmap, at + 2 * bytes, 2 * bytes);
        GM_CU(worker, cuMemRelease, handle);
        GM_CU(worker, cuMemRetainAllocationHandle, &other, (void *)(uintptr_t)(at + bytes));
        GM_CU(worker, cuMemMap, at + 3 * bytes, bytes, 0, other, 0);
        GM_CU(worker, cuMemRelease, other);
        struct timespec pause = {.tv_nsec = (long)draw(&random, 3000000)};
        nanosleep(&pause, NULL);
        GM_CU(worker, cuMemUnmap, at, GM_ALIASES * bytes); /* with a hole in it */
        GM_CU(worker, cuMemAddressFree, at, GM_ALIASES * bytes);
        self->wrong++; /* rounds */
        tell(worker, self->wrong);
    }
    return NULL;
}

void gm_mode_mappers(struct gm_worker *worker)
{
    struct gm_mapper_thread *threads = calloc(worker->threads + 1, sizeof(*threads));
    if (threads == NULL)
        gm_fail(worker, "no host memory");
    for (uint32_t i = 0; i <= worker->threads; i++) {
        threads[i] = (struct gm_mapper_thread){.worker = worker, .index = i};
        if (pthread_create(&threads[i].thread, NULL,
                           i == worker->threads ? run_mapper : run_segment, &threads[i]) != 0)
            gm_fail(worker, "no thread");
    }
    gm_say_ready(worker);
    for (uint32_t i = 0; i <= worker->threads; i++) {
        threads[i].is_over = true;
        pthread_join(threads[i].thread, NULL);
        if (i < worker->threads)
            worker->mismatches += threads[i].wrong;
        else
            worker->done = threads[i].wrong;
    }
    free(threads);
}

/* Mode vmmoom: handles until memory is out; what there is stays whole, and it goes on. */
void gm_mode_vmmoom(struct gm_worker *worker)
{
    CUmemAllocationProp prop = properties(worker);
    const uint64_t bytes = worker->bytes / worker->allocs / GM_PAGE * GM_PAGE;
    struct gm_segment *segment = calloc(1, sizeof(*segment));
    if (segment == NULL || bytes == 0)
        gm_fail(worker, "no host memory, or handles of nothing");
    segment_make(worker, segment, bytes, worker->seed);
    GM_CU(worker, cuStreamSynchronize, segment->stream);
    gm_say_ready(worker);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        CUmemGenericAllocationHandle handle[GM_HANDLES_MAX];
        CUresult result = CUDA_SUCCESS;
        uint32_t n = 0;
        while (n < GM_HANDLES_MAX &&
               (result = worker->cu.cuMemCreate(&handle[n], bytes, &prop, 0)) == CUDA_SUCCESS)
            n++;
        expect(worker, result, CUDA_ERROR_OUT_OF_MEMORY, "creating until memory is out");
        segment_turn(worker, segment);
        GM_CU(worker, cuStreamSynchronize, segment->stream);
        while (n > 0)
            GM_CU(worker, cuMemRelease, handle[--n]);
        segment_shake(worker, segment);
    }
    worker->mismatches += segment_end(worker, segment);
    free(segment);
}

static CUresult try_export(const struct gm_worker *worker, CUmemGenericAllocationHandle handle)
{
    int fd = -1;
    CUresult result = worker->cu.cuMemExportToShareableHandle(
        &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result == CUDA_SUCCESS)
        close(fd);
    return result;
}

/* A kernel that waits for the host works on, or beside, what is exported. */
static CUresult export_beside_spin(const struct gm_worker *worker, const struct gm_segment *segment)
{
    uint32_t *flag = NULL;
    CUdeviceptr flag_at;
    CUstream stream;
    GM_CU(worker, cuMemHostAlloc, (void **)&flag, sizeof(*flag), CU_MEMHOSTALLOC_DEVICEMAP);
    GM_CU(worker, cuMemHostGetDevicePointer, &flag_at, flag, 0);
    GM_CU(worker, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    __atomic_store_n(flag, 0, __ATOMIC_SEQ_CST);
    void *args[] = {&flag_at};
    gm_launch(worker, GM_KERNEL_SPIN_UNTIL, stream, args);
    CUresult result = try_export(worker, segment->handle[0]);
    __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
    GM_CU(worker, cuStreamSynchronize, stream);
    GM_CU(worker, cuStreamDestroy, stream);
    GM_CU(worker, cuMemFreeHost, flag);
    return result;
}

/* Mode exports: at bad moments. Either it is done, or the program is told so and has lost nothing;
 * a driver of its own exports at any time. */
void gm_mode_exports(struct gm_worker *worker)
{
    struct gm_segment *segment = calloc(1, sizeof(*segment));
    CUgraph graph;
    if (segment == NULL)
        gm_fail(worker, "no host memory");
    segment_make(worker, segment, worker->bytes, worker->seed);
    grow(worker, segment, GM_PAGE); /* two handles at least */
    fill(worker, segment);
    GM_CU(worker, cuStreamSynchronize, segment->stream);
    gm_say_ready(worker);
    CUresult spun = export_beside_spin(worker, segment);
    if (spun != CUDA_SUCCESS && spun != CUDA_ERROR_NOT_READY)
        gm_fail(worker, "export beside a kernel that does not end: %d", (int)spun);
    segment_turn(worker, segment);
    segment_share(worker, segment);

    /* The last handle is not exported yet. */
    CUmemGenericAllocationHandle last = segment->handle[segment->n - 1];
    GM_CU(worker, cuStreamSynchronize, segment->stream);
    GM_CU(worker, cuStreamBeginCapture, segment->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    segment_turn(worker, segment);
    CUresult captured = try_export(worker, last);
    GM_CU(worker, cuStreamEndCapture, segment->stream, &graph); /* it was not spoiled */
    CUgraphExec replay;
    GM_CU(worker, cuGraphInstantiateWithFlags, &replay, graph, 0);
    GM_CU(worker, cuGraphLaunch, replay, segment->stream);
    if (captured != CUDA_SUCCESS && captured != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        gm_fail(worker, "export beside a capture: %d", (int)captured);
    expect(worker, try_export(worker, last), CUDA_SUCCESS, "export after a capture");
    for (uint32_t i = 0; i < 20; i++) {
        segment_turn(worker, segment);
        segment_shake(worker, segment);
    }
    GM_CU(worker, cuStreamSynchronize, segment->stream);
    GM_CU(worker, cuGraphDestroy, graph);
    GM_CU(worker, cuGraphExecDestroy, replay);
    worker->done = 1;
    worker->mismatches = segment_end(worker, segment);
    free(segment);
    printf("beside a spinning kernel: %d, beside a capture: %d\n", (int)spun, (int)captured);
}

/* Mode vmminfo: what is free as handles come, are mapped, are exported and go. */
void gm_mode_vmminfo(struct gm_worker *worker)
{
    CUmemAllocationProp prop = properties(worker);
    CUmemGenericAllocationHandle plain, shared;
    const uint64_t bytes = worker->bytes / GM_PAGE * GM_PAGE;
    CUdeviceptr at;
    size_t now, total;
    const struct gm_driver *cu = &worker->cu;
#define GM_FREE(when)                                                                              \
    GM_CU(worker, cuMemGetInfo, &now, &total);                                                     \
    printf(when "=%zu\n", now)
    GM_FREE("start");
    GM_CU(worker, cuMemCreate, &plain, bytes, &prop, 0);
    GM_FREE("created");
    GM_CU(worker, cuMemAddressReserve, &at, 3 * bytes, 0, 0, 0);
    for (uint64_t i = 0; i < 3; i++)
        GM_CU(worker, cuMemMap, at + i * bytes, bytes, 0, plain, 0);
    GM_FREE("mapped");
    GM_CU(worker, cuMemUnmap, at + bytes, 2 * bytes);
    GM_CU(worker, cuMemRelease, plain);
    GM_FREE("released");
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    GM_CU(worker, cuMemCreate, &shared, bytes, &prop, 0);
    GM_CU(worker, cuMemMap, at + bytes, bytes, 0, shared, 0);
    GM_FREE("both");
    expect(worker, try_export(worker, shared), CUDA_SUCCESS, "export");
    GM_FREE("exported");
    gm_say_ready(worker);
    expect(worker, cu->cuMemRelease(shared), CUDA_SUCCESS, "release");
    GM_CU(worker, cuMemUnmap, at, bytes);
    GM_FREE("one");
    GM_CU(worker, cuMemUnmap, at + bytes, bytes);
    GM_CU(worker, cuMemAddressFree, at, 3 * bytes);
    GM_FREE("end");
#undef GM_FREE
}
