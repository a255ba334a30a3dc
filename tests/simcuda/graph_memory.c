/*
 * Allocations inside graphs. A node that allocates has a block: an address range of its own from
 * the node's making on, which has memory from the graph's first launch until cuDeviceGraphMemTrim
 * finds it unused. It is in use from a launch until the node that frees it was run. Blocks are
 * never forgotten; their addresses are not used again.
 */
#include "tests/simcuda/graph.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE (2ull << 20) /* a block has whole ones */

struct sim_block {
    uint64_t start, size;
    int device;
    bool has_memory;
    unsigned uses; /* launches that did not free it yet */
    struct sim_block *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* above the state lock */
static struct sim_block *blocks;
static uint64_t reserved_high[SIM_DEVICES_MAX], used_high[SIM_DEVICES_MAX];

static void sum_up(int device, uint64_t *used, uint64_t *reserved)
{
    *used = *reserved = 0;
    for (const struct sim_block *b = blocks; b != NULL; b = b->next) {
        if (b->device != device || !b->has_memory)
            continue;
        *reserved += b->size;
        *used += b->uses > 0 ? b->size : 0;
    }
    reserved_high[device] = *reserved > reserved_high[device] ? *reserved : reserved_high[device];
    used_high[device] = *used > used_high[device] ? *used : used_high[device];
}

/* A node at the end of the graph, behind `deps`. */
static CUresult add_node(CUgraphNode *handle, CUgraph graph, const CUgraphNode *deps, size_t n_deps,
                         enum sim_op_kind kind, struct sim_block *block)
{
    struct sim_graph *g = sim_graph_of(graph);
    struct sim_op *op = sim_op_new(kind);
    op->u.block = block;
    struct sim_node **nodes = sim_alloc((n_deps + 1) * sizeof *nodes);
    for (size_t i = 0; i < n_deps; i++)
        nodes[i] = sim_node_of(deps[i]);
    *handle = (CUgraphNode)(void *)sim_graph_add(g, op, nodes, n_deps);
    free(nodes);
    return CUDA_SUCCESS;
}

static bool are_nodes(CUgraph graph, const CUgraphNode *deps, size_t n)
{
    const struct sim_graph *g = sim_graph_of(graph);
    bool are_good = g != NULL && (deps != NULL || n == 0);
    for (size_t i = 0; i < n && are_good; i++)
        are_good = sim_node_of(deps[i]) != NULL && sim_node_of(deps[i])->graph == g;
    return are_good;
}

SIM_API CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                                        size_t n_deps, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    SIM_ENTER(cuGraphAddMemAllocNode);
    if (node == NULL || params == NULL || params->bytesize == 0 || !are_nodes(graph, deps, n_deps))
        return CUDA_ERROR_INVALID_VALUE;
    const CUmemLocation location = params->poolProps.location;
    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        sim_device_check(location.id) != CUDA_SUCCESS || params->bytesize > 1ull << 40)
        return CUDA_ERROR_INVALID_VALUE;
    const uint64_t size = (params->bytesize + PAGE - 1) & ~(PAGE - 1);
    void *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_block *block = sim_alloc(sizeof *block);
    *block =
        (struct sim_block){.start = (uint64_t)(uintptr_t)p, .size = size, .device = location.id};
    pthread_mutex_lock(&lock);
    block->next = blocks;
    blocks = block;
    pthread_mutex_unlock(&lock);
    params->dptr = block->start;
    return add_node(node, graph, deps, n_deps, SIM_OP_GRAPH_ALLOC, block);
}
SIM_ENTRY(cuGraphAddMemAllocNode);

SIM_API CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                                       size_t n_deps, CUdeviceptr dptr)
{
    SIM_ENTER(cuGraphAddMemFreeNode);
    if (node == NULL || !are_nodes(graph, deps, n_deps))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    struct sim_block *block = blocks;
    while (block != NULL && block->start != dptr)
        block = block->next;
    pthread_mutex_unlock(&lock);
    return block != NULL ? add_node(node, graph, deps, n_deps, SIM_OP_GRAPH_FREE, block)
                         : CUDA_ERROR_INVALID_VALUE;
}
SIM_ENTRY(cuGraphAddMemFreeNode);

CUresult sim_block_use(struct sim_block *block)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t used, reserved;
    pthread_mutex_lock(&lock);
    if (!block->has_memory) {
        result = sim_memory_take(block->device, block->size);
        if (result == CUDA_SUCCESS) {
            mprotect((void *)(uintptr_t)block->start, block->size, PROT_READ | PROT_WRITE);
            block->has_memory = true;
        }
    }
    if (result == CUDA_SUCCESS)
        block->uses++;
    sum_up(block->device, &used, &reserved);
    pthread_mutex_unlock(&lock);
    return result;
}

void sim_block_unuse(struct sim_block *block)
{
    pthread_mutex_lock(&lock);
    block->uses -= block->uses > 0;
    pthread_mutex_unlock(&lock);
}

SIM_API CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    SIM_ENTER(cuDeviceGraphMemTrim);
    const CUresult result = sim_device_check(device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    for (struct sim_block *b = blocks; b != NULL; b = b->next) {
        if (b->device != device || !b->has_memory || b->uses > 0)
            continue;
        mmap((void *)(uintptr_t)b->start, b->size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        sim_memory_give(device, b->size);
        b->has_memory = false;
    }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuDeviceGraphMemTrim);

SIM_API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                              void *value)
{
    SIM_ENTER(cuDeviceGetGraphMemAttribute);
    const CUresult result = sim_device_check(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t used, reserved;
    pthread_mutex_lock(&lock);
    sum_up(device, &used, &reserved);
    const cuuint64_t numbers[] = {used, used_high[device], reserved, reserved_high[device]};
    pthread_mutex_unlock(&lock);
    if ((unsigned)attribute >= sizeof numbers / sizeof numbers[0])
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(value, &numbers[attribute], sizeof numbers[0]);
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuDeviceGetGraphMemAttribute);
