/* gm_worker's mode about memory that is freed and allocated again. See worker.h. */
#include "tests/programs/worker.h"

static size_t free_bytes(const struct gm_worker *worker)
{
    size_t free, total;
    GM_CU(worker, cuMemGetInfo, &free, &total);
    return free;
}

/* Allocate, work, free; what is freed is none of the program's at once. */
static void turn(struct gm_worker *worker, uint64_t bytes, const struct gm_counter *counter)
{
    const size_t before = free_bytes(worker);
    struct gm_buffer buffer;
    uint64_t word = 0;
    gm_buffer_make(worker, &buffer, bytes, gm_mix(worker->seed, worker->done), NULL);
    if (before - free_bytes(worker) < bytes)
        gm_fail(worker, "%llu bytes take less", (unsigned long long)bytes);
    gm_buffer_turn(worker, &buffer, counter, NULL);
    gm_buffer_verify(worker, &buffer, counter, NULL);
    worker->mismatches = gm_counter_read(worker, counter, NULL);
    const CUdeviceptr at = buffer.at;
    gm_buffer_free(worker, &buffer);
    if (free_bytes(worker) != before)
        gm_fail(worker, "%llu bytes were freed, and are not free", (unsigned long long)bytes);
    if (worker->cu.cuMemFree(at) != CUDA_ERROR_INVALID_VALUE ||
        worker->cu.cuMemcpyDtoH(&word, at, 8) != CUDA_ERROR_INVALID_VALUE ||
        worker->cu.cuMemcpyHtoD(at + bytes / 2, &word, 8) != CUDA_ERROR_INVALID_VALUE ||
        worker->cu.cuMemsetD32(at, 1, 2) != CUDA_ERROR_INVALID_VALUE)
        gm_fail(worker, "memory that was freed is still there");
}

/*
 * The same size again and again; then rest until --go, with nothing allocated; then all that is
 * free in one piece, beside which nothing can be kept.
 */
void gm_mode_reuse(struct gm_worker *worker)
{
    struct gm_counter counter;
    gm_counter_make(worker, &counter);
    for (; gm_is_more(worker, worker->done) && worker->mismatches == 0; worker->done++)
        turn(worker, worker->bytes, &counter);
    gm_say_ready(worker);
    if (worker->mismatches == 0)
        turn(worker, worker->bytes, &counter);
    if (worker->mismatches == 0)
        turn(worker, free_bytes(worker) - (8ull << 20), &counter);
    gm_counter_free(worker, &counter);
}
