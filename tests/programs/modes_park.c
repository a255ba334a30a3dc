/*
 * gm_worker's modes about work that is long enough to be stopped in the middle: a kernel that ends
 * only when the host says so, and a long queue. Both add to counters that lie all over the memory;
 * the kernel compares each with its own registers, so memory that is lost, or is somebody else's
 * when it goes on, is seen. See worker.h.
 */
#include "tests/programs/worker.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

enum {
    BLOCK = 256,    /* threads, each with a counter; --threads is the number of blocks */
    QUEUE = 16,     /* kernels: with 17 ms each as much as the longest drains that were seen */
    FIRST_STEPS = 8 /* of a kernel that measures how long a step is */
};

struct counters {
    CUdeviceptr at, flag_at, steps_at;
    uint64_t n, stride;
    uint32_t *flag;  /* not 0: the kernel ends */
    uint64_t *steps; /* what the first counter is */
    struct gm_counter wrong;
    CUstream stream;
};

/* Host memory that kernels reach. */
static void *make_word(const struct gm_worker *worker, CUdeviceptr *at)
{
    uint64_t *word = NULL;
    GM_CU(worker, cuMemHostAlloc, (void **)&word, sizeof(*word), CU_MEMHOSTALLOC_DEVICEMAP);
    GM_CU(worker, cuMemHostGetDevicePointer, at, word, 0);
    *word = 0;
    return word;
}

static void make_counters(const struct gm_worker *worker, struct counters *c)
{
    c->n = (uint64_t)worker->threads * BLOCK;
    c->stride = worker->bytes / 8 / c->n;
    if (c->stride == 0)
        gm_fail(worker, "--bytes is less than 2K for each of --threads");
    gm_counter_make(worker, &c->wrong);
    c->flag = make_word(worker, &c->flag_at);
    c->steps = make_word(worker, &c->steps_at);
    GM_CU(worker, cuStreamCreate, &c->stream, CU_STREAM_NON_BLOCKING);
    GM_CU(worker, cuMemAlloc, &c->at, worker->bytes);
    GM_CU(worker, cuMemsetD32Async, c->at, 0, worker->bytes / 4, c->stream);
    GM_CU(worker, cuStreamSynchronize, c->stream);
}

static void launch(const struct gm_worker *worker, struct counters *c, uint64_t most)
{
    void *args[] = {&c->at, &c->n, &c->stride, &c->flag_at, &most, &c->steps_at, &c->wrong.at};
    GM_CU(worker, cuLaunchKernel, worker->kernel[GM_KERNEL_COUNT], worker->threads, 1, 1, BLOCK, 1,
          1, 0, c->stream, args, NULL);
}

static uint64_t read_steps(const struct counters *c)
{
    return __atomic_load_n(c->steps, __ATOMIC_ACQUIRE);
}

/*
 * All counters: the first is what the host was told; those of a block are equal; and with `is_even`
 * those of all blocks.
 */
static void check_counters(struct gm_worker *worker, const struct counters *c, bool is_even)
{
    worker->mismatches += gm_counter_read(worker, &c->wrong, c->stream);
    uint64_t *words = malloc(worker->bytes);
    if (words == NULL)
        gm_fail(worker, "no host memory");
    GM_CU(worker, cuMemcpyDtoH, words, c->at, worker->bytes);
    worker->mismatches += words[0] != read_steps(c);
    for (uint64_t i = 0; i < c->n; i++) {
        const uint64_t like = is_even ? 0 : i / BLOCK * BLOCK;
        worker->mismatches += words[i * c->stride] != words[like * c->stride];
    }
    free(words);
}

static void free_counters(const struct gm_worker *worker, struct counters *c)
{
    GM_CU(worker, cuStreamDestroy, c->stream);
    GM_CU(worker, cuMemFree, c->at);
    GM_CU(worker, cuMemFreeHost, c->steps);
    GM_CU(worker, cuMemFreeHost, c->flag);
    gm_counter_free(worker, &c->wrong);
}

/* Into the file --signal, at once: what the first counter is. */
static void tell_steps(const struct gm_worker *worker, uint64_t steps)
{
    char *path = NULL;
    if (asprintf(&path, "%s.new", worker->signal) < 0)
        gm_fail(worker, "no host memory");
    FILE *file = fopen(path, "we");
    if (file == NULL || fprintf(file, "%" PRIu64 "\n", steps) < 0 || fclose(file) != 0 ||
        rename(path, worker->signal) != 0)
        gm_fail(worker, "%s: cannot write", path);
    free(path);
}

/*
 * One kernel an iteration, which counts for --hold; in mode endless, also until the file --until is
 * there. Meanwhile the program calls nothing, and tells in the file --signal how far the kernel is.
 */
void gm_mode_count(struct gm_worker *worker)
{
    const struct timespec pause = {.tv_nsec = 5 * (long)GM_MS};
    const char *until = worker->mode[0] == 'e' ? worker->until : NULL;
    struct counters c;
    make_counters(worker, &c);
    gm_say_ready(worker);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        const uint64_t start = gm_now(), before = read_steps(&c);
        uint64_t told = before;
        __atomic_store_n(c.flag, 0, __ATOMIC_RELEASE);
        launch(worker, &c, UINT64_MAX);
        while (gm_now() - start < worker->hold_ns || read_steps(&c) == before ||
               (until != NULL && access(until, F_OK) != 0)) {
            const uint64_t steps = read_steps(&c);
            if (worker->signal != NULL && steps != told)
                tell_steps(worker, steps);
            told = steps;
            nanosleep(&pause, NULL);
        }
        __atomic_store_n(c.flag, 1, __ATOMIC_RELEASE);
        GM_CU(worker, cuStreamSynchronize, c.stream);
    }
    check_counters(worker, &c, false);
    free_counters(worker, &c);
}

/* How many steps a kernel of --hold has. */
static uint64_t measure_steps(const struct gm_worker *worker, struct counters *c)
{
    for (uint64_t steps = FIRST_STEPS;; steps *= 2) {
        const uint64_t start = gm_now();
        launch(worker, c, steps);
        GM_CU(worker, cuStreamSynchronize, c->stream);
        const uint64_t took = gm_now() - start;
        if (took >= worker->hold_ns / 2)
            return steps * worker->hold_ns / took + 1;
    }
}

/* A queue of kernels an iteration, each of about --hold; then the program waits for all. */
void gm_mode_queue(struct gm_worker *worker)
{
    struct counters c;
    make_counters(worker, &c);
    const uint64_t most = measure_steps(worker, &c);
    const uint64_t before = read_steps(&c);
    gm_say_ready(worker);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        for (int i = 0; i < QUEUE; i++)
            launch(worker, &c, most);
        GM_CU(worker, cuStreamSynchronize, c.stream);
        worker->mismatches += read_steps(&c) != before + (worker->done + 1) * QUEUE * most;
        if (worker->mismatches > 0)
            break;
    }
    check_counters(worker, &c, true);
    free_counters(worker, &c);
}
