/* Two hash indices: by frame and by address. */
#include "shim/map/imports.h"

#include <stdlib.h>

#include "common/chunk.h"

#define GM_IMPORT_NONE UINT32_MAX

static struct gm_import
    *gm_imports;                /* `gm_import_room` of them; an index stays valid when it grows */
static uint32_t gm_import_room; /* a power of two */
static uint32_t gm_import_free = GM_IMPORT_NONE;
static uint32_t *gm_by_frame; /* `gm_import_room` buckets each */
static uint32_t *gm_by_va;
static size_t gm_import_cached;
static size_t gm_import_mapped;

static uint32_t gm_bucket_of_frame(uint32_t frame)
{
    return (frame * 2654435761u) & (gm_import_room - 1);
}

static uint32_t gm_bucket_of_va(uint64_t va)
{
    return (uint32_t)((va >> GM_CHUNK_SHIFT) * 2654435761u) & (gm_import_room - 1);
}

struct gm_import *gm_import_find(uint32_t frame)
{
    if (gm_import_room == 0)
        return NULL;
    uint32_t i = gm_by_frame[gm_bucket_of_frame(frame)];
    while (i != GM_IMPORT_NONE && gm_imports[i].frame != frame)
        i = gm_imports[i].next_frame;
    return i == GM_IMPORT_NONE ? NULL : &gm_imports[i];
}

struct gm_import *gm_import_at(uint64_t va)
{
    if (gm_import_room == 0)
        return NULL;
    uint32_t i = gm_by_va[gm_bucket_of_va(va)];
    while (i != GM_IMPORT_NONE && gm_imports[i].va != va)
        i = gm_imports[i].next_va;
    return i == GM_IMPORT_NONE ? NULL : &gm_imports[i];
}

static void gm_import_link_frame(uint32_t i)
{
    uint32_t *head = &gm_by_frame[gm_bucket_of_frame(gm_imports[i].frame)];
    gm_imports[i].next_frame = *head;
    *head = i;
}

static void gm_import_link_va(uint32_t i)
{
    uint32_t *head = &gm_by_va[gm_bucket_of_va(gm_imports[i].va)];
    gm_imports[i].next_va = *head;
    *head = i;
}

/* Double the room. There are as many buckets as imports, so all imports are linked again. */
static bool gm_import_grow(void)
{
    uint32_t room = gm_import_room == 0 ? 64 : 2 * gm_import_room;
    struct gm_import *imports = calloc(room, sizeof(*imports));
    uint32_t *by_frame = malloc(room * sizeof(*by_frame));
    uint32_t *by_va = malloc(room * sizeof(*by_va));
    if (imports == NULL || by_frame == NULL || by_va == NULL || room == 0) {
        free(by_va);
        free(by_frame);
        free(imports);
        return false;
    }
    uint32_t used = gm_import_room;
    for (uint32_t i = 0; i < used; i++)
        imports[i] = gm_imports[i];
    for (uint32_t i = 0; i < room; i++)
        by_frame[i] = by_va[i] = GM_IMPORT_NONE;
    free(gm_imports);
    free(gm_by_frame);
    free(gm_by_va);
    gm_imports = imports;
    gm_by_frame = by_frame;
    gm_by_va = by_va;
    gm_import_room = room;
    /* None was free: all old ones are in use. */
    for (uint32_t i = 0; i < used; i++) {
        gm_import_link_frame(i);
        if (gm_imports[i].va != 0)
            gm_import_link_va(i);
    }
    for (uint32_t i = room; i-- > used;) {
        gm_imports[i].next_frame = gm_import_free;
        gm_import_free = i;
    }
    return true;
}

bool gm_import_add(uint32_t frame, uint32_t gpu, uint64_t bytes,
                   CUmemGenericAllocationHandle handle)
{
    if (gm_import_free == GM_IMPORT_NONE && !gm_import_grow())
        return false;
    uint32_t i = gm_import_free;
    gm_import_free = gm_imports[i].next_frame;
    gm_imports[i] = (struct gm_import){
        .frame = frame, .gpu = gpu, .bytes = bytes, .handle = handle, .next_va = GM_IMPORT_NONE};
    gm_import_link_frame(i);
    gm_import_cached++;
    return true;
}

void gm_import_remove(struct gm_import *import)
{
    uint32_t i = (uint32_t)(import - gm_imports);
    uint32_t *place = &gm_by_frame[gm_bucket_of_frame(import->frame)];
    while (*place != i)
        place = &gm_imports[*place].next_frame;
    *place = import->next_frame;
    import->bytes = 0; /* none */
    import->next_frame = gm_import_free;
    gm_import_free = i;
    gm_import_cached--;
}

void gm_import_set_mapped(struct gm_import *import, uint64_t va)
{
    import->va = va;
    gm_import_link_va((uint32_t)(import - gm_imports));
    gm_import_mapped++;
}

void gm_import_set_unmapped(struct gm_import *import)
{
    uint32_t i = (uint32_t)(import - gm_imports);
    uint32_t *place = &gm_by_va[gm_bucket_of_va(import->va)];
    while (*place != i)
        place = &gm_imports[*place].next_va;
    *place = import->next_va;
    import->va = 0;
    gm_import_mapped--;
}

struct gm_import *gm_import_next(const struct gm_import *import)
{
    uint32_t bucket = 0, i = GM_IMPORT_NONE;
    if (import != NULL) {
        bucket = gm_bucket_of_va(import->va) + 1;
        i = import->next_va;
    }
    while (i == GM_IMPORT_NONE && bucket < gm_import_room)
        i = gm_by_va[bucket++];
    return i == GM_IMPORT_NONE ? NULL : &gm_imports[i];
}

uint32_t gm_import_list(uint32_t *cursor, struct gm_holds_entry *entries, uint32_t most)
{
    uint32_t n = 0;
    for (; *cursor < gm_import_room && n < most; ++*cursor) {
        const struct gm_import *import = &gm_imports[*cursor];
        if (import->bytes != 0)
            entries[n++] = (struct gm_holds_entry){
                .va = import->va, .frame = import->frame, .gpu = import->gpu};
    }
    return n;
}

bool gm_import_frame_at(uint64_t va, CUmemGenericAllocationHandle *frame)
{
    const struct gm_import *import = gm_import_at(va);
    if (import != NULL)
        *frame = import->handle;
    return import != NULL;
}

void gm_import_count(size_t *cached, size_t *mapped)
{
    *cached = gm_import_cached;
    *mapped = gm_import_mapped;
}
