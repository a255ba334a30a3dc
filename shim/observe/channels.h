/*
 * Channels: the queues through which the GPU takes this program's work. libcuda.so.1 makes them
 * with ioctl calls to the kernel driver. The shim sees these calls (entry/ioctl.c), learns the
 * handles, and uses the driver's own controls with them (driver/rm.h):
 *
 *   park       disable all channels of the process. What runs on the GPU stops within a
 *              millisecond, in the middle of a kernel, and goes on at resume.
 *   timeslice  how long this program's kernels keep the GPU while others wait for it.
 *   memory     how much GPU memory the driver has made for the process.
 *
 * This file knows nothing of gates, daemons and contexts: who parks sees to it that nothing is
 * submitted meanwhile.
 *
 * The driver ignores a list that lacks a channel of a group, and nothing says so. So
 *   - a table that could not hold all, or a channel whose GPU is not known, means GM_PARK_NONE;
 *   - while a thread is making or freeing a channel, park returns GM_PARK_CHANGED;
 *   - while parked, a thread that would add a channel to a parked group, or set one going, waits.
 *     A new group is let through: what runs there was submitted while parked, so it is libcuda's
 *     own work for a new context. (On an H100 cuCtxCreate so works while parked; one that was
 *     parked in the middle waits until resume, and nobody's mapping waits for it.)
 *
 * Owns the table of objects. One lock guards the table and is never held across an ioctl call; one
 * serializes park, resume and timeslices. No memory is allocated.
 */
#ifndef GM_SHIM_CHANNELS_H
#define GM_SHIM_CHANNELS_H

#include <stdbool.h>
#include <stdint.h>

/* Objects that the table holds. A context has 24 of them: 8 channels in its compute group, 12 in
 * three copy groups (CUDA 13.0 on an H100). So 170 contexts in one process fit. */
#define GM_CHANNELS_MAX 4096

enum gm_park_result {
    GM_PARK_DONE,
    GM_PARK_NONE,    /* no channels, or not all of them are known */
    GM_PARK_CHANGED, /* a channel came or went meanwhile: trying again may work */
    GM_PARK_REFUSED, /* the driver refused */
};

typedef int gm_channels_ioctl_call(int fd, unsigned long request, ...);

/* Before anything else: what the calls are passed on to, the shim's own too. */
void gm_channels_use(gm_channels_ioctl_call *real);

/* Any thread: make an ioctl call of the driver's kind (GM_RM_IS_OURS) for the program, and learn
 * from it. Changes nothing in it. May wait while parked, see above. */
int gm_channels_ioctl(int fd, unsigned long request, void *arg);

/*
 * Any thread: disable all channels, compute and copy, of all contexts and devices. On any result
 * but DONE all are enabled. DONE if they are parked already.
 */
enum gm_park_result gm_channels_park(void);

/* Any thread: enable all channels again, and let go on who waits. Does nothing if not parked. */
void gm_channels_resume(void);

/*
 * Any thread: give all compute groups this timeslice in microseconds, those that come later too. 0:
 * the value that they had. 0, or -EACCES: the driver refused; -EIO: it took the value, and has
 * another one. What libcuda sets itself is overridden at once.
 */
int gm_channels_timeslice(uint64_t us);

/* Any thread: set another timeslice and read it back, to see whether that works, and put the old
 * one back. As above, and -ENOENT: no compute group. */
int gm_channels_try_timeslice(void);

/* How many compute groups are known: at least one for each context. */
unsigned gm_channels_compute_groups(void);

/* The driver's number of the GPU that the newest compute group is on. False: there is none. */
bool gm_channels_newest_gpu(uint32_t *gpu);

/* The memory that this process made on the GPU of that number, in bytes, and the compute groups
 * there. False: the driver does not say. One thread at a time. */
bool gm_channels_memory(uint32_t gpu, uint64_t *bytes, unsigned *groups);

/* In a forked child: the channels are the parent's. Forget them. */
void gm_channels_after_fork(void);

#endif
