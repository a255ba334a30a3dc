/*
 * What the program is told about the memory of a GPU, by CUDA and NVML alike: its budget, and how
 * much of it is free. Owns nothing: reads the accounts, the daemon's words and the spares. Any
 * thread.
 */
#ifndef GM_SHIM_BUDGET_H
#define GM_SHIM_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The budget, and what the program could still allocate. That is what it does not use of the
 * budget, or what all tiers can still hold if that is less. False: the GPU is not managed, or the
 * daemon is lost; the driver's own answer holds.
 */
bool gm_memory_info(int gpu, uint64_t *free_bytes, uint64_t *total);

/* What the program does not use of the budget, whatever the tiers can hold. False: as above. */
bool gm_budget_left(int gpu, uint64_t *left, uint64_t *budget);

#endif
