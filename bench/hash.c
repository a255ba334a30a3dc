/*
 * bench/hash: how fast the GPU hashes chunks, and whether it computes what hash.cu says.
 *
 *   hash [--bytes SIZE] [--rounds N] [--json FILE]
 *
 * First the kernel is run with a known key on random data in chunks of 2 to 32 MiB, and on the
 * largest words; each result must be that of tests/unit/hash_reference.h. Then --bytes (4 GiB) of
 * frames are hashed as the daemon does it, up to 64 chunks in one launch, in pieces of 2, 8 and 32
 * MiB. A rate is bytes over the time of the kernels by the GPU's clock. A number is the median of
 * its rounds, the spread is from the 10th to the 90th percentile. The ceiling of a kernel that
 * reads is the device's memory.
 *
 * GB are 10^9 bytes. Exit codes: 0 done, 1 wrong use or a file that cannot be written, 2 wrong
 * hashes, 3 no GPU or an error of it.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/area.h"
#include "bench/report.h"
#include "bench/samples.h"
#include "common/chunk.h"
#include "common/size.h"
#include "daemon/memory/hash.h"
#include "daemon/memory/hash_ptx.h"
#include "tests/unit/hash_reference.h"

#define MIB (1ull << 20)
#define ROUNDS_MAX 200
#define PIECES 3

static const uint64_t pieces[PIECES] = {2 * MIB, 8 * MIB, 32 * MIB};

struct bench {
    struct gm_device device;
    struct gm_area gpu, host;
    uv_loop_t loop;
    struct gm_hasher *hasher;
    double kernel[PIECES][ROUNDS_MAX]; /* GB/s */
    struct gm_spread spread[PIECES];
};

static void fill(void *to, uint64_t bytes)
{
    uint64_t *words = to;
    for (uint64_t i = 0; i < bytes / 8; i++) {
        uint64_t z = (i + 1) * 0x9E3779B97F4A7C15ull;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        words[i] = z ^ (z >> 31);
    }
}

/* A chunk of each size side by side, then one tile of the largest words and one of zeros. */
static bool is_right(struct bench *bench)
{
    static struct gm_hash_launch launch;
    static uint64_t keys[GM_HASH_LANES][GM_HASH_TILES];
    const struct gm_device *device = &bench->device;
    unsigned char *data = (unsigned char *)(uintptr_t)bench->host.at;
    uint64_t bytes[GM_CHUNK_CLASSES + 2], at = 0, expected[GM_HASH_LANES];
    const uint32_t jobs = GM_CHUNK_CLASSES + 2;
    struct gm_hash_tile *tiles;
    struct gm_hashed hashed;
    CUmodule module;
    CUfunction function;
    void *params[] = {&launch};
    bool is_fine = true;

    if (gm_hash_draw(&launch.key, keys) != 0)
        return false;
    GM_NEED(device, cuMemHostAlloc, (void **)&tiles, jobs * GM_HASH_TILES * sizeof *tiles, 0);
    launch.results = (uint64_t)(uintptr_t)tiles;
    for (uint32_t i = 0; i < jobs; i++) {
        bytes[i] = i < GM_CHUNK_CLASSES ? gm_class_bytes(i) : GM_HASH_TILE;
        launch.jobs[i] = (struct gm_hash_job){.address = bench->gpu.at + at,
                                              .tiles = (uint32_t)(bytes[i] / GM_HASH_TILE),
                                              .result = i * GM_HASH_TILES};
        at += bytes[i];
    }
    fill(data, at);
    memset(data + at - 2 * GM_HASH_TILE, 0xff, GM_HASH_TILE);
    memset(data + at - GM_HASH_TILE, 0, GM_HASH_TILE);
    GM_NEED(device, cuMemcpyAsync, bench->gpu.at, bench->host.at, at, NULL);
    GM_NEED(device, cuModuleLoadData, &module, gm_hash_ptx);
    GM_NEED(device, cuModuleGetFunction, &function, module, GM_HASH_KERNEL);
    GM_NEED(device, cuLaunchKernel, function, GM_HASH_TILES, jobs, 1, GM_HASH_THREADS, 1, 1, 0,
            NULL, params, NULL);
    GM_NEED(device, cuStreamSynchronize, NULL);
    at = 0;
    for (uint32_t i = 0; i < jobs; i++) {
        gm_hash_finish(keys, tiles + i * GM_HASH_TILES, (uint32_t)(bytes[i] / GM_HASH_TILE),
                       &hashed);
        reference_hash(&launch.key, keys, data + at, bytes[i], expected);
        if (memcmp(hashed.hash, expected, sizeof expected) != 0 ||
            hashed.is_zero != (i == jobs - 1)) {
            fprintf(stderr, "hash: chunk %u of %llu bytes: not what the reference says\n", i,
                    (unsigned long long)bytes[i]);
            is_fine = false;
        }
        at += bytes[i];
    }
    GM_NEED(device, cuModuleUnload, module);
    GM_NEED(device, cuMemFreeHost, tiles);
    return is_fine;
}

static void on_done(void *arg)
{
    (void)arg;
}

static void wait_for(struct bench *bench, uint64_t number)
{
    while (gm_hasher_done(bench->hasher) < number)
        uv_run(&bench->loop, UV_RUN_ONCE);
}

static void measure(struct bench *bench, int piece, uint64_t round, uint64_t bytes)
{
    const uint64_t ns = gm_hasher_ns(bench->hasher);
    uint64_t number = gm_hasher_done(bench->hasher), taken = number;
    struct gm_hashed hashed;
    for (uint64_t at = 0; at < bytes; at += pieces[piece]) {
        if (gm_hasher_room(bench->hasher) == 0)
            wait_for(bench, number - GM_HASH_DEPTH / 2);
        for (; taken < gm_hasher_done(bench->hasher); taken++) /* as the daemon does */
            gm_device_check(&bench->device, gm_hasher_result(bench->hasher, taken + 1, &hashed),
                            "a hash");
        number = gm_hasher_submit(bench->hasher, bench->gpu.at + at, pieces[piece]);
    }
    wait_for(bench, number);
    bench->kernel[piece][round] = (double)bytes / (double)(gm_hasher_ns(bench->hasher) - ns);
}

static int write_json(const struct bench *bench, uint64_t bytes, uint64_t rounds, const char *json,
                      int argc, char **argv)
{
    FILE *out = gm_report_open(json, "hash", argc, argv, bench->device.name, bench->device.version);
    if (out == NULL)
        return -1;
    fprintf(out,
            "  \"bytes\": %llu,\n  \"rounds\": %llu,\n  \"is_verified\": true,\n  \"pieces\": [\n",
            (unsigned long long)bytes, (unsigned long long)rounds);
    for (int i = 0; i < PIECES; i++) {
        fprintf(out, "    {\"piece\": %llu, ", (unsigned long long)pieces[i]);
        gm_report_spread(out, "kernel", bench->spread[i]);
        fprintf(out, "}%s\n", i + 1 < PIECES ? "," : "");
    }
    fprintf(out, "  ]\n");
    return gm_report_close(out, json);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    uint64_t bytes = 4096 * MIB, rounds = 11;
    const char *json = NULL;
    char why[256], text[32];
    const struct gm_option options[] = {
        {"--bytes", GM_OPTION_SIZE, &bytes, 128 * MIB, 1ull << 40},
        {"--rounds", GM_OPTION_NUMBER, &rounds, 1, ROUNDS_MAX},
        {"--json", GM_OPTION_TEXT, &json, 0, 0},
    };

    if (!gm_options_take(argc, argv, options, sizeof(options) / sizeof(options[0])) ||
        bytes % (32 * MIB) != 0) {
        fprintf(stderr,
                "usage: hash [--bytes SIZE] [--rounds 1..%d] [--json FILE]; SIZE is at least 128M, "
                "of whole 32M\n",
                ROUNDS_MAX);
        return 1;
    }
    gm_device_open(&bench.device);
    gm_area_make(&bench.device, &bench.gpu, bytes, false);
    gm_area_make(&bench.device, &bench.host, 96 * MIB, true);
    bool is_fine = is_right(&bench);
    uv_loop_init(&bench.loop);
    if (is_fine && gm_hasher_open(&bench.hasher, &bench.loop, &bench.device.cuda,
                                  bench.device.context, on_done, NULL, why, sizeof why) != 0) {
        fprintf(stderr, "hash: %s\n", why);
        is_fine = false;
    }
    if (is_fine) {
        for (int piece = 0; piece < PIECES; piece++)
            measure(&bench, piece, 0, bytes); /* to warm up */
        for (uint64_t round = 0; round < rounds; round++)
            for (int piece = 0; piece < PIECES; piece++)
                measure(&bench, piece, round, bytes);
        printf("hash: %s; %s, %llu rounds, interleaved; GB/s: median (10th to 90th percentile); "
               "every size equals the reference\n",
               bench.device.name, gm_format_size(bytes, text, sizeof text),
               (unsigned long long)rounds);
        for (int i = 0; i < PIECES; i++) {
            bench.spread[i] = gm_samples_spread(bench.kernel[i], rounds);
            printf("%10s  %8.1f (%6.1f to %6.1f)\n", gm_format_size(pieces[i], text, sizeof text),
                   bench.spread[i].median, bench.spread[i].low, bench.spread[i].high);
        }
    }
    gm_hasher_close(bench.hasher);
    uv_run(&bench.loop, UV_RUN_DEFAULT);
    gm_area_free(&bench.device, &bench.gpu);
    gm_area_free(&bench.device, &bench.host);
    gm_device_close(&bench.device);
    if (!is_fine)
        return 2;
    return json == NULL || write_json(&bench, bytes, rounds, json, argc, argv) == 0 ? 0 : 1;
}
