/*
 * Peer access: a context may be given all memory of another device's context. Of each device that
 * is one context, the last that was enabled; programs use one context a device.
 */
#include "tests/simcuda/sim.h"

static CUresult check_pair(CUcontext handle, struct sim_ctx **ctx, struct sim_ctx **peer)
{
    CUresult result = sim_ctx_current(ctx);
    if (result == CUDA_SUCCESS && sim_ctx_check(handle, peer) != CUDA_SUCCESS)
        result = CUDA_ERROR_INVALID_CONTEXT;
    return result;
}

SIM_API CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags)
{
    SIM_ENTER(cuCtxEnablePeerAccess);
    struct sim_ctx *ctx, *peer;
    CUresult result = check_pair(handle, &ctx, &peer);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (ctx->device == peer->device)
        return CUDA_ERROR_INVALID_DEVICE;
    return atomic_exchange(&ctx->peer[peer->device], peer) == peer
               ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
               : CUDA_SUCCESS;
}
SIM_ENTRY(cuCtxEnablePeerAccess);

SIM_API CUresult cuCtxDisablePeerAccess(CUcontext handle)
{
    SIM_ENTER(cuCtxDisablePeerAccess);
    struct sim_ctx *ctx, *peer;
    CUresult result = check_pair(handle, &ctx, &peer);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_ctx *expected = peer;
    return atomic_compare_exchange_strong(&ctx->peer[peer->device], &expected, NULL)
               ? CUDA_SUCCESS
               : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
SIM_ENTRY(cuCtxDisablePeerAccess);

bool sim_peer_may_touch(const struct sim_ctx *ctx, uint64_t address)
{
    bool may = true;
    pthread_mutex_lock(&sim_va_lock);
    const struct sim_range *r = sim_range_find(address);
    if (r != NULL && r->kind == SIM_RANGE_MAPPED)
        may = r->access[ctx->device] != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    else if (r != NULL && r->kind == SIM_RANGE_LINEAR && r->device >= 0 && r->device != ctx->device)
        may = atomic_load(&ctx->peer[r->device]) != NULL;
    pthread_mutex_unlock(&sim_va_lock);
    return may;
}
