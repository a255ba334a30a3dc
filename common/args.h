/* Command lines of gpumuxd and mux-ctl, on top of argp. Calls common/text and
 * common/nearest only. */
#ifndef GM_COMMON_ARGS_H
#define GM_COMMON_ARGS_H

#include <argp.h>
#include <stddef.h>

/* argp prints and exits nothing itself: help needs no error path, and an error is one line. */
#define GM_ARGS_FLAGS (ARGP_NO_HELP | ARGP_NO_ERRS | ARGP_NO_EXIT)

/* On ARGP_KEY_ERROR: write one line that says which option of `program` is wrong, and how; of an
 * unknown one which is meant, if one is near, or that `program` --help lists them. */
void gm_args_explain(const struct argp_state *state, const char *program, char *why, size_t size);

#endif
