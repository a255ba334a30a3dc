/*
 * Programs of the daemon before, which have yet to come back. What that knew of them is in its
 * ledger of programs (core/ledger_clients.h), which is read from a copy: a record that is broken
 * costs that program alone. Each is a client with its id, its group and its settings, and an app of
 * each GPU where it has memory, and waits there (gm_engine_await) until its program says REJOIN,
 * executes another one, or ends: the leases tell.
 *
 * Who cannot come back waits for the end of its process all the same: it may have memory mapped.
 *
 * Owns gm_absents. Made by main behind the machine, before anybody listens; session_rejoin.c calls
 * `takeover`. Calls the machine. Loop thread only.
 */
#ifndef GM_DAEMON_ENGINE_ABSENTS_H
#define GM_DAEMON_ENGINE_ABSENTS_H

#include "daemon/engine/lost.h"
#include "daemon/engine/machine.h"

struct gm_absent;

struct gm_absents {
    struct gm_takeover takeover;
    struct gm_machine *machine;
    struct gm_absent **of; /* by id; NULL: there is none */
};

/*
 * Take over whoever the daemon before left; then have the ledger of this one kept in the place of
 * that one's. `since`: when this daemon began to start, for the log. 0; or -errno with one line in
 * `why`: what it has to keep cannot be kept, and nothing is left of it here.
 */
int gm_absents_open(struct gm_absents *absents, struct gm_machine *machine, uint64_t since,
                    char *why, size_t why_size);
/* How many may come back and have not. */
uint32_t gm_absents_count(const struct gm_absents *absents);
/* Before the machine is closed. What the ledgers say of those who have yet to come back stays. */
void gm_absents_close(struct gm_absents *absents);

#endif
