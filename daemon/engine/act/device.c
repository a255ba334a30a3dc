/*
 * What the engine asks the driver and the kernel, and has the answer at once. Called where events
 * come in, and by those who act.
 */
#include "daemon/engine/act/device.h"

#include <sys/random.h>

void gm_engine_ask_device(const struct gm_engine *engine, struct gm_device_room *room)
{
    size_t free_now = 0, all = 0;
    room->is_known = engine->cuda.cuMemGetInfo_v2(&free_now, &all) == CUDA_SUCCESS;
    room->free_bytes = free_now;
    room->total = all;
}

const char *gm_engine_error_text(const struct gm_engine *engine, CUresult result)
{
    return gm_cuda_text(&engine->cuda, result);
}

bool gm_engine_draw_nonce(uint64_t nonce[2])
{
    return getrandom(nonce, 2 * sizeof *nonce, 0) == 2 * sizeof *nonce;
}
