/*
 * A client: one connected program, on all GPUs that it uses. It is an app of the engine of each of
 * them, with the same id everywhere. It has one ctl page, one stat area and one gate for all.
 *
 * The gate is open when no engine wants it closed (`shut`). The first that closes it sends CLOSE;
 * one that comes later shares the answer, be it here already or not: engines hear of it one after
 * the other, and may close the gate in between. All work of the program on all GPUs has ended or is
 * parked when it answers, so each engine may move what the program has on its GPU until it opens
 * the gate for its part. So kernels that reach memory of another GPU are safe whatever the program
 * does, and a launch reads one word however many GPUs there are.
 *
 * A client is its process, not its connection: a child that was made with clone() alone has a copy
 * of that, of the files of the GPU, and so perhaps of the memory. When the process has ended, the
 * session ends. The client stays as gone until the last copy of the connection is closed.
 *
 * Clients of one group (groups.h) run together.
 *
 * Made by the machine. Owns the shared memory.
 */
#ifndef GM_DAEMON_ENGINE_ACT_CLIENT_H
#define GM_DAEMON_ENGINE_ACT_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/shm.h"
#include "common/wire.h"
#include "daemon/core/ledger_clients.h"
#include "daemon/engine/state/client.h"
#include "daemon/memory/kept.h"

/* CLOSE of the next daemon has a number that none of this one had, however many it sent that the
 * ledger does not know: the program knows its questions by it. */
#define GM_CLIENT_EPOCHS (1ull << 32)

/* A client with its shared memory, in `group` (NULL: one of its own). `name` is copied. What is to
 * outlive the daemon is put into `kept`, or it is no client. Returns 0; or -errno, and then nothing
 * is left. */
int gm_client_open(struct gm_client **client, uint32_t id, const struct gm_newcomer *who,
                   struct gm_group *group, struct gm_kept *kept);

/*
 * A client of a daemon that has ended, as that knew it: with its id, in no group yet, and without a
 * session: its program has yet to come back. The stat area is the one that the program has mapped;
 * the ctl page is new, and its gate is closed. Both descriptors are this function's; -1: it is
 * lost. Returns 0; 1: the stat area is lost, so its program cannot come back; or -errno, and then
 * nothing is left here, and the keeper holds on to what it has.
 */
int gm_client_reopen(struct gm_client **client, uint32_t id, const struct gm_client_record *record,
                     int stat, int lease, struct gm_kept *kept, uint64_t now);
/* As if it had not been opened again: the client ends, and the keeper holds on likewise. */
void gm_client_undo_reopen(struct gm_client *client);
/*
 * Its program has come back, and says that of itself. From now on it is connected; WELCOME is next.
 * False: it says what cannot be, and nothing has changed.
 */
bool gm_client_return(struct gm_client *client, struct gm_session *session,
                      const struct gm_msg_rejoin *body);
/* ... after all it has not. */
void gm_client_lose(struct gm_client *client, uint64_t now);
/* Its use is counted for this user, and not for its own uid. */
void gm_client_count_for(struct gm_client *client, uid_t owner);
/*
 * Have `on_exit` called when its process ends, in the place of what was to be called before. The
 * first call begins to look, and fails with -errno; later ones do not. Where the system gives no
 * pidfds it is never called.
 */
int gm_client_await(struct gm_client *client, uv_loop_t *loop,
                    void (*on_exit)(void *arg, struct gm_client *client), void *arg);
/* Have `on_end` called when it ends: its session has, and no engine has it any more. */
void gm_client_watch(struct gm_client *client,
                     void (*on_end)(void *arg, const struct gm_client *client), void *arg);
/* The last one ends and frees it. */
void gm_client_drop(struct gm_client *client);

/* Send WELCOME, with what there is of each GPU. Returns 0 or -errno (gm_engine_outlet.send). */
int gm_client_welcome(struct gm_client *client, const struct gm_engine_outlet *outlet, int lifeline,
                      const struct gm_gpu_entry *gpus, uint32_t n);

/* Its process has ended: if there are copies of its connection, wait for their end, of which
 * `on_closed` hears. */
void gm_client_died(struct gm_client *client, uv_loop_t *loop,
                    const struct gm_engine_outlet *outlet,
                    void (*on_closed)(struct gm_client *client));
/* The process that has them, which is to end. 0: not known, or there are none. */
pid_t gm_client_copier(const struct gm_client *client, const struct gm_engine_outlet *outlet);
/* Look for it, in all of /proc, if it is not known. As that takes long, it is done only now and
 * then: for no client before `*look_at`, which is moved on. The one that was found stays until it
 * ends. */
void gm_client_find_copier(struct gm_client *client, const struct gm_engine_outlet *outlet,
                           uint64_t now, uint64_t *look_at);

/* The answer to a CLOSE, before any engine hears of it. False: the program lies, see above. */
bool gm_client_answer(struct gm_client *client, const struct gm_msg_drained *answer);
/* Its work stands still on the GPU, and is marked so (shm.h, gm_stat.moving). False: it cannot be
 * marked, for the program lets it go on. */
bool gm_client_park(struct gm_client *client);
/* ... and it may go on, as its gate was open. */
void gm_client_go_on(struct gm_client *client);
/* Its session has ended, or it does not come back. */
void gm_client_left(struct gm_client *client);

/* For GATE and UNPARK. */
void gm_client_set_gate(struct gm_client *client, uint64_t epoch, bool is_open);
void gm_client_unpark(struct gm_client *client);

#endif
