#include "daemon/core/timeline.h"

uint64_t gm_timeline_next(const struct gm_table *table, uint32_t index)
{
    const struct gm_chunk *chunk = &table->chunks[index];
    const uint32_t since = table->apps[chunk->app].window - chunk->window;
    const uint32_t gap = chunk->gap > 0 ? chunk->gap : 1;
    const uint32_t windows = gap > since ? gap - since : since - gap; /* overdue: as long again */
    return chunk->is_cold ? GM_TIMELINE_NEVER : (uint64_t)windows << 32 | chunk->order;
}

void gm_timeline_sort(struct gm_table *table, uint32_t app)
{
    gm_table_sort(table, app, gm_timeline_next);
}
