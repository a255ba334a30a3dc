/*
 * Carries out what the step has posted (state/actions.h). Called where events come in (inlet.c),
 * and where an engine is opened and closed.
 */
#include "daemon/engine/act/act.h"

#include "daemon/engine/act/client.h"
#include "daemon/engine/act/copies.h"
#include "daemon/engine/act/device.h"
#include "daemon/engine/act/frames.h"
#include "daemon/engine/act/hashing.h"
#include "daemon/engine/act/tiers.h"
#include "daemon/engine/act/windows.h"
#include "daemon/engine/state/actions.h"

static void carry_out(struct gm_engine *engine, struct gm_action *action)
{
    const struct gm_engine_outlet *outlet = &engine->config.outlet;
    switch (action->kind) {
    case GM_ACTION_EVENT:
        outlet->event(engine->config.journal, &action->event);
        break;
    case GM_ACTION_SEND:
        outlet->send(action->send.session, action->send.type, action->send.body,
                     action->send.entries, action->send.n, action->send.fds, action->send.n_fds);
        break;
    case GM_ACTION_END:
        outlet->end(action->end.session, action->end.reason, action->end.text);
        break;
    case GM_ACTION_COPY:
        gm_engine_begin_copy(engine, action);
        break;
    case GM_ACTION_CLEAR:
        gm_engine_begin_clear(engine, action);
        break;
    case GM_ACTION_COPY_BELOW:
        gm_engine_begin_below(engine, action);
        break;
    case GM_ACTION_CREATE:
        gm_engine_create_frame(engine, action);
        break;
    case GM_ACTION_ADOPT:
        gm_engine_adopt_frame(engine, action);
        break;
    case GM_ACTION_DESTROY:
        gm_engine_destroy_frame(engine, action);
        break;
    case GM_ACTION_AHEAD:
        break;
    case GM_ACTION_HASH:
        gm_engine_begin_hash(engine, action);
        break;
    case GM_ACTION_GATE:
        gm_client_set_gate(action->gate.client, action->gate.epoch, action->gate.is_open);
        break;
    case GM_ACTION_UNPARK:
        gm_client_unpark(action->gate.client);
        break;
    case GM_ACTION_DROP_CLIENT:
        gm_client_drop(action->gate.client);
        break;
    case GM_ACTION_TRIM:
        action->trim.trimmed->paged = action->trim.is_all ? gm_stores_trim(engine->stores) : 0;
        break;
    case GM_ACTION_METER:
        gm_meter_run(engine->meter, action->is_metering);
        break;
    case GM_ACTION_READ_WINDOW:
        gm_engine_answer_window(engine, action);
        break;
    case GM_ACTION_ASK_DEVICE:
        gm_engine_ask_device(engine, &action->device);
        break;
    case GM_ACTION_ASK_STOP:
        action->stop.why = outlet->stop_of(action->stop.pid);
        break;
    }
}

void gm_engine_act(struct gm_engine *engine)
{
    gm_engine_make_wanted(engine);
    for (struct gm_action *action = gm_engine_carry(engine); action; action = action->next)
        carry_out(engine, action);
}
