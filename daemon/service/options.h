/*
 * The daemon's options: command line, configuration file and defaults, all from options.def.
 *
 * The command line wins over the file, the file over the defaults. Every error is one line that
 * names the place ("--quantum", "FILE:LINE: quantum"), the text found there and what is expected.
 * Nothing here prints, exits or touches anything but the configuration file, --help and --version
 * excepted.
 */
#ifndef GM_DAEMON_SERVICE_OPTIONS_H
#define GM_DAEMON_SERVICE_OPTIONS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/log.h"
#include "daemon/service/rules.h"

#define GM_CONFIG_SYSTEM "/etc/gpumux/gpumux.conf"
#define GM_CONFIG_USER "gpumux/gpumux.conf" /* below $XDG_CONFIG_HOME, or ~/.config */

/* Either bytes or a percentage of the device; both 0: not given. */
struct gm_budget {
    uint64_t bytes;
    uint32_t percent;
};

/* A folder and how much of it; bytes 0: not given. */
struct gm_place {
    char dir[PATH_MAX];
    uint64_t bytes;
};

#define GM_MEMBER_PLACE(member) struct gm_place member;
#define GM_MEMBER_CHOICE(member) uint32_t member; /* index of the word */
#define GM_MEMBER_WORD(member) uint32_t member;   /* the same */
#define GM_MEMBER_CLASS(member) enum gm_sched_class member;
#define GM_MEMBER_RULES(member) struct gm_rules member;
#define GM_MEMBER_NUMBER(member) uint32_t member;
#define GM_MEMBER_SIZE(member) uint64_t member; /* bytes */
#define GM_MEMBER_BUDGET(member) struct gm_budget member;
#define GM_MEMBER_DURATION(member) uint64_t member; /* nanoseconds */
#define GM_MEMBER_PATH(member) char member[PATH_MAX];
#define GM_MEMBER_LEVEL(member) enum gm_log_level member;
#define GM_MEMBER_FLAG(member) bool member;

enum gm_option {
#define GM_OPTION(name, member, kind, argument, place, min, max, otherwise, help)                  \
    GM_OPTION_##member,
#include "daemon/service/options.def"
#undef GM_OPTION
    GM_OPTIONS,
};
#define GM_GIVEN_ON_LINE UINT_MAX

struct gm_options {
#define GM_OPTION(name, member, kind, argument, place, min, max, otherwise, help)                  \
    GM_MEMBER_##kind(member)
#include "daemon/service/options.def"
#undef GM_OPTION
    bool is_own_socket; /* `socket` is not the default: its directory is the user's business */
    unsigned given[GM_OPTIONS]; /* 0: the default; a line of the file; or GIVEN_ON_LINE */
};

enum gm_options_policy { GM_POLICY_MLFQ, GM_POLICY_ROUND_ROBIN }; /* as `policy` has them */

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

/* The words of an option of kind WORD or CHOICE: that of index `choice`. */
const char *gm_options_word(enum gm_option option, uint32_t choice, char *text, size_t size);

/* "info" and so on, for a level that an option can have. */
const char *gm_options_level_name(enum gm_log_level level);

#endif
