/*
 * Kernels of every kind that a profile tells apart, launched in several sizes. Verifies what the
 * addition gives. With --registers it prints each kernel's name and registers, as the driver says
 * them without the profiler. With --seconds N it goes on for so long.
 */
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) {                                                               \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                          \
                    cudaGetErrorString(error_));                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* T2: 4 * n bytes behind each address. */
extern "C" __global__ void gm_add(const float *a, const float *b, float *c, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}

/* T1: always 1 MiB. */
extern "C" __global__ void gm_fixed(float *table, int unrelated)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < 1 << 18; i += gridDim.x * blockDim.x)
        table[i] += unrelated;
}

/* T2 in dimensions of the launch: 8 bytes a thread. */
extern "C" __global__ void gm_threads(double *at)
{
    at[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

/* T3: `rows` rows of `width` bytes, `pitch` apart. */
extern "C" __global__ void gm_rows(char *at, int pitch, int width, int rows)
{
    for (int row = blockIdx.x; row < rows; row += gridDim.x)
        for (int i = threadIdx.x; i < width; i += blockDim.x)
            at[(size_t)row * pitch + i] = 1;
}

/* T2 with a start that moves: one row behind `position` others. */
extern "C" __global__ void gm_append(float *cache, int position, int width)
{
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        cache[(size_t)position * width + i] = position;
}

/* No template fits: rows that data chooses. */
extern "C" __global__ void gm_gather(const float *table, const int *index, float *to, int width)
{
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        to[(size_t)blockIdx.x * width + i] = table[(size_t)index[blockIdx.x] * width + i];
}

/* Not named by an argument: the address lies in memory. */
extern "C" __global__ void gm_chase(float **where, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        (*where)[i] = 1;
}

/* An address that is not touched. */
extern "C" __global__ void gm_unused(const float *a, const float *bias, float *to, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        to[i] = a[i] + (n < 0 ? bias[i] : 0);
}

template <typename T> static T *device(size_t n)
{
    T *at;
    CHECK(cudaMalloc(&at, n * sizeof(T)));
    CHECK(cudaMemset(at, 0, n * sizeof(T)));
    return at;
}

#define REGISTERS(kernel)                                                                          \
    do {                                                                                           \
        cudaFuncAttributes of;                                                                     \
        CHECK(cudaFuncGetAttributes(&of, kernel));                                                 \
        printf("registers %s %d\n", #kernel, of.numRegs);                                          \
    } while (0)

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--registers") == 0) {
        REGISTERS(gm_add);
        REGISTERS(gm_fixed);
        REGISTERS(gm_threads);
        REGISTERS(gm_rows);
        REGISTERS(gm_append);
        REGISTERS(gm_gather);
        REGISTERS(gm_chase);
        REGISTERS(gm_unused);
        return 0;
    }
    const size_t most = 64 << 20;
    float *a = device<float>(most), *b = device<float>(most), *c = device<float>(most);
    char *wide = device<char>(512 << 20);
    float *hidden = device<float>(16 << 20);
    float *cache = device<float>(8 << 20);
    float **where = device<float *>(1);
    int *index = device<int>(1024);
    std::vector<float> host(most);
    for (size_t i = 0; i < most; i++)
        host[i] = float(i % 1000);
    CHECK(cudaMemcpy(a, host.data(), most * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(b, host.data(), most * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(where, &hidden, sizeof hidden, cudaMemcpyHostToDevice));
    srand(1);
    const double seconds = argc > 2 && strcmp(argv[1], "--seconds") == 0 ? atof(argv[2]) : 0;
    const auto begin = std::chrono::steady_clock::now();
    const auto is_early = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() <
               seconds;
    };
    for (int launched = 0; launched < 12 || is_early(); launched++) {
        const int round = launched % 12 + 1;
        const int n = 1000003 * round;
        gm_add<<<(n + 255) / 256, 256>>>(a, b, c, n);
        gm_fixed<<<round, 128>>>(hidden, round);
        gm_threads<<<1000 * round, 32 * (1 + round % 7)>>>((double *)wide);
        gm_rows<<<64, 128>>>(wide, 65536 + 4096 * round, 5000 + 300 * round, 50 + 100 * round);
        gm_append<<<1, 128>>>(cache, 37 * round, 8192);
        int rows[1024];
        for (int &row : rows)
            row = rand() % 16384;
        CHECK(cudaMemcpy(index, rows, sizeof rows, cudaMemcpyHostToDevice));
        gm_gather<<<256, 128>>>(a, index, hidden, 4096);
        gm_chase<<<64, 128>>>(where, 1 << 22);
        gm_unused<<<64, 128>>>(a, b, hidden, 1 << 20);
        CHECK(cudaDeviceSynchronize());
    }
    /* Some launches from a graph, captured and played again: nobody records them. */
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t played;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 4; i++)
        gm_add<<<4000, 256, 0, stream>>>(a, b, c, 1000000);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&played, graph, 0));
    for (int i = 0; i < 8; i++)
        CHECK(cudaGraphLaunch(played, stream));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host.data(), c, 4000000, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < 1000000; i++)
        if (host[i] != 2 * float(i % 1000)) {
            fprintf(stderr, "c[%zu] is %f\n", i, host[i]);
            return 1;
        }
    printf("results are right\n");
    return 0;
}
