/*
 * Memory that graphs allocate inside themselves. The driver keeps it in a pool of its own for each
 * device, and keeps what a graph freed for its next launch. It is unswappable. It is sampled, not
 * followed, so that a graph launch, which is where it grows, stays as fast as it was.
 *
 * The drainer samples once a second as soon as the program instantiated a graph (launching one is
 * the only way to take such memory), and gives the part that is not in use back while the program
 * is paused (chores.h).
 *
 * Owns which devices have graphs. Calls the accounts and the gate.
 */
#ifndef GM_SHIM_GRAPHS_H
#define GM_SHIM_GRAPHS_H

#include <stdbool.h>

/* Any thread: the program instantiated a graph on the current device. */
void gm_graphs_note(void);

/* Any thread: whether the program has graphs on any device. */
bool gm_graphs_exist(void);

/* Drainer only: learn how much there is, and count it. True: there is some. */
bool gm_graphs_sample(void);

/* Drainer only, while the program is paused: have the driver free what is not in use. */
void gm_graphs_trim(void);

#endif
