/*
 * Histograms of the bytes of many segments of 1 MiB, one block a segment, with a private histogram
 * for each warp in shared memory. The data changes in place each round.
 *
 * Compared with histograms counted from the generator straight in global memory.
 */
#include "common.cuh"

constexpr unsigned BINS = 256, THREADS = 256, WARPS = THREADS / 32;
constexpr uint64_t SEGMENT = 1 << 18; /* words */

/* Four bytes, small ones more often. */
__device__ static uint32_t word_of(uint64_t seed, uint64_t i)
{
    uint64_t random = mix(seed, i);
    uint32_t word = 0;
    for (unsigned byte = 0; byte < 4; byte++) {
        uint32_t one = random >> 16 * byte & 255, other = random >> (16 * byte + 8) & 255;
        word |= (one < other ? one : other) << 8 * byte;
    }
    return word;
}

/* Also turns each word into word ^ change, which is what is counted. */
__global__ void count(uint32_t *words, uint32_t change, uint32_t *histograms)
{
    __shared__ uint32_t of_warp[WARPS][BINS];
    unsigned warp = threadIdx.x / 32;
    for (unsigned w = 0; w < WARPS; w++)
        of_warp[w][threadIdx.x] = 0;
    __syncthreads();
    uint64_t begin = blockIdx.x * SEGMENT;
    for (uint64_t i = begin + threadIdx.x; i < begin + SEGMENT; i += THREADS) {
        uint32_t word = words[i] ^ change;
        words[i] = word;
        for (unsigned byte = 0; byte < 4; byte++)
            atomicAdd(&of_warp[warp][word >> 8 * byte & 255], 1u);
    }
    __syncthreads();
    uint32_t total = 0;
    for (unsigned w = 0; w < WARPS; w++)
        total += of_warp[w][threadIdx.x];
    histograms[blockIdx.x * BINS + threadIdx.x] = total;
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "histogram", 1024);
    const uint64_t segments = work.mib, n = segments * SEGMENT, seed = work.seed;
    uint32_t *words = allocate<uint32_t>(n), *histograms = allocate<uint32_t>(segments * BINS);
    uint32_t *expected = allocate<uint32_t>(segments * BINS), changed = 0;
    each(n, [=] __device__(uint64_t i) { words[i] = word_of(seed, i); });

    while (work.next()) {
        const uint32_t change = (uint32_t)mix(seed + 1, work.rounds), all = changed ^ change;
        count<<<(unsigned)segments, THREADS>>>(words, change, histograms);
        CHECK(cudaGetLastError());
        changed = all;
        CHECK(cudaMemset(expected, 0, segments * BINS * sizeof(uint32_t)));
        each(n, [=] __device__(uint64_t i) {
            uint32_t word = word_of(seed, i) ^ all;
            for (unsigned shift = 0; shift < 32; shift += 8)
                atomicAdd(&expected[i / SEGMENT * BINS + (word >> shift & 255)], 1u);
        });
        verify("the histograms", segments * BINS,
               [=] __device__(uint64_t i) { return histograms[i] == expected[i]; });
        verify("the words", n,
               [=] __device__(uint64_t i) { return words[i] == (word_of(seed, i) ^ all); });
    }
    release(words, histograms, expected);
    return work.passed();
}
