/*
 * The scheduler under a discrete-event simulation.
 *
 *   sim_sched                      all promises, patterns, and many random workloads, each twice
 *   sim_sched --returns            only what who comes back from a rest is promised
 *   sim_sched --seeds N [FROM]     N random workloads, from seed FROM (1)
 *   sim_sched SEED                 one of them, with a line for each step
 *   sim_sched --record FILE SEED   ... and write down what the scheduler is told
 *   sim_sched --replay FILE [GPU]  feed that, or what mux-ctl recorded, to a scheduler again
 *
 * watch.h says what is checked in all of them, promises.c and patterns.c what is besides.
 * Everything comes from the seed: a failure prints it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/patterns.h"
#include "tests/sim/promises.h"
#include "tests/sim/replay.h"
#include "tests/sim/returns.h"
#include "tests/sim/workload.h"

enum { SEEDS = 400, STORMS = 100 };

/* Rare ones that each found a fault in a policy once. */
static const uint64_t rare[] = {81, 1579, 2765, 5293, 217288};

static void run_twice(uint64_t seed, struct workload_sums *sums)
{
    struct workload_sums ignored = {0};
    uint64_t first = workload_run(seed, WORKLOAD_QUIET, NULL, sums);
    uint64_t second = workload_run(seed, WORKLOAD_HASH, NULL, &ignored);
    if (first != second) {
        fprintf(stderr, "sim_sched: seed %" PRIu64 " decides differently when it runs again\n",
                seed);
        exit(1);
    }
}

static void run_seeds(uint64_t from, uint64_t n, bool has_rare)
{
    struct workload_sums s = {0};
    for (size_t i = 0; has_rare && i < sizeof rare / sizeof *rare; i++)
        run_twice(rare[i], &s);
    for (uint64_t seed = from; seed - from < n; seed++)
        run_twice(seed, &s);
    n += has_rare ? sizeof rare / sizeof *rare : 0;
    printf("%" PRIu64 " workloads, each twice: %" PRIu64
           " steps in %.0f h of simulated time, %" PRIu64 " slices, %" PRIu64
           " drains that failed\n",
           n, s.steps, (double)s.sim_ns / 3.6e12, s.slices, s.busy);
    printf("%" PRIu64 " of them with waits and shares held to their bounds throughout, %" PRIu64
           " with loads that take what their bytes need\n",
           s.clean, s.with_bytes);
    printf("all invariants hold\n");
}

static bool parse_number(const char *text, uint64_t *value)
{
    char *end = NULL;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
}

/* The workload of `seed`, with a line for each step, or written to `path`. */
static int run_one(uint64_t seed, const char *path)
{
    struct workload_sums sums = {0};
    FILE *file = path ? fopen(path, "w") : NULL;
    uint64_t hash = 0;
    bool is_written = true;
    if (path && file)
        hash = workload_run(seed, WORKLOAD_QUIET, file, &sums);
    else if (!path)
        hash = workload_run(seed, WORKLOAD_VERBOSE, NULL, &sums);
    if (path) {
        is_written = file && !ferror(file);
        is_written = (!file || fclose(file) == 0) && is_written;
    }
    if (!is_written) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    printf("seed %" PRIu64 ": %" PRIu64 " steps in %.3f s, %" PRIu64 " slices\n", seed, sums.steps,
           (double)sums.sim_ns / 1e9, sums.slices);
    printf("decisions %016" PRIx64 "\n", hash);
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, n = 0;
    if (argc == 1) {
        promises_run();
        patterns_run();
        returns_run();
        printf("\n");
        run_seeds(1, SEEDS, true);
        printf("\nStorms\n");
        run_seeds(WORKLOAD_STORMS, STORMS, false);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--returns") == 0) {
        returns_run();
        return 0;
    }
    if (argc == 2 && parse_number(argv[1], &seed))
        return run_one(seed, NULL);
    if ((argc == 3 || argc == 4) && strcmp(argv[1], "--seeds") == 0 && parse_number(argv[2], &n) &&
        n > 0 && (argc == 3 || parse_number(argv[3], &seed))) {
        run_seeds(seed, n, false);
        return 0;
    }
    if (argc == 4 && strcmp(argv[1], "--record") == 0 && parse_number(argv[3], &seed))
        return run_one(seed, argv[2]);
    if ((argc == 3 || argc == 4) && strcmp(argv[1], "--replay") == 0 &&
        (argc == 3 || parse_number(argv[3], &n)))
        return replay_file(argv[2], (uint32_t)n);
    fprintf(stderr, "usage: sim_sched [SEED | --returns | --seeds N [FROM] | --record FILE SEED | "
                    "--replay FILE [GPU]]\n");
    return 1;
}
