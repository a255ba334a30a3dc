/*
 * The fake keeper: as memory/kept.h says, and it never fails. What is put outlives the daemon. A
 * descriptor of memory counts as one more that has it; others are real files.
 */
#include "tests/sim/engine/machine.h"

#include <stdlib.h>
#include <unistd.h>

#include "daemon/memory/kept.h"

enum { ITEMS = 4096 };

struct gm_kept {
    uint32_t n; /* above the highest that is used */
    struct item {
        bool is_used, is_old; /* of a daemon before, and not claimed */
        enum gm_kept_kind kind;
        uint32_t gpu, slot;
        uint64_t id;
        int fd;
    } items[ITEMS];
};

static struct gm_kept all;

struct gm_kept *kept_begin(void)
{
    all = (struct gm_kept){.n = 0};
    return &all;
}

static bool is_memory(int fd)
{
    return fd > FIRST_FD && fd < FIRST_FD + HANDLES;
}

static int copy_of(int fd)
{
    return fd >= FIRST_FD ? fd : dup(fd);
}

static struct item *find(enum gm_kept_kind kind, uint32_t gpu, uint32_t slot)
{
    for (uint32_t i = 0; i < all.n; i++)
        if (all.items[i].is_used && all.items[i].kind == kind && all.items[i].gpu == gpu &&
            all.items[i].slot == slot)
            return &all.items[i];
    return NULL;
}

static void end(struct item *item)
{
    if (is_memory(item->fd))
        handle_keep(handle_of_fd(item->fd), false);
    else if (item->fd < FIRST_FD)
        close(item->fd);
    item->is_used = false;
}

int gm_kept_put(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu, uint32_t slot,
                uint64_t id, int fd)
{
    if (!kept)
        return 0;
    deaths_may_come("a put");
    struct item *old = find(kind, gpu, slot), *item = all.items;
    while (item < all.items + ITEMS && item->is_used)
        item++;
    require(item < all.items + ITEMS, "too much is kept");
    all.n = item - all.items >= all.n ? (uint32_t)(item - all.items) + 1 : all.n;
    *item = (struct item){.is_used = true, .kind = kind, .gpu = gpu, .slot = slot, .id = id};
    item->fd = copy_of(fd);
    require(item->fd >= 0, "no file");
    if (is_memory(fd))
        handle_keep(handle_of_fd(fd), true);
    if (old)
        end(old);
    return 0;
}

void gm_kept_drop(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu, uint32_t slot)
{
    if (!kept)
        return;
    deaths_may_come("a drop");
    struct item *item = find(kind, gpu, slot);
    if (item)
        end(item);
}

int gm_kept_claim(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu, uint32_t slot,
                  uint64_t *id)
{
    struct item *item = kept ? find(kind, gpu, slot) : NULL;
    if (!item || !item->is_old)
        return -1;
    deaths_may_come("a claim");
    item->is_old = false;
    *id = item->id;
    return copy_of(item->fd);
}

uint32_t gm_kept_next(const struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu,
                      uint32_t after)
{
    uint32_t next = GM_NONE;
    for (uint32_t i = 0; kept && i < all.n; i++) {
        const struct item *item = &all.items[i];
        if (item->is_used && item->is_old && item->kind == kind && item->gpu == gpu &&
            (after == GM_NONE || item->slot > after) && item->slot < next)
            next = item->slot;
    }
    return next;
}

uint32_t gm_kept_highest(const struct gm_kept *kept, enum gm_kept_kind kind)
{
    uint64_t highest = 0;
    for (uint32_t i = 0; kept && i < all.n; i++)
        if (all.items[i].is_used && all.items[i].is_old && all.items[i].kind == kind &&
            all.items[i].id > highest)
            highest = all.items[i].id;
    return (uint32_t)highest;
}

void gm_kept_settle(struct gm_kept *kept)
{
    for (uint32_t i = 0; kept && i < all.n; i++)
        if (all.items[i].is_used && all.items[i].is_old)
            end(&all.items[i]);
}

bool gm_kept_is_connected(const struct gm_kept *kept)
{
    return kept != NULL;
}

void gm_kept_disconnect(struct gm_kept *kept)
{
    require(!kept || machine.is_faulty, "the daemon does not start");
}

uint32_t gm_kept_room(const struct gm_kept *kept)
{
    (void)kept;
    return UINT32_MAX;
}

void kept_survive(void)
{
    for (uint32_t i = 0; i < all.n; i++)
        all.items[i].is_old = all.items[i].is_used;
}

void kept_end(void)
{
    for (uint32_t i = 0; i < all.n; i++)
        require(!all.items[i].is_used, "kind %d, slot %u of GPU %u is kept for nobody",
                (int)all.items[i].kind, all.items[i].slot, all.items[i].gpu);
}

/* It is never lost from sight. */
void gm_kept_mark(struct gm_kept *kept, uint64_t *word, uint64_t value)
{
    (void)kept;
    (void)word;
    (void)value;
}

void gm_kept_unmark(struct gm_kept *kept, const uint64_t *word)
{
    (void)kept;
    (void)word;
}
