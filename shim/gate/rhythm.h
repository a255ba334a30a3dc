/*
 * Rhythm: when a thread's next request comes, found out from when its last ones came. A camera, a
 * game or a robot asks a model at a steady rate. Then the program need not call gpumux_expect: the
 * shim gives the same hint for it.
 *
 * A request begins with the first work that a thread submits after it rested: after its last
 * synchronizing call it submitted nothing for a millisecond. It ends with the thread's last
 * synchronizing call. Requests are steady if five in a row came in time. A thread that works all
 * the time never rests, and requests that come at random are not steady, so neither gives hints.
 *
 * Pure; the caller owns the struct. The gate calls it, for each thread by itself.
 */
#ifndef GM_SHIM_RHYTHM_H
#define GM_SHIM_RHYTHM_H

#include <stdbool.h>
#include <stdint.h>

/* Zeroed before use. Times in ns. */
struct gm_rhythm {
    uint64_t begun_at, ended_at; /* of the newest request */
    uint64_t period;             /* from one request to the next, on average */
    uint64_t jitter;             /* the most that one came too early or too late, lately */
    uint64_t needs;              /* the most that one took, lately */
    uint32_t n_steady;           /* requests in a row that came in time */
    bool is_told;                /* the next one was announced */
};

/* The thread submits work at `now`, for the first time after a synchronizing call. */
void gm_rhythm_submit(struct gm_rhythm *rhythm, uint64_t now);

/*
 * A synchronizing call of the thread returned at `now`. True: announce the next request, which
 * comes in `*after_us` and takes `*for_us`, both in microseconds. That is so once for a request.
 */
bool gm_rhythm_rest(struct gm_rhythm *rhythm, uint64_t now, uint64_t *after_us, uint64_t *for_us);

#endif
