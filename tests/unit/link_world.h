/*
 * What surrounds the shim in test_link*.c and test_queries.c: the driver, function pointers that
 * keep count; the daemon, a listening socket that the test answers step by step; and the program,
 * threads that call handlers. Included by each of them, which need not use all of it. Everything
 * here checks with CHECK, which ends the scenario's process.
 */
#ifndef GM_TEST_LINK_WORLD_H
#define GM_TEST_LINK_WORLD_H

#pragma GCC diagnostic ignored "-Wunused-function"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/chunk.h"
#include "common/clock.h"
#include "common/shm.h"
#include "common/sock.h"
#include "common/windows.h"
#include "shim/driver/real.h"
#include "shim/entry/start.h"
#include "shim/gate/drain.h"
#include "shim/gate/gate.h"
#include "shim/handlers/handlers.h"
#include "shim/link/link.h"
#include "shim/link/work.h"
#include "shim/memory/ahead.h"
#include "shim/memory/freed.h"
#include "shim/observe/replays.h"
#include "shim/observe/windows.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

#define BUDGET (1ull << 30)
#define MIB (1ull << 20)

static void nap(long us)
{
    struct timespec pause = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&pause, NULL);
}

/* ---- spares: none, so that what is freed goes back at once (test_freed.c has them) ---- */

static bool is_growing;          /* else there are spares enough */
static uint64_t spares_ahead[8]; /* what came ahead */
static _Atomic uint32_t n_spares_ahead, n_spares_coming;

bool __wrap_gm_freed_put(const struct gm_alloc *alloc);
bool __wrap_gm_freed_put(const struct gm_alloc *alloc)
{
    (void)alloc;
    return false;
}

bool __wrap_gm_freed_take(int32_t gpu, uint64_t span, uint64_t *va);
bool __wrap_gm_freed_take(int32_t gpu, uint64_t span, uint64_t *va)
{
    (void)gpu;
    (void)span;
    (void)va;
    return false;
}

void __wrap_gm_freed_release(int32_t gpu);
void __wrap_gm_freed_release(int32_t gpu)
{
    (void)gpu;
}

bool __wrap_gm_freed_expect(const struct gm_alloc *alloc, _Atomic uint32_t *in_vain);
bool __wrap_gm_freed_expect(const struct gm_alloc *alloc, _Atomic uint32_t *in_vain)
{
    CHECK(in_vain != NULL);
    CHECK(alloc->va != 0);
    n_spares_coming++;
    return true;
}

void __wrap_gm_freed_arrive(uint64_t va);
void __wrap_gm_freed_arrive(uint64_t va)
{
    spares_ahead[n_spares_ahead] = va;
    n_spares_ahead++;
    n_spares_coming--;
}

void __wrap_gm_freed_miss(uint64_t va);
void __wrap_gm_freed_miss(uint64_t va)
{
    (void)va;
    n_spares_coming--;
}

/* All of them are of 4 MiB. */
struct gm_freed_sums __wrap_gm_freed_sums(int32_t gpu, uint64_t span);
struct gm_freed_sums __wrap_gm_freed_sums(int32_t gpu, uint64_t span)
{
    const uint32_t n = n_spares_ahead + n_spares_coming;
    (void)gpu;
    (void)span;
    return (struct gm_freed_sums){.coming = n_spares_coming,
                                  .alike = is_growing ? n : GM_AHEAD_EACH,
                                  .ahead_bytes = n * 4 * MIB,
                                  .coming_bytes = n_spares_coming * 4 * MIB};
}

static _Atomic uint64_t taken_va; /* the last TAKEN */

bool __wrap_gm_freed_taken(uint64_t va);
bool __wrap_gm_freed_taken(uint64_t va)
{
    taken_va = va;
    return va != 0;
}

static _Atomic uint32_t n_spares_lost;

void __wrap_gm_freed_lose(void);
void __wrap_gm_freed_lose(void)
{
    n_spares_lost++;
}

bool __wrap_gm_freed_hold(const uint64_t *words, size_t n);
bool __wrap_gm_freed_hold(const uint64_t *words, size_t n)
{
    (void)words;
    (void)n;
    return false;
}

/* ---- the driver ---- */

struct gm_real gm_real;

static _Thread_local CUcontext current;
static _Atomic int driver_reserved; /* ranges */
static _Atomic int driver_handles;
static _Atomic int driver_mapped;
static _Atomic int driver_real_allocs; /* live */
static _Atomic int driver_syncs;
static _Atomic int driver_sync_error; /* what synchronizing returns */
static _Atomic int driver_is_busy; /* a synchronization does not return, nor is an event passed */
static _Atomic int driver_records; /* events of contexts, ever */
static _Atomic int driver_record_error;
static _Atomic int driver_events;   /* live */
static _Atomic int driver_queries;  /* of events, ever */
static _Atomic int driver_primary;  /* references */
static _Atomic int driver_destroys; /* of contexts, ever */
static _Atomic int driver_capturing;
static _Atomic uint64_t driver_next = 0x7f0000000000ull;
static bool driver_is_cold;
static bool driver_is_old; /* before the start: it records no event for a context */

static CUresult drv_count(int *count)
{
    *count = 1;
    return driver_is_cold ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}
static CUresult drv_get(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}
static CUresult drv_uuid(CUuuid *uuid, CUdevice device)
{
    memset(uuid, 0x40 + device, sizeof(*uuid));
    return CUDA_SUCCESS;
}
static CUresult drv_primary_state(CUdevice device, unsigned *flags, int *active)
{
    (void)device;
    *flags = 0;
    *active = atomic_load(&driver_primary) > 0;
    return CUDA_SUCCESS;
}
static CUresult drv_primary_retain(CUcontext *context, CUdevice device)
{
    (void)device;
    atomic_fetch_add(&driver_primary, 1);
    *context = (CUcontext)0x100;
    return CUDA_SUCCESS;
}
static CUresult drv_primary_release(CUdevice device)
{
    (void)device;
    CHECK(atomic_fetch_sub(&driver_primary, 1) > 0);
    return CUDA_SUCCESS;
}
static CUresult drv_push(CUcontext context)
{
    CHECK(current == NULL || current == (CUcontext)0x100 || current == (CUcontext)0x200);
    current = context;
    return CUDA_SUCCESS;
}
static CUresult drv_pop(CUcontext *context)
{
    *context = current;
    current = NULL;
    return CUDA_SUCCESS;
}
static CUresult drv_current(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}
static CUresult drv_device(CUdevice *device)
{
    *device = 0;
    return current == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
static CUresult drv_sync(void)
{
    CHECK(current != NULL);
    if (atomic_load(&driver_capturing) > 0)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    atomic_fetch_add(&driver_syncs, 1);
    while (atomic_load(&driver_is_busy))
        nap(1000);
    return (CUresult)atomic_load(&driver_sync_error);
}
static CUresult drv_event_create(CUevent *event, unsigned flags)
{
    CHECK(current != NULL && (flags & ~(unsigned)CU_EVENT_DISABLE_TIMING) == 0);
    atomic_fetch_add(&driver_events, 1);
    *event = (CUevent)current; /* of this context */
    return CUDA_SUCCESS;
}
static CUresult drv_event_destroy(CUevent event)
{
    (void)event;
    CHECK(atomic_fetch_sub(&driver_events, 1) > 0);
    return CUDA_SUCCESS;
}
static CUresult drv_record(CUcontext context, CUevent event)
{
    CHECK(context == (CUcontext)event && atomic_load(&driver_capturing) == 0);
    atomic_fetch_add(&driver_records, 1);
    return (CUresult)atomic_load(&driver_record_error);
}
static CUresult drv_event_query(CUevent event)
{
    CHECK(event == (CUevent)current && atomic_load(&driver_events) > 0);
    atomic_fetch_add(&driver_queries, 1);
    if (atomic_load(&driver_is_busy))
        return CUDA_ERROR_NOT_READY;
    return (CUresult)atomic_load(&driver_sync_error);
}
static CUresult drv_create(CUcontext *context, unsigned flags, CUdevice device)
{
    (void)flags;
    (void)device;
    *context = current = (CUcontext)0x200;
    return CUDA_SUCCESS;
}
static CUresult drv_destroy(CUcontext context)
{
    atomic_fetch_add(&driver_destroys, 1);
    if (current == context)
        current = NULL;
    return CUDA_SUCCESS;
}
static CUresult drv_mode(CUstreamCaptureMode *mode)
{
    (void)mode;
    return CUDA_SUCCESS;
}
static CUresult drv_begin(CUstream stream, CUstreamCaptureMode mode)
{
    (void)mode;
    if (stream == NULL)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    atomic_fetch_add(&driver_capturing, 1);
    return CUDA_SUCCESS;
}
static CUresult drv_end(CUstream stream, CUgraph *graph)
{
    (void)stream;
    if (graph == NULL)
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD; /* what the test means by that */
    atomic_fetch_sub(&driver_capturing, 1);
    return CUDA_SUCCESS;
}
static CUresult drv_is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = atomic_load(&driver_capturing) > 0 ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                 : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
static CUresult drv_reserve(CUdeviceptr *va, size_t bytes, size_t align, CUdeviceptr hint,
                            unsigned long long flags)
{
    (void)hint;
    (void)flags;
    CHECK(align == GM_CHUNK_MIN && bytes % GM_CHUNK_MIN == 0);
    *va = atomic_fetch_add(&driver_next, bytes);
    atomic_fetch_add(&driver_reserved, 1);
    return CUDA_SUCCESS;
}
static CUresult drv_unreserve(CUdeviceptr va, size_t bytes)
{
    (void)va;
    (void)bytes;
    CHECK(atomic_fetch_sub(&driver_reserved, 1) > 0);
    return CUDA_SUCCESS;
}
static CUresult drv_import(CUmemGenericAllocationHandle *handle, void *os,
                           CUmemAllocationHandleType type)
{
    (void)type;
    CHECK(fcntl((int)(intptr_t)os, F_GETFD) == FD_CLOEXEC);
    *handle = (CUmemGenericAllocationHandle)atomic_fetch_add(&driver_handles, 1);
    return CUDA_SUCCESS;
}
static CUresult drv_release(CUmemGenericAllocationHandle handle)
{
    (void)handle;
    CHECK(atomic_fetch_sub(&driver_handles, 1) > 0);
    return CUDA_SUCCESS;
}
static CUresult drv_map(CUdeviceptr va, size_t bytes, size_t offset,
                        CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)va;
    (void)bytes;
    (void)offset;
    (void)handle;
    (void)flags;
    atomic_fetch_add(&driver_mapped, 1);
    return CUDA_SUCCESS;
}
static CUresult drv_access(CUdeviceptr va, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
    (void)va;
    (void)bytes;
    (void)desc;
    (void)count;
    return CUDA_SUCCESS;
}
static CUresult drv_unmap(CUdeviceptr va, size_t bytes)
{
    (void)va;
    (void)bytes;
    CHECK(atomic_fetch_sub(&driver_mapped, 1) > 0);
    return CUDA_SUCCESS;
}
static CUresult drv_alloc(CUdeviceptr *va, size_t bytes)
{
    if (va == NULL || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (current == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    *va = atomic_fetch_add(&driver_next, (bytes + 4095) & ~4095ull);
    atomic_fetch_add(&driver_real_allocs, 1);
    return CUDA_SUCCESS;
}
static CUresult drv_pitch(CUdeviceptr *va, size_t *pitch, size_t width, size_t height,
                          unsigned element)
{
    uint64_t bytes, row = (width + 511) & ~511ull;
    (void)element;
    if (row < width || __builtin_mul_overflow(row, height, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = row;
    return drv_alloc(va, bytes);
}
static CUresult drv_free(CUdeviceptr va)
{
    if (va == 0)
        return CUDA_SUCCESS;
    if (atomic_load(&driver_real_allocs) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    atomic_fetch_sub(&driver_real_allocs, 1);
    return CUDA_SUCCESS;
}
static CUresult drv_info(size_t *free_bytes, size_t *total)
{
    *free_bytes = 111;
    *total = 222;
    return CUDA_SUCCESS;
}
static CUresult drv_total(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = 222;
    return CUDA_SUCCESS;
}
static CUresult drv_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr va)
{
    (void)base;
    (void)bytes;
    (void)va;
    return CUDA_ERROR_NOT_FOUND;
}

static void make_driver(void)
{
    gm_boot_by(gm_start);
    gm_real.cuDeviceGetCount = drv_count;
    gm_real.cuDeviceGet = drv_get;
    gm_real.cuDeviceGetUuid_v2 = drv_uuid;
    gm_real.cuDevicePrimaryCtxGetState = drv_primary_state;
    gm_real.cuDevicePrimaryCtxRetain = drv_primary_retain;
    gm_real.cuDevicePrimaryCtxRelease_v2 = drv_primary_release;
    gm_real.cuCtxPushCurrent_v2 = drv_push;
    gm_real.cuCtxPopCurrent_v2 = drv_pop;
    gm_real.cuCtxGetCurrent = drv_current;
    gm_real.cuCtxGetDevice = drv_device;
    gm_real.cuCtxSynchronize = drv_sync;
    gm_real.cuCtxRecordEvent = driver_is_old ? NULL : drv_record;
    gm_real.cuEventCreate = drv_event_create;
    gm_real.cuEventDestroy_v2 = drv_event_destroy;
    gm_real.cuEventQuery = drv_event_query;
    gm_real.cuCtxCreate_v2 = drv_create;
    gm_real.cuCtxDestroy_v2 = drv_destroy;
    gm_real.cuThreadExchangeStreamCaptureMode = drv_mode;
    gm_real.cuStreamBeginCapture_v2 = drv_begin;
    gm_real.cuStreamEndCapture = drv_end;
    gm_real.cuStreamIsCapturing = drv_is_capturing;
    gm_real.cuMemAddressReserve = drv_reserve;
    gm_real.cuMemAddressFree = drv_unreserve;
    gm_real.cuMemImportFromShareableHandle = drv_import;
    gm_real.cuMemRelease = drv_release;
    gm_real.cuMemMap = drv_map;
    gm_real.cuMemSetAccess = drv_access;
    gm_real.cuMemUnmap = drv_unmap;
    gm_real.cuMemAlloc_v2 = drv_alloc;
    gm_real.cuMemAllocPitch_v2 = drv_pitch;
    gm_real.cuMemFree_v2 = drv_free;
    gm_real.cuMemGetInfo_v2 = drv_info;
    gm_real.cuDeviceTotalMem_v2 = drv_total;
    gm_real.cuMemGetAddressRange_v2 = drv_range;
}

/* ---- the daemon ---- */

static char socket_path[100];
static int listener = -1;
static int peer = -1;
static struct gm_ctl *ctl;
static struct gm_stat *stat_area;
static int stat_fd = -1;
static int lifeline[2] = {-1, -1}; /* sent with WELCOME if it is there */
static uint64_t rejoin_ns;
static const uint64_t told_nonce[2] = {0x1234567890abcdef, 42};
static uint64_t buffer[GM_WIRE_MAX / 8];
static struct gm_wire_message got;
static uint32_t next_frame = 1;

static void listen_here(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(socket_path, sizeof(socket_path), "/tmp/gpumux-test-link-%d.sock", (int)getpid());
    memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
    unlink(socket_path);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(listen(listener, 4) == 0);
    setenv("GPUMUX_SOCKET", socket_path, 1);
}

static int want_count;

/* The next message; fails after 60 s. */
static enum gm_msg_type receive_any(void)
{
    struct pollfd wait = {.fd = peer, .events = POLLIN};
    int fds[GM_WIRE_FDS], n_fds = 0;
    CHECK(poll(&wait, 1, 60000) == 1);
    ssize_t length = gm_sock_receive(peer, buffer, sizeof(buffer), fds, &n_fds);
    CHECK(length > 0 && n_fds == 0);
    CHECK(gm_wire_decode(buffer, (size_t)length, 0, GM_UP, GM_SESSION_APP, &got) == GM_WIRE_OK ||
          gm_wire_decode(buffer, (size_t)length, 0, GM_UP, GM_SESSION_NEW, &got) == GM_WIRE_OK);
    want_count += got.type == GM_MSG_WANT;
    return (enum gm_msg_type)got.type;
}

/* The next that is not a WANT, which may come at any time. */
static enum gm_msg_type receive(void)
{
    enum gm_msg_type type;
    do
        type = receive_any();
    while (type == GM_MSG_WANT);
    return type;
}

static void send_to_app(enum gm_msg_type type, const void *body)
{
    CHECK(gm_sock_send_message(peer, type, body, NULL, 0, NULL, 0) == 0);
}

static void *make_area(size_t size, int *fd)
{
    *fd = memfd_create("area", MFD_CLOEXEC);
    CHECK(ftruncate(*fd, (off_t)size) == 0);
    void *area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    CHECK(area != MAP_FAILED);
    return area;
}

static void set_gate(enum gm_gate_word word)
{
    atomic_store(&ctl->gate, word);
    syscall(SYS_futex, &ctl->gate, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void accept_app(void)
{
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    CHECK(poll(&wait, 1, 60000) == 1);
    peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(receive() == GM_MSG_HELLO);
    const struct gm_msg_hello *hello = got.body;
    CHECK(hello->role == GM_ROLE_APP && strcmp(hello->name, program_invocation_short_name) == 0);
}

/* Accept and welcome, with the gate open. `uuid`: its byte; the driver's device has 0x40.
 * `stat_bytes`: of the stat area. */
static void welcome_app_with(int uuid, size_t stat_bytes)
{
    int fds[3] = {-1, -1, lifeline[0]};
    accept_app();
    ctl = make_area(sizeof(*ctl), &fds[0]);
    stat_area = make_area(stat_bytes, &fds[1]);
    ctl->magic = stat_area->magic = GM_SHM_MAGIC;
    ctl->version = stat_area->version = GM_SHM_VERSION;
    ctl->budget[0] = ctl->room[0] = BUDGET;
    struct gm_msg_welcome body = {
        .app = 3, .nonce = {told_nonce[0], told_nonce[1]}, .rejoin_ns = rejoin_ns};
    struct gm_gpu_entry entry = {.budget = BUDGET};
    memset(entry.uuid, uuid, sizeof(entry.uuid));
    CHECK(gm_sock_send_message(peer, GM_MSG_WELCOME, &body, &entry, 1, fds, fds[2] >= 0 ? 3 : 2) ==
          0);
    close(fds[0]);
    if (fds[2] >= 0)
        stat_fd = fds[1]; /* as gpumux-keeper has it */
    else
        close(fds[1]);
}

static void welcome_app(int uuid)
{
    welcome_app_with(uuid, GM_STAT_BYTES);
}

/* Map as much of `bytes` at `va` as one message can, with new frames. Returns how much that is. */
static uint64_t map_some_to_app(uint64_t va, uint64_t bytes, uint16_t flags)
{
    struct gm_map_entry entry[GM_WIRE_FDS] = {0};
    int fds[GM_WIRE_FDS] = {0};
    const uint64_t first = va;
    uint32_t n = 0;
    for (; bytes > 0 && n < GM_WIRE_FDS; n++) {
        uint64_t chunk = gm_class_bytes(gm_chunk_next(bytes));
        entry[n] = (struct gm_map_entry){
            .va = va, .bytes = chunk, .frame = next_frame++, .flags = GM_MAP_HAS_FD | flags};
        fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        va += chunk;
        bytes -= chunk;
    }
    struct gm_msg_map map = {.batch = next_frame};
    CHECK(gm_sock_send_message(peer, GM_MSG_MAP, &map, entry, n, fds, (int)n) == 0);
    for (uint32_t i = 0; i < n; i++)
        close(fds[i]);
    CHECK(receive() == GM_MSG_DONE);
    const struct gm_msg_done *done = got.body;
    CHECK(done->batch == map.batch && done->result == 0);
    return va - first;
}

/* Map all of it, as the daemon does. `flags`: what else is said of the frames. */
static void map_flagged_to_app(uint64_t va, uint64_t bytes, uint16_t flags)
{
    for (uint64_t some; bytes > 0; va += some, bytes -= some)
        some = map_some_to_app(va, bytes, flags);
}

static void map_to_app(uint64_t va, uint64_t bytes)
{
    map_flagged_to_app(va, bytes, 0);
}

static void unmap_from_app(uint64_t va, uint64_t bytes)
{
    struct gm_span_entry span[GM_WIRE_FDS];
    uint32_t n = 0;
    for (; bytes > 0; n++) {
        uint64_t chunk = gm_class_bytes(gm_chunk_next(bytes));
        span[n] = (struct gm_span_entry){.va = va, .bytes = chunk};
        va += chunk;
        bytes -= chunk;
    }
    struct gm_msg_unmap unmap = {.batch = 9};
    CHECK(gm_sock_send_message(peer, GM_MSG_UNMAP, &unmap, span, n, NULL, 0) == 0);
    CHECK(receive() == GM_MSG_DONE);
    CHECK(((const struct gm_msg_done *)got.body)->result == 0);
}

/* CLOSE, and what comes back. */
static uint64_t epoch;
static void send_close(uint64_t deadline_ms)
{
    struct gm_msg_close closing = {
        .epoch = ++epoch, .grace_ns = UINT64_MAX, .deadline_ns = deadline_ms * GM_MS};
    atomic_store(&ctl->epoch, epoch);
    set_gate(GM_GATE_CLOSED);
    send_to_app(GM_MSG_CLOSE, &closing);
}

static struct gm_msg_drained await_drained(void)
{
    CHECK(receive() == GM_MSG_DRAINED);
    struct gm_msg_drained drained = *(const struct gm_msg_drained *)got.body;
    CHECK(drained.epoch == epoch);
    return drained;
}

static struct gm_msg_drained close_app(uint64_t deadline_ms)
{
    send_close(deadline_ms);
    return await_drained();
}

/* A deadline that is meant to pass. */
#define BUSY_MS 500

/* CLOSE, which cannot be obeyed for `reason`; the gate is closed afterwards. The drainer has to see
 * the reason before the deadline, for which a busy machine may need longer. */
static struct gm_msg_drained close_busy(enum gm_drain_reason reason)
{
    for (uint64_t ms = BUSY_MS;; ms *= 2) {
        struct gm_msg_drained drained = close_app(ms);
        CHECK(drained.status == GM_DRAIN_BUSY && drained.drain_ns >= ms * GM_MS);
        if (drained.reason == (uint32_t)reason)
            return drained;
        CHECK(ms < 32 * BUSY_MS);
        set_gate(GM_GATE_OPEN);
    }
}

static CUresult nothing(void *unused)
{
    (void)unused;
    return CUDA_SUCCESS;
}

static void lose_daemon(void)
{
    close(peer);
    for (int i = 0; i < 60000 && gm_link_has_daemon(); i++)
        nap(1000);
    CHECK(!gm_link_has_daemon());
    /* What the link thread is given now, it does after the rest of the loss. */
    CHECK(gm_work_run(nothing, NULL) == CUDA_SUCCESS);
}

/* ---- the program, in a thread of its own ---- */

static void *program_boots(void *unused)
{
    CUcontext context;
    (void)unused;
    CHECK(gm_on_cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    return NULL;
}

static pthread_t start(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, argument) == 0);
    return thread;
}

/* Boot as app 3; the test's own thread has the primary context current. */
static void boot_live(void)
{
    make_driver();
    listen_here();
    pthread_t thread = start(program_boots, NULL);
    welcome_app(0x40);
    set_gate(GM_GATE_OPEN);
    pthread_join(thread, NULL);
    unlink(socket_path);
    CHECK(gm_boot() == GM_BOOT_LIVE);
    CHECK(gm_link_has_daemon());
    CHECK(atomic_load(&stat_area->contexts) == 1);
    current = (CUcontext)0x100;
}

struct call {
    uint64_t bytes;
    CUdeviceptr va;
    CUresult result;
    CUcontext context;
};

static void *program_allocates(void *argument)
{
    struct call *call = argument;
    current = call->context ? call->context : (CUcontext)0x100;
    call->result = gm_on_cuMemAlloc_v2(&call->va, call->bytes);
    return NULL;
}

static void *program_frees(void *argument)
{
    struct call *call = argument;
    current = NULL; /* a thread without a context may free, too */
    call->result = gm_on_cuMemFree_v2(call->va);
    return NULL;
}

static void *program_submits(void *argument)
{
    struct call *call = argument;
    struct gm_slot *slot = gm_gate_enter();
    call->result = slot == NULL ? gm_gate_refusal() : CUDA_SUCCESS;
    if (slot != NULL)
        gm_gate_leave(slot);
    return NULL;
}

/* A whole allocation, mapped if `is_mapped`. */
static CUdeviceptr allocate(uint64_t bytes, CUcontext context, bool is_mapped)
{
    struct call call = {.bytes = bytes, .context = context};
    pthread_t thread = start(program_allocates, &call);
    CHECK(receive() == GM_MSG_ALLOC);
    struct gm_msg_alloc alloc = *(const struct gm_msg_alloc *)got.body;
    CHECK(alloc.bytes == gm_chunk_round(bytes) && alloc.gpu == 0);
    if (is_mapped)
        map_to_app(alloc.va, alloc.bytes);
    struct gm_msg_allocated allocated = {.cookie = alloc.cookie};
    send_to_app(GM_MSG_ALLOCATED, &allocated);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS && call.va == alloc.va);
    return call.va;
}

/* Answer the FREE of `va` that was, or will be, sent. */
static void serve_free(CUdeviceptr va, uint64_t bytes)
{
    CHECK(receive() == GM_MSG_FREE);
    struct gm_msg_free message = *(const struct gm_msg_free *)got.body;
    CHECK(message.va == va);
    unmap_from_app(va, gm_chunk_round(bytes));
    struct gm_msg_freed freed = {.cookie = message.cookie};
    send_to_app(GM_MSG_FREED, &freed);
}

static CUresult submit(void)
{
    struct call call = {0};
    pthread_join(start(program_submits, &call), NULL);
    return call.result;
}

/* ---- running a scenario ---- */

static int open_fds(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void run(void (*scenario)(void))
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(300); /* whatever hangs */
        scenario();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

#define SCENARIO(name)                                                                             \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        run(name);                                                                                 \
    }

#endif
