/* What the parts of the program `facts` share; facts.c says what it is. */
#ifndef GM_SIMCUDA_FACTS_H
#define GM_SIMCUDA_FACTS_H

#include <cuda.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB (1ull << 20)

/* The device, its primary context (current), a module made of fact_ptx, and functions of it. */
extern const char fact_ptx[];
extern CUdevice device;
extern CUcontext context;
extern CUmodule module;
extern CUfunction empty, sweep, spin_until;

/* The name of a result, without CUDA_ERROR_. */
const char *fact_name(CUresult result);
/* One line: what was asked, and the answer. */
void fact(const char *question, CUresult result);
void fact_number(const char *question, long long number);
/* Properties of a pinned allocation. */
CUmemAllocationProp fact_prop(CUmemLocationType type, int id, unsigned handle_types);

/* What has to work for the questions to make sense. */
#define NEED(call)                                                                                 \
    do {                                                                                           \
        const CUresult need_ = (call);                                                             \
        if (need_ != CUDA_SUCCESS) {                                                               \
            fflush(stdout);                                                                        \
            fprintf(stderr, "facts: line %d: %s: %s\n", __LINE__, #call, fact_name(need_));        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

void facts_of_lookup(void);
void facts_of_no_context(void);
void facts_of_create(void);
void facts_of_reserve(void);
void facts_of_map(void);
void facts_of_sharing(void);
void facts_of_linear(void);
void facts_of_host(void);
void facts_of_pointers(void);
void facts_of_modules(void);
void facts_of_launches(void);
void facts_of_streams(void);
void facts_of_waiting(void);
void facts_of_blocking(void);
void facts_of_graphs(void);
void facts_of_capture(void);
void facts_of_contexts(void);
void facts_of_context_events(void);
void facts_of_handles(void);
void facts_of_pools(void);
void facts_of_pools_captured(void);
void facts_of_pools_captured_locally(void);
void facts_of_pools_limits(void);
void facts_of_pools_contexts(void);
void facts_of_pools_linear(void);
void facts_of_unswappable(void);
void facts_of_ranges(void);
void facts_of_last_pages(void);
void facts_of_wrapping_sets(void);
void facts_of_lost_captures(void);
void facts_of_ipc(void);
void facts_of_global_capture(void);
void facts_of_global_capture_elsewhere(void);
void facts_of_global_capture_elsewhere_locally(void);
void facts_of_local_capture(void);
void facts_of_local_capture_elsewhere(void);
void facts_of_relaxed_capture(void);
void facts_of_relaxed_thread(void);
void facts_of_host_functions(void);
void facts_of_callbacks(void);
void facts_of_host_nodes(void);
void facts_of_drivers_memory(void);

#endif
