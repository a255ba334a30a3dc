/*
 * Hints (EXPECT): a latency-critical program says when its next work comes and how long it takes.
 * The best-effort programs beside it are then held: their work stands still on the GPU. Pure; the
 * caller owns the structs. Called by the engine.
 *
 * Stopping takes GM_HINT_LEAD_NS, so a hold begins that long before the work. It lasts until the
 * work should be over, GM_HOLD_MOST_NS at most.
 *
 * Whatever programs say, a held program has its share of the time: in no second is it held for more
 * than the rest. Each hold is paid for by time that passes; at most GM_HOLD_BURST_NS may be owed
 * (the generic cell rate algorithm of ATM, with time for cells).
 */
#ifndef GM_CORE_HINT_H
#define GM_CORE_HINT_H

#include <stdbool.h>
#include <stdint.h>

/* When a program's work is to stand still. Absolute times. */
struct gm_hold {
    uint64_t begin, end;
};

/* How often a program gives hints. Zeroed before use. */
struct gm_hint_rate {
    uint64_t since;
    uint32_t n;
};

/*
 * A hint that came at `now`: when others should be held. False: the hint is none, because it is
 * about nothing, about what is too far away or over before anybody could be held, or the program
 * gives more than GM_HINTS_A_SECOND.
 */
bool gm_hint_take(struct gm_hint_rate *rate, uint64_t now, uint64_t after_us, uint64_t for_us,
                  struct gm_hold *hold);

/* How a program was held. Zeroed before use. */
struct gm_hold_account {
    struct gm_hold last;
    uint64_t paid_at; /* when all holds will be paid for */
};

/*
 * Whether a program of which `share` percent of the time is its own can be held. If so, `hold` is
 * charged; its end may be earlier then. Times that are charged already cost nothing.
 */
bool gm_hold_grant(struct gm_hold_account *account, uint32_t share, struct gm_hold *hold);

#endif
