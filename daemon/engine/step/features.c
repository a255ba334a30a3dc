/*
 * What programs do without (common/features.def), for the log: each feature once. All programs have
 * one driver and one kernel, which do not change while the daemon runs; but what those under MPS do
 * without, others have, and service/mps.c says it: what a rule says of them is another thing. The
 * status has it for each program.
 *
 * Owns gm_engine.features_told. The words are the programs' own: shown, never trusted.
 */
#include "daemon/engine/step/features.h"
#include "daemon/engine/step/tuning.h"

#include "common/features.h"
#include "daemon/engine/act/events.h"

void gm_engine_note_features(struct gm_engine *engine)
{
    static const struct {
        uint32_t bit;
        const char *name, *text;
    } features[] = {
#define GM_FEATURE(bit, NAME, name, text) {GM_FEATURE_##NAME, name, text},
#include "common/features.def"
#undef GM_FEATURE
    };
    for (uint32_t id = 0; id < engine->config.max_apps; id++) {
        const struct gm_app *app = &engine->apps[id];
        if (!app->session || !app->stat)
            continue;
        const uint32_t off = atomic_load(&app->stat->features_off) & ~engine->features_told;
        if ((off & GM_FEATURE_ISOLATION) != 0) {
            gm_engine_take_part(engine, id);
            continue;
        }
        for (size_t i = 0; off != 0 && i < sizeof features / sizeof features[0]; i++) {
            if ((off & features[i].bit) == 0)
                continue;
            gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_FEATURE,
                                                      .app = id,
                                                      .feature = {.name = features[i].name,
                                                                  .text = features[i].text}});
            engine->features_told |= features[i].bit;
        }
    }
}
