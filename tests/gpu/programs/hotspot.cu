/*
 * The temperature of a chip: each cell takes up its power, exchanges with its four neighbours and
 * cools. Tiles of 32 x 32 in shared memory do two steps a launch, with a border that is computed
 * twice.
 *
 * A plain kernel does the same steps one by one on its own copy, with the power from the generator;
 * both use the same order of rounding and must agree in every cell to the bit, from the first round
 * to the last.
 */
#include "common.cuh"

constexpr unsigned WIDTH = 4096, SIDE = 32, BORDER = 2, INNER = SIDE - 2 * BORDER;
constexpr int STEPS = 16; /* a round; even */
constexpr float EXCHANGE = 0.11f, HEATING = 0.07f, COOLING = 0.003f, AROUND = 80;

__device__ static float power_at(uint64_t seed, uint64_t i)
{
    uint64_t random = mix(seed, i);
    return random % 64 ? (float)(random >> 32 & 15) : 200.0f; /* some hot spots */
}

__global__ void two_steps(const float *from, float *to, const float *power, int height)
{
    __shared__ float tile[2][SIDE][SIDE];
    unsigned tx = threadIdx.x, ty = threadIdx.y;
    int x = (int)(blockIdx.x * INNER + tx) - (int)BORDER,
        y = (int)(blockIdx.y * INNER + ty) - (int)BORDER;
    bool is_cell = x >= 0 && x < (int)WIDTH && y >= 0 && y < height;
    uint64_t i = is_cell ? (uint64_t)y * WIDTH + (uint64_t)x : 0;
    float heat = is_cell ? __fmul_rn(HEATING, power[i]) : 0;
    tile[0][ty][tx] = is_cell ? from[i] : 0;
    __syncthreads();
    for (unsigned step = 0; step < 2; step++) {
        unsigned edge = step + 1; /* what is still right shrinks by one */
        if (is_cell && tx >= edge && tx < SIDE - edge && ty >= edge && ty < SIDE - edge) {
            float(*now)[SIDE] = tile[step];
            float own = now[ty][tx]; /* at the rim of the chip a cell is its own neighbour */
            float north = y > 0 ? now[ty - 1][tx] : own,
                  south = y + 1 < height ? now[ty + 1][tx] : own;
            float west = x > 0 ? now[ty][tx - 1] : own,
                  east = x + 1 < (int)WIDTH ? now[ty][tx + 1] : own;
            float flow =
                __fmaf_rn(-4, own, __fadd_rn(__fadd_rn(north, south), __fadd_rn(west, east)));
            float next = __fadd_rn(__fmaf_rn(EXCHANGE, flow, own), heat);
            next = __fmaf_rn(-COOLING, __fsub_rn(own, AROUND), next);
            if (step == 0)
                tile[1][ty][tx] = next;
            else
                to[i] = next;
        }
        __syncthreads();
    }
}

/* One step for the cell i, straight from memory. */
__global__ void one_step(const float *from, float *to, uint64_t n, uint64_t seed)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count()) {
        const uint64_t x = i % WIDTH;
        const float t = from[i];
        const float vertical =
            __fadd_rn(i < WIDTH ? t : from[i - WIDTH], i + WIDTH < n ? from[i + WIDTH] : t);
        const float level = __fadd_rn(x == 0 ? t : from[i - 1], x == WIDTH - 1 ? t : from[i + 1]);
        const float sum = __fmaf_rn(t, -4, __fadd_rn(vertical, level));
        const float warmer =
            __fadd_rn(__fmaf_rn(sum, EXCHANGE, t), __fmul_rn(power_at(seed, i), HEATING));
        to[i] = __fmaf_rn(__fsub_rn(t, AROUND), -COOLING, warmer);
    }
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "hotspot", 1024);
    const int height = (int)(work.bytes() / (5 * sizeof(float) * WIDTH));
    const uint64_t n = (uint64_t)height * WIDTH, seed = work.seed;
    float *now = allocate<float>(n), *next = allocate<float>(n), *power = allocate<float>(n);
    float *plain = allocate<float>(n), *plain_next = allocate<float>(n);
    each(n, [=] __device__(uint64_t i) {
        now[i] = plain[i] = AROUND + (float)(mix(~seed, i) & 31);
        power[i] = power_at(seed, i);
    });
    const dim3 grid(divide_up(WIDTH, INNER), divide_up((uint64_t)height, INNER));

    while (work.next()) {
        for (int step = 0; step < STEPS; step += 2) {
            two_steps<<<grid, dim3(SIDE, SIDE)>>>(now, next, power, height);
            CHECK(cudaGetLastError());
            std::swap(now, next);
        }
        for (int step = 0; step < STEPS; step++) {
            one_step<<<blocks_for(n), 256>>>(plain, plain_next, n, seed);
            CHECK(cudaGetLastError());
            std::swap(plain, plain_next);
        }
        const float *one = now, *other = plain;
        verify("the temperatures", n, [=] __device__(uint64_t i) {
            return one[i] == other[i] && one[i] > AROUND - 1 && one[i] < 10 * AROUND;
        });
    }
    release(now, next, power, plain, plain_next);
    return work.passed();
}
