/*
 * What programs are told. Called by all files of the engine that answer, ask or tell.
 */
#include "daemon/engine/state/say.h"

#include <string.h>

#include "daemon/engine/state/actions.h"

/* Bytes of each message's payload, and of its entries. */
static const struct {
    uint32_t body, entry;
} sizes[] = {
#define GM_MSG(type, NAME, name, direction, states, entry, max_entries, max_fds)                   \
    [type] = {sizeof(struct gm_msg_##name), sizeof(struct entry)},
#include "common/wire.def"
#undef GM_MSG
};

void gm_engine_say(struct gm_engine *engine, uint32_t id, enum gm_msg_type type, const void *body)
{
    gm_engine_say_all(engine, id, type, body, NULL, 0, NULL, 0);
}

void gm_engine_say_all(struct gm_engine *engine, uint32_t id, enum gm_msg_type type,
                       const void *body, const void *entries, uint32_t n, const int *fds, int n_fds)
{
    if (engine->apps[id].is_cut_off)
        return;
    const void *its_body = gm_engine_post_copy(engine, body, sizes[type].body);
    const void *its_entries = gm_engine_post_copy(engine, entries, n * sizes[type].entry);
    const int *its_fds = gm_engine_post_copy(engine, fds, (size_t)n_fds * sizeof *fds);
    struct gm_action *action =
        its_body && its_entries && its_fds ? gm_engine_post(engine, GM_ACTION_SEND) : NULL;
    if (!action) {
        gm_engine_cut_off(engine, id, GM_REFUSE_FULL,
                          "the daemon has no memory left for messages to it");
        return;
    }
    action->send.session = engine->apps[id].session;
    action->send.type = type;
    action->send.body = its_body;
    action->send.entries = n > 0 ? its_entries : NULL;
    action->send.n = n;
    action->send.fds = n_fds > 0 ? its_fds : NULL;
    action->send.n_fds = n_fds;
}

void gm_engine_connected(struct gm_engine *engine, uint32_t id)
{
    engine->apps[id].is_cut_off = false;
}

void gm_engine_cut_off(struct gm_engine *engine, uint32_t id, enum gm_refusal reason,
                       const char *text)
{
    if (engine->apps[id].is_cut_off)
        return; /* so there is one END for each session: what is set aside for them is enough */
    engine->apps[id].is_cut_off = true;
    const char *its_text = gm_engine_post_copy(engine, text, strlen(text) + 1);
    struct gm_action *action = gm_engine_post_surely(engine, GM_ACTION_END);
    action->end.session = engine->apps[id].session;
    action->end.reason = reason;
    action->end.text = its_text ? its_text : "the daemon has no memory left";
}
