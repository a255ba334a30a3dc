/*
 * The values of options: what each kind of a row in options.def takes, and the line about one that
 * it does not. For options.c only, which knows the places where values come from.
 */
#ifndef GM_DAEMON_SERVICE_OPTIONS_VALUES_H
#define GM_DAEMON_SERVICE_OPTIONS_VALUES_H

#include "daemon/service/options.h"

enum gm_option_kind {
    GM_KIND_NUMBER,
    GM_KIND_SIZE,
    GM_KIND_BUDGET,
    GM_KIND_DURATION,
    GM_KIND_PATH,
    GM_KIND_PLACE,
    GM_KIND_CHOICE,
    GM_KIND_WORD,
    GM_KIND_CLASS,
    GM_KIND_RULES,
    GM_KIND_LEVEL,
    GM_KIND_FLAG,
};
enum gm_option_place { GM_PLACE_BOTH, GM_PLACE_LINE };

struct gm_option_row {
    const char *name;
    const char *argument;
    const char *otherwise; /* the default */
    const char *help;
    uint64_t min, max;
    size_t offset; /* of the member */
    enum gm_option_kind kind;
    enum gm_option_place place;
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

/* `text` as it can be shown inside one line: cut, and legal. Returns `shown`. */
const char *gm_option_show(const char *text, char shown[64]);

#endif
