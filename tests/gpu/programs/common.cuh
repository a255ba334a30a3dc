/*
 * What the programs of this folder share. Each is one .cu file: a plain runtime-API program with
 * the static cudart, as people write them, that proves its own result.
 *
 *     PROGRAM [--mib N] [--seconds S] [--seed N]
 *
 * It works in rounds: one, or as many as begin within S seconds, each verified. The last line is
 * "PASS name rounds=N" or "FAIL name: what"; exit code 0, 1 (wrong data or a CUDA error) or 2
 * (usage).
 *
 * How they prove it: inputs come from a generator that is a function of (seed, index), all
 * arithmetic is exact (integers, small whole numbers in float, one fixed order of rounding) or has
 * a stated tolerance, and the check recomputes from the generator, not from the memory under test,
 * by another way than the program's kernels: a closed form, an invariant that any single wrong word
 * breaks, or a plain kernel of another shape.
 */
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

/* ---- one run of a program ---- */

struct run {
    const char *name;
    uint64_t mib;   /* of device memory, about */
    double seconds; /* behind the first round; 0: one round */
    uint64_t seed;
    uint64_t rounds; /* begun */
    std::chrono::steady_clock::time_point start; /* the first round's end */

    uint64_t bytes() const
    {
        return mib << 20;
    }
    bool next();
    int passed() const;
};

inline run current; /* the one of this process */

[[noreturn]] __attribute__((format(printf, 1, 2))) inline void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("FAIL %s: ", current.name);
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
    _Exit(1); /* other threads may be inside CUDA */
}

#define CHECK(call) check((call), #call, __LINE__)

inline void check(cudaError_t error, const char *call, int line)
{
    if (error != cudaSuccess)
        fail("line %d: %s: %s", line, call, cudaGetErrorName(error));
}

/* Does another round begin? The first always does. */
inline bool run::next()
{
    const auto now = std::chrono::steady_clock::now();
    if (rounds == 1)
        start = now;
    if (rounds > 0 && std::chrono::duration<double>(now - start).count() >= seconds)
        return false;
    rounds++;
    return true;
}

/* The end of main: the last line and the exit code. */
inline int run::passed() const
{
    CHECK(cudaDeviceSynchronize());
    printf("PASS %s rounds=%llu\n", name, (unsigned long long)rounds);
    return 0;
}

inline uint64_t parse_whole(const char *option, const char *text, uint64_t least, uint64_t most)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != 0 || value < least || value > most) {
        fprintf(stderr, "%s: %s takes a whole number from %llu to %llu, not %s\n", current.name,
                option, (unsigned long long)least, (unsigned long long)most, text);
        exit(2);
    }
    return value;
}

/* The beginning of main: reads the options; mib is the default, least what the program can work
 * with. */
inline run &begin(int argc, char **argv, const char *name, uint64_t mib, uint64_t least = 1)
{
    current = {name, mib, 0, 1, 0, {}};
    for (int i = 1; i < argc; i += 2) {
        bool is_seconds = !strcmp(argv[i], "--seconds");
        if (i + 1 == argc ||
            (!is_seconds && strcmp(argv[i], "--mib") && strcmp(argv[i], "--seed"))) {
            fprintf(stderr, "usage: %s [--mib N] [--seconds S] [--seed N]\n", name);
            exit(2);
        }
        if (is_seconds)
            current.seconds = (double)parse_whole("--seconds", argv[i + 1], 0, 1000000);
        else if (!strcmp(argv[i], "--mib"))
            current.mib = parse_whole("--mib", argv[i + 1], least, 32768);
        else
            current.seed = parse_whole("--seed", argv[i + 1], 0, ~0ull);
    }
    return current;
}

/* ---- memory ---- */

template <class T> T *allocate(uint64_t count)
{
    T *memory;
    CHECK(cudaMalloc(&memory, count * sizeof(T)));
    return memory;
}

template <class... T> void release(T *...memory)
{
    (CHECK(cudaFree(memory)), ...);
}

/* count elements of device memory, copied to the host. */
template <class T> std::vector<T> fetch(const T *memory, uint64_t count)
{
    std::vector<T> values(count);
    CHECK(cudaMemcpy(values.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
}

template <class T> void upload(T *memory, const std::vector<T> &values)
{
    CHECK(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
}

/* ---- numbers ---- */

/* The generator: 64 random bits from a seed and an index. */
__host__ __device__ inline uint64_t mix(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

/* The greatest power of two that is not above n; n > 0. */
inline uint64_t power_of_two_below(uint64_t n)
{
    while (n & (n - 1))
        n &= n - 1;
    return n;
}

/* The greatest whole number whose square is not above n. */
inline uint64_t whole_root(uint64_t n)
{
    uint64_t root = 0;
    for (uint64_t bit = 1ull << 31; bit; bit >>= 1)
        if ((root + bit) * (root + bit) <= n)
            root += bit;
    return root;
}

/* Exact arithmetic modulo a prime that has roots of unity of every order 2^0 .. 2^23; 3 generates
 * its group. */
constexpr uint32_t PRIME = 998244353;

__host__ __device__ inline uint32_t modular_power(uint64_t base, uint64_t exponent)
{
    uint64_t result = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1)
            result = result * base % PRIME;
        base = base * base % PRIME;
    }
    return (uint32_t)result;
}

/* x -> factor * x + term modulo 2^64, and what t such steps are together. */
struct affine {
    uint64_t factor, term;

    __host__ __device__ uint64_t operator()(uint64_t x) const
    {
        return factor * x + term;
    }
    /* this one, and then the next */
    __host__ __device__ affine then(affine next) const
    {
        return {next.factor * factor, next.factor * term + next.term};
    }
    __host__ __device__ affine times(uint64_t t) const
    {
        affine result = {1, 0}, power = *this;
        for (; t; t >>= 1) {
            if (t & 1)
                result = result.then(power);
            power = power.then(power);
        }
        return result;
    }
};

/* ---- kernels ---- */

__device__ inline uint64_t thread_index()
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ inline uint64_t thread_count()
{
    return (uint64_t)gridDim.x * blockDim.x;
}

/* Blocks of 256 for a grid-stride loop over n. */
inline unsigned blocks_for(uint64_t n)
{
    uint64_t blocks = (n + 255) / 256;
    return blocks == 0 ? 1 : blocks > 8192 ? 8192 : (unsigned)blocks;
}

inline unsigned divide_up(uint64_t n, uint64_t by)
{
    return (unsigned)((n + by - 1) / by);
}

template <class F> __global__ void each_kernel(uint64_t n, F f)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count())
        f(i);
}

/* f(i) for all i < n. */
template <class F> void each(uint64_t n, F f, cudaStream_t stream = nullptr)
{
    each_kernel<<<blocks_for(n), 256, 0, stream>>>(n, f);
    CHECK(cudaGetLastError());
}

template <class F> __global__ void sum_kernel(uint64_t n, F f, unsigned long long *total)
{
    unsigned long long part = 0;
    for (uint64_t i = thread_index(); i < n; i += thread_count())
        part += f(i);
    for (int distance = 16; distance; distance /= 2)
        part += __shfl_down_sync(0xffffffffu, part, distance);
    if (threadIdx.x % 32 == 0)
        atomicAdd(total, part);
}

/* The sum of f(i) for all i < n, modulo 2^64. */
template <class F> uint64_t sum(uint64_t n, F f)
{
    unsigned long long *total = allocate<unsigned long long>(1), result;
    CHECK(cudaMemset(total, 0, sizeof(*total)));
    sum_kernel<<<blocks_for(n), 256>>>(n, f, total);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&result, total, sizeof(result), cudaMemcpyDeviceToHost));
    release(total);
    return result;
}

struct verdict {
    unsigned long long wrong, first;
};

template <class F> __global__ void verify_kernel(uint64_t n, F is_right, verdict *verdict)
{
    unsigned long long wrong = 0, first = ~0ull;
    for (uint64_t i = thread_index(); i < n; i += thread_count())
        if (!is_right(i) && wrong++ == 0)
            first = i;
    if (wrong) {
        atomicAdd(&verdict->wrong, wrong);
        atomicMin(&verdict->first, first);
    }
}

/* Fails unless is_right(i) for all i < n. */
template <class F> void verify(const char *what, uint64_t n, F is_right)
{
    verdict result = {0, ~0ull}, *found = allocate<verdict>(1);
    CHECK(cudaMemcpy(found, &result, sizeof(result), cudaMemcpyHostToDevice));
    verify_kernel<<<blocks_for(n), 256>>>(n, is_right, found);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&result, found, sizeof(result), cudaMemcpyDeviceToHost));
    release(found);
    if (result.wrong)
        fail("round %llu: %s: %llu of %llu wrong, the first at %llu",
             (unsigned long long)current.rounds, what, result.wrong, (unsigned long long)n,
             result.first);
}

/* Fails unless the two, one computed by the program and one in another way, are equal. */
inline void same(const char *what, uint64_t computed, uint64_t expected)
{
    if (computed != expected)
        fail("round %llu: %s: %llu instead of %llu", (unsigned long long)current.rounds, what,
             (unsigned long long)computed, (unsigned long long)expected);
}
