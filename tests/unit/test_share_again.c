/*
 * shim/handlers/sharing: how often, and for how long, it asks for what is to come to the GPU first.
 * The test is the driver, the gate, the daemon and the clock. (What is asked is test_sharing.c's.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/clock.h"
#include "common/share.h"
#include "shim/driver/devices.h"
#include "shim/driver/real.h"
#include "shim/gate/boot.h"
#include "shim/gate/gate.h"
#include "shim/gate/permits.h"
#include "shim/handlers/handlers.h"
#include "shim/link/link.h"
#include "shim/memory/freed.h"
#include "shim/memory/notes.h"
#include "shim/memory/release.h"
#include "shim/memory/sharing.h"
#include "shim/tables/allocs.h"
#include "shim/tables/pages.h"

#define VA (1ull << 40)
#define BYTES (4ull << 20)

static uint64_t now, at_gate;   /* each ask waits so long at the gate */
static uint64_t asleep;         /* each sleep takes so long; 0: as asked */
static unsigned asks, comes_at; /* the ask that gets its answer; 0: none */
static bool is_inside;

/* ---- time ---- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    assert_int_equal(clock, CLOCK_MONOTONIC);
    *time = gm_timespec(now);
    return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    assert_null(left);
    assert_false(is_inside); /* it cannot come while this program is inside */
    now += asleep != 0 ? asleep : (uint64_t)time->tv_sec * GM_S + (uint64_t)time->tv_nsec;
    return 0;
}

/* ---- what is around it ---- */

struct gm_real gm_real;
__thread struct gm_gate_thread gm_gate_self;
static struct gm_slot slot, taken = {.inside = GM_SLOT_IN};
static const struct gm_ctl page = {.gate = GM_GATE_OPEN};
struct gm_hot gm_hot = {.page = &page};

enum gm_boot_state gm_boot(void)
{
    return GM_BOOT_LIVE;
}

struct gm_slot *gm_gate_enter_slow(void)
{
    now += at_gate;
    is_inside = true;
    return &slot;
}

CUresult gm_gate_leave_slow(struct gm_slot *left, CUresult result)
{
    assert_ptr_equal(left, &slot);
    is_inside = false;
    return result;
}

CUresult gm_gate_result_slow(CUresult result)
{
    return result;
}

/* The daemon. */
int gm_link_share(uint64_t va, struct gm_msg_shared *shared)
{
    assert_true(is_inside);
    assert_int_equal(va, VA);
    if (++asks != comes_at)
        return CUDA_ERROR_NOT_READY;
    *shared = (struct gm_msg_shared){.nonce = {2, 3}, .share = 1};
    return CUDA_SUCCESS;
}

uint32_t gm_link_app(void)
{
    return 0;
}

enum gm_alloc_find gm_allocs_find(uint64_t va, struct gm_alloc *alloc)
{
    *alloc = (struct gm_alloc){
        .va = VA, .bytes = BYTES, .span = BYTES, .id = 1, .kind = GM_ALLOC_CHUNKS};
    return va == VA ? GM_ALLOC_BASE : GM_ALLOC_UNKNOWN;
}

bool gm_allocs_set_shared(uint64_t va, uint64_t id)
{
    return va == VA && id == 1;
}

bool gm_where(struct gm_alloc *alloc)
{
    return alloc != NULL;
}

CUresult gm_permits(void)
{
    return CUDA_SUCCESS;
}

void gm_free_deferred(void)
{
}

uint32_t gm_gpu_count(void)
{
    return 1;
}

CUdevice gm_gpu_device(uint32_t gpu)
{
    return (CUdevice)gpu;
}

CUresult gm_sharing_open(const struct gm_share_name *name, struct gm_alloc where, CUdeviceptr *va)
{
    (void)name, (void)where, (void)va;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult gm_sharing_close(CUdeviceptr va)
{
    (void)va;
    return CUDA_ERROR_INVALID_VALUE;
}

/* gpumux backs VA only, by its table of allocations. */
_Atomic uint32_t *_Atomic gm_pages_top[GM_PAGES_TOP];
_Atomic uint32_t gm_pages_beyond;

bool gm_freed_hold(const uint64_t *words, size_t n)
{
    (void)words, (void)n;
    return false;
}

static int set_up(void **state)
{
    (void)state;
    gm_gate_self.fast = &taken;
    now = GM_S;
    at_gate = asleep = 0;
    asks = comes_at = 0;
    return 0;
}

static CUresult share(void)
{
    CUipcMemHandle handle;
    struct gm_share_name name;
    const CUresult result = gm_on_cuIpcGetMemHandle(&handle, VA);
    assert_false(is_inside);
    assert_true(result != CUDA_SUCCESS || gm_share_read(&handle, &name));
    return result;
}

/* ---- tests ---- */

/* Others have the GPU, or somebody pauses this program: that is not its time. */
static void test_waits_at_gate(void **state)
{
    (void)state;
    at_gate = 60 * GM_S;
    comes_at = 2;
    assert_int_equal(share(), CUDA_SUCCESS);
    assert_int_equal(asks, 2);
    set_up(state);
    at_gate = 60 * GM_S;
    comes_at = 20;
    assert_int_equal(share(), CUDA_SUCCESS);
    assert_int_equal(asks, 20);
}

/* Stopped while it sleeps, it asks once more. */
static void test_asks_twice(void **state)
{
    (void)state;
    asleep = 3600 * GM_S;
    comes_at = 2;
    assert_int_equal(share(), CUDA_SUCCESS);
}

/* It does not wait for ever, and no program is told that a handle is "not ready". */
static void test_gives_up(void **state)
{
    (void)state;
    assert_int_equal(share(), CUDA_ERROR_OUT_OF_MEMORY);
    assert_in_range(now, 10 * GM_S, 20 * GM_S);
    assert_in_range(asks, 100, 100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_waits_at_gate, set_up),
        cmocka_unit_test_setup(test_asks_twice, set_up),
        cmocka_unit_test_setup(test_gives_up, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
