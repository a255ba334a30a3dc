/*
 * The transpose of a matrix and back, through 32 x 32 tiles in shared memory, in pitched memory; a
 * strip of it is copied out by a two-dimensional copy, changed by the CPU and copied back in.
 *
 * Every element is the generator's at its other place; the strip follows its own rule.
 */
#include "common.cuh"

constexpr unsigned TILE = 32, LINES = 8;
constexpr uint64_t COLUMNS = 5000, STRIP = 300, STRIP_WIDTH = 77;

__global__ void transpose(const uint32_t *from, uint64_t from_pitch, uint32_t *to,
                          uint64_t to_pitch, uint64_t rows, uint64_t columns)
{
    __shared__ uint32_t tile[TILE][TILE + 1];
    uint64_t x = (uint64_t)blockIdx.x * TILE + threadIdx.x,
             y = (uint64_t)blockIdx.y * TILE + threadIdx.y;
    for (unsigned line = 0; line < TILE; line += LINES)
        if (x < columns && y + line < rows)
            tile[threadIdx.y + line][threadIdx.x] = from[(y + line) * from_pitch + x];
    __syncthreads();
    x = (uint64_t)blockIdx.y * TILE + threadIdx.x;
    y = (uint64_t)blockIdx.x * TILE + threadIdx.y;
    for (unsigned line = 0; line < TILE; line += LINES)
        if (x < rows && y + line < columns)
            to[(y + line) * to_pitch + x] = tile[threadIdx.x][threadIdx.y + line];
}

struct matrix { /* pitch in elements */
    uint32_t *memory;
    uint64_t rows, columns, pitch;

    matrix(uint64_t height, uint64_t width) : rows(height), columns(width)
    {
        CHECK(cudaMallocPitch(&memory, &pitch, columns * sizeof(uint32_t), rows));
        pitch /= sizeof(uint32_t);
    }
    void becomes_transposed(const matrix &other)
    {
        transpose<<<dim3(divide_up(other.columns, TILE), divide_up(other.rows, TILE)),
                    dim3(TILE, LINES)>>>(other.memory, other.pitch, memory, pitch, other.rows,
                                         other.columns);
        CHECK(cudaGetLastError());
    }
};

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "transpose", 1024);
    const uint64_t rows = work.bytes() / (2 * sizeof(uint32_t) * COLUMNS), n = rows * COLUMNS;
    matrix upright(rows, COLUMNS), lying(COLUMNS, rows);
    const uint64_t width = std::min(STRIP_WIDTH, rows), bytes = width * sizeof(uint32_t);
    std::vector<uint32_t> strip(STRIP * width);
    uint32_t *const one = upright.memory, *const other = lying.memory;
    const uint64_t pitch = upright.pitch, other_pitch = lying.pitch;

    while (work.next()) {
        const uint64_t seed = mix(work.seed, work.rounds);
        each(n, [=] __device__(uint64_t i) {
            one[i / COLUMNS * pitch + i % COLUMNS] = (uint32_t)mix(seed, i);
        });
        lying.becomes_transposed(upright);
        verify("the transpose", n, [=] __device__(uint64_t i) {
            return other[i / rows * other_pitch + i % rows] ==
                   (uint32_t)mix(seed, i % rows * COLUMNS + i / rows);
        });
        /* the first elements of some rows of the transpose: columns of the matrix */
        const uint64_t first = mix(seed, n) % (COLUMNS - STRIP);
        uint32_t *strip_there = other + first * other_pitch;
        CHECK(cudaMemcpy2D(strip.data(), bytes, strip_there, other_pitch * sizeof(uint32_t), bytes,
                           STRIP, cudaMemcpyDeviceToHost));
        for (uint64_t i = 0; i < STRIP * width; i++) {
            same("the strip", strip[i],
                 (uint32_t)mix(seed, i % width * COLUMNS + first + i / width));
            strip[i] = ~strip[i];
        }
        CHECK(cudaMemcpy2D(strip_there, other_pitch * sizeof(uint32_t), strip.data(), bytes, bytes,
                           STRIP, cudaMemcpyHostToDevice));
        CHECK(cudaMemset2D(one, pitch * sizeof(uint32_t), 0, COLUMNS * sizeof(uint32_t), rows));
        upright.becomes_transposed(lying);
        verify("and back", n, [=] __device__(uint64_t i) {
            uint64_t row = i / COLUMNS, column = i % COLUMNS;
            bool is_in_strip = row < width && column >= first && column < first + STRIP;
            return one[row * pitch + column] ==
                   (uint32_t)(is_in_strip ? ~mix(seed, i) : mix(seed, i));
        });
    }
    release(upright.memory, lying.memory);
    return work.passed();
}
