/*
 * LU decomposition of one dense matrix in double, right-looking, in tiles of 32, without row
 * exchanges: the matrix is diagonally dominant.
 *
 * Proved with a random vector r (Freivalds): L (U r) from the result must be A r with A from the
 * generator. The elements are up to 0.5, n on the diagonal; the tolerance is 1e-12 of that n.
 */
#include "common.cuh"

constexpr unsigned T = 32;

__device__ static double element(uint64_t seed, uint64_t n, uint64_t row, uint64_t column)
{
    double random =
        (double)(int64_t)(mix(seed, row * n + column) >> 12) / (double)(1ull << 52) - 0.5;
    return row == column ? (double)n + random : random;
}

/* The tile on the diagonal at k: its L below, its U above. */
__global__ void factor_diagonal(double *matrix, uint64_t n, uint64_t k)
{
    __shared__ double tile[T][T + 1];
    unsigned x = threadIdx.x, y = threadIdx.y;
    tile[y][x] = matrix[(k + y) * n + k + x];
    __syncthreads();
    for (unsigned i = 0; i + 1 < T; i++) {
        if (x == i && y > i)
            tile[y][i] /= tile[i][i];
        __syncthreads();
        if (x > i && y > i)
            tile[y][x] -= tile[y][i] * tile[i][x];
        __syncthreads();
    }
    matrix[(k + y) * n + k + x] = tile[y][x];
}

/* Even blocks: a tile right of the diagonal becomes U. Odd: one below it becomes L. */
__global__ void factor_panels(double *matrix, uint64_t n, uint64_t k)
{
    __shared__ double diagonal[T][T + 1], tile[T][T + 1];
    unsigned x = threadIdx.x, y = threadIdx.y;
    bool is_right = blockIdx.x % 2 == 0;
    uint64_t other = k + T * (1 + blockIdx.x / 2);
    double *at = is_right ? matrix + k * n + other : matrix + other * n + k;
    diagonal[y][x] = matrix[(k + y) * n + k + x];
    tile[y][x] = at[y * n + x];
    __syncthreads();
    for (unsigned i = 0; i < T; i++) {
        if (is_right) { /* row i is done */
            if (y > i)
                tile[y][x] -= diagonal[y][i] * tile[i][x];
        } else { /* column i is nearly done */
            if (x == i)
                tile[y][i] /= diagonal[i][i];
            __syncthreads();
            if (x > i)
                tile[y][x] -= tile[y][i] * diagonal[i][x];
        }
        __syncthreads();
    }
    at[y * n + x] = tile[y][x];
}

/* The rest: minus the product of its L and its U tile. Four rows a thread. */
__global__ void update_rest(double *matrix, uint64_t n, uint64_t k)
{
    __shared__ double left[T][T], upper[T][T];
    unsigned x = threadIdx.x;
    uint64_t row = k + T * (1 + blockIdx.y), column = k + T * (1 + blockIdx.x);
    double sum[4] = {};
    for (unsigned y = threadIdx.y; y < T; y += T / 4) {
        left[y][x] = matrix[(row + y) * n + k + x];
        upper[y][x] = matrix[(k + y) * n + column + x];
    }
    __syncthreads();
    for (unsigned i = 0; i < T; i++)
        for (unsigned j = 0; j < 4; j++)
            sum[j] += left[threadIdx.y + j * T / 4][i] * upper[i][x];
    for (unsigned j = 0; j < 4; j++)
        matrix[(row + threadIdx.y + j * T / 4) * n + column + x] -= sum[j];
}

/* out = L in or U in; a warp a row. */
__global__ void multiply(const double *matrix, uint64_t n, bool is_lower, const double *in,
                         double *out)
{
    uint64_t row = thread_index() / 32, lane = threadIdx.x % 32;
    double total = 0;
    if (row < n)
        for (uint64_t column = lane; column < n; column += 32) {
            double value = is_lower == (column < row) ? matrix[row * n + column] : 0;
            total += (is_lower && column == row ? 1 : value) * in[column];
        }
    for (int distance = 16; distance; distance /= 2)
        total += __shfl_down_sync(0xffffffffu, total, distance);
    if (row < n && lane == 0)
        out[row] = total;
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "lu", 512);
    const uint64_t n = whole_root(work.bytes() / sizeof(double)) / T * T;
    double *matrix = allocate<double>(n * n), *vector = allocate<double>(n);
    double *product = allocate<double>(n), *result = allocate<double>(n);

    while (work.next()) {
        const uint64_t seed = mix(work.seed, work.rounds);
        each(n * n, [=] __device__(uint64_t i) { matrix[i] = element(seed, n, i / n, i % n); });
        for (uint64_t k = 0; k < n; k += T) {
            unsigned left = (unsigned)((n - k) / T - 1);
            factor_diagonal<<<1, dim3(T, T)>>>(matrix, n, k);
            if (left > 0) {
                factor_panels<<<2 * left, dim3(T, T)>>>(matrix, n, k);
                update_rest<<<dim3(left, left), dim3(T, T / 4)>>>(matrix, n, k);
            }
            CHECK(cudaGetLastError());
        }
        each(n, [=] __device__(uint64_t i) { vector[i] = element(~seed, n, 0, i + 1); });
        multiply<<<divide_up(n, 8), 256>>>(matrix, n, false, vector, product);
        multiply<<<divide_up(n, 8), 256>>>(matrix, n, true, product, result);
        CHECK(cudaGetLastError());
        verify("L U r against A r", n, [=] __device__(uint64_t row) {
            double expected = 0;
            for (uint64_t column = 0; column < n; column++)
                expected += element(seed, n, row, column) * vector[column];
            return fabs(expected - result[row]) <= 1e-12 * (double)n;
        });
    }
    release(matrix, vector, product, result);
    return work.passed();
}
