/*
 * Templates: what a launch touches by the profile of its kernel (tables/profiles.h).
 *
 * The model: a word of the arguments that is an address of gpumux's is looked up among the kernel's
 * arguments in the profile. `touch`: the rows that the template gives; `none`: nothing; `other`, or
 * not there: something from the address on, as without a profile. A template that leads out of
 * gpumux's memory is wrong, and with it the kernel's profile. A kernel that touches much to which
 * no argument leads is not known whole.
 *
 * Any thread, without a lock but for a kernel's first launch. Asks the driver what a function is.
 */
#ifndef GM_SHIM_TEMPLATES_H
#define GM_SHIM_TEMPLATES_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/real.h"
#include "shim/tables/profiles.h"

/* `bytes` from `va` are touched; GM_REACHES: something from there on, nobody knows how much. */
typedef void gm_touch_found(void *arg, uint64_t va, uint64_t bytes);
#define GM_REACHES UINT64_MAX

/* The dimensions of a launch, of the driver's struct at `from`. */
#define GM_DIMENSIONS_OF(from)                                                                     \
    (const uint32_t[GM_DIMENSIONS])                                                                \
    {                                                                                              \
        (from)->gridDimX, (from)->gridDimY, (from)->gridDimZ, (from)->blockDimX,                   \
            (from)->blockDimY, (from)->blockDimZ                                                   \
    }

/* The kernel of a function, if a profile has it. NULL: none has. */
struct gm_kernel *gm_templates_kernel(CUfunction f);

/* Call found() for what a launch of such a kernel touches; `params` as the driver gets them,
 * `dimension` the GM_DIMENSIONS of the launch. False: that is not all. */
bool gm_templates_look(struct gm_kernel *kernel, const uint32_t *dimension, void **params,
                       gm_touch_found *found, void *arg);

#endif
