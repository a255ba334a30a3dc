/*
 * Where time goes: each instant belongs to one part (common/parts.def). The engine tells what is
 * under way after each of its steps, and that holds until the next. So the sums of the parts grow
 * by what passes, and those of a switch are its whole time. Pure. Called by engine/step/log.c.
 */
#ifndef GM_CORE_PARTS_H
#define GM_CORE_PARTS_H

#include <stdbool.h>
#include <stdint.h>

/* clang-format off */
#define GM_PART(NAME, name, shown, words) GM_PART_##NAME,
enum gm_part {
#include "common/parts.def"
    GM_PARTS
};
#undef GM_PART
/* clang-format on */

/* What is under way; several may be at once. PLAN and OTHER are not told: OTHER is the rest. */
struct gm_under_way {
    bool has[GM_PARTS];
    bool is_copying[2]; /* out, in: COPY is either */
};

struct gm_parts {
    uint64_t at;           /* the sums are right up to here */
    uint64_t ns[GM_PARTS]; /* since the start */
    uint64_t way_ns[2];    /* with copies out, and in, whatever else there was */
    uint64_t link_ns;      /* ... with any */
    uint64_t planned_ns;   /* the planner's, of the time from `at` on */
    enum gm_part now;      /* what time belongs to from `at` on */
    bool is_copying[2];
};

/* It is `now`: what has passed goes to the part that was under way. */
void gm_parts_pass(struct gm_parts *parts, uint64_t now);
/* The same, and from now on this is under way. */
void gm_parts_turn(struct gm_parts *parts, uint64_t now, const struct gm_under_way *under_way);

#endif
