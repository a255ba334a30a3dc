/* See probe.h. It owns nothing. */
#include "shim/observe/probe.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/features.h"
#include "shim/driver/real.h"
#include "shim/observe/channels.h"

/* A write lands 5 to 10 us after the word is set, and after up to a timeslice of others (2 ms, the
 * driver's default) while they use the GPU. Parked for so many times as long as it took enabled, a
 * write that does not land was stopped. */
#define GM_PROBE_FACTOR 4
#define GM_PROBE_HOLD_LEAST (GM_SLOW * GM_MS)
#define GM_PROBE_HOLD_MOST (20 * GM_MS)
#define GM_PROBE_TRIALS 3                         /* enabled; the longest counts */
#define GM_PROBE_PATIENCE (GM_SLOW * 500 * GM_MS) /* then the GPU is busy with something else */
#define GM_PROBE_LOOK (20 * GM_US)

struct gm_probe_words {
    _Atomic uint32_t go;
    uint8_t apart[60];
    _Atomic uint32_t has_landed;
};

struct gm_probe_trial {
    CUstream stream;
    struct gm_probe_words *words;
};

enum gm_probe_answer {
    GM_PROBE_WORKS,
    GM_PROBE_FAILS,
    GM_PROBE_UNKNOWN,
};

static bool gm_probe_has_calls(void)
{
    return gm_real.cuStreamCreate != NULL && gm_real.cuStreamDestroy_v2 != NULL &&
           gm_real.cuMemHostAlloc != NULL && gm_real.cuStreamWaitValue32_v2 != NULL &&
           gm_real.cuStreamWriteValue32_v2 != NULL;
}

static bool gm_probe_submit(const struct gm_probe_trial *trial)
{
    struct gm_probe_words *words = trial->words;
    atomic_store(&words->go, 0);
    atomic_store(&words->has_landed, 0);
    if (gm_real.cuStreamWaitValue32_v2(trial->stream, (CUdeviceptr)(uintptr_t)&words->go, 1,
                                       CU_STREAM_WAIT_VALUE_EQ) != CUDA_SUCCESS)
        return false;
    if (gm_real.cuStreamWriteValue32_v2(trial->stream, (CUdeviceptr)(uintptr_t)&words->has_landed,
                                        1, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS)
        return true;
    atomic_store(&words->go, 1); /* let it go on */
    return false;
}

/* Whether the write lands within `ns`; when it does, `took`. */
static bool gm_probe_lands(const struct gm_probe_trial *trial, uint64_t ns, uint64_t *took)
{
    const struct timespec look = gm_timespec(GM_PROBE_LOOK);
    const uint64_t from = gm_now();
    for (;;) {
        bool has_landed = atomic_load(&trial->words->has_landed) != 0;
        *took = gm_now() - from;
        if (has_landed || *took >= ns)
            return has_landed;
        nanosleep(&look, NULL);
    }
}

static enum gm_probe_answer gm_probe_park(const struct gm_probe_trial *trial)
{
    uint64_t longest = 0, took;

    for (unsigned i = 0; i < GM_PROBE_TRIALS; i++) {
        if (!gm_probe_submit(trial))
            return GM_PROBE_FAILS;
        atomic_store(&trial->words->go, 1);
        if (!gm_probe_lands(trial, GM_PROBE_PATIENCE, &took))
            return GM_PROBE_UNKNOWN;
        longest = took > longest ? took : longest;
    }
    uint64_t hold = longest * GM_PROBE_FACTOR;
    if (hold > GM_PROBE_HOLD_MOST)
        return GM_PROBE_UNKNOWN;
    if (hold < GM_PROBE_HOLD_LEAST)
        hold = GM_PROBE_HOLD_LEAST;

    if (!gm_probe_submit(trial))
        return GM_PROBE_FAILS;
    enum gm_park_result result = gm_channels_park();
    atomic_store(&trial->words->go, 1);
    bool is_stopped = result == GM_PARK_DONE && !gm_probe_lands(trial, hold, &took);
    gm_channels_resume();
    const bool goes_on = gm_probe_lands(trial, GM_PROBE_PATIENCE, &took);
    if (result == GM_PARK_CHANGED)
        return GM_PROBE_UNKNOWN;
    return is_stopped && goes_on ? GM_PROBE_WORKS : GM_PROBE_FAILS;
}

static enum gm_probe_answer gm_probe_try(void)
{
    struct gm_probe_trial trial;
    void *words;

    if (!gm_probe_has_calls())
        return GM_PROBE_FAILS;
    if (gm_real.cuMemHostAlloc(&words, sizeof *trial.words,
                               CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) !=
        CUDA_SUCCESS)
        return GM_PROBE_UNKNOWN;
    trial.words = words;
    enum gm_probe_answer answer = GM_PROBE_UNKNOWN;
    if (gm_real.cuStreamCreate(&trial.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
        answer = gm_probe_park(&trial);
        gm_real.cuStreamDestroy_v2(trial.stream);
    }
    return answer; /* the words stay: freeing them would wait for all work of the context */
}

bool gm_probe(uint32_t *off)
{
    *off = 0;
    if (gm_channels_compute_groups() == 0) {
        *off = GM_FEATURE_PARK | GM_FEATURE_TIMESLICE;
        return true;
    }
    enum gm_probe_answer answer = gm_probe_try();
    if (answer == GM_PROBE_UNKNOWN)
        return false;
    if (answer == GM_PROBE_FAILS)
        *off |= GM_FEATURE_PARK;
    if (gm_channels_try_timeslice() != 0)
        *off |= GM_FEATURE_TIMESLICE;
    return true;
}
