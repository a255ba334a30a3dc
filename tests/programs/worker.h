/*
 * gm_worker: a CUDA program for the tests, unmodified in the sense that it knows nothing of gpumux.
 * It fills device memory with a known pattern, verifies and rewrites it through kernels, copies and
 * graphs, and ends with one line:
 *
 *   PASS mode=verify mismatches=0 iterations=20 bytes=100663296 seconds=3.1
 *   FAIL ...
 *
 * Exit codes: 0 passed, 1 wrong data, 2 wrong use, 3 a CUDA call failed (named in the last line).
 *
 *   worker.c          options, the table of modes, the end
 *   buffers.c         patterned buffers
 *   modes_reuse.c     modes reuse, grow, fill and late: when memory is allocated
 *   modes_memory.c    modes about memory: verify, sweep, churn, copies, oom, info
 *   modes_fresh.c     modes fresh and handles: memory that was never written
 *   modes_change.c    modes readonly, byte and zeros: how little of memory changes
 *   modes_vmm.c       modes about the program's own virtual memory management: vmm, mappers, vmmoom
 *   modes_work.c      modes about work: vector, matmul, graph, capture, streams, threads, spin,
 *                     ahead
 *   modes_expect.c    modes expect and nonsense: hints
 *   modes_park.c      modes count, endless and queue: work that is long enough to be stopped
 *   modes_hot.c       modes about use: hot, turns, guests
 *   modes_devices.c   several devices and contexts: devices, peer
 *   modes_async.c     modes async and aptds: stream-ordered allocation at random
 *   modes_pools.c     modes pools, what memory pools promise, one by one, and beside
 *   modes_short.c     mode short: pools when there is no more memory
 *   modes_queries.c   modes about questions: asks-events and its like, empty, pointers, nvml, unswappable, taken, managed
 *   modes_process.c   modes about processes: fork, exec
 *   modes_hold.c      modes about what cannot be paused: values, hostfuncs, abandon, left, files
 *   modes_library.c   modes about libraries that use CUDA: deepbind, lazybind, namespace
 *   modes_threads.c   modes about where calls come from: pool, signals, cancel, children, exits
 *   modes_share.c     memory of several processes: share, open, misuse
 */
#ifndef GM_TESTS_WORKER_H
#define GM_TESTS_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/programs/driver.h"

enum gm_kernel {
    GM_KERNEL_FILL,
    GM_KERNEL_VERIFY,
    GM_KERNEL_VERIFY_REFILL,
    GM_KERNEL_VECTOR_ADD,
    GM_KERNEL_MATMUL,
    GM_KERNEL_SPIN,
    GM_KERNEL_SPIN_UNTIL,
    GM_KERNEL_SWEEP,
    GM_KERNEL_COUNT,
    GM_KERNEL_EMPTY,
    GM_KERNELS
};

struct gm_worker {
    /* options */
    const char *mode;
    uint64_t bytes;      /* of device memory, over all allocations */
    uint32_t allocs;     /* in so many allocations */
    uint64_t iterations; /* at least so many, and ... */
    uint64_t run_ns;     /* ... for at least so long */
    uint64_t pause_ns;   /* sleep between iterations */
    uint64_t hold_ns;    /* modes capture, spin, count and queue: how long */
    uint64_t seed;
    uint32_t threads;
    bool own_context;   /* cuCtxCreate instead of the primary context */
    const char *ready;  /* file to make once the memory is filled, or NULL */
    const char *go;     /* file to wait for before the first iteration, or NULL */
    const char *until;  /* go on until this file is there, as well, or NULL */
    const char *signal; /* what the names of a mode's files begin with, or a file; or NULL */
    const char *only;   /* of mode pools: these checks, a,b,..., or NULL */
    char **argv;

    /* state */
    struct gm_driver cu;
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction kernel[GM_KERNELS];
    uint64_t started_ns;
    uint64_t done;     /* iterations */
    const char *doing; /* which part of a mode: told when it fails; or NULL */
    _Atomic uint64_t mismatches;
};

/* --- worker.c --- */

/* Initialize CUDA, make the context current and load the kernels. Ends the program on an error. */
void gm_open_cuda(struct gm_worker *worker);

/* Load the kernels into the current context. gm_open_cuda does. */
void gm_load_kernels(struct gm_worker *worker);

/* Release what gm_open_cuda took. */
void gm_close_cuda(struct gm_worker *worker);

/* Is there an iteration to do after `done` of them? Sleeps the pause before the second and later.
 */
bool gm_is_more(const struct gm_worker *worker, uint64_t done);

/* Make the --ready file and wait for the --go file. */
void gm_say_ready(const struct gm_worker *worker);

/* Print FAIL with the call's name and end the program with code 3, unless `result` is success. */
void gm_check(const struct gm_worker *worker, CUresult result, const char *call);
/* The same, with where that is. */
void gm_check_at(const struct gm_worker *worker, CUresult result, const char *call,
                 const char *file, int line);
#define GM_CU(worker, call, ...)                                                                   \
    gm_check_at(worker, (worker)->cu.call(__VA_ARGS__), #call, __FILE__, __LINE__)

/* Print FAIL with a line for a person and end the program with code 1. */
void gm_fail(const struct gm_worker *worker, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));

/* Launch over as much as the kernel is told in its arguments. */
void gm_launch(const struct gm_worker *worker, enum gm_kernel kernel, CUstream stream, void **args);

/* --- buffers.c --- */

/* A piece of device memory that holds mix(seed, i) at word i. */
struct gm_buffer {
    CUdeviceptr at;
    uint64_t bytes;
    uint64_t seed;
};

/* A thread's counter of wrong words, in device memory. */
struct gm_counter {
    CUdeviceptr at;
};

uint64_t gm_mix(uint64_t seed, uint64_t i);

/* The seed of the next content, from the one before: never the same for two buffers or two rounds.
 */
uint64_t gm_next_seed(uint64_t seed);

/* Allocate and fill; `bytes` is rounded down to words. */
void gm_buffer_make(const struct gm_worker *worker, struct gm_buffer *buffer, uint64_t bytes,
                    uint64_t seed, CUstream stream);
/* Fill what is at `at` with the content of its seed. Asynchronous. */
void gm_buffer_fill(const struct gm_worker *worker, struct gm_buffer *buffer, CUstream stream);
void gm_buffer_free(const struct gm_worker *worker, struct gm_buffer *buffer);

/* Check the content against its seed. Asynchronous; wrong words are added to the counter. */
void gm_buffer_verify(const struct gm_worker *worker, const struct gm_buffer *buffer,
                      const struct gm_counter *counter, CUstream stream);

/* Check and rewrite with the next content. Asynchronous. */
void gm_buffer_turn(const struct gm_worker *worker, struct gm_buffer *buffer,
                    const struct gm_counter *counter, CUstream stream);

/* Copy the buffer to the host, piece by piece, and count words that are not mix(seed, i) + add. */
uint64_t gm_buffer_check_host(const struct gm_worker *worker, const struct gm_buffer *buffer,
                              uint64_t add);

void gm_counter_make(const struct gm_worker *worker, struct gm_counter *counter);
/* Wait for the stream and read the counter. */
uint64_t gm_counter_read(const struct gm_worker *worker, const struct gm_counter *counter,
                         CUstream stream);
void gm_counter_free(const struct gm_worker *worker, struct gm_counter *counter);

/* worker->allocs buffers of worker->bytes together; the caller frees the array with
 * gm_buffers_free. */
struct gm_buffer *gm_buffers_make(const struct gm_worker *worker, CUstream stream);
void gm_buffers_free(const struct gm_worker *worker, struct gm_buffer *buffers);

/* A pool of the device's memory, with no properties beside. */
CUmemoryPool gm_pool_make(const struct gm_worker *worker);

/* --- modes --- */

void gm_mode_verify(struct gm_worker *worker);
void gm_mode_sweep(struct gm_worker *worker);
void gm_mode_churn(struct gm_worker *worker);
void gm_mode_reuse(struct gm_worker *worker);
void gm_mode_cycle(struct gm_worker *worker);
void gm_mode_grow(struct gm_worker *worker);
void gm_mode_fill(struct gm_worker *worker);
void gm_mode_fresh(struct gm_worker *worker);
void gm_mode_handles(struct gm_worker *worker);
void gm_mode_readonly(struct gm_worker *worker);
void gm_mode_byte(struct gm_worker *worker);
void gm_mode_zeros(struct gm_worker *worker);
void gm_mode_late(struct gm_worker *worker);
void gm_mode_copies(struct gm_worker *worker);
void gm_mode_oom(struct gm_worker *worker);
void gm_mode_info(struct gm_worker *worker);
void gm_mode_vector(struct gm_worker *worker);
void gm_mode_matmul(struct gm_worker *worker);
void gm_mode_graph(struct gm_worker *worker);
void gm_mode_capture(struct gm_worker *worker);
void gm_mode_streams(struct gm_worker *worker);
void gm_mode_threads(struct gm_worker *worker);
void gm_mode_spin(struct gm_worker *worker);
void gm_mode_ahead(struct gm_worker *worker);
void gm_mode_count(struct gm_worker *worker);
void gm_mode_queue(struct gm_worker *worker);
void gm_mode_expect(struct gm_worker *worker);
void gm_mode_steady(struct gm_worker *worker);
void gm_mode_nonsense(struct gm_worker *worker);
void gm_mode_hot(struct gm_worker *worker);
void gm_mode_part(struct gm_worker *worker);
void gm_mode_devices(struct gm_worker *worker);
void gm_mode_peer(struct gm_worker *worker);
void gm_mode_vmm(struct gm_worker *worker);
void gm_mode_mappers(struct gm_worker *worker);
void gm_mode_exports(struct gm_worker *worker);
void gm_mode_vmminfo(struct gm_worker *worker);
void gm_mode_vmmoom(struct gm_worker *worker);
void gm_mode_asks(struct gm_worker *worker);
void gm_mode_pointers(struct gm_worker *worker);
void gm_mode_nvml(struct gm_worker *worker);
void gm_mode_unswappable(struct gm_worker *worker);
void gm_mode_taken(struct gm_worker *worker);
void gm_mode_managed(struct gm_worker *worker);
void gm_mode_tied(struct gm_worker *worker);
void gm_mode_share(struct gm_worker *worker);
void gm_mode_open(struct gm_worker *worker);
void gm_mode_open_race(struct gm_worker *worker);
void gm_mode_misuse(struct gm_worker *worker);
void gm_mode_fork(struct gm_worker *worker);
void gm_mode_clone(struct gm_worker *worker);
void gm_mode_exec(struct gm_worker *worker);
void gm_mode_async(struct gm_worker *worker);
void gm_mode_pools(struct gm_worker *worker);
void gm_mode_beside(struct gm_worker *worker);
void gm_mode_short(struct gm_worker *worker);
void gm_mode_waits(struct gm_worker *worker);
void gm_mode_abandon(struct gm_worker *worker);
void gm_mode_left(struct gm_worker *worker);
void gm_mode_files(struct gm_worker *worker);
void gm_mode_pool(struct gm_worker *worker);
void gm_mode_signals(struct gm_worker *worker);
void gm_mode_cancel(struct gm_worker *worker);
void gm_mode_cancel_pools(struct gm_worker *worker);
void gm_mode_children(struct gm_worker *worker);
void gm_mode_exits(struct gm_worker *worker);
void gm_mode_deepbind(struct gm_worker *worker);
void gm_mode_lazybind(struct gm_worker *worker);
void gm_mode_namespace(struct gm_worker *worker);

#endif
