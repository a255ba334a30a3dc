#include "shim/observe/usage.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/locks.h"
#include "common/shm.h"
#include "shim/observe/channels.h"
#include "shim/tables/accounts.h"

/* libcuda takes memory in blocks of this size, and cuts small allocations out of them. */
#define GM_USAGE_BLOCK (2ull << 20)

struct gm_usage {
    bool is_known;
    uint32_t number;    /* the driver's, of the GPU */
    uint64_t context;   /* bytes of the first context ... */
    unsigned n_of_this; /* ... and the compute groups that it had */
    uint64_t rest;      /* the account, as it was set last */
};

/* Guards the table and orders samples: the newest stands. Held across the question. */
static struct gm_lock gm_usage_lock = GM_LOCK_INITIALIZER(GM_LOCK_USAGE);
static struct gm_usage gm_usage_of[GM_GPUS_MAX];
static _Atomic uint32_t gm_usage_known; /* a bit each */

static uint64_t gm_usage_less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

bool gm_usage_begin(int gpu)
{
    uint64_t bytes;
    bool is_first = false;
    struct gm_usage usage = {.is_known = true};
    if (gpu < 0 || gpu >= (int)GM_GPUS_MAX ||
        (atomic_load_explicit(&gm_usage_known, memory_order_relaxed) >> gpu & 1) != 0)
        return false;
    gm_lock(&gm_usage_lock);
    if (!gm_usage_of[gpu].is_known && gm_channels_newest_gpu(&usage.number) &&
        gm_channels_memory(usage.number, &bytes, &usage.n_of_this) && usage.n_of_this > 0) {
        usage.context = gm_usage_less(bytes, gm_account_made(gpu));
        gm_usage_of[gpu] = usage;
        atomic_fetch_or(&gm_usage_known, 1u << gpu);
        is_first = true;
    }
    gm_unlock(&gm_usage_lock);
    return is_first;
}

/* Whether the account has changed. */
static bool gm_usage_sample_gpu(int gpu)
{
    struct gm_usage *usage = &gm_usage_of[gpu];
    uint64_t bytes;
    unsigned groups;
    const uint64_t made = gm_account_made(gpu); /* before: what is freed meanwhile counts as free */
    if (!gm_channels_memory(usage->number, &bytes, &groups))
        return false;
    const uint64_t contexts = usage->context * groups / usage->n_of_this;
    const uint64_t rest = gm_usage_less(bytes, contexts + made) & ~(GM_USAGE_BLOCK - 1);
    const bool has_changed = rest != usage->rest;
    usage->rest = rest;
    gm_account_set(GM_ACCOUNT_DRIVER, gpu, rest);
    return has_changed;
}

enum gm_usage_result gm_usage_sample(void)
{
    enum gm_usage_result result = GM_USAGE_SAME;
    if (atomic_load_explicit(&gm_usage_known, memory_order_relaxed) == 0)
        return GM_USAGE_NONE;
    gm_lock(&gm_usage_lock);
    for (int gpu = 0; gpu < (int)GM_GPUS_MAX; gpu++)
        if (gm_usage_of[gpu].is_known && gm_usage_sample_gpu(gpu))
            result = GM_USAGE_CHANGED;
    gm_unlock(&gm_usage_lock);
    return result;
}

void gm_usage_after_fork(void)
{
    atomic_store(&gm_usage_known, 0);
}
