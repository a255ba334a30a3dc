/* Chunks that go through their states as the engine takes them there, all at once. */
#ifndef GM_TESTS_TURNS_H
#define GM_TESTS_TURNS_H

#include "daemon/core/table.h"
#include "daemon/core/table_write.h"

static inline void turn_chunk(struct gm_table *table, uint32_t chunk, enum gm_chunk_event event)
{
    if (!gm_table_turn_chunk(table, chunk, event))
        fail_msg("chunk %u: %s is not allowed in state %s", chunk,
                 gm_model_event_text(GM_MODEL_CHUNK, event),
                 gm_model_state_text(GM_MODEL_CHUNK, table->chunks[chunk].state));
}

/* What it waits for ends well. */
static inline void settle_chunk(struct gm_table *table, uint32_t chunk)
{
    gm_table_end_copy(table, chunk, false);
    gm_table_end_map(table, chunk, false);
    assert_true(gm_table_settle(table, chunk));
}

/* To the GPU, into this frame, which is new or free. Its pages are as before. */
static inline void to_gpu(struct gm_table *table, uint32_t chunk, uint32_t frame)
{
    assert_int_not_equal(frame, GM_NONE);
    assert_true(gm_table_fill(table, chunk, frame));
    settle_chunk(table, chunk);
}

/* ... into a new one of its app's pool. */
static inline void to_new_frame(struct gm_table *table, uint32_t chunk)
{
    const struct gm_chunk *entry = &table->chunks[chunk];
    to_gpu(table, chunk, gm_table_add_frame(table, table->apps[entry->app].pool, entry->class));
}

/* To another tier below the GPU, or to pinned memory from nowhere. */
static inline void to_tier(struct gm_table *table, uint32_t chunk, unsigned tier, uint32_t page)
{
    assert_true(gm_table_move(table, chunk, (enum gm_tier)tier, page));
    settle_chunk(table, chunk);
}

/* Nobody needs its allocation any more, nor is told. */
static inline void free_silently(struct gm_table *table, uint32_t allocation)
{
    gm_table_free_allocation(table, allocation, (struct gm_last_word){.kind = GM_LAST_NONE});
}

#endif
