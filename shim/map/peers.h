/*
 * Peer access: which other devices may reach what gpumux backs on a GPU.
 *
 * On a device, cuCtxEnablePeerAccess opens all memory of a context to another device. A mapping of
 * the daemon's frames is open to the devices that its set-access names, so the mapper asks here
 * when it maps, and access.h opens what is mapped already when the first context of a device asks.
 * The program's own mappings are its own affair: it sets their access itself (vmm.h).
 *
 * A pool is opened by itself (cuMemPoolSetAccess). What it takes from then on is the driver's, but
 * what it took before is open too, so all of the GPU is opened then.
 *
 * Counted by pairs of devices. A context that is destroyed with its peer access on stays counted:
 * then memory is open to a device that does not look at it, which costs a set-access.
 */
#ifndef GM_SHIM_PEERS_H
#define GM_SHIM_PEERS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GM_PEERS_DEVICES 64
#define GM_PEERS_MAX (GM_PEERS_DEVICES - 1) /* devices beside the GPU's own */

/* Add to the `n` descriptions of access of memory on `gpu` those of its peers, GM_PEERS_MAX at
 * most. Returns how many there are then. Any thread. */
size_t gm_peers_add(uint32_t gpu, CUmemAccessDesc *desc, size_t n);

/* Whether memory on `gpu` is open to a device that is not its own. Any thread. */
bool gm_peers_has(uint32_t gpu, CUdevice device);

/* One context more of a device (0 to GM_PEERS_DEVICES - 1) that asks; true: the first. */
bool gm_peers_count_up(uint32_t gpu, CUdevice device);

/* One less; true: it was the last. */
bool gm_peers_count_down(uint32_t gpu, CUdevice device);

#endif
