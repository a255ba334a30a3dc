#include "daemon/memory/stores_adopt.h"

#include <sys/stat.h>
#include <unistd.h>

#include "daemon/memory/hostpool_adopt.h"
#include "daemon/memory/stores_paged.h"
#include "daemon/memory/stores_rows.h"

int gm_stores_claim(struct gm_stores *stores, enum gm_kept_kind kind, uint64_t *bytes)
{
    struct stat is;
    uint64_t id;
    const int fd = gm_kept_claim(stores->kept, kind, stores->gpu, 0, &id);
    if (fd >= 0 && fstat(fd, &is) == 0 && (uint64_t)is.st_size > *bytes)
        *bytes = (uint64_t)is.st_size & ~(GM_CHUNK_MIN - 1);
    return fd;
}

static uint32_t slabs_of(const struct gm_pages *pages)
{
    return (pages->max_pages + GM_SLAB_PAGES - 1) / GM_SLAB_PAGES;
}

/* The first slab from this one on that has data in the file; GM_NONE: none has. */
static uint32_t next_with_data(int fd, uint32_t slab)
{
    const off_t data = lseek(fd, (off_t)(slab * GM_SLAB_BYTES), SEEK_DATA);
    return data < 0 ? GM_NONE : (uint32_t)((uint64_t)data / GM_SLAB_BYTES);
}

void gm_stores_find_memory(struct gm_stores *stores)
{
    const uint32_t slabs = slabs_of(&stores->paged);
    for (uint32_t slab = 0; (slab = next_with_data(stores->paged_fd, slab)) < slabs; slab++)
        stores->slabs[slab].used_at = gm_stores_now(stores);
}

void gm_stores_find_blocks(struct gm_stores *stores)
{
    const uint32_t slabs = slabs_of(&stores->on_disk);
    for (uint32_t slab = 0; (slab = next_with_data(stores->disk.fd, slab)) < slabs; slab++)
        stores->on_disk.slabs[slab].was_written = true;
}

/* Pages go from the end, those that were never written first, and come back the other way round:
 * blocks that the file has count as room, so pages that have them must be there. */
void gm_stores_fit_disk(struct gm_stores *stores)
{
    struct gm_pages *pages = &stores->on_disk;
    const uint32_t slabs = slabs_of(pages);
    const uint32_t cap = stores->cap[GM_TIER_DISK];
    for (uint32_t at = 2 * slabs; at-- > 0 && pages->pages > cap;) {
        const uint32_t slab = at % slabs;
        if (pages->slabs[slab].was_written == (at < slabs) && gm_slab_is_free(pages, slab))
            gm_pages_remove_slab(pages, slab);
    }
    for (uint32_t at = 0; at < 2 * slabs && pages->pages < cap; at++) {
        const uint32_t slab = at % slabs, tail = pages->max_pages - slab * GM_SLAB_PAGES;
        const uint32_t n = tail < GM_SLAB_PAGES ? tail : GM_SLAB_PAGES;
        if (pages->slabs[slab].was_written == (at < slabs) && pages->slabs[slab].map == 0 &&
            n <= cap - pages->pages)
            gm_pages_add_slab(pages, slab);
    }
}

void gm_stores_shrink(struct gm_stores *stores, enum gm_tier tier)
{
    if (tier == GM_TIER_DISK) {
        /* A walk only if a slab can go: the last one may be no whole one. */
        const struct gm_pages *disk = &stores->on_disk;
        if (disk->pages > stores->cap[tier] &&
            (disk->free_slabs > 0 || gm_slab_is_free(disk, (disk->max_pages - 1) / GM_SLAB_PAGES)))
            gm_stores_fit_disk(stores);
        return;
    }
    struct gm_pages *pages = &stores->paged;
    const uint32_t slabs = slabs_of(pages);
    const uint32_t kept = (stores->cap[tier] + GM_SLAB_PAGES - 1) / GM_SLAB_PAGES;
    unsigned given = 0;
    if (pages->pages <= stores->cap[tier])
        return;
    for (uint32_t slab = kept; slab < slabs && given < GM_TRIM_SLABS; slab++) {
        if (!gm_slab_is_free(pages, slab) || stores->slabs[slab].state == GM_SLAB_FILLING)
            continue;
        gm_pages_remove_slab(pages, slab);
        if (stores->slabs[slab].used_at != 0) {
            gm_paged_give_back(stores, slab);
            given++;
        }
    }
}

bool gm_stores_adopt(struct gm_stores *stores, enum gm_tier tier, uint32_t page, uint64_t bytes)
{
    if (tier == GM_TIER_PINNED)
        return gm_hostpool_take_again(stores->pinned, page, bytes);
    if (tier == GM_TIER_DISK)
        return gm_pages_adopt(&stores->on_disk, page, bytes);
    if (tier != GM_TIER_PAGED || !gm_pages_adopt(&stores->paged, page, bytes))
        return false;
    gm_paged_use(stores, page);
    return true;
}
