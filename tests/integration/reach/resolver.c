/*
 * cuGetProcAddress of the test double: the newest ABI that is not newer than `version`, of the
 * wanted stream mode if the api has two, by a plain walk over the table. What it does not have it
 * answers as driver 580 does: CUDA_SUCCESS, a NULL pointer and a status. It has three ways of its
 * own to be awkward:
 *
 *   cuMemsetD8       the address that it answers with is not the one that the library exports
 *   cuLaunchKernel   from GM_REACH_FUTURE on it has another ABI
 *   exact symbols    it also answers to "cuMemGetInfo_v2"
 */
#include <cuda.h>
#include <stddef.h>
#include <stdbool.h>
#include <string.h>

#include "driver.h"

enum mode { ANY, LEGACY, PTDS, PTSZ };

static const struct entry {
    const char *api;
    void *function;
    int since;
    enum mode mode;
} entries[] = {
#define GM_HOOK(api, symbol, since, mode, kind, params, args) {#api, (void *)symbol, since, mode},
#include "shim/driver/hooks.def"
#undef GM_HOOK
    {"cuDriverGetVersion", (void *)cuDriverGetVersion, 2020, ANY},
    {"cuMemFreeHost", (void *)cuMemFreeHost, 2000, ANY},
    {"cuEventRecord", (void *)cuEventRecord, 2000, LEGACY},
};

/* Reached only through the resolver. */
static CUresult memset_elsewhere(CUdeviceptr destination, unsigned char byte, size_t count)
{
    return cuMemsetD8_v2(destination, byte, count);
}

static CUresult launch_of_the_future(void)
{
    return CUDA_SUCCESS;
}

CUresult reach_resolve(const char *symbol, void **pfn, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *status)
{
    const struct entry *best = NULL, *best_per_thread = NULL;
    bool is_known = false, has_per_thread = false;
    void *found = NULL;

    if (!symbol || !pfn)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        const struct entry *entry = &entries[i];
        bool is_per_thread = entry->mode == PTDS || entry->mode == PTSZ;
        if (strcmp(entry->api, symbol) != 0)
            continue;
        is_known = true;
        has_per_thread |= is_per_thread;
        if (entry->since > version)
            continue;
        if (is_per_thread && (!best_per_thread || best_per_thread->since < entry->since))
            best_per_thread = entry;
        if (!is_per_thread && (!best || best->since < entry->since))
            best = entry;
    }
    if ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) && has_per_thread)
        best = best_per_thread;
    if (best)
        found = best->function;
    if (found == (void *)cuMemsetD8_v2)
        found = (void *)memset_elsewhere;
    if (strcmp(symbol, "cuLaunchKernel") == 0 && version >= GM_REACH_FUTURE)
        found = (void *)launch_of_the_future;
    if (strcmp(symbol, "cuMemGetInfo_v2") == 0)
        found = (void *)cuMemGetInfo_v2;

    *pfn = found;
    if (status)
        *status = found      ? CU_GET_PROC_ADDRESS_SUCCESS
                  : is_known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                             : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus)
{
    return reach_resolve(symbol, pfn, cudaVersion, flags, symbolStatus);
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    return reach_resolve(symbol, pfn, cudaVersion, flags, NULL);
}
