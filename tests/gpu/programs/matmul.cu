/*
 * The product of two square matrices in float, tiles of 64 x 64 through shared memory, 4 x 4
 * elements a thread.
 *
 * The elements are whole numbers from -8 to 7, so that all sums are exact. Proved with a random
 * vector r (Freivalds): C r from the result must be A (B r) with A and B from the generator, in
 * 64-bit integers.
 */
#include "common.cuh"

constexpr unsigned TILE = 64, DEEP = 16, SIDE = 16; /* threads: SIDE x SIDE */

__device__ static int element(uint64_t seed, uint64_t i)
{
    return (int)(mix(seed, i) & 15) - 8;
}

__global__ void multiply(const float *a, const float *b, float *c, uint64_t n)
{
    __shared__ float of_a[DEEP][TILE + 1], of_b[DEEP][TILE];
    uint64_t row = (uint64_t)blockIdx.y * TILE, column = (uint64_t)blockIdx.x * TILE;
    unsigned x = threadIdx.x, y = threadIdx.y, me = y * SIDE + x;
    float sum[4][4] = {};
    for (uint64_t k = 0; k < n; k += DEEP) {
        for (unsigned i = me; i < TILE * DEEP; i += SIDE * SIDE) {
            of_a[i % DEEP][i / DEEP] = a[(row + i / DEEP) * n + k + i % DEEP];
            of_b[i / TILE][i % TILE] = b[(k + i / TILE) * n + column + i % TILE];
        }
        __syncthreads();
        for (unsigned d = 0; d < DEEP; d++) {
            float left[4], right[4];
            for (unsigned i = 0; i < 4; i++) {
                left[i] = of_a[d][y + i * SIDE];
                right[i] = of_b[d][x + i * SIDE];
            }
            for (unsigned i = 0; i < 4; i++)
                for (unsigned j = 0; j < 4; j++)
                    sum[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
    for (unsigned i = 0; i < 4; i++)
        for (unsigned j = 0; j < 4; j++)
            c[(row + y + i * SIDE) * n + column + x + j * SIDE] = sum[i][j];
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "matmul", 768);
    const uint64_t n = whole_root(work.bytes() / (3 * sizeof(float))) / TILE * TILE,
                   seed = work.seed;
    float *a = allocate<float>(n * n), *b = allocate<float>(n * n), *c = allocate<float>(n * n);
    int64_t *product = allocate<int64_t>(n);
    each(n * n, [=] __device__(uint64_t i) { a[i] = (float)element(seed, i); });

    while (work.next()) {
        const uint64_t seed_b = mix(seed, work.rounds);
        each(n * n, [=] __device__(uint64_t i) { b[i] = (float)element(seed_b, i); });
        multiply<<<dim3((unsigned)(n / TILE), (unsigned)(n / TILE)), dim3(SIDE, SIDE)>>>(a, b, c,
                                                                                         n);
        CHECK(cudaGetLastError());

        auto random = [=] __device__(uint64_t i) -> int64_t {
            return (int64_t)(mix(~seed_b, i) & 0xffff);
        };
        each(n, [=] __device__(uint64_t row) {
            int64_t total = 0;
            for (uint64_t column = 0; column < n; column++)
                total += element(seed_b, row * n + column) * random(column);
            product[row] = total;
        });
        verify("the factors", n * n, [=] __device__(uint64_t i) {
            return a[i] == (float)element(seed, i) && b[i] == (float)element(seed_b, i);
        });
        verify("C r against A (B r)", n, [=] __device__(uint64_t row) {
            int64_t expected = 0, found = 0;
            for (uint64_t column = 0; column < n; column++) {
                expected += element(seed, row * n + column) * product[column];
                found += (int64_t)c[row * n + column] * random(column);
            }
            return found == expected;
        });
    }
    release(a, b, c, product);
    return work.passed();
}
