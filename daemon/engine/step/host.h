/*
 * Host memory of the daemon, for all its GPUs. Pinned memory is shared by need. Each GPU has a pool
 * of its own, on its own NUMA node, and two numbers count for it:
 *
 *   pinned     what its pool has, or may have at any moment
 *   promised   what its programs were promised of it: what they have beyond the GPU, as far as the
 *              tiers below do not hold it, and the window
 *
 * The *limit* of a GPU is all that --pinned allows, less the larger number of each other GPU. No
 * pool grows beyond it, and nothing beyond it is promised. So the larger numbers of all GPUs never
 * make more than --pinned, and what was promised can always be had. The limit is never below either
 * number of the GPU itself. All is counted in whole slabs.
 *
 * A pool may have more than was promised: shadows, and what it keeps for later. When an allocation
 * on another GPU lacks that, the pool is asked to give it back, and the allocation waits for it. It
 * is asked once: what cannot leave, as somebody has a page in each slab, would else be asked for
 * and refused for ever, and the daemon would do nothing else.
 *
 * The window is pinned memory that stays free on each GPU, so that a switch always has a place to
 * start and a full lower tier slows it but never blocks it.
 *
 * Paged memory and the disk are divided equally: each GPU has files and threads of its own for
 * them.
 *
 * Owned by the machine. Engines call it when what they promised changes. It looks at their pools.
 */
#ifndef GM_DAEMON_ENGINE_STEP_HOST_H
#define GM_DAEMON_ENGINE_STEP_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/shm.h"

struct gm_engine;
struct gm_engine_config;

struct gm_host {
    uint64_t pinned;  /* bytes for all GPUs, whole slabs */
    uint64_t window;  /* of each GPU: pinned bytes that stay free for streaming */
    uint64_t reserve; /* ... of which evictions leave this much: gm_plan_reserve */
    bool has_lower;   /* there are tiers below pinned memory */
    uint32_t n;       /* GPUs */
    struct gm_engine *engines[GM_GPUS_MAX]; /* by index; NULL: not open */
    uint64_t promised[GM_GPUS_MAX];
    uint64_t taken[GM_GPUS_MAX]; /* what its pool and its programs took, as others last knew it */
    uint32_t waits;              /* a bit a GPU: an allocation waits for what others give back */
    uint32_t asked;              /* ... it is to give back, and has not heard of it */
    uint32_t gives;              /* ... it gave back, or was to, when others last knew */
    uint32_t heard[GM_GPUS_MAX]; /* bits of GPUs for which it gave back what it could, and has as
                                    much as then */
};

/* The host memory of `n` GPUs. The sizes in `config` are those for all of them; they become those
 * of each, but for `pinned`. 0, or -errno with one line in `why`. */
int gm_host_open(struct gm_host *host, struct gm_engine_config *config, uint32_t n, char *why,
                 size_t why_size);
/* The engine is open, or closes. */
void gm_host_add(struct gm_host *host, struct gm_engine *engine);
void gm_host_remove(struct gm_engine *engine);

/* The most pinned memory that the GPU may have now; when others have given back what they only
 * keep; and when they have no programs. */
uint64_t gm_host_limit(const struct gm_engine *engine);
uint64_t gm_host_limit_soon(const struct gm_engine *engine);
uint64_t gm_host_limit_alone(const struct gm_engine *engine);
/* For gm_hostpool_bound. */
uint64_t gm_host_limit_of(const void *engine);

/* What its programs were promised may have changed. */
void gm_host_promise(struct gm_engine *engine);

/* An allocation lacks host memory: have others give back what they only keep. */
void gm_host_ask(struct gm_engine *engine);
/* Whether they have yet to. */
bool gm_host_is_coming(const struct gm_engine *engine);
/* None waits for it any more. */
void gm_host_end_wait(struct gm_engine *engine);
/* The most that the GPU's pool is to keep: others may wait for the rest. */
uint64_t gm_host_may_keep(const struct gm_engine *engine);
/* Whether it is asked to give back; and it has begun to. */
bool gm_host_is_asked(const struct gm_engine *engine);
void gm_host_heard(struct gm_engine *engine);

#endif
