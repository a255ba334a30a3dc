/*
 * Placement: before the driver starts, ask the daemon in which order this program shall have its
 * GPUs, and put CUDA_VISIBLE_DEVICES into that order. So device 0 is the GPU that was chosen, and
 * all GPUs that the user allowed are there.
 *
 * Of a list that the user set, the tokens change their places; what follows the first that names no
 * device stays where it is. Without a list, all devices are named by their UUIDs. The driver reads
 * the list as it starts, and then the user's own is put back: what this program starts begins with
 * that, and is asked about anew.
 *
 * The daemon may have the program wait until a GPU has room for it, and not two others start there
 * (--admit fit): it says so, and for how long at most.
 *
 * Without a daemon, with one that does not know the question, or does not answer within
 * GM_PLACE_PATIENCE once the connection is there, everything stays as it is.
 *
 * The answer may name the folder of an MPS control daemon (daemon/service/mps.h) which the program
 * is to join: that goes into CUDA_MPS_PIPE_DIRECTORY, in the same way, and the part of the
 * multiprocessors that a rule gives it into CUDA_MPS_ACTIVE_THREAD_PERCENTAGE. A user who runs MPS
 * has their own.
 *
 * Owns those variables from gm_place to gm_place_undo. Called once, by the start; calls the log.
 */
#ifndef GM_SHIM_PLACE_H
#define GM_SHIM_PLACE_H

#include <stdbool.h>

/* Ask, and change the environment. True: it was changed. `has_mps`: so that the driver joins MPS.
 */
bool gm_place(bool *has_mps);

/* Put the user's own back. */
void gm_place_undo(void);

#endif
