/*
 * Jacobi's method for Poisson's equation on a grid in four slabs, each with its own memory and
 * stream: a step copies the neighbours' edge rows in, and events keep the slabs in step; the host
 * only waits at the round's end.
 *
 * A plain kernel without slabs does the same steps, with the source from the generator; both must
 * agree in every point to the bit, from the first round to the last.
 */
#include "common.cuh"

constexpr unsigned WIDTH = 4096, SLABS = 4;
constexpr int STEPS = 24;

__device__ static double source_at(uint64_t seed, uint64_t i)
{
    return (double)(mix(seed, i) & 0xff) - 127.5;
}

/* The rows 1 .. rows of a slab; 0 and rows + 1 are the neighbours'. The grid's rim stays zero. */
__global__ void relax(const double *from, double *to, const double *source, unsigned rows)
{
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x,
             y = blockIdx.y * blockDim.y + threadIdx.y + 1;
    if (y > rows)
        return;
    uint64_t i = (uint64_t)y * WIDTH + x;
    double west = x > 0 ? from[i - 1] : 0, east = x + 1 < WIDTH ? from[i + 1] : 0;
    double sum = __dadd_rn(__dadd_rn(from[i - WIDTH], from[i + WIDTH]), __dadd_rn(west, east));
    to[i] = __dmul_rn(0.25, __dadd_rn(sum, source[i]));
}

struct slab {
    double *now, *next, *source;
    cudaStream_t stream;
    cudaEvent_t done; /* its last step */
};

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "jacobi", 1024);
    /* three arrays in slabs and two for the proof */
    const unsigned rows =
        std::max((unsigned)(work.bytes() / (5 * sizeof(double) * WIDTH) / SLABS), 1u);
    const uint64_t n = (uint64_t)rows * SLABS * WIDTH, seed = work.seed,
                   row_bytes = WIDTH * sizeof(double);
    double *plain = allocate<double>(n), *plain_next = allocate<double>(n);
    CHECK(cudaMemset(plain, 0, n * sizeof(double)));
    slab slabs[SLABS];
    for (unsigned s = 0; s < SLABS; s++) {
        const uint64_t length = (uint64_t)(rows + 2) * WIDTH, first = (uint64_t)s * rows * WIDTH;
        slabs[s].now = allocate<double>(length);
        slabs[s].next = allocate<double>(length);
        double *source = slabs[s].source = allocate<double>(length);
        CHECK(cudaMemset(slabs[s].now, 0, length * sizeof(double)));
        CHECK(cudaMemset(slabs[s].next, 0, length * sizeof(double)));
        each((uint64_t)rows * WIDTH,
             [=] __device__(uint64_t i) { source[WIDTH + i] = source_at(seed, first + i); });
        CHECK(cudaStreamCreateWithFlags(&slabs[s].stream, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&slabs[s].done, cudaEventDisableTiming));
    }
    cudaEvent_t begun, ended;
    CHECK(cudaEventCreate(&begun));
    CHECK(cudaEventCreate(&ended));
    CHECK(cudaDeviceSynchronize());

    while (work.next()) {
        CHECK(cudaEventRecord(begun, slabs[0].stream));
        for (int step = 0; step < STEPS; step++) {
            for (unsigned s = 0; s < SLABS;
                 s++) { /* the neighbours' last step is done: take their edges */
                slab &own = slabs[s];
                if (s > 0) {
                    CHECK(cudaStreamWaitEvent(own.stream, slabs[s - 1].done, 0));
                    CHECK(cudaMemcpyAsync(own.now, slabs[s - 1].now + (uint64_t)rows * WIDTH,
                                          row_bytes, cudaMemcpyDeviceToDevice, own.stream));
                }
                if (s + 1 < SLABS) {
                    CHECK(cudaStreamWaitEvent(own.stream, slabs[s + 1].done, 0));
                    CHECK(cudaMemcpyAsync(own.now + (uint64_t)(rows + 1) * WIDTH,
                                          slabs[s + 1].now + WIDTH, row_bytes,
                                          cudaMemcpyDeviceToDevice, own.stream));
                }
            }
            for (slab &own : slabs) {
                relax<<<dim3(WIDTH / 256, rows), 256, 0, own.stream>>>(own.now, own.next,
                                                                       own.source, rows);
                CHECK(cudaGetLastError());
                CHECK(cudaEventRecord(own.done, own.stream));
            }
            for (slab &own : slabs)
                std::swap(own.now, own.next);
        }
        for (slab &own : slabs)
            CHECK(cudaStreamWaitEvent(slabs[0].stream, own.done, 0));
        CHECK(cudaEventRecord(ended, slabs[0].stream));

        for (int step = 0; step < STEPS; step++) {
            const double *from = plain;
            double *to = plain_next;
            each(n, [=] __device__(uint64_t i) {
                double vertical =
                    __dadd_rn(i < WIDTH ? 0 : from[i - WIDTH], i + WIDTH < n ? from[i + WIDTH] : 0);
                double level =
                    __dadd_rn(i % WIDTH ? from[i - 1] : 0, (i + 1) % WIDTH ? from[i + 1] : 0);
                to[i] = __dmul_rn(__dadd_rn(__dadd_rn(vertical, level), source_at(seed, i)), 0.25);
            });
            std::swap(plain, plain_next);
        }
        CHECK(cudaEventSynchronize(ended));
        float milliseconds;
        CHECK(cudaEventElapsedTime(&milliseconds, begun, ended));
        if (!(milliseconds > 0))
            fail("the events are %f ms apart", (double)milliseconds);
        for (unsigned s = 0; s < SLABS; s++) {
            const double *one = slabs[s].now + WIDTH, *other = plain + (uint64_t)s * rows * WIDTH;
            verify("a slab", (uint64_t)rows * WIDTH,
                   [=] __device__(uint64_t i) { return one[i] == other[i]; });
        }
    }
    for (slab &own : slabs) {
        release(own.now, own.next, own.source);
        CHECK(cudaStreamDestroy(own.stream));
        CHECK(cudaEventDestroy(own.done));
    }
    CHECK(cudaEventDestroy(begun));
    CHECK(cudaEventDestroy(ended));
    release(plain, plain_next);
    return work.passed();
}
