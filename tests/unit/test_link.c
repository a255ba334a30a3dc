/*
 * The shim from its handlers to its socket: with whom it boots, what it marks and says, nonsense,
 * forks. The test plays the driver (function pointers that keep count) and the daemon (a listening
 * socket, answered step by step). Booting happens once in a process, so each scenario runs in a
 * child of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "shim/gate/contexts.h"
#include "shim/link/greet.h"
#include "shim/link/requests.h"
#include "tests/unit/link_world.h"

static void no_daemon(void)
{
    CUdeviceptr va;
    size_t bytes, total;
    make_driver();
    current = (CUcontext)0x100;
    setenv("GPUMUX_SOCKET", "/nonexistent/gpumux.sock", 1);
    driver_is_cold = true; /* before cuInit nothing is decided */
    CHECK(gm_boot() == GM_BOOT_COLD);
    CHECK(submit() == CUDA_SUCCESS);
    driver_is_cold = false;
    CHECK(gm_on_cuMemAlloc_v2(&va, 8 * MIB) == CUDA_SUCCESS);
    CHECK(gm_boot() == GM_BOOT_PASS);
    CHECK(atomic_load(&driver_real_allocs) == 1 && atomic_load(&driver_reserved) == 0);
    CHECK(gm_on_cuMemGetInfo_v2(&bytes, &total) == CUDA_SUCCESS && total == 222);
    CHECK(submit() == CUDA_SUCCESS);
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_real_allocs) == 0);
    CHECK(atomic_load(&gm_gate_stat()->small_bytes) == 0);
}

static void is_disabled(void)
{
    make_driver();
    listen_here();
    setenv("GPUMUX_DISABLE", "1", 1);
    CHECK(gm_boot() == GM_BOOT_PASS);
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    CHECK(poll(&wait, 1, 0) == 0); /* nobody connected */
    unlink(socket_path);
}

static void *program_boots_in_vain(void *unused)
{
    (void)unused;
    CHECK(gm_boot() == GM_BOOT_PASS);
    CHECK(submit() == CUDA_SUCCESS);
    return NULL;
}

static void boot_in_vain(void (*daemon)(void))
{
    make_driver();
    listen_here();
    int before = open_fds();
    pthread_t thread = start(program_boots_in_vain, NULL);
    daemon();
    pthread_join(thread, NULL); /* it does not wait for ever */
    if (peer >= 0)
        close(peer);
    CHECK(open_fds() == before);
    unlink(socket_path);
}

static void daemon_refuses(void)
{
    accept_app();
    struct gm_msg_refused refused = {.reason = GM_REFUSE_FULL, .text = "full"};
    send_to_app(GM_MSG_REFUSED, &refused);
}
static void daemon_has_another_gpu(void)
{
    welcome_app(0x77);
}
static void daemon_says_nothing(void)
{
    accept_app();
}
static void daemon_hangs_up(void)
{
    accept_app();
    close(peer);
    peer = -1;
}
static void daemon_sends_rubbish(void)
{
    accept_app();
    CHECK(gm_sock_send(peer, "rubbish", 7, NULL, 0) == 0);
}
static void daemon_sends_small_areas(void)
{
    accept_app();
    int fds[2] = {memfd_create("a", MFD_CLOEXEC), memfd_create("b", MFD_CLOEXEC)};
    struct gm_msg_welcome body = {.app = 3};
    struct gm_gpu_entry entry = {.budget = BUDGET};
    memset(entry.uuid, 0x40, sizeof(entry.uuid));
    CHECK(gm_sock_send_message(peer, GM_MSG_WELCOME, &body, &entry, 1, fds, 2) == 0);
    close(fds[0]);
    close(fds[1]);
}
/* ... as if there were no words behind it (windows.h). */
static void daemon_sends_a_short_area(void)
{
    welcome_app_with(0x40, sizeof(struct gm_stat));
}
static void refused(void)
{
    boot_in_vain(daemon_refuses);
}
static void another_gpu(void)
{
    boot_in_vain(daemon_has_another_gpu);
}
static void silent(void)
{
    boot_in_vain(daemon_says_nothing);
}
static void hangs_up(void)
{
    boot_in_vain(daemon_hangs_up);
}
static void rubbish(void)
{
    boot_in_vain(daemon_sends_rubbish);
}
static void small_areas(void)
{
    boot_in_vain(daemon_sends_small_areas);
}
static void short_area(void)
{
    boot_in_vain(daemon_sends_a_short_area);
}

static _Atomic uint64_t *word_of(uint64_t va)
{
    return (_Atomic uint64_t *)(void *)((char *)stat_area + gm_window_offset(va));
}

static void await_marking(bool is_on)
{
    for (int i = 0; i < 60000 && gm_windows_are_on() != is_on; i++)
        nap(1000);
    CHECK(gm_windows_are_on() == is_on);
}

static bool is_allocated(uint64_t va)
{
    const uintptr_t page = (uintptr_t)word_of(va) & ~(uintptr_t)4095;
    unsigned char is_there;
    CHECK(mincore((void *)page, 4096, &is_there) == 0);
    return (is_there & 1) != 0;
}

/* While the daemon asks for it, what launches touch is marked in its memory. Of that as much is
 * allocated as is marked, though the program has locked what it had mapped before. */
static void places_are_marked(void)
{
    boot_live();
    CHECK(mlock(gm_gate_stat(), sizeof(struct gm_stat)) == 0);
    CUdeviceptr va = allocate(8 * MIB, (CUcontext)0x100, true);
    CUdeviceptr inside = va + 5 * MIB;
    size_t size = sizeof(inside);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &inside, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};

    CHECK(!gm_windows_are_on() && atomic_load(&stat_area->marks_from) == 0);
    atomic_store(&ctl->window, 41);
    atomic_store(&ctl->is_counting, 1);
    unmap_from_app(va, 0); /* it looks after each message */
    await_marking(true);
    for (int i = 0; i < 60000 && atomic_load(&stat_area->marks_from) == 0; i++)
        nap(1000);
    CHECK(atomic_load(&stat_area->marks_from) == 41);
    for (uint32_t round = 1; round < 3; round++) {
        gm_windows_of_cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra);
        const struct gm_touch touch = gm_touch_unpack(atomic_load(word_of(inside)));
        CHECK(touch.window == 41 && touch.order == 0 && touch.count == round);
    }
    CHECK(atomic_load(word_of(va)) == 0 && atomic_load(word_of(va + 6 * MIB)) == 0);
    CHECK(atomic_load(&stat_area->unseen) == 0);
    CHECK(is_allocated(inside) && !is_allocated(inside ^ 1ull << 45) &&
          !is_allocated(inside ^ 1ull << 44));
    CHECK(close_app(60000).status == GM_DRAIN_QUIET); /* nothing but the answer is said */
    set_gate(GM_GATE_OPEN);

    /* Off, without a message, and on again. */
    atomic_store(&ctl->is_counting, GM_MAY_COUNT);
    await_marking(false);
    CHECK(atomic_load(&stat_area->marks_from) == 0 && gm_replays_are_noted());
    atomic_store(&ctl->window, 43);
    atomic_store(&ctl->is_counting, GM_MAY_COUNT | 2);
    await_marking(true);
    gm_windows_of_cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra);
    CHECK(gm_touch_unpack(atomic_load(word_of(inside))).window == 43);
    lose_daemon();
    CHECK(!gm_windows_are_on() && atomic_load(&stat_area->marks_from) == 0);
}

/* Hints go up, and are lost rather than waited for. What comes down may say anything. */
static void hints(void)
{
    static const uint64_t values[] = {0, 1000, UINT64_MAX};
    boot_live();
    for (unsigned i = 0; i < 3; i++) {
        gm_link_expect(values[i], values[2 - i]);
        CHECK(receive() == GM_MSG_EXPECT);
        const struct gm_msg_expect *expect = got.body;
        CHECK(expect->after_us == values[i] && expect->for_us == values[2 - i]);
        struct gm_msg_timeslice timeslice = {.us = values[i]};
        send_to_app(GM_MSG_TIMESLICE, &timeslice);
        struct gm_msg_hold hold = {.for_ns = values[i]};
        send_to_app(GM_MSG_HOLD, &hold); /* it has no channels, so nothing happens */
    }
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    set_gate(GM_GATE_OPEN);

    unsigned n = 20000;
    for (unsigned i = 0; i < n; i++) /* nobody reads: the socket is full after a few hundred */
        gm_link_expect(0, 1200);
    CHECK(gm_link_has_daemon());
    struct pollfd more = {.fd = peer, .events = POLLIN};
    unsigned found = 0;
    for (; poll(&more, 1, 0) == 1; found++)
        CHECK(receive() == GM_MSG_EXPECT);
    CHECK(found > 0 && found < n);
    lose_daemon();
    gm_link_expect(0, 1200);
}

/* Messages that make no sense end the connection, not the program, and leave no fd behind. */
static void send_nonsense(int kind)
{
    struct gm_msg_allocated nobody_asked = {.cookie = 12345};
    struct gm_msg_welcome again = {.app = 1};
    struct gm_gpu_entry entry = {.budget = 1};
    struct gm_msg_hello upward = {.role = GM_ROLE_APP};
    struct gm_msg_map map = {.batch = 1};
    int fds[2] = {open("/dev/null", O_RDONLY | O_CLOEXEC), open("/dev/null", O_RDONLY | O_CLOEXEC)};
    uint8_t bytes[64] = {0};
    switch (kind) {
    case 0:
        send_to_app(GM_MSG_ALLOCATED, &nobody_asked);
        break;
    case 1:
        CHECK(gm_sock_send_message(peer, GM_MSG_WELCOME, &again, &entry, 1, fds, 2) == 0);
        break;
    case 2:
        send_to_app(GM_MSG_HELLO, &upward);
        break;
    case 3:
        memset(bytes, 0xa5, sizeof(bytes));
        CHECK(gm_sock_send(peer, bytes, sizeof(bytes), fds, 2) == 0);
        break;
    default: { /* a MAP with more fds than it says */
        size_t length = gm_wire_encode(buffer, sizeof(buffer), GM_MSG_MAP, &map, NULL, 0);
        CHECK(length > 0 && gm_sock_send(peer, buffer, length, fds, 2) == 0);
    }
    }
    close(fds[0]);
    close(fds[1]);
}

static int nonsense_kind;
static void nonsense(void)
{
    boot_live();
    CUdeviceptr va = allocate(4 * MIB, NULL, true);
    int before = open_fds();
    send_nonsense(nonsense_kind);
    for (int i = 0; i < 60000 && gm_link_has_daemon(); i++)
        nap(1000);
    CHECK(!gm_link_has_daemon());
    CHECK(open_fds() == before - GM_WIRE_FDS - 1); /* what was kept for fds is given back */
    CHECK(submit() == CUDA_SUCCESS);
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_mapped) == 0);
}

/* A forked child is on its own; its parent does not notice. */
static void forks(void)
{
    boot_live();
    CUdeviceptr va = allocate(4 * MIB, NULL, true);
    struct gm_slot *inside = gm_gate_enter(); /* as a call that a handler interrupts to fork */
    set_gate(GM_GATE_CLOSED);
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr other;
        CHECK(gm_boot() == GM_BOOT_DEAD);
        atomic_store(&inside->inside, GM_SLOT_TRYING); /* where it was interrupted it goes on */
        gm_slot_count(inside);
        gm_gate_leave(inside);
        struct gm_slot *slot = gm_gate_enter(); /* does not wait */
        CHECK(slot != NULL);
        gm_gate_leave(slot);
        CHECK(gm_on_cuMemAlloc_v2(&other, 8 * MIB) == CUDA_SUCCESS);
        CHECK(atomic_load(&driver_real_allocs) == 1);
        CHECK(gm_on_cuMemFree_v2(va) == CUDA_SUCCESS); /* whatever the driver says */
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(atomic_load(&inside->inside) == GM_SLOT_IN && atomic_load(&inside->calls) == 0);
    gm_gate_leave(inside);
    set_gate(GM_GATE_OPEN);
    CHECK(gm_link_has_daemon() && submit() == CUDA_SUCCESS);
    CHECK(atomic_load(&stat_area->waiting) == 0);
    struct call call = {.va = va};
    pthread_t thread = start(program_frees, &call);
    serve_free(va, 4 * MIB);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS);
}

/* Many threads at once, with a daemon that answers in its own order. */
#define CROWD 8
#define ROUNDS 100
static void *program_is_busy(void *unused)
{
    (void)unused;
    current = (CUcontext)0x100;
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr va;
        CHECK(gm_on_cuMemAlloc_v2(&va, 2 * MIB) == CUDA_SUCCESS);
        struct gm_slot *slot = gm_gate_enter();
        gm_gate_leave(slot);
        CHECK(gm_on_cuMemFree_v2(va) == CUDA_SUCCESS);
    }
    return NULL;
}

static void crowd(void)
{
    pthread_t thread[CROWD];
    boot_live();
    for (int i = 0; i < CROWD; i++)
        thread[i] = start(program_is_busy, NULL);
    struct {
        enum gm_msg_type type;
        uint64_t cookie;
    } held = {0};
    for (int n = 0; n < 2 * CROWD * ROUNDS; n++) {
        enum gm_msg_type type = receive();
        CHECK(type == GM_MSG_ALLOC || type == GM_MSG_FREE);
        uint64_t cookie = type == GM_MSG_ALLOC ? ((const struct gm_msg_alloc *)got.body)->cookie
                                               : ((const struct gm_msg_free *)got.body)->cookie;
        struct gm_msg_allocated answer = {.cookie = cookie};
        enum gm_msg_type reply = type == GM_MSG_ALLOC ? GM_MSG_ALLOCATED : GM_MSG_FREED;
        /* Every third answer waits for the next question, as long as there surely is one. */
        if (n % 3 == 0 && held.cookie == 0 && n < CROWD * ROUNDS) {
            held.type = reply;
            held.cookie = cookie;
            continue;
        }
        send_to_app(reply, &answer);
        if (held.cookie != 0) {
            answer.cookie = held.cookie;
            send_to_app(held.type, &answer);
            held.cookie = 0;
        }
    }
    for (int i = 0; i < CROWD; i++)
        pthread_join(thread[i], NULL);
    CHECK(atomic_load(&driver_reserved) == 0);
}

/* ---- running them ---- */

SCENARIO(no_daemon)
SCENARIO(is_disabled)
SCENARIO(refused)
SCENARIO(another_gpu)
SCENARIO(silent)
SCENARIO(hangs_up)
SCENARIO(rubbish)
SCENARIO(small_areas)
SCENARIO(short_area)
SCENARIO(places_are_marked)
SCENARIO(hints)
SCENARIO(forks)
SCENARIO(crowd)

static void test_nonsense(void **state)
{
    (void)state;
    for (nonsense_kind = 0; nonsense_kind < 5; nonsense_kind++)
        run(nonsense);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_daemon),  cmocka_unit_test(test_is_disabled),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_another_gpu),
        cmocka_unit_test(test_silent),     cmocka_unit_test(test_hangs_up),
        cmocka_unit_test(test_rubbish),    cmocka_unit_test(test_small_areas),
        cmocka_unit_test(test_short_area), cmocka_unit_test(test_places_are_marked),
        cmocka_unit_test(test_hints),      cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_forks),      cmocka_unit_test(test_crowd),
    };
    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
