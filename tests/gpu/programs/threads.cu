/*
 * Six threads of one process, each on its own default stream (compiled with --default-stream
 * per-thread): each has an array of generators that it steps, and allocates, copies and frees
 * beside it.
 *
 * The states are known in closed form; a thread's copy must be what its array was.
 */
#include <thread>

#include "common.cuh"

constexpr unsigned THREADS = 6;
constexpr int TURNS = 8;
constexpr affine STEP = {6364136223846793005ull, 1442695040888963407ull};

__global__ void advance(uint64_t *states, uint64_t n, affine step)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count())
        states[i] = step(states[i]);
}

/* One thread's part of a round; the states have made that many steps before. */
static void work_on(uint64_t *states, uint64_t n, uint64_t seed, uint64_t steps)
{
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        const uint64_t length = n / 4 + mix(seed, turn) % (n / 4),
                       from = mix(seed, ~turn) % (n - length);
        const affine before = STEP.times(steps + turn), after = STEP.times(steps + turn + 1);
        uint64_t *copy = allocate<uint64_t>(length);
        CHECK(cudaMemcpyAsync(copy, states + from, length * sizeof(uint64_t),
                              cudaMemcpyDeviceToDevice, nullptr));
        advance<<<blocks_for(n), 256>>>(states, n, STEP);
        CHECK(cudaGetLastError());
        verify("a thread's copy", length,
               [=] __device__(uint64_t i) { return copy[i] == before(mix(seed, from + i)); });
        verify("a thread's states", n,
               [=] __device__(uint64_t i) { return states[i] == after(mix(seed, i)); });
        CHECK(cudaStreamSynchronize(nullptr)); /* this thread's */
        release(copy);
    }
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "threads", 1024);
    const uint64_t n = work.bytes() / sizeof(uint64_t) * 2 / 3 /
                       THREADS; /* the copies take up to half of theirs */
    uint64_t *states[THREADS];
    for (unsigned t = 0; t < THREADS; t++) {
        uint64_t *own = states[t] = allocate<uint64_t>(n), seed = mix(work.seed, t);
        each(n, [=] __device__(uint64_t i) { own[i] = mix(seed, i); });
    }
    CHECK(cudaDeviceSynchronize());
    while (work.next()) {
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < THREADS; t++)
            threads.emplace_back(work_on, states[t], n, mix(work.seed, t),
                                 (work.rounds - 1) * TURNS);
        for (std::thread &thread : threads)
            thread.join();
    }
    for (uint64_t *own : states)
        release(own);
    return work.passed();
}
