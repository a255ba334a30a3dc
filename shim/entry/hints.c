#include "shim/entry/hints.h"

#include "include/gpumux.h"

#include <errno.h>
#include <stdatomic.h>

#include "common/clock.h"
#include "shim/gate/boot.h"
#include "shim/link/link.h"

/* The program gives hints itself if it gave one so shortly before. */
#define GM_HINTS_ITS_OWN_NS (200 * GM_MS)

static _Atomic uint64_t gm_hints_given_at; /* by the program; 0: never */

__attribute__((visibility("default"))) int gpumux_state_(void)
{
    if (!gm_boot_is_over())
        return GPUMUX_COLD;
    return gm_link_has_daemon() ? GPUMUX_SHARED : GPUMUX_ALONE;
}

__attribute__((visibility("default"))) void gpumux_expect(uint64_t after_us, uint64_t for_us)
{
    const int error = errno;
    atomic_store_explicit(&gm_hints_given_at, gm_now(), memory_order_relaxed);
    if (gm_boot_is_over())
        gm_link_expect(after_us, for_us);
    errno = error;
}

void gm_hints_announce(uint64_t after_us, uint64_t for_us)
{
    const uint64_t given_at = atomic_load_explicit(&gm_hints_given_at, memory_order_relaxed);
    if (given_at == 0 || gm_now() - given_at >= GM_HINTS_ITS_OWN_NS)
        gm_link_expect(after_us, for_us);
}
