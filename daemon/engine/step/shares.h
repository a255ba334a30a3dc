/* Memory that several programs map: SHARE, OPEN, SHUT. */
#ifndef GM_DAEMON_ENGINE_STEP_SHARES_H
#define GM_DAEMON_ENGINE_STEP_SHARES_H

#include "daemon/engine/state/state.h"

/* What a program asks. `nonce`: two numbers that nobody can guess; NULL: there are none. */
void gm_engine_share(struct gm_engine *engine, uint32_t app, const struct gm_msg_share *share,
                     const uint64_t *nonce);
void gm_engine_open_share(struct gm_engine *engine, uint32_t app, const struct gm_msg_open *open);
/* The app has memory of the partner mapped, and may wait for it on the GPU: they run together. */
void gm_engine_unite(struct gm_engine *engine, uint32_t app, const struct gm_client *partner);
/* ... and all whose memory it has open: it is back, and what came of that the daemon before may not
 * have told any more. */
void gm_engine_unite_owners(struct gm_engine *engine, uint32_t app);
/* The app has come to this GPU: those that it shares memory with may run with it from now on. */
void gm_engine_unite_kin(struct gm_engine *engine, uint32_t app);
/* Whether `app` has opened something at `va`. */
bool gm_engine_has_open(const struct gm_engine *engine, uint32_t app, uint64_t va);
void gm_engine_shut(struct gm_engine *engine, uint32_t app, const struct gm_msg_shut *shut);
/* Adopted shares: what an app that has yet to come back may have open, it counts as having open
 * until it says what it has mapped. Whether that may be something in this frame. */
bool gm_engine_may_have_open(const struct gm_engine *engine, uint32_t app, uint32_t frame);
/* It has come back, with each frame mapped at va[frame]. What it has mapped as a whole is open ...
 */
void gm_engine_confirm_opens(struct gm_engine *engine, uint32_t app, const uint64_t *va);
bool gm_engine_is_open(const struct gm_engine *engine, uint32_t app, uint32_t frame);
/* ... and nothing else. */
void gm_engine_end_unconfirmed(struct gm_engine *engine, uint32_t app);
/* At the start: an allocation is shared by this name; then all frames that are, and who may have
 * opened them. 0 or -ENOMEM. */
int gm_engine_adopt_share(struct gm_engine *engine, uint32_t allocation,
                          const struct gm_ledger_allocation *is);
int gm_engine_adopt_orphans(struct gm_engine *engine);
/* A batch of places is answered. */
void gm_engine_places_done(struct gm_engine *engine, const struct gm_batch *batch, int32_t result);
/* The owner frees the allocation at `va`, or is gone: nobody can open it any more. */
void gm_engine_unshare(struct gm_engine *engine, uint32_t owner, uint64_t va);
/* The owner's chunk has given `frame` up, which is part of a share. */
void gm_engine_leave_share(struct gm_engine *engine, uint32_t frame);
/* `app` is gone, with all that it had opened. */
void gm_engine_forget_opens(struct gm_engine *engine, uint32_t app);
/* Bytes that the app shares, and that it has open of others'. */
uint64_t gm_engine_shared_bytes(const struct gm_engine *engine, uint32_t app);
uint64_t gm_engine_opened_bytes(const struct gm_engine *engine, uint32_t app);
void gm_engine_close_shares(struct gm_engine *engine);

/* The chunk's pages are none of its own any more, nor its shadow. */
void gm_engine_free_pages(struct gm_engine *engine, uint32_t chunk);
/* The chunk's frame is nobody's any more; it is mapped nowhere, or its app is gone. */
void gm_engine_give_up_frame(struct gm_engine *engine, uint32_t chunk);

/* An app that was lost has ended, or left: what only it may have mapped is nobody's. */
void gm_engine_end_awaiting(struct gm_engine *engine, uint32_t app);

#endif
