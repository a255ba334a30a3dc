/*
 * What the arguments of a driver call are, by their types: addresses, sizes, structs and lists that
 * name memory. So every COPY row of hooks.def is read without a line of its own, and a type that
 * nobody thought of names nothing.
 *
 * A wrapper (wrap.c) hands over its arguments in parentheses. Owns nothing. Calls windows.h.
 */
#ifndef GM_SHIM_ARGUMENTS_H
#define GM_SHIM_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/driver/real.h"
#include "shim/observe/windows.h"

/* m(a), m(b), ... */
#define GM_EACH1(m, a) m(a)
#define GM_EACH2(m, a, ...) m(a), GM_EACH1(m, __VA_ARGS__)
#define GM_EACH3(m, a, ...) m(a), GM_EACH2(m, __VA_ARGS__)
#define GM_EACH4(m, a, ...) m(a), GM_EACH3(m, __VA_ARGS__)
#define GM_EACH5(m, a, ...) m(a), GM_EACH4(m, __VA_ARGS__)
#define GM_EACH6(m, a, ...) m(a), GM_EACH5(m, __VA_ARGS__)
#define GM_EACH7(m, a, ...) m(a), GM_EACH6(m, __VA_ARGS__)
#define GM_EACH8(m, a, ...) m(a), GM_EACH7(m, __VA_ARGS__)
#define GM_EACH9(m, a, ...) m(a), GM_EACH8(m, __VA_ARGS__)
#define GM_NINTH(a, b, c, d, e, f, g, h, i, last, ...) last
#define GM_EACH(m, ...)                                                                            \
    GM_NINTH(__VA_ARGS__, GM_EACH9, GM_EACH8, GM_EACH7, GM_EACH6, GM_EACH5, GM_EACH4, GM_EACH3,    \
             GM_EACH2, GM_EACH1)                                                                   \
    (m, __VA_ARGS__)

/* The arguments as words. A size counts as 0: it may look like an address, because ranges of the
 * driver may start at 12 GiB. */
#define GM_WORD(a) (uint64_t)(uintptr_t) _Generic((a), size_t : 0, default : (a))
#define GM_WORDS(...)                                                                              \
    (const uint64_t[])                                                                             \
    {                                                                                              \
        GM_EACH(GM_WORD, __VA_ARGS__)                                                              \
    }

/* Whether a size is 0: then an address may be the end of an allocation. */
#define GM_NONE_AT(a) _Generic((a), size_t : (uint64_t)(uintptr_t)(a) == 0, default : 0)
#define GM_IS_EMPTY(...) (GM_ANY(GM_EACH(GM_NONE_AT, __VA_ARGS__)))
#define GM_ANY(...) gm_any((const int[]){__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int))

static inline bool gm_any(const int *are, size_t n)
{
    int is_any = 0;
    for (size_t i = 0; i < n; i++)
        is_any |= are[i];
    return is_any != 0;
}

/* What the arguments of a copy or set name: addresses, structs with addresses, lists of them, and
 * what cannot be read. */
#define GM_TOUCH(a)                                                                                \
    (_Generic((a), CUdeviceptr                                                                     \
              : gm_windows_of_address, void *                                                      \
              : gm_windows_of_address, const void *                                                \
              : gm_windows_of_address, const CUDA_MEMCPY2D *                                       \
              : gm_windows_of_copy_2d, const CUDA_MEMCPY3D *                                       \
              : gm_windows_of_copy_3d, const CUDA_MEMCPY3D_PEER *                                  \
              : gm_windows_of_copy_peer, CUDA_MEMCPY3D_BATCH_OP *                                  \
              : gm_windows_of_unknown, CUmemDecompressParams *                                     \
              : gm_windows_of_unknown, CUfunction                                                  \
              : gm_windows_of_unknown, default                                                     \
              : gm_windows_of_none)((const void *)(uintptr_t)(a), gm_extent))
#define GM_TOUCH_ALL(...) GM_EACH(GM_TOUCH, __VA_ARGS__)

/* The sizes among the arguments; UINT64_MAX for what is none. */
#define GM_SIZE_AT(a) _Generic((a), size_t : (uint64_t)(uintptr_t)(a), default : UINT64_MAX)
#define GM_SIZES(...)                                                                              \
    (const uint64_t[])                                                                             \
    {                                                                                              \
        GM_EACH(GM_SIZE_AT, __VA_ARGS__)                                                           \
    }
/* Bytes of what a set writes each time. */
#define GM_UNIT_AT(a) _Generic((a), unsigned short : 2u, unsigned int : 4u, default : 1u)
#define GM_UNITS(...)                                                                              \
    (const uint64_t[])                                                                             \
    {                                                                                              \
        GM_EACH(GM_UNIT_AT, __VA_ARGS__)                                                           \
    }

/* How many bytes a copy or set with these arguments reaches over, from each address that it names:
 * of one size, so many elements; of an offset in an array and a size, the size; of a pitch, a width
 * in elements and a height, to the end of the last row. */
static inline uint64_t gm_extent_of(const uint64_t *sizes, const uint64_t *units, size_t n)
{
    uint64_t size[3] = {0}, unit = 1;
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        unit *= units[i];
        if (sizes[i] != UINT64_MAX && found < 3)
            size[found++] = sizes[i];
    }
    if (found == 3)
        return gm_windows_rows(size[0], size[1] * unit, size[2]);
    return found == 2 ? size[1] : size[0] * unit;
}

/* Whether the arguments are those of a batch of copies: two lists of addresses, one of sizes, and
 * how many there are. */
#define GM_IS_LIST_AT(a) _Generic((a), CUdeviceptr * : 1, default : 0)
#define GM_IS_BATCH(...) (GM_ANY(GM_EACH(GM_IS_LIST_AT, __VA_ARGS__)))

static inline void gm_touch_lists(const uint64_t *words, const uint64_t *sizes)
{
    gm_windows_of_lists((const CUdeviceptr *)(uintptr_t)words[0],
                        (const CUdeviceptr *)(uintptr_t)words[1],
                        (const size_t *)(uintptr_t)words[2], sizes[3]);
}

/* Whether an argument is a list that cannot be read. Its call has flags of an address's type. */
#define GM_UNREAD_AT(a) _Generic((a), CUDA_MEMCPY3D_BATCH_OP * : 1, default : 0)
#define GM_IS_UNREAD(...) (GM_ANY(GM_EACH(GM_UNREAD_AT, __VA_ARGS__)))

/* Whether the copy or set crosses the link, as far as each argument tells. A pointer is to the
 * host.
 */
#define GM_CROSSING_TO(a, is_host) gm_windows_crossing((uint64_t)(uintptr_t)(a), is_host)
#define GM_CROSSING_AT(a)                                                                          \
    _Generic((a), CUdeviceptr                                                                      \
             : GM_CROSSING_TO(a, false), void *                                                    \
             : GM_CROSSING_TO(a, true), const void *                                               \
             : GM_CROSSING_TO(a, true), default                                                    \
             : GM_CROSSES_NOT)
#define GM_CROSSING(...)                                                                           \
    gm_crossing((const enum gm_crossing[]){GM_EACH(GM_CROSSING_AT, __VA_ARGS__)},                  \
                sizeof(GM_SIZES(__VA_ARGS__)) / sizeof(uint64_t))

static inline enum gm_crossing gm_crossing(const enum gm_crossing *are, size_t n)
{
    enum gm_crossing most = GM_CROSSES_NOT;
    for (size_t i = 0; i < n; i++)
        most = are[i] > most ? are[i] : most;
    return most;
}

/* Mark what a copy or set touches. */
#define GM_COPY_TOUCHES(args)                                                                      \
    if (gm_windows_are_on() && GM_IS_BATCH args)                                                   \
        gm_touch_lists(GM_WORDS args, GM_SIZES args);                                              \
    else if (gm_windows_are_on()) {                                                                \
        const uint64_t gm_extent =                                                                 \
            gm_extent_of(GM_SIZES args, GM_UNITS args, sizeof(GM_SIZES args) / sizeof(uint64_t));  \
        const enum gm_crossing gm_crosses = GM_IS_UNREAD args ? GM_CROSSES_NOT : GM_CROSSING args; \
        if (gm_crosses != GM_CROSSES_NOT)                                                          \
            gm_windows_crossed(gm_extent, 0);                                                      \
        if (gm_crosses != GM_CROSSES)                                                              \
            (void)(GM_TOUCH_ALL args);                                                             \
    }

#endif
