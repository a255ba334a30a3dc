/* clang-format off */
/*
 * The ledger: the durable facts of a table, in memory that outlives the process (a memfd). A new
 * daemon makes its table of them. Pure: the caller gives the memory. Written by the table's
 * setters alone; read by table_adopt.c, from a copy, as it may be an attack.
 *
 * Durable is what cannot be derived: apps and their users, allocations, where the data of each chunk
 * is, which frames exist and whose they are, and who may still have an import of one. What is
 * under way is not: until a move has ended the data is where it was.
 *
 * The one exception is a chunk that is copied out of its frame. The frame is used again before the
 * copy has ended: a copy in waits for it on the GPU. So the place of such a chunk is OUT: in the
 * frame while the copies out that have ended are fewer than `number`, else at the page. `out` counts
 * them: the GPU writes it, behind each copy and before what waits for that.
 *
 * A word is 64 bits: 56 of data, 8 of check over the data, the kind of the record and its slot. One
 * aligned store writes it, so a death in the middle leaves the old word or the new one. A record
 * of several words counts as soon as its last word says so, and no more before any other changes.
 * The order is: copy, commit, free. What a place names holds the data and nobody writes it, at each
 * store (checked in tests/sim/engine/ledger.c).
 *
 *   page 0     struct gm_ledger_head
 *   page 1     `out`, alone: the GPU writes there
 *   then, by slots of the table
 *   app        {uid, live}
 *   allocation {va} {bytes} {app, live, is freed} {share} {nonce} {nonce}: shared once `share` counts
 *   chunk      {allocation, ordinal in it} {place} {page} {number}: the last two for OUT alone
 *   frame      {class, share, flags, mapper, live} {page} {uid}: the first one counts
 *   imports    a bit an app and frame
 *
 *   chains     of the pages of each tier below the GPU: memory/pages writes them. 32 bits a page:
 *              the next one of its copy. They say something only for pages that a place names, or
 *              the chain of which leads there: a page is in no copy before its chain is written.
 */
/* clang-format on */
#ifndef GM_CORE_LEDGER_H
#define GM_CORE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/chunk.h"
#include "daemon/core/model.h"

#define GM_LEDGER_MAGIC 0x7265676465786d67ull /* "gmxdeger" */
#define GM_LEDGER_VERSION 3u
#define GM_LEDGER_PAGE 4096u

/* `out` then: somebody could not count, and no place that is OUT can be told. */
#define GM_LEDGER_UNCOUNTED UINT64_MAX
/* The number of a copy out that has not begun. */
#define GM_LEDGER_NEVER ((1ull << 56) - 1)
/* The most apps. */
#define GM_LEDGER_APPS ((1u << 13) - 1)

/* The sizes are the table's. `made` is written last: without it nothing counts. It is 0
 * again while what the ledger names may be something else (memory/kept.h). */
struct gm_ledger_head {
    uint64_t magic, version;
    uint64_t max_apps, max_chunks, max_frames;
    uint64_t pages[GM_TIERS];
    uint64_t gpu;  /* whose memory it is: of its name */
    uint64_t made; /* GM_LEDGER_MAGIC */
};

enum gm_ledger_kind {
    GM_LEDGER_APP,
    GM_LEDGER_ALLOCATION,
    GM_LEDGER_CHUNK,
    GM_LEDGER_FRAME,
    GM_LEDGER_KINDS
};

/* A ledger in `words`; NULL: there is none, and nothing is written. */
struct gm_ledger {
    uint64_t *words;
    uint32_t max_apps, max_chunks, max_frames;
    uint32_t pages[GM_TIERS]; /* of each tier below the GPU */
    uint64_t gpu;
    /* Tests: before each store. */
    void (*on_store)(void *arg, enum gm_ledger_kind kind, uint32_t slot);
    void *arg;
};

/* Where the data of a chunk is. */
enum gm_ledger_where {
    GM_LEDGER_NOWHERE, /* it reads as zero */
    GM_LEDGER_IN_FRAME,
    GM_LEDGER_OUT, /* of its frame, to pinned pages: see above */
    GM_LEDGER_AT_PAGE,
    GM_LEDGER_WHERES
};
struct gm_ledger_place {
    enum gm_ledger_where where;
    enum gm_tier tier; /* AT_PAGE: of the page; else NONE */
    uint32_t index;    /* IN_FRAME, OUT: the frame; AT_PAGE: the first page */
    uint32_t page;     /* OUT */
    uint64_t number;   /* OUT: of the copy, less than 2^56 */
    bool is_on_host;   /* its program maps it on the host, or is to */
};

struct gm_ledger_allocation {
    uint64_t va, bytes;
    uint32_t app;
    bool is_freed;
    uint32_t share;    /* its number, from 1; 0: it is not shared */
    uint64_t nonce[2]; /* ... and what else its name has: GM_LEDGER_NONCE bits each */
};
#define GM_LEDGER_NONCE ((1ull << 56) - 1)

struct gm_ledger_frame {
    uint32_t share, page, uid;
    uint32_t mapper; /* on the GPU: the app that may have it mapped as its own; GM_NONE: none */
    uint8_t class;
    bool is_host, is_condemned;
};

/* Bytes of a ledger of these sizes (its words are not looked at), whole pages. 0: too large. */
size_t gm_ledger_size(const struct gm_ledger *sizes);
/* Make an empty one of its sizes in zeroed memory, page-aligned. */
void gm_ledger_init(struct gm_ledger *ledger, void *memory);
/* The word without which nothing counts; what it is then is GM_LEDGER_MAGIC. */
uint64_t *gm_ledger_made(const struct gm_ledger *ledger);
/* The word that counts copies out. */
uint64_t *gm_ledger_out(const struct gm_ledger *ledger);
/* The chains of a tier. */
uint32_t *gm_ledger_chains(const struct gm_ledger *ledger, enum gm_tier tier);

/* ---- the table's setters ---- */

void gm_ledger_set_app(const struct gm_ledger *ledger, uint32_t app, uint32_t uid);
void gm_ledger_end_app(const struct gm_ledger *ledger, uint32_t app);
/* What it is made of, before its chunks; then that it is there, or freed. */
void gm_ledger_begin_allocation(const struct gm_ledger *ledger, uint32_t allocation, uint64_t va,
                                uint64_t bytes);
void gm_ledger_commit_allocation(const struct gm_ledger *ledger, uint32_t allocation, uint32_t app,
                                 bool is_freed);
/* It is shared, by this name: all of its frames say so already. */
void gm_ledger_share_allocation(const struct gm_ledger *ledger, uint32_t allocation, uint32_t share,
                                const uint64_t nonce[2]);
void gm_ledger_end_allocation(const struct gm_ledger *ledger, uint32_t allocation);
/* A new chunk, which is nowhere. */
void gm_ledger_add_chunk(const struct gm_ledger *ledger, uint32_t chunk, uint32_t allocation,
                         uint32_t ordinal);
void gm_ledger_end_chunk(const struct gm_ledger *ledger, uint32_t chunk);
void gm_ledger_set_place(const struct gm_ledger *ledger, uint32_t chunk,
                         const struct gm_ledger_place *place);
/* Its program maps it on the host, or is to; or not. Its place stays. */
void gm_ledger_put(const struct gm_ledger *ledger, uint32_t chunk, bool is_on_host);
void gm_ledger_set_frame(const struct gm_ledger *ledger, uint32_t frame,
                         const struct gm_ledger_frame *is);
void gm_ledger_end_frame(const struct gm_ledger *ledger, uint32_t frame);
void gm_ledger_set_import(const struct gm_ledger *ledger, uint32_t app, uint32_t frame,
                          bool has_import);

/* ---- reading ---- */

enum gm_ledger_outcome {
    GM_LEDGER_NONE, /* there is no such record */
    GM_LEDGER_IS,
    GM_LEDGER_BROKEN, /* a word is not as it was written, or cannot mean anything */
};

/* What is wrong with the head of a ledger of `bytes`: one line; NULL: nothing, and *ledger is made
 * of it, for reading. It is at most as large as `most`. */
const char *gm_ledger_open(struct gm_ledger *ledger, void *memory, size_t bytes,
                           const struct gm_ledger *most);
enum gm_ledger_outcome gm_ledger_app(const struct gm_ledger *ledger, uint32_t app, uint32_t *uid);
enum gm_ledger_outcome gm_ledger_allocation(const struct gm_ledger *ledger, uint32_t allocation,
                                            struct gm_ledger_allocation *is);
/* `ordinal`: which chunk of the allocation it is, from 0. */
enum gm_ledger_outcome gm_ledger_chunk(const struct gm_ledger *ledger, uint32_t chunk,
                                       uint32_t *allocation, uint32_t *ordinal,
                                       struct gm_ledger_place *place);
enum gm_ledger_outcome gm_ledger_frame(const struct gm_ledger *ledger, uint32_t frame,
                                       struct gm_ledger_frame *is);
bool gm_ledger_has_import(const struct gm_ledger *ledger, uint32_t app, uint32_t frame);
/* Where the data is, now that `ended` copies out have ended: OUT, if its own has not. */
struct gm_ledger_place gm_ledger_resolve(struct gm_ledger_place place, uint64_t ended);

#endif
