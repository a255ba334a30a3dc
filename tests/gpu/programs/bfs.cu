/*
 * Breadth-first search from a random vertex of a directed graph with eight edges a vertex, level by
 * level with a queue; most edges are short, few are long.
 *
 * Proved as in Graph 500, with the edges from the generator, not from the memory: no edge skips a
 * level, and every vertex but the first has a parent one level above with an edge to it. That makes
 * every level the shortest way.
 */
#include "common.cuh"

constexpr unsigned EDGES = 8;
constexpr uint32_t UNSEEN = ~0u;

struct graph {
    uint64_t seed;
    uint32_t n;

    __host__ __device__ uint32_t target(uint32_t v, unsigned edge) const
    {
        uint64_t random = mix(seed, (uint64_t)v * EDGES + edge);
        if (edge == 0) /* a ring, so that every vertex is reached */
            return v + 1 == n ? 0 : v + 1;
        if (edge == 1 && (random >> 32) % 1024 == 0)
            return (uint32_t)(random % n);
        return (uint32_t)((v + 1 + random % 64) % n);
    }
};

__global__ void expand(const uint32_t *edges, const uint32_t *queue, uint32_t length,
                       uint32_t *level, uint32_t *parent, uint32_t depth, uint32_t *next,
                       uint32_t *next_length)
{
    for (uint64_t i = thread_index(); i < length; i += thread_count()) {
        uint32_t from = queue[i];
        for (unsigned edge = 0; edge < EDGES; edge++) {
            uint32_t to = edges[(uint64_t)from * EDGES + edge];
            if (level[to] == UNSEEN && atomicCAS(&level[to], UNSEEN, depth) == UNSEEN) {
                parent[to] = from;
                next[atomicAdd(next_length, 1u)] = to;
            }
        }
    }
}

int main(int argc, char **argv)
{
    run &work = begin(argc, argv, "bfs", 1024);
    const uint64_t count =
        std::min<uint64_t>(work.bytes() / ((EDGES + 4) * sizeof(uint32_t)), UNSEEN - 1);
    const graph g = {work.seed, (uint32_t)count};
    uint32_t *edges = allocate<uint32_t>(count * EDGES), *level = allocate<uint32_t>(count);
    uint32_t *parent = allocate<uint32_t>(count), *queue = allocate<uint32_t>(count);
    uint32_t *next = allocate<uint32_t>(count), *next_length = allocate<uint32_t>(1);
    each(count * EDGES,
         [=] __device__(uint64_t i) { edges[i] = g.target((uint32_t)(i / EDGES), i % EDGES); });

    while (work.next()) {
        const uint32_t source = (uint32_t)(mix(work.seed + 1, work.rounds) % count), zero = 0;
        CHECK(cudaMemset(level, 0xff, count * sizeof(uint32_t)));
        CHECK(cudaMemcpy(level + source, &zero, sizeof(zero), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(parent + source, &source, sizeof(source), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(queue, &source, sizeof(source), cudaMemcpyHostToDevice));
        uint64_t reached = 1;
        for (uint32_t length = 1, depth = 1; length > 0; depth++) {
            CHECK(cudaMemset(next_length, 0, sizeof(*next_length)));
            expand<<<blocks_for(length), 256>>>(edges, queue, length, level, parent, depth, next,
                                                next_length);
            CHECK(cudaGetLastError());
            CHECK(cudaMemcpy(&length, next_length, sizeof(length), cudaMemcpyDeviceToHost));
            std::swap(queue, next);
            reached += length;
        }
        same("vertices reached", reached, count);
        verify("no edge skips a level", count, [=] __device__(uint64_t v) {
            bool is_right = level[v] < g.n;
            for (unsigned edge = 0; edge < EDGES; edge++)
                is_right = is_right && level[g.target((uint32_t)v, edge)] <= level[v] + 1;
            return is_right;
        });
        verify("every vertex has a parent one level above", count, [=] __device__(uint64_t v) {
            uint32_t up = parent[v];
            if (v == source)
                return level[v] == 0;
            bool is_child = false;
            for (unsigned edge = 0; edge < EDGES && up < g.n; edge++)
                is_child = is_child || g.target(up, edge) == v;
            return is_child && level[v] == level[up] + 1;
        });
    }
    release(edges, level, parent, queue, next, next_length);
    return work.passed();
}
