/*
 * Where the values of options come from: command line, configuration file and defaults. Called by
 * main once, before anything else exists.
 *
 * The command line wins over the file, the file over the defaults. Every error is one line that
 * names the place ("--quantum", "FILE:LINE: quantum"), the text found there and what is expected.
 * Nothing here prints, exits or touches anything but the configuration file, --help and --version
 * excepted.
 */
#ifndef GM_DAEMON_SERVICE_OPTIONS_LOAD_H
#define GM_DAEMON_SERVICE_OPTIONS_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/service/options.h"

/* What gm_options_parse says besides an error. */
enum gm_options_outcome {
    GM_OPTIONS_RUN = 0,
    GM_OPTIONS_DONE = 1, /* --help or --version was asked and answered: exit 0 */
};

/* Set every option to its default. */
void gm_options_init(struct gm_options *options);

/*
 * Set one option from text, as line `line` of the file does. Returns 0, -ENOENT (no such name),
 * -EPERM (command line only), -EEXIST (set already), -EINVAL, -ERANGE or -ENOSPC, and then writes
 * to `why` what is wrong, without the place.
 */
int gm_options_set(struct gm_options *options, const char *name, const char *text, unsigned line,
                   char *why, size_t why_size);

/*
 * Read a configuration file: lines of `name = value`, empty lines, and comments from a '#' at the
 * start of a line or after a blank. Returns 0, or -errno with one line in `why`; -ENOENT if there
 * is no such file.
 */
int gm_options_load(struct gm_options *options, const char *path, char *why, size_t why_size);

/*
 * Everything: defaults, the file that the command line names or else the default one if it exists,
 * then the command line; then the socket's place. Returns enum gm_options_outcome, or -errno with
 * one line in `why`.
 */
int gm_options_parse(struct gm_options *options, int argc, char **argv, char *why, size_t why_size);

#endif
