#include "daemon/memory/hostpool_states.h"

void gm_piece_set_idle(struct gm_hostpool *pool, uint32_t page, bool is_idle)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    uint32_t *count = &pool->idle[gm_piece_class(page)];
    *count = *count + is_idle - piece->is_idle;
    piece->is_idle = is_idle;
    pool->fresh -= piece->is_fresh;
    piece->is_fresh = false;
}

void gm_piece_link(struct gm_hostpool *pool, uint32_t page)
{
    const uint32_t n = 1u << gm_piece_class(page);
    for (uint32_t i = 0; i < n; i++)
        pool->pages.next[page + i] = i + 1 < n ? page + i + 1 : GM_NONE;
}

static void end_being_there(struct gm_hostpool *pool, uint32_t page)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    gm_piece_set_idle(pool, page, false);
    if (gm_piece_class(page) == GM_WHOLE) {
        if (piece->has_owner)
            gm_pages_free(&pool->pages, page);
        gm_pages_remove_slab(&pool->pages, gm_slab_of(page));
    }
    piece->has_owner = false;
}

static void begin_being_there(struct gm_hostpool *pool, uint32_t page)
{
    if (gm_piece_class(page) == GM_WHOLE) {
        gm_pages_add_slab(&pool->pages, gm_slab_of(page));
        return;
    }
    gm_piece_link(pool, page);
    gm_piece_of(pool, page)->has_owner = true;
    gm_piece_set_idle(pool, page, true);
    gm_piece_of(pool, page)->is_fresh = true;
    pool->fresh++;
}

void gm_piece_set(struct gm_hostpool *pool, uint32_t page, enum gm_piece_state state)
{
    struct gm_piece *piece = gm_piece_of(pool, page);
    const unsigned class = gm_piece_class(page);
    const uint32_t index = gm_piece_index(page);
    uint32_t *top = &pool->top[class];
    if (piece->state == GM_PIECE_THERE)
        end_being_there(pool, page);
    if (state == GM_PIECE_RELEASING)
        gm_kept_drop(pool->kept, GM_KEPT_PIECE, pool->gpu, page);
    pool->count[class][piece->state]--;
    piece->state = (uint8_t)state;
    pool->count[class][state]++;
    if (state == GM_PIECE_ABSENT)
        piece->is_used_up = false;
    else if (index >= *top)
        *top = index + 1;
    while (*top > 0 && pool->pieces[class][*top - 1].state == GM_PIECE_ABSENT)
        (*top)--;
    if (state == GM_PIECE_THERE)
        begin_being_there(pool, page);
}
