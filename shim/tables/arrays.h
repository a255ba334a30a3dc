/*
 * The program's arrays and mipmapped arrays, for the accounts. The driver owns their memory, which
 * is not moved. Each counts with the bytes of its descriptor, the least that it takes; arrays that
 * have no memory of their own (sparse, deferred mapping) count as 0.
 *
 * Owns the list of arrays by handle. Callers: handlers and release, any thread. Calls the accounts.
 */
#ifndef GM_SHIM_ARRAYS_H
#define GM_SHIM_ARRAYS_H

#include "shim/driver/real.h"
#include "shim/tables/allocs.h"

/* Bytes of an array with `levels` mipmap levels (1: a plain array). */
uint64_t gm_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels);

/* An array was made; `where` is from gm_where(). */
void gm_arrays_add(const void *handle, const struct gm_alloc *where, uint64_t bytes);

/* Before it is destroyed: *array is for gm_arrays_put_back() if that fails. False: unknown. */
bool gm_arrays_take(const void *handle, struct gm_alloc *array);
void gm_arrays_put_back(const struct gm_alloc *array);

/* Forget the arrays of a context: arguments as in gm_allocs_take_of(). */
void gm_arrays_forget(const void *context, int32_t device);

#endif
