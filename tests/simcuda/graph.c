/*
 * Graphs and their replay. Launching puts one operation into the stream, which runs copies of the
 * graph's operations one after the other, in the order of recording. Launches of one executable
 * graph follow each other, in whatever streams.
 */
#include "tests/simcuda/graph.h"

#include <stdlib.h>
#include <string.h>

#define GRAPH_MAGIC 0x47524653u
#define NODE_MAGIC 0x4e4f4453u
#define EXEC_MAGIC 0x45584553u

struct sim_exec {
    uint32_t magic;
    _Atomic uint32_t refs;
    cuuint64_t flags;
    size_t n;
    struct sim_op **ops;
    pthread_mutex_t lock;
    struct sim_point last; /* of its newest launch */
};

/* ---- graphs ---- */

struct sim_graph *sim_graph_new(void)
{
    struct sim_graph *g = sim_alloc(sizeof *g);
    g->magic = GRAPH_MAGIC;
    return g;
}

void sim_graph_free(struct sim_graph *g)
{
    for (size_t i = 0; i < g->n; i++) {
        g->nodes[i]->magic = 0;
        sim_op_free(g->nodes[i]->op);
        free(g->nodes[i]->deps);
        free(g->nodes[i]);
    }
    g->magic = 0;
    free(g->nodes);
    free(g);
}

struct sim_graph *sim_graph_of(CUgraph handle)
{
    struct sim_graph *g = (struct sim_graph *)(void *)handle;
    return g != NULL && g->magic == GRAPH_MAGIC ? g : NULL;
}

struct sim_node *sim_node_of(CUgraphNode handle)
{
    struct sim_node *node = (struct sim_node *)(void *)handle;
    return node != NULL && node->magic == NODE_MAGIC ? node : NULL;
}

struct sim_node *sim_graph_add(struct sim_graph *g, struct sim_op *op, struct sim_node *const *deps,
                               size_t n_deps)
{
    struct sim_node *node = sim_alloc(sizeof *node);
    node->magic = NODE_MAGIC;
    node->graph = g;
    node->op = op;
    node->n_deps = n_deps;
    if (n_deps > 0) {
        node->deps = sim_alloc(n_deps * sizeof *node->deps);
        memcpy(node->deps, deps, n_deps * sizeof *node->deps);
    }
    if (g->n == g->room) {
        g->room = g->room == 0 ? 16 : g->room * 2;
        g->nodes = sim_grow(g->nodes, g->room * sizeof *g->nodes);
    }
    g->nodes[g->n++] = node;
    return node;
}

SIM_API CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    SIM_ENTER(cuGraphCreate);
    if (graph == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = (CUgraph)(void *)sim_graph_new();
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuGraphCreate);

SIM_API CUresult cuGraphDestroy(CUgraph graph)
{
    SIM_ENTER(cuGraphDestroy);
    struct sim_graph *g = sim_graph_of(graph);
    if (g == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_free(g);
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuGraphDestroy);

SIM_API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
    SIM_ENTER(cuGraphGetNodes);
    const struct sim_graph *g = sim_graph_of(graph);
    if (g == NULL || n == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (nodes == NULL) {
        *n = g->n;
        return CUDA_SUCCESS;
    }
    for (size_t i = 0; i < *n; i++) /* what there is no node for becomes NULL */
        nodes[i] = i < g->n ? (CUgraphNode)(void *)g->nodes[i] : NULL;
    *n = *n < g->n ? *n : g->n;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuGraphGetNodes);

SIM_API CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
    SIM_ENTER(cuGraphNodeGetType);
    const struct sim_node *node = sim_node_of(handle);
    if (node == NULL || type == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    switch (node->op->kind) {
    case SIM_OP_KERNEL:
        *type = CU_GRAPH_NODE_TYPE_KERNEL;
        break;
    case SIM_OP_COPY:
        *type = CU_GRAPH_NODE_TYPE_MEMCPY;
        break;
    case SIM_OP_SET:
        *type = CU_GRAPH_NODE_TYPE_MEMSET;
        break;
    case SIM_OP_HOST:
    case SIM_OP_CALLBACK:
        *type = CU_GRAPH_NODE_TYPE_HOST;
        break;
    case SIM_OP_GRAPH:
        *type = CU_GRAPH_NODE_TYPE_GRAPH;
        break;
    case SIM_OP_WRITE:
    case SIM_OP_WAIT:
        *type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
        break;
    case SIM_OP_GRAPH_ALLOC:
        *type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        break;
    case SIM_OP_GRAPH_FREE:
        *type = CU_GRAPH_NODE_TYPE_MEM_FREE;
        break;
    case SIM_OP_MARK:
    case SIM_OP_EMPTY:
    case SIM_OP_FREE:
        *type = CU_GRAPH_NODE_TYPE_EMPTY;
        break;
    }
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuGraphNodeGetType);

/* ---- executable graphs ---- */

void sim_exec_run(struct sim_exec *exec, struct sim_ctx *ctx)
{
    for (size_t i = 0; i < exec->n; i++)
        sim_op_run(exec->ops[i], ctx);
}

void sim_exec_ref(struct sim_exec *exec)
{
    atomic_fetch_add(&exec->refs, 1);
}

void sim_exec_unref(struct sim_exec *exec)
{
    if (atomic_fetch_sub(&exec->refs, 1) != 1)
        return;
    for (size_t i = 0; i < exec->n; i++)
        sim_op_free(exec->ops[i]);
    if (exec->last.stream != NULL)
        sim_stream_unref(exec->last.stream);
    pthread_mutex_destroy(&exec->lock);
    free(exec->ops);
    free(exec);
}

static struct sim_exec *exec_of(CUgraphExec handle)
{
    struct sim_exec *exec = (struct sim_exec *)(void *)handle;
    return exec != NULL && exec->magic == EXEC_MAGIC ? exec : NULL;
}

static CUresult instantiate(CUgraphExec *handle, CUgraph graph, cuuint64_t flags)
{
    const struct sim_graph *g = sim_graph_of(graph);
    const cuuint64_t known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                             CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                             CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (handle == NULL || g == NULL || (flags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_exec *exec = sim_alloc(sizeof *exec);
    exec->magic = EXEC_MAGIC;
    atomic_init(&exec->refs, 1);
    exec->flags = flags;
    exec->n = g->n;
    exec->ops = sim_alloc((g->n + 1) * sizeof *exec->ops);
    for (size_t i = 0; i < g->n; i++)
        exec->ops[i] = sim_op_clone(g->nodes[i]->op);
    pthread_mutex_init(&exec->lock, NULL);
    *handle = (CUgraphExec)(void *)exec;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                             unsigned long long flags)
{
    SIM_ENTER(cuGraphInstantiateWithFlags);
    return instantiate(exec, graph, flags);
}
SIM_ENTRY(cuGraphInstantiateWithFlags);

/* The older forms, with a place for a message. */
static CUresult instantiate_logged(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                   char *log, size_t log_size)
{
    SIM_ENTER(cuGraphInstantiate);
    if (error_node != NULL)
        *error_node = NULL;
    if (log != NULL && log_size > 0)
        log[0] = '\0';
    return instantiate(exec, graph, 0);
}

SIM_API CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                    char *log, size_t log_size)
{
    return instantiate_logged(exec, graph, error_node, log, log_size);
}
SIM_ENTRY(cuGraphInstantiate);

SIM_API CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                       char *log, size_t log_size)
{
    return instantiate_logged(exec, graph, error_node, log, log_size);
}
SIM_ENTRY(cuGraphInstantiate_v2);

static CUresult instantiate_with(CUgraphExec *exec, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS *params, enum sim_mode mode)
{
    SIM_ENTER(cuGraphInstantiateWithParams);
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_stream *upload;
    CUresult result = CUDA_SUCCESS;
    if ((params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0)
        result = sim_stream_get(params->hUploadStream, mode, &upload);
    if (result == CUDA_SUCCESS)
        result = instantiate(exec, graph, params->flags);
    params->hErrNode_out = NULL;
    params->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}
SIM_TWO(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz,
        (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
        instantiate_with(exec, graph, params, mode));

SIM_API CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags)
{
    SIM_ENTER(cuGraphExecGetFlags);
    const struct sim_exec *exec = exec_of(handle);
    if (exec == NULL || flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuGraphExecGetFlags);

SIM_API CUresult cuGraphExecDestroy(CUgraphExec handle)
{
    SIM_ENTER(cuGraphExecDestroy);
    struct sim_exec *exec = exec_of(handle);
    if (exec == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    exec->magic = 0;
    sim_exec_unref(exec); /* launches that are under way hold it */
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuGraphExecDestroy);

static CUresult launch_graph(CUgraphExec handle, CUstream stream, enum sim_mode mode)
{
    SIM_ENTER(cuGraphLaunch);
    struct sim_stream *s;
    CUresult result = sim_stream_get(stream, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_exec *exec = exec_of(handle);
    if (exec == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < exec->n; i++) {
        if (exec->ops[i]->kind != SIM_OP_GRAPH_ALLOC)
            continue;
        result = sim_block_use(exec->ops[i]->u.block);
        if (result != CUDA_SUCCESS)
            return result;
    }
    struct sim_op *op = sim_op_new(SIM_OP_GRAPH);
    sim_exec_ref(exec);
    op->u.exec = exec;
    struct sim_point point;
    pthread_mutex_lock(&exec->lock);
    if (exec->last.stream != NULL)
        sim_op_after(op, exec->last);
    result = sim_submit(s, op, &point);
    struct sim_stream *before = NULL;
    if (point.stream != NULL) {
        before = exec->last.stream;
        exec->last = point;
    }
    pthread_mutex_unlock(&exec->lock);
    if (before != NULL)
        sim_stream_unref(before);
    return result;
}
SIM_TWO(cuGraphLaunch, cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream stream),
        launch_graph(exec, stream, mode));

/* Nothing has to be carried anywhere: only the arguments are judged. */
static CUresult upload_graph(CUgraphExec handle, CUstream stream, enum sim_mode mode)
{
    SIM_ENTER(cuGraphUpload);
    struct sim_stream *s;
    const CUresult result = sim_stream_get(stream, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    return exec_of(handle) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SIM_TWO(cuGraphUpload, cuGraphUpload_ptsz, (CUgraphExec exec, CUstream stream),
        upload_graph(exec, stream, mode));
