/* Whether all that the table says fits together: see table.h. */
#include "daemon/core/table_check.h"

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

/* Whether a frame waits for the answers that it says. */
static bool are_drops_right(const struct gm_table *table, uint32_t index)
{
    const size_t row = gm_table_row(table->max_frames);
    uint32_t drops = 0, silent = 0;
    for (uint32_t app = 0; app < table->max_apps; app++)
        if (table->drops[app * row + index / 8] >> (index % 8) & 1) {
            drops++;
            silent += table->apps[app].is_silent;
        }
    return drops == table->frames[index].drops && silent == table->frames[index].silent;
}

const char *gm_table_check(const struct gm_table *table)
{
    uint64_t allocated = 0, committed = 0, all_fixed = 0, free = 0, condemned = 0, ending = 0,
             shadows = 0, lost = 0, device = 0;
    uint32_t dirty = 0;
    for (uint32_t i = 0; i < table->max_frames; i++) {
        const struct gm_frame *frame = &table->frames[i];
        if (frame->state == GM_FRAME_UNUSED)
            continue;
        if (!frame->is_host)
            allocated += gm_class_bytes(frame->class);
        dirty += frame->state == GM_FRAME_FREE && frame->is_dirty;
        if (!frame->is_host && frame->state == GM_FRAME_FREE)
            free += gm_class_bytes(frame->class);
        if (!frame->is_host && frame->state == GM_FRAME_CONDEMNED)
            condemned += gm_class_bytes(frame->class);
        ending += gm_frame_ending(frame);
        if ((frame->state == GM_FRAME_CONDEMNED && !are_drops_right(table, i)) ||
            (frame->state != GM_FRAME_CONDEMNED && (frame->drops > 0 || frame->exit_of != GM_NONE)))
            return "a frame waits to end that is not condemned";
        if (frame->share != 0 && frame->state != GM_FRAME_USED)
            return "a fixed frame is not in use";
        if (frame->share != 0 && !frame->is_host)
            all_fixed += gm_class_bytes(frame->class);
        if ((frame->state == GM_FRAME_USED || frame->state == GM_FRAME_LEAVING) &&
            frame->chunk != GM_NONE) {
            const struct gm_chunk *chunk = &table->chunks[frame->chunk];
            device += frame->is_host ? 0 : gm_class_bytes(frame->class);
            if (chunk->frame != i && !frame->is_host)
                return "a used frame's chunk does not hold it";
            if (frame->is_host && (chunk->host_frame != i || chunk->page != frame->page))
                return "the pages of a chunk are not those of its host frame";
            if (chunk->class != frame->class)
                return "a chunk and its frame differ in size";
            if (!chunk->is_freed && table->apps[chunk->app].pool != frame->pool)
                return "a frame serves an app of another user";
        }
    }
    if (allocated != table->allocated)
        return "allocated bytes are not those of the frames";
    if (dirty != table->dirty)
        return "dirty free frames are not counted right";
    if (free != table->free || condemned != table->condemned || ending != table->ending)
        return "free, condemned or ending bytes are not those of the frames";
    if (all_fixed != table->fixed)
        return "fixed bytes are not those of the frames";
    uint64_t orphaned = all_fixed;
    uint32_t all_kept = 0;
    if (allocated > table->budget)
        return "the frames exceed the budget";
    for (uint32_t a = 0; a < table->max_apps; a++) {
        const struct gm_table_app *app = &table->apps[a];
        uint64_t bytes = 0, resident = 0, on_host = 0, leaving = 0, fixed = 0;
        uint32_t missing = 0, kept = 0;
        if (!app->is_used)
            continue;
        for (uint32_t i = app->allocations.head; i != GM_NONE; i = table->allocations[i].next) {
            if (table->allocations[i].is_freed)
                continue;
            for (uint32_t c = table->allocations[i].first; c != GM_NONE;
                 c = table->chunks[c].sibling) {
                const struct gm_chunk *chunk = &table->chunks[c];
                bytes += gm_class_bytes(chunk->class);
                on_host += chunk->is_on_host ? gm_class_bytes(chunk->class) : 0;
                kept += chunk->is_fixed || chunk->is_on_host;
                fixed += chunk->is_fixed && chunk->tier == GM_TIER_GPU
                             ? gm_class_bytes(chunk->class)
                             : 0;
                if (chunk->is_fixed &&
                    (!gm_chunk_is_settled(chunk) || table->frames[chunk->frame].share == 0))
                    return "a fixed chunk is not in a fixed frame";
                if (gm_chunk_is_settled(chunk)) {
                    const bool is_resident = chunk->state == GM_CHUNK_RESIDENT;
                    if (is_resident && !chunk->is_fixed) {
                        resident += gm_class_bytes(chunk->class);
                        leaving += chunk->is_on_host ? gm_class_bytes(chunk->class) : 0;
                    }
                    if (chunk->frame == GM_NONE || table->frames[chunk->frame].chunk != c)
                        return "a chunk on the GPU has no frame";
                    if (table->frames[chunk->frame].is_host == is_resident)
                        return "a resident chunk is in a host frame, or the other way round";
                } else {
                    missing++;
                }
                if (chunk->shadow == GM_SHADOW_KEPT && !gm_chunk_can_have_shadow(chunk))
                    return "a shadow is kept of a chunk that cannot be evicted";
                if (chunk->shadow == GM_SHADOW_LOST && !gm_chunk_can_leave(chunk))
                    return "a shadow is lost of a chunk that cannot be evicted";
                lost += chunk->shadow == GM_SHADOW_LOST ? gm_class_bytes(chunk->class) : 0;
                if (chunk->shadow == GM_SHADOW_CLAIMED &&
                    (chunk->state != GM_CHUNK_LEAVING || chunk->page == GM_NONE))
                    return "a shadow is claimed by no eviction";
                if (chunk->tier > GM_TIER_GPU && chunk->page == GM_NONE)
                    return "a chunk below the GPU has no page";
            }
        }
        uint64_t shadow_bytes = 0;
        uint32_t n_shadows = 0, before = GM_NONE;
        for (uint32_t c = app->shadows.head; c != GM_NONE; c = table->chunks[c].next_shadow) {
            if (table->chunks[c].app != a || table->chunks[c].shadow != GM_SHADOW_KEPT ||
                table->chunks[c].prev_shadow != before)
                return "an app's list of shadows is broken";
            shadow_bytes += gm_class_bytes(table->chunks[c].class);
            n_shadows++;
            before = c;
        }
        if (before != app->shadows.tail || n_shadows != app->shadows.count ||
            shadow_bytes != app->shadow_bytes)
            return "an app's shadows are not counted right";
        shadows += shadow_bytes;
        if (bytes != app->committed)
            return "an app's committed bytes are not those of its chunks";
        if (on_host != app->on_host || leaving != app->leaving)
            return "an app's bytes on the host are not those of its chunks";
        orphaned -= fixed;
        all_kept += app->kept;
        if (kept != app->kept)
            return "an app's chunks that keep their frames are not counted right";
        if (fixed != app->fixed)
            return "an app's fixed bytes are not those of its chunks";
        if (resident != app->resident)
            return "an app's resident bytes are not those of its chunks";
        if (missing != app->missing)
            return "an app's missing chunks are not counted right";
        committed += bytes;
        device -= app->device;
    }
    uint64_t gives_back[GM_TIERS] = {0}, unmap_bytes = 0;
    uint32_t unmaps = 0;
    for (uint32_t i = 0; i < table->max_chunks; i++) {
        const struct gm_chunk *chunk = &table->chunks[i];
        gives_back[gm_chunk_gives_back(chunk)] += gm_class_bytes(chunk->class);
        if (gm_chunk_waits_for_unmap(chunk) && !table->apps[chunk->app].is_silent) {
            unmaps++;
            unmap_bytes += gm_class_bytes(chunk->class);
        }
        if (gm_chunk_is_still(chunk) &&
            (chunk->copy_pending || chunk->map_pending || chunk->is_given_up))
            return "a chunk that is still waits for something";
    }
    for (int tier = GM_TIER_PINNED; tier < GM_TIERS; tier++)
        if (gives_back[tier] != table->gives_back[tier])
            return "what copies give back is not that of the chunks that move";
    if (unmaps != table->unmaps || unmap_bytes != table->unmap_bytes)
        return "chunks that are to be unmapped are not counted right";
    if (orphaned != table->orphaned || all_kept != table->kept)
        return "what keeps its frames is not counted right";
    if (device != 0)
        return "the apps' bytes of frames are not those of the frames";
    if (lost != table->lost)
        return "the bytes of lost shadows are not those of the chunks";
    if (shadows != table->shadows)
        return "the bytes of shadows are not those of the apps";
    if (committed != table->committed)
        return "the committed bytes are not those of the apps";
    return are_pools_right(table) ? NULL : "a user's bytes are not those of its apps";
}
