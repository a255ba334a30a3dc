/*
 * What the kernels of bench/mix.cu compute for one element: C that nvcc and the C compiler both
 * take. simcuda's host versions of those kernels (tests/simcuda/kernels.c) call the same functions.
 *
 * A GPU and a processor round functions such as expf differently: results are compared with results
 * of the same machine only.
 */
#ifndef GM_BENCH_MIX_MATH_H
#define GM_BENCH_MIX_MATH_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define GM_MIX __host__ __device__ static inline
#else
#define GM_MIX static inline
#endif

#define GM_MIX_FEATURES 64 /* of a row that is classified */
#define GM_MIX_CLASSES 10
#define GM_MIX_FILTERS 8 /* of a convolution, 3 by 3 each */
#define GM_MIX_WEIGHTS (GM_MIX_FEATURES * GM_MIX_CLASSES)

enum { GM_MIX_RELU, GM_MIX_SIGMOID, GM_MIX_TANH, GM_MIX_GELU };

/* The i-th of a stream of pseudo-random numbers from 0 to 1. */
GM_MIX float gm_mix_random(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    return (float)(z >> 40) / 16777216.0f;
}

/* The normal distribution, by Hull's polynomial. */
GM_MIX float gm_mix_normal(float d)
{
    const float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    const float tail =
        k * (0.31938153f +
             k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
    const float p = 0.39894228f * expf(-0.5f * d * d) * tail;
    return d > 0 ? 1.0f - p : p;
}

/* Black and Scholes: a call on a share of 50 to 100, at 75, for a year. */
GM_MIX float gm_mix_price(float x)
{
    const float spot = 50.0f + 50.0f * x, strike = 75.0f, rate = 0.03f, volatility = 0.25f;
    const float d1 = (logf(spot / strike) + rate + 0.5f * volatility * volatility) / volatility;
    const float d2 = d1 - volatility;
    return spot * gm_mix_normal(d1) - strike * expf(-rate) * gm_mix_normal(d2);
}

GM_MIX float gm_mix_activation(float x, uint32_t which)
{
    const float v = 4.0f * x - 2.0f;
    switch (which) {
    case GM_MIX_RELU:
        return v > 0 ? v : 0;
    case GM_MIX_SIGMOID:
        return 1.0f / (1.0f + expf(-v));
    case GM_MIX_TANH:
        return tanhf(v);
    default:
        return 0.5f * v * (1.0f + erff(v * 0.70710678f));
    }
}

/* The value beside element i of an image of n elements; at the borders the nearest that there is.
 */
GM_MIX float gm_mix_beside(const float *x, uint64_t i, uint64_t n, uint32_t width, int dx, int dy)
{
    const int64_t at = (int64_t)i + (int64_t)dy * (int64_t)width + dx;
    return x[at < 0 ? 0 : at >= (int64_t)n ? (int64_t)n - 1 : at];
}

GM_MIX float gm_mix_blur(const float *x, uint64_t i, uint64_t n, uint32_t width)
{
    float sum = 0;
    for (int dy = -2; dy <= 2; dy++)
        for (int dx = -2; dx <= 2; dx++)
            sum += gm_mix_beside(x, i, n, width, dx, dy);
    return sum / 25.0f;
}

/* Sobel. */
GM_MIX float gm_mix_edges(const float *x, uint64_t i, uint64_t n, uint32_t width)
{
    float across = 0, down = 0;
    for (int k = -1; k <= 1; k++) {
        const float weight = k == 0 ? 2.0f : 1.0f;
        across +=
            weight * (gm_mix_beside(x, i, n, width, 1, k) - gm_mix_beside(x, i, n, width, -1, k));
        down +=
            weight * (gm_mix_beside(x, i, n, width, k, 1) - gm_mix_beside(x, i, n, width, k, -1));
    }
    return sqrtf(across * across + down * down);
}

/* The strongest of the filters, each with a rectifier. `weights`: FILTERS times 9. */
GM_MIX float gm_mix_convolve(const float *x, uint64_t i, uint64_t n, uint32_t width,
                             const float *weights)
{
    float best = 0;
    for (int f = 0; f < GM_MIX_FILTERS; f++) {
        float sum = 0;
        for (int k = 0; k < 9; k++)
            sum += weights[9 * f + k] * gm_mix_beside(x, i, n, width, k % 3 - 1, k / 3 - 1);
        best = sum > best ? sum : best;
    }
    return best;
}

/* The best class's score of a row. `weights`: CLASSES for each feature. */
GM_MIX float gm_mix_score(const float *row, const float *weights)
{
    float sums[GM_MIX_CLASSES] = {0};
    for (int f = 0; f < GM_MIX_FEATURES; f++)
        for (int c = 0; c < GM_MIX_CLASSES; c++)
            sums[c] += row[f] * weights[GM_MIX_CLASSES * f + c];
    float best = sums[0];
    for (int c = 1; c < GM_MIX_CLASSES; c++)
        best = sums[c] > best ? sums[c] : best;
    return best;
}

/* The greatest of four that lie beside each other. */
GM_MIX float gm_mix_pool(const float *four)
{
    const float a = four[0] > four[1] ? four[0] : four[1];
    const float b = four[2] > four[3] ? four[2] : four[3];
    return a > b ? a : b;
}

/* Sums of whole numbers are the same in any order. */
GM_MIX uint64_t gm_mix_whole(float x)
{
    return (uint64_t)(int64_t)(x * 65536.0f);
}

#endif
