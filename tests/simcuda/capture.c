/*
 * Stream capture. While a stream captures, what is submitted to it becomes a node of a graph
 * instead.
 *
 * Each capturing stream has a frontier: the nodes that its next node follows. Recording an event
 * keeps the frontier; a stream that waits for such an event joins the capture and takes that
 * frontier in. Ending is allowed when every node leads to the frontier of the stream that the
 * capture began in.
 *
 * What is not allowed spoils the capture: everything in it fails with STREAM_CAPTURE_INVALIDATED
 * until its end, which fails too. The capture lock guards it all; sim_captures lets a program that
 * captures nothing pay one load.
 */
#include "tests/simcuda/graph.h"

#include <stdlib.h>
#include <string.h>

struct sim_capture {
    uint64_t id;
    struct sim_graph *graph;
    bool owns_graph;   /* began without one */
    size_t first_node; /* of this capture, in the graph */
    struct sim_stream *origin;
    struct sim_stream *streams; /* by capture_next; each with a reference */
    pthread_t thread;
    CUstreamCaptureMode mode;
    bool is_spoiled;
    struct sim_capture *next;
};

_Atomic uint32_t sim_captures;
static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_capture *captures;
static uint64_t last_id;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* ---- frontiers ---- */

static void set_frontier(struct sim_node ***frontier, size_t *n, struct sim_node *const *nodes,
                         size_t n_nodes)
{
    *frontier = sim_grow(*frontier, (n_nodes + 1) * sizeof **frontier);
    if (n_nodes > 0)
        memcpy(*frontier, nodes, n_nodes * sizeof **frontier);
    *n = n_nodes;
}

static void add_frontier(struct sim_stream *s, struct sim_node *const *nodes, size_t n_nodes)
{
    s->frontier = sim_grow(s->frontier, (s->n_frontier + n_nodes + 1) * sizeof *s->frontier);
    for (size_t i = 0; i < n_nodes; i++) {
        bool is_there = false;
        for (size_t k = 0; k < s->n_frontier && !is_there; k++)
            is_there = s->frontier[k] == nodes[i];
        if (!is_there)
            s->frontier[s->n_frontier++] = nodes[i];
    }
}

/* ---- captures ---- */

static CUresult spoil(struct sim_capture *c, CUresult why)
{
    c->is_spoiled = true;
    return why;
}

static void join(struct sim_capture *c, struct sim_stream *s)
{
    sim_stream_ref(s);
    s->capture = c;
    s->n_frontier = 0;
    s->capture_next = c->streams;
    c->streams = s;
}

/* The capture is over: its streams are plain again. */
static void end_capture(struct sim_capture *c)
{
    for (struct sim_stream *s = c->streams, *next; s != NULL; s = next) {
        next = s->capture_next;
        s->capture = NULL;
        s->capture_next = NULL;
        s->n_frontier = 0;
        sim_stream_unref(s);
    }
    struct sim_capture **at = &captures;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    atomic_fetch_sub(&sim_captures, 1);
    free(c);
}

/* A capture that a use of the legacy stream of this context would run into. */
static struct sim_capture *find_blocking_capture(const struct sim_ctx *ctx)
{
    for (struct sim_capture *c = captures; c != NULL; c = c->next) {
        for (const struct sim_stream *s = c->streams; s != NULL; s = s->capture_next) {
            if (s->ctx == ctx && (s->flags & CU_STREAM_NON_BLOCKING) == 0)
                return c;
        }
    }
    return NULL;
}

static struct sim_capture *find_capture(uint64_t id)
{
    for (struct sim_capture *c = captures; c != NULL; c = c->next) {
        if (c->id == id)
            return c;
    }
    return NULL;
}

/* ---- what other files ask ---- */

CUresult sim_capture_submit(struct sim_stream *s, struct sim_op *op, bool *is_captured)
{
    CUresult result = CUDA_SUCCESS;
    *is_captured = false;
    pthread_mutex_lock(&capture_lock);
    struct sim_capture *c = s->capture;
    if (c != NULL) {
        if (c->is_spoiled) {
            result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        } else if (op->kind == SIM_OP_CALLBACK) {
            result = spoil(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        } else {
            struct sim_node *node = sim_graph_add(c->graph, op, s->frontier, s->n_frontier);
            set_frontier(&s->frontier, &s->n_frontier, &node, 1);
            *is_captured = true;
        }
    } else if (s->is_legacy) {
        c = find_blocking_capture(s->ctx);
        if (c != NULL)
            result = spoil(c, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    pthread_mutex_unlock(&capture_lock);
    return result;
}

CUresult sim_capture_record(struct sim_event *event, struct sim_stream *s, bool *is_captured)
{
    CUresult result = CUDA_SUCCESS;
    *is_captured = false;
    pthread_mutex_lock(&capture_lock);
    if (s->capture != NULL && s->capture->is_spoiled) {
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (s->capture != NULL) {
        pthread_mutex_lock(&event->lock);
        set_frontier(&event->frontier, &event->n_frontier, s->frontier, s->n_frontier);
        event->capture_id = s->capture->id;
        pthread_mutex_unlock(&event->lock);
        *is_captured = true;
    }
    pthread_mutex_unlock(&capture_lock);
    return result;
}

/* Under the capture lock. */
static CUresult wait_captured(struct sim_stream *s, struct sim_event *event, bool *is_captured)
{
    struct sim_capture *mine = s->capture, *its = NULL;
    if (mine != NULL && mine->is_spoiled)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (event->capture_id == 0) {
        const bool is_outside = mine != NULL && event->point.stream != NULL;
        return is_outside ? spoil(mine, CUDA_ERROR_STREAM_CAPTURE_ISOLATION) : CUDA_SUCCESS;
    }
    its = find_capture(event->capture_id);
    if (its == NULL) /* its capture is over */
        return mine != NULL ? spoil(mine, CUDA_ERROR_INVALID_VALUE) : CUDA_ERROR_INVALID_VALUE;
    if (its->is_spoiled)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (s->is_legacy)
        return spoil(its, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (mine != NULL && mine != its) {
        spoil(its, CUDA_ERROR_STREAM_CAPTURE_MERGE);
        return spoil(mine, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (mine == NULL)
        join(its, s);
    add_frontier(s, event->frontier, event->n_frontier);
    *is_captured = true;
    return CUDA_SUCCESS;
}

CUresult sim_capture_wait(struct sim_stream *s, struct sim_event *event, bool *is_captured)
{
    *is_captured = false;
    pthread_mutex_lock(&capture_lock);
    pthread_mutex_lock(&event->lock);
    const CUresult result = wait_captured(s, event, is_captured);
    pthread_mutex_unlock(&event->lock);
    pthread_mutex_unlock(&capture_lock);
    return result;
}

/* Under the capture lock. */
static CUresult judge_unsafe(void)
{
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    for (struct sim_capture *c = captures; c != NULL; c = c->next) {
        const bool is_own = pthread_equal(c->thread, pthread_self());
        const bool is_forbidden = is_own ? c->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                         : c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                               thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (is_forbidden)
            result = spoil(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return result;
}

CUresult sim_capture_unsafe(void)
{
    if (atomic_load(&sim_captures) == 0)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&capture_lock);
    const CUresult result = judge_unsafe();
    pthread_mutex_unlock(&capture_lock);
    return result;
}

/* Under the capture lock: something that no captured stream can be asked. */
static CUresult ask_captured(struct sim_capture *c)
{
    return c->is_spoiled ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                         : spoil(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult sim_capture_sync_stream(struct sim_stream *s)
{
    if (atomic_load(&sim_captures) == 0)
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&capture_lock);
    struct sim_capture *blocking = s->is_legacy ? find_blocking_capture(s->ctx) : NULL;
    if (s->capture != NULL)
        result = ask_captured(s->capture);
    else if (blocking != NULL)
        result = spoil(blocking, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    else
        result = judge_unsafe();
    pthread_mutex_unlock(&capture_lock);
    return result;
}

CUresult sim_capture_ask_stream(struct sim_stream *s)
{
    if (atomic_load(&sim_captures) == 0)
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&capture_lock);
    if (s->capture != NULL)
        result = ask_captured(s->capture);
    pthread_mutex_unlock(&capture_lock);
    return result;
}

CUresult sim_capture_sync_context(struct sim_ctx *ctx)
{
    if (atomic_load(&sim_captures) == 0)
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&capture_lock);
    for (struct sim_capture *c = captures; c != NULL; c = c->next) {
        for (const struct sim_stream *s = c->streams; s != NULL; s = s->capture_next) {
            if (s->ctx == ctx)
                result = spoil(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    pthread_mutex_unlock(&capture_lock);
    return result;
}

CUresult sim_capture_query_event(struct sim_event *event)
{
    pthread_mutex_lock(&event->lock);
    const uint64_t id = event->capture_id;
    pthread_mutex_unlock(&event->lock);
    if (id == 0)
        return sim_capture_unsafe();
    CUresult result = CUDA_ERROR_INVALID_VALUE; /* its capture is over */
    pthread_mutex_lock(&capture_lock);
    struct sim_capture *c = find_capture(id);
    if (c != NULL)
        result = spoil(c, CUDA_ERROR_CAPTURED_EVENT);
    pthread_mutex_unlock(&capture_lock);
    return result;
}

bool sim_is_capturing(struct sim_stream *s)
{
    if (atomic_load(&sim_captures) == 0)
        return false;
    pthread_mutex_lock(&capture_lock);
    const bool is_capturing = s->capture != NULL;
    pthread_mutex_unlock(&capture_lock);
    return is_capturing;
}

void sim_capture_forget(struct sim_stream *s)
{
    if (atomic_load(&sim_captures) == 0)
        return;
    pthread_mutex_lock(&capture_lock);
    struct sim_capture *c = s->capture;
    if (c != NULL && c->origin == s) {
        struct sim_graph *graph = c->owns_graph ? c->graph : NULL;
        end_capture(c);
        if (graph != NULL)
            sim_graph_free(graph);
    } else if (c != NULL) {
        c->is_spoiled = true;
    }
    pthread_mutex_unlock(&capture_lock);
}

/* ---- public: begin and end ---- */

static CUresult begin(struct sim_stream *s, struct sim_graph *graph, struct sim_node *const *deps,
                      size_t n_deps, CUstreamCaptureMode mode)
{
    if (s->is_legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult result = CUDA_ERROR_ILLEGAL_STATE;
    pthread_mutex_lock(&capture_lock);
    if (s->capture == NULL) {
        struct sim_capture *c = sim_alloc(sizeof *c);
        c->id = ++last_id;
        c->owns_graph = graph == NULL;
        c->graph = graph != NULL ? graph : sim_graph_new();
        c->first_node = c->graph->n;
        c->origin = s;
        c->thread = pthread_self();
        c->mode = mode;
        c->next = captures;
        captures = c;
        join(c, s);
        set_frontier(&s->frontier, &s->n_frontier, deps, n_deps);
        atomic_fetch_add(&sim_captures, 1);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&capture_lock);
    return result;
}

static CUresult begin_capture(CUstream handle, CUstreamCaptureMode capture_mode, enum sim_mode mode)
{
    SIM_ENTER(cuStreamBeginCapture);
    struct sim_stream *s;
    const CUresult result = sim_stream_get(handle, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    if ((unsigned)capture_mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    return begin(s, NULL, NULL, 0, capture_mode);
}
SIM_TWO(cuStreamBeginCapture, cuStreamBeginCapture_ptsz, (CUstream stream),
        begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, mode));
SIM_TWO(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz,
        (CUstream stream, CUstreamCaptureMode capture_mode),
        begin_capture(stream, capture_mode, mode));

static CUresult begin_capture_to_graph(CUstream handle, CUgraph graph_handle,
                                       const CUgraphNode *deps, const CUgraphEdgeData *edges,
                                       size_t n_deps, CUstreamCaptureMode capture_mode,
                                       enum sim_mode mode)
{
    SIM_ENTER(cuStreamBeginCaptureToGraph);
    struct sim_stream *s;
    const CUresult result = sim_stream_get(handle, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_graph *graph = sim_graph_of(graph_handle);
    if (graph == NULL || edges != NULL || (n_deps > 0 && deps == NULL) ||
        (unsigned)capture_mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n_deps; i++) {
        const struct sim_node *node = sim_node_of(deps[i]);
        if (node == NULL || node->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return begin(s, graph, (struct sim_node *const *)(const void *)deps, n_deps, capture_mode);
}
SIM_TWO(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz,
        (CUstream stream, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *edges,
         size_t n_deps, CUstreamCaptureMode capture_mode),
        begin_capture_to_graph(stream, graph, deps, edges, n_deps, capture_mode, mode));

/* Does every node of the capture lead to the frontier of its first stream? */
static bool is_all_joined(const struct sim_capture *c)
{
    struct sim_graph *g = c->graph;
    for (size_t i = 0; i < g->n; i++)
        g->nodes[i]->is_marked = false;
    for (size_t i = 0; i < c->origin->n_frontier; i++)
        c->origin->frontier[i]->is_marked = true;
    bool is_joined = true;
    for (size_t i = g->n; i-- > c->first_node;) { /* a node comes behind those it follows */
        struct sim_node *node = g->nodes[i];
        is_joined = is_joined && node->is_marked;
        for (size_t k = 0; k < node->n_deps && node->is_marked; k++)
            node->deps[k]->is_marked = true;
    }
    return is_joined;
}

/* Under the capture lock. */
static CUresult end(struct sim_stream *s, struct sim_graph **graph)
{
    struct sim_capture *c = s->capture;
    if (c == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (c->origin != s)
        return spoil(c, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    const bool is_wrong_thread =
        c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self());
    const CUresult result = is_wrong_thread     ? CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
                            : c->is_spoiled     ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                            : !is_all_joined(c) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                                : CUDA_SUCCESS;
    struct sim_graph *captured = c->graph;
    const bool owns_graph = c->owns_graph;
    end_capture(c);
    if (result == CUDA_SUCCESS)
        *graph = captured;
    else if (owns_graph)
        sim_graph_free(captured);
    return result;
}

static CUresult end_stream_capture(CUstream handle, CUgraph *graph_handle, enum sim_mode mode)
{
    SIM_ENTER(cuStreamEndCapture);
    struct sim_stream *s;
    CUresult result = sim_stream_get(handle, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    if (graph_handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_graph *graph = NULL;
    pthread_mutex_lock(&capture_lock);
    result = end(s, &graph);
    pthread_mutex_unlock(&capture_lock);
    *graph_handle = (CUgraph)(void *)graph;
    return result;
}
SIM_TWO(cuStreamEndCapture, cuStreamEndCapture_ptsz, (CUstream stream, CUgraph *graph),
        end_stream_capture(stream, graph, mode));

SIM_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    SIM_ENTER(cuThreadExchangeStreamCaptureMode);
    if (mode == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    const CUstreamCaptureMode old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}
SIM_ENTRY(cuThreadExchangeStreamCaptureMode);

/* ---- public: questions ---- */

struct capture_info {
    CUstreamCaptureStatus status;
    uint64_t id;
    struct sim_graph *graph;
    struct sim_node **frontier;
    size_t n_frontier;
};

/* The only refusal: the legacy stream while a blocking stream captures. It spoils nothing. */
static CUresult get_info(CUstream handle, enum sim_mode mode, struct capture_info *info)
{
    struct sim_stream *s;
    CUresult result = sim_stream_get(handle, mode, &s);
    if (result != CUDA_SUCCESS)
        return result;
    *info = (struct capture_info){.status = CU_STREAM_CAPTURE_STATUS_NONE};
    pthread_mutex_lock(&capture_lock);
    const struct sim_capture *c = s->capture;
    if (c != NULL) {
        info->status =
            c->is_spoiled ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
        info->id = c->id;
        info->graph = c->graph;
        info->frontier = s->frontier;
        info->n_frontier = s->n_frontier;
    } else if (s->is_legacy && find_blocking_capture(s->ctx) != NULL) {
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    pthread_mutex_unlock(&capture_lock);
    return result;
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status, enum sim_mode mode)
{
    SIM_ENTER(cuStreamIsCapturing);
    struct capture_info info;
    const CUresult result = get_info(stream, mode, &info);
    if (result != CUDA_SUCCESS)
        return result;
    if (status == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *status = info.status;
    return CUDA_SUCCESS;
}
SIM_TWO(cuStreamIsCapturing, cuStreamIsCapturing_ptsz,
        (CUstream stream, CUstreamCaptureStatus *status), is_capturing(stream, status, mode));

/* All versions: what the older ones do not give is not asked for. */
static CUresult capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                             CUgraph *graph, const CUgraphNode **deps,
                             const CUgraphEdgeData **edges, size_t *n_deps, enum sim_mode mode)
{
    SIM_ENTER(cuStreamGetCaptureInfo);
    struct capture_info info;
    const CUresult result = get_info(stream, mode, &info);
    if (result != CUDA_SUCCESS)
        return result;
    if (status == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *status = info.status;
    if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    if (id != NULL)
        *id = info.id;
    if (graph != NULL)
        *graph = (CUgraph)(void *)info.graph;
    if (deps != NULL)
        *deps = (const CUgraphNode *)(const void *)info.frontier;
    if (edges != NULL)
        *edges = NULL;
    if (n_deps != NULL)
        *n_deps = info.n_frontier;
    return CUDA_SUCCESS;
}
SIM_TWO(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz,
        (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id),
        capture_info(stream, status, id, NULL, NULL, NULL, NULL, mode));
SIM_TWO(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz,
        (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
         const CUgraphNode **deps, size_t *n_deps),
        capture_info(stream, status, id, graph, deps, NULL, n_deps, mode));
SIM_TWO(cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz,
        (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
         const CUgraphNode **deps, const CUgraphEdgeData **edges, size_t *n_deps),
        capture_info(stream, status, id, graph, deps, edges, n_deps, mode));
