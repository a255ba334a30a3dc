/*
 * bench/disk: how fast the disk below the tiers is, for bare threads: the ceiling of --disk. Needs
 * no GPU.
 *
 *   disk [--dir DIR] [--bytes SIZE] [--rounds N] [--threads N] [--json FILE]
 *
 * An unnamed file in DIR (/var/tmp): written, then read, then one half written while the other is
 * read (summed), in pieces of 16 MiB, past the page cache where the file system can do that. By 2,
 * 4, 8, ... threads up to --threads (8). Rounds are interleaved; a number is the median of its
 * rounds. What was read is compared with what was written. GB are 10^9 bytes.
 *
 * What the daemon makes of the disk is bench/copy's to measure.
 *
 * Exit codes: 0 done, 1 wrong use or a file that cannot be written, 2 wrong data, 4 the disk.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/report.h"
#include "bench/samples.h"
#include "common/clock.h"
#include "common/size.h"

#define GM_ROUNDS_MAX 100
#define GM_THREADS_MAX 64
#define GM_STEPS_MAX 6
#define GM_PIECE (16ull << 20)
#define GM_PAGE 4096u

enum way { GM_WRITE, GM_READ, GM_BOTH, GM_WAYS };
static const char *const way_names[GM_WAYS] = {"write", "read", "both"};

struct options {
    uint64_t bytes, rounds, threads;
    const char *dir, *json;
};

/* A thread's part of the file. */
struct part {
    int fd;
    bool is_write;
    char *memory; /* a page-aligned piece */
    uint64_t at, bytes;
    uint64_t begun, ended;
    int error;
    pthread_barrier_t *barrier;
};

struct step {
    unsigned threads;
    double rate[GM_WAYS][GM_ROUNDS_MAX];
    struct gm_spread spread[GM_WAYS];
};

struct bench {
    int fd;
    bool is_direct;
    char *memory[GM_THREADS_MAX];
    struct step steps[GM_STEPS_MAX];
    size_t n_steps;
};

static void die(int code, const char *what, int error)
{
    fprintf(stderr, "disk: %s%s%s\n", what, error ? ": " : "", error ? strerror(error) : "");
    exit(code);
}

/* A word of the file's content, so that a page in a wrong place is seen. */
static uint64_t word_at(uint64_t offset)
{
    return (offset + 1) * 0x9E3779B97F4A7C15ull;
}

static void move_piece(struct part *part, uint64_t offset)
{
    uint64_t *words = (uint64_t *)(void *)part->memory;
    ssize_t n;
    if (part->is_write) {
        for (uint64_t i = 0; i < GM_PIECE; i += GM_PAGE)
            words[i / 8] = word_at(offset + i);
        n = pwrite(part->fd, part->memory, GM_PIECE, (off_t)offset);
    } else {
        n = pread(part->fd, part->memory, GM_PIECE, (off_t)offset);
    }
    if (n != (ssize_t)GM_PIECE) {
        part->error = n < 0 ? errno : EIO;
        return;
    }
    for (uint64_t i = 0; !part->is_write && i < GM_PIECE; i += GM_PAGE)
        if (words[i / 8] != word_at(offset + i))
            part->error = EILSEQ;
}

static void *run_part(void *argument)
{
    struct part *part = argument;
    pthread_barrier_wait(part->barrier);
    part->begun = gm_now();
    for (uint64_t done = 0; done < part->bytes && part->error == 0; done += GM_PIECE)
        move_piece(part, part->at + done);
    part->ended = gm_now();
    return NULL;
}

/* Nanoseconds from the first part's beginning to the last one's end. They begin together. */
static double run_parts(struct part *parts, unsigned count)
{
    pthread_t threads[GM_THREADS_MAX];
    pthread_barrier_t barrier;
    uint64_t begun = UINT64_MAX, ended = 0;
    pthread_barrier_init(&barrier, NULL, count);
    for (unsigned i = 0; i < count; i++) {
        parts[i].barrier = &barrier;
        int error = pthread_create(&threads[i], NULL, run_part, &parts[i]);
        if (error != 0)
            die(1, "cannot start a thread", error);
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        begun = parts[i].begun < begun ? parts[i].begun : begun;
        ended = parts[i].ended > ended ? parts[i].ended : ended;
    }
    pthread_barrier_destroy(&barrier);
    return (double)(ended - begun);
}

/* GB/s. Of both ways, the first half of the threads, and so of the file, writes. */
static double measure(const struct bench *bench, enum way way, unsigned threads, uint64_t bytes)
{
    struct part parts[GM_THREADS_MAX] = {0};
    uint64_t pieces = bytes / GM_PIECE;
    for (unsigned i = 0; i < threads; i++) {
        uint64_t from = pieces * i / threads, to = pieces * (i + 1) / threads;
        parts[i] = (struct part){.fd = bench->fd,
                                 .is_write = way == GM_WRITE || (way == GM_BOTH && i < threads / 2),
                                 .memory = bench->memory[i],
                                 .at = from * GM_PIECE,
                                 .bytes = (to - from) * GM_PIECE};
    }
    double ns = run_parts(parts, threads);
    for (unsigned i = 0; i < threads; i++) {
        if (parts[i].error == EILSEQ)
            die(2, "other data was read than was written", 0);
        if (parts[i].error != 0)
            die(4, "the file", parts[i].error);
    }
    return (double)(pieces * GM_PIECE) / ns;
}

static void open_file(struct bench *bench, const struct options *options)
{
    int flags = O_TMPFILE | O_RDWR | O_CLOEXEC;
    bench->fd = open(options->dir, flags | O_DIRECT, 0600);
    bench->is_direct = bench->fd >= 0;
    if (bench->fd < 0 && errno == EINVAL)
        bench->fd = open(options->dir, flags, 0600);
    if (bench->fd < 0 || ftruncate(bench->fd, (off_t)options->bytes) != 0)
        die(4, options->dir, errno);
}

static void run_rounds(struct bench *bench, const struct options *options)
{
    for (unsigned i = 0; i < options->threads; i++) {
        bench->memory[i] = aligned_alloc(GM_PAGE, GM_PIECE);
        if (bench->memory[i] == NULL)
            die(1, "no memory", 0);
        memset(bench->memory[i], (int)i, GM_PIECE);
    }
    for (unsigned threads = 2; threads <= options->threads; threads *= 2)
        bench->steps[bench->n_steps++].threads = threads;
    for (size_t round = 0; round < options->rounds; round++)
        for (size_t i = 0; i < bench->n_steps; i++)
            for (int way = 0; way < GM_WAYS; way++)
                bench->steps[i].rate[way][round] =
                    measure(bench, (enum way)way, bench->steps[i].threads, options->bytes);
    for (size_t i = 0; i < bench->n_steps; i++)
        for (int way = 0; way < GM_WAYS; way++)
            bench->steps[i].spread[way] =
                gm_samples_spread(bench->steps[i].rate[way], options->rounds);
    for (unsigned i = 0; i < options->threads; i++)
        free(bench->memory[i]);
}

static void print_table(const struct bench *bench, const struct options *options)
{
    char text[32];
    printf("disk: %s, %s, %llu rounds, interleaved; GB/s: median (10th to 90th percentile)\n",
           gm_format_size(options->bytes, text, sizeof(text)),
           bench->is_direct ? "past the page cache" : "through the page cache",
           (unsigned long long)options->rounds);
    printf("%10s  %22s  %22s  %22s\n", "threads", "write", "read", "both at once");
    for (size_t i = 0; i < bench->n_steps; i++) {
        printf("%10u", bench->steps[i].threads);
        for (int way = 0; way < GM_WAYS; way++) {
            const struct gm_spread *s = &bench->steps[i].spread[way];
            printf("  %6.2f (%5.2f to %5.2f)", s->median, s->low, s->high);
        }
        printf("\n");
    }
}

static int write_json(const struct bench *bench, const struct options *options, int argc,
                      char **argv)
{
    FILE *out = gm_report_open(options->json, "disk", argc, argv, NULL, 0);
    if (out == NULL)
        return -1;
    fprintf(out,
            "  \"bytes\": %llu,\n  \"rounds\": %llu,\n  \"is_verified\": true,\n"
            "  \"is_direct\": %s,\n  \"steps\": [",
            (unsigned long long)options->bytes, (unsigned long long)options->rounds,
            bench->is_direct ? "true" : "false");
    for (size_t i = 0; i < bench->n_steps; i++) {
        fprintf(out, "%s\n    {\"threads\": %u", i > 0 ? "," : "", bench->steps[i].threads);
        for (int way = 0; way < GM_WAYS; way++) {
            fprintf(out, ", ");
            gm_report_spread(out, way_names[way], bench->steps[i].spread[way]);
        }
        fprintf(out, "}");
    }
    fprintf(out, "\n  ]\n");
    return gm_report_close(out, options->json);
}

static bool parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
    char *end;
    if (text == NULL || text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && *value >= least && *value <= most;
}

static bool parse(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i += 2) {
        const char *option = argv[i], *value = argv[i + 1]; /* NULL behind the last */
        bool is_fine = false;
        if (value == NULL)
            return false;
        if (strcmp(option, "--bytes") == 0)
            is_fine = gm_parse_size(value, &options->bytes) == 0 && options->bytes <= 1ull << 40;
        else if (strcmp(option, "--rounds") == 0)
            is_fine = parse_number(value, 1, GM_ROUNDS_MAX, &options->rounds);
        else if (strcmp(option, "--threads") == 0)
            is_fine = parse_number(value, 2, GM_THREADS_MAX, &options->threads);
        else if (strcmp(option, "--dir") == 0)
            is_fine = (options->dir = value) != NULL;
        else if (strcmp(option, "--json") == 0)
            is_fine = (options->json = value) != NULL;
        if (!is_fine)
            return false;
    }
    /* every thread has something to do */
    return options->bytes / GM_PIECE >= options->threads;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    struct options options = {.dir = "/var/tmp", .bytes = 4ull << 30, .rounds = 3, .threads = 8};
    if (!parse(argc, argv, &options)) {
        fprintf(stderr,
                "usage: disk [--dir DIR] [--bytes SIZE, 16M a thread or more] [--rounds 1..%d]\n"
                "            [--threads 2..%d] [--json FILE]\n",
                GM_ROUNDS_MAX, GM_THREADS_MAX);
        return 1;
    }
    open_file(&bench, &options);
    run_rounds(&bench, &options);
    close(bench.fd);
    print_table(&bench, &options);
    return options.json == NULL || write_json(&bench, &options, argc, argv) == 0 ? 0 : 1;
}
