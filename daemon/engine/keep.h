/*
 * The machine's ledger (core/ledger_clients.h): what of the clients outlives the daemon, as the
 * engines know it. Owns gm_keep. Called by machine.c: at once when a client comes, goes, uses one
 * more GPU, runs with others or is told what it may, and each second for what changes by itself.
 *
 * A record ends with the client: when its session has ended and its process, too. Until then what
 * the process has mapped is in the ledgers of the GPUs, and a new daemon must know for whom to
 * wait.
 */
#ifndef GM_DAEMON_ENGINE_KEEP_H
#define GM_DAEMON_ENGINE_KEEP_H

#include "daemon/core/ledger_clients.h"
#include "daemon/engine/state/state.h"

struct gm_keep {
    struct gm_clients clients;
    int fd;
    size_t bytes;
};

/* 0 or -errno. */
int gm_keep_open(struct gm_keep *keep, uint32_t max_clients);
/* A client of a daemon before is as that knew it, until it comes back. */
void gm_keep_lost(struct gm_keep *keep, const struct gm_client *client,
                  const struct gm_client_record *record);
/* What holds of this client now; it has ended. */
void gm_keep_client(struct gm_keep *keep, const struct gm_client *client);
void gm_keep_end(struct gm_keep *keep, uint32_t id);
void gm_keep_close(struct gm_keep *keep);

#endif
