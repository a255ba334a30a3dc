#include "daemon/core/timeslice.h"

#include "common/chunk.h"
#include "daemon/core/tunables.h"

bool gm_timeslice_is_critical(enum gm_sched_class class)
{
    return class == GM_CLASS_LATENCY || class == GM_CLASS_INTERACTIVE;
}

bool gm_timeslice_assign(struct gm_timeslice_app *apps, uint32_t n)
{
    uint32_t n_others = 0;
    bool can_be_held = true;
    for (uint32_t i = 0; i < n; i++) {
        const bool is_other = !gm_timeslice_is_critical(apps[i].class);
        n_others += is_other;
        can_be_held = can_be_held && (!is_other || apps[i].can_be_held);
    }
    const bool is_mixed = n_others > 0 && n_others < n;
    for (uint32_t i = 0; i < n; i++) {
        if (!is_mixed)
            apps[i].us = 0;
        else if (gm_timeslice_is_critical(apps[i].class))
            apps[i].us = GM_TIMESLICE_CRITICAL_US;
        else
            apps[i].us =
                n_others == 1 || can_be_held ? GM_TIMESLICE_OTHER_US : GM_TIMESLICE_SHARED_US;
    }
    return is_mixed && n_others > 1 && can_be_held;
}

uint32_t gm_timeslice_next(const struct gm_timeslice_app *apps, uint32_t n, uint32_t last)
{
    uint32_t first = GM_NONE;
    for (uint32_t i = n; i-- > 0;) {
        if (apps[i].is_idle || gm_timeslice_is_critical(apps[i].class))
            continue;
        /* The lowest above `last`, else the lowest of all. */
        if (first == GM_NONE || apps[i].id > last || first <= last)
            first = apps[i].id;
    }
    return first;
}
