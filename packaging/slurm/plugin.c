/*
 * A plugin for Slurm (SPANK): srun, sbatch and salloc get the option --gpumux, and the tasks of
 * such a job the library and its settings in their environment. Calls option.h.
 *
 * plugstack.conf: optional .../gpumux/spank.so [library=PATH] [default=SETTINGS]
 *
 *   library   libgpumux.so on the nodes, else that of this installation
 *   default   what holds for jobs that do not say --gpumux; without it they are left alone
 *
 * A task may change its environment: this is for those who want to share. Rules of gpumuxd bound
 * what users get. Whatever is wrong, the job runs.
 */
#include <slurm/spank.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "packaging/slurm/option.h"

SPANK_PLUGIN(gpumux, 1)

static char library[512] = GM_SPANK_LIBRARY;
static struct gm_spank_option job; /* neither is_on nor is_off: nothing is done */

static int on_option(int value, const char *text, int is_remote)
{
    char why[256] = "";
    (void)value;
    if (gm_spank_read(text, &job, why, sizeof why) == 0)
        return 0;
    slurm_error("--gpumux: %s", why);
    return is_remote ? 0 : -1; /* srun has refused it already, or is of another version */
}

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    static char name[] = "gpumux", info[] = "[SETTING:VALUE,...]";
    static char usage[] = "share GPUs by gpumux: class:CLASS, weight:NUMBER, cap:SIZE, need:SIZE, "
                          "oversize:host, group:NAME, or off";
    static struct spank_option option = {name, info, usage, 2, 0, on_option};
    char why[256] = "";
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "library=", 8) == 0)
            snprintf(library, sizeof library, "%s", argv[i] + 8);
        else if (strncmp(argv[i], "default=", 8) != 0)
            slurm_error("gpumux: plugstack.conf: \"%s\" is neither library= nor default=", argv[i]);
        else if (gm_spank_read(argv[i] + 8, &job, why, sizeof why) != 0)
            slurm_error("gpumux: plugstack.conf: default: %s", why);
    }
    return spank_option_register(spank, &option) == ESPANK_SUCCESS ? 0 : -1;
}

/* The library comes behind those of the user, as with mux-ctl run; once, in a step of a job too. */
static void preload(spank_t spank)
{
    char before[4096] = "", after[sizeof before + sizeof library + 1];
    const spank_err_t found = spank_getenv(spank, "LD_PRELOAD", before, sizeof before);
    if (found != ESPANK_SUCCESS && found != ESPANK_ENV_NOEXIST) {
        slurm_error("gpumux: LD_PRELOAD cannot be read: %s", spank_strerror(found));
        return;
    }
    if (found == ESPANK_SUCCESS && strstr(before, library))
        return;
    snprintf(after, sizeof after, "%s%s%s", before, before[0] ? ":" : "", library);
    spank_setenv(spank, "LD_PRELOAD", after, 1);
}

/* On the node, as the user, before the tasks of a step start. */
int slurm_spank_user_init(spank_t spank, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (job.is_off) /* a step has what its job has in its environment */
        spank_setenv(spank, "GPUMUX_DISABLE", "1", 1);
    if (!job.is_on)
        return 0;
    if (faccessat(AT_FDCWD, library, R_OK, AT_EACCESS) != 0) {
        slurm_error("gpumux: %s cannot be read on this node: the job runs unshared", library);
        return 0;
    }
    preload(spank);
    for (unsigned i = 0; i < GM_SPANK_WORDS; i++)
        if (job.values[i][0])
            spank_setenv(spank, gm_spank_variables[i], job.values[i], 1);
    return 0;
}
