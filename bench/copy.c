/*
 * bench/copy: what the daemon's threads below the GPU make of the machine: chunks of 32 MiB through
 * daemon/stores, all queued at once, as when a plan lowers or raises them.
 *
 *   copy [--bytes SIZE] [--rounds N] [--workers N] [--json FILE]
 *
 * Between pinned and paged memory, out and back, with 1, 2, 4, ... --workers workers (as many as
 * processors, 16 at most). Beside it, in the same rounds, the ceiling: as many bare threads with
 * memcpy from the same pinned memory to other ordinary memory and back. What comes back is compared
 * with what was there. A number is the median of its rounds; GB are 10^9 bytes.
 *
 * Exit codes: 0 done, 1 wrong use or no memory, 2 wrong data, 3 no GPU or an error of it, 4 the
 * tiers.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/area.h"
#include "bench/report.h"
#include "bench/samples.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/size.h"
#include "daemon/memory/stores.h"

#define GM_ROUNDS_MAX 100
#define GM_WORKERS_MAX 64u
#define GM_STEPS_MAX 7

enum way { GM_OUT, GM_BACK, GM_BARE_OUT, GM_BARE_BACK, GM_COPY_WAYS };
static const char *const way_names[GM_COPY_WAYS] = {"out", "back", "bare_out", "bare_back"};

struct options {
    uint64_t bytes, rounds, workers;
    const char *json;
};

struct step {
    unsigned workers;
    double rate[GM_COPY_WAYS][GM_ROUNDS_MAX];
    struct gm_spread spread[GM_COPY_WAYS];
};

struct bench {
    struct gm_device device;
    uv_loop_t loop;
    struct gm_hostpool pool;
    struct gm_stores *stores;
    uint32_t chunks;
    uint32_t *pinned, *other; /* chains, by chunk */
    uint32_t left;            /* copies under way */
    char *bare;               /* ordinary memory for the ceiling */
    struct step steps[GM_STEPS_MAX];
    size_t n_steps;
};

static void die(int code, const char *what, const char *why)
{
    fprintf(stderr, "copy: %s%s%s\n", what, why ? ": " : "", why ? why : "");
    exit(code);
}

static void on_grown(void *arg)
{
    (void)arg;
}

static void on_done(void *arg, uint32_t chunk, int error)
{
    struct bench *bench = arg;
    (void)chunk;
    if (error)
        die(4, "a copy failed", strerror(-error));
    bench->left--;
}

static uint64_t word_at(uint64_t chunk, uint64_t i)
{
    return (chunk * GM_CHUNK_MAX + i + 1) * 0x9E3779B97F4A7C15ull;
}

/* Write or check one word in 512 bytes of every chunk in pinned memory. */
static void fill(struct bench *bench, bool is_check)
{
    for (uint32_t c = 0; c < bench->chunks; c++) {
        uint64_t *words = gm_hostpool_memory(&bench->pool, bench->pinned[c]);
        for (uint64_t i = 0; i < GM_CHUNK_MAX / 8; i += 64) {
            if (!is_check)
                words[i] = word_at(c, i);
            else if (words[i] != word_at(c, i))
                die(2, "what came back differs from what was copied", NULL);
        }
    }
}

/* Forget what is in pinned memory, so that only a copy can bring it back. */
static void wipe(struct bench *bench)
{
    for (uint32_t c = 0; c < bench->chunks; c++)
        memset(gm_hostpool_memory(&bench->pool, bench->pinned[c]), 0xcc, GM_CHUNK_MAX);
}

/* ---- through the stores ---- */

static void open_stores(struct bench *bench, unsigned workers)
{
    char why[256];
    const struct gm_stores_config config = {.paged = bench->chunks * GM_CHUNK_MAX,
                                            .workers = workers};
    if (gm_stores_open(&bench->stores, &bench->loop, &bench->pool, &config, on_done, bench, why,
                       sizeof(why)) != 0)
        die(4, why, NULL);
}

static void close_stores(struct bench *bench)
{
    gm_stores_close(bench->stores);
    uv_run(&bench->loop, UV_RUN_DEFAULT);
}

static void take_chains(struct bench *bench, enum gm_tier tier, uint32_t *chains)
{
    for (uint32_t c = 0; c < bench->chunks; c++) {
        chains[c] = gm_stores_take(bench->stores, tier, GM_CHUNK_MAX);
        if (chains[c] == GM_NONE)
            die(4, "a tier has less room than it was made with", NULL);
    }
}

/* Copy all chunks between pinned and paged memory. GB/s. */
static double copy_all(struct bench *bench, bool is_back)
{
    const enum gm_tier pinned = GM_TIER_PINNED, paged = GM_TIER_PAGED;
    uint64_t from = gm_now();
    for (uint32_t c = 0; c < bench->chunks; c++) {
        bench->left++;
        if (is_back)
            gm_stores_copy(bench->stores, c, paged, bench->other[c], pinned, bench->pinned[c],
                           GM_CHUNK_MAX);
        else
            gm_stores_copy(bench->stores, c, pinned, bench->pinned[c], paged, bench->other[c],
                           GM_CHUNK_MAX);
    }
    while (bench->left > 0)
        uv_run(&bench->loop, UV_RUN_ONCE);
    return (double)bench->chunks * (double)GM_CHUNK_MAX / (double)(gm_now() - from);
}

/* ---- bare threads ---- */

struct part {
    struct bench *bench;
    unsigned index, count;
    bool is_back;
    pthread_barrier_t *barrier;
};

static void *run_part(void *argument)
{
    const struct part *part = argument;
    struct bench *bench = part->bench;
    const uint64_t share = GM_CHUNK_MAX / 4096 / part->count * 4096;
    const uint64_t at = part->index * share;
    const uint64_t bytes = part->index + 1 == part->count ? GM_CHUNK_MAX - at : share;
    pthread_barrier_wait(part->barrier);
    for (uint32_t c = 0; c < bench->chunks; c++) {
        char *pinned = (char *)gm_hostpool_memory(&bench->pool, bench->pinned[c]) + at;
        char *bare = bench->bare + c * GM_CHUNK_MAX + at;
        memcpy(part->is_back ? pinned : bare, part->is_back ? bare : pinned, bytes);
    }
    pthread_barrier_wait(part->barrier);
    return NULL;
}

static double copy_bare(struct bench *bench, unsigned count, bool is_back)
{
    pthread_t threads[GM_WORKERS_MAX];
    struct part parts[GM_WORKERS_MAX];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        parts[i] = (struct part){bench, i, count, is_back, &barrier};
        if (pthread_create(&threads[i], NULL, run_part, &parts[i]) != 0)
            die(1, "cannot start threads", NULL);
    }
    pthread_barrier_wait(&barrier);
    uint64_t from = gm_now();
    pthread_barrier_wait(&barrier);
    uint64_t to = gm_now();
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    return (double)bench->chunks * (double)GM_CHUNK_MAX / (double)(to - from);
}

/* ---- what is measured ---- */

static void run_step(struct bench *bench, struct step *step, size_t round)
{
    open_stores(bench, step->workers);
    take_chains(bench, GM_TIER_PINNED, bench->pinned);
    take_chains(bench, GM_TIER_PAGED, bench->other);
    fill(bench, false);
    copy_all(bench, false); /* the system clears new memory first */
    step->rate[GM_OUT][round] = copy_all(bench, false);
    if (round == 0)
        wipe(bench);
    step->rate[GM_BACK][round] = copy_all(bench, true);
    fill(bench, true);
    step->rate[GM_BARE_OUT][round] = copy_bare(bench, step->workers, false);
    step->rate[GM_BARE_BACK][round] = copy_bare(bench, step->workers, true);
    fill(bench, true);
    for (uint32_t c = 0; c < bench->chunks; c++)
        gm_stores_free(bench->stores, GM_TIER_PINNED, bench->pinned[c]);
    close_stores(bench);
}

static void run_memory(struct bench *bench, const struct options *options)
{
    for (unsigned workers = 1; workers <= options->workers && bench->n_steps < GM_STEPS_MAX;
         workers *= 2)
        bench->steps[bench->n_steps++].workers = workers;
    for (size_t round = 0; round < options->rounds; round++)
        for (size_t i = 0; i < bench->n_steps; i++)
            run_step(bench, &bench->steps[i], round);
    for (size_t i = 0; i < bench->n_steps; i++)
        for (int way = 0; way < GM_COPY_WAYS; way++)
            bench->steps[i].spread[way] =
                gm_samples_spread(bench->steps[i].rate[way], options->rounds);
}

/* ---- telling ---- */

static void print_table(const struct bench *bench, const struct options *options)
{
    char text[32];
    printf("copy: chunks of 32 MiB, %s, %llu rounds, interleaved; GB/s, median\n",
           gm_format_size(bench->chunks * GM_CHUNK_MAX, text, sizeof(text)),
           (unsigned long long)options->rounds);
    printf("%8s %9s %9s  %9s %9s\n", "workers", "out", "back", "bare out", "bare back");
    for (size_t i = 0; i < bench->n_steps; i++) {
        const struct gm_spread *s = bench->steps[i].spread;
        printf("%8u %9.1f %9.1f  %9.1f %9.1f\n", bench->steps[i].workers, s[GM_OUT].median,
               s[GM_BACK].median, s[GM_BARE_OUT].median, s[GM_BARE_BACK].median);
    }
}

static int write_json(const struct bench *bench, const struct options *options, int argc,
                      char **argv)
{
    FILE *out = gm_report_open(options->json, "copy", argc, argv, bench->device.name,
                               bench->device.version);
    if (out == NULL)
        return -1;
    fprintf(
        out, "  \"bytes\": %llu,\n  \"rounds\": %llu,\n  \"is_verified\": true,\n  \"copies\": [\n",
        (unsigned long long)(bench->chunks * GM_CHUNK_MAX), (unsigned long long)options->rounds);
    for (size_t i = 0; i < bench->n_steps; i++) {
        fprintf(out, "    {\"workers\": %u", bench->steps[i].workers);
        for (int way = 0; way < GM_COPY_WAYS; way++) {
            fprintf(out, ", ");
            gm_report_spread(out, way_names[way], bench->steps[i].spread[way]);
        }
        fprintf(out, "}%s\n", i + 1 < bench->n_steps ? "," : "");
    }
    fprintf(out, "  ]\n");
    return gm_report_close(out, options->json);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    char why[256];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct options options = {.bytes = 1ull << 30, .rounds = 5};
    options.workers = processors < 2 ? 2 : processors > 16 ? 16 : (uint64_t)processors;
    const struct gm_option known[] = {
        {"--bytes", GM_OPTION_SIZE, &options.bytes, GM_CHUNK_MAX, 1ull << 40},
        {"--rounds", GM_OPTION_NUMBER, &options.rounds, 1, GM_ROUNDS_MAX},
        {"--workers", GM_OPTION_NUMBER, &options.workers, 1, GM_WORKERS_MAX},
        {"--json", GM_OPTION_TEXT, &options.json, 0, 0},
    };
    if (!gm_options_take(argc, argv, known, sizeof(known) / sizeof(known[0]))) {
        fprintf(stderr,
                "usage: copy [--bytes SIZE, 32M or more] [--rounds 1..%d] [--workers 1..%u]\n"
                "            [--json FILE]\n",
                GM_ROUNDS_MAX, GM_WORKERS_MAX);
        return 1;
    }
    gm_log_open(2, GM_LOG_WARN, "copy");
    gm_device_open(&bench.device);
    uv_loop_init(&bench.loop);
    bench.chunks = (uint32_t)(options.bytes / GM_CHUNK_MAX);
    options.bytes = bench.chunks * GM_CHUNK_MAX;
    bench.pinned = calloc(bench.chunks, sizeof(*bench.pinned));
    bench.other = calloc(bench.chunks, sizeof(*bench.other));
    bench.bare =
        mmap(NULL, options.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bench.pinned == NULL || bench.other == NULL || bench.bare == MAP_FAILED)
        die(1, "no memory", NULL);
    madvise(bench.bare, options.bytes, MADV_HUGEPAGE);
    memset(bench.bare, 1, options.bytes);
    if (gm_hostpool_open(&bench.pool, &bench.loop, &bench.device.cuda, bench.device.context,
                         bench.device.device, options.bytes, on_grown, NULL, why, sizeof(why)) != 0)
        die(3, why, NULL);
    gm_hostpool_want(&bench.pool, options.bytes);
    uv_run(&bench.loop, UV_RUN_DEFAULT);
    if (gm_hostpool_size(&bench.pool) < options.bytes)
        die(3, "cannot pin that much memory", NULL);

    run_memory(&bench, &options);
    print_table(&bench, &options);

    gm_hostpool_close(&bench.pool);
    uv_loop_close(&bench.loop);
    gm_device_close(&bench.device);
    munmap(bench.bare, options.bytes);
    free(bench.pinned);
    free(bench.other);
    return options.json == NULL || write_json(&bench, &options, argc, argv) == 0 ? 0 : 1;
}
