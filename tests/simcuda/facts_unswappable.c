/* Facts of what stays the driver's: managed memory, arrays, memory of graphs; and of what can be
 * asked and set about pointers beyond facts_memory.c. */
#include "tests/simcuda/facts.h"

#include <string.h>

/* ---- pointers ---- */

static void ask_attribute(const char *what, CUpointer_attribute attribute, CUdeviceptr p)
{
    unsigned long long value[4] = {0};
    const CUresult result = cuPointerGetAttribute(value, attribute, p);
    if (result == CUDA_SUCCESS)
        fact_number(what, (long long)value[0]);
    else
        fact(what, result);
}

static void ask_sync_memops(const char *what, CUdeviceptr p)
{
    unsigned is_on = 1;
    printf("%s: set sync memops: %s\n", what,
           fact_name(cuPointerSetAttribute(&is_on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p)));
    ask_attribute("  sync memops", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
}

static void ask_places(void)
{
    CUdeviceptr p;
    unsigned is_on = 1;
    NEED(cuMemAlloc(&p, 4 * MIB));
    ask_sync_memops("linear memory", p);
    ask_attribute("  of its middle", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p + MIB);
    is_on = 0;
    fact("  unset by its middle",
         cuPointerSetAttribute(&is_on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p + MIB));
    ask_attribute("  sync memops", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    fact("set another attribute",
         cuPointerSetAttribute(&is_on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    fact("set NULL", cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
    fact("set of anything",
         cuPointerSetAttribute(&is_on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)1 << 40));
    ask_attribute("HW decompress capable", CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, p);
    ask_attribute("P2P tokens", CU_POINTER_ATTRIBUTE_P2P_TOKENS, p);
    fact("get to NULL", cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    NEED(cuMemFree(p));

    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp prop = fact_prop(CU_MEM_LOCATION_TYPE_DEVICE, device, 0);
    const CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    NEED(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    NEED(cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
    NEED(cuMemMap(p, 2 * MIB, 0, handle, 0));
    NEED(cuMemSetAccess(p, 2 * MIB, &desc, 1));
    ask_sync_memops("a mapping", p);
    NEED(cuMemUnmap(p, 2 * MIB));
    NEED(cuMemMap(p, 2 * MIB, 0, handle, 0));
    ask_attribute("  mapped again", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    NEED(cuMemUnmap(p, 2 * MIB));
    NEED(cuMemAddressFree(p, 2 * MIB));
    NEED(cuMemRelease(handle));
    fact("cuMemGetInfo with NULL for both", cuMemGetInfo(NULL, NULL));
}

/* ---- managed memory ---- */

static void ask_last(const char *what, CUdeviceptr p, size_t bytes)
{
    int place = 99;
    NEED(cuMemRangeGetAttribute(&place, sizeof place, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                                p, bytes));
    fact_number(what, place);
}

static void ask_managed(void)
{
    const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    CUdeviceptr p;
    size_t before, after, total;
    int is_concurrent = 0;
    NEED(cuDeviceGetAttribute(&is_concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
                              device));
    fact_number("concurrent managed access", is_concurrent);
    fact("managed memory of 0", cuMemAllocManaged(&p, 0, CU_MEM_ATTACH_GLOBAL));
    fact("managed memory with flags 0", cuMemAllocManaged(&p, MIB, 0));
    NEED(cuMemGetInfo(&before, &total));
    NEED(cuMemAllocManaged(&p, 64 * MIB, CU_MEM_ATTACH_GLOBAL));
    NEED(cuMemGetInfo(&after, &total));
    fact_number("64 MiB of it take MiB", (long long)(before - after) / (long long)MIB);
    ask_attribute("managed: is managed", CU_POINTER_ATTRIBUTE_IS_MANAGED, p + MIB);
    ask_attribute("managed: memory type", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + MIB);
    ask_attribute("managed: legacy IPC", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p);
    ask_last("managed: last prefetch of none", p, 64 * MIB);
    fact("prefetch to the device", cuMemPrefetchAsync(p, 64 * MIB, here, 0, NULL));
    ask_last("  last prefetch", p, 64 * MIB);
    fact("prefetch a part to the host", cuMemPrefetchAsync(p, 32 * MIB, host, 0, NULL));
    ask_last("  last prefetch of the part", p, 32 * MIB);
    ask_last("  of the rest", p + 32 * MIB, 32 * MIB);
    ask_last("  of all", p, 64 * MIB);
    fact("prefetch more than there is", cuMemPrefetchAsync(p, 128 * MIB, here, 0, NULL));
    fact("advise a preferred location",
         cuMemAdvise(p, 64 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    NEED(cuCtxSynchronize());
    fact("cuMemFree of its middle", cuMemFree(p + MIB));
    fact("cuMemFree of it", cuMemFree(p));
    fact("cuMemFree of it twice", cuMemFree(p));
}

/* ---- arrays ---- */

static void ask_arrays(void)
{
    CUDA_ARRAY_DESCRIPTOR flat = {
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array;
    fact("an array", cuArrayCreate(&array, &flat));
    fact("  destroy it", cuArrayDestroy(array));
    flat.NumChannels = 3;
    fact("an array of 3 channels", cuArrayCreate(&array, &flat));
    flat.NumChannels = 1;
    flat.Width = 0;
    fact("an array without width", cuArrayCreate(&array, &flat));
    fact("destroy NULL", cuArrayDestroy(NULL));
}

/* ---- memory of graphs ---- */

static cuuint64_t reserved(void)
{
    cuuint64_t bytes = 0;
    NEED(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes));
    return bytes;
}

static void ask_graphs(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    CUgraph graph;
    CUgraphNode taken, freed;
    CUgraphExec exec;
    memset(&params, 0, sizeof params);
    params.poolProps = (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    params.bytesize = 4 * MIB;
    NEED(cuGraphCreate(&graph, 0));
    fact("a node that allocates", cuGraphAddMemAllocNode(&taken, graph, NULL, 0, &params));
    fact("a node that frees it", cuGraphAddMemFreeNode(&freed, graph, &taken, 1, params.dptr));
    NEED(cuGraphInstantiate(&exec, graph, 0));
    fact_number("  held before a launch", reserved() > 0);
    NEED(cuGraphLaunch(exec, NULL));
    NEED(cuCtxSynchronize());
    fact_number("  held after it, at least as much", reserved() >= 4 * MIB);
    fact("trim", cuDeviceGraphMemTrim(device));
    fact_number("  held after that", reserved() > 0);
    fact("launch again", cuGraphLaunch(exec, NULL));
    NEED(cuCtxSynchronize());
    fact_number("  held after it", reserved() > 0);
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(graph));
    fact("trim on device 99", cuDeviceGraphMemTrim(99));
}

void facts_of_unswappable(void)
{
    ask_places();
    ask_managed();
    ask_arrays();
    ask_graphs();
}
