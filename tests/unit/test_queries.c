/*
 * QUERY and QUIET, from the shim's socket to the driver: when the answer comes, what it costs, and
 * that nothing else waits for it. The driver and the daemon are the test's (link_world.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "shim/gate/contexts.h"
#include "tests/unit/link_world.h"

static uint64_t query_number;

/* QUERY without waiting for the answer, which is expect_quiet's. */
static void query_app(void)
{
    struct gm_msg_query query = {.query = ++query_number};
    send_to_app(GM_MSG_QUERY, &query);
}

static void expect_quiet_of(uint32_t is_quiet, uint32_t had_none)
{
    CHECK(receive() == GM_MSG_QUIET);
    const struct gm_msg_quiet *quiet = got.body;
    CHECK(quiet->query == query_number && quiet->is_quiet == is_quiet);
    CHECK(quiet->had_none == had_none || had_none == 2);
}

static void expect_quiet(uint32_t is_quiet)
{
    expect_quiet_of(is_quiet, is_quiet == 0 ? 0 : 2); /* 2: either */
}

/* Until the drainer waits for an event: it has looked at one since. */
static void await_queries(void)
{
    int before = atomic_load(&driver_queries);
    for (int i = 0; i < 60000 && atomic_load(&driver_queries) == before; i++)
        nap(1000);
    CHECK(atomic_load(&driver_queries) > before);
}

/* QUERY: the answer comes when the work that was submitted has ended, and no core waits for it. */
static void queries(void)
{
    CUcontext context;
    boot_live();
    CHECK(gm_on_cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    int syncs = atomic_load(&driver_syncs), references = atomic_load(&driver_primary);

    /* Nothing to do: quiet at once, and both contexts were asked. */
    query_app();
    expect_quiet_of(1, 1);
    CHECK(atomic_load(&driver_records) == 2);

    /* Work: no answer before its end, and submitting is free meanwhile. */
    atomic_store(&driver_is_busy, 1);
    query_app();
    await_queries();
    CHECK(submit() == CUDA_SUCCESS);
    struct pollfd wait = {.fd = peer, .events = POLLIN};
    CHECK(poll(&wait, 1, 200) == 0);
    int looks = atomic_load(&driver_queries);
    uint64_t at = gm_now();
    CHECK(poll(&wait, 1, 800) == 0);
    looks = atomic_load(&driver_queries) - looks;
    CHECK((uint64_t)looks <= (gm_now() - at) / (20 * GM_MS) + 12); /* every 20 ms in the end */
    atomic_store(&driver_is_busy, 0);
    expect_quiet_of(1, 0);

    /* A newer query takes the place of the one before, which is not answered. */
    atomic_store(&driver_is_busy, 1);
    query_app();
    await_queries();
    int records = atomic_load(&driver_records);
    query_app();
    for (int i = 0; i < 60000 && atomic_load(&driver_records) == records; i++)
        nap(1000);
    CHECK(atomic_load(&driver_records) == records + 1);
    atomic_store(&driver_is_busy, 0);
    expect_quiet(1);

    CHECK(atomic_load(&driver_syncs) == syncs && atomic_load(&driver_events) == 0);
    CHECK(atomic_load(&driver_primary) == references);
}

/* A CLOSE that comes while a query waits is served as if there were none. */
static void close_during_query(void)
{
    boot_live();
    /* The drainer has left the query: it sees what else is in the way. */
    atomic_store(&driver_is_busy, 1);
    query_app();
    await_queries();
    struct gm_slot *slot = gm_gate_enter();
    close_busy(GM_DRAIN_INSIDE);
    set_gate(GM_GATE_OPEN);
    gm_gate_leave(slot);
    atomic_store(&driver_is_busy, 0);
    query_app();
    expect_quiet(1);

    for (int round = 0; round < 20; round++) {
        atomic_store(&driver_is_busy, 1);
        query_app();
        if (round % 2 == 0)
            await_queries();
        /* The deadline passes, with the right reason; the query is forgotten. */
        if (round % 4 < 2) {
            struct gm_msg_drained drained = close_app(BUSY_MS);
            CHECK(drained.status == GM_DRAIN_BUSY && drained.reason == GM_DRAIN_WORK);
            atomic_store(&driver_is_busy, 0);
            set_gate(GM_GATE_OPEN);
            query_app();
            expect_quiet(1);
            continue;
        }
        atomic_store(&driver_is_busy, 0);
        query_app(); /* may be answered before the CLOSE, never after DRAINED */
        struct gm_msg_close closing = {
            .epoch = ++epoch, .grace_ns = UINT64_MAX, .deadline_ns = 60000 * GM_MS};
        atomic_store(&ctl->epoch, epoch);
        set_gate(GM_GATE_CLOSED);
        send_to_app(GM_MSG_CLOSE, &closing);
        enum gm_msg_type type = receive();
        for (; type == GM_MSG_QUIET; type = receive())
            CHECK(((const struct gm_msg_quiet *)got.body)->query + 1 >= query_number);
        CHECK(type == GM_MSG_DRAINED);
        CHECK(((const struct gm_msg_drained *)got.body)->status == GM_DRAIN_QUIET);
        set_gate(GM_GATE_OPEN);
    }
    query_app();
    expect_quiet(1);
    for (int i = 0; i < 60000 && atomic_load(&driver_events) > 0; i++)
        nap(1000);
    CHECK(atomic_load(&driver_events) == 0);
}

/* What a query cannot find out: it is said, and later it can. */
static void queries_fail(void)
{
    CUstream stream = (CUstream)0x33;
    CUgraph graph;
    boot_live();

    /* A capture is open: nothing is recorded beside it (the driver checks), nor waited for. */
    CHECK(gm_on_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    query_app();
    expect_quiet(0);
    CHECK(gm_on_cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    atomic_store(&driver_is_busy, 1);
    query_app();
    await_queries();
    CHECK(gm_on_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    expect_quiet(0);
    CHECK(gm_on_cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    atomic_store(&driver_is_busy, 0);

    /* The driver cannot say; a broken context runs nothing. */
    atomic_store(&driver_record_error, CUDA_ERROR_OUT_OF_MEMORY);
    query_app();
    expect_quiet(0);
    atomic_store(&driver_record_error, CUDA_ERROR_ILLEGAL_ADDRESS);
    query_app();
    expect_quiet(1);
    atomic_store(&driver_record_error, 0);
    atomic_store(&driver_sync_error, CUDA_ERROR_OUT_OF_MEMORY);
    query_app();
    expect_quiet(0);
    atomic_store(&driver_sync_error, CUDA_ERROR_LAUNCH_FAILED);
    query_app();
    expect_quiet(1);
    atomic_store(&driver_sync_error, 0);
    query_app();
    expect_quiet(1);
    CHECK(atomic_load(&driver_events) == 0 && atomic_load(&driver_syncs) == 0);
}

/* Drivers that record no event for a context are synchronized. */
static void query_by_synchronizing(void)
{
    int syncs = atomic_load(&driver_syncs);
    query_app();
    expect_quiet(1);
    CHECK(atomic_load(&driver_syncs) == syncs + 1);

    /* A CLOSE while it is in there: told in time, and quiet as soon as the work ends. */
    atomic_store(&driver_is_busy, 1);
    query_app();
    for (int i = 0; i < 60000 && atomic_load(&driver_syncs) == syncs + 1; i++)
        nap(1000);
    struct gm_msg_drained drained = close_app(BUSY_MS);
    CHECK(drained.status == GM_DRAIN_BUSY && drained.reason == GM_DRAIN_WORK);
    set_gate(GM_GATE_OPEN);
    atomic_store(&driver_is_busy, 0);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    set_gate(GM_GATE_OPEN);
    CHECK(atomic_load(&driver_events) == 0);
}

static void queries_of_old_drivers(void)
{
    driver_is_old = true;
    boot_live();
    query_by_synchronizing();
}

static void queries_unsupported(void)
{
    boot_live();
    atomic_store(&driver_record_error, CUDA_ERROR_NOT_SUPPORTED);
    query_by_synchronizing();
}

static void *program_destroys(void *context)
{
    CHECK(gm_on_cuCtxDestroy_v2(context) == CUDA_SUCCESS);
    return NULL;
}

/* Destroying a context in which the drainer waits for an event waits for nothing: the drainer
 * leaves, and has to be asked again. */
static void destroy_during_query(void)
{
    CUcontext context;
    boot_live();
    CHECK(gm_on_cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    atomic_store(&driver_is_busy, 1);
    query_app();
    await_queries();
    uint64_t at = gm_now();
    pthread_join(start(program_destroys, context), NULL);
    CHECK(gm_now() - at < GM_CONTEXT_PATIENCE_S * GM_S);
    expect_quiet(0);

    /* The same for a primary context, whose last user lets go. */
    query_app();
    await_queries();
    at = gm_now();
    current = NULL;
    CHECK(gm_on_cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
    CHECK(gm_now() - at < GM_CONTEXT_PATIENCE_S * GM_S);
    CHECK(atomic_load(&driver_primary) == 0);
    expect_quiet(0);
    CHECK(atomic_load(&stat_area->contexts) == 0 && atomic_load(&driver_events) == 0);
    query_app();
    expect_quiet(1); /* no context, no work */
}

/* The daemon is lost while a query waits: nobody answers, and the drainer is free. */
static void lost_during_query(void)
{
    boot_live();
    atomic_store(&driver_is_busy, 1);
    query_app();
    await_queries();
    lose_daemon();
    for (int i = 0; i < 60000 && atomic_load(&driver_events) > 0; i++)
        nap(1000);
    CHECK(atomic_load(&driver_events) == 0);
    CHECK(submit() == CUDA_SUCCESS);
}

/* ---- running them ---- */

SCENARIO(queries)
SCENARIO(close_during_query)
SCENARIO(queries_fail)
SCENARIO(queries_of_old_drivers)
SCENARIO(queries_unsupported)
SCENARIO(destroy_during_query)
SCENARIO(lost_during_query)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queries),
        cmocka_unit_test(test_close_during_query),
        cmocka_unit_test(test_queries_fail),
        cmocka_unit_test(test_queries_of_old_drivers),
        cmocka_unit_test(test_queries_unsupported),
        cmocka_unit_test(test_destroy_during_query),
        cmocka_unit_test(test_lost_during_query),
    };
    return cmocka_run_group_tests_name("queries", tests, NULL, NULL);
}
