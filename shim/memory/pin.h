/*
 * Pinning: a virtual handle gets memory of the driver, because others will access it
 * (cuMemExportToShareableHandle, multicast). Its value, views and data stay. Its memory is
 * unswappable from then on, and counted as such.
 *
 * A pin copies within the GPU and changes mappings while the program may run. So it enters the
 * gate, where the daemon takes nothing away, holds every other thread (gm_gate_hold), and waits for
 * the GPU to end all work of the program. If that takes longer than ten seconds (a kernel waits for
 * the host, a capture stays open), the pin fails and changes nothing. Memory that was never
 * mapped is pinned without all that, also beside a capture.
 *
 * Owns nothing. Callers: the handlers of the program's own VMM; any thread outside the gate, one at
 * a time. Calls the driver, the gate, the drainer, the link, views, imports and the table.
 */
#ifndef GM_SHIM_PIN_H
#define GM_SHIM_PIN_H

#include <cuda.h>
#include <stdint.h>

/*
 * *real: the driver's handle, which the table keeps. INVALID_VALUE: unknown. NOT_READY and
 * STREAM_CAPTURE_UNSUPPORTED: not now. OUT_OF_MEMORY, or an error of the driver.
 */
CUresult gm_pin(uint64_t value, CUmemGenericAllocationHandle *real);

#endif
