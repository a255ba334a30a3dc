/*
 * The Mandelbrot set in double, one section around the real axis each round; points that come back
 * to where they were are found early.
 *
 * Every point is computed again by a plain loop; the picture must be its own mirror image; and some
 * points are computed on the CPU. All use the same order of rounding, without fused multiply-add:
 * equal to the bit.
 */
#include "common.cuh"

constexpr unsigned WIDTH = 8192, LIMIT = 500, ON_CPU = 500;

struct section {
    double left, step;
    unsigned height;

    double x(uint64_t i) const
    {
        return left + step * (double)(i % WIDTH);
    }
    /* A row and its mirror image are exactly opposite. */
    double y(uint64_t i) const
    {
        return step * ((double)(i / WIDTH) + 0.5 - height / 2);
    }
};

/* z = z * z + c */
__device__ static void iterate(double &zx, double &zy, double cx, double cy)
{
    double xx = __dmul_rn(zx, zx), yy = __dmul_rn(zy, zy), xy = __dmul_rn(zx, zy);
    zx = __dadd_rn(__dsub_rn(xx, yy), cx);
    zy = __dadd_rn(__dadd_rn(xy, xy), cy);
}

__device__ static bool is_gone(double zx, double zy)
{
    return __dadd_rn(__dmul_rn(zx, zx), __dmul_rn(zy, zy)) > 4;
}

__global__ void draw(uint32_t *picture, section where, const double *xs, const double *ys)
{
    unsigned x = blockIdx.y * blockDim.x + threadIdx.x, y = blockIdx.x * blockDim.y + threadIdx.y;
    if (y >= where.height)
        return;
    double cx = xs[x], cy = ys[y], zx = 0, zy = 0, old_x = 0, old_y = 0;
    unsigned count = 0, next_look = 8;
    while (count < LIMIT && !is_gone(zx, zy)) {
        iterate(zx, zy, cx, cy);
        count++;
        if (zx == old_x && zy == old_y) /* a cycle: never gone */
            count = LIMIT;
        if (count == next_look) {
            old_x = zx;
            old_y = zy;
            next_look *= 2;
        }
    }
    picture[(uint64_t)y * WIDTH + x] = count;
}

static uint32_t count_on_cpu(double cx, double cy)
{
    double zx = 0, zy = 0;
    uint32_t count = 0;
    for (; count < LIMIT && zx * zx + zy * zy <= 4; count++) {
        double next = zx * zx - zy * zy + cx;
        zy = zx * zy + zx * zy + cy;
        zx = next;
    }
    return count;
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "mandelbrot", 512);
    const unsigned height = (unsigned)(work.bytes() / sizeof(uint32_t) / WIDTH);
    const uint64_t n = (uint64_t)WIDTH * height;
    uint32_t *picture = allocate<uint32_t>(n);
    double *xs = allocate<double>(WIDTH), *ys = allocate<double>(height);

    while (work.next()) {
        const uint64_t seed = mix(work.seed, work.rounds);
        const double across = 3.0 / (double)(1 + seed % 4); /* of the section */
        const section where = {-2.1 + (3.0 - across) * 0.5, across / WIDTH, height};
        std::vector<double> x(WIDTH),
            y(height); /* computed once, so that they are the same everywhere */
        for (unsigned i = 0; i < WIDTH; i++)
            x[i] = where.x(i);
        for (unsigned i = 0; i < height; i++)
            y[i] = where.y((uint64_t)i * WIDTH);
        upload(xs, x);
        upload(ys, y);
        draw<<<dim3(divide_up(height, 8), WIDTH / 32), dim3(32, 8)>>>(picture, where, xs, ys);
        CHECK(cudaGetLastError());
        verify("the picture", n, [=] __device__(uint64_t i) {
            double cx = xs[i % WIDTH], cy = ys[i / WIDTH], zx = 0, zy = 0;
            uint32_t count = 0;
            for (; count < LIMIT && !is_gone(zx, zy); count++)
                iterate(zx, zy, cx, cy);
            return picture[i] == count;
        });
        verify("the mirror image", n, [=] __device__(uint64_t i) {
            return picture[i] == picture[(height - 1 - i / WIDTH) * WIDTH + i % WIDTH];
        });
        for (unsigned sample = 0; sample < ON_CPU; sample++) {
            uint64_t i = mix(seed, sample) % n;
            same("a point", fetch(picture + i, 1)[0], count_on_cpu(x[i % WIDTH], y[i / WIDTH]));
        }
    }
    release(picture, xs, ys);
    return work.passed();
}
