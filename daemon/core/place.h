/*
 * Placement: which chunks of an app that may not have all of its memory on the GPU are to be
 * resident, and which its GPU work reads over the link (mapped on host). Pure: owns the chunks'
 * heat, which follows from reported uses, and chooses their places. Called by the engine; changes
 * the table through gm_table_put only.
 *
 * What a place costs. On the host, each use of a chunk takes its bytes over the link (51 GB/s
 * zero-copy, measured). Taking another chunk's place costs two such uses, once. So what is used
 * more often has its place on the GPU, as soon as it is known that it is.
 *
 * Heat says how often a chunk's bytes were used lately, whatever its size: GM_PLACE_USE for every
 * use of all of it, half of that for a use of half of it. What is long ago counts less: all heat is
 * halved when the chunks that were used have GM_PLACE_KNOWN on average (one that is used all the
 * time counts as twice that). So it is uses that age the heat, not time: programs with steps of
 * milliseconds and of many seconds are known equally well. A use names a place, the start of
 * something such as a tensor. It stands for everything from there to the next place that was ever
 * seen in the same allocation: so a pool, or one buffer with all weights, comes apart by itself.
 * One that is exact stands for itself alone.
 *
 * What is touched reaches farther: to the end of the allocation, over all places that were not used
 * this time. An allocator of the program's own gives the same memory to a small tensor first and to
 * a large one later. So where a tensor once began says nothing about where today's ends. Training
 * of Inception-v3 had 40 % of its rate when 76 MiB in the middle of an activation were taken for
 * cold (H100). Heat that is too low costs little, as it only ranks; what is cold leaves the GPU.
 *
 * A chunk takes the place of another if it is hotter by a quarter and GM_PLACE_FLOOR. A weight that
 * is used three times a step so takes the place of a gradient that is used twice. Chunks that are
 * used equally often stay where they are: a report in the middle of a step shows some of them at
 * one step more, which is less than a quarter as soon as steps are many, and GM_PLACE_FLOOR before.
 *
 * What is cold gives way to all that is not, whatever its heat. What the check found to be needed
 * (check.h), though no window saw it, is taken for as hot as what is known is on average.
 *
 * What is not known is guessed. A small chunk (below 32 MiB) belongs to activations, workspaces or
 * the scratch memory of libraries, the hottest memory of all: it ranks above all chunks of 32 MiB,
 * and above small ones that were hardly used. What was allocated last is taken for as hot as to
 * have the place of what was hardly used: it is not on the host just because it came last.
 *
 * Launches do not tell how often a kernel re-reads what it was given, so the estimate can be too
 * low. It is not corrected by the time that turns take.
 */
#ifndef GM_CORE_PLACE_H
#define GM_CORE_PLACE_H

#include "daemon/core/table.h"
#include "daemon/core/tunables.h"

/* A place, as the app touched it in a window (common/windows.h). */
struct gm_use {
    uint64_t va;
    uint32_t count;  /* how often; 0: it was touched before, and the work may last until now */
    bool is_exact;   /* nothing behind the place is meant: it stands for itself alone */
    uint32_t window; /* the newest in which it was touched */
    uint32_t order;  /* other places that were touched before it in that window */
};

/* What was cold (working.h) and is used again. */
struct gm_warmed {
    uint64_t returned; /* bytes */
    uint32_t gap;      /* the most windows that a part of it was left alone for */
};

/* Add `n` uses, ascending by va, to the heat of the chunks of `app`, which may be halved then; they
 * are touched. Ignores places outside of them. */
struct gm_warmed gm_place_warm(struct gm_table *table, uint32_t app, const struct gm_use *uses,
                               uint32_t n);

/* All of the allocation will be used, as others than its program can tell: it is touched, and as
 * hot as what is used all the time. */
void gm_place_heat(struct gm_table *table, uint32_t allocation);

struct gm_place_input {
    uint32_t app;
    uint64_t room;   /* bytes that it may have on the GPU, beside what is fixed there */
    uint64_t most;   /* bytes that may come from the host to the GPU */
    uint32_t newest; /* the allocation that came last, if it came just now; GM_NONE */
    bool is_quiet;   /* chunks that are in their places may move; else only the others get one */
    uint64_t
        keeps; /* bytes of what is cold and on the host that stay there, though there is room */
};

/* Bytes that move if the choice is made. */
struct gm_placed {
    uint64_t come;  /* mapped on the host now, to be resident */
    uint64_t leave; /* resident now, to be mapped on the host */
};

/*
 * Choose the places of all chunks of an app, such that those that are to be resident fit into
 * `room`, and leave at most GM_ROOM_ROUNDING of it to chunks that are to be on the host. If not all
 * chunks that are resident fit and the app is not quiet, the others all go to the host. `is_made`:
 * set them (gm_table_put); otherwise only say what would move. Chunks in flight to their place keep
 * it. Linear in the app's chunks.
 */
struct gm_placed gm_place_app(struct gm_table *table, const struct gm_place_input *input,
                              bool is_made);

#endif
