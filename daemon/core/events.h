/*
 * The events of common/events.def as structs, and what they tell. The engine emits them
 * (engine/state/events.c); the views show them.
 */
#ifndef GM_CORE_EVENTS_H
#define GM_CORE_EVENTS_H

#include "common/chunk.h"
#include "common/settings.h"
#include "daemon/core/model.h"
#include "daemon/core/parts.h"
#include "daemon/core/sched.h"
#include "daemon/core/tunables.h"
#include "daemon/core/why.h"

/* clang-format off */
#define GM_EVENT(NAME, name, fields, words) GM_EVENT_##NAME,
enum gm_event_kind {
#include "common/events.def"
    GM_EVENTS
};
#undef GM_EVENT
/* clang-format on */

/* What a program is asked to do with its mappings. OPEN and SHUT: MAP and UNMAP of what another
 * program shares; never built up, sent at once. */
enum gm_batch_kind {
    GM_BATCH_MAP,
    GM_BATCH_UNMAP,
    GM_BATCH_DROP,
    GM_BATCH_KINDS,
    GM_BATCH_OPEN = GM_BATCH_KINDS,
    GM_BATCH_SHUT,
    GM_BATCH_STRAY, /* UNMAP and DROP of what is none of these (step/apps.c); sent at once */
};

/* How long one switch took and where the time went: from the decision to let the app run to its
 * open gate. Times in nanoseconds; copying in and out overlaps with both waits. */
struct gm_switch {
    uint64_t seq;
    uint32_t app;
    int32_t pid;
    uint64_t at;                /* when its gate opened */
    uint64_t total_ns;          /* the sum of the parts */
    uint64_t part_ns[GM_PARTS]; /* each instant is in one: common/parts.def */
    uint64_t way_ns[GM_WAYS];   /* with copies out, and in, under way, whatever its part */
    uint64_t link_ns;           /* ... with any */
    uint64_t bytes[GM_WAYS];
    uint64_t lowered, raised; /* bytes copied from pinned memory down, and up to it, meanwhile */
    uint64_t clean, zero;     /* bytes evicted without a copy, meanwhile */
};

/* A program as it was when something was decided. */
struct gm_party {
    uint32_t app;
    int32_t pid;
    char name[64];
    uint32_t level;
    enum gm_why why;
};

/* A decision. */
struct gm_note {
    /* These are the journal's (views/journal.c). */
    int32_t gpu;
    uint64_t seq;            /* 1 and up */
    uint64_t at;             /* gm_now() */
    uint64_t wall;           /* the same, nanoseconds since 1970 */
    enum gm_event_kind kind; /* SWITCH, LEVEL, SET, REFUSED or RESTARTED */

    struct gm_party app;
    /* SWITCH: whose place it took, and after what wait. */
    struct gm_switch took;
    uint64_t wait_ns;
    struct gm_party leavers[GM_NOTE_LEAVERS];
    uint32_t n_leavers; /* there may be more than are named */
    /* LEVEL: where it was before. */
    uint32_t from;
    /* SET */
    uint32_t by;                   /* user */
    struct gm_settings said;       /* what was changed */
    struct gm_sched_policy policy; /* what holds now */
    /* REFUSED: the last one, and how many there were since the entry before. */
    struct gm_reason refusal;
    uint64_t n_refused;
    /* RESTARTED: programs that the daemon before had. */
    struct {
        uint32_t taken;  /* that may come back, */
        uint32_t cut;    /* ... that may not, but live, */
        uint32_t ended;  /* ... that have ended since, */
        uint32_t broken; /* ... of which nothing is known */
        uint64_t took_ns;
        char names[256]; /* of those that may come back */
        char wrong[96];  /* with the ledger of programs; "": nothing */
    } restart;
};

/* clang-format off */
struct gm_event {
    enum gm_event_kind kind;
    uint32_t app;   /* whom it is about; GM_NONE: nobody */
    uint64_t times; /* that it happened; 0 is once */
    union {
#define GM_EVENT(NAME, name, fields, words) struct { fields } name;
#include "common/events.def"
#undef GM_EVENT
    };

    /* gm_engine_emit says when, where, and who the app is. */
    uint64_t at;      /* gm_now() */
    uint32_t gpu;     /* index of the engine */
    int32_t device;   /* CUDA number of its GPU */
    int32_t pid;
    uint32_t uid;
    const char *name;
};
/* clang-format on */

#endif
