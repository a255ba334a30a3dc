/*
 * The kernels of the test programs. Compiled once to kernels.ptx, which is committed, so that building the
 * tests needs no nvcc:
 *
 *     nvcc -ptx -arch=compute_75 -o kernels.ptx kernels.cu
 *
 * simcuda has a host version of each under the same name (tests/simcuda): the two must agree to the bit.
 * All are grid-stride: any grid and block does the whole work.
 */
#include <stdint.h>

__device__ static inline uint64_t gm_mix(uint64_t seed, uint64_t i)
{
    const uint64_t z = seed * 0xBF58476D1CE4E5B9ull + (i + 1) * 0x9E3779B97F4A7C15ull;
    return z ^ (z >> 32);
}

__device__ static inline uint64_t gm_first(void)
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ static inline uint64_t gm_stride(void)
{
    return (uint64_t)gridDim.x * blockDim.x;
}

/* p[i] = mix(seed, i) */
extern "C" __global__ void gm_fill(uint64_t *p, uint64_t n, uint64_t seed)
{
    for (uint64_t i = gm_first(); i < n; i += gm_stride())
        p[i] = gm_mix(seed, i);
}

/* *mismatches += how many p[i] are not mix(seed, i) */
extern "C" __global__ void gm_verify(const uint64_t *p, uint64_t n, uint64_t seed,
                                     unsigned long long *mismatches)
{
    unsigned long long bad = 0;
    for (uint64_t i = gm_first(); i < n; i += gm_stride())
        bad += p[i] != gm_mix(seed, i);
    if (bad)
        atomicAdd(mismatches, bad);
}

/* gm_verify, and then p[i] = mix(next, i): every byte read and written */
extern "C" __global__ void gm_verify_refill(uint64_t *p, uint64_t n, uint64_t seed, uint64_t next,
                                            unsigned long long *mismatches)
{
    unsigned long long bad = 0;
    for (uint64_t i = gm_first(); i < n; i += gm_stride()) {
        bad += p[i] != gm_mix(seed, i);
        p[i] = gm_mix(next, i);
    }
    if (bad)
        atomicAdd(mismatches, bad);
}

/* gm_verify of n words from p[first] on, as they are after gm_fill of all: the address says only which allocation. */
extern "C" __global__ void gm_verify_at(const uint64_t *p, uint64_t first, uint64_t n, uint64_t seed,
                                        unsigned long long *mismatches)
{
    unsigned long long bad = 0;
    for (uint64_t i = first + gm_first(); i < first + n; i += gm_stride())
        bad += p[i] != gm_mix(seed, i);
    if (bad)
        atomicAdd(mismatches, bad);
}

/* The same of gm_verify_refill. */
extern "C" __global__ void gm_verify_refill_at(uint64_t *p, uint64_t first, uint64_t n, uint64_t seed, uint64_t next,
                                               unsigned long long *mismatches)
{
    unsigned long long bad = 0;
    for (uint64_t i = first + gm_first(); i < first + n; i += gm_stride()) {
        bad += p[i] != gm_mix(seed, i);
        p[i] = gm_mix(next, i);
    }
    if (bad)
        atomicAdd(mismatches, bad);
}

/* gm_verify_refill of a piece of n words; which piece of p it is, only the table says. */
extern "C" __global__ void gm_verify_refill_in(uint64_t *p, const uint64_t *table, uint64_t k, uint64_t n, uint64_t seed,
                                               uint64_t next, unsigned long long *mismatches)
{
    unsigned long long bad = 0;
    p += table[k] * n;
    for (uint64_t i = gm_first(); i < n; i += gm_stride()) {
        bad += p[i] != gm_mix(seed, i);
        p[i] = gm_mix(next, i);
    }
    if (bad)
        atomicAdd(mismatches, bad);
}

/* gm_verify of what *cell points to: no argument says which memory that is. */
extern "C" __global__ void gm_verify_through(const uint64_t *const *cell, uint64_t n, uint64_t seed,
                                             unsigned long long *mismatches)
{
    const uint64_t *p = *cell;
    unsigned long long bad = 0;
    for (uint64_t i = gm_first(); i < n; i += gm_stride())
        bad += p[i] != gm_mix(seed, i);
    if (bad)
        atomicAdd(mismatches, bad);
}

/* c = a + b */
extern "C" __global__ void gm_vector_add(const float *a, const float *b, float *c, uint64_t n)
{
    for (uint64_t i = gm_first(); i < n; i += gm_stride())
        c[i] = a[i] + b[i];
}

/* c = a * b, n by n, row major; sums in order of k, without fused multiply-add */
extern "C" __global__ void gm_matmul(const float *a, const float *b, float *c, uint32_t n)
{
    for (uint64_t i = gm_first(); i < (uint64_t)n * n; i += gm_stride()) {
        uint32_t row = (uint32_t)(i / n), col = (uint32_t)(i % n);
        float sum = 0.0f;
        for (uint32_t k = 0; k < n; k++)
            sum = __fadd_rn(sum, __fmul_rn(a[(uint64_t)row * n + k], b[(uint64_t)k * n + col]));
        c[i] = sum;
    }
}

/* Runs for at least `ns`. */
extern "C" __global__ void gm_spin(uint64_t ns)
{
    uint64_t start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < ns);
}

/* Runs until somebody writes something else than 0 to *flag. */
extern "C" __global__ void gm_spin_until(volatile uint32_t *flag)
{
    while (*flag == 0)
        ;
}

/* p[i] += 1 */
extern "C" __global__ void gm_sweep(uint64_t *p, uint64_t n)
{
    for (uint64_t i = gm_first(); i < n; i += gm_stride())
        p[i] += 1;
}

/*
 * Until *flag is not 0, but at most `most` times: each of n threads adds one to a word of its own,
 * p[i * stride], after it has looked whether it still is what the thread wrote last. *steps is what
 * the first one wrote. n is a multiple of the block's size.
 */
extern "C" __global__ void gm_count(uint64_t *p, uint64_t n, uint64_t stride,
                                    const volatile uint32_t *flag, uint64_t most,
                                    volatile uint64_t *steps, unsigned long long *mismatches)
{
    __shared__ uint32_t is_ended;
    const uint64_t i = gm_first();
    volatile uint64_t *at = p + i * stride;
    if (i >= n)
        return;
    unsigned long long bad = 0;
    uint64_t value = *at;
    for (uint64_t k = 0; k < most; k++) {
        if (threadIdx.x == 0) /* the flag is host memory: one thread asks for all */
            is_ended = *flag;
        __syncthreads();
        if (is_ended)
            break;
        bad += *at != value;
        *at = ++value;
        if (i == 0)
            *steps = value;
        __syncthreads();
    }
    if (bad)
        atomicAdd(mismatches, bad);
}

extern "C" __global__ void gm_empty(void)
{
}
