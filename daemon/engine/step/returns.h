/* Programs of the daemon before that come back. */
#ifndef GM_DAEMON_ENGINE_STEP_RETURNS_H
#define GM_DAEMON_ENGINE_STEP_RETURNS_H

#include "daemon/engine/state/state.h"

/* Whether what a lost program says that it has can be, of this GPU: 0; or -EPROTO or -ENOMEM, and
 * one line in `why`. Nothing has changed. Of several GPUs each looks at its own entries. */
int gm_engine_check_holds(const struct gm_engine *engine, uint32_t app,
                          const struct gm_holds_entry *holds, uint32_t n, bool is_running,
                          char *why, size_t why_size);
/* It has a session again (WELCOME is sent): what it has mapped becomes what the ledger says. When
 * it has, it is PAUSED or RUNNING. As gm_engine_check_holds, and then nothing has changed. */
int gm_engine_app_returns(struct gm_engine *engine, uint32_t app,
                          const struct gm_holds_entry *holds, uint32_t n, bool is_running,
                          char *why, size_t why_size);
/* It has unmapped or dropped some of what is not its own any more. */
void gm_engine_stray_done(struct gm_engine *engine, uint32_t app);

#endif
