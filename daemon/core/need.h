/* clang-format off */
/*
 * How much memory the daemon needs, and how much of what it has made it keeps. Pure.
 *
 *   need   follows from what programs have committed. It is known when they allocate, so memory is
 *          made ahead of the switch that uses it.
 *   kept   the most that was needed lately. Programs that free and allocate, or end and start
 *          anew, find it there. Everything beyond it goes back to the system.
 */
/* clang-format on */
#ifndef GM_CORE_NEED_H
#define GM_CORE_NEED_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/tunables.h"

/* The most of something that changes, over the current period and the one before it. */
struct gm_lately {
    uint64_t since; /* begin of the current period */
    uint64_t value; /* now */
    uint64_t most, before;
};

/* It is `value` from `now` on. */
void gm_lately_note(struct gm_lately *lately, uint64_t now, uint64_t value);
/* The most that it was lately, as of the last note. */
uint64_t gm_lately_most(const struct gm_lately *lately);
/* When that may be less without a change: note it again then. UINT64_MAX: it is the value now. */
uint64_t gm_lately_falls_at(const struct gm_lately *lately);
/* Forget what it was before. */
void gm_lately_forget(struct gm_lately *lately);

struct gm_need {
    uint64_t frames; /* bytes on the GPU */
    uint64_t pinned;
    uint64_t paged;
};

struct gm_need_input {
    uint64_t committed;   /* by all programs, without what is hosted */
    uint64_t budget;      /* on the GPU */
    uint64_t pinned_cap;  /* of the pinned tier, without what is lent */
    uint64_t pinned_used; /* bytes of it that hold data */
    uint64_t window;      /* of pinned memory, that stays free for streaming */
    bool is_stuck;        /* a switch lacks pinned memory, and nothing under way gives any back */
};

void gm_need_of(const struct gm_need_input *input, struct gm_need *need);

#endif
