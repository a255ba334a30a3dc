/* clang-format off */
/*
 * The text of a trace: all input of a scheduler, in order, and what else is shown of its daemon (trace.def).
 * With the same input core/sched makes the same decisions again (tests/sim), whatever else there is.
 *
 *   gpumux-sched-trace 2 max_apps=64 budget=85899345920 levels=5 allotment_ns=8000000000 ...
 *   1200000 begin wall_ns=1800000000000000000 whole
 *   1200000 join 3 1000
 *   1200000 app 3 pid=812 uid=1000 python3
 *   1200000 set 3 class=batch weight=1000 share=1000 paused=0
 *   1250000 size 3 1073741824
 *   9000000 timer
 *   9100000 state 3 running
 *   9500000 idle 3 100000000
 *
 * The first line holds all settings. Each other line holds a time in nanoseconds, which never
 * decreases, and an event that the scheduler accepted, or a row of trace.def. `join` has the user, if it is not root. Each value
 * has one spelling: writing a parsed entry gives the same bytes.
 *
 * Pure string code without state. views/tape.c writes, tests/sim and ctl/tracks.c parse; calls core/sched and
 * common. Input to the parser is hostile.
 */
/* clang-format on */
#ifndef GM_DAEMON_TRACE_TRACE_H
#define GM_DAEMON_TRACE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/core/parts.h"
#include "daemon/core/sched.h"

#define GM_TRACE_MAGIC "gpumux-sched-trace"
#define GM_TRACE_VERSION 2u
#define GM_TRACE_LINE_MAX 1024u /* every line with its '\n' and the end of the string fits */

/* clang-format off */
enum gm_trace_row {
#define GM_TRACE_ROW(NAME, name, has_app, numbers, text, about) GM_TRACE_ROW_##NAME,
#include "daemon/trace/trace.def"
#undef GM_TRACE_ROW
    GM_TRACE_ROWS
};
/* clang-format on */

/* Numbers of a switch. */
enum {
    GM_TRACE_TOTAL,
    GM_TRACE_PARTS, /* of each enum gm_part */
    GM_TRACE_OUT = GM_TRACE_PARTS + GM_PARTS,
    GM_TRACE_IN,
    GM_TRACE_CLEAN, /* evicted and not copied: unchanged, zero */
    GM_TRACE_ZERO,
    GM_TRACE_DOWN, /* meanwhile, from pinned memory and to it */
    GM_TRACE_UP,
    GM_TRACE_WAITED, /* before the switch, and in it */
    GM_TRACE_NUMBERS_MAX
};

#define GM_TRACE_TEXT 256u

/* A row of trace.def with its values. */
struct gm_trace_view {
    enum gm_trace_row row;
    uint32_t app; /* 0 where the row has none */
    uint64_t number[GM_TRACE_NUMBERS_MAX];
    char text[GM_TRACE_TEXT]; /* "": none */
};

/* Write one line with its '\n'. Size and result are as those of snprintf. */
size_t gm_trace_config(char *line, size_t size, const struct gm_sched_config *config);
size_t gm_trace_event(char *line, size_t size, uint64_t now, const struct gm_sched_event *event);
size_t gm_trace_policy(char *line, size_t size, uint64_t now, uint32_t app,
                       const struct gm_sched_policy *policy);
/* The text is made legal; blanks at its end are left out. */
size_t gm_trace_view(char *line, size_t size, uint64_t now, const struct gm_trace_view *view);

/* The n-th word of a row's text, "running", and which word of it `text` is; -1: none. */
const char *gm_trace_word(enum gm_trace_row row, int n, char word[16]);
int gm_trace_find_word(enum gm_trace_row row, const char *text);

enum gm_trace_kind {
    GM_TRACE_NOTHING, /* before the first line */
    GM_TRACE_CONFIG,  /* `config` */
    GM_TRACE_EVENT,   /* `event`, at `now` */
    GM_TRACE_POLICY,  /* `policy` of event.app, at `now` */
    GM_TRACE_VIEW,    /* `view`, at `now`: nothing that the scheduler was told */
};

/* The last entry that was parsed. Pass zeros for the first line, then the same struct for each
 * line: the next entry is checked against it. */
struct gm_trace_entry {
    enum gm_trace_kind kind;
    struct gm_sched_config config; /* of the header */
    uint64_t now;
    struct gm_sched_event event; /* app and bytes are 0 where the kind has none */
    struct gm_sched_policy policy;
    struct gm_trace_view view;
};

/* Parse the next line, with or without its '\n'. Returns 0; or -EINVAL with one phrase in `why`,
 * and then *entry is unchanged. */
int gm_trace_parse(const char *line, struct gm_trace_entry *entry, char *why, size_t why_size);

#endif
