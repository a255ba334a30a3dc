/*
 * Pages: of every place of the address space (2 MiB, common/windows.h) whether gpumux backs it, and
 * under which place the daemon knows it. That is its home: the place itself, and for a view of a
 * virtual handle (vmm.h) the one in the handle's home.
 *
 * A table of two levels, for the 48 bits that user addresses have. A look-up is two loads, without
 * a lock, in any thread and any signal handler. What it finds is what was there when it looked: who
 * frees memory that another thread launches work on has no right to an answer.
 *
 * A program can map its own virtual memory behind these 48 bits, where the machine has more. While
 * it does, each address there may be gpumux's, and nobody knows its home.
 *
 * Owns the table; its lower level is made where it is needed, and never freed. allocs.c alone
 * writes, with its lock. Calls nobody.
 */
#ifndef GM_SHIM_PAGES_H
#define GM_SHIM_PAGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/chunk.h"

#define GM_PAGES_VA_BITS 48u   /* as mmap gives addresses to who asks for no others */
#define GM_PAGES_LEAF_BITS 13u /* 32 KiB, for 16 GiB of addresses */
#define GM_PAGES_LEAF (1u << GM_PAGES_LEAF_BITS)
#define GM_PAGES_TOP (1u << (GM_PAGES_VA_BITS - GM_CHUNK_SHIFT - GM_PAGES_LEAF_BITS))

/* Private to pages.h and pages.c. */
extern __attribute__((visibility("hidden"))) _Atomic uint32_t *_Atomic gm_pages_top[GM_PAGES_TOP];
extern __attribute__((visibility("hidden"))) _Atomic uint32_t gm_pages_beyond;

/* The home of the place of `va`: an address >> GM_CHUNK_SHIFT. 0: gpumux does not back it. */
static inline uint32_t gm_pages_home(uint64_t va)
{
    const uint64_t place = va >> GM_CHUNK_SHIFT;
    if (place >> GM_PAGES_LEAF_BITS >= GM_PAGES_TOP)
        return 0;
    _Atomic uint32_t *leaf =
        atomic_load_explicit(&gm_pages_top[place >> GM_PAGES_LEAF_BITS], memory_order_acquire);
    return leaf != NULL ? atomic_load_explicit(&leaf[place % GM_PAGES_LEAF], memory_order_relaxed)
                        : 0;
}

/* Whether `va` is behind the addresses of the table, and gpumux backs some there. */
static inline bool gm_pages_are_beyond(uint64_t va)
{
    return __builtin_expect(va >> GM_PAGES_VA_BITS != 0, 0) &&
           atomic_load_explicit(&gm_pages_beyond, memory_order_relaxed) != 0;
}

/* Whether gpumux backs `va`. True for the rest of an allocation's last chunk, too, and for what is
 * beyond. */
static inline bool gm_pages_have(uint64_t va)
{
    return gm_pages_home(va) != 0 || gm_pages_are_beyond(va);
}

/* Make the table for [va, va + bytes). 0, -EINVAL (no bytes, or they wrap) or -ENOMEM. */
int gm_pages_make(uint64_t va, uint64_t bytes);

/* Enter the places of [va, va + bytes), for which the table was made. `home`: the address by which
 * the daemon knows the first. */
void gm_pages_set(uint64_t va, uint64_t bytes, uint64_t home);

void gm_pages_clear(uint64_t va, uint64_t bytes);

#endif
