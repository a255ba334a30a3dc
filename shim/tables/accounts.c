#include "shim/tables/accounts.h"

#include "common/chunk.h"
#include "shim/gate/gate.h"
#include "shim/tables/allocs.h"

/* By kind and GPU. The last column: devices that are not managed. */
static _Atomic uint64_t gm_account_bytes[GM_ACCOUNTS][GM_GPUS_MAX + 1];

void gm_count_real(uint64_t bytes, bool is_on)
{
    struct gm_stat *stat = gm_gate_stat();
    _Atomic uint64_t *word = bytes < GM_SMALL_MAX ? &stat->small_bytes : &stat->real_bytes;
    if (is_on)
        atomic_fetch_add(word, bytes);
    else
        atomic_fetch_sub(word, bytes);
}

CUresult gm_tell_allocated(CUresult result)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        atomic_fetch_add(&gm_gate_stat()->refused, 1);
    return result;
}

CUresult gm_tell_driver_allocated(CUresult result, uint64_t bytes)
{
    struct gm_stat *stat = gm_gate_stat();
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        atomic_store(&stat->driver_refused_bytes, bytes);
        atomic_fetch_add(&stat->driver_refused, 1);
    }
    return gm_tell_allocated(result);
}

void gm_charge_real(int32_t gpu, uint64_t bytes, bool is_on)
{
    if (gpu < 0)
        return;
    gm_allocs_charge((uint32_t)gpu, is_on ? (int64_t)bytes : -(int64_t)bytes);
    gm_count_real(bytes, is_on);
}

static _Atomic uint64_t *gm_account_word(enum gm_account kind)
{
    struct gm_stat *stat = gm_gate_stat();
    return kind == GM_ACCOUNT_ARRAYS   ? &stat->array_bytes
           : kind == GM_ACCOUNT_GRAPHS ? &stat->graph_bytes
                                       : &stat->driver_bytes;
}

static _Atomic uint64_t *gm_account_at(enum gm_account kind, int gpu)
{
    return &gm_account_bytes[kind][gpu >= 0 && gpu < (int)GM_GPUS_MAX ? gpu : (int)GM_GPUS_MAX];
}

void gm_account_add(enum gm_account kind, int gpu, uint64_t bytes)
{
    atomic_fetch_add(gm_account_at(kind, gpu), bytes);
    atomic_fetch_add(gm_account_word(kind), bytes);
}

void gm_account_sub(enum gm_account kind, int gpu, uint64_t bytes)
{
    atomic_fetch_sub(gm_account_at(kind, gpu), bytes);
    atomic_fetch_sub(gm_account_word(kind), bytes);
}

void gm_account_set(enum gm_account kind, int gpu, uint64_t bytes)
{
    uint64_t before = atomic_exchange(gm_account_at(kind, gpu), bytes);
    atomic_fetch_add(gm_account_word(kind), bytes - before); /* modulo 2^64 */
}

static uint64_t gm_account_sum(int gpu, enum gm_account but)
{
    uint64_t sum = 0;
    for (enum gm_account kind = 0; kind < GM_ACCOUNTS; kind++)
        if (kind != but)
            sum += atomic_load_explicit(&gm_account_bytes[kind][gpu], memory_order_relaxed);
    return sum;
}

uint64_t gm_account_made(int gpu)
{
    const uint64_t used = gm_allocs_used((uint32_t)gpu);
    const uint64_t framed = gm_allocs_in_frames((uint32_t)gpu);
    return (used > framed ? used - framed : 0) + gm_account_sum(gpu, GM_ACCOUNT_DRIVER);
}

uint64_t gm_account_total(int gpu)
{
    return gm_allocs_used((uint32_t)gpu) + gm_account_sum(gpu, GM_ACCOUNTS);
}
