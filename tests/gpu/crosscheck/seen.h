/*
 * What inject.c saw, in a file that the process maps: whole however the process ends. Read by
 * crosscheck.py, which knows this layout.
 */
#ifndef GM_CROSSCHECK_SEEN_H
#define GM_CROSSCHECK_SEEN_H

#include <stdatomic.h>
#include <stdint.h>

#define GM_SEEN_MAGIC "gmseen1"
#define GM_SEEN_CALLS 2048 /* by the number that CUPTI gives a call */
#define GM_SEEN_TRACES 8
#define GM_SEEN_TEXT 1024

/* Where a call into the driver came from. */
enum gm_seen_where {
    GM_SEEN_GATE,    /* the thread is inside the gate: a hooked submission */
    GM_SEEN_HANDLER, /* not that, but in one of the shim's handlers, or in its start */
    GM_SEEN_OWN,     /* one of the shim's own threads */
    GM_SEEN_OUTSIDE, /* the shim knows nothing of it */
    GM_SEEN_WHERES
};

/* What a call is, by its name. */
enum gm_seen_kind { GM_SEEN_OTHER, GM_SEEN_SUBMIT, GM_SEEN_ALLOC };

struct gm_seen_call {
    char name[60]; /* as CUPTI calls it; empty: there is no such call */
    uint32_t kind; /* enum gm_seen_kind */
    _Atomic uint64_t count[GM_SEEN_WHERES];
};

struct gm_seen {
    char magic[8];
    uint32_t pid;
    _Atomic uint32_t state; /* include/gpumux.h, at the last submission or allocation */
    char why[256];          /* not empty: nothing was watched, because of this */
    char command[256];      /* of the process */
    _Atomic uint32_t traces;
    uint32_t reserved;
    char trace[GM_SEEN_TRACES][GM_SEEN_TEXT]; /* the first calls from outside that should not be */
    struct gm_seen_call call[GM_SEEN_CALLS];
};

#endif
