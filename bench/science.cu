/*
 * bench_science: programs of numerical computing that the benches run under gpumux and natively,
 * and tell what to do, line by line:
 *
 *   science NAME --bytes SIZE [--spare SIZE] [--seed N]
 *
 *   wavelet      one level of the CDF 5/3 transform of an image, rows and then columns
 *   hotspot      two steps of the temperature of a chip
 *   flow         flux between the cells of an unstructured mesh, four neighbours each
 *   neighbours   distances of records to a point, and the least
 *   vectors      the sum of two vectors
 *   products     products of matrices of 1024 rows, one after the other
 *
 * A unit computes results anew from inputs that never change, over all of --bytes. --spare bytes
 * more are filled and never touched again. The program prints "ready" with the bytes that a unit
 * only reads (clean) and those that it writes (dirty), and then serves requests, one a line:
 *
 *   run unit MS FILE   units until MS milliseconds have passed; FILE has a line of each: when it
 *                      ended and how long it took, in milliseconds
 *   check              the checksum of inputs and results must be that after the first unit
 *
 * The answers are passes=, mismatches=. Everything that is computed is the same in each run, to the
 * bit. Exit codes: 0 done, 1 wrong data or a CUDA error, 2 wrong use.
 */
#include "tests/gpu/programs/common.cuh"

#include <string>
#include <time.h>

constexpr unsigned WIDTH = 4096; /* of an image, of a chip */
constexpr unsigned ROWS = 1024;  /* of a matrix */
constexpr unsigned TILE = 32;
constexpr int NEIGHBOURS = 4, VARIABLES = 5;

struct array {
    uint32_t *at;
    uint64_t words;
    bool is_written;
};

static std::vector<array> arrays;
static array spare;

template <class T> static T *take(uint64_t count, bool is_written)
{
    T *at = allocate<T>(count);
    arrays.push_back({(uint32_t *)at, count * sizeof(T) / 4, is_written});
    return at;
}

#define LAUNCH(kernel, grid, block, ...)                                                           \
    do {                                                                                           \
        kernel<<<grid, block>>>(__VA_ARGS__);                                                      \
        CHECK(cudaGetLastError());                                                                 \
    } while (0)

/* ---- wavelet ---- */

__device__ static int at_mirrored(const int *line, int i, int n, uint64_t step)
{
    i = i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
    return line[(uint64_t)i * step];
}

__device__ static int high(const int *line, int i, int n, uint64_t step)
{
    return at_mirrored(line, 2 * i + 1, n, step) -
           ((at_mirrored(line, 2 * i, n, step) + at_mirrored(line, 2 * i + 2, n, step)) >> 1);
}

/* Coefficient k of a line: low frequencies first. */
__device__ static int coefficient(const int *line, int k, int n, uint64_t step)
{
    if (k >= n / 2)
        return high(line, k - n / 2, n, step);
    const int before = high(line, k > 0 ? k - 1 : 0, n, step);
    return at_mirrored(line, 2 * k, n, step) + ((before + high(line, k, n, step) + 2) >> 2);
}

__global__ void transform_rows(const int *image, int *out, int height)
{
    for (uint64_t i = thread_index(); i < (uint64_t)height * WIDTH; i += thread_count())
        out[i] = coefficient(image + i / WIDTH * WIDTH, (int)(i % WIDTH), WIDTH, 1);
}

__global__ void transform_columns(const int *image, int *out, int height)
{
    for (uint64_t i = thread_index(); i < (uint64_t)height * WIDTH; i += thread_count())
        out[i] = coefficient(image + i % WIDTH, (int)(i / WIDTH), height, WIDTH);
}

/* ---- hotspot ---- */

__global__ void heat(const float *from, const float *power, float *to, int height)
{
    for (uint64_t i = thread_index(); i < (uint64_t)height * WIDTH; i += thread_count()) {
        const int x = (int)(i % WIDTH), y = (int)(i / WIDTH);
        const float own = from[i];
        const float north = y > 0 ? from[i - WIDTH] : own,
                    south = y + 1 < height ? from[i + WIDTH] : own;
        const float west = x > 0 ? from[i - 1] : own, east = x + 1 < (int)WIDTH ? from[i + 1] : own;
        to[i] = own + 0.11f * (north + south + west + east - 4 * own) + 0.07f * power[i] -
                0.003f * (own - 80);
    }
}

/* ---- flow ---- */

/* Words of the mesh lie variable by variable, as such programs have them. */
__global__ void flux(const int *neighbours, const float *normals, const float *state, float *out,
                     uint64_t n)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count()) {
        float own[VARIABLES], sum[VARIABLES] = {};
        for (int v = 0; v < VARIABLES; v++)
            own[v] = state[v * n + i];
        for (int k = 0; k < NEIGHBOURS; k++) {
            const uint64_t other = (uint64_t)neighbours[k * n + i];
            const float nx = normals[(3 * k) * n + i], ny = normals[(3 * k + 1) * n + i],
                        nz = normals[(3 * k + 2) * n + i];
            const float speed = nx * (own[1] + state[n + other]) +
                                ny * (own[2] + state[2 * n + other]) +
                                nz * (own[3] + state[3 * n + other]);
            for (int v = 0; v < VARIABLES; v++)
                sum[v] += 0.5f * speed * (own[v] + state[v * n + other]) +
                          0.1f * (own[v] - state[v * n + other]);
        }
        for (int v = 0; v < VARIABLES; v++)
            out[v * n + i] = own[v] - 0.01f * sum[v];
    }
}

/* ---- neighbours ---- */

__global__ void distances(const float2 *records, float *out, float2 point, uint64_t n)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count()) {
        const float x = records[i].x - point.x, y = records[i].y - point.y;
        out[i] = sqrtf(x * x + y * y);
    }
}

__global__ void least(const float *values, uint64_t n, unsigned *bits)
{
    float found = INFINITY;
    for (uint64_t i = thread_index(); i < n; i += thread_count())
        found = fminf(found, values[i]);
    atomicMin(bits, __float_as_uint(found)); /* of numbers that are not negative */
}

/* ---- vectors, products ---- */

__global__ void add(const float *a, const float *b, float *c, uint64_t n)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count())
        c[i] = a[i] + b[i];
}

__global__ void multiply(const float *a, const float *b, float *c)
{
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    const unsigned x = threadIdx.x, y = threadIdx.y;
    const unsigned row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0;
    for (unsigned k = 0; k < ROWS; k += TILE) {
        left[y][x] = a[row * ROWS + k + x];
        right[y][x] = b[(k + y) * ROWS + column];
        __syncthreads();
        for (unsigned i = 0; i < TILE; i++)
            sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    c[row * ROWS + column] = sum;
}

/* ---- the programs: their memory is taken, and a unit is what is returned ---- */

using unit = void (*)();
static uint64_t count; /* of whatever it works on */

static float *floats(int i)
{
    return (float *)arrays[(size_t)i].at;
}

static int *ints(int i)
{
    return (int *)arrays[(size_t)i].at;
}

static void fill_floats(float *at, uint64_t n, uint64_t seed)
{
    each(n, [=] __device__(uint64_t i) { at[i] = (float)(mix(seed, i) >> 40) * 0x1p-24f; });
}

static unit make_wavelet(uint64_t bytes, uint64_t seed)
{
    count = bytes / (12 * WIDTH) / 2 * 2;
    int *image = take<int>(count * WIDTH, false);
    take<int>(count * WIDTH, true);
    take<int>(count * WIDTH, true);
    each(count * WIDTH, [=] __device__(uint64_t i) { image[i] = (int)(mix(seed, i) & 255); });
    return [] {
        LAUNCH(transform_rows, blocks_for(count * WIDTH), 256, ints(0), ints(1), (int)count);
        LAUNCH(transform_columns, blocks_for(count * WIDTH), 256, ints(1), ints(2), (int)count);
    };
}

static unit make_hotspot(uint64_t bytes, uint64_t seed)
{
    count = bytes / (16 * WIDTH);
    float *first = take<float>(count * WIDTH, false), *power = take<float>(count * WIDTH, false);
    take<float>(count * WIDTH, true);
    take<float>(count * WIDTH, true);
    fill_floats(first, count * WIDTH, seed);
    fill_floats(power, count * WIDTH, ~seed);
    return [] {
        const unsigned blocks = blocks_for(count * WIDTH);
        LAUNCH(heat, blocks, 256, floats(0), floats(1), floats(2), (int)count);
        LAUNCH(heat, blocks, 256, floats(2), floats(1), floats(3), (int)count);
    };
}

static unit make_flow(uint64_t bytes, uint64_t seed)
{
    count = bytes / (4 * (NEIGHBOURS + 3 * NEIGHBOURS + 2 * VARIABLES));
    int *neighbours = take<int>(count * NEIGHBOURS, false);
    float *normals = take<float>(count * 3 * NEIGHBOURS, false);
    float *state = take<float>(count * VARIABLES, false);
    take<float>(count * VARIABLES, true);
    const uint64_t n = count; /* neighbours are near, as in a mesh that was put in order */
    each(n * NEIGHBOURS, [=] __device__(uint64_t i) {
        neighbours[i] = (int)((i % n + n - 4096 % n + mix(seed, i) % 8192) % n);
    });
    fill_floats(normals, count * 3 * NEIGHBOURS, seed + 1);
    fill_floats(state, count * VARIABLES, seed + 2);
    return [] {
        LAUNCH(flux, blocks_for(count), 256, ints(0), floats(1), floats(2), floats(3), count);
    };
}

static unit make_neighbours(uint64_t bytes, uint64_t seed)
{
    count = bytes / 12;
    float2 *records = take<float2>(count, false);
    take<float>(count, true);
    take<unsigned>(1, true);
    fill_floats((float *)records, 2 * count, seed);
    return [] {
        CHECK(cudaMemset(arrays[2].at, 0x7f, 4));
        LAUNCH(distances, blocks_for(count), 256, (float2 *)floats(0), floats(1),
               make_float2(0.5f, 0.25f), count);
        LAUNCH(least, blocks_for(count), 256, floats(1), count, (unsigned *)ints(2));
    };
}

static unit make_vectors(uint64_t bytes, uint64_t seed)
{
    count = bytes / 12;
    fill_floats(take<float>(count, false), count, seed);
    fill_floats(take<float>(count, false), count, ~seed);
    take<float>(count, true);
    return [] { LAUNCH(add, blocks_for(count), 256, floats(0), floats(1), floats(2), count); };
}

static unit make_products(uint64_t bytes, uint64_t seed)
{
    const uint64_t words = ROWS * ROWS;
    count = bytes / (12 * words);
    for (uint64_t i = 0; i < 3 * count; i++) {
        float *matrix = take<float>(words, i % 3 == 2);
        if (i % 3 != 2)
            fill_floats(matrix, words, seed + i);
    }
    return [] {
        for (int i = 0; i < 3 * (int)count; i += 3)
            LAUNCH(multiply, dim3(ROWS / TILE, ROWS / TILE), dim3(TILE, TILE), floats(i),
                   floats(i + 1), floats(i + 2));
    };
}

static const struct {
    const char *name;
    unit (*make)(uint64_t bytes, uint64_t seed);
} programs[] = {{"wavelet", make_wavelet}, {"hotspot", make_hotspot},
                {"flow", make_flow},       {"neighbours", make_neighbours},
                {"vectors", make_vectors}, {"products", make_products}};

/* ---- requests ---- */

/* By the clock that a daemon's status has. */
static double milliseconds()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static uint64_t checksum()
{
    uint64_t total = 0;
    for (const array &one : arrays) {
        const uint32_t *at = one.at;
        total = total * 3 + sum(one.words, [=] __device__(uint64_t i) {
                    return (unsigned long long)at[i] * (2 * i + 1);
                });
    }
    if (spare.words > 0) {
        const uint32_t *at = spare.at;
        total += sum(spare.words, [=] __device__(uint64_t i) {
            return (unsigned long long)at[i] * (2 * i + 1);
        });
    }
    return total;
}

static void run_units(unit work, double least_ms, const char *path)
{
    FILE *file = fopen(path, "we");
    if (file == nullptr)
        fail("cannot write %s", path);
    const double begun = milliseconds();
    unsigned long long passes = 0;
    double from = begun, now;
    do {
        work();
        CHECK(cudaDeviceSynchronize());
        now = milliseconds();
        fprintf(file, "%.3f %.4f\n", now, now - from);
        from = now;
        passes++;
    } while (now - begun < least_ms);
    fclose(file);
    printf("passes=%llu mismatches=0\n", passes);
}

static void serve(unit work, uint64_t right)
{
    char line[1200], path[1024];
    double ms;
    while (fgets(line, sizeof line, stdin) != nullptr) {
        if (sscanf(line, "run unit %lf %1023s", &ms, path) == 2)
            run_units(work, ms, path);
        else if (strcmp(line, "check\n") == 0)
            printf("mismatches=%d\n", checksum() != right);
        else
            fail("no such request: %s", line);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    uint64_t bytes = 0, spare_bytes = 0, seed = 1;
    unit (*make)(uint64_t, uint64_t) = nullptr;
    for (const auto &program : programs)
        if (argc > 1 && strcmp(argv[1], program.name) == 0)
            make = program.make;
    current.name = "science";
    for (int i = 2; i + 1 < argc; i += 2) {
        uint64_t *value = !strcmp(argv[i], "--bytes")   ? &bytes
                          : !strcmp(argv[i], "--spare") ? &spare_bytes
                          : !strcmp(argv[i], "--seed")  ? &seed
                                                        : nullptr;
        if (value == nullptr)
            make = nullptr;
        else
            *value = parse_whole(argv[i], argv[i + 1], 0, 1ull << 40);
    }
    if (make == nullptr || argc % 2 != 0 || bytes < 16u << 20) {
        fprintf(stderr, "usage: science NAME --bytes N [--spare N] [--seed N]\n");
        return 2;
    }
    if (spare_bytes > 0) {
        spare = {allocate<uint32_t>(spare_bytes / 4), spare_bytes / 4, false};
        uint32_t *at = spare.at;
        each(spare.words, [=] __device__(uint64_t i) { at[i] = (uint32_t)mix(seed, i); });
    }
    unit work = make(bytes, seed);
    work();
    CHECK(cudaDeviceSynchronize());
    const uint64_t right = checksum();
    unsigned long long clean = 0, dirty = 0;
    for (const array &one : arrays)
        *(one.is_written ? &dirty : &clean) += one.words * 4;
    printf("ready bytes=%llu clean=%llu dirty=%llu\n", clean + dirty + spare.words * 4, clean,
           dirty);
    fflush(stdout);
    serve(work, right);
    CHECK(cudaDeviceSynchronize());
    return 0;
}
