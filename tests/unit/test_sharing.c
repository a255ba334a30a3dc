/*
 * Sharing in the shim, from its handlers to its socket; the test plays the driver and the daemon,
 * as in test_link.c. Also the names that travel between programs (common/share.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#pragma GCC diagnostic ignored "-Wunused-function" /* the world has more than is needed here */
#include "tests/unit/link_world.h"

#include "common/share.h"
#include "shim/tables/allocs.h"

#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
#define BYTES (36 * MIB) /* 32 + 4 */
#define DRIVERS_OWN 0x77

/* ---- the driver's own IPC, which knows its own handles only ---- */

static CUresult drv_ipc_get(CUipcMemHandle *handle, CUdeviceptr va)
{
    if (handle == NULL || va == 0)
        return CUDA_ERROR_INVALID_VALUE;
    memset(handle, DRIVERS_OWN, sizeof(*handle));
    return CUDA_SUCCESS;
}
static CUresult drv_ipc_open(CUdeviceptr *va, CUipcMemHandle handle, unsigned flags)
{
    if (handle.reserved[0] != DRIVERS_OWN || flags != LAZY)
        return CUDA_ERROR_INVALID_HANDLE;
    *va = 0x1234000;
    return CUDA_SUCCESS;
}
static CUresult drv_ipc_close(CUdeviceptr va)
{
    return va == 0x1234000 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static CUresult drv_dma_buf(void *handle, CUdeviceptr va, size_t bytes, CUmemRangeHandleType type,
                            unsigned long long flags)
{
    (void)va;
    (void)bytes;
    (void)type;
    (void)flags;
    *(int *)handle = 99;
    return CUDA_SUCCESS;
}

static void begin(void)
{
    gm_real.cuIpcGetMemHandle = drv_ipc_get;
    gm_real.cuIpcOpenMemHandle = drv_ipc_open;
    gm_real.cuIpcOpenMemHandle_v2 = drv_ipc_open;
    gm_real.cuIpcCloseMemHandle = drv_ipc_close;
    gm_real.cuMemGetHandleForAddressRange = drv_dma_buf;
    boot_live();
}

/* ---- the program, in a thread of its own ---- */

struct ipc_call {
    CUipcMemHandle handle;
    CUdeviceptr va;
    CUresult result;
};

static void *program_shares(void *argument)
{
    struct ipc_call *call = argument;
    current = (CUcontext)0x100;
    call->result = gm_on_cuIpcGetMemHandle(&call->handle, call->va);
    return NULL;
}
static void *program_opens(void *argument)
{
    struct ipc_call *call = argument;
    current = (CUcontext)0x100;
    call->result = gm_on_cuIpcOpenMemHandle_v2(&call->va, call->handle, LAZY);
    return NULL;
}
static void *program_closes(void *argument)
{
    struct ipc_call *call = argument;
    current = (CUcontext)0x100;
    call->result = gm_on_cuIpcCloseMemHandle(call->va);
    return NULL;
}

static void *program_ends_capture(void *argument)
{
    struct ipc_call *call = argument;
    CUgraph graph;
    current = (CUcontext)0x100;
    call->result = gm_on_cuStreamEndCapture((CUstream)0x33, &graph);
    return NULL;
}

static CUipcMemHandle name_of(uint64_t nonce, uint64_t bytes)
{
    struct gm_share_name name = {.share = 5,
                                 .app = 1,
                                 .va = 0x4000000,
                                 .bytes = bytes,
                                 .nonce = {nonce, ~nonce},
                                 .slack = 5000};
    CUipcMemHandle handle;
    gm_share_seal(&name);
    memcpy(&handle, &name, sizeof(handle));
    return handle;
}

/* Serve an OPEN up to its answer. */
static struct gm_msg_open serve_maps(void)
{
    CHECK(receive() == GM_MSG_OPEN);
    struct gm_msg_open open = *(const struct gm_msg_open *)got.body;
    CHECK(open.share == 5 && open.gpu == 0 && open.nonce[1] == ~open.nonce[0]);
    map_flagged_to_app(open.va, open.bytes, GM_MAP_IS_SHARED);
    return open;
}

static void serve_open(void)
{
    struct gm_msg_open open = serve_maps();
    struct gm_msg_opened opened = {.cookie = open.cookie};
    send_to_app(GM_MSG_OPENED, &opened);
}

static CUdeviceptr open_one(uint64_t nonce)
{
    struct ipc_call call = {.handle = name_of(nonce, BYTES)};
    pthread_t thread = start(program_opens, &call);
    serve_open();
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS && call.va != 0);
    return call.va;
}

static void serve_shut(CUdeviceptr va)
{
    CHECK(receive() == GM_MSG_SHUT);
    struct gm_msg_shut message = *(const struct gm_msg_shut *)got.body;
    CHECK(message.va == va);
    unmap_from_app(va, BYTES);
    struct gm_msg_shut_is shut = {.cookie = message.cookie};
    send_to_app(GM_MSG_SHUT_IS, &shut);
}

/* ---- scenarios ---- */

/* The daemon gives the name, for the whole allocation, wherever in it the address is. */
static void shares(void)
{
    struct gm_share_name name;
    begin();
    CUdeviceptr va = allocate(BYTES - 5000, NULL, true);
    struct ipc_call call = {.va = va + 12345};
    pthread_t thread = start(program_shares, &call);
    CHECK(receive() == GM_MSG_SHARE);
    struct gm_msg_share ask = *(const struct gm_msg_share *)got.body;
    CHECK(ask.va == va);
    CHECK(gm_gate_scan() == GM_DRAIN_INSIDE); /* nothing can move meanwhile */
    struct gm_msg_shared shared = {.cookie = ask.cookie, .nonce = {11, 22}, .share = 33};
    send_to_app(GM_MSG_SHARED, &shared);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS);
    CHECK(gm_share_read(&call.handle, &name));
    CHECK(name.share == 33 && name.nonce[0] == 11 && name.nonce[1] == 22 && name.va == va);
    CHECK(name.bytes == BYTES && name.slack == 5000 && name.app == ctl->app && name.gpu == 0);
    CHECK(gm_gate_scan() == GM_DRAIN_NONE);

    /* it says no */
    thread = start(program_shares, &call);
    CHECK(receive() == GM_MSG_SHARE);
    shared = (struct gm_msg_shared){.cookie = ((const struct gm_msg_share *)got.body)->cookie,
                                    .result = CUDA_ERROR_OUT_OF_MEMORY};
    send_to_app(GM_MSG_SHARED, &shared);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_ERROR_OUT_OF_MEMORY);

    /* a thread that comes while the gate is closed waits for its turn */
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    thread = start(program_shares, &call);
    for (int i = 0; i < 60000 && atomic_load(&stat_area->waiting) == 0; i++)
        nap(1000);
    CHECK(atomic_load(&stat_area->waiting) == 1);
    set_gate(GM_GATE_OPEN);
    CHECK(receive() == GM_MSG_SHARE);
    lose_daemon();
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_ERROR_NOT_SUPPORTED);
}

/* What gpumux did not make goes to the driver, and so does what is nobody's. */
static void leaves_the_drivers(void)
{
    CUdeviceptr small, va = 0;
    CUipcMemHandle handle, broken = name_of(1, BYTES);
    int fd = 0;
    begin();
    CUdeviceptr chunks = allocate(3 * MIB, NULL, true);
    CHECK(gm_on_cuMemAlloc_v2(&small, 4096) == CUDA_SUCCESS);
    CHECK(gm_on_cuIpcGetMemHandle(&handle, small) == CUDA_SUCCESS);
    CHECK(handle.reserved[0] == DRIVERS_OWN);
    CHECK(gm_on_cuIpcGetMemHandle(&handle, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(gm_on_cuIpcOpenMemHandle(&va, handle, LAZY) == CUDA_SUCCESS && va == 0x1234000);
    CHECK(gm_on_cuIpcCloseMemHandle(va) == CUDA_SUCCESS);
    CHECK(gm_on_cuIpcCloseMemHandle(va + 1) == CUDA_ERROR_INVALID_VALUE);
    broken.reserved[20] ^= 1; /* no name any more */
    CHECK(gm_on_cuIpcOpenMemHandle_v2(&va, broken, LAZY) == CUDA_ERROR_INVALID_HANDLE);
    /* names that cannot be, and wrong use of good ones: judged here */
    CHECK(gm_on_cuIpcOpenMemHandle_v2(&va, name_of(1, 0), LAZY) == CUDA_ERROR_INVALID_VALUE);
    CHECK(gm_on_cuIpcOpenMemHandle_v2(&va, name_of(1, 4096), LAZY) == CUDA_ERROR_INVALID_VALUE);
    CHECK(gm_on_cuIpcOpenMemHandle_v2(&va, name_of(1, BYTES), 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(gm_on_cuIpcOpenMemHandle_v2(NULL, name_of(1, BYTES), LAZY) == CUDA_ERROR_INVALID_VALUE);
    current = NULL;
    CHECK(gm_on_cuIpcOpenMemHandle_v2(&va, name_of(1, BYTES), LAZY) == CUDA_ERROR_INVALID_CONTEXT);
    current = (CUcontext)0x100;
    CHECK(atomic_load(&driver_reserved) == 1);

    /* a dma-buf of the driver's memory, none of what moves, up to the end of its last chunk */
    CHECK(gm_on_cuMemGetHandleForAddressRange(&fd, small, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                              0) == CUDA_SUCCESS);
    CHECK(fd == 99);
    CHECK(gm_on_cuMemGetHandleForAddressRange(&fd, chunks, 4096,
                                              CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                              0) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(gm_on_cuMemGetHandleForAddressRange(&fd, chunks + 4 * MIB - 4096, 4096,
                                              CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                              0) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(gm_on_cuIpcCloseMemHandle(chunks) == CUDA_ERROR_INVALID_VALUE);
}

/* Opened twice: one mapping, counted. It is nobody's to free, and none of what the program took. */
static void counts(void)
{
    CUdeviceptr again = 0;
    size_t free_before, free_after, total;
    begin();
    CHECK(gm_on_cuMemGetInfo_v2(&free_before, &total) == CUDA_SUCCESS);
    CUdeviceptr va = open_one(7);
    CHECK(atomic_load(&driver_mapped) == 2);
    struct gm_alloc opened;
    CHECK(gm_allocs_find(va, &opened) == GM_ALLOC_BASE && opened.kind == GM_ALLOC_IMPORT);
    CHECK(opened.bytes == BYTES - 5000 && opened.span == BYTES); /* as the owner asked for it */
    CHECK(gm_on_cuIpcOpenMemHandle(&again, name_of(7, BYTES), LAZY) == CUDA_SUCCESS);
    CHECK(again == va && atomic_load(&driver_mapped) == 2);
    CHECK(gm_on_cuMemGetInfo_v2(&free_after, &total) == CUDA_SUCCESS && free_after == free_before);
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_ERROR_INVALID_VALUE);
    CHECK(gm_on_cuIpcCloseMemHandle(va + 4096) == CUDA_ERROR_INVALID_VALUE);
    CHECK(gm_on_cuIpcCloseMemHandle(va) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_mapped) == 2);
    int syncs = atomic_load(&driver_syncs);
    struct ipc_call call = {.va = va};
    pthread_t thread = start(program_closes, &call);
    serve_shut(va);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_syncs) == syncs + 1); /* nothing runs on it any more */
    CHECK(atomic_load(&driver_mapped) == 0 && atomic_load(&driver_reserved) == 0);
    CHECK(gm_on_cuIpcCloseMemHandle(va) == CUDA_ERROR_INVALID_VALUE);

    /* the context is broken for now: it stays open, and can be closed later */
    va = open_one(8);
    atomic_store(&driver_sync_error, CUDA_ERROR_NOT_READY);
    CHECK(gm_on_cuIpcCloseMemHandle(va) == CUDA_ERROR_NOT_READY);
    atomic_store(&driver_sync_error, CUDA_SUCCESS);
    call = (struct ipc_call){.va = va};
    thread = start(program_closes, &call);
    serve_shut(va);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS && atomic_load(&driver_mapped) == 0);
}

/* Two threads open at once: one asks, the other waits for it. What is refused leaves nothing. */
static void opens_once(void)
{
    begin();
    struct ipc_call a = {.handle = name_of(7, BYTES)}, b = a;
    pthread_t first = start(program_opens, &a);
    struct gm_msg_open open = serve_maps();
    pthread_t second = start(program_opens, &b);
    nap(20000);
    struct gm_msg_opened opened = {.cookie = open.cookie};
    send_to_app(GM_MSG_OPENED, &opened);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    CHECK(a.result == CUDA_SUCCESS && b.result == CUDA_SUCCESS && a.va == b.va);
    CHECK(atomic_load(&driver_mapped) == 2);

    struct ipc_call c = {.handle = name_of(9, BYTES)};
    first = start(program_opens, &c);
    CHECK(receive() == GM_MSG_OPEN);
    opened = (struct gm_msg_opened){.cookie = ((const struct gm_msg_open *)got.body)->cookie,
                                    .result = CUDA_ERROR_INVALID_CONTEXT};
    send_to_app(GM_MSG_OPENED, &opened);
    pthread_join(first, NULL);
    CHECK(c.result == CUDA_ERROR_INVALID_CONTEXT && atomic_load(&driver_reserved) == 1);
}

/* While a capture is open it cannot be waited for: it is closed at the capture's end, unless it is
 * opened again before. */
static void captures(void)
{
    CUdeviceptr again = 0;
    begin();
    CUdeviceptr va = open_one(7), other = open_one(8);
    CHECK(gm_on_cuStreamBeginCapture_v2((CUstream)0x33, CU_STREAM_CAPTURE_MODE_RELAXED) ==
          CUDA_SUCCESS);
    CHECK(gm_on_cuIpcCloseMemHandle(va) == CUDA_SUCCESS);
    CHECK(gm_on_cuIpcCloseMemHandle(va) == CUDA_ERROR_INVALID_VALUE);
    CHECK(gm_on_cuIpcCloseMemHandle(other) == CUDA_SUCCESS);
    for (int i = 0; i < 3; i++) {
        CHECK(gm_on_cuIpcOpenMemHandle_v2(&again, name_of(7, BYTES), LAZY) == CUDA_SUCCESS);
        CHECK(again == va);
        if (i < 2)
            CHECK(gm_on_cuIpcCloseMemHandle(va) == CUDA_SUCCESS);
    }
    CHECK(atomic_load(&driver_mapped) == 4);
    struct ipc_call call = {.va = 0};
    pthread_t thread = start(program_ends_capture, &call);
    serve_shut(other);
    pthread_join(thread, NULL);
    CHECK(atomic_load(&driver_mapped) == 2);
    call = (struct ipc_call){.va = va};
    thread = start(program_closes, &call);
    serve_shut(va);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS && atomic_load(&driver_mapped) == 0);
}

/* Lost with the gate closed, after something was opened: nothing of the program's own was touched.
 */
static void lost_after_opening(void)
{
    begin();
    allocate(BYTES, NULL, true);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    CUdeviceptr va = open_one(7);
    lose_daemon();
    CHECK(submit() == CUDA_SUCCESS);
    CHECK(gm_on_cuIpcCloseMemHandle(va) == CUDA_SUCCESS); /* closed without the daemon */
    CHECK(atomic_load(&driver_mapped) == 2 && atomic_load(&driver_reserved) == 1);
    CHECK(gm_on_cuIpcOpenMemHandle_v2(&va, name_of(8, BYTES), LAZY) == CUDA_ERROR_INVALID_VALUE);
    CHECK(atomic_load(&driver_reserved) == 1);
}

/* Lost in the middle of opening: what was mapped is unmapped. */
static void lost_while_opening(void)
{
    begin();
    struct ipc_call call = {.handle = name_of(7, BYTES)};
    pthread_t thread = start(program_opens, &call);
    serve_maps();
    lose_daemon();
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_ERROR_INVALID_VALUE);
    CHECK(atomic_load(&driver_mapped) == 0 && atomic_load(&driver_reserved) == 0);
}

/* The context that it was opened in goes, and takes it along; it can be opened anew. */
static void *program_destroys(void *argument)
{
    struct ipc_call *call = argument;
    current = NULL;
    call->result = gm_on_cuCtxDestroy_v2((CUcontext)0x200);
    return NULL;
}
static void *program_opens_elsewhere(void *argument)
{
    struct ipc_call *call = argument;
    CUcontext context;
    CHECK(gm_on_cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS && context == (CUcontext)0x200);
    call->result = gm_on_cuIpcOpenMemHandle_v2(&call->va, call->handle, LAZY);
    return NULL;
}
static void context_goes(void)
{
    begin();
    struct ipc_call call = {.handle = name_of(7, BYTES)};
    pthread_t thread = start(program_opens_elsewhere, &call);
    serve_open();
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS);
    thread = start(program_destroys, &call);
    serve_shut(call.va);
    pthread_join(thread, NULL);
    CHECK(atomic_load(&driver_mapped) == 0);
    CHECK(gm_on_cuIpcCloseMemHandle(call.va) == CUDA_ERROR_INVALID_VALUE);
    CHECK(open_one(7) != 0);
}

static void by_option(void)
{
    CUdeviceptr va;
    CUipcMemHandle handle;
    setenv("GPUMUX_SHARING", "real", 1);
    begin();
    CHECK(gm_on_cuMemAlloc_v2(&va, 64 * MIB) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_real_allocs) == 1 && atomic_load(&driver_reserved) == 0);
    CHECK(atomic_load(&stat_area->real_bytes) == 64 * MIB);
    CHECK(gm_on_cuIpcGetMemHandle(&handle, va) == CUDA_SUCCESS);
    CHECK(handle.reserved[0] == DRIVERS_OWN);
    open_one(7); /* what others share is opened all the same */
}

/* Freed while its sharing waits at the gate: the range may be another allocation's by then. */
static void freed_meanwhile(void)
{
    begin();
    struct ipc_call call = {.va = allocate(BYTES, NULL, true)};
    struct call freeing = {.va = call.va};
    set_gate(GM_GATE_CLOSED);
    pthread_t thread = start(program_shares, &call);
    for (int i = 0; i < 60000 && atomic_load(&stat_area->waiting) == 0; i++)
        nap(1000);
    pthread_t other = start(program_frees, &freeing);
    serve_free(call.va, BYTES);
    pthread_join(other, NULL);
    set_gate(GM_GATE_OPEN);
    pthread_join(thread, NULL);
    CHECK(freeing.result == CUDA_SUCCESS && call.result == CUDA_ERROR_INVALID_VALUE);
}

SCENARIO(shares)
SCENARIO(freed_meanwhile)
SCENARIO(leaves_the_drivers)
SCENARIO(counts)
SCENARIO(opens_once)
SCENARIO(captures)
SCENARIO(lost_after_opening)
SCENARIO(lost_while_opening)
SCENARIO(context_goes)
SCENARIO(by_option)

static void test_names(void **state)
{
    struct gm_share_name name = {.share = 1, .bytes = 2 * MIB, .nonce = {3, 4}}, got_name;
    unsigned char bytes[64];
    (void)state;
    gm_share_seal(&name);
    memcpy(bytes, &name, sizeof(bytes));
    assert_true(gm_share_read(bytes, &got_name));
    assert_memory_equal(&name, &got_name, sizeof(name));
    for (size_t i = 0; i < 512; i++) { /* every bit of it counts */
        bytes[i / 8] ^= (unsigned char)(1u << i % 8);
        assert_false(gm_share_read(bytes, &got_name));
        bytes[i / 8] ^= (unsigned char)(1u << i % 8);
    }
    memset(bytes, 0, sizeof(bytes));
    assert_false(gm_share_read(bytes, &got_name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_freed_meanwhile),
        cmocka_unit_test(test_leaves_the_drivers),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_opens_once),
        cmocka_unit_test(test_captures),
        cmocka_unit_test(test_lost_after_opening),
        cmocka_unit_test(test_lost_while_opening),
        cmocka_unit_test(test_context_goes),
        cmocka_unit_test(test_by_option),
    };
    return cmocka_run_group_tests_name("sharing", tests, NULL, NULL);
}
