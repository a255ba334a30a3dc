/* A table from a ledger: see table_adopt.h. */
#include "daemon/core/table_adopt.h"

#include "daemon/core/table_apps.h"
#include "daemon/core/table_check.h"
#include "daemon/core/table_chunks.h"
#include "daemon/core/table_frames.h"
#include "daemon/core/table_write.h"

/* Scratch: of each allocation where its chunks are in `slots`; the slot of each chunk, by that; of
 * each pinned page the host frame that begins there. */
struct scratch {
    uint32_t *base, *slots, *frame_at;
};

size_t gm_adoption_words(uint32_t max_chunks, uint32_t pages)
{
    return 2 * (size_t)max_chunks + pages;
}

static const char *fault(struct gm_adoption *adoption, enum gm_ledger_kind kind, uint32_t slot,
                         const char *what)
{
    adoption->kind = kind;
    adoption->slot = slot;
    return what;
}

static const char *adopt_apps(struct gm_table *table, struct gm_adoption *adoption)
{
    uint32_t uid;
    for (uint32_t app = 0; app < adoption->from->max_apps; app++) {
        const enum gm_ledger_outcome is = gm_ledger_app(adoption->from, app, &uid);
        if (is == GM_LEDGER_BROKEN)
            return fault(adoption, GM_LEDGER_APP, app, "an app is broken");
        if (is != GM_LEDGER_IS)
            continue;
        if (!gm_table_add_app(table, app, uid))
            return fault(adoption, GM_LEDGER_APP, app, "there are more users than apps");
        gm_table_set_lost(table, app, true);
    }
    return NULL;
}

static const char *adopt_frames(struct gm_table *table, struct gm_adoption *adoption,
                                const struct scratch *scratch)
{
    struct gm_ledger_frame frame;
    for (uint32_t i = 0; i < adoption->from->max_frames; i++) {
        const enum gm_ledger_outcome is = gm_ledger_frame(adoption->from, i, &frame);
        if (is == GM_LEDGER_NONE)
            continue;
        if (is == GM_LEDGER_BROKEN)
            return fault(adoption, GM_LEDGER_FRAME, i, "a frame is broken");
        if (frame.is_host && frame.page >= adoption->pages)
            return fault(adoption, GM_LEDGER_FRAME, i, "a host frame is behind the pinned memory");
        if (frame.is_host && scratch->frame_at[frame.page] != GM_NONE)
            return fault(adoption, GM_LEDGER_FRAME, i, "two host frames have the same pages");
        if (frame.is_condemned && frame.share != 0)
            return fault(adoption, GM_LEDGER_FRAME, i, "a condemned frame is fixed");
        if (!gm_table_adopt_frame(table, i, &frame))
            return fault(adoption, GM_LEDGER_FRAME, i, "there are more users than apps");
        if (frame.is_host)
            scratch->frame_at[frame.page] = i;
    }
    return NULL;
}

/* Those that are there and not freed. */
static enum gm_ledger_outcome find_allocation(const struct gm_table *table,
                                              const struct gm_ledger *from, uint32_t at,
                                              struct gm_ledger_allocation *is)
{
    const enum gm_ledger_outcome found = gm_ledger_allocation(from, at, is);
    if (found != GM_LEDGER_IS || !is->is_freed)
        return found == GM_LEDGER_IS && !table->apps[is->app].is_used ? GM_LEDGER_BROKEN : found;
    return GM_LEDGER_NONE;
}

/* Which part of `slots` is whose. */
static const char *find_bases(const struct gm_table *table, struct gm_adoption *adoption,
                              const struct scratch *scratch)
{
    struct gm_ledger_allocation is;
    uint64_t next = 0;
    for (uint32_t at = 0; at < adoption->from->max_chunks; at++) {
        const enum gm_ledger_outcome found = find_allocation(table, adoption->from, at, &is);
        scratch->base[at] = GM_NONE;
        if (found == GM_LEDGER_BROKEN)
            return fault(adoption, GM_LEDGER_ALLOCATION, at, "an allocation is broken");
        if (found == GM_LEDGER_NONE)
            continue;
        scratch->base[at] = (uint32_t)next;
        next += gm_chunk_count(is.bytes);
        if (next > adoption->from->max_chunks)
            return fault(adoption, GM_LEDGER_ALLOCATION, at,
                         "the allocations have too many chunks");
    }
    return NULL;
}

static const char *find_slots(struct gm_adoption *adoption, const struct scratch *scratch)
{
    struct gm_ledger_place place;
    struct gm_ledger_allocation is = {.bytes = 0};
    uint32_t allocation, ordinal;
    for (uint32_t i = 0; i < adoption->from->max_chunks; i++) {
        const enum gm_ledger_outcome found =
            gm_ledger_chunk(adoption->from, i, &allocation, &ordinal, &place);
        if (found == GM_LEDGER_BROKEN)
            return fault(adoption, GM_LEDGER_CHUNK, i, "a chunk is broken");
        if (found == GM_LEDGER_NONE || scratch->base[allocation] == GM_NONE)
            continue; /* of one that was being made, or freed */
        gm_ledger_allocation(adoption->from, allocation, &is);
        if (ordinal >= gm_chunk_count(is.bytes))
            return fault(adoption, GM_LEDGER_CHUNK, i, "a chunk is behind its allocation");
        uint32_t *slot = &scratch->slots[scratch->base[allocation] + ordinal];
        if (*slot != GM_NONE)
            return fault(adoption, GM_LEDGER_CHUNK, i, "two chunks are the same");
        *slot = i;
    }
    return NULL;
}

/* The slots that the next ones take are those of the ledger. */
static const char *adopt_allocations(struct gm_table *table, struct gm_adoption *adoption,
                                     const struct scratch *scratch)
{
    struct gm_ledger_allocation is = {.bytes = 0};
    for (uint32_t at = 0; at < adoption->from->max_chunks; at++) {
        if (scratch->base[at] == GM_NONE)
            continue;
        gm_ledger_allocation(adoption->from, at, &is);
        const uint32_t *slots = &scratch->slots[scratch->base[at]];
        const uint32_t n = (uint32_t)gm_chunk_count(is.bytes);
        for (uint32_t i = 0; i < n; i++) {
            if (slots[i] == GM_NONE)
                return fault(adoption, GM_LEDGER_ALLOCATION, at, "an allocation lacks a chunk");
            gm_chunk_at(table, slots[i])->next = i + 1 < n ? slots[i + 1] : GM_NONE;
        }
        table->free_chunk = slots[0];
        table->free_allocation = at;
        gm_table_add_allocation(table, is.app, is.va, is.bytes);
    }
    return NULL;
}

/* A frame that serves the chunk, and nobody yet. */
static bool can_have(const struct gm_table *table, uint32_t chunk, uint32_t index, bool is_host)
{
    const struct gm_frame *frame = &table->frames[index];
    return frame->state == GM_FRAME_USED && frame->chunk == GM_NONE && frame->is_host == is_host &&
           frame->class == table->chunks[chunk].class &&
           frame->pool == table->apps[table->chunks[chunk].app].pool;
}

static void end_map(struct gm_table *table, uint32_t chunk)
{
    gm_table_end_map(table, chunk, false);
    gm_table_settle(table, chunk);
}

static const char *place_in_frame(struct gm_table *table, uint32_t chunk, uint32_t frame)
{
    const uint32_t mapper = table->frames[frame].mapper;
    if (!can_have(table, chunk, frame, false) ||
        (mapper != GM_NONE && mapper != table->chunks[chunk].app))
        return "a chunk is in a frame that it cannot have";
    gm_table_fill(table, chunk, frame);
    end_map(table, chunk);
    return NULL;
}

/* Its copy out did not end. Its app has unmapped it, and may have mapped the frame for another
 * chunk since, as any app may: who has it is as the ledger says. */
static const char *place_leaving(struct gm_table *table, const struct gm_adoption *adoption,
                                 uint32_t chunk, const struct gm_ledger_place *place)
{
    const uint32_t mapper = table->frames[place->index].mapper;
    if (place->page >= adoption->pages)
        return "a chunk leaves for what is behind the pinned memory";
    if (!can_have(table, chunk, place->index, false))
        return "a chunk leaves a frame that it cannot have";
    gm_table_fill(table, chunk, place->index);
    end_map(table, chunk);
    gm_table_evict(table, chunk, place->page);
    gm_table_end_map(table, chunk, false);
    gm_frame_at(table, place->index)->mapper = mapper;
    return NULL;
}

static const char *place_at_page(struct gm_table *table, const struct gm_adoption *adoption,
                                 const struct scratch *scratch, uint32_t chunk,
                                 const struct gm_ledger_place *place)
{
    const bool is_pinned = place->tier == GM_TIER_PINNED;
    if (is_pinned && place->index >= adoption->pages)
        return "a chunk is behind the pinned memory";
    gm_table_move(table, chunk, place->tier, place->index);
    gm_table_end_copy(table, chunk, false);
    gm_table_settle(table, chunk);
    const uint32_t frame = is_pinned ? scratch->frame_at[place->index] : GM_NONE;
    if (frame == GM_NONE)
        return NULL;
    if (!can_have(table, chunk, frame, true))
        return "a chunk is in a host frame that it cannot have";
    gm_table_map(table, chunk, frame);
    end_map(table, chunk);
    return NULL;
}

/* What the chunk's frame says of it. One that is condemned is not, as there is still data in it. */
static const char *fix(struct gm_table *table, const struct gm_adoption *adoption, uint32_t chunk)
{
    const uint32_t index = table->chunks[chunk].frame;
    struct gm_ledger_frame frame = {.share = 0};
    struct gm_ledger_allocation allocation = {.share = 0};
    if (index != GM_NONE)
        gm_ledger_frame(adoption->from, index, &frame);
    gm_ledger_allocation(adoption->from, table->chunks[chunk].allocation, &allocation);
    if (allocation.share != 0 && frame.share != allocation.share)
        return "a shared chunk is in a frame that is not";
    /* Frames alone: it was being shared, and its program asks again. */
    if (allocation.share != 0 && gm_chunk_is_settled(&table->chunks[chunk])) {
        gm_table_fix_chunk(table, chunk, frame.share);
    } else if (table->chunks[chunk].state == GM_CHUNK_ON_HOST &&
               !gm_ledger_has_import(adoption->from, table->chunks[chunk].app, index)) {
        gm_table_unmap(table, chunk);
        end_map(table, chunk);
    }
    return NULL;
}

static const char *adopt_places(struct gm_table *table, struct gm_adoption *adoption,
                                const struct scratch *scratch)
{
    struct gm_ledger_place place;
    uint32_t allocation, ordinal;
    for (uint32_t i = 0; i < adoption->from->max_chunks; i++) {
        const char *wrong = NULL;
        if (table->chunks[i].state == GM_CHUNK_UNUSED)
            continue;
        gm_ledger_chunk(adoption->from, i, &allocation, &ordinal, &place);
        place = gm_ledger_resolve(place, adoption->ended);
        gm_table_put(table, i, place.is_on_host);
        if (place.where == GM_LEDGER_IN_FRAME)
            wrong = place_in_frame(table, i, place.index);
        else if (place.where == GM_LEDGER_OUT)
            wrong = place_leaving(table, adoption, i, &place);
        else if (place.where == GM_LEDGER_AT_PAGE)
            wrong = place_at_page(table, adoption, scratch, i, &place);
        if (!wrong)
            wrong = fix(table, adoption, i);
        if (wrong)
            return fault(adoption, GM_LEDGER_CHUNK, i, wrong);
    }
    return NULL;
}

/* Frames in which no chunk is. */
static void adopt_rest(struct gm_table *table, const struct gm_adoption *adoption)
{
    struct gm_ledger_frame is = {.share = 0};
    for (uint32_t i = 0; i < adoption->from->max_frames; i++) {
        if (table->frames[i].state != GM_FRAME_USED || table->frames[i].chunk != GM_NONE)
            continue;
        gm_ledger_frame(adoption->from, i, &is);
        if (is.share != 0) {
            gm_table_fix_frame(table, i, is.share);
        } else if (is.is_condemned || is.is_host) {
            gm_table_condemn_frame(table, i, GM_NONE);
        } else if (!gm_table_is_awaited(table, i)) {
            gm_table_free_frame(table, i);
            gm_table_soil_frame(table, i);
        }
    }
}

static void adopt_imports(struct gm_table *table, const struct gm_adoption *adoption)
{
    for (uint32_t app = 0; app < adoption->from->max_apps; app++)
        for (uint32_t i = 0; table->apps[app].is_used && i < adoption->from->max_frames; i++)
            if (table->frames[i].state != GM_FRAME_UNUSED &&
                gm_ledger_has_import(adoption->from, app, i))
                gm_table_import(table, i, app);
}

/* The slots that are left, the lowest first. */
static void list_unused(struct gm_table *table)
{
    table->free_chunk = table->free_allocation = table->free_frame = GM_NONE;
    for (uint32_t i = table->max_chunks; i-- > 0;) {
        if (table->chunks[i].state == GM_CHUNK_UNUSED) {
            gm_chunk_at(table, i)->next = table->free_chunk;
            table->free_chunk = i;
        }
        if (table->allocations[i].chunks == 0) {
            gm_allocation_at(table, i)->next = table->free_allocation;
            table->free_allocation = i;
        }
    }
    for (uint32_t i = table->max_frames; i-- > 0;)
        if (table->frames[i].state == GM_FRAME_UNUSED) {
            gm_frame_at(table, i)->next = table->free_frame;
            table->free_frame = i;
        }
}

const char *gm_table_adopt(struct gm_table *table, struct gm_adoption *adoption)
{
    const uint32_t max_chunks = adoption->from->max_chunks;
    const struct scratch scratch = {.base = adoption->scratch,
                                    .slots = adoption->scratch + max_chunks,
                                    .frame_at = adoption->scratch + 2 * (size_t)max_chunks};
    for (size_t i = 0; i < gm_adoption_words(max_chunks, adoption->pages); i++)
        adoption->scratch[i] = GM_NONE;
    const char *wrong = adopt_apps(table, adoption);
    if (!wrong)
        wrong = adopt_frames(table, adoption, &scratch);
    if (!wrong)
        wrong = find_bases(table, adoption, &scratch);
    if (!wrong)
        wrong = find_slots(adoption, &scratch);
    if (!wrong)
        wrong = adopt_allocations(table, adoption, &scratch);
    if (!wrong)
        wrong = adopt_places(table, adoption, &scratch);
    if (wrong)
        return wrong;
    adopt_rest(table, adoption);
    adopt_imports(table, adoption);
    list_unused(table);
    return gm_table_check(table);
}

/* ---- into a new ledger ---- */

static void commit_allocation(const struct gm_table *table, uint32_t at)
{
    const struct gm_allocation *allocation = &table->allocations[at];
    uint32_t ordinal = 0;
    gm_ledger_begin_allocation(&table->ledger, at, allocation->va, allocation->bytes);
    for (uint32_t c = allocation->first; c != GM_NONE; c = table->chunks[c].sibling) {
        gm_ledger_add_chunk(&table->ledger, c, at, ordinal++);
        gm_table_commit_place(table, c);
    }
    gm_ledger_commit_allocation(&table->ledger, at, allocation->app, false);
}

void gm_table_commit_all(const struct gm_table *table)
{
    for (uint32_t app = 0; app < table->max_apps; app++)
        if (table->apps[app].is_used)
            gm_ledger_set_app(&table->ledger, app, table->pools[table->apps[app].pool].uid);
    for (uint32_t i = 0; i < table->max_frames; i++) {
        if (table->frames[i].state == GM_FRAME_UNUSED)
            continue;
        gm_table_commit_frame(table, i);
        for (uint32_t app = 0; app < table->max_apps; app++)
            if (table->apps[app].is_used && gm_table_has_import(table, app, i))
                gm_ledger_set_import(&table->ledger, app, i, true);
    }
    for (uint32_t at = 0; at < table->max_chunks; at++)
        if (table->allocations[at].chunks > 0)
            commit_allocation(table, at);
}

/* ---- the same in all that is durable ---- */

static bool is_same_chunk(const struct gm_table *table, const struct gm_table *other, uint32_t i)
{
    const struct gm_chunk *a = &table->chunks[i], *b = &other->chunks[i];
    if (a->va != b->va || a->app != b->app || a->allocation != b->allocation ||
        a->class != b->class || a->is_on_host != b->is_on_host || a->is_fixed != b->is_fixed ||
        a->host_frame != b->host_frame)
        return false;
    if (a->state == GM_CHUNK_LEAVING && a->frame == GM_NONE) /* as far as the copy out is */
        return b->tier == GM_TIER_GPU || (b->tier == GM_TIER_PINNED && b->page == a->page);
    const bool is_paged = a->tier > GM_TIER_GPU;
    return a->tier == b->tier && (a->tier != GM_TIER_GPU || a->frame == b->frame) &&
           (!is_paged || a->page == b->page);
}

static bool is_same_frame(const struct gm_table *table, const struct gm_table *other, uint32_t i)
{
    const struct gm_frame *a = &table->frames[i], *b = &other->frames[i];
    const bool is_there = a->state != GM_FRAME_UNUSED && !a->is_destroyed;
    if (!is_there || b->state == GM_FRAME_UNUSED)
        return is_there == (b->state != GM_FRAME_UNUSED);
    if (a->class != b->class || a->is_host != b->is_host || a->share != b->share ||
        a->page != b->page || table->pools[a->pool].uid != other->pools[b->pool].uid)
        return false;
    for (uint32_t app = 0; app < table->max_apps; app++)
        if (table->apps[app].is_used &&
            gm_table_has_import(table, app, i) != gm_table_has_import(other, app, i))
            return false;
    /* One that a chunk left for good as soon as its copy out has ended serves that chunk again. */
    return a->state != GM_FRAME_CONDEMNED || b->state == GM_FRAME_CONDEMNED || b->chunk != GM_NONE;
}

const char *gm_table_compare(const struct gm_table *table, const struct gm_table *other)
{
    for (uint32_t i = 0; i < table->max_apps; i++)
        if (table->apps[i].is_used != other->apps[i].is_used ||
            (table->apps[i].is_used &&
             table->pools[table->apps[i].pool].uid != other->pools[other->apps[i].pool].uid))
            return "an app differs";
    for (uint32_t i = 0; i < table->max_chunks; i++) {
        const bool is_there =
            table->chunks[i].state != GM_CHUNK_UNUSED && !table->chunks[i].is_freed;
        if (is_there != (other->chunks[i].state != GM_CHUNK_UNUSED))
            return is_there ? "a chunk is missing" : "a chunk is there";
        if (is_there && !is_same_chunk(table, other, i))
            return "a chunk differs";
    }
    for (uint32_t i = 0; i < table->max_frames; i++)
        if (!is_same_frame(table, other, i))
            return "a frame differs";
    return NULL;
}
