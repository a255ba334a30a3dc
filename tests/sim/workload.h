/* Random workloads: what a seed stands for. */
#ifndef GM_TESTS_SIM_WORKLOAD_H
#define GM_TESTS_SIM_WORKLOAD_H

#include "tests/sim/world.h"

/* Seeds from here on are storms: programs that pause all the time, grow, come and die, and settings
 * that change, all within a few slices. */
#define WORKLOAD_STORMS 1000000000000u

struct workload_sums {
    uint64_t steps, slices, busy, with_bytes, clean;
    uint64_t sim_ns;
};

enum workload_way {
    WORKLOAD_QUIET,
    WORKLOAD_VERBOSE, /* a line for each step */
    WORKLOAD_HASH,    /* decisions only: nothing is checked */
};

/* Run the workload of `seed`; returns the hash of all decisions. `trace`: where to record, or NULL.
 * What was done is added to *sums. */
uint64_t workload_run(uint64_t seed, enum workload_way way, FILE *trace,
                      struct workload_sums *sums);

#endif
