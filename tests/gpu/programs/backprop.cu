/*
 * Back-propagation in a network with millions of inputs, 16 hidden units and one output: a few
 * steps from new random weights each round, in whole numbers.
 *
 * The weights are proved in a closed form: a step adds to each the product of its input and its
 * unit's delta, so that every weight is known from the generator and the short list of deltas. The
 * hidden sums of each step are proved with the weights in that form.
 */
#include "common.cuh"

constexpr unsigned HIDDEN = 16;
constexpr int STEPS = 6;

struct deltas {
    int of[STEPS][HIDDEN];
};

/* A weight before the first step. */
__host__ __device__ static int first_weight(uint64_t seed, uint64_t i)
{
    return (int)(mix(seed, i) & 0xffff) - 0x8000;
}

/* 0 to 255 */
__device__ static int input_of(uint64_t seed, int step, uint64_t i)
{
    return (int)(mix(seed + 1 + (uint64_t)step, i) & 255);
}

/* sums[unit] += input * weight; the unit is the fast index. */
__global__ void forward(const int *weights, const unsigned char *inputs, uint64_t n,
                        unsigned long long *sums)
{
    __shared__ long long part[256];
    long long total = 0;
    for (uint64_t i = thread_index(); i < n * HIDDEN; i += thread_count())
        total += (long long)weights[i] * inputs[i / HIDDEN];
    part[threadIdx.x] = total;
    __syncthreads();
    for (unsigned half = 128; half >= HIDDEN; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x < HIDDEN)
        atomicAdd(&sums[threadIdx.x], (unsigned long long)part[threadIdx.x]);
}

__global__ void adjust(int *weights, const unsigned char *inputs, uint64_t n, const int *delta)
{
    __shared__ int own[HIDDEN];
    if (threadIdx.x < HIDDEN)
        own[threadIdx.x] = delta[threadIdx.x];
    __syncthreads();
    for (uint64_t i = thread_index(); i < n * HIDDEN; i += thread_count())
        weights[i] += own[i % HIDDEN] * inputs[i / HIDDEN];
}

/* The hidden deltas: the output's error, through the second layer and the slope of the squashing
 * function. */
static void learn(const long long *sums, uint64_t n, int target, int *second, int *delta)
{
    int hidden[HIDDEN], error = target;
    for (unsigned j = 0; j < HIDDEN; j++) {
        long long level = sums[j] / (long long)(whole_root(n) * 64);
        hidden[j] = (int)std::clamp(level, -1000ll, 1000ll);
        error -= hidden[j] * second[j] / 1024;
    }
    for (unsigned j = 0; j < HIDDEN; j++) {
        int slope = 1024 - abs(hidden[j]) / 2;
        delta[j] = std::clamp((int)((long long)error * second[j] * slope >> 20), -300, 300);
        second[j] = std::clamp(second[j] + error * hidden[j] / 65536, -4096, 4096);
    }
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "backprop", 768);
    const uint64_t n = work.bytes() / (HIDDEN * sizeof(int) + 1);
    int *weights = allocate<int>(n * HIDDEN), *delta = allocate<int>(HIDDEN);
    unsigned char *inputs = allocate<unsigned char>(n);
    unsigned long long *sums_there = allocate<unsigned long long>(HIDDEN);

    while (work.next()) {
        const uint64_t seed = mix(work.seed, work.rounds);
        deltas known = {};
        long long sums[STEPS][HIDDEN];
        int second[HIDDEN];
        for (unsigned j = 0; j < HIDDEN; j++)
            second[j] = first_weight(~seed, j) / 16;
        each(n * HIDDEN, [=] __device__(uint64_t i) { weights[i] = first_weight(seed, i); });
        for (int step = 0; step < STEPS; step++) {
            each(n, [=] __device__(uint64_t i) {
                inputs[i] = (unsigned char)input_of(seed, step, i);
            });
            CHECK(cudaMemset(sums_there, 0, HIDDEN * sizeof(*sums_there)));
            forward<<<blocks_for(n), 256>>>(weights, inputs, n, sums_there);
            CHECK(cudaGetLastError());
            CHECK(cudaMemcpy(sums[step], sums_there, sizeof(sums[step]), cudaMemcpyDeviceToHost));
            learn(sums[step], n, 3000 - 1000 * step, second, known.of[step]);
            CHECK(
                cudaMemcpy(delta, known.of[step], sizeof(known.of[step]), cudaMemcpyHostToDevice));
            adjust<<<blocks_for(n), 256>>>(weights, inputs, n, delta);
            CHECK(cudaGetLastError());
        }
        auto weight_after = [=] __device__(int steps, uint64_t i) -> int64_t {
            int64_t weight = first_weight(seed, i);
            for (int step = 0; step < steps; step++)
                weight += (int64_t)known.of[step][i % HIDDEN] * input_of(seed, step, i / HIDDEN);
            return weight;
        };
        verify("the weights", n * HIDDEN,
               [=] __device__(uint64_t i) { return weights[i] == weight_after(STEPS, i); });
        for (int step = 0; step < STEPS; step++) {
            uint64_t expected = 0; /* a random combination of the units */
            for (unsigned j = 0; j < HIDDEN; j++)
                expected += mix(seed, ~(uint64_t)j) * (uint64_t)sums[step][j];
            uint64_t found = sum(n * HIDDEN, [=] __device__(uint64_t i) -> uint64_t {
                return mix(seed, ~(i % HIDDEN)) *
                       (uint64_t)(weight_after(step, i) * input_of(seed, step, i / HIDDEN));
            });
            same("a step's hidden sums", found, expected);
        }
    }
    release(weights, delta, inputs, sums_there);
    return work.passed();
}
