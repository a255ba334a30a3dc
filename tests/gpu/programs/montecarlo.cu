/*
 * Pi by random points: a linear congruential generator for each of millions of streams, whose
 * states and hits stay in memory from round to round.
 *
 * The states are known in closed form for any number of steps; the hits of a round are counted
 * again from there; and the estimate must be pi.
 */
#include "common.cuh"

constexpr int DRAWS = 32;
constexpr affine STEP = {6364136223846793005ull, 1442695040888963407ull};

struct stream {
    uint64_t state, hits;
};

__device__ static bool is_hit(uint64_t state)
{
    uint64_t random = state ^ state >> 33; /* the high bits are the good ones */
    uint64_t x = random >> 48, y = random >> 32 & 0xffff;
    return x * x + y * y < 1ull << 32;
}

__global__ void draw(stream *streams, uint64_t n)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count()) {
        stream own = streams[i];
        for (int turn = 0; turn < DRAWS; turn++) {
            own.state = own.state * STEP.factor + STEP.term;
            own.hits += is_hit(own.state);
        }
        streams[i] = own;
    }
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "montecarlo", 1024);
    const uint64_t n = work.bytes() / sizeof(stream), seed = work.seed;
    stream *streams = allocate<stream>(n);
    each(n, [=] __device__(uint64_t i) { streams[i] = {mix(seed, i), 0}; });

    uint64_t expected = 0, hits = 0, draws = 0;
    while (work.next()) {
        const affine before = STEP.times(draws), step = STEP;
        draws += DRAWS;
        const affine after = STEP.times(draws);
        draw<<<blocks_for(n), 256>>>(streams, n);
        CHECK(cudaGetLastError());
        verify("the states", n,
               [=] __device__(uint64_t i) { return streams[i].state == after(mix(seed, i)); });
        auto hits_again = [=] __device__(uint64_t i) -> uint64_t {
            uint64_t count = 0;
            affine drawn = before.then(step);
            for (int turn = 0; turn < DRAWS; turn++, drawn = drawn.then(step))
                count += is_hit(drawn(mix(seed, i)));
            return count;
        };
        expected += sum(
            n, [=] __device__(uint64_t i) -> uint64_t { return mix(~seed, i) * hits_again(i); });
        same(
            "the hits, weighted by their place",
            sum(n,
                [=] __device__(uint64_t i) -> uint64_t { return mix(~seed, i) * streams[i].hits; }),
            expected);

        hits = sum(n, [=] __device__(uint64_t i) -> uint64_t { return streams[i].hits; });
        double pi = 4 * (double)hits / ((double)draws * (double)n);
        if (fabs(pi - 3.14159265) >
            16 / sqrt((double)draws * (double)n) + 1e-4) /* ten deviations, and the grid */
            fail("pi is %.6f after %llu draws", pi, (unsigned long long)(draws * n));
    }
    release(streams);
    return work.passed();
}
