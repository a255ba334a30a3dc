/*
 * Reads options from the command line, the configuration file and the defaults. The command line
 * overrides the file, the file the defaults. main calls gm_options_parse before all else, and
 * reload.c again with the same words; it calls options.c and common/.
 *
 * An error is one line with the place ("--slice", "FILE:LINE: slice"), the text found there,
 * and what is expected. Nothing is printed but --help and --version; gm_options_warn logs.
 */
#ifndef GM_DAEMON_SERVICE_OPTIONS_LOAD_H
#define GM_DAEMON_SERVICE_OPTIONS_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/service/options.h"

enum gm_options_outcome {
    GM_OPTIONS_RUN = 0,
    GM_OPTIONS_DONE = 1, /* --help or --version was printed: exit with 0 */
    GM_OPTIONS_CHECK,    /* --check: all options are right */
    GM_OPTIONS_DRAIN,    /* --drain: they are right, and a daemon is to end */
};

#define GM_CONFIG_MAX (1u << 20) /* bytes; 256 rules of the longest kind have a tenth of that */

/* Where the option was set: "FILE:LINE: ", or "" if that is not in the file. Returns `text`. */
const char *gm_options_place(const struct gm_options *options, enum gm_option option,
                             char text[PATH_MAX + 32]);

/* Set every option to its default. */
void gm_options_init(struct gm_options *options);

/*
 * Set one option, as line `line` of the file does. Returns 0, -ENOENT (no such name), -EPERM
 * (command line only), -EEXIST (set already), -EINVAL, -ERANGE or -ENOSPC. On error `why` says what
 * is wrong, without the place.
 */
int gm_options_set(struct gm_options *options, const char *name, const char *text, unsigned line,
                   char *why, size_t why_size);

/*
 * Read a configuration file: lines of `name = value`, empty lines, and comments from a '#' at the
 * start of a line or after a blank. It must be a file of at most GM_CONFIG_MAX that nobody but root
 * and this process's user can write, and not change while it is read. Returns 0, or -errno with one
 * line in `why`; -ENOENT if there is no such file.
 */
int gm_options_load(struct gm_options *options, const char *path, char *why, size_t why_size);

/* Set all options. Without --config it reads the default file if there is one. Returns an enum
 * gm_options_outcome, or -errno with one line in `why`. */
int gm_options_parse(struct gm_options *options, int argc, char **argv, char *why, size_t why_size);

/*
 * Whether options that were read again lost what cannot just have ended: the default file, while an
 * editor writes it anew, or the user of a rule, while the user database does not answer. Both would
 * read as if nobody had said anything. `held` are the options before. Returns 0; or -ENOENT with
 * one line in `why`. A restart takes them.
 */
int gm_options_find_lost(const struct gm_options *held, const struct gm_options *fresh, char *why,
                         size_t why_size);

#define GM_OPTIONS_WARNINGS 4096u

/* Log what of the options has no effect: what is gone (gone.def), or a rule for a user that there
 * is not; and what else was found of them (gm_trial), a line each with '\n' at its end. */
void gm_options_warn(const struct gm_options *options, const char *warnings);

#endif
