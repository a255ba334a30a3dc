/*
 * The shim from its handlers to its socket. The test plays the driver (function pointers that keep
 * count) and the daemon (a listening socket, answered step by step). Booting happens once in a
 * process, so each scenario runs in a child of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "shim/gate/contexts.h"
#include "shim/link/comeback.h"
#include "shim/link/greet.h"
#include "shim/link/requests.h"
#include "tests/unit/link_world.h"

/* ---- scenarios ---- */

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

static int open_fds(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
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

static void memory(void)
{
    size_t bytes, total;
    CUdeviceptr base, small, va;
    boot_live();
    int before = open_fds();
    CHECK(gm_on_cuDeviceTotalMem_v2(&total, 0) == CUDA_SUCCESS && total == BUDGET);

    uint64_t size = 35 * MIB + 5; /* 36 MiB: 32 + 4 */
    va = allocate(size, NULL, true);
    CHECK(atomic_load(&driver_mapped) == 2 && atomic_load(&driver_handles) == 2);
    CHECK(open_fds() == before);
    CHECK(gm_on_cuMemGetInfo_v2(&bytes, &total) == CUDA_SUCCESS);
    CHECK(total == BUDGET && bytes == BUDGET - 36 * MIB);
    CHECK(gm_on_cuMemGetInfo_v2(NULL, NULL) == CUDA_SUCCESS);
    CHECK(gm_on_cuMemGetAddressRange_v2(&base, &bytes, va + 7 * MIB) == CUDA_SUCCESS);
    CHECK(base == va && bytes == size);
    CHECK(gm_on_cuMemGetAddressRange_v2(&base, &bytes, va + size) == CUDA_ERROR_NOT_FOUND);

    /* Small ones are the driver's and counted. */
    CHECK(gm_on_cuMemAlloc_v2(&small, MIB - 1) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_real_allocs) == 1);
    CHECK(atomic_load(&stat_area->small_bytes) == MIB - 1);
    CHECK(gm_on_cuMemGetInfo_v2(&bytes, NULL) == CUDA_SUCCESS);
    CHECK(bytes == BUDGET - 37 * MIB + 1);
    CHECK(gm_on_cuMemFree_v2(small) == CUDA_SUCCESS);
    CHECK(atomic_load(&stat_area->small_bytes) == 0);

    /* Bad frees, and what the real call is asked. */
    CHECK(gm_on_cuMemFree_v2(va + 4096) == CUDA_ERROR_INVALID_VALUE);
    CHECK(gm_on_cuMemAlloc_v2(&small, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(gm_on_cuMemAlloc_v2(NULL, 8 * MIB) == CUDA_ERROR_INVALID_VALUE);
    current = NULL;
    CHECK(gm_on_cuMemAlloc_v2(&small, 8 * MIB) == CUDA_ERROR_INVALID_CONTEXT);
    current = (CUcontext)0x100;

    int syncs = atomic_load(&driver_syncs);
    struct call call = {.va = va};
    pthread_t thread = start(program_frees, &call);
    serve_free(va, size);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_syncs) == syncs + 1);
    CHECK(atomic_load(&driver_reserved) == 0 && atomic_load(&driver_mapped) == 0);
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_ERROR_INVALID_VALUE); /* twice: as the driver says */

    /* The cached frames go. */
    struct gm_msg_drop drop = {.batch = 77};
    struct gm_frame_entry frames[2] = {{1}, {2}};
    CHECK(gm_sock_send_message(peer, GM_MSG_DROP, &drop, frames, 2, NULL, 0) == 0);
    CHECK(receive() == GM_MSG_DONE && atomic_load(&driver_handles) == 0);

    /* Out of memory: the daemon says so. */
    call = (struct call){.bytes = 4 * MIB};
    thread = start(program_allocates, &call);
    CHECK(receive() == GM_MSG_ALLOC);
    struct gm_msg_allocated no = {.cookie = ((const struct gm_msg_alloc *)got.body)->cookie,
                                  .result = CUDA_ERROR_OUT_OF_MEMORY};
    send_to_app(GM_MSG_ALLOCATED, &no);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_ERROR_OUT_OF_MEMORY && atomic_load(&driver_reserved) == 0);
}

static void free_it(CUdeviceptr va, uint64_t bytes)
{
    struct call call = {.va = va};
    pthread_t thread = start(program_frees, &call);
    serve_free(va, bytes);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS);
}

/* A program that grows has the next one of a size asked for, and goes on meanwhile. */
static struct gm_msg_alloc receive_ahead(void)
{
    CHECK(receive() == GM_MSG_ALLOC);
    const struct gm_msg_alloc alloc = *(const struct gm_msg_alloc *)got.body;
    CHECK(alloc.flags == GM_ALLOC_AHEAD && alloc.bytes == 4 * MIB && alloc.gpu == 0);
    return alloc;
}

static CUdeviceptr grown; /* the last one of n_grown */
static uint32_t n_grown;

/* Allocate until so many are asked for. A slow machine may have to more than twice, as what comes
 * at long intervals is not expected again. */
static struct gm_msg_alloc grow(uint32_t n_coming)
{
    while (n_spares_coming < n_coming) {
        grown = allocate(4 * MIB, NULL, true);
        n_grown++;
    }
    return receive_ahead();
}

static void ahead(void)
{
    boot_live();
    is_growing = true;
    free_it(allocate(4 * MIB, NULL, true), 4 * MIB); /* that is not growing */
    allocate(4 * MIB, NULL, true);
    CHECK(n_spares_coming == 0);
    n_grown = 1;
    struct gm_msg_alloc asked = grow(1);
    CHECK(asked.va != grown && atomic_load(&driver_reserved) == (int)n_grown + 1);
    struct gm_msg_alloc also = grow(2); /* it does not wait for the first one */

    /* One comes, the other does not. */
    map_to_app(asked.va, asked.bytes);
    struct gm_msg_allocated yes = {.cookie = asked.cookie};
    send_to_app(GM_MSG_ALLOCATED, &yes);
    for (int i = 0; i < 60000 && n_spares_ahead == 0; i++)
        nap(1000);
    CHECK(n_spares_ahead == 1 && spares_ahead[0] == asked.va && n_spares_coming == 1);
    CHECK(atomic_load(&driver_reserved) == (int)n_grown + 2);
    CHECK(atomic_load(&driver_mapped) == (int)n_grown + 1);
    struct gm_msg_allocated no = {.cookie = also.cookie, .result = CUDA_ERROR_OUT_OF_MEMORY};
    send_to_app(GM_MSG_ALLOCATED, &no);
    for (int i = 0; i < 60000 && atomic_load(&driver_reserved) != (int)n_grown + 1; i++)
        nap(1000);
    CHECK(atomic_load(&driver_reserved) == (int)n_grown + 1);
    CHECK(n_spares_ahead == 1 && n_spares_coming == 0);

    /* To the program only what it has is its own. */
    size_t bytes, total;
    CHECK(gm_on_cuMemGetInfo_v2(&bytes, &total) == CUDA_SUCCESS);
    CHECK(total == BUDGET && total - bytes == n_grown * 4 * MIB);
    CHECK(gm_on_cuMemFree_v2(asked.va) != CUDA_SUCCESS && grown != asked.va);

    /* An answer that nobody waits for any more is nonsense. */
    send_to_app(GM_MSG_ALLOCATED, &no);
    for (int i = 0; i < 60000 && gm_link_is_up(); i++)
        nap(1000);
    CHECK(!gm_link_is_up() && n_spares_ahead == 1);
}

/* The daemon says which spare it took. Of what it cannot have taken it is not to be trusted. */
static void taken(void)
{
    boot_live();
    struct gm_msg_taken message = {.va = 0x700000000000};
    send_to_app(GM_MSG_TAKEN, &message);
    for (int i = 0; i < 60000 && taken_va == 0; i++)
        nap(1000);
    CHECK(taken_va == message.va && gm_link_is_up() && n_spares_lost == 0);
    message.va = 0;
    send_to_app(GM_MSG_TAKEN, &message);
    for (int i = 0; i < 60000 && n_spares_lost == 0; i++)
        nap(1000);
    CHECK(!gm_link_is_up() && n_spares_lost == 1);
}

static struct gm_msg_alloc receive_alloc(uint64_t bytes)
{
    CHECK(receive() == GM_MSG_ALLOC);
    const struct gm_msg_alloc alloc = *(const struct gm_msg_alloc *)got.body;
    CHECK(alloc.flags == 0 && alloc.bytes == bytes);
    return alloc;
}

/* After a refusal it rests. */
static struct gm_msg_alloc grow_again(void)
{
    nap(200000);
    return grow(1);
}

/* What is on its way takes no room from the program itself. */
static void short_ahead(void)
{
    boot_live();
    is_growing = true;
    struct gm_msg_alloc asked = grow(1);

    /* There was no room beside what did not come: then there is some. */
    struct call call = {.bytes = 64 * MIB};
    pthread_t thread = start(program_allocates, &call);
    struct gm_msg_allocated no = {.cookie = asked.cookie, .result = CUDA_ERROR_OUT_OF_MEMORY};
    struct gm_msg_allocated also = {.cookie = receive_alloc(64 * MIB).cookie,
                                    .result = CUDA_ERROR_OUT_OF_MEMORY};
    send_to_app(GM_MSG_ALLOCATED, &no);
    send_to_app(GM_MSG_ALLOCATED, &also);
    struct gm_msg_alloc again = receive_alloc(64 * MIB);
    map_to_app(again.va, again.bytes);
    struct gm_msg_allocated yes = {.cookie = again.cookie};
    send_to_app(GM_MSG_ALLOCATED, &yes);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS && n_spares_coming == 0);

    /* Neither is there when that comes later. */
    asked = grow_again();
    thread = start(program_allocates, &call);
    also.cookie = receive_alloc(64 * MIB).cookie;
    send_to_app(GM_MSG_ALLOCATED, &also);
    nap(20000);
    struct pollfd wait = {.fd = peer, .events = POLLIN};
    CHECK(poll(&wait, 1, 0) == 0);
    no.cookie = asked.cookie;
    send_to_app(GM_MSG_ALLOCATED, &no);
    again = receive_alloc(64 * MIB);
    map_to_app(again.va, again.bytes);
    yes.cookie = again.cookie;
    send_to_app(GM_MSG_ALLOCATED, &yes);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS && n_spares_coming == 0);

    /* All of the budget is asked for when it is known what comes. */
    asked = grow_again();
    size_t bytes, total;
    CHECK(gm_on_cuMemGetInfo_v2(&bytes, &total) == CUDA_SUCCESS);
    call = (struct call){.bytes = bytes};
    thread = start(program_allocates, &call);
    nap(20000);
    CHECK(poll(&wait, 1, 0) == 0);
    no.cookie = asked.cookie;
    send_to_app(GM_MSG_ALLOCATED, &no);
    again = receive_alloc(bytes);
    map_to_app(again.va, again.bytes);
    yes.cookie = again.cookie;
    send_to_app(GM_MSG_ALLOCATED, &yes);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS);
}

/* The daemon dies while something is on its way: it goes, mapped or not, and the rest stays. */
static void lost_ahead(void)
{
    boot_live();
    is_growing = true;
    struct gm_msg_alloc asked = grow(1);
    grow(2);
    map_to_app(asked.va, asked.bytes);
    CHECK(atomic_load(&driver_mapped) == (int)n_grown + 1);
    lose_daemon();
    for (int i = 0; i < 60000 && atomic_load(&driver_reserved) != (int)n_grown; i++)
        nap(1000);
    CHECK(atomic_load(&driver_reserved) == (int)n_grown &&
          atomic_load(&driver_mapped) == (int)n_grown);
    CHECK(n_spares_ahead == 0 && n_spares_coming == 0 && submit() == CUDA_SUCCESS);
}

struct pitch_call {
    CUdeviceptr va;
    size_t pitch;
    CUresult result;
};
static void *program_allocates_pitch(void *argument)
{
    struct pitch_call *call = argument;
    current = (CUcontext)0x100;
    call->result = gm_on_cuMemAllocPitch_v2(&call->va, &call->pitch, 1000, 4096, 4);
    return NULL;
}

static void pitch(void)
{
    struct pitch_call call = {0};
    size_t width;
    CUdeviceptr va;
    boot_live();
    pthread_t thread = start(program_allocates_pitch, &call);
    CHECK(receive() == GM_MSG_ALLOC);
    const struct gm_msg_alloc *alloc = got.body;
    CHECK(alloc->bytes == 4 * MIB);
    struct gm_msg_allocated yes = {.cookie = alloc->cookie};
    send_to_app(GM_MSG_ALLOCATED, &yes);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS && call.pitch == 1024);
    CHECK(gm_on_cuMemAllocPitch_v2(&va, &width, 100, 10, 4) == CUDA_SUCCESS && width == 512);
    CHECK(atomic_load(&stat_area->small_bytes) == 5120);
    /* More than can be counted: the driver's word. */
    CHECK(gm_on_cuMemAllocPitch_v2(&va, &width, SIZE_MAX - 1000, SIZE_MAX, 4) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(gm_on_cuMemAllocPitch_v2(&va, &width, SIZE_MAX, 1, 4) == CUDA_ERROR_INVALID_VALUE);
    CHECK(gm_on_cuMemAllocPitch_v2(&va, &width, 1ull << 40, 1ull << 40, 4) ==
          CUDA_ERROR_INVALID_VALUE);
}

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
    CHECK(gm_link_is_up());
    struct pollfd more = {.fd = peer, .events = POLLIN};
    unsigned found = 0;
    for (; poll(&more, 1, 0) == 1; found++)
        CHECK(receive() == GM_MSG_EXPECT);
    CHECK(found > 0 && found < n);
    lose_daemon();
    gm_link_expect(0, 1200);
}

/* Whose memory a program imported is not lost, and nobody waits to say it: what the socket does not
 * take goes later, and in its order. */
static void imports(void)
{
    enum { N = 5000 };
    boot_live();
    for (int i = 0; i < N; i++) /* nobody reads: the socket is full after a few hundred */
        gm_link_imported(i + 1);
    for (int i = 0; i < N; i++) {
        CHECK(receive() == GM_MSG_IMPORTED);
        CHECK(((const struct gm_msg_imported *)got.body)->exporter == i + 1);
    }
    lose_daemon();
    gm_link_imported(1);
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

/* The daemon dies while the gate is open: everything goes on, new memory is the driver's. */
static void lost_while_open(void)
{
    CUdeviceptr other;
    size_t bytes, total;
    boot_live();
    CUdeviceptr va = allocate(36 * MIB, NULL, true);
    lose_daemon();
    CHECK(submit() == CUDA_SUCCESS);
    CHECK(gm_on_cuMemAlloc_v2(&other, 8 * MIB) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_real_allocs) == 1);
    CHECK(atomic_load(&stat_area->real_bytes) == 8 * MIB);
    CHECK(gm_on_cuMemFree_v2(other) == CUDA_SUCCESS);
    CHECK(atomic_load(&stat_area->real_bytes) == 0);
    CHECK(gm_on_cuMemGetInfo_v2(&bytes, &total) == CUDA_SUCCESS && total == 222);
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_mapped) == 0 && atomic_load(&driver_handles) == 0);
    CHECK(atomic_load(&driver_reserved) == 0);
    set_gate(GM_GATE_CLOSED); /* an old page, which nobody looks at */
    CHECK(submit() == CUDA_SUCCESS);
}

/* While it is closed, with everything mapped: goes on. A waiter is let go. */
static void lost_while_whole(void)
{
    boot_live();
    allocate(36 * MIB, NULL, true);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    struct call call = {0};
    pthread_t thread = start(program_submits, &call);
    for (int i = 0; i < 60000 && atomic_load(&stat_area->waiting) == 0; i++)
        nap(1000);
    lose_daemon();
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS);
    CHECK(submit() == CUDA_SUCCESS);
}

/* While it is closed and some of its memory is elsewhere: that data is gone, and every submission
 * says so. */
static void lost_while_away(void)
{
    boot_live();
    CUdeviceptr va = allocate(36 * MIB, NULL, true);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    unmap_from_app(va, 32 * MIB);
    struct call call = {0};
    pthread_t thread = start(program_submits, &call);
    for (int i = 0; i < 60000 && atomic_load(&stat_area->waiting) == 0; i++)
        nap(1000);
    lose_daemon();
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHECK(submit() == CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHECK(gm_on_cuStreamBeginCapture_v2((CUstream)0x33, CU_STREAM_CAPTURE_MODE_RELAXED) ==
          CUDA_ERROR_DEVICE_UNAVAILABLE);
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_SUCCESS);
    CHECK(atomic_load(&driver_mapped) == 0 && atomic_load(&driver_reserved) == 0);
}

/* While its memory comes back: it is mapped, but the copy may not be done. What was parked must not
 * take it for its data: it is unmapped. */
static void lost_on_the_way_back(void)
{
    boot_live();
    CUdeviceptr va = allocate(36 * MIB, NULL, true);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    unmap_from_app(va, 36 * MIB);
    map_to_app(va, 36 * MIB);
    CHECK(atomic_load(&driver_mapped) > 0);
    lose_daemon();
    CHECK(submit() == CUDA_ERROR_DEVICE_UNAVAILABLE);
    for (int i = 0; i < 60000 && atomic_load(&driver_mapped) > 0; i++)
        nap(1000);
    CHECK(atomic_load(&driver_mapped) == 0);
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_SUCCESS && atomic_load(&driver_reserved) == 0);
}

/* The daemon is there and does not read. Nobody waits to send, and no message that matters is lost.
 */
static void daemon_stands_still(void)
{
    enum { THREADS = 50, BATCHES = 200 };
    struct call call[THREADS];
    pthread_t thread[THREADS];
    boot_live();
    CUdeviceptr va = allocate(4 * MIB, NULL, true);
    struct pollfd room = {.fd = peer, .events = POLLIN};
    for (int i = 0; i < 2000; i++) /* more than a socket holds */
        gm_link_want(false);
    gm_link_expect(0, 1000);
    for (int i = 0; i < THREADS; i++) {
        call[i] = (struct call){.bytes = 2 * MIB};
        thread[i] = start(program_allocates, &call[i]);
    }
    for (uint64_t batch = 1; batch <= BATCHES; batch++) { /* the link thread reads and answers */
        struct gm_msg_unmap unmap = {.batch = batch};
        struct gm_span_entry span = {.va = va, .bytes = 4 * MIB};
        CHECK(gm_sock_send_message(peer, GM_MSG_UNMAP, &unmap, &span, batch == 1, NULL, 0) == 0);
    }
    for (int i = 0; i < 60000 && atomic_load(&driver_mapped) > 0; i++)
        nap(1000);
    CHECK(atomic_load(&driver_mapped) == 0);
    CHECK(gm_work_run(nothing, NULL) == CUDA_SUCCESS);
    CHECK(gm_link_is_up() && poll(&room, 1, 0) == 1);

    for (uint64_t batch = 1, allocs = 0; batch <= BATCHES || allocs < THREADS;) {
        const enum gm_msg_type type = receive();
        if (type == GM_MSG_DONE) {
            CHECK(((const struct gm_msg_done *)got.body)->batch == batch++);
            continue;
        }
        CHECK(type == GM_MSG_ALLOC && allocs++ < THREADS);
        struct gm_msg_allocated no = {.cookie = ((const struct gm_msg_alloc *)got.body)->cookie,
                                      .result = CUDA_ERROR_OUT_OF_MEMORY};
        send_to_app(GM_MSG_ALLOCATED, &no);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        CHECK(call[i].result == CUDA_ERROR_OUT_OF_MEMORY);
    }
    CHECK(want_count < 2000 && gm_link_is_up() && submit() == CUDA_SUCCESS);
}

/* In the middle of an allocation and of a free. */
static void lost_in_between(void)
{
    boot_live();
    CUdeviceptr va = allocate(4 * MIB, NULL, true);
    struct call freed = {.va = va}, made = {.bytes = 8 * MIB};
    pthread_t frees = start(program_frees, &freed);
    CHECK(receive() == GM_MSG_FREE);
    pthread_t allocates = start(program_allocates, &made);
    CHECK(receive() == GM_MSG_ALLOC);
    map_to_app(((const struct gm_msg_alloc *)got.body)->va, 8 * MIB);
    lose_daemon();
    pthread_join(frees, NULL);
    pthread_join(allocates, NULL);
    CHECK(freed.result == CUDA_SUCCESS);
    CHECK(made.result == CUDA_SUCCESS && atomic_load(&driver_real_allocs) == 1);
    CHECK(atomic_load(&driver_mapped) == 0 && atomic_load(&driver_handles) == 0);
    CHECK(atomic_load(&driver_reserved) == 0);
}

/* ---- a daemon that comes back ---- */

/* Boot with a lifeline: this test is both daemon and keeper. */
static void boot_with_keeper(void)
{
    CHECK(pipe2(lifeline, O_CLOEXEC) == 0);
    rejoin_ns = rejoin_ns == 0 ? 60 * GM_S : rejoin_ns;
    boot_live();
}

static void kill_daemon(void)
{
    close(peer);
    close(listener);
}

static struct gm_msg_rejoin came;            /* the newest REJOIN, */
static struct gm_holds_entry came_with[600]; /* ... and what it holds */
static uint32_t n_came_with;

/* Another daemon listens, and hears the program. */
static void hear_rejoin(void)
{
    bool is_last = false;
    struct pollfd wait;
    listen_here();
    wait = (struct pollfd){.fd = listener, .events = POLLIN};
    CHECK(poll(&wait, 1, 60000) == 1);
    peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(receive() == GM_MSG_REJOIN);
    came = *(const struct gm_msg_rejoin *)got.body;
    CHECK(came.app == 3 && came.nonce[0] == told_nonce[0] && came.nonce[1] == told_nonce[1]);
    for (n_came_with = 0; !is_last; n_came_with += got.count) {
        CHECK(receive() == GM_MSG_HOLDS && n_came_with + got.count <= 600);
        is_last = ((const struct gm_msg_holds *)got.body)->is_last != 0;
        if (got.count > 0)
            memcpy(came_with + n_came_with, got.entries, got.count * sizeof(came_with[0]));
    }
    unlink(socket_path);
}

/* Take the program over, with a new page. */
static void send_welcome(uint32_t app, int words)
{
    int fds[3] = {-1, words, lifeline[0]};
    ctl = make_area(sizeof(*ctl), &fds[0]);
    ctl->magic = GM_SHM_MAGIC;
    ctl->version = GM_SHM_VERSION;
    ctl->app = app;
    ctl->budget[0] = ctl->room[0] = BUDGET;
    atomic_store(&ctl->epoch, epoch);
    atomic_store(&ctl->gate, GM_GATE_CLOSED);
    struct gm_msg_welcome body = {
        .app = app, .nonce = {told_nonce[0], told_nonce[1]}, .rejoin_ns = rejoin_ns};
    struct gm_gpu_entry entry = {.budget = BUDGET};
    memset(entry.uuid, 0x40, sizeof(entry.uuid));
    CHECK(gm_sock_send_message(peer, GM_MSG_WELCOME, &body, &entry, 1, fds, 3) == 0);
    close(fds[0]);
}

static void take_over(void)
{
    hear_rejoin();
    send_welcome(3, stat_fd);
}

static void refuse(enum gm_refusal reason)
{
    const struct gm_msg_refused body = {.reason = reason, .text = "no"};
    send_to_app(GM_MSG_REFUSED, &body);
    close(peer);
    close(listener);
}

static void await_gone(void)
{
    for (int i = 0; i < 60000 && gm_link_is_up(); i++)
        nap(1000);
    CHECK(!gm_link_is_up() && gm_work_run(nothing, NULL) == CUDA_SUCCESS);
}

/* What runs goes on. An allocation waits for the next daemon, which hears what the program has. */
static void back_while_open(void)
{
    struct call call = {.bytes = 4 * MIB};
    boot_with_keeper();
    CUdeviceptr va = allocate(36 * MIB, NULL, true);
    kill_daemon();
    CHECK(submit() == CUDA_SUCCESS);
    pthread_t thread = start(program_allocates, &call);
    nap(100000);
    CHECK(submit() == CUDA_SUCCESS && gm_link_is_up() && atomic_load(&driver_real_allocs) == 0);
    take_over();
    CHECK(came.flags == GM_REJOIN_IS_OPEN && came.epoch == 0 && came.cookie >= 2);
    CHECK(n_came_with == 2 && came_with[0].va == va && came_with[1].va == va + 32 * MIB);
    CHECK(came_with[0].frame + 1 == came_with[1].frame);

    CHECK(receive() == GM_MSG_ALLOC);
    const struct gm_msg_alloc alloc = *(const struct gm_msg_alloc *)got.body;
    CHECK(alloc.bytes == 4 * MIB && alloc.cookie <= came.cookie);
    map_to_app(alloc.va, alloc.bytes);
    const struct gm_msg_allocated allocated = {.cookie = alloc.cookie};
    send_to_app(GM_MSG_ALLOCATED, &allocated);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS && call.va == alloc.va);

    struct call submits = {0}; /* the new daemon's gate is closed until it opens it */
    thread = start(program_submits, &submits);
    for (int i = 0; i < 60000 && atomic_load(&stat_area->waiting) == 0; i++)
        nap(1000);
    CHECK(atomic_load(&stat_area->waiting) == 1);
    set_gate(GM_GATE_OPEN);
    pthread_join(thread, NULL);
    CHECK(submits.result == CUDA_SUCCESS && submit() == CUDA_SUCCESS);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
}

/* Who waits at the gate waits on, and passes when the new daemon opens it. */
static void back_while_closed(void)
{
    struct call call = {0};
    boot_with_keeper();
    CUdeviceptr va = allocate(36 * MIB, NULL, true);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    unmap_from_app(va, 32 * MIB);
    pthread_t thread = start(program_submits, &call);
    for (int i = 0; i < 60000 && atomic_load(&stat_area->waiting) == 0; i++)
        nap(1000);
    kill_daemon();
    nap(100000);
    CHECK(atomic_load(&stat_area->waiting) == 1);
    hear_rejoin();
    CHECK(came.flags == GM_REJOIN_IS_QUIET && came.epoch == epoch && n_came_with == 2);
    CHECK((came_with[0].va == 0) != (came_with[1].va == 0)); /* one is imported, and not mapped */
    for (int i = 0; i < 2; i++) { /* it is as quiet for the next one, and for the one behind that */
        epoch += 1ull << 32;
        send_welcome(3, stat_fd);
        kill_daemon();
        hear_rejoin();
        CHECK(came.flags == GM_REJOIN_IS_QUIET && came.epoch == epoch);
    }
    send_welcome(3, stat_fd);
    map_to_app(va, 32 * MIB);
    set_gate(GM_GATE_OPEN);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS && submit() == CUDA_SUCCESS);

    /* What was submitted before a CLOSE that was not answered may run. */
    atomic_store(&ctl->epoch, ++epoch);
    set_gate(GM_GATE_CLOSED);
    kill_daemon();
    hear_rejoin();
    CHECK(came.flags == 0 && came.epoch + 1 == epoch);
    send_welcome(3, stat_fd);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
}

/* Requests that are under way are asked again, each with its cookie, and answered once. A CLOSE
 * that was under way is void. */
static void back_in_between(void)
{
    boot_with_keeper();
    CUdeviceptr va = allocate(4 * MIB, NULL, true);
    struct call freed = {.va = va}, made = {.bytes = 8 * MIB};
    pthread_t frees = start(program_frees, &freed);
    CHECK(receive() == GM_MSG_FREE);
    const struct gm_msg_free free_asked = *(const struct gm_msg_free *)got.body;
    pthread_t allocates = start(program_allocates, &made);
    CHECK(receive() == GM_MSG_ALLOC);
    const struct gm_msg_alloc alloc_asked = *(const struct gm_msg_alloc *)got.body;
    map_to_app(alloc_asked.va, 8 * MIB); /* done, but for the answer */
    kill_daemon();
    take_over();
    CHECK(n_came_with == 2);
    CHECK(receive() == GM_MSG_FREE);
    CHECK(memcmp(got.body, &free_asked, sizeof(free_asked)) == 0);
    CHECK(receive() == GM_MSG_ALLOC);
    CHECK(memcmp(got.body, &alloc_asked, sizeof(alloc_asked)) == 0);
    const struct gm_msg_allocated allocated = {.cookie = alloc_asked.cookie};
    send_to_app(GM_MSG_ALLOCATED, &allocated);
    pthread_join(allocates, NULL);
    unmap_from_app(va, 4 * MIB);
    const struct gm_msg_freed is_freed = {.cookie = free_asked.cookie};
    send_to_app(GM_MSG_FREED, &is_freed);
    pthread_join(frees, NULL);
    CHECK(freed.result == CUDA_SUCCESS && made.result == CUDA_SUCCESS);
    CHECK(made.va == alloc_asked.va && gm_link_is_up());
    set_gate(GM_GATE_OPEN);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    send_to_app(GM_MSG_ALLOCATED, &allocated); /* a second answer makes no sense */
    close(lifeline[1]);
    await_gone();
}

/* No daemon comes in time: memory is refused, freeing it works, and the next daemon hears of it. */
static void back_too_late(void)
{
    struct call under_way = {.bytes = 2 * MIB}, made = {.bytes = 8 * MIB};
    rejoin_ns = 200 * GM_MS;
    boot_with_keeper();
    CUdeviceptr va = allocate(4 * MIB, NULL, true), other = allocate(2 * MIB, NULL, true);
    pthread_t thread = start(program_allocates, &under_way);
    CHECK(receive() == GM_MSG_ALLOC);
    const uint64_t under_way_va = ((const struct gm_msg_alloc *)got.body)->va;
    kill_daemon();
    for (unsigned i = 0; i < 3; i++) /* rounds of the link thread: then it knows */
        CHECK(gm_work_run(nothing, NULL) == CUDA_SUCCESS);
    pthread_t waits = start(program_allocates, &made);
    pthread_join(thread, NULL);
    pthread_join(waits, NULL);
    CHECK(under_way.result == CUDA_ERROR_OUT_OF_MEMORY && made.result == CUDA_ERROR_OUT_OF_MEMORY);
    const int64_t reserved = (int64_t)atomic_load(&driver_reserved);
    CHECK(gm_on_cuMemFree_v2(va) == CUDA_SUCCESS);
    CHECK((int64_t)atomic_load(&driver_reserved) == reserved); /* still mapped */
    CHECK(submit() == CUDA_SUCCESS && gm_link_is_up() && atomic_load(&driver_real_allocs) == 0);
    take_over();
    for (unsigned seen = 0; seen != 3;) {
        CHECK(receive() == GM_MSG_FREE);
        const struct gm_msg_free message = *(const struct gm_msg_free *)got.body;
        CHECK(message.va == va || message.va == under_way_va);
        if (message.va == va)
            unmap_from_app(va, 4 * MIB);
        /* It knows nothing of the other. */
        const struct gm_msg_freed is_freed = {
            .cookie = message.cookie,
            .result = message.va == va ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE};
        send_to_app(GM_MSG_FREED, &is_freed);
        seen |= message.va == va ? 1 : 2;
    }
    set_gate(GM_GATE_OPEN);
    allocate(2 * MIB, NULL, true); /* it serves again */
    struct call call = {.va = other};
    thread = start(program_frees, &call);
    serve_free(other, 2 * MIB);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_SUCCESS);
}

/* The new daemon refuses: for now, and then for good. Who has all its memory runs on. */
static void back_refused(void)
{
    boot_with_keeper();
    allocate(36 * MIB, NULL, true);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    kill_daemon();
    hear_rejoin();
    refuse(GM_REFUSE_FULL);
    hear_rejoin();
    CHECK(gm_link_is_up());
    close(peer); /* this one dies, too */
    close(listener);
    hear_rejoin();
    refuse(GM_REFUSE_UNKNOWN);
    await_gone();
    CHECK(submit() == CUDA_SUCCESS);
}

/* Its WELCOME is another program's, or does not have this one's words. */
static void back_as_another(void)
{
    boot_with_keeper();
    CUdeviceptr va = allocate(36 * MIB, NULL, true);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    unmap_from_app(va, 32 * MIB);
    kill_daemon();
    hear_rejoin();
    send_welcome(4, stat_fd);
    await_gone();
    CHECK(submit() == CUDA_ERROR_DEVICE_UNAVAILABLE);
}

static void back_without_words(void)
{
    int words;
    boot_with_keeper();
    kill_daemon();
    hear_rejoin();
    make_area(GM_STAT_BYTES, &words);
    send_welcome(3, words);
    await_gone();
    CHECK(submit() == CUDA_SUCCESS);
}

/* More than a message holds. */
static void back_with_much(void)
{
    enum { MANY = 520 };
    uint64_t bit = 0;
    boot_with_keeper();
    for (unsigned i = 0; i < MANY; i++)
        allocate(2 * MIB, NULL, true);
    kill_daemon();
    take_over();
    CHECK(n_came_with == MANY);
    for (unsigned i = 0; i < MANY; i++)
        bit += came_with[i].frame;
    CHECK(bit == (uint64_t)MANY * (2 * came_with[0].frame + MANY - 1) / 2 && gm_link_is_up());
}

/* Nobody has its memory any more. */
static void nobody_back(void)
{
    boot_with_keeper();
    CUdeviceptr va = allocate(36 * MIB, NULL, true);
    CHECK(close_app(60000).status == GM_DRAIN_QUIET);
    unmap_from_app(va, 32 * MIB);
    struct call call = {0};
    pthread_t thread = start(program_submits, &call);
    kill_daemon();
    nap(100000);
    CHECK(gm_link_is_up());
    close(lifeline[1]);
    pthread_join(thread, NULL);
    CHECK(call.result == CUDA_ERROR_DEVICE_UNAVAILABLE);
    await_gone();
}

/* Its program closes files that it does not know, and uses their numbers: nobody is waited for. */
static void lifeline_closed(void)
{
    boot_with_keeper();
    for (int fd = 500; fd < 600; fd++) {
        const int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
        dup2(other, fd);
        close(other);
    }
    await_gone();
    CHECK(submit() == CUDA_SUCCESS);
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
    for (int i = 0; i < 60000 && gm_link_is_up(); i++)
        nap(1000);
    CHECK(!gm_link_is_up());
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
    CHECK(gm_link_is_up() && submit() == CUDA_SUCCESS);
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
SCENARIO(memory)
SCENARIO(pitch)
SCENARIO(gate_and_drain)
SCENARIO(places_are_marked)
SCENARIO(hints)
SCENARIO(imports)
SCENARIO(destroy_while_draining)
SCENARIO(captures)
SCENARIO(captures_lost)
SCENARIO(synchronizing_fails)
SCENARIO(contexts_take_their_memory)
SCENARIO(contexts_are_over)
SCENARIO(ahead)
SCENARIO(taken)
SCENARIO(short_ahead)
SCENARIO(lost_ahead)
SCENARIO(lost_while_open)
SCENARIO(lost_while_whole)
SCENARIO(lost_while_away)
SCENARIO(lost_on_the_way_back)
SCENARIO(daemon_stands_still)
SCENARIO(lost_in_between)
SCENARIO(back_while_open)
SCENARIO(back_while_closed)
SCENARIO(back_in_between)
SCENARIO(back_too_late)
SCENARIO(back_refused)
SCENARIO(back_as_another)
SCENARIO(back_without_words)
SCENARIO(back_with_much)
SCENARIO(nobody_back)
SCENARIO(lifeline_closed)
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
        cmocka_unit_test(test_no_daemon),
        cmocka_unit_test(test_is_disabled),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_another_gpu),
        cmocka_unit_test(test_silent),
        cmocka_unit_test(test_hangs_up),
        cmocka_unit_test(test_rubbish),
        cmocka_unit_test(test_small_areas),
        cmocka_unit_test(test_short_area),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_short_ahead),
        cmocka_unit_test(test_lost_ahead),
        cmocka_unit_test(test_pitch),
        cmocka_unit_test(test_gate_and_drain),
        cmocka_unit_test(test_places_are_marked),
        cmocka_unit_test(test_hints),
        cmocka_unit_test(test_imports),
        cmocka_unit_test(test_destroy_while_draining),
        cmocka_unit_test(test_captures),
        cmocka_unit_test(test_captures_lost),
        cmocka_unit_test(test_synchronizing_fails),
        cmocka_unit_test(test_contexts_take_their_memory),
        cmocka_unit_test(test_contexts_are_over),
        cmocka_unit_test(test_lost_while_open),
        cmocka_unit_test(test_lost_while_whole),
        cmocka_unit_test(test_lost_while_away),
        cmocka_unit_test(test_lost_on_the_way_back),
        cmocka_unit_test(test_daemon_stands_still),
        cmocka_unit_test(test_lost_in_between),
        cmocka_unit_test(test_back_while_open),
        cmocka_unit_test(test_back_while_closed),
        cmocka_unit_test(test_back_in_between),
        cmocka_unit_test(test_back_too_late),
        cmocka_unit_test(test_back_refused),
        cmocka_unit_test(test_back_as_another),
        cmocka_unit_test(test_back_without_words),
        cmocka_unit_test(test_back_with_much),
        cmocka_unit_test(test_nobody_back),
        cmocka_unit_test(test_lifeline_closed),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_forks),
        cmocka_unit_test(test_crowd),
    };
    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
