/*
 * k-means of points with 16 features, each round from new random centroids.
 *
 * The features and centroids are small whole numbers, so that distances in float are exact. Each
 * iteration is proved from the generator: every point's nearest centroid in integers, and every
 * cluster's size and a random combination of the sums of its features.
 */
#include "common.cuh"

constexpr unsigned FEATURES = 16, CLUSTERS = 16;
constexpr int ITERATIONS = 4;

__constant__ float centroids[CLUSTERS][FEATURES];

struct totals { /* of the points of each cluster */
    unsigned long long sum[CLUSTERS][FEATURES], count[CLUSTERS];
};

/* A point is near one of 16 places. */
__host__ __device__ static unsigned feature_of(uint64_t seed, uint64_t point, unsigned feature)
{
    uint64_t place = mix(seed, point) % 16;
    return (unsigned)(mix(seed + 1, place * FEATURES + feature) % 192 +
                      mix(seed + 2, point * FEATURES + feature) % 64);
}

/* points[feature * n + point] */
__global__ void assign(const float *points, uint64_t n, uint32_t *nearest, totals *totals)
{
    __shared__ unsigned sum[CLUSTERS][FEATURES], count[CLUSTERS];
    for (unsigned i = threadIdx.x; i < CLUSTERS * FEATURES; i += blockDim.x)
        sum[i / FEATURES][i % FEATURES] = 0;
    if (threadIdx.x < CLUSTERS)
        count[threadIdx.x] = 0;
    __syncthreads();
    for (uint64_t point = thread_index(); point < n; point += thread_count()) {
        float feature[FEATURES], best = 1e30f;
        unsigned chosen = 0;
        for (unsigned f = 0; f < FEATURES; f++)
            feature[f] = points[f * n + point];
        for (unsigned c = 0; c < CLUSTERS; c++) {
            float distance = 0;
            for (unsigned f = 0; f < FEATURES; f++)
                distance += (feature[f] - centroids[c][f]) * (feature[f] - centroids[c][f]);
            if (distance < best) {
                best = distance;
                chosen = c;
            }
        }
        nearest[point] = chosen;
        for (unsigned f = 0; f < FEATURES; f++)
            atomicAdd(&sum[chosen][f], (unsigned)feature[f]);
        atomicAdd(&count[chosen], 1u);
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < CLUSTERS * FEATURES; i += blockDim.x)
        atomicAdd(&totals->sum[i / FEATURES][i % FEATURES],
                  (unsigned long long)sum[i / FEATURES][i % FEATURES]);
    if (threadIdx.x < CLUSTERS)
        atomicAdd(&totals->count[threadIdx.x], (unsigned long long)count[threadIdx.x]);
}

struct centers {
    int at[CLUSTERS][FEATURES];
};

/* Proves the assignment to these centers, and the totals. */
static void prove(uint64_t seed, uint64_t n, const uint32_t *nearest, const centers &of,
                  const totals &got)
{
    const centers now = of;
    verify("nearest centroids", n, [=] __device__(uint64_t point) {
        int best = 1 << 30;
        unsigned chosen = CLUSTERS;
        for (unsigned c = 0; c < CLUSTERS; c++) {
            int distance = 0;
            for (unsigned f = 0; f < FEATURES; f++) {
                int apart = (int)feature_of(seed, point, f) - now.at[c][f];
                distance += apart * apart;
            }
            if (distance < best) {
                best = distance;
                chosen = c;
            }
        }
        return nearest[point] == chosen;
    });
    for (unsigned c = 0; c < CLUSTERS; c++) {
        uint64_t expected = 0;
        for (unsigned f = 0; f < FEATURES; f++)
            expected += mix(seed + 3, f) * got.sum[c][f];
        same("a cluster's size", got.count[c],
             sum(n, [=] __device__(uint64_t point) -> uint64_t { return nearest[point] == c; }));
        same("a cluster's sums", expected, sum(n, [=] __device__(uint64_t point) -> uint64_t {
                 uint64_t total = 0;
                 for (unsigned f = 0; f < FEATURES && nearest[point] == c; f++)
                     total += mix(seed + 3, f) * feature_of(seed, point, f);
                 return total;
             }));
    }
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "kmeans", 768);
    const uint64_t n = work.bytes() / (sizeof(float) * FEATURES + sizeof(uint32_t)),
                   seed = work.seed;
    float *points = allocate<float>(n * FEATURES);
    uint32_t *nearest = allocate<uint32_t>(n);
    totals *totals_there = allocate<totals>(1), got;
    each(n * FEATURES, [=] __device__(uint64_t i) {
        points[i] = (float)feature_of(seed, i % n, (unsigned)(i / n));
    });

    while (work.next()) {
        centers now;
        for (unsigned c = 0; c < CLUSTERS; c++) /* some points of the data */
            for (unsigned f = 0; f < FEATURES; f++)
                now.at[c][f] = (int)feature_of(seed, mix(seed + work.rounds, c) % n, f);
        for (int iteration = 0; iteration < ITERATIONS; iteration++) {
            float as_float[CLUSTERS][FEATURES];
            for (unsigned i = 0; i < CLUSTERS * FEATURES; i++)
                as_float[i / FEATURES][i % FEATURES] = (float)now.at[i / FEATURES][i % FEATURES];
            CHECK(cudaMemcpyToSymbol(centroids, as_float, sizeof(as_float)));
            CHECK(cudaMemset(totals_there, 0, sizeof(totals)));
            assign<<<std::min(blocks_for(n), 1024u), 256>>>(points, n, nearest, totals_there);
            CHECK(cudaGetLastError());
            CHECK(cudaMemcpy(&got, totals_there, sizeof(got), cudaMemcpyDeviceToHost));
            prove(seed, n, nearest, now, got);
            for (unsigned c = 0; c < CLUSTERS; c++)
                for (unsigned f = 0; f < FEATURES && got.count[c] > 0; f++)
                    now.at[c][f] = (int)(got.sum[c][f] / got.count[c]);
        }
        verify("the points", n * FEATURES, [=] __device__(uint64_t i) {
            return points[i] == (float)feature_of(seed, i % n, (unsigned)(i / n));
        });
    }
    release(points, nearest, totals_there);
    return work.passed();
}
