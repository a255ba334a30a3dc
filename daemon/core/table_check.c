/*
 * Whether all that the table says fits together: see table.h. Each row is looked at by itself. Then
 * sums are counted anew, into an app and a table that hold nothing but these, and compared.
 */
#include "daemon/core/table_check.h"

#include <string.h>

#include "daemon/core/table_apps.h"

static const char *check_frame(const struct gm_table *table, uint32_t index)
{
    const struct gm_frame *frame = &table->frames[index];
    const bool is_condemned = frame->state == GM_FRAME_CONDEMNED;
    uint32_t drops = 0, silent = 0;
    for (uint32_t app = 0; is_condemned && app < table->max_apps; app++)
        if (gm_table_has_drop(table, app, index)) {
            drops++;
            silent += table->apps[app].is_silent;
        }
    if (drops != frame->drops || silent != frame->silent)
        return "a frame waits for other answers than it says";
    if (!is_condemned && frame->exit_of != GM_NONE)
        return "a frame waits to end that is not condemned";
    if (frame->share != 0 && frame->state != GM_FRAME_USED)
        return "a fixed frame is not in use";
    if (frame->mapper != GM_NONE && frame->state == GM_FRAME_FREE)
        return "a free frame is mapped by an app";
    if (frame->state == GM_FRAME_USED && frame->chunk == GM_NONE && frame->share == 0 &&
        !gm_table_is_awaited(table, index))
        return "a frame is in use for nobody";
    if (frame->chunk == GM_NONE)
        return NULL;
    const struct gm_chunk *chunk = &table->chunks[frame->chunk];
    if (frame->state != GM_FRAME_USED && frame->state != GM_FRAME_LEAVING)
        return "a frame that is not in use has a chunk";
    if (chunk->frame != index && !frame->is_host)
        return "a used frame's chunk does not hold it";
    if (frame->is_host && (chunk->host_frame != index || chunk->page != frame->page))
        return "the pages of a chunk are not those of its host frame";
    if (chunk->class != frame->class)
        return "a chunk and its frame differ in size";
    if (!chunk->is_freed && table->apps[chunk->app].pool != frame->pool)
        return "a frame serves an app of another user";
    return NULL;
}

static void count_frame(const struct gm_frame *frame, struct gm_table *sums)
{
    const uint64_t bytes = frame->is_host ? 0 : gm_class_bytes(frame->class);
    const bool is_free = frame->state == GM_FRAME_FREE;
    sums->allocated += bytes;
    sums->free += is_free ? bytes : 0;
    if (frame->state == GM_FRAME_CONDEMNED)
        *(frame->is_host ? &sums->condemned_on_host : &sums->condemned) +=
            gm_class_bytes(frame->class);
    sums->ending += gm_frame_ending(frame);
    sums->fixed += frame->share != 0 ? bytes : 0;
    sums->orphaned_on_host +=
        frame->share != 0 && frame->is_host ? gm_class_bytes(frame->class) : 0;
    sums->dirty += is_free && frame->is_dirty;
}

static const char *check_frames(const struct gm_table *table, struct gm_table *sums)
{
    for (uint32_t i = 0; i < table->max_frames; i++) {
        if (table->frames[i].state == GM_FRAME_UNUSED)
            continue;
        const char *fault = check_frame(table, i);
        if (fault)
            return fault;
        count_frame(&table->frames[i], sums);
    }
    if (sums->allocated != table->allocated)
        return "allocated bytes are not those of the frames";
    if (sums->allocated > table->budget)
        return "the frames exceed the budget";
    if (sums->free != table->free || sums->condemned != table->condemned ||
        sums->condemned_on_host != table->condemned_on_host || sums->ending != table->ending)
        return "free, condemned or ending bytes are not those of the frames";
    if (sums->fixed != table->fixed)
        return "fixed bytes are not those of the frames";
    return sums->dirty == table->dirty ? NULL : "dirty free frames are not counted right";
}

/* Of any chunk, freed or not. */
static const char *check_chunk(const struct gm_table *table, uint32_t index)
{
    const struct gm_chunk *chunk = &table->chunks[index];
    if (gm_chunk_is_still(chunk) &&
        (chunk->copy_pending || chunk->map_pending || chunk->is_given_up))
        return "a chunk that is still waits for something";
    if (chunk->host_frame != GM_NONE && table->frames[chunk->host_frame].chunk != index)
        return "a chunk's host frame is another's";
    if (chunk->is_freed)
        return NULL;
    if (chunk->tier > GM_TIER_GPU && chunk->page == GM_NONE)
        return "a chunk below the GPU has no page";
    if (chunk->shadow == GM_SHADOW_KEPT && !gm_chunk_can_have_shadow(chunk))
        return "a shadow is kept of a chunk that cannot be evicted";
    if (chunk->shadow == GM_SHADOW_LOST && !gm_chunk_can_leave(chunk))
        return "a shadow is lost of a chunk that cannot be evicted";
    if (chunk->shadow == GM_SHADOW_CLAIMED &&
        (chunk->state != GM_CHUNK_LEAVING || chunk->page == GM_NONE))
        return "a shadow is claimed by no eviction";
    if (chunk->list != gm_chunk_list_of(chunk))
        return "a chunk is in another list than its state says";
    if (!gm_chunk_is_settled(chunk))
        return chunk->is_fixed ? "a fixed chunk is not settled" : NULL;
    if (chunk->frame == GM_NONE || table->frames[chunk->frame].chunk != index)
        return "a chunk that its app can use has no frame";
    if (table->frames[chunk->frame].is_host == (chunk->state == GM_CHUNK_RESIDENT))
        return "a resident chunk is in a host frame, or the other way round";
    return chunk->is_fixed && table->frames[chunk->frame].share == 0
               ? "a fixed chunk is not in a fixed frame"
               : NULL;
}

/* Into the sums of its app. */
static void count_chunk(const struct gm_chunk *chunk, struct gm_table_app *sums)
{
    const uint64_t bytes = gm_class_bytes(chunk->class);
    sums->chunks++;
    sums->committed += bytes;
    sums->on_host += chunk->is_on_host ? bytes : 0;
    sums->staying += chunk->is_fixed || chunk->is_on_host;
    sums->fixed += chunk->is_fixed && chunk->tier == GM_TIER_GPU ? bytes : 0;
    sums->held += chunk->is_fixed && chunk->tier != GM_TIER_GPU ? bytes : 0;
    sums->cold += chunk->is_cold ? bytes : 0;
    sums->missing += !gm_chunk_is_settled(chunk);
    switch ((enum gm_chunk_list)chunk->list) {
    case GM_LIST_NONE:
    case GM_LIST_SETTLED:
        break;
    case GM_LIST_RESIDENT:
        sums->by_class[chunk->class].count++;
        sums->resident += bytes;
        sums->leaving += chunk->is_on_host ? bytes : 0;
        break;
    case GM_LIST_AWAY:
        sums->away[chunk->listed_tier].count++;
        sums->away_count[chunk->class]++;
        sums->bytes[chunk->listed_tier] += bytes;
        break;
    case GM_LIST_TO_MAP:
        sums->to_map.count++;
        sums->to_map_bytes += chunk->listed_tier != GM_TIER_PINNED ? bytes : 0;
        break;
    }
}

/* Whether a list holds `count` chunks of the app, which say that they are in it. */
static bool is_list_right(const struct gm_table *table, uint32_t app, const struct gm_list *list,
                          enum gm_chunk_list kind, uint32_t count)
{
    uint32_t before = GM_NONE, n = 0;
    for (uint32_t c = list->head; c != GM_NONE; c = table->chunks[c].next, n++) {
        const struct gm_chunk *chunk = &table->chunks[c];
        if (n == list->count || chunk->app != app || chunk->list != kind || chunk->prev != before)
            return false;
        before = c;
    }
    return n == list->count && n == count && list->tail == before;
}

static bool are_lists_right(const struct gm_table *table, uint32_t id,
                            const struct gm_table_app *sums)
{
    const struct gm_table_app *app = &table->apps[id];
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++)
        if (!is_list_right(table, id, &app->by_class[c], GM_LIST_RESIDENT, sums->by_class[c].count))
            return false;
    for (unsigned t = 0; t < GM_TIERS; t++)
        if (!is_list_right(table, id, &app->away[t], GM_LIST_AWAY, sums->away[t].count))
            return false;
    return is_list_right(table, id, &app->to_map, GM_LIST_TO_MAP, sums->to_map.count);
}

static bool are_shadows_right(const struct gm_table *table, uint32_t id)
{
    const struct gm_table_app *app = &table->apps[id];
    uint64_t bytes = 0;
    uint32_t before = GM_NONE, n = 0;
    for (uint32_t c = app->shadows.head; c != GM_NONE; c = table->chunks[c].next_shadow) {
        const struct gm_chunk *chunk = &table->chunks[c];
        if (n++ == app->shadows.count || chunk->app != id || chunk->shadow != GM_SHADOW_KEPT ||
            chunk->prev_shadow != before)
            return false;
        bytes += gm_class_bytes(chunk->class);
        before = c;
    }
    return before == app->shadows.tail && n == app->shadows.count && bytes == app->shadow_bytes;
}

static const char *check_app(const struct gm_table *table, uint32_t id, struct gm_table *all)
{
    const struct gm_table_app *app = &table->apps[id];
    struct gm_table_app sums = {0};
    for (uint32_t i = app->allocations.head; i != GM_NONE; i = table->allocations[i].next) {
        const struct gm_allocation *allocation = &table->allocations[i];
        const uint32_t missing = sums.missing;
        if (allocation->is_freed ? !gm_table_has_any(table, id, allocation->va)
                                 : gm_table_find_allocation(table, id, allocation->va) != i)
            return "an allocation is not found by its address";
        if (allocation->is_freed)
            continue;
        for (uint32_t c = allocation->first; c != GM_NONE; c = table->chunks[c].sibling)
            count_chunk(&table->chunks[c], &sums);
        if (sums.missing - missing != allocation->missing)
            return "an allocation's missing chunks are not counted right";
    }
    if (sums.committed != app->committed || sums.chunks != app->chunks)
        return "an app's committed bytes are not those of its chunks";
    if (sums.on_host != app->on_host || sums.leaving != app->leaving)
        return "an app's bytes on the host are not those of its chunks";
    if (sums.staying != app->staying)
        return "an app's chunks that keep their frames are not counted right";
    if (sums.fixed != app->fixed || sums.held != app->held)
        return "an app's fixed bytes are not those of its chunks";
    if (sums.resident != app->resident)
        return "an app's resident bytes are not those of its chunks";
    if (sums.cold != app->cold)
        return "an app's cold bytes are not those of its chunks";
    if (sums.missing != app->missing)
        return "an app's missing chunks are not counted right";
    if (memcmp(sums.bytes, app->bytes, sizeof sums.bytes) != 0 ||
        memcmp(sums.away_count, app->away_count, sizeof sums.away_count) != 0 ||
        sums.to_map_bytes != app->to_map_bytes)
        return "an app's bytes below the GPU are not those of its chunks";
    if (!are_lists_right(table, id, &sums))
        return "an app's list of chunks is broken";
    if (!are_shadows_right(table, id))
        return "an app's shadows are not counted right";
    all->committed += app->committed;
    all->on_host += app->on_host;
    all->beyond += app->beyond;
    all->beyond_apps += app->beyond > 0;
    all->silent += app->is_silent;
    all->orphaned -= app->fixed;
    all->orphaned_on_host -= app->held;
    all->staying += app->staying;
    all->shadows += app->shadow_bytes;
    all->unmaps += app->is_silent ? 0 : app->unmaps;
    all->unmap_bytes += app->is_silent ? 0 : app->unmap_bytes;
    return NULL;
}

/* What is counted of all chunks, freed ones too. */
static const char *check_all_chunks(const struct gm_table *table, struct gm_table *sums)
{
    if (sums->unmaps != table->unmaps || sums->unmap_bytes != table->unmap_bytes)
        return "chunks that are to be unmapped are not those of the apps";
    for (uint32_t i = 0; i < table->max_chunks; i++) {
        const struct gm_chunk *chunk = &table->chunks[i];
        const char *fault = chunk->state == GM_CHUNK_UNUSED ? NULL : check_chunk(table, i);
        if (fault)
            return fault;
        sums->gives_back[gm_chunk_gives_back(chunk)] += gm_class_bytes(chunk->class);
        sums->lost += chunk->shadow == GM_SHADOW_LOST ? gm_class_bytes(chunk->class) : 0;
        if (gm_chunk_waits_for_unmap(chunk) && !table->apps[chunk->app].is_silent) {
            sums->unmaps--;
            sums->unmap_bytes -= gm_class_bytes(chunk->class);
        }
    }
    if (sums->unmaps != 0 || sums->unmap_bytes != 0)
        return "chunks that are to be unmapped are not counted right";
    sums->gives_back[GM_TIER_NONE] = 0;
    if (memcmp(sums->gives_back, table->gives_back, sizeof sums->gives_back) != 0)
        return "what copies give back is not that of the chunks that move";
    return sums->lost == table->lost ? NULL : "lost shadows are not those of the chunks";
}

static bool are_pools_right(const struct gm_table *table)
{
    for (uint32_t i = 0; i < table->max_apps; i++) {
        struct gm_pool left = table->pools[i];
        for (uint32_t a = 0; a < table->max_apps; a++) {
            const struct gm_table_app *app = &table->apps[a];
            if (!app->is_used || app->pool != i)
                continue;
            left.committed -= app->committed;
            left.beyond -= app->beyond;
            left.fixed -= app->fixed;
            left.device -= app->device;
        }
        if ((left.committed | left.beyond | left.fixed | left.device) != 0)
            return false;
    }
    return true;
}

/* Whether the apps' bytes of frames are those that their chunks have. */
static bool is_device_right(const struct gm_table *table)
{
    uint64_t left = 0;
    for (uint32_t i = 0; i < table->max_frames; i++)
        if (table->frames[i].chunk != GM_NONE && table->frames[i].state != GM_FRAME_UNUSED &&
            !table->frames[i].is_host)
            left += gm_class_bytes(table->frames[i].class);
    for (uint32_t a = 0; a < table->max_apps; a++)
        left -= table->apps[a].is_used ? table->apps[a].device : 0;
    return left == 0;
}

const char *gm_table_check(const struct gm_table *table)
{
    struct gm_table sums = {.budget = 0};
    const char *fault = check_frames(table, &sums);
    sums.orphaned = sums.fixed;
    for (uint32_t a = 0; a < table->max_apps && !fault; a++)
        if (table->apps[a].is_used)
            fault = check_app(table, a, &sums);
    if (!fault)
        fault = check_all_chunks(table, &sums);
    if (fault)
        return fault;
    if (sums.silent != table->silent)
        return "the apps that do not answer are not counted right";
    if (sums.orphaned != table->orphaned || sums.staying != table->staying ||
        sums.orphaned_on_host != table->orphaned_on_host)
        return "what keeps its frames is not counted right";
    if (!is_device_right(table))
        return "the apps' bytes of frames are not those of the frames";
    if (sums.shadows != table->shadows)
        return "the bytes of shadows are not those of the apps";
    if (sums.committed != table->committed || sums.on_host != table->on_host ||
        sums.beyond != table->beyond || sums.beyond_apps != table->beyond_apps)
        return "the committed bytes are not those of the apps";
    return are_pools_right(table) ? NULL : "a user's bytes are not those of its apps";
}
