/*
 * Textures: a picture in a CUDA array, changed by surface writes and by copies from plain memory,
 * and a large plain array read through a linear texture; each word of the result is a word of both.
 *
 * All words are the generator's, at the places that were read.
 */
#include "common.cuh"

constexpr unsigned WIDTH = 2048, HEIGHT = 1024;

/* What the picture holds: even rows come from plain memory, odd ones are written by a kernel. */
__device__ static uint32_t picture_at(uint64_t seed, uint64_t x, uint64_t y)
{
    return (uint32_t)mix(y % 2 ? ~seed : seed, y * WIDTH + x);
}

__device__ static uint64_t place_of(uint64_t seed, uint64_t i)
{
    return (i * 0x9E3779B97F4A7C15ull + seed) >> 16;
}

__global__ void write_odd_rows(cudaSurfaceObject_t picture, uint64_t seed)
{
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = 2 * blockIdx.y + 1;
    surf2Dwrite(picture_at(seed, x, y), picture, (int)(x * sizeof(uint32_t)), (int)y);
}

__global__ void read(cudaTextureObject_t picture, cudaTextureObject_t line, uint32_t *result,
                     uint64_t n, uint64_t seed)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count()) {
        uint64_t place = place_of(seed, i);
        float x = (float)(place % WIDTH) + 0.5f, y = (float)(place / WIDTH % HEIGHT) + 0.5f;
        result[i] = tex2D<uint32_t>(picture, x, y) -
                    tex1Dfetch<uint32_t>(line, (int)((i ^ place % 64) % n));
    }
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "textures", 768);
    /* a linear texture has at most 2^27 words */
    const uint64_t n = std::min<uint64_t>(work.bytes() / (2 * sizeof(uint32_t)), 1 << 27);
    const uint64_t first_seed = work.seed;
    uint32_t *line = allocate<uint32_t>(n), *result = allocate<uint32_t>(n);
    uint32_t *rows = allocate<uint32_t>(WIDTH * HEIGHT), changed = 0;
    const cudaChannelFormatDesc word = cudaCreateChannelDesc<uint32_t>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &word, WIDTH, HEIGHT, cudaArraySurfaceLoadStore));
    each(n, [=] __device__(uint64_t i) { line[i] = (uint32_t)mix(first_seed, i); });

    cudaResourceDesc of_array = {}, of_line = {};
    of_array.resType = cudaResourceTypeArray;
    of_array.res.array.array = array;
    of_line.resType = cudaResourceTypeLinear;
    of_line.res.linear.devPtr = line;
    of_line.res.linear.desc = word;
    of_line.res.linear.sizeInBytes = n * sizeof(uint32_t);
    cudaTextureDesc as_is = {};
    as_is.addressMode[0] = as_is.addressMode[1] = cudaAddressModeClamp;
    as_is.filterMode = cudaFilterModePoint;
    as_is.readMode = cudaReadModeElementType;
    cudaTextureObject_t picture, long_line;
    cudaSurfaceObject_t surface;
    CHECK(cudaCreateTextureObject(&picture, &of_array, &as_is, nullptr));
    CHECK(cudaCreateTextureObject(&long_line, &of_line, &as_is, nullptr));
    CHECK(cudaCreateSurfaceObject(&surface, &of_array));

    while (work.next()) {
        const uint64_t seed = mix(first_seed, work.rounds);
        const uint32_t change = (uint32_t)seed, all = changed ^ change;
        each(n, [=] __device__(uint64_t i) { line[i] ^= change; });
        changed = all;
        each(WIDTH * HEIGHT,
             [=] __device__(uint64_t i) { rows[i] = picture_at(seed, i % WIDTH, i / WIDTH); });
        CHECK(cudaMemcpy2DToArray(array, 0, 0, rows, WIDTH * sizeof(uint32_t),
                                  WIDTH * sizeof(uint32_t), HEIGHT, cudaMemcpyDeviceToDevice));
        CHECK(cudaMemset(rows, 0, WIDTH * HEIGHT * sizeof(uint32_t)));
        write_odd_rows<<<dim3(WIDTH / 256, HEIGHT / 2), 256>>>(surface, seed);
        read<<<blocks_for(n), 256>>>(picture, long_line, result, n, seed);
        CHECK(cudaGetLastError());
        verify("the result", n, [=] __device__(uint64_t i) {
            uint64_t place = place_of(seed, i);
            uint32_t of_line = (uint32_t)mix(first_seed, (i ^ place % 64) % n) ^ all;
            return result[i] == picture_at(seed, place % WIDTH, place / WIDTH % HEIGHT) - of_line;
        });
        CHECK(cudaMemcpy2DFromArray(rows, WIDTH * sizeof(uint32_t), array, 0, 0,
                                    WIDTH * sizeof(uint32_t), HEIGHT, cudaMemcpyDeviceToDevice));
        verify("the picture", WIDTH * HEIGHT, [=] __device__(uint64_t i) {
            return rows[i] == picture_at(seed, i % WIDTH, i / WIDTH);
        });
    }
    CHECK(cudaDestroyTextureObject(picture));
    CHECK(cudaDestroyTextureObject(long_line));
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(array));
    release(line, result, rows);
    return work.passed();
}
