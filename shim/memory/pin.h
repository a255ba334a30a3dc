/*
 * Pinning: a virtual handle becomes the driver's own, because somebody else is to get hold of it
 * (cuMemExportToShareableHandle). Its value, views and data stay. From then on its memory is
 * unswappable, and counted as such.
 *
 * A pin copies within the GPU and changes mappings while the program may be running. So the caller
 * enters the gate, which keeps the daemon from taking anything away, holds every other thread
 * (gm_gate_hold), and waits for the GPU to end all work of the program. If that does not end in a
 * few seconds (a kernel that waits for the host, a capture that stays open), the pin fails and
 * nothing has changed.
 *
 * Any thread that is not inside a gate-crossing call; one pins at a time.
 */
#ifndef GM_SHIM_PIN_H
#define GM_SHIM_PIN_H

#include <cuda.h>
#include <stdint.h>

/*
 * *real: the driver's handle of the same memory, which stays the table's. INVALID_VALUE: unknown;
 * OUT_OF_MEMORY; NOT_READY and STREAM_CAPTURE_UNSUPPORTED: not now; or what the driver said.
 */
CUresult gm_pin(uint64_t value, CUmemGenericAllocationHandle *real);

#endif
