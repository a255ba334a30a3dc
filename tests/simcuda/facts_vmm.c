/* Facts of handles and their mappings, beyond those of facts_memory.c: references, several mappings
 * of one handle, and what these calls say of memory that came from cuMemAlloc. */
#include "tests/simcuda/facts.h"

#include <string.h>

static void ask_references(CUdeviceptr range, const CUmemAllocationProp *prop)
{
    CUmemGenericAllocationHandle handle, again = 0;
    CUmemAllocationProp got;
    NEED(cuMemCreate(&handle, 4 * MIB, prop, 0));
    NEED(cuMemMap(range, 4 * MIB, 0, handle, 0));
    NEED(cuMemRetainAllocationHandle(&again, (void *)(range + 3 * MIB)));
    fact_number("a retained handle has the same value", again == handle);
    memset(&got, 0, sizeof got);
    fact("properties of a handle", cuMemGetAllocationPropertiesFromHandle(&got, again));
    fact_number("  are those it was made with",
                got.type == prop->type && got.location.type == prop->location.type &&
                    got.location.id == prop->location.id &&
                    got.requestedHandleTypes == prop->requestedHandleTypes);
    fact("properties into NULL", cuMemGetAllocationPropertiesFromHandle(NULL, handle));
    fact("release one of two references", cuMemRelease(handle));
    fact("release the other", cuMemRelease(again));
    fact("release once more, while it is mapped", cuMemRelease(handle));
    fact("map it then", cuMemMap(range + 8 * MIB, 4 * MIB, 0, handle, 0));
    fact("properties then", cuMemGetAllocationPropertiesFromHandle(&got, handle));
    fact("retain it then", cuMemRetainAllocationHandle(&again, (void *)range));
    fact("  release that", cuMemRelease(again));
    NEED(cuMemUnmap(range, 4 * MIB));
    fact("properties while the other mapping is there",
         cuMemGetAllocationPropertiesFromHandle(&got, handle));
    NEED(cuMemUnmap(range + 8 * MIB, 4 * MIB));
}

static void ask_access(CUdeviceptr range, const CUmemAllocationProp *prop)
{
    CUmemGenericAllocationHandle handle;
    unsigned long long access = 99;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
    CUmemLocation nobody = {CU_MEM_LOCATION_TYPE_DEVICE, 99};
    CUmemAccessDesc desc = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    unsigned word = 0;
    NEED(cuMemCreate(&handle, 4 * MIB, prop, 0));
    NEED(cuMemMap(range, 4 * MIB, 0, handle, 0));
    NEED(cuMemMap(range + 4 * MIB, 4 * MIB, 0, handle, 0));
    NEED(cuMemSetAccess(range, 4 * MIB, &desc, 1));
    NEED(cuMemGetAccess(&access, &here, range + 4 * MIB));
    fact_number("access to the other mapping of a handle", (long long)access);
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    fact("allow the other to read", cuMemSetAccess(range + 4 * MIB, 4 * MIB, &desc, 1));
    NEED(cuMemGetAccess(&access, &here, range + 4 * MIB));
    fact_number("access then", (long long)access);
    NEED(cuMemsetD32(range, 5, MIB));
    fact("read through the other", cuMemcpyDtoH(&word, range + 8 * MIB - 4, 4));
    fact_number("  it has what was written", word);
    NEED(cuCtxSynchronize());
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    fact("take access back", cuMemSetAccess(range + 4 * MIB, 4 * MIB, &desc, 1));
    NEED(cuMemGetAccess(&access, &here, range + 4 * MIB));
    fact_number("access then", (long long)access);
    access = 99;
    fact("get access of the host", cuMemGetAccess(&access, &host, range));
    fact_number("  is", (long long)access);
    fact("  where the device has none", cuMemGetAccess(&access, &host, range + 4 * MIB));
    fact_number("  is", (long long)access);
    fact("get access of device 99", cuMemGetAccess(&access, &nobody, range));
    NEED(cuMemUnmap(range, 8 * MIB));
    NEED(cuMemRelease(handle));
}

/* NCCL, for one, tells the two kinds of memory apart by these. */
static void ask_linear(const CUmemAllocationProp *prop)
{
    CUmemGenericAllocationHandle handle, other;
    unsigned long long access;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    CUmemAccessDesc desc = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr p;
    NEED(cuMemAlloc(&p, 8 * MIB));
    NEED(cuMemCreate(&handle, 2 * MIB, prop, 0));
    fact("linear memory: retain its handle", cuMemRetainAllocationHandle(&other, (void *)p));
    fact("linear memory: get access", cuMemGetAccess(&access, &here, p));
    fact("linear memory: set access", cuMemSetAccess(p, 8 * MIB, &desc, 1));
    fact("linear memory: unmap", cuMemUnmap(p, 8 * MIB));
    fact("linear memory: map over it", cuMemMap(p, 2 * MIB, 0, handle, 0));
    fact("linear memory: free its address", cuMemAddressFree(p, 8 * MIB));
    NEED(cuMemsetD8(p, 1, 8 * MIB));
    NEED(cuMemFree(p));
    NEED(cuMemRelease(handle));
}

void facts_of_handles(void)
{
    const CUmemAllocationProp prop = fact_prop(CU_MEM_LOCATION_TYPE_DEVICE, device, 0);
    CUdeviceptr range;
    NEED(cuMemAddressReserve(&range, 16 * MIB, 0, 0, 0));
    ask_references(range, &prop);
    ask_access(range, &prop);
    NEED(cuMemAddressFree(range, 16 * MIB));
    ask_linear(&prop);
}
