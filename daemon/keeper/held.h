/*
 * A table of descriptors by key: what the keeper holds, and what a daemon has it hold. Called by
 * keeper.c and memory/kept.c, which close them; calls nobody.
 */
#ifndef GM_DAEMON_KEEPER_HELD_H
#define GM_DAEMON_KEEPER_HELD_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/keeper/protocol.h"

struct gm_held {
    struct gm_held_row {
        uint32_t n; /* slots */
        struct gm_held_slot {
            int fd; /* one more than it is; 0: none */
            uint64_t id;
        } * slots;
    } rows[GM_KEEPER_KINDS][GM_KEEPER_GPUS];
    uint32_t n, leases; /* held; of them leases */
    uint32_t most;
};

/* Whether it is a key. */
bool gm_held_is_key(const struct gm_keeper_item *item);
/* Make place for it, so that gm_held_put cannot fail. False: no memory. */
bool gm_held_reserve(struct gm_held *held, const struct gm_keeper_item *item);
/* Hold `fd` there, where nothing is. Reserved before. */
void gm_held_put(struct gm_held *held, const struct gm_keeper_item *item, int fd);
/* Its descriptor, which stays the keeper's; -1: it is not held. */
int gm_held_fd(const struct gm_held *held, const struct gm_keeper_item *item);
/* The id that came with it; 0: it is not held. */
uint64_t gm_held_id(const struct gm_held *held, const struct gm_keeper_item *item);
/* Hold it no more. Returns its descriptor; -1: it is not held. */
int gm_held_drop(struct gm_held *held, const struct gm_keeper_item *item);
/* The next one behind `key`; NULL: the first. Returns its descriptor, which stays the keeper's, and
 * sets *item; -1: there is none. */
int gm_held_next(const struct gm_held *held, const struct gm_keeper_item *key,
                 struct gm_keeper_item *item);
/* Free the table; its descriptors are not closed. */
void gm_held_free(struct gm_held *held);

#endif
