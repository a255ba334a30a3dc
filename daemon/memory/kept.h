/*
 * What must outlive the daemon: descriptors by key, of memory on the GPU and on the host, of the
 * ledgers, and of programs. This table notes all of them; gpumux-keeper (daemon/keeper), another
 * process, holds a copy of each as long as there is a connection to it. Without one, as with a
 * gm_kept that is NULL, putting and dropping only note, so whoever puts need not know.
 *
 * A new daemon takes what the keeper holds. Each owner then claims what is its own, and whatever
 * nobody claimed is dropped. When the keeper is lost, connecting to another one hands all over.
 *
 * A keeper that was lost from sight may still hold what was dropped since, under a key that is used
 * again. So the ledgers, which name what it holds by keys, are marked from the first thing that it
 * was not told until it has all again.
 *
 * Owns the table and the connection; the descriptors that were put are the owners'. Called by
 * everything of this folder that makes memory, by the engine and by main, on the loop thread. Calls
 * keeper/client and keeper/held.
 */
#ifndef GM_DAEMON_MEMORY_KEPT_H
#define GM_DAEMON_MEMORY_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/chunk.h"
#include "daemon/keeper/protocol.h"

/* With its slot. The GPU is the engine's index; 0 for what is the machine's. */
enum gm_kept_kind {
    GM_KEPT_LEASE = GM_KEEPER_LEASE, /* a client's pidfd: its id */
    GM_KEPT_LIFELINE,                /* of enum gm_lifeline */
    GM_KEPT_CLIENTS,                 /* the machine's ledger: 0 */
    GM_KEPT_LEDGER,                  /* a GPU's: its generation & 1; id: the generation */
    GM_KEPT_FRAME,                   /* the table's frame; id: on the wire */
    GM_KEPT_PIECE,                   /* pinned memory: the first page of it */
    GM_KEPT_PAGED,                   /* the paged tier's memory: 0 */
    GM_KEPT_DISK,                    /* the disk tier's file: 0 */
    GM_KEPT_STAT,                    /* a client's stat area: its id */
};
_Static_assert(GM_KEPT_STAT < GM_KEEPER_KINDS, "kinds of the keeper");

/* Who is alive: both ends of the pipe that WELCOME carries, the programs' and the daemon's, and a
 * pidfd of the daemon (id: its number). */
enum gm_lifeline { GM_LIFELINE_PROGRAMS, GM_LIFELINE_OWN, GM_LIFELINE_DAEMON };

struct gm_kept;

/* A table without a connection. 0 or -ENOMEM. */
int gm_kept_open(struct gm_kept **kept);
/* Closes the connection, and what nobody has claimed. The keeper holds on. */
void gm_kept_close(struct gm_kept *kept);

/*
 * Be the daemon of the keeper at this socket, and have it hold all that was put. 0, or -errno, and
 * there is no connection: of gm_keeper_open; or of gm_kept_put: it cannot hold all that.
 */
int gm_kept_connect(struct gm_kept *kept, const char *path);
/*
 * Take what the keeper holds and this daemon has not put: it can be claimed then. After a keeper
 * was lost and found again, that is what was dropped meanwhile. 0; -EMFILE: this process cannot
 * have as many files; -ENOMEM; -ENOTCONN. After an error nothing can be claimed.
 */
int gm_kept_take(struct gm_kept *kept);
bool gm_kept_is_connected(const struct gm_kept *kept);
/* A descriptor that hangs up (POLLHUP) when the connection has ended, for whatever reason. The
 * caller's. -errno: -ENOTCONN, there is none. */
int gm_kept_watch(const struct gm_kept *kept);
/* Close the connection: the keeper holds on, whatever is dropped after this. */
void gm_kept_disconnect(struct gm_kept *kept);
/* The keeper has ended, or is lost from sight: close the connection. */
void gm_kept_lose(struct gm_kept *kept);
/* Have the keeper close all: nobody needs it. */
void gm_kept_end(struct gm_kept *kept);

/*
 * Have this outlive the daemon, in the place of what has this key. The descriptor stays the
 * caller's, and stays open until it is dropped. Put it before anybody relies on it. 0; -errno: it
 * is not held, so do not go on; what has the key keeps it. -EMFILE, -ENOMEM: the keeper can hold no
 * more; another: it is a lease that cannot be watched, or no key. Before gm_kept_settle a keeper
 * that had nothing and cannot hold this is told to end, and is no error: nobody loses anything.
 */
int gm_kept_put(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu, uint32_t slot,
                uint64_t id, int fd);
/*
 * A word of a ledger: from now on it is `value` while the keeper holds nothing else in the place of
 * what was put, and 0 while it may. At most GM_KEPT_MARKS. It is there until gm_kept_unmark.
 */
#define GM_KEPT_MARKS (GM_KEEPER_GPUS + 1u)
void gm_kept_mark(struct gm_kept *kept, uint64_t *word, uint64_t value);
void gm_kept_unmark(struct gm_kept *kept, const uint64_t *word);
/* It need not outlive the daemon any more. What was not put is no mistake. */
void gm_kept_drop(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu, uint32_t slot);
/* How many can be put in all; UINT32_MAX: nobody bounds them. */
uint32_t gm_kept_room(const struct gm_kept *kept);

/* What the daemon before had put there, with its id: its descriptor is the caller's now, and counts
 * as put. -1: there is none. It needs no memory, so nothing is taken for lost that is there. */
int gm_kept_claim(struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu, uint32_t slot,
                  uint64_t *id);
/* The next slot behind `after` (GM_NONE: the first) that can be claimed; GM_NONE: no more. */
uint32_t gm_kept_next(const struct gm_kept *kept, enum gm_kept_kind kind, uint32_t gpu,
                      uint32_t after);
/* The highest id below UINT32_MAX of what can be claimed there, of all GPUs; 0: there is none. */
uint32_t gm_kept_highest(const struct gm_kept *kept, enum gm_kept_kind kind);
/* Drop what nobody has claimed: the keeper holds what was put, and nothing else, then. */
void gm_kept_settle(struct gm_kept *kept);

#endif
