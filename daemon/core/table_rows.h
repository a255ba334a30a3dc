/* What the table knows: see table.h. Nobody writes this but the files table_*.c. */
#ifndef GM_CORE_TABLE_ROWS_H
#define GM_CORE_TABLE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/chunk.h"
#include "daemon/core/ledger.h"
#include "daemon/core/model.h"

/* What a chunk is counted as, and in which list of its app it is. */
enum gm_chunk_list {
    GM_LIST_NONE,     /* on its way in, or freed */
    GM_LIST_RESIDENT, /* by_class */
    GM_LIST_SETTLED,  /* in none: mapped on the host, or fixed */
    GM_LIST_AWAY,     /* away[listed_tier] */
    GM_LIST_TO_MAP,   /* to_map */
};

/* What the check says of a chunk (check.h). */
enum gm_trust {
    GM_TRUST_WINDOWS, /* nothing: it is cold if windows say so */
    GM_TRUST_NEEDED,  /* it is not cold, whatever they say */
    GM_TRUST_TRIED,   /* it is cold, though an address that they saw reaches over it */
};

struct gm_chunk {
    uint64_t va;
    uint64_t hash[2]; /* of its copy below the GPU, or of its shadow, if has_hash */
    uint32_t app;
    uint32_t allocation;
    uint32_t frame;      /* GM_NONE: none */
    uint32_t page;       /* first page of its copy in `tier`'s store, GM_NONE: none */
    uint32_t host_frame; /* ... the host frame that these pages are; GM_NONE: none */
    uint32_t to_page;    /* MOVING: of the copy being made */
    uint32_t sibling;    /* next chunk of the allocation, by address */
    uint32_t next, prev; /* in its app's list for its place */
    uint32_t heat;       /* how much it is used: working.h */
    uint32_t window;     /* its app's window in which it was last touched, or came: working.h */
    uint32_t named;      /* ... in which a place in it was used, or it came */
    uint32_t order;      /* ... and how many places had been touched in it before */
    uint32_t next_shadow, prev_shadow; /* in its app's list */
    uint32_t opens; /* gm_app.gate.opens at which it is still as its shadow; see engine/shadows.c */
    uint8_t shadow; /* enum gm_shadow */
    bool has_hash;
    uint8_t trust;  /* enum gm_trust */
    uint8_t level;  /* how often what it was tried with was halved: check.h */
    bool is_proved; /* it is mapped on the host, and nothing reads it */
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
    bool has_place;    /* a use began in it since it came: working.h */
    uint8_t gap;       /* windows between its last two touches, at most 255; 0: not known */
    bool is_cold;      /* not touched in the last windows: working.h */
    bool is_claimed;   /* touched by addresses before it alone */
    bool is_given_up;  /* a copy or the app failed: it ends where it began */
    bool copy_pending; /* it waits for a copy, or for the fence before it */
    bool map_pending;  /* it waits for the app to map or unmap it */
};

/* What an app is told when nothing is left of an allocation. */
struct gm_last_word {
    enum { GM_LAST_NONE, GM_LAST_FREED, GM_LAST_TAKEN, GM_LAST_FAILED } kind;
    int32_t result;  /* FAILED: why, a CUresult, as the answer to ALLOC */
    uint64_t cookie; /* FREED, FAILED */
};

struct gm_allocation {
    uint64_t va;
    uint64_t bytes;
    uint64_t cookie;      /* of the pending ALLOC */
    uint64_t comes_until; /* to be shared, it comes to the GPU first, until then; 0: it is not */
    uint32_t app;
    uint32_t first;      /* chunk */
    uint32_t chunks;     /* alive */
    uint32_t missing;    /* chunks that are not settled on the GPU */
    uint32_t next, prev; /* in its app's list; next also links the free list */
    uint32_t same;       /* the next whose app and address have the same place in by_va */
    bool is_pending;     /* ALLOC is not answered yet */
    bool is_ahead;       /* ... and nobody waits for the answer */
    bool is_refused;     /* ... which will be that there is no memory for it */
    bool is_freed;       /* it ends with its last chunk */
    struct gm_last_word last;
};

struct gm_frame {
    uint64_t fence; /* copies out up to this sequence number must end before it is written */
    uint64_t clear; /* unless it is dirty, it is clear when copies in up to this one have ended */
    uint32_t chunk;
    uint32_t pool;
    uint32_t next, prev; /* in the list for its state */
    uint32_t page;       /* host frame: its pages, which end with it */
    uint32_t share;      /* it is fixed: the number of what it is part of; 0: it is not */
    uint32_t mapper;     /* on the GPU, not free: who was last told to map it; GM_NONE: nobody */
    uint32_t exit_of;    /* condemned: the app whose process must end first; GM_NONE: none */
    uint32_t drops;      /* ... DROPs that are not answered yet */
    uint32_t silent;     /* ... of those, owed by apps that do not answer */
    uint8_t class;
    uint8_t state;     /* enum gm_frame_state; its one setter: set_frame */
    bool is_host;      /* host memory: not in the budget; its chunk's data is in it as long as it is
                          used, mapped or not */
    bool is_dirty;     /* a chunk had it since it was made or cleared */
    bool is_destroyed; /* condemned: its handle is, and the driver keeps the memory */
    bool is_unsure;    /* condemned: one that it waits for no more may still have it mapped */
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
    bool is_lost;       /* it has yet to come back: what it has mapped is not known */
    uint32_t pool;      /* of its uid */
    uint64_t committed; /* bytes of its live chunks */
    uint64_t most;      /* ... at any time */
    uint64_t on_host;   /* ... of those whose place is on the host */
    uint64_t leaving;   /* ... of those of them that are still on the GPU */
    uint64_t beyond;    /* ... that it may not have on the GPU: the engine's promise to others */
    uint64_t fixed;     /* ... of those on the GPU that are fixed */
    uint64_t held;      /* ... of those on the host that are */
    uint64_t resident;  /* bytes of its settled chunks on the GPU that are not fixed */
    uint64_t cold;      /* ... of those that are cold, wherever they are */
    uint64_t device;    /* bytes of all GPU frames that its chunks have: fixed ones, those in
                           flight and those that were freed, too */
    uint32_t window;    /* its windows that have ended */
    uint32_t chunks;    /* live ones */
    uint32_t missing;   /* ... that are not settled on the GPU */
    uint32_t staying;   /* ... that keep their frames whoever runs: fixed, or placed on the host */
    uint32_t unmaps;    /* chunks that are copied out as soon as it has unmapped them */
    uint64_t unmap_bytes;
    /* Settled on the GPU: what can be evicted. The first leaves first. */
    struct gm_list by_class[GM_CHUNK_CLASSES];
    /* Below the GPU or on the way there, by tier. The first comes back first, and the last goes
     * further down first. */
    struct gm_list away[GM_TIERS];
    uint64_t bytes[GM_TIERS];              /* of the chunks in those lists */
    uint32_t away_count[GM_CHUNK_CLASSES]; /* chunks in those lists, by size */
    struct gm_list to_map; /* to be mapped on the host, and not in flight from the GPU */
    uint64_t to_map_bytes; /* ... of those that are not in pinned memory yet */
    struct gm_list allocations;
    struct gm_list shadows; /* chunks whose shadows are kept, the newest first */
    uint64_t shadow_bytes;
};

struct gm_table {
    /* Told of each change of a state, and of each event that is not legal; NULL: nobody is. */
    void (*on_turn)(void *arg, const struct gm_turn *turn);
    void *on_turn_arg;
    struct gm_ledger ledger;    /* what of it outlives the daemon */
    bool is_plan_stale;         /* what no plan foresees has happened since there is one */
    bool has_settled;           /* a chunk has come to rest since: what every plan foresees */
    uint64_t budget;            /* bytes of frames that may exist */
    uint64_t allocated;         /* bytes of frames that exist */
    uint64_t free;              /* ... of those that are free */
    uint64_t condemned;         /* ... of those that are condemned */
    uint64_t condemned_on_host; /* bytes of condemned frames on the host: their pages are used */
    uint64_t ending; /* ... of those condemned whose end depends on the daemon only: room to come */
    uint64_t fixed;  /* bytes of fixed GPU frames, whose apps may be gone */
    uint64_t orphaned;             /* ... of those that no live chunk has: others have them open */
    uint64_t orphaned_on_host;     /* likewise, of fixed frames on the host */
    uint64_t committed;            /* bytes of all live chunks */
    uint64_t on_host;              /* ... of those whose place is on the host */
    uint64_t beyond;               /* ... the sum of the apps' */
    uint32_t beyond_apps;          /* ... apps that have any */
    uint64_t gives_back[GM_TIERS]; /* bytes that copies under way free in their tier */
    uint64_t shadows;              /* bytes of pinned memory that hold shadows which are kept */
    uint64_t lost;                 /* bytes of shadows that are lost */
    uint32_t dirty;                /* free frames that are */
    uint32_t silent;               /* apps that are */
    uint32_t staying;              /* the sum of the apps' */
    uint32_t unmaps;               /* the sums of the apps' that answer */
    uint64_t unmap_bytes;
    uint32_t max_apps, max_chunks, max_frames;
    uint32_t free_chunk, free_allocation, free_frame; /* heads of unused slots */
    uint32_t first_condemned;                         /* of all users */
    uint32_t used_chunks;
    /* Its own files alone write these: table_write.h. */
    const struct gm_table_app *apps;
    const struct gm_chunk *chunks;
    const struct gm_frame *frames;
    const struct gm_allocation *allocations;
    const struct gm_pool *pools; /* max_apps of them */
    const uint32_t *by_va;       /* max_chunks places: the first allocation of each, or GM_NONE */
    /* By app, a bit a frame: it holds an import of that; and it is asked to drop it. */
    const uint8_t *imports, *drops;
};

/* Bytes of the bits of one app. */
static inline size_t gm_table_row(uint32_t max_frames)
{
    return (max_frames + 7) / 8;
}
static inline bool gm_table_has_import(const struct gm_table *table, uint32_t app, uint32_t frame)
{
    return table->imports[app * gm_table_row(table->max_frames) + frame / 8] >> (frame % 8) & 1;
}

/* An app that does not answer has an import of it, so its memory would not end with it. */
static inline bool gm_table_is_held(const struct gm_table *table, uint32_t frame)
{
    bool is_held = false;
    for (uint32_t app = 0; app < table->max_apps && table->silent > 0 && !is_held; app++)
        is_held = table->apps[app].is_silent && gm_table_has_import(table, app, frame);
    return is_held;
}

/* A frame on the GPU that an app may have mapped which has yet to come back, though what is in it
 * is not what it has there: data of another, nobody's, or a chunk of its own that leaves (it has
 * unmapped that, and may have mapped the frame for its next one). Nobody else gets it before. */
static inline bool gm_table_is_awaited(const struct gm_table *table, uint32_t index)
{
    const struct gm_frame *frame = &table->frames[index];
    const bool is_used = frame->state == GM_FRAME_USED || frame->state == GM_FRAME_LEAVING;
    return is_used && frame->mapper != GM_NONE && table->apps[frame->mapper].is_lost &&
           (frame->chunk == GM_NONE || table->chunks[frame->chunk].app != frame->mapper ||
            table->chunks[frame->chunk].state == GM_CHUNK_LEAVING);
}

static inline bool gm_table_has_drop(const struct gm_table *table, uint32_t app, uint32_t frame)
{
    return table->drops[app * gm_table_row(table->max_frames) + frame / 8] >> (frame % 8) & 1;
}

/* Whether nothing of it moves, nor is being mapped or unmapped. */
static inline bool gm_chunk_is_still(const struct gm_chunk *chunk)
{
    return chunk->state <= GM_CHUNK_ON_HOST;
}

/* Its app can use it: it is on the GPU, or mapped on the host. */
static inline bool gm_chunk_is_settled(const struct gm_chunk *chunk)
{
    return chunk->state == GM_CHUNK_RESIDENT || chunk->state == GM_CHUNK_ON_HOST;
}

/* The tier below the GPU (or none) that a chunk is in or on its way to; GM_TIERS: neither. Planning
 * counts on it there. */
static inline enum gm_tier gm_chunk_away_tier(const struct gm_chunk *chunk)
{
    switch ((enum gm_chunk_state)chunk->state) {
    case GM_CHUNK_AWAY:
        return (enum gm_tier)chunk->tier;
    case GM_CHUNK_LEAVING:
    case GM_CHUNK_UNMAPPING:
        return GM_TIER_PINNED;
    case GM_CHUNK_MOVING:
        return (enum gm_tier)chunk->to_tier;
    default:
        return GM_TIERS;
    }
}

/* Lists lead anywhere in memory: fetch a chunk that is looked at soon into the cache. */
static inline void gm_table_fetch(const struct gm_table *table, uint32_t chunk)
{
    if (chunk != GM_NONE) { /* a chunk can lie in two cache lines */
        __builtin_prefetch(&table->chunks[chunk].frame);
        __builtin_prefetch(&table->chunks[chunk].state);
    }
}

/* The list that it is to be in. */
static inline uint8_t gm_chunk_list_of(const struct gm_chunk *chunk)
{
    if (chunk->is_freed)
        return GM_LIST_NONE;
    if (gm_chunk_is_settled(chunk))
        return chunk->state == GM_CHUNK_RESIDENT && !chunk->is_fixed ? GM_LIST_RESIDENT
                                                                     : GM_LIST_SETTLED;
    if (gm_chunk_away_tier(chunk) == GM_TIERS)
        return GM_LIST_NONE;
    return chunk->is_on_host ? GM_LIST_TO_MAP : GM_LIST_AWAY;
}

/* It can be evicted. */
static inline bool gm_chunk_can_leave(const struct gm_chunk *chunk)
{
    return chunk->state == GM_CHUNK_RESIDENT && !chunk->is_fixed && !chunk->is_freed;
}

/* ... and has pages beside its frame. */
static inline bool gm_chunk_can_have_shadow(const struct gm_chunk *chunk)
{
    return gm_chunk_can_leave(chunk) && chunk->page != GM_NONE;
}

/* It is copied out as soon as its app has unmapped it. */
static inline bool gm_chunk_waits_for_unmap(const struct gm_chunk *chunk)
{
    return chunk->state == GM_CHUNK_LEAVING && chunk->map_pending;
}

/* The tier in which the move that it makes gives its bytes back; GM_TIER_NONE: it gives none. */
static inline enum gm_tier gm_chunk_gives_back(const struct gm_chunk *chunk)
{
    const bool is_moving = chunk->state == GM_CHUNK_MOVING || chunk->state == GM_CHUNK_COMING;
    return is_moving ? (enum gm_tier)chunk->tier : GM_TIER_NONE;
}

/* What of a condemned frame counts as `ending`. */
static inline uint64_t gm_frame_ending(const struct gm_frame *frame)
{
    const bool is_ending = !frame->is_host && frame->state == GM_FRAME_CONDEMNED &&
                           frame->exit_of == GM_NONE && frame->silent == 0;
    return is_ending ? gm_class_bytes(frame->class) : 0;
}

#endif
