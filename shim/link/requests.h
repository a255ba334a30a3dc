/*
 * Requests: what the program's threads ask of the daemon. The thread of a request (ENTER, ALLOC,
 * FREE, SHARE, OPEN, SHUT) waits on its own condition for the answer with its cookie.
 *
 * While the daemon is lost and may come back, it waits on. What was asked is asked again of the
 * next daemon, with the same cookie: so it is answered once, whatever the one before had done of
 * it. If none comes in time, ALLOC is refused, FREE and SHUT are kept for the next one, and the
 * others fail.
 *
 * Owns the open requests and their cookies, and whether there is a daemon to ask. Any thread, but
 * for what is said. Calls the post and work, and the rooms above through gm_request_calls.
 */
#ifndef GM_SHIM_REQUESTS_H
#define GM_SHIM_REQUESTS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/share.h"
#include "common/wire.h"

/* Whom the link thread calls for a request, without a lock. */
struct gm_request_calls {
    /* After a loss for good: unmap a range that is freed. */
    CUresult (*release)(uint64_t va, uint64_t bytes);
    /* The answer to gm_link_alloc_ahead: 0, a CUresult, or -ENOTCONN: no daemon will answer. */
    void (*ahead_came)(uint64_t va, uint64_t bytes, int result);
};

/* Start only: the daemon is there, and has `n_gpus`. `calls` stay. */
void gm_requests_open(const struct gm_request_calls *calls, uint32_t n_gpus);

/* Link thread: the daemon is lost, and may come back: who asks waits ... */
void gm_requests_await(void);
/* ... too long: who waits is refused, and who asks from now on. */
void gm_requests_refuse(void);
/* It is back: ask all again. */
void gm_requests_go_on(void);

/* Link thread: the daemon is lost for good. Nobody asks any more ... */
void gm_requests_lose(void);
/* ... and who has asked hears of it. */
void gm_requests_end(void);

/* The newest cookie. */
uint64_t gm_requests_cookie(void);

/* Link thread: a message of the daemon that answers a request. False: there is no such request. */
bool gm_requests_answer(const struct gm_wire_message *message);

/* The forked child, or a boot that fails. */
void gm_requests_close(void);

/* Whether there is a daemon to ask, be it away for the moment. */
bool gm_link_has_daemon(void);

/* Like gm_link_alloc below, but only if there is plenty of room, and without waiting: the link
 * thread calls `ahead_came`. 0, or -errno if it will not: lost, or GM_LINK_AHEAD requests are open.
 */
#define GM_LINK_AHEAD 8u
int gm_link_alloc_ahead(uint64_t va, uint64_t bytes, uint32_t gpu);

/* The program has a context on `gpu` (-1: on none that is shared). Tells the daemon once, if there
 * are several, and waits for its answer: from then on the gate is that of this GPU, too. */
void gm_link_enter(int gpu);

/*
 * Have the daemon back `bytes` (a multiple of GM_CHUNK_MIN) at `va` on `gpu`. The caller reserved
 * the range. Returns 0; a CUresult; -ENOTCONN (lost) or -ETIMEDOUT (out of memory: no daemon
 * comes): call gm_link_free before other use of the range.
 */
int gm_link_alloc(uint64_t va, uint64_t bytes, uint32_t gpu);

/* Of gm_link_free and gm_link_shut_share: no daemon is there, and the next one will do it. Until
 * then the range is in use; it stays reserved for good, so that nobody has to wait. */
#define GM_LINK_LATER INT32_MAX

/* Unmap and forget the chunks of [va, va + bytes): by the daemon, or here after a loss for good.
 * The GPU must be done with them. Returns 0, GM_LINK_LATER or a CUresult; after 0 nothing is mapped
 * in the range. */
int gm_link_free(uint64_t va, uint64_t bytes);

/* Share the allocation at `va`; call it inside the gate. Returns 0 with *shared, a CUresult from
 * the daemon, or -ENOTCONN. */
int gm_link_share(uint64_t va, struct gm_msg_shared *shared);

/*
 * Map the shared memory `name` at `va`, a range of its bytes that the caller reserved. Returns 0, a
 * CUresult with nothing mapped, or -ENOTCONN: call gm_link_shut_share before other use of the
 * range.
 */
int gm_link_open_share(uint64_t va, const struct gm_share_name *name);

/* Unmap it: by the daemon, or here after a loss for good. Returns as gm_link_free. */
int gm_link_shut_share(uint64_t va, uint64_t bytes);

#endif
