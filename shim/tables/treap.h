/*
 * Treaps: search trees whose nodes are members of what they order. Find, insert and remove take
 * O(log n) in any order of keys. Priorities are a hash of the key, so the same keys make the same
 * tree. Keys are unique in a tree. Pure; the caller has the lock.
 */
#ifndef GM_SHIM_TREAP_H
#define GM_SHIM_TREAP_H

#include <stddef.h>
#include <stdint.h>

struct gm_treap {
    uint64_t key[3]; /* compared from the first word to the last */
    uint64_t priority;
    struct gm_treap *left, *right;
};

/* The struct that contains the node. */
#define GM_OF(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

static inline int gm_treap_compare(const uint64_t *a, const uint64_t *b)
{
    for (int i = 0; i < 3; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static inline uint64_t gm_treap_priority(const uint64_t *key)
{
    uint64_t x = key[0] * 0x9e3779b97f4a7c15ull + key[1] * 0xc2b2ae3d27d4eb4full + key[2];
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static inline void gm_treap_insert(struct gm_treap **root, struct gm_treap *node)
{
    struct gm_treap **place = root;
    node->priority = gm_treap_priority(node->key);
    while (*place != NULL && (*place)->priority >= node->priority)
        place = gm_treap_compare(node->key, (*place)->key) < 0 ? &(*place)->left : &(*place)->right;

    /* split the subtree into the keys below the node's and those above */
    struct gm_treap *tree = *place, **below = &node->left, **above = &node->right;
    while (tree != NULL) {
        if (gm_treap_compare(tree->key, node->key) < 0) {
            *below = tree;
            below = &tree->right;
            tree = tree->right;
        } else {
            *above = tree;
            above = &tree->left;
            tree = tree->left;
        }
    }
    *below = NULL;
    *above = NULL;
    *place = node;
}

static inline void gm_treap_remove(struct gm_treap **root, struct gm_treap *node)
{
    struct gm_treap **place = root;
    while (*place != node)
        place = gm_treap_compare(node->key, (*place)->key) < 0 ? &(*place)->left : &(*place)->right;

    struct gm_treap *a = node->left, *b = node->right;
    while (a != NULL && b != NULL) {
        if (a->priority >= b->priority) {
            *place = a;
            place = &a->right;
            a = a->right;
        } else {
            *place = b;
            place = &b->left;
            b = b->left;
        }
    }
    *place = a != NULL ? a : b;
}

/* The least node that is not below `key`; the greatest that is not above it. */
static inline struct gm_treap *gm_treap_ceiling(struct gm_treap *node, const uint64_t *key)
{
    struct gm_treap *best = NULL;
    while (node != NULL) {
        if (gm_treap_compare(node->key, key) >= 0) {
            best = node;
            node = node->left;
        } else {
            node = node->right;
        }
    }
    return best;
}

static inline struct gm_treap *gm_treap_floor(struct gm_treap *node, const uint64_t *key)
{
    struct gm_treap *best = NULL;
    while (node != NULL) {
        if (gm_treap_compare(node->key, key) <= 0) {
            best = node;
            node = node->right;
        } else {
            node = node->left;
        }
    }
    return best;
}

#endif
