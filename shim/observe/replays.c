/*
 * A graph is a list of nodes by their handles, each with a stretch of a list of places. A launch
 * marks each place once, from a list that is made of those when it is launched first.
 */
#include "shim/observe/replays.h"

#include <stdlib.h>
#include <string.h>

#include "common/chunk.h"
#include "common/locks.h"
#include "common/windows.h"
#include "shim/observe/windows.h"
#include "shim/tables/layouts.h"
#include "shim/tables/pages.h"
#include "shim/tables/profiles.h"

#define GM_REPLAY_BUCKETS 256u
#define GM_REPLAY_TOUCHES (1u << 20) /* of one graph; with more its launches are unseen */
#define GM_REPLAY_DEPTH 8            /* of graphs in graphs */

/* Places that follow each other, and how often they are touched. */
struct gm_replay_touch {
    uint32_t place, n, times;
    bool is_exact; /* nothing behind them is meant */
};

struct gm_replay_touches {
    struct gm_replay_touch *touch;
    uint32_t n, room;
};

struct gm_replay_node {
    CUgraphNode node;
    uint32_t first, room; /* its stretch of its replay's touches */
    uint64_t link;        /* bytes that it copies over the link */
    bool is_mapped;       /* it works on host memory */
    bool is_hidden;       /* nobody knows what it touches */
};

struct gm_replay {
    struct gm_replay *next;
    CUgraphExec exec;
    struct gm_replay_node *nodes; /* by handle, once it is read */
    uint32_t n_nodes, nodes_room;
    struct gm_replay_touches touches; /* by node; some are no node's any more */
    struct gm_replay_touches marks;   /* each place once; none until the first launch */
    uint64_t link;                    /* the sum of the nodes' */
    uint32_t mapped;                  /* nodes that are */
    uint32_t hidden;                  /* nodes that are */
    bool is_hidden;                   /* or more than nodes */
};

_Atomic bool gm_replays_is_on;
static struct gm_lock gm_replays_lock = GM_LOCK_INITIALIZER(GM_LOCK_REPLAYS);
static struct gm_replay *gm_replays[GM_REPLAY_BUCKETS];

void gm_replays_note(bool is_on)
{
    if (!is_on || gm_replays_are_noted())
        return;
    gm_profiles_load(gm_layouts_drop);
    atomic_store_explicit(&gm_replays_is_on, true, memory_order_relaxed);
}

/* ---- what a graph touches ---- */

/* False: too many, or no memory. */
static bool gm_touches_add(struct gm_replay_touches *touches, const struct gm_replay_touch *touch)
{
    if (touches->n == touches->room) {
        const uint32_t room = touches->room > 0 ? 2 * touches->room : 64;
        struct gm_replay_touch *more =
            room <= GM_REPLAY_TOUCHES ? realloc(touches->touch, room * sizeof(*more)) : NULL;
        if (more == NULL)
            return false;
        touches->touch = more;
        touches->room = room;
    }
    touches->touch[touches->n++] = *touch;
    return true;
}

/* The node that is being read: the replay's last. */
struct gm_reading {
    struct gm_replay_touches *touches;
    struct gm_replay_node *node;
};

static void gm_replay_found(void *arg, uint64_t va, uint64_t bytes)
{
    struct gm_reading *reading = arg;
    struct gm_replay_touch touch = {.place = (uint32_t)gm_window_place(va), .times = 1};
    reading->node->is_mapped = reading->node->is_mapped || (bytes == 0 && !gm_pages_have(va));
    touch.is_exact = bytes != GM_REACHES;
    bytes = touch.is_exact ? bytes : 1;
    if (!gm_pages_have(va) || bytes == 0 || va + bytes - 1 < va)
        return;
    if (gm_pages_are_beyond(va + bytes - 1)) {
        reading->node->is_hidden = true;
        return;
    }
    /* Up to the end of what is gpumux's: a program may say anything. */
    const uint64_t last = gm_window_place(va + bytes - 1);
    if (!touch.is_exact && gm_windows_reaches_on(va, gm_pages_home(va)))
        reading->node->is_hidden = true;
    do
        touch.n++;
    while (touch.place + touch.n <= last &&
           gm_pages_have((uint64_t)(touch.place + touch.n) << GM_CHUNK_SHIFT));
    if (gm_touches_add(reading->touches, &touch))
        reading->node->room++;
    else
        reading->node->is_hidden = true;
}

static void gm_replay_read_kernel(struct gm_reading *reading)
{
    CUDA_KERNEL_NODE_PARAMS params;
    if (gm_real.cuGraphKernelNodeGetParams_v2 == NULL ||
        gm_real.cuGraphKernelNodeGetParams_v2(reading->node->node, &params) != CUDA_SUCCESS ||
        !gm_windows_look(params.func != NULL ? params.func : (CUfunction)(void *)params.kern,
                         GM_DIMENSIONS_OF(&params), params.kernelParams, params.extra,
                         gm_replay_found, reading))
        reading->node->is_hidden = true;
}

static void gm_replay_read_copy(struct gm_reading *reading)
{
    CUDA_MEMCPY3D copy;
    if (gm_real.cuGraphMemcpyNodeGetParams != NULL &&
        gm_real.cuGraphMemcpyNodeGetParams(reading->node->node, &copy) == CUDA_SUCCESS)
        reading->node->link = gm_windows_look_in_copy(&copy, gm_replay_found, reading);
    else
        reading->node->is_hidden = true;
}

static void gm_replay_read_set(struct gm_reading *reading)
{
    CUDA_MEMSET_NODE_PARAMS set;
    if (gm_real.cuGraphMemsetNodeGetParams != NULL &&
        gm_real.cuGraphMemsetNodeGetParams(reading->node->node, &set) == CUDA_SUCCESS)
        reading->node->link = gm_windows_look_in_set(&set, gm_replay_found, reading);
    else
        reading->node->is_hidden = true;
}

/* All nodes; the caller frees them. False: they cannot be had. */
static bool gm_replay_nodes(CUgraph graph, CUgraphNode **nodes, size_t *n)
{
    *n = 0;
    *nodes = NULL;
    if (gm_real.cuGraphGetNodes == NULL || gm_real.cuGraphNodeGetType == NULL ||
        gm_real.cuGraphGetNodes(graph, NULL, n) != CUDA_SUCCESS)
        return false;
    if (*n == 0)
        return true;
    *nodes = calloc(*n, sizeof(**nodes));
    if (*nodes != NULL && gm_real.cuGraphGetNodes(graph, *nodes, n) == CUDA_SUCCESS)
        return true;
    free(*nodes);
    return false;
}

static struct gm_replay_node *gm_replay_add_node(struct gm_replay *replay, CUgraphNode node)
{
    if (replay->n_nodes == replay->nodes_room) {
        const uint32_t room = replay->nodes_room > 0 ? 2 * replay->nodes_room : 64;
        struct gm_replay_node *more =
            room <= GM_REPLAY_TOUCHES ? realloc(replay->nodes, room * sizeof(*more)) : NULL;
        if (more == NULL)
            return NULL;
        replay->nodes = more;
        replay->nodes_room = room;
    }
    replay->nodes[replay->n_nodes] =
        (struct gm_replay_node){.node = node, .first = replay->touches.n};
    return &replay->nodes[replay->n_nodes++];
}

static void gm_replay_read(struct gm_replay *replay, CUgraph graph, int depth);

static void gm_replay_read_node(struct gm_replay *replay, CUgraphNode node, int depth)
{
    CUgraphNodeType type;
    CUgraph child;
    const bool is_known = gm_real.cuGraphNodeGetType(node, &type) == CUDA_SUCCESS;
    if (is_known && type == CU_GRAPH_NODE_TYPE_GRAPH) {
        if (depth < GM_REPLAY_DEPTH && gm_real.cuGraphChildGraphNodeGetGraph != NULL &&
            gm_real.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
            gm_replay_read(replay, child, depth + 1);
        else
            replay->is_hidden = true;
        return;
    }
    struct gm_reading reading = {.touches = &replay->touches,
                                 .node = gm_replay_add_node(replay, node)};
    if (reading.node == NULL) {
        replay->is_hidden = true;
        return;
    }
    switch (is_known ? (int)type : -1) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        gm_replay_read_kernel(&reading);
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        gm_replay_read_copy(&reading);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        gm_replay_read_set(&reading);
        break;
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: /* the driver's own memory */
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: /* some words */
        break;
    default: /* conditional, or newer than this */
        reading.node->is_hidden = true;
    }
    replay->hidden += reading.node->is_hidden;
    replay->mapped += reading.node->is_mapped;
    replay->link += reading.node->link;
}

static void gm_replay_read(struct gm_replay *replay, CUgraph graph, int depth)
{
    CUgraphNode *nodes;
    size_t n;
    if (!gm_replay_nodes(graph, &nodes, &n)) {
        replay->is_hidden = true;
        return;
    }
    for (size_t i = 0; i < n; i++)
        gm_replay_read_node(replay, nodes[i], depth);
    free(nodes);
}

static int gm_replay_compare(const void *a, const void *b)
{
    const uintptr_t left = (uintptr_t)((const struct gm_replay_node *)a)->node;
    const uintptr_t right = (uintptr_t)((const struct gm_replay_node *)b)->node;
    return (left > right) - (left < right);
}

/* Make the list of places, each once, in the order of their first touch. False: no memory for it;
 * it is empty then, so that the next launch tries again. */
static bool gm_replay_merge(struct gm_replay *replay)
{
    uint32_t room = 64;
    while (room < 2 * replay->touches.n)
        room *= 2;
    uint32_t *slots = calloc(room, sizeof(*slots)); /* 1 and up: of marks */
    bool is_whole = slots != NULL;
    for (uint32_t i = 0; is_whole && i < replay->touches.n; i++) {
        const struct gm_replay_touch *touch = &replay->touches.touch[i], *mark;
        uint32_t at = (uint32_t)((touch->place * 0x9e3779b97f4a7c15ull) >> 32) % room;
        if (touch->times == 0)
            continue; /* of a node that was set anew */
        for (; slots[at] != 0; at = (at + 1) % room) {
            mark = &replay->marks.touch[slots[at] - 1];
            if (mark->place == touch->place && mark->n == touch->n &&
                mark->is_exact == touch->is_exact)
                break;
        }
        if (slots[at] != 0) {
            replay->marks.touch[slots[at] - 1].times += touch->times;
            continue;
        }
        is_whole = gm_touches_add(&replay->marks, touch);
        slots[at] = replay->marks.n;
    }
    free(slots);
    if (!is_whole)
        replay->marks.n = 0;
    return is_whole;
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
    if (replay == NULL)
        return;
    free(replay->nodes);
    free(replay->touches.touch);
    free(replay->marks.touch);
    free(replay);
}

void gm_replays_made(CUgraphExec exec, CUgraph graph)
{
    struct gm_replay *replay = calloc(1, sizeof(*replay));
    if (replay == NULL) {
        gm_replays_forget(exec);
        return;
    }
    replay->exec = exec;
    gm_windows_ask_anew();
    gm_replay_read(replay, graph, 0);
    if (replay->n_nodes > 0)
        qsort(replay->nodes, replay->n_nodes, sizeof(*replay->nodes), gm_replay_compare);
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

/* With the lock: `node` touches what `reading` found, and nothing else. */
static void gm_replay_replace(struct gm_replay *replay, const struct gm_reading *reading)
{
    struct gm_replay_node *node = replay->n_nodes > 0
                                      ? bsearch(reading->node, replay->nodes, replay->n_nodes,
                                                sizeof(*node), gm_replay_compare)
                                      : NULL;
    if (node == NULL) { /* of a graph that it does not have: the driver refuses, or knows better */
        replay->is_hidden = true;
        return;
    }
    bool is_hidden = reading->node->is_hidden;
    for (uint32_t i = 0; i < node->room; i++)
        replay->touches.touch[node->first + i].times = 0;
    if (reading->touches->n > node->room) { /* it gets another stretch, at the end */
        node->first = replay->touches.n;
        node->room = 0;
        while (node->room < reading->touches->n &&
               gm_touches_add(&replay->touches, &reading->touches->touch[node->room]))
            node->room++;
        is_hidden = is_hidden || node->room < reading->touches->n;
    } else if (reading->touches->n > 0) {
        memcpy(&replay->touches.touch[node->first], reading->touches->touch,
               reading->touches->n * sizeof(*reading->touches->touch));
    }
    replay->hidden += (uint32_t)is_hidden - (uint32_t)node->is_hidden;
    replay->mapped += (uint32_t)reading->node->is_mapped - (uint32_t)node->is_mapped;
    replay->link += reading->node->link - node->link;
    node->is_hidden = is_hidden;
    node->is_mapped = reading->node->is_mapped;
    node->link = reading->node->link;
    replay->marks.n = 0;
}

static void gm_replays_replace(CUgraphExec exec, struct gm_reading *reading)
{
    gm_lock(&gm_replays_lock);
    struct gm_replay *replay = *gm_replays_at(exec);
    if (replay != NULL)
        gm_replay_replace(replay, reading);
    gm_unlock(&gm_replays_lock);
    free(reading->touches->touch);
}

#define GM_READING(handle)                                                                         \
    {                                                                                              \
        .touches = &(struct gm_replay_touches){0}, .node = &(struct gm_replay_node)                \
        {                                                                                          \
            .node = (handle)                                                                       \
        }                                                                                          \
    }

void gm_replays_set(CUgraphExec exec, CUgraphNode node, CUfunction f, CUkernel kernel,
                    const uint32_t *dimension, void **params, void **extra)
{
    struct gm_reading reading = GM_READING(node);
    gm_windows_ask_anew();
    reading.node->is_hidden = !gm_windows_look(f != NULL ? f : (CUfunction)(void *)kernel,
                                               dimension, params, extra, gm_replay_found, &reading);
    gm_replays_replace(exec, &reading);
}

/* With the lock. False: nobody knows all that it touches. */
static bool gm_replay_mark(struct gm_replay *replay)
{
    bool is_whole = !replay->is_hidden && replay->hidden == 0;
    if (replay->marks.n == 0 && replay->touches.n > 0)
        is_whole = gm_replay_merge(replay) && is_whole;
    for (uint32_t i = 0; i < replay->marks.n; i++)
        gm_windows_touch(replay->marks.touch[i].place, replay->marks.touch[i].n,
                         replay->marks.touch[i].times, replay->marks.touch[i].is_exact);
    return is_whole;
}

void gm_replays_launched(CUgraphExec exec)
{
    gm_lock(&gm_replays_lock);
    struct gm_replay *replay = *gm_replays_at(exec);
    const bool is_whole = replay != NULL && gm_replay_mark(replay);
    const uint64_t link = replay != NULL ? replay->link : 0;
    const uint32_t mapped = replay != NULL ? replay->mapped : 0;
    gm_unlock(&gm_replays_lock);
    gm_windows_submitted(is_whole);
    gm_windows_crossed(link, mapped);
}

/* ---- the calls ---- */

void gm_replays_on_cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    (void)stream;
    if (gm_windows_are_on())
        gm_replays_launched(exec);
}

void gm_replays_on_cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    gm_replays_on_cuGraphLaunch(exec, stream);
}

static void gm_replays_updated(CUgraphExec exec, CUgraph graph)
{
    if (gm_windows_are_on())
        gm_replays_made(exec, graph);
    else
        gm_replays_forget(exec);
}

void gm_replays_on_cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error,
                                     CUgraphExecUpdateResult *result)
{
    (void)error, (void)result;
    gm_replays_updated(exec, graph);
}

void gm_replays_on_cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                        CUgraphExecUpdateResultInfo *info)
{
    (void)info;
    gm_replays_updated(exec, graph);
}

void gm_replays_on_cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                  const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    if (params != NULL)
        gm_replays_set(exec, node, params->func, NULL, GM_DIMENSIONS_OF(params),
                       params->kernelParams, params->extra);
}

void gm_replays_on_cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                     const CUDA_KERNEL_NODE_PARAMS *params)
{
    if (params != NULL)
        gm_replays_set(exec, node, params->func, params->kern, GM_DIMENSIONS_OF(params),
                       params->kernelParams, params->extra);
}

void gm_replays_on_cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                  const CUDA_MEMCPY3D *copy, CUcontext context)
{
    struct gm_reading reading = GM_READING(node);
    (void)context;
    if (copy == NULL)
        return;
    gm_windows_ask_anew();
    reading.node->link = gm_windows_look_in_copy(copy, gm_replay_found, &reading);
    gm_replays_replace(exec, &reading);
}

void gm_replays_on_cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                  const CUDA_MEMSET_NODE_PARAMS *set,
                                                  CUcontext context)
{
    struct gm_reading reading = GM_READING(node);
    (void)context;
    if (set == NULL)
        return;
    gm_windows_ask_anew();
    reading.node->link = gm_windows_look_in_set(set, gm_replay_found, &reading);
    gm_replays_replace(exec, &reading);
}

void gm_replays_on_cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                      CUgraph child)
{
    (void)node, (void)child;
    gm_replays_forget(exec);
}

void gm_replays_on_cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            CUgraphNodeParams *params)
{
    if (params == NULL)
        return;
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL)
        gm_replays_set(exec, node, params->kernel.func, params->kernel.kern,
                       GM_DIMENSIONS_OF(&params->kernel), params->kernel.kernelParams,
                       params->kernel.extra);
    else if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        gm_replays_on_cuGraphExecMemcpyNodeSetParams(exec, node, &params->memcpy.copyParams, NULL);
    else if (params->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        const CUDA_MEMSET_NODE_PARAMS set = {.dst = params->memset.dst,
                                             .pitch = params->memset.pitch,
                                             .elementSize = params->memset.elementSize,
                                             .width = params->memset.width,
                                             .height = params->memset.height};
        gm_replays_on_cuGraphExecMemsetNodeSetParams(exec, node, &set, NULL);
    } else if (params->type == CU_GRAPH_NODE_TYPE_GRAPH ||
               params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        gm_replays_forget(exec);
}

/* ---- textures ---- */

static void gm_replays_show(uint64_t va)
{
    if (gm_pages_have(va))
        gm_windows_hide_all();
}

void gm_replays_on_cuTexObjectCreate(CUtexObject *texture, const CUDA_RESOURCE_DESC *resource,
                                     const CUDA_TEXTURE_DESC *desc,
                                     const CUDA_RESOURCE_VIEW_DESC *view)
{
    (void)texture, (void)desc, (void)view;
    if (resource != NULL && resource->resType == CU_RESOURCE_TYPE_LINEAR)
        gm_replays_show(resource->res.linear.devPtr);
    else if (resource != NULL && resource->resType == CU_RESOURCE_TYPE_PITCH2D)
        gm_replays_show(resource->res.pitch2D.devPtr);
}

void gm_replays_on_cuTexRefSetAddress_v2(size_t *offset, CUtexref texture, CUdeviceptr va,
                                         size_t bytes)
{
    (void)offset, (void)texture, (void)bytes;
    gm_replays_show(va);
}

void gm_replays_on_cuTexRefSetAddress2D_v2(CUtexref texture, const CUDA_ARRAY_DESCRIPTOR *desc,
                                           CUdeviceptr va, size_t pitch)
{
    (void)texture, (void)desc, (void)pitch;
    gm_replays_show(va);
}

void gm_replays_on_cuTexRefSetAddress2D_v3(CUtexref texture, const CUDA_ARRAY_DESCRIPTOR *desc,
                                           CUdeviceptr va, size_t pitch)
{
    gm_replays_on_cuTexRefSetAddress2D_v2(texture, desc, va, pitch);
}
