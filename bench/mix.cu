/*
 * The kernels of bench/mix.c. Compiled once to mix.ptx, which is committed, so that building needs no nvcc:
 *
 *     nvcc -ptx -arch=compute_75 -I. -o bench/mix.ptx bench/mix.cu
 *
 * simcuda has a host version of each under the same name (tests/simcuda/kernels.c). All are grid-stride, and all have
 * the same parameters: from x to y, n elements, and what else they need to know.
 */
#include "bench/mix_math.h"

#define KERNEL(name) extern "C" __global__ void gm_mix_##name(const float *x, float *y, uint64_t n, uint32_t what)
#define EACH(i, n)                                                                                                     \
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x)

/* x is not read */
KERNEL(start)
{
    EACH(i, n)
        y[i] = gm_mix_random(what, i);
}

KERNEL(square)
{
    EACH(i, n)
        y[i] = x[i] * x[i];
}

KERNEL(price)
{
    EACH(i, n)
        y[i] = gm_mix_price(x[i]);
}

/* what: which function */
KERNEL(activate)
{
    EACH(i, n)
        y[i] = gm_mix_activation(x[i], what);
}

/* what: the width of the image, here and below */
KERNEL(blur)
{
    EACH(i, n)
        y[i] = gm_mix_blur(x, i, n, what);
}

KERNEL(edges)
{
    EACH(i, n)
        y[i] = gm_mix_edges(x, i, n, what);
}

KERNEL(blend)
{
    EACH(i, n)
        y[i] = 0.5f * (x[i] + y[i]);
}

KERNEL(convolve)
{
    __shared__ float weights[9 * GM_MIX_FILTERS];
    for (uint32_t i = threadIdx.x; i < 9 * GM_MIX_FILTERS; i += blockDim.x)
        weights[i] = gm_mix_random(what, i) - 0.4f;
    __syncthreads();
    EACH(i, n)
        y[i] = gm_mix_convolve(x, i, n, what, weights);
}

/* x has four times as many */
KERNEL(pool)
{
    EACH(i, n)
        y[i] = gm_mix_pool(x + 4 * i);
}

/* x has n rows; what: which weights */
KERNEL(score)
{
    __shared__ float weights[GM_MIX_WEIGHTS];
    for (uint32_t i = threadIdx.x; i < GM_MIX_WEIGHTS; i += blockDim.x)
        weights[i] = gm_mix_random(what, i) - 0.5f;
    __syncthreads();
    EACH(i, n)
        y[i] = gm_mix_score(x + GM_MIX_FEATURES * i, weights);
}

/* y is one number of 64 bits, to which the sum of x is added; blocks of 512 threads at most */
KERNEL(reduce)
{
    __shared__ unsigned long long sums[512];
    unsigned long long sum = 0;
    EACH(i, n)
        sum += gm_mix_whole(x[i]);
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (uint32_t half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicAdd((unsigned long long *)y, sums[0]);
}
