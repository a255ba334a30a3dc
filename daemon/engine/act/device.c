/*
 * What the engine asks the driver, the kernel and the service, and has the answer at once. Called
 * by all files of the engine.
 */
#include "daemon/engine/act/device.h"

#include <sys/random.h>

#include "common/clock.h"

bool gm_engine_ask_device(const struct gm_engine *engine, uint64_t *free_bytes, uint64_t *total)
{
    size_t free_now = 0, all = 0;
    const CUresult result = engine->cuda.cuMemGetInfo_v2(&free_now, &all);
    *free_bytes = free_now;
    *total = all;
    return result == CUDA_SUCCESS;
}

uint64_t gm_engine_stopwatch(void)
{
    return gm_stopwatch();
}

const char *gm_engine_error_text(const struct gm_engine *engine, CUresult result)
{
    return gm_cuda_text(&engine->cuda, result);
}

enum gm_why gm_engine_ask_stop(const struct gm_engine *engine, uint32_t id)
{
    return engine->config.outlet.stop_of(engine->apps[id].pid);
}

bool gm_engine_draw_nonce(uint64_t nonce[2])
{
    return getrandom(nonce, 2 * sizeof *nonce, 0) == 2 * sizeof *nonce;
}
