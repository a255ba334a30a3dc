/* Programs of the daemon before that come back. */
#ifndef GM_DAEMON_ENGINE_STEP_RETURNS_H
#define GM_DAEMON_ENGINE_STEP_RETURNS_H

#include "daemon/engine/state/state.h"

/* What a lost program says that it has of this GPU, once it is checked. It holds until the app
 * returns, and nothing of the app changes before. */
struct gm_holdings;

/* Of several GPUs each looks at its own entries. 0, and the caller has *out; or -EPROTO (it cannot
 * be) or -ENOMEM, and one line in `why`. Nothing has changed in any case. */
int gm_engine_read_holds(const struct gm_engine *engine, uint32_t app,
                         const struct gm_holds_entry *holds, uint32_t n, bool is_running,
                         struct gm_holdings **out, char *why, size_t why_size);
void gm_engine_free_holds(struct gm_holdings *has); /* NULL is none */
/* It has a session again (WELCOME is sent): what it has mapped becomes what the ledger says. When
 * it has, it is PAUSED or RUNNING. */
void gm_engine_app_returns(struct gm_engine *engine, uint32_t app, const struct gm_holdings *has);
/* It has unmapped or dropped some of what is not its own any more. */
void gm_engine_stray_done(struct gm_engine *engine, uint32_t app);

#endif
