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

/* Of an app, in one of the two arrays of bits. */
static inline uint8_t *gm_bits_at(const struct gm_table *table, const uint8_t *bits, uint32_t app)
{
    return (uint8_t *)(uintptr_t)bits + (size_t)app * gm_table_row(table->max_frames);
}

#endif
