/* What rules say of programs and of their users. */
#ifndef GM_DAEMON_ENGINE_STEP_RULES_H
#define GM_DAEMON_ENGINE_STEP_RULES_H

#include "daemon/engine/step/settings.h"

/* What rules say of the app's settings in `may` holds from now on. `text`: the rule; "": none.
 * False: no rule is for it. */
bool gm_engine_take_rule(struct gm_engine *engine, uint32_t app, uint32_t may, char *text,
                         size_t size);
/* The rule from which it has a setting (enum gm_set_setting). False: from none. */
bool gm_engine_rule_of(const struct gm_engine *engine, uint32_t app, uint32_t setting, char *text,
                       size_t size);
/* The rule that bounds the GPU memory of all programs of its user. False: none does. */
bool gm_engine_total_rule_of(const struct gm_engine *engine, uint32_t app, char *text, size_t size);
/* Rules may be less strict once more is known of its user. */
bool gm_engine_is_unsure(const struct gm_engine *engine, uint32_t app);
/* What all programs of its user may have is as rules say. */
void gm_engine_take_totals(struct gm_engine *engine, uint32_t app);
/* The cap of a rule must be possible: if it is not, the rule does not say it. */
void gm_engine_check_rule(struct gm_engine *engine, uint32_t app);

#endif
