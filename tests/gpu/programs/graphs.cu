/*
 * CUDA graphs, captured from two streams: two arrays of generators step, a third takes their
 * difference, and a part of it goes to pinned host memory. Each round captures the graph anew with
 * other constants, updates the executable one with it, and launches it many times.
 *
 * The generators' states are known in closed form after any number of launches.
 */
#include "common.cuh"

constexpr int LAUNCHES = 25;
constexpr uint64_t SAMPLE = 4096;

__global__ void advance(uint64_t *states, uint64_t n, affine step)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count())
        states[i] = states[i] * step.factor + step.term;
}

__global__ void subtract(const uint64_t *left, const uint64_t *right, uint64_t *difference,
                         uint64_t n, unsigned long long *runs)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count())
        difference[i] = left[i] - right[i];
    if (thread_index() == 0)
        atomicAdd(runs, 1ull);
}

struct arrays {
    uint64_t *left, *right, *difference, n;
    unsigned long long *runs; /* of the graph since it was captured; a node of the graph counts */
    uint64_t *sample;         /* pinned host memory */
};

static cudaGraph_t capture(const arrays &a, affine step_left, affine step_right, cudaStream_t first,
                           cudaStream_t second)
{
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(fork, first));
    CHECK(cudaStreamWaitEvent(second, fork, 0));
    advance<<<blocks_for(a.n), 256, 0, first>>>(a.left, a.n, step_left);
    advance<<<blocks_for(a.n), 256, 0, second>>>(a.right, a.n, step_right);
    CHECK(cudaEventRecord(join, second));
    CHECK(cudaMemsetAsync(a.difference, 0, a.n * sizeof(uint64_t), first));
    CHECK(cudaStreamWaitEvent(first, join, 0));
    subtract<<<blocks_for(a.n), 256, 0, first>>>(a.left, a.right, a.difference, a.n, a.runs);
    CHECK(cudaMemcpyAsync(a.sample, a.difference + a.n - SAMPLE, SAMPLE * sizeof(uint64_t),
                          cudaMemcpyDeviceToHost, first));
    CHECK(cudaStreamEndCapture(first, &graph));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
    return graph;
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "graphs", 768);
    const uint64_t n = work.bytes() / (3 * sizeof(uint64_t)), seed = work.seed;
    arrays a = {allocate<uint64_t>(n),           allocate<uint64_t>(n),
                allocate<uint64_t>(n),           n,
                allocate<unsigned long long>(1), nullptr};
    CHECK(cudaHostAlloc(&a.sample, SAMPLE * sizeof(uint64_t), cudaHostAllocDefault));
    cudaStream_t first, second;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    each(n, [=] __device__(uint64_t i) {
        a.left[i] = mix(seed, i);
        a.right[i] = mix(~seed, i);
    });
    CHECK(cudaDeviceSynchronize());

    affine all_left = {1, 0}, all_right = {1, 0}; /* since the beginning */
    cudaGraphExec_t executable = nullptr;
    while (work.next()) {
        const affine step_left = {4 * mix(seed, work.rounds) + 1, 2 * mix(seed, ~work.rounds) + 1};
        const affine step_right = {4 * mix(~seed, work.rounds) + 1,
                                   2 * mix(~seed, ~work.rounds) + 1};
        cudaGraph_t graph = capture(a, step_left, step_right, first, second);
        if (executable == nullptr) {
            CHECK(cudaGraphInstantiate(&executable, graph, 0));
        } else {
            cudaGraphExecUpdateResultInfo info;
            CHECK(cudaGraphExecUpdate(executable, graph, &info));
        }
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaMemset(a.runs, 0, sizeof(*a.runs)));
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < LAUNCHES; i++)
            CHECK(cudaGraphLaunch(executable, first));
        CHECK(cudaStreamSynchronize(first));
        all_left = all_left.then(step_left.times(LAUNCHES));
        all_right = all_right.then(step_right.times(LAUNCHES));

        const affine left = all_left, right = all_right;
        same("the graph's runs", fetch(a.runs, 1)[0], LAUNCHES);
        verify("the arrays", n, [=] __device__(uint64_t i) {
            uint64_t one = left(mix(seed, i)), other = right(mix(~seed, i));
            return a.left[i] == one && a.right[i] == other && a.difference[i] == one - other;
        });
        for (uint64_t i = 0; i < SAMPLE; i++) {
            uint64_t place = n - SAMPLE + i;
            same("the part on the host", a.sample[i],
                 left(mix(seed, place)) - right(mix(~seed, place)));
        }
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaFreeHost(a.sample));
    release(a.left, a.right, a.difference, a.runs);
    return work.passed();
}
