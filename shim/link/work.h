/*
 * Work for the link thread, which alone may touch the mapper (map/mapper.h). Any thread puts work
 * on a list and waits for its result. The link thread does it between two messages of the daemon,
 * and while there is no daemon.
 *
 * Owns the list and the sockets that wake the link thread. Calls files and the work itself.
 */
#ifndef GM_SHIM_WORK_H
#define GM_SHIM_WORK_H

#include <cuda.h>

/* Boot only, before the link thread starts. 0 or -errno. */
int gm_work_open(void);

/* The forked child, or a boot that fails: close the sockets. */
void gm_work_close(void);

/* Have the link thread call work(argument) and wait for its result. The work must not wait for the
 * link. */
CUresult gm_work_run(CUresult (*work)(void *argument), void *argument);

/* Any thread, and any signal handler: wake the link thread. */
void gm_work_knock(void);

/* Link thread: the fd to poll; when it is readable, do some of the work. */
int gm_work_fd(void);
void gm_work_some(void);

/* Link thread: the daemon is lost for good. Do work for ever. */
_Noreturn void gm_work_forever(void);

#endif
