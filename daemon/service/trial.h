/*
 * Tries a configuration: all that a start tests and that needs no GPU, by the functions that the
 * start itself calls. `gpumuxd --check` and each reload ask it; a start asks it first, so that a
 * mistake is told with its file and line. It changes nothing.
 *
 * Called by main, and by reload.c through a pointer, on a worker. Calls server, seen, machine
 * and disk.
 */
#ifndef GM_DAEMON_SERVICE_TRIAL_H
#define GM_DAEMON_SERVICE_TRIAL_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/service/options_load.h"

enum gm_trial_by {
    GM_TRIAL_START,  /* folders of what a daemon before left are not needed, and GPUs come later */
    GM_TRIAL_CHECK,  /* --check: perhaps from a shell, with other rights and another view */
    GM_TRIAL_RELOAD, /* by a daemon that runs */
};

struct gm_trial_gpus {
    uint32_t n;    /* GPUs of the machine; 0: nobody knows */
    uint64_t most; /* bytes of the largest; 0: nobody knows */
};

/*
 * Returns 0, or -errno with the mistake in `why`: one line with the place ("FILE:LINE: "). What
 * does not stop a start is in `warnings`: gm_options_warn. May wait for a disk.
 */
int gm_trial(const struct gm_options *options, enum gm_trial_by by,
             const struct gm_trial_gpus *gpus, char warnings[GM_OPTIONS_WARNINGS], char *why,
             size_t size);

/* What NVML says of the GPUs, without a context, within 5 s; from a process with one thread. Where
 * numbers of CUDA may be others (CUDA_VISIBLE_DEVICES, MIG), nobody knows. */
struct gm_trial_gpus gm_trial_ask_nvml(void);

#endif
