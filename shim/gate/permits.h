/*
 * What the driver permits the calling thread. Calls that the shim answers by itself must be refused
 * where the driver refuses them: inside host functions (NOT_PERMITTED), and, those that allocate or
 * free, beside a capture (STREAM_CAPTURE_UNSUPPORTED, and the capture is over). Which captures
 * matter depends on their modes, their threads and this thread's mode (tests/simcuda/facts.txt), so
 * the driver is asked by a call that has no other effect.
 *
 * Owns nothing. Any thread; no lock. Calls the driver and the gate.
 */
#ifndef GM_SHIM_PERMITS_H
#define GM_SHIM_PERMITS_H

#include <cuda.h>

/* NOT_PERMITTED inside a host function, else SUCCESS: for calls that are safe beside a capture. */
CUresult gm_permits(void);

/* For calls that are unsafe there. Ends the captures that forbid the call, as the driver does. */
CUresult gm_permits_unsafe(void);

/* In a handler: return the refusal, if it is one. */
#define GM_REFUSE(permits)                                                                         \
    do {                                                                                           \
        const CUresult gm_refusal = (permits);                                                     \
        if (gm_refusal != CUDA_SUCCESS)                                                            \
            return gm_refusal;                                                                     \
    } while (0)

#endif
