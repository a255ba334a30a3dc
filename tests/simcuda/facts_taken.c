/* Facts of memory that the driver takes by itself: for a module, and for a kernel's local memory. */
#include "tests/simcuda/facts.h"

static const char array_ptx[] = ".version 7.0\n"
                                ".target sm_70\n"
                                ".address_size 64\n"
                                ".visible .global .align 16 .b8 gm_array[268435456];\n"
                                ".visible .entry gm_empty() { ret; }\n";
static size_t free_before;

static size_t free_now(void)
{
    size_t has_free, total;
    NEED(cuCtxSynchronize());
    NEED(cuMemGetInfo(&has_free, &total));
    return has_free;
}

/* How much less is free than before, in tenths of `unit`. */
static void fact_taken(const char *question, uint64_t unit)
{
    const size_t now = free_now();
    const long long taken = (long long)free_before - (long long)now;
    fact_number(question,
                (10 * taken + (taken < 0 ? -1 : 1) * (long long)(unit / 2)) / (long long)unit);
}

void facts_of_drivers_memory(void)
{
    CUmodule loaded;
    CUfunction function;
    int processors, threads;
    NEED(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    NEED(
        cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device));
    free_before = free_now();
    NEED(cuModuleLoadData(&loaded, array_ptx));
    fact_taken("an array of 256 MiB: taken at load", 256 * MIB);
    NEED(cuModuleGetFunction(&function, loaded, "gm_empty"));
    NEED(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    fact_taken("  after a launch", 256 * MIB);
    NEED(cuModuleUnload(loaded));
    fact_taken("  after unloading", 256 * MIB);
    fact("a stack of 16384 bytes", cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 16384));
    fact_taken("  taken, of what all threads have above 1024",
               (16384 - 1024) * (uint64_t)processors * (uint64_t)threads);
}
