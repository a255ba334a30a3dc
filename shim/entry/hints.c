/* The functions of include/gpumux.h. Calls boot and the link. */
#include "include/gpumux.h"

#include <errno.h>

#include "shim/gate/boot.h"
#include "shim/link/link.h"

__attribute__((visibility("default"))) int gpumux_state_(void)
{
    if (!gm_boot_is_over())
        return GPUMUX_COLD;
    return gm_link_is_up() ? GPUMUX_SHARED : GPUMUX_ALONE;
}

__attribute__((visibility("default"))) void gpumux_expect(uint64_t after_us, uint64_t for_us)
{
    const int error = errno;
    if (gm_boot_is_over())
        gm_link_expect(after_us, for_us);
    errno = error;
}
