/*
 * The memory of an engine's ledger (core/ledger.h): a memfd, which outlives the daemon where
 * somebody else has it, too. Owns gm_engine.ledger. Called by open.c.
 */
#ifndef GM_DAEMON_ENGINE_ACT_LEDGER_H
#define GM_DAEMON_ENGINE_ACT_LEDGER_H

#include "daemon/engine/state/state.h"

/* Before the first app, after the mover and the tiers. 0, or -errno. Where the driver
 * cannot count copies out, there is no ledger, which is no error. */
int gm_engine_open_ledger(struct gm_engine *engine);
/* After the mover, and after all that has pages. */
void gm_engine_close_ledger(struct gm_engine *engine);

#endif
