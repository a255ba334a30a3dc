#include "daemon/engine/state/client.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/engine/state/actions.h"
#include "daemon/engine/state/events.h"
#include "daemon/engine/state/groups.h"

struct gm_client *gm_client_make(uint32_t id, uid_t uid, struct gm_kept *kept)
{
    struct gm_client *client = calloc(1, sizeof *client);
    if (!client)
        return NULL;
    *client = (struct gm_client){
        .fds = {-1, -1}, .lease = -1, .refs = 1, .id = id, .uid = uid, .owner = uid, .kept = kept};
    return client;
}

int gm_client_open_ended(struct gm_client **out, uint32_t id, uid_t uid)
{
    struct gm_client *client = gm_client_make(id, uid, NULL);
    if (!client)
        return -ENOMEM;
    *out = client;
    if (gm_group_add(NULL, client) == 0)
        return 0;
    free(client);
    return -ENOMEM;
}

void gm_client_hold(struct gm_client *client)
{
    client->refs++;
}

bool gm_client_drop_one(struct gm_client *client)
{
    return --client->refs == 0;
}

static void post(struct gm_engine *engine, enum gm_action_kind kind, struct gm_client *client)
{
    gm_engine_post_surely(engine, kind)->gate.client = client;
}

void gm_client_let_go(struct gm_engine *engine, struct gm_client *client)
{
    post(engine, GM_ACTION_DROP_CLIENT, client);
}

bool gm_client_turn(struct gm_client *client, enum gm_client_event event)
{
    const struct gm_turn turn = {.model = GM_MODEL_CLIENT,
                                 .from = (uint8_t)client->state,
                                 .event = (uint8_t)event,
                                 .to = gm_model_next(GM_MODEL_CLIENT, client->state, event),
                                 .id = client->id,
                                 .app = client->id};
    uint32_t i = 0;
    while (i < GM_GPUS_MAX - 1 && !client->engines[i])
        i++;
    if (client->engines[i])
        gm_engine_emit(
            client->engines[i],
            &(struct gm_event){.kind = GM_EVENT_TURN, .app = client->id, .turn.turn = turn});
    if (turn.to == GM_TURN_ILLEGAL)
        return false;
    client->state = (enum gm_client_state)turn.to;
    return true;
}

void gm_client_set_parked(struct gm_client *client, bool is_parked)
{
    client->is_parked = is_parked;
}

void gm_client_set_epoch(struct gm_client *client, uint64_t epoch)
{
    client->epoch = epoch;
}

void gm_client_resume(struct gm_client *client, struct gm_engine *engine)
{
    if (!client->is_parked)
        return;
    client->is_parked = false;
    post(engine, GM_ACTION_UNPARK, client);
}

static void set_gate(struct gm_client *client, struct gm_engine *engine, bool is_open)
{
    struct gm_action *action = gm_engine_post_surely(engine, GM_ACTION_GATE);
    action->gate.client = client;
    action->gate.epoch = client->epoch;
    action->gate.is_open = is_open;
}

bool gm_client_shut(struct gm_client *client, struct gm_engine *engine)
{
    const bool was_open = client->shut == 0;
    client->shut |= 1u << engine->config.index;
    if (!was_open || !gm_client_turn(client, GM_CLIENT_EV_SHUT))
        return false;
    client->epoch++;
    set_gate(client, engine, false);
    return true;
}

void gm_client_runs(struct gm_client *client)
{
    if (client->state == GM_CLIENT_QUIET)
        gm_client_turn(client, GM_CLIENT_EV_RUNS);
}

void gm_client_keep_shut(struct gm_client *client, uint32_t index)
{
    client->shut |= 1u << index;
}

bool gm_client_let(struct gm_client *client, struct gm_engine *engine)
{
    client->shut &= ~(1u << engine->config.index);
    if (client->shut != 0 || !gm_client_turn(client, GM_CLIENT_EV_LET))
        return false;
    set_gate(client, engine, true);
    return true;
}
