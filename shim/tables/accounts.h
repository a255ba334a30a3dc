/*
 * Accounts of memory that the real driver made, which is unswappable: by kind in the words that the
 * daemon samples (gm_stat), and by GPU for the program's free memory.
 *
 *   small, real  plain allocations and handles, by size (memory/notes.h)
 *   managed      cuMemAllocManaged (memory/notes.h); not taken from free memory, because the driver
 *                moves it away when others need room
 *   arrays       arrays and mipmapped arrays (arrays.h)
 *   graphs       memory that the driver keeps for graphs, sampled (memory/graphs.h)
 *   driver       what it takes beside all that: modules, local memory (observe/usage.h)
 *
 * Owns these counters. Any thread; no lock. Calls allocations, and the gate for gm_stat.
 */
#ifndef GM_SHIM_ACCOUNTS_H
#define GM_SHIM_ACCOUNTS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* Count, or uncount if not `is_on`, a plain allocation, which the allocation map has by GPU. */
void gm_count_real(uint64_t bytes, bool is_on);

/* Count, or uncount, memory on `gpu` without an address: real handles of the program's own VMM. */
void gm_charge_real(int32_t gpu, uint64_t bytes, bool is_on);

/* Returns `result`, the answer to an allocation, and counts OUT_OF_MEMORY for the daemon: what it
 * refused itself, or what the driver refused, which only the shim knows of. */
CUresult gm_tell_allocated(CUresult result);
CUresult gm_tell_driver_allocated(CUresult result, uint64_t bytes);

/* Memory that is not in the allocation map. */
enum gm_account { GM_ACCOUNT_ARRAYS, GM_ACCOUNT_GRAPHS, GM_ACCOUNT_DRIVER, GM_ACCOUNTS };

/* Add, subtract or set bytes of `kind` on `gpu` (-1: not managed; not taken from free memory). */
void gm_account_add(enum gm_account kind, int gpu, uint64_t bytes);
void gm_account_sub(enum gm_account kind, int gpu, uint64_t bytes);
void gm_account_set(enum gm_account kind, int gpu, uint64_t bytes);

/* What the driver made for the program on `gpu`, as far as it was asked for: all but what it took
 * by itself. */
uint64_t gm_account_made(int gpu);

/* All bytes of the program on `gpu` (below GM_GPUS_MAX). */
uint64_t gm_account_total(int gpu);

#endif
