/*
 * Programs that arrive at once on several GPUs, in simulated time: what bench/place_sim.c makes a
 * table of. Who goes where is decided by daemon/core/bind, or by one of the policies that
 * bench/mixes.py runs natively. Pure: no clock, I/O or random, so the same input has the same
 * result.
 *
 * A program runs through three parts: it starts (driver, memory, inputs), works, and ends. Those
 * that start or end at the same time, on whatever GPU, are in each other's way (crowd): the driver
 * does much of that for one process of the machine at a time. While several work on a GPU,
 *
 *   slices   they take turns: each of n has 1/n of its rate;
 *   shared   they share the multiprocessors (MPS): all have their full rate as long as their
 * kernels fill no more than there are, by gm_bind_work, and else that share of it.
 *
 * So what they do to each other's memory bandwidth and caches is not in it. Memory that does not
 * fit is not in it either: with gpumux programs wait for room (--admit fit).
 */
#ifndef GM_BENCH_PLACE_MODEL_H
#define GM_BENCH_PLACE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/bind.h"

#define GM_PLACE_GPUS 64u
#define GM_PLACE_PROGRAMS GM_BIND_WAITERS

struct gm_place_program {
    uint64_t start_us, work_us, end_us; /* alone */
    struct gm_bind_program needs;
};

enum gm_place_policy {
    GM_PLACE_SA,      /* one program a GPU, in the order of arrival */
    GM_PLACE_CASE,    /* memory and warps; who fits nowhere waits, and others pass */
    GM_PLACE_UNKNOWN, /* core/bind, of which each program's memory is known and no kernel */
    GM_PLACE_KERNELS, /* core/bind that knows the kernels, too: Algorithm 1 */
    GM_PLACE_POLICIES,
};

/*
 * Both are fitted to bench/results/mixes.txt, with programs of which each starts and ends in 0.5 s
 * alone. One at a time on each of two and four GPUs, they need 0.76 and 1.4 s for that: with this
 * crowd the model has 16.4 and 10.3 s for W1 where 16.9 and 11.1 were measured. Of 31 cells 24 are
 * within 15 % of their times SA, and all within 24 %; without both, 3 were.
 */
#define GM_PLACE_CROWD 700u      /* thousandths of the time alone, for each other one */
#define GM_PLACE_SPACE_US 120000 /* a start under gpumux with MPS takes so much longer */

struct gm_place_machine {
    uint32_t n_gpus;
    struct gm_bind_chip chip;
    uint64_t card; /* bytes that programs may fill, of each */
    bool is_shared;
    uint32_t crowd;    /* GM_PLACE_CROWD, or 0: nobody is in another's way */
    uint64_t space_us; /* GM_PLACE_SPACE_US, likewise */
};

struct gm_place_result {
    uint64_t total_us;            /* until all have ended */
    uint64_t mean_us;             /* of their ends */
    uint64_t busy_us;             /* of all GPUs together: time in which a program worked */
    uint64_t most[GM_PLACE_GPUS]; /* bytes that were needed at once */
    uint32_t where[GM_PLACE_PROGRAMS];
    uint32_t least, largest; /* programs on the GPU with fewest, and with most */
};

/*
 * Let them arrive at once, in this order (`n` from 1 to GM_PLACE_PROGRAMS, `n_gpus` from 1 to
 * GM_PLACE_GPUS). False: a program needs more than the card has, so it would wait for ever.
 */
bool gm_place_run(const struct gm_place_machine *machine, enum gm_place_policy policy,
                  const struct gm_place_program *programs, uint32_t n,
                  struct gm_place_result *result);

#endif
