#include "shim/gate/rhythm.h"

#include "common/clock.h"

/* A thread that submits again sooner is in the middle of a request, or works all the time. A hint
 * that is given later than this before the request is of no use (core/hint). */
#define GM_RHYTHM_REST_NS GM_MS
/* A request is in time if it comes so close to the period, or to a sixteenth of that if it is less.
 * Others stand still for as long before and after it. */
#define GM_RHYTHM_JITTER_NS (500 * GM_US)
#define GM_RHYTHM_STEADY 4u /* requests in time, after the first two */
#define GM_RHYTHM_FADE 8u   /* averages follow, and extremes are forgotten, by an eighth */

static uint64_t gm_rhythm_apart(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

static uint64_t gm_rhythm_most(uint64_t most, uint64_t found)
{
    most -= most / GM_RHYTHM_FADE;
    return found > most ? found : most;
}

void gm_rhythm_submit(struct gm_rhythm *rhythm, uint64_t now)
{
    if (now - rhythm->ended_at < GM_RHYTHM_REST_NS)
        return;
    const uint64_t passed = now - rhythm->begun_at, period = rhythm->period;
    const uint64_t off = gm_rhythm_apart(passed, period);
    const uint64_t took = rhythm->ended_at - rhythm->begun_at;
    if (off <= GM_RHYTHM_JITTER_NS && off <= period / 16) {
        rhythm->period = (period * (GM_RHYTHM_FADE - 1) + passed) / GM_RHYTHM_FADE;
        rhythm->jitter = gm_rhythm_most(rhythm->jitter, off);
        rhythm->needs = gm_rhythm_most(rhythm->needs, took);
        rhythm->n_steady++;
    } else {
        rhythm->period = passed;
        rhythm->jitter = rhythm->needs = 0;
        rhythm->n_steady = 0;
    }
    rhythm->begun_at = now;
    rhythm->is_told = false;
}

bool gm_rhythm_rest(struct gm_rhythm *rhythm, uint64_t now, uint64_t *after_us, uint64_t *for_us)
{
    rhythm->ended_at = now;
    const uint64_t at = rhythm->begun_at + rhythm->period - rhythm->jitter;
    if (rhythm->is_told || rhythm->n_steady < GM_RHYTHM_STEADY || at < now + GM_RHYTHM_REST_NS)
        return false;
    rhythm->is_told = true;
    *after_us = (at - now) / GM_US;
    *for_us = (rhythm->needs + 2 * rhythm->jitter) / GM_US;
    return true;
}
