/*
 * The states of apps (core/model.h), which this file owns: gm_engine_turn is their only setter.
 */
#include "daemon/engine/step/states.h"

#include "daemon/engine/act/events.h"
#include "daemon/engine/state/groups.h"
#include "daemon/engine/state/round.h"

bool gm_engine_turn(struct gm_engine *engine, uint32_t id, enum gm_app_event event)
{
    struct gm_app *app = &engine->apps[id];
    const struct gm_turn turn = {.model = GM_MODEL_APP,
                                 .from = (uint8_t)app->state,
                                 .event = (uint8_t)event,
                                 .to = gm_model_next(GM_MODEL_APP, app->state, event),
                                 .id = id,
                                 .app = id};
    gm_engine_emit(engine, &(struct gm_event){.kind = GM_EVENT_TURN, .app = id, .turn.turn = turn});
    if (turn.to == GM_TURN_ILLEGAL)
        return false;
    app->state = (enum gm_app_state)turn.to;
    gm_engine_again(engine);
    gm_engine_replan(engine);
    gm_group_changed(engine, id);
    return true;
}
