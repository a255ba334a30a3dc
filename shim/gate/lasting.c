#include "shim/gate/lasting.h"

#include <stdatomic.h>

#include "common/clock.h"
#include "shim/gate/gate.h"
#include "shim/gate/hot.h"

#define GM_LASTING_LOOK_NS (100 * GM_MS) /* a fifth of a window */

static _Atomic uint64_t gm_lasting_at = UINT64_MAX; /* when to look */
static uint32_t gm_lasting_followed;                /* the drainer's: a window; 0: none */

uint32_t gm_lasting_now(void)
{
    const struct gm_ctl *page = atomic_load_explicit(&gm_hot.page, memory_order_acquire);
    return atomic_load_explicit(&page->window, memory_order_relaxed);
}

void gm_lasting_begin(uint32_t window)
{
    atomic_store(&gm_gate_stat()->lasts_from, window);
    atomic_store(&gm_lasting_at, window != 0 ? 0 : UINT64_MAX);
}

uint64_t gm_lasting_due(void)
{
    return atomic_load(&gm_lasting_at);
}

bool gm_lasting_look(uint64_t now, uint32_t *window)
{
    uint64_t at = gm_lasting_due();
    if (at > now || !atomic_compare_exchange_strong(&gm_lasting_at, &at, now + GM_LASTING_LOOK_NS))
        return false; /* not yet, or it was just turned off or on */
    if (at == 0)
        gm_lasting_followed = 0; /* it was on before */
    if (gm_lasting_followed == 0) {
        const uint32_t now_in = gm_lasting_now();
        if (now_in == 0 || now_in == atomic_load(&gm_gate_stat()->lasts_from))
            return false;
        gm_gate_note_inside();
        gm_lasting_followed = now_in;
    }
    *window = gm_lasting_followed;
    return gm_gate_have_left();
}

void gm_lasting_ended(uint32_t window)
{
    gm_lasting_followed = 0;
    if (gm_lasting_due() == UINT64_MAX)
        return;
    atomic_store(&gm_gate_stat()->lasts_from, window);
    if (window == 0)
        atomic_store(&gm_lasting_at, UINT64_MAX);
}
