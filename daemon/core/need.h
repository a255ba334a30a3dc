/* clang-format off */
/*
 * How much memory the daemon needs, and how much it keeps. Pure; owns struct gm_lately. Called by
 * the engine.
 *
 *   need   follows from what programs have committed. It is known when they allocate, so memory is
 *          made before the switch that uses it.
 *   kept   the most that was needed lately, for programs that free and allocate again, or end and
 *          start again. Everything beyond it goes back to the system.
 */
/* clang-format on */
#ifndef GM_CORE_NEED_H
#define GM_CORE_NEED_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/tunables.h"

/* The maximum of a value over the current period and the one before it. */
struct gm_lately {
    uint64_t since; /* when the current period began */
    uint64_t value; /* now */
    uint64_t most, before;
};

/* The value is `value` from `now` on. */
void gm_lately_note(struct gm_lately *lately, uint64_t now, uint64_t value);
/* The maximum, as of the last note. */
uint64_t gm_lately_most(const struct gm_lately *lately);
/* When the maximum may fall: note the value again then. UINT64_MAX: it is the value now. */
uint64_t gm_lately_falls_at(const struct gm_lately *lately);
/* The maximum, as it is now, lasts for as long as if it had been reached just now. */
void gm_lately_hold(struct gm_lately *lately, uint64_t now);
/* The maximum is the value now. */
void gm_lately_forget(struct gm_lately *lately);

struct gm_need {
    uint64_t frames; /* bytes on the GPU */
    uint64_t pinned;
    uint64_t paged;
};

struct gm_need_input {
    uint64_t committed;   /* by all programs */
    uint64_t beyond;      /* ... of which not on the GPU, whatever room there is */
    uint64_t budget;      /* on the GPU */
    uint64_t pinned_cap;  /* of the pinned tier */
    uint64_t pinned_left; /* ... that ended programs still have */
    uint64_t pinned_used; /* bytes of it that hold data, or that only some could have */
    uint64_t lower_used;  /* bytes of the tiers below it that hold data */
    uint64_t window;      /* the streaming window */
    uint64_t shadows; /* bytes that are kept, or would be with more memory, beside what is used */
    bool is_stuck;    /* a switch lacks pinned memory, and nothing under way gives any back */
};

void gm_need_of(const struct gm_need_input *input, struct gm_need *need);

#endif
