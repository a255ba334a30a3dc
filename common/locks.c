/* Asserts the order of locks: see locks.h. Empty without GM_DEBUG_LOCKS. */
#include "common/locks.h"

#ifdef GM_DEBUG_LOCKS
#include <assert.h>
#include <stdint.h>

/* A bit a rank. initial-exec: the shim locks where nothing may be allocated. */
static __thread uint32_t gm_locks_held __attribute__((tls_model("initial-exec")));

#define GM_LOCK_ONE(NAME) +1
_Static_assert(0 GM_LOCK_RANKS(GM_LOCK_ONE) <= 32, "a bit a rank");
#undef GM_LOCK_ONE

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
