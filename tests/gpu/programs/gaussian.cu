/*
 * Gaussian elimination with row exchanges and back substitution: many dense systems of 512
 * unknowns, one block a system, in exact arithmetic modulo a prime.
 *
 * The right sides are made from solutions that the generator knows: all must come out. (That one of
 * the random matrices is singular has a chance of about 1e-9.)
 */
#include "common.cuh"

constexpr unsigned N = 512, ROW = N + 1; /* the right side is the last column */
constexpr unsigned TX = 32, TY = 16;

/* Zero in the upper left, so that the pivots have to be looked for. */
__device__ static uint32_t element(uint64_t seed, uint64_t system, unsigned row, unsigned column)
{
    return row + column < N / 2 ? 0
                                : (uint32_t)(mix(seed, (system * N + row) * N + column) % PRIME);
}

__device__ static uint32_t unknown(uint64_t seed, uint64_t i)
{
    return (uint32_t)(mix(~seed, i) % PRIME);
}

__global__ void solve(uint32_t *systems, uint32_t *solutions)
{
    __shared__ unsigned pivot;
    __shared__ uint32_t inverse, factor[N];
    uint32_t *matrix = systems + (uint64_t)blockIdx.x * N * ROW;
    unsigned me = threadIdx.y * TX + threadIdx.x; /* one of N threads */
    for (unsigned k = 0; k < N; k++) {
        if (me == 0)
            pivot = N - 1; /* of a singular matrix: the solution will be wrong */
        __syncthreads();
        if (me >= k && matrix[me * ROW + k] != 0)
            atomicMin(&pivot, me);
        __syncthreads();
        if (me == 0)
            inverse = modular_power(matrix[pivot * ROW + k], PRIME - 2);
        __syncthreads();
        for (unsigned column = k + me; column < ROW; column += N) {
            uint32_t upper = matrix[pivot * ROW + column];
            matrix[pivot * ROW + column] = matrix[k * ROW + column];
            matrix[k * ROW + column] = (uint32_t)((uint64_t)upper * inverse % PRIME);
        }
        __syncthreads();
        factor[me] = me > k ? PRIME - matrix[me * ROW + k] : 0;
        __syncthreads();
        for (unsigned row = k + 1 + threadIdx.y; row < N; row += TY)
            for (unsigned column = k + threadIdx.x; column < ROW; column += TX) {
                uint64_t value = matrix[row * ROW + column];
                value += (uint64_t)factor[row] * matrix[k * ROW + column];
                matrix[row * ROW + column] = (uint32_t)(value % PRIME);
            }
        __syncthreads();
    }
    for (unsigned k = N - 1; k > 0; k--) {
        if (me < k) {
            uint64_t product = (uint64_t)matrix[me * ROW + k] * matrix[k * ROW + N] % PRIME;
            matrix[me * ROW + N] = (uint32_t)((matrix[me * ROW + N] + PRIME - product) % PRIME);
        }
        __syncthreads();
    }
    solutions[(uint64_t)blockIdx.x * N + me] = matrix[me * ROW + N];
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "gaussian", 512, 2);
    const uint64_t count = work.bytes() / (sizeof(uint32_t) * N * (ROW + 1));
    uint32_t *systems = allocate<uint32_t>(count * N * ROW),
             *solutions = allocate<uint32_t>(count * N);

    while (work.next()) {
        const uint64_t seed = mix(work.seed, work.rounds);
        each(count * N * N, [=] __device__(uint64_t i) {
            systems[i / N * ROW + i % N] =
                element(seed, i / N / N, (unsigned)(i / N % N), (unsigned)(i % N));
        });
        each(count * N, [=] __device__(uint64_t i) {
            uint64_t right = 0;
            for (unsigned column = 0; column < N; column++)
                right += (uint64_t)element(seed, i / N, (unsigned)(i % N), column) *
                         unknown(seed, i / N * N + column) % PRIME;
            systems[i * ROW + N] = (uint32_t)(right % PRIME);
        });
        solve<<<(unsigned)count, dim3(TX, TY)>>>(systems, solutions);
        CHECK(cudaGetLastError());
        verify("the solutions", count * N,
               [=] __device__(uint64_t i) { return solutions[i] == unknown(seed, i); });
    }
    release(systems, solutions);
    return work.passed();
}
