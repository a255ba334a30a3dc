/*
 * Stream-ordered allocation: buffers of random sizes come from the device's default pool and from
 * one of our own, on three streams, are filled, and after some time checked and freed, often on
 * another stream than they came from.
 *
 * The host waits only at the end of a round: that a buffer's memory is not given to another one
 * while it is in use is up to the order of the streams. Some buffers live on from round to round.
 */
#include "common.cuh"

constexpr int STREAMS = 3, ACTIONS = 96;

struct buffer {
    uint64_t *memory, words, seed;
    int stream; /* that it was allocated and filled on */
};

__global__ void fill(uint64_t *memory, uint64_t n, uint64_t seed)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count())
        memory[i] = mix(seed, i);
}

/* Counts what is wrong, and spoils it all: whoever reads it after this sees that. */
__global__ void check_and_spoil(uint64_t *memory, uint64_t n, uint64_t seed,
                                unsigned long long *wrong)
{
    unsigned long long count = 0;
    for (uint64_t i = thread_index(); i < n; i += thread_count()) {
        count += memory[i] != mix(seed, i);
        memory[i] = ~i;
    }
    if (count)
        atomicAdd(wrong, count);
}

struct world {
    cudaStream_t streams[STREAMS];
    cudaEvent_t event;
    cudaMemPool_t own;
    std::vector<buffer> live;
    uint64_t bytes; /* of live */
    unsigned long long *wrong;

    void make(uint64_t random, uint64_t least, uint64_t most);
    void end(uint64_t random);
};

void world::make(uint64_t random, uint64_t least, uint64_t most)
{
    buffer b = {nullptr, 0, random, (int)(random % STREAMS)};
    b.words = (least + mix(random, 0) % (most - least)) / sizeof(uint64_t);
    uint64_t size = b.words * sizeof(uint64_t);
    if (random >> 32 & 1)
        CHECK(cudaMallocAsync(&b.memory, size, streams[b.stream]));
    else
        CHECK(cudaMallocFromPoolAsync(&b.memory, size, own, streams[b.stream]));
    fill<<<blocks_for(b.words), 256, 0, streams[b.stream]>>>(b.memory, b.words, b.seed);
    CHECK(cudaGetLastError());
    live.push_back(b);
    bytes += size;
}

/* Checks and frees one, maybe on another stream, which then waits for the first. */
void world::end(uint64_t random)
{
    std::swap(live[random % live.size()], live.back());
    buffer b = live.back();
    int stream = (int)(mix(random, 1) % STREAMS);
    live.pop_back();
    bytes -= b.words * sizeof(uint64_t);
    if (stream != b.stream) {
        CHECK(cudaEventRecord(event, streams[b.stream]));
        CHECK(cudaStreamWaitEvent(streams[stream], event, 0));
    }
    check_and_spoil<<<blocks_for(b.words), 256, 0, streams[stream]>>>(b.memory, b.words, b.seed,
                                                                      wrong);
    CHECK(cudaGetLastError());
    CHECK(cudaFreeAsync(b.memory, streams[stream]));
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "pools", 1024);
    world w = {};
    cudaMemPool_t common;
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    uint64_t keep = work.bytes() / 2, used = 0;
    CHECK(cudaDeviceGetDefaultMemPool(&common, 0));
    CHECK(cudaMemPoolCreate(&w.own, &properties));
    CHECK(cudaMemPoolSetAttribute(w.own, cudaMemPoolAttrReleaseThreshold, &keep));
    for (cudaStream_t &stream : w.streams)
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&w.event, cudaEventDisableTiming));
    w.wrong = allocate<unsigned long long>(1);
    CHECK(cudaMemset(w.wrong, 0, sizeof(*w.wrong)));
    CHECK(cudaDeviceSynchronize());

    const uint64_t least = work.bytes() / 512, most = work.bytes() / 16;
    while (work.next()) {
        for (uint64_t action = 0; action < ACTIONS; action++) {
            uint64_t random = mix(mix(work.seed, work.rounds), action);
            bool is_full = w.bytes + most > work.bytes();
            if (!w.live.empty() && (is_full || random >> 40 & 1))
                w.end(random);
            else
                w.make(random, least, most);
        }
        while (w.live.size() > 8) /* the others live on */
            w.end(mix(work.rounds, w.live.size()));
        CHECK(cudaDeviceSynchronize());
        same("wrong words", fetch(w.wrong, 1)[0], 0);
        CHECK(cudaMemPoolTrimTo(w.own, 0));
    }
    while (!w.live.empty())
        w.end(0);
    CHECK(cudaDeviceSynchronize());
    same("wrong words", fetch(w.wrong, 1)[0], 0);
    for (cudaMemPool_t pool : {common, w.own}) {
        CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
        same("bytes left in a pool", used, 0);
    }
    CHECK(cudaMemPoolDestroy(w.own));
    CHECK(cudaEventDestroy(w.event));
    for (cudaStream_t stream : w.streams)
        CHECK(cudaStreamDestroy(stream));
    release(w.wrong);
    return work.passed();
}
