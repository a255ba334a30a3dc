/* Facts: copies and sets that reach beyond an allocation, what is no allocation at all, and
 * captures that lose their stream or context. */
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
    fact("copy to host from an unknown address", cuMemcpyDtoH(&word, 4096, 4));
    fact("copy from host to an unknown address", cuMemcpyHtoD(4096, &word, 4));
    fact("set at an unknown address", cuMemsetD8(4096, 0, 4));
    fact("copy after all of that", cuMemcpyDtoH(&word, large, 4));
    NEED(cuMemFree(to));
    NEED(cuMemFree(large));
    free(host);
}

/* Within the 2 MiB that the last page of an allocation has. */
void facts_of_last_pages(void)
{
    CUdeviceptr large;
    char *host = calloc(1, 32 * MIB);
    NEED(host == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
    NEED(cuMemAlloc(&large, 5 * MIB + 4096));
    fact("copy of one byte more than was asked for", cuMemcpyDtoH(host, large, 5 * MIB + 4097));
    fact("copy of 1 MiB from the last byte on", cuMemcpyDtoH(host, large + 5 * MIB + 4095, MIB));
    fact("set of one byte more", cuMemsetD8(large, 0, 5 * MIB + 4097));
    fact("copy after all of that", cuMemcpyDtoH(host, large, 4));
    NEED(cuMemFree(large));
    free(host);
}

/* 2^64 - 4 bytes: the driver's sum wraps around. What follows in the context is lost. */
void facts_of_wrapping_sets(void)
{
    CUdeviceptr large;
    unsigned word = 0;
    NEED(cuMemAlloc(&large, 16 * MIB));
    fact("set of 2^64 - 4 bytes", cuMemsetD32(large, 0, ~(size_t)0));
    fact("copy then", cuMemcpyDtoH(&word, large, 4));
}

/* A stream that is destroyed while it captures, and what is left of the capture. */
void facts_of_lost_captures(void)
{
    CUstream stream, other;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUcontext own;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    fact("destroy a stream that captures", cuStreamDestroy(stream));
    fact("synchronize the context then", cuCtxSynchronize());
    NEED(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    NEED(cuStreamIsCapturing(other, &status));
    fact_number("another stream captures", status);
    NEED(cuCtxCreate(&own, NULL, 0, device));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    fact("destroy a context in which a stream captures", cuCtxDestroy(own));
    NEED(cuStreamDestroy(other));
}
