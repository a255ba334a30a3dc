/*
 * Where the memory of simulated apps is: the real tables and the real planner, on small chunks, so
 * that the time of a switch follows from the bytes that must move. A plan is carried out at once,
 * in its order, and each of its moves must be possible in its turn; how long it takes is what the
 * slowest of its ways takes.
 */
#ifndef GM_TESTS_SIM_MEMORY_H
#define GM_TESTS_SIM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/plan.h"
#include "daemon/core/sched.h"

struct memory {
    struct gm_table *table;
    struct gm_plan plan;
    struct gm_plan_input input;
    uint32_t *targets, *victims;
    uint32_t max_apps;
    uint64_t next_va;
    uint64_t link_rate, lower_rate; /* bytes a second: each way of the link, and below pinned */
    const char *fault;              /* NULL, or what did not hold */
    uint64_t plans, moves, bytes_in, bytes_out, bytes_demoted;
};

/* Tables for `max_apps` apps on `budget` bytes; `pinned` 0: unlimited, else the cap of pinned
 * memory, with paged memory of `paged` and a disk below it. */
struct memory *memory_make(uint32_t max_apps, uint64_t budget, uint64_t link_rate, uint64_t pinned,
                           uint64_t paged);
void memory_free(struct memory *memory);

void memory_join(struct memory *memory, uint32_t app, uint32_t uid);
void memory_leave(struct memory *memory, uint32_t app);
/* Commit or give back, so that `app` has `bytes`, a multiple of GM_CHUNK_MIN. False: the tables are
 * full, and it has what it had. */
bool memory_resize(struct memory *memory, uint32_t app, uint64_t bytes);

/*
 * Bring in all of the first n_targets of memory->targets; the first n_victims of memory->victims
 * may lose theirs, the farthest first. Returns how long it takes, in nanoseconds; *is_complete:
 * nothing is missing any more.
 */
uint64_t memory_load(struct memory *memory, uint32_t n_targets, uint32_t n_victims,
                     bool *is_complete);
/* The same for what comes next. The first n_donors of the victims give their places on the GPU up
 * for it, nobody else does. Takes no time of anybody. */
void memory_prefetch(struct memory *memory, uint32_t n_targets, uint32_t n_victims,
                     uint32_t n_donors);

bool memory_is_whole(const struct memory *memory, uint32_t app);
/* memory->fault, or an invariant of the tables that does not hold. */
const char *memory_check(const struct memory *memory);

#endif
