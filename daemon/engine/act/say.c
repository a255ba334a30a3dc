/*
 * What programs are told. Called by all files of the engine that answer, ask or tell.
 */
#include "daemon/engine/act/say.h"

void gm_engine_say(const struct gm_engine *engine, uint32_t id, enum gm_msg_type type,
                   const void *body)
{
    gm_engine_say_all(engine, id, type, body, NULL, 0, NULL, 0);
}

void gm_engine_say_all(const struct gm_engine *engine, uint32_t id, enum gm_msg_type type,
                       const void *body, const void *entries, uint32_t n, const int *fds, int n_fds)
{
    engine->config.outlet.send(engine->apps[id].session, type, body, entries, n, fds, n_fds);
}

void gm_engine_cut_off(const struct gm_engine *engine, uint32_t id, enum gm_refusal reason,
                       const char *text)
{
    engine->config.outlet.end(engine->apps[id].session, reason, text);
}
