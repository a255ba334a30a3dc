/*
 * Products of one sparse matrix (compressed rows of 1 to 31 elements) with a new vector each round,
 * eight lanes a row.
 *
 * The numbers are small and whole, so that sums in float are exact; each is recomputed from the
 * generator in integers.
 */
#include "common.cuh"

constexpr unsigned LANES = 8;

struct sparse {
    uint64_t seed;
    uint32_t n;

    __host__ __device__ unsigned length(uint64_t row) const
    {
        return 1 + (unsigned)(mix(seed, row) % 31);
    }
    /* Mostly near the diagonal. */
    __host__ __device__ uint32_t column(uint64_t row, unsigned i) const
    {
        uint64_t random = mix(seed + 1, row * 32 + i);
        return (uint32_t)((random & 7 ? row + (random >> 32) % 1000 : random >> 3) % n);
    }
    __host__ __device__ int value(uint64_t row, unsigned i) const
    {
        return (int)(mix(seed + 2, row * 32 + i) % 19) - 9;
    }
};

__device__ static int element(uint64_t seed, uint64_t i)
{
    return (int)(mix(seed, i) & 1023) - 512;
}

__global__ void multiply(const uint64_t *begins, const uint32_t *columns, const float *values,
                         const float *vector, float *result, uint64_t n)
{
    uint64_t row = thread_index() / LANES;
    unsigned lane = threadIdx.x % LANES;
    float total = 0;
    if (row < n)
        for (uint64_t i = begins[row] + lane; i < begins[row + 1]; i += LANES)
            total += values[i] * vector[columns[i]];
    for (unsigned distance = LANES / 2; distance; distance /= 2)
        total += __shfl_down_sync(0xffffffffu, total, distance, LANES);
    if (row < n && lane == 0)
        result[row] = total;
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "spmv", 768);
    const uint64_t n = work.bytes() / (16 * (sizeof(uint32_t) + sizeof(float)) + 16);
    const sparse matrix = {work.seed, (uint32_t)n};
    std::vector<uint64_t> sums(n + 1, 0);
    for (uint64_t row = 0; row < n; row++)
        sums[row + 1] = sums[row] + matrix.length(row);
    uint64_t *begins = allocate<uint64_t>(n + 1);
    uint32_t *columns = allocate<uint32_t>(sums[n]);
    float *values = allocate<float>(sums[n]), *vector = allocate<float>(n),
          *result = allocate<float>(n);
    upload(begins, sums);
    each(n, [=] __device__(uint64_t row) {
        for (unsigned i = 0; i < matrix.length(row); i++) {
            columns[begins[row] + i] = matrix.column(row, i);
            values[begins[row] + i] = (float)matrix.value(row, i);
        }
    });

    while (work.next()) {
        const uint64_t seed = mix(work.seed, ~work.rounds);
        each(n, [=] __device__(uint64_t i) { vector[i] = (float)element(seed, i); });
        multiply<<<divide_up(n * LANES, 256), 256>>>(begins, columns, values, vector, result, n);
        CHECK(cudaGetLastError());
        verify("the matrix", n, [=] __device__(uint64_t row) {
            bool is_right = begins[row + 1] - begins[row] == matrix.length(row);
            for (unsigned i = 0; i < matrix.length(row) && is_right; i++)
                is_right = columns[begins[row] + i] == matrix.column(row, i) &&
                           values[begins[row] + i] == (float)matrix.value(row, i);
            return is_right;
        });
        verify("the product", n, [=] __device__(uint64_t row) {
            int expected = 0;
            for (unsigned i = 0; i < matrix.length(row); i++)
                expected += matrix.value(row, i) * element(seed, matrix.column(row, i));
            return result[row] == (float)expected;
        });
    }
    release(begins, columns, values, vector, result);
    return work.passed();
}
