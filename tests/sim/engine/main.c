/*
 * sim_engine                    some hundred seeds of the real engine in a simulated machine, and
 *                               rare ones
 * sim_engine --seeds N [FROM]   N of them, from seed FROM (1)
 * sim_engine --rare             the rare ones, which each found a fault once
 * sim_engine --count N [FROM]   ... and go on after a failure; says which fail, and why
 * sim_engine SEED               one, with a line for everything that happens
 * sim_engine --sleepers         beside programs that sleep others work (sleepers.c)
 * sim_engine --evicts           who is evicted leaves the GPU, and comes back (evicts.c)
 * sim_engine --full             the GPU refuses memory that programs were promised, once (full.c)
 * sim_engine --jobs N [FROM]    N seeds of jobs on several GPUs (jobs.c)
 * sim_engine --jobs-deaths N [FROM]  likewise, and the daemon dies at times; each takes seconds
 * sim_engine --deaths N [FROM]  N seeds in which the daemon dies, and another one comes (deaths.c),
 *                               without FROM --anew, --kin and the rare ones of them first;
 *                               --count-deaths goes on after a failure, --death SEED shows one
 * sim_engine --anew [N [FROM]]  who says HELLO again may have mapped what it had before (anew.c)
 * sim_engine --kin              who shares memory runs together under the next daemon, too (kin.c)
 * sim_engine --turns            how much of the GPU's time is used in turns (turns.c)
 *
 * machine.h says what is simulated, checks.c what must hold. A failure prints its seed.
 */
#include "tests/sim/engine/machine.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 60 };
#else
enum { SEEDS = 250 };
#endif

/* Each found a fault once. */
static const uint64_t rare[] = {287,    1177,   411022, 411419, 500766, 500847, 503356, 503605,
                                504685, 504715, 600212, 601175, 700058, 800154, 800481, 940115};

enum { RARE = sizeof rare / sizeof *rare };

static bool parse_number(const char *text, uint64_t *value)
{
    char *end = NULL;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
}

static void run_seeds(uint64_t n, uint64_t from, uint64_t n_rare)
{
    uint64_t steps = 0;
    double seconds = 0;
    for (uint64_t i = 0; i < n_rare + n; i++) {
        scenario_run(i < n_rare ? rare[i] : from + i - n_rare, false);
        steps += machine.steps;
        seconds += (double)machine.now / 1e9;
    }
    n += n_rare;
    printf("%" PRIu64 " seeds: %" PRIu64 " steps in %.0f s of simulated time: %" PRIu64
           " programs, %" PRIu64 " of them killed, %" PRIu64 " allocations, %" PRIu64
           " turns, %" PRIu64 " copies, %" PRIu64 " pages not copied, %" PRIu64 " clears, %" PRIu64
           " copies between lower tiers, "
           "%" PRIu64 " parks, %" PRIu64 " of them of threads that wait for their work, %" PRIu64
           " shares opened, %" PRIu64 " links stood still, %" PRIu64 " wrong answers, %" PRIu64
           " connections survived, %" PRIu64 " faults, %" PRIu64 " of them of the disk and %" PRIu64
           " of maps, %" PRIu64 " events that are not legal, %" PRIu64 " windows with %" PRIu64
           " marks, %" PRIu64 " of work that lasted, %" PRIu64
           " times memory on the host was found guilty, %" PRIu64
           " times some was tried there; %" PRIu64 " machines had two GPUs; %" PRIu64
           " times groups became one; %" PRIu64 " ledgers read\n",
           n, steps, seconds, machine.sums.joins, machine.sums.deaths, machine.sums.allocs,
           machine.sums.turns, machine.sums.copies, machine.sums.clean, machine.sums.clears,
           machine.sums.lowered, machine.sums.parks, machine.sums.inside, machine.sums.opens,
           machine.sums.deaf, machine.sums.lies, machine.sums.copied, machine.sums.faults,
           machine.sums.disk_errors, machine.sums.failed_maps, machine.sums.planted,
           machine.sums.windows, machine.sums.marks, machine.sums.lasting, machine.sums.guilty,
           machine.sums.tries, machine.sums.doubles, machine.sums.unions, machine.sums.ledgers);
    printf("all invariants hold\n");
}

static int count_failures(uint64_t n, uint64_t from)
{
    uint64_t failed = 0;
    for (uint64_t seed = from; seed - from < n; seed++) {
        fflush(NULL);
        const pid_t pid = fork();
        int status = 0;
        if (pid == 0) {
            scenario_run(seed, false);
            _exit(0);
        }
        waitpid(pid, &status, 0);
        failed += status != 0;
    }
    printf("%" PRIu64 " of %" PRIu64 " seeds fail\n", failed, n);
    return failed > 0;
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, n = 0;
    gm_log_open(-1, GM_LOG_INFO, "gpumuxd");
    if (argc == 1) {
        sleepers_run();
        evicts_run();
        full_run();
        run_seeds(SEEDS, 1, RARE);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--rare") == 0) {
        run_seeds(0, 1, RARE);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--sleepers") == 0) {
        sleepers_run();
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--evicts") == 0) {
        evicts_run();
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--anew") == 0)
        return anew_run(0, 0);
    if (argc == 2 && strcmp(argv[1], "--kin") == 0)
        return kin_run();
    if (argc == 2 && strcmp(argv[1], "--full") == 0) {
        full_run();
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--turns") == 0) {
        turns_run();
        return 0;
    }
    if (argc == 2 && parse_number(argv[1], &seed)) {
        gm_log_open(STDOUT_FILENO, GM_LOG_DEBUG, "gpumuxd");
        setvbuf(stdout, NULL, _IOLBF, 0); /* in order with the log's lines */
        scenario_run(seed, true);
        printf("seed %" PRIu64 ": %" PRIu64 " steps, hash %016" PRIx64 "\n", seed, machine.steps,
               machine.hash);
        return 0;
    }
    if ((argc == 3 || argc == 4) && parse_number(argv[2], &n) && n > 0 &&
        (argc == 3 || parse_number(argv[3], &seed))) {
        if (strcmp(argv[1], "--seeds") == 0) {
            run_seeds(n, seed, 0);
            return 0;
        }
        if (strcmp(argv[1], "--jobs") == 0) {
            jobs_run(n, seed);
            return 0;
        }
        if (strcmp(argv[1], "--jobs-deaths") == 0)
            return jobs_run_deaths(n, seed) > 0;
        if (strcmp(argv[1], "--anew") == 0)
            return anew_run(n, seed) > 0;
        if (strcmp(argv[1], "--count") == 0)
            return count_failures(n, seed);
        if (strcmp(argv[1], "--deaths") == 0 && argc == 3 && anew_run(0, 0) + kin_run() != 0)
            return 1;
        if (strcmp(argv[1], "--deaths") == 0)
            return deaths_run(n, argc == 3 ? 0 : seed, false);
        if (strcmp(argv[1], "--count-deaths") == 0)
            return deaths_run(n, seed, true);
        if (strcmp(argv[1], "--death") == 0 && argc == 3) {
            gm_log_open(STDOUT_FILENO, GM_LOG_DEBUG, "gpumuxd");
            setvbuf(stdout, NULL, _IOLBF, 0);
            scenario_run_deaths(n, true);
            return 0;
        }
    }
    fprintf(stderr,
            "usage: sim_engine [SEED | --rare | --sleepers | --evicts | --full | --anew [N [FROM]] "
            "| --kin | "
            "--turns | "
            "--jobs N [FROM] | --jobs-deaths N [FROM] | --deaths N [FROM] | --count-deaths N "
            "[FROM] | --death SEED | "
            "--seeds N [FROM] | --count N [FROM]]\n");
    return 1;
}
