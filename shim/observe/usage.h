/*
 * What the driver takes of a GPU by itself, for this program: variables and code of modules, local
 * memory (for all threads that the GPU can hold), heaps. No call tells of it: libcuda takes local
 * memory at a launch, and loads most modules at their first use. So the kernel driver is asked how
 * much the process has there in all (observe/channels.h). What contexts take and what was asked for
 * is taken away from that; the rest is an account of its own (GM_ACCOUNT_DRIVER).
 *
 * A GPU is known once a context was made there. Contexts are not counted: the size of the first is,
 * times their number. Where the kernel driver does not say (under MPS, an unknown layout), nothing
 * is counted.
 *
 * Owns that account and what is known of each GPU. Any thread. Calls the channels and the accounts.
 */
#ifndef GM_SHIM_USAGE_H
#define GM_SHIM_USAGE_H

#include <stdbool.h>

/* The calling thread has just made a context on `gpu` (-1: not managed). True: the first one there,
 * so samples begin. */
bool gm_usage_begin(int gpu);

/*
 * Ask about all GPUs that are known. The memory of graphs is a sample, too: take that first, or
 * what is new of it counts twice. An allocation that is just being made may count twice until the
 * next sample, so come again soon if the account has changed.
 */
enum gm_usage_result { GM_USAGE_NONE, GM_USAGE_SAME, GM_USAGE_CHANGED };
enum gm_usage_result gm_usage_sample(void);

/* In a forked child: nothing is known. */
void gm_usage_after_fork(void);

#endif
