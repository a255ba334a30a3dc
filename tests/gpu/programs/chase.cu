/*
 * Pointers in device memory: nodes in many allocations of 4 MiB, each with the address of the next,
 * all in one cycle that jumps between the allocations. Walkers cover the whole cycle, add up what
 * they meet and change it.
 *
 * The cycle is that of a linear congruential generator: where each walker goes and what it meets is
 * known without following a pointer.
 */
#include "common.cuh"

constexpr uint64_t PART = (4 << 20) / 16; /* nodes in an allocation */
constexpr unsigned HOPS = 64;

struct node {
    node *next;
    uint64_t value;
};

__device__ static node *node_at(node *const *parts, uint64_t i)
{
    return parts[i / PART] + i % PART;
}

/* Each walker starts from its own node; values change by an affine step. */
__global__ void walk(node **starts, uint64_t walkers, affine change, uint64_t *totals, node **ends)
{
    for (uint64_t walker = thread_index(); walker < walkers; walker += thread_count()) {
        node *at = starts[walker];
        uint64_t total = 0;
        for (unsigned hop = 0; hop < HOPS; hop++) {
            total = total * 31 + at->value; /* the order counts */
            at->value = change(at->value);
            at = at->next;
        }
        totals[walker] = total;
        ends[walker] = at;
    }
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "chase", 1024, 4);
    const uint64_t count = power_of_two_below(work.mib / 4), n = count * PART, seed = work.seed;
    const uint64_t walkers = n / HOPS;
    const affine step = {(mix(seed, 1) & ~7ull) | 5,
                         mix(seed, 2) | 1}; /* the full cycle modulo 2^k */
    std::vector<node *> memory(count);
    for (node *&part : memory)
        part = allocate<node>(PART);
    node **parts = allocate<node *>(count), **starts = allocate<node *>(walkers);
    node **ends = allocate<node *>(walkers);
    uint64_t *totals = allocate<uint64_t>(walkers);
    upload(parts, memory);
    each(n, [=] __device__(uint64_t i) {
        *node_at(parts, i) = {node_at(parts, step(i) & (n - 1)), mix(seed, i)};
    });
    each(walkers, [=] __device__(uint64_t walker) {
        starts[walker] = node_at(parts, step.times(walker * HOPS)(0) & (n - 1));
    });

    affine changed = {1, 0};
    while (work.next()) {
        const affine change = {2 * mix(~seed, work.rounds) + 1, mix(seed, ~work.rounds)},
                     before = changed;
        walk<<<blocks_for(walkers), 256>>>(starts, walkers, change, totals, ends);
        CHECK(cudaGetLastError());
        changed = changed.then(change);
        verify("the walkers", walkers, [=] __device__(uint64_t walker) {
            uint64_t at = step.times(walker * HOPS)(0) & (n - 1), total = 0;
            for (unsigned hop = 0; hop < HOPS; hop++) {
                total = total * 31 + before(mix(seed, at));
                at = step(at) & (n - 1);
            }
            return totals[walker] == total && ends[walker] == node_at(parts, at) &&
                   ends[walker] == starts[(walker + 1) % walkers];
        });
        const affine now = changed;
        verify("the nodes", n, [=] __device__(uint64_t i) {
            const node at = *node_at(parts, i);
            return at.value == now(mix(seed, i)) && at.next == node_at(parts, step(i) & (n - 1));
        });
    }
    for (node *part : memory)
        release(part);
    release(parts, starts, ends, totals);
    return work.passed();
}
