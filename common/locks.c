/* The order of locks, checked: see locks.h. Empty without GM_DEBUG_LOCKS. */
#include "common/locks.h"

#ifdef GM_DEBUG_LOCKS
#include <assert.h>
#include <stdint.h>

static _Thread_local uint32_t gm_locks_held; /* a bit a rank */

void gm_lock_enter(enum gm_lock_rank rank)
{
    assert(gm_locks_held >> rank == 0 && "a lock is taken out of order: see common/locks.h");
    gm_locks_held |= 1u << rank;
}

void gm_lock_leave(enum gm_lock_rank rank)
{
    assert(gm_locks_held >> rank & 1u);
    gm_locks_held &= ~(1u << rank);
}
#endif
