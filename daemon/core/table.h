/* clang-format off */
/*
 * The tables: what memory there is, whose it is and where it is. Pure data: no I/O, no CUDA, no
 * allocation after init. The engine alone changes them, on events; the planner and placement read
 * them.
 *
 *   app     a client: its committed bytes, and its chunks by where they are
 *   chunk   the unit of placement. Exactly one tier holds its data. `state` (model.h) says where it
 *           is and that it moves. The tier changes only when the move has ended: copy, then commit,
 *           then free. A chunk is *resident* (in a GPU frame), *mapped on host* (its pages in
 *           pinned memory are a host frame, which its app maps), or *swapped*. Its place, is_on_host, says which of the
 *           first two it is to be when its app runs (core/place.h)
 *   frame   a piece of memory of one size class, made for one uid. At most one chunk holds it.
 *   pool    the free frames of one uid, by size class: memory never crosses users
 *   fixed   unevictable: other programs have the chunk mapped too, so it stays in its frame
 *   shadow  the pinned copy from which a chunk came to the GPU, kept beside it. If the chunk has not
 *           changed when it is evicted, nothing is copied. Its pages count as free: whoever wants
 *           them drops it
 *
 * Invariants, checked by gm_table_check:
 *   - The bytes of all GPU frames that exist (free, used or condemned) never exceed the budget.
 *   - A frame in use and its chunk point at each other.
 *   - A fixed chunk is settled in a fixed frame, and in no list of what can be evicted, until its
 *     allocation is freed.
 *   - A chunk in the GPU tier has a frame, or is on its way out of one.
 *   - Each app's committed bytes and missing chunks are those of its chunks.
 *   - A shadow is kept only of a chunk that can be evicted; its chunk is in its app's list of
 *     shadows and has pages.
 */
/* clang-format on */
#ifndef GM_CORE_TABLE_H
#define GM_CORE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/chunk.h"
#include "daemon/core/model.h"

/* What a chunk is counted as, and in which list of its app it is. */
enum gm_chunk_list {
    GM_LIST_NONE,     /* on its way in, or freed */
    GM_LIST_RESIDENT, /* by_class */
    GM_LIST_SETTLED,  /* in none: mapped on the host, or fixed */
    GM_LIST_AWAY,     /* away[listed_tier] */
    GM_LIST_TO_MAP,   /* to_map */
};

struct gm_chunk {
    uint64_t va;
    uint64_t hash[2]; /* of its copy below the GPU, or of its shadow, if has_hash */
    uint32_t app;
    uint32_t allocation;
    uint32_t frame;                    /* GM_NONE: none */
    uint32_t page;                     /* first page of its copy in `tier`'s store, GM_NONE: none */
    uint32_t host_frame;               /* ... the host frame that these pages are; GM_NONE: none */
    uint32_t to_page;                  /* MOVING: of the copy being made */
    uint32_t sibling;                  /* next chunk of the allocation, by address */
    uint32_t next, prev;               /* in its app's list for its place */
    uint32_t heat;                     /* how much it is used: place.h */
    uint32_t next_shadow, prev_shadow; /* in its app's list */
    uint32_t opens; /* gm_app.gate.opens at which it is still as its shadow; see engine/shadows.c */
    uint8_t shadow; /* enum gm_shadow */
    bool has_hash;
    uint8_t place_age; /* for so many more reports a place in it is remembered */
    uint8_t class;
    uint8_t tier;  /* enum gm_tier: where the authoritative copy is */
    uint8_t state; /* enum gm_chunk_state; its one setter: gm_table_turn_chunk */
    uint8_t listed_tier;
    uint8_t to_tier;   /* enum gm_tier: where one that is MOVING goes */
    uint8_t list;      /* enum gm_chunk_list: which of its app's lists it is in */
    bool is_leaving;   /* counted in its app's `leaving` bytes */
    bool is_freed;     /* its allocation was freed: it ends when nothing touches it any more */
    bool is_on_host;   /* its place: its app maps it on the host, or is to */
    bool is_fixed;     /* unevictable */
    bool map_failed;   /* the app could not map it: it ends where it began */
    bool copy_pending; /* it waits for a copy, or for the fence before it */
    bool map_pending;  /* it waits for the app to map or unmap it */
};

struct gm_allocation {
    uint64_t va;
    uint64_t bytes;
    uint64_t cookie; /* of the pending ALLOC or FREE */
    uint32_t app;
    uint32_t first;      /* chunk */
    uint32_t chunks;     /* alive */
    uint32_t missing;    /* chunks that are not settled on the GPU */
    uint32_t next, prev; /* in its app's list; next also links the free list */
    bool is_pending;     /* ALLOC is not answered yet */
    bool is_ahead;       /* ... and nobody waits for the answer */
    bool is_freed;       /* it ends with its last chunk */
    int32_t failure;     /* freed while pending: the CUresult to answer ALLOC with at its end */
    bool wants_freed;    /* ... and FREED is to be sent */
    bool is_taken;       /* ... and TAKEN is to be sent */
};

struct gm_frame {
    uint64_t fence; /* copies out up to this sequence number must end before it is written */
    uint64_t clear; /* unless it is dirty, it is clear when copies in up to this one have ended */
    uint32_t chunk;
    uint32_t pool;
    uint32_t next, prev; /* in the list for its state */
    uint32_t page;       /* host frame: its pages, which end with it */
    uint32_t share;      /* it is fixed: the number of what it is part of; 0: it is not */
    uint32_t exit_of;    /* condemned: the app whose process must end first; GM_NONE: none */
    uint32_t drops;      /* ... DROPs that are not answered yet */
    uint32_t silent;     /* ... of those, owed by apps that do not answer */
    uint8_t class;
    uint8_t state;     /* enum gm_frame_state; its one setter: set_frame */
    bool is_host;      /* host memory: not in the budget; its chunk's data is in it as long as it is
                          used, mapped or not */
    bool is_dirty;     /* a chunk had it since it was made or cleared */
    bool is_destroyed; /* condemned: its handle is, and the driver keeps the memory */
};

struct gm_pool {
    uint32_t uid;
    uint32_t apps, frames; /* alive; 0 and 0: the pool is unused and can serve another uid */
    uint64_t committed, beyond, fixed, device; /* the sums of its apps' */
    uint32_t head[GM_CHUNK_CLASSES];           /* free frames */
    uint32_t count[GM_CHUNK_CLASSES];
    uint32_t leaving[GM_CHUNK_CLASSES]; /* leaving frames: planning counts on them next */
};

struct gm_list {
    uint32_t head, tail, count;
};

struct gm_table_app {
    bool is_used;
    bool is_silent;     /* it does not answer: nothing of it can be evicted now */
    uint32_t pool;      /* of its uid */
    uint64_t committed; /* bytes of its live chunks */
    uint64_t on_host;   /* ... of those whose place is on the host */
    uint64_t leaving;   /* ... of those of them that are still on the GPU */
    uint64_t beyond;    /* ... that it may not have on the GPU: the engine's promise to others */
    uint64_t fixed;     /* ... of those on the GPU that are fixed */
    uint64_t resident;  /* bytes of its settled chunks on the GPU that are not fixed */
    uint64_t device;    /* bytes of all GPU frames that its chunks have: fixed ones, those in
                           flight and those that were freed, too */
    uint32_t chunks;    /* live ones */
    uint32_t missing;   /* ... that are not settled on the GPU */
    uint32_t kept;      /* ... that keep their frames whoever runs: fixed, or placed on the host */
    struct gm_list by_class[GM_CHUNK_CLASSES]; /* settled on the GPU: what can be evicted */
    struct gm_list away[GM_TIERS];             /* below the GPU or on the way there, by tier */
    uint64_t bytes[GM_TIERS];                  /* of the chunks in those lists */
    uint32_t away_count[GM_CHUNK_CLASSES];     /* chunks in those lists, by size */
    struct gm_list to_map; /* to be mapped on the host, and not in flight from the GPU */
    uint64_t to_map_bytes; /* ... of those that are not in pinned memory yet */
    struct gm_list allocations;
    struct gm_list shadows; /* chunks whose shadows are kept; those that are evicted first first */
    uint64_t shadow_bytes;
};

struct gm_table {
    /* Told of each change of a state, and of each event that is not legal; NULL: nobody is. */
    void (*on_turn)(void *arg, const struct gm_turn *turn);
    void *on_turn_arg;
    uint64_t budget;    /* bytes of frames that may exist */
    uint64_t allocated; /* bytes of frames that exist */
    uint64_t free;      /* ... of those that are free */
    uint64_t condemned; /* ... of those that are condemned */
    uint64_t ending; /* ... of those condemned whose end depends on the daemon only: room to come */
    uint64_t fixed;  /* bytes of fixed GPU frames, whose apps may be gone */
    uint64_t orphaned;  /* ... of those that no live chunk has: others have them open */
    uint64_t committed; /* bytes of all live chunks */
    uint64_t on_host;   /* ... of those whose place is on the host */
    uint64_t beyond;    /* ... the sum of the apps' */
    uint64_t shadows;   /* bytes of pinned memory that hold shadows which are kept */
    uint64_t lost;      /* bytes of shadows that are lost */
    uint32_t dirty;     /* free frames that are */
    uint32_t kept;      /* the sum of the apps' */
    uint32_t max_apps, max_chunks, max_frames;
    uint32_t free_chunk, free_allocation, free_frame; /* heads of unused slots */
    uint32_t first_condemned;                         /* of all users */
    uint32_t used_chunks;
    struct gm_table_app *apps;
    struct gm_chunk *chunks;
    struct gm_frame *frames;
    struct gm_allocation *allocations;
    struct gm_pool *pools; /* max_apps of them */
};

/* The bytes for a table of these sizes; make it in the caller's zeroed `memory`, 16-aligned. */
size_t gm_table_size(uint32_t max_apps, uint32_t max_chunks, uint32_t max_frames);
struct gm_table *gm_table_init(void *memory, uint32_t max_apps, uint32_t max_chunks,
                               uint32_t max_frames, uint64_t budget);

/*
 * Add an app of `uid`, or remove one whose allocations are all gone. False: no pool is left, as
 * users that are gone have frames in all of them. The caller destroys those first.
 */
bool gm_table_add_app(struct gm_table *table, uint32_t app, uint32_t uid);
void gm_table_remove_app(struct gm_table *table, uint32_t app);

/*
 * Commit `bytes` at `va` for `app`: cut into chunks of tier none, all away. Returns the
 * allocation's index, or GM_NONE when the table is full (nothing changed).
 */
uint32_t gm_table_add_allocation(struct gm_table *table, uint32_t app, uint64_t va, uint64_t bytes);

/* Set the place of a live chunk that is not fixed and does not move. Nothing moves by that. */
void gm_table_put(struct gm_table *table, uint32_t chunk, bool is_on_host);
/* Whether nothing of it moves, nor is being mapped or unmapped. */
static inline bool gm_chunk_is_still(const struct gm_chunk *chunk)
{
    return chunk->state <= GM_CHUNK_ON_HOST;
}
/* Set what of its memory an app may not have on the GPU. */
void gm_table_set_beyond(struct gm_table *table, uint32_t app, uint64_t bytes);

/* Fix all chunks of an allocation, and their frames, as part of what has the number `share`, which
 * is not 0. All of them are settled. */
void gm_table_fix(struct gm_table *table, uint32_t allocation, uint32_t share);
/* Whether it can be fixed: it is live and whole. */
bool gm_table_can_fix(const struct gm_table *table, uint32_t allocation);

/* The live allocation of `app` that starts at `va`, or GM_NONE. */
uint32_t gm_table_find_allocation(const struct gm_table *table, uint32_t app, uint64_t va);

/*
 * The one setter of a chunk's state. False: the event is not legal in it; on_turn is told, and
 * nothing has changed. It sets the tier and pages that follow, and keeps lists and sums. With the
 * chunk its GPU frame begins to leave (EVICT, FREED) or is used again (UNDO). The caller takes or
 * frees other frames, frees pages, and sets `to_tier` and `to_page` before MOVE.
 */
bool gm_table_turn_chunk(struct gm_table *table, uint32_t chunk, enum gm_chunk_event event);

/*
 * The one setter of shadows. False: the event is not legal; on_turn is told, and nothing has
 * changed. The pages are the caller's to free. What has a shadow is evicted before its app's other
 * chunks, as that costs least. So of programs that take turns the same part goes each time, and
 * host memory holds one copy of that part.
 */
bool gm_table_turn_shadow(struct gm_table *table, uint32_t chunk, enum gm_shadow_event event);

/* The chunk's allocation was freed: the chunk leaves lists and sums. Its shadow was dropped before.
 * Its slot stays until gm_table_end_chunk. */
void gm_table_free_chunk(struct gm_table *table, uint32_t chunk);

/* Nothing refers to the freed chunk any more. True: it was its allocation's last. */
bool gm_table_end_chunk(struct gm_table *table, uint32_t chunk);
void gm_table_end_allocation(struct gm_table *table, uint32_t allocation);

/* A new frame of `pool`, USED without a chunk; GM_NONE: no slot or no room. */
uint32_t gm_table_add_frame(struct gm_table *table, uint32_t pool, unsigned class);
/* The same of the pinned pages that the chunk has, outside the budget. The pages are part of the
 * frame as soon as the chunk takes it: they leave the chunk with it. */
uint32_t gm_table_add_host_frame(struct gm_table *table, uint32_t chunk);
/* Its memory is gone. */
void gm_table_end_frame(struct gm_table *table, uint32_t frame);
/* Into its pool's free list. The fence stays. False, of this and the next two: not legal; on_turn
 * is told, and nothing has changed. */
bool gm_table_free_frame(struct gm_table *table, uint32_t frame);
/* A free frame is clear when copies in up to number `clear` have ended. */
void gm_table_clean_frame(struct gm_table *table, uint32_t frame, uint64_t clear);
/* A free frame is not clear after all. */
void gm_table_soil_frame(struct gm_table *table, uint32_t frame);
/* The chunk of a fixed frame has ended; others still map the frame. It stays USED, without a chunk.
 */
void gm_table_orphan_frame(struct gm_table *table, uint32_t frame);
/* From the free list to `chunk`, which makes it dirty. */
bool gm_table_take_frame(struct gm_table *table, uint32_t frame, uint32_t chunk);
/* It is nobody's any more, and ends when nothing reaches it. If `exit_of` is an app, it waits for
 * that app's process. */
bool gm_table_condemn_frame(struct gm_table *table, uint32_t frame, uint32_t exit_of);
/* Condemned frames wait for this app's process no more. */
void gm_table_release_frames(struct gm_table *table, uint32_t app);
/* A condemned frame waits for so many more answers to DROP, so many of them of apps that are
 * silent; or for fewer. */
void gm_table_count_drops(struct gm_table *table, uint32_t frame, int drops, int silent);
/* The handle of a condemned frame is destroyed, and the driver keeps the memory. */
void gm_table_destroy_frame(struct gm_table *table, uint32_t frame);

/* NULL if every invariant holds, else the name of the first that does not. For tests and debug. */
const char *gm_table_check(const struct gm_table *table);

#endif
