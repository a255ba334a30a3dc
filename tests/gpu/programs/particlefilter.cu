/*
 * A particle filter that follows a target through the plane: move, weigh, running sum of the
 * weights, resample, estimate; all in whole numbers.
 *
 * Each step is proved: every particle moved as the generator says, every running sum is its
 * neighbour's and one weight more, every new particle is a copy of the one whose stretch of the sum
 * its draw falls into. Between steps the particles' fingerprint must stay. And the estimate must be
 * near the target.
 */
#include "common.cuh"

constexpr int STEPS = 4, TILE = 1024, NEAR = 1 << 12;

struct alignas(16) particle {
    int x, y, vx, vy; /* wrapped to 2^20 */
};

__device__ static int wrapped(int64_t value)
{
    return (int)(value & ((1 << 20) - 1));
}

__global__ void move(const particle *from, particle *to, uint64_t n, uint64_t seed)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count()) {
        particle p = from[i];
        uint64_t noise = mix(seed, i);
        p.vx += (int)(noise & 63) - 32;
        p.vy += (int)(noise >> 32 & 63) - 32;
        p.x = wrapped((int64_t)p.x + p.vx);
        p.y = wrapped((int64_t)p.y + p.vy);
        to[i] = p;
    }
}

/* 1 to 2^20, more for what is nearer to the target. */
__device__ static uint64_t weight(const particle &p, int target_x, int target_y)
{
    int64_t dx = p.x - target_x, dy = p.y - target_y;
    return 1 + ((1ull << 30) / (1024 + ((uint64_t)(dx * dx + dy * dy) >> 6)));
}

/* Inclusive running sums within tiles, and each tile's sum. */
__global__ void weigh(const particle *particles, uint64_t n, int target_x, int target_y,
                      uint64_t *running, uint64_t *tiles)
{
    __shared__ uint64_t sums[2][TILE];
    uint64_t i = thread_index();
    int now = 0;
    sums[0][threadIdx.x] = i < n ? weight(particles[i], target_x, target_y) : 0;
    __syncthreads();
    for (int distance = 1; distance < TILE; distance *= 2, now = !now) {
        uint64_t before = (int)threadIdx.x >= distance ? sums[now][threadIdx.x - distance] : 0;
        sums[!now][threadIdx.x] = sums[now][threadIdx.x] + before;
        __syncthreads();
    }
    if (i < n)
        running[i] = sums[now][threadIdx.x];
    if (threadIdx.x == TILE - 1)
        tiles[blockIdx.x] = sums[now][TILE - 1];
}

/* Each tile's sum becomes that of all before it; one block. */
__global__ void add_up(uint64_t *tiles, unsigned count)
{
    __shared__ uint64_t part[TILE];
    unsigned each = (count + TILE - 1) / TILE, begin = min(threadIdx.x * each, count);
    unsigned end = min(begin + each, count);
    uint64_t total = 0;
    for (unsigned i = begin; i < end; i++)
        total += tiles[i];
    part[threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.x == 0)
        for (uint64_t i = 0, before = 0; i < TILE; i++) {
            uint64_t own = part[i];
            part[i] = before;
            before += own;
        }
    __syncthreads();
    total = part[threadIdx.x];
    for (unsigned i = begin; i < end; i++) {
        uint64_t own = tiles[i];
        tiles[i] = total;
        total += own;
    }
}

/* Draw i is i * step + start; it chooses the first particle whose running sum is above it. */
__global__ void resample(const particle *from, const uint64_t *running, const uint64_t *tiles,
                         uint64_t n, uint64_t step, uint64_t start, particle *to, uint32_t *chosen)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count()) {
        uint64_t draw = i * step + start, low = 0, high = n - 1;
        while (low < high) {
            uint64_t middle = (low + high) / 2;
            if (running[middle] + tiles[middle / TILE] > draw)
                high = middle;
            else
                low = middle + 1;
        }
        to[i] = from[low];
        chosen[i] = (uint32_t)low;
    }
}

static uint64_t fingerprint(const particle *particles, uint64_t n)
{
    return sum(n, [=] __device__(uint64_t i) -> uint64_t {
        const particle p = particles[i];
        return mix((uint64_t)(uint32_t)p.x << 32 | (uint32_t)p.y, i) ^
               mix((uint64_t)(uint32_t)p.vx << 32 | (uint32_t)p.vy, ~i);
    });
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "particlefilter", 1024, 16);
    const uint64_t n = std::min<uint64_t>(work.bytes() / (2 * sizeof(particle) + 8 + 4), ~0u),
                   seed = work.seed;
    const unsigned tile_count = divide_up(n, TILE);
    particle *at = allocate<particle>(n), *moved = allocate<particle>(n);
    uint64_t *running = allocate<uint64_t>(n), *tiles = allocate<uint64_t>(tile_count);
    uint32_t *chosen = allocate<uint32_t>(n);

    each(n, [=] __device__(uint64_t i) {
        uint64_t random = mix(seed, i);
        at[i] = {wrapped(random), wrapped(random >> 20), 0, 0};
    });
    uint64_t print = fingerprint(at, n), time = 0;
    while (work.next()) {
        for (int turn = 0; turn < STEPS; turn++, time++) {
            /* to and fro on a straight line that stays away from the edges */
            const int way = (int)std::min(time % 8192, 8192 - time % 8192);
            const int target_x = 300000 + way * 60, target_y = 700000 - way * 40;
            const uint64_t noise_seed = mix(seed, ~time);
            same("the particles' fingerprint", fingerprint(at, n), print);
            move<<<blocks_for(n), 256>>>(at, moved, n, noise_seed);
            CHECK(cudaGetLastError());
            verify("moved particles", n, [=] __device__(uint64_t i) {
                const particle old = at[i], p = moved[i];
                const uint64_t noise = mix(noise_seed, i);
                const int64_t vx = old.vx + (int64_t)(noise % 64) - 32;
                const int64_t vy = old.vy + (int64_t)((noise >> 32) % 64) - 32;
                return p.vx == vx && p.vy == vy &&
                       p.x == ((old.x + vx) % (1 << 20) + (1 << 20)) % (1 << 20) &&
                       p.y == ((old.y + vy) % (1 << 20) + (1 << 20)) % (1 << 20);
            });

            const uint64_t moved_print = fingerprint(moved, n);
            weigh<<<tile_count, TILE>>>(moved, n, target_x, target_y, running, tiles);
            add_up<<<1, TILE>>>(tiles, tile_count);
            CHECK(cudaGetLastError());
            verify("running sums", n, [=] __device__(uint64_t i) {
                uint64_t before = i == 0 ? 0 : running[i - 1] + tiles[(i - 1) / TILE];
                return running[i] + tiles[i / TILE] ==
                       before + weight(moved[i], target_x, target_y);
            });

            const uint64_t total =
                fetch(running + n - 1, 1)[0] + fetch(tiles + tile_count - 1, 1)[0];
            const uint64_t step = total / n, start = mix(noise_seed, n) % step;
            resample<<<blocks_for(n), 256>>>(moved, running, tiles, n, step, start, at, chosen);
            CHECK(cudaGetLastError());
            verify("chosen particles", n, [=] __device__(uint64_t i) {
                const uint64_t from = chosen[i], draw = i * step + start;
                if (from >= n || running[from] + tiles[from / TILE] <= draw ||
                    (from > 0 && running[from - 1] + tiles[(from - 1) / TILE] > draw))
                    return false;
                const particle old = moved[from], p = at[i];
                return p.x == old.x && p.y == old.y && p.vx == old.vx && p.vy == old.vy;
            });
            same("the moved particles' fingerprint", fingerprint(moved, n), moved_print);
            print = fingerprint(at, n);

            const int64_t x =
                (int64_t)(sum(n, [=] __device__(uint64_t i) -> uint64_t { return at[i].x; }) / n);
            const int64_t y =
                (int64_t)(sum(n, [=] __device__(uint64_t i) -> uint64_t { return at[i].y; }) / n);
            if (time >= 3 && (llabs(x - target_x) > NEAR || llabs(y - target_y) > NEAR))
                fail("step %llu: the estimate is %lld, %lld, the target at %d, %d",
                     (unsigned long long)time, (long long)x, (long long)y, target_x, target_y);
        }
    }
    release(at, moved, running, tiles, chosen);
    return work.passed();
}
