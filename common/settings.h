/*
 * What can be said of a program, as people write it: `class=batch`, `weight=0.5`, `share=50%`,
 * `paused`. The daemon's rules and mux-ctl share it. Pure: calls common/text only.
 */
#ifndef GM_COMMON_SETTINGS_H
#define GM_COMMON_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/classes.h"

struct gm_settings {
    uint32_t has;  /* enum gm_set_setting (common/wire.h): which of the following are said */
    uint8_t class; /* enum gm_sched_class */
    bool is_paused;
    uint32_t weight; /* thousandths */
    uint32_t share;  /* thousandths of the GPU's time */
};

/*
 * Take one word into *settings. Returns 0; -ENOENT if it is no setting at all; -EINVAL, -ERANGE, or
 * -EEXIST (said already) with one line in `why`; *settings changes on success only.
 */
int gm_settings_take(struct gm_settings *settings, const char *word, char *why, size_t why_size);

/* Whether all that is said is within its bounds: for what came over the wire. */
bool gm_settings_are_legal(const struct gm_settings *settings);

/* "class=batch weight=0.5 share=50% paused", as they can be written; "" for none. Returns `text`.
 */
char *gm_settings_format(const struct gm_settings *settings, char *text, size_t size);

/* Thousandths: "0.5". Returns `text`. */
char *gm_format_thousandths(uint32_t value, char *text, size_t size);

/*
 * Whether the program's name `name` is `pattern`: a name, or one with *, ? and [...] as in a shell.
 * A pattern has at most GM_COMMAND_MAX bytes, as a program's name has.
 */
#define GM_COMMAND_MAX 63u
bool gm_command_matches(const char *pattern, const char *name);

#endif
