/*
 * What a job says with --gpumux: "class:interactive,cap:6G". Pure; calls common/settings.h. It
 * comes from users, and is read as root on the node.
 */
#ifndef GM_SPANK_OPTION_H
#define GM_SPANK_OPTION_H

#include <stdbool.h>
#include <stddef.h>

enum gm_spank_word {
    GM_SPANK_CLASS,
    GM_SPANK_WEIGHT,
    GM_SPANK_CAP,
    GM_SPANK_NEED,
    GM_SPANK_OVERSIZE,
    GM_SPANK_GROUP,
    GM_SPANK_WORDS
};

struct gm_spank_option {
    bool is_on;                      /* its programs share the GPU */
    bool is_off;                     /* they do not, even if what started them does */
    char values[GM_SPANK_WORDS][64]; /* "": not said */
};

/* The variable of the environment that says it. */
extern const char *const gm_spank_variables[GM_SPANK_WORDS];

/*
 * Read `text`: NULL, "" or "on"; "off"; or words NAME:VALUE with commas between them ("=" does as
 * well). Returns 0, or -EINVAL with one line in `why`; then *option is as it was.
 */
int gm_spank_read(const char *text, struct gm_spank_option *option, char *why, size_t why_size);

#endif
