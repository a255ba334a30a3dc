/*
 * What a daemon leaves to the next one, as one word: the oldest version of the protocol that it
 * speaks, and the versions of what it shares with programs, of both ledgers and of the keeper. A
 * daemon takes over from one that has the same word: what programs speak, it speaks. `gpumuxd
 * --version` and the status say it, and packages compare it before they start a new daemon in the
 * place of the old one.
 */
#ifndef GM_DAEMON_SERVICE_HANDOVER_H
#define GM_DAEMON_SERVICE_HANDOVER_H

#include <stdio.h>

#include "common/shm.h"
#include "common/wire.h"
#include "daemon/core/ledger.h"
#include "daemon/core/ledger_clients.h"
#include "daemon/keeper/protocol.h"

#define GM_HANDOVER_SIZE 64

/* Returns `text`. */
static inline const char *gm_handover(char text[GM_HANDOVER_SIZE])
{
    snprintf(text, GM_HANDOVER_SIZE, "%u.%u.%u.%u.%u", GM_WIRE_OLDEST, GM_SHM_VERSION,
             GM_LEDGER_VERSION, GM_CLIENTS_VERSION, GM_KEEPER_VERSION);
    return text;
}

#endif
