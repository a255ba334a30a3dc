/*
 * EXPLAIN: why what holds does hold. Options with where their values come from; and which rules
 * bind a program, by the functions that bind it when it begins. session.c calls it; it calls
 * options.c and rules.c. Loop thread only.
 *
 *   {"options":[{"name":"slice", "value":"4s", "from":"default"}, ...]}
 *   {"rules":[{"rule":..., "from":..., "binds":true, "why":...}], "class":"batch", "holds":...}
 *   {"refused":...}
 */
#ifndef GM_DAEMON_SERVICE_EXPLAIN_H
#define GM_DAEMON_SERVICE_EXPLAIN_H

#include "daemon/service/control.h"

/* The document. The caller frees it with cJSON_free. NULL: out of memory. */
char *gm_explain(const struct gm_control *control, uid_t asker, bool is_admin,
                 const struct gm_msg_explain *body);

/* A document that says no. Likewise. */
char *gm_explain_refusal(const char *why);

#endif
