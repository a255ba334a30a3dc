#include "daemon/core/timeslice.h"

#include "daemon/core/tunables.h"

bool gm_timeslice_is_critical(enum gm_sched_class class)
{
    return class == GM_CLASS_LATENCY || class == GM_CLASS_INTERACTIVE;
}

void gm_timeslice_assign(struct gm_timeslice_app *apps, uint32_t n)
{
    uint32_t n_others = 0, n_busy = 0;
    for (uint32_t i = 0; i < n; i++) {
        const bool is_other = !gm_timeslice_is_critical(apps[i].class);
        n_others += is_other;
        n_busy += is_other && !apps[i].is_idle;
    }
    const bool is_mixed = n_others > 0 && n_others < n;
    for (uint32_t i = 0; i < n; i++) {
        struct gm_timeslice_app *app = &apps[i];
        /* Nobody else of its kind has work. If nobody has, whoever begins may be any of them. */
        const bool is_only = n_busy > 0 ? n_busy == 1 && !app->is_idle : n_others == 1;
        if (!is_mixed)
            app->us = 0;
        else if (gm_timeslice_is_critical(app->class))
            app->us = GM_TIMESLICE_CRITICAL_US;
        else
            app->us = is_only ? GM_TIMESLICE_ONLY_US : GM_TIMESLICE_SHARED_US;
    }
}
