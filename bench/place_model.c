/* Placing in simulated time: see place_model.h. */
#include "bench/place_model.h"

#include <string.h>

#define THREADS_OF_WARP 32u

enum part { WAITS, STARTS, WORKS, ENDS, IS_OVER };

struct one {
    enum part part;
    uint32_t gpu;
    uint64_t left;  /* of its part, at its rate alone: nanoseconds */
    uint64_t share; /* of the multiprocessors, in thousandths */
};

struct world {
    const struct gm_place_machine *machine;
    enum gm_place_policy policy;
    const struct gm_place_program *programs;
    uint32_t n;
    uint64_t now; /* nanoseconds */
    struct one one[GM_PLACE_PROGRAMS];
    struct gm_place_result *result;
};

static bool is_on(const struct one *one, uint32_t gpu)
{
    return one->part > WAITS && one->part < IS_OVER && one->gpu == gpu;
}

static bool is_by_bind(const struct world *world)
{
    return world->policy != GM_PLACE_SA && world->policy != GM_PLACE_CASE;
}

/* ---- who goes where ---- */

/* What core/bind is told of a program. */
static struct gm_bind_program told(const struct world *world, uint32_t i)
{
    struct gm_bind_program needs = world->programs[i].needs;
    needs.time = GM_BIND_WHOLE;
    if (world->policy != GM_PLACE_KERNELS)
        needs.n_kernels = 0;
    return needs;
}

static void describe(const struct world *world, struct gm_bind_gpu *gpus)
{
    for (uint32_t g = 0; g < world->machine->n_gpus; g++) {
        gpus[g] =
            (struct gm_bind_gpu){.chip = world->machine->chip, .budget = world->machine->card};
        for (uint32_t i = 0; i < world->n; i++) {
            if (!is_on(&world->one[i], g))
                continue;
            const struct gm_bind_program needs = told(world, i);
            gm_bind_take(&gpus[g], &needs);
        }
    }
}

static uint64_t warps_of(const struct gm_place_program *program)
{
    uint64_t warps = 0;
    for (uint32_t k = 0; k < program->needs.n_kernels; k++) {
        const struct gm_bind_kernel *kernel = &program->needs.kernel[k];
        warps += kernel->blocks * ((kernel->threads + THREADS_OF_WARP - 1) / THREADS_OF_WARP);
    }
    return warps;
}

/* Natively: the GPU for this program; NONE: it waits. */
static uint32_t pick(const struct world *world, uint32_t i)
{
    uint32_t best = GM_BIND_NONE;
    uint64_t least = UINT64_MAX;
    for (uint32_t g = 0; g < world->machine->n_gpus; g++) {
        uint64_t bytes = world->programs[i].needs.need, warps = 0;
        uint32_t there = 0;
        for (uint32_t k = 0; k < world->n; k++) {
            if (!is_on(&world->one[k], g))
                continue;
            there++;
            bytes += world->programs[k].needs.need;
            warps += warps_of(&world->programs[k]);
        }
        const bool may = world->policy == GM_PLACE_SA ? there == 0 : bytes <= world->machine->card;
        if (may && warps < least) {
            best = g;
            least = warps;
        }
    }
    return best;
}

static void begin(struct world *world, uint32_t i, uint32_t gpu)
{
    uint64_t bytes = 0;
    world->one[i].part = STARTS;
    world->one[i].gpu = gpu;
    world->one[i].left = world->programs[i].start_us * 1000;
    if (world->machine->is_shared && is_by_bind(world))
        world->one[i].left += world->machine->space_us * 1000;
    world->result->where[i] = gpu;
    for (uint32_t k = 0; k < world->n; k++)
        bytes += is_on(&world->one[k], gpu) ? world->programs[k].needs.need : 0;
    if (bytes > world->result->most[gpu])
        world->result->most[gpu] = bytes;
}

/* Those that begin now. All are of one user, and have time: no patience ends. */
static void begin_by_bind(struct world *world)
{
    const uint64_t all =
        world->machine->n_gpus < 64 ? (1ull << world->machine->n_gpus) - 1 : UINT64_MAX;
    for (;;) {
        struct gm_bind_gpu gpus[GM_PLACE_GPUS];
        struct gm_bind_waiter waiters[GM_PLACE_PROGRAMS];
        uint32_t which[GM_PLACE_PROGRAMS], n = 0;
        describe(world, gpus);
        for (uint32_t i = 0; i < world->n; i++) {
            if (world->one[i].part != WAITS)
                continue;
            which[n] = i;
            waiters[n++] =
                (struct gm_bind_waiter){.need = world->programs[i].needs.need, .allowed = all};
        }
        const uint32_t next = gm_bind_next(gpus, world->machine->n_gpus, waiters, n, 0, UINT64_MAX);
        if (next == GM_BIND_NONE)
            return;
        const struct gm_bind_program needs = told(world, which[next]);
        begin(world, which[next], gm_bind_choose(gpus, world->machine->n_gpus, all, &needs).gpu);
    }
}

static void begin_natively(struct world *world)
{
    for (uint32_t i = 0; i < world->n; i++) {
        const uint32_t gpu = world->one[i].part == WAITS ? pick(world, i) : GM_BIND_NONE;
        if (gpu != GM_BIND_NONE)
            begin(world, i, gpu);
    }
}

/* ---- time ---- */

/* How much longer than alone what works on that GPU takes, in thousandths; 0: nobody does. */
static uint64_t stretch_on(const struct world *world, uint32_t gpu)
{
    uint64_t n = 0, shares = 0;
    for (uint32_t i = 0; i < world->n; i++) {
        if (world->one[i].part != WORKS || world->one[i].gpu != gpu)
            continue;
        n++;
        shares += world->one[i].share;
    }
    if (!world->machine->is_shared || n == 0)
        return n * GM_BIND_WHOLE;
    return shares > GM_BIND_WHOLE ? shares : GM_BIND_WHOLE;
}

/* How much longer than alone starts and ends take, on all GPUs. */
static uint64_t stretch_of_crowd(const struct world *world)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < world->n; i++)
        n += world->one[i].part == STARTS || world->one[i].part == ENDS;
    return GM_BIND_WHOLE + (n > 1 ? (n - 1) * world->machine->crowd : 0);
}

/* `stretch` has the GPUs', and behind them that of the crowd. */
static uint64_t stretch_of(const struct one *one, const uint64_t *stretch)
{
    return stretch[one->part == WORKS ? one->gpu : GM_PLACE_GPUS];
}

static void next_part(struct world *world, uint32_t i)
{
    struct one *one = &world->one[i];
    one->part++;
    if (one->part == WORKS)
        one->left = world->programs[i].work_us * 1000;
    else if (one->part == ENDS)
        one->left = world->programs[i].end_us * 1000;
    else
        world->result->mean_us += world->now / 1000;
}

/* To the next end of a part. False: all are over. */
static bool advance(struct world *world)
{
    uint64_t stretch[GM_PLACE_GPUS + 1], step = UINT64_MAX;
    stretch[GM_PLACE_GPUS] = stretch_of_crowd(world);
    for (uint32_t g = 0; g < world->machine->n_gpus; g++)
        stretch[g] = stretch_on(world, g);
    for (uint32_t i = 0; i < world->n; i++) {
        const struct one *one = &world->one[i];
        if (one->part == WAITS || one->part == IS_OVER)
            continue;
        const uint64_t takes =
            (one->left * stretch_of(one, stretch) + GM_BIND_WHOLE - 1) / GM_BIND_WHOLE;
        step = takes < step ? takes : step;
    }
    if (step == UINT64_MAX)
        return false;
    world->now += step;
    for (uint32_t g = 0; g < world->machine->n_gpus; g++)
        world->result->busy_us += stretch[g] > 0 ? step : 0; /* in ns until the end */
    for (uint32_t i = 0; i < world->n; i++) {
        struct one *one = &world->one[i];
        if (one->part == WAITS || one->part == IS_OVER)
            continue;
        const uint64_t done = step * GM_BIND_WHOLE / stretch_of(one, stretch);
        one->left -= done < one->left ? done : one->left;
        if (one->left == 0)
            next_part(world, i);
    }
    return true;
}

/* Programs on the emptiest GPU and on the fullest, over all time. */
static void count_where(const struct world *world)
{
    struct gm_place_result *result = world->result;
    result->least = UINT32_MAX;
    for (uint32_t g = 0; g < world->machine->n_gpus; g++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < world->n; i++)
            n += result->where[i] == g;
        result->least = n < result->least ? n : result->least;
        result->largest = n > result->largest ? n : result->largest;
    }
}

bool gm_place_run(const struct gm_place_machine *machine, enum gm_place_policy policy,
                  const struct gm_place_program *programs, uint32_t n,
                  struct gm_place_result *result)
{
    struct world world = {
        .machine = machine, .policy = policy, .programs = programs, .n = n, .result = result};
    const uint64_t all = (uint64_t)machine->chip.multiprocessors * GM_BIND_WHOLE;
    memset(result, 0, sizeof *result);
    for (uint32_t i = 0; i < n; i++) {
        if (programs[i].needs.need > machine->card)
            return false;
        world.one[i].share = gm_bind_work(&machine->chip, &programs[i].needs) * GM_BIND_WHOLE / all;
    }
    do {
        if (is_by_bind(&world))
            begin_by_bind(&world);
        else
            begin_natively(&world);
    } while (advance(&world));
    result->total_us = world.now / 1000;
    result->busy_us /= 1000;
    result->mean_us /= n;
    count_where(&world);
    return true;
}
