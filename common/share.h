/*
 * The name of a shared allocation, as it travels from one program to another in place of the
 * driver's own 64 opaque bytes (CUipcMemHandle). Pure.
 *
 * What it says is only looked up: the daemon judges the nonce, and hands nothing to another user.
 * Magic and check tell it from a handle of the driver, which goes to the driver.
 */
#ifndef GM_COMMON_SHARE_H
#define GM_COMMON_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GM_SHARE_MAGIC 0x706978756d7067ull /* "gpmuxip" */

struct gm_share_name {
    uint64_t magic;
    uint32_t share;
    uint32_t app;   /* the owner's id, for messages to people */
    uint64_t va;    /* the owner's */
    uint64_t bytes; /* whole chunks: what an opener reserves */
    uint64_t nonce[2];
    uint32_t gpu;   /* gpumux index */
    uint32_t slack; /* of `bytes`, those at the end that the owner did not ask for */
    uint64_t check; /* of what stands before it */
};
_Static_assert(sizeof(struct gm_share_name) == 64, "as large as a CUipcMemHandle");

static inline uint64_t gm_share_check(const struct gm_share_name *name)
{
    const unsigned char *bytes = (const unsigned char *)name;
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < offsetof(struct gm_share_name, check); i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    return hash;
}

/* Fill in what makes *name a name. */
static inline void gm_share_seal(struct gm_share_name *name)
{
    name->magic = GM_SHARE_MAGIC;
    name->check = gm_share_check(name);
}

/* Whether the 64 bytes at `bytes` are such a name; then *name has it. */
static inline bool gm_share_read(const void *bytes, struct gm_share_name *name)
{
    memcpy(name, bytes, sizeof(*name));
    return name->magic == GM_SHARE_MAGIC && name->check == gm_share_check(name);
}

#endif
