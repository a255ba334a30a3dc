/*
 * The daemon's options: a member of struct gm_options for each row of options.def, and the parser
 * of each kind. options_load.c fills it; main and control.c read it. Calls common/ and rules.c.
 */
#ifndef GM_DAEMON_SERVICE_OPTIONS_H
#define GM_DAEMON_SERVICE_OPTIONS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/log.h"
#include "common/shm.h"
#include "daemon/service/rules.h"

#define GM_CONFIG_SYSTEM "/etc/gpumux/gpumux.conf"
#define GM_CONFIG_USER "gpumux/gpumux.conf" /* below $XDG_CONFIG_HOME, or ~/.config */

/* CUDA numbers of GPUs, all different; or all that there are (n is 0). */
struct gm_gpus {
    uint32_t n;
    uint32_t gpu[GM_GPUS_MAX];
};

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
#define GM_MEMBER_WORD(member) uint32_t member; /* index of the word */
#define GM_MEMBER_CLASS(member) enum gm_sched_class member;
#define GM_MEMBER_RULES(member) struct gm_rules member;
#define GM_MEMBER_GPUS(member) struct gm_gpus member;
#define GM_MEMBER_NUMBER(member) uint32_t member;
#define GM_MEMBER_SIZE(member) uint64_t member; /* bytes */
#define GM_MEMBER_BUDGET(member) struct gm_budget member;
#define GM_MEMBER_DURATION(member) uint64_t member; /* nanoseconds */
#define GM_MEMBER_PATH(member) char member[PATH_MAX];
#define GM_MEMBER_LEVEL(member) enum gm_log_level member;
#define GM_MEMBER_FLAG(member) bool member;

enum gm_option {
#define GM_OPTION(name, member, kind, argument, place, when, min, max, otherwise, example, help)   \
    GM_OPTION_##member,
#include "daemon/service/options.def"
#undef GM_OPTION
    GM_OPTIONS,
};
#define GM_GIVEN_ON_LINE UINT_MAX

enum {
    GM_GONES = 0
#define GM_GONE(name, argument, advice) +1
#include "daemon/service/gone.def"
#undef GM_GONE
};

struct gm_gone_row {
    const char *name;
    const char *argument;
    const char *advice;
};
extern const struct gm_gone_row gm_gone_rows[GM_GONES];

struct gm_options {
#define GM_OPTION(name, member, kind, argument, place, when, min, max, otherwise, example, help)   \
    GM_MEMBER_##kind(member)
#include "daemon/service/options.def"
#undef GM_OPTION
    bool is_own_socket; /* `socket` is not the default: the daemon does not make its folder */
    unsigned given[GM_OPTIONS]; /* 0: not given; a line of the file; or GM_GIVEN_ON_LINE */
    unsigned gone_line[GM_GONES]; /* the line of the file that gives what is gone; 0: none */
    bool is_gone_given[GM_GONES]; /* ... on the command line */
};

enum gm_option_kind {
    GM_KIND_GPUS,
    GM_KIND_NUMBER,
    GM_KIND_SIZE,
    GM_KIND_BUDGET,
    GM_KIND_DURATION,
    GM_KIND_PATH,
    GM_KIND_PLACE,
    GM_KIND_WORD,
    GM_KIND_CLASS,
    GM_KIND_RULES,
    GM_KIND_LEVEL,
    GM_KIND_FLAG,
};
enum gm_option_place { GM_PLACE_BOTH, GM_PLACE_LINE };
enum gm_option_when { GM_WHEN_START, GM_WHEN_LIVE };

struct gm_option_row {
    const char *name;
    const char *argument;
    const char *otherwise; /* the default */
    const char *help;
    uint64_t min, max;
    size_t offset, size; /* of the member */
    enum gm_option_kind kind;
    enum gm_option_place place;
    enum gm_option_when when;
};

/* By enum gm_option. */
extern const struct gm_option_row gm_option_rows[GM_OPTIONS];

/*
 * Parse `text` into the row's member. `line` is the file's, 0 on the command line. Returns 0, or
 * -EINVAL, -ERANGE, -EEXIST, -ENOSPC with one line in `why`, without the place; the member changes
 * on success only.
 */
int gm_option_take(struct gm_options *options, const struct gm_option_row *row, const char *text,
                   unsigned line, char *why, size_t size);

/* Whether both have the same value of it. Of rules, the same rules for the same users. */
bool gm_option_is_same(const struct gm_option_row *row, const struct gm_options *a,
                       const struct gm_options *b);

/* The value of it, as it can be written; "": it has none. Of rules see gm_rule_format. Returns
 * `text`. */
char *gm_option_format(const struct gm_options *options, enum gm_option option, char *text,
                       size_t size);

/* Where a value comes from, as `given` has it: "FILE:LINE", "command line" or "default". Returns
 * `text`. */
char *gm_options_origin(const struct gm_options *options, unsigned given, char *text, size_t size);

/* `text`, cut and clean, to be shown inside a line. Returns `shown`. */
const char *gm_option_show(const char *text, char shown[64]);

/* Word number `choice` of an option of kind WORD. Returns `text`. */
const char *gm_options_word(enum gm_option option, uint32_t choice, char *text, size_t size);

/* "0,1" or "all". Returns `text`. */
char *gm_options_gpus(const struct gm_gpus *gpus, char *text, size_t size);

/* The word for a log level. */
const char *gm_options_level_name(enum gm_log_level level);

#endif
