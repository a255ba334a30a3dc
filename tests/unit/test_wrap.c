/*
 * shim/entry/wrap: what wrappers of graphs mark before the driver is called, and note after it.
 * The test plays the driver, the gate, and whom the wrappers call.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "shim/entry/load.h"
#include "shim/gate/gate.h"
#include "shim/gate/hot.h"
#include "shim/handlers/handlers.h"
#include "shim/memory/freed.h"
#include "shim/memory/pools.h"
#include "shim/observe/replays.h"
#include "shim/observe/windows.h"

/* ---- the driver: it says what the test wants ---- */

static CUresult answer;
static unsigned called, noted;  /* calls of the driver; of gm_replays_on_<symbol> */
static unsigned called_at_note; /* calls of the driver before the last of these */

struct gm_real gm_real;
struct gm_hot gm_hot;

#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    static CUresult CUDAAPI drv_##symbol params                                                    \
    {                                                                                              \
        called++;                                                                                  \
        return answer;                                                                             \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "shim/driver/hooks.def"
#undef GM_HOOK

/* ---- whom the wrappers call ---- */

#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    GM_ONLY_HANDLE(kind)                                                                           \
    (CUresult gm_on_##symbol params { return CUDA_SUCCESS; })                                      \
        GM_ONLY_LAUNCH(kind)(void gm_windows_of_##symbol params{})                                 \
            GM_ONLY_REPLAY(kind)(void gm_replays_on_##symbol params {                              \
                noted++;                                                                           \
                called_at_note = called;                                                           \
            })
#include "shim/driver/hooks.def"
#undef GM_HOOK
#pragma GCC diagnostic pop

bool gm_real_load(void)
{
    return true;
}

CUresult gm_real_missing(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

_Atomic bool gm_windows_is_on, gm_replays_is_on;

void gm_windows_crossed(uint64_t bytes, uint64_t launches)
{
    (void)bytes, (void)launches;
}

enum gm_crossing gm_windows_crossing(uint64_t va, bool is_host)
{
    (void)va, (void)is_host;
    return GM_CROSSES_NOT;
}

void gm_windows_of_none(const void *unused, uint64_t bytes)
{
    (void)unused, (void)bytes;
}

void gm_windows_of_unknown(const void *unused, uint64_t bytes)
{
    (void)unused, (void)bytes;
}

void gm_windows_of_address(const void *address, uint64_t bytes)
{
    (void)address, (void)bytes;
}

void gm_windows_of_copy_2d(const void *copy, uint64_t bytes)
{
    (void)copy, (void)bytes;
}

void gm_windows_of_copy_3d(const void *copy, uint64_t bytes)
{
    (void)copy, (void)bytes;
}

void gm_windows_of_copy_peer(const void *copy, uint64_t bytes)
{
    (void)copy, (void)bytes;
}

void gm_windows_of_lists(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes,
                         size_t n)
{
    (void)to, (void)from, (void)bytes, (void)n;
}

_Atomic uint32_t gm_freed_n[GM_FREED_REASONS];

bool gm_freed_hold(const uint64_t *words, size_t n)
{
    (void)words, (void)n;
    return false;
}

_Atomic bool gm_pools_has_excess;

void gm_pools_give_back_excess(void)
{
}

/* ---- the gate is open ---- */

static struct gm_slot slot, taken = {.inside = GM_SLOT_IN};
__thread struct gm_gate_thread gm_gate_self;

struct gm_slot *gm_gate_enter_slow(void)
{
    return &slot;
}

CUresult gm_gate_result_slow(CUresult result)
{
    return result;
}

CUresult gm_gate_leave_slow(struct gm_slot *left, CUresult result)
{
    (void)left;
    return result;
}

void gm_gate_waited_slow(void)
{
}

/* ---- tests ---- */

static int set_up(void **state)
{
    (void)state;
#define GM_HOOK(api, symbol, since, mode, kind, params, args) gm_real.symbol = drv_##symbol;
#include "shim/driver/hooks.def"
#undef GM_HOOK
    atomic_store(&gm_windows_is_on, true);
    atomic_store(&gm_replays_is_on, true);
    gm_gate_self.fast = &taken;
    answer = CUDA_SUCCESS;
    called = noted = 0;
    return 0;
}

/* A wrapper was called: it returned the driver's answer, and noted so often. */
static void expect(CUresult result, unsigned times)
{
    assert_int_equal(result, answer);
    assert_int_equal(called, 1);
    assert_int_equal(noted, times);
    called = noted = 0;
}

/* What the driver did not do is not noted, and what it did after that. */
static void test_updates(void **state)
{
    static const CUresult answers[] = {CUDA_SUCCESS, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                                       CUDA_ERROR_INVALID_VALUE};
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        const unsigned times = answers[i] == CUDA_SUCCESS;
        answer = answers[i];
        called_at_note = 1;
        expect(cuGraphExecUpdate(NULL, NULL, NULL, NULL), times);
        expect(cuGraphExecUpdate_v2(NULL, NULL, NULL), times);
        expect(cuGraphExecKernelNodeSetParams(NULL, NULL, NULL), times);
        expect(cuGraphExecKernelNodeSetParams_v2(NULL, NULL, NULL), times);
        expect(cuGraphExecMemcpyNodeSetParams(NULL, NULL, NULL, NULL), times);
        expect(cuGraphExecMemsetNodeSetParams(NULL, NULL, NULL, NULL), times);
        expect(cuGraphExecChildGraphNodeSetParams(NULL, NULL, NULL), times);
        expect(cuGraphExecNodeSetParams(NULL, NULL, NULL), times);
        expect(cuTexObjectCreate(NULL, NULL, NULL, NULL), times);
        assert_int_equal(called_at_note, 1);
    }
    atomic_store(&gm_replays_is_on, false);
    answer = CUDA_SUCCESS;
    expect(cuGraphExecUpdate_v2(NULL, NULL, NULL), 0);
}

/* A launch is marked before it is submitted, whatever becomes of it. */
static void test_launches(void **state)
{
    (void)state;
    called_at_note = 1;
    expect(cuGraphLaunch(NULL, NULL), 1);
    assert_int_equal(called_at_note, 0);
    answer = CUDA_ERROR_INVALID_VALUE;
    expect(cuGraphLaunch_ptsz(NULL, NULL), 1);
    assert_int_equal(called_at_note, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_updates, set_up),
        cmocka_unit_test_setup(test_launches, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
