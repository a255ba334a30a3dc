#include "shim/tables/allocs.h"

#include <errno.h>
#include <stdlib.h>

#include "common/locks.h"
#include "shim/tables/pages.h"
#include "shim/tables/treap.h"

struct gm_alloc_node {
    struct gm_treap by_va;
    struct gm_alloc alloc;
    struct gm_alloc_node *next; /* of nodes to free */
};

static struct gm_lock gm_allocs_lock = GM_LOCK_INITIALIZER(GM_LOCK_ALLOCS);
static struct gm_treap *gm_allocs_tree;
static size_t gm_allocs_entries;
static uint64_t gm_allocs_bytes[GM_GPUS_MAX];
static uint64_t gm_allocs_framed[GM_GPUS_MAX];      /* of these, in the daemon's frames */
static uint64_t gm_allocs_newest = GM_ALLOC_ID_MIN; /* id */

static struct gm_alloc_node *gm_alloc_of(struct gm_treap *node)
{
    return node != NULL ? GM_OF(node, struct gm_alloc_node, by_va) : NULL;
}

/* The last entry that starts at or below `va`. */
static struct gm_alloc_node *gm_allocs_floor(uint64_t va)
{
    const uint64_t key[3] = {va};
    return gm_alloc_of(gm_treap_floor(gm_allocs_tree, key));
}

/* With the lock: add `sign` times the entry to the sums of its GPU. */
static void gm_allocs_sum(const struct gm_alloc *alloc, int sign)
{
    const uint64_t bytes = sign > 0 ? alloc->span : 0 - alloc->span;
    if (alloc->gpu < 0 || !gm_alloc_is_charged(alloc->kind))
        return;
    gm_allocs_bytes[alloc->gpu] += bytes;
    if (alloc->kind != GM_ALLOC_REAL)
        gm_allocs_framed[alloc->gpu] += bytes;
}

static void gm_allocs_put(struct gm_alloc_node *node)
{
    const struct gm_alloc *alloc = &node->alloc;
    if (node->alloc.id == 0)
        node->alloc.id = gm_allocs_newest++;
    node->by_va.key[0] = node->alloc.va;
    gm_treap_insert(&gm_allocs_tree, &node->by_va);
    gm_allocs_entries++;
    gm_allocs_sum(&node->alloc, 1);
    if (alloc->kind != GM_ALLOC_REAL)
        gm_pages_set(alloc->va, alloc->span, alloc->home != 0 ? alloc->home : alloc->va);
}

static void gm_allocs_cut(struct gm_alloc_node *node)
{
    gm_treap_remove(&gm_allocs_tree, &node->by_va);
    gm_allocs_entries--;
    gm_allocs_sum(&node->alloc, -1);
    if (node->alloc.kind != GM_ALLOC_REAL)
        gm_pages_clear(node->alloc.va, node->alloc.span);
}

/* Whether `node`, which starts at or below `va`, ends above it. */
static bool gm_alloc_reaches(const struct gm_alloc_node *node, uint64_t va)
{
    return node != NULL && node->alloc.va + node->alloc.span > va;
}

int gm_allocs_insert(const struct gm_alloc *alloc)
{
    if (alloc->bytes == 0 || alloc->span < alloc->bytes || alloc->va + alloc->span < alloc->va ||
        alloc->gpu >= (int32_t)GM_GPUS_MAX)
        return -EINVAL;
    int error = alloc->kind != GM_ALLOC_REAL ? gm_pages_make(alloc->va, alloc->span) : 0;
    struct gm_alloc_node *node = error == 0 ? malloc(sizeof(*node)) : NULL;
    if (node == NULL)
        return error != 0 ? error : -ENOMEM;
    *node = (struct gm_alloc_node){.alloc = *alloc};

    struct gm_alloc_node *stale = NULL; /* freed without the lock */
    gm_lock(&gm_allocs_lock);
    const uint64_t last = alloc->va + alloc->span - 1;
    struct gm_alloc_node *other = gm_allocs_floor(last);
    while (gm_alloc_reaches(other, alloc->va) && other->alloc.kind == GM_ALLOC_REAL)
        other = other->alloc.va == 0 ? NULL : gm_allocs_floor(other->alloc.va - 1);
    if (gm_alloc_reaches(other, alloc->va))
        error = -EEXIST;
    while (error == 0 && gm_alloc_reaches(other = gm_allocs_floor(last), alloc->va)) {
        gm_allocs_cut(other);
        other->next = stale;
        stale = other;
    }
    if (error == 0)
        gm_allocs_put(node);
    gm_unlock(&gm_allocs_lock);

    while (stale != NULL) {
        struct gm_alloc_node *next = stale->next;
        free(stale);
        stale = next;
    }
    if (error != 0)
        free(node);
    return error;
}

/* With the lock. */
static enum gm_alloc_find gm_allocs_look(uint64_t va, struct gm_alloc_node **found)
{
    struct gm_alloc_node *node = gm_allocs_floor(va);
    *found = node;
    if (node == NULL || va - node->alloc.va >= node->alloc.bytes)
        return GM_ALLOC_UNKNOWN;
    return node->alloc.va == va ? GM_ALLOC_BASE : GM_ALLOC_INSIDE;
}

enum gm_alloc_find gm_allocs_find(uint64_t va, struct gm_alloc *alloc)
{
    struct gm_alloc_node *node;
    gm_lock(&gm_allocs_lock);
    enum gm_alloc_find found = gm_allocs_look(va, &node);
    if (found != GM_ALLOC_UNKNOWN)
        *alloc = node->alloc;
    gm_unlock(&gm_allocs_lock);
    return found;
}

bool gm_allocs_set_sync_memops(uint64_t va, uint64_t id, bool is_on)
{
    struct gm_alloc_node *node;
    gm_lock(&gm_allocs_lock);
    bool is_there = gm_allocs_look(va, &node) != GM_ALLOC_UNKNOWN && node->alloc.id == id;
    if (is_there)
        node->alloc.is_sync_memops = is_on;
    gm_unlock(&gm_allocs_lock);
    return is_there;
}

bool gm_allocs_set_shared(uint64_t va, uint64_t id)
{
    struct gm_alloc_node *node;
    gm_lock(&gm_allocs_lock);
    bool is_there = gm_allocs_look(va, &node) == GM_ALLOC_BASE && node->alloc.id == id;
    if (is_there)
        node->alloc.is_shared = true;
    gm_unlock(&gm_allocs_lock);
    return is_there;
}

enum gm_alloc_find gm_allocs_take(uint64_t va, struct gm_alloc *alloc)
{
    struct gm_alloc_node *node;
    gm_lock(&gm_allocs_lock);
    enum gm_alloc_find found = gm_allocs_look(va, &node);
    if (found != GM_ALLOC_UNKNOWN)
        *alloc = node->alloc;
    if (found == GM_ALLOC_BASE)
        gm_allocs_cut(node);
    gm_unlock(&gm_allocs_lock);
    if (found == GM_ALLOC_BASE)
        free(node);
    return found;
}

/* Recursive: the depth is O(log n). */
static struct gm_alloc_node *gm_allocs_first_of(struct gm_treap *tree, const void *context,
                                                int32_t device)
{
    struct gm_alloc_node *node = gm_alloc_of(tree);
    if (node == NULL)
        return NULL;
    const struct gm_alloc *alloc = &node->alloc;
    if (context != NULL ? alloc->context == context : alloc->is_primary && alloc->device == device)
        return node;
    struct gm_alloc_node *found = gm_allocs_first_of(tree->left, context, device);
    return found != NULL ? found : gm_allocs_first_of(tree->right, context, device);
}

bool gm_allocs_take_of(const void *context, int32_t device, struct gm_alloc *alloc)
{
    gm_lock(&gm_allocs_lock);
    struct gm_alloc_node *node = gm_allocs_first_of(gm_allocs_tree, context, device);
    if (node != NULL) {
        *alloc = node->alloc;
        gm_allocs_cut(node);
    }
    gm_unlock(&gm_allocs_lock);
    free(node);
    return node != NULL;
}

static bool gm_allocs_are(struct gm_treap *tree, enum gm_alloc_kind kind,
                          bool (*is_good)(const struct gm_alloc *))
{
    const struct gm_alloc_node *node = gm_alloc_of(tree);
    return node == NULL ||
           ((node->alloc.kind != kind || is_good(&node->alloc)) &&
            gm_allocs_are(tree->left, kind, is_good) && gm_allocs_are(tree->right, kind, is_good));
}

bool gm_allocs_all(enum gm_alloc_kind kind, bool (*is_good)(const struct gm_alloc *alloc))
{
    gm_lock(&gm_allocs_lock);
    bool are_all = gm_allocs_are(gm_allocs_tree, kind, is_good);
    gm_unlock(&gm_allocs_lock);
    return are_all;
}

bool gm_allocs_all_backed(bool (*is_good)(const struct gm_alloc *alloc))
{
    for (int kind = 0; kind < GM_ALLOC_KINDS; kind++)
        if (gm_alloc_is_backed((enum gm_alloc_kind)kind) &&
            !gm_allocs_all((enum gm_alloc_kind)kind, is_good))
            return false;
    return true;
}

uint64_t gm_allocs_used(uint32_t gpu)
{
    gm_lock(&gm_allocs_lock);
    uint64_t bytes = gpu < GM_GPUS_MAX ? gm_allocs_bytes[gpu] : 0;
    gm_unlock(&gm_allocs_lock);
    return bytes;
}

uint64_t gm_allocs_in_frames(uint32_t gpu)
{
    gm_lock(&gm_allocs_lock);
    uint64_t bytes = gpu < GM_GPUS_MAX ? gm_allocs_framed[gpu] : 0;
    gm_unlock(&gm_allocs_lock);
    return bytes;
}

void gm_allocs_charge(uint32_t gpu, int64_t bytes)
{
    gm_lock(&gm_allocs_lock);
    if (gpu < GM_GPUS_MAX)
        gm_allocs_bytes[gpu] += (uint64_t)bytes;
    gm_unlock(&gm_allocs_lock);
}

size_t gm_allocs_count(void)
{
    gm_lock(&gm_allocs_lock);
    size_t count = gm_allocs_entries;
    gm_unlock(&gm_allocs_lock);
    return count;
}
