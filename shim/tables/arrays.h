/*
 * The program's arrays and mipmapped arrays, for the accounts. Their memory is the driver's, in a
 * layout of its own, and stays where it is. Each is known by its handle and counts with the bytes
 * of its descriptor, which is the least that it takes. Arrays without memory of their own (sparse
 * ones, and those that get it mapped later) count as 0.
 *
 * Owns the list of arrays. Any thread. Calls the accounts.
 */
#ifndef GM_SHIM_ARRAYS_H
#define GM_SHIM_ARRAYS_H

#include "shim/driver/real.h"
#include "shim/tables/allocs.h"

/* Bytes that an array takes, of `levels` mipmap levels (1: a plain array). */
uint64_t gm_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels);

/* An array was made in the place that gm_where() told. */
void gm_arrays_add(const void *handle, const struct gm_alloc *where, uint64_t bytes);

/* It is about to be destroyed: *array (its handle in `va`) for gm_arrays_put_back() should that
 * fail. False: not known. */
bool gm_arrays_take(const void *handle, struct gm_alloc *array);
void gm_arrays_put_back(const struct gm_alloc *array);

/* As gm_allocs_take_of(): all of a context, or of a device's primary context, are gone. */
void gm_arrays_forget(const void *context, int32_t device);

#endif
