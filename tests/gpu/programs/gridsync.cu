/*
 * A cellular automaton on a ring, all steps of a round in one cooperative launch, with a barrier of
 * the whole grid between them.
 *
 * A word becomes the exclusive or of its two neighbours. In a field of characteristic two, 2^k such
 * steps are the exclusive or of the two words 2^k away: so that each word is known in closed form
 * after any number of steps.
 */
#include <cooperative_groups.h>

#include "common.cuh"

constexpr unsigned STEPS = 16; /* a round */
constexpr uint64_t ROUNDS =
    15; /* then from the beginning: the closed form has 2^(bits of the steps) terms */

__global__ void evolve(uint64_t *from, uint64_t *to, uint64_t n)
{
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    for (unsigned step = 0; step < STEPS; step++) {
        for (uint64_t i = thread_index(); i < n; i += thread_count())
            to[i] = from[i == 0 ? n - 1 : i - 1] ^ from[i == n - 1 ? 0 : i + 1];
        grid.sync();
        uint64_t *other = from;
        from = to;
        to = other;
    }
}

/* The word at i after that many steps; n is more. */
__device__ static uint64_t word_after(uint64_t seed, uint64_t n, uint64_t i, uint64_t steps)
{
    uint64_t word = 0, ways = 1ull << __popcll(steps);
    for (uint64_t way = 0; way < ways;
         way++) { /* each bit of the steps goes to the left or to the right */
        uint64_t place = i + n, choice = way;
        for (uint64_t bit = 1; bit <= steps; bit *= 2)
            if (steps & bit) {
                place = choice & 1 ? place + bit : place - bit;
                choice >>= 1;
            }
        word ^= mix(seed, place % n);
    }
    return word;
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "gridsync", 1024);
    const uint64_t n = work.bytes() / (2 * sizeof(uint64_t));
    int can_cooperate, processors, blocks_each;
    CHECK(cudaDeviceGetAttribute(&can_cooperate, cudaDevAttrCooperativeLaunch, 0));
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_each, evolve, 256, 0));
    if (!can_cooperate)
        fail("the device has no cooperative launch");
    uint64_t *words = allocate<uint64_t>(n), *next = allocate<uint64_t>(n), seed = 0, steps = 0;

    while (work.next()) {
        if (work.rounds % ROUNDS == 1) {
            const uint64_t fresh = seed = mix(work.seed, work.rounds);
            steps = 0;
            each(n, [=] __device__(uint64_t i) { words[i] = mix(fresh, i); });
        }
        uint64_t count = n;
        void *arguments[] = {&words, &next, &count};
        CHECK(cudaLaunchCooperativeKernel((void *)evolve,
                                          dim3((unsigned)(processors * blocks_each)), dim3(256),
                                          arguments, 0, nullptr));
        steps += STEPS; /* even: the result is where the words were */
        const uint64_t now = seed, done = steps;
        verify("the words", n,
               [=] __device__(uint64_t i) { return words[i] == word_after(now, n, i, done); });
    }
    release(words, next);
    return work.passed();
}
