/*
 * Parameter layouts of kernels, by function handle: where in the arguments of a launch 8-byte words
 * can be. Asking the driver costs a call a parameter; a launch finds its layout here.
 *
 * Owns a fixed table without a lock. A layout that finds no place takes another's. Of a kernel with
 * more parameters than GM_LAYOUT_PARTS that can hold a word, only these are known. What was
 * kept is void before a module, a library or a context ends (gm_layouts_drop), as the driver may
 * give a handle to another function then. Any thread. Calls nobody.
 */
#ifndef GM_SHIM_LAYOUTS_H
#define GM_SHIM_LAYOUTS_H

#include <stdbool.h>
#include <stdint.h>

#define GM_LAYOUT_PARTS 60u
#define GM_LAYOUT_BYTES 32768u /* a kernel cannot have more parameters */

#define GM_LAYOUT_MORE (GM_LAYOUT_PARTS + 1) /* as `n`: all parts, and there are more */

struct gm_kernel;

struct gm_layout {
    uint32_t n;
    struct gm_kernel *kernel; /* it has a profile (profiles.h); NULL: none */
    uint32_t part[GM_LAYOUT_PARTS];
};

/* A part: the parameter's index, its size in bytes, and where in it the first word is. */
static inline uint32_t gm_layout_part(uint32_t param, uint32_t bytes, uint32_t skip)
{
    return param << 18 | bytes << 3 | skip;
}
static inline uint32_t gm_layout_param(uint32_t part)
{
    return part >> 18;
}
static inline uint32_t gm_layout_bytes(uint32_t part)
{
    return part >> 3 & (GM_LAYOUT_BYTES - 1);
}
static inline uint32_t gm_layout_skip(uint32_t part)
{
    return part & 7;
}
#define GM_LAYOUT_PARAMS (1u << 14)

/* Copies the layout of `function`. False: it is not known. */
bool gm_layouts_find(const void *function, struct gm_layout *layout);

/* Changes with each gm_layouts_drop: take it before asking the driver. */
uint32_t gm_layouts_generation(void);

/* Keep what the driver said in that generation. */
void gm_layouts_keep(const void *function, uint32_t generation, const struct gm_layout *layout);

/* Function handles end: before the driver is told so. */
void gm_layouts_drop(void);

#endif
