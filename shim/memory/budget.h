/*
 * The total and free memory of a GPU as CUDA and NVML report it to the program: its budget and the
 * free part of it. Owns nothing. Any thread. Calls the accounts, the link and spares.
 */
#ifndef GM_SHIM_BUDGET_H
#define GM_SHIM_BUDGET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The budget, and what the program can still allocate: the unused part of the budget, or what the
 * daemon's tiers can still hold if that is less. False: the GPU is not managed or the daemon is
 * lost; use the driver's answer. */
bool gm_memory_info(int gpu, uint64_t *free_bytes, uint64_t *total);

/* What of the program's memory the daemon's process has made, and that process (0: it has no number
 * here). False: as above. */
bool gm_memory_held(int gpu, uint64_t *bytes, pid_t *holder);

/* The unused part of the budget, and the budget. False: as above. */
bool gm_budget_left(int gpu, uint64_t *left, uint64_t *budget);

#endif
