/* The parts of checks.c. */
#ifndef GM_TESTS_SIM_CHECKS_H
#define GM_TESTS_SIM_CHECKS_H

#include "tests/sim/engine/machine.h"

/* checks_sizes.c */
void check_saved(const struct gm_engine *engine);
void check_shared_on_host(const struct gm_engine *engine);
void check_size(struct program *p, const struct gm_engine *engine);
void check_refusals(struct program *p, const struct gm_engine *engine);
void check_places(const struct program *p, const struct gm_engine *engine);
void check_cap(struct program *p, const struct gm_engine *engine);
void note_own(void);
void check_user(const struct gm_engine *engine, uint32_t user);
void count_device(const struct gm_engine *engine);

/* checks_windows.c */
void check_windows(const struct gm_engine *engine, struct program *p);

/* checks_chunks.c */
void check_chunks(const struct gm_engine *engine);

/* checks_waits.c */
void check_deadlines(const struct gm_engine *engine);
void check_waiting(uint32_t index);
void check_pinned(void);
void check_held(uint32_t index);
void check_still(void);
void check_ahead(uint32_t index);

/* checks_groups.c */
void check_groups(void);

#endif
