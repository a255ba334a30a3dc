/*
 * Local alignment of two sequences (Smith and Waterman): the whole matrix of scores, tiles of 64 x
 * 64 along the anti-diagonals, each worked through by its own anti-diagonals in shared memory.
 *
 * Every score is compared with what its three neighbours and the generator's letters make it; with
 * the fixed border that leaves only one matrix.
 */
#include "common.cuh"

constexpr unsigned TILE = 64;
constexpr int MATCH = 3, MISMATCH = -2, GAP = -2;

struct letters {
    uint64_t seed;

    __host__ __device__ unsigned char first(uint64_t i) const
    {
        return (unsigned char)("ACGT"[mix(seed, i) & 3]);
    }
    /* The first sequence with one letter in eight changed. */
    __host__ __device__ unsigned char second(uint64_t i) const
    {
        uint64_t random = mix(seed + 1, i);
        return random % 8 ? first(i) : (unsigned char)("ACGT"[random >> 62]);
    }
};

/* One of the tiles of which row and column add up to `diagonal`. */
__global__ void score_tile(const unsigned char *first, const unsigned char *second, int *scores,
                           uint64_t n, unsigned diagonal, unsigned top, int *best)
{
    __shared__ int tile[TILE + 1][TILE + 1]; /* with the border above and to the left */
    __shared__ unsigned char of_row[TILE];
    unsigned me = threadIdx.x;
    uint64_t row = (uint64_t)(top + blockIdx.x) * TILE,
             column = (uint64_t)(diagonal - top - blockIdx.x) * TILE;
    unsigned char letter = second[column + me];
    of_row[me] = first[row + me];
    tile[0][me + 1] = row > 0 ? scores[(row - 1) * n + column + me] : 0;
    tile[me + 1][0] = column > 0 ? scores[(row + me) * n + column - 1] : 0;
    if (me == 0)
        tile[0][0] = row > 0 && column > 0 ? scores[(row - 1) * n + column - 1] : 0;
    __syncthreads();
    int greatest = 0;
    for (unsigned step = 0; step < 2 * TILE - 1; step++) {
        if (step >= me && step - me < TILE) { /* this thread's column, row step - me */
            unsigned r = step - me + 1, c = me + 1;
            int score = tile[r - 1][c - 1] + (of_row[r - 1] == letter ? MATCH : MISMATCH);
            score = max(score, max(tile[r - 1][c], tile[r][c - 1]) + GAP);
            score = max(score, 0);
            tile[r][c] = score;
            greatest = max(greatest, score);
        }
        __syncthreads();
    }
    for (unsigned r = 0; r < TILE; r++)
        scores[(row + r) * n + column + me] = tile[r + 1][me + 1];
    atomicMax(best, greatest);
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "align", 1024);
    const uint64_t n = whole_root(work.bytes() / sizeof(int)) / TILE * TILE;
    const unsigned tiles = (unsigned)(n / TILE);
    int *scores = allocate<int>(n * n), *best = allocate<int>(1);
    unsigned char *first = allocate<unsigned char>(n), *second = allocate<unsigned char>(n);

    while (work.next()) {
        const letters letter = {mix(work.seed, work.rounds)};
        each(n, [=] __device__(uint64_t i) {
            first[i] = letter.first(i);
            second[i] = letter.second(i);
        });
        CHECK(cudaMemset(best, 0, sizeof(*best)));
        for (unsigned diagonal = 0; diagonal < 2 * tiles - 1; diagonal++) {
            unsigned top = diagonal < tiles ? 0 : diagonal - tiles + 1,
                     end = std::min(diagonal + 1, tiles);
            score_tile<<<end - top, TILE>>>(first, second, scores, n, diagonal, top, best);
            CHECK(cudaGetLastError());
        }
        verify("the scores", n * n, [=] __device__(uint64_t i) {
            uint64_t row = i / n, column = i % n;
            int up = row ? scores[i - n] : 0, left = column ? scores[i - 1] : 0;
            int across = row && column ? scores[i - n - 1] : 0, expected = 0;
            across += letter.first(row) == letter.second(column) ? MATCH : MISMATCH;
            for (int way : {across, up + GAP, left + GAP})
                expected = way > expected ? way : expected;
            return scores[i] == expected;
        });
        const int greatest = fetch(best, 1)[0];
        verify("the best score", n * n,
               [=] __device__(uint64_t i) { return scores[i] <= greatest; });
        if (sum(n * n, [=] __device__(uint64_t i) -> uint64_t { return scores[i] == greatest; }) ==
            0)
            fail("no score is the best, %d", greatest);
    }
    release(scores, best, first, second);
    return work.passed();
}
