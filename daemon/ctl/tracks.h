/*
 * A recorded trace (trace/trace.h) as tracks: what each program did when, switches, copies, tiers.
 * Called by export.c. Calls trace/ and say.c.
 *
 * Times are in nanoseconds of the daemon's clock, sizes in bytes. The file can be anything: what is
 * here is within the trace's time, and texts are legal.
 */
#ifndef GM_DAEMON_CTL_TRACKS_H
#define GM_DAEMON_CTL_TRACKS_H

#include "daemon/trace/trace.h"

/* What a program does, by its state and whether it wants the GPU. */
#define MUX_DOES(X)                                                                                \
    X(NOTHING, "nothing")                                                                          \
    X(WAITING, "waiting")                                                                          \
    X(PARKED, "waiting, parked") /* ... in the middle of its kernels */                            \
    X(LOADING, "loading")                                                                          \
    X(RUNNING, "running")                                                                          \
    X(OPEN, "idle in its turn")                                                                    \
    X(DRAINING, "draining")
/* clang-format off */
enum mux_does {
#define MUX_DOES_NAME(NAME, words) MUX_DOES_##NAME,
    MUX_DOES(MUX_DOES_NAME)
#undef MUX_DOES_NAME
    MUX_DOES_N
};
/* clang-format on */

/* A program on one GPU. One that uses two is there twice. */
struct mux_traced {
    uint32_t gpu; /* of gpus[] */
    uint32_t id;  /* the daemon's number; another program may have it later */
    uint64_t pid, uid;
    char name[GM_TRACE_TEXT];
    /* While the trace is read. */
    bool is_live, wants, is_parked;
    int state; /* word of GM_TRACE_ROW_STATE; -1: not told yet */
    enum mux_does does;
    uint64_t since;                /* it does */
};

struct mux_span {
    uint32_t app; /* of apps[] */
    enum mux_does does;
    uint64_t begin, end;
};

struct mux_copies {
    uint32_t gpu;
    int way; /* word of GM_TRACE_ROW_COPIED */
    uint64_t begin, end, bytes;
};

/* A row at its time: a switch (`at` is its end), a change of a level or of settings, a refusal, a
 * loss. */
struct mux_event {
    uint32_t gpu;
    uint32_t app; /* of apps[]; UINT32_MAX: none */
    uint64_t at;
    struct gm_trace_view view;
};

struct mux_tiers {
    uint32_t gpu;
    uint64_t at, bytes[5]; /* in the order of the row's numbers */
};

struct mux_tracks {
    bool is_part;
    uint64_t begin, end;
    uint64_t wall; /* of begin, since 1970; 0: not told */
    struct {
        uint64_t index;
        char name[GM_TRACE_TEXT];
    } * gpus;
    struct mux_traced *apps;
    struct mux_span *spans;
    struct mux_copies *copies;
    struct mux_event *switches, *events, *parks;
    struct mux_tiers *tiers;
    uint32_t n_gpus, n_apps, n_spans, n_copies, n_switches, n_events, n_parks, n_tiers;
};

/* Read the file. False, after one line: it cannot be read, or is no trace. Free it even then. */
bool mux_read_tracks(const char *path, struct mux_tracks *tracks);
void mux_free_tracks(struct mux_tracks *tracks);

const char *mux_does_text(enum mux_does does);
/* "alice", or the number. Returns `text`. */
const char *mux_user_of(uint64_t uid, char text[64]);

#endif
