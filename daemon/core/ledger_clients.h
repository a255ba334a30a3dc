/* clang-format off */
/*
 * The machine's ledger: what of its clients outlives the daemon, in memory like that of the GPUs'
 * ledgers (ledger.h): who they are, what was said of them, and where they stand in the scheduler.
 * Pure: the caller gives the memory. Written by engine/keep.c alone; read from a copy, as it may be
 * an attack.
 *
 * Each client has a slot, by its id, with two copies of its record and a word that says which one
 * counts, and its CRC-32. The other copy is written, then the word: a death in the middle leaves the
 * old record or the new one.
 *
 *   page 0     struct gm_clients_head
 *   then, by id
 *   slot       {word} {a record} {a record}
 */
/* clang-format on */
#ifndef GM_CORE_LEDGER_CLIENTS_H
#define GM_CORE_LEDGER_CLIENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/settings.h"
#include "daemon/core/ledger.h"

#define GM_CLIENTS_MAGIC 0x73746e65696c6378ull /* "xclients" */
#define GM_CLIENTS_VERSION 4u
#define GM_CLIENTS_GPUS 16u

/* `made` is written last: without it nothing counts. */
struct gm_clients_head {
    uint64_t magic, version, max_clients, made;
};

/* struct gm_settings, in fixed widths. */
struct gm_client_settings {
    uint32_t has, class, is_paused, is_evicted, is_until_call, is_oversize, weight, share;
    uint64_t cap;
};

enum gm_client_flag { GM_CLIENT_HAS_PART = 1, GM_CLIENT_IS_ADMIN = 2 };

struct gm_client_record {
    uint32_t pid, uid;
    uint64_t nonce[2]; /* of WELCOME: a secret between daemon and program */
    uint64_t
        started; /* of its process, as the system counts: tells it from a later one of this pid */
    char name[64], group[64];         /* terminated, and zero behind that; "": no name */
    uint32_t group_of;                /* the lowest id of those that run with it, or its own */
    uint32_t is_group_said;           /* 1: its user said the name; 0: the daemon made it */
    uint32_t is_gone;                 /* 1: its session has ended, and its process has not */
    uint32_t engines;                 /* a bit a GPU that it uses */
    uint64_t epoch;                   /* of the newest CLOSE */
    uint32_t class, oversize, cap_is; /* its wishes */
    uint32_t flags;                   /* enum gm_client_flag */
    uint64_t cap;
    struct gm_client_settings admin, own; /* what was said of it, by whom */
    uint32_t said, pauser, is_paused_by_rule;
    struct { /* by GPU */
        uint32_t level;
        uint32_t kin; /* the first: 1 + the lowest id of its kin (groups.h), 0: none; others: 0 */
        uint64_t charged_ns;
        uint64_t run_ns, wait_ns; /* since it began, whichever daemon was there */
    } turns[GM_CLIENTS_GPUS];
};
_Static_assert(sizeof(struct gm_client_record) == 816, "it has no holes");

struct gm_clients {
    uint8_t *memory; /* NULL: there is none, and nothing is written */
    uint32_t max_clients;
    /* Tests: before each store of a word. */
    void (*on_store)(void *arg, uint32_t id);
    void *arg;
};

/* Bytes of one, whole pages. */
size_t gm_clients_size(uint32_t max_clients);
/* Make an empty one in zeroed memory of that size, page-aligned. */
void gm_clients_init(struct gm_clients *clients, void *memory, uint32_t max_clients);
/* What holds of a client from now on; nothing is stored where that is so already. */
void gm_clients_write(const struct gm_clients *clients, uint32_t id,
                      const struct gm_client_record *is);
/* The word without which nothing counts; what it is then is GM_CLIENTS_MAGIC. */
uint64_t *gm_clients_made(const struct gm_clients *clients);
void gm_clients_end(const struct gm_clients *clients, uint32_t id);

void gm_client_settings_from(struct gm_client_settings *to, const struct gm_settings *from);
/* False: its values are none. Whether they are legal, gm_settings_are_legal says. */
bool gm_client_settings_to(struct gm_settings *to, const struct gm_client_settings *from);

/* What is wrong with the head of one of `bytes`: one line; NULL: nothing, and *clients is made of
 * it, for reading. It has `max_clients` at most. */
const char *gm_clients_open(struct gm_clients *clients, void *memory, size_t bytes,
                            uint32_t max_clients);
/* BROKEN also for what no client can be. */
enum gm_ledger_outcome gm_clients_read(const struct gm_clients *clients, uint32_t id,
                                       struct gm_client_record *is);
/* Whether two ran together, or were kin. A death in the middle of telling all of a group may leave
 * two numbers for it. */
bool gm_clients_are_together(uint32_t id, const struct gm_client_record *record, uint32_t other_id,
                             const struct gm_client_record *other);
bool gm_clients_are_kin(uint32_t id, const struct gm_client_record *record, uint32_t other_id,
                        const struct gm_client_record *other);

#endif
