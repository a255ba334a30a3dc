#include "shim/memory/ahead.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "common/chunk.h"
#include "common/clock.h"
#include "common/locks.h"
#include "shim/driver/real.h"
#include "shim/link/link.h"
#include "shim/map/mapper.h"
#include "shim/memory/freed.h"

/* After the daemon refused, it is not asked for so long. */
#define GM_AHEAD_REST_NS (100 * GM_MS)
/* A size that comes at longer intervals is not expected: the daemon takes a spare back that lies
 * there for a tenth of a second. */
#define GM_AHEAD_AGAIN_NS (50 * GM_MS)
/* Sizes that are remembered: a model's layers have few. */
#define GM_AHEAD_SIZES 8u
#define GM_AHEAD_SETTLE_MS (2000 * GM_SLOW)
#define GM_AHEAD_PASS_MAX 31u

struct gm_ahead_size {
    int32_t gpu;
    uint64_t span;
    uint64_t at;      /* when it was allocated last; 0: never, or it was freed since */
    uint32_t n_pass;  /* allocations that are let pass after a spare that nobody took, ... */
    uint32_t to_pass; /* ... and how many are left of them */
    uint32_t n_seen;  /* of these, which gm_spares counts */
    _Atomic uint32_t n_in_vain;
};

static struct gm_lock gm_ahead_lock = GM_LOCK_INITIALIZER(GM_LOCK_AHEAD);
static struct gm_ahead_size gm_ahead_sizes[GM_AHEAD_SIZES];
static uint64_t gm_ahead_rests_until;
static _Atomic uint32_t gm_ahead_n_answers;

/* With the lock held; NULL: it is not remembered. */
static struct gm_ahead_size *gm_ahead_look(int32_t gpu, uint64_t span)
{
    for (uint32_t i = 0; i < GM_AHEAD_SIZES; i++)
        if (gm_ahead_sizes[i].span == span && gm_ahead_sizes[i].gpu == gpu)
            return &gm_ahead_sizes[i];
    return NULL;
}

/* With the lock held. The size; if need be instead of the oldest one. */
static struct gm_ahead_size *gm_ahead_find(int32_t gpu, uint64_t span)
{
    struct gm_ahead_size *size = gm_ahead_look(gpu, span);
    if (size != NULL)
        return size;
    size = gm_ahead_sizes;
    for (uint32_t i = 0; i < GM_AHEAD_SIZES; i++)
        if (gm_ahead_sizes[i].at < size->at)
            size = &gm_ahead_sizes[i];
    size->gpu = gpu;
    size->span = span;
    size->at = 0;
    size->n_pass = size->to_pass = 0;
    size->n_seen = atomic_load(&size->n_in_vain);
    return size;
}

static uint64_t gm_ahead_most(int32_t gpu)
{
    return gm_link_budget((uint32_t)gpu) / GM_AHEAD_SHARE;
}

static bool gm_ahead_has_room(int32_t gpu, uint64_t span)
{
    const struct gm_freed_sums sums = gm_freed_sums(gpu, span);
    return sums.alike < GM_AHEAD_EACH && sums.ahead_bytes + span <= 4 * gm_ahead_most(gpu);
}

/* Ask for no more for a while. */
static void gm_ahead_rest(void)
{
    gm_lock(&gm_ahead_lock);
    gm_ahead_rests_until = gm_now() + GM_AHEAD_REST_NS;
    gm_unlock(&gm_ahead_lock);
}

static void gm_ahead_ask(int32_t gpu, uint64_t span, _Atomic uint32_t *in_vain)
{
    struct gm_alloc alloc = {.bytes = span, .span = span, .gpu = gpu, .kind = GM_ALLOC_CHUNKS};
    CUdeviceptr range;
    if (gm_real.cuMemAddressReserve(&range, span, GM_CHUNK_MIN, 0, 0) != CUDA_SUCCESS) {
        gm_ahead_rest();
        return;
    }
    alloc.va = range;
    if (!gm_freed_expect(&alloc, in_vain))
        gm_real.cuMemAddressFree(range, span);
    else if (gm_link_alloc_ahead(range, span, (uint32_t)gpu) != 0)
        gm_ahead_come(range, span, CUDA_ERROR_OUT_OF_MEMORY);
}

/* With the lock held: whether this one is let pass. Each time in a row that nobody took what came,
 * they are more. */
static bool gm_ahead_passes(struct gm_ahead_size *size, bool was_spare)
{
    const uint32_t n_in_vain = atomic_load(&size->n_in_vain);
    if (n_in_vain != size->n_seen) {
        size->n_pass = size->n_pass < GM_AHEAD_PASS_MAX ? 2 * size->n_pass + 1 : size->n_pass;
        size->to_pass = size->n_pass;
    }
    size->n_seen = n_in_vain;
    if (was_spare)
        size->n_pass = size->to_pass = 0;
    const bool is_passed = size->to_pass > 0;
    size->to_pass -= is_passed;
    return is_passed;
}

void gm_ahead_note(int32_t gpu, uint64_t span, bool was_spare, uint64_t now)
{
    if (span > gm_ahead_most(gpu))
        return;
    gm_lock(&gm_ahead_lock);
    struct gm_ahead_size *size = gm_ahead_find(gpu, span);
    const uint64_t since = size->at != 0 && now > size->at ? now - size->at : 0;
    const bool is_asking = size->at != 0 && since < GM_AHEAD_AGAIN_NS &&
                           now >= gm_ahead_rests_until && !gm_ahead_passes(size, was_spare);
    size->at = now;
    gm_unlock(&gm_ahead_lock);
    if (is_asking && gm_ahead_has_room(gpu, span))
        gm_ahead_ask(gpu, span, &size->n_in_vain);
}

void gm_ahead_note_free(int32_t gpu, uint64_t span)
{
    gm_lock(&gm_ahead_lock);
    struct gm_ahead_size *size = gm_ahead_look(gpu, span);
    if (size != NULL)
        size->at = 0;
    gm_unlock(&gm_ahead_lock);
}

void gm_ahead_come(uint64_t va, uint64_t span, int result)
{
    atomic_fetch_add(&gm_ahead_n_answers, 1); /* first: gm_ahead_settle ends with what follows */
    if (result == 0) {
        gm_freed_arrive(va);
        return;
    }
    gm_ahead_rest();
    const bool is_gone = result != -ENOTCONN || gm_mapper_release(va, span) == CUDA_SUCCESS;
    gm_freed_miss(va);
    if (is_gone) /* else something of it is still mapped: it cannot be used again */
        gm_real.cuMemAddressFree(va, span);
}

uint32_t gm_ahead_answers(void)
{
    return atomic_load(&gm_ahead_n_answers);
}

void gm_ahead_settle(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    gm_ahead_rest();
    for (unsigned ms = 0; gm_freed_sums(0, 0).coming > 0 && ms < GM_AHEAD_SETTLE_MS; ms++)
        nanosleep(&pause, NULL);
}
