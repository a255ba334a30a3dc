/* Chunks that go through their states as the engine takes them there, all at once. */
#ifndef GM_TESTS_TURNS_H
#define GM_TESTS_TURNS_H

#include "daemon/core/table.h"

static inline void turn_chunk(struct gm_table *table, uint32_t chunk, enum gm_chunk_event event)
{
    if (!gm_table_turn_chunk(table, chunk, event))
        fail_msg("chunk %u: %s is not allowed in state %s", chunk,
                 gm_model_event_text(GM_MODEL_CHUNK, event),
                 gm_model_state_text(GM_MODEL_CHUNK, table->chunks[chunk].state));
}

/* To the GPU, into this frame, which is new or free. Its pages are as before. */
static inline void to_gpu(struct gm_table *table, uint32_t chunk, uint32_t frame)
{
    assert_int_not_equal(frame, GM_NONE);
    turn_chunk(table, chunk, GM_CHUNK_EV_FILL);
    assert_true(gm_table_take_frame(table, frame, chunk));
    turn_chunk(table, chunk, GM_CHUNK_EV_DONE);
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
    table->chunks[chunk].to_tier = (uint8_t)tier;
    table->chunks[chunk].to_page = page;
    turn_chunk(table, chunk, GM_CHUNK_EV_MOVE);
    turn_chunk(table, chunk, GM_CHUNK_EV_DONE);
}

#endif
