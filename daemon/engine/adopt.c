/*
 * A new daemon takes a GPU's memory over. What the daemon before left is held by the keeper
 * (memory/kept.h): the ledger (core/ledger.h), which says where all data is, and the descriptors of
 * that memory. All of it is an attack until checked: the ledger is copied first, as somebody else
 * may write it, and one thing in it that cannot be refuses the whole. Nothing is guessed.
 *
 *   the table     from the ledger (core/table_adopt.h); all apps are lost, until they come back
 *   frames        those on the GPU are imported; one that was being made or destroyed when the
 *                 daemon died is in the ledger and not held: it is not there, and nobody's data is
 *   pinned        pieces are imported, then each copy takes its pages as the chains lie there
 *   paged, disk   the tiers have the old memory and file; likewise
 *   shares        by their names; who has them open is known when programs come back
 *
 * The new ledger is written whole before the old one is dropped (act/ledger.c): a death in between
 * finds one of them. Owns nothing. Called by open.c.
 */
#include "daemon/engine/adopt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/core/table_adopt.h"
#include "daemon/core/table_check.h"
#include "daemon/engine/act/ledger.h"
#include "daemon/engine/step/shares.h"
#include "daemon/memory/hostpool.h"
#include "daemon/memory/kept.h"
#include "daemon/memory/stores.h"

/* The ledger is not to blame: what it names stays with the keeper, for another start. */
static const char *not_now(struct gm_old *old, const char *why)
{
    old->is_sound = true;
    return why;
}

/* ---- the ledger ---- */

/* The newest: a new one is put when it is whole, and the one before it goes after that. */
static int claim_newest(const struct gm_engine_config *config, uint64_t *generation)
{
    int newest = -1;
    for (uint32_t slot = 0; slot < 2; slot++) {
        uint64_t id;
        const int fd = gm_kept_claim(config->kept, GM_KEPT_LEDGER, config->index, slot, &id);
        if (fd < 0)
            continue;
        if (newest >= 0 && id < *generation) {
            close(fd);
            continue;
        }
        if (newest >= 0)
            close(newest);
        newest = fd;
        *generation = id;
    }
    return newest;
}

/* Read it as it is now: whoever has it may write it, or cut it off. */
static const char *copy_ledger(struct gm_old *old, int fd, size_t *bytes)
{
    struct stat is;
    if (fstat(fd, &is) != 0)
        return not_now(old, "the ledger cannot be read");
    if (is.st_size <= 0)
        return "the ledger is empty";
    *bytes = (size_t)is.st_size;
    old->copy = malloc(*bytes);
    if (!old->copy)
        return not_now(old, "there is no memory for the ledger");
    for (size_t at = 0; at < *bytes;) {
        const ssize_t n = pread(fd, (char *)old->copy + at, *bytes - at, (off_t)at);
        if (n == 0)
            return "the ledger is cut off";
        if (n < 0)
            return not_now(old, "the ledger cannot be read");
        at += (size_t)n;
    }
    return NULL;
}

const char *gm_old_find(struct gm_old *old, const struct gm_engine_config *config)
{
    struct gm_ledger most = {
        .max_apps = GM_LEDGER_APPS, .max_chunks = GM_NONE - 1, .max_frames = GM_NONE - 1};
    size_t bytes = 0;
    *old = (struct gm_old){.copy = NULL};
    const int fd = claim_newest(config, &old->generation);
    if (fd < 0)
        return NULL;
    for (unsigned tier = 0; tier < GM_TIERS; tier++)
        most.pages[tier] = GM_NONE - 1;
    const char *wrong = copy_ledger(old, fd, &bytes);
    close(fd);
    if (!wrong)
        wrong = gm_ledger_open(&old->ledger, old->copy, bytes, &most);
    if (!wrong && old->ledger.max_apps > config->max_apps)
        wrong = not_now(old, "--max-apps is lower than it was");
    if (wrong) {
        gm_old_close(old);
        return wrong;
    }
    old->ended = *gm_ledger_out(&old->ledger);
    for (uint32_t i = 0; i < old->ledger.max_frames; i++) {
        struct gm_ledger_frame frame;
        if (gm_ledger_frame(&old->ledger, i, &frame) == GM_LEDGER_IS && !frame.is_host)
            old->on_gpu += gm_class_bytes(frame.class);
    }
    return NULL;
}

void gm_old_close(struct gm_old *old)
{
    free(old->copy);
    *old = (struct gm_old){.is_sound = old->is_sound};
}

void gm_old_drop(const struct gm_engine_config *config)
{
    static const enum gm_kept_kind kinds[] = {GM_KEPT_LEDGER, GM_KEPT_FRAME, GM_KEPT_PIECE,
                                              GM_KEPT_PAGED, GM_KEPT_DISK};
    for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (uint32_t slot = gm_kept_next(config->kept, kinds[k], config->index, GM_NONE);
             slot != GM_NONE; slot = gm_kept_next(config->kept, kinds[k], config->index, slot)) {
            uint64_t id;
            const int fd = gm_kept_claim(config->kept, kinds[k], config->index, slot, &id);
            gm_kept_drop(config->kept, kinds[k], config->index, slot);
            if (fd >= 0)
                close(fd);
        }
    for (uint32_t slot = 0; slot < 2; slot++) /* those that were claimed */
        gm_kept_drop(config->kept, GM_KEPT_LEDGER, config->index, slot);
    gm_kept_drop(config->kept, GM_KEPT_PAGED, config->index, 0);
    gm_kept_drop(config->kept, GM_KEPT_DISK, config->index, 0);
}

/* ---- the table ---- */

static const char *adopt_table(struct gm_old *old, struct gm_engine *engine,
                               struct gm_adoption *adoption)
{
    *adoption = (struct gm_adoption){.from = &old->ledger,
                                     .ended = old->ended,
                                     .pages = gm_hostpool_pages(&engine->pool),
                                     .kind = GM_LEDGER_KINDS};
    adoption->scratch = calloc(gm_adoption_words(old->ledger.max_chunks, adoption->pages),
                               sizeof *adoption->scratch);
    if (!adoption->scratch)
        return not_now(old, "there is no memory for it");
    const char *wrong = gm_table_adopt(engine->table, adoption);
    free(adoption->scratch);
    return wrong;
}

/* ---- memory ---- */

static const char *fault(struct gm_adoption *at, enum gm_ledger_kind kind, uint32_t slot,
                         const char *what)
{
    at->kind = kind;
    at->slot = slot;
    return what;
}

/* Frames on the GPU. */
static const char *import_frames(struct gm_old *old, struct gm_engine *engine,
                                 struct gm_adoption *at)
{
    struct gm_table *table = engine->table;
    for (uint32_t i = 0; i < table->max_frames; i++) {
        const struct gm_frame *frame = &table->frames[i];
        uint64_t id = 0;
        if (frame->state == GM_FRAME_UNUSED || frame->is_host)
            continue;
        const int fd =
            gm_kept_claim(engine->config.kept, GM_KEPT_FRAME, engine->config.index, i, &id);
        if (fd >= 0) {
            if (id > UINT32_MAX) {
                gm_kept_drop(engine->config.kept, GM_KEPT_FRAME, engine->config.index, i);
                close(fd);
                return fault(at, GM_LEDGER_FRAME, i, "a frame has no name");
            }
            if (gm_frames_import(&engine->frames, i, gm_class_bytes(frame->class), fd,
                                 (uint32_t)id) != CUDA_SUCCESS)
                return not_now(
                    old, fault(at, GM_LEDGER_FRAME, i, "the memory of a frame cannot be had"));
            continue;
        }
        if (frame->chunk != GM_NONE || frame->share != 0)
            return fault(at, GM_LEDGER_FRAME, i, "a frame with data is not held");
        if (frame->state == GM_FRAME_FREE)
            gm_table_condemn_frame(table, i, GM_NONE);
        gm_table_end_frame(table, i);
    }
    return NULL;
}

/* By page: whose chunk or host frame begins there; GM_NONE: nobody's. */
static uint32_t *list_owners(const struct gm_engine *engine)
{
    const struct gm_table *table = engine->table;
    const uint32_t n = gm_hostpool_pages(&engine->pool);
    uint32_t *owners = malloc(((size_t)n + 1) * sizeof *owners);
    for (uint32_t i = 0; i < n && owners; i++)
        owners[i] = GM_NONE;
    for (uint32_t i = 0; i < table->max_chunks && owners; i++) {
        const struct gm_chunk *chunk = &table->chunks[i];
        if (chunk->state != GM_CHUNK_UNUSED && chunk->tier <= GM_TIER_PINNED && chunk->page < n)
            owners[chunk->page] = table->pools[table->apps[chunk->app].pool].uid;
    }
    for (uint32_t i = 0; i < table->max_frames && owners; i++)
        if (table->frames[i].state != GM_FRAME_UNUSED && table->frames[i].is_host)
            owners[table->frames[i].page] = table->pools[table->frames[i].pool].uid;
    return owners;
}

/* Pinned memory. */
static const char *import_pieces(struct gm_old *old, struct gm_engine *engine)
{
    struct gm_kept *kept = engine->config.kept;
    const uint32_t index = engine->config.index;
    uint32_t *owners = list_owners(engine);
    int error = 0;
    if (!owners)
        return not_now(old, "there is no memory for it");
    for (uint32_t page = gm_kept_next(kept, GM_KEPT_PIECE, index, GM_NONE);
         page != GM_NONE && error != -EIO; page = gm_kept_next(kept, GM_KEPT_PIECE, index, page)) {
        uint64_t id = 0;
        const int fd = gm_kept_claim(kept, GM_KEPT_PIECE, index, page, &id);
        error = fd >= 0 ? gm_hostpool_adopt(
                              &engine->pool, page, fd, id <= UINT32_MAX ? (uint32_t)id : 0,
                              page < gm_hostpool_pages(&engine->pool) ? owners[page] : GM_NONE)
                        : -EIO;
    }
    free(owners);
    return error == -EIO ? not_now(old, "pinned memory cannot be had") : NULL;
}

/* The pages of each copy below the GPU, and of each that is on its way there. */
static const char *adopt_pages(struct gm_engine *engine, struct gm_adoption *at)
{
    const struct gm_table *table = engine->table;
    for (uint32_t i = 0; i < table->max_chunks; i++) {
        const struct gm_chunk *chunk = &table->chunks[i];
        if (chunk->state == GM_CHUNK_UNUSED || chunk->page == GM_NONE)
            continue;
        const enum gm_tier tier =
            chunk->state == GM_CHUNK_LEAVING ? GM_TIER_PINNED : (enum gm_tier)chunk->tier;
        if (!gm_stores_adopt(engine->stores, tier, chunk->page, gm_chunk_bytes(chunk)))
            return fault(at, GM_LEDGER_CHUNK, i, "the pages of a copy are not its own");
    }
    return NULL;
}

/* Host frames, whose memory is pinned memory's. */
static const char *export_frames(struct gm_old *old, struct gm_engine *engine,
                                 struct gm_adoption *at)
{
    struct gm_table *table = engine->table;
    for (uint32_t i = 0; i < table->max_frames; i++) {
        const struct gm_frame *frame = &table->frames[i];
        if (frame->state == GM_FRAME_UNUSED || !frame->is_host)
            continue;
        /* Its pages end with it: without a chunk nobody else has them. */
        const bool is_there =
            frame->chunk != GM_NONE || gm_stores_adopt(engine->stores, GM_TIER_PINNED, frame->page,
                                                       gm_class_bytes(frame->class));
        if (is_there && gm_frames_adopt_again(&engine->frames, i, &engine->pool, frame->page,
                                              table->pools[frame->pool].uid) == CUDA_SUCCESS)
            continue;
        if (is_there)
            return not_now(
                old, fault(at, GM_LEDGER_FRAME, i, "the memory of a host frame cannot be had"));
        if (frame->share != 0)
            return fault(at, GM_LEDGER_FRAME, i, "a host frame with data is not held");
        gm_table_end_frame(table, i);
    }
    return NULL;
}

static const char *adopt_shares(struct gm_old *old, struct gm_engine *engine)
{
    struct gm_ledger_allocation is;
    int error = 0;
    for (uint32_t at = 0; at < old->ledger.max_chunks && error == 0; at++)
        if (engine->table->allocations[at].chunks > 0 &&
            gm_ledger_allocation(&old->ledger, at, &is) == GM_LEDGER_IS && is.share != 0)
            error = gm_engine_adopt_share(engine, at, &is);
    if (error == 0)
        error = gm_engine_adopt_orphans(engine);
    return error ? not_now(old, "there is no memory for what is shared") : NULL;
}

/* What is condemned waits for all that have it: they are asked as soon as they are back. */
static void owe_drops(struct gm_table *table)
{
    for (uint32_t i = table->first_condemned; i != GM_NONE; i = table->frames[i].next)
        for (uint32_t app = 0; app < table->max_apps; app++)
            gm_table_drop(table, i, app);
}

/* ---- the whole ---- */

/* False: a tier is smaller than it was. */
static bool copy_chains(const struct gm_old *old, const struct gm_ledger *ledger)
{
    for (unsigned tier = GM_TIER_PINNED; tier <= GM_TIER_DISK; tier++)
        if (ledger->pages[tier] < old->ledger.pages[tier])
            return false;
    for (unsigned tier = GM_TIER_PINNED; tier <= GM_TIER_DISK; tier++)
        memcpy(gm_ledger_chains(ledger, (enum gm_tier)tier),
               gm_ledger_chains(&old->ledger, (enum gm_tier)tier),
               old->ledger.pages[tier] * sizeof(uint32_t));
    return true;
}

const char *gm_old_adopt(struct gm_old *old, struct gm_engine *engine, char *text, size_t size)
{
    static const char *const kinds[] = {"app", "allocation", "chunk", "frame"};
    struct gm_adoption at = {.kind = GM_LEDGER_KINDS};
    if (old->ledger.gpu != gm_engine_gpu_number(engine))
        snprintf(text, size, "%s", not_now(old, "it was another GPU: choose with --gpu as before"));
    else if (!engine->ledger.memory)
        snprintf(text, size, "%s", not_now(old, "the GPU cannot reach a ledger"));
    else if (!copy_chains(old, &engine->ledger.is))
        snprintf(text, size, "%s", not_now(old, "a tier is smaller than it was"));
    if (old->is_sound)
        return text;
    const char *wrong = adopt_table(old, engine, &at);
    if (!wrong)
        wrong = import_frames(old, engine, &at);
    if (!wrong)
        wrong = import_pieces(old, engine);
    if (!wrong)
        wrong = adopt_pages(engine, &at);
    if (!wrong)
        wrong = export_frames(old, engine, &at);
    if (!wrong)
        wrong = adopt_shares(old, engine);
    if (!wrong) {
        owe_drops(engine->table);
        wrong = gm_table_check(engine->table);
    }
    if (!wrong)
        return NULL;
    if (at.kind < GM_LEDGER_KINDS)
        snprintf(text, size, "%s (%s %u)", wrong, kinds[at.kind], at.slot);
    else
        snprintf(text, size, "%s", wrong);
    return text;
}
