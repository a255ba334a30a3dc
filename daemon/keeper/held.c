/* A table of descriptors: see held.h. */
#include "daemon/keeper/held.h"

#include <stdlib.h>
#include <string.h>

bool gm_held_is_key(const struct gm_keeper_item *item)
{
    return item->kind < GM_KEEPER_KINDS &&
           item->gpu < (item->kind == GM_KEEPER_LEASE ? 1 : GM_KEEPER_GPUS) &&
           item->reserved == 0 && item->slot < GM_KEEPER_SLOTS;
}

static struct gm_held_slot *find(const struct gm_held *held, const struct gm_keeper_item *item)
{
    const struct gm_held_row *row = &held->rows[item->kind][item->gpu];
    return item->slot < row->n ? &row->slots[item->slot] : NULL;
}

bool gm_held_reserve(struct gm_held *held, const struct gm_keeper_item *item)
{
    struct gm_held_row *row = &held->rows[item->kind][item->gpu];
    uint32_t n = row->n ? row->n : 64;
    while (n <= item->slot)
        n *= 2;
    if (n == row->n)
        return true;
    struct gm_held_slot *slots = realloc(row->slots, n * sizeof *slots);
    if (!slots)
        return false;
    memset(slots + row->n, 0, (n - row->n) * sizeof *slots);
    *row = (struct gm_held_row){.n = n, .slots = slots};
    return true;
}

int gm_held_fd(const struct gm_held *held, const struct gm_keeper_item *item)
{
    const struct gm_held_slot *slot = find(held, item);
    return slot ? slot->fd - 1 : -1;
}

uint64_t gm_held_id(const struct gm_held *held, const struct gm_keeper_item *item)
{
    const struct gm_held_slot *slot = find(held, item);
    return slot ? slot->id : 0;
}

int gm_held_drop(struct gm_held *held, const struct gm_keeper_item *item)
{
    const int fd = gm_held_fd(held, item);
    if (fd < 0)
        return -1;
    *find(held, item) = (struct gm_held_slot){0};
    held->n--;
    held->leases -= item->kind == GM_KEEPER_LEASE;
    return fd;
}

void gm_held_put(struct gm_held *held, const struct gm_keeper_item *item, int fd)
{
    *find(held, item) = (struct gm_held_slot){.fd = fd + 1, .id = item->id};
    held->n++;
    held->leases += item->kind == GM_KEEPER_LEASE;
}

int gm_held_next(const struct gm_held *held, const struct gm_keeper_item *key,
                 struct gm_keeper_item *item)
{
    uint32_t kind = key ? key->kind : 0, gpu = key ? key->gpu : 0, slot = key ? key->slot + 1 : 0;
    for (; kind < GM_KEEPER_KINDS; kind++, gpu = 0)
        for (; gpu < GM_KEEPER_GPUS; gpu++, slot = 0)
            for (; slot < held->rows[kind][gpu].n; slot++) {
                const struct gm_held_slot *at = &held->rows[kind][gpu].slots[slot];
                *item = (struct gm_keeper_item){
                    .kind = (uint8_t)kind, .gpu = (uint8_t)gpu, .slot = slot, .id = at->id};
                if (at->fd != 0)
                    return at->fd - 1;
            }
    return -1;
}

void gm_held_free(struct gm_held *held)
{
    for (uint32_t kind = 0; kind < GM_KEEPER_KINDS; kind++)
        for (uint32_t gpu = 0; gpu < GM_KEEPER_GPUS; gpu++)
            free(held->rows[kind][gpu].slots);
    *held = (struct gm_held){0};
}
