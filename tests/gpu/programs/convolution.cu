/*
 * A 9 x 9 convolution of a large image, tiles with their border in shared memory, the filter in
 * constant memory; a new filter each round.
 *
 * Pixels and filter are small whole numbers in float: sums are exact, and every pixel is recomputed
 * from the generator in integers.
 */
#include "common.cuh"

constexpr unsigned WIDTH = 8192, RADIUS = 4, SIDE = 2 * RADIUS + 1;
constexpr unsigned TX = 32, TY = 16;

__constant__ float filter[SIDE][SIDE];

__device__ static int pixel(uint64_t seed, uint64_t i)
{
    return (int)(mix(seed, i) & 255);
}

__host__ __device__ static int weight(uint64_t seed, unsigned i)
{
    return (int)(mix(seed, i) % 17) - 8;
}

__global__ void convolve(const float *image, float *result, unsigned height)
{
    __shared__ float tile[TY + 2 * RADIUS][TX + 2 * RADIUS];
    int left = (int)(blockIdx.x * TX) - (int)RADIUS, top = (int)(blockIdx.y * TY) - (int)RADIUS;
    for (unsigned y = threadIdx.y; y < TY + 2 * RADIUS; y += TY)
        for (unsigned x = threadIdx.x; x < TX + 2 * RADIUS; x += TX) {
            int column = left + (int)x, row = top + (int)y;
            bool is_inside = column >= 0 && column < (int)WIDTH && row >= 0 && row < (int)height;
            tile[y][x] = is_inside ? image[(uint64_t)row * WIDTH + column] : 0;
        }
    __syncthreads();
    unsigned x = blockIdx.x * TX + threadIdx.x, y = blockIdx.y * TY + threadIdx.y;
    float sum = 0;
    for (unsigned v = 0; v < SIDE; v++)
        for (unsigned u = 0; u < SIDE; u++)
            sum += filter[v][u] * tile[threadIdx.y + v][threadIdx.x + u];
    if (y < height)
        result[(uint64_t)y * WIDTH + x] = sum;
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "convolution", 1024);
    const unsigned height = (unsigned)(work.bytes() / (2 * sizeof(float) * WIDTH));
    const uint64_t pixels = (uint64_t)height * WIDTH, seed = work.seed;
    float *image = allocate<float>(pixels), *result = allocate<float>(pixels);
    each(pixels, [=] __device__(uint64_t i) { image[i] = (float)pixel(seed, i); });

    while (work.next()) {
        const uint64_t of_filter = mix(seed, work.rounds);
        float weights[SIDE][SIDE];
        for (unsigned i = 0; i < SIDE * SIDE; i++)
            weights[i / SIDE][i % SIDE] = (float)weight(of_filter, i);
        CHECK(cudaMemcpyToSymbol(filter, weights, sizeof(weights)));
        convolve<<<dim3(WIDTH / TX, divide_up(height, TY)), dim3(TX, TY)>>>(image, result, height);
        CHECK(cudaGetLastError());
        verify("the image", pixels,
               [=] __device__(uint64_t i) { return image[i] == (float)pixel(seed, i); });
        verify("the result", pixels, [=] __device__(uint64_t i) {
            int64_t x = (int64_t)(i % WIDTH), y = (int64_t)(i / WIDTH);
            int expected = 0;
            for (int v = -(int)RADIUS; v <= (int)RADIUS; v++)
                for (int u = -(int)RADIUS; u <= (int)RADIUS; u++)
                    if (x + u >= 0 && x + u < WIDTH && y + v >= 0 && y + v < height)
                        expected += pixel(seed, (uint64_t)((y + v) * WIDTH + x + u)) *
                                    weight(of_filter, (unsigned)((v + (int)RADIUS) * (int)SIDE + u +
                                                                 (int)RADIUS));
            return result[i] == (float)expected;
        });
    }
    release(image, result);
    return work.passed();
}
