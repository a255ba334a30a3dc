/*
 * Memory ahead of a program that grows: one that loads a model allocates the same few sizes again
 * and again, and waits each time until the daemon has made chunks and they are mapped here. So the
 * next one of such a size is asked for while the program fills this one, and becomes a spare
 * (freed.h), which the program's next allocation takes.
 *
 *   allocate  gm_ahead_note: if the size came before, and none of it was freed since, reserve a
 *             range and send ALLOC with GM_ALLOC_AHEAD; nobody waits
 *   answer    gm_ahead_come, on the link thread: a spare, or the range is given back
 *
 * The daemon grants it only where everything fits and much room is left, and takes it back like any
 * spare, or calls it off while it is on its way. So it takes no room from others.
 *
 * Owns which sizes came lately. Any thread; one lock, a leaf, never held across a driver call or a
 * message. Calls spares, the link and, when the daemon is lost, the mapper. Callers: handlers,
 * obtain, and the link thread through gm_link_calls.
 */
#ifndef GM_SHIM_AHEAD_H
#define GM_SHIM_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

/* Spares of one size, there and on their way. */
#define GM_AHEAD_EACH 2u
/* One of them takes this part of what the program may take, at most; all of them four times that.
 */
#define GM_AHEAD_SHARE 64u

/* The program got `span` bytes on `gpu` at time `now`, or took them from the spares. */
void gm_ahead_note(int32_t gpu, uint64_t span, bool was_spare, uint64_t now);

/* It gave as much back. */
void gm_ahead_note_free(int32_t gpu, uint64_t span);

/* What was asked for came (`result` 0), or did not: a CUresult, or, on the link thread, -ENOTCONN
 * if the daemon is lost and whatever is mapped there has to go. */
void gm_ahead_come(uint64_t va, uint64_t span, int result);

/* How often something came, or did not, so far. */
uint32_t gm_ahead_answers(void);

/* Memory is out, or a context goes: ask for no more for a while, and wait for what is on its way,
 * some seconds at most. Not for the link thread. */
void gm_ahead_settle(void);

#endif
