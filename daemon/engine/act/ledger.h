/*
 * The memory of an engine's ledger (core/ledger.h): a memfd, which outlives the daemon where
 * somebody else has it, too. Owns gm_engine.ledger. Called by open.c; keep.c
 * has the machine's.
 */
#ifndef GM_DAEMON_ENGINE_ACT_LEDGER_H
#define GM_DAEMON_ENGINE_ACT_LEDGER_H

#include "daemon/engine/state/state.h"

/* Zeroed memory of `bytes` that outlives the daemon where somebody else has its descriptor, too,
 * and whose size nobody changes. Returns that, or -errno. */
int gm_engine_make_ledger(const char *name, size_t bytes, void **memory);
/* By which a ledger knows the engine's GPU. */
uint64_t gm_engine_gpu_number(const struct gm_engine *engine);
void gm_engine_end_ledger(int fd, void *memory, size_t bytes);

/* After the mover and the tiers: its memory, with the chains of their pages. 0, or -errno. Where
 * the driver cannot count copies out, there is no ledger, which is no error. */
int gm_engine_open_ledger(struct gm_engine *engine, uint64_t generation);
/* Before the first app: from now on the table is kept in it, and it outlives the daemon, in the
 * place of the ledger before it. 0, or -errno. */
int gm_engine_begin_ledger(struct gm_engine *engine);
/* After the mover, and after all that has pages. */
void gm_engine_close_ledger(struct gm_engine *engine);

#endif
