/* The handlers of executable graphs: they may allocate memory (memory/graphs.h), and what they use
 * is noted (observe/replays.h). */
#include "shim/gate/boot.h"
#include "shim/gate/gate.h"
#include "shim/handlers/handlers.h"
#include "shim/memory/graphs.h"
#include "shim/observe/replays.h"

#define GM_ON_INSTANTIATE(symbol, params, args)                                                    \
    CUresult gm_on_##symbol params                                                                 \
    {                                                                                              \
        CUresult result = GM_GATED(gm_real.symbol args);                                           \
        if (result == CUDA_SUCCESS && gm_is_live())                                                \
            gm_graphs_note();                                                                      \
        if (result == CUDA_SUCCESS && gm_replays_are_noted() && gm_is_live())                      \
            gm_replays_made(*phGraphExec, hGraph);                                                 \
        return result;                                                                             \
    }
GM_ON_INSTANTIATE(cuGraphInstantiate,
                  (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                   char *logBuffer, size_t bufferSize),
                  (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize))
GM_ON_INSTANTIATE(cuGraphInstantiate_v2,
                  (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                   char *logBuffer, size_t bufferSize),
                  (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize))
GM_ON_INSTANTIATE(cuGraphInstantiateWithFlags,
                  (CUgraphExec * phGraphExec, CUgraph hGraph, unsigned long long flags),
                  (phGraphExec, hGraph, flags))
GM_ON_INSTANTIATE(cuGraphInstantiateWithParams,
                  (CUgraphExec * phGraphExec, CUgraph hGraph,
                   CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
                  (phGraphExec, hGraph, instantiateParams))
GM_ON_INSTANTIATE(cuGraphInstantiateWithParams_ptsz,
                  (CUgraphExec * phGraphExec, CUgraph hGraph,
                   CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
                  (phGraphExec, hGraph, instantiateParams))

/* Forget it first: when the real call returns, another thread may already have the handle. */
CUresult gm_on_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    if (gm_is_live())
        gm_replays_forget(hGraphExec);
    return gm_real.cuGraphExecDestroy(hGraphExec);
}
