/*
 * Settings of programs as users write them: `class=batch`, `weight=0.5`, `share=50%`, `paused`,
 * `paused=evicted`, `oversize=host`, `cap=6G`. For rules, mux-ctl and the engine. Pure; calls
 * common/text, common/size and common/classes.
 */
#ifndef GM_COMMON_SETTINGS_H
#define GM_COMMON_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/classes.h"

struct gm_settings {
    uint32_t has;  /* enum gm_set_setting (common/wire.h): which of these are set */
    uint8_t class; /* enum gm_sched_class */
    bool is_paused;
    bool is_evicted;    /* ... and its memory leaves the GPU */
    bool is_until_call; /* ... until its next call */
    bool is_oversize; /* it may have more memory than the budget: the rest is mapped on the host */
    uint32_t weight;  /* thousandths */
    uint32_t share;   /* thousandths of the GPU's time */
    uint64_t cap;     /* the most device memory that it may occupy, in bytes; 0: no such limit */
};

/* What all programs of a user may have together, on each GPU; 0: no such limit. */
struct gm_user_totals {
    uint64_t gpu;    /* bytes of device memory that they may occupy */
    uint64_t pinned; /* bytes of pinned memory that they may need */
};

/*
 * Add one word to *settings. Returns 0; -ENOENT if it is no setting; -EINVAL, -ERANGE, or -EEXIST
 * (set already) with one line in `why`. On error *settings is unchanged.
 */
int gm_settings_take(struct gm_settings *settings, const char *word, char *why, size_t why_size);

/* What is said of pausing: an enum gm_set_paused (common/wire.h). False: it is none. */
bool gm_settings_set_paused(struct gm_settings *settings, uint32_t as);
uint32_t gm_settings_paused(const struct gm_settings *settings);
/* "no", "yes", "evicted", "idle"; "unknown". */
const char *gm_settings_paused_word(uint32_t as);

/* Whether all values are in bounds: for settings from the wire. */
bool gm_settings_are_legal(const struct gm_settings *settings);

/* "class=batch weight=0.5 share=50% paused oversize=host cap=6G"; "" for none. Returns `text`. */
char *gm_settings_format(const struct gm_settings *settings, char *text, size_t size);

/* What other systems write into variables that limit a program's device memory: a whole number of
 * bytes, or of k, m, g or t (powers of 1024; small or large, with "b" or "iB" behind it or not).
 * Returns 0 and *bytes, or -EINVAL or -ERANGE. */
int gm_settings_parse_foreign(const char *text, uint64_t *bytes);

/* A size as cap= takes it: "6G". Returns `text`. */
char *gm_settings_format_cap(uint64_t bytes, char *text, size_t size);

/* Thousandths: "0.5". Returns `text`. */
char *gm_format_thousandths(uint32_t value, char *text, size_t size);

/* Whether a program's name matches `pattern`, which can hold *, ? and [...] as in a shell. Both
 * have at most GM_COMMAND_MAX bytes. */
#define GM_COMMAND_MAX 63u
bool gm_command_matches(const char *pattern, const char *name);

#endif
