/*
 * Host functions in the middle of streams: for each piece of an array a kernel steps all words, the
 * first of them go to the host, a host function there checks and steps them, they go back, and a
 * kernel steps all again. Two streams take the pieces in turn; the host waits only at the end of a
 * round.
 *
 * All steps are affine, so that each word is known in closed form.
 */
#include <atomic>

#include "common.cuh"

constexpr uint64_t PIECES = 16, PART = 32768; /* words of a piece that go through the host */
constexpr affine BEFORE = {6364136223846793005ull, 11}, ON_HOST = {2862933555777941757ull, 7},
                 AFTER = {3935559000370003845ull, 5};

__global__ void advance(uint64_t *words, uint64_t n, affine step)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count())
        words[i] = step(words[i]);
}

struct piece {
    uint64_t *words; /* on the GPU */
    uint64_t *part;  /* pinned host memory */
    uint64_t first, seed;
    affine known; /* what the words of the part are when the host function sees them */
    std::atomic<uint64_t> calls{0}, wrong{0};
};

static void CUDART_CB on_host(void *argument)
{
    piece &own = *(piece *)argument;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < PART; i++) {
        wrong += own.part[i] != own.known(mix(own.seed, own.first + i));
        own.part[i] = ON_HOST(own.part[i]);
    }
    own.wrong += wrong;
    own.calls++;
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "callbacks", 512, 8);
    const uint64_t length = work.bytes() / sizeof(uint64_t) / PIECES, n = length * PIECES,
                   seed = work.seed;
    uint64_t *words = allocate<uint64_t>(n), *parts;
    CHECK(cudaMallocHost(&parts, PIECES * PART * sizeof(uint64_t)));
    std::vector<piece> pieces(PIECES);
    cudaStream_t streams[2];
    for (cudaStream_t &stream : streams)
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (uint64_t p = 0; p < PIECES; p++) {
        pieces[p].words = words + p * length;
        pieces[p].part = parts + p * PART;
        pieces[p].first = p * length;
        pieces[p].seed = seed;
    }
    each(n, [=] __device__(uint64_t i) { words[i] = mix(seed, i); });
    CHECK(cudaDeviceSynchronize());

    affine through_host = {1, 0}, others = {1, 0};
    while (work.next()) {
        for (uint64_t p = 0; p < PIECES; p++) {
            piece &own = pieces[p];
            cudaStream_t stream = streams[p % 2];
            const uint64_t size = PART * sizeof(uint64_t);
            own.known = through_host.then(BEFORE);
            advance<<<blocks_for(length), 256, 0, stream>>>(own.words, length, BEFORE);
            CHECK(cudaGetLastError());
            CHECK(cudaMemcpyAsync(own.part, own.words, size, cudaMemcpyDeviceToHost, stream));
            CHECK(cudaLaunchHostFunc(stream, on_host, &own));
            CHECK(cudaMemcpyAsync(own.words, own.part, size, cudaMemcpyHostToDevice, stream));
            advance<<<blocks_for(length), 256, 0, stream>>>(own.words, length, AFTER);
            CHECK(cudaGetLastError());
        }
        through_host = through_host.then(BEFORE).then(ON_HOST).then(AFTER);
        others = others.then(BEFORE).then(AFTER);
        for (cudaStream_t stream : streams)
            CHECK(cudaStreamSynchronize(stream));
        for (const piece &own : pieces) {
            same("calls of a host function", own.calls, work.rounds);
            same("wrong words that it saw", own.wrong, 0);
        }
        const affine one = through_host, other = others;
        verify("the words", n, [=] __device__(uint64_t i) {
            return words[i] == (i % length < PART ? one : other)(mix(seed, i));
        });
    }
    for (cudaStream_t stream : streams)
        CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(parts));
    release(words);
    return work.passed();
}
