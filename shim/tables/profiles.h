/*
 * Profiles of kernels: what a launch touches behind each address among its arguments
 * (common/profile.h). Files of the user's folder come before those of the system's.
 *
 * Nothing in a file is trusted. One that is damaged or newer is left out as a whole; a kernel whose
 * parameters or code are others than those that were profiled, or whose templates need arguments
 * that it does not have, has no profile; one whose templates lead out of the program's memory loses
 * it. The log says so, with the kernel's name. What a profile says wrongly costs speed.
 *
 * Owns what was read, for the life of the process, and the kernels that have a profile: one for
 * each hash, never freed. Any thread; a look-up takes the lock, so the layouts keep what it found.
 * Calls nobody but the callback of gm_profiles_load.
 */
#ifndef GM_SHIM_PROFILES_H
#define GM_SHIM_PROFILES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/profile.h"

#define GM_KERNEL_ARGUMENTS 4096u /* bytes; kernels with more have no profile */

/* A kernel with a profile: its parameters and its templates. */
struct gm_kernel {
    struct gm_kernel *next;
    const struct gm_profile_kernel *profile;
    _Atomic bool is_wrong; /* its templates lead out of the program's memory */
    uint32_t bytes;        /* of its arguments */
    uint32_t n;            /* parameters */
    struct gm_kernel_parameter parameters[];
};

/* Private to profiles.h and profiles.c. */
extern __attribute__((visibility("hidden"))) _Atomic bool gm_profiles_are_there;

static inline bool gm_profiles_exist(void)
{
    return atomic_load_explicit(&gm_profiles_are_there, memory_order_acquire);
}

/* Read the files, in a thread of its own: a folder may be slow. Once; later calls do nothing.
 * `loaded` is called there when there are profiles: who looked for a kernel before looks again. */
void gm_profiles_load(void (*loaded)(void));

/* The kernel with these facts, of so many registers a thread. NULL: it has no profile. */
struct gm_kernel *gm_profiles_find(const struct gm_kernel_facts *facts, uint32_t registers);

/* What its templates say cannot be: they are not used any more. */
void gm_profiles_refuse(struct gm_kernel *kernel);

#endif
