/* Facts: copies and sets that reach beyond an allocation, and what is no allocation at all. */
#include "tests/simcuda/facts.h"

#include <stdlib.h>

#define MIB (1ull << 20)

void facts_of_ranges(void)
{
    CUdeviceptr large, to;
    unsigned word = 0;
    char *host = calloc(1, 32 * MIB);
    NEED(host == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
    NEED(cuMemAlloc(&large, 16 * MIB));
    NEED(cuMemAlloc(&to, 32 * MIB));
    fact("copy all of it", cuMemcpyDtoH(host, large, 16 * MIB));
    fact("copy to host, far beyond the end", cuMemcpyDtoH(host, large, 1ull << 46));
    fact("copy from host, far beyond the end", cuMemcpyHtoD(large, host, 1ull << 46));
    fact("copy within the device, far beyond the end", cuMemcpyDtoD(to, large, 1ull << 46));
    fact("set far beyond the end", cuMemsetD8(large, 0, 1ull << 46));
    fact("set of more bytes than there are", cuMemsetD32(large, 0, ~(size_t)0));
    fact("copy to host from an unknown address", cuMemcpyDtoH(&word, 4096, 4));
    fact("copy from host to an unknown address", cuMemcpyHtoD(4096, &word, 4));
    fact("set at an unknown address", cuMemsetD8(4096, 0, 4));
    fact("copy after all of that", cuMemcpyDtoH(&word, large, 4));
    NEED(cuMemFree(to));
    NEED(cuMemFree(large));
    free(host);
}
