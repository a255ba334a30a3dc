/*
 * Accounts of memory that the real driver made: unswappable, counted by kind in the words that the
 * daemon samples (gm_stat), and by GPU, so that what a program is told of free memory agrees.
 *
 *   small, real  plain allocations and handles, by size; memory/notes.h puts allocations into the
 *                allocation map
 *   managed      cuMemAllocManaged: noted there too. It is not taken from free memory: making it
 *                takes none, and a real driver moves it out of the way of whatever needs room
 *   arrays       arrays and mipmapped arrays, by their handle (arrays.h)
 *   pools        what the driver's own memory pools hold (set by who knows of such pools)
 *   graphs       what the driver keeps for allocations inside graphs, sampled (memory/graphs.h)
 *
 * Owns the counters below. Counts what it is told, and asks nobody. Any thread; no lock.
 */
#ifndef GM_SHIM_ACCOUNTS_H
#define GM_SHIM_ACCOUNTS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* Count (or no more: `is_on` false) bytes of a plain allocation, whose GPU the allocation map
 * knows. */
void gm_count_real(uint64_t bytes, bool is_on);

/* Count (or no more: `is_on` false) memory of the real driver on `gpu` that has no address: handles
 * of the program's own VMM that cannot be virtual. */
void gm_charge_real(int32_t gpu, uint64_t bytes, bool is_on);

/* Passes on what the program is told of an allocation of `bytes`, and counts it for the daemon if
 * that is that memory is out. */
CUresult gm_tell_allocated(CUresult result, uint64_t bytes);

/* What is not in the allocation map. */
enum gm_account { GM_ACCOUNT_ARRAYS, GM_ACCOUNT_GRAPHS, GM_ACCOUNTS };

/* Count bytes of `kind` on `gpu` (-1: not managed, so that they are counted but not taken from
 * anybody's free memory): more of them, less, or so many. */
void gm_account_add(enum gm_account kind, int gpu, uint64_t bytes);
void gm_account_sub(enum gm_account kind, int gpu, uint64_t bytes);
void gm_account_set(enum gm_account kind, int gpu, uint64_t bytes);

/* All that the program has on `gpu` (0 to GM_GPUS_MAX - 1): in the allocation map, and of every
 * kind above. */
uint64_t gm_account_total(int gpu);

#endif
