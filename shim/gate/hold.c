#include "shim/gate/hold.h"

#include "common/clock.h"

/* The daemon's holds are much shorter; whatever it says, the program is not stopped for longer, nor
 * later. */
#define GM_HOLD_MOST GM_S
#define GM_HOLD_AGAIN (200 * GM_US) /* until a channel has come or gone */

static uint64_t gm_hold_until;                  /* 0: none is on */
static uint64_t gm_hold_next, gm_hold_next_end; /* the one to come; end 0: none */

void gm_hold(uint64_t now, uint64_t in_ns, uint64_t for_ns)
{
    const uint64_t begin = now + (in_ns < GM_HOLD_MOST ? in_ns : GM_HOLD_MOST);
    const uint64_t end = begin + (for_ns < GM_HOLD_MOST ? for_ns : GM_HOLD_MOST);
    if (gm_hold_next_end == 0 || end < gm_hold_next) {
        gm_hold_next = begin;
        gm_hold_next_end = end;
    } else if (begin <= gm_hold_next_end) {
        gm_hold_next = begin < gm_hold_next ? begin : gm_hold_next;
        gm_hold_next_end = end > gm_hold_next_end ? end : gm_hold_next_end;
    }
}

/* The time of the next one has come. */
static void gm_hold_begin(uint64_t now, enum gm_park_outcome (*disable)(void))
{
    const enum gm_park_outcome outcome =
        gm_hold_next_end > now ? gm_park_hold(disable) : GM_PARK_NEVER;
    if (outcome == GM_PARK_LATER) {
        gm_hold_next = now + GM_HOLD_AGAIN;
        return;
    }
    if (outcome == GM_PARK_IS_ON && gm_hold_next_end > gm_hold_until)
        gm_hold_until = gm_hold_next_end;
    gm_hold_next_end = 0;
}

uint64_t gm_hold_look(uint64_t now, enum gm_park_outcome (*disable)(void), void (*enable)(void))
{
    if (gm_hold_next_end != 0 && now >= gm_hold_next)
        gm_hold_begin(now, disable);
    if (gm_hold_until != 0 && now >= gm_hold_until) {
        gm_hold_until = 0;
        gm_park_unhold(enable);
    }
    uint64_t at = gm_hold_until != 0 ? gm_hold_until : UINT64_MAX;
    if (gm_hold_next_end != 0 && gm_hold_next < at)
        at = gm_hold_next;
    return at;
}

void gm_hold_forget(void)
{
    gm_hold_next_end = 0;
}

void gm_hold_end(void (*enable)(void))
{
    gm_hold_until = gm_hold_next_end = 0;
    gm_park_unhold(enable);
}
