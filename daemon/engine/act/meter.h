/* What crosses the link, as the meter tells it. */
#ifndef GM_DAEMON_ENGINE_ACT_METER_H
#define GM_DAEMON_ENGINE_ACT_METER_H

#include "daemon/engine/state/state.h"

/* `on_news` is called when the meter's state has changed, and when there are samples. */
void gm_engine_open_meter(struct gm_engine *engine, void (*on_news)(void *engine));
/* NULL: there is a meter, or whether is not known yet. Else why there is none. */
const char *gm_engine_why_no_meter(const struct gm_engine *engine);
/* The next sample, without this process; false: there is none. */
bool gm_engine_take_sample(struct gm_engine *engine, struct gm_meter_sample *sample);

#endif
