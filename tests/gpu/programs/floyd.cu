/*
 * All shortest paths by Floyd and Warshall in tiles of 64 x 64: for each tile on the diagonal that
 * tile, its row and column, and the rest; 4 x 4 elements a thread.
 *
 * The vertices are points on a line in random order. Neighbours on it have their distance, all
 * others a longer edge or none: so every shortest path is known.
 */
#include <numeric>

#include "common.cuh"

constexpr unsigned TILE = 64, SIDE = 16; /* threads: SIDE x SIDE */
constexpr uint32_t NONE = 1u << 30;

/* On the line: as the how manieth, and as a coordinate. */
struct place {
    uint32_t rank, at;
};

__device__ static uint32_t distance(place one, place other)
{
    return one.at > other.at ? one.at - other.at : other.at - one.at;
}

__device__ static uint32_t edge_length(uint64_t seed, place one, place other, uint64_t edge)
{
    uint64_t random = mix(seed, edge);
    if (one.rank == other.rank || one.rank + 1 == other.rank || other.rank + 1 == one.rank)
        return distance(one, other);
    return random & 1 ? NONE : distance(one, other) + (uint32_t)((random >> 1) % 1000);
}

__device__ static uint32_t *tile_at(uint32_t *matrix, uint64_t n, uint64_t row, uint64_t column)
{
    return matrix + row * TILE * n + column * TILE;
}

__device__ static void load(const uint32_t *from, uint64_t n, uint32_t to[TILE][TILE])
{
    for (unsigned i = threadIdx.y * SIDE + threadIdx.x; i < TILE * TILE; i += SIDE * SIDE)
        to[i / TILE][i % TILE] = from[i / TILE * n + i % TILE];
}

/* out = min(out, left + upper) through the 64 vertices between; `same` is the one of the two that
 * is `out`, which must get the new values on the way, or null. */
__device__ static void relax(uint32_t *out, uint64_t n, uint32_t left[TILE][TILE],
                             uint32_t upper[TILE][TILE], uint32_t (*same)[TILE])
{
    unsigned x = threadIdx.x, y = threadIdx.y;
    uint32_t own[4][4];
    for (unsigned i = 0; i < 4; i++)
        for (unsigned j = 0; j < 4; j++)
            own[i][j] = out[(y + i * SIDE) * n + x + j * SIDE];
    for (unsigned k = 0; k < TILE; k++) {
        for (unsigned i = 0; i < 4; i++)
            for (unsigned j = 0; j < 4; j++)
                own[i][j] = min(own[i][j], left[y + i * SIDE][k] + upper[k][x + j * SIDE]);
        if (same != nullptr) {
            __syncthreads();
            for (unsigned i = 0; i < 4; i++)
                for (unsigned j = 0; j < 4; j++)
                    same[y + i * SIDE][x + j * SIDE] = own[i][j];
            __syncthreads();
        }
    }
    for (unsigned i = 0; i < 4; i++)
        for (unsigned j = 0; j < 4; j++)
            out[(y + i * SIDE) * n + x + j * SIDE] = own[i][j];
}

__global__ void on_diagonal(uint32_t *matrix, uint64_t n, unsigned k)
{
    __shared__ uint32_t own[TILE][TILE];
    uint32_t *out = tile_at(matrix, n, k, k);
    load(out, n, own);
    __syncthreads();
    relax(out, n, own, own, own);
}

/* Even blocks: the tiles in its row; odd ones: in its column. */
__global__ void beside_diagonal(uint32_t *matrix, uint64_t n, unsigned k)
{
    __shared__ uint32_t own[TILE][TILE], diagonal[TILE][TILE];
    unsigned other = blockIdx.x / 2;
    bool is_row = blockIdx.x % 2 == 0;
    if (other == k)
        return;
    uint32_t *out = is_row ? tile_at(matrix, n, k, other) : tile_at(matrix, n, other, k);
    load(out, n, own);
    load(tile_at(matrix, n, k, k), n, diagonal);
    __syncthreads();
    relax(out, n, is_row ? diagonal : own, is_row ? own : diagonal, own);
}

__global__ void elsewhere(uint32_t *matrix, uint64_t n, unsigned k)
{
    __shared__ uint32_t left[TILE][TILE], upper[TILE][TILE];
    if (blockIdx.x == k || blockIdx.y == k)
        return;
    load(tile_at(matrix, n, blockIdx.y, k), n, left);
    load(tile_at(matrix, n, k, blockIdx.x), n, upper);
    __syncthreads();
    relax(tile_at(matrix, n, blockIdx.y, blockIdx.x), n, left, upper, nullptr);
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "floyd", 256);
    const uint64_t n = whole_root(work.bytes() / sizeof(uint32_t)) / TILE * TILE;
    const unsigned tiles = (unsigned)(n / TILE);
    uint32_t *matrix = allocate<uint32_t>(n * n);
    place *places = allocate<place>(n);

    while (work.next()) {
        const uint64_t seed = mix(work.seed, work.rounds);
        std::vector<uint32_t> order(n);
        std::vector<place> line(n);
        std::iota(order.begin(), order.end(), 0u);
        for (uint64_t i = n - 1; i > 0; i--)
            std::swap(order[i], order[mix(seed + 1, i) % (i + 1)]);
        for (uint32_t rank = 0, at = 0; rank < n;
             rank++, at += 1 + (uint32_t)(mix(seed + 2, rank) % 100))
            line[order[rank]] = {rank, at};
        upload(places, line);
        each(n * n, [=] __device__(uint64_t i) {
            matrix[i] = edge_length(seed, places[i / n], places[i % n], i);
        });
        for (unsigned k = 0; k < tiles; k++) {
            on_diagonal<<<1, dim3(SIDE, SIDE)>>>(matrix, n, k);
            beside_diagonal<<<2 * tiles, dim3(SIDE, SIDE)>>>(matrix, n, k);
            elsewhere<<<dim3(tiles, tiles), dim3(SIDE, SIDE)>>>(matrix, n, k);
            CHECK(cudaGetLastError());
        }
        verify("the shortest paths", n * n, [=] __device__(uint64_t i) {
            return matrix[i] == distance(places[i / n], places[i % n]);
        });
    }
    release(matrix, places);
    return work.passed();
}
