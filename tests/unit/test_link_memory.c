/* The shim from its handlers to its socket (test_link.c): memory that is asked for and freed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "shim/link/requests.h"
#include "tests/unit/link_world.h"

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
    for (int i = 0; i < 60000 && gm_link_has_daemon(); i++)
        nap(1000);
    CHECK(!gm_link_has_daemon() && n_spares_ahead == 1);
}

/* The daemon says which spare it took. Of what it cannot have taken it is not to be trusted. */
static void taken(void)
{
    boot_live();
    struct gm_msg_taken message = {.va = 0x700000000000};
    send_to_app(GM_MSG_TAKEN, &message);
    for (int i = 0; i < 60000 && taken_va == 0; i++)
        nap(1000);
    CHECK(taken_va == message.va && gm_link_has_daemon() && n_spares_lost == 0);
    message.va = 0;
    send_to_app(GM_MSG_TAKEN, &message);
    for (int i = 0; i < 60000 && n_spares_lost == 0; i++)
        nap(1000);
    CHECK(!gm_link_has_daemon() && n_spares_lost == 1);
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

/* ---- running them ---- */

SCENARIO(memory)
SCENARIO(ahead)
SCENARIO(taken)
SCENARIO(short_ahead)
SCENARIO(lost_ahead)
SCENARIO(pitch)
SCENARIO(imports)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),     cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_taken),      cmocka_unit_test(test_short_ahead),
        cmocka_unit_test(test_lost_ahead), cmocka_unit_test(test_pitch),
        cmocka_unit_test(test_imports),
    };
    return cmocka_run_group_tests_name("link_memory", tests, NULL, NULL);
}
