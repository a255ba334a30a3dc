/*
 * The name of a shared allocation. Programs pass it to each other instead of the driver's 64 opaque
 * bytes (CUipcMemHandle). Used by the shim; pure.
 *
 * The name alone gives no access: the daemon checks the nonce and the user. Magic and check tell it
 * from a handle of the driver.
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
    uint32_t app;   /* the owner's id, for messages */
    uint64_t va;    /* the owner's */
    uint64_t bytes; /* whole chunks: what an opener reserves */
    uint64_t nonce[2];
    uint32_t gpu;   /* gpumux index */
    uint32_t slack; /* bytes at the end that the owner did not ask for */
    uint64_t check; /* hash of the other members */
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

/* Set magic and check. */
static inline void gm_share_seal(struct gm_share_name *name)
{
    name->magic = GM_SHARE_MAGIC;
    name->check = gm_share_check(name);
}

/* Copy the 64 bytes at `bytes` to *name. False: they are no such name. */
static inline bool gm_share_read(const void *bytes, struct gm_share_name *name)
{
    memcpy(name, bytes, sizeof(*name));
    return name->magic == GM_SHARE_MAGIC && name->check == gm_share_check(name);
}

#endif
