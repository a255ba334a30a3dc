/*
 * gm_worker's modes about where calls come from: threads that come and go, that are cancelled, that
 * are interrupted by signals, and the end of the process. See worker.h.
 */
#include "tests/programs/worker.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

extern char **environ;

/* ---- a pool ---- */

struct gm_pool {
    struct gm_worker *worker;
    CUdeviceptr words; /* one a thread */
    pthread_key_t key;
    pthread_barrier_t barrier; /* of a wave that is all there at once */
    bool has_barrier;
};
struct gm_member {
    struct gm_pool *pool;
    uint32_t index;
    uint32_t exits;
};

/* Destructor of a thread-specific value: submits work when the thread has all but ended. */
static void at_thread_exit(void *argument)
{
    struct gm_member *member = argument;
    const struct gm_worker *worker = member->pool->worker;
    GM_CU(worker, cuMemsetD32Async, member->pool->words + 4ull * member->index, member->index + 1,
          1, CU_STREAM_LEGACY);
    if (++member->exits < 2) /* once more, when others' values are gone */
        pthread_setspecific(member->pool->key, member);
}

static void *be_member(void *argument)
{
    struct gm_member *member = argument;
    const struct gm_worker *worker = member->pool->worker;
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    pthread_setspecific(member->pool->key, member);
    for (int i = 0; i < 3; i++) {
        GM_CU(worker, cuMemsetD32Async, member->pool->words + 4ull * member->index, 0xffffu, 1,
              CU_STREAM_LEGACY);
        if (member->pool->has_barrier && i == 0)
            pthread_barrier_wait(&member->pool->barrier);
    }
    return NULL;
}

static void run_wave(struct gm_pool *pool, struct gm_member *members, uint32_t first, uint32_t n,
                     bool has_barrier)
{
    pthread_t *threads = calloc(n, sizeof(*threads));
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    pool->has_barrier = has_barrier;
    if (has_barrier)
        pthread_barrier_init(&pool->barrier, NULL, n);
    for (uint32_t i = 0; i < n; i++) {
        members[first + i] = (struct gm_member){.pool = pool, .index = first + i};
        if (pthread_create(&threads[i], &attr, be_member, &members[first + i]) != 0)
            gm_fail(pool->worker, "no thread %u", i);
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    if (has_barrier)
        pthread_barrier_destroy(&pool->barrier);
    pthread_attr_destroy(&attr);
    free(threads);
}

/*
 * --threads threads that are there at once, and twice as many that come and go, 16 at a time; each
 * writes a word, the last time from a destructor of its thread-specific value.
 */
void gm_mode_pool(struct gm_worker *worker)
{
    uint32_t n = worker->threads, all = 3 * n;
    struct gm_pool pool = {.worker = worker};
    struct gm_member *members = calloc(all, sizeof(*members));
    uint32_t *words = calloc(all, sizeof(*words));
    struct gm_counter counter;
    if (members == NULL || words == NULL || pthread_key_create(&pool.key, at_thread_exit) != 0)
        gm_fail(worker, "no host memory");
    GM_CU(worker, cuMemAlloc, &pool.words, 2u << 20);
    gm_counter_make(worker, &counter);
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        GM_CU(worker, cuMemsetD32, pool.words, 0, all);
        run_wave(&pool, members, 0, n, true);
        for (uint32_t at = n; at < all; at += 16)
            run_wave(&pool, members, at, all - at < 16 ? all - at : 16, false);
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_turn(worker, &buffers[i], &counter, NULL);
        worker->mismatches += gm_counter_read(worker, &counter, NULL);
        GM_CU(worker, cuMemcpyDtoH, words, pool.words, 4ull * all);
        for (uint32_t i = 0; i < all; i++)
            worker->mismatches += words[i] != i + 1;
    }
    gm_buffers_free(worker, buffers);
    gm_counter_free(worker, &counter);
    GM_CU(worker, cuMemFree, pool.words);
    pthread_key_delete(pool.key);
    free(words);
    free(members);
}

/* ---- signals ---- */

static const struct gm_worker *struck_worker;
static _Atomic uint64_t struck_calls, struck_wrong;
static uint64_t no_stream[32]; /* what is no stream: the driver says so without touching a lock */

/* Calls CUDA, which no handler may; this one asks for what the driver refuses at once. */
static void on_strike(int signal)
{
    int saved = errno;
    (void)signal;
    CUresult result = struck_worker->cu.cuMemsetD32Async(0, 0, 1, (CUstream)(void *)no_stream);
    struck_calls++;
    struck_wrong += result != CUDA_ERROR_INVALID_HANDLE;
    errno = saved;
}

/* A synchronizing call looks after what pools can give back. */
static void on_strike_sync(int signal)
{
    int saved = errno;
    (void)signal;
    CUresult result = struck_worker->cu.cuStreamSynchronize((CUstream)(void *)no_stream);
    struck_calls++;
    struck_wrong += result != CUDA_ERROR_INVALID_HANDLE;
    errno = saved;
}

struct gm_target {
    pthread_t thread;
    _Atomic bool is_last;
};

static void *strike(void *argument)
{
    struct gm_target *target = argument;
    const struct timespec pause = {.tv_nsec = 200000};
    while (!target->is_last) {
        pthread_kill(target->thread, SIGUSR1);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/* A handler that synchronizes, in a thread that asks about memory of a pool, while memory of that
 * pool is on its way back. */
static void be_struck_in_questions(struct gm_worker *worker)
{
    enum { STRIKES = 1000 };
    struct gm_target target = {.thread = pthread_self()};
    struct sigaction action = {.sa_handler = on_strike_sync, .sa_flags = SA_RESTART};
    CUdeviceptr flag_at, asked, freed;
    CUstream stream;
    uint32_t *flag;
    pthread_t thread;
    GM_CU(worker, cuMemHostAlloc, (void **)&flag, sizeof(*flag), CU_MEMHOSTALLOC_DEVICEMAP);
    GM_CU(worker, cuMemHostGetDevicePointer, &flag_at, flag, 0);
    GM_CU(worker, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    GM_CU(worker, cuMemAllocAsync, &asked, 8u << 20, stream);
    GM_CU(worker, cuMemAllocAsync, &freed, 8u << 20, stream); /* of another region */
    void *args[] = {&flag_at};
    *flag = 0;
    gm_launch(worker, GM_KERNEL_SPIN_UNTIL, stream, args);
    GM_CU(worker, cuMemFreeAsync, freed, stream);
    sigaction(SIGUSR1, &action, NULL);
    if (pthread_create(&thread, NULL, strike, &target) != 0)
        gm_fail(worker, "no thread");
    while (struck_calls < STRIKES) {
        unsigned type = 0;
        GM_CU(worker, cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, asked);
    }
    target.is_last = true;
    pthread_join(thread, NULL);
    __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
    GM_CU(worker, cuMemFreeAsync, asked, stream);
    GM_CU(worker, cuStreamSynchronize, stream);
    GM_CU(worker, cuStreamDestroy, stream);
    GM_CU(worker, cuMemFreeHost, flag);
}

/*
 * A handler that calls CUDA every 200 us, wherever the thread is: in a call, or at the gate. In
 * most iterations not where the thread waits for the GPU: a handler that waits at the gate there
 * keeps the driver's own locks, so that the program cannot be drained until it is let in.
 */
void gm_mode_signals(struct gm_worker *worker)
{
    struct gm_target target = {.thread = pthread_self()};
    struct sigaction action = {.sa_handler = on_strike, .sa_flags = SA_RESTART};
    struct gm_counter counter;
    pthread_t thread;
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    struck_worker = worker;
    be_struck_in_questions(worker);
    gm_counter_make(worker, &counter);
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    sigaction(SIGUSR1, &action, NULL);
    if (pthread_create(&thread, NULL, strike, &target) != 0)
        gm_fail(worker, "no thread");
    for (; gm_is_more(worker, worker->done); worker->done++) {
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_turn(worker, &buffers[i], &counter, NULL);
        pthread_sigmask(worker->done % 8 == 7 ? SIG_UNBLOCK : SIG_BLOCK, &mask, NULL);
        worker->mismatches += gm_counter_read(worker, &counter, NULL);
        pthread_sigmask(SIG_UNBLOCK, &mask, NULL);
    }
    target.is_last = true;
    pthread_join(thread, NULL);
    if (struck_calls == 0 || struck_wrong != 0)
        gm_fail(worker, "%llu of %llu calls of the handler went wrong",
                (unsigned long long)struck_wrong, (unsigned long long)struck_calls);
    gm_buffers_free(worker, buffers);
    gm_counter_free(worker, &counter);
}

/* ---- cancellation ---- */

struct gm_victim {
    struct gm_worker *worker;
    struct gm_buffer buffer;
    struct gm_counter counter;
    CUstream stream;
    bool is_reading;
    bool has_returned; /* cancel-pools */
};

/* Works until it is cancelled, which it lets happen nowhere but between two submissions. */
static void *be_victim(void *argument)
{
    struct gm_victim *victim = argument;
    struct gm_worker *worker = victim->worker;
    int state;
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    for (;;) {
        gm_buffer_turn(worker, &victim->buffer, &victim->counter, victim->stream);
        pthread_testcancel();
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
        GM_CU(worker, cuStreamSynchronize, victim->stream);
        pthread_setcancelstate(state, NULL);
    }
    return NULL;
}

/* What is to end it is there before it calls: the call must return all the same. */
static void *synchronize_cancelled(void *argument)
{
    struct gm_victim *victim = argument;
    GM_CU(victim->worker, cuCtxSetCurrent, victim->worker->context);
    pthread_cancel(pthread_self());
    GM_CU(victim->worker, cuStreamSynchronize, victim->stream);
    __atomic_store_n(&victim->has_returned, true, __ATOMIC_SEQ_CST);
    pthread_testcancel();
    return NULL;
}

/* Mode cancel-pools: a synchronizing call gives back what a pool has free, in a thread that is
 * being cancelled. Not for a driver whose own call may be cancelled. */
void gm_mode_cancel_pools(struct gm_worker *worker)
{
    const struct gm_driver *cu = &worker->cu;
    struct gm_victim victim = {.worker = worker};
    pthread_t thread;
    CUdeviceptr at;
    void *end;
    GM_CU(worker, cuStreamCreate, &victim.stream, CU_STREAM_NON_BLOCKING);
    gm_say_ready(worker);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        GM_CU(worker, cuMemAllocAsync, &at, worker->bytes, victim.stream);
        GM_CU(worker, cuMemFreeAsync, at, victim.stream);
        while (cu->cuStreamQuery(victim.stream) == CUDA_ERROR_NOT_READY)
            sched_yield();
        victim.has_returned = false;
        if (pthread_create(&thread, NULL, synchronize_cancelled, &victim) != 0)
            gm_fail(worker, "no thread");
        pthread_join(thread, &end);
        if (end != PTHREAD_CANCELED || !victim.has_returned)
            gm_fail(worker, "it was cancelled in the middle of a call");
        GM_CU(worker, cuMemAlloc, &at, worker->bytes);
        GM_CU(worker, cuMemFree, at);
    }
    GM_CU(worker, cuStreamDestroy, victim.stream);
}

/* A thread an iteration, cancelled after a while, most often while it waits at the gate. */
void gm_mode_cancel(struct gm_worker *worker)
{
    struct gm_victim victim = {.worker = worker};
    struct timespec pause = {0};
    pthread_t thread;
    void *end;
    GM_CU(worker, cuStreamCreate, &victim.stream, CU_STREAM_NON_BLOCKING);
    gm_counter_make(worker, &victim.counter);
    gm_buffer_make(worker, &victim.buffer, worker->bytes, worker->seed, victim.stream);
    GM_CU(worker, cuStreamSynchronize, victim.stream);
    gm_say_ready(worker);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        if (pthread_create(&thread, NULL, be_victim, &victim) != 0)
            gm_fail(worker, "no thread");
        pause.tv_nsec = (long)(gm_mix(worker->seed, worker->done) % 120) * (long)GM_MS;
        nanosleep(&pause, NULL);
        pthread_cancel(thread);
        pthread_join(thread, &end);
        if (end != PTHREAD_CANCELED)
            gm_fail(worker, "it was not cancelled");
    }
    worker->mismatches += gm_counter_read(worker, &victim.counter, victim.stream);
    worker->mismatches += gm_buffer_check_host(worker, &victim.buffer, 0);
    gm_buffer_free(worker, &victim.buffer);
    gm_counter_free(worker, &victim.counter);
    GM_CU(worker, cuStreamDestroy, victim.stream);
}

/* ---- children ---- */

struct gm_busy {
    struct gm_worker *worker;
    struct gm_buffer buffer;
    pthread_t thread;
    _Atomic bool is_last;
};

static void *be_busy(void *argument)
{
    struct gm_busy *busy = argument;
    struct gm_worker *worker = busy->worker;
    struct gm_counter counter;
    CUstream stream;
    GM_CU(worker, cuCtxSetCurrent, worker->context);
    GM_CU(worker, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    gm_counter_make(worker, &counter);
    gm_buffer_make(worker, &busy->buffer, worker->bytes / worker->threads, worker->seed, stream);
    while (!busy->is_last) {
        for (int i = 0; i < 16; i++)
            gm_buffer_turn(worker, &busy->buffer, &counter, stream);
        worker->mismatches += gm_counter_read(worker, &counter, stream);
    }
    gm_buffer_free(worker, &busy->buffer);
    gm_counter_free(worker, &counter);
    GM_CU(worker, cuStreamDestroy, stream);
    return NULL;
}

static void expect_exit(const struct gm_worker *worker, pid_t pid, const char *what)
{
    int status = 0;
    if (pid < 0)
        gm_fail(worker, "%s: %s", what, strerror(errno));
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            gm_fail(worker, "waitpid: %s", strerror(errno));
    if (status != 0)
        gm_fail(worker, "%s ended with %#x", what, status);
}

/* A child by fork that asks CUDA for something, as the driver refuses it; and of the C library. */
static void fork_child(const struct gm_worker *worker)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        CUdeviceptr va = 0;
        CUresult alloc = worker->cu.cuMemAlloc(&va, 8u << 20);
        CUresult set = worker->cu.cuMemsetD32Async(va, 0, 1, NULL);
        CUresult wait = worker->cu.cuCtxSynchronize();
        free(malloc(1000));
        _exit(alloc != CUDA_ERROR_NOT_INITIALIZED || set != CUDA_ERROR_NOT_INITIALIZED ||
              wait != CUDA_ERROR_NOT_INITIALIZED);
    }
    expect_exit(worker, pid, "fork");
}

static void vfork_child(const struct gm_worker *worker)
{
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    expect_exit(worker, pid, "vfork");
}

static void spawn_child(const struct gm_worker *worker)
{
    char name[] = "true";
    char *argv[] = {name, NULL};
    pid_t pid = -1;
    errno = posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ);
    expect_exit(worker, pid, "posix_spawn");
}

/* Children of every kind, while --threads threads are in calls or at the gate. */
void gm_mode_children(struct gm_worker *worker)
{
    struct gm_busy *busy = calloc(worker->threads, sizeof(*busy));
    if (busy == NULL)
        gm_fail(worker, "no host memory");
    for (uint32_t i = 0; i < worker->threads; i++) {
        busy[i].worker = worker;
        if (pthread_create(&busy[i].thread, NULL, be_busy, &busy[i]) != 0)
            gm_fail(worker, "no thread");
    }
    gm_say_ready(worker);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        fork_child(worker);
        vfork_child(worker);
        spawn_child(worker);
    }
    for (uint32_t i = 0; i < worker->threads; i++)
        busy[i].is_last = true;
    for (uint32_t i = 0; i < worker->threads; i++)
        pthread_join(busy[i].thread, NULL);
    free(busy);
}

/* ---- the end of the process ---- */

static struct gm_worker *ending;
static struct gm_buffer *ending_buffers;
static struct gm_counter ending_counter;
static unsigned ends; /* handlers that ran */

static void fail_at_end(const char *text, CUresult result)
{
    printf("FAIL mode=exits at the end: %s (%d)\n", text, (int)result);
    fflush(stdout);
    _exit(1);
}

/* Registered after cuInit, so it runs before the driver's own: all works as ever. */
static void at_exit_late(void)
{
    for (int round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < ending->allocs; i++)
            gm_buffer_turn(ending, &ending_buffers[i], &ending_counter, NULL);
        if (gm_counter_read(ending, &ending_counter, NULL) != 0)
            fail_at_end("wrong data", CUDA_SUCCESS);
    }
    ends++;
}

/* The driver is gone: every call says so, whatever the gate does, as without gpumux. */
static void expect_gone(const char *where)
{
    CUdeviceptr va;
    uint32_t word = 0;
    const CUresult results[] = {
        ending->cu.cuMemsetD32Async(ending_buffers[0].at, 0, 1, NULL),
        ending->cu.cuMemcpyDtoH(&word, ending_buffers[0].at, sizeof(word)),
        ending->cu.cuMemAlloc(&va, 8u << 20),
        ending->cu.cuMemFree(ending_buffers[0].at),
        ending->cu.cuCtxSynchronize(),
        ending->cu.cuDevicePrimaryCtxRelease(ending->device),
    };
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
        if (results[i] != CUDA_ERROR_DEINITIALIZED)
            fail_at_end(where, results[i]);
    ends++;
}

/* For so long that the gate closes, and opens again, when the driver is gone. */
static void at_exit_early(void)
{
    uint64_t until = gm_now() + GM_S / 2;
    expect_gone("an early atexit handler");
    while (gm_now() < until)
        if (ending->cu.cuMemsetD32Async(ending_buffers[0].at, 0, 1, NULL) !=
            CUDA_ERROR_DEINITIALIZED)
            fail_at_end("a later call of an early atexit handler", CUDA_SUCCESS);
}

__attribute__((destructor)) static void at_destruction(void)
{
    if (ending == NULL)
        return;
    expect_gone("a destructor");
    if (ends != 3)
        fail_at_end("not all handlers ran", CUDA_SUCCESS);
    printf("PASS mode=exits mismatches=0 handlers=3\n");
    fflush(stdout);
}

/* What a program does after main() has returned: it neither frees nor closes anything before. */
void gm_mode_exits(struct gm_worker *worker)
{
    static struct gm_worker copy;
    atexit(at_exit_early);
    gm_open_cuda(worker);
    atexit(at_exit_late);
    gm_counter_make(worker, &ending_counter);
    ending_buffers = gm_buffers_make(worker, NULL);
    copy = *worker;
    ending = &copy;
    for (; gm_is_more(worker, worker->done); worker->done++) {
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_turn(worker, &ending_buffers[i], &ending_counter, NULL);
        worker->mismatches += gm_counter_read(worker, &ending_counter, NULL);
    }
}
