/*
 * The layout: where every chunk is to lie. The one place where that is decided, for switches, for
 * growing programs, for caps, for what comes next, and for what lies below the GPU. Pure; of the
 * table it writes only which chunks have their place on the host (gm_table_put), and nobody else
 * does. Called by the engine, which says where each app stands on the timeline and how much room it
 * has; core/plan orders the moves that bring it about.
 *
 * On the GPU room is given in the order of the next use (MSched section 5: Belady's rule on the
 * scheduler's timeline):
 *
 *   now     who runs or is about to gets all that it lacks. Others lose as much as that needs and
 *           no more, the one whose next turn is farthest first.
 *   above   who has more than its room, by a cap or as it is to leave, loses what is above that.
 *   ahead   whose turn comes next gets what room there is. While it waits, others that wait and
 *           come later make way for it: so of apps in turn on a GPU with room for little more than
 *           one, that room is always the next one's. Nobody knows when an idle app comes: for it
 *           nobody makes way, and it keeps what it has until somebody needs the room now.
 *
 * The objective. First, the victim whose turn is nearest loses as few bytes as possible; given
 * that, the next nearest; and so on. Second, given that, every victim loses the smallest sum that
 * the sizes of its chunks allow, and of several such sums the one whose frames serve as they are.
 * Frames of the wrong size or user count as room: they can be destroyed and made anew (90 us,
 * against 330 us in each direction for 16 MiB over the link).
 *
 * Of each app the layout says how many chunks of each size leave and how many bytes come. Which
 * those are follows from the order of its lists (table.h), which is that of the next use, with
 * unchanged ones first. So each chunk has its target, and a decision costs no look at chunks that
 * stay where they are.
 *
 * Below the GPU (Nixie section 5), data stays in the highest tier that has room at the end. Of
 * pinned memory a part is left free, the window. What cannot stay there goes down: the data with
 * the farthest next use to the disk, the rest to paged memory. What comes goes through pinned
 * memory, which gives its pages back.
 *
 * Places: an app that may not have all of its memory on the GPU reads the rest over the link,
 * mapped on host. What a place costs: on the host, each use of a chunk takes its bytes over the
 * link (51 GB/s zero-copy, measured). Taking another chunk's place costs two such uses, once. So
 * what is used more often (working.h) has its place on the GPU, as soon as it is known that it is.
 * A chunk takes the place of another if it is hotter by a quarter and GM_PLACE_FLOOR. A weight that
 * is used three times a step so takes the place of a gradient that is used twice. Chunks that are
 * used equally often stay where they are: a report in the middle of a step shows some of them at
 * one step more, which is less than a quarter as soon as steps are many, and GM_PLACE_FLOOR before.
 *
 * What is cold gives way to all that is not, whatever its heat. What the check found to be needed
 * (check.h), though no window saw it, is taken for as hot as what is known is on average. What is
 * not known is guessed. A small chunk (below 32 MiB) belongs to activations, workspaces or the
 * scratch memory of libraries, the hottest memory of all: it ranks above all chunks of 32 MiB, and
 * above small ones that were hardly used. What was allocated last is taken for as hot as to have
 * the place of what was hardly used: it is not on the host just because it came last.
 *
 * Launches do not tell how often a kernel re-reads what it was given, so the estimate can be too
 * low. It is not corrected by the time that turns take.
 */
#ifndef GM_CORE_LAYOUT_H
#define GM_CORE_LAYOUT_H

#include "daemon/core/table.h"
#include "daemon/core/tunables.h"

/* ---- what there is ---- */

/* Where an app stands on the timeline. */
enum gm_stand {
    GM_STAND_GROWS, /* it runs, and a thread of it waits for memory */
    GM_STAND_COMES, /* its gate opens as soon as nothing of it is missing */
    GM_STAND_WAITS, /* for its next turn */
    GM_STAND_IDLE,  /* nobody knows when it wants one; or it drains */
    GM_STAND_STAYS, /* nothing of it can move now */
};

struct gm_layout_app {
    uint32_t app;
    uint8_t stand;     /* enum gm_stand */
    bool comes_ahead;  /* its memory may come ahead of its turn */
    uint32_t turn;     /* it comes after those with a lower number, together with its group */
    uint64_t may_have; /* bytes on the GPU, beside what is fixed */
};

/* A tier below the GPU. A tier that is not configured has cap 0. */
struct gm_layout_tier {
    uint64_t cap;
    uint64_t used;   /* now, copies under way included, at both their ends */
    uint64_t ending; /* ... of which copies under way give back when they end */
    bool is_closed;  /* paged memory or disk: it cannot be written now */
};

/* ---- what is to change ---- */

struct gm_layout_target {
    uint32_t app;
    uint64_t comes; /* bytes of what it lacks, the first in the order of filling */
};

struct gm_layout_victim {
    uint32_t app;
    uint64_t may_lose;                /* bytes */
    uint64_t loses;                   /* ... in whole chunks: */
    uint32_t leave[GM_CHUNK_CLASSES]; /* so many of each size, the first in their lists */
};

struct gm_layout {
    /* Given. */
    struct gm_layout_tier tiers[GM_TIERS]; /* PINNED, PAGED and DISK are read; without a cap of
                                              PINNED nothing is decided below the GPU */
    uint64_t window;                       /* bytes of pinned memory to leave free */
    struct gm_layout_target *targets;      /* both arrays are the caller's memory */
    struct gm_layout_victim *victims;
    /* Made: who gets what it lacks, most urgent first; who loses, farthest next use first. The
     * victims' data below the GPU may go further down. */
    uint32_t n_targets, n_victims;
    bool is_growing; /* the first target runs, whole but for what it waits for */
    bool is_ahead;   /* nobody waits for it; there is one target, or none */
    bool is_whole;   /* all that the targets lack comes */
    uint64_t leaves; /* bytes that leave the GPU, with what of targets has its place on the host */
    uint64_t comes[GM_TIERS];     /* bytes that come, by the tier they are in */
    uint32_t promotions;          /* chunks of those that are below pinned memory */
    int64_t goes_down, goes_disk; /* bytes that leave pinned memory for tiers below; the first of
                                     them, of the farthest apps, for the disk */
};

/* A decision is made in steps, from the first on, until one has something to do. */
#define GM_LAYOUT_NOW 0u   /* what somebody waits for; if nobody does: what is above its room */
#define GM_LAYOUT_AHEAD 1u /* for the first app that can come ahead; the next step: the second */

/*
 * Step `step` of the layout, of `apps` in the order of their next use. Both arrays of `layout` have
 * room for `n`. At most `most` bytes come ahead. False: there is no such step.
 */
bool gm_layout_make(const struct gm_table *table, const struct gm_layout_app *apps, uint32_t n,
                    uint32_t step, uint64_t most, struct gm_layout *layout);

/* Say what the victims lose so that the targets get what they lack, as far as `may_lose` of each
 * allows; without targets each loses that. Linear in victims and frames that leave, and in the
 * chunks of targets that get only a part of what they lack. */
void gm_layout_share(const struct gm_table *table, struct gm_layout *layout);

/* Bytes that are free in a tier below the GPU once what is under way has ended. A closed one has
 * never enough, whatever leaves it. */
int64_t gm_layout_free_in(const struct gm_layout *layout, enum gm_tier tier);

/* ---- which chunks come ---- */

/*
 * The order of filling. User by user, as frames are handed out from cursors into that user's lists;
 * then app by app in the order of the targets. Of an app first what is pinned: what is evicted for
 * it takes its pages. Then what must be promoted; last what was never written and has no pages.
 */
static const uint8_t gm_layout_order[] = {GM_TIER_PINNED, GM_TIER_PAGED, GM_TIER_DISK,
                                          GM_TIER_NONE};
#define GM_STAGE_PROMOTE_FIRST 1u
#define GM_STAGE_PROMOTE_LAST 2u
#define GM_STAGE_LAST 3u

/* A walk over what comes in the order of filling; stages `from` to `to` of each app. */
struct gm_layout_walk {
    uint32_t first;  /* the first target of the current user */
    uint32_t target; /* the current one */
    uint32_t chunk;  /* the next */
    unsigned stage, from, to;
    uint64_t left; /* bytes of the current target that have yet to come */
};

void gm_layout_open_walk(const struct gm_table *table, const struct gm_layout *layout,
                         unsigned from, unsigned to, struct gm_layout_walk *walk);
/* The next chunk, GM_NONE at the end; walk->target is its app. */
uint32_t gm_layout_next(const struct gm_table *table, const struct gm_layout *layout,
                        struct gm_layout_walk *walk);
/* How many chunks of each size come of the targets of `pool`. */
void gm_layout_needs(const struct gm_table *table, const struct gm_layout *layout, uint32_t pool,
                     uint32_t needs[GM_CHUNK_CLASSES]);

/* The first leaving frame from `frame` on whose app is not silent: only those can be counted on. */
static inline uint32_t gm_layout_leaving_frame(const struct gm_table *table, uint32_t frame)
{
    while (frame != GM_NONE && table->apps[table->chunks[table->frames[frame].chunk].app].is_silent)
        frame = table->frames[frame].next;
    return frame;
}

/* ---- places on the host ---- */

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
 * set them; otherwise only say what would move. Chunks in flight to their place keep it. Linear in
 * the app's chunks.
 */
struct gm_placed gm_layout_place(struct gm_table *table, const struct gm_place_input *input,
                                 bool is_made);
/* What is resident stays so, though its place was to be on the host. */
void gm_layout_stay(struct gm_table *table, uint32_t app);
/* The app's turn is over: what has not got to the host loses its place there, as not all of it may
 * come; with `is_all` what is mapped there does, too. */
void gm_layout_end_places(struct gm_table *table, uint32_t app, bool is_all);

#endif
