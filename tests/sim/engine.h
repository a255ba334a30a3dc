/*
 * The engine of the simulated world, for world.c: it makes decisions true, and hears when that is
 * done. world.h says how it behaves.
 */
#ifndef GM_TESTS_SIM_ENGINE_H
#define GM_TESTS_SIM_ENGINE_H

#include "tests/sim/world.h"

/* Begin the drains, loads and moves that the decision calls for. */
void engine_make_true(struct world *world);
/* What was begun ends now. */
void engine_drain_ends(struct world *world, uint32_t app);
void engine_load_ends(struct world *world, uint32_t app);

/* world.c: tell the scheduler, the watch and the trace. */
void world_send(struct world *world, enum gm_sched_event_kind kind, uint32_t app, uint64_t bytes);

#endif
