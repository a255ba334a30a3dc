/* gm_worker's modes about processes. See worker.h. */
#include "tests/programs/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* This program again, in mode verify, with a different seed. Does not return. */
static void __attribute__((noreturn)) become_verify(const struct gm_worker *worker)
{
    char bytes[32], allocs[16], iterations[24], seed[24];
    snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)worker->bytes);
    snprintf(allocs, sizeof(allocs), "%u", worker->allocs);
    snprintf(iterations, sizeof(iterations), "%llu", (unsigned long long)worker->iterations);
    snprintf(seed, sizeof(seed), "%llu", (unsigned long long)(worker->seed + 100) % 1000000);
    char *argv[] = {worker->argv[0],
                    (char *)"--mode",
                    (char *)"verify",
                    (char *)"--bytes",
                    bytes,
                    (char *)"--allocs",
                    allocs,
                    (char *)"--iterations",
                    iterations,
                    (char *)"--seed",
                    seed,
                    NULL};
    fflush(stdout);
    execv("/proc/self/exe", argv);
    printf("FAIL exec: %s\n", strerror(errno));
    fflush(stdout);
    _exit(1);
}

static pid_t start(const struct gm_worker *worker)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        gm_fail(worker, "fork: %s", strerror(errno));
    return pid;
}

static void expect_clean(const struct gm_worker *worker, pid_t pid, const char *what)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            gm_fail(worker, "waitpid: %s", strerror(errno));
    if (WIFSIGNALED(status))
        gm_fail(worker, "%s died of signal %d", what, WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        gm_fail(worker, "%s exited with %d", what, WEXITSTATUS(status));
}

/*
 * What another thread held on its stack alone when a child was forked looks lost in the child. The
 * address sanitizer asks this, where there is one, before it looks for leaks at the end.
 */
static bool is_half_of_its_parent;

__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return is_half_of_its_parent;
}

static void __attribute__((noreturn)) run_exit_handlers(void)
{
    is_half_of_its_parent = true;
    exit(0);
}

/*
 * A child that uses CUDA itself, forked before its parent initializes CUDA; then, from the parent
 * with CUDA and memory, a child that only exits, one that runs exit handlers, and one that execs a
 * CUDA program. The parent's memory must be right throughout.
 */
void gm_mode_fork(struct gm_worker *worker)
{
    pid_t before = start(worker);
    if (before == 0) {
        worker->seed += 50;
        gm_open_cuda(worker);
        gm_mode_verify(worker);
        gm_close_cuda(worker);
        _exit(worker->mismatches != 0);
    }

    struct gm_counter counter;
    gm_open_cuda(worker);
    gm_counter_make(worker, &counter);
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    for (; gm_is_more(worker, worker->done); worker->done++) {
        pid_t plain = start(worker);
        if (plain == 0)
            _exit(0);
        pid_t other = start(worker);
        if (other == 0)
            become_verify(worker);
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_turn(worker, &buffers[i], &counter, NULL);
        worker->mismatches += gm_counter_read(worker, &counter, NULL);
        expect_clean(worker, plain, "the child that only exits");
        expect_clean(worker, other, "the child that execs");
    }
    pid_t handlers = start(worker);
    if (handlers == 0)
        run_exit_handlers();
    expect_clean(worker, handlers, "the child that runs exit handlers");
    expect_clean(worker, before, "the child forked before cuInit");
    for (uint32_t i = 0; i < worker->allocs; i++)
        worker->mismatches += gm_buffer_check_host(worker, &buffers[i], 0);
    gm_buffers_free(worker, buffers);
    gm_counter_free(worker, &counter);
    gm_close_cuda(worker);
}

/* A child without handlers of fork(): it has copies of all that its parent has open, and does not
 * know of them. This one is to be killed; the child stays until the --until file is there. */
void gm_mode_clone(struct gm_worker *worker)
{
    struct gm_counter counter;
    gm_open_cuda(worker);
    gm_counter_make(worker, &counter);
    struct gm_buffer *buffers = gm_buffers_make(worker, NULL);
    const long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child < 0)
        gm_fail(worker, "clone: %s", strerror(errno));
    while (child == 0 && access(worker->until, F_OK) != 0)
        usleep(10000);
    if (child == 0)
        _exit(0);
    for (; gm_is_more(worker, worker->done); worker->done++)
        for (uint32_t i = 0; i < worker->allocs; i++)
            gm_buffer_turn(worker, &buffers[i], &counter, NULL);
    gm_buffers_free(worker, buffers);
    gm_counter_free(worker, &counter);
    gm_close_cuda(worker);
}

/* One program that execs before CUDA is up, and this one after it has memory: both become "verify".
 */
void gm_mode_exec(struct gm_worker *worker)
{
    pid_t early = start(worker);
    if (early == 0)
        become_verify(worker);
    expect_clean(worker, early, "the program that execs before cuInit");
    gm_open_cuda(worker);
    gm_buffers_make(worker, NULL);
    become_verify(worker);
}
