/*
 * Reasons: a word (why.def) and its numbers. Whoever decides makes one; whoever shows it makes the
 * text. Pure; included by all of the daemon.
 */
#ifndef GM_CORE_WHY_H
#define GM_CORE_WHY_H

#include <stdbool.h>
#include <stdint.h>

enum gm_why {
#define GM_WHY(NAME, name, text) GM_WHY_##NAME,
#include "daemon/core/why.def"
#undef GM_WHY
    GM_WHYS
};

/* A reason, as things were when it was made. Numbers that it does not need are 0. */
struct gm_reason {
    enum gm_why why;
    enum gm_why of; /* the reason behind it */
    bool has_app;   /* it waits for `app` */
    uint32_t app;
    bool has_gpu;     /* it waits for `gpu`, by its CUDA number, */
    bool is_of_group; /* ... on which others of its group are to run at the same time */
    int32_t gpu;
    uint64_t for_ns;       /* since when, so far */
    int32_t pid;           /* who stands still, or keeps what another one had; 0: not known */
    int32_t ended;         /* ... that one */
    uint32_t others;       /* ... and so many more do */
    uint64_t bytes, held;  /* what is asked for, and what the program has */
    uint64_t limit;        /* of the budget, pinned memory, all tiers, a cap: `why` says which */
    uint64_t taken;        /* ... and what of it is taken */
    uint32_t files;        /* that there are for frames */
    bool is_unswappable;   /* pinned memory is too small to swap anything */
    bool is_host_mappable; /* the GPU can read host memory */
};

/* "turn", "priority", ...: one word, for machines. */
const char *gm_why_name(enum gm_why why);
/* "another program's slice is not over", ...: one short phrase without numbers. */
const char *gm_why_text(enum gm_why why);

#endif
