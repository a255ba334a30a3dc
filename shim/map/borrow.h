/* A context for calls of this room and of pins. Link thread only. Calls the driver. */
#ifndef GM_SHIM_BORROW_H
#define GM_SHIM_BORROW_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* These calls need no current context, but a driver may ask for one. Then the device's primary
 * context is current for the rest of the batch. */
struct gm_borrowed {
    bool is_on;
    CUdevice device;
};

bool gm_borrow(struct gm_borrowed *borrowed, uint32_t gpu);
void gm_give_back(struct gm_borrowed *borrowed);

/* `call`; again with a context if the driver asks for one. */
#define GM_WITH_CONTEXT(borrowed, gpu, call)                                                       \
    ({                                                                                             \
        CUresult gm_result = (call);                                                               \
        if (gm_result == CUDA_ERROR_INVALID_CONTEXT && gm_borrow((borrowed), (gpu)))               \
            gm_result = (call);                                                                    \
        gm_result;                                                                                 \
    })

#endif
