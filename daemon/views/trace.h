/* clang-format off */
/*
 * The text of a recorded trace: all input of a scheduler, in order. With the same input core/sched
 * makes the same decisions again (tests/sim).
 *
 *   gpumux-sched-trace 1 max_apps=64 budget=85899345920 levels=5 allotment_ns=8000000000 ...
 *   1200000 join 3 1000
 *   1200000 set 3 class=batch weight=1000 share=1000 paused=0
 *   1250000 size 3 1073741824
 *   9000000 timer
 *   9500000 idle 3 100000000
 *
 * The first line holds all settings. Each other line holds a time in nanoseconds, which never
 * decreases, and an event that the scheduler accepted. `join` has the user, if it is not root. Each value has one spelling: writing a
 * parsed entry gives the same bytes.
 *
 * Pure string code without state. record.c writes, tests/sim parses; calls core/sched and
 * common/classes. Input to the parser is hostile.
 */
/* clang-format on */
#ifndef GM_DAEMON_VIEWS_TRACE_H
#define GM_DAEMON_VIEWS_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/core/sched.h"

#define GM_TRACE_VERSION 1u
#define GM_TRACE_LINE_MAX 320u /* every line with its '\n' and the end of the string fits */

/* Write one line with its '\n'. Size and result are as those of snprintf. */
size_t gm_trace_config(char *line, size_t size, const struct gm_sched_config *config);
size_t gm_trace_event(char *line, size_t size, uint64_t now, const struct gm_sched_event *event);
size_t gm_trace_policy(char *line, size_t size, uint64_t now, uint32_t app,
                       const struct gm_sched_policy *policy);

enum gm_trace_kind {
    GM_TRACE_NOTHING, /* before the first line */
    GM_TRACE_CONFIG,  /* `config` */
    GM_TRACE_EVENT,   /* `event`, at `now` */
    GM_TRACE_POLICY,  /* `policy` of event.app, at `now` */
};

/* The last entry that was parsed. Pass zeros for the first line, then the same struct for each
 * line: the next entry is checked against it. */
struct gm_trace_entry {
    enum gm_trace_kind kind;
    struct gm_sched_config config; /* of the header */
    uint64_t now;
    struct gm_sched_event event; /* app and bytes are 0 where the kind has none */
    struct gm_sched_policy policy;
};

/* Parse the next line, with or without its '\n'. Returns 0; or -EINVAL with one phrase in `why`,
 * and then *entry is unchanged. */
int gm_trace_parse(const char *line, struct gm_trace_entry *entry, char *why, size_t why_size);

#endif
