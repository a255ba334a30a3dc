/*
 * The shim from its handlers to its socket (test_link.c): the gate closes, and drains contexts,
 * whatever becomes of them meanwhile.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "shim/gate/contexts.h"
#include "tests/unit/link_world.h"

static void gate_and_drain(void)
{
    boot_live();
    CHECK(submit() == CUDA_SUCCESS);
    CUcontext context;
    CHECK(gm_on_cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    CHECK(atomic_load(&stat_area->contexts) == 2);

    /* Quiet: both contexts were synchronized, and the primary one is not held on to. */
    int syncs = atomic_load(&driver_syncs), references = atomic_load(&driver_primary);
    struct gm_msg_drained drained = close_app(60000);
    CHECK(drained.status == GM_DRAIN_QUIET && drained.reason == GM_DRAIN_NONE);
    CHECK(atomic_load(&driver_syncs) == syncs + 2);
    CHECK(atomic_load(&driver_primary) == references);

    /* A submitter waits and says so; it goes on when the gate opens. */
    struct call call = {0};
    pthread_t thread = start(program_submits, &call);
    for (int i = 0; i < 60000 && atomic_load(&stat_area->waiting) == 0; i++)
        nap(1000);
    CHECK(atomic_load(&stat_area->waiting) == 1);
    struct pollfd wait = {.fd = peer, .events = POLLIN};
    CHECK(poll(&wait, 1, 60000) == 1);
    want_count = 0;
    CHECK(receive_any() == GM_MSG_WANT && want_count == 1);
    set_gate(GM_GATE_OPEN);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS);

    /* A thread that stays inside. */
    struct gm_slot *slot = gm_gate_enter();
    close_busy(GM_DRAIN_INSIDE);
    set_gate(GM_GATE_OPEN);
    gm_gate_leave(slot);

    /* Who is inside has the program synchronized: a CLOSE that waits for him does not keep it. */
    slot = gm_gate_enter();
    send_close(60000);
    nap(50000); /* the drainer is at it, most likely */
    CHECK(gm_drain_synchronize(120 * GM_S) == CUDA_SUCCESS);
    gm_gate_leave(slot);
    drained = await_drained();
    CHECK(drained.status == GM_DRAIN_QUIET);
    set_gate(GM_GATE_OPEN);

    /* Work that does not end: told in time, also while the drainer is still stuck; then quiet. */
    atomic_store(&driver_is_busy, 1);
    for (int i = 0; i < 2; i++) {
        close_busy(GM_DRAIN_WORK);
        set_gate(GM_GATE_OPEN);
        CHECK(submit() == CUDA_SUCCESS);
    }
    atomic_store(&driver_is_busy, 0);
    drained = close_app(60000);
    CHECK(drained.status == GM_DRAIN_QUIET);
    set_gate(GM_GATE_OPEN);

    /* A destroyed context is not synchronized any more. */
    CHECK(gm_on_cuCtxDestroy_v2(context) == CUDA_SUCCESS);
    CHECK(atomic_load(&stat_area->contexts) == 1);
    syncs = atomic_load(&driver_syncs);
    drained = close_app(60000);
    CHECK(drained.status == GM_DRAIN_QUIET && atomic_load(&driver_syncs) == syncs + 1);
}

static _Atomic int did_destroy;
static void *program_destroys(void *argument)
{
    CHECK(gm_on_cuCtxDestroy_v2(argument) == CUDA_SUCCESS);
    atomic_store(&did_destroy, 1);
    return NULL;
}

/* Destroying the context that the drainer is in waits for the drainer. */
static void destroy_while_draining(void)
{
    CUcontext context;
    boot_live();
    CHECK(gm_on_cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    atomic_store(&driver_is_busy, 1);
    for (int syncs = atomic_load(&driver_syncs); atomic_load(&driver_syncs) == syncs;) {
        close_busy(GM_DRAIN_WORK); /* until it is in there */
        set_gate(GM_GATE_OPEN);
    }
    pthread_t thread = start(program_destroys, context);
    nap(100000);
    CHECK(atomic_load(&did_destroy) == 0);
    atomic_store(&driver_is_busy, 0);
    pthread_join(thread, NULL);
}

static void *program_ends_capture(void *stream)
{
    CUgraph graph;
    CHECK(gm_on_cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    return NULL;
}

static void captures(void)
{
    CUstream stream = (CUstream)0x33;
    boot_live();
    CUdeviceptr va = allocate(4 * MIB, NULL, true);

    CHECK(gm_on_cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
          CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(atomic_load(&stat_area->captures) == 0);
    CHECK(gm_on_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK(atomic_load(&stat_area->captures) == 1);

    /* An end that does not end it, and one of a stream that was not counted. */
    CHECK(gm_on_cuStreamEndCapture(stream, NULL) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    CHECK(atomic_load(&stat_area->captures) == 1);

    /* Not closed, not synchronized, and the closed gate lets launches pass meanwhile. */
    int syncs = atomic_load(&driver_syncs);
    close_busy(GM_DRAIN_CAPTURE);
    CHECK(submit() == CUDA_SUCCESS);
    set_gate(GM_GATE_OPEN);

    /* A free is put off until the capture ends. */
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_mapped) == 1);
    CHECK(atomic_load(&driver_syncs) == syncs);
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_ERROR_INVALID_VALUE);

    /* The end of the capture gives it back, and then the program is quiet again. */
    pthread_t thread = start(program_ends_capture, stream);
    serve_free(va, 4 * MIB);
    pthread_join(thread, NULL);
    CHECK(atomic_load(&driver_mapped) == 0 && atomic_load(&driver_reserved) == 0);
    CHECK(atomic_load(&driver_syncs) == syncs + 1);
    CHECK(atomic_load(&stat_area->captures) == 0);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
}

/* A capture that goes with its context is as over as one that ends: what was put off, of this
 * context or of another, goes back. */
static void captures_lost(void)
{
    CUcontext context;
    boot_live();
    CUdeviceptr va = allocate(4 * MIB, NULL, true);
    CHECK(gm_on_cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    CUdeviceptr its = allocate(2 * MIB, context, true);
    CHECK(gm_on_cuStreamBeginCapture_v2((CUstream)0x33, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
          CUDA_SUCCESS);
    current = (CUcontext)0x100;
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_SUCCESS && gm_on_cuMemFree_v2(its) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_mapped) == 2);
    const int syncs = atomic_load(&driver_syncs);
    atomic_store(&driver_capturing, 0); /* as its context destroyed */
    pthread_t thread = start(program_destroys, context);
    serve_free(its, 2 * MIB);
    serve_free(va, 4 * MIB);
    pthread_join(thread, NULL);
    CHECK(atomic_load(&driver_syncs) == syncs + 1); /* not of what is no more */
    CHECK(atomic_load(&driver_mapped) == 0 && atomic_load(&driver_reserved) == 0);
    CHECK(atomic_load(&stat_area->captures) == 0);
}

static void *program_releases_primary(void *unused)
{
    (void)unused;
    CHECK(gm_on_cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
    return NULL;
}

/* What a failed synchronization means: a broken context is quiet, any other may still be at work.
 */
static void synchronizing_fails(void)
{
    boot_live();
    CUdeviceptr va = allocate(4 * MIB, NULL, true);
    atomic_store(&driver_sync_error, CUDA_ERROR_OUT_OF_MEMORY);
    struct gm_msg_drained drained = close_app(60000);
    CHECK(drained.status == GM_DRAIN_BUSY && drained.reason == GM_DRAIN_WORK);
    set_gate(GM_GATE_OPEN);
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(atomic_load(&driver_mapped) == 1);
    atomic_store(&driver_sync_error, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    drained = close_app(60000);
    CHECK(drained.status == GM_DRAIN_BUSY && drained.reason == GM_DRAIN_CAPTURE);
    set_gate(GM_GATE_OPEN);

    atomic_store(&driver_sync_error, CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    struct call call = {.va = va};
    pthread_t thread = start(program_frees, &call);
    serve_free(va, 4 * MIB);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_ERROR_ILLEGAL_ADDRESS); /* told, and done */
    CHECK(atomic_load(&driver_mapped) == 0 && atomic_load(&driver_reserved) == 0);
}

/* The memory of a context goes with it, by destroy and by the last release. */
static void contexts_take_their_memory(void)
{
    CUcontext context;
    boot_live();
    CHECK(gm_on_cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    current = (CUcontext)0x100;
    CUdeviceptr in_primary = allocate(4 * MIB, NULL, true);
    CUdeviceptr in_created = allocate(2 * MIB, context, true);
    pthread_t thread = start(program_destroys, context);
    serve_free(in_created, 2 * MIB);
    pthread_join(thread, NULL);
    CHECK(atomic_load(&driver_mapped) == 1 && atomic_load(&driver_reserved) == 1);

    /* A library holds the primary context by a way that is not hooked: the first release frees
     * nothing. */
    atomic_fetch_add(&driver_primary, 1);
    CHECK(gm_on_cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_mapped) == 1);
    thread = start(program_releases_primary, NULL);
    serve_free(in_primary, 4 * MIB);
    pthread_join(thread, NULL);
    CHECK(atomic_load(&driver_mapped) == 0 && atomic_load(&driver_reserved) == 0);
    CHECK(atomic_load(&stat_area->contexts) == 0);
}

/* What a context that has ended is asked for is the driver's affair; but it is not destroyed twice,
 * which the driver could only guess about. */
static void contexts_are_over(void)
{
    CUcontext context, again;
    CUdeviceptr va;
    boot_live();
    CHECK(gm_on_cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    CHECK(gm_on_cuCtxDestroy_v2(context) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_destroys) == 1);
    CHECK(gm_on_cuCtxDestroy_v2(context) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(atomic_load(&driver_destroys) == 1);
    CHECK(gm_on_cuCtxCreate_v2(&again, 0, 0) == CUDA_SUCCESS && again == context);
    CHECK(gm_on_cuCtxDestroy_v2(context) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_destroys) == 2);
    bool is_at_once = false;
    for (int i = 0; i < 3 && !is_at_once; i++) { /* the machine may be busy */
        uint64_t at = gm_now();
        CHECK(gm_on_cuCtxDestroy_v2(NULL) == CUDA_SUCCESS); /* this driver's word, at once */
        CHECK(atomic_load(&driver_destroys) == 3 + i);
        is_at_once = gm_now() - at < GM_CONTEXT_PATIENCE_S * GM_S;
    }
    CHECK(is_at_once);

    current = (CUcontext)0x100;
    CHECK(gm_on_cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_primary) == 0);
    CHECK(gm_on_cuMemAlloc_v2(&va, 4 * MIB) == CUDA_SUCCESS); /* nobody asks the daemon */
    CHECK(atomic_load(&driver_real_allocs) == 1 && atomic_load(&stat_area->real_bytes) == 0);
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_SUCCESS && atomic_load(&driver_real_allocs) == 0);
    CHECK(gm_on_cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    allocate(4 * MIB, NULL, true);
    CHECK(atomic_load(&driver_real_allocs) == 0);
}

/* ---- running them ---- */

SCENARIO(gate_and_drain)
SCENARIO(destroy_while_draining)
SCENARIO(captures)
SCENARIO(captures_lost)
SCENARIO(synchronizing_fails)
SCENARIO(contexts_take_their_memory)
SCENARIO(contexts_are_over)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gate_and_drain),
        cmocka_unit_test(test_destroy_while_draining),
        cmocka_unit_test(test_captures),
        cmocka_unit_test(test_captures_lost),
        cmocka_unit_test(test_synchronizing_fails),
        cmocka_unit_test(test_contexts_take_their_memory),
        cmocka_unit_test(test_contexts_are_over),
    };
    return cmocka_run_group_tests_name("link_contexts", tests, NULL, NULL);
}
