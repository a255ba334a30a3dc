/*
 * shim/observe/replays: what the launches of an executable graph mark, after it was made, updated,
 * set anew and destroyed, and when nobody knows. The test plays the driver that knows graphs and
 * kernels.
 */
#include "shim/observe/replays.h"
#include "tests/unit/windows_world.h"

/* ---- the driver: graphs of nodes; every kernel has two pointers ---- */

struct graph;

struct node {
    CUgraphNodeType type;
    bool is_library, is_packed; /* kernel */
    uint64_t args[2];
    void *params[2];
    void *extra[5];
    size_t bytes;
    struct graph *child;
};

struct graph {
    size_t n;
    struct node node[40];
};

static struct graph *graph_of(CUgraph graph)
{
    return (void *)graph;
}

static struct node *node_of(CUgraphNode node)
{
    return (void *)node;
}

static CUresult drv_nodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
    const struct graph *g = graph_of(graph);
    for (size_t i = 0; nodes != NULL && i < *n; i++)
        nodes[i] = (CUgraphNode)(void *)&g->node[i];
    *n = g->n;
    return CUDA_SUCCESS;
}

static CUresult drv_type(CUgraphNode node, CUgraphNodeType *type)
{
    *type = node_of(node)->type;
    return CUDA_SUCCESS;
}

static const struct kernel function = {.n = 2, .param = {{0, 8}, {8, 8}}};
static const struct kernel kernel = {.is_library = true, .n = 2, .param = {{0, 8}, {8, 8}}};

static CUresult drv_kernel_node(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS *params)
{
    struct node *node = node_of(handle);
    memset(params, 0, sizeof *params);
    if (node->is_library)
        params->kern = (CUkernel)(void *)(uintptr_t)&kernel;
    else
        params->func = (CUfunction)(void *)(uintptr_t)&function;
    for (int i = 0; i < 2; i++)
        node->params[i] = &node->args[i];
    node->bytes = sizeof node->args;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, node->args, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &node->bytes, CU_LAUNCH_PARAM_END};
    memcpy(node->extra, extra, sizeof extra);
    if (node->is_packed)
        params->extra = node->extra;
    else
        params->kernelParams = node->params;
    return CUDA_SUCCESS;
}

static CUresult drv_copy_node(CUgraphNode node, CUDA_MEMCPY3D *copy)
{
    memset(copy, 0, sizeof *copy);
    copy->WidthInBytes = copy->Height = copy->Depth = 1;
    copy->srcMemoryType = CU_MEMORYTYPE_HOST;
    copy->srcHost = (void *)(uintptr_t)node_of(node)->args[1];
    copy->srcDevice = BASE; /* is none of it */
    copy->dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy->dstDevice = node_of(node)->args[0];
    return CUDA_SUCCESS;
}

static CUresult drv_set_node(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *set)
{
    memset(set, 0, sizeof *set);
    set->dst = node_of(node)->args[0];
    set->width = set->height = set->elementSize = 1;
    return CUDA_SUCCESS;
}

static CUresult drv_child(CUgraphNode node, CUgraph *graph)
{
    *graph = (CUgraph)(void *)node_of(node)->child;
    return CUDA_SUCCESS;
}

/* ---- host memory, until it is gone ---- */

static unsigned allocations = UINT32_MAX; /* so many more succeed */

void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size)
{
    return allocations == 0 || allocations-- == 0 ? NULL : __real_realloc(memory, size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return allocations == 0 || allocations-- == 0 ? NULL : __real_calloc(n, size);
}

/* ---- */

/* Page i of the memory, in pages of 2 MiB. */
static uint64_t page(uint64_t i)
{
    return BASE + i * GM_CHUNK_MIN;
}

static CUgraph handle_of(struct graph *graph)
{
    return (CUgraph)(void *)graph;
}

static CUgraphExec exec_of(uintptr_t number)
{
    return (CUgraphExec)number;
}

static int setup(void **state)
{
    struct gm_alloc alloc;
    (void)state;
    gm_real.cuGraphGetNodes = drv_nodes;
    gm_real.cuGraphNodeGetType = drv_type;
    gm_real.cuGraphKernelNodeGetParams_v2 = drv_kernel_node;
    gm_real.cuGraphMemcpyNodeGetParams = drv_copy_node;
    gm_real.cuGraphMemsetNodeGetParams = drv_set_node;
    gm_real.cuGraphChildGraphNodeGetGraph = drv_child;
    if (gm_allocs_find(BASE, &alloc) == GM_ALLOC_UNKNOWN)
        make(BASE, 256 * MIB, GM_ALLOC_CHUNKS);
    gm_replays_note(true);
    begin();
    return 0;
}

/* What was marked since: of pages 0 to 7, and of no other; and how many launches are unseen. */
static void expect_unseen(uint64_t launches, const uint32_t counts[8])
{
    assert_int_equal(unseen(), launches);
    uint32_t found[8] = {0};
    const uint32_t n = take();
    for (uint32_t i = 0; i < n; i++) {
        assert_in_range(got[i].va, BASE, page(7));
        found[(got[i].va - BASE) / GM_CHUNK_MIN] = got[i].count;
    }
    assert_memory_equal(found, counts, sizeof found);
}

static void expect(const uint32_t counts[8])
{
    expect_unseen(0, counts);
}

/* Kernels however their arguments are given, a copy (none from the host), a set, and all of these
 * in a graph within. */
static void test_made(void **state)
{
    struct graph child = {.n = 3,
                          .node = {{.type = CU_GRAPH_NODE_TYPE_MEMCPY, .args = {page(4), page(6)}},
                                   {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .args = {page(7), 8}},
                                   {.type = CU_GRAPH_NODE_TYPE_MEMSET, .args = {page(5)}}}};
    struct graph graph = {
        .n = 4,
        .node = {{.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {page(0), page(1)}},
                 {.type = CU_GRAPH_NODE_TYPE_KERNEL,
                  .is_library = true,
                  .is_packed = true,
                  .args = {page(1), 77}},
                 {.type = CU_GRAPH_NODE_TYPE_KERNEL, .is_library = true, .args = {page(2), 0}},
                 {.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = &child}}};
    (void)state;
    gm_replays_made(exec_of(1), handle_of(&graph));
    expect((uint32_t[8]){0}); /* it was not launched */
    for (int i = 0; i < 3; i++)
        gm_replays_on_cuGraphLaunch(exec_of(1), NULL);
    gm_replays_on_cuGraphLaunch_ptsz(exec_of(1), NULL);
    expect((uint32_t[8]){4, 8, 4, 0, 4, 4, 4});
    expect_crossed(4, 0);
    gm_replays_on_cuGraphLaunch(exec_of(2), NULL); /* is not known */
    expect_unseen(1, (uint32_t[8]){0});
    gm_windows_mark(false, NULL);
    gm_replays_on_cuGraphLaunch(exec_of(1), NULL);
    expect((uint32_t[8]){0});
    gm_windows_mark(true, words);
    gm_replays_on_cuGraphLaunch(exec_of(1), NULL);
    expect((uint32_t[8]){1, 2, 1, 0, 1, 1, 1});
    gm_replays_forget(exec_of(1));
    gm_replays_on_cuGraphLaunch(exec_of(1), NULL);
    expect_unseen(1, (uint32_t[8]){0});
}

/* What a graph moves over the link by itself, until its nodes are set anew. */
static void test_crosses(void **state)
{
    struct graph graph = {.n = 2,
                          .node = {{.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {page(0), PINNED}},
                                   {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .args = {page(0), 8}}}};
    CUgraphNode kernel_node = (CUgraphNode)(void *)&graph.node[0];
    CUgraphNode copy_node = (CUgraphNode)(void *)&graph.node[1];
    CUDA_KERNEL_NODE_PARAMS params;
    CUDA_MEMCPY3D copy;
    (void)state;
    gm_replays_made(exec_of(1), handle_of(&graph));
    gm_replays_launched(exec_of(1));
    gm_replays_launched(exec_of(1));
    expect_crossed(2, 2);
    drv_copy_node(copy_node, &copy);
    copy.WidthInBytes = 1000;
    copy.Height = 3;
    gm_replays_on_cuGraphExecMemcpyNodeSetParams(exec_of(1), copy_node, &copy, NULL);
    gm_replays_launched(exec_of(1));
    expect_crossed(3000, 1);
    graph.node[0].args[1] = page(1);
    drv_kernel_node(kernel_node, &params);
    gm_replays_on_cuGraphExecKernelNodeSetParams_v2(exec_of(1), kernel_node, &params);
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    gm_replays_on_cuGraphExecMemcpyNodeSetParams(exec_of(1), copy_node, &copy, NULL);
    gm_replays_launched(exec_of(1));
    expect_crossed(0, 0);
    copy.dstDevice = SMALL; /* a copy on the device */
    copy.srcDevice = page(2);
    gm_replays_on_cuGraphExecMemcpyNodeSetParams(exec_of(1), copy_node, &copy, NULL);
    take();
    gm_replays_launched(exec_of(1));
    expect_crossed(0, 0);
    expect((uint32_t[8]){1, 1, 1});
    copy.srcDevice = MANAGED; /* on either side */
    copy.dstDevice = page(3);
    gm_replays_on_cuGraphExecMemcpyNodeSetParams(exec_of(1), copy_node, &copy, NULL);
    gm_replays_launched(exec_of(1));
    expect_crossed(3000, 0);
    expect((uint32_t[8]){1, 1, 0, 1});
    gm_replays_forget(exec_of(1));
}

/* A graph that is read while nothing is marked, and no window ends: what was true a tenth of a
 * second before does not count, nor do the questions of then. */
static void test_asked_while_off(void **state)
{
    struct graph graph = {.n = 1,
                          .node = {{.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {page(0), PINNED}}}};
    CUgraphNode node = (CUgraphNode)(void *)&graph.node[0];
    CUDA_KERNEL_NODE_PARAMS params;
    const struct timespec tenth = {.tv_nsec = 101000000};
    (void)state;
    gm_windows_mark(false, NULL);
    for (uintptr_t i = 0; i < 2000; i++) { /* more questions than a window has */
        graph.node[0].args[1] = NOBODYS + i * GM_CHUNK_MIN;
        gm_replays_made(exec_of(1), handle_of(&graph));
    }
    graph.node[0].args[1] = PINNED;
    nanosleep(&tenth, NULL);
    asked_pointers = 0;
    gm_replays_made(exec_of(1), handle_of(&graph));
    assert_int_equal(asked_pointers, 1);
    drv_kernel_node(node, &params);
    nanosleep(&tenth, NULL);
    gm_replays_on_cuGraphExecKernelNodeSetParams_v2(exec_of(1), node, &params);
    assert_int_equal(asked_pointers, 2);
    nanosleep(&tenth, NULL);
    gm_windows_mark(true, words); /* now windows end; a program may set nodes at each step */
    for (uint32_t i = 0; i < 3; i++) {
        gm_replays_on_cuGraphExecKernelNodeSetParams_v2(exec_of(1), node, &params);
        assert_int_equal(asked_pointers, 3);
        nanosleep(&tenth, NULL);
    }
    gm_replays_launched(exec_of(1));
    expect_crossed(0, 1);
    gm_replays_forget(exec_of(1));
    take();
}

/* In the order of the nodes, each place once. */
static void test_order(void **state)
{
    struct graph graph = {
        .n = 3,
        .node = {{.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {page(5), page(2)}},
                 {.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {page(2), page(7)}},
                 {.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {page(5), page(1)}}}};
    static const uint32_t orders[] = {3, 1, 0, 2}; /* of 1, 2, 5, 7 */
    (void)state;
    gm_replays_made(exec_of(1), handle_of(&graph));
    gm_replays_launched(exec_of(1));
    assert_int_equal(take(), 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(got[i].order, orders[i]);
    gm_replays_forget(exec_of(1));
}

/* A copy and a set reach over all that they name, a set anew as well. */
static void test_extents(void **state)
{
    struct graph graph = {.n = 2,
                          .node = {{.type = CU_GRAPH_NODE_TYPE_MEMCPY, .args = {page(0), page(7)}},
                                   {.type = CU_GRAPH_NODE_TYPE_MEMSET, .args = {page(3)}}}};
    CUgraphNode copy_node = (CUgraphNode)(void *)&graph.node[0];
    CUgraphNode set_node = (CUgraphNode)(void *)&graph.node[1];
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = page(4),
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = page(0),
                          .WidthInBytes = 2 * GM_CHUNK_MIN,
                          .Height = 1,
                          .Depth = 1};
    CUDA_MEMSET_NODE_PARAMS set = {
        .dst = page(6) - 4, .pitch = 1, .elementSize = 4, .width = 2, .height = 1};
    (void)state;
    gm_replays_made(exec_of(1), handle_of(&graph));
    gm_replays_launched(exec_of(1));
    expect((uint32_t[8]){1, 0, 0, 1, 0, 0, 0, 1});
    gm_replays_on_cuGraphExecMemcpyNodeSetParams(exec_of(1), copy_node, &copy, NULL);
    gm_replays_on_cuGraphExecMemcpyNodeSetParams(exec_of(1), copy_node, NULL, NULL);
    gm_replays_launched(exec_of(1));
    expect((uint32_t[8]){1, 1, 0, 1, 1, 1});
    gm_replays_on_cuGraphExecMemsetNodeSetParams(exec_of(1), set_node, &set, NULL);
    gm_replays_launched(exec_of(1));
    expect((uint32_t[8]){1, 1, 0, 0, 1, 2, 1});
    set.pitch = 0;
    set.width = GM_CHUNK_MIN / 4;
    set.height = 2;
    gm_replays_on_cuGraphExecMemsetNodeSetParams(exec_of(1), set_node, &set, NULL);
    gm_replays_launched(exec_of(1));
    expect((uint32_t[8]){1, 1, 0, 0, 1, 2, 1, 1});
    set.dst = PINNED;
    gm_replays_on_cuGraphExecMemsetNodeSetParams(exec_of(1), set_node, &set, NULL);
    gm_replays_launched(exec_of(1));
    expect((uint32_t[8]){1, 1, 0, 0, 1, 1});
    expect_crossed(2 * GM_CHUNK_MIN, 0);
    set.height = 0;
    gm_replays_on_cuGraphExecMemsetNodeSetParams(exec_of(1), set_node, &set, NULL);
    gm_replays_launched(exec_of(1));
    expect((uint32_t[8]){1, 1, 0, 0, 1, 1});

    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    any.memset.dst = page(7);
    any.memset.elementSize = 1;
    any.memset.width = any.memset.height = 1;
    gm_replays_on_cuGraphExecNodeSetParams(exec_of(1), set_node, &any);
    any = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    any.memcpy.copyParams = copy;
    any.memcpy.copyParams.srcDevice = page(2);
    gm_replays_on_cuGraphExecNodeSetParams(exec_of(1), copy_node, &any);
    gm_replays_launched(exec_of(1));
    expect((uint32_t[8]){1, 1, 1, 1, 0, 0, 0, 1});
    gm_replays_forget(exec_of(1));
}

/* Nodes that cannot be read, until they are set anew. */
static void test_hidden(void **state)
{
    struct graph child = {
        .n = 1, .node = {{.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {page(6), page(7)}}}};
    struct graph graph = {.n = 3,
                          .node = {{.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {page(0), page(1)}},
                                   {.type = CU_GRAPH_NODE_TYPE_HOST},
                                   {.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = &child}}};
    uint64_t args[2] = {page(2), page(3)};
    void *params[] = {&args[0], &args[1]};
    CUgraphNode node = (CUgraphNode)(void *)&graph.node[0];
    (void)state;
    gm_real.cuFuncGetParamInfo = NULL; /* an older driver */
    child.node[0].is_packed = true;    /* it needs no layout */
    gm_replays_made(exec_of(1), handle_of(&graph));
    gm_replays_launched(exec_of(1));
    expect_unseen(1, (uint32_t[8]){0, 0, 0, 0, 0, 0, 1, 1});
    gm_real.cuFuncGetParamInfo = drv_func_info;
    gm_replays_set(exec_of(1), node, (CUfunction)(void *)(uintptr_t)&function, NULL,
                   (const uint32_t[6]){1, 1, 1, 1, 1, 1}, params, NULL);
    gm_replays_launched(exec_of(1));
    expect((uint32_t[8]){0, 0, 1, 1, 0, 0, 1, 1});
    gm_real.cuFuncGetParamInfo = NULL;
    gm_layouts_drop();
    gm_replays_set(exec_of(1), node, (CUfunction)(void *)(uintptr_t)&function, NULL,
                   (const uint32_t[6]){1, 1, 1, 1, 1, 1}, params, NULL);
    gm_replays_launched(exec_of(1));
    expect_unseen(1, (uint32_t[8]){0, 0, 0, 0, 0, 0, 1, 1});
    gm_real.cuFuncGetParamInfo = drv_func_info;

    gm_replays_made(exec_of(1), handle_of(&graph));
    gm_replays_on_cuGraphExecChildGraphNodeSetParams(exec_of(1), node, NULL);
    gm_replays_launched(exec_of(1));
    expect_unseen(1, (uint32_t[8]){0});
    graph.node[1].type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    gm_replays_made(exec_of(1), handle_of(&graph));
    gm_replays_launched(exec_of(1));
    expect_unseen(1, (uint32_t[8]){1, 1, 0, 0, 0, 0, 1, 1});
    graph.node[1].type = CU_GRAPH_NODE_TYPE_GRAPH;
    graph.node[1].child = &graph; /* deeper than anybody looks */
    graph.node[0].type = CU_GRAPH_NODE_TYPE_EMPTY;
    graph.n = 2;
    gm_replays_made(exec_of(1), handle_of(&graph));
    gm_replays_launched(exec_of(1));
    expect_unseen(1, (uint32_t[8]){0});
    gm_replays_forget(exec_of(1));
}

/* Until the program marks, an update is not read. */
static void test_lazy(void **state)
{
    struct graph graph = {
        .n = 1, .node = {{.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {page(0), page(1)}}}};
    (void)state;
    gm_windows_mark(false, NULL);
    gm_replays_made(exec_of(1), handle_of(&graph));
    gm_replays_made(exec_of(2), handle_of(&graph));
    gm_replays_on_cuGraphExecUpdate_v2(exec_of(1), handle_of(&graph), NULL);
    gm_windows_mark(true, words);
    gm_replays_launched(exec_of(1));
    expect_unseen(1, (uint32_t[8]){0});
    gm_replays_launched(exec_of(2));
    expect((uint32_t[8]){1, 1});
    gm_replays_on_cuGraphExecUpdate(exec_of(1), handle_of(&graph), NULL, NULL);
    gm_replays_launched(exec_of(1));
    expect((uint32_t[8]){1, 1});
    gm_replays_forget(exec_of(1));
    gm_replays_forget(exec_of(2));
}

/* A node that is set anew again and again, with one place and with two: the list does not grow. */
static void test_again(void **state)
{
    struct graph graph = {.n = 2,
                          .node = {{.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {page(0), 8}},
                                   {.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {page(7), 8}}}};
    uint64_t args[2] = {0};
    void *params[] = {&args[0], &args[1]};
    CUgraphNode node = (CUgraphNode)(void *)&graph.node[0];
    (void)state;
    gm_replays_made(exec_of(1), handle_of(&graph));
    for (uint32_t i = 0; i < 1100000; i++) {
        args[0] = page(i % 3);
        args[1] = i % 2 == 0 ? page(4) : 8;
        gm_replays_set(exec_of(1), node, (CUfunction)(void *)(uintptr_t)&function, NULL,
                       (const uint32_t[6]){1, 1, 1, 1, 1, 1}, params, NULL);
    }
    gm_replays_launched(exec_of(1));
    expect((uint32_t[8]){0, 1, 0, 0, 0, 0, 0, 1});
    gm_replays_forget(exec_of(1));
}

/* Without host memory to list its places a graph is unseen, however often it is launched; and it is
 * seen when there is some again. */
static void test_no_memory(void **state)
{
    static struct graph graph;
    (void)state;
    graph.n = 40;
    for (size_t i = 0; i < graph.n; i++)
        graph.node[i] = (struct node){.type = CU_GRAPH_NODE_TYPE_KERNEL,
                                      .args = {page(2 * i), page(2 * i + 1)}};
    for (unsigned n = 0; n < 3; n++) { /* to begin with, and when the list has to grow */
        gm_replays_made(exec_of(1), handle_of(&graph));
        allocations = n;
        gm_replays_launched(exec_of(1));
        allocations = 0;
        gm_replays_launched(exec_of(1));
        allocations = UINT32_MAX;
        assert_int_equal(unseen(), 2);
    }
    take();
    gm_replays_launched(exec_of(1));
    assert_int_equal(take(), 80);
    assert_int_equal(unseen(), 0);
    gm_replays_forget(exec_of(1));

    /* The same while it is read. */
    for (unsigned n = 0; n < 5; n++) {
        allocations = n;
        gm_replays_made(exec_of(1), handle_of(&graph));
        allocations = UINT32_MAX;
        gm_replays_launched(exec_of(1));
        assert_int_equal(unseen(), 1);
        gm_replays_forget(exec_of(1));
    }
    take();
}

/* Views of the program's own: of what a copy names the home is marked, as it is at the launch. An
 * address in a view may reach on into others, where nobody can follow. */
static void test_views(void **state)
{
    const uint64_t range = BASE + (2ull << 38), home = BASE + (1ull << 38);
    struct graph graph = {.n = 1,
                          .node = {{.type = CU_GRAPH_NODE_TYPE_MEMSET, .args = {range + 5 * MIB}},
                                   {.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {range, page(1)}}}};
    struct gm_alloc view = {
        .va = range, .bytes = 8 * MIB, .span = 8 * MIB, .home = home, .kind = GM_ALLOC_VIEW};
    (void)state;
    assert_int_equal(gm_allocs_insert(&view), 0);
    gm_replays_made(exec_of(1), handle_of(&graph));
    gm_replays_launched(exec_of(1));
    assert_int_equal(take(), 1);
    assert_int_equal(got[0].va, home + 4 * MIB);
    assert_int_equal(unseen(), 0);
    assert_int_equal(gm_allocs_take(range, &view), GM_ALLOC_BASE);
    gm_replays_launched(exec_of(1)); /* nothing is there */
    assert_int_equal(take(), 0);
    view.home = home + 64 * MIB; /* another handle */
    assert_int_equal(gm_allocs_insert(&view), 0);
    gm_replays_launched(exec_of(1));
    assert_int_equal(take(), 1);
    assert_int_equal(got[0].va, home + 68 * MIB);
    assert_int_equal(unseen(), 0);

    struct gm_alloc far = view; /* where nobody can follow */
    far.va = 1ull << 50;
    assert_int_equal(gm_allocs_insert(&far), 0);
    graph.node[0].args[0] = far.va;
    gm_replays_made(exec_of(1), handle_of(&graph));
    gm_replays_launched(exec_of(1));
    assert_int_equal(take(), 0);
    assert_int_equal(unseen(), 1);
    assert_int_equal(gm_allocs_take(far.va, &far), GM_ALLOC_BASE);
    graph.node[0].args[0] = range + 5 * MIB;

    graph.n = 2;
    gm_replays_made(exec_of(1), handle_of(&graph));
    gm_replays_launched(exec_of(1));
    assert_int_equal(take(), 3);
    assert_int_equal(unseen(), 1);
    gm_replays_forget(exec_of(1));
    assert_int_equal(gm_allocs_take(range, &view), GM_ALLOC_BASE);
}

/* A texture of memory of ours, and of others'. For good. */
static void test_texture(void **state)
{
    struct graph graph = {
        .n = 1, .node = {{.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {page(0), page(1)}}}};
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    static const struct kernel none = {.n = 0};
    (void)state;
    resource.res.linear.devPtr = page(0);
    gm_replays_on_cuTexObjectCreate(NULL, &resource, NULL, NULL);
    gm_replays_on_cuTexObjectCreate(NULL, NULL, NULL, NULL);
    gm_replays_on_cuTexRefSetAddress_v2(NULL, NULL, 8, 8);
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear.devPtr = page(1000);
    gm_replays_on_cuTexObjectCreate(NULL, &resource, NULL, NULL);
    gm_windows_of_cuLaunchKernel((CUfunction)(uintptr_t)&none, 1, 1, 1, 1, 1, 1, 0, NULL, NULL,
                                 NULL);
    expect((uint32_t[8]){0});
    resource.resType = CU_RESOURCE_TYPE_PITCH2D;
    resource.res.pitch2D.devPtr = page(3);
    gm_replays_on_cuTexObjectCreate(NULL, &resource, NULL, NULL);
    gm_windows_of_cuLaunchKernel((CUfunction)(uintptr_t)&none, 1, 1, 1, 1, 1, 1, 0, NULL, NULL,
                                 NULL);
    gm_replays_made(exec_of(1), handle_of(&graph));
    gm_replays_launched(exec_of(1));
    expect_unseen(2, (uint32_t[8]){1, 1});
    gm_replays_forget(exec_of(1));
}

static void test_updated(void **state)
{
    struct graph first = {
        .n = 1, .node = {{.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {page(0), page(1)}}}};
    struct graph second = {
        .n = 2,
        .node = {{.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {page(2), page(3)}},
                 {.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {page(4), page(5)}}}};
    CUgraphNode node = (CUgraphNode)(void *)&second.node[0];
    uint64_t args[2] = {page(6), page(7)};
    void *params[] = {&args[0], &args[1]};
    (void)state;
    gm_replays_made(exec_of(3), handle_of(&first));
    gm_replays_made(exec_of(4), handle_of(&first));
    gm_replays_on_cuGraphExecUpdate_v2(exec_of(3), handle_of(&second), NULL);
    gm_replays_launched(exec_of(3));
    expect((uint32_t[8]){0, 0, 1, 1, 1, 1});
    gm_replays_launched(exec_of(4));
    expect((uint32_t[8]){1, 1});

    CUDA_KERNEL_NODE_PARAMS set = {.kern = (CUkernel)(void *)(uintptr_t)&kernel,
                                   .kernelParams = params};
    gm_replays_on_cuGraphExecKernelNodeSetParams_v2(exec_of(3), node, &set);
    gm_replays_launched(exec_of(3));
    expect((uint32_t[8]){0, 0, 0, 0, 1, 1, 1, 1});
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    args[0] = args[1] = page(0);
    any.kernel.func = (CUfunction)(void *)(uintptr_t)&function;
    any.kernel.kernelParams = params;
    gm_replays_on_cuGraphExecNodeSetParams(exec_of(3), node, &any);
    gm_replays_on_cuGraphExecNodeSetParams(exec_of(3), node, NULL);
    gm_replays_on_cuGraphExecNodeSetParams(exec_of(5), node, &any); /* is not known */
    gm_replays_on_cuGraphExecKernelNodeSetParams_v2(exec_of(3), node, NULL);
    gm_replays_launched(exec_of(3));
    expect((uint32_t[8]){2, 0, 0, 0, 1, 1});
    for (uintptr_t i = 3; i < 6; i++)
        gm_replays_forget(exec_of(i));
}

/* An older driver, and many graphs at once. */
static void test_odd(void **state)
{
    struct graph graph = {
        .n = 1, .node = {{.type = CU_GRAPH_NODE_TYPE_KERNEL, .args = {page(0), page(1)}}}};
    (void)state;
    for (uintptr_t i = 1; i <= 1000; i++)
        gm_replays_made(exec_of(8 * i), handle_of(&graph));
    for (uintptr_t i = 1; i <= 1000; i += 2)
        gm_replays_forget(exec_of(8 * i));
    for (uintptr_t i = 1; i <= 1000; i++)
        gm_replays_launched(exec_of(8 * i));
    expect_unseen(500, (uint32_t[8]){500, 500});
    for (uintptr_t i = 1; i <= 1000; i++)
        gm_replays_forget(exec_of(8 * i));
    gm_real.cuGraphKernelNodeGetParams_v2 = NULL;
    gm_replays_made(exec_of(1), handle_of(&graph));
    gm_real.cuGraphGetNodes = NULL;
    gm_replays_made(exec_of(2), handle_of(&graph));
    gm_replays_launched(exec_of(1));
    gm_replays_launched(exec_of(2));
    expect_unseen(2, (uint32_t[8]){0});
    gm_replays_forget(exec_of(1));
    gm_replays_forget(exec_of(2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_made, setup),
        cmocka_unit_test_setup(test_updated, setup),
        cmocka_unit_test_setup(test_crosses, setup),
        cmocka_unit_test_setup(test_asked_while_off, setup),
        cmocka_unit_test_setup(test_order, setup),
        cmocka_unit_test_setup(test_extents, setup),
        cmocka_unit_test_setup(test_hidden, setup),
        cmocka_unit_test_setup(test_lazy, setup),
        cmocka_unit_test_setup(test_again, setup),
        cmocka_unit_test_setup(test_odd, setup),
        cmocka_unit_test_setup(test_no_memory, setup),
        cmocka_unit_test_setup(test_views, setup),
        cmocka_unit_test_setup(test_texture, setup), /* for good */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
