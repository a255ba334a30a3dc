/* Binding: see bind.h. */
#include "daemon/core/bind.h"

#include "common/sums.h"

/* How many blocks of the kernel a multiprocessor holds. One that holds none has a launch that
 * fails: it counts as one block each. */
static uint32_t blocks_at_once(const struct gm_bind_chip *chip, const struct gm_bind_kernel *kernel)
{
    const uint64_t threads = kernel->threads, registers = threads * kernel->registers;
    uint64_t most = chip->blocks;
    if (threads > 0 && chip->threads / threads < most)
        most = chip->threads / threads;
    if (registers > 0 && chip->registers / registers < most)
        most = chip->registers / registers;
    if (kernel->shared > 0 && chip->shared / kernel->shared < most)
        most = chip->shared / kernel->shared;
    return most > 0 ? (uint32_t)most : 1;
}

uint64_t gm_bind_work(const struct gm_bind_chip *chip, const struct gm_bind_program *program)
{
    const uint64_t all = (uint64_t)chip->multiprocessors * GM_BIND_WHOLE;
    uint64_t work = program->n_kernels > 0 ? 0 : all;
    for (uint32_t i = 0; i < program->n_kernels && work < all; i++) {
        const struct gm_bind_kernel *kernel = &program->kernel[i];
        const uint64_t at_once = blocks_at_once(chip, kernel);
        if (kernel->blocks >= at_once * chip->multiprocessors)
            return all;
        work += (kernel->blocks * GM_BIND_WHOLE + at_once - 1) / at_once;
    }
    return gm_least(work, all);
}

static uint32_t streams_of(const struct gm_bind_program *program)
{
    return program->n_kernels > 0 ? program->n_kernels : 1;
}

bool gm_bind_has_room(const struct gm_bind_gpu *gpu, uint64_t need)
{
    return gm_more(gpu->needed, gm_least(need, gpu->budget)) <= gpu->budget;
}

static bool has_queues(const struct gm_bind_gpu *gpu, const struct gm_bind_program *program)
{
    return streams_of(program) <= gm_less(GM_BIND_QUEUES, gpu->queues);
}

/* Thousandths of multiprocessors that are left; less than 0: wanted by several. */
static int64_t left_on(const struct gm_bind_gpu *gpu)
{
    const uint64_t all = (uint64_t)gpu->chip.multiprocessors * GM_BIND_WHOLE;
    return (int64_t)all - (int64_t)gpu->work;
}

/* Thousandths: the time that nobody can have, and the part of the budget that moves at each turn.
 */
static uint64_t lost_on(const struct gm_bind_gpu *gpu, const struct gm_bind_program *program)
{
    const uint64_t wanted = (uint64_t)gpu->time + program->time;
    const uint64_t beyond = gm_less(gm_more(gpu->needed, program->need), gpu->budget);
    const uint64_t unit = gpu->budget / GM_BIND_WHOLE;
    return gm_more(gm_less(wanted, GM_BIND_WHOLE), unit > 0 ? beyond / unit : beyond);
}

/* The best of those that are allowed, by multiprocessors left. */
static uint32_t emptiest(const struct gm_bind_gpu *gpus, uint32_t n, uint64_t allowed)
{
    uint32_t best = GM_BIND_NONE;
    for (uint32_t i = 0; i < n; i++)
        if ((allowed >> i & 1) != 0 &&
            (best == GM_BIND_NONE || left_on(&gpus[i]) > left_on(&gpus[best])))
            best = i;
    return best;
}

/* Those of the allowed where least is lost. */
static uint64_t kindest(const struct gm_bind_gpu *gpus, uint32_t n, uint64_t allowed,
                        const struct gm_bind_program *program)
{
    uint64_t least = UINT64_MAX, kind = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t lost = lost_on(&gpus[i], program);
        if ((allowed >> i & 1) == 0 || lost > least)
            continue;
        kind = lost < least ? 1ull << i : kind | 1ull << i;
        least = lost;
    }
    return kind;
}

struct gm_bind_choice gm_bind_choose(const struct gm_bind_gpu *gpus, uint32_t n, uint64_t allowed,
                                     const struct gm_bind_program *program)
{
    uint64_t may = n < 64 ? allowed & ((1ull << n) - 1) : allowed;
    uint64_t holding = 0, roomy = 0, free = 0, calm = 0;
    for (uint32_t i = 0; i < n; i++) {
        if ((may >> i & 1) == 0)
            continue;
        const uint64_t bit = 1ull << i;
        const bool holds = program->need <= gpus[i].budget;
        const bool has_room = holds && gm_bind_has_room(&gpus[i], program->need);
        holding |= holds ? bit : 0;
        roomy |= has_room ? bit : 0;
        free |= has_room && has_queues(&gpus[i], program) ? bit : 0;
        calm |= gpus[i].starting < GM_BIND_STARTS ? bit : 0;
    }
    const bool is_only = may != 0 && (may & (may - 1)) == 0;
    enum gm_why why = GM_WHY_BIND_ROOM;
    if (free != 0) {
        may = free;
    } else if (roomy != 0) {
        may = roomy;
        why = GM_WHY_BIND_QUEUES;
    } else {
        why = holding != 0 ? GM_WHY_BIND_LOSS : GM_WHY_BIND_LARGE;
        may = kindest(gpus, n, holding != 0 ? holding : may, program);
    }
    may = (may & calm) != 0 ? may & calm : may;
    return (struct gm_bind_choice){.gpu = emptiest(gpus, n, may),
                                   .why = is_only ? GM_WHY_BIND_ONLY : why};
}

void gm_bind_take(struct gm_bind_gpu *gpu, const struct gm_bind_program *program)
{
    gpu->needed = gm_more(gpu->needed, program->need);
    gpu->work += gm_bind_work(&gpu->chip, program);
    gpu->queues += streams_of(program);
    gpu->time += program->time;
}

static bool fits_where(const struct gm_bind_gpu *gpus, uint32_t n,
                       const struct gm_bind_waiter *waiter, uint32_t starting)
{
    for (uint32_t i = 0; i < n; i++)
        if ((waiter->allowed >> i & 1) != 0 && gpus[i].starting <= starting &&
            gm_bind_has_room(&gpus[i], waiter->need))
            return true;
    return false;
}

bool gm_bind_fits(const struct gm_bind_gpu *gpus, uint32_t n, const struct gm_bind_waiter *waiter)
{
    return fits_where(gpus, n, waiter, UINT32_MAX);
}

static bool may_begin(const struct gm_bind_gpu *gpus, uint32_t n,
                      const struct gm_bind_waiter *waiter, uint64_t now)
{
    const bool was_held =
        waiter->fits_since != 0 && gm_less(now, waiter->fits_since) >= GM_BIND_HELD_NS;
    return fits_where(gpus, n, waiter, was_held ? UINT32_MAX : GM_BIND_STARTS - 1);
}

/* Whether one of its user came before it, whom nobody passes any more. */
static bool is_held_up(const struct gm_bind_waiter *waiters, uint32_t which, uint64_t now,
                       uint64_t patience_ns)
{
    for (uint32_t i = 0; i < which; i++)
        if (waiters[i].uid == waiters[which].uid &&
            gm_less(now, waiters[i].since) >= patience_ns / 2)
            return true;
    return false;
}

static unsigned doublings(uint64_t ns)
{
    unsigned n = 0;
    for (uint64_t seconds = ns / GM_S; seconds > 0; seconds >>= 1)
        n++;
    return n;
}

uint32_t gm_bind_next(const struct gm_bind_gpu *gpus, uint32_t n,
                      const struct gm_bind_waiter *waiters, uint32_t n_waiters, uint64_t now,
                      uint64_t patience_ns)
{
    uint32_t best = GM_BIND_NONE;
    for (uint32_t i = 0; i < n_waiters; i++) {
        const struct gm_bind_waiter *waiter = &waiters[i];
        if (gm_less(now, waiter->since) >= patience_ns)
            return i;
        if (is_held_up(waiters, i, now, patience_ns) || !may_begin(gpus, n, waiter, now))
            continue;
        if (best != GM_BIND_NONE && waiter->uid != waiters[best].uid)
            break; /* those behind it have not waited for longer */
        if (best == GM_BIND_NONE || doublings(waiter->took_ns) < doublings(waiters[best].took_ns))
            best = i;
    }
    return best;
}
