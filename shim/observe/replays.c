/* What a graph uses is a list of pairs, a node and an address. A launch counts them all. */
#include "shim/observe/replays.h"

#include <stdlib.h>
#include <string.h>

#include "common/chunk.h"
#include "common/locks.h"
#include "shim/observe/uses.h"
#include "shim/tables/allocs.h"
#include "shim/tables/pages.h"

#define GM_REPLAY_BUCKETS 256u
#define GM_REPLAY_USES 65536u /* of one graph; the rest is not counted */
#define GM_REPLAY_DEPTH 8     /* of graphs in graphs */

struct gm_replay_use {
    CUgraphNode node;
    uint64_t va;
};

struct gm_replay {
    struct gm_replay *next;
    CUgraphExec exec;
    uint32_t n, room;
    struct gm_replay_use *uses;
};

_Atomic bool gm_replays_is_on;
static struct gm_lock gm_replays_lock = GM_LOCK_INITIALIZER(GM_LOCK_REPLAYS);
static struct gm_replay *gm_replays[GM_REPLAY_BUCKETS];

void gm_replays_note(bool is_on)
{
    if (is_on && !gm_replays_are_noted())
        atomic_store_explicit(&gm_replays_is_on, true, memory_order_relaxed);
}

/* ---- what a graph uses ---- */

struct gm_reading {
    struct gm_replay *replay;
    CUgraphNode node;
};

static void gm_replay_found(void *arg, uint64_t va)
{
    struct gm_reading *reading = arg;
    struct gm_replay *replay = reading->replay;
    if (!gm_pages_have(va) || replay->n == GM_REPLAY_USES)
        return;
    if (replay->n == replay->room) {
        const uint32_t room = replay->room > 0 ? 2 * replay->room : 64;
        struct gm_replay_use *uses = realloc(replay->uses, room * sizeof(*uses));
        if (uses == NULL)
            return;
        replay->uses = uses;
        replay->room = room;
    }
    replay->uses[replay->n++] = (struct gm_replay_use){.node = reading->node, .va = va};
}

static void gm_replay_read_kernel(struct gm_reading *reading)
{
    CUDA_KERNEL_NODE_PARAMS params;
    if (gm_real.cuGraphKernelNodeGetParams_v2 == NULL ||
        gm_real.cuGraphKernelNodeGetParams_v2(reading->node, &params) != CUDA_SUCCESS)
        return;
    gm_uses_look(params.func != NULL ? params.func : (CUfunction)(void *)params.kern,
                 params.kernelParams, params.extra, gm_replay_found, reading);
}

static void gm_replay_read_copy(struct gm_reading *reading)
{
    CUDA_MEMCPY3D copy;
    if (gm_real.cuGraphMemcpyNodeGetParams != NULL &&
        gm_real.cuGraphMemcpyNodeGetParams(reading->node, &copy) == CUDA_SUCCESS)
        gm_uses_look_in_copy(&copy, gm_replay_found, reading);
}

static void gm_replay_read_set(struct gm_reading *reading)
{
    CUDA_MEMSET_NODE_PARAMS set;
    if (gm_real.cuGraphMemsetNodeGetParams != NULL &&
        gm_real.cuGraphMemsetNodeGetParams(reading->node, &set) == CUDA_SUCCESS)
        gm_replay_found(reading, set.dst);
}

/* All nodes; the caller frees them. NULL: none, or they cannot be had. */
static CUgraphNode *gm_replay_nodes(CUgraph graph, size_t *n)
{
    *n = 0;
    if (gm_real.cuGraphGetNodes == NULL || gm_real.cuGraphNodeGetType == NULL ||
        gm_real.cuGraphGetNodes(graph, NULL, n) != CUDA_SUCCESS || *n == 0)
        return NULL;
    CUgraphNode *nodes = calloc(*n, sizeof(*nodes));
    if (nodes != NULL && gm_real.cuGraphGetNodes(graph, nodes, n) == CUDA_SUCCESS)
        return nodes;
    free(nodes);
    return NULL;
}

static void gm_replay_read(struct gm_replay *replay, CUgraph graph, int depth)
{
    size_t n;
    CUgraphNode *nodes = gm_replay_nodes(graph, &n);
    for (size_t i = 0; nodes != NULL && i < n; i++) {
        struct gm_reading reading = {.replay = replay, .node = nodes[i]};
        CUgraphNodeType type;
        CUgraph child;
        if (gm_real.cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS)
            continue;
        if (type == CU_GRAPH_NODE_TYPE_KERNEL)
            gm_replay_read_kernel(&reading);
        else if (type == CU_GRAPH_NODE_TYPE_MEMCPY)
            gm_replay_read_copy(&reading);
        else if (type == CU_GRAPH_NODE_TYPE_MEMSET)
            gm_replay_read_set(&reading);
        else if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < GM_REPLAY_DEPTH &&
                 gm_real.cuGraphChildGraphNodeGetGraph != NULL &&
                 gm_real.cuGraphChildGraphNodeGetGraph(nodes[i], &child) == CUDA_SUCCESS)
            gm_replay_read(replay, child, depth + 1);
    }
    free(nodes);
}

/* ---- executable graphs ---- */

static struct gm_replay **gm_replays_at(CUgraphExec exec)
{
    const uint64_t key = (uint64_t)(uintptr_t)exec;
    struct gm_replay **at = &gm_replays[(key * 0x9e3779b97f4a7c15ull >> 40) % GM_REPLAY_BUCKETS];
    while (*at != NULL && (*at)->exec != exec)
        at = &(*at)->next;
    return at;
}

static struct gm_replay *gm_replays_take(CUgraphExec exec)
{
    struct gm_replay **at = gm_replays_at(exec), *replay = *at;
    if (replay != NULL)
        *at = replay->next;
    return replay;
}

static void gm_replay_free(struct gm_replay *replay)
{
    if (replay != NULL)
        free(replay->uses);
    free(replay);
}

void gm_replays_made(CUgraphExec exec, CUgraph graph)
{
    struct gm_replay *replay = calloc(1, sizeof(*replay));
    if (replay == NULL)
        return;
    replay->exec = exec;
    gm_replay_read(replay, graph, 0);
    gm_lock(&gm_replays_lock);
    struct gm_replay *before = gm_replays_take(exec);
    struct gm_replay **at = gm_replays_at(exec);
    replay->next = *at;
    *at = replay;
    gm_unlock(&gm_replays_lock);
    gm_replay_free(before);
}

void gm_replays_forget(CUgraphExec exec)
{
    if (!gm_replays_are_noted())
        return;
    gm_lock(&gm_replays_lock);
    struct gm_replay *replay = gm_replays_take(exec);
    gm_unlock(&gm_replays_lock);
    gm_replay_free(replay);
}

/* Take the uses of the node out. */
static void gm_replay_drop(struct gm_replay *replay, CUgraphNode node)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < replay->n; i++)
        if (replay->uses[i].node != node)
            replay->uses[kept++] = replay->uses[i];
    replay->n = kept;
}

void gm_replays_set(CUgraphExec exec, CUgraphNode node, CUfunction f, CUkernel kernel,
                    void **params, void **extra)
{
    struct gm_replay found = {.exec = exec};
    struct gm_reading reading = {.replay = &found, .node = node};
    gm_uses_look(f != NULL ? f : (CUfunction)(void *)kernel, params, extra, gm_replay_found,
                 &reading);
    gm_lock(&gm_replays_lock);
    struct gm_replay *replay = *gm_replays_at(exec);
    if (replay != NULL) {
        gm_replay_drop(replay, node);
        reading.replay = replay;
        for (uint32_t i = 0; i < found.n; i++)
            gm_replay_found(&reading, found.uses[i].va);
    }
    gm_unlock(&gm_replays_lock);
    free(found.uses);
}

void gm_replays_launched(CUgraphExec exec)
{
    gm_lock(&gm_replays_lock);
    const struct gm_replay *replay = *gm_replays_at(exec);
    for (uint32_t i = 0; replay != NULL && i < replay->n; i++)
        gm_uses_count_at(replay->uses[i].va);
    gm_unlock(&gm_replays_lock);
}

/* ---- the calls ---- */

void gm_replays_on_cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    (void)stream;
    if (gm_uses_are_counted())
        gm_replays_launched(exec);
}

void gm_replays_on_cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    gm_replays_on_cuGraphLaunch(exec, stream);
}

void gm_replays_on_cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error,
                                     CUgraphExecUpdateResult *result)
{
    (void)error, (void)result;
    gm_replays_made(exec, graph);
}

void gm_replays_on_cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                        CUgraphExecUpdateResultInfo *info)
{
    (void)info;
    gm_replays_made(exec, graph);
}

void gm_replays_on_cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                  const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    if (params != NULL)
        gm_replays_set(exec, node, params->func, NULL, params->kernelParams, params->extra);
}

void gm_replays_on_cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                     const CUDA_KERNEL_NODE_PARAMS *params)
{
    if (params != NULL)
        gm_replays_set(exec, node, params->func, params->kern, params->kernelParams, params->extra);
}

void gm_replays_on_cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            CUgraphNodeParams *params)
{
    if (params != NULL && params->type == CU_GRAPH_NODE_TYPE_KERNEL)
        gm_replays_set(exec, node, params->kernel.func, params->kernel.kern,
                       params->kernel.kernelParams, params->kernel.extra);
}
