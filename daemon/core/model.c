/* The tables: see model.h. */
#include "daemon/core/model.h"

/* Rows are stored as one more than the state: 0 is no row. */
#define GM_MODEL(NAME, words)                                                                      \
    static const uint8_t turns_##NAME[GM_##NAME##_STATES_N][GM_##NAME##_EVENTS_N] = {              \
        GM_##NAME##_TURNS(TURN_##NAME)};                                                           \
    static const char *const states_##NAME[] = {GM_##NAME##_STATES(TEXT)};                         \
    static const char *const events_##NAME[] = {GM_##NAME##_EVENTS(TEXT)};
#define TEXT(NAME) #NAME,
#define TURN_CHUNK(FROM, EVENT, TO) [GM_CHUNK_##FROM][GM_CHUNK_EV_##EVENT] = 1 + GM_CHUNK_##TO,
#define TURN_FRAME(FROM, EVENT, TO) [GM_FRAME_##FROM][GM_FRAME_EV_##EVENT] = 1 + GM_FRAME_##TO,
#define TURN_SHADOW(FROM, EVENT, TO) [GM_SHADOW_##FROM][GM_SHADOW_EV_##EVENT] = 1 + GM_SHADOW_##TO,
#define TURN_CLIENT(FROM, EVENT, TO) [GM_CLIENT_##FROM][GM_CLIENT_EV_##EVENT] = 1 + GM_CLIENT_##TO,
#define TURN_APP(FROM, EVENT, TO) [GM_APP_##FROM][GM_APP_EV_##EVENT] = 1 + GM_APP_##TO,
GM_MODELS(GM_MODEL)

static const struct {
    const char *name;
    const char *const *states, *const *events;
    const uint8_t *turns;
    unsigned n_states, n_events;
} models[] = {
#define GM_ROW(NAME, words)                                                                        \
    [GM_MODEL_##NAME] = {words,         states_##NAME,        events_##NAME,                       \
                         *turns_##NAME, GM_##NAME##_STATES_N, GM_##NAME##_EVENTS_N},
    GM_MODELS(GM_ROW)
#undef GM_ROW
};

uint8_t gm_model_next(enum gm_model model, unsigned state, unsigned event)
{
    const uint8_t next = models[model].turns[state * models[model].n_events + event];
    return next == 0 ? GM_TURN_ILLEGAL : (uint8_t)(next - 1);
}

const char *gm_model_text(enum gm_model model)
{
    return models[model].name;
}

const char *gm_model_state_text(enum gm_model model, unsigned state)
{
    return state < models[model].n_states ? models[model].states[state] : "?";
}

const char *gm_model_event_text(enum gm_model model, unsigned event)
{
    return event < models[model].n_events ? models[model].events[event] : "?";
}

const char *gm_app_state_text(enum gm_app_state state)
{
    static const char *const words[] = {"unused",   "paused", "loading", "running",
                                        "draining", "gone",   "lost"};
    _Static_assert(sizeof words / sizeof *words == GM_APP_STATES_N, "a word for each state");
    return words[state];
}
