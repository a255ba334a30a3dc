/* What crosses the link, as the meter tells it. */
#ifndef GM_DAEMON_ENGINE_ACT_METER_H
#define GM_DAEMON_ENGINE_ACT_METER_H

#include "daemon/engine/state/state.h"

/* `on_news` is called when the meter's state has changed, and when there are samples. */
void gm_engine_open_meter(struct gm_engine *engine, void (*on_news)(void *engine));
/* NULL: there is a meter, or whether is not known yet. Else why there is none. */
const char *gm_engine_why_no_meter(const struct gm_engine *engine);
/* Why nothing is judged now, that or another reason, as a text for a person; NULL: there is none.
 */
const char *gm_engine_why_unchecked(const struct gm_engine *engine, char *text, size_t size);
/* A process that uses the GPU and is neither the daemon nor a client's; 0: there is none, or nobody
 * knows. */
pid_t gm_engine_stranger(const struct gm_engine *engine, const struct gm_meter_sample *sample);
/* Samples are wanted from now on, or not. */
void gm_engine_measure(struct gm_engine *engine, bool is_on);
/* The next sample; false: there is none. */
bool gm_engine_take_sample(struct gm_engine *engine, struct gm_meter_sample *sample);

#endif
