/*
 * Reductions of one large array: sum, least and greatest with their places, exclusive or, and a
 * weighted sum; by warp shuffles, in two stages. Each round changes the data in place.
 *
 * The data are a permutation of the numbers below n, so that all but the last are known in closed
 * form; the places must undo the permutation, and the weighted sum must be the generator's.
 */
#include "common.cuh"

/* A permutation of the numbers below 2^bits. */
struct permutation {
    uint64_t seed;
    unsigned bits;

    __host__ __device__ uint32_t operator()(uint64_t i) const
    {
        const uint64_t mask = (1ull << bits) - 1;
        for (int turn = 0; turn < 3; turn++) {
            i = (i ^ (seed >> 8 * turn)) * 0x9E3779B97F4A7C15ull & mask;
            i ^= i >> (bits / 2);
        }
        return (uint32_t)i;
    }
};

/* What is reduced: of one element, and of two. */
struct add {
    typedef uint64_t value;
    __device__ static value of(uint32_t word, uint64_t)
    {
        return word;
    }
    __device__ static value both(value a, value b)
    {
        return a + b;
    }
};
struct either : add {
    __device__ static value both(value a, value b)
    {
        return a ^ b;
    }
};
struct weighted : add {
    __device__ static value of(uint32_t word, uint64_t i)
    {
        return word * (2 * i + 1);
    }
};
struct least : add { /* the word, and then its place */
    __device__ static value of(uint32_t word, uint64_t i)
    {
        return (uint64_t)word << 32 | i;
    }
    __device__ static value both(value a, value b)
    {
        return a < b ? a : b;
    }
};
struct greatest : least {
    __device__ static value both(value a, value b)
    {
        return a < b ? b : a;
    }
};

template <class Op> __device__ static uint64_t reduce_block(uint64_t own)
{
    __shared__ uint64_t of_warp[8];
    for (int distance = 16; distance; distance /= 2)
        own = Op::both(own, __shfl_xor_sync(0xffffffffu, own, distance));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = own;
    __syncthreads();
    for (unsigned warp = 0; warp < 8; warp++)
        own = warp == 0 ? of_warp[0] : Op::both(own, of_warp[warp]);
    return own;
}

/* n is at least the number of threads. */
template <class Op> __global__ void reduce(const uint32_t *words, uint64_t n, uint64_t *parts)
{
    uint64_t i = thread_index(), own = Op::of(words[i], i);
    for (i += thread_count(); i < n; i += thread_count())
        own = Op::both(own, Op::of(words[i], i));
    own = reduce_block<Op>(own);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = own;
}

/* One block; 256 parts. */
template <class Op> __global__ void reduce_parts(const uint64_t *parts, uint64_t *result)
{
    uint64_t own = reduce_block<Op>(parts[threadIdx.x]);
    if (threadIdx.x == 0)
        *result = own;
}

template <class Op> static uint64_t reduced(const uint32_t *words, uint64_t n, uint64_t *parts)
{
    reduce<Op><<<256, 256>>>(words, n, parts);
    reduce_parts<Op><<<1, 256>>>(parts, parts + 256);
    CHECK(cudaGetLastError());
    return fetch(parts + 256, 1)[0];
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "reduction", 1024);
    const uint64_t n =
        std::min<uint64_t>(power_of_two_below(work.bytes() / sizeof(uint32_t)), 1ull << 32);
    const unsigned bits = (unsigned)__builtin_ctzll(n);
    const permutation value = {mix(work.seed, 0), bits};
    uint32_t *words = allocate<uint32_t>(n), changed = 0;
    uint64_t *parts = allocate<uint64_t>(257);
    each(n, [=] __device__(uint64_t i) { words[i] = value(i); });

    while (work.next()) {
        const uint32_t change = (uint32_t)(mix(work.seed + 1, work.rounds) & (n - 1)),
                       all = changed ^ change;
        each(n, [=] __device__(uint64_t i) { words[i] ^= change; }); /* still a permutation */
        changed = all;
        same("the sum", reduced<add>(words, n, parts), n / 2 * (n - 1));
        same("the exclusive or", reduced<either>(words, n, parts), 0);
        uint64_t low = reduced<least>(words, n, parts), high = reduced<greatest>(words, n, parts);
        same("the least", low >> 32, 0);
        same("the least's place", value(low & 0xffffffff) ^ all, 0);
        same("the greatest", high >> 32, n - 1);
        same("the greatest's place", value(high & 0xffffffff) ^ all, n - 1);
        uint64_t expected = sum(n, [=] __device__(uint64_t i) -> uint64_t {
            return (value(i) ^ all) + 2 * i * (value(i) ^ all);
        });
        same("the weighted sum", reduced<weighted>(words, n, parts), expected);
    }
    release(words, parts);
    return work.passed();
}
