/*
 * Lasting work: which work of the program may not have ended yet. A kernel marks its memory when it
 * is launched (observe/windows.h), and may run for hours. So the daemon takes what was marked in or
 * after the window gm_stat.lasts_from for touched until now.
 *
 * Soon after a window began, no thread is in a submitting call any more that it was in then. Work
 * that contexts have from then on includes all that was marked in earlier windows. When that has
 * ended (contexts.h, follow), so has all that was marked before this window. A thread that waits in
 * the driver to submit puts it off. So does an open capture; and a kernel that never ends does for
 * good: what was touched since its launch is taken for touched.
 *
 * One window is followed at a time, until its work has ended: however long the program's queue is,
 * lasts_from comes after by that length. It costs an event in each context for each window that is
 * followed. With a driver that cannot record one for a context lasts_from is 0: not known.
 *
 * Owns gm_stat.lasts_from. begin: the link thread, when the program begins to mark. All else: the
 * drainer. Calls the gate.
 */
#ifndef GM_SHIM_LASTING_H
#define GM_SHIM_LASTING_H

#include <stdbool.h>
#include <stdint.h>

/* The program marks from this window on; 0: it does no more. */
void gm_lasting_begin(uint32_t window);

/* When to look; UINT64_MAX: the program marks nothing, or nobody can tell. */
uint64_t gm_lasting_due(void);

/* Look at the followed window, or whether one began to follow. True: nobody is in a call any more
 * that began before it. When the work has ended that the contexts have when this is first so, call
 * gm_lasting_ended(*window). */
bool gm_lasting_look(uint64_t now, uint32_t *window);

/* All work has ended that was marked before `window`; or nobody can ever tell: 0. */
void gm_lasting_ended(uint32_t window);

/* The program's window now. */
uint32_t gm_lasting_now(void);

#endif
