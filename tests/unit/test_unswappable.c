/*
 * Memory that stays the driver's, and questions about memory, from the shim's handlers to its
 * socket: what is counted, what is told, what the drainer moves and what it does not wait for. The
 * driver and the daemon are the test's (link_world.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "shim/memory/managed.h"
#include "shim/memory/queries.h"
#include "shim/tables/accounts.h"
#include "shim/tables/arrays.h"
#include "tests/unit/link_world.h"

#define PIECE (64 * MIB) /* of a prefetch: managed.c */
#define NOWHERE CU_DEVICE_INVALID

/* ---- more of the driver ---- */

static _Atomic int driver_streams; /* live */
static _Atomic int driver_out;     /* prefetches to the host, and to the device */
static _Atomic int driver_in;
static _Atomic uint64_t driver_in_bytes;
static _Atomic uint64_t driver_out_most; /* bytes of the largest */
static _Atomic int driver_is_slow;       /* prefetches do not end */
static _Atomic int driver_prefetch_error;
static _Atomic int driver_last_place; /* what it says of the last prefetch */
static _Atomic int driver_is_concurrent;
static _Atomic uint64_t driver_graph_bytes;
static _Atomic int driver_trims;
static _Atomic int driver_array_error;
static _Atomic uint64_t driver_next_array;
static _Atomic uint64_t driver_asked_about;
static _Atomic int driver_questions; /* about pointers */

static enum { HAS_PREFETCH, HAS_OLD_PREFETCH, HAS_NO_PREFETCH } driver_has; /* before the start */

static CUresult drv_managed(CUdeviceptr *va, size_t bytes, unsigned flags)
{
    return flags == CU_MEM_ATTACH_GLOBAL ? drv_alloc(va, bytes) : CUDA_ERROR_INVALID_VALUE;
}
static CUresult drv_stream(CUstream *stream, unsigned flags)
{
    CHECK(current != NULL && flags == CU_STREAM_NON_BLOCKING);
    atomic_fetch_add(&driver_streams, 1);
    *stream = (CUstream)0x300;
    return CUDA_SUCCESS;
}
static CUresult drv_stream_end(CUstream stream)
{
    CHECK(stream == (CUstream)0x300 && atomic_fetch_sub(&driver_streams, 1) > 0);
    return CUDA_SUCCESS;
}
static CUresult drv_stream_query(CUstream stream)
{
    CHECK(stream == (CUstream)0x300 && atomic_load(&driver_streams) > 0);
    return atomic_load(&driver_is_slow) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
static CUresult drv_prefetch(CUdeviceptr va, size_t bytes, CUmemLocation location, unsigned flags,
                             CUstream stream)
{
    CHECK(va != 0 && flags == 0 && stream == (CUstream)0x300);
    if (atomic_load(&driver_prefetch_error))
        return (CUresult)atomic_load(&driver_prefetch_error);
    if (location.type == CU_MEM_LOCATION_TYPE_HOST) {
        if (bytes > atomic_load(&driver_out_most))
            atomic_store(&driver_out_most, bytes);
        atomic_fetch_add(&driver_out, 1);
    } else {
        CHECK(location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id == 0);
        atomic_fetch_add(&driver_in_bytes, bytes);
        atomic_fetch_add(&driver_in, 1); /* last: it is waited for */
    }
    return CUDA_SUCCESS;
}
static CUresult drv_prefetch_1(CUdeviceptr va, size_t bytes, CUdevice device, CUstream stream)
{
    CUmemLocation location = {.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST
                                                              : CU_MEM_LOCATION_TYPE_DEVICE,
                              .id = device == CU_DEVICE_CPU ? 0 : device};
    return drv_prefetch(va, bytes, location, 0, stream);
}
static CUresult drv_range_attribute(void *data, size_t size, CUmem_range_attribute attribute,
                                    CUdeviceptr va, size_t bytes)
{
    CHECK(va != 0 && bytes > 0 && size == sizeof(int) &&
          attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION);
    *(int *)data = atomic_load(&driver_last_place);
    return CUDA_SUCCESS;
}
static CUresult drv_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    CHECK(device == 0 && (attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS ||
                          attribute == CU_DEVICE_ATTRIBUTE_MPS_ENABLED));
    *value = attribute == CU_DEVICE_ATTRIBUTE_MPS_ENABLED ? 0 : atomic_load(&driver_is_concurrent);
    return CUDA_SUCCESS;
}
static CUresult drv_advise(CUdeviceptr va, size_t bytes, CUmem_advise advice,
                           CUmemLocation location)
{
    (void)advice;
    (void)location;
    return va != 0 && bytes > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static CUresult drv_array(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    if (descriptor == NULL || descriptor->Width == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *array = (CUarray)(uintptr_t)(0x1000 + 8 * atomic_fetch_add(&driver_next_array, 1));
    return CUDA_SUCCESS;
}
static CUresult drv_array_3d(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    CUDA_ARRAY_DESCRIPTOR flat = {.Width = descriptor->Width};
    return drv_array(array, &flat);
}
static CUresult drv_mipmap(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                           unsigned levels)
{
    CHECK(levels > 0);
    return drv_array_3d((CUarray *)(void *)array, descriptor);
}
static CUresult drv_array_end(CUarray array)
{
    return array != NULL ? (CUresult)atomic_load(&driver_array_error) : CUDA_ERROR_INVALID_HANDLE;
}
static CUresult drv_mipmap_end(CUmipmappedArray array)
{
    return drv_array_end((CUarray)(void *)array);
}
static CUresult drv_graph_attribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    CHECK(device == 0 && attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
    *(cuuint64_t *)value = atomic_load(&driver_graph_bytes);
    return CUDA_SUCCESS;
}
static CUresult drv_trim(CUdevice device)
{
    CHECK(device == 0);
    atomic_store(&driver_graph_bytes, 0);
    atomic_fetch_add(&driver_trims, 1); /* last: it is waited for */
    return CUDA_SUCCESS;
}
static CUresult drv_instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    (void)flags;
    *exec = NULL;
    return graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static CUresult drv_pointer(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    (void)data;
    atomic_store(&driver_asked_about, ptr);
    atomic_fetch_add(&driver_questions, 1);
    return attribute == 99 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static CUresult drv_pointers(unsigned n, CUpointer_attribute *attributes, void **data,
                             CUdeviceptr ptr)
{
    (void)n;
    (void)attributes;
    (void)data;
    (void)ptr;
    atomic_fetch_add(&driver_questions, 1);
    return CUDA_SUCCESS;
}

static void boot_more(void)
{
    atomic_store(&driver_is_concurrent, 1);
    atomic_store(&driver_last_place, NOWHERE);
    gm_real.cuMemAllocManaged = drv_managed;
    gm_real.cuStreamCreate = drv_stream;
    gm_real.cuStreamDestroy_v2 = drv_stream_end;
    gm_real.cuStreamQuery = drv_stream_query;
    if (driver_has == HAS_PREFETCH)
        gm_real.cuMemPrefetchAsync_v2 = drv_prefetch;
    else if (driver_has == HAS_OLD_PREFETCH)
        gm_real.cuMemPrefetchAsync = drv_prefetch_1;
    gm_real.cuMemRangeGetAttribute = drv_range_attribute;
    gm_real.cuDeviceGetAttribute = drv_attribute;
    gm_real.cuMemAdvise_v2 = drv_advise;
    gm_real.cuArrayCreate_v2 = drv_array;
    gm_real.cuArray3DCreate_v2 = drv_array_3d;
    gm_real.cuMipmappedArrayCreate = drv_mipmap;
    gm_real.cuArrayDestroy = drv_array_end;
    gm_real.cuMipmappedArrayDestroy = drv_mipmap_end;
    gm_real.cuDeviceGetGraphMemAttribute = drv_graph_attribute;
    gm_real.cuDeviceGraphMemTrim = drv_trim;
    gm_real.cuGraphInstantiateWithFlags = drv_instantiate;
    gm_real.cuPointerGetAttribute = drv_pointer;
    gm_real.cuPointerGetAttributes = drv_pointers;
    boot_live();
}

static CUdeviceptr make_managed(uint64_t bytes)
{
    CUdeviceptr va = 0;
    CHECK(gm_on_cuMemAllocManaged(&va, bytes, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    return va;
}

static void advise(CUdeviceptr va, CUmem_advise advice, CUmemLocationType type)
{
    CUmemLocation location = {.type = type};
    CHECK(gm_on_cuMemAdvise_v2(va + MIB, 4096, advice, location) == CUDA_SUCCESS);
}

static bool reaches(const _Atomic int *word, int value)
{
    for (int i = 0; i < 60000 && atomic_load(word) < value; i++)
        nap(1000);
    return atomic_load(word) >= value;
}

static uint64_t free_now(void)
{
    size_t bytes, total;
    CHECK(gm_on_cuMemGetInfo_v2(&bytes, &total) == CUDA_SUCCESS && total == BUDGET);
    return bytes;
}

/* ---- managed memory ---- */

static void close_quietly(void)
{
    struct gm_msg_drained drained = close_app(60000);
    CHECK(drained.status == GM_DRAIN_QUIET);
}

static void managed_moves(void)
{
    boot_more();
    CUdeviceptr plain = make_managed(PIECE + MIB), kept = make_managed(4 * MIB);
    CUdeviceptr mostly = make_managed(4 * MIB);
    CHECK(atomic_load(&stat_area->managed_bytes) == PIECE + 9 * MIB);
    CHECK(atomic_load(&stat_area->real_bytes) == 0 && free_now() == BUDGET);
    advise(kept, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_LOCATION_TYPE_DEVICE);
    advise(mostly, CU_MEM_ADVISE_SET_READ_MOSTLY, CU_MEM_LOCATION_TYPE_DEVICE);

    close_quietly();
    CHECK(atomic_load(&driver_out) == 2 && atomic_load(&driver_out_most) == PIECE);
    CHECK(atomic_load(&driver_streams) == 0 && atomic_load(&driver_in) == 0);
    set_gate(GM_GATE_OPEN);
    CHECK(reaches(&driver_in, 1) && atomic_load(&driver_in_bytes) == PIECE + MIB);

    /* Advice that is taken back, and such as names the host, lets it go. */
    advise(kept, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, CU_MEM_LOCATION_TYPE_DEVICE);
    advise(mostly, CU_MEM_ADVISE_UNSET_READ_MOSTLY, CU_MEM_LOCATION_TYPE_DEVICE);
    advise(plain, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_LOCATION_TYPE_HOST);
    close_quietly();
    CHECK(atomic_load(&driver_out) == 2 + 4);
    set_gate(GM_GATE_OPEN);
    CHECK(reaches(&driver_in, 1 + 3));

    /* What the program itself prefetched to the host stays there. */
    atomic_store(&driver_last_place, CU_DEVICE_CPU);
    close_quietly();
    CHECK(atomic_load(&driver_out) == 6);
    set_gate(GM_GATE_OPEN);
    CHECK(gm_on_cuMemFree_v2(plain) == CUDA_SUCCESS && gm_on_cuMemFree_v2(kept) == CUDA_SUCCESS);
    CHECK(atomic_load(&stat_area->managed_bytes) == 4 * MIB);
    CHECK(gm_on_cuMemFree_v2(mostly) == CUDA_SUCCESS && !gm_managed_exists());
    CHECK(atomic_load(&stat_area->managed_bytes) == 0);
    close_quietly();
    CHECK(atomic_load(&driver_out) == 6 && atomic_load(&driver_streams) == 0);
}

/* It comes in as far as there is room beside the program's other memory; what did not is ours to
 * move again. */
static void managed_has_no_room(void)
{
    boot_more();
    CUdeviceptr chunks = allocate(BUDGET - 6 * MIB, NULL, false);
    CHECK(chunks != 0 && free_now() == 6 * MIB);
    make_managed(8 * MIB);
    make_managed(8 * MIB);
    close_quietly();
    CHECK(atomic_load(&driver_out) == 2);
    set_gate(GM_GATE_OPEN);
    CHECK(reaches(&driver_in, 1) && atomic_load(&driver_in_bytes) == 6 * MIB);
    for (int i = 0; i < 60000 && gm_managed_is_out(); i++)
        nap(1000);
    CHECK(!gm_managed_is_out());

    /* The driver says that it is on the host. That was the program's wish for the first, which was
     * brought in, and ours for the second, which may have been faulted in again. */
    atomic_store(&driver_last_place, CU_DEVICE_CPU);
    close_quietly();
    CHECK(atomic_load(&driver_out) == 3);
    gm_account_add(GM_ACCOUNT_ARRAYS, 0, 6 * MIB); /* now there is no room at all */
    CHECK(free_now() == 0);
    set_gate(GM_GATE_OPEN);
    for (int i = 0; i < 60000 && gm_managed_is_out(); i++)
        nap(1000);
    CHECK(!gm_managed_is_out() && atomic_load(&driver_in) == 1);
    close_quietly();
    CHECK(atomic_load(&driver_out) == 4);
}

/* A drain waits for half of its time at most, and what failed is left alone. */
static void managed_is_slow(void)
{
    boot_more();
    make_managed(4 * PIECE);
    atomic_store(&driver_is_slow, 1);
    struct gm_msg_drained drained = close_app(8000);
    CHECK(drained.status == GM_DRAIN_QUIET);
    CHECK(atomic_load(&driver_out) == 1 && atomic_load(&driver_streams) == 0);
    atomic_store(&driver_is_slow, 0);
    set_gate(GM_GATE_OPEN);
    CHECK(reaches(&driver_in, 1) && atomic_load(&driver_in_bytes) == PIECE);

    atomic_store(&driver_prefetch_error, CUDA_ERROR_INVALID_VALUE);
    close_quietly();
    set_gate(GM_GATE_OPEN);
    CHECK(!gm_managed_is_out());
    atomic_store(&driver_prefetch_error, 0);
    atomic_store(&driver_is_concurrent, 0); /* a device that moves it by itself */
    close_quietly();
    set_gate(GM_GATE_OPEN);
    CHECK(atomic_load(&driver_out) == 1 && atomic_load(&driver_streams) == 0);
}

/* With a driver before CUDA 12.2, and one without any of the calls. */
static void managed_of_an_old_driver(void)
{
    driver_has = HAS_OLD_PREFETCH;
    boot_more();
    make_managed(4 * PIECE);
    close_quietly();
    CHECK(atomic_load(&driver_out) == 4);
    set_gate(GM_GATE_OPEN);
    CHECK(reaches(&driver_in, 1) && atomic_load(&driver_in_bytes) == 4 * PIECE);
}

static void managed_without_prefetch(void)
{
    driver_has = HAS_NO_PREFETCH;
    boot_more();
    make_managed(4 * PIECE);
    close_quietly();
    CHECK(!gm_managed_is_out() && atomic_load(&driver_streams) == 0);
    set_gate(GM_GATE_OPEN);
    CHECK(submit() == CUDA_SUCCESS);
}

/* The daemon dies while it is out: the program, from which nothing else was taken, goes on. */
static void managed_is_out_when_the_daemon_dies(void)
{
    boot_more();
    make_managed(8 * MIB);
    close_quietly();
    CHECK(atomic_load(&driver_out) == 1 && gm_managed_is_out());
    lose_daemon();
    CHECK(submit() == CUDA_SUCCESS);
    for (int i = 0; i < 60000 && atomic_load(&driver_streams) > 0; i++)
        nap(1000);
    CHECK(atomic_load(&driver_in) == 0); /* nobody knows of a budget: it comes when it is touched */
}

static void *program_destroys(void *context)
{
    CHECK(gm_on_cuCtxDestroy_v2(context) == CUDA_SUCCESS);
    return NULL;
}

/* A context is destroyed while its memory goes out: not before the drainer came out of it. */
static void managed_dies_on_the_way(void)
{
    CUcontext context;
    boot_more();
    CHECK(gm_on_cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    make_managed(4 * PIECE);
    current = (CUcontext)0x100;
    make_managed(2 * PIECE);
    atomic_store(&driver_is_slow, 1);
    struct gm_msg_close closing = {
        .epoch = ++epoch, .grace_ns = UINT64_MAX, .deadline_ns = 200 * GM_S};
    atomic_store(&ctl->epoch, epoch);
    set_gate(GM_GATE_CLOSED);
    send_to_app(GM_MSG_CLOSE, &closing);
    CHECK(reaches(&driver_out, 1) && atomic_load(&driver_streams) == 1);
    pthread_t thread = start(program_destroys, context);
    atomic_store(&driver_is_slow, 0);
    CHECK(receive() == GM_MSG_DRAINED);
    CHECK(((const struct gm_msg_drained *)got.body)->status == GM_DRAIN_QUIET);
    pthread_join(thread, NULL);
    CHECK(atomic_load(&stat_area->managed_bytes) == 2 * PIECE);
    set_gate(GM_GATE_OPEN); /* what is left comes in, and nothing of what is gone */
    for (int i = 0; i < 60000 && gm_managed_is_out(); i++)
        nap(1000);
    CHECK(!gm_managed_is_out() && atomic_load(&driver_in_bytes) == 2 * PIECE);
    CHECK(atomic_load(&driver_streams) == 0);
}

static void *program_frees_managed(void *argument)
{
    const CUdeviceptr *va = argument;
    current = (CUcontext)0x100;
    for (int i = 0; va[i] != 0; i++)
        CHECK(gm_on_cuMemFree_v2(va[i]) == CUDA_SUCCESS);
    return NULL;
}

/* Threads that make and free it while it goes out and comes in. */
static void managed_comes_and_goes(void)
{
    CUdeviceptr va[33] = {0};
    boot_more();
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 32; i++)
            va[i] = make_managed(2 * MIB);
        pthread_t thread = start(program_frees_managed, va);
        atomic_store(&driver_last_place, NOWHERE);
        close_quietly();
        set_gate(GM_GATE_OPEN);
        pthread_join(thread, NULL);
        CHECK(atomic_load(&stat_area->managed_bytes) == 0 && !gm_managed_exists());
    }
    CHECK(gm_allocs_count() == 0);
    close_quietly();
    CHECK(atomic_load(&driver_streams) == 0);
}

/* ---- arrays ---- */

static void arrays_are_counted(void)
{
    CUDA_ARRAY_DESCRIPTOR flat = {
        .Width = 1000, .Height = 1000, .Format = CU_AD_FORMAT_HALF, .NumChannels = 2};
    CUDA_ARRAY3D_DESCRIPTOR deep = {
        .Width = 64, .Height = 64, .Depth = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray first, second, third;
    CUmipmappedArray mipmap;
    CUcontext context;
    boot_more();
    CHECK(gm_on_cuArrayCreate_v2(&first, &flat) == CUDA_SUCCESS);
    CHECK(atomic_load(&stat_area->array_bytes) == 4000000);
    CHECK(gm_on_cuArray3DCreate_v2(&second, &deep) == CUDA_SUCCESS);
    CHECK(gm_on_cuMipmappedArrayCreate(&mipmap, &deep, 2) == CUDA_SUCCESS);
    CHECK(atomic_load(&stat_area->array_bytes) == 4000000 + (2 << 20) + (128 << 10));
    CHECK(free_now() == BUDGET - 4000000 - (2 << 20) - (128 << 10));
    CHECK(gm_on_cuArrayCreate_v2(&third, NULL) == CUDA_ERROR_INVALID_VALUE);
    CHECK(gm_on_cuArrayDestroy(NULL) == CUDA_ERROR_INVALID_HANDLE);

    atomic_store(&driver_array_error, CUDA_ERROR_ARRAY_IS_MAPPED); /* it is not destroyed */
    CHECK(gm_on_cuArrayDestroy(first) == CUDA_ERROR_ARRAY_IS_MAPPED);
    CHECK(atomic_load(&stat_area->array_bytes) == 4000000 + (2 << 20) + (128 << 10));
    atomic_store(&driver_array_error, 0);
    CHECK(gm_on_cuArrayDestroy(first) == CUDA_SUCCESS);
    CHECK(gm_on_cuArrayDestroy(first) == CUDA_SUCCESS); /* as this driver says; not counted twice */
    CHECK(gm_on_cuMipmappedArrayDestroy(mipmap) == CUDA_SUCCESS);
    CHECK(atomic_load(&stat_area->array_bytes) == 1 << 20);

    /* The same handle again, of one that went by another way. */
    atomic_store(&driver_next_array, 1);
    CHECK(gm_on_cuArrayCreate_v2(&first, &flat) == CUDA_SUCCESS && first == second);
    CHECK(atomic_load(&stat_area->array_bytes) == 4000000);

    /* A context takes its own with it, and no other's. */
    CHECK(gm_on_cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    CHECK(gm_on_cuArray3DCreate_v2(&second, &deep) == CUDA_SUCCESS);
    make_managed(2 * MIB);
    CHECK(atomic_load(&stat_area->array_bytes) == 4000000 + (1 << 20));
    CHECK(gm_on_cuCtxDestroy_v2(context) == CUDA_SUCCESS);
    CHECK(atomic_load(&stat_area->array_bytes) == 4000000);
    CHECK(atomic_load(&stat_area->managed_bytes) == 0 && !gm_managed_exists());
    current = (CUcontext)0x100;
    CHECK(free_now() == BUDGET - 4000000);
}

/* ---- memory of graphs ---- */

static bool graph_bytes_are(uint64_t bytes)
{
    for (int i = 0; i < 60000 && atomic_load(&stat_area->graph_bytes) != bytes; i++)
        nap(1000);
    return atomic_load(&stat_area->graph_bytes) == bytes;
}

static void graphs_are_sampled(void)
{
    CUgraphExec exec;
    boot_more();
    atomic_store(&driver_graph_bytes, 5 * MIB);
    close_quietly(); /* no graph was made: nobody asks */
    CHECK(atomic_load(&stat_area->graph_bytes) == 0 && atomic_load(&driver_trims) == 0);
    set_gate(GM_GATE_OPEN);
    CHECK(gm_on_cuGraphInstantiateWithFlags(&exec, NULL, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(gm_on_cuGraphInstantiateWithFlags(&exec, (CUgraph)0x1, 0) == CUDA_SUCCESS);
    close_quietly();
    CHECK(reaches(&driver_trims, 1) && graph_bytes_are(0));
    set_gate(GM_GATE_OPEN);
    atomic_store(&driver_graph_bytes,
                 7 * MIB); /* while it runs it is looked at from time to time */
    CHECK(graph_bytes_are(7 * MIB));
    CHECK(free_now() == BUDGET - 7 * MIB && atomic_load(&driver_trims) == 1);
    atomic_store(&driver_graph_bytes, 3 * MIB);
    CHECK(graph_bytes_are(3 * MIB));
    close_quietly();
    CHECK(reaches(&driver_trims, 2) && graph_bytes_are(0) && free_now() == BUDGET);
}

/* ---- questions ---- */

static void *program_asks_what_is_new(void *argument)
{
    const CUdeviceptr *va = argument;
    unsigned long long value;
    CHECK(gm_on_cuPointerGetAttribute(&value, (CUpointer_attribute)99, *va) == CUDA_SUCCESS);
    return NULL;
}

/* With the gate closed and nothing mapped. */
static void pointers_while_away(void)
{
    unsigned long long value = 0, id = 0, id_2 = 0;
    unsigned is_on = 1;
    CUdeviceptr base;
    size_t bytes;
    boot_more();
    CUdeviceptr va = allocate(5 * MIB + 3, NULL, true), other = allocate(4 * MIB, NULL, true);
    close_quietly();
    unmap_from_app(va, gm_chunk_round(5 * MIB + 3));

    CHECK(gm_on_cuMemGetAddressRange_v2(&base, &bytes, va + 5 * MIB + 2) == CUDA_SUCCESS);
    CHECK(base == va && bytes == 5 * MIB + 3);
    CHECK(gm_on_cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, va) == CUDA_SUCCESS);
    CHECK(gm_on_cuPointerGetAttribute(&id_2, CU_POINTER_ATTRIBUTE_BUFFER_ID, other) ==
          CUDA_SUCCESS);
    CHECK(id >= GM_ALLOC_ID_MIN && id_2 >= GM_ALLOC_ID_MIN && id != id_2);
    CHECK(gm_on_cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_RANGE_SIZE, va + 7) ==
              CUDA_SUCCESS &&
          value == 5 * MIB + 3);
    CHECK(gm_on_cuPointerSetAttribute(&is_on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, va + 9) ==
          CUDA_SUCCESS);
    value = 0;
    CHECK(gm_on_cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, va) ==
              CUDA_SUCCESS &&
          value == 1);
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens = {.p2pToken = 7, .vaSpaceToken = 7};
    CHECK(gm_on_cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, va) ==
          CUDA_SUCCESS);
    CHECK(tokens.p2pToken == 0 && tokens.vaSpaceToken == 0);
    CHECK(atomic_load(&driver_questions) == 0);

    /* Not ours: the driver's word, at once. */
    CHECK(gm_on_cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 4096) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(gm_on_cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, va) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(gm_on_cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, va + 5 * MIB + 3) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(atomic_load(&driver_questions) == 3);
    CHECK(atomic_load(&driver_asked_about) == 0); /* a chunk is there, but nothing of the program */

    /* Several, with one that does not apply; none may be missing. */
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                   CU_POINTER_ATTRIBUTE_MAPPING_SIZE};
    int ordinal = 7;
    void *in_host = &ordinal, *data[] = {&ordinal, &in_host, &bytes},
         *holed[] = {&ordinal, NULL, &bytes};
    CHECK(gm_on_cuPointerGetAttributes(3, names, data, va) == CUDA_SUCCESS);
    CHECK(ordinal == 0 && in_host == NULL);
    CHECK(bytes == 5 * MIB + 3);
    CHECK(gm_on_cuPointerGetAttributes(3, names, holed, va) == CUDA_ERROR_INVALID_VALUE);
    CHECK(atomic_load(&driver_questions) == 3);

    /* What only a newer driver knows is asked of it, when the memory is there. */
    pthread_t thread = start(program_asks_what_is_new, &va);
    for (int i = 0; i < 60000 && atomic_load(&stat_area->waiting) == 0; i++)
        nap(1000);
    CHECK(atomic_load(&stat_area->waiting) == 1 && atomic_load(&driver_questions) == 3);
    map_to_app(va, gm_chunk_round(5 * MIB + 3));
    set_gate(GM_GATE_OPEN);
    pthread_join(thread, NULL);
    CHECK(atomic_load(&driver_questions) == 4);
    names[1] = (CUpointer_attribute)99;
    CHECK(gm_on_cuPointerGetAttributes(3, names, data, va) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_questions) == 5 && bytes == 5 * MIB + 3);
}

/* The child of a fork has nothing to do with any of it. */
static void forks(void)
{
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR flat = {
        .Width = 1000, .Height = 1000, .Format = CU_AD_FORMAT_HALF, .NumChannels = 2};
    boot_more();
    CUdeviceptr va = allocate(4 * MIB, NULL, true), managed = make_managed(4 * MIB);
    set_gate(GM_GATE_CLOSED);
    pid_t child = fork();
    if (child == 0) {
        unsigned long long value;
        size_t bytes, total;
        CHECK(gm_on_cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_RANGE_SIZE, va) ==
              CUDA_ERROR_INVALID_VALUE);
        CHECK(atomic_load(&driver_questions) == 1);
        CHECK(gm_on_cuMemGetInfo_v2(&bytes, &total) == CUDA_SUCCESS && total == 222);
        CHECK(gm_on_cuArrayCreate_v2(&array, &flat) == CUDA_SUCCESS);
        CHECK(gm_on_cuArrayDestroy(array) == CUDA_SUCCESS);
        make_managed(4 * MIB);
        advise(managed, CU_MEM_ADVISE_SET_READ_MOSTLY, CU_MEM_LOCATION_TYPE_DEVICE);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(atomic_load(&stat_area->managed_bytes) == 4 * MIB);
    CHECK(atomic_load(&stat_area->array_bytes) == 0);
}

/* What a descriptor comes to. */
static void array_sizes(void)
{
    static const struct {
        CUDA_ARRAY3D_DESCRIPTOR descriptor;
        unsigned levels;
        uint64_t bytes;
    } rows[] = {
        {{.Width = 7, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1}, 1, 7},
        {{.Width = 7, .Height = 3, .Format = CU_AD_FORMAT_SIGNED_INT16, .NumChannels = 2}, 1, 84},
        {{.Width = 4, .Height = 4, .Depth = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4},
         1,
         1024},
        {{.Width = 8, .Height = 4, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1},
         9, /* 8x4, 4x2, 2x1, 1x1 */
         4 * (32 + 8 + 2 + 1)},
        {{.Width = 4,
          .Height = 4,
          .Depth = 6,
          .Format = CU_AD_FORMAT_UNSIGNED_INT8,
          .NumChannels = 1,
          .Flags = CUDA_ARRAY3D_CUBEMAP},
         3, /* layers do not shrink */
         6 * (16 + 4 + 1)},
        {{.Width = 4,
          .Height = 4,
          .Depth = 4,
          .Format = CU_AD_FORMAT_UNSIGNED_INT8,
          .NumChannels = 1},
         3,
         64 + 8 + 1},
        {{.Width = 6, .Height = 6, .Format = CU_AD_FORMAT_BC1_UNORM, .NumChannels = 4}, 1, 32},
        {{.Width = 8, .Height = 8, .Format = CU_AD_FORMAT_BC7_UNORM, .NumChannels = 4}, 1, 64},
        {{.Width = 8, .Height = 4, .Format = CU_AD_FORMAT_NV12, .NumChannels = 3}, 1, 48},
        {{.Width = 8,
          .Height = 8,
          .Format = CU_AD_FORMAT_FLOAT,
          .NumChannels = 1,
          .Flags = CUDA_ARRAY3D_DEFERRED_MAPPING},
         1,
         0},
        {{.Width = 8,
          .Height = 8,
          .Format = CU_AD_FORMAT_FLOAT,
          .NumChannels = 1,
          .Flags = CUDA_ARRAY3D_SPARSE},
         1,
         0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK(gm_array_bytes(&rows[i].descriptor, rows[i].levels) == rows[i].bytes);
    /* Sizes that no driver would make stay numbers. */
    CUDA_ARRAY3D_DESCRIPTOR huge = {.Width = SIZE_MAX,
                                    .Height = SIZE_MAX,
                                    .Depth = SIZE_MAX,
                                    .Format = CU_AD_FORMAT_FLOAT,
                                    .NumChannels = 4};
    CHECK(gm_array_bytes(&huge, 64) >= 1ull << 62);
}

SCENARIO(forks)
SCENARIO(array_sizes)
SCENARIO(managed_moves)
SCENARIO(managed_has_no_room)
SCENARIO(managed_is_slow)
SCENARIO(managed_of_an_old_driver)
SCENARIO(managed_without_prefetch)
SCENARIO(managed_is_out_when_the_daemon_dies)
SCENARIO(managed_dies_on_the_way)
SCENARIO(managed_comes_and_goes)
SCENARIO(arrays_are_counted)
SCENARIO(graphs_are_sampled)
SCENARIO(pointers_while_away)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_managed_moves),
        cmocka_unit_test(test_managed_has_no_room),
        cmocka_unit_test(test_managed_is_slow),
        cmocka_unit_test(test_managed_of_an_old_driver),
        cmocka_unit_test(test_managed_without_prefetch),
        cmocka_unit_test(test_managed_is_out_when_the_daemon_dies),
        cmocka_unit_test(test_managed_dies_on_the_way),
        cmocka_unit_test(test_managed_comes_and_goes),
        cmocka_unit_test(test_arrays_are_counted),
        cmocka_unit_test(test_graphs_are_sampled),
        cmocka_unit_test(test_pointers_while_away),
        cmocka_unit_test(test_forks),
        cmocka_unit_test(test_array_sizes),
    };
    return cmocka_run_group_tests_name("unswappable", tests, NULL, NULL);
}
