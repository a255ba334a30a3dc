/*
 * bench/link: what the link between host and GPU can do: the ceiling of everything that moves
 * memory.
 *
 *   link [--from SIZE] [--to SIZE] [--bytes SIZE] [--rounds N] [--ms N] [--wait] [--json FILE]
 *   link --machine
 *
 * Host to device, device to host, and both at once, in pieces of 512 KiB to 128 MiB (each twice the
 * one before). Memory on both sides is what the daemon moves: VMM frames, on the host pinned
 * host-NUMA ones. A measurement copies --bytes (1 GiB) each way, on one stream for each, by a clock
 * on the host from the first submission to the end of the last copy. Rounds over all sizes and
 * directions are interleaved, in turn forwards and backwards; a number is the median of its rounds,
 * the spread is from the 10th to the 90th percentile. Before that, what was copied there and back
 * is compared.
 *
 * For several GPUs at once, one process each: --ms begins no round after so long, and then --rounds
 * is the most; with --wait it says "ready" when all is warm, and begins when a line comes.
 *
 * GB are 10^9 bytes. --machine prints the description of the machine alone.
 *
 * Exit codes: 0 done, 1 wrong use or a file that cannot be written, 2 wrong data, 3 no GPU or an
 * error of it.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/area.h"
#include "bench/report.h"
#include "bench/samples.h"
#include "common/clock.h"
#include "common/size.h"

#define GM_ROUNDS_MAX 200
#define GM_PIECES_MAX 16

enum way { GM_IN, GM_OUT, GM_BOTH, GM_LINK_WAYS };
static const char *const way_names[GM_LINK_WAYS] = {"h2d", "d2h", "both"};

struct options {
    uint64_t from, to; /* pieces */
    uint64_t bytes;    /* each way, a measurement */
    uint64_t rounds;   /* the most */
    uint64_t ms;       /* 0: no limit */
    const char *json;
    bool is_machine, is_waiting;
};

struct bench {
    struct gm_device device;
    struct gm_area host[2], gpu[2]; /* [0]: to the device, [1]: from it */
    CUstream stream[2];
    uint64_t piece[GM_PIECES_MAX];
    size_t pieces;
    uint64_t rounds;                                         /* that were made */
    double rate[GM_PIECES_MAX][GM_LINK_WAYS][GM_ROUNDS_MAX]; /* GB/s */
    struct gm_spread spread[GM_PIECES_MAX][GM_LINK_WAYS];
};

static void copy_piece(struct bench *bench, bool is_out, uint64_t at, uint64_t bytes)
{
    CUdeviceptr host = bench->host[is_out].at + at, gpu = bench->gpu[is_out].at + at;
    GM_NEED(&bench->device, cuMemcpyAsync, is_out ? host : gpu, is_out ? gpu : host, bytes,
            bench->stream[is_out]);
}

/* GB/s, of both directions together where both run. */
static double measure(struct bench *bench, enum way way, uint64_t piece, uint64_t bytes)
{
    uint64_t from = gm_now();
    for (uint64_t at = 0; at < bytes; at += piece) {
        uint64_t part = bytes - at < piece ? bytes - at : piece;
        if (way != GM_OUT)
            copy_piece(bench, false, at, part);
        if (way != GM_IN)
            copy_piece(bench, true, at, part);
    }
    for (int i = 0; i < 2; i++)
        GM_NEED(&bench->device, cuStreamSynchronize, bench->stream[i]);
    double ns = (double)(gm_now() - from);
    return (double)bytes * (way == GM_BOTH ? 2 : 1) / ns;
}

/* A pattern to the device by one pair of areas and back by the other. */
static bool is_copied(struct bench *bench, uint64_t bytes)
{
    uint64_t *to = (uint64_t *)(uintptr_t)bench->host[0].at;
    uint64_t *back = (uint64_t *)(uintptr_t)bench->host[1].at;
    for (uint64_t i = 0; i < bytes / 8; i++) {
        to[i] = (i + 1) * 0x9E3779B97F4A7C15ull;
        back[i] = 0;
    }
    copy_piece(bench, false, 0, bytes);
    GM_NEED(&bench->device, cuStreamSynchronize, bench->stream[0]);
    GM_NEED(&bench->device, cuMemcpyAsync, bench->gpu[1].at, bench->gpu[0].at, bytes,
            bench->stream[1]);
    copy_piece(bench, true, 0, bytes);
    GM_NEED(&bench->device, cuStreamSynchronize, bench->stream[1]);
    return memcmp(to, back, bytes) == 0;
}

static void run_rounds(struct bench *bench, const struct options *options)
{
    size_t count = bench->pieces * GM_LINK_WAYS;
    const uint64_t begin = gm_now();
    while (bench->rounds < options->rounds &&
           (options->ms == 0 || bench->rounds == 0 || gm_now() - begin < options->ms * GM_MS)) {
        for (size_t i = 0; i < count; i++) {
            size_t at = bench->rounds % 2 == 0 ? i : count - 1 - i;
            size_t piece = at / GM_LINK_WAYS;
            enum way way = (enum way)(at % GM_LINK_WAYS);
            bench->rate[piece][way][bench->rounds] =
                measure(bench, way, bench->piece[piece], options->bytes);
        }
        bench->rounds++;
    }
    for (size_t i = 0; i < bench->pieces; i++)
        for (int way = 0; way < GM_LINK_WAYS; way++)
            bench->spread[i][way] = gm_samples_spread(bench->rate[i][way], bench->rounds);
}

static void print_table(const struct bench *bench, const struct options *options)
{
    char text[32];
    printf(
        "link: %s; %s each way, %llu rounds, interleaved; GB/s: median (10th to 90th percentile)\n",
        bench->device.name, gm_format_size(options->bytes, text, sizeof(text)),
        (unsigned long long)bench->rounds);
    printf("%10s  %22s  %22s  %22s\n", "piece", "host to device", "device to host", "both at once");
    for (size_t i = 0; i < bench->pieces; i++) {
        printf("%10s", gm_format_size(bench->piece[i], text, sizeof(text)));
        for (int way = 0; way < GM_LINK_WAYS; way++) {
            const struct gm_spread *s = &bench->spread[i][way];
            printf("  %6.1f (%5.1f to %5.1f)", s->median, s->low, s->high);
        }
        printf("\n");
    }
}

static int write_json(const struct bench *bench, const struct options *options, int argc,
                      char **argv)
{
    FILE *out = gm_report_open(options->json, "link", argc, argv, bench->device.name,
                               bench->device.version);
    if (out == NULL)
        return -1;
    fprintf(out,
            "  \"bytes\": %llu,\n  \"rounds\": %llu,\n  \"is_verified\": true,\n  \"pieces\": [\n",
            (unsigned long long)options->bytes, (unsigned long long)bench->rounds);
    for (size_t i = 0; i < bench->pieces; i++) {
        fprintf(out, "    {\"piece\": %llu", (unsigned long long)bench->piece[i]);
        for (int way = 0; way < GM_LINK_WAYS; way++) {
            fprintf(out, ", ");
            gm_report_spread(out, way_names[way], bench->spread[i][way]);
        }
        fprintf(out, "}%s\n", i + 1 < bench->pieces ? "," : "");
    }
    fprintf(out, "  ]\n");
    return gm_report_close(out, options->json);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    struct options options = {
        .from = 512ull << 10, .to = 128ull << 20, .bytes = 1ull << 30, .rounds = 11};
    const struct gm_option known[] = {
        {"--from", GM_OPTION_SIZE, &options.from, 4096, 1ull << 40},
        {"--to", GM_OPTION_SIZE, &options.to, 4096, 1ull << 40},
        {"--bytes", GM_OPTION_SIZE, &options.bytes, 4096, 1ull << 40},
        {"--rounds", GM_OPTION_NUMBER, &options.rounds, 1, GM_ROUNDS_MAX},
        {"--ms", GM_OPTION_NUMBER, &options.ms, 1, 3600000},
        {"--json", GM_OPTION_TEXT, &options.json, 0, 0},
        {"--wait", GM_OPTION_FLAG, &options.is_waiting, 0, 0},
        {"--machine", GM_OPTION_FLAG, &options.is_machine, 0, 0},
    };
    if (!gm_options_take(argc, argv, known, sizeof(known) / sizeof(known[0])) ||
        options.from > options.to) {
        fprintf(stderr,
                "usage: link [--from SIZE] [--to SIZE] [--bytes SIZE] [--rounds 1..%d] [--ms N] "
                "[--wait] [--json FILE]\n"
                "       link --machine\n",
                GM_ROUNDS_MAX);
        return 1;
    }
    gm_device_open(&bench.device);
    if (options.is_machine) {
        gm_report_machine(stdout, bench.device.name, bench.device.version);
        printf("\n");
        gm_device_close(&bench.device);
        return 0;
    }
    for (uint64_t piece = options.from; piece <= options.to && bench.pieces < GM_PIECES_MAX;
         piece *= 2)
        bench.piece[bench.pieces++] = piece;
    for (int i = 0; i < 2; i++) {
        gm_area_make(&bench.device, &bench.host[i], options.bytes, true);
        gm_area_make(&bench.device, &bench.gpu[i], options.bytes, false);
        GM_NEED(&bench.device, cuStreamCreate, &bench.stream[i], CU_STREAM_NON_BLOCKING);
    }
    bool is_fine = is_copied(&bench, options.bytes & ~7ull); /* and everything is warm now */
    if (is_fine) {
        if (options.is_waiting) {
            printf("ready\n");
            fflush(stdout);
            (void)getchar();
        }
        run_rounds(&bench, &options);
        print_table(&bench, &options);
    } else {
        fprintf(stderr, "link: what came back differs from what was sent\n");
    }
    for (int i = 0; i < 2; i++) {
        GM_NEED(&bench.device, cuStreamDestroy_v2, bench.stream[i]);
        gm_area_free(&bench.device, &bench.host[i]);
        gm_area_free(&bench.device, &bench.gpu[i]);
    }
    gm_device_close(&bench.device);
    if (!is_fine)
        return 2;
    return options.json == NULL || write_json(&bench, &options, argc, argv) == 0 ? 0 : 1;
}
