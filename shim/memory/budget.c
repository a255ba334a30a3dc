#include "shim/memory/budget.h"

#include "common/shm.h"
#include "shim/link/link.h"
#include "shim/memory/freed.h"
#include "shim/tables/accounts.h"
#include "shim/tables/allocs.h"

bool gm_budget_left(int gpu, uint64_t *left, uint64_t *budget)
{
    if (gpu < 0 || gpu >= (int)GM_GPUS_MAX || !gm_link_has_daemon())
        return false;
    const uint64_t used = gm_account_total(gpu);
    *budget = gm_link_budget((uint32_t)gpu);
    *left = used < *budget ? *budget - used : 0;
    return true;
}

bool gm_memory_held(int gpu, uint64_t *bytes, pid_t *holder)
{
    if (gpu < 0 || gpu >= (int)GM_GPUS_MAX || !gm_link_has_daemon())
        return false;
    *bytes = gm_allocs_in_frames((uint32_t)gpu);
    *holder = gm_link_daemon();
    return true;
}

bool gm_memory_info(int gpu, uint64_t *free_bytes, uint64_t *total)
{
    uint64_t left;
    if (!gm_budget_left(gpu, &left, total))
        return false;
    /* What the daemon could give does not include what it backs for this program already: spares,
     * and what is on its way ahead. */
    const struct gm_freed_sums sums = gm_freed_sums(gpu, 0);
    const uint64_t room = gm_link_room((uint32_t)gpu) + sums.ready_bytes + sums.coming_bytes;
    *free_bytes = left < room ? left : room;
    return true;
}
