/* daemon/core/bind: which GPU a program gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/units.h"
#include "daemon/core/bind.h"

#define G (1ull << 30)
#define ALL UINT64_MAX
#define GPUS 8

/* A small chip: round numbers. */
static const struct gm_bind_chip chip = {
    .multiprocessors = 10, .blocks = 32, .threads = 2048, .registers = 65536, .shared = 98304};

static struct gm_bind_gpu gpu_of(uint64_t budget)
{
    return (struct gm_bind_gpu){.chip = chip, .budget = budget};
}

static struct gm_bind_program program_of(uint64_t need)
{
    return (struct gm_bind_program){.need = need, .time = GM_BIND_WHOLE};
}

/* Bind the program and count it. Returns its GPU. */
static uint32_t bind(struct gm_bind_gpu *gpus, uint32_t n, uint64_t allowed,
                     const struct gm_bind_program *program, enum gm_why why)
{
    const struct gm_bind_choice choice = gm_bind_choose(gpus, n, allowed, program);
    assert_int_equal(choice.why, why);
    assert_true(choice.gpu < n);
    gm_bind_take(&gpus[choice.gpu], program);
    return choice.gpu;
}

static uint64_t work_of(uint64_t blocks, uint32_t threads, uint32_t registers, uint32_t shared)
{
    const struct gm_bind_program program = {
        .n_kernels = 1,
        .kernel = {
            {.blocks = blocks, .threads = threads, .registers = registers, .shared = shared}}};
    return gm_bind_work(&chip, &program);
}

/* What of a multiprocessor a block fills: what is short of threads, registers, shared memory and
 * places for blocks. */
static void kernels_fill(void **state)
{
    (void)state;
    assert_int_equal(work_of(1, 1024, 0, 0), 500);    /* half of the threads */
    assert_int_equal(work_of(1, 1, 0, 0), 32);        /* one of 32 blocks, rounded up */
    assert_int_equal(work_of(1, 256, 128, 0), 500);   /* 32768 of 65536 registers */
    assert_int_equal(work_of(1, 32, 16, 49152), 500); /* half of the shared memory */
    assert_int_equal(work_of(3, 1024, 0, 0), 1500);   /* more than one multiprocessor */
    assert_int_equal(work_of(19, 1024, 0, 0), 9500);  /* all but a half */
    assert_int_equal(work_of(20, 1024, 0, 0), 10000); /* all */
    assert_int_equal(work_of(1u << 31, 64, 32, 0), 10000);
    assert_int_equal(work_of(1, 4096, 0, 0), 1000); /* it cannot run: a multiprocessor */
    assert_int_equal(work_of(UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX), 10000);
    assert_int_equal(work_of(0, 0, 0, 0), 0);
    const struct gm_bind_program unknown = {.need = 1};
    assert_int_equal(gm_bind_work(&chip, &unknown), 10000);
    /* two streams */
    const struct gm_bind_program two = {
        .n_kernels = 2, .kernel = {{.blocks = 2, .threads = 1024}, {.blocks = 1, .threads = 2048}}};
    assert_int_equal(gm_bind_work(&chip, &two), 2000);
}

/* Programs of which nothing is known are spread: four on two GPUs are two and two. */
static void unknown_ones_are_spread(void **state)
{
    struct gm_bind_gpu gpus[] = {gpu_of(16 * G), gpu_of(16 * G)};
    const struct gm_bind_program program = program_of(2 * G);
    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(bind(gpus, 2, ALL, &program, GM_WHY_BIND_ROOM), i % 2);
    assert_int_equal(gpus[0].needed, 4 * G);
    assert_int_equal(gpus[1].queues, 2);
    assert_int_equal(gpus[1].time, 2000);
}

/* A GPU whose programs have small kernels has more left than one with fewer programs that fill it.
 */
static void most_multiprocessors_left(void **state)
{
    struct gm_bind_gpu gpus[] = {gpu_of(16 * G), gpu_of(16 * G)};
    const struct gm_bind_program filling = program_of(G);
    struct gm_bind_program small = filling;
    (void)state;
    small.n_kernels = 1;
    small.kernel[0] = (struct gm_bind_kernel){.blocks = 1, .threads = 1024};
    assert_int_equal(bind(gpus, 2, ALL, &filling, GM_WHY_BIND_ROOM), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(bind(gpus, 2, ALL, &small, GM_WHY_BIND_ROOM), 1);
    assert_int_equal(gpus[1].work, 5000);
    assert_int_equal(bind(gpus, 2, ALL, &filling, GM_WHY_BIND_ROOM), 1);
    assert_int_equal(bind(gpus, 2, ALL, &filling, GM_WHY_BIND_ROOM), 0);
}

/* Room comes before multiprocessors, and before queues; queues before multiprocessors. */
static void room_then_queues(void **state)
{
    struct gm_bind_gpu gpus[] = {gpu_of(16 * G), gpu_of(16 * G)};
    const struct gm_bind_program large = program_of(10 * G);
    (void)state;
    gpus[0].needed = 8 * G;
    gpus[1].work = 100000;
    assert_int_equal(bind(gpus, 2, ALL, &large, GM_WHY_BIND_ROOM), 1);
    gpus[0] = gpu_of(16 * G);
    gpus[1] = gpu_of(16 * G);
    gpus[0].queues = GM_BIND_QUEUES;
    gpus[1].work = 100000;
    assert_int_equal(bind(gpus, 2, ALL, &large, GM_WHY_BIND_ROOM), 1);
    gpus[1].needed = 16 * G;
    assert_int_equal(bind(gpus, 2, ALL, &large, GM_WHY_BIND_QUEUES), 0);
    /* it needs five and four are left */
    struct gm_bind_program five = program_of(0);
    five.n_kernels = 5;
    gpus[0] = gpus[1] = gpu_of(16 * G);
    gpus[0].queues = GM_BIND_QUEUES - 4;
    gpus[1].queues = GM_BIND_QUEUES - 5;
    assert_int_equal(bind(gpus, 2, ALL, &five, GM_WHY_BIND_ROOM), 1);
    assert_int_equal(gpus[1].queues, GM_BIND_QUEUES);
}

/* Where none has room, somebody loses: as little as can be. */
static void least_is_lost(void **state)
{
    struct gm_bind_gpu gpus[] = {gpu_of(16 * G), gpu_of(16 * G), gpu_of(8 * G)};
    struct gm_bind_program program = program_of(12 * G);
    (void)state;
    for (int i = 0; i < 3; i++) {
        gpus[i].needed = 8 * G;
        gpus[i].time = 1000;
    }
    gpus[2].time = 0; /* but it could never hold the program */
    gpus[1].time = 400;
    assert_int_equal(bind(gpus, 3, ALL, &program, GM_WHY_BIND_LOSS), 1); /* it has time */
    gpus[0] = gpus[1] = gpu_of(16 * G);
    gpus[0].needed = 14 * G;
    gpus[1].needed = 10 * G;
    gpus[0].time = gpus[1].time = 1000;
    assert_int_equal(bind(gpus, 3, ALL, &program, GM_WHY_BIND_LOSS), 1); /* less to move */
    /* the same for all: by what is left, and then by number */
    gpus[0] = gpus[1] = gpu_of(16 * G);
    gpus[0].needed = gpus[1].needed = 14 * G;
    gpus[0].work = 1;
    assert_int_equal(bind(gpus, 3, ALL, &program, GM_WHY_BIND_LOSS), 1);
    /* larger than every GPU */
    program.need = 20 * G;
    gpus[0] = gpus[1] = gpu_of(16 * G);
    gpus[0].needed = 1 * G;
    assert_int_equal(bind(gpus, 3, ALL, &program, GM_WHY_BIND_LARGE), 1);
}

static void only_what_is_allowed(void **state)
{
    struct gm_bind_gpu gpus[] = {gpu_of(16 * G), gpu_of(16 * G), gpu_of(16 * G)};
    const struct gm_bind_program program = program_of(10 * G);
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(bind(gpus, 3, 1 << 1, &program, GM_WHY_BIND_ONLY), 1);
    assert_int_equal(bind(gpus, 3, 6, &program, GM_WHY_BIND_ROOM), 2);
    assert_int_equal(gm_bind_choose(gpus, 3, 0, &program).gpu, GM_BIND_NONE);
    assert_int_equal(gm_bind_choose(gpus, 3, 1 << 3, &program).gpu, GM_BIND_NONE);
    assert_int_equal(gm_bind_choose(gpus, 0, ALL, &program).gpu, GM_BIND_NONE);
}

static void room_of_what_is_too_large(void **state)
{
    struct gm_bind_gpu gpu = gpu_of(16 * G);
    (void)state;
    assert_true(gm_bind_has_room(&gpu, 16 * G));
    assert_true(gm_bind_has_room(&gpu, 20 * G));
    gpu.needed = 1;
    assert_false(gm_bind_has_room(&gpu, 20 * G));
    assert_true(gm_bind_has_room(&gpu, 16 * G - 1));
    assert_true(gm_bind_has_room(&gpu, 0));
    gpu.needed = UINT64_MAX; /* told by others */
    assert_false(gm_bind_has_room(&gpu, 1));
    assert_false(gm_bind_has_room(&gpu, 0)); /* it is above its budget */
}

/* One that fits passes those of its user that do not, for half of the patience; no user waits for
 * another's; and nobody waits for ever. */
static void who_waits_for_room(void **state)
{
    struct gm_bind_gpu gpus[] = {gpu_of(16 * G), gpu_of(8 * G)};
    struct gm_bind_waiter waiters[] = {
        {.uid = 1, .need = 12 * G, .allowed = ALL, .since = 100},
        {.uid = 1, .need = 2 * G, .allowed = ALL, .since = 110},
        {.uid = 2, .need = 6 * G, .allowed = 1, .since = 120},
        {.uid = 2, .need = 20 * G, .allowed = 2, .since = 130},
    };
    (void)state;
    assert_int_equal(gm_bind_next(gpus, 2, waiters, 0, 200, 1000), GM_BIND_NONE);
    assert_int_equal(gm_bind_next(gpus, 2, waiters, 4, 200, 1000), 0);
    gpus[0].needed = 10 * G;
    gpus[1].needed = 1;
    assert_int_equal(gm_bind_next(gpus, 2, waiters, 4, 200, 1000), 1);
    assert_int_equal(gm_bind_next(gpus, 2, waiters, 4, 599, 1000), 1);
    assert_int_equal(gm_bind_next(gpus, 2, waiters, 4, 600, 1000), 2); /* nobody passes 0 now */
    gpus[0].needed = 11 * G;
    assert_int_equal(gm_bind_next(gpus, 2, waiters, 4, 600, 1000), GM_BIND_NONE);
    assert_int_equal(gm_bind_next(gpus, 2, waiters, 4, 200, 1000), 1);
    assert_int_equal(gm_bind_next(gpus, 2, waiters + 1, 3, 200, 1000), 0);
    gpus[1].needed = 0; /* it may use that one only, and is larger: alone it may */
    assert_int_equal(gm_bind_next(gpus, 2, waiters + 3, 1, 200, 1000), 0);
    waiters[3].allowed = 0;
    assert_int_equal(gm_bind_next(gpus, 2, waiters + 3, 1, 200, 1000), GM_BIND_NONE);
    gpus[1].needed = 1;
    assert_int_equal(gm_bind_next(gpus, 2, waiters, 4, 1109, 1000), 0); /* the patience of 0 */
    assert_int_equal(gm_bind_next(gpus, 2, waiters + 1, 3, 1109, 1000), 0);
    assert_int_equal(gm_bind_next(gpus, 2, waiters + 2, 2, 1119, 1000), GM_BIND_NONE);
    assert_int_equal(gm_bind_next(gpus, 2, waiters + 2, 2, 1130, 1000), 0);
    assert_int_equal(gm_bind_next(gpus, 2, waiters + 3, 1, 1130, 1000), 0);
}

/* The short before the long, by doublings; of as long ones who came first; and none before one of
 * another user that came before it and fits. */
static void who_goes_first(void **state)
{
    const struct gm_bind_gpu gpus[] = {gpu_of(16 * G)};
    struct gm_bind_waiter waiters[] = {
        {.uid = 1, .need = 2 * G, .allowed = ALL, .took_ns = 7 * GM_S, .since = 100},
        {.uid = 2, .need = 9 * G, .allowed = 0, .took_ns = 1, .since = 110},
        {.uid = 1, .need = 5 * G, .allowed = ALL, .took_ns = 4 * GM_S, .since = 120},
        {.uid = 1, .need = 5 * G, .allowed = ALL, .took_ns = 5 * GM_S, .since = 130},
        {.uid = 1, .need = 1 * G, .allowed = ALL, .took_ns = 4 * GM_S - 1, .since = 140},
        {.uid = 1, .need = 1 * G, .allowed = ALL, .took_ns = 0, .since = 150},
    };
    (void)state;
    assert_int_equal(gm_bind_next(gpus, 1, waiters, 1, 200, 1000), 0);
    assert_int_equal(gm_bind_next(gpus, 1, waiters, 4, 200, 1000), 0);
    assert_int_equal(gm_bind_next(gpus, 1, waiters, 5, 200, 1000), 4);
    assert_int_equal(gm_bind_next(gpus, 1, waiters, 6, 200, 1000), 5); /* it may be short */
    assert_int_equal(gm_bind_next(gpus, 1, waiters, 6, 600, 1000), 0); /* nobody passes it now */
    waiters[1].allowed = ALL;
    assert_int_equal(gm_bind_next(gpus, 1, waiters, 6, 200, 1000), 0);
    assert_int_equal(gm_bind_next(gpus, 1, waiters + 1, 5, 200, 1000), 0);
    waiters[0].need = 20 * G;
    waiters[1].need = 17 * G;
    const struct gm_bind_gpu full = {.chip = gpus[0].chip, .budget = 16 * G, .needed = 12 * G};
    assert_int_equal(gm_bind_next(&full, 1, waiters, 6, 200, 1000), 5);
    waiters[5].allowed = 0;
    assert_int_equal(gm_bind_next(&full, 1, waiters, 6, 200, 1000), 4);
    assert_int_equal(gm_bind_next(&full, 1, waiters, 4, 200, 1000), GM_BIND_NONE);
}

/* Who fits waits for others that start there, but not for long. */
static void who_waits_for_starts(void **state)
{
    struct gm_bind_gpu gpus[] = {gpu_of(16 * G), gpu_of(2 * G)};
    struct gm_bind_waiter waiter = {.uid = 1, .need = 4 * G, .allowed = ALL, .since = 7};
    const uint64_t now = 20 * GM_S, patience = 60 * GM_S;
    (void)state;
    gpus[1].needed = 1;
    gpus[0].starting = GM_BIND_STARTS - 1;
    assert_int_equal(gm_bind_next(gpus, 2, &waiter, 1, now, patience), 0);
    gpus[0].starting = GM_BIND_STARTS;
    assert_int_equal(gm_bind_next(gpus, 2, &waiter, 1, now, patience), GM_BIND_NONE);
    assert_true(gm_bind_fits(gpus, 2, &waiter));
    waiter.fits_since = now - GM_BIND_HELD_NS + 1;
    assert_int_equal(gm_bind_next(gpus, 2, &waiter, 1, now, patience), GM_BIND_NONE);
    waiter.fits_since--;
    assert_int_equal(gm_bind_next(gpus, 2, &waiter, 1, now, patience), 0);
    gpus[0].needed = 13 * G;
    assert_int_equal(gm_bind_next(gpus, 2, &waiter, 1, now, patience), GM_BIND_NONE);
    assert_false(gm_bind_fits(gpus, 2, &waiter));
    waiter.need = 2 * G; /* the other has room, and nobody starts there */
    gpus[1].needed = 0;
    waiter.fits_since = 0;
    assert_int_equal(gm_bind_next(gpus, 2, &waiter, 1, now, patience), 0);
    gpus[0].needed = 0; /* and it gets that one, though the other has more left */
    gpus[1].work = 1;
    const struct gm_bind_program program = {.need = 2 * G};
    assert_int_equal(gm_bind_choose(gpus, 2, ALL, &program).gpu, 1);
    gpus[1].starting = UINT32_MAX;
    assert_int_equal(gm_bind_choose(gpus, 2, ALL, &program).gpu, 0);
    assert_int_equal(gm_bind_next(gpus, 2, &waiter, 1, now, patience), GM_BIND_NONE);
}

static uint64_t random_below(uint64_t n)
{
    static uint64_t x = 88172645463325252ull;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x % n;
}

static struct gm_bind_program random_program(void)
{
    struct gm_bind_program program = {.need = random_below(24) * G,
                                      .time = (uint32_t)random_below(GM_BIND_WHOLE + 1),
                                      .n_kernels = (uint32_t)random_below(GM_BIND_KERNELS + 1)};
    for (uint32_t i = 0; i < program.n_kernels; i++)
        program.kernel[i] = (struct gm_bind_kernel){.blocks = random_below(40),
                                                    .threads = (uint32_t)random_below(1025),
                                                    .registers = (uint32_t)random_below(256),
                                                    .shared = (uint32_t)random_below(65536)};
    return program;
}

/* What must be true of any choice, beside what follows in the same breath from the code: never a
 * GPU without room if one has room, none without queues if one has both, none with fewer
 * multiprocessors left than another of the same kind, and of equals the first. */
static void properties(void **state)
{
    unsigned whys[GM_WHYS] = {0};
    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct gm_bind_gpu gpus[GPUS];
        const uint32_t n = 1 + (uint32_t)random_below(GPUS);
        const uint64_t allowed = random_below(1ull << GPUS);
        const struct gm_bind_program program = random_program();
        const uint32_t streams = program.n_kernels > 0 ? program.n_kernels : 1;
        for (uint32_t i = 0; i < n; i++) {
            gpus[i] = gpu_of((4 + random_below(20)) * G);
            gpus[i].needed = random_below(24) * G;
            gpus[i].work = random_below(30) * 1000;
            gpus[i].queues = (uint32_t)random_below(40);
            gpus[i].time = (uint32_t)random_below(2500);
        }
        const struct gm_bind_choice choice = gm_bind_choose(gpus, n, allowed, &program);
        bool is_none = true;
        whys[choice.why]++;
        for (uint32_t i = 0; i < n; i++) {
            if ((allowed >> i & 1) == 0) {
                assert_int_not_equal(choice.gpu, i);
                continue;
            }
            is_none = false;
            assert_true(choice.gpu < n);
            const struct gm_bind_gpu *a = &gpus[choice.gpu], *b = &gpus[i];
            const bool room = b->needed + program.need <= b->budget;
            const bool its = a->needed + program.need <= a->budget;
            const bool queues = b->queues + streams <= GM_BIND_QUEUES;
            const bool has_queues = a->queues + streams <= GM_BIND_QUEUES;
            if (room)
                assert_true(its);
            if (room && queues)
                assert_true(has_queues);
            if (its && room && queues == has_queues)
                assert_true(i < choice.gpu ? a->work < b->work : a->work <= b->work);
            if (!its && program.need <= b->budget)
                assert_true(program.need <= a->budget);
        }
        assert_int_equal(is_none, choice.gpu == GM_BIND_NONE);
    }
    assert_true(whys[GM_WHY_BIND_ROOM] > 100 && whys[GM_WHY_BIND_QUEUES] > 100 &&
                whys[GM_WHY_BIND_LOSS] > 100 && whys[GM_WHY_BIND_LARGE] > 100 &&
                whys[GM_WHY_BIND_ONLY] > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_fill),
        cmocka_unit_test(unknown_ones_are_spread),
        cmocka_unit_test(most_multiprocessors_left),
        cmocka_unit_test(room_then_queues),
        cmocka_unit_test(least_is_lost),
        cmocka_unit_test(only_what_is_allowed),
        cmocka_unit_test(room_of_what_is_too_large),
        cmocka_unit_test(who_waits_for_room),
        cmocka_unit_test(who_goes_first),
        cmocka_unit_test(who_waits_for_starts),
        cmocka_unit_test(properties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
