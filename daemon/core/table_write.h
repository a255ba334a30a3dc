/* How the files of the table write it, and tests that make what cannot be; nobody else does. */
#ifndef GM_CORE_TABLE_WRITE_H
#define GM_CORE_TABLE_WRITE_H

#include "daemon/core/table_rows.h"

static inline struct gm_chunk *gm_chunk_at(struct gm_table *table, uint32_t index)
{
    return (struct gm_chunk *)(uintptr_t)&table->chunks[index];
}

static inline struct gm_frame *gm_frame_at(struct gm_table *table, uint32_t index)
{
    return (struct gm_frame *)(uintptr_t)&table->frames[index];
}

static inline struct gm_allocation *gm_allocation_at(struct gm_table *table, uint32_t index)
{
    return (struct gm_allocation *)(uintptr_t)&table->allocations[index];
}

static inline struct gm_table_app *gm_app_at(struct gm_table *table, uint32_t index)
{
    return (struct gm_table_app *)(uintptr_t)&table->apps[index];
}

static inline struct gm_pool *gm_pool_at(struct gm_table *table, uint32_t index)
{
    return (struct gm_pool *)(uintptr_t)&table->pools[index];
}

#endif
