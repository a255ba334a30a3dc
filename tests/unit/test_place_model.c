/* bench/place_model: programs on several GPUs in simulated time, by daemon/core/bind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bench/place_model.h"

#define G (1ull << 30)
#define S 1000000ull /* microseconds */
#define SEEDS 300

static struct gm_place_machine machine_of(uint32_t n_gpus, bool is_shared)
{
    return (struct gm_place_machine){.n_gpus = n_gpus,
                                     .card = 40 * G,
                                     .is_shared = is_shared,
                                     .chip = {.multiprocessors = 10,
                                              .blocks = 32,
                                              .threads = 2048,
                                              .registers = 65536,
                                              .shared = 98304}};
}

/* A second of start, two of work, one of end; kernels that fill so many multiprocessors of ten. */
static struct gm_place_program program_of(uint64_t need, uint32_t multiprocessors)
{
    return (struct gm_place_program){
        .start_us = 1 * S,
        .work_us = 2 * S,
        .end_us = 1 * S,
        .needs = {.need = need,
                  .n_kernels = 1,
                  .kernel = {{.blocks = 2ull * multiprocessors, .threads = 1024}}}};
}

static struct gm_place_result run(uint32_t n_gpus, bool is_shared, enum gm_place_policy policy,
                                  const struct gm_place_program *programs, uint32_t n)
{
    const struct gm_place_machine machine = machine_of(n_gpus, is_shared);
    struct gm_place_result result;
    assert_true(gm_place_run(&machine, policy, programs, n, &result));
    return result;
}

/* What arithmetic tells: to a millisecond. */
static void near(uint64_t us, uint64_t wanted)
{
    assert_in_range(us, wanted - 1000, wanted + 1000);
}

static void time_is_as_it_should(void **state)
{
    (void)state;
    const struct gm_place_program half[4] = {program_of(1 * G, 5), program_of(1 * G, 5),
                                             program_of(1 * G, 5), program_of(1 * G, 5)};
    near(run(1, false, GM_PLACE_SA, half, 3).total_us, 12 * S);
    near(run(2, false, GM_PLACE_SA, half, 4).total_us, 8 * S);
    near(run(1, false, GM_PLACE_CASE, half, 2).total_us, 6 * S); /* 1 + 2 * 2 + 1 */
    near(run(1, true, GM_PLACE_CASE, half, 2).total_us, 4 * S);  /* there is room for both */
    near(run(1, true, GM_PLACE_CASE, half, 4).total_us, 6 * S);  /* for two of four */
    near(run(2, true, GM_PLACE_UNKNOWN, half, 4).total_us, 4 * S);
    assert_int_equal(run(2, true, GM_PLACE_UNKNOWN, half, 4).largest, 2);
    near(run(1, true, GM_PLACE_CASE, half, 2).busy_us, 2 * S);
    near(run(1, true, GM_PLACE_CASE, half, 2).mean_us, 4 * S);
}

/* Those that start at once, on whatever GPU, take longer for it; what works does not. */
static void starts_are_in_the_way(void **state)
{
    (void)state;
    const struct gm_place_program two[2] = {program_of(1 * G, 5), program_of(1 * G, 5)};
    struct gm_place_machine machine = machine_of(2, true);
    struct gm_place_result result;
    machine.crowd = 500;
    assert_true(gm_place_run(&machine, GM_PLACE_SA, two, 2, &result));
    near(result.total_us, 5 * S); /* 1.5 + 2 + 1.5 */
    machine.n_gpus = 1;
    assert_true(gm_place_run(&machine, GM_PLACE_SA, two, 2, &result));
    near(result.total_us, 8 * S); /* one after the other */
    assert_true(gm_place_run(&machine, GM_PLACE_CASE, two, 2, &result));
    near(result.total_us, 5 * S);
    machine.space_us = 1 * S; /* nothing to CASE */
    assert_true(gm_place_run(&machine, GM_PLACE_CASE, two, 2, &result));
    near(result.total_us, 5 * S);
    assert_true(gm_place_run(&machine, GM_PLACE_KERNELS, two, 2, &result));
    near(result.total_us, 6500 * (S / 1000)); /* both take twice the start */
    machine.is_shared = false;
    assert_true(gm_place_run(&machine, GM_PLACE_KERNELS, two, 2, &result));
    near(result.total_us, 7 * S); /* no MPS: 1.5 + 2 * 2 + 1.5 */
}

/* Who does not fit waits: with CASE others pass, with gpumux those of a user keep their order. */
static void memory_is_waited_for(void **state)
{
    (void)state;
    const struct gm_place_program three[3] = {program_of(30 * G, 1), program_of(30 * G, 1),
                                              program_of(5 * G, 1)};
    near(run(1, true, GM_PLACE_CASE, three, 3).mean_us, (4 + 8 + 4) * S / 3);
    near(run(1, true, GM_PLACE_KERNELS, three, 3).mean_us, (4 + 8 + 8) * S / 3);
    const struct gm_place_machine small = {
        .n_gpus = 2, .card = 20 * G, .chip = machine_of(1, false).chip};
    struct gm_place_result result;
    assert_false(gm_place_run(&small, GM_PLACE_KERNELS, three, 3, &result));
}

/* That the kernels are known keeps a program that fills a GPU apart from small ones. */
static void kernels_are_of_use(void **state)
{
    (void)state;
    const struct gm_place_program four[4] = {program_of(1 * G, 10), program_of(1 * G, 1),
                                             program_of(1 * G, 1), program_of(1 * G, 1)};
    const struct gm_place_result known = run(2, true, GM_PLACE_KERNELS, four, 4);
    const struct gm_place_result unknown = run(2, true, GM_PLACE_UNKNOWN, four, 4);
    assert_int_equal(known.largest, 3);
    assert_int_equal(unknown.largest, 2);
    near(known.total_us, 4 * S);
    assert_true(unknown.total_us > known.total_us);
}

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return *seed >> 33;
}

/* Any mix, on any number of GPUs: each GPU has room for what is there, everybody ends, no GPU gives
 * more time than it has, and a second run is the same to the bit. */
static void never_too_much(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        uint64_t chance = seed, work = 0;
        struct gm_place_program programs[GM_PLACE_PROGRAMS];
        const uint32_t n = 1 + (uint32_t)(next(&chance) % 40),
                       gpus = 1 + (uint32_t)(next(&chance) % 8);
        for (uint32_t i = 0; i < n; i++) {
            programs[i] =
                program_of(1 + next(&chance) % (40 * G), 1 + (uint32_t)(next(&chance) % 12));
            programs[i].start_us = next(&chance) % S;
            programs[i].work_us = next(&chance) % (3 * S);
            programs[i].needs.n_kernels = 1 + (uint32_t)(next(&chance) % 8);
            for (uint32_t k = 1; k < programs[i].needs.n_kernels; k++)
                programs[i].needs.kernel[k] = programs[i].needs.kernel[0];
            work += programs[i].work_us;
        }
        for (int policy = 0; policy < GM_PLACE_POLICIES; policy++) {
            for (int is_shared = 0; is_shared < 2; is_shared++) {
                const struct gm_place_result one =
                    run(gpus, is_shared, (enum gm_place_policy)policy, programs, n);
                const struct gm_place_result other =
                    run(gpus, is_shared, (enum gm_place_policy)policy, programs, n);
                assert_memory_equal(&one, &other, sizeof one);
                for (uint32_t g = 0; g < gpus; g++)
                    assert_true(one.most[g] <= 40 * G);
                for (uint32_t i = 0; i < n; i++) {
                    assert_true(one.where[i] < gpus);
                    assert_true(one.total_us + 1 >=
                                programs[i].start_us + programs[i].work_us + programs[i].end_us);
                }
                if (!is_shared || policy == GM_PLACE_SA) {
                    assert_true(one.busy_us + n >= work);
                    assert_true(one.busy_us <= work + n);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_is_as_it_should), cmocka_unit_test(starts_are_in_the_way),
        cmocka_unit_test(memory_is_waited_for), cmocka_unit_test(kernels_are_of_use),
        cmocka_unit_test(never_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
