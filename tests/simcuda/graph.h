/*
 * Graphs, as capture.c makes and graph.c replays them. A node is an operation that was recorded,
 * and the nodes that it follows, which all have lower indexes: the order of recording is an order
 * of execution.
 */
#ifndef GM_SIMCUDA_GRAPH_H
#define GM_SIMCUDA_GRAPH_H

#include "tests/simcuda/sim.h"

struct sim_graph;

struct sim_node {
    uint32_t magic;
    struct sim_graph *graph;
    struct sim_op *op; /* owned */
    struct sim_node **deps;
    size_t n_deps;
    bool is_marked; /* scratch of a walk */
};

struct sim_graph {
    uint32_t magic;
    struct sim_node **nodes;
    size_t n, room;
};

struct sim_graph *sim_graph_new(void);
void sim_graph_free(struct sim_graph *graph);
struct sim_graph *sim_graph_of(CUgraph handle);   /* NULL: not a graph */
struct sim_node *sim_node_of(CUgraphNode handle); /* NULL: not a node */
/* A node at the end of the graph; takes the operation. */
struct sim_node *sim_graph_add(struct sim_graph *graph, struct sim_op *op,
                               struct sim_node *const *deps, size_t n_deps);

#endif
