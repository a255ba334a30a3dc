/* What a program has mapped and imported, and the regions of its addresses. */
#include "tests/sim/engine/program.h"

#include <stdlib.h>
#include <string.h>

struct mapping *program_at(struct program *p, uint64_t va)
{
    require(va >= PROGRAM_BASE && va < program_va(PROGRAM_PAGES) && va % GM_CHUNK_MIN == 0,
            "program %u has no such address: %lx", p->number, va);
    return &p->map[(va - PROGRAM_BASE) >> GM_CHUNK_SHIFT];
}

struct page *program_page(const struct program *p, uint32_t page)
{
    const struct mapping *at = &p->map[page];
    return at->handle == NO_HANDLE ? NULL : &handle_at(at->handle)->page[at->page];
}

bool program_is_in_use(const struct program *p, const struct mapping *at)
{
    const enum region_state state =
        at->region == NO_REGION ? REGION_NONE : p->regions[at->region].state;
    return state == REGION_HELD || state == REGION_OPEN;
}

void program_map(struct program *p, struct mapping *at, int handle, uint32_t page)
{
    struct handle *h = handle_at(handle);
    require(at->handle == NO_HANDLE, "program %u is told to map over a mapping", p->number);
    at->handle = (uint16_t)handle;
    at->page = (uint8_t)page;
    h->maps++;
}

void program_unmap(struct mapping *at)
{
    struct handle *h = handle_at(at->handle);
    at->handle = NO_HANDLE;
    if (--h->maps == 0)
        h->program = 0;
}

/* Whole memory is mapped and unmapped: its first page stands for it. */
void program_note_mapped(struct program *p, int handle, bool is_shared)
{
    struct handle *h = handle_at(handle);
    h->is_shared = h->is_shared || is_shared;
    require(h->program == 0 || h->program == p->number || h->is_shared,
            "program %u maps memory that program %u has mapped", p->number, h->program);
    require(h->uid == 0 || h->uid == p->uid, "memory of user %u is mapped by user %u", h->uid,
            p->uid);
    h->program = p->number;
    h->uid = p->uid;
}

uint32_t *program_import(struct program *p, uint32_t frame)
{
    for (unsigned i = 0; i < IMPORTS; i++)
        if (p->imports[i].frame == frame)
            return &p->imports[i].handle;
    return NULL;
}

void program_add_import(struct program *p, uint32_t frame, int handle)
{
    require(!program_import(p, frame), "program %u gets the fd of memory that it has", p->number);
    for (unsigned i = 0; i < IMPORTS; i++) {
        if (p->imports[i].frame)
            continue;
        p->imports[i].frame = frame;
        p->imports[i].handle = (uint32_t)handle;
        handle_ref(handle);
        return;
    }
    fail("too many imports");
}

void program_drop_import(struct program *p, uint32_t frame)
{
    uint32_t *handle = program_import(p, frame);
    require(handle, "program %u is to drop memory that it does not have", p->number);
    for (unsigned i = 0; i < PROGRAM_PAGES; i++)
        require(p->map[i].handle != *handle, "program %u is to drop memory that it has mapped",
                p->number);
    const int gone = (int)*handle;
    handle[-1] = 0; /* its frame */
    handle_unref(gone);
}

struct content *program_new_content(uint32_t pages)
{
    /* Of bytes: one of the size of a message would be refused (system.c). */
    struct content *content = calloc(sizeof *content + 2 * pages * sizeof *content->tag, 1);
    require(content, "no memory");
    content->refs = 1;
    content->pages = pages;
    return content;
}

static void end_content(struct content *content)
{
    if (content && --content->refs == 0)
        free(content);
}

struct region *program_new_region(struct program *p, uint32_t gpu, uint32_t pages,
                                  enum region_state state)
{
    uint32_t first = 0, i = 0;
    while (i < REGIONS && p->regions[i].state != REGION_NONE)
        i++;
    if (i == REGIONS || pages > PROGRAM_PAGES)
        return NULL;
    for (uint32_t run = 0; run < pages; first++) {
        if (first == PROGRAM_PAGES)
            return NULL;
        run = p->map[first].region == NO_REGION ? run + 1 : 0;
    }
    first -= pages;
    for (uint32_t k = 0; k < pages; k++) {
        require(p->map[first + k].handle == NO_HANDLE, "free addresses are mapped");
        p->map[first + k].region = (uint8_t)i;
    }
    struct region *region = &p->regions[i];
    *region = (struct region){.state = state,
                              .gpu = gpu,
                              .first = first,
                              .pages = pages,
                              .cookie = ++p->cookie,
                              .works = p->works};
    return region;
}

void program_end_region(struct program *p, struct region *region)
{
    for (uint32_t k = 0; k < region->pages; k++) {
        require(p->map[region->first + k].handle == NO_HANDLE,
                "program %u hears that memory is gone, which it still has mapped", p->number);
        p->map[region->first + k].region = NO_REGION;
    }
    end_content(region->content);
    *region = (struct region){.state = REGION_NONE};
}

struct region *program_find_region(struct program *p, enum region_state state, uint64_t cookie)
{
    for (unsigned i = 0; i < REGIONS; i++)
        if (p->regions[i].state == state && p->regions[i].cookie == cookie)
            return &p->regions[i];
    fail("program %u gets an answer to what it did not ask", p->number);
}

struct region *program_any_region(struct program *p, enum region_state state)
{
    const unsigned from = (unsigned)chance_below(REGIONS);
    for (unsigned i = 0; i < REGIONS; i++)
        if (p->regions[(from + i) % REGIONS].state == state)
            return &p->regions[(from + i) % REGIONS];
    return NULL;
}

void program_forget_memory(struct program *p)
{
    for (uint32_t i = 0; i < PROGRAM_PAGES; i++)
        if (p->map[i].handle != NO_HANDLE)
            program_unmap(&p->map[i]);
    for (unsigned i = 0; i < IMPORTS; i++)
        if (p->imports[i].frame) {
            p->imports[i].frame = 0;
            handle_unref((int)p->imports[i].handle);
        }
    for (unsigned i = 0; i < REGIONS; i++)
        end_content(p->regions[i].content);
    memset(p->regions, 0, sizeof p->regions);
    for (uint32_t i = 0; i < PROGRAM_PAGES; i++)
        p->map[i] = (struct mapping){.region = NO_REGION};
}
