#include "daemon/memory/pages.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* Class of the largest aligned run of set bits; -1: none. */
static int largest_run(uint32_t map)
{
    int class = -1;
    static const uint16_t starts[GM_CHUNK_CLASSES] = {0xffff, 0x5555, 0x1111, 0x0101, 0x0001};
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++) {
        /* A bit that is set says that a run of class c starts there. */
        map = c == 0 ? map : map & (map >> (1u << (c - 1)));
        map &= starts[c];
        if (map == 0)
            break;
        class = (int)c;
    }
    return class;
}

/* A mask of the first aligned run of `class` in a map that has one. */
static uint32_t find_run(uint32_t map, unsigned class)
{
    uint32_t n = 1u << class, mask = (1u << n) - 1;
    for (uint32_t at = 0; at < GM_SLAB_PAGES; at += n)
        if ((map & (mask << at)) == (mask << at))
            return mask << at;
    assert(!"a slab is in the wrong list");
    return 0;
}

/* Put a slab at the head of the list of its largest free run. */
static void relist(struct gm_pages *pages, uint32_t index)
{
    struct gm_slab *slab = &pages->slabs[index];
    uint8_t list = (uint8_t)(largest_run(slab->free_map) + 1);
    if (list == slab->list)
        return;
    pages->free_slabs -= slab->list == GM_CHUNK_CLASSES;
    pages->free_slabs += list == GM_CHUNK_CLASSES;
    if (slab->list) {
        if (slab->prev == GM_NONE)
            pages->heads[slab->list - 1] = slab->next;
        else
            pages->slabs[slab->prev].next = slab->next;
        if (slab->next != GM_NONE)
            pages->slabs[slab->next].prev = slab->prev;
    }
    slab->list = list;
    if (list) {
        slab->prev = GM_NONE;
        slab->next = pages->heads[list - 1];
        if (slab->next != GM_NONE)
            pages->slabs[slab->next].prev = index;
        pages->heads[list - 1] = index;
    }
}

int gm_pages_open(struct gm_pages *pages, uint64_t bytes)
{
    uint64_t n = bytes >> GM_CHUNK_SHIFT;
    *pages = (struct gm_pages){0};
    for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++)
        pages->heads[c] = GM_NONE;
    if (n == 0)
        return 0;
    if (n >= GM_NONE - GM_SLAB_PAGES) /* page and slab numbers have 32 bits: 8 EiB */
        return -ENOMEM;
    pages->slabs = calloc((n + GM_SLAB_PAGES - 1) / GM_SLAB_PAGES, sizeof *pages->slabs);
    pages->next = calloc(n, sizeof *pages->next);
    if (!pages->slabs || !pages->next) {
        gm_pages_close(pages);
        return -ENOMEM;
    }
    pages->max_pages = (uint32_t)n;
    return 0;
}

void gm_pages_close(struct gm_pages *pages)
{
    free(pages->slabs);
    if (!pages->is_next_kept)
        free(pages->next);
    *pages = (struct gm_pages){0};
}

void gm_pages_keep(struct gm_pages *pages, uint32_t *next)
{
    assert(pages->free_pages == pages->pages);
    if (pages->max_pages == 0)
        return;
    if (!pages->is_next_kept)
        free(pages->next);
    pages->next = next;
    pages->is_next_kept = true;
}

void gm_pages_add(struct gm_pages *pages, uint32_t n)
{
    uint32_t from = pages->pages;
    if (n == 0)
        return;
    assert(n <= pages->max_pages - from);
    pages->pages += n;
    pages->free_pages += n;
    for (uint32_t page = from; page < pages->pages; page++) {
        struct gm_slab *slab = &pages->slabs[page / GM_SLAB_PAGES];
        uint32_t bit = 1u << (page % GM_SLAB_PAGES);
        assert(!(slab->map & bit));
        slab->map = (uint16_t)(slab->map | bit);
        slab->free_map = (uint16_t)(slab->free_map | bit);
    }
    /* Backwards: the first slab is to be taken first. */
    for (uint32_t slab = (pages->pages - 1) / GM_SLAB_PAGES;; slab--) {
        relist(pages, slab);
        if (slab == from / GM_SLAB_PAGES)
            break;
    }
}

void gm_pages_add_slab(struct gm_pages *pages, uint32_t index)
{
    struct gm_slab *slab = &pages->slabs[index];
    uint32_t tail = pages->max_pages - index * GM_SLAB_PAGES;
    assert(slab->map == 0);
    slab->map = (uint16_t)(tail >= GM_SLAB_PAGES ? 0xffffu : (1u << tail) - 1);
    slab->free_map = slab->map;
    pages->pages += (uint32_t)__builtin_popcount(slab->map);
    pages->free_pages += (uint32_t)__builtin_popcount(slab->map);
    relist(pages, index);
}

void gm_pages_remove_slab(struct gm_pages *pages, uint32_t index)
{
    struct gm_slab *slab = &pages->slabs[index];
    assert(gm_slab_is_free(pages, index));
    pages->pages -= (uint32_t)__builtin_popcount(slab->map);
    pages->free_pages -= (uint32_t)__builtin_popcount(slab->map);
    slab->map = slab->free_map = 0;
    relist(pages, index);
}

/* Take the pages of `mask` and append them to the chain, whose end is `*link`. */
static void take_run(struct gm_pages *pages, uint32_t index, uint32_t mask, uint32_t **link)
{
    struct gm_slab *slab = &pages->slabs[index];
    slab->free_map = (uint16_t)(slab->free_map & ~mask);
    for (; mask != 0; mask &= mask - 1) {
        uint32_t page = index * GM_SLAB_PAGES + (uint32_t)__builtin_ctz(mask);
        **link = page;
        *link = &pages->next[page];
        **link = GM_NONE;
        pages->free_pages--;
    }
    relist(pages, index);
}

uint32_t gm_pages_take(struct gm_pages *pages, uint64_t bytes)
{
    uint64_t left = bytes >> GM_CHUNK_SHIFT;
    uint32_t first = GM_NONE, *link = &first;

    if (left == 0 || left > pages->free_pages)
        return GM_NONE;
    while (left > 0) {
        unsigned want = 0, class;
        while (want + 1 < GM_CHUNK_CLASSES && (2u << want) <= left)
            want++;
        for (class = want; class < GM_CHUNK_CLASSES && pages->heads[class] == GM_NONE;)
            class ++;
        if (class == GM_CHUNK_CLASSES)
            for (class = want; pages->heads[class] == GM_NONE;)
                class --; /* ends: a page is free, so some slab is in a list */
        if (class < want)
            want = class;
        uint32_t slab = pages->heads[class];
        take_run(pages, slab, find_run(pages->slabs[slab].free_map, want), &link);
        left -= 1u << want;
    }
    return first;
}

/* Of the first `n` pages of a chain, those are taken, or free again. */
static void set_taken(struct gm_pages *pages, uint32_t page, uint32_t n, bool is_taken)
{
    for (; n > 0; n--, page = pages->next[page]) {
        struct gm_slab *slab = &pages->slabs[page / GM_SLAB_PAGES];
        slab->free_map = (uint16_t)(slab->free_map ^ (1u << (page % GM_SLAB_PAGES)));
        pages->free_pages += is_taken ? -1u : 1u;
        relist(pages, page / GM_SLAB_PAGES);
    }
}

bool gm_pages_adopt(struct gm_pages *pages, uint32_t first, uint64_t bytes)
{
    const uint64_t want = bytes >> GM_CHUNK_SHIFT;
    uint32_t page = first, n = 0;
    for (; n < want && page < pages->max_pages; n++) {
        if ((pages->slabs[page / GM_SLAB_PAGES].free_map & (1u << (page % GM_SLAB_PAGES))) == 0)
            break; /* taken, also by this chain; or it does not exist */
        set_taken(pages, page, 1, true);
        page = pages->next[page];
    }
    if (n == want && page == GM_NONE)
        return true;
    set_taken(pages, first, n, false);
    return false;
}

uint32_t gm_pages_take_beside(struct gm_pages *pages, uint64_t bytes, uint32_t index)
{
    struct gm_slab *slab = &pages->slabs[index];
    const uint16_t hidden = slab->free_map;
    const uint32_t n = (uint32_t)__builtin_popcount(hidden);
    slab->free_map = 0;
    pages->free_pages -= n;
    relist(pages, index);
    const uint32_t page = gm_pages_take(pages, bytes);
    slab->free_map = hidden;
    pages->free_pages += n;
    relist(pages, index);
    return page;
}

bool gm_pages_touch(const struct gm_pages *pages, uint32_t page, uint32_t slab)
{
    while (page != GM_NONE && page / GM_SLAB_PAGES != slab)
        gm_pages_run(pages, &page, GM_SLAB_PAGES);
    return page != GM_NONE;
}

void gm_pages_free(struct gm_pages *pages, uint32_t page)
{
    while (page != GM_NONE) {
        uint32_t index = page / GM_SLAB_PAGES;
        struct gm_slab *slab = &pages->slabs[index];
        for (; page != GM_NONE && page / GM_SLAB_PAGES == index; page = pages->next[page]) {
            uint32_t bit = 1u << (page % GM_SLAB_PAGES);
            assert(!(slab->free_map & bit));
            slab->free_map = (uint16_t)(slab->free_map | bit);
            pages->free_pages++;
        }
        relist(pages, index);
    }
}

uint32_t gm_pages_run(const struct gm_pages *pages, uint32_t *page, uint32_t most)
{
    uint32_t at = *page, n = 1;
    while (n < most && pages->next[at] == at + 1 && (at + 1) % GM_SLAB_PAGES != 0) {
        at++;
        n++;
    }
    *page = pages->next[at];
    return n;
}

bool gm_slab_is_free(const struct gm_pages *pages, uint32_t slab)
{
    return pages->slabs[slab].map != 0 && pages->slabs[slab].free_map == pages->slabs[slab].map;
}
