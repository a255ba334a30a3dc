/*
 * gm_worker's modes about what keeps a program from being paused: streams that wait for the host,
 * captures that nobody ends, and files that it has no number left for. See worker.h.
 */
#include "tests/programs/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

static void hold(const struct gm_worker *worker)
{
    struct timespec span = {(time_t)(worker->hold_ns / GM_S), (long)(worker->hold_ns % GM_S)};
    nanosleep(&span, NULL);
}

static bool has_signal(const struct gm_worker *worker, const char *suffix)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s.%s", worker->signal, suffix);
    return access(path, F_OK) == 0;
}

static void await_signal(const struct gm_worker *worker, const char *suffix)
{
    const struct timespec pause = {.tv_nsec = 10 * (long)GM_MS};
    while (!has_signal(worker, suffix))
        nanosleep(&pause, NULL);
}

/* A thread that the stream of the main thread waits for, and that submits work itself. */
struct gm_helper {
    struct gm_worker *worker;
    sem_t submitted; /* main to helper: the stream waits */
    sem_t allowed;   /* helper to a host function: go on */
    CUstream stream;
    CUdeviceptr flag;
    struct gm_buffer buffer;
    struct gm_counter counter;
    uint64_t rounds;
    bool is_last;
};

static void helper_work(struct gm_helper *helper)
{
    struct gm_worker *worker = helper->worker;
    gm_buffer_turn(worker, &helper->buffer, &helper->counter, helper->stream);
    uint64_t wrong = gm_counter_read(worker, &helper->counter, helper->stream);
    worker->mismatches += wrong;
}

/* Write the value that the other stream waits for: a call that crosses the gate. */
static void *release_values(void *argument)
{
    struct gm_helper *helper = argument;
    struct gm_worker *worker = helper->worker;
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    for (;;) {
        while (sem_wait(&helper->submitted) != 0)
            continue;
        if (helper->is_last)
            return NULL;
        hold(worker);
        helper_work(helper);
        uint64_t round = ++helper->rounds;
        if (round % 2 != 0)
            GM_CU(worker, cuStreamWriteValue32, helper->stream, helper->flag, (cuuint32_t)round, 0);
        else
            GM_CU(worker, cuStreamWriteValue64, helper->stream, helper->flag, round, 0);
    }
}

/* Let the host function go on, after a round of work of this thread's own. */
static void *release_functions(void *argument)
{
    struct gm_helper *helper = argument;
    GM_CU(helper->worker, cuCtxSetCurrent, helper->worker->context);
    for (;;) {
        while (sem_wait(&helper->submitted) != 0)
            continue;
        if (helper->is_last)
            return NULL;
        hold(helper->worker);
        helper_work(helper);
        sem_post(&helper->allowed);
    }
}

static void wait_in_stream(void *argument)
{
    struct gm_helper *helper = argument;
    while (sem_wait(&helper->allowed) != 0)
        continue;
}

static void wait_in_callback(CUstream stream, CUresult status, void *argument)
{
    (void)stream;
    if (status != CUDA_SUCCESS)
        gm_fail(((struct gm_helper *)argument)->worker, "a callback was told %d", (int)status);
    wait_in_stream(argument);
}

static void submit_wait(struct gm_worker *worker, struct gm_helper *helper, CUstream stream)
{
    uint64_t round = worker->done + 1;
    if (worker->mode[0] == 'h') {
        if (round % 2 != 0)
            GM_CU(worker, cuLaunchHostFunc, stream, wait_in_stream, helper);
        else
            GM_CU(worker, cuStreamAddCallback, stream, wait_in_callback, helper, 0);
    } else if (round % 2 != 0) {
        GM_CU(worker, cuStreamWaitValue32, stream, helper->flag, (cuuint32_t)round,
              CU_STREAM_WAIT_VALUE_EQ);
    } else {
        GM_CU(worker, cuStreamWaitValue64, stream, helper->flag, round, CU_STREAM_WAIT_VALUE_GEQ);
    }
}

/*
 * "values" and "hostfuncs": each iteration the stream waits for another thread, which has to cross
 * the gate before it can let the stream go on, and all memory is rewritten behind that.
 */
void gm_mode_waits(struct gm_worker *worker)
{
    bool is_values = worker->mode[0] == 'v';
    struct gm_helper helper = {.worker = worker};
    struct gm_counter counter;
    CUstream stream;
    pthread_t thread;
    sem_init(&helper.submitted, 0, 0);
    sem_init(&helper.allowed, 0, 0);
    GM_CU(worker, cuMemAlloc, &helper.flag, 2u << 20);
    GM_CU(worker, cuMemsetD32, helper.flag, 0, 4);
    GM_CU(worker, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    GM_CU(worker, cuStreamCreate, &helper.stream, CU_STREAM_NON_BLOCKING);
    gm_counter_make(worker, &counter);
    gm_counter_make(worker, &helper.counter);
    gm_buffer_make(worker, &helper.buffer, 4u << 20, worker->seed + 77, helper.stream);
    if (pthread_create(&thread, NULL, is_values ? release_values : release_functions, &helper) != 0)
        gm_fail(worker, "no thread");
    struct gm_buffer *buffers = gm_buffers_make(worker, stream);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        submit_wait(worker, &helper, stream);
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_turn(worker, &buffers[i], &counter, stream);
        sem_post(&helper.submitted);
        worker->mismatches += gm_counter_read(worker, &counter, stream);
    }
    helper.is_last = true;
    sem_post(&helper.submitted);
    pthread_join(thread, NULL);
    for (uint32_t i = 0; i < worker->allocs; i++)
        worker->mismatches += gm_buffer_check_host(worker, &buffers[i], 0);
    gm_buffers_free(worker, buffers);
    gm_buffer_free(worker, &helper.buffer);
    gm_counter_free(worker, &helper.counter);
    gm_counter_free(worker, &counter);
    GM_CU(worker, cuStreamDestroy, helper.stream);
    GM_CU(worker, cuStreamDestroy, stream);
    GM_CU(worker, cuMemFree, helper.flag);
}

/* ---- captures ---- */

#define CAPTURES 150

static void begin_capture(const struct gm_worker *worker, CUstream *stream)
{
    GM_CU(worker, cuStreamCreate, stream, CU_STREAM_NON_BLOCKING);
    GM_CU(worker, cuStreamBeginCapture, *stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

struct gm_abandoned {
    struct gm_worker *worker;
    CUstream stream;
};

/* Begins a capture in `stream` and one in its own default stream, and ends neither. */
static void *abandon_captures(void *argument)
{
    struct gm_abandoned *abandoned = argument;
    const struct gm_worker *worker = abandoned->worker;
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    begin_capture(worker, &abandoned->stream);
    GM_CU(worker, cuStreamBeginCapture, CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED);
    return NULL;
}

/* Many at once; half are ended in another order, half lose their stream. */
static void capture_many(const struct gm_worker *worker)
{
    CUstream streams[CAPTURES];
    CUgraph graph;
    for (int i = 0; i < CAPTURES; i++)
        begin_capture(worker, &streams[i]);
    for (int i = CAPTURES - 1; i >= 0; i--) {
        if (i % 2 == 0) {
            GM_CU(worker, cuStreamEndCapture, streams[i], &graph);
            GM_CU(worker, cuGraphDestroy, graph);
        }
        GM_CU(worker, cuStreamDestroy, streams[i]);
    }
}

/*
 * Captures that end in other ways than by their end, of threads, streams and a context that are no
 * more:
 *
 *   FILE.release      once this is there, the stream goes in which a capture is open all the while
 *   FILE.end          verify and rewrite until this is there
 */
void gm_mode_abandon(struct gm_worker *worker)
{
    struct gm_abandoned abandoned = {.worker = worker};
    struct gm_counter counter;
    CUcontext other;
    CUstream stream;
    pthread_t thread;
    gm_counter_make(worker, &counter);
    if (pthread_create(&thread, NULL, abandon_captures, &abandoned) != 0)
        gm_fail(worker, "no thread");
    pthread_join(thread, NULL);
    capture_many(worker);
    for (int is_current = 0; is_current < 2; is_current++) {
        GM_CU(worker, cuCtxCreate, &other, NULL, 0, worker->device);
        GM_CU(worker, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
        GM_CU(worker, cuCtxSetCurrent, is_current ? other : worker->context);
        GM_CU(worker, cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
        GM_CU(worker, cuCtxDestroy, other);
        GM_CU(worker, cuCtxSetCurrent, worker->context);
    }
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL); /* says that it is ready */
    await_signal(worker, "release");
    GM_CU(worker, cuStreamDestroy, abandoned.stream);
    for (; !has_signal(worker, "end"); worker->done++) {
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_turn(worker, &buffers[i], &counter, NULL);
        worker->mismatches += gm_counter_read(worker, &counter, NULL);
    }
    gm_buffers_free(worker, buffers);
    gm_counter_free(worker, &counter);
}

/* Begins a capture that only this thread can end, and does not end it. */
static void *leave_capture(void *argument)
{
    struct gm_abandoned *abandoned = argument;
    const struct gm_worker *worker = abandoned->worker;
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    GM_CU(worker, cuStreamCreate, &abandoned->stream, CU_STREAM_NON_BLOCKING);
    GM_CU(worker, cuStreamBeginCapture, abandoned->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    return NULL;
}

/* Verify and rewrite until FILE.end is there, beside the capture of a thread that is no more. */
void gm_mode_left(struct gm_worker *worker)
{
    struct gm_abandoned abandoned = {.worker = worker};
    struct gm_counter counter;
    pthread_t thread;
    gm_counter_make(worker, &counter);
    if (pthread_create(&thread, NULL, leave_capture, &abandoned) != 0)
        gm_fail(worker, "no thread");
    pthread_join(thread, NULL);
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    for (; !has_signal(worker, "end"); worker->done++) {
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_turn(worker, &buffers[i], &counter, NULL);
        worker->mismatches += gm_counter_read(worker, &counter, NULL);
    }
    gm_buffers_free(worker, buffers);
    gm_counter_free(worker, &counter);
    GM_CU(worker, cuStreamDestroy, abandoned.stream);
}

/* ---- files ---- */

#define FILES_MAX 4096

struct gm_files {
    struct gm_worker *worker;
    int most;
    int fd[FILES_MAX];
    int n;
    _Atomic bool is_last;
};

/* Take every number below `most` that is left. */
static void take_files(struct gm_files *files)
{
    int fd;
    while (files->n < FILES_MAX && (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) {
        if (fd >= files->most) {
            close(fd);
            return;
        }
        files->fd[files->n++] = fd;
    }
}

/* ... and make that the limit. */
static void limit_files(struct gm_files *files)
{
    const struct rlimit limit = {.rlim_cur = (rlim_t)files->most, .rlim_max = (rlim_t)files->most};
    take_files(files);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        gm_fail(files->worker, "setrlimit: %s", strerror(errno));
}

static void give_files(struct gm_files *files)
{
    while (files->n > 0)
        close(files->fd[--files->n]);
}

static void *hog_files(void *argument)
{
    struct gm_files *files = argument;
    await_signal(files->worker, "release");
    while (!files->is_last) {
        give_files(files);
        hold(files->worker);
        take_files(files);
        hold(files->worker);
    }
    return NULL;
}

/*
 * With every number of an open file taken. Memory comes and goes in every iteration, so that there
 * is always some to map. In mode "nofiles" the limit is lower than the numbers that somebody may
 * have kept for himself before; once FILE.release is there, the others are free every now and then.
 */
void gm_mode_files(struct gm_worker *worker)
{
    static struct gm_files files;
    const bool is_low = worker->mode[0] == 'n';
    struct gm_counter counter;
    pthread_t thread;
    uint64_t refused = 0;
    files.worker = worker;
    files.most = is_low ? 400 : 600;
    gm_counter_make(worker, &counter);
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    limit_files(&files);
    printf("no number is left\n");
    fflush(stdout);
    if (is_low && pthread_create(&thread, NULL, hog_files, &files) != 0)
        gm_fail(worker, "no thread");
    for (; gm_is_more(worker, worker->done); worker->done++) {
        struct gm_buffer extra = {.bytes = 6u << 20, .seed = worker->done};
        CUresult result = worker->cu.cuMemAlloc(&extra.at, extra.bytes);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && is_low)
            refused++;
        else
            gm_check(worker, result, "cuMemAlloc");
        if (result == CUDA_SUCCESS)
            GM_CU(worker, cuMemFree, extra.at);
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_turn(worker, &buffers[i], &counter, NULL);
        worker->mismatches += gm_counter_read(worker, &counter, NULL);
    }
    files.is_last = true;
    if (is_low)
        pthread_join(thread, NULL);
    give_files(&files);
    printf("refused %llu of %llu\n", (unsigned long long)refused, (unsigned long long)worker->done);
    gm_buffers_free(worker, buffers);
    gm_counter_free(worker, &counter);
}
