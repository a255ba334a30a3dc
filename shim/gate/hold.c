#include "shim/gate/hold.h"

#include "common/clock.h"

/* The daemon's holds are much shorter; whatever it says, the program is not stopped for longer. */
#define GM_HOLD_MOST GM_S
#define GM_HOLD_AGAIN (200 * GM_US) /* until a channel has come or gone */

static uint64_t gm_hold_until;                /* 0: none is on */
static uint64_t gm_hold_try, gm_hold_try_end; /* one is to begin then; end 0: none */

void gm_hold(uint64_t now, uint64_t for_ns)
{
    const uint64_t end = now + (for_ns < GM_HOLD_MOST ? for_ns : GM_HOLD_MOST);
    gm_hold_try = now;
    if (end > gm_hold_try_end)
        gm_hold_try_end = end;
}

static void gm_hold_begin(uint64_t now, enum gm_park_outcome (*disable)(void))
{
    const enum gm_park_outcome outcome =
        gm_hold_try_end > now ? gm_park_hold(disable) : GM_PARK_NEVER;
    if (outcome == GM_PARK_LATER) {
        gm_hold_try = now + GM_HOLD_AGAIN;
        return;
    }
    if (outcome == GM_PARK_IS_ON && gm_hold_try_end > gm_hold_until)
        gm_hold_until = gm_hold_try_end;
    gm_hold_try_end = 0;
}

uint64_t gm_hold_look(uint64_t now, enum gm_park_outcome (*disable)(void), void (*enable)(void))
{
    if (gm_hold_try_end != 0 && now >= gm_hold_try)
        gm_hold_begin(now, disable);
    if (gm_hold_until != 0 && now >= gm_hold_until) {
        gm_hold_until = 0;
        gm_park_unhold(enable);
    }
    uint64_t at = gm_hold_until != 0 ? gm_hold_until : UINT64_MAX;
    if (gm_hold_try_end != 0 && gm_hold_try < at)
        at = gm_hold_try;
    return at;
}

void gm_hold_forget(void)
{
    gm_hold_try_end = 0;
}

void gm_hold_end(void (*enable)(void))
{
    gm_hold_until = gm_hold_try_end = 0;
    gm_park_unhold(enable);
}
