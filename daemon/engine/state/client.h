/*
 * What engines do with a client (act/client.h): its gate, and that it is an app of theirs. Owns
 * gm_client: shut, epoch, state, refs. What follows outside is posted with the engine.
 */
#ifndef GM_DAEMON_ENGINE_STATE_CLIENT_H
#define GM_DAEMON_ENGINE_STATE_CLIENT_H

#include "common/chunk.h"
#include "daemon/engine/state/state.h"

/* One without shared memory, in no group; the caller has it. NULL: there is no memory. */
struct gm_client *gm_client_make(uint32_t id, uid_t uid, struct gm_kept *kept);
/* One whose process has ended long ago, and which has no memory that is shared. 0 or -ENOMEM. */
int gm_client_open_ended(struct gm_client **client, uint32_t id, uid_t uid);
void gm_client_hold(struct gm_client *client);
/* The engine, or who made it, has it no more. */
void gm_client_let_go(struct gm_engine *engine, struct gm_client *client);

/* What the program is told of `bytes` that it could have: no more than another system's variable
 * says. */
static inline uint64_t gm_client_told(const struct gm_client *client, uint64_t bytes)
{
    const bool is_bounded =
        client->wishes.cap_is == GM_HELLO_CAP_FOREIGN && client->wishes.cap < bytes;
    return is_bounded ? client->wishes.cap & ~(GM_CHUNK_MIN - 1) : bytes;
}

/* The engine wants the gate closed. True: it was open, and CLOSE is to be sent for the new epoch.
 */
bool gm_client_shut(struct gm_client *client, struct gm_engine *engine);
/* Its gate is closed already, and stays so for engine number `index`, which it is new to. */
void gm_client_keep_shut(struct gm_client *client, uint32_t index);
/* All that it has is in place: its work, which stood still on the GPU, may go on. */
void gm_client_resume(struct gm_client *client, struct gm_engine *engine);
/* It has come back from the daemon before, its gate is closed, and its work may run. */
void gm_client_runs(struct gm_client *client);
/* The engine does not want the gate closed any more. True: it is open now. */
bool gm_client_let(struct gm_client *client, struct gm_engine *engine);
/* The one setter of its state. False: the event is not legal in it. */
bool gm_client_turn(struct gm_client *client, enum gm_client_event event);
/* Its work stands still on the GPU, and is marked so; or does not. */
void gm_client_set_parked(struct gm_client *client, bool is_parked);
/* An engine has a number for CLOSE that is newer than all before. */
void gm_client_set_epoch(struct gm_client *client, uint64_t epoch);
/* One has it no more. True: nobody has. */
bool gm_client_drop_one(struct gm_client *client);

#endif
