/*
 * Whether this driver lets this program be parked, and whether it takes timeslices: found out by
 * trying, since a driver that accepts a control may ignore it, and under MPS the channels are the
 * server's.
 *
 * The trial needs no code on the GPU: on a stream of its own the GPU waits for a word in host
 * memory and then writes another one. Between park and resume no call of the driver is made: it
 * might wait for a lock of a thread that waits for the GPU.
 */
#ifndef GM_SHIM_PROBE_H
#define GM_SHIM_PROBE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Drainer only, in the context that is current, while the gate is open and everything is mapped.
 * True: `off` has those of GM_FEATURE_PARK and GM_FEATURE_TIMESLICE that do not work. False: it
 * cannot be told now, for the GPU is busy or a context is being made; ask again later.
 *
 * Takes a few milliseconds of which the program's own work is stopped for one, or up to
 * GM_PROBE_HOLD_MOST where others use the GPU too.
 */
bool gm_probe(uint32_t *off);

#endif
