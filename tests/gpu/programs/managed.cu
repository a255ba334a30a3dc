/*
 * A small managed table beside a large plain array: the CPU writes the table, the GPU looks it up
 * for every word of the array, counts up each entry, and adds up into managed memory; the CPU reads
 * both.
 *
 * The array's words are the generator's at the places that were looked up; they are checked again
 * before the next round overwrites them.
 */
#include "common.cuh"

constexpr uint64_t ENTRIES = 1 << 20; /* 8 MiB */

__device__ static uint64_t place_of(uint64_t round, uint64_t i)
{
    return (i * 0x9E3779B97F4A7C15ull + round) >> 20 & (ENTRIES - 1);
}

__global__ void look_up(const uint64_t *table, uint64_t *array, uint64_t n, uint64_t round)
{
    for (uint64_t i = thread_index(); i < n; i += thread_count())
        array[i] = table[place_of(round, i)] + i;
}

__global__ void count_up(uint64_t *table, unsigned long long *total)
{
    unsigned long long part = 0;
    for (uint64_t i = thread_index(); i < ENTRIES; i += thread_count())
        part += table[i]++;
    atomicAdd(total, part);
}

/* To the device or to the host, where the driver migrates at all. */
static void prefetch(const void *memory, uint64_t bytes, bool is_to_device)
{
    int can_migrate;
    CHECK(cudaDeviceGetAttribute(&can_migrate, cudaDevAttrConcurrentManagedAccess, 0));
    if (!can_migrate)
        return;
#if CUDART_VERSION >= 13000
    cudaMemLocation where = {};
    where.type = is_to_device ? cudaMemLocationTypeDevice : cudaMemLocationTypeHost;
    CHECK(cudaMemPrefetchAsync(memory, bytes, where, 0, nullptr));
#else
    CHECK(cudaMemPrefetchAsync(memory, bytes, is_to_device ? 0 : cudaCpuDeviceId, nullptr));
#endif
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "managed", 512);
    const uint64_t n = work.bytes() / sizeof(uint64_t);
    uint64_t *array = allocate<uint64_t>(n), *table, last = 0, last_seed = 0;
    unsigned long long *total;
    CHECK(cudaMallocManaged(&table, ENTRIES * sizeof(*table)));
    CHECK(cudaMallocManaged(&total, sizeof(*total)));

    while (work.next()) {
        const uint64_t round = work.rounds, seed = mix(work.seed, round), old = last,
                       old_seed = last_seed;
        auto is_right = [=] __device__(uint64_t i) {
            return array[i] == mix(old_seed, place_of(old, i)) + i;
        };
        if (round > 1)
            verify("the array of the last round", n, is_right);
        uint64_t expected = 0;
        *total = 0;
        for (uint64_t i = 0; i < ENTRIES; i++)
            expected += table[i] = mix(seed, i);
        if (round % 2)
            prefetch(table, ENTRIES * sizeof(*table), true);
        look_up<<<blocks_for(n), 256>>>(table, array, n, round);
        count_up<<<blocks_for(ENTRIES), 256>>>(table, total);
        CHECK(cudaGetLastError());
        if (round % 2)
            prefetch(table, ENTRIES * sizeof(*table), false);
        CHECK(cudaDeviceSynchronize());
        same("the table's sum", *total, expected);
        for (uint64_t i = 0; i < ENTRIES; i++)
            same("an entry of the table", table[i], mix(seed, i) + 1);
        verify("the array", n, [=] __device__(uint64_t i) {
            return array[i] == mix(seed, place_of(round, i)) + i;
        });
        last = round;
        last_seed = seed;
    }
    release(array, table, total);
    return work.passed();
}
