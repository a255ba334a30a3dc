/*
 * Which GPU a program gets as its first: HuntKTm's Algorithm 1, extended to GPUs that are shared in
 * turns. Pure; owns no state. The caller describes each GPU by what its programs need, those on
 * their way among them, and counts a program there once it is bound (gm_bind_take). A program that
 * is bound stays: device pointers and UUIDs are in its hands.
 *
 *   1  Of the GPUs with room for what the program needs, and free hardware queues for its streams,
 *      the one with most multiprocessors left. What a kernel fills of a multiprocessor follows from
 *      its threads, registers and shared memory. A program of which nothing is known fills its GPU.
 *   2  If those with room have no queues left, of these.
 *   3  If none has room, programs will take turns: the GPU where all lose least. They lose the time
 *      that is wanted beyond all that there is, and what does not fit moves at each turn. A GPU
 *      that could hold the program alone comes before one that could not.
 *
 * Of these, those come first where not GM_BIND_STARTS others start just now. Of several that are
 * equal the first counts. More work than multiprocessors counts as less than nothing left, so
 * programs that all fill a GPU are spread evenly.
 */
#ifndef GM_CORE_BIND_H
#define GM_CORE_BIND_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/tunables.h"
#include "daemon/core/why.h"

#define GM_BIND_WHOLE 1000u /* of a multiprocessor, or of a GPU's time: in thousandths */
#define GM_BIND_NONE UINT32_MAX

/* Who says what a program will need. */
enum gm_need_from {
    GM_NEED_UNKNOWN,
    GM_NEED_DECLARED, /* its environment */
    GM_NEED_RULE,
    GM_NEED_REMEMBERED, /* of earlier runs */
    GM_NEED_MEAN,       /* of other programs of its user */
};

/* What a GPU has: multiprocessors, and of each so much. */
struct gm_bind_chip {
    uint32_t multiprocessors;
    uint32_t blocks, threads, registers;
    uint32_t shared; /* bytes */
};

/* The first kernel of a stream. */
struct gm_bind_kernel {
    uint64_t blocks;
    uint32_t threads;   /* of a block */
    uint32_t registers; /* of a thread */
    uint32_t shared;    /* bytes of a block */
};

struct gm_bind_program {
    uint64_t need;      /* bytes on the GPU for a turn */
    uint32_t time;      /* thousandths of the GPU's time that it wants */
    uint64_t took_ns;   /* by its earlier runs, without waiting; 0: not known */
    uint32_t n_kernels; /* one for each of its streams; 0: nothing is known of it */
    struct gm_bind_kernel kernel[GM_BIND_KERNELS];
};

struct gm_bind_gpu {
    struct gm_bind_chip chip;
    uint64_t budget;   /* bytes that programs may fill */
    uint64_t needed;   /* by those that are there, or on their way */
    uint64_t work;     /* thousandths of multiprocessors that their kernels fill */
    uint32_t queues;   /* streams of theirs */
    uint32_t time;     /* thousandths of its time that they want */
    uint32_t starting; /* of them, those that have begun just now and have not computed yet */
};

struct gm_bind_choice {
    uint32_t gpu;    /* an index; NONE: the program may use none */
    enum gm_why why; /* BIND_... */
};

/* Thousandths of the chip's multiprocessors that the program's kernels fill, all of them at most.
 */
uint64_t gm_bind_work(const struct gm_bind_chip *chip, const struct gm_bind_program *program);

/* Whether `need` fits on the GPU beside those that are there. One that is larger than the budget
 * fits on an empty GPU: there is no better place for it. */
bool gm_bind_has_room(const struct gm_bind_gpu *gpu, uint64_t need);

/* The GPU for the program, of the `n` (64 at most) whose bit is in `allowed`. */
struct gm_bind_choice gm_bind_choose(const struct gm_bind_gpu *gpus, uint32_t n, uint64_t allowed,
                                     const struct gm_bind_program *program);

/* A program that waits until a GPU has room for it. */
struct gm_bind_waiter {
    uint32_t uid;
    uint64_t need, allowed, took_ns;
    uint64_t since;
    uint64_t fits_since; /* a GPU has room for it since then; 0: none has */
};

/* Whether a GPU that it may use has room for it. */
bool gm_bind_fits(const struct gm_bind_gpu *gpus, uint32_t n, const struct gm_bind_waiter *waiter);

/*
 * Which of those that wait, in the order in which they came, is to begin now. NONE: none.
 *
 *   1  Who has waited for `patience_ns` begins.
 *   2  Of those whom a GPU has room for, on which not GM_BIND_STARTS others start just now: the
 *      user's whose program came first. Nobody who fits waits for that for more than
 *      GM_BIND_HELD_NS.
 *   3  Of that user's, before one of another user whom a GPU has room for: the shorter, by
 *      doublings of a second; else who came first. So they pass those that fit nowhere, but for
 *      who has waited for half of `patience_ns`: what ends then makes room for it.
 *
 * No user waits for another's.
 */
uint32_t gm_bind_next(const struct gm_bind_gpu *gpus, uint32_t n,
                      const struct gm_bind_waiter *waiters, uint32_t n_waiters, uint64_t now,
                      uint64_t patience_ns);

/* The program is bound there: count it. */
void gm_bind_take(struct gm_bind_gpu *gpu, const struct gm_bind_program *program);

#endif
