/*
 * The text of a trace: all input of the schedulers, in order, and what else is shown of their
 * daemon (trace.def). With the same input core/sched makes the same decisions again (tests/sim),
 * whatever else there is.
 *
 *   gpumux-trace 3
 *   1200000 0 begin wall_ns=1800000000000000000 whole
 *   1200000 0 gpu NVIDIA H200
 *   1200000 0 sched max_apps=64 budget=85899345920 levels=5 allotment_ns=8000000000 ...
 *   1300000 0 join 3 user=1000 level=0 charged_ns=0
 *   1300000 0 app 3 pid=812 uid=1000 python3
 *   9100000 0 state 3 running
 *
 * Behind the first line each holds a time in nanoseconds, the number of a GPU, and a row of
 * trace.def. Each value has one spelling: writing a parsed line gives the same bytes.
 *
 * views/tape.c writes, tests/sim and ctl/export.c read; calls core/sched and common. What is read
 * is hostile.
 */
#ifndef GM_DAEMON_TRACE_TRACE_H
#define GM_DAEMON_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/core/parts.h"
#include "daemon/core/sched.h"

#define GM_TRACE_MAGIC "gpumux-trace 3" /* the first line */
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

struct gm_trace_line {
    uint64_t now;
    uint32_t gpu;
    enum gm_trace_row row;
    uint32_t app; /* 0 where the row has none */
    uint64_t number[GM_TRACE_NUMBERS_MAX];
    char text[GM_TRACE_TEXT]; /* "": none */
};

/* Write it with its '\n'. The text is made legal; blanks at its end are left out. Size and result
 * are as those of snprintf. */
size_t gm_trace_write(char *text, size_t size, const struct gm_trace_line *line);

/* The n-th word of a row's text, "running", and which word of it `text` is; -1: none. */
const char *gm_trace_word(enum gm_trace_row row, int n, char word[16]);
int gm_trace_find_word(enum gm_trace_row row, const char *text);

/* Parse a line behind the first one, without its '\n'. False: it is none, and *line unchanged. */
bool gm_trace_parse(const char *text, struct gm_trace_line *line);

/* Reads a file: set `file` alone. */
struct gm_trace_reader {
    FILE *file;
    uint64_t number; /* of the line in the file, from 1 on */
    struct gm_trace_line line;
    char why[64];
};
/* The next line. Returns 1; 0 at the end, where a line that is cut off counts for nothing; or
 * -EINVAL or another -errno with one phrase in `why`. */
int gm_trace_next(struct gm_trace_reader *reader);

/* What a scheduler is told as rows, without time and GPU; and back. False: it is another row, or
 * nothing that a scheduler can be told. */
void gm_trace_put_config(struct gm_trace_line *line, const struct gm_sched_config *config);
void gm_trace_put_event(struct gm_trace_line *line, const struct gm_sched_event *event);
void gm_trace_put_policy(struct gm_trace_line *line, uint32_t app,
                         const struct gm_sched_policy *policy);
bool gm_trace_config(const struct gm_trace_line *line, struct gm_sched_config *config);
bool gm_trace_event(const struct gm_trace_line *line, struct gm_sched_event *event);
bool gm_trace_policy(const struct gm_trace_line *line, struct gm_sched_policy *policy);

#endif
