/*
 * Copies overlapped with kernels: an array that stays on the GPU is worked through in pieces of 8
 * MiB by three streams, each with its pinned buffers (one of them ordinary memory that was
 * registered): a piece of new data goes in, the difference to the old comes out.
 *
 * The CPU makes the new data and compares what comes out with the generator's of this and the last
 * round.
 */
#include "common.cuh"

constexpr uint64_t PIECE = 1 << 20; /* words */
constexpr int SLOTS = 3;

/* out = in - array; array = in */
__global__ void replace(uint64_t *array, const uint64_t *in, uint64_t *out)
{
    for (uint64_t i = thread_index(); i < PIECE; i += thread_count()) {
        uint64_t now = in[i];
        out[i] = now - array[i];
        array[i] = now;
    }
}

struct slot {
    uint64_t *in, *out;             /* pinned */
    uint64_t *in_there, *out_there; /* on the GPU */
    cudaStream_t stream;
    cudaEvent_t done;
    uint64_t first; /* the place in the array of what is under way, or ~0 */
};

static void take(slot &s, uint64_t old_seed)
{
    if (s.first == ~0ull)
        return;
    CHECK(cudaEventSynchronize(s.done));
    for (uint64_t i = 0; i < PIECE; i++)
        if (s.out[i] != s.in[i] - mix(old_seed, s.first + i))
            fail("round %llu: what came out for word %llu is wrong",
                 (unsigned long long)current.rounds, (unsigned long long)(s.first + i));
    s.first = ~0ull;
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "pinned", 384, 8);
    const uint64_t pieces = work.bytes() / (PIECE * sizeof(uint64_t)), n = pieces * PIECE;
    const uint64_t size = PIECE * sizeof(uint64_t);
    uint64_t *array = allocate<uint64_t>(n), seed = mix(work.seed, 0);
    slot slots[SLOTS];
    void *ordinary = aligned_alloc(4096, size);
    if (ordinary == nullptr)
        fail("no host memory");
    for (slot &s : slots) {
        CHECK(cudaHostAlloc(&s.in, size, cudaHostAllocPortable));
        CHECK(cudaMallocHost(&s.out, size));
        s.in_there = allocate<uint64_t>(PIECE);
        s.out_there = allocate<uint64_t>(PIECE);
        CHECK(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&s.done, cudaEventDisableTiming | cudaEventBlockingSync));
        s.first = ~0ull;
    }
    CHECK(cudaFreeHost(slots[0].out));
    slots[0].out = (uint64_t *)ordinary;
    CHECK(cudaHostRegister(ordinary, size, cudaHostRegisterDefault));
    each(n, [=] __device__(uint64_t i) { array[i] = mix(seed, i); });
    CHECK(cudaDeviceSynchronize());

    while (work.next()) {
        const uint64_t old_seed = seed;
        seed = mix(work.seed, work.rounds);
        for (uint64_t piece = 0; piece < pieces; piece++) {
            slot &s = slots[piece % SLOTS];
            take(s, old_seed);
            s.first = piece * PIECE;
            for (uint64_t i = 0; i < PIECE; i++)
                s.in[i] = mix(seed, s.first + i);
            CHECK(cudaMemcpyAsync(s.in_there, s.in, size, cudaMemcpyHostToDevice, s.stream));
            replace<<<blocks_for(PIECE), 256, 0, s.stream>>>(array + s.first, s.in_there,
                                                             s.out_there);
            CHECK(cudaGetLastError());
            CHECK(cudaMemcpyAsync(s.out, s.out_there, size, cudaMemcpyDeviceToHost, s.stream));
            CHECK(cudaEventRecord(s.done, s.stream));
        }
        for (slot &s : slots)
            take(s, old_seed);
        const uint64_t now = seed;
        verify("the array", n, [=] __device__(uint64_t i) { return array[i] == mix(now, i); });
    }
    CHECK(cudaHostUnregister(ordinary));
    free(ordinary);
    for (slot &s : slots) {
        CHECK(cudaFreeHost(s.in));
        if (s.out != ordinary)
            CHECK(cudaFreeHost(s.out));
        CHECK(cudaStreamDestroy(s.stream));
        CHECK(cudaEventDestroy(s.done));
        release(s.in_there, s.out_there);
    }
    release(array);
    return work.passed();
}
