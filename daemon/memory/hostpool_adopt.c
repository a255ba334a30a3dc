#include "daemon/memory/hostpool_adopt.h"

#include <errno.h>
#include <unistd.h>

#include "daemon/memory/hostpool.h"
#include "daemon/memory/hostpool_pieces.h"
#include "daemon/memory/hostpool_states.h"

int gm_hostpool_adopt(struct gm_hostpool *pool, uint32_t page, int fd, uint32_t id, uint32_t owner)
{
    const bool is_piece = page < gm_hostpool_pages(pool) && !pool->is_registered &&
                          gm_piece_first(page) == page &&
                          gm_piece_of(pool, page)->state == GM_PIECE_ABSENT;
    const bool is_lent = is_piece && (id != 0 || gm_piece_class(page) != GM_WHOLE);
    const bool is_nobodys = is_lent && owner == GM_NONE;
    if (!is_piece || is_nobodys) {
        gm_kept_drop(pool->kept, GM_KEPT_PIECE, pool->gpu, page);
        close(fd);
        return is_nobodys ? 0 : -EINVAL;
    }
    if (!gm_piece_import(pool, page, fd)) { /* the keeper holds on: another try may do better */
        if (gm_piece_of(pool, page)->is_held) {
            gm_piece_set(pool, page, GM_PIECE_STUCK);
            gm_piece_of(pool, page)->is_used_up = true;
        }
        return -EIO;
    }
    struct gm_piece *piece = gm_piece_of(pool, page);
    gm_piece_set(pool, page, GM_PIECE_THERE);
    piece->id = id;
    if (!is_lent)
        return 0;
    if (gm_piece_class(page) == GM_WHOLE) {
        gm_piece_link(pool, page);
        gm_pages_adopt(&pool->pages, page, GM_SLAB_BYTES);
    }
    piece->has_owner = true;
    piece->owner = owner;
    gm_piece_set_idle(pool, page, true);
    return 0;
}

bool gm_hostpool_take_again(struct gm_hostpool *pool, uint32_t page, uint64_t bytes)
{
    if (page >= gm_hostpool_pages(pool) || gm_piece_of(pool, page)->state != GM_PIECE_THERE)
        return false;
    if (!gm_piece_of(pool, page)->has_owner)
        return gm_pages_adopt(&pool->pages, page, bytes);
    if (!gm_piece_of(pool, page)->is_idle || gm_piece_first(page) != page ||
        bytes != gm_class_bytes(gm_piece_class(page)))
        return false;
    gm_piece_set_idle(pool, page, false);
    return true;
}
