/*
 * Not a benchmark: a program that wants all of its memory all the time, to run beside the others.
 * Each round checks and rewrites every word. SIGTERM ends it after the round, with its verdict.
 */
#include <csignal>

#include "common.cuh"

constexpr uint64_t PIECE = 1ull << 25; /* words: 256 MiB */

struct piece {
    uint64_t *words, n, seed;
};

static volatile sig_atomic_t is_told_to_end;

static void end(int)
{
    is_told_to_end = 1;
}

__global__ void check_and_refill(uint64_t *words, uint64_t n, uint64_t old_seed, uint64_t seed,
                                 unsigned long long *wrong)
{
    unsigned long long count = 0;
    for (uint64_t i = thread_index(); i < n; i += thread_count()) {
        count += words[i] != mix(old_seed, i);
        words[i] = mix(seed, i);
    }
    if (count)
        atomicAdd(wrong, count);
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "hog", 4096);
    signal(SIGTERM, end);
    unsigned long long *wrong = allocate<unsigned long long>(1);
    CHECK(cudaMemset(wrong, 0, sizeof(*wrong)));
    std::vector<piece> pieces;
    for (uint64_t left = work.bytes() / sizeof(uint64_t); left > 0; left -= pieces.back().n) {
        piece own = {nullptr, std::min(left, PIECE), mix(work.seed, left)};
        uint64_t *words = own.words = allocate<uint64_t>(own.n), seed = own.seed;
        each(own.n, [=] __device__(uint64_t i) { words[i] = mix(seed, i); });
        pieces.push_back(own);
    }
    while (!is_told_to_end && work.next()) {
        for (piece &own : pieces) {
            uint64_t seed = mix(own.seed, work.rounds);
            check_and_refill<<<blocks_for(own.n), 256>>>(own.words, own.n, own.seed, seed, wrong);
            CHECK(cudaGetLastError());
            own.seed = seed;
        }
        same("wrong words", fetch(wrong, 1)[0], 0);
    }
    for (piece &own : pieces) {
        const piece last = own;
        verify("the words", last.n,
               [=] __device__(uint64_t i) { return last.words[i] == mix(last.seed, i); });
        release(own.words);
    }
    release(wrong);
    return work.passed();
}
