/*
 * Placement: before the driver starts, ask the daemon in which order this program shall have its
 * GPUs, and put CUDA_VISIBLE_DEVICES into that order. So device 0 is the GPU that was chosen, and
 * all GPUs that the user allowed are there.
 *
 * Of a list that the user set, the tokens change their places; what follows the first that names no
 * device stays where it is. Without a list, all devices are named by their UUIDs. GPUMUX_PLACED
 * holds the list that was made here and GPUMUX_PLACED_FROM the user's own, if there was one: so a
 * program that this one starts begins with the user's. It is asked about anew.
 *
 * The daemon may have the program wait until a GPU has room for it (--admit fit): it says so, and
 * for how long at most.
 *
 * Without a daemon, with one that does not know the question, or does not answer within
 * GM_PLACE_PATIENCE, everything stays as it is.
 *
 * Owns those variables. Called once, by the start; calls the log.
 */
#ifndef GM_SHIM_PLACE_H
#define GM_SHIM_PLACE_H

#include <stdbool.h>

/* Ask, and change the environment. True: the list was changed. */
bool gm_place(void);

/* Put the user's own list back: the driver does not take the other. */
void gm_place_undo(void);

#endif
