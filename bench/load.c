/*
 * bench/load: plain copies at a given rate, to measure what such copies cost a program that runs
 * beside them, and what the link and memory do when both are busy.
 *
 *   load [--bytes SIZE] [--threads N]
 *
 * Takes pinned memory (host-NUMA frames, as the daemon's), GPU memory and ordinary memory of
 * --bytes (512 MiB) each way, prints "ready", and then serves requests, one a line:
 *
 *   copy IN OUT MEMORY MS
 *   swap MEMORY MS
 *
 * copy: for MS milliseconds: pinned memory to the GPU at IN GB/s, GPU memory to pinned at OUT, and
 * between pinned and ordinary memory at MEMORY, one half each way, by --threads (8) threads with
 * memcpy. 0 is none; what cannot be reached is as fast as it goes. swap: the link as fast as it
 * goes, but both ways the same, as when programs change places; copies in memory slow one way down
 * more than the other. The answer is one line of what was reached: in=, out=, memory= in GB/s. The
 * end of the input ends it, with code 0. GB are 10^9 bytes.
 *
 * Exit codes: 0 done, 1 no memory, 2 wrong use, 3 no GPU or an error of it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "bench/area.h"
#include "common/clock.h"
#include "common/size.h"

#define GM_THREADS_MAX 64u
#define GM_LINK_PIECE (32ull << 20)
#define GM_MEMORY_PIECE (2ull << 20)
#define AS_IT_GOES 1e6               /* GB/s */
#define GM_AHEAD (4 * GM_LINK_PIECE) /* one way of a swap of the other */

enum way { GM_IN, GM_OUT, GM_WAYS };

struct bench {
    struct gm_device device;
    uint64_t bytes;
    unsigned threads;
    struct gm_area host[GM_WAYS], gpu[GM_WAYS];
    struct gm_area pinned[GM_WAYS]; /* what threads copy from and to */
    char *paged[GM_WAYS];
    CUstream stream[GM_WAYS];
};

/* What one thread copies, again and again: on the link, or its own range of memory. */
struct part {
    const struct bench *bench;
    bool is_link;
    enum way way; /* of memory: to pinned memory or out of it */
    uint64_t at, bytes;
    double rate;              /* wanted */
    const struct part *other; /* of a swap: the other way; else NULL */
    uint64_t begin, end;
    _Atomic uint64_t copied; /* the result, with when that was */
    uint64_t ended;
};

/* Where this much would be at that rate; sleep until then. */
static void keep_pace(const struct part *part)
{
    uint64_t due = part->begin + (uint64_t)((double)part->copied / part->rate);
    const struct timespec until = gm_timespec(due);
    if (due > gm_now())
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

/* Wait for the other way of a swap, to its end at most. */
static void stay_together(const struct part *part)
{
    const struct timespec pause = {.tv_nsec = 20000};
    while (part->other != NULL && part->copied > part->other->copied + GM_AHEAD &&
           gm_now() < part->end)
        clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

/* Two pieces at once, so that the copy engine seldom waits for the next. */
static uint64_t copy_on_link(const struct part *part)
{
    const struct bench *bench = part->bench;
    uint64_t copied = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t at = (part->copied + copied) % part->bytes;
        CUdeviceptr host = bench->host[part->way].at + at, gpu = bench->gpu[part->way].at + at;
        GM_NEED(&bench->device, cuMemcpyAsync, part->way == GM_IN ? gpu : host,
                part->way == GM_IN ? host : gpu, GM_LINK_PIECE, bench->stream[part->way]);
        copied += GM_LINK_PIECE;
    }
    GM_NEED(&bench->device, cuStreamSynchronize, bench->stream[part->way]);
    return copied;
}

static uint64_t copy_in_memory(const struct part *part)
{
    const struct bench *bench = part->bench;
    uint64_t at = part->at + part->copied % part->bytes;
    char *pinned = (char *)(uintptr_t)bench->pinned[part->way].at + at;
    char *paged = bench->paged[part->way] + at;
    memcpy(part->way == GM_IN ? pinned : paged, part->way == GM_IN ? paged : pinned,
           GM_MEMORY_PIECE);
    return GM_MEMORY_PIECE;
}

static void *run_part(void *argument)
{
    struct part *part = argument;
    const struct bench *bench = part->bench;
    if (part->is_link)
        GM_NEED(&bench->device, cuCtxSetCurrent, bench->device.context);
    while ((part->ended = gm_now()) < part->end) {
        part->copied += part->is_link ? copy_on_link(part) : copy_in_memory(part);
        keep_pace(part);
        stay_together(part);
    }
    return NULL;
}

/* Of the parts that copy on the link that way, or in memory. */
static double rate_of(const struct part *parts, unsigned count, bool is_link, enum way way)
{
    double rate = 0;
    for (unsigned i = 0; i < count; i++)
        if (parts[i].is_link == is_link && (!is_link || parts[i].way == way))
            rate += (double)parts[i].copied / (double)(parts[i].ended - parts[i].begin);
    return rate;
}

static void copy(const struct bench *bench, const double link[GM_WAYS], double memory, double ms,
                 bool is_swap)
{
    static struct part parts[GM_WAYS + GM_THREADS_MAX];
    pthread_t threads[GM_WAYS + GM_THREADS_MAX];
    unsigned count = 0;
    uint64_t begin = gm_now(), end = begin + (uint64_t)(ms * (double)GM_MS);
    for (enum way way = GM_IN; way < GM_WAYS; way++)
        if (link[way] > 0)
            parts[count++] = (struct part){.is_link = true,
                                           .way = way,
                                           .rate = link[way],
                                           .bytes = bench->bytes,
                                           .other = is_swap ? &parts[GM_WAYS - 1 - way] : NULL};
    for (unsigned i = 0; memory > 0 && i < bench->threads; i++) {
        uint64_t share = bench->bytes / (bench->threads / 2) / GM_MEMORY_PIECE * GM_MEMORY_PIECE;
        parts[count++] = (struct part){.way = (enum way)(i % 2),
                                       .at = i / 2 * share,
                                       .bytes = share,
                                       .rate = memory / bench->threads};
    }
    for (unsigned i = 0; i < count; i++) {
        parts[i].bench = bench;
        parts[i].begin = begin;
        parts[i].end = end;
        if (pthread_create(&threads[i], NULL, run_part, &parts[i]) != 0) {
            fprintf(stderr, "load: cannot start a thread\n");
            exit(1);
        }
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("in=%.3f out=%.3f memory=%.3f\n", rate_of(parts, count, true, GM_IN),
           rate_of(parts, count, true, GM_OUT), rate_of(parts, count, false, GM_IN));
    fflush(stdout);
}

static void take_memory(struct bench *bench)
{
    gm_device_open(&bench->device);
    for (int way = 0; way < GM_WAYS; way++) {
        gm_area_make(&bench->device, &bench->host[way], bench->bytes, true);
        gm_area_make(&bench->device, &bench->gpu[way], bench->bytes, false);
        gm_area_make(&bench->device, &bench->pinned[way], bench->bytes, true);
        bench->paged[way] =
            mmap(NULL, bench->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (bench->paged[way] == MAP_FAILED) {
            fprintf(stderr, "load: no memory\n");
            exit(1);
        }
        madvise(bench->paged[way], bench->bytes, MADV_HUGEPAGE);
        memset(bench->paged[way], 1, bench->bytes);
        GM_NEED(&bench->device, cuStreamCreate, &bench->stream[way], CU_STREAM_NON_BLOCKING);
    }
}

static void give_memory(struct bench *bench)
{
    for (int way = 0; way < GM_WAYS; way++) {
        GM_NEED(&bench->device, cuStreamDestroy_v2, bench->stream[way]);
        gm_area_free(&bench->device, &bench->host[way]);
        gm_area_free(&bench->device, &bench->gpu[way]);
        gm_area_free(&bench->device, &bench->pinned[way]);
        munmap(bench->paged[way], bench->bytes);
    }
    gm_device_close(&bench->device);
}

static bool parse(struct bench *bench, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        const char *option = argv[i], *value = argv[i + 1]; /* NULL behind the last */
        char *end = NULL;
        if (value == NULL)
            return false;
        if (strcmp(option, "--bytes") == 0) {
            if (gm_parse_size(value, &bench->bytes) != 0 || bench->bytes > 1ull << 36)
                return false;
        } else if (strcmp(option, "--threads") == 0) {
            bench->threads = (unsigned)strtoul(value, &end, 10);
            if (*end != '\0' || bench->threads < 2 || bench->threads > GM_THREADS_MAX)
                return false;
        } else {
            return false;
        }
    }
    bench->bytes = bench->bytes / GM_LINK_PIECE * GM_LINK_PIECE;
    bench->threads = bench->threads / 2 * 2;
    return bench->bytes / GM_MEMORY_PIECE >= bench->threads / 2 && bench->bytes > 0;
}

int main(int argc, char **argv)
{
    static struct bench bench = {.bytes = 512ull << 20, .threads = 8};
    char line[128];
    if (!parse(&bench, argc, argv)) {
        fprintf(stderr, "usage: load [--bytes SIZE, 32M or more] [--threads 2..%u]\n",
                GM_THREADS_MAX);
        return 2;
    }
    take_memory(&bench);
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        double link[GM_WAYS], memory, ms;
        bool is_swap = sscanf(line, "swap %lf %lf", &memory, &ms) == 2;
        if (is_swap) {
            link[GM_IN] = link[GM_OUT] = AS_IT_GOES;
        } else if (sscanf(line, "copy %lf %lf %lf %lf", &link[GM_IN], &link[GM_OUT], &memory,
                          &ms) != 4) {
            printf("FAIL no such request: %s", line);
            return 2;
        }
        if (!(ms > 0 && ms < 1e6 && memory >= 0 && link[GM_IN] >= 0 && link[GM_OUT] >= 0)) {
            printf("FAIL milliseconds are above 0 and below 1000000, rates not below 0: %s", line);
            return 2;
        }
        copy(&bench, link, memory, ms, is_swap);
    }
    give_memory(&bench);
    return 0;
}
