/*
 * Peer access: which other devices may access the memory that gpumux backs on a GPU.
 *
 * cuCtxEnablePeerAccess opens all memory of a context to another device. A mapping of the daemon's
 * frames is open to the devices that its set-access names. So the mapper asks here when it maps,
 * and access.h opens existing mappings when the first context of a device asks. The program sets
 * the access of its own mappings itself (vmm.h).
 *
 * cuMemPoolSetAccess opens one pool. Its later memory is the driver's, but its earlier memory must
 * be open too, so it opens all memory of the GPU.
 *
 * Owns a count by pairs of devices. A context that is destroyed with its peer access on stays
 * counted: that costs a set-access and nothing else. Calls nobody.
 */
#ifndef GM_SHIM_PEERS_H
#define GM_SHIM_PEERS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GM_PEERS_DEVICES 64
#define GM_PEERS_MAX (GM_PEERS_DEVICES - 1) /* devices beside the GPU's own */

/* Append the peers of `gpu`, GM_PEERS_MAX at most, to the `n` access descriptions. Returns the new
 * count. Any thread. */
size_t gm_peers_add(uint32_t gpu, CUmemAccessDesc *desc, size_t n);

/* Whether memory on `gpu` is open to a peer. Any thread. */
bool gm_peers_has(uint32_t gpu, CUdevice device);

/* Count one context more of a device (below GM_PEERS_DEVICES). True: the first. */
bool gm_peers_count_up(uint32_t gpu, CUdevice device);

/* One less. True: it was the last. */
bool gm_peers_count_down(uint32_t gpu, CUdevice device);

#endif
