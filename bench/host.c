/*
 * bench/host: how fast the tiers below the GPU can be: copies by the processor between pinned
 * memory and ordinary memory, and a disk.
 *
 *   host [--bytes SIZE] [--rounds N] [--threads N] [--disk DIR] [--disk-bytes SIZE] [--json FILE]
 *
 * Pinned memory is host-NUMA frames, as the daemon's. Copies with 1, 2, 4, ... --threads threads
 * (as many as processors) from pinned to paged memory (out), from paged to pinned (back), and both
 * at once with half of the threads each (summed), each thread on a part of its own in pieces of 2
 * MiB. With --disk also an unnamed file in that folder: written, then read, then one half written
 * while the other is read (summed), by 2, 4 and 8 threads in pieces of 16 MiB, past the page cache
 * where the file system can do that. Rounds are interleaved; a number is the median of its rounds.
 * What was read from the disk and copied is compared with what was written. GB are 10^9 bytes.
 *
 * Exit codes: 0 done, 1 wrong use or a file that cannot be written, 2 wrong data, 3 no GPU or an
 * error of it, 4 the disk.
 */
#include <errno.h>
#include <fcntl.h>
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
#include "common/clock.h"
#include "common/size.h"

#define GM_ROUNDS_MAX 200
#define GM_THREADS_MAX 64
#define GM_STEPS_MAX 8
#define GM_PIECE (2ull << 20)
#define GM_DISK_PIECE (16ull << 20)

enum way { GM_OUT, GM_BACK, GM_BOTH, GM_WAYS };
static const char *const way_names[GM_WAYS] = {"out", "back", "both"};

enum disk_way { GM_DISK_WRITE, GM_DISK_READ, GM_DISK_BOTH, GM_DISK_WAYS };
static const char *const disk_names[GM_DISK_WAYS] = {"write", "read", "both"};

enum work { GM_COPY, GM_WRITE, GM_READ };

struct options {
    uint64_t bytes, disk_bytes;
    uint64_t rounds, threads;
    const char *disk, *json;
};

/* A thread's part: of a copy, or of the file. */
struct part {
    enum work work;
    char *to;
    const char *from;
    char *bounce; /* a page-aligned piece, for the file */
    uint64_t at, bytes;
    int fd;
    int error;
    uint64_t begun, ended;
    pthread_barrier_t *barrier;
};

struct step {
    unsigned threads;
    double rate[GM_WAYS][GM_ROUNDS_MAX];
    struct gm_spread spread[GM_WAYS];
};

struct disk_step {
    unsigned threads;
    double rate[GM_DISK_WAYS][GM_ROUNDS_MAX];
    struct gm_spread spread[GM_DISK_WAYS];
};

struct bench {
    struct gm_device device;
    struct gm_area pinned[2];
    char *paged[2];
    struct step steps[GM_STEPS_MAX];
    size_t n_steps;
    struct disk_step disk[3];
    size_t n_disk;
    int fd;
    bool is_direct;
    char *pieces[GM_THREADS_MAX];
};

/* A word of the file's content, so that a page in a wrong place is seen. */
static uint64_t word_at(uint64_t offset)
{
    return (offset + 1) * 0x9E3779B97F4A7C15ull;
}

static void move_file(struct part *part)
{
    for (uint64_t done = 0; done < part->bytes && part->error == 0; done += GM_DISK_PIECE) {
        uint64_t offset = part->at + done;
        uint64_t *words = (uint64_t *)(void *)part->bounce;
        if (part->work == GM_WRITE)
            for (uint64_t i = 0; i < GM_DISK_PIECE; i += 4096)
                words[i / 8] = word_at(offset + i);
        ssize_t n = part->work == GM_WRITE
                        ? pwrite(part->fd, part->bounce, GM_DISK_PIECE, (off_t)offset)
                        : pread(part->fd, part->bounce, GM_DISK_PIECE, (off_t)offset);
        if (n != (ssize_t)GM_DISK_PIECE)
            part->error = n < 0 ? errno : EIO;
        else if (part->work == GM_READ)
            for (uint64_t i = 0; i < GM_DISK_PIECE; i += 4096)
                if (words[i / 8] != word_at(offset + i))
                    part->error = EILSEQ;
    }
}

static void *run_part(void *argument)
{
    struct part *part = argument;
    pthread_barrier_wait(part->barrier);
    part->begun = gm_now();
    if (part->work == GM_COPY)
        for (uint64_t at = 0; at < part->bytes; at += GM_PIECE)
            memcpy(part->to + at, part->from + at,
                   part->bytes - at < GM_PIECE ? part->bytes - at : GM_PIECE);
    else
        move_file(part);
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
        if (pthread_create(&threads[i], NULL, run_part, &parts[i]) != 0) {
            fprintf(stderr, "host: cannot start %u threads\n", count);
            exit(1);
        }
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        begun = parts[i].begun < begun ? parts[i].begun : begun;
        ended = parts[i].ended > ended ? parts[i].ended : ended;
    }
    pthread_barrier_destroy(&barrier);
    return (double)(ended - begun);
}

static double measure_copy(struct bench *bench, enum way way, unsigned threads, uint64_t bytes)
{
    struct part parts[GM_THREADS_MAX] = {0};
    uint64_t moved = 0;
    for (unsigned i = 0; i < threads; i++) {
        /* In both: even threads out, odd ones back, of other memory. */
        bool is_back = way == GM_BACK || (way == GM_BOTH && i % 2 == 1);
        unsigned area = way == GM_BOTH ? i % 2 : is_back;
        unsigned among = way == GM_BOTH ? threads / 2 : threads;
        unsigned index = way == GM_BOTH ? i / 2 : i;
        uint64_t from = bytes / 4096 * index / among * 4096;
        uint64_t to = bytes / 4096 * (index + 1) / among * 4096;
        char *pinned = (char *)(uintptr_t)bench->pinned[area].at + from;
        char *paged = bench->paged[area] + from;
        parts[i].to = is_back ? pinned : paged;
        parts[i].from = is_back ? paged : pinned;
        parts[i].bytes = to - from;
        moved += to - from;
    }
    return (double)moved / run_parts(parts, threads);
}

static double measure_disk(struct bench *bench, enum disk_way way, unsigned threads, uint64_t bytes)
{
    struct part parts[GM_THREADS_MAX] = {0};
    uint64_t pieces = bytes / GM_DISK_PIECE;
    for (unsigned i = 0; i < threads; i++) {
        uint64_t from = pieces * i / threads, to = pieces * (i + 1) / threads;
        /* In both, the first half of the threads, and so of the file, writes. */
        bool is_write = way == GM_DISK_WRITE || (way == GM_DISK_BOTH && i < threads / 2);
        parts[i] = (struct part){.work = is_write ? GM_WRITE : GM_READ,
                                 .bounce = bench->pieces[i],
                                 .at = from * GM_DISK_PIECE,
                                 .bytes = (to - from) * GM_DISK_PIECE,
                                 .fd = bench->fd};
    }
    double ns = run_parts(parts, threads);
    for (unsigned i = 0; i < threads; i++) {
        if (parts[i].error == 0)
            continue;
        fprintf(stderr, "host: the disk: %s\n",
                parts[i].error == EILSEQ ? "other data was read than was written"
                                         : strerror(parts[i].error));
        exit(parts[i].error == EILSEQ ? 2 : 4);
    }
    return (double)(pieces * GM_DISK_PIECE) / ns;
}

/* Out of one pinned area, back into the other: the same words must arrive. */
static bool is_copied(struct bench *bench, const struct options *options)
{
    uint64_t *from = (uint64_t *)(uintptr_t)bench->pinned[0].at;
    uint64_t *to = (uint64_t *)(uintptr_t)bench->pinned[1].at;
    struct bench crossed = *bench;
    crossed.paged[1] = bench->paged[0];
    for (uint64_t i = 0; i < options->bytes / 8; i++) {
        from[i] = word_at(i);
        to[i] = 0;
    }
    measure_copy(&crossed, GM_OUT, (unsigned)options->threads, options->bytes);
    measure_copy(&crossed, GM_BACK, (unsigned)options->threads, options->bytes);
    return memcmp(from, to, options->bytes / 4096 * 4096) == 0;
}

static void run_copies(struct bench *bench, const struct options *options)
{
    for (unsigned threads = 1; threads <= options->threads && bench->n_steps < GM_STEPS_MAX;
         threads *= 2)
        bench->steps[bench->n_steps++].threads = threads;
    for (uint64_t round = 0; round < options->rounds; round++)
        for (size_t i = 0; i < bench->n_steps; i++)
            for (int way = 0; way < GM_WAYS; way++) {
                struct step *step = &bench->steps[i];
                /* Both at once needs two threads. */
                unsigned threads = way == GM_BOTH && step->threads == 1 ? 2 : step->threads;
                step->rate[way][round] =
                    measure_copy(bench, (enum way)way, threads, options->bytes);
            }
    for (size_t i = 0; i < bench->n_steps; i++)
        for (int way = 0; way < GM_WAYS; way++)
            bench->steps[i].spread[way] = gm_spread_of(bench->steps[i].rate[way], options->rounds);
}

static void run_disk(struct bench *bench, const struct options *options)
{
    static const unsigned counts[] = {2, 4, 8};
    uint64_t rounds = options->rounds < 3 ? options->rounds : 3;
    bench->is_direct = true;
    bench->fd = open(options->disk, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
    if (bench->fd < 0 && errno == EINVAL) {
        bench->is_direct = false;
        bench->fd = open(options->disk, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    }
    if (bench->fd < 0 || ftruncate(bench->fd, (off_t)options->disk_bytes) != 0) {
        fprintf(stderr, "host: %s: %s\n", options->disk, strerror(errno));
        exit(4);
    }
    for (unsigned i = 0; i < 8; i++) {
        bench->pieces[i] = aligned_alloc(4096, GM_DISK_PIECE);
        if (bench->pieces[i] == NULL)
            exit(1);
        memset(bench->pieces[i], (int)i, GM_DISK_PIECE);
    }
    bench->n_disk = sizeof(counts) / sizeof(counts[0]);
    for (uint64_t round = 0; round < rounds; round++)
        for (size_t i = 0; i < bench->n_disk; i++) {
            bench->disk[i].threads = counts[i];
            for (int way = 0; way < GM_DISK_WAYS; way++)
                bench->disk[i].rate[way][round] =
                    measure_disk(bench, (enum disk_way)way, counts[i], options->disk_bytes);
        }
    for (size_t i = 0; i < bench->n_disk; i++)
        for (int way = 0; way < GM_DISK_WAYS; way++)
            bench->disk[i].spread[way] = gm_spread_of(bench->disk[i].rate[way], rounds);
    for (unsigned i = 0; i < 8; i++)
        free(bench->pieces[i]);
    close(bench->fd);
}

static void print_table(const struct bench *bench, const struct options *options)
{
    char text[32];
    printf("host: copies of %s, %llu rounds, interleaved; GB/s: median (10th to 90th percentile)\n",
           gm_format_size(options->bytes, text, sizeof(text)), (unsigned long long)options->rounds);
    printf("%10s  %22s  %22s  %22s\n", "threads", "pinned to paged", "paged to pinned",
           "both at once");
    for (size_t i = 0; i < bench->n_steps; i++) {
        printf("%10u", bench->steps[i].threads);
        for (int way = 0; way < GM_WAYS; way++) {
            const struct gm_spread *s = &bench->steps[i].spread[way];
            printf("  %6.1f (%5.1f to %5.1f)", s->median, s->low, s->high);
        }
        printf("\n");
    }
    if (bench->n_disk == 0)
        return;
    printf("disk: %s, %s\n%10s  %22s  %22s  %22s\n",
           gm_format_size(options->disk_bytes, text, sizeof(text)),
           bench->is_direct ? "past the page cache" : "through the page cache", "threads", "write",
           "read", "both at once");
    for (size_t i = 0; i < bench->n_disk; i++) {
        printf("%10u", bench->disk[i].threads);
        for (int way = 0; way < GM_DISK_WAYS; way++) {
            const struct gm_spread *s = &bench->disk[i].spread[way];
            printf("  %6.2f (%5.2f to %5.2f)", s->median, s->low, s->high);
        }
        printf("\n");
    }
}

static int write_json(const struct bench *bench, const struct options *options, int argc,
                      char **argv)
{
    FILE *out = gm_report_open(options->json, "host", argc, argv, bench->device.name,
                               bench->device.version);
    if (out == NULL)
        return -1;
    fprintf(out,
            "  \"bytes\": %llu,\n  \"rounds\": %llu,\n  \"is_verified\": true,\n  \"copies\": [\n",
            (unsigned long long)options->bytes, (unsigned long long)options->rounds);
    for (size_t i = 0; i < bench->n_steps; i++) {
        fprintf(out, "    {\"threads\": %u", bench->steps[i].threads);
        for (int way = 0; way < GM_WAYS; way++) {
            fprintf(out, ", ");
            gm_report_spread(out, way_names[way], bench->steps[i].spread[way]);
        }
        fprintf(out, "}%s\n", i + 1 < bench->n_steps ? "," : "");
    }
    fprintf(out, "  ],\n  \"disk_bytes\": %llu,\n  \"disk_is_direct\": %s,\n  \"disk\": [",
            (unsigned long long)(bench->n_disk > 0 ? options->disk_bytes : 0),
            bench->is_direct ? "true" : "false");
    for (size_t i = 0; i < bench->n_disk; i++) {
        fprintf(out, "%s\n    {\"threads\": %u, ", i > 0 ? "," : "", bench->disk[i].threads);
        for (int way = 0; way < GM_DISK_WAYS; way++) {
            fprintf(out, "%s", way > 0 ? ", " : "");
            gm_report_spread(out, disk_names[way], bench->disk[i].spread[way]);
        }
        fprintf(out, "}");
    }
    fprintf(out, "]\n");
    return gm_report_close(out, options->json);
}

static bool parse_number(const char *text, uint64_t most, uint64_t *value)
{
    char *end;
    if (text == NULL || text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && *value > 0 && *value <= most;
}

static bool parse_bytes(const char *text, uint64_t least, uint64_t *value)
{
    return text != NULL && gm_parse_size(text, value) == 0 && *value >= least &&
           *value <= 1ull << 40;
}

static bool parse(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i += 2) {
        const char *option = argv[i], *value = argv[i + 1]; /* NULL behind the last */
        bool is_fine = false;
        if (strcmp(option, "--bytes") == 0)
            is_fine = parse_bytes(value, 2ull << 20, &options->bytes);
        else if (strcmp(option, "--disk-bytes") == 0)
            is_fine = parse_bytes(value, 8 * GM_DISK_PIECE, &options->disk_bytes);
        else if (strcmp(option, "--rounds") == 0)
            is_fine = parse_number(value, GM_ROUNDS_MAX, &options->rounds);
        else if (strcmp(option, "--threads") == 0)
            is_fine = parse_number(value, GM_THREADS_MAX, &options->threads);
        else if (strcmp(option, "--disk") == 0)
            is_fine = (options->disk = value) != NULL;
        else if (strcmp(option, "--json") == 0)
            is_fine = (options->json = value) != NULL;
        if (!is_fine)
            return false;
        if (value == NULL)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct options options = {.bytes = 1ull << 30, .disk_bytes = 4ull << 30, .rounds = 5};
    options.threads = processors > GM_THREADS_MAX ? GM_THREADS_MAX : (uint64_t)processors;
    if (options.threads < 2)
        options.threads = 2;
    if (!parse(argc, argv, &options)) {
        fprintf(stderr,
                "usage: host [--bytes SIZE] [--rounds 1..%d] [--threads 1..%d] [--disk DIR]\n"
                "            [--disk-bytes SIZE, 128M or more] [--json FILE]\n",
                GM_ROUNDS_MAX, GM_THREADS_MAX);
        return 1;
    }
    gm_device_open(&bench.device);
    for (int i = 0; i < 2; i++) {
        gm_area_make(&bench.device, &bench.pinned[i], options.bytes, true);
        bench.paged[i] =
            mmap(NULL, options.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (bench.paged[i] == MAP_FAILED) {
            fprintf(stderr, "host: no memory\n");
            return 1;
        }
        memset(bench.paged[i], i, options.bytes);
    }
    if (!is_copied(&bench, &options)) {
        fprintf(stderr, "host: what came back differs from what was copied\n");
        return 2;
    }
    run_copies(&bench, &options);
    if (options.disk != NULL)
        run_disk(&bench, &options);
    print_table(&bench, &options);
    for (int i = 0; i < 2; i++) {
        munmap(bench.paged[i], options.bytes);
        gm_area_free(&bench.device, &bench.pinned[i]);
    }
    gm_device_close(&bench.device);
    return options.json == NULL || write_json(&bench, &options, argc, argv) == 0 ? 0 : 1;
}
