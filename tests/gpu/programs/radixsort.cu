/*
 * A least-significant-digit radix sort of 32-bit keys with their numbers: 8 passes over 4 bits,
 * each counts digits in tiles, adds up the counts, and scatters with ranks from warp matches.
 *
 * Each round sorts new keys. The result is right if each key is the generator's for its number and
 * (key, number) strictly rises: then all numbers are different, none is missing, and equal keys
 * kept their order.
 */
#include "common.cuh"

constexpr unsigned BITS = 4, DIGITS = 1 << BITS, THREADS = 256, WARPS = THREADS / 32,
                   TILE = 16 * THREADS;

/* counts[digit * blocks + block] */
__global__ void count(const uint32_t *keys, uint64_t n, unsigned shift, uint32_t *counts)
{
    __shared__ uint32_t of_digit[DIGITS];
    if (threadIdx.x < DIGITS)
        of_digit[threadIdx.x] = 0;
    __syncthreads();
    uint64_t begin = (uint64_t)blockIdx.x * TILE;
    for (uint64_t i = begin + threadIdx.x; i < begin + TILE && i < n; i += THREADS)
        atomicAdd(&of_digit[keys[i] >> shift & (DIGITS - 1)], 1u);
    __syncthreads();
    if (threadIdx.x < DIGITS)
        counts[(uint64_t)threadIdx.x * gridDim.x + blockIdx.x] = of_digit[threadIdx.x];
}

/* Each count becomes the sum of all before it; one block of 1024. */
__global__ void add_up(uint32_t *counts, uint64_t n)
{
    __shared__ uint32_t sums[2][1024];
    uint64_t each = (n + 1023) / 1024;
    uint64_t begin = min(threadIdx.x * each, n), end = min(begin + each, n);
    uint32_t total = 0;
    for (uint64_t i = begin; i < end; i++)
        total += counts[i];
    int now = 0;
    sums[0][threadIdx.x] = total;
    __syncthreads();
    for (unsigned distance = 1; distance < 1024; distance *= 2, now = !now) {
        uint32_t before = threadIdx.x >= distance ? sums[now][threadIdx.x - distance] : 0;
        sums[!now][threadIdx.x] = sums[now][threadIdx.x] + before;
        __syncthreads();
    }
    uint32_t before = sums[now][threadIdx.x] - total;
    for (uint64_t i = begin; i < end; i++) {
        uint32_t own = counts[i];
        counts[i] = before;
        before += own;
    }
}

__global__ void scatter(const uint32_t *keys, const uint32_t *numbers, uint64_t n, unsigned shift,
                        const uint32_t *offsets, uint32_t *new_keys, uint32_t *new_numbers)
{
    __shared__ uint32_t base[DIGITS], of_warp[WARPS][DIGITS];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x < DIGITS)
        base[threadIdx.x] = offsets[(uint64_t)threadIdx.x * gridDim.x + blockIdx.x];
    for (unsigned turn = 0; turn < TILE / THREADS; turn++) {
        uint64_t i = (uint64_t)blockIdx.x * TILE + turn * THREADS + threadIdx.x;
        if (threadIdx.x < WARPS * DIGITS)
            of_warp[threadIdx.x / DIGITS][threadIdx.x % DIGITS] = 0;
        __syncthreads();
        uint32_t key = i < n ? keys[i] : 0;
        unsigned digit =
            i < n ? key >> shift & (DIGITS - 1) : DIGITS; /* beyond the end: of no digit */
        unsigned peers = __match_any_sync(0xffffffffu, digit);
        unsigned rank = (unsigned)__popc(peers & ((1u << lane) - 1));
        if (i < n && rank == 0)
            of_warp[warp][digit] = (uint32_t)__popc(peers);
        __syncthreads();
        if (i < n) {
            uint32_t to = base[digit] + rank;
            for (unsigned w = 0; w < warp; w++)
                to += of_warp[w][digit];
            new_keys[to] = key;
            new_numbers[to] = numbers[i];
        }
        __syncthreads();
        if (threadIdx.x < DIGITS)
            for (unsigned w = 0; w < WARPS; w++)
                base[threadIdx.x] += of_warp[w][threadIdx.x];
        __syncthreads();
    }
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "radixsort", 1024);
    const uint64_t n = std::min<uint64_t>(work.bytes() / (4 * sizeof(uint32_t)), ~0u);
    const unsigned blocks = divide_up(n, TILE);
    uint32_t *keys = allocate<uint32_t>(n), *numbers = allocate<uint32_t>(n);
    uint32_t *new_keys = allocate<uint32_t>(n), *new_numbers = allocate<uint32_t>(n);
    uint32_t *counts = allocate<uint32_t>((uint64_t)blocks * DIGITS);

    while (work.next()) {
        const uint64_t seed = mix(work.seed, work.rounds);
        each(n, [=] __device__(uint64_t i) {
            keys[i] = (uint32_t)mix(seed, i);
            numbers[i] = (uint32_t)i;
        });
        for (unsigned shift = 0; shift < 32; shift += BITS) {
            count<<<blocks, THREADS>>>(keys, n, shift, counts);
            add_up<<<1, 1024>>>(counts, (uint64_t)blocks * DIGITS);
            scatter<<<blocks, THREADS>>>(keys, numbers, n, shift, counts, new_keys, new_numbers);
            CHECK(cudaGetLastError());
            std::swap(keys, new_keys);
            std::swap(numbers, new_numbers);
        }
        const uint32_t *sorted = keys, *order = numbers;
        verify("sorted keys", n, [=] __device__(uint64_t i) {
            bool is_right = order[i] < n && sorted[i] == (uint32_t)mix(seed, order[i]);
            if (i > 0 && sorted[i - 1] == sorted[i])
                return is_right && order[i - 1] < order[i];
            return is_right && (i == 0 || sorted[i - 1] < sorted[i]);
        });
    }
    release(keys, numbers, new_keys, new_numbers, counts);
    return work.passed();
}
