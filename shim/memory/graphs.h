/*
 * Memory that graphs allocate. The driver has a pool for it on each device, and keeps freed memory
 * for the next launch. It is unswappable. It grows in graph launches; it is sampled, so that these
 * stay fast.
 *
 * Once the program has instantiated a graph the drainer samples every second, and frees the unused
 * part while the program is paused (chores.h).
 *
 * Owns which devices have graphs. Callers: the handlers of graphs, and chores in the drainer. Calls
 * the driver, the accounts, the gate and the drainer (watch).
 */
#ifndef GM_SHIM_GRAPHS_H
#define GM_SHIM_GRAPHS_H

#include <stdbool.h>

/* Any thread: the program instantiated a graph on the current device. */
void gm_graphs_note(void);

/* Any thread: whether the program has graphs on any device. */
bool gm_graphs_exist(void);

/* Any thread: count this memory. True: there is some. */
bool gm_graphs_sample(void);

/* Drainer only, while the program is paused: have the driver free the unused part. */
void gm_graphs_trim(void);

#endif
