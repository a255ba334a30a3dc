/*
 * Work for the link thread, which alone may touch the mapper (map/mapper.h). Any thread puts work
 * on a list and waits for its result. The link thread does it between two messages of the daemon,
 * and also when the daemon is lost.
 *
 * Owns that list and what wakes the link thread. Calls nobody but the work itself.
 */
#ifndef GM_SHIM_WORK_H
#define GM_SHIM_WORK_H

#include <cuda.h>

/* Boot only, before the link thread starts. 0 or -errno. */
int gm_work_open(void);

/* The forked child, or a boot that cannot be finished: close the files. */
void gm_work_close(void);

/*
 * Have the link thread call work(argument), and wait for its result. Not for work that itself waits
 * for the link.
 */
CUresult gm_work_run(CUresult (*work)(void *argument), void *argument);

/* Link thread: what to poll; and, when it is readable, do some of it. */
int gm_work_fd(void);
void gm_work_some(void);

/* Link thread: there is no daemon to listen to; do what threads want for the rest of time. */
_Noreturn void gm_work_forever(void);

#endif
